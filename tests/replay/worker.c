/* worker.c - a thread of the application: it executes its steps of the plan, and checks what the API promises to it. */
#include "backend.h"
#include "world.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { CALM_TTL_MS = 20000 };

const char *name_text(int name)
{
    static const char *const names[PLAN_NAMES] = {"a", "b", "c"};
    return names[name];
}

uint32_t name_permits(int name)
{
    return name == 2 ? 2 : 0;
}

/* ---- statuses ---- */

static unsigned bit(mortise_status status)
{
    return 1u << (unsigned)-(int)status;
}

/* An extension has a sixth of the time that is left: of 100 ms that is soon over, and the lease is suspect. */
static bool may_extend_late(void)
{
    return run_world.plan.latency_ms > 1;
}

void check_status(enum call call, mortise_status status, const struct opened *opened,
                  const mortise_error *error)
{
    unsigned away = run_world.may_be_away ? bit(MORTISE_INDETERMINATE) | bit(MORTISE_UNREACHABLE) |
                                                bit(MORTISE_BACKEND)
                                          : 0;
    const unsigned may[] = {
        [CALL_ACQUIRE] = away | bit(MORTISE_OK) | bit(MORTISE_BUSY) | bit(MORTISE_TIMEDOUT),
        [CALL_RELEASE] = away | bit(MORTISE_OK) | bit(MORTISE_LOST),
        [CALL_NOWAIT] = bit(MORTISE_OK) | bit(MORTISE_LOST),
        [CALL_EXTEND] = away | bit(MORTISE_OK) | bit(MORTISE_LOST) | bit(MORTISE_INVALID),
        [CALL_DOWNGRADE] = away | bit(MORTISE_OK) | bit(MORTISE_LOST) | bit(MORTISE_INVALID),
        [CALL_QUERY] = away | bit(MORTISE_OK)};
    unsigned allowed = may[call];
    bool slow = call != CALL_NOWAIT && plan_is_slow(&run_world.plan, run_world.plan.unreachable_ms);
    if (slow) /* the core waits no longer for an answer */
        allowed |= bit(MORTISE_INDETERMINATE) | bit(MORTISE_UNREACHABLE);
    if (call == CALL_EXTEND && may_extend_late())
        allowed |= bit(MORTISE_INDETERMINATE) | bit(MORTISE_UNREACHABLE);
    if (opened->closing) /* the close releases the leases too, and cancels what is under way */
        allowed |= bit(MORTISE_CLOSED) | bit(MORTISE_INVALID) | bit(MORTISE_UNREACHABLE) |
                   bit(MORTISE_INDETERMINATE);
    if (!(allowed & bit(status)))
        sched_fail("a call (%d) returns %s: %s", (int)call, mortise_status_name(status),
                   status == MORTISE_OK ? "" : error->message);
}

/* ---- acquiring ---- */

static bool holds_anything(const struct worker *worker)
{
    for (int i = 0; i < PLAN_SLOTS; i++)
        if (worker->slots[i].state != SLOT_EMPTY)
            return true;
    return false;
}

static mortise_options options_of(const struct worker *worker, const struct step *step,
                                  struct watched *watched)
{
    mortise_options options = {.size = sizeof options, .ttl_ms = step->ttl_ms};
    options.wait_ms = step->wait_ms;
    if (options.wait_ms < 0 && holds_anything(worker)) /* two such workers would wait for ever */
        options.wait_ms = 700;
    options.owner = step->owner ? "x" : NULL;
    options.no_renew = step->no_renew;
    options.max_hold_ms = step->max_hold_ms;
    options.mode = step->shared ? MORTISE_SHARED : MORTISE_EXCLUSIVE;
    options.permits = step->shared ? name_permits(step->name) : 0;
    options.on_state = watch_function(watched);
    options.user_data = watched;
    watched->keeps =
        (!run_world.plan.faults || run_world.calm) && !step->no_renew && step->max_hold_ms == 0;
    watched->in_time = run_world.calm || !plan_is_slow(&run_world.plan, run_world.plan.ttl_ms);
    return options;
}

static void fill_slot(struct slot *slot, const struct step *step, struct opened *opened,
                      struct watched *watched)
{
    *slot = (struct slot){.opened = opened,
                          .watched = watched,
                          .name = step->name,
                          .shared = step->shared,
                          .owner = step->owner,
                          .no_renew = step->no_renew};
}

static void slot_holds(struct slot *slot, mortise_lease *lease)
{
    slot->state = SLOT_HOLDS;
    slot->lease = lease;
    slot->wish = NULL;
}

/* UNREACHABLE: the wait was over before the request was sent. */
static void check_acquired(const mortise_options *options, mortise_status status,
                           const struct opened *opened, const mortise_error *error)
{
    if (status != MORTISE_UNREACHABLE || options->wait_ms <= 0)
        check_status(CALL_ACQUIRE, status, opened, error);
}

