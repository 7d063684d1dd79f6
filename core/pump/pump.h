/* pump.h - who calls into the module stack, and when: Leader/Followers.
 *
 * A stack of modules is a single-threaded state machine, and there is no I/O thread in a caller's way:
 *
 * - *Inside.* At most one thread at a time is inside the stack. Who has something to do there (ops to
 *   start or cancel, ready descriptors, a posted function) puts it on a list; if nobody is inside
 *   it goes in and does all that is on the lists, for others too; if somebody is, that thread does it
 *   before it leaves. So nobody waits for a module that is stuck in a disk, and requests of many
 *   callers become one batch by themselves.
 * - *Leader.* Of the threads that wait for an outcome, one polls the stack's descriptors; the others
 *   (followers) sleep until their outcome is there or they are named leader. A leader that leaves
 *   names the next: first one whose outcome is expected soon (pump_expect). A lone caller makes its system calls itself and meets no other thread.
 * - *Service thread.* Where something is outstanding that no caller waits for (async acquires, renewals,
 *   releases not waited for, timers of a driver), a thread of the client's leads, if nobody else has
 *   turned the stack for GRACE_NS; and it makes a turn in place of a leader that makes none although
 *   a descriptor is ready, or something is posted. It is started when first needed: with the first follower
 *   at the latest.
 *
 * Completions are collected inside and run after the module call has returned, with no lock held, by
 * the thread that is inside; wake-ups of followers go out after the batch.
 *
 * Locks: the pump's lock is the innermost of the core; it is never held over a module call (but
 * `interest`, which is quick) or a completion. */
#ifndef MORTISE_CORE_PUMP_H
#define MORTISE_CORE_PUMP_H

#include "base/clock.h"
#include "base/status.h"
#include "base/wakeup.h"
#include "modules/loader.h"

#include <pthread.h>
#include <stdatomic.h>

#define PUMP_FDS 256

/* A thread that waits for an outcome. On its stack; whoever decides the outcome calls sleeper_wake. */
struct sleeper {
    _Atomic uint32_t word; /* a futex: enum sleeper_word in wait.c */
    struct pump *pump;
    bool aside;   /* never leads */
    bool patient; /* follows, where one leads or is expected to, unless it is expected itself */
    /* pump lock: */
    bool follows;                    /* is among the followers, */
    bool expected;                   /* among those whose outcome is expected next */
    unsigned dependents;             /* pump_depend(); 0: none */
    struct sleeper *next, *previous; /* there */
};

/* op.core_state of a task that is not in the stack: nothing may complete it. (Ops of plugins have 0.) */
#define OP_IDLE 4

/* Kinds of op that only the pump knows. The last task of a client: goes to the top module's `leave`. */
#define OP_LEAVE ((mortise_op_kind)0)
/* Go to `watch` and `unwatch` of the top module, and are completed at once. */
#define OP_WATCH ((mortise_op_kind)0x100)
#define OP_UNWATCH ((mortise_op_kind)0x101)

/* Sleepers that are decided and still to be woken. */
struct wake_list {
    _Atomic uint32_t *words[8]; /* futexes */
    size_t count;
    bool leader; /* the leader is one of them, and may be polling */
};

/* An op of the core's. The op is the first member: a mortise_op * is its task. */
struct task {
    mortise_op op;
    struct task *next, *previous; /* on a list of tasks to start, or free */
    struct task *cancel_next, *cancel_previous;
    uint8_t phase;   /* enum task_phase in pump_internal.h; with the flags: pump lock */
    bool unattended; /* counted in pump.unattended: no caller sleeps for it */
    bool cancel_wanted, on_cancels;
    unsigned doubts; /* of the pump, when a driver completed it, or a plugin got it */
};

struct task_list {
    struct task *first, *last;
};

struct posted; /* a module's function, from host->post */
struct board;  /* of the look-ups under way: resolve.c */

struct pump;

