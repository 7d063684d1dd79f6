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
 * "Addresses are here": of all names; or, when the look-ups have had their share of connect_timeout, of any name, because the
 * resolver may hang for one of them. hosts.c has the states of a look-up.
 *
 * If a client library tries all addresses by itself (struct remote_dialect, pass_by), no address is left for the next attempt:
 * a failure leads to DOWN, and after a silent address the next attempt begins with the address behind it.
 *
 * "Wanted": a request waits in one of its queues; or, for the first link, a session of a lost connection is to be ended; or,
 * for the second one, a lease is to be renewed; or the dialect needs the connection. After READY the first new attempt is made
 * at once, each later one after a growing pause. From READY, a dialect may set the connection up once more.
 *
 * MAIN, the first link, takes acquires, releases, and all queries. LIVE, the second one, takes renewals, so that nothing delays
 * them; it is made when first needed. If LIVE cannot be made, but MAIN can, renewals go to MAIN. */
#ifndef MORTISE_SQL_LINK_H
#define MORTISE_SQL_LINK_H

#include "../dialect.h"

#include <poll.h>

#define ADDRESSES_MAX 32
#define GROUP_MAX 64 /* requests in one group, at most */
#define GROUPS_MAX 5 /* in flight on one link, at most */
#define PEER_SIZE 264   /* as in MySQL's list of sessions: name:port, 261 characters */
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

/* LAZY: releases, places in lists, notifications: a crash may undo them. DURABLE: grants, renewals, records. A dialect
 * without this distinction uses DURABLE for all of them. */
enum lane { LANE_LAZY, LANE_DURABLE, LANE_READING, LANE_COUNT };

/* AGAIN: the same request may succeed at once. RESET: this connection is useless: make another. WAITED: the request waited
 * too long for a row, or for the lock of the notifications. LOUD: it may succeed without a notification. OWN: the first flag
 * of the dialect's own. */
enum { FAULT_AGAIN = 1, FAULT_RESET = 2, FAULT_WAITED = 4, FAULT_LOUD = 8, FAULT_OWN = 16 };

struct fault {
    struct sql_fault base;
    unsigned flags;
};

/* What to do when something happens to a request; each slot may free the request. */
struct handler {
    /* It is about to be sent; NULL: nothing to do. */
    void (*sending)(struct request *request);
    /* It was committed, and its result is available. */
    void (*answered)(struct request *request);
    /* It failed, and changed nothing. */
    void (*failed)(struct request *request, const struct fault *fault);
    /* The connection was lost (`sent`: while the statement was on its way), or could not be made: see remote->trouble. */
    void (*lost)(struct request *request, bool sent);
    /* It goes out again without its notification, which failed. NULL: it has none. */
    void (*silence)(struct request *request);
};

