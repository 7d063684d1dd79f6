/* skeleton.h - a driver to begin one's own with: the whole way of a request to a server over TCP and back. What its
 * files share. docs/driver-guide.md walks through it; server.py is the server, and says how the two talk.
 *
 * States of the connection (link.c):
 *
 *   DOWN -- somebody needs it, and the pause is over --> RESOLVING -- address --> CONNECTING -- writable --> UP
 *   any but DOWN -- error, end of file, no answer in `timeout` --> DOWN, for a pause
 *
 * Holes, and what closes them:
 * - The reply is lost, or the process stops: ops that were written out end INDETERMINATE; the core sends
 *   them again under the same grant id, which the server answers as it did the first time.
 * - A request still travels on the old connection when the new one is used: HELLO names the client and
 *   counts its connections; the server ends the older ones, unread, before it answers. So what comes back
 *   from a later connection is known to be the last word: `sure`.
 * - The server restarts: it knows no claims. It is not DURABLE, and says so (capabilities).
 * - The caller gives up: an op that was not written out is CANCELED, one that was is INDETERMINATE. Its answer
 *   finds nobody, and is dropped.
 * - A release comes between BUSY and WATCH: the answer to WATCH is a NEWS, always. */
#ifndef SKELETON_H
#define SKELETON_H

#include <mortise/driver.h>

enum { OPTION_SERVER, OPTION_TIMEOUT, OPTION_COUNT };

struct buffer {
    char *bytes;
    size_t used, size;
};

struct watched {
    struct watched *next;
    size_t name_len;
    char name[];
};

enum link_state { LINK_DOWN, LINK_RESOLVING, LINK_CONNECTING, LINK_UP };

struct skeleton {
    mortise_host *host;
    int64_t timeout_ns;
    char client_id[40];
    char node[256], port[16]; /* of the server */

    enum link_state state;
    int fd;
    bool broken; /* out of memory while writing: to be given up when it is safe */
    int64_t
        due_ns; /* DOWN: when it may be tried again; RESOLVING, CONNECTING: when that has failed */
    uintptr_t attempt; /* numbers the attempts, so that a late look-up is recognised */
    struct buffer in, out;

    mortise_op *first, *last; /* what is asked and not answered, in the order of asking */
    uintptr_t last_number;
    struct watched *watched;
};

/* What an op carries between start and its completion. */
static inline uintptr_t op_number(const mortise_op *op) /* 0: not written out yet */
{
    return (uintptr_t)op->driver_data[0];
}
static inline int64_t op_due(const mortise_op *op)
{
    return (int64_t)(intptr_t)op->driver_data[1];
}

/* ---- link.c: the connection ---- */

/* Sees to it that there is one, now or soon. */
void link_need(struct skeleton *skeleton);
/* Adds to what is to be sent: text by a format; bytes as hexadecimal digits, "-" for none. */
void link_put(struct skeleton *skeleton, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void link_put_hex(struct skeleton *skeleton, const void *bytes, size_t size);
/* Gives the connection up: whoever waits for it is told why. */
void link_fail(struct skeleton *skeleton, const char *why);
void link_turn(struct skeleton *skeleton, short revents);
/* Closes what there is, without a word to anybody. */
void link_close(struct skeleton *skeleton);

/* ---- ask.c: ops as lines, and lines as answers ---- */

void ask_start(struct skeleton *skeleton, mortise_op *op);
void ask_cancel(struct skeleton *skeleton, mortise_op *op);
/* The connection is up: what waited for it is written out. */
void ask_all(struct skeleton *skeleton);
/* It is gone, and with it the answers to what was written out. */
void ask_fail_all(struct skeleton *skeleton, const char *why);
/* A line of the server's, without its end. */
void ask_line(struct skeleton *skeleton, char *line);
void ask_watch(struct skeleton *skeleton, const char *name, size_t name_len);
void ask_unwatch(struct skeleton *skeleton, const char *name, size_t name_len);

#endif