/* What the stack tells the part above the pump. All are called inside, with no lock held. */
struct pump_upcalls {
    /* The name (NULL: any name) may have become free. */
    void (*news)(struct pump *pump, const char *name, size_t name_len);
    /* What this client holds of the name (NULL: of any name) may be gone: ask the backend. */
    void (*doubt)(struct pump *pump, const char *name, size_t name_len);
    /* The backend has answered that this op, which is in the stack, waits for its turn. */
    void (*waiting)(struct pump *pump, mortise_op *op);
    /* Random bytes; any thread. */
    void (*random)(struct pump *pump, void *bytes, size_t size);
};

struct pump {
    pthread_mutex_t lock;
    const struct pump_upcalls *upcalls;
    struct loader *loader; /* opens the modules below a plugin */
    bool logs;             /* lines of modules are written to the log */
    atomic_uint doubts;    /* counts the calls of `doubt` */
    struct instance *top;  /* NULL: nothing is started any more */

    struct task_list starts;
    struct task *cancels;
    struct posted *posted, **posted_end;
    struct pollfd ready[PUMP_FDS]; /* what the leader saw */
    size_t ready_count;
    bool turn_wanted;

    bool inside;
    bool doubt_below;             /* a module below a plugin called `doubt`: of the thread inside */
    mortise_op *done, **done_end; /* completed, not yet delivered: of the thread inside */
    _Atomic uint32_t *wakes[64];  /* futexes to wake when it leaves: likewise */
    size_t wake_count;
    pthread_cond_t left; /* somebody left the inside */

    bool led;     /* a leader exists: a sleeper, or the service thread */
    bool polling; /* it sleeps in epoll_wait, until polling_until_ns */
    int64_t polling_until_ns;
    struct sleeper *followers[2]; /* [1]: those who are expected */
    unsigned follower_count;
    bool rested;         /* a leader has left and named nobody (pump_depend) */
    uint64_t turns;      /* how often the inside was left */
    uint64_t looks;      /* how often the descriptors were looked at */
    unsigned unattended; /* tasks and async waiters outstanding that no caller sleeps for */
    uint64_t started;    /* tasks given to the driver: a counter for mortise_stats */

    struct wakeup wakeup;             /* the epoll set, not open until it is needed, and the poke */
    bool poke_wanted;                 /* by the thread inside, when it leaves */
    struct pollfd interest[PUMP_FDS]; /* what `epoll` knows */
    size_t interest_count;
    int64_t due_ns;

    pthread_t service;
    pthread_cond_t service_cond;
    bool service_made; /* and neither joined nor detached yet */
    bool service_runs, service_sleeps, service_guards, service_leads, service_hurry, stopping;
    int64_t service_until_ns; /* how long it sleeps, if it does */
    bool dispatched;          /* the application polls the descriptor (mortise_fd): */
    int shown;                /* an epoll set, which has this pump's in it */
    bool hidden;              /* and does not report it until somebody leaves the inside */
    bool manual;              /* tests turn it by hand: no service thread */
    struct board *board;      /* NULL until a name is first looked up */
};

void pump_init(struct pump *pump, const struct pump_upcalls *upcalls, struct loader *loader);
void pump_destroy(struct pump *pump);
/* resolve.c, before pump_destroy(): look-ups that are still under way report to nobody. Nobody is inside any more. */
void resolve_end(struct pump *pump);
/* The stack is complete: from here on ops may be started. */
void pump_attach(struct pump *pump, struct instance *top);
/* Fills host and core of an instance: the `host_prepare` of the loader; argument is the pump. */
void host_prepare(struct instance *instance, void *pump);
/* The `host_forget`: what the instance posted, and look-ups that it began, tell nobody any more. */
void host_forget(struct instance *instance, void *pump);

/* Starts tasks (linked by next), and does what else is on the lists. A task that was canceled before is
 * completed with CANCELED. */