/* A wait ends in time: nothing stops these threads, and the clock is exact. */
static void check_wait(const mortise_options *options, int64_t since_ns)
{
    const struct plan *plan = &run_world.plan;
    int64_t late_ns = sched_now() - since_ns - options->wait_ms * NS_PER_MS;
    if (options->wait_ms > 0 && !plan->stalls && !plan->faults && late_ns > 200 * NS_PER_MS)
        sched_fail("an acquire that waits for %lld ms ends %lld ms late",
                   (long long)options->wait_ms, (long long)(late_ns / NS_PER_MS));
}

enum { DOUBT_MS = 100 }; /* a client that is not stopped has heard of the doubt by then */

/* After the backend has lost all claims, and the client was told to doubt its own, no lease may begin with a lost claim. */
static void check_grant(const struct slot *slot, int64_t since_ns)
{
    int64_t lost_ns = run_world.lost_ns;
    uint64_t token = mortise_token(slot->lease);
    if (!run_world.backend->holds || lost_ns == 0 || since_ns < lost_ns + DOUBT_MS * NS_PER_MS ||
        token == 0 || run_world.stopped_ns > lost_ns - DOUBT_MS * NS_PER_MS)
        return;
    bool holds = run_world.backend->holds(slot->name, token);
    if (!holds && mortise_state(slot->lease) == MORTISE_STATE_HELD && run_world.lost_ns == lost_ns)
        sched_fail("a lease begins with a claim that the backend has lost");
}

static void acquire(struct worker *worker, struct slot *slot, const struct step *step)
{
    struct opened *opened = client_of(worker->process);
    struct watched *watched = watch_new(opened, step->callback, step->name);
    mortise_options options = options_of(worker, step, watched);
    mortise_lease *lease;
    mortise_error error;
    int64_t since_ns = sched_now();
    mortise_status status =
        mortise_acquire(opened->handle, name_text(step->name), &options, &lease, &error);
    sched_trace("acquire %s: %s", name_text(step->name), mortise_status_name(status));
    check_acquired(&options, status, opened, &error);
    check_wait(&options, since_ns);
    if ((status == MORTISE_BUSY) && options.wait_ms != 0)
        sched_fail("an acquire that may wait returns BUSY");
    if ((status == MORTISE_TIMEDOUT) && options.wait_ms <= 0)
        sched_fail("an acquire without a limit returns TIMEDOUT");
    if (status != MORTISE_OK)
        return;
    fill_slot(slot, step, opened, watched);
    slot_holds(slot, lease);
    check_grant(slot, since_ns);
}

static void acquire_async(struct worker *worker, struct slot *slot, const struct step *step)
{
    struct opened *opened = client_of(worker->process);
    struct watched *watched = watch_new(opened, step->callback, step->name);
    mortise_options options = options_of(worker, step, watched);
    struct wish *wish = wish_new(opened, watched, step->release_now);
    mortise_error error;
    fill_slot(slot, step, opened, watched);
    mortise_status status = mortise_acquire_async(opened->handle, name_text(step->name), &options,
                                                  wish_granted, wish, &slot->request, &error);
    sched_trace("acquire-async %s: %s", name_text(step->name), mortise_status_name(status));
    check_status(CALL_NOWAIT, status, opened, &error);
    slot->wish = wish;
    slot->state = status == MORTISE_OK ? SLOT_WAITS : SLOT_EMPTY;
}

/* Waits for the outcome of an async acquire, for up to ms; -1: for as long as it takes. */
static void await(struct slot *slot, int64_t ms)
{
    struct wish *wish = slot->wish;
    struct timespec until;
    if (slot->state != SLOT_WAITS)
        return;
    clock_gettime(CLOCK_REALTIME, &until);
    int64_t ns = until.tv_nsec + ms % 1000 * NS_PER_MS;
    until.tv_sec += ms / 1000 + ns / (1000 * NS_PER_MS);
    until.tv_nsec = ns % (1000 * NS_PER_MS);
    pthread_mutex_lock(&wish->lock);
    while (wish->times == 0 && ms < 0)
        pthread_cond_wait(&wish->decided, &wish->lock);
    if (wish->times == 0)
        pthread_cond_timedwait(&wish->decided, &wish->lock, &until);
    bool decided = wish->times > 0;
    pthread_mutex_unlock(&wish->lock);
    if (decided && wish->lease)
        slot_holds(slot, wish->lease);
    else if (decided)
        slot->state = SLOT_EMPTY;
}

