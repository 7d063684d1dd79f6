/* internal.h - the chaos plugin's own structures, and which file does what with them.
 *
 *   module.c   the module's table and options; opens and closes an instance
 *   fate.c     what becomes of a request: drawn from the seed; and the pauses
 *   call.c     a request that is held, or whose answer is held: its copy, and the heap of due times
 *   flow.c     requests down, answers up
 *
 * The way of a request, and where it may be waylaid:
 *
 *   core ──▶ start ──▶ WAITING (delay, pause) ──▶ BELOW ──▶ ANSWERED (reply delay, pause) ──▶ core
 *              │ refused: UNREACHABLE, nothing was sent
 *              │ lost request: INDETERMINATE, nothing was sent
 *              │ lost reply:   executed, INDETERMINATE
 *              └ ghost:        INDETERMINATE at once, executed later: like what a dead connection still holds
 *
 * A request to which nothing happens is passed on unchanged: the module below completes the core's op itself.
 * A request that is only delayed waits here, and then the core's op is passed on. If the answer is to be changed or
 * held, a copy is passed on, with texts and room of its own, because the core's op may be gone before the answer.
 *
 * Rules that keep the promises of the core true:
 *
 *   Order: requests reach the module below in the order in which they came, however late each is. (For example, a
 *   release that no caller waits for arrives before the next acquire.)
 *   A cancellation is answered promptly, also in a pause. A request that waits here was not sent: CANCELED, but
 *   INDETERMINATE for a repeat, whose first try may have been executed. A request below is canceled there. An answer
 *   that is held here is given. If that answer is BUSY, the module below may have put the caller on a list of waiters.
 *   The core has given up that caller and will not take it off the list, so the plugin does, by a watch and an unwatch.
 *   A release is not `sure` while a ghost of its acquire is on its way. A ghost does not queue: it tries.
 *   Only requests that change something get INDETERMINATE; those that only look get UNREACHABLE.
 *   To the core, a request that is late, refused or lost here was late, refused or lost: deadlines count from before
 *   the request left this plugin, never from its arrival.
 *
 *   The client closes: ghosts that have not arrived never do; those below are canceled there.
 *   Out of memory: the request is passed on unchanged.
 *
 * Reproducible: what happens to the n-th request of a kind for a name depends on the seed, the kind, the name and n, not
 * on threads, the time or other names (but for names that share its count: see COUNTERS). The times of pauses depend on
 * the seed and the time since the opening. */
#ifndef MORTISE_CHAOS_INTERNAL_H
#define MORTISE_CHAOS_INTERNAL_H

#include <mortise/driver.h>

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

#define NS_PER_MS INT64_C(1000000)
#define COUNTERS 65536 /* of requests by kind and name; several names may share one */
#define BATCH 64

enum option {
    OPTION_BELOW,
    OPTION_SEED,
    OPTION_DELAY,
    OPTION_REPLY_DELAY,
    OPTION_REFUSE,
    OPTION_LOSE_REQUESTS,
    OPTION_LOSE_REPLIES,
    OPTION_GHOSTS,
    OPTION_GHOST_DELAY,
    OPTION_LOSE_RENEWALS,
    OPTION_LOSE_NEWS,
    OPTION_PAUSE_EVERY,
    OPTION_PAUSE_FOR,
    OPTION_ONLY,
    OPTION_TELL,
    OPTION_COUNT
};

enum fault { FAULT_NONE, FAULT_REFUSE, FAULT_LOSE_REQUEST, FAULT_LOSE_REPLY, FAULT_GHOST };

struct fate {
    enum fault fault;
    int64_t delay_ns, reply_delay_ns;
};

/* The status of a copy until host->complete sets another. */
#define NOT_COMPLETED ((mortise_status)1)

enum stage {
    WAITING,  /* here, in the heap */
    BELOW,    /* its op is with the module below, or completed by it and about to be delivered */
    ANSWERED, /* here, in the heap */
};

struct call {
    mortise_op op;     /* first: the copy. Its texts and room are behind the struct */
    mortise_op *upper; /* the core's op; NULL: nobody waits (a ghost, or the op was answered) */
    UT_hash_handle hh; /* by upper */
    struct chaos *chaos;
    struct call *next_ghost, *previous_ghost;
    struct fate fate;
    enum stage stage;
    bool copied;   /* the copy goes below, not the core's op itself */
    bool canceled; /* its answer is wanted at once */
    bool haunted;  /* a release: a ghost of its acquire may arrive after it */
    int64_t due_ns;
    uint64_t sequence; /* orders calls that are due at the same instant */
    size_t place;      /* in the heap, from 1; 0: not in it */
    mortise_info info;
    mortise_error error; /* of the answer; message empty: none */
};

/* A name that the core watches. */
struct watched {
    UT_hash_handle hh;
    size_t name_len;
    char name[];
};

struct chaos {
    mortise_host *host;
    mortise_below *below;
    const mortise_value *values;
    uint32_t only; /* bits by kind */
    bool pauses;
    int64_t opened_ns;
    int64_t last_due_ns; /* of the request that came last */
    uint64_t sequence;
    struct call *calls; /* a hash table by upper */
    struct call *ghosts;
    struct call **heap;
    size_t heap_count, heap_capacity;
    bool missed_news; /* in a pause */
    struct watched *watched;
    bool watched_unsure; /* memory was short, so some watched names are unknown */
    uint32_t counters[COUNTERS];
};

/* ---- fate.c ---------------------------------------------------------------------------------------- */

mortise_status fate_check(struct chaos *chaos, const char *section, mortise_error *error);
struct fate fate_of(struct chaos *chaos, const mortise_op *op);
bool fate_loses_news(struct chaos *chaos, const char *name, size_t name_len);
/* Returns the end of the pause that is in force at now_ns; 0: there is none. */
int64_t fate_pause_end(const struct chaos *chaos, int64_t now_ns);

/* ---- call.c ---------------------------------------------------------------------------------------- */

/* Makes a call for the core's op. copied: with a copy of the op, because the answer is needed here, or it becomes a
 * ghost. NULL: out of memory. */
struct call *call_make(struct chaos *chaos, mortise_op *upper, struct fate fate, bool copied);
struct call *call_find(struct chaos *chaos, mortise_op *upper);
void call_leave_upper(struct call *call); /* nobody waits for it any more */
void call_free(struct call *call);
/* Puts the call into the heap, which has room for every call; takes it out. */
void call_schedule(struct call *call, int64_t due_ns);
void call_unschedule(struct call *call);
struct call *call_first(const struct chaos *chaos); /* the call that is due first, or NULL */
/* Copies the answer from the copy to the core's op. */
void call_copy_answer(struct call *call);

/* ---- flow.c ---------------------------------------------------------------------------------------- */

void flow_start(struct chaos *chaos, mortise_op **ops, size_t n);
void flow_cancel(struct chaos *chaos, mortise_op *op);
void flow_turn(struct chaos *chaos);
int64_t flow_due(const struct chaos *chaos);
void flow_watch(struct chaos *chaos, const char *name, size_t name_len);
void flow_unwatch(struct chaos *chaos, const char *name, size_t name_len);
void flow_news(struct chaos *chaos, const char *name, size_t name_len);
void flow_waiting(struct chaos *chaos, mortise_op *op);
void flow_end(struct chaos *chaos);

#endif
