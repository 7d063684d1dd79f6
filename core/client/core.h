/* core.h - the structures of a client, and which file does what with them.
 *
 *   caller -> acquire.c -> contest.c (the local queue, the head's request) -> pump -> module stack
 *          <- grant.c (the grant under the watchdog) <- contest.c <-
 *
 *   open.c      opens a client; close.c: ends it; client.c: its state, its references, the calls in flight on it
 *   contest.c   the callers in this process that wait for a name; ask.c: the request of the first of them
 *   grant.c     what the backend gave: deadline, state, loss, hand-over, release
 *   release.c   releases, repeated until they are sure, even if no caller waits
 *   watchdog.c  the thread that serves the heap of due times, and renewals
 *   dispatch.c  callbacks on a thread of the application
 *   observe.c   events to observers
 *   lease.c     the public calls on a lease; acquire.c: the calls that acquire one
 *   query.c     inspect, list, break, ping, and the calls that need no backend
 *
 * Locks, outermost first: client.lock (entries, contests, grants, timers, counters, free lists); the lock of
 * client.events (callbacks that wait); pump.lock. Completions run with none of them held.
 * A function that needs the client's lock says so by its suffix `_locked`. */
#ifndef MORTISE_CORE_CORE_H
#define MORTISE_CORE_CORE_H

#include "base/clock.h"
#include "base/random.h"
#include "base/slab.h"
#include "events/events.h"
#include "modules/loader.h"
#include "pump/pump.h"
#include "base/status.h"
#include "base/timer.h"

#define HASH_NONFATAL_OOM 1 /* an element that could not be added has hh.tbl == NULL */
#include <uthash.h>

struct client;
struct contest;
struct entry;
struct grant;
struct release;
struct waiter;

/* ---- timers ---------------------------------------------------------------------------------- */

enum timer_kind {
    TIMER_GRANT,   /* renew, or find the deadline passed */
    TIMER_CONTEST, /* ask again for the head */
    TIMER_RELEASE, /* repeat a release, or stop waiting for its answer */
    TIMER_WAITER   /* an async acquire has waited long enough */
};

/* watchdog.c: sets a timer that the watchdog serves. */
void timer_set_locked(struct client *client, struct timer *timer, int64_t due_ns);

/* ---- the local queue -------------------------------------------------------------------------- */

/* A name that is in use in this process: held, or wanted. */
struct entry {
    UT_hash_handle hh;
    struct contest *queue; /* the local callers that wait, or NULL */
    struct grant *grants;  /* whose leases have not been released; lost ones too */
    uint32_t references;   /* contests, grants, asks, releases */
    uint32_t name_len;
    char name[]; /* with the namespace; NUL-terminated */
};

enum waiter_state { WAITER_QUEUED, WAITER_DECIDED };

/* One caller that wants a name: on its stack (sync) or on the heap (async). */
struct waiter {
    struct waiter *next, *previous;
    struct contest *contest;
    enum waiter_state state;
    mortise_status status; /* when decided */
    struct grant *grant;   /* a free slot, taken beforehand; when decided with OK: the grant */
    mortise_lease *lease;  /* its handle then */
    mortise_error *error;  /* to be filled on failure; may be NULL */

    const char *owner; /* NULL: unshared */
    size_t owner_len;
    int64_t ttl_ms;
    int64_t max_hold_ms;
    bool try_once, no_renew;
    bool queued; /* had to wait */
    bool
        unsure; /* a request for it under a former grant id may be executed yet, or what it brought is not undone */
    int64_t asked_ns, until_ns;
    uint64_t caller; /* for events; the mortise_request of an async one */
    mortise_state_callback on_state;
    void *user_data;

    bool async;
    struct sleeper sleeper; /* not async */
    struct timer timer;     /* async, from here on */
    struct notice notice; /* of its outcome; owns the waiter */
    mortise_error error_room;
    struct waiter *next_async, *previous_async;
};

/* The request of a contest for its head. */
struct ask {
    struct task task; /* first: a task is its ask */
    struct client *client;
    struct contest *contest; /* NULL: abandoned, what it brings is given back */
    struct entry *entry;
    mortise_info holder; /* lent to the driver; not cleared on reuse */
    char owner[];
};

