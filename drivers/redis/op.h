/* op.h - the states of an op in the Redis driver.
 *
 * op_set() changes them; struct op_data is where an op keeps its state.
 *
 *   state        it is in                             leaves it for
 *   NEW          nothing yet                          WAITING; or it fails at once
 *   UNROUTED     cluster->unrouted                    WAITING at a node, when the map says which, or a pause is over; fails
 *   GATHERED     a gather (gather.c)                  its end, when each node has answered
 *   WAITING      driver->waiting                      HELD_BACK, SENT, RENEWING, LISTING, WATCHED when the link is up; fails
 *                                                     with UNREACHABLE if the attempt to connect fails: nothing was sent
 *   HELD_BACK    driver->held_back: ASKING_MAX        SENT when an answer makes room; WAITING if the connection breaks
 *                acquires are under way
 *   SENT         a request                            its end; SEATED ("queued"); UNCONFIRMED (granted, min_replicas);
 *                                                     WAITING, once, if the connection broke and it changes nothing
 *   RENEWING     a batch                              its end; UNCONFIRMED
 *   LISTING      a list                               its end
 *   WATCHED      the transaction                      its end; UNCONFIRMED; WAITING if others changed a key of the batch
 *   SEATED       a seat: its place is in the server   SENT (refresh); its end when the inbox tells of its grant
 *   UNCONFIRMED  replicas.waiting                     CONFIRMING when WAIT is sent
 *   CONFIRMING   replicas.asked                       its end; UNDOING if too few replicas have it
 *   UNDOING      an undo                              its end, when its grant was released */
#ifndef MORTISE_DRIVERS_REDIS_OP_H
#define MORTISE_DRIVERS_REDIS_OP_H

#include <mortise/driver.h>

#include <stdbool.h>
#include <stdint.h>

struct driver;

enum op_state {
    OP_NEW,
    OP_UNROUTED,
    OP_GATHERED,
    OP_WAITING,
    OP_HELD_BACK,
    OP_SENT,
    OP_RENEWING,
    OP_LISTING,
    OP_WATCHED,
    OP_SEATED,
    OP_UNCONFIRMED,
    OP_CONFIRMING,
    OP_UNDOING
};

/* What the driver keeps in op->driver_data. */
struct __attribute__((may_alias)) op_data {
    enum op_state state;
    /* It changes nothing, and was sent again after its connection broke. It is not sent a third time. */
    bool asked_again;
    bool asking; /* ASKING comes first: its slot is on its way to this node */
    /* It may have a place in the queue although it has no seat, because it comes from another node. */
    bool placed;
    unsigned char redirects;
    union {
        struct driver *driver;   /* OP_WAITING, OP_HELD_BACK, OP_UNCONFIRMED, OP_CONFIRMING */
        struct gather *gather;   /* OP_GATHERED */
        int64_t due_ns;          /* OP_UNROUTED; MORTISE_NEVER: when a map is there */
        struct request *request; /* OP_SENT */
        struct batch *batch;     /* OP_RENEWING */
        struct list *list;       /* OP_LISTING */
        struct seat *seat;       /* OP_SEATED */
        struct undo *undo;       /* OP_UNDOING */
        struct transaction *transaction; /* OP_WATCHED */
        void *of;
    };
};
_Static_assert(sizeof(struct op_data) <= sizeof(((mortise_op *)0)->driver_data), "it fits");

static inline struct op_data *data_of(const mortise_op *op)
{
    return (struct op_data *)(uintptr_t)op->driver_data;
}

/* Only this function changes the state. `of`: the object that has the op in that state, or NULL. */
static inline void op_set(mortise_op *op, enum op_state state, void *of)
{
    data_of(op)->state = state;
    data_of(op)->of = of;
}

#endif
