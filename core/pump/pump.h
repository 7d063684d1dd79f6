/* pump.h - who calls into the module stack, and when: Leader/Followers.
 *
 * A stack of modules is a single-threaded state machine, and there is no I/O thread between a caller and it:
 *
 * - *Inside.* At most one thread at a time is inside the stack. A thread that has work for it (ops to
 *   start or cancel, ready descriptors, a posted function) puts the work on a list. If no thread is inside,
 *   it goes in and does everything on the lists, also for other threads. If a thread is inside, that
 *   thread does the work before it leaves. So the requests of many callers form batches. If the thread
 *   inside is stuck in a disk operation, the other callers can still give up when their time is over.
 * - *Leader.* Of the threads that wait for an outcome, one polls the stack's descriptors; the others
 *   (followers) sleep until their outcome is there or they are named leader. A leader that leaves
 *   names the next one, preferably a caller whose outcome is expected soon (pump_expect). A lone caller
 *   makes its system calls itself and needs no other thread.
 * - *Service thread.* Some work is outstanding without a caller that waits for it: async acquires,
 *   renewals, timers of a driver, releases that are not waited for. For this work a thread of the client
 *   leads, once no other thread has turned the stack for GRACE_NS. It also makes the leader's turn if the
 *   leader makes none although a descriptor is ready or something is posted. It is started when first
 *   needed: with the first acquire (pump_ready) or the first follower at the latest.
 *
 * Completions are collected inside and run after the module call has returned, with no lock held, by
 * the thread that is inside; wake-ups of followers go out after the batch.
 *
 * Locks: the pump's lock is the innermost of the core. It is not held during a completion or a module
 * call, except `interest`, which is quick. */
#ifndef MORTISE_CORE_PUMP_H
#define MORTISE_CORE_PUMP_H

#include "base/clock.h"
#include "base/status.h"
#include "base/wakeup.h"
#include "modules/loader.h"

#include <pthread.h>
#include <stdatomic.h>

#define PUMP_FDS 256

/* A thread that waits for an outcome. On its stack; the thread that decides the outcome calls sleeper_wake. */
struct sleeper {
    _Atomic uint32_t word; /* a futex: enum sleeper_word in wait.c */
    struct pump *pump;
    bool aside; /* never leads */
    /* Lets another thread lead if one does or is expected to, unless it is expected itself. */
    bool patient;
    /* pump lock: */
    bool follows;                    /* it is among the followers */
    bool expected;                   /* its outcome is expected next */
    unsigned dependents;             /* pump_depend(); 0: none */
    struct sleeper *next, *previous; /* among the followers */
};

/* op.core_state of a task that is not in the stack: nothing may complete it. (Ops of plugins have 0.) */
#define OP_IDLE 4

/* Kinds of op that only the pump knows. OP_LEAVE is the last task of a client: it goes to the top module's `leave`. */
#define OP_LEAVE ((mortise_op_kind)0)
/* These go to `watch` and `unwatch` of the top module, and are completed at once. */
#define OP_WATCH ((mortise_op_kind)0x100)
#define OP_UNWATCH ((mortise_op_kind)0x101)

/* Sleepers that are decided and still to be woken. */
struct wake_list {
    _Atomic uint32_t *words[8]; /* futexes */
    size_t count;
    bool leader; /* the leader is one of them, and may be polling */
};

/* An op of the core. The op is the first member, so a mortise_op * can be cast to its task. */
struct task {
    mortise_op op;
    struct task *next, *previous; /* on a list of tasks to start, or free */
    struct task *cancel_next, *cancel_previous;
    uint8_t phase;   /* enum task_phase in pump_internal.h; with the flags: pump lock */
    bool unattended; /* counted in pump.unattended: no caller sleeps for it */
    bool cancel_wanted, on_cancels;
    unsigned doubts; /* pump.doubts when a driver completed the task, or a plugin got it */
};

struct task_list {
    struct task *first, *last;
};

struct posted;  /* a module's function, from host->post */
struct lookups; /* of the look-ups under way: resolve.c */

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
    pthread_cond_t left; /* a thread left the inside */

    bool led;     /* a leader exists: a sleeper, or the service thread */
    bool polling; /* the leader sleeps in epoll_wait, until polling_until_ns */
    int64_t polling_until_ns;
    struct sleeper *followers[2]; /* [1]: those whose outcome is expected next */
    unsigned follower_count;
    bool rested;         /* a leader has left without a successor (pump_depend) */
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
    bool closing;             /* pump_closing() */
    bool dispatched;          /* the application polls the descriptor (mortise_fd): */
    int shown;                /* an epoll set, which has this pump's in it */
    bool hidden;              /* `shown` does not report it until a thread leaves the inside */
    bool manual;              /* tests turn it by hand: no service thread */
    struct lookups *lookups;  /* NULL until a name is first looked up */
};

