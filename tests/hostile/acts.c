/* acts.c - what the lying server sends, for each kind of server that it pretends to be. */
#include "acts.h"

#define REDIS_OK "+OK\r\n"
#define NEVER_ENDS "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
#define FILLER_256 NEVER_ENDS NEVER_ENDS NEVER_ENDS NEVER_ENDS
#define FILLER_1K FILLER_256 FILLER_256 FILLER_256 FILLER_256
#define FILLER_4K FILLER_1K FILLER_1K FILLER_1K FILLER_1K
#define NESTED_8 "*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n"
#define NESTED_64 NESTED_8 NESTED_8 NESTED_8 NESTED_8 NESTED_8 NESTED_8 NESTED_8 NESTED_8

/* No server of any kind. */
const struct act any_acts[] = {
    {.name = "silent"},
    {.name = "closes when asked", .then = CLOSE},
    {.name = "resets when asked", .then = RESET},
    {.name = "zeros",
     .answer = TEXT("\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0")},
    {.name = "ones",
     .answer =
         TEXT("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff")},
    {.name = "noise",
     .answer =
         TEXT("\x8f\x01\x9d\xfe\x00\x7f\xee\x42\r\n\x80\x00\x00\x01\xc3\x28\x1b[31m\x07\x90\xd5")},
    {.name = "noise as a greeting",
     .greeting =
         TEXT("\x8f\x01\x9d\xfe\x00\x7f\xee\x42\r\n\x80\x00\x00\x01\xc3\x28\x1b[31m\x07\x90\xd5")},
    {.name = "HTTP",
     .answer = TEXT("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"),
     .then = CLOSE},
    {.name = "SSH", .greeting = TEXT("SSH-2.0-OpenSSH_9.2\r\n")},
    {.name = "a TLS alert", .answer = TEXT("\x15\x03\x03\x00\x02\x02\x28"), .then = CLOSE},
    {.name = "a line that never ends", .answer = TEXT(NEVER_ENDS), .endless = true},
    {.name = "zeros that never end",
     .answer = TEXT("\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"),
     .endless = true},
    {.name = NULL},
};

const struct act redis_acts[] = {
    {.name = "half a status", .answer = TEXT("+O"), .then = CLOSE},
    {.name = "half a text", .answer = TEXT("$5\r\nab"), .then = CLOSE},
    {.name = "half a text, and silence", .answer = TEXT("$5\r\nab")},
    {.name = "half a list, and silence", .answer = TEXT("*3\r\n:1\r\n")},
    {.name = "a huge text", .answer = TEXT("$2147483647\r\nabc")},
    {.name = "a text longer than memory", .answer = TEXT("$9223372036854775807\r\nabc")},
    {.name = "a text of a negative length", .answer = TEXT("$-77\r\nabc\r\n")},
    {.name = "a length beyond numbers", .answer = TEXT("$999999999999999999999999\r\n")},
    {.name = "a text that never ends",
     .answer = TEXT("$400000000\r\n" FILLER_4K FILLER_4K),
     .endless = true},
    {.name = "lists of lists, each as long as may be",
     .answer = TEXT("*1048576\r\n*1048576\r\n*1048576\r\n*1048576\r\n")},
    {.name = "a huge list", .answer = TEXT("*100000000\r\n:1\r\n")},
    {.name = "a list longer than memory", .answer = TEXT("*9223372036854775807\r\n:1\r\n")},
    {.name = "a list of a negative length", .answer = TEXT("*-9\r\n:1\r\n")},
    {.name = "lists in lists", .answer = TEXT(NESTED_64 NESTED_64)},
    {.name = "a number beyond numbers", .answer = TEXT(":99999999999999999999999999\r\n")},
    {.name = "no number", .answer = TEXT(":\r\n:x\r\n:-\r\n")},
    {.name = "empty errors", .answer = TEXT("-\r\n-\r\n-\r\n-\r\n")},
    {.name = "an error with colours", .answer = TEXT("-ERR \x1b[31mred\x07\xff\xc3\r\n")},
    {.name = "another type", .answer = TEXT("%1\r\n+a\r\n+b\r\n")},
    {.name = "more answers than questions",
     .answer = TEXT(":1\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n:1\r\n"),
     .is_plausible = true},
    {.name = "answers that never end",
     .answer = TEXT(":1\r\n:1\r\n:1\r\n:1\r\n"),
     .endless = true,
     .is_plausible = true},
    {.name = "drips", .answer = TEXT(REDIS_OK), .drips = true, .is_plausible = true},
    {.name = "polite, then noise",
     .polite = 1,
     .manners = TEXT(":7\r\n+OK\r\n+OK\r\n"),
     .answer = TEXT("\x8f\x01\x9d\r\n")},
    {.name = "polite, then a huge text",
     .polite = 1,
     .manners = TEXT(":7\r\n+OK\r\n"),
     .answer = TEXT("$2147483647\r\nabc")},
    {.name = NULL},
};

