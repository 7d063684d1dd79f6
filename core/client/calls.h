/* calls.h - what the public calls on locks and leases have in common. See acquire.c, lease.c, and many.c. */
#ifndef MORTISE_CORE_CALLS_H
#define MORTISE_CORE_CALLS_H

#include "client/client.h"
#include "lock/lease.h"
#include "lock/waitlist.h"

/* ---- acquire.c ---- */

#define THREAD_OWNER_SIZE 64 /* "<client id>:<thread number>" */

/* A name with the namespace before it. */
struct full_name {
    char text[MORTISE_NAME_MAX + 1];
    size_t length;
};

/* Reads the caller's options into the library's layout, and fills in the defaults of the config. */
mortise_status call_read_options(struct client *client, const mortise_options *given,
                                 mortise_options *options, mortise_error *error);
/* Copies the owner from the options to the waiter. thread_owner: room of THREAD_OWNER_SIZE, which lives as long as the
 * waiter. */
mortise_status call_read_owner(struct client *client, const mortise_options *options,
                               char *thread_owner, struct waiter *waiter, mortise_error *error);
/* DEADLOCK, if the call would wait inside a callback. */
mortise_status call_may_wait(const mortise_options *options, mortise_error *error);
void call_fill_waiter(struct waiter *waiter, const mortise_options *options);
/* Starts the threads now, because that must not fail later. */
mortise_status call_prepare(struct client *client, const struct waiter *waiter,
                            mortise_error *error);
/* Adds the caller to those that want the name. If it fails, the caller is on no list. */
mortise_status call_join_locked(struct locks *locks, const struct full_name *full,
                                struct waiter *waiter);
/* Returns until when to sleep: a try waits for its answer, but not forever. */
int64_t call_patience_ns(const struct client *client, const struct waiter *waiter);
/* Sleeps until the outcome is there, or gives up at until_ns. Then a caller that waits gets TIMEDOUT, and so does a try whose
 * own time (call_patience_ns()) is not over, unless the backend has failed to answer before. */
mortise_status call_await(struct client *client, struct waiter *waiter, int64_t until_ns);

/* ---- lease.c ---- */

/* The name of a lease for a message, because the lease may be gone by then. It is quoted only if there is a message. */
struct called {
    char text[MORTISE_NAME_MAX];
    size_t length;
};

/* A release that is under way. The caller sets the first three. */
struct release_call {
    bool waits;           /* for the backend's answer */
    bool several;         /* the request may be sent together with those of further calls */
    mortise_error *error; /* may be NULL */

    struct client *client;
    struct claim *claim;
    int64_t until_ns; /* several: when the wait for the answer ends; the same for all calls */
    struct called called;
    mortise_status status;
    mortise_error detail;
    struct release_wait wait;
};

/* Ends the lease, and begins to release its claim. If it fails, `lease` was no lease, and nothing else is to be done. On OK,
 * call_end_release() must follow, and *call must stay where it is until then. */
mortise_status call_begin_release(struct release_call *call, mortise_lease *lease);
/* Waits if necessary, and returns the status of the release. */
mortise_status call_end_release(struct release_call *call);

#endif
