/* events.h - runs callbacks of the application.
 *
 * Callbacks wait in a queue and run one at a time, with no lock held: on a thread that is started when it is first
 * needed, or, after events_open_fd(), in events_dispatch_run(). A callback that blocks delays only the callbacks behind
 * it. A callback may use every function of the library; a function that would wait for other callbacks returns DEADLOCK.
 * Knows no clients and no claims: see struct events_upcalls.
 *
 * The lock of the queue is taken below every other lock. Under it the code makes only system calls. */
#ifndef MORTISE_CORE_EVENTS_H
#define MORTISE_CORE_EVENTS_H

#include "base/wakeup.h"

#include <mortise/mortise.h>

#include <pthread.h>
#include <stdatomic.h>

/* A callback that waits to be run. It is embedded in the struct that it is about, so queueing it allocates nothing and cannot
 * fail. All zero: there is no callback. */
struct notice {
    struct notice *next, *previous;
    /* Events lock. While it is set, only functions of this header write to the notice. */
    bool queued;
    mortise_lease *lease;            /* given to the callback */
    mortise_state_callback on_state; /* either this ... */
    mortise_lease_state state;
    mortise_acquire_callback on_acquired; /* ... or this ... */
    mortise_release_callback on_released; /* ... or this */
    mortise_status status;
    const mortise_error *error;
    void *user_data;
    void *owned; /* freed after the callback has returned, or NULL */
};

struct events;

/* What the executor calls in the part above it. */
struct events_upcalls {
    /* A thread begins, which uses the executor until it calls thread_ends(). The executor's lock is held. */
    void (*thread_begins)(struct events *events);
    /* The last call of that thread: the executor may be destroyed in it. */
    void (*thread_ends)(struct events *events);
};

struct events {
    pthread_mutex_t lock; /* of all that follows */
    pthread_cond_t cond;  /* a notice came; a callback returned; the executor stops */
    const struct events_upcalls *upcalls;
    uint32_t epoch; /* fork_epoch of the process that it belongs to */
    bool manual;    /* tests: no thread is started */
    struct notice *queue;
    size_t count; /* of the queue */

    bool running; /* a callback runs: */
    pthread_t running_thread;
    const mortise_lease *running_lease; /* of an on_state; else NULL */

    _Atomic bool ready; /* events_ready() has returned true */
    bool thread_made;   /* `thread` was started; it is neither joined nor detached */
    pthread_t thread;
    /* Raised: callbacks wait. The application has its epoll set as descriptor. Not open: the thread runs callbacks. */
    struct wakeup wakeup;
    int other; /* the caller's descriptor, in the set */
    unsigned dispatchers;

    /* The callback that runs has closed its client: the same thread runs the callbacks that are left. */
    bool closed_inside;
    bool closing;  /* events_closing() */
    bool stopping; /* the thread ends when no callback waits */
};

void events_init(struct events *events, const struct events_upcalls *upcalls, bool manual);
/* Waits for the thread to end, unless this is the thread. No callback runs or waits. */
void events_destroy(struct events *events);

/* Makes sure that a thread will run callbacks: the executor's, which is started once, or a dispatcher. False: the system gives
 * no thread. */
bool events_ready(struct events *events);

/* Puts a notice at the end of the queue. If it is in the queue, or has no callback, this does nothing. Any lock may be
 * held. The notice must stay where it is until its callback was called or events_forget() has returned. */
void events_push(struct events *events, struct notice *notice);
/* The same for a change of state. If the notice is in the queue, it stays there and reports the last state: changes that
 * wait are merged. */
void events_push_state(struct events *events, struct notice *notice, mortise_lease_state state);
/* Takes the notice off the queue if it is there. Its memory may be reused then, even while its callback runs, because
 * the executor works on a copy. `owned` is not freed. */
void events_forget(struct events *events, struct notice *notice);

bool events_inside(void); /* this thread runs a callback, of any executor */
/* Waits until no on_state of the lease runs on another thread. Inside a callback it does not wait: two callbacks that
 * release each other's leases would wait for each other. So would the callback of mortise_on_log() and an on_state that
 * replaces it. It does not wait for a callback that closes its client either, because that close may be waiting for this
 * thread. */
void events_drain(struct events *events, const mortise_lease *lease);
/* An on_state of this lease runs on another thread. */
bool events_run_elsewhere(struct events *events, const mortise_lease *lease);

/* From the first call on, callbacks run in events_dispatch_run(). Returns a descriptor that is readable if callbacks
 * wait, or, before events_closing(), if `other` is readable; another one if the application has closed it. -1: the system
 * gives none. */
int events_open_fd(struct events *events, int other);
/* Called before and after events_dispatch_run(). In between, new callbacks do not make the descriptor readable. False:
 * events_open_fd() was not called. */
bool events_dispatch_begin(struct events *events);
void events_dispatch_end(struct events *events);
/* Runs the callbacks that wait now, and returns how many. If one of them closes its client, it runs all that are left. In
 * a child that was forked in a callback it returns when that callback does: nothing of the executor may be used then. */
int events_dispatch_run(struct events *events);

enum events_end {
    EVENTS_OVER, /* no callback runs, and none waits */
    EVENTS_LEFT, /* callbacks run or wait on other threads */
    EVENTS_HERE, /* this thread runs a callback. When it returns, the same thread runs the callbacks that wait */
};
/* This thread closes the client. If it does so in a callback, no thread waits for that callback any more. From here on the
 * descriptor is readable only if callbacks wait, whatever the state of `other`. */
void events_closing(struct events *events);
/* After events_closing(), when no notice is pushed any more: lets the thread end, and waits until until_ns for the
 * callbacks. After events_open_fd() it waits only for threads that dispatch, because no other thread runs callbacks. */
enum events_end events_stop(struct events *events, int64_t until_ns);
/* No callback runs, and none waits. */
bool events_over(struct events *events);
/* This thread runs a callback, and no other one waits. */
bool events_last_here(struct events *events);

#endif