/* A type and a length of four bytes stand before each message. */
#define PG_READY                                                                                   \
    "R\0\0\0\x08\0\0\0\0"                                                                          \
    "S\0\0\0\x18server_version\0"                                                                  \
    "15.3\0K\0\0\0\x0c\0\0\0\x01\0\0\0\x02Z\0\0\0\x05I"
/* To a statement: a result of no columns, with so many rows. */
#define PG_NO_COLUMNS(rows, count)                                                                 \
    "1\0\0\0\4"                                                                                    \
    "2\0\0\0\4T\0\0\0\6\0\0" rows "C\0\0\0\x0dSELECT " count "\0Z\0\0\0\5I"
const struct act postgres_acts[] = {
    {.name = "half a message", .answer = TEXT("R\0\0"), .then = CLOSE},
    {.name = "half a message, and silence", .answer = TEXT("R\0\0\0\x08\0")},
    {.name = "a huge message", .answer = TEXT("R\x7f\xff\xff\xff\0\0\0\0")},
    {.name = "a huge error", .answer = TEXT("E\x7f\xff\xff\xffSFATAL")},
    {.name = "a message of no length", .answer = TEXT("R\0\0\0\0\0\0\0\0")},
    {.name = "a negative length", .answer = TEXT("R\xff\xff\xff\xf0\0\0\0\0")},
    {.name = "an unknown way to log in", .answer = TEXT("R\0\0\0\x08\0\0\x7f\x01")},
    {.name = "a password in clear", .answer = TEXT("R\0\0\0\x08\0\0\0\x03")},
    {.name = "SASL without methods", .answer = TEXT("R\0\0\0\x09\0\0\0\x0a\0")},
    {.name = "a parameter without an end", .answer = TEXT("S\0\0\0\x0cserver__")},
    {.name = "an error without fields", .answer = TEXT("E\0\0\0\x05\0"), .then = CLOSE},
    {.name = "an error with colours",
     .answer = TEXT("E\0\0\0\x16SFATAL\0M\x1b[31m\x07\xff\0\0\0"),
     .then = CLOSE},
    {.name = "an old server's error", .answer = TEXT("Enothing of that kind\n\0"), .then = CLOSE},
    {.name = "ready at once", .answer = TEXT(PG_READY)},
    {.name = "ready, then noise",
     .polite = 1,
     .manners = TEXT(PG_READY),
     .answer = TEXT("\x8f\x01\x9d\xfe\x00\x7f\xee\x42")},
    {.name = "ready, then a row without columns",
     .polite = 1,
     .manners = TEXT(PG_READY),
     .answer = TEXT("D\0\0\0\x06\x7f\xff")},
    {.name = "ready, then many columns",
     .polite = 1,
     .manners = TEXT(PG_READY),
     .answer = TEXT("1\0\0\0\4"
                    "2\0\0\0\4T\0\0\0\x06\x7f\xff")},
    {.name = "ready, then no row",
     .polite = 1,
     .manners = TEXT(PG_READY),
     .answer = TEXT(PG_NO_COLUMNS("", "0"))},
    {.name = "ready, then a row of nothing",
     .polite = 1,
     .manners = TEXT(PG_READY),
     .answer = TEXT(PG_NO_COLUMNS("D\0\0\0\6\0\0", "1"))},
    {.name = "ready, then an end",
     .polite = 1,
     .manners = TEXT(PG_READY),
     .answer = TEXT("E\0\0\0\x29SFATAL\0VFATAL\0CXX000\0Mno connection\0\0"),
     .then = CLOSE,
     .passes = true},
    {.name = "ready, then ready for ever",
     .polite = 1,
     .manners = TEXT(PG_READY),
     .answer = TEXT("Z\0\0\0\x05I"),
     .endless = true},
    {.name = "ready, then a huge notice",
     .polite = 1,
     .manners = TEXT(PG_READY),
     .answer = TEXT("N\x3f\xff\xff\xffS")},
    {.name = "drips", .answer = TEXT(PG_READY), .drips = true},
    {.name = NULL},
};

