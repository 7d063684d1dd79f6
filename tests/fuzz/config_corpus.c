/* config_corpus.c - configs, URLs and values for fuzz_config.c: correct ones, and ones that are almost correct. */
#include "corpus.h"

enum { AS_FILE, AS_URL, AS_VALUE };
#define SAMPLE(how, text)                                                                          \
    {                                                                                              \
        how, text, sizeof(text) - 1                                                                \
    }

const struct sample corpus[] = {
    SAMPLE(AS_FILE,
           "[mortise]\ndriver = redis\nttl = 10s\nrenew_every = 3s\nobserve = trace, metrics\n\n"
           "[redis]\nservers = a:1, b:2,\n    c:3\nuser = me\npassword = \"x y\"\nmode = bb\n"),
    SAMPLE(
        AS_FILE,
        "\xef\xbb\xbf[mortise]\r\ndriver: sqlite ; a comment\r\n; another\r\n# and one\r\nttl=1ms"),
    SAMPLE(AS_FILE, "[redis:two]\ntls = yes\nidle = never\ndb = 15\nservers = "
                    "${HOME}/x\n[redis:two]\nmode = ccc\n"),
    SAMPLE(AS_FILE,
           "[a]\nkey = ${}\nkey2 = ${UNSET_AND_LONG} $${x}\n  indented = 1\n[b\nc = d\n[]\n= 1\n"),
    SAMPLE(AS_FILE, "driver = x\n[mortise]\nnamespace = \"\"\nrequire = fencing, "
                    "fair\nhandover_max = 99999999999999\n"),
    SAMPLE(AS_URL, "redis://me:p%40ss@host-1:6379,host2:6380/3?ttl=10s&mode=bb&idle=5s"),
    SAMPLE(AS_URL, "redis://[::1]:6379,[fe80::1%25eth0]/0?tls=yes"),
    SAMPLE(AS_URL, "sqlite:/var/lib/mortise/locks.db?synchronous=full"),
    SAMPLE(AS_URL, "sqlite:relative.db"),
    SAMPLE(AS_URL, "postgresql://u:p@h/db?conninfo=host%3Dx%20user%3Dy&user=z&user=w"),
    SAMPLE(AS_URL, "rediss://@:0/?=&&a=%zz&b=%"),
    SAMPLE(AS_VALUE, "0"),
    SAMPLE(AS_VALUE, "10s"),
    SAMPLE(AS_VALUE, "1500ms"),
    SAMPLE(AS_VALUE, "24h"),
    SAMPLE(AS_VALUE, "9223372036854775807ms"),
    SAMPLE(AS_VALUE, "106751991167d"),
    SAMPLE(AS_VALUE, "-15"),
    SAMPLE(AS_VALUE, "never"),
    SAMPLE(AS_VALUE, "bb"),
    SAMPLE(AS_VALUE, "yes"),
};
const size_t corpus_count = sizeof corpus / sizeof *corpus;

const char *const corpus_words[] = {
    "[mortise]\n",
    "[redis]\n",
    "[redis:x]",
    "servers",
    "password",
    "driver = ",
    "ttl = ",
    " = ",
    ":",
    "=",
    ",\n    ",
    " ;",
    " #",
    "${",
    "${HOME}",
    "}",
    "\r\n",
    "\n",
    "\t",
    "%00",
    "%2",
    "%40",
    "://",
    "@",
    "?",
    "&",
    "#",
    "[::1]",
    "\xc3\xa4",
    "\xef\xbb\xbf",
    "\"",
    "never",
    "yes",
    "16",
    "ms",
    "min",
    "h",
    "4294967296",
    "18446744073709551616",
    "99999999999999999999999999",
};
const size_t corpus_word_count = sizeof corpus_words / sizeof *corpus_words;
