/* seats.h - the ops that wait in the queue (seats.c), and the client's part of the queue (queue.c). */
#ifndef MORTISE_DRIVERS_REDIS_SEATS_H
#define MORTISE_DRIVERS_REDIS_SEATS_H

#include "redis.h"

/* ---- seats.c ---------------------------------------------------------------------------------------- */

/* The state of an op that waits in the queue, or is about to. It has at most one request under way. */
struct seat {
    UT_hash_handle hh, hh_kept;
    struct seat *next, *previous; /* in the order of due_ns, which is not NEVER */
    struct driver *driver;
    mortise_op *op;
    int64_t due_ns;
    int64_t since_ns; /* in a cluster: when its first request was sent to this node; else 0 */
    int64_t gone_ns;  /* stamp of the last place that the inbox said is gone; 0: none */
    int64_t told_ns;  /* when it said so; 0: never */
    bool gone_twice;  /* the inbox said so twice within a short time */
    bool placed;      /* there may be a place in the server */
    bool kept;        /* in driver->kept */
};

/* The op's seat, or NULL. */
struct seat *seat_of(const mortise_op *op);
/* `sent_ns`: when the request that makes or needs it is sent. NULL: no memory. */
struct seat *seat_new(struct driver *driver, mortise_op *op, int64_t sent_ns);
void seat_set_due(struct driver *driver, struct seat *seat, int64_t due_ns);
void seat_leave(struct driver *driver, mortise_op *op);
/* Keeps the seat, so that the release of its name can take its op along, until the op is sent or leaves. */
void seat_keep(struct driver *driver, struct seat *seat);
void seat_unkeep(struct driver *driver, struct seat *seat);
/* The kept seat of the op's name, or NULL. */
struct seat *seat_kept(const struct driver *driver, const mortise_op *op);
/* Whether the op may have a place, or the lock, in the server. */
bool seat_is_placed(const mortise_op *op);

/* ---- queue.c ---------------------------------------------------------------------------------------- */

extern const struct inbox_calls queue_inbox;
/* What an acquire that is sent now asks for, and the argument that says so. */
enum wish queue_wish(struct request *request, char text[WISH_SIZE]);
/* Whether such an op waits in the driver, with a place, or without one if there is no inbox. */
bool queue_may_wait(const struct driver *driver, const mortise_op *op);
/* The request's op has to wait, and must ask again within that time. `placed`: it has a place now. True: the op is kept. */
bool queue_keep(struct request *request, bool placed, int64_t at_latest_ms);
/* The op got no place. It waits nevertheless, if it may; otherwise it is BUSY. */
void queue_refuse(struct request *request, int64_t remaining_ms);
/* A connection is back: all seats ask, as many at a time as there is room for. */
void queue_ask_all(struct driver *driver);
int64_t queue_due_ns(const struct driver *driver);
void queue_turn(struct driver *driver);
/* The connection cannot be made again. */
void queue_lose_all(struct driver *driver, const struct link_fault *fault);

/* ---- turn.c ----------------------------------------------------------------------------------------- */

/* Keeps an acquire for the release that is about to come. False: the acquire must be sent. */
bool turn_keep(struct driver *driver, mortise_op *op);
/* The request is a release whose call was begun. True: it was sent, together with an acquire. */
bool turn_take_along(struct request *request);

#endif