/* A length of three bytes and a number stand before each message. The server speaks first. */
#define MY_HELLO                                                                                   \
    "\x51\0\0\0\x0a"                                                                               \
    "5.5.5-10.11.0\0\x01\0\0\0"                                                                    \
    "abcdefgh\0\xfe\xf7\x2d\x02\0\xff\x81\x15\0\0\0\0\0\0\x1d\0\0\0"                               \
    "ijklmnopqrst\0mysql_native_password\0"
#define MY_OK "\x07\0\0\x02\0\0\0\x02\0\0\0"
#define MY_ANSWER "\x07\0\0\x01\0\0\0\x02\0\0\0"
/* Of several results: a column, and what ends the columns or the rows. */
#define MY_COLUMN(number) "\x17\0\0" number "\3def\0\0\0\1a\0\x0c\x2d\0\xff\0\0\0\xfd\0\0\0\0\0"
#define MY_END(number) "\x05\0\0" number "\xfe\0\0\x0a\0"
/* To two SETs, and which session it is. */
#define MY_SESSION                                                                                 \
    "\x07\0\0\x01\0\0\0\x0a\0\0\0"                                                                 \
    "\x07\0\0\x02\0\0\0\x0a\0\0\0"                                                                 \
    "\x01\0\0\x03\x03" MY_COLUMN("\x04") MY_COLUMN("\x05") MY_COLUMN("\x06")                       \
        MY_END("\x07") "\x06\0\0\x08\1"                                                            \
                       "1\1d\1h" MY_END("\x09")
const struct act mysql_acts[] = {
    {.name = "half a greeting",
     .greeting = TEXT("\x51\0\0\0\x0a"
                      "5.5"),
     .then = CLOSE},
    {.name = "half a greeting, and silence",
     .greeting = TEXT("\x51\0\0\0\x0a"
                      "5.5")},
    {.name = "a huge greeting",
     .greeting = TEXT("\xff\xff\xff\0\x0a"
                      "5.5.5\0")},
    {.name = "an empty greeting", .greeting = TEXT("\0\0\0\0")},
    {.name = "an old protocol",
     .greeting = TEXT("\x07\0\0\0\x09"
                      "3.20\0\0")},
    {.name = "a version without an end",
     .greeting = TEXT("\x06\0\0\0\x0a"
                      "55555")},
    {.name = "an error as the greeting",
     .greeting = TEXT("\x17\0\0\0\xff\x10\x04Too many connections"),
     .then = CLOSE},
    {.name = "no thread for the connection",
     .greeting = TEXT("\x1c\0\0\0\xff\x6f\x04"
                      "Can't create a new thread"),
     .then = CLOSE,
     .passes = true},
    {.name = "an error with colours",
     .greeting = TEXT("\x0b\0\0\0\xff\x10\x04\x1b[31m\x07\xff\0"),
     .then = CLOSE},
    {.name = "noise", .greeting = TEXT("\x8f\x01\x9d\xfe\x00\x7f\xee\x42")},
    {.name = "another plugin: the terminal",
     .greeting = TEXT(MY_HELLO),
     .answer = TEXT("\x0c\0\0\x02\xfe"
                    "dialog\0ask\0")},
    {.name = "another plugin: the password in clear",
     .greeting = TEXT(MY_HELLO),
     .answer = TEXT("\x16\0\0\x02\xfemysql_clear_password\0")},
    {.name = "another plugin: a path",
     .greeting = TEXT(MY_HELLO),
     .answer = TEXT("\x13\0\0\x02\xfe../../../tmp/evil\0")},
    {.name = "welcome, then wants a file",
     .greeting = TEXT(MY_HELLO),
     .polite = 1,
     .manners = TEXT(MY_OK),
     .answer = TEXT("\x0c\0\0\x01\xfb/etc/passwd")},
    {.name = "welcome, then OK to all",
     .greeting = TEXT(MY_HELLO),
     .polite = 1,
     .manners = TEXT(MY_OK),
     .answer = TEXT(MY_ANSWER)},
    {.name = "welcome, then more results for ever",
     .greeting = TEXT(MY_HELLO),
     .polite = 1,
     .manners = TEXT(MY_OK),
     .answer = TEXT("\x07\0\0\x01\0\0\0\x0a\0\0\0"),
     .endless = true},
    {.name = "welcome, then many columns",
     .greeting = TEXT(MY_HELLO),
     .polite = 1,
     .manners = TEXT(MY_OK),
     .answer = TEXT("\x03\0\0\x01\xfc\xff\xff")},
    {.name = "welcome, then a huge text",
     .greeting = TEXT(MY_HELLO),
     .polite = 1,
     .manners = TEXT(MY_OK),
     .answer = TEXT("\xff\xff\xff\x01\xfe\xff\xff\xff\xff\xff\xff\xff\x7f")},
    {.name = "welcome, then a setting without a value",
     .greeting = TEXT(MY_HELLO),
     .polite = 1,
     .manners = TEXT(MY_OK),
     .answer = TEXT(MY_SESSION "\x01\0\0\x0a\x02" MY_COLUMN("\x0b") MY_COLUMN("\x0c")
                        MY_END("\x0d") "\x20\0\0\x0e\x1e"
                                       "innodb_flush_log_at_trx_commit\0" MY_END("\x0f"))},
    {.name = "drips", .greeting = TEXT(MY_HELLO), .answer = TEXT(MY_OK), .drips = true},
    {.name = NULL},
};

