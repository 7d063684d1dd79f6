/* pump.c - the inside of the pump: lists of work, calls into the stack, completions; see pump.h. */

#include <assert.h>
#include <errno.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "pump/pump_internal.h"

#define BATCH 256                 /* ops in one call of `start` */
#define CALLER_NS (5 * NS_PER_MS) /* how long a caller begins rounds for others */
#define ROUNDS 16                 /* of the service thread between two looks at the descriptors */

_Thread_local struct pump *pump_inside_here;

struct posted {
    struct posted *next;
    void *ctx; /* the instance */
    void (*run)(void *ctx, void *argument);
    void *argument;
};

/* What is taken off the lists for one round inside. */
struct work {
    struct task *starts, *canceled; /* canceled: before they were started */
    struct task *cancels;
    struct posted *posted;
    struct pollfd ready[PUMP_FDS];
    size_t ready_count;
    bool turn;
};

void pump_init(struct pump *pump, const struct pump_upcalls *upcalls, struct loader *loader)
{
    memset(pump, 0, sizeof(*pump));
    pump->upcalls = upcalls;
    pump->loader = loader;
    pump->wakeup = WAKEUP_CLOSED;
    pump->due_ns = MORTISE_NEVER;
    pump->posted_end = &pump->posted;
    pump->done_end = &pump->done;
    pthread_mutex_init(&pump->lock, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&pump->left, &monotonic);
    pthread_cond_init(&pump->service_cond, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

void pump_destroy(struct pump *pump)
{
    wakeup_close(&pump->wakeup);
    while (pump->posted != NULL) {
        struct posted *posted = pump->posted;
        pump->posted = posted->next;
        free(posted);
    }
    pthread_cond_destroy(&pump->service_cond);
    pthread_cond_destroy(&pump->left);
    pthread_mutex_destroy(&pump->lock);
}

void pump_attach(struct pump *pump, struct instance *top)
{
    pthread_mutex_lock(&pump->lock);
    pump->top = top;
    pthread_mutex_unlock(&pump->lock);
    pump_kick(pump);
}

bool pump_is_inside(struct pump *pump)
{
    return pump_inside_here == pump;
}

bool pump_has_work_locked(const struct pump *pump)
{
    return pump->top != NULL && (pump->starts.first != NULL || pump->cancels != NULL ||
                                 pump->posted != NULL || pump->turn_wanted);
}

/* ---- taking work, doing it ---- */

static void take_starts_locked(struct pump *pump, struct work *work)
{
    struct task_list starts = {NULL, NULL}, canceled = {NULL, NULL};
    unsigned doubts = atomic_load(&pump->doubts);
    for (struct task *task = pump->starts.first, *next; task != NULL; task = next) {
        next = task->next;
        task->phase = TASK_STARTED;
        task->op.core_state = OP_STARTED;
        task->doubts = doubts;
        task_append(task->cancel_wanted ? &canceled : &starts, task);
        pump->started += !task->cancel_wanted && task->op.kind < OP_WATCH;
    }
    pump->starts = (struct task_list){NULL, NULL};
    work->starts = starts.first;
    work->canceled = canceled.first;
}

static void take_work_locked(struct pump *pump, struct work *work)
{
    take_starts_locked(pump, work);
    work->cancels = pump->cancels;
    pump->cancels = NULL;
    for (struct task *task = work->cancels; task != NULL; task = task->cancel_next)
        task->on_cancels = false;
    work->posted = pump->posted;
    pump->posted = NULL;
    pump->posted_end = &pump->posted;
    work->turn = pump->turn_wanted;
    work->ready_count = pump->ready_count;
    if (work->ready_count > 0)
        memcpy(work->ready, pump->ready, work->ready_count * sizeof(work->ready[0]));
    pump->turn_wanted = false;
    pump->ready_count = 0;
}

static void push_done(struct pump *pump, mortise_op *op, mortise_status status)
{
    op->status = status;
    op->next = NULL;
    *pump->done_end = op;
    pump->done_end = &op->next;
}

/* Ops that no module completes. */
static bool run_own(struct pump *pump, struct task *task)
{
    const mortise_module *module = &pump->top->module;
    void *ctx = pump->top->ctx;
    mortise_op *op = &task->op;
    if (op->kind == OP_WATCH && module->watch != NULL)
        module->watch(ctx, op->name, op->name_len);
    else if (op->kind == OP_UNWATCH && module->unwatch != NULL)
        module->unwatch(ctx, op->name, op->name_len);
    if (op->kind != OP_WATCH && op->kind != OP_UNWATCH)
        return false;
    op->core_state = OP_COMPLETED;
    push_done(pump, op, MORTISE_OK);
    return true;
}

static void run_starts(struct pump *pump, struct task *task)
{
    mortise_op *ops[BATCH];
    while (task != NULL) {
        size_t n = 0;
        for (; task != NULL && n < BATCH && task->op.kind != OP_LEAVE; task = task->next)
            if (!run_own(pump, task))
                ops[n++] = &task->op;
        if (n > 0)
            pump->top->module.start(pump->top->ctx, ops, n);
        if (task != NULL && task->op.kind == OP_LEAVE) { /* after all others, and alone */
            pump->top->module.leave(pump->top->ctx, &task->op);
            return;
        }
    }
}

static void run_canceled(struct pump *pump, struct task *task)
{
    for (; task != NULL; task = task->next) {
        task->op.core_state = OP_COMPLETED;
        push_done(pump, &task->op, MORTISE_CANCELED);
    }
}

static void run_cancels(struct pump *pump, struct task *task)
{
    for (; task != NULL; task = task->cancel_next)
        if (task->op.core_state == OP_STARTED)
            pump->top->module.cancel(pump->top->ctx, &task->op);
}

static void run_posted(struct posted *posted)
{
    while (posted != NULL) {
        struct posted *next = posted->next;
        struct instance *instance = posted->ctx;
        posted->run(instance->ctx, posted->argument);
        free(posted);
        posted = next;
    }
}

static void run_work(struct pump *pump, struct work *work)
{
    if (work->turn) /* before anything that may close a descriptor that was seen to be ready */
        pump->top->module.turn(pump->top->ctx, work->ready, work->ready_count);
    run_posted(work->posted);
    run_canceled(pump, work->canceled);
    run_starts(pump, work->starts);
    run_cancels(pump, work->cancels);
}

static void unlink_cancel_locked(struct pump *pump, struct task *task)
{
    if (!task->on_cancels)
        return;
    task->on_cancels = false;
    if (task->cancel_previous != NULL)
        task->cancel_previous->cancel_next = task->cancel_next;
    else
        pump->cancels = task->cancel_next;
    if (task->cancel_next != NULL)
        task->cancel_next->cancel_previous = task->cancel_previous;
}

/* Takes the completed ops: from here on pump_cancel() leaves them alone. pump lock held */
static mortise_op *take_done_locked(struct pump *pump)
{
    mortise_op *done = pump->done;
    pump->done = NULL;
    pump->done_end = &pump->done;
    for (mortise_op *op = done; op != NULL; op = op->next) {
        if (op->core_state != OP_COMPLETED)
            continue;
        struct task *task = (struct task *)op;
        task->phase = TASK_DELIVERED;
        unlink_cancel_locked(pump, task);
        if (task->unattended) {
            task->unattended = false;
            pump->unattended--;
        }
    }
    return done;
}

static void deliver(mortise_op *op)
{
    while (op != NULL) {
        mortise_op *next = op->next;
        mortise_error *error = op->error;
        op->next = NULL;
        op->done(op); /* may free it */
        free(error);
        op = next;
    }
}

/* ---- inside ---- */

static void flush_wakes(struct pump *pump)
{
    for (size_t i = 0; i < pump->wake_count; i++)
        syscall(SYS_futex, pump->wakes[i], FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
    pump->wake_count = 0;
}

/* Remembers a futex to be woken when this thread leaves the inside. */
void pump_wake_later(struct pump *pump, _Atomic uint32_t *word)
{
    if (pump->wake_count == sizeof(pump->wakes) / sizeof(pump->wakes[0]))
        flush_wakes(pump);
    pump->wakes[pump->wake_count++] = word;
}

/* A driver that loses its connection may doubt its claims one by one. Below a plugin each of these doubts means all names, so
 * they are gathered until the module calls of a round have returned: all claims are then renewed once. Doubts are not gathered
 * over several rounds, because they cannot wait. So a driver that doubts one claim in each of many rounds makes all claims be
 * renewed as often, and should gather its doubts itself. */
static void tell_doubt(struct pump *pump)
{
    if (!pump->doubt_below)
        return;
    pump->doubt_below = false;
    pump->upcalls->doubt(pump, NULL, 0);
}

/* One round: does what is on the lists now, and delivers the completions. Called and returns with the pump lock held; drops it
 * in between. */
static void round_inside(struct pump *pump)
{
    struct work work;
    take_work_locked(pump, &work);
    pthread_mutex_unlock(&pump->lock);
    run_work(pump, &work);
    tell_doubt(pump);
    pthread_mutex_lock(&pump->lock);
    while (pump->done != NULL) {
        mortise_op *done = take_done_locked(pump);
        pthread_mutex_unlock(&pump->lock);
        deliver(done);
        tell_doubt(pump); /* a plugin that got an answer may have called a driver */
        pthread_mutex_lock(&pump->lock);
    }
}

static void leave_inside_locked(struct pump *pump)
{
    pump_update_interest_locked(pump);
    pump->inside = false;
    pump->turns++;
    pump_show_locked(pump);
    if (pump->polling && (pump->poke_wanted || pump->due_ns < pump->polling_until_ns))
        pump_poke_locked(pump);
    pump->poke_wanted = false;
    pthread_cond_broadcast(&pump->left);
    service_attend_locked(pump, false); /* the next leader looks after the timer */
}

/* Wakes the callers that were decided in this round, because the next round may take long. */
static void flush_wakes_locked(struct pump *pump)
{
    if (pump->wake_count == 0)
        return;
    pthread_mutex_unlock(&pump->lock);
    flush_wakes(pump);
    pthread_mutex_lock(&pump->lock);
}

/* After each round: a leader whose outcome was decided in it need not wait for the next. */
static void poke_leader_locked(struct pump *pump)
{
    if (!pump->poke_wanted)
        return;
    pump->poke_wanted = false;
    pump_poke_locked(pump);
    pthread_cond_broadcast(&pump->left);
}

/* Starts no round after until_ns. 0: CALLER_NS after the first round. NEVER: for the service thread, which looks at the
 * descriptors now and then while work keeps coming in. */
static void work_inside(struct pump *pump, int64_t until_ns)
{
    pump->inside = true;
    struct pump *outer = pump_inside_here; /* a module may use a client of its own */
    pump_inside_here = pump;
    for (unsigned rounds = 1; pump_has_work_locked(pump); rounds++) {
        round_inside(pump);
        flush_wakes_locked(pump);
        poke_leader_locked(pump);
        if (until_ns != MORTISE_NEVER && pump_has_work_locked(pump)) {
            int64_t now = clock_now();
            if (until_ns ==
                0) /* counted from the end of the first round, which is mostly the last */
                until_ns = now + CALLER_NS;
            else if (now >= until_ns)
                break;
        }
        if (until_ns == MORTISE_NEVER && rounds % ROUNDS == 0)
            pump_peek_locked(pump);
    }
    pump_inside_here = outer;
    leave_inside_locked(pump);
}

/* Called and returns with the pump lock held; drops it in between. */
void pump_serve_locked(struct pump *pump)
{
    work_inside(pump, MORTISE_NEVER);
}

void pump_go_inside_locked(struct pump *pump)
{
    work_inside(pump, pump->manual ? MORTISE_NEVER : 0);
    if (pump_has_work_locked(pump) && !pump->inside && !service_take_over_locked(pump))
        work_inside(pump, MORTISE_NEVER);
}

void pump_kick(struct pump *pump)
{
    pthread_mutex_lock(&pump->lock);
    if (!pump->inside && pump_has_work_locked(pump))
        pump_go_inside_locked(pump);
    service_attend_locked(pump, true);
    pthread_mutex_unlock(&pump->lock);
}

/* ---- ops from modules (host.c) ---- */

bool pump_complete(struct pump *pump, mortise_op *op, mortise_status status)
{
    if (op->core_state == OP_STARTED) {
        op->core_state = OP_COMPLETED;
        /* it is unknown when a plugin has got its answers */
        if (pump->top->module.kind == MORTISE_KIND_DRIVER)
            ((struct task *)(void *)op)->doubts = atomic_load(&pump->doubts);
    } else if (op->core_state == OP_OF_PLUGIN)
        op->core_state = OP_OF_PLUGIN_COMPLETED;
    else
        return false;
    push_done(pump, op, status);
    return true;
}

struct posted *pump_posting(void)
{
    return malloc(sizeof(struct posted));
}

bool pump_post(struct pump *pump, struct instance *instance, void (*run)(void *ctx, void *argument),
               void *argument)
{
    struct posted *posted = pump_posting();
    if (posted != NULL)
        pump_post_made(pump, posted, instance, run, argument);
    return posted != NULL;
}

void pump_post_made(struct pump *pump, struct posted *posted, struct instance *instance,
                    void (*run)(void *ctx, void *argument), void *argument)
{
    *posted = (struct posted){.ctx = instance, .run = run, .argument = argument};
    pthread_mutex_lock(&pump->lock);
    *pump->posted_end = posted;
    pump->posted_end = &posted->next;
    if (!pump->inside)
        service_take_over_locked(pump);
    pthread_mutex_unlock(&pump->lock);
}

void pump_forget_posted(struct pump *pump, const struct instance *instance)
{
    pthread_mutex_lock(&pump->lock);
    struct posted **link = &pump->posted;
    while (*link != NULL) {
        struct posted *posted = *link;
        if (posted->ctx == instance) {
            *link = posted->next;
            free(posted);
        } else
            link = &posted->next;
    }
    pump->posted_end = link;
    pthread_mutex_unlock(&pump->lock);
}