static void acquire_many(struct worker *worker, const struct step *step)
{
    struct opened *opened = client_of(worker->process);
    const char *names[PLAN_NAMES];
    mortise_lease *leases[PLAN_NAMES];
    mortise_error error;
    size_t count = (size_t)run_world.plan.names;
    if (holds_anything(worker)) /* names that belong together are acquired in one call */
        return;
    struct watched *watched = watch_new(opened, CALLBACK_NONE, 0);
    mortise_options options = options_of(worker, step, watched);
    options.mode = MORTISE_EXCLUSIVE;
    options.permits = 0;
    for (size_t i = 0; i < count; i++)
        names[i] = name_text((int)i);
    mortise_status status =
        mortise_acquire_many(opened->handle, names, count, &options, leases, &error);
    sched_trace("acquire-many: %s", mortise_status_name(status));
    check_acquired(&options, status, opened, &error);
    if (status != MORTISE_OK)
        return;
    usleep((useconds_t)step->ms * 1000);
    status = mortise_release_many(leases, count, &error);
    sched_trace("release-many: %s", mortise_status_name(status));
    check_status(CALL_RELEASE, status, opened, &error);
    check_kept(watched, status != MORTISE_LOST);
}

/* ---- a lease ---- */

static bool is_lost(const struct slot *slot)
{
    bool lost = mortise_state(slot->lease) == MORTISE_STATE_LOST;
    check_kept(slot->watched, !lost);
    return lost;
}

/* Whether it is ours still; the checker learns what we are told. */
static bool look(struct slot *slot)
{
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    int64_t at_ns = (int64_t)now.tv_sec * 1000 * NS_PER_MS + now.tv_nsec;
    if (is_lost(slot))
        return false;
    uint64_t token = mortise_token(slot->lease);
    bool ends = slot->watched->released_inside || slot->opened->closing;
    if (token != 0 && !ends) /* else a callback or a close releases it now */
        record_held(slot->name, token, at_ns);
    int64_t before_ns = sched_now(); /* the thread may stand still in between */
    int64_t left_ns = mortise_remaining_ms(slot->lease) * NS_PER_MS;
    int64_t latest_ns = sched_now() + left_ns + NS_PER_MS;
    if (is_lost(slot))
        return false;
    if (latest_ns < slot->deadline_ns)
        sched_fail("the deadline of a lease moved back by %lld ms",
                   (long long)((slot->deadline_ns - latest_ns) / NS_PER_MS));
    slot->deadline_ns = before_ns + left_ns;
    return true;
}

/* Reads, thinks, and writes one more. */
static void add_one(struct slot *slot, int64_t think_ms)
{
    uint64_t token = mortise_token(slot->lease);
    bool writes = !slot->shared && !slot->owner;
    if (!look(slot) || token == 0)
        return;
    uint64_t value = record_read(slot->name, token);
    usleep((useconds_t)think_ms * 1000);
    if (look(slot) && writes && mortise_token(slot->lease) == token) {
        bool taken = record_write(slot->name, token, value + 1);
        sched_trace("writes %llu: %s", (unsigned long long)value + 1, taken ? "taken" : "refused");
    }
}

/* A callback of the lease may have released it before. */
static void check_release(enum call call, const struct slot *slot, mortise_status status,
                          const mortise_error *error)
{
    if (status != MORTISE_INVALID || !slot->watched->released_inside)
        check_status(call, status, slot->opened, error);
    check_kept(slot->watched, status != MORTISE_LOST);
}

static void release(struct slot *slot, enum plan_what how)
{
    mortise_error error;
    mortise_status status;
    enum call call = how == STEP_RELEASE ? CALL_RELEASE : CALL_NOWAIT;
    if (slot->state != SLOT_HOLDS)
        return;
    slot->state = SLOT_EMPTY;
    if (how == STEP_RELEASE)
        status = mortise_release(slot->lease, &error);
    else if (how == STEP_RELEASE_NOWAIT)
        status = mortise_release_nowait(slot->lease, &error);
    else
        status = mortise_release_async(slot->lease, told_released, slot->watched, &error);
    sched_trace("release %s: %s", name_text(slot->name), mortise_status_name(status));
    check_release(call, slot, status, &error);
    slot->watched->released = true;
}

static void extend(struct slot *slot, int64_t ttl_ms)
{
    mortise_error error;
    slot->watched->in_time &= !may_extend_late();
    mortise_status status = mortise_extend(slot->lease, ttl_ms, &error);
    sched_trace("extend %s: %s", name_text(slot->name), mortise_status_name(status));
    check_status(CALL_EXTEND, status, slot->opened, &error);
}

