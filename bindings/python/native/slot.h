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
 * RELEASING is a release whose answer comes by a callback. (1) The release could not be started (NOMEM). A slot is freed with
 * its last reference. These hold one: Python, the queue, a callback that will come, and on_state, until the release or the
 * client's close has returned.
 */
#ifndef MORTISE_PYTHON_SLOT_H
#define MORTISE_PYTHON_SLOT_H

#include "bridge.h"
#include "wake.h"

#include <pthread.h>
#include <stdatomic.h>

enum slot_state { IDLE, ASKING, HELD, RELEASING, LEFT };

struct mpy_sink {
    mpy_sink *next; /* in the list of this process's sinks */
    mortise_client *client;
    mpy_slot *first, *last;
    mpy_slot *given_up;        /* freed when the close is over, because it may still call back */
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
    /* The last lease, also after its release: its handle may still be asked, and is LOST then. */
    _Atomic(mortise_lease *) lease;
    mortise_request request;
    mortise_error error;
};

extern pthread_mutex_t mpy_lock;
/* Raised: something that the main thread waits for has happened. Guarded by the mutex. */
extern struct wake mpy_main_wake;

/* Whether this process, and not its parent, made a slot or sink. made_in: its field `epoch`. */
bool is_ours(unsigned made_in);
void watch_forks(void);
/* Fills the error. Returns the status. */
int fail(mortise_error *error, int status, const char *message);

void slot_go_locked(mpy_slot *slot, enum slot_state next);
/* Drops references; the slot may be freed. */
void slot_put_locked(mpy_slot *slot, unsigned count);
/* Queues an event for the slot's sink, if there is one. */
void slot_queue_locked(mpy_slot *slot, int what);
/* The release of the slot's lease has returned: waits until no callback reports a state of this slot any more. */
void slot_unwatch(mpy_slot *slot, mortise_lease *lease);
/* Releases the lease of a slot that was left. */
void release_left(mpy_slot *slot, mortise_lease *lease);

/* Callbacks of the library; user_data is the slot. */
void slot_on_state(mortise_lease *lease, mortise_lease_state state, void *user_data);
void slot_on_acquired(mortise_status status, mortise_lease *lease, const mortise_error *error,
                      void *user_data);
void slot_on_released(mortise_status status, const mortise_error *error, void *user_data);

#endif
