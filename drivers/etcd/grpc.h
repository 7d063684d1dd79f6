/* grpc.h - gRPC on one connection: calls are HTTP/2 streams of libnghttp2, which does no I/O of its own. Does not know sockets
 * or etcd.
 *
 * A call sends one message (and ends its side), or is a stream to which more messages are pushed. The call's events report
 * what comes back: each whole message, and then, once, that the call has ended. The events are called inside grpc_receive();
 * they may start, push and cancel calls, and must not close the connection.
 *
 * A PING of the server is not answered at once, but when grpc_ping_answer() is called: see link.h. If a second PING comes
 * before that, the first one is answered immediately, and the second one waits.
 *
 * Memory is bounded, whatever the server sends: a message has at most GRPC_MESSAGE_MAX bytes, a header block what nghttp2
 * permits (64 KB). Anything larger ends the connection. */
#ifndef MORTISE_ETCD_GRPC_H
#define MORTISE_ETCD_GRPC_H

#include "wire.h"

#include <nghttp2/nghttp2.h>

#define GRPC_MESSAGE_MAX (16u << 20)
#define GRPC_PREFIX 5 /* before each message: a flag and its length */
#define GRPC_TEXT_MAX 200

/* The status codes that mean something here. */
enum grpc_status {
    GRPC_OK = 0,
    GRPC_UNKNOWN = 2,
    GRPC_INVALID_ARGUMENT = 3,
    GRPC_NOT_FOUND = 5,
    GRPC_ALREADY_EXISTS = 6,
    GRPC_PERMISSION_DENIED = 7,
    GRPC_RESOURCE_EXHAUSTED = 8,
    GRPC_FAILED_PRECONDITION = 9,
    GRPC_OUT_OF_RANGE = 11,
    GRPC_UNIMPLEMENTED = 12,
    GRPC_UNAVAILABLE = 14,
    GRPC_UNAUTHENTICATED = 16,
    GRPC_NO_STATUS = -1 /* the stream ended without one */
};

struct grpc_call;
struct grpc_events {
    /* False: the message makes no sense, so the connection is given up. */
    bool (*message)(struct grpc_call *call, struct bytes message);
    /* Nothing more comes; the call may be freed. */
    void (*ended)(struct grpc_call *call);
};

/* The caller's own structure begins with it. */
struct grpc_call {
    const struct grpc_events *events;
    struct writer out; /* messages with their prefixes; kept until the call is freed */
    size_t sent;
    bool is_stream; /* more messages may follow the first */
    int32_t stream; /* 0: none */
    struct writer in;
    /* when it has ended: */
    int status; /* enum grpc_status, or another number */
    char text[GRPC_TEXT_MAX];
};

struct grpc {
    nghttp2_session *session;
    bool is_away;             /* GOAWAY, or the peer does not speak HTTP/2 as it should */
    char text[GRPC_TEXT_MAX]; /* why */
    char authority[300];
    bool is_secure;
    bool has_ping; /* it is not answered yet */
    uint8_t ping[8];
};

bool grpc_open(struct grpc *grpc, const char *authority, bool is_secure);
/* Forgets the open calls without calling their events. */
void grpc_close(struct grpc *grpc);

/* Begin and end a message, whose prefix they write. The caller writes the message between the two. */
void grpc_begin(struct grpc_call *call, size_t *mark);
void grpc_end(struct grpc_call *call, size_t mark);
/* Starts the call with the bytes in `out`. token: the user's, or NULL. timeout_ms 0: none. False: no memory, or the
 * connection is spent. */
bool grpc_start(struct grpc *grpc, struct grpc_call *call, const char *path, const char *token,
                int64_t timeout_ms);
/* For a stream: sends what was added to `out`. */
void grpc_push(struct grpc *grpc, struct grpc_call *call);
/* Each call uses up one of the 2^30 numbers of its connection. Old: half of them are used up. Spent: all are, and no call can
 * be started any more. */
bool grpc_is_old(const struct grpc *grpc);
bool grpc_is_spent(const struct grpc *grpc);
/* The call's events are not called any more. */
void grpc_cancel(struct grpc *grpc, struct grpc_call *call);
void grpc_call_free(struct grpc_call *call);

/* Takes bytes from the server. False: the connection is useless from now on; text says why. */
bool grpc_receive(struct grpc *grpc, const uint8_t *data, size_t size);
/* The next bytes for the server, valid until the next call; 0: none; negative: no memory. */
ssize_t grpc_send(struct grpc *grpc, const uint8_t **data);
/* Answers the PING that waits, if one does. */
void grpc_ping_answer(struct grpc *grpc);
static inline bool grpc_wants_to_send(const struct grpc *grpc)
{
    return nghttp2_session_want_write(grpc->session) != 0;
}

#endif
