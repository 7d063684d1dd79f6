/* link.h - a connection to the server: made (link.c, setup.c), used (flight.c), lost, made again.
 *
 * | state      | wanted      | addresses are here | libpq: OK  | libpq: failed, time-out | setup done | lost          |
 * |------------|-------------|--------------------|------------|-------------------------|------------|---------------|
 * | DOWN       | RESOLVING   |                    |            |                         |            |               |
 * | RESOLVING  |             | CONNECTING         |            | DOWN, and a pause       |            |               |
 * | CONNECTING |             |                    | SETTING_UP | DOWN, and a pause       |            |               |
 * | SETTING_UP |             |                    |            | DOWN, and a pause       | READY      | DOWN, a pause |
 * | READY      |             |                    |            |                         |            | DOWN          |
 *
 * "Wanted": a request waits in one of its queues; or, for the first link, a backend of a lost connection is to be ended;
 * or, for the second one, somebody renews or is to be notified. After
 * READY the first new attempt is made at once, each later one after a growing pause. From READY, a LISTEN that was not part
 * of the setup leads to SETTING_UP once more.
 *
 * MAIN takes acquires, releases, and everything that is asked. LIVE takes renewals and LISTEN, so that nothing is in their
 * way; it is made when first needed. If it cannot be had, and MAIN can, renewals go there. */
#ifndef MORTISE_POSTGRES_LINK_H
#define MORTISE_POSTGRES_LINK_H

#include "statement.h"

#define GROUP_MAX 56      /* statements in one transaction */
#define GROUP_BYTES 7500  /* of a group on the wire: below libpq's 8192 */
#define LAZY_GROUPS_MAX 3 /* in flight on one link */
#define GROUPS_MAX (LAZY_GROUPS_MAX + 2)

enum link_state { LINK_DOWN, LINK_RESOLVING, LINK_CONNECTING, LINK_SETTING_UP, LINK_READY };
enum setup_phase { SETUP_IDENTIFY, SETUP_MAKE, SETUP_PREPARE, SETUP_LISTEN };

/* One pipeline with one sync, which the server executes as one transaction. */
struct group {
    struct request *requests[GROUP_MAX];
    enum lane lane;
    size_t count, at;  /* at: whose result comes next */
    size_t lead, tail; /* results before and after the requests': behind a pooler */
    bool got;          /* a result of that one was seen */
    bool failed;       /* `fault` is of… */
    size_t failed_at;  /* …this one; count: of the commit */
    struct fault fault;
    int64_t sent_ns;
};

/* What happens on a link, for the files above. */
struct link_events {
    /* It was lost with these requests in flight, which are told afterwards. */
    void (*lost)(struct link *link, const struct request *requests);
    void (*ready)(struct link *link);
    /* A notification for our channel. */
    void (*notified)(struct driver *driver, const char *payload);
};

struct link {
    struct driver *driver;
    bool live; /* the second one */
    enum link_state state;
    PGconn *conn;
    int fd; /* a copy of libpq's, named in interest; -1 */
    short events;
    bool pooled;           /* somebody is between us and the backend */
    int64_t backend_start; /* µs; with the pid it names the backend. 0: not known */
    int pid;
    int64_t clock_us, clock_ns; /* the server's clock was at least this at that instant of ours */
    int64_t deadline_ns;        /* of the connection being made. NEVER */
    int64_t share_ns;           /* CONNECTING: of the address that it is at. NEVER */
    int64_t retry_ns;           /* DOWN: not before */
    unsigned failures;          /* in a row */
    int64_t ready_ns;           /* since when it was READY, last */
    /* setup.c */
    enum setup_phase phase;
    size_t setup_at, setup_count;
    bool setup_got, tables_missing;
    bool listens; /* LISTEN was part of it */
    /* flight.c */
    struct request *queue[LANE_COUNT]; /* utlist */
    struct group groups[GROUPS_MAX];   /* a ring */
    size_t first_group, group_count;
    bool unflushed;
    bool unconfirmed; /* a commit that was answered is not on the standby: see protocol.md */
    int64_t heard_ns; /* when a group came back, last */
    int64_t look_ns;  /* read then, whatever poll says. NEVER */
    int64_t look_step_ns;
};

/* ---- link.c ------------------------------------------------------------------------------------ */

void link_init(struct driver *driver, struct link *link, bool live);
/* Begins to make a connection, if there is none and something waits for it. Not to be called while a list of
 * requests or names is being walked: it may fail at once, and then everything that waits for it does. */
void link_want(struct link *link);
void link_resolved(struct driver *driver);
void link_turn(struct link *link, const struct pollfd *ready, size_t n);
int64_t link_due(struct link *link);
/* It is of no use any more. What was sent is answered; what was not waits for the next. */
void link_lose(struct link *link, const char *why);
/* The connection could not be made: what waits for it is answered, too. */
void link_failed(struct link *link, mortise_status status, bool retryable, int native,
                 const char *why);
void link_ready(struct link *link);
void link_close(struct link *link);
/* An answer will come that the core does not poll for. */
void link_look_soon(struct link *link);
/* False: the server had closed it while nothing was under way, and it is lost by now. */
bool link_is_there(struct link *link);
/* "host:port" */
const char *link_where(const struct link *link, char *text, size_t size);

/* ---- setup.c ----------------------------------------------------------------------------------- */

void setup_begin(struct link *link);
/* LISTEN, on a connection that was made without, as soon as nothing is in flight. */
void setup_listen(struct link *link);
/* A result or NULL from libpq; false: the connection is gone by now. */
bool setup_result(struct link *link, PGresult *result);

/* ---- flight.c ---------------------------------------------------------------------------------- */

/* Appends to the queue of its lane. */
void flight_queue(struct link *link, struct request *request);
void flight_unqueue(struct request *request);
/* It is in a queue: nothing goes before it. */
void flight_first(struct request *request);
/* How long a group behind a pooler may take. */
int64_t flight_patience_ns(const struct driver *driver);
/* Sends what can go. False: the connection is gone by now. */
bool flight_go(struct link *link);
bool flight_flush(struct link *link);
bool flight_result(struct link *link, PGresult *result);
/* The requests in flight, in order, taken off. */
struct request *flight_take(struct link *link);
int64_t flight_due(const struct link *link);
/* When the first that pauses can go. NEVER */
int64_t flight_paused(struct link *link);
bool flight_idle(const struct link *link); /* nothing in queues or in flight */
bool flight_none(const struct link *link); /* nothing in flight */
/* Something is in flight that no op waits for: the core may not be polling. */
bool flight_has_own(struct link *link);

#endif