void pump_start(struct pump *pump, struct task_list *tasks);
/* The same for a thread that must not go inside (the watchdog): the service thread does it. */
void pump_start_detached(struct pump *pump, struct task_list *tasks);
/* While this thread runs callbacks of the application: what pump_start_soon() is given is held back, so that
 * what many callbacks ask for goes out together; until pump_let_go() (NULL: the pump may be gone), or
 * something that is waited for, or the service thread looks at the lists. While that leads, nobody tells it to. */
void pump_hold(struct pump *pump);
void pump_start_soon(struct pump *pump, struct task_list *tasks);
void pump_let_go(struct pump *pump);
/* Asks for the cancellation of a task that may or may not have been started. Only notes it: call
 * pump_kick() after the client's lock was released. The task must not have been delivered. */
void pump_cancel(struct pump *pump, struct task *task);
/* A driver may have sent this request, which was given to the pump and is not answered. In doubt true: while a
 * thread is in the stack, below a plugin, and for all but an acquire. */
bool pump_may_be_sent(struct pump *pump, const struct task *task);
/* Does what is on the lists, if nobody is inside. */
void pump_kick(struct pump *pump);
/* No caller sleeps for this task (before or after its start, until it is delivered). */
void pump_unattend(struct pump *pump, struct task *task);
/* Something else (an async waiter) needs the stack to be turned, or no longer does. */
void pump_attention(struct pump *pump, int change);

void sleeper_init(struct sleeper *sleeper, struct pump *pump);
/* Sleeps, leading or following, until the sleeper is woken or `until_ns`. True: woken. */
bool pump_wait(struct pump *pump, struct sleeper *sleeper, int64_t until_ns);
/* Its outcome is expected before that of others: it leads before them, so that it reads the answer itself. It is not decided
 * yet, and cannot be meanwhile. */
void pump_expect(struct pump *pump, struct sleeper *sleeper);
/* The sleeper is about to be decided, and so many others wait for what only comes after a further request of its thread. If no
 * others follow, it names no successor when it leaves: it will lead again for that request. Should that be late, the service
 * thread leads. */
void pump_depend(struct pump *pump, struct sleeper *sleeper, unsigned count);
/* The same, but enters the stack only if the system gives no service thread. */
bool pump_wait_aside(struct pump *pump, struct sleeper *sleeper, int64_t until_ns);
/* Once; any thread, any lock. The sleeper may be gone as soon as this is called. */
void sleeper_wake(struct sleeper *sleeper);
bool sleeper_done(const struct sleeper *sleeper);
/* The same in two parts, for a caller with a lock held: from the first on the sleeper is decided (and may
 * be gone), the system calls are left to the second. Inside the pump all of it is left to the pump. */
void sleeper_wake_later(struct sleeper *sleeper, struct wake_list *list);
void wake_list_flush(struct pump *pump, struct wake_list *list);

/* One turn without waiting (mortise_dispatch, tests). */
void pump_turn(struct pump *pump);
/* The descriptor that is readable when pump_turn has something to do; -1: none could be had. */
int pump_epoll(struct pump *pump);
/* The application has that descriptor, in this epoll set (EPOLLIN, with the descriptor as data), and makes the turns. While
 * somebody is inside, pump_turn() does nothing about what is ready, and has the set not report it until that thread leaves. */
void pump_dispatched(struct pump *pump, int shown);
/* What was started is not waited for, and its answer is wanted soon. */
void pump_hurry(struct pump *pump);

/* Ends the service thread; false: it did not end by then (it is stuck in a module). */
bool pump_stop(struct pump *pump, int64_t until_ns);
bool pump_is_inside(struct pump *pump); /* this thread is */

/* list helpers */
static inline void task_append(struct task_list *list, struct task *task)
{
    task->next = NULL;
    task->previous = list->last;
    if (list->last != NULL)
        list->last->next = task;
    else
        list->first = task;
    list->last = task;
}

static inline void task_remove(struct task_list *list, struct task *task)
{
    if (task->previous != NULL)
        task->previous->next = task->next;
    else
        list->first = task->next;
    if (task->next != NULL)
        task->next->previous = task->previous;
    else
        list->last = task->previous;
    task->next = task->previous = NULL;
}

#endif
