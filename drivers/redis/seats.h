/* seats.h - the ops that wait in the queue (seats.c), and the client's part of the queue (queue.c). */
#ifndef MORTISE_DRIVERS_REDIS_SEATS_H
#define MORTISE_DRIVERS_REDIS_SEATS_H

#include "redis.h"

/* ---- seats.c ---------------------------------------------------------------------------------------- */

/* An op that waits in the queue, or is about to. It has at most one request under way. */
struct seat {
    UT_hash_handle hh, hh_kept;
    struct seat *next, *previous; /* in the order of due_ns, which is not NEVER */
    struct driver *driver;
    mortise_op *op;
    int64_t due_ns;
    int64_t since_ns; /* in a cluster: when its first request was sent to this node; else 0 */
    int64_t gone_ns;  /* stamp of the last place that the inbox said is gone; 0: none */
    int64_t told_ns;  /* when it said so; 0: never */
    bool gone_twice;  /* soon after the time before */
    bool placed;      /* there may be a place in the server */
    bool kept;        /* in driver->kept */
};

/* Of the op, or NULL. */
struct seat *seat_of(const mortise_op *op);
/* `sent_ns`: of the request that makes or needs it. NULL without memory. */
struct seat *seat_new(struct driver *driver, mortise_op *op, int64_t sent_ns);
void seat_set_due(struct driver *driver, struct seat *seat, int64_t due_ns);
void seat_leave(struct driver *driver, mortise_op *op);
/* For the release of its name to take along; until it is sent, or leaves. */
void seat_keep(struct driver *driver, struct seat *seat);
void seat_unkeep(struct driver *driver, struct seat *seat);
/* That is kept of the op's name, or NULL. */
struct seat *seat_kept(const struct driver *driver, const mortise_op *op);
/* It may have a place, or the lock, in the server. */
bool seat_is_placed(const mortise_op *op);

/* ---- queue.c ---------------------------------------------------------------------------------------- */

extern const struct inbox_calls queue_inbox;
/* What an acquire that is sent at that instant asks for, and the argument that says so. */
enum wish queue_wish(struct request *request, char text[WISH_SIZE]);
/* Whether such an op waits here, with a place or, if there is no inbox, without. */
bool queue_may_wait(const struct driver *driver, const mortise_op *op);
/* The request's op has to wait, and to ask again in so long at the latest. `placed`: it has a place now. True: it is kept. */
bool queue_keep(struct request *request, bool placed, int64_t at_latest_ms);
/* It got none: it waits all the same, if it may; else it is BUSY. */
void queue_refuse(struct request *request, int64_t remaining_ms);
/* A connection is back: they ask, as many at a time as there is room for. */
void queue_ask_all(struct driver *driver);
int64_t queue_due_ns(const struct driver *driver);
void queue_turn(struct driver *driver);
/* The connection cannot be made anew. */
void queue_lose_all(struct driver *driver, const struct link_fault *fault);

/* ---- turn.c ----------------------------------------------------------------------------------------- */

/* An acquire is kept for the release that comes. False: it is to be sent. */
bool turn_keep(struct driver *driver, mortise_op *op);
/* The request is a release, and its call was begun. True: it was sent, and takes an acquire along. */
bool turn_take_along(struct request *request);

#endif
