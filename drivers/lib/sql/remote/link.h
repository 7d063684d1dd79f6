/* link.h - a connection to the server: made (link.c, and the dialect), used (flight.c), lost, made again.
 *
 * | state      | wanted    | addresses are here | the dialect: connected | failed, its share is over     | set up | lost          |
 * |------------|-----------|--------------------|------------------------|-------------------------------|--------|---------------|
 * | DOWN       | RESOLVING |                    |                        |                               |        |               |
 * | RESOLVING  |           | CONNECTING         |                        | no address: DOWN, and a pause |        |               |
 * | CONNECTING |           |                    | SETTING_UP             | CONNECTING to the next address; after the last one DOWN, and a pause ||
 * | SETTING_UP |           |                    |                        | as CONNECTING                 | READY  | as CONNECTING |
 * | READY      |           |                    |                        |                               |        | DOWN          |
 *
 * A client library that tries all addresses by itself (struct remote_dialect, pass_by) leaves none for the next attempt: what
 * fails is DOWN, and after a silent address the next attempt begins behind it.
 *
 * "Wanted": a request waits in one of its queues; or, for the first link, a session of a lost connection is to be ended; or,
 * for the second one, a lease is to be renewed; or the dialect needs it. After READY the first new attempt is made at once, each
 * later one after a growing pause. From READY, a dialect may set it up once more.
 *
 * MAIN takes acquires, releases, and everything that is asked. LIVE takes renewals, so that nothing is in their
 * way; it is made when first needed. If it cannot be had, and MAIN can, renewals go there. */
#ifndef MORTISE_SQL_LINK_H
#define MORTISE_SQL_LINK_H

#include "../dialect.h"

#include <poll.h>

#define ADDRESSES_MAX 32
#define GROUP_MAX 64 /* requests in one group, at most */
#define GROUPS_MAX 5 /* in flight on one link, at most */
#define PEER_SIZE 264   /* as it is in MySQL's list of sessions: name:port, 261 characters */
#define SERVER_SIZE 280 /* name:port:id */

struct remote;
struct link;
struct request;
struct host_entry;

struct address {
    const struct host_entry *entry;
    char text[64]; /* numeric; "" for a unix socket */
};

struct addresses {
    struct address at[ADDRESSES_MAX];
    size_t count;
};

/* LAZY: releases, places in lists, notifications: a crash may undo them. DURABLE: grants, renewals, records. A dialect that
 * makes no difference has them all in DURABLE. */
enum lane { LANE_LAZY, LANE_DURABLE, LANE_READING, LANE_COUNT };

/* AGAIN: the same may succeed at once. RESET: this connection is of no use: make another. WAITED: it waited for a row, or for
 * the lock of the notifications, for too long. LOUD: without a notification it may succeed. OWN: the dialect's first one. */
enum { FAULT_AGAIN = 1, FAULT_RESET = 2, FAULT_WAITED = 4, FAULT_LOUD = 8, FAULT_OWN = 16 };

struct fault {
    struct sql_fault base;
    unsigned flags;
};

/* What becomes of a request; each slot may free it. */
struct handler {
    /* It is about to be sent; NULL: nothing to do. */
    void (*sending)(struct request *request);
    /* It was committed, and its result is there. */
    void (*answered)(struct request *request);
    /* It failed, and changed nothing. */
    void (*failed)(struct request *request, const struct fault *fault);
    /* The connection was lost (`sent`: while the statement was on its way), or could not be made: see remote->trouble. */
    void (*lost)(struct request *request, bool sent);
    /* It goes out again, without a notification: that failed. NULL: it has none. */
    void (*silence)(struct request *request);
};

/* A request of drivers/lib/sql, or one of the dialect's own. */
struct request {
    struct sql_request base;
    struct request *next, *previous; /* in a queue of its link */
    const struct handler *handler;
    enum lane lane;
    struct link *link;
    bool alone;            /* in a transaction of its own: with others it failed */
    bool locked;           /* another session keeps its row locked, or did so lately */
    bool quiet;            /* its notification failed: it goes out without */
    bool only_notifies;    /* without a notification it is nothing */
    bool settles;          /* not while a ghost may still write */
    unsigned tries, waits; /* after failures; for a row that is locked */
    uint64_t number;       /* orders those of one name */
    int64_t not_before_ns; /* in its queue: a pause. 0 */
    int64_t locked_ns;     /* since when it waits for a row that is locked. 0 */
    void *argument;        /* the handler's own */
};

/* Statements that the server executes as one transaction. */
struct group {
    struct request *requests[GROUP_MAX];
    enum lane lane;
    size_t count;
    bool failed;      /* `fault` is of… */
    size_t failed_at; /* …this one; count: of the commit */
    struct fault fault;
    int64_t sent_ns;
};

enum link_state { LINK_DOWN, LINK_RESOLVING, LINK_CONNECTING, LINK_SETTING_UP, LINK_READY };

