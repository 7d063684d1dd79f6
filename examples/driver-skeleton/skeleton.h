/* skeleton.h - what the files of the skeleton share. The skeleton is a driver to copy: it shows the whole way of a
 * request to a server over TCP and back. docs/driver-guide.md explains it; server.py is the server, and defines the
 * protocol.
 *
 * States of the connection (link.c):
 *
 *   DOWN -- a request needs it, and the pause is over --> RESOLVING -- address --> CONNECTING -- writable --> UP
 *   any but DOWN -- error, end of file, no answer in `timeout` --> DOWN, for a pause
 *
 * What can go wrong, and what the skeleton does:
 * - The reply is lost, or the process stops: ops that were sent end INDETERMINATE. The core sends them again under the
 *   same grant id, and the server answers as it did the first time.
 * - A request is still on the old connection when the new one is used: HELLO names the client and counts its
 *   connections, and the server ends the older ones unread before it answers. So after an answer on a later connection,
 *   no earlier request can be executed: `sure`.
 * - The server restarts: it has forgotten all claims. So the driver does not promise DURABLE (capabilities).
 * - The caller gives up: an op that was not sent is CANCELED, one that was sent is INDETERMINATE. Its answer is ignored.
 * - A release comes between BUSY and WATCH: the server always answers WATCH with NEWS. */
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
    char node[256], port[16]; /* the server's */

    enum link_state state;
    int fd;
    bool broken;   /* out of memory while writing: give the connection up when it is safe */
    bool looks_up; /* a look-up is under way, perhaps since an attempt that has failed meanwhile */
    int64_t
        due_ns; /* DOWN: when the next attempt may start; RESOLVING, CONNECTING: when the attempt has failed */
    uintptr_t attempt; /* counts the attempts: the server ends the connections of earlier ones */
    struct buffer in, out;

    mortise_op *first, *last; /* ops without an answer, in the order of their requests */
    uintptr_t last_number;    /* of the requests that were sent */
    uintptr_t answered;       /* of the latest request that was answered; answers come in order */
    int64_t silent_ns;        /* while answers are owed: since when nothing of them has come */
    struct watched *watched;
};

/* What the driver keeps in an op between start and completion. */
static inline uintptr_t op_number(const mortise_op *op) /* 0: not sent yet */
{
    return (uintptr_t)op->driver_data[0];
}

/* The server has not answered all requests. Those whose ops were canceled count too: with a short ttl no op lives long enough
 * to tell that the connection is silent. */
static inline bool is_owed(const struct skeleton *skeleton)
{
    return skeleton->answered != skeleton->last_number;
}
static inline int64_t answer_due(const struct skeleton *skeleton)
{
    return skeleton->silent_ns + skeleton->timeout_ns;
}

/* ---- link.c: the connection ---- */

/* Connects, unless there is a connection, now or after the pause. */
void link_need(struct skeleton *skeleton);
/* Append to the output: text by a format; bytes as hexadecimal digits, "-" if there are none. */
void link_put(struct skeleton *skeleton, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void link_put_hex(struct skeleton *skeleton, const void *bytes, size_t size);
/* Gives the connection up, and fails all ops with that reason. */
void link_fail(struct skeleton *skeleton, const char *why);
void link_turn(struct skeleton *skeleton, short revents);
/* Closes the connection and frees its buffers. Completes no op. */
void link_close(struct skeleton *skeleton);

/* ---- ask.c: ops as lines, and lines as answers ---- */

void ask_start(struct skeleton *skeleton, mortise_op *op);
void ask_cancel(struct skeleton *skeleton, mortise_op *op);
/* The connection is up: sends the ops that waited for it. */
void ask_all(struct skeleton *skeleton);
/* The connection is gone, and with it the answers to the ops that were sent: fails all ops. */
void ask_fail_all(struct skeleton *skeleton, const char *why);
/* Handles one line from the server, without its newline. */
void ask_line(struct skeleton *skeleton, char *line);
void ask_watch(struct skeleton *skeleton, const char *name, size_t name_len);
void ask_unwatch(struct skeleton *skeleton, const char *name, size_t name_len);

#endif
