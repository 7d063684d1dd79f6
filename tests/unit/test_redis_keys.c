/* test_redis_keys.c - the keys that belong to a lock on Redis: each name has its own, in the same slot of a cluster. */
#include "keys.h"
#include "suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The key as link_parts() would have sent it. */
static char sent[400];

void link_parts(struct link *link, const struct link_part *parts, unsigned count)
{
    size_t used = 0;
    (void)link;
    for (unsigned i = 0; i < count; i++) {
        memcpy(sent + used, parts[i].data, parts[i].length);
        used += parts[i].length;
    }
    sent[used] = '\0';
}

static void expect_side(const char *name, const char *wanted)
{
    struct key_parts parts = {.count = 0};
    size_t length = 0;
    key_add_side(&parts, name, strlen(name), "queue");
    char *joined = key_join(&parts, &length);
    CU_ASSERT_PTR_NOT_NULL_FATAL(joined);
    CU_ASSERT_EQUAL(length, strlen(wanted));
    CU_ASSERT_EQUAL(memcmp(joined, wanted, strlen(wanted)), 0);
    CU_ASSERT(key_is_side(joined, length));
    CU_ASSERT_FALSE(key_is_side(name, strlen(name)));
    free(joined);
    key_put_side(NULL, name, strlen(name), "queue");
    CU_ASSERT_EQUAL(strncmp(sent, wanted, strlen(wanted)), 0);
    CU_ASSERT(sent[strlen(wanted)] == '\0' || sent[strlen(wanted)] == '\n');
}

static void test_sides(void)
{
    expect_side("a", "{a}:mortise:queue");
    expect_side("a{b", "{a{b}:mortise:queue");
    /* a tag decides where a name is; names that share it do not share what stands beside them */
    expect_side("{t}a", "{t}:mortise:queue:{t}a");
    expect_side("{t}b", "{t}:mortise:queue:{t}b");
    expect_side("x{t}", "{t}:mortise:queue:x{t}");
    /* a name that is hashed as a whole and cannot be in braces: four letters of the same slot */
    expect_side("a}b", "{BFBI}:mortise:queue:a}b");
    expect_side("}", "{BJNE}:mortise:queue:}");
    expect_side("a{}b", "{AG@C}:mortise:queue:a{}b");
}

/* The slot of a key, written down from the specification of Redis Cluster a second time: a table, not a loop over bits. */
static unsigned slot(const char *key, size_t length)
{
    static unsigned short table[256];
    for (unsigned i = 0; i < 256; i++) {
        unsigned short value = (unsigned short)(i << 8);
        for (int bit = 0; bit < 8; bit++)
            value = (unsigned short)(value & 0x8000 ? value << 1 ^ 0x1021 : value << 1);
        table[i] = value;
    }
    for (size_t open = 0; open < length; open++) {
        size_t shut = open + 1;
        if (key[open] != '{')
            continue;
        while (shut < length && key[shut] != '}')
            shut++;
        if (shut < length && shut > open + 1) {
            key += open + 1;
            length = shut - open - 1;
        }
        break;
    }
    unsigned short crc = 0;
    for (size_t i = 0; i < length; i++)
        crc = (unsigned short)(crc << 8 ^ table[(crc >> 8 ^ (unsigned char)key[i]) & 255]);
    return crc % 16384;
}

/* Each name of up to five bytes out of "{}a" and a byte that changes, and long ones: what is beside a lock has its slot. */
static void test_slots(void)
{
    static const char bytes[] = "{}a?";
    CU_ASSERT_EQUAL(slot("123456789", 9), 12739); /* the specification's example */
    unsigned wrong = 0;
    for (unsigned number = 0; number < 16 * 4096; number++) {
        char name[300];
        size_t length = number % 5 + 1;
        for (size_t i = 0; i < length; i++)
            name[i] = bytes[number >> (2 * i + 4) & 3];
        for (size_t i = 0; i < length; i++)
            name[i] = name[i] == '?' ? (char)(1 + (number * 37 + i) % 255) : name[i];
        if (number % 7 == 0) {
            memset(name + length, (char)('b' + number % 20), 290);
            length += 290;
        }
        struct key_parts parts = {.count = 0};
        size_t joined_len = 0;
        key_add_side(&parts, name, length, "queue");
        char *joined = key_join(&parts, &joined_len);
        CU_ASSERT_PTR_NOT_NULL_FATAL(joined);
        wrong += slot(joined, joined_len) != slot(name, length);
        free(joined);
    }
    CU_ASSERT_EQUAL(wrong, 0);
}

static void test_hex(void)
{
    mortise_grant_id grant;
    char hex[GRANT_HEX + 1], wanted[GRANT_HEX + 1];
    for (unsigned round = 0; round < 256; round++) {
        for (unsigned i = 0; i < MORTISE_GRANT_ID_SIZE; i++) {
            grant.bytes[i] = (unsigned char)(round + 37 * i);
            snprintf(wanted + (size_t)2 * i, 3, "%02x", grant.bytes[i]);
        }
        key_hex(&grant, hex);
        CU_ASSERT_STRING_EQUAL(hex, wanted);
    }
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"keys beside a lock", test_sides},
        {"the same slot for every name", test_slots},
        {"a grant in hex", test_hex},
        CU_TEST_INFO_NULL,
    };
    return suite_run("redis_keys", tests);
}
