/* link.h - a connection to the server: made (link.c, setup.c), used (flight.c), lost, made again.
 *
 * | state      | wanted    | addresses are here | libmariadb: OK | libmariadb: failed, its share is over | setup done, refused           | lost          |
 * |------------|-----------|--------------------|----------------|---------------------------------------|-------------------------------|---------------|
 * | DOWN       | RESOLVING |                    |                |                                       |                               |               |
 * | RESOLVING  |           | CONNECTING         |                |                                       |                               |               |
 * | CONNECTING |           |                    | SETTING_UP     | CONNECTING to the next address; after the last one DOWN, and a pause |                               |               |
 * | SETTING_UP |           |                    |                | as CONNECTING                         | READY; refused: as CONNECTING | as CONNECTING |
 * | READY      |           |                    |                |                                       |                               | DOWN          |
 *
 * "Refused": the server is read-only, or there is something else that another one may not have. "Wanted": a request waits in its
 * queue; or, for the first link, a session of a lost connection is to be ended; or, for the second one, somebody renews.
 * After READY the first new attempt is made at once, each later one after a growing pause.
 *
 * MAIN takes acquires, releases, and everything that is asked. LIVE takes renewals, so that nothing is in their way; it
 * is made when first needed. If it cannot be had, and MAIN can, renewals go there. */
#ifndef MORTISE_MYSQL_LINK_H
#define MORTISE_MYSQL_LINK_H

#include "conn.h"
#include "statement.h"

#include <poll.h>

#define GROUP_MAX 64       /* requests in one text */
#define GROUP_BYTES 200000 /* of a text: far below max_allowed_packet */
#define PEER_SIZE 80

enum link_state { LINK_DOWN, LINK_RESOLVING, LINK_CONNECTING, LINK_SETTING_UP, LINK_READY };
enum setup_phase { SETUP_IDENTIFY, SETUP_MAKE, SETUP_LAYOUT };

/* One text: the statements of its requests. Writes of several statements are one transaction. */
struct group {
    struct request *requests[GROUP_MAX];
    enum lane lane;
    size_t count;           /* 0: nothing is in flight */
    size_t request_at;      /* whose result comes next */
    unsigned part_at;       /* and of which of its statements */
    size_t got, expected;   /* results */
    bool transaction;       /* has BEGIN and COMMIT */
    bool failed;            /* and is being rolled back; `fault` is of… */
    size_t failed_at;       /* …this one; count: of the commit */
    struct fault fault;
    int64_t sent_ns;
};

/* What happens on a link, for the files above. */
struct link_events {
    /* It was lost with these requests in flight, which are told afterwards. */
    void (*lost)(struct link *link, const struct request *requests);
    void (*ready)(struct link *link);
};

struct link {
    struct driver *driver;
    bool live; /* the second one */
    enum link_state state;
    struct conn conn;
    size_t address; /* the index of the one that it is at */
    int fd;         /* a copy of libmariadb's, named in interest; -1 */
    unsigned long id;     /* of the connection; with the client's address it names the session */
    char peer[PEER_SIZE]; /* that address, as the server sees it; empty: not known */
    int64_t deadline_ns;  /* of the connection being made. NEVER */
    int64_t share_ns;     /* of the address that it is at. NEVER */
    int64_t retry_ns;     /* DOWN: not before */
    unsigned failures;    /* in a row */
    int64_t ready_ns;     /* since when it was READY, last */
    struct text out;      /* what is being sent */
    /* setup.c */
    enum setup_phase phase;
    size_t setup_at;
    unsigned tables, seen;
    bool galera;
    /* flight.c */
    struct request *queue; /* utlist, in the order of arrival */
    struct group group;
    bool stale;      /* the server is read-only by now */
    int64_t look_ns; /* read then, whatever poll says. NEVER */
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
/* What to poll; it has a descriptor. */
struct pollfd link_pollfd(const struct link *link);
/* It is of no use any more. What was sent is answered; what was not waits for the next. */
void link_lose(struct link *link, const struct sql_fault *fault);
void link_lose_why(struct link *link, const char *why);
/* The connection could not be made with this address: the next one is tried. After the last one, what waits for it is
 * answered, too. */
void link_failed(struct link *link, const struct sql_fault *fault);
void link_failed_why(struct link *link, mortise_status status, bool retryable, const char *why);
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
/* False: the connection is another one by now, or gone. */
bool setup_event(struct link *link, enum conn_event event);

/* ---- flight.c ---------------------------------------------------------------------------------- */

void flight_queue(struct link *link, struct request *request);
void flight_unqueue(struct request *request);
/* It is in a queue: nothing goes before it. */
void flight_first(struct request *request);
/* Sends what can go. False: the connection is gone by now. */
bool flight_go(struct link *link);
bool flight_event(struct link *link, enum conn_event event);
/* The requests in flight, in order, taken off. */
struct request *flight_take(struct link *link);
int64_t flight_due(const struct link *link);
/* When the first that pauses can go. NEVER */
int64_t flight_paused(struct link *link);
bool flight_idle(const struct link *link); /* nothing in the queue or in flight */
/* Something is in flight that no op waits for: the core may not be polling. */
bool flight_has_own(const struct link *link);

#endif
