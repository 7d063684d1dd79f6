/* keys.c - names of keys. A lock has the key `name`, as other programs expect. A key beside it must be in the same slot of
 * a cluster. The cluster hashes the part of a key between its first '{' and the next '}', or the whole key if there is no
 * such part or it is empty. So a key beside the lock has one of three forms:
 *
 * | name                                        | key                            |
 * |---------------------------------------------|--------------------------------|
 * | has such a part, its tag: "a{tag}b"         | "{tag}:mortise:word:a{tag}b"   |
 * | has no tag and no '}'                       | "{name}:mortise:word"          |
 * | has no tag, but a '}': "}a", "a{}b"         | "{@@@@}:mortise:word:a{}b"     |
 *
 * The third kind of name cannot be in braces. Its tag is four letters of "@ABCDEFGHIJKLMNO" that have the slot of the
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

/* CRC16 of the Redis Cluster specification (XMODEM), half a byte at a time; a slot is its low 14 bits. */
static unsigned slot_of(const char *text, size_t length)
{
    static const unsigned short table[16] = {0x0000, 0x1021, 0x2042, 0x3063, 0x4084, 0x50a5,
                                             0x60c6, 0x70e7, 0x8108, 0x9129, 0xa14a, 0xb16b,
                                             0xc18c, 0xd1ad, 0xe1ce, 0xf1ef};
    unsigned crc = 0;
    for (size_t i = 0; i < length; i++) {
        unsigned byte = (unsigned char)text[i];
        crc = (crc << 4 ^ table[crc >> 12 ^ byte >> 4]) & 0xffff;
        crc = (crc << 4 ^ table[crc >> 12 ^ (byte & 15)]) & 0xffff;
    }
    return crc & 0x3fff;
}

unsigned key_slot(const char *name, size_t length)
{
    const char *tag;
    size_t tag_len;
    return find_tag(name, length, &tag, &tag_len) ? slot_of(tag, tag_len) : slot_of(name, length);
}

/* Four letters of '@' to 'O' that have the slot of `name`. A CRC is linear: to flip one of the four low bits of a letter
 * flips always the same bits of the slot. So for each bit of the slot there is a set of low bits that flips this bit
 * only: flips[bit], with the low bits of the last letter in the lowest four. */
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