/* What names a session in its server's list of them. `server` is which one that is; empty if nothing comes from the server before
 * to the one that is connected next: a standby of PostgreSQL takes no connection of ours before it is promoted, and then it
 * receives no more. */
struct session {
    int64_t id; /* 0: not known */
    int64_t start;
    char peer[PEER_SIZE], server[SERVER_SIZE];
};

struct link {
    struct remote *remote;
    bool live; /* the second one */
    enum link_state state;
    int fd; /* a copy of the client library's, named in interest; -1 */
    struct session session;
    struct addresses addresses;        /* that it began with: a look-up for the other link changes none */
    size_t address;                    /* the index of the one that it is at */
    int64_t deadline_ns;               /* of the connection being made. NEVER */
    int64_t share_ns;                  /* of the address that it is at. NEVER */
    int64_t retry_ns;                  /* DOWN: not before */
    unsigned failures;                 /* in a row */
    int64_t ready_ns;                  /* since when it was READY, last */
    struct request *queue[LANE_COUNT]; /* utlist, in the order of arrival */
    struct group groups[GROUPS_MAX];   /* a ring */
    size_t first_group, group_count;
    int64_t heard_ns; /* when a group came back, last */
    int64_t look_ns;  /* read then, whatever poll says. NEVER */
    int64_t look_step_ns;
    size_t expected; /* bytes: poll keeps quiet about fewer. 0: about none */
};

/* ---- link.c ------------------------------------------------------------------------------------- */

void link_init(struct remote *remote, struct link *link, bool live);
/* Begins to make a connection, if there is none and something waits for it. Not to be called while a list of
 * requests or names is being walked: it may fail at once, and then everything that waits for it does. */
void link_want(struct link *link);
void link_turn(struct link *link, const struct pollfd *ready, size_t n);
int64_t link_due(const struct link *link);
/* The descriptor of the client library is to be polled: a copy of it is (see link.c). False: no descriptor is left, and the
 * link has failed. */
bool link_poll(struct link *link, int fd);
void link_poll_no_more(struct link *link);
/* What to poll; it has a descriptor. */
struct pollfd link_pollfd(const struct link *link);
/* It is of no use any more. What was sent is answered; what was not waits for the next one, but for what ghost.c
 * asks of it. */
void link_lose(struct link *link, const struct sql_fault *fault);
void link_lose_why(struct link *link, const char *why);
/* The connection could not be made: the next address is tried. After the last one, what waits for it is answered, too. */
void link_failed(struct link *link, const struct sql_fault *fault);
void link_failed_why(struct link *link, mortise_status status, bool retryable, const char *why);
/* The dialect connects and sets up with these. */
void link_set_up(struct link *link, bool once_more);
void link_ready(struct link *link);
void link_close(struct link *link);
/* An answer will come that the core does not poll for. */
void link_look_soon(struct link *link);
/* So many bytes are to come, unless a statement fails. poll() sleeps until they are there: to wake this process for each
 * answer in a group costs the server a quarter of the statement. After 2 ms, and then less and less often, fewer are looked
 * for. So a number that is too large makes answers late, but loses none. 0: poll() as usual. */
void link_expect(struct link *link, size_t bytes);
/* What is in its socket: bytes, nothing, the end of file. */
enum link_peek { PEEK_NOTHING, PEEK_BYTES, PEEK_END };
enum link_peek link_peek(const struct link *link);

/* ---- queue.c ------------------------------------------------------------------------------------ */

/* Appends to the queue of its lane. */
void queue_append(struct link *link, struct request *request);
void queue_prepend(struct link *link, struct request *request); /* keeps its number */
void queue_remove(struct request *request);
/* It is in a queue: nothing goes before it. */
void queue_first(struct request *request);
/* The first one that can go; NULL. */
const struct request *queue_ready(const struct link *link, enum lane lane);
bool queue_is_empty(const struct link *link); /* all of them */
/* When the first one of that lane can go. NEVER */
int64_t queue_due(const struct link *link, enum lane lane);
/* Moves those that can go together into the group. */
void queue_compose(struct link *link, enum lane lane, struct group *group);

/* ---- flight.c ----------------------------------------------------------------------------------- */

/* Sends what can go. False: the connection is gone by now. */
bool flight_go(struct link *link);
/* The one whose results come next; there is one. */
struct group *flight_group(struct link *link);
size_t flight_count(const struct link *link, enum lane lane); /* groups */
/* The first group has come back, or has failed and was rolled back. False: the connection is gone by now. */
bool flight_done(struct link *link);
/* The requests in flight, in order, taken off. */
struct request *flight_take(struct link *link);
int64_t flight_due(const struct link *link);
/* When the first one that pauses can go. NEVER */
int64_t flight_paused(const struct link *link);
bool flight_idle(const struct link *link); /* nothing in queues or in flight */
/* Something is in flight that no op waits for: the core may not be polling. */
bool flight_has_own(const struct link *link);

#endif
