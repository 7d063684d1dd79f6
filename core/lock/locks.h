/* locks.h - what the locks of one client have in common: the mutex that guards them, their names, timers and counters. See
 * claim.h for what a client holds in the backend, and waitlist.h for callers that wait.
 *
 * One mutex, locks.lock, guards names, claims, waitlists, timers and counters. It is the outermost lock of the core; the
 * lock of events and that of the pump are taken below it. A function that needs it says so by its suffix `_locked`.
 * Requests that such a function makes are collected in locks.starts, and go to the pump when the mutex is released:
 * locks_unlock(). Only go_to_sleep() (watchdog.c), which makes none, releases it by itself. */
#ifndef MORTISE_CORE_LOCK_LOCKS_H
#define MORTISE_CORE_LOCK_LOCKS_H

#include "base/clock.h"
#include "base/random.h"
#include "base/slab.h"
#include "base/status.h"
#include "base/timer.h"
#include "events/events.h"
#include "pump/pump.h"
#include "witness/link.h"

#define HASH_NONFATAL_OOM 1 /* an element that could not be added has hh.tbl == NULL */
#include <uthash.h>

struct claim;
struct waiter;
struct waitlist;

struct lock_settings {
    int64_t ttl_ms, renew_every_ms, wait_ms, handover_window_ms, handover_max;
    int64_t unreachable_timeout_ms, close_timeout_ms;
    const char *namespace_;
    size_t namespace_len;
};

/* Whether the driver watches a name for this process. Only one WATCH or UNWATCH is out at a time, because two could overtake
 * each other. */
struct watch {
    struct locks *locks;
    struct name *name;
    bool wanted, watching; /* what callers want; what the last request to the driver said */
    bool out;              /* the request is in the pump */
    bool late;             /* it is a WATCH that waited for an UNWATCH */
    struct task task;
};

/* A name that this process holds or wants. */
struct name {
    UT_hash_handle hh;
    struct waitlist *waitlist; /* the callers that queue for it, or NULL */
    struct claim *claims;      /* in use, in any state */
    struct claim *shared;      /* one of them that is HELD and shared, with or without permits, or NULL; others may join it if
                                * claim_join_locked() says so */
    struct watch *watch;       /* NULL: nobody has waited yet, or there was no memory for it */
    uint32_t references; /* of waitlists, of claims, and of a watch that is out */
    uint32_t length;
    char text[]; /* with the namespace; NUL-terminated */
};

enum timer_kind {
    TIMER_CLAIM, /* by the state of the claim: ask again, look, renew, lost, repeat a release */
    TIMER_WAITER /* an asynchronous acquire has waited long enough */
};

/* Room for what a driver says about the holder; lent with an ACQUIRE, which may outlive its waitlist. */
struct holder_room {
    struct holder_room *next;
    mortise_info info;
};

/* The thread that serves the timers. */
struct watch_thread;
struct watchdog {
    pthread_t thread;
    struct watch_thread *self; /* of the thread, while it runs */
    bool runs, stops, made;    /* made: and neither joined nor detached yet */
    _Atomic uint32_t in;       /* 1: the thread may use the client; a futex of the close */
    _Atomic bool started;
    int timer; /* a timerfd on CLOCK_BOOTTIME, or -1 */
    int64_t armed_ns;
    /* The application has closed the timer. There is another one, on which the thread may not be sleeping. */
    void (*timer_lost)(struct locks *locks);
};

struct locks {
    pthread_mutex_t lock;
    struct wake_list wakes;  /* of callers that were decided under the lock: locks_unlock() wakes them */
    struct task_list starts; /* requests that were made under the lock: locks_unlock() starts them */
    bool kick;               /* a request was canceled: a thread must go into the stack */

    struct pump *pump;
    struct events *events;
    mortise_client *handle;
    struct lock_settings settings;
    bool watches;        /* the driver wants to know which names are waited for */
    bool notify_capable; /* the backend tells when a name becomes free */
    bool manual;         /* tests serve the timers by hand: no watchdog thread */
    bool closing;        /* no claim is handed over or kept any more */
    bool abandoning;     /* no release is repeated any more */
    bool left_behind;    /* the close gave up a claim without a sure answer, or something that a plugin holds itself */
    int64_t left_until_ns; /* when all claims that were given up without a sure answer have ended; 0: no such claim */
    char note[MORTISE_NOTE_MAX];
    size_t note_len;