/* Callers of this process that want one name, first come, first served; only the head has a request in
 * the backend. A try, and an owner that may hold the name already, gets a contest of its own with one
 * waiter (`alone`) that stands in no queue. */
struct contest {
    struct client *client;
    struct entry *entry;
    struct contest *next_free;
    struct contest *next_lone, *previous_lone; /* of the client, if alone */
    struct waiter *first, *last;
    uint32_t count;
    uint32_t references; /* itself, while it has waiters; a job that is posted */
    bool alone;
    struct ask *ask; /* in the backend now */
    struct timer retry;
    mortise_grant_id
        grant; /* under which the head asks: one for the acquisition, not for each try */
    bool grant_valid;
    bool repeat;           /* a request under it may have been executed, its reply was lost */
    int64_t first_sent_ns; /* of that one */
    bool news;             /* came while asking: ask again at once if it was busy */
    unsigned busy_count, failures; /* answers in a row */
    int64_t failing_ns;            /* since when no answer came; 0: one did */
    bool watch_wanted, watching;
    struct job watch_job;
    mortise_error *trouble; /* the last failure while failing_ns is set; made when first needed */
    int64_t holder_seen_ns; /* when that was */
    mortise_info holder;    /* as of the last BUSY. The last member: it is not cleared on reuse */
};

/* Puts the waiter into the queue of the entry, or into a contest of its own. False: no memory. */
bool contest_join_locked(struct client *client, struct entry *entry, bool alone,
                         struct waiter *waiter, struct task_list *starts);
/* The waiter gives up: status says why, its *error is filled. Kick the pump afterwards. */
void contest_leave_locked(struct waiter *waiter, mortise_status status, struct task_list *starts);
void contest_timer_locked(struct contest *contest, struct task_list *starts);
/* A grant of this name was given back to the backend: the head may ask again. */
void contest_freed_locked(struct client *client, struct entry *entry, struct task_list *starts);
/* The head of the entry's queue was given a grant by hand-over: takes it off and goes on. */
void contest_served_locked(struct contest *contest, struct waiter *waiter,
                           struct task_list *starts);
/* The name, or any name (NULL), may have become free. Inside the pump. */
void contest_news(struct client *client, const char *name, size_t name_len);
/* Decides a waiter: it is off every queue. Wakes it, or queues its callback if it is async. */
void waiter_decide_locked(struct client *client, struct waiter *waiter, mortise_status status);
/* The same for an async waiter that was in no queue. */
void waiter_report_locked(struct client *client, struct waiter *waiter, mortise_status status);

struct entry *entry_find_locked(struct client *client, const char *name, size_t name_len);
struct entry *entry_make_locked(struct client *client, const char *name, size_t name_len);
void entry_unref_locked(struct client *client, struct entry *entry);
void entry_forget_idle_locked(struct client *client); /* the client closes */

/* ---- grants ----------------------------------------------------------------------------------- */

#define DEADLINE_PASSED INT64_MIN /* seen to have passed: final */

/* A grant and the lease on it. The handle of its slot is the lease: a hand-over renews the slot, and
 * the old handle is spent. */
struct grant {
    struct slot slot;
    struct client *client;
    mortise_client *_Atomic client_handle;
    _Atomic int64_t deadline_ns;
    _Atomic uint64_t token;
    _Atomic bool suspect;
    bool lost; /* dealt with: told, counted */
    bool released;
    bool renew;
    uint32_t handovers;  /* up to handover_max */
    uint16_t failures;   /* of renewals, in a row */
    uint32_t references; /* the lease; a renewal under way */
    struct entry *entry;
    struct grant *next, *previous; /* of the entry */
    mortise_grant_id id;
    char *owner; /* NULL: unshared */
    uint32_t owner_len;
    uint32_t ttl_ms;
    uint32_t span_ms;      /* how long the claim is good for at a time: the ttl, or less */
    bool ends;             /* with its ttl, however often it is renewed until then */
    bool doubted;          /* it is to be looked at, after the renewal that is under way */
    int64_t granted_ns;    /* by the backend */
    int64_t renewed_ns;    /* from when the deadline counts */
    int64_t hold_until_ns; /* no renewal after this; NEVER */
    struct timer timer;
    struct task *renewal; /* under way */
    uint64_t number;      /* of the lease, for events */
    struct notice change;        /* HELD or SUSPECT, to be reported */
    struct notice loss;          /* LOST, to be reported */
    struct release *room; /* made beforehand, for its release */
};

