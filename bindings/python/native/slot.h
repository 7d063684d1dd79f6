/* slot.h - what the files of the bridge share: slots and sinks (bridge.h).
 *
 * One mutex guards all of them: it is held for a few instructions at a time, and never while a function of the library is
 * called. slot_go_locked() is the only function that changes a slot's state:
 *
 *   state     | acquire begins | it succeeds   | it fails | release         | answer of a release | leave
 *   IDLE      | ASKING         | -             | -        | INVALID         | -                   | LEFT
 *   ASKING    | INVALID        | HELD          | IDLE     | INVALID         | -                   | LEFT; cancel
 *   HELD      | INVALID        | -             | -        | IDLE, RELEASING | -                   | LEFT; release
 *   RELEASING | INVALID        | -             | -        | INVALID         | IDLE; HELD (1)      | LEFT
 *   LEFT      | INVALID        | LEFT; release | LEFT     | INVALID         | LEFT                | LEFT
 *
 * RELEASING is a release whose answer comes by a callback. (1) It could not be started (NOMEM). The memory of a slot goes with
 * its last reference: Python's, the queue's, that of a callback to come, and that of on_state until the release has returned, or
 * the close of the client.
 */
#ifndef MORTISE_PYTHON_SLOT_H
#define MORTISE_PYTHON_SLOT_H

#include "bridge.h"
#include "wake.h"

#include <pthread.h>
#include <stdatomic.h>

enum slot_state { IDLE, ASKING, HELD, RELEASING, LEFT };

struct mpy_sink {
    mpy_sink *next; /* of this process */
    mortise_client *client;
    mpy_slot *first, *last;
    mpy_slot *given_up;        /* freed, but a close may still call back: they go when it is over */
    struct wake wake;          /* raised: see mpy_sink_fd() */
    int fd;                    /* a duplicate of the client's descriptor, or -1 */
    bool dropped, ended, over; /* over: no callback of the library runs any more */
    unsigned epoch, references;
};

struct mpy_slot {
    enum slot_state state;
    unsigned epoch, references;
    uint64_t key;
    mpy_sink *sink;
    mpy_slot *next, *next_given_up;
    int what; /* not collected yet */
    bool queued, watched, to_sink;
    bool lingers; /* watched, although the release has returned: the client is being closed */
    bool decided; /* for mpy_await(): not a bit of `what`, which a collector of the sink takes */
    int status, lease_state;
    mortise_client *client;
    /* The last one, also after its release: one may still ask its handle, and hears LOST. */
    _Atomic(mortise_lease *) lease;
    mortise_request request;
    mortise_error error;
};

extern pthread_mutex_t mpy_lock;
/* Raised: something that the main thread waits for has happened. Guarded by the mutex. */
extern struct wake mpy_main_wake;

/* Whether this process made it, not the parent. made_in: the field `epoch`. */
bool is_ours(unsigned made_in);
void watch_forks(void);
/* Fills the error. Returns the status. */
int fail(mortise_error *error, int status, const char *message);

void slot_go_locked(mpy_slot *slot, enum slot_state next);
/* Gives up references; the slot may be gone. */
void slot_put_locked(mpy_slot *slot, unsigned count);
/* The sink hears of it, if there is one. */
void slot_queue_locked(mpy_slot *slot, int what);
/* Its release has returned: waits until nothing reports a state of this slot any more. */
void slot_unwatch(mpy_slot *slot, mortise_lease *lease);
/* Releases the lease of a slot that was left. */
void release_left(mpy_slot *slot, mortise_lease *lease);

/* Callbacks of the library; user_data is the slot. */
void slot_on_state(mortise_lease *lease, mortise_lease_state state, void *user_data);
void slot_on_acquired(mortise_status status, mortise_lease *lease, const mortise_error *error,
                      void *user_data);
void slot_on_released(mortise_status status, const mortise_error *error, void *user_data);

#endif