    struct name *names;      /* a hash table */
    struct name *idle_name;  /* one of the names, which nobody refers to: kept for the next caller that wants it */
    struct waitlist *lone;   /* the waitlists of callers that ask alone */
    struct waitlist *free_waitlists;
    struct holder_room *free_rooms;
    struct waiter *asyncs;   /* the pending asynchronous ones, as a tree: waitlist.c */
    struct timer_heap timers;
    struct random_pool random;
    struct watchdog watchdog;

    uint64_t callers, leases; /* numbers given */
    uint64_t outstanding;     /* requests, and claims that are being ended */
    struct sleeper *drain;    /* of the close: woken when nothing is outstanding */
    mortise_stats stats;

    struct area area;            /* what a witness knows of the claims; no head: there has been no witness */
    struct witness_link witness; /* the connection to it */

    struct instance *observers[8];
    size_t observer_count;
};

/* ---- locks.c ---- */

void locks_make(struct locks *locks, struct pump *pump, struct events *events);
/* Nothing is held, wanted or outstanding any more. */
void locks_destroy(struct locks *locks);

/* How the collected requests are started, once the mutex is released. */
enum start {
    START_NOW,     /* this thread goes into the stack, if no thread is there */
    START_SOON,    /* the same; but what many callbacks of the application ask for goes out together */
    START_DETACHED /* the service thread does it: this thread must not go into the stack */
};
void locks_unlock(struct locks *locks, enum start how);

/* The task is started when the lock is released. */
void locks_start_locked(struct locks *locks, struct task *task);
void locks_cancel_locked(struct locks *locks, struct task *task);
/* Count what the close waits for: each request except a release, and each claim in ENDING. */
void locks_began_locked(struct locks *locks);
void locks_ended_locked(struct locks *locks);

/* Never fails: the owner of the timer has reserved room. Wakes the watchdog if need be. */
void locks_set_timer_locked(struct locks *locks, struct timer *timer, int64_t due_ns);
void locks_stop_timer_locked(struct locks *locks, struct timer *timer);
/* A timerfd whose number nothing else gets soon; -1: the system gives no descriptor. */
int locks_make_timer(void);
void locks_arm_locked(struct locks *locks, int64_t due_ns);

struct name *name_find_locked(struct locks *locks, const char *text, size_t length);
/* A reference to the name; NULL: no memory. */
struct name *name_get_locked(struct locks *locks, const char *text, size_t length);
void name_put_locked(struct locks *locks, struct name *name);
/* watch.c: asks the driver to report when the name becomes free, or to stop that. */
void name_watch_locked(struct locks *locks, struct name *name, bool wanted);
/* The driver watches the name and reports when it becomes free. */
bool name_is_watched(const struct locks *locks, const struct name *name);
void name_forget_idle_locked(struct locks *locks); /* the client closes */

/* Returns a random time between half of ms and ms. */
int64_t locks_spread_ms_locked(struct locks *locks, int64_t ms);

/* ---- observe.c: events for observers (plugins); claim and waiter may be NULL ---- */

void observe_locked(struct locks *locks, mortise_event_kind kind, const struct name *name,
                    const struct claim *claim, const struct waiter *waiter, mortise_status status);

/* ---- mark.c ---- */

/* The connection to the witness has something to do, or may have. */
void witness_turn_locked(struct locks *locks);

/* ---- watchdog.c ---- */

/* Starts the thread and the service thread, once; false: the system gives no thread, or no descriptor for the timer. */
bool watchdog_ready(struct locks *locks);
/* False: the watchdog did not end by then, because it is inside a module that is stuck. */
bool watchdog_stop(struct locks *locks, int64_t until_ns);
/* Serves what is due now; returns the next due time. The thread's body; tests call it by hand. */
int64_t watchdog_run(struct locks *locks);

#endif
