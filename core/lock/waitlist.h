/* waitlist.h - callers of this process that want one name, first come, first served.
 *
 * Only the first of them, the head, has a request in the backend: so P processes with T threads each are P contenders
 * there. A try, and a caller whose owner may hold the name already, gets a waitlist of its own with one caller (`alone`)
 * that stands in no queue: others may be waiting for that very owner.
 *
 * The claim of the list asks for the head (claim.h has its states):
 *
 *   ASKING   OK: the head has the lock, and the next head asks. BUSY: the list watches the name and pauses.
 *            No answer: the list backs off; after `unreachable_timeout` all callers fail. BUSY resets that time. While the
 *            backend has the request in its queue, as the driver reports (host->waiting), the time does not count. After ten
 *            times `unreachable_timeout` in the queue, the time is reset, too.
 *   PAUSED   until news from the backend, or the timer: the holder's claim ends, or a back-off is over.
 *   none     the list's claim had to be ended, or passed to a caller: the head brings another one.
 *
 * A fair backend may answer the head only when its turn comes. Until then this process does not know who holds the name. So while
 * the list is ASKING, the first caller behind the head that has an owner asks from time to time, in a waitlist of its own. If the
 * answer is BUSY, it says who holds the name, for all callers of the list.
 *
 * If the head leaves, its claim serves the next caller that wants the same (owner, ttl, mode, permits): the place in the backend's
 * queue belongs to the process. A list without callers ends. */
#ifndef MORTISE_CORE_LOCK_WAITLIST_H
#define MORTISE_CORE_LOCK_WAITLIST_H

#include "lock/claim.h"

/* One caller that wants a name: on its stack (synchronous) or on the heap (asynchronous). */
struct waiter {
    struct waiter *next, *previous;
    struct waitlist *waitlist; /* NULL: decided */
    mortise_status status;     /* when decided */
    mortise_lease *lease;      /* with OK */
    struct claim *spare;       /* the caller brings a claim, so that the list never lacks one; NULL: the list has taken it */
    mortise_error *error;      /* filled on failure; may be NULL */

    const char *owner; /* NULL: no owner */
    size_t owner_len;
    int64_t ttl_ms;
    int64_t max_hold_ms;
    mortise_mode mode;
    uint32_t permits;
    bool try_once, no_renew;
    bool queued; /* it had to wait */
    bool looks;  /* it asks alone, on behalf of all callers that have owners */
    bool unsure; /* a request for it under a former claim may still be executed, or its effect is not undone */
    int64_t asked_ns, until_ns;
    uint64_t caller; /* for observers; the mortise_request of an asynchronous one */
    mortise_state_callback on_state;
    void *user_data;

    bool async;
    struct sleeper sleeper; /* synchronous */
    struct timer timer;     /* asynchronous, from here on */
    struct waiter *below[2]; /* in their tree (waitlist.c) */
    struct notice notice;
    mortise_error error_room;
};

struct waitlist {
    struct locks *locks;
    struct name *name;
    struct waitlist *next_free;
    struct waitlist *next_lone, *previous_lone; /* of the client, if alone */
    struct waiter *first, *last;
    uint32_t count;
    bool alone;
    bool owners;         /* there may be callers with owners behind the head */
    struct claim *claim; /* ASKING or PAUSED, or NULL */
    bool news;           /* news came while the list was asking: if the answer is BUSY, ask again at once */
    unsigned busy_count, failures;    /* answers in a row */
    int64_t failing_ns;               /* since when no answer came, without the time in a queue; 0: not failing */
    int64_t waiting_ns;               /* since when the request is in the backend's queue; 0: it is not there */
    mortise_error *trouble;           /* the last failure, while failing_ns is set; made when first needed */
    int64_t holder_seen_ns;           /* when the driver reported `holder` */
    mortise_info holder;              /* as of the last BUSY. The last member: not cleared on reuse */
};

/* ---- waitlist.c ---- */

/* Puts the caller into the queue of the name, or into a list of its own, and asks if it is the head. False: no memory. */
bool waitlist_join_locked(struct locks *locks, struct name *name, bool alone, struct waiter *waiter);
/* The caller gives up: status says why, and its *error is filled. */
void waitlist_leave_locked(struct waiter *waiter, mortise_status status);
/* The head was passed a claim of this process: takes the head off, and the list goes on. */
void waitlist_served_locked(struct waiter *waiter);
/* The list is still ASKING: a caller with an owner asks by itself. */
void waitlist_look_locked(struct waitlist *list);
/* This process releases a claim of the name: the head may ask again. */
void waitlist_freed_locked(struct name *name);
/* The name may have become free: the head asks, now or after the answer that it waits for. */
void waitlist_news_locked(struct name *name);
/* The same for a name, or for all names (NULL). Inside the pump. */
void waitlists_news(struct locks *locks, const char *text, size_t length);
/* The backend has answered that this acquire, which is not completed, waits for its turn. Inside the pump. */
void waitlists_waiting(struct locks *locks, mortise_op *op);
void waitlists_free(struct locks *locks); /* those kept for reuse */
/* Decides a caller that is on no list: wakes it, or queues its callback. Its memory may be gone then. */
void waiter_decide_locked(struct locks *locks, struct waiter *waiter, mortise_status status);

/* Enters an asynchronous caller, which gets a number by which it is found. The caller has reserved room for the timer; unlinking
 * gives the room back. */
void waiter_link_async_locked(struct locks *locks, struct waiter *waiter, int64_t until_ns);
/* NULL: none with this number is pending. */
struct waiter *waiter_find_async_locked(struct locks *locks, uint64_t caller);
void waiter_unlink_async_locked(struct locks *locks, struct waiter *waiter);
/* Unlinks it and queues its callback. */
void waiter_call_back_locked(struct locks *locks, struct waiter *waiter, mortise_status status);

/* ---- for answers.c ---- */

/* answers.c: the head asks, now or at due_ns. If there is no memory for a claim, it fails, and the next one asks. */
void waitlist_ask_locked(struct waitlist *list);
void waitlist_pause_locked(struct waitlist *list, int64_t due_ns);

void waitlist_take_off_locked(struct waitlist *list, struct waiter *waiter);
void waitlist_fail_locked(struct waitlist *list, struct waiter *waiter, mortise_status status,
                          const mortise_error *error);
/* The claim of the list is not wanted any more: ends it if necessary. */
void waitlist_drop_claim_locked(struct waitlist *list);
/* The caller has to wait: observers see it, once. */
void waitlist_queued_locked(struct waiter *waiter);
/* Callers whose owner holds the name ask by themselves from now on. */
void waitlist_join_owners_locked(struct waitlist *list, const char *owner, size_t owner_len);
/* ASKING: sets the time of the next look, unless that is set. */
void waitlist_look_later_locked(struct waitlist *list);
/* A list with one caller that may wait: the caller joins the queue. */
void waitlist_join_queue_locked(struct waitlist *list);

#endif