void pump_init(struct pump *pump, const struct pump_upcalls *upcalls, struct loader *loader);
void pump_destroy(struct pump *pump);
/* resolve.c, before pump_destroy(): drops the results of look-ups that are still under way. No thread is inside any more. */
void resolve_end(struct pump *pump);
/* The stack is complete: from here on ops may be started. */
void pump_attach(struct pump *pump, struct instance *top);
/* Starts the service thread, unless it runs. False: the system gives no thread, so nobody would read the answers to what no
 * caller waits for. */
bool pump_ready(struct pump *pump);
/* Fills host and core of an instance: the `host_prepare` of the loader; argument is the pump. */
void host_prepare(struct instance *instance, void *pump);
/* The `host_forget`: drops what the instance has posted, and the results of the look-ups that it began. */
void host_forget(struct instance *instance, void *pump);

/* Starts tasks (linked by next), and does everything else that is on the lists. A task that was canceled before is
 * completed with CANCELED. */
void pump_start(struct pump *pump, struct task_list *tasks);
/* The same for a thread that must not go inside (the watchdog): the service thread does it, unless it has ended. */
void pump_start_detached(struct pump *pump, struct task_list *tasks);
/* While this thread runs callbacks of the application: the tasks of pump_start_soon() are held back, so that the
 * requests of many callbacks go out together. They go out with pump_let_go() (NULL: the pump may be gone), with a
 * request that a caller waits for, or when the service thread looks at the lists. If the service thread leads, it is
 * not told to look. */
void pump_hold(struct pump *pump);
void pump_start_soon(struct pump *pump, struct task_list *tasks);
void pump_let_go(struct pump *pump);
/* Asks for the cancellation of a task that may or may not have been started. Only notes it: call
 * pump_kick() after the client's lock was released. The task must not have been delivered. */
void pump_cancel(struct pump *pump, struct task *task);
/* A driver may have sent this request, which was given to the pump and is not answered. True also if that is not known:
 * while a thread is in the stack, below a plugin, and for every request except an acquire. */
bool pump_may_be_sent(struct pump *pump, const struct task *task);
/* Does what is on the lists, if no thread is inside. */
void pump_kick(struct pump *pump);
/* No caller sleeps for this task (before or after its start, until it is delivered). */
void pump_unattend(struct pump *pump, struct task *task);
/* Something else (an async waiter) needs the stack to be turned, or no longer does. */
void pump_attention(struct pump *pump, int change);

void sleeper_init(struct sleeper *sleeper, struct pump *pump);
/* Sleeps, leading or following, until the sleeper is woken or `until_ns`. True: woken. */
bool pump_wait(struct pump *pump, struct sleeper *sleeper, int64_t until_ns);
/* The outcome of this sleeper is expected before that of others: it leads before them, so that it reads the answer itself. It is
 * not decided yet, and cannot be decided during this call. */
void pump_expect(struct pump *pump, struct sleeper *sleeper);
/* The sleeper is about to be decided, and `count` others wait for outcomes that come only after a further request of its thread.
 * If there are no other followers, it names no successor when it leaves, because it will lead again for that request. If the
 * request comes late, the service thread leads. */
void pump_depend(struct pump *pump, struct sleeper *sleeper, unsigned count);
/* Like pump_wait(), but enters the stack only if the system gives no service thread. */
bool pump_wait_aside(struct pump *pump, struct sleeper *sleeper, int64_t until_ns);
/* Once; any thread, any lock. The sleeper may be gone as soon as this is called. */
void sleeper_wake(struct sleeper *sleeper);
bool sleeper_done(const struct sleeper *sleeper);
/* sleeper_wake() in two steps, for a caller that holds a lock. sleeper_wake_later() decides the sleeper, which may be gone after
 * that; wake_list_flush() makes the system calls. Inside the pump, the pump makes them. */
void sleeper_wake_later(struct sleeper *sleeper, struct wake_list *list);
void wake_list_flush(struct pump *pump, struct wake_list *list);

/* One turn without waiting (mortise_dispatch, tests). */
void pump_turn(struct pump *pump);
/* Returns the descriptor that is readable when pump_turn has something to do; another one if the application has closed it. -1: the
 * system gives none, or the application has closed it while a thread still polls it. */
int pump_epoll(struct pump *pump);
/* The application has that descriptor in the epoll set `shown` (EPOLLIN, with the descriptor as data), and makes the turns. While
 * a thread is inside, pump_turn() does not handle ready descriptors, and the set does not report them until that thread
 * leaves. */
void pump_dispatched(struct pump *pump, int shown);
/* The client is being closed, and the application makes no turns any more. */
void pump_closing(struct pump *pump);
/* No caller waits for the tasks that were started, and their answers are wanted soon. */
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
