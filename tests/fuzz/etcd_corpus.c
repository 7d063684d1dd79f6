/* etcd_corpus.c - answers of etcd, keys and values for fuzz_etcd.c. */
#include "corpus.h"

#include "messages.h"

#define SAMPLE(how, text)                                                                          \
    {                                                                                              \
        how, text, sizeof(text) - 1                                                                \
    }
#define AS_NAME METHOD_COUNT
#define AS_NOTE (METHOD_COUNT + 1)

#define HEADER "\x0a\x08\x08\x05\x10\x06\x18\x07\x20\x02" /* cluster, member, revision, term */
/* A key: name, create and mod revision, value, lease. */
#define KEY_A                                                                                      \
    "\x12\x10\x0a\x03"                                                                             \
    "m/a"                                                                                          \
    "\x10\x03\x18\x04\x20\x01\x2a\x01v\x30\x09"
#define KEY_B                                                                                      \
    "\x12\x10\x0a\x03"                                                                             \
    "m/b"                                                                                          \
    "\x10\x05\x18\x05\x20\x01\x2a\x01w\x30\x08"
#define RANGE "\x1a\x28\x0a\x26" KEY_A KEY_B "\x20\x02" /* op, range, and how many there are */
#define DELETED "\x1a\x04\x1a\x02\x10\x01"

const struct sample corpus[] = {
    SAMPLE(METHOD_TXN, HEADER "\x10\x01" RANGE),
    SAMPLE(METHOD_TXN, HEADER "\x10\x01" RANGE RANGE RANGE RANGE),
    SAMPLE(METHOD_TXN, HEADER "\x10\x01" RANGE RANGE RANGE RANGE RANGE),
    SAMPLE(METHOD_TXN, HEADER DELETED RANGE),
    SAMPLE(METHOD_TXN, HEADER),
    SAMPLE(METHOD_DELETE, HEADER "\x10\x01"),
    SAMPLE(METHOD_GRANT, HEADER "\x10\x81\x82\x83\x01\x18\x02"),
    SAMPLE(METHOD_KEEP_ALIVE, HEADER "\x10\x09\x18\x05"),
    SAMPLE(METHOD_KEEP_ALIVE, HEADER "\x10\x09\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
    SAMPLE(METHOD_AUTHENTICATE, HEADER "\x12\x05token"),
    SAMPLE(METHOD_STATUS, HEADER "\x12\x06"
                                 "3.4.23"
                                 "\x18\x40\x20\x06\x28\x09\x30\x02\x50\x01"),
    SAMPLE(METHOD_WATCH, HEADER "\x10\x01\x18\x01"),
    SAMPLE(METHOD_WATCH, HEADER "\x10\x01\x5a\x04\x08\x01\x12\x00"),
    SAMPLE(METHOD_WATCH, HEADER "\x10\x01\x20\x01\x28\x09\x32\x03why"),
    SAMPLE(AS_NAME, "a%2Fb"),
    SAMPLE(AS_NAME, "s12-0123456789abcdef0123456789abcdef"),
    SAMPLE(AS_NAME, "0123456789abcdef0123456789abcdef"),
    SAMPLE(AS_NAME, "694d8a5b1c2d3e4f"),
    SAMPLE(AS_NOTE,
           "mortise/1 12 1795512345678 01ab0000000000000000000000000000\nhost\n4711\nprogram"),
    SAMPLE(
        AS_NOTE,
        "mortise/1 12 1795512345678 01ab0000000000000000000000000000\nhost\n4711\nprogram\nshared"),
    SAMPLE(AS_NOTE, "1099511627776 7"),
};
const size_t corpus_count = sizeof corpus / sizeof *corpus;

const char *const corpus_words[] = {
    HEADER,
    RANGE,
    DELETED,
    "\x12",
    "\x1a",
    "\x0a",
    "\x08\x01",
    "\x10",
    "\xff",
    "\x80",
    "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    "\xff\xff\xff\xff\x07",
    "%2F",
    "%",
    "/",
    "s0-",
    "s4294967295-",
    "mortise/1 ",
    "\n",
    "shared",
    "-1",
    "9223372036854775807",
    "99999999999999999999",
};
const size_t corpus_word_count = sizeof corpus_words / sizeof *corpus_words;
