/* keys.c - names of keys. A lock has the key `name`, as other programs expect. A key beside the lock must be in the same
 * slot of a cluster as the lock. The cluster hashes the part of a key between its first '{' and the next '}', or the whole
 * key if there is no such part or it is empty. So a key beside the lock has one of three forms:
 *
 * | name                                        | key                            |
 * |---------------------------------------------|--------------------------------|
 * | has such a part, its tag: "a{tag}b"         | "{tag}:mortise:word:a{tag}b"   |
 * | has no tag and no '}'                       | "{name}:mortise:word"          |
 * | has no tag, but a '}': "}a", "a{}b"         | "{@@@@}:mortise:word:a{}b"     |
 *
 * A name of the third kind cannot stand in braces. Its tag is four letters of "@ABCDEFGHIJKLMNO" that have the slot of the
 * whole name. No two names have a key in common: the text after ":mortise:word:" is the name. */
#include "keys.h"

#include <stdlib.h>
#include <string.h>

#define MARK "}:mortise:"

void key_add(struct key_parts *parts, const void *data, size_t length)
{
    parts->part[parts->count++] = (struct link_part){data, length};
}

void key_add_text(struct key_parts *parts, const char *text)
{
    key_add(parts, text, strlen(text));
}

/* The part of a key that a cluster hashes: between the first '{' and the next '}', if that is not empty. */
static bool find_tag(const char *name, size_t length, const char **tag, size_t *tag_len)
{
    const char *open = memchr(name, '{', length);
    if (open == NULL)
        return false;
    *tag = open + 1;
    const char *shut = memchr(*tag, '}', length - (size_t)(*tag - name));
    *tag_len = shut != NULL ? (size_t)(shut - *tag) : 0;
    return *tag_len > 0;
}

/* CRC16 of the Redis Cluster specification (XMODEM); a slot is its low 14 bits. */
static unsigned slot_of(const char *text, size_t length)
{
    static const unsigned short table[256] = {
        0x0000, 0x1021, 0x2042, 0x3063, 0x4084, 0x50a5, 0x60c6, 0x70e7, 0x8108, 0x9129, 0xa14a,
        0xb16b, 0xc18c, 0xd1ad, 0xe1ce, 0xf1ef, 0x1231, 0x0210, 0x3273, 0x2252, 0x52b5, 0x4294,
        0x72f7, 0x62d6, 0x9339, 0x8318, 0xb37b, 0xa35a, 0xd3bd, 0xc39c, 0xf3ff, 0xe3de, 0x2462,
        0x3443, 0x0420, 0x1401, 0x64e6, 0x74c7, 0x44a4, 0x5485, 0xa56a, 0xb54b, 0x8528, 0x9509,
        0xe5ee, 0xf5cf, 0xc5ac, 0xd58d, 0x3653, 0x2672, 0x1611, 0x0630, 0x76d7, 0x66f6, 0x5695,
        0x46b4, 0xb75b, 0xa77a, 0x9719, 0x8738, 0xf7df, 0xe7fe, 0xd79d, 0xc7bc, 0x48c4, 0x58e5,
        0x6886, 0x78a7, 0x0840, 0x1861, 0x2802, 0x3823, 0xc9cc, 0xd9ed, 0xe98e, 0xf9af, 0x8948,
        0x9969, 0xa90a, 0xb92b, 0x5af5, 0x4ad4, 0x7ab7, 0x6a96, 0x1a71, 0x0a50, 0x3a33, 0x2a12,
        0xdbfd, 0xcbdc, 0xfbbf, 0xeb9e, 0x9b79, 0x8b58, 0xbb3b, 0xab1a, 0x6ca6, 0x7c87, 0x4ce4,
        0x5cc5, 0x2c22, 0x3c03, 0x0c60, 0x1c41, 0xedae, 0xfd8f, 0xcdec, 0xddcd, 0xad2a, 0xbd0b,
        0x8d68, 0x9d49, 0x7e97, 0x6eb6, 0x5ed5, 0x4ef4, 0x3e13, 0x2e32, 0x1e51, 0x0e70, 0xff9f,
        0xefbe, 0xdfdd, 0xcffc, 0xbf1b, 0xaf3a, 0x9f59, 0x8f78, 0x9188, 0x81a9, 0xb1ca, 0xa1eb,
        0xd10c, 0xc12d, 0xf14e, 0xe16f, 0x1080, 0x00a1, 0x30c2, 0x20e3, 0x5004, 0x4025, 0x7046,
        0x6067, 0x83b9, 0x9398, 0xa3fb, 0xb3da, 0xc33d, 0xd31c, 0xe37f, 0xf35e, 0x02b1, 0x1290,
        0x22f3, 0x32d2, 0x4235, 0x5214, 0x6277, 0x7256, 0xb5ea, 0xa5cb, 0x95a8, 0x8589, 0xf56e,
        0xe54f, 0xd52c, 0xc50d, 0x34e2, 0x24c3, 0x14a0, 0x0481, 0x7466, 0x6447, 0x5424, 0x4405,
        0xa7db, 0xb7fa, 0x8799, 0x97b8, 0xe75f, 0xf77e, 0xc71d, 0xd73c, 0x26d3, 0x36f2, 0x0691,
        0x16b0, 0x6657, 0x7676, 0x4615, 0x5634, 0xd94c, 0xc96d, 0xf90e, 0xe92f, 0x99c8, 0x89e9,
        0xb98a, 0xa9ab, 0x5844, 0x4865, 0x7806, 0x6827, 0x18c0, 0x08e1, 0x3882, 0x28a3, 0xcb7d,
        0xdb5c, 0xeb3f, 0xfb1e, 0x8bf9, 0x9bd8, 0xabbb, 0xbb9a, 0x4a75, 0x5a54, 0x6a37, 0x7a16,
        0x0af1, 0x1ad0, 0x2ab3, 0x3a92, 0xfd2e, 0xed0f, 0xdd6c, 0xcd4d, 0xbdaa, 0xad8b, 0x9de8,
        0x8dc9, 0x7c26, 0x6c07, 0x5c64, 0x4c45, 0x3ca2, 0x2c83, 0x1ce0, 0x0cc1, 0xef1f, 0xff3e,
        0xcf5d, 0xdf7c, 0xaf9b, 0xbfba, 0x8fd9, 0x9ff8, 0x6e17, 0x7e36, 0x4e55, 0x5e74, 0x2e93,
        0x3eb2, 0x0ed1, 0x1ef0,
    };
    unsigned crc = 0;
    for (size_t i = 0; i < length; i++)
        crc = (crc << 8 & 0xffff) ^ table[crc >> 8 ^ (unsigned char)text[i]];
    return crc & 0x3fff;
}