/* A request of drivers/lib/sql, or of the dialect itself. */
struct request {
    struct sql_request base;
    struct request *next, *previous; /* in a queue of its link */
    const struct handler *handler;
    enum lane lane;
    struct link *link;
    bool alone;            /* in a transaction of its own, because it failed with others */
    bool locked;           /* another session keeps its row locked, or did so lately */
    bool quiet;            /* its notification failed: it goes out without */
    bool only_notifies;    /* it has no other purpose than its notification */
    bool settles;          /* must not be sent while a ghost may still write */
    unsigned tries, waits; /* attempts after failures; waits for a locked row */
    uint64_t number;       /* orders the requests of one name */
    int64_t not_before_ns; /* in its queue: when its pause ends; or 0 */
    int64_t locked_ns;     /* since when it waits for a locked row; or 0 */
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

/* What names a session in its server's list of sessions. `server` says which server that is. It is empty if nothing that the
 * old server commits can reach the next one: a standby of PostgreSQL takes no connection of ours before it is promoted, and
 * from then on it receives no more. */
struct session {
    int64_t id; /* 0: not known */
    int64_t start;
    char peer[PEER_SIZE], server[SERVER_SIZE];
};

struct link {
    struct remote *remote;
    bool live; /* the second one */
    enum link_state state;
    int fd; /* a copy of the client library's, which the core polls; -1 */
    struct session session;
    struct addresses addresses;        /* of this attempt: look-ups for the other link leave them alone */
    size_t address;                    /* the index of the present address */
    int64_t deadline_ns;               /* of the connection being made; or NEVER */
    int64_t share_ns;                  /* when the present address's time ends, or the look-ups'; or NEVER */
    int64_t retry_ns;                  /* DOWN: not before */
    unsigned failures;                 /* in a row */
    int64_t ready_ns;                  /* when it last became READY */
    struct request *queue[LANE_COUNT]; /* utlist, in the order of arrival */
    struct group groups[GROUPS_MAX];   /* a ring */
    size_t first_group, group_count;
    int64_t heard_ns; /* when a group last came back */
    int64_t look_ns;  /* when to read, whatever poll says; or NEVER */
    int64_t look_step_ns;
    size_t expected; /* bytes: poll sleeps until so many have come. 0: one is enough */
};

/* ---- link.c ------------------------------------------------------------------------------------- */

void link_init(struct remote *remote, struct link *link, bool live);
/* Begins to make a connection, if there is none and something waits for it. Do not call it while walking a list of
 * requests or names: the attempt may fail at once, and then every request that waits for it fails, too. */
void link_want(struct link *link);
void link_turn(struct link *link, const struct pollfd *ready, size_t n);
int64_t link_due(const struct link *link);
/* Makes the core poll a copy of the client library's descriptor (see link.c). False: no descriptor is left, and the link
 * has failed. */
bool link_poll(struct link *link, int fd);
void link_poll_no_more(struct link *link);
/* What to poll. The link must have a descriptor. */
struct pollfd link_pollfd(const struct link *link);
/* The connection is useless from now on. Requests that were sent are answered; the others wait for the next
 * connection, except for looks of ghost.c. */
void link_lose(struct link *link, const struct sql_fault *fault);
void link_lose_why(struct link *link, const char *why);
/* The connection could not be made: tries the next address. After the last one, answers the requests that wait for the
 * connection, too. */
void link_failed(struct link *link, const struct sql_fault *fault);
void link_failed_why(struct link *link, mortise_status status, bool retryable, const char *why);
/* The dialect calls these while it connects and sets the connection up. */
void link_set_up(struct link *link, bool once_more);
void link_ready(struct link *link);
void link_close(struct link *link);
/* An answer will come although the core may not be polling for it. */
void link_look_soon(struct link *link);
/* So many bytes will come, unless a statement fails. poll() sleeps until they have arrived, because waking this process for
 * each answer in a group costs the server a quarter of the statement. After 2 ms, and then less and less often, the link
 * checks for fewer bytes. So too large a number makes answers late, but loses none. 0: poll() as usual. */
void link_expect(struct link *link, size_t bytes);
/* What is in the link's socket: bytes, nothing, or the end of file. */
enum link_peek { PEEK_NOTHING, PEEK_BYTES, PEEK_END };
enum link_peek link_peek(const struct link *link);

/* ---- queue.c ------------------------------------------------------------------------------------ */

/* Appends to the queue of its lane. */
void queue_append(struct link *link, struct request *request);
void queue_prepend(struct link *link, struct request *request); /* keeps its number */
void queue_remove(struct request *request);
/* Moves a request, which must be in a queue, to the front. */
void queue_first(struct request *request);
/* The first request that can go; or NULL. */
const struct request *queue_ready(const struct link *link, enum lane lane);
bool queue_is_empty(const struct link *link); /* all of them */
/* When the first request of that lane can go; or NEVER. */
int64_t queue_due(const struct link *link, enum lane lane);
/* Moves requests that can go together into the group. */
void queue_compose(struct link *link, enum lane lane, struct group *group);

/* ---- flight.c ----------------------------------------------------------------------------------- */

/* Sends the requests that can go. False: the connection is gone by now. */
bool flight_go(struct link *link);
/* The group whose results come next; there must be one. */
struct group *flight_group(struct link *link);
size_t flight_count(const struct link *link, enum lane lane); /* groups */
/* The first group has been committed, or has failed and was rolled back. False: the connection is gone by now. */
bool flight_done(struct link *link);
/* Takes off the requests in flight and returns them in order. */
struct request *flight_take(struct link *link);
int64_t flight_due(const struct link *link);
/* When the first request that pauses can go; or NEVER. */
int64_t flight_paused(const struct link *link);
bool flight_idle(const struct link *link); /* nothing in queues or in flight */
/* Whether something is in flight that no op waits for, so that the core may not be polling. */
bool flight_has_own(const struct link *link);

#endif