/* The deadline as it stands at `now`; DEADLINE_PASSED is final. Any thread, no lock. */
int64_t grant_deadline(struct grant *grant, int64_t now);
/* Takes a free slot with room for its timer and owner, before anything is asked of the backend. */
struct grant *grant_new_locked(struct client *client, const char *owner, size_t owner_len);
void grant_unref_locked(struct grant *grant);
/* The ask was granted: true and the waiter has it, or false: the answer came too late to be of use. */
bool grant_give_locked(struct waiter *waiter, struct entry *entry, const mortise_op *op);
/* Ends the lease; what the backend must be told is appended to *starts. The status is LOST, NOMEM, or
 * OK with *release, the release that may be waited for (NULL: handed over, nothing to ask). */
mortise_status grant_release_locked(struct grant *grant, struct release **release,
                                    struct task_list *starts);
void grant_timer_locked(struct grant *grant, int64_t now, struct task_list *starts);
/* The backend's word that what is held of a name, or of all (NULL), should be looked at: renews it now.
 * Inside the pump. */
void grants_doubt(struct client *client, const char *name, size_t name_len);
/* What is held of the entry is looked at. */
void grant_doubt_entry_locked(struct entry *entry, int64_t now, struct task_list *starts);
/* 1 % of the ttl and 2 ms: how far the server's clock and ours may drift apart (R1). */
int64_t drift_margin_ns(int64_t ttl_ms);

/* ---- releases ---------------------------------------------------------------------------------- */

/* A release, for a caller or in the background: repeated under the grant id until it is sure (R4). */
struct release {
    struct task task; /* first */
    struct client *client;
    struct entry *entry;
    struct timer timer;
    struct sleeper *sleeper; /* of the caller that waits, or NULL: in the background */
    mortise_status *status;  /* of that caller; what it is told if it stops waiting */
    mortise_error *error;    /* likewise, may be NULL */
    struct release *next_release, *previous_release; /* of the client */
    int64_t until_ns;                                /* the claim has ended by then at the latest */
    unsigned attempts;
    bool running;    /* in the pump */
    bool maybe_done; /* a former try may have released it: its absence is no loss */
    char owner[];
};

/* Memory for a release of a claim with this owner, so that one does not fail later for want of it; NULL: none. */
struct release *release_room_locked(struct client *client, size_t owner_len);
void release_room_free_locked(struct client *client, struct release *room);
/* Appended to *starts. until_ns: when the claim has ended by itself. room: made beforehand, or NULL. NULL: no memory. */
struct release *release_begin_locked(struct client *client, struct entry *entry,
                                     const mortise_grant_id *id, const char *owner,
                                     size_t owner_len, uint64_t token, int64_t until_ns,
                                     struct release *room, struct task_list *starts);
void release_attend_locked(struct release *release, struct sleeper *sleeper, mortise_status *status,
                           mortise_error *error);
/* The caller stops waiting: the request goes on in the background. */
void release_detach_locked(struct release *release);
void release_timer_locked(struct release *release, struct task_list *starts);
/* The client closes: those that wait to be repeated are repeated now; those left over end. */
void releases_end_locked(struct client *client);
void releases_hurry_locked(struct client *client, struct task_list *starts);

/* ---- watchdog.c -------------------------------------------------------------------------------- */

bool watchdog_ready(
    struct client *client); /* starts the thread, once; false: the system gives no thread */
/* False: the watchdog did not end by then, because it is inside a module that is stuck. */
bool watchdog_stop(struct client *client, int64_t until_ns);
/* Serves what is due now; returns the next due time. The thread's body; tests call it by hand. */
int64_t watchdog_run(struct client *client);

