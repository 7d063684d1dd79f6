/* bridge.h - the functions that Python calls: those of mortise.h in a form that Python can use safely. build.py passes this file
 * to cffi, without the lines that begin with '#'. So it has only declarations.
 *
 * No Python code runs in a callback of the library. The callbacks (slot.c) only note what happened in a slot, and Python
 * collects that later. So no thread of the library waits for Python's GIL, except the one that writes log lines.
 *
 * A *slot* is one acquire and the lease that it got. The bridge stores the lease in the slot before the call returns. So a
 * KeyboardInterrupt between two steps of Python loses no lease: when the slot is left, its lease is released.
 * A *sink* is the queue of slots for one event loop, or for the thread that calls on_loss.
 *
 * Before a slot, a sink or a descriptor is made, Python owns the memory to which it is written. So an interrupt in between
 * does not lose it either.
 *
 * Every function may be called from any thread, and in a child after fork, where it returns FORKED or does nothing. A
 * slot must not be used after it was freed, nor a sink after it was dropped. */
#ifndef MORTISE_PYTHON_BRIDGE_H
#define MORTISE_PYTHON_BRIDGE_H

#include <mortise/mortise.h>

typedef struct mpy_slot mpy_slot;
typedef struct mpy_sink mpy_sink;

/* What has happened to a slot: bits of mpy_event.what. */
enum { MPY_ACQUIRED = 1, MPY_RELEASED = 2, MPY_STATE = 4 };

typedef struct mpy_event {
    uint64_t key; /* of mpy_slot_new() */
    int what;
    int status; /* of MPY_ACQUIRED or MPY_RELEASED */
    int state;  /* of MPY_STATE */
} mpy_event;

/* Events on their way to Python. If a signal handler raises between two events, the rest is still there. */
enum { MPY_ROOM = 128 };
typedef struct mpy_batch {
    int count, done; /* Python counts in `done` */
    mpy_event events[128];
} mpy_batch;

/* The result of one step of an acquire, besides the statuses of mortise.h. */
enum { MPY_PENDING = 1 };

/* Opens a client. From the first client on, log lines go to mpy_log(). */
int mpy_open(const char *where, mortise_client **client, mortise_error *error);
/* Closes the client, and dispatches while it says CLOSING. */
int mpy_close(mortise_client *client, mortise_error *error);
/* Log lines go to stderr again, and stay there. Returns when no line is on its way to Python. */
void mpy_log_off(void);
/* From now on callbacks run only in dispatches. Returns OK or a failure. */
int mpy_listen(mortise_client *client);

/* ---- sinks ---- */

/* Makes a sink in *room, which is NULL before. Returns OK or a failure. */
int mpy_sink_new(mortise_client *client, mpy_sink **room);
/* Drops a sink. Later events of its slots are forgotten, and leases that are granted later are released. */
void mpy_sink_drop(mpy_sink **room);
/* Polls readable from the first event that waits for mpy_collect() until mpy_collected(), and forever after mpy_sink_end().
 * So a collector that is interrupted in between is called again. */
int mpy_sink_fd(mpy_sink *sink);
/* Polls readable when mpy_collect() has something to dispatch. -1: there is none. */
int mpy_sink_client_fd(mpy_sink *sink);
/* Closes the descriptor of mpy_sink_client_fd(). */
void mpy_sink_deaf(mpy_sink *sink);
/* Dispatches the client, and moves events from the sink to the batch; if the batch is not done yet, does nothing. Returns the
 * batch's count, or a negative status if the client was closed and no event is left. */
int mpy_collect(mpy_sink *sink, mpy_batch *batch);
/* The batch is done, and so is everything that its events began. */
void mpy_collected(mpy_sink *sink);
/* Waits until there may be something to collect. */
void mpy_sink_wait(mpy_sink *sink);
/* The client was closed: mpy_collect() returns CLOSED as soon as no event is left. over: the close said that no callback runs. */
void mpy_sink_end(mpy_sink *sink, bool over);

/* ---- slots ---- */

/* Makes a slot in *room, which is NULL before. sink: gets the events of the slot; NULL: the slot has no events. `key` comes with
 * each event. False: out of memory. */
bool mpy_slot_new(mpy_sink *sink, uint64_t key, mpy_slot **room);
/* Ends what is under way: cancels the acquire, and releases the lease without waiting for the answer. Other threads may still
 * ask the slot questions. */
void mpy_slot_leave(mpy_slot *slot);
/* Leaves the slot and frees it: no thread may use it any more. */
void mpy_slot_free(mpy_slot **room);
/* Returns the details of the last failure. */
const mortise_error *mpy_slot_error(mpy_slot *slot);

/* `watch`: the sink gets MPY_STATE. options: NULL or as in mortise.h, on_state and user_data are ignored. */
int mpy_acquire(mortise_client *client, mpy_slot *slot, const char *name,
                const mortise_options *options, bool watch);
/* Starts an acquire. Its outcome goes to the sink of the slot (to_sink), or to mpy_await(). */
int mpy_acquire_start(mortise_client *client, mpy_slot *slot, const char *name,
                      const mortise_options *options, bool watch, bool to_sink);
/* Starts an acquire and waits for it as mpy_await() does. */
int mpy_acquire_main(mortise_client *client, mpy_slot *slot, const char *name,
                     const mortise_options *options, bool watch, int slice_ms);
/* Waits for the outcome until a signal comes, or for slice_ms: then it returns MPY_PENDING. It dispatches meanwhile. Only
 * for the main thread of Python, which handles the signals, and after mpy_listen(). */
int mpy_await(mortise_client *client, mpy_slot *slot, int slice_ms);

int mpy_release(mpy_slot *slot);
int mpy_release_nowait(mpy_slot *slot);
/* If it returns OK, the sink gets MPY_RELEASED later. */
int mpy_release_start(mpy_slot *slot);
int mpy_release_many(mpy_slot **slots, size_t count, mortise_error *error);
int mpy_extend(mpy_slot *slot, int64_t ttl_ms);
int mpy_downgrade(mpy_slot *slot);
int mpy_state(mpy_slot *slot);
int64_t mpy_remaining_ms(mpy_slot *slot);
uint64_t mpy_token(mpy_slot *slot);
size_t mpy_owner(mpy_slot *slot, char *buffer, size_t size);

/* Acquires all or none, with mortise_acquire_many(). The leases are not watched. */
int mpy_acquire_many(mortise_client *client, mpy_slot **slots, const char *const *names,
                     size_t count, const mortise_options *options, mortise_error *error);

/* ---- questions ---- */

int mpy_inspect(mortise_client *client, const char *name, mortise_info *info, mortise_error *error);
/* names: lists the held names that begin with `text`; else the holders of the name `text`. Free *infos with mpy_free(). */
int mpy_list(mortise_client *client, const char *text, bool names, mortise_info **infos,
             size_t *count, mortise_error *error);
void mpy_free(void *memory);
int mpy_stats(mortise_client *client, mortise_stats *stats);

#endif