static void downgrade(struct slot *slot)
{
    mortise_error error;
    if (!look(slot) || (name_permits(slot->name) > 0 && !slot->shared))
        return; /* a shared lease without permits would meet those that have them */
    if (!slot->owner)
        slot->shared = true; /* whatever the answer is, it writes no more */
    mortise_status status = mortise_downgrade(slot->lease, &error);
    sched_trace("downgrade %s: %s", name_text(slot->name), mortise_status_name(status));
    check_status(CALL_DOWNGRADE, status, slot->opened, &error);
    check_kept(slot->watched, status != MORTISE_LOST);
}

static void inspect(const struct worker *worker, const struct step *step)
{
    struct opened *opened = client_of(worker->process);
    mortise_info info = {.size = sizeof info};
    mortise_error error;
    mortise_status status = mortise_inspect(opened->handle, name_text(step->name), &info, &error);
    sched_trace("inspect %s: %s", name_text(step->name), mortise_status_name(status));
    check_status(CALL_QUERY, status, opened, &error);
}

/* ---- steps ---- */

static void use(struct slot *slot, const struct step *step)
{
    if (slot->state != SLOT_HOLDS)
        return;
    if (step->what == STEP_EXTEND)
        extend(slot, step->ttl_ms);
    else if (step->what == STEP_DOWNGRADE)
        downgrade(slot);
    else if (step->what == STEP_COUNT)
        add_one(slot, step->ms);
    else
        release(slot, step->what);
}

static void cancel(struct slot *slot)
{
    if (slot->state != SLOT_WAITS)
        return;
    mortise_error error;
    mortise_status status = mortise_cancel(slot->opened->handle, slot->request);
    sched_trace("cancel %s: %s", name_text(slot->name), mortise_status_name(status));
    error.message[0] = '\0';
    if (status != MORTISE_INVALID)
        check_status(CALL_NOWAIT, status, slot->opened, &error);
}

static void do_step(struct worker *worker, const struct step *step)
{
    struct slot *slot = &worker->slots[step->slot];
    bool empty = slot->state == SLOT_EMPTY;
    switch (step->what) {
    case STEP_ACQUIRE:
        if (empty)
            acquire(worker, slot, step);
        break;
    case STEP_ACQUIRE_ASYNC:
        if (empty)
            acquire_async(worker, slot, step);
        break;
    case STEP_ACQUIRE_MANY:
        acquire_many(worker, step);
        break;
    case STEP_CANCEL:
        cancel(slot);
        break;
    case STEP_AWAIT:
        await(slot, step->ms);
        break;
    case STEP_WORK:
        usleep((useconds_t)step->ms * 1000);
        break;
    case STEP_INSPECT:
        inspect(worker, step);
        break;
    case STEP_CLOSE:
        client_close(client_of(worker->process));
        break;
    case STEP_FORK:
        forks_try(client_of(worker->process), slot, name_text(step->name));
        break;
    default:
        use(slot, step);
    }
}

static void give_everything_back(struct worker *worker)
{
    for (int i = 0; i < PLAN_SLOTS; i++) {
        struct slot *slot = &worker->slots[i];
        cancel(slot);
        await(slot, -1);
        release(slot, STEP_RELEASE);
    }
}

/* What broke before may fail a call or two; the checker judges how long one may wait. */
static void acquire_surely(struct worker *worker, struct slot *slot, const struct step *step)
{
    int64_t until_ns = sched_now() + run_patience_ms() * NS_PER_MS;
    acquire(worker, slot, step);
    while (slot->state != SLOT_HOLDS) {
        if (sched_now() >= until_ns)
            sched_fail("%s was not had after the faults", name_text(step->name));
        usleep(50000);
        acquire(worker, slot, step);
    }
}

/* Once the faults have ended everybody gets every name, one after the other. */
static void finish(struct worker *worker)
{
    for (int i = 0; i < run_world.plan.names; i++) {
        struct step step = {.name = (worker->number + i) % run_world.plan.names,
                            .wait_ms = MORTISE_WAIT_FOREVER,
                            .ttl_ms = CALM_TTL_MS,
                            .callback = CALLBACK_NOTE};
        struct slot *slot = &worker->slots[0];
        acquire_surely(worker, slot, &step);
        add_one(slot, 5);
        release(slot, i % 2 ? STEP_RELEASE : STEP_RELEASE_NOWAIT);
    }
}

void *worker_main(void *argument)
{
    struct worker *worker = argument;
    const struct plan *plan = &run_world.plan;
    char name[24];
    snprintf(name, sizeof name, "worker%d", worker->number);
    sched_name_thread(name);
    for (int i = 0; i < plan->count; i++)
        if (plan->steps[i].worker == worker->number && !plan->steps[i].dropped)
            do_step(worker, &plan->steps[i]);
    give_everything_back(worker);
    worker->done_steps = true;
    while (!run_world.calm)
        usleep(50000);
    if (!(plan->no_end & 1u << worker->number))
        finish(worker);
    worker->done = true;
    return NULL;
}
