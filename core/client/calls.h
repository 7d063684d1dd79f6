/* calls.h - what the public calls on locks and leases have in common. See acquire.c, lease.c, and many.c. */
#ifndef MORTISE_CORE_CALLS_H
#define MORTISE_CORE_CALLS_H

#include "client/client.h"
#include "lock/lease.h"
#include "lock/waitlist.h"

/* ---- acquire.c ---- */

#define THREAD_OWNER_SIZE 64 /* "<client id>:<thread number>" */

/* With the namespace before it. */
struct full_name {
    char text[MORTISE_NAME_MAX + 1];
    size_t length;
};

/* The caller's options in the library's layout, with the defaults of the config filled in. */
mortise_status call_read_options(struct client *client, const mortise_options *given,
                                 mortise_options *options, mortise_error *error);
/* The owner of the options into the waiter. thread_owner: room of THREAD_OWNER_SIZE, which lives as long as the waiter. */
mortise_status call_read_owner(struct client *client, const mortise_options *options,
                               char *thread_owner, struct waiter *waiter, mortise_error *error);
/* DEADLOCK, if the call would wait inside a callback. */
mortise_status call_may_wait(const mortise_options *options, mortise_error *error);
void call_fill_waiter(struct waiter *waiter, const mortise_options *options);
/* What must not fail later is made now: the threads. */
mortise_status call_prepare(struct client *client, const struct waiter *waiter, mortise_error *error);
/* The caller joins those that want the name; not OK: it is on no list. */
mortise_status call_join_locked(struct locks *locks, const struct full_name *full,
                                struct waiter *waiter);
/* Until when to sleep: a try waits for its answer, but not for ever. */
int64_t call_patience_ns(const struct client *client, const struct waiter *waiter);
/* Sleeps until the outcome is there, or gives up at until_ns: TIMEDOUT, also for a try, if its patience would have lasted for
 * longer, unless the backend has failed to answer before. */
mortise_status call_await(struct client *client, struct waiter *waiter, int64_t until_ns);

/* ---- lease.c ---- */

/* What a lease was called, for a message: it may be gone by then. Quoted only if there is one. */
struct called {
    char text[MORTISE_NAME_MAX];
    size_t length;
};

/* A release that is under way. The caller sets the first three. */
struct release_call {
    bool waits;           /* for the backend's answer */
    bool several;         /* the request may wait for those of further calls */
    mortise_error *error; /* may be NULL */

    struct client *client;
    struct claim *claim;
    int64_t until_ns; /* several: when the wait for the answer ends, which is that for the others too */
    struct called called;
    mortise_status status;
    mortise_error detail;
    struct release_wait wait;
};

/* Ends the lease, and begins to release its claim. Not OK: it was no lease, and that is all. OK: call_end_release() has to
 * follow; the call must stay where it is until then. */
mortise_status call_begin_release(struct release_call *call, mortise_lease *lease);
/* The status of the release. */
mortise_status call_end_release(struct release_call *call);

#endif