/* A length of four bytes stands before each message; the first one is of the session. */
#define ZK_SESSION                                                                                 \
    "\0\0\0\x25\0\0\0\0\0\0\x0b\xb8\0\0\0\0\0\0\0\x2a\0\0\0\x10"                                   \
    "0123456789abcdef"                                                                             \
    "\0"
const struct act zookeeper_acts[] = {
    {.name = "half a session", .answer = TEXT("\0\0\0\x25\0\0"), .then = CLOSE},
    {.name = "half a session, and silence", .answer = TEXT("\0\0\0\x25\0\0\0\0\0\0\x0b")},
    {.name = "a huge session", .answer = TEXT("\x7f\xff\xff\xff\0\0\0\0")},
    {.name = "a session of a negative length", .answer = TEXT("\xff\xff\xff\xf0\0\0\0\0")},
    {.name = "a session of no length", .answer = TEXT("\0\0\0\0\0\0\0\0")},
    {.name = "a session with a huge password",
     .answer = TEXT("\0\0\0\x25\0\0\0\0\0\0\x0b\xb8\0\0\0\0\0\0\0\x2a\x7f\xff\xff\xff"
                    "0123456789abcdef"
                    "\0")},
    {.name = "a session, then noise",
     .polite = 1,
     .manners = TEXT(ZK_SESSION),
     .answer = TEXT("\x8f\x01\x9d\xfe\x00\x7f\xee\x42")},
    {.name = "a session, then a huge answer",
     .polite = 1,
     .manners = TEXT(ZK_SESSION),
     .answer = TEXT("\x7f\xff\xff\xff\0\0\0\x01")},
    {.name = "a session, then half an answer",
     .polite = 1,
     .manners = TEXT(ZK_SESSION),
     .answer = TEXT("\0\0\0\x14\0\0\0\x01\0\0"),
     .then = CLOSE},
    {.name = "a session, then an answer to nobody",
     .polite = 1,
     .manners = TEXT(ZK_SESSION),
     .answer = TEXT("\0\0\0\x10\x7f\0\0\x01\0\0\0\0\0\0\0\x01\0\0\0\0")},
    {.name = "a session, then silence", .polite = 1, .manners = TEXT(ZK_SESSION)},
    {.name = "drips", .answer = TEXT(ZK_SESSION), .drips = true},
    {.name = NULL},
};

/* A length of three bytes, a type, flags and the number of a stream stand before each frame (HTTP/2). */
#define H2_SETTINGS "\0\0\0\x04\0\0\0\0\0"
#define H2_OK                                                                                      \
    "\0\0\x01\x01\x04\0\0\0\x01\x88" /* the headers of an answer on the first stream: 200 */