unsigned key_slot(const char *name, size_t length)
{
    const char *tag;
    size_t tag_len;
    return find_tag(name, length, &tag, &tag_len) ? slot_of(tag, tag_len) : slot_of(name, length);
}

/* Four letters of '@' to 'O' that have the slot of `name`. A CRC is linear: flipping one of the four low bits of a
 * letter always flips the same bits of the slot. So for each bit of the slot there is a set of low bits that flips only
 * this bit: flips[bit], with the low bits of the last letter in the lowest four. */
static void make_slot_tag(const char *name, size_t length, char tag[SLOT_TAG_LENGTH])
{
    static const unsigned short flips[14] = {0x1afa, 0x06ed, 0x277b, 0x110c, 0x2a91,
                                             0x39c0, 0x1f63, 0x277f, 0x1104, 0x2208,
                                             0x1bea, 0x04cd, 0x233b, 0x198c};
    static const unsigned slot_of_base = 0x3639; /* of "@@@@" */
    unsigned wanted = slot_of(name, length) ^ slot_of_base, low_bits = 0;
    for (unsigned bit = 0; bit < 14; bit++)
        if (wanted >> bit & 1)
            low_bits ^= flips[bit];
    for (unsigned i = 0; i < SLOT_TAG_LENGTH; i++)
        tag[i] = (char)('@' | (low_bits >> 4 * (SLOT_TAG_LENGTH - 1 - i) & 0xf));
}

void key_add_side(struct key_parts *parts, const char *name, size_t length, const char *word)
{
    const char *tag = name;
    size_t tag_len = length;
    bool named_behind = find_tag(name, length, &tag, &tag_len);
    if (!named_behind && memchr(name, '}', length) != NULL) {
        make_slot_tag(name, length, parts->slot_tag);
        tag = parts->slot_tag;
        tag_len = SLOT_TAG_LENGTH;
        named_behind = true;
    } else if (!named_behind) {
        tag = name;
        tag_len = length;
    }
    key_add_text(parts, "{");
    key_add(parts, tag, tag_len);
    key_add_text(parts, MARK);
    key_add_text(parts, word);
    if (named_behind) {
        key_add_text(parts, ":");
        key_add(parts, name, length);
    }
}

void key_put_side(struct link *link, const char *name, size_t length, const char *word)
{
    struct key_parts parts = {.count = 0};
    key_add_side(&parts, name, length, word);
    link_parts(link, parts.part, parts.count);
}

bool key_is_side(const char *name, size_t name_len)
{
    return name_len > 0 && name[0] == '{' && memmem(name, name_len, MARK, sizeof(MARK) - 1) != NULL;
}

void key_hex(const mortise_grant_id *grant, char hex[GRANT_HEX + 1])
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < MORTISE_GRANT_ID_SIZE; i++) {
        hex[2 * i] = digits[grant->bytes[i] >> 4];
        hex[2 * i + 1] = digits[grant->bytes[i] & 15];
    }
    hex[GRANT_HEX] = '\0';
}

char *key_join(const struct key_parts *parts, size_t *length)
{
    *length = 0;
    for (unsigned i = 0; i < parts->count; i++)
        *length += parts->part[i].length;
    char *text = malloc(*length + 1), *to = text;
    for (unsigned i = 0; text != NULL && i < parts->count; i++) {
        memcpy(to, parts->part[i].data, parts->part[i].length);
        to += parts->part[i].length;
    }
    return text;
}