/* ---- observe.c --------------------------------------------------------------------------------- */

void observe_locked(struct client *client, mortise_event_kind kind, const struct entry *entry,
                    const struct grant *grant, const struct waiter *waiter, mortise_status status);

/* ---- api.c ------------------------------------------------------------------------------------- */

/* The name with the namespace before it, into `full` (MORTISE_NAME_MAX + 1 bytes). */
mortise_status api_name(struct client *client, const char *name, bool may_be_empty, char *full,
                        size_t *length, mortise_error *error);

/* ---- query.c ---- */

/* The client closes: callers that wait for an answer return. */
void queries_cancel_locked(struct client *client);

/* ---- client.c, open.c, close.c ------------------------------------------------------------------ */

struct settings {
    int64_t ttl_ms, renew_every_ms, wait_ms, handover_window_ms, handover_max;
    int64_t unreachable_timeout_ms, close_timeout_ms;
    const char *namespace_;
    size_t namespace_len;
};

struct client {
    struct slot slot;
    /* a new client in the slot does not reset these: a caller with an old handle may be counting */
    _Atomic uint32_t users;   /* calls in flight; a futex of the close */
    _Atomic uint32_t awaited; /* threads that wait for `users` or `references` */
    _Atomic uint32_t state;   /* enum client_state in client.h; a futex of other closes */
    pthread_mutex_t lock;
    _Atomic uint32_t references; /* client.h says whose; a futex of the close */
    struct wake_list wakes; /* of those who were decided under the lock: done by client_unlock() */
    bool closing;
    struct settings settings;
    struct config *config;
    mortise_value *core_values;
    struct loader loader;
    struct instance *top;
    struct instance *observers[8];
    size_t observer_count;
    uint32_t capabilities;
    bool notify_capable; /* tells of a release */
    char id[33];
    char note[MORTISE_NOTE_MAX];
    size_t note_len;

    struct pump pump;
    struct entry *entries; /* a hash table by name */
    struct entry *idle;    /* one of them that nobody refers to, kept for who asks for it again */
    struct contest *lone;  /* the contests that stand in no queue */
    struct contest *free_contests;
    struct task_list free_asks,
        free_releases; /* of those without an owner: none is made in a steady cycle */
    struct timer_heap timers;
    struct waiter *asyncs;
    uint64_t callers, leases; /* numbers given */
    uint64_t outstanding;     /* asks, renewals and releases that have not come to their end */
    struct release *releases; /* all that are under way */
    struct query *queries;    /* likewise */
    struct sleeper *drain;    /* of close: woken when there are none */
    bool abandoning;          /* no release is repeated any more */
    bool clean;               /* the close gave back all that was held */
    char driver[32];          /* its name, for the messages of a close */
    bool stack_closed;        /* the modules are closed: nobody is in the stack */
    bool left_behind;         /* one was given up unsure */
    struct task leave;        /* the last request of a close */
    mortise_stats stats;

    struct random_pool random;

    pthread_t watchdog;
    bool watchdog_runs, watchdog_stops, watchdog_made, manual; /* made: and not joined */
    _Atomic uint32_t watchdog_in; /* 1: the thread may use the client; a futex of the close */
    _Atomic bool watchdog_started;
    int watchdog_timer; /* a timerfd on CLOCK_BOOTTIME */
    int64_t watchdog_at_ns;

    struct events events; /* callbacks of the application */
};

/* Counts a call in; OK, CLOSED or FORKED. Every OK is followed by client_leave. */
mortise_status client_enter(mortise_client *handle, struct client **client, mortise_error *error);
void client_leave(struct client *client);
/* Unlocks client.lock, and then wakes who was decided meanwhile: one who wakes while the lock is still
 * held would run into it at once. Nothing else unlocks it. */
void client_unlock(struct client *client);
/* An ask, a renewal or a release begins, ends: the close waits for the last one. */
void client_began_locked(struct client *client);
void client_ended_locked(struct client *client);
/* For tests: no threads are started; time, pump and callbacks are driven by hand. */
extern _Atomic bool client_manual;
extern struct slab client_slab, grant_slab; /* client.c, grant.c */

#endif