#define GRPC_OK                                                                                    \
    "\0\0\x10\x01\x05\0\0\0\x01\x88\0\x0b"                                                         \
    "grpc-status\x01"                                                                              \
    "0"
const struct act etcd_acts[] = {
    {.name = "half a frame", .greeting = TEXT("\0\0\0\x04"), .then = CLOSE},
    {.name = "half a frame, and silence", .greeting = TEXT("\0\0\x06\x04\0\0\0\0\0\0")},
    {.name = "a huge frame", .greeting = TEXT("\xff\xff\xff\x04\0\0\0\0\0")},
    {.name = "settings, then silence", .greeting = TEXT(H2_SETTINGS)},
    {.name = "settings that make no sense",
     .greeting = TEXT("\0\0\x06\x04\0\0\0\0\0\0\x04\xff\xff\xff\xff")},
    {.name = "settings for ever", .answer = TEXT(H2_SETTINGS), .endless = true},
    {.name = "pings for ever",
     .greeting = TEXT(H2_SETTINGS),
     .answer = TEXT("\0\0\x08\x06\0\0\0\0\0"
                    "12345678"),
     .endless = true},
    {.name = "GOAWAY",
     .greeting = TEXT(H2_SETTINGS),
     .answer = TEXT("\0\0\x08\x07\0\0\0\0\0\0\0\0\0\0\0\0\0")},
    {.name = "a reset stream",
     .greeting = TEXT(H2_SETTINGS),
     .answer = TEXT("\0\0\x04\x03\0\0\0\0\x01\0\0\0\x02")},
    {.name = "a stream that nobody has opened",
     .greeting = TEXT(H2_SETTINGS),
     .answer = TEXT("\0\0\x01\x01\x05\0\0\0\x63\x88")},
    {.name = "a promise",
     .greeting = TEXT(H2_SETTINGS),
     .answer = TEXT("\0\0\x05\x05\x04\0\0\0\x01\0\0\0\x02\x82")},
    {.name = "headers that make no sense",
     .greeting = TEXT(H2_SETTINGS),
     .answer = TEXT("\0\0\x04\x01\x04\0\0\0\x01\xff\xff\xff\xff")},
    {.name = "headers that never end",
     .greeting = TEXT(H2_SETTINGS "\0\0\x01\x01\0\0\0\0\x01\x88"),
     .answer = TEXT("\0\0\x08\x09\0\0\0\0\x01\0\x02xx\x03yyy"),
     .endless = true},
    {.name = "data before headers",
     .greeting = TEXT(H2_SETTINGS),
     .answer = TEXT("\0\0\x05\0\0\0\0\0\x01\0\0\0\0\0")},
    {.name = "404",
     .greeting = TEXT(H2_SETTINGS),
     .answer = TEXT("\0\0\x01\x01\x05\0\0\0\x01\x8d")},
    {.name = "OK without a message", .greeting = TEXT(H2_SETTINGS), .answer = TEXT(GRPC_OK)},
    {.name = "a huge message",
     .greeting = TEXT(H2_SETTINGS),
     .answer = TEXT(H2_OK "\0\0\x05\0\0\0\0\0\x01\0\xff\xff\xff\xff")},
    {.name = "a compressed message",
     .greeting = TEXT(H2_SETTINGS),
     .answer = TEXT(H2_OK "\0\0\x05\0\0\0\0\0\x01\x01\0\0\0\0")},
    {.name = "half a message, and silence",
     .greeting = TEXT(H2_SETTINGS),
     .answer = TEXT(H2_OK "\0\0\x07\0\0\0\0\0\x01\0\0\0\0\x09\x0a\x20")},
    {.name = "messages for ever",
     .greeting = TEXT(H2_SETTINGS H2_OK),
     .answer = TEXT("\0\0\x05\0\0\0\0\0\x01\0\0\0\0\0"),
     .endless = true},
    {.name = "a window that is too large",
     .greeting = TEXT(H2_SETTINGS),
     .answer = TEXT("\0\0\x04\x08\0\0\0\0\0\x7f\xff\xff\xff")},
    {.name = "drips", .answer = TEXT(H2_SETTINGS GRPC_OK), .drips = true},
    {.name = NULL},
};
