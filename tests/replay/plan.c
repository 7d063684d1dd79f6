/* plan.c - makes a plan from a seed, and prints it. See plan.h. */
#include "plan_draw.h"
#include "sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t state;

uint64_t plan_draw(uint64_t below)
{
    uint64_t x = state += UINT64_C(0x9E3779B97F4A7C15);
    x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
    return (x ^ (x >> 31)) % below;
}

/* What depends on the driver. */
struct part {
    void (*settings)(struct plan *plan);
    void (*add_step)(struct plan *plan); /* of the nemesis */
    void (*restrict_step)(const struct plan *plan, struct step *step);
};
static const struct part parts[PLAN_DRIVERS];

/* ---- workers ---- */

struct step *plan_add(struct plan *plan, int worker, enum plan_what what)
{
    if (plan->count == PLAN_STEPS)
        abort();
    struct step *step = &plan->steps[plan->count];
    *step = (struct step){.id = (unsigned)plan->count++, .worker = worker, .what = what};
    step->slot = (int)plan_draw(PLAN_SLOTS);
    step->name = (int)plan_draw((uint64_t)plan->names);
    return step;
}

static void choose_acquire(const struct plan *plan, struct step *step)
{
    static const enum plan_callback callbacks[] = {CALLBACK_NONE, CALLBACK_NONE, CALLBACK_NOTE,
                                                   CALLBACK_NOTE, CALLBACK_NOTE, CALLBACK_RELEASE,
                                                   CALLBACK_TRY,  CALLBACK_SLOW};
    step->wait_ms = PICK_MS(0, 0, 1, 20, 150, 700, 3000, 3000, -1, -1);
    step->ttl_ms = one_in(4) ? plan->ttl_ms * 2 : plan->ttl_ms;
    step->shared = plan_draw(10) < 3;
    step->owner = !step->shared && one_in(6);
    step->no_renew = one_in(8);
    step->max_hold_ms = one_in(10) ? PICK_MS(100, 500, 1500) : 0;
    step->callback = PICK(callbacks);
    if (one_in(60) && !plan->lasting)
        step->callback = CALLBACK_CLOSE;
    step->release_now = step->what == STEP_ACQUIRE_ASYNC && one_in(4);
    if (plan->readers && step->name != 2 && !one_in(5)) {
        step->shared = true;
        step->owner = step->no_renew = false;
        step->max_hold_ms = 0;
        step->ttl_ms = plan->ttl_ms;
    }
}

/* One lease after the other, so that somebody of the process always waits. */
static void add_turn(struct plan *plan, int worker)
{
    struct step *acquire = plan_add(plan, worker, STEP_ACQUIRE);
    acquire->slot = 0;
    acquire->wait_ms = 3000;
    acquire->ttl_ms = plan->ttl_ms;
    acquire->callback = CALLBACK_NOTE;
    struct step *work = plan_add(plan, worker, STEP_WORK);
    work->ms = PICK_MS(0, 5, 40, 200, 900);
    struct step *release = plan_add(plan, worker, STEP_RELEASE_NOWAIT);
    release->slot = 0;
}

/* A claim that is not renewed gets a longer ttl, and maybe a second one. */
static void add_extensions(struct plan *plan, int worker)
{
    struct step *acquire = plan_add(plan, worker, STEP_ACQUIRE);
    choose_acquire(plan, acquire);
    acquire->slot = 0;
    acquire->no_renew = true;
    parts[plan->driver].restrict_step(plan, acquire);
    for (int i = 1 + (int)plan_draw(2); i > 0; i--) {
        struct step *extend = plan_add(plan, worker, one_in(4) ? STEP_COUNT : STEP_EXTEND);
        extend->slot = 0;
        extend->ttl_ms = PICK_MS(100, 500, 2000, 5000);
        extend->ms = PICK_MS(0, 5, 200);
    }
    if (!one_in(3))
        plan_add(plan, worker, STEP_RELEASE)->slot = 0;
}

static void add_worker_step(struct plan *plan, int worker)
{
    if (plan->extends && one_in(2)) {
        add_extensions(plan, worker);
        return;
    }
    if (plan->turns && !one_in(6)) {
        add_turn(plan, worker);
        return;
    }
    static const enum plan_what whats[] = {
        STEP_ACQUIRE,       STEP_ACQUIRE,       STEP_ACQUIRE,        STEP_ACQUIRE,
        STEP_ACQUIRE,       STEP_ACQUIRE_ASYNC, STEP_ACQUIRE_ASYNC,  STEP_ACQUIRE_MANY,
        STEP_CANCEL,        STEP_AWAIT,         STEP_AWAIT,          STEP_RELEASE,
        STEP_RELEASE,       STEP_RELEASE,       STEP_RELEASE_NOWAIT, STEP_RELEASE_NOWAIT,
        STEP_RELEASE_ASYNC, STEP_EXTEND,        STEP_DOWNGRADE,      STEP_WORK,
        STEP_WORK,          STEP_COUNT,         STEP_COUNT,          STEP_COUNT,
        STEP_INSPECT};
    enum plan_what what = one_in(40) && !plan->lasting ? STEP_CLOSE : PICK(whats);
    struct step *step = plan_add(plan, worker, what);
    step->ms = PICK_MS(0, 0, 1, 5, 40, 200, 900);
    if (what == STEP_ACQUIRE || what == STEP_ACQUIRE_ASYNC || what == STEP_ACQUIRE_MANY)
        choose_acquire(plan, step);
    else if (what == STEP_EXTEND)
        step->ttl_ms = PICK_MS(0, 100, 500, 2000);
    parts[plan->driver].restrict_step(plan, step);
}

/* ---- the nemesis ---- */

static void choose_fault(const struct plan *plan, struct step *step)
{
    static const int fates[] = {SIM_REFUSE,          SIM_LOSE_REPLY, SIM_LOSE_REPLY,
                                SIM_GHOST,           SIM_GHOST,      SIM_SILENT,
                                SIM_SILENT_EXECUTED, SIM_PASS,       SIM_PASS};
    static const int refusals[] = {MORTISE_INDETERMINATE, MORTISE_UNREACHABLE, MORTISE_UNREACHABLE,
                                   MORTISE_BACKEND};
    static const uint32_t kinds[] = {SIM_OP(MORTISE_OP_ACQUIRE), SIM_OP(MORTISE_OP_ACQUIRE),
                                     SIM_OP(MORTISE_OP_RENEW), SIM_OP(MORTISE_OP_RELEASE),
                                     SIM_OP(MORTISE_OP_ACQUIRE) | SIM_OP(MORTISE_OP_RENEW) |
                                         SIM_OP(MORTISE_OP_RELEASE)};
    int64_t longest_ms = plan->lasting ? 3000 : plan->ttl_ms * 3 / 2;
    step->kinds = PICK(kinds);
    step->fate = PICK(fates);
    step->status = step->fate == SIM_REFUSE ? PICK(refusals) : MORTISE_INDETERMINATE;
    if (plan->lasting && step->status == MORTISE_BACKEND) /* it is not repeated */
        step->status = MORTISE_UNREACHABLE;
    if (step->kinds & SIM_OP(MORTISE_OP_ACQUIRE) &&
        (step->fate == SIM_SILENT || step->fate == SIM_SILENT_EXECUTED))
        step->fate = SIM_PASS; /* a driver answers an acquire some day: see the end of the faults */
    step->times = 1 + (int)plan_draw(4);
    step->request_ms = one_in(2) ? 0 : (int64_t)plan_draw((uint64_t)longest_ms);
    step->reply_ms = one_in(2) ? 0 : (int64_t)plan_draw((uint64_t)longest_ms);
    if (!one_in(8) && step->request_ms > plan->ttl_ms / 2)
        step->request_ms /= 3;
    step->hold_request = one_in(20);
    step->hold_reply = one_in(12);
    /* what is executed late cannot be recalled; and a driver that answers nothing answers a cancel */
    if (step->fate == SIM_GHOST || step->fate == SIM_SILENT || step->fate == SIM_SILENT_EXECUTED)
        return;
    step->on_cancel = one_in(2)   ? SIM_CANCEL_INDETERMINATE
                      : one_in(2) ? SIM_CANCEL_CLEAN
                                  : SIM_CANCEL_IGNORED;
}

/* The backend forgets, and for a while no renewal says so. */
static void add_doubt(struct plan *plan)
{
    struct step *slow = plan_add(plan, -1, STEP_FAULT);
    slow->kinds = SIM_OP(MORTISE_OP_RENEW);
    slow->fate = one_in(3) ? SIM_LOSE_REPLY : SIM_PASS;
    slow->status = MORTISE_INDETERMINATE;
    slow->times = 1 + (int)plan_draw(6);
    slow->reply_ms = 300 + (int64_t)plan_draw((uint64_t)plan->ttl_ms);
    plan_add(plan, -1, STEP_LOSE);
    struct step *pause = plan_add(plan, -1, STEP_PAUSE);
    pause->ms = PICK_MS(200, 700, 1500);
}

static void add_nemesis_step(struct plan *plan)
{
    if (plan->doubts && one_in(3)) {
        add_doubt(plan);
        return;
    }
    static const enum plan_what whats[] = {STEP_FAULT, STEP_FAULT, STEP_FAULT, STEP_FAULT,
                                           STEP_NEWS,  STEP_DEAF,  STEP_DOUBT, STEP_DOUBT,
                                           STEP_WALL,  STEP_STOP};
    enum plan_what what = PICK(whats);
    if (plan->processes > 1 && one_in(20) && !plan->lasting)
        what = STEP_KILL;
    if (plan->losses && one_in(5))
        what = STEP_LOSE;
    struct step *step = plan_add(plan, -1, what);
    step->process = 1 + (int)plan_draw((uint64_t)plan->processes);
    step->ms = PICK_MS(0, 5, 50, 300, 1500);
    if (what == STEP_FAULT)
        choose_fault(plan, step);
    else if (what == STEP_STOP)
        step->ms = (int64_t)plan_draw(plan->lasting ? 3000 : (uint64_t)plan->ttl_ms * 2);
    else if (what == STEP_WALL)
        step->ms = PICK_MS(-86400000, -3600000, 3600000, 86400000);
    struct step *pause = plan_add(plan, -1, STEP_PAUSE);
    pause->ms = PICK_MS(0, 1, 10, 50, 200, 700);
}

/* ---- settings ---- */

static void choose_schedule(struct plan *plan)
{
    static const uint32_t rates[] = {4, 8, 16, 32, 64, 256};
    static const uint32_t changes[] = {50, 200, 1000, 5000};
    static const int64_t jitters[] = {0, 200, 2000, 20000};
    state = plan->schedule * UINT64_C(0xA24BAED4963EE407) + 7;
    plan->switch_one_in = one_in(2) ? 0 : PICK(rates);
    plan->change_one_in = PICK(changes);
    plan->jitter_ns = PICK(jitters);
    plan->spurious_one_in = one_in(2) ? 0 : 32;
    plan->stall_one_in = plan->stalls ? 2000 : 0;
    plan->stall_ms = one_in(2) ? 250 : plan->lasting ? 2000 : plan->ttl_ms * 2;
}

static void choose_doubts(struct plan *plan)
{
    plan->doubts = plan->turns = true;
    plan->names = 1;
    plan->ttl_ms = 3000;
    plan->latency_ms = PICK_MS(0, 0, 5);
    plan->handover_window_ms = PICK_MS(1000, 10000);
    plan->handover_max = 64;
}

static void sim_settings(struct plan *plan)
{
    if (plan->losses && one_in(2))
        choose_doubts(plan);
}

static void restrict_nothing(const struct plan *plan, struct step *step)
{
    (void)plan;
    (void)step;
}

static const struct part parts[PLAN_DRIVERS] = {
    [PLAN_SIM] = {sim_settings, add_nemesis_step, restrict_nothing},
    [PLAN_REDIS] = {plan_net_settings, plan_net_step, plan_net_restrict},
    [PLAN_REDLOCK] = {plan_net_settings, plan_net_step, plan_net_restrict},
    [PLAN_FAILOVER] = {plan_failover_settings, plan_failover_step, plan_net_restrict},
    [PLAN_FORGETS] = {plan_failover_settings, plan_failover_step, plan_net_restrict},
    [PLAN_SQLITE] = {plan_disk_settings, plan_disk_step, restrict_nothing}};

static void choose_readers(struct plan *plan)
{
    plan->readers = true;
    plan->names = 1;
    plan->turns = false;
    plan->handover_window_ms = PICK_MS(1000, 10000);
    plan->handover_max = 64;
}

/* The core passes nothing on, so each release takes the next caller along. */
static void choose_strict_order(struct plan *plan)
{
    plan->names = 1;
    plan->turns = true;
    plan->handover_max = 0;
    plan->queue = true;
    plan->layout = LAYOUT_STRING;
}

/* A lease that was handed over is held for several ttls: it must be renewed like any other. */
static void choose_long_holds(struct plan *plan)
{
    plan->names = 1;
    plan->turns = true;
    plan->lasting = false;
    plan->ttl_ms = 300;
    plan->handover_window_ms = 1000;
    plan->handover_max = 64;
}

/* A part of the seeds is for what few of the other plans reach. These numbers are drawn apart: so the plans of the other seeds
 * are what they were before. */
static void choose_theme(struct plan *plan)
{
    uint64_t before = state;
    state = plan->seed * UINT64_C(0xBF58476D1CE4E5B9) + 11;
    uint64_t theme = plan_draw(20);
    bool redis = plan->driver == PLAN_REDIS || plan->driver == PLAN_FAILOVER;
    if (theme < 2 && plan->layout != LAYOUT_WATCH)
        choose_readers(plan);
    else if (theme == 2 && plan->driver != PLAN_FORGETS)
        plan->extends = true;
    else if (theme < 6 && redis && !plan->losses)
        choose_strict_order(plan);
    else if (theme >= 14 && plan->driver == PLAN_SIM && !plan->faults)
        choose_long_holds(plan);
    else if (theme >= 14 && plan->driver == PLAN_REDIS && !plan->faults)
        plan->no_end = (1u << plan->workers) - 1; /* who came later would clear the queues */
    state = before;
}

static void choose_settings(struct plan *plan)
{
    plan->processes = 1 + (int)plan_draw(3);
    plan->names = 1 + (int)plan_draw(PLAN_NAMES);
    for (int p = 1; p <= plan->processes; p++) {
        int workers = 1 + (int)plan_draw(plan->processes > 2 ? 2 : 3);
        plan->dispatches[p] = one_in(5);
        for (int i = 0; i < workers && plan->workers < PLAN_WORKERS; i++)
            plan->process_of[plan->workers++] = p;
    }
    plan->notify = !one_in(6);
    plan->queue = one_in(4);
    plan->log = one_in(6);
    plan->latency_ms = PICK_MS(0, 0, 1, 5, 30);
    plan->ttl_ms = PICK_MS(300, 1000, 1000, 3000);
    plan->handover_window_ms = PICK_MS(0, 50, 50, 1000);
    plan->handover_max = PICK_MS(0, 2, 64);
    plan->unreachable_ms = PICK_MS(500, 3000, 10000);
    plan->close_ms = PICK_MS(200, 1000, 5000);
    plan->faults = !one_in(5);
    plan->stalls = plan->faults && one_in(3);
    plan->losses = plan->faults && !plan->stalls && one_in(4);
    plan->lasting = !plan->losses && one_in(4);
    if (plan->lasting)
        plan->ttl_ms = 30000;
    parts[plan->driver].settings(plan);
    choose_theme(plan);
}

void plan_reschedule(struct plan *plan, uint64_t schedule)
{
    plan->schedule = schedule;
    choose_schedule(plan);
}

void plan_make(struct plan *plan, enum plan_driver driver, uint64_t seed, uint64_t schedule)
{
    memset(plan, 0, sizeof *plan);
    plan->driver = driver;
    plan->seed = seed;
    plan->schedule = schedule ? schedule : seed;
    state = seed * UINT64_C(0xD6E8FEB86659FD93) + 3;
    choose_settings(plan);
    for (int worker = 0; worker < plan->workers; worker++) {
        int count = 4 + (int)plan_draw(14);
        for (int i = 0; i < count; i++)
            add_worker_step(plan, worker);
    }
    int count = plan->faults ? (int)plan_draw(16) : 0;
    for (int i = 0; i < count; i++)
        parts[plan->driver].add_step(plan);
    choose_schedule(plan);
}

bool plan_has_late_requests(const struct plan *plan)
{
    for (int i = 0; i < plan->count; i++) {
        const struct step *step = &plan->steps[i];
        if (step->what == STEP_FAULT && !step->dropped &&
            step->kinds & SIM_OP(MORTISE_OP_ACQUIRE) &&
            (step->hold_request || step->request_ms * 5 > plan->ttl_ms * 4))
            return true;
    }
    return false;
}

bool plan_is_slow(const struct plan *plan, int64_t ms)
{
    return ms <= 40 * plan->latency_ms;
}

/* ---- text ---- */

static const char *const words[] = {
#define WHAT_WORD(name, word) word,
    PLAN_WHAT_MAP(WHAT_WORD)
#undef WHAT_WORD
};

static int fault_text(const struct step *step, char *text, size_t size)
{
    static const char *const fates[] = {"pass",  "refuse", "lose-reply",
                                        "ghost", "silent", "silent-executed"};
    static const char *const cancels[] = {"indeterminate", "clean", "ignored"};
    return snprintf(
        text, size, "%s%s%s %d times: %s %s, request %lld ms%s, reply %lld ms%s, cancel %s",
        step->kinds & SIM_OP(MORTISE_OP_ACQUIRE) ? " acquire" : "",
        step->kinds & SIM_OP(MORTISE_OP_RENEW) ? " renew" : "",
        step->kinds & SIM_OP(MORTISE_OP_RELEASE) ? " release" : "", step->times, fates[step->fate],
        mortise_status_name((mortise_status)step->status), (long long)step->request_ms,
        step->hold_request ? " (held)" : "", (long long)step->reply_ms,
        step->hold_reply ? " (held)" : "", cancels[step->on_cancel]);
}

static int acquire_text(const struct step *step, char *text, size_t size)
{
    static const char *const callbacks[] = {"",
                                            " callback=note",
                                            " callback=release",
                                            " callback=try",
                                            " callback=close",
                                            " callback=slow"};
    return snprintf(text, size, " %c slot=%d wait=%lld ttl=%lld%s%s%s%s%s", 'a' + step->name,
                    step->slot, (long long)step->wait_ms, (long long)step->ttl_ms,
                    step->shared ? " shared" : "", step->owner ? " owner" : "",
                    step->no_renew ? " no-renew" : "", step->max_hold_ms ? " max-hold" : "",
                    callbacks[step->callback]);
}

char *plan_step_text(const struct step *step, char *text, size_t size)
{
    int used = snprintf(text, size, "%s", words[step->what]);
    if (step->what <= STEP_ACQUIRE_MANY)
        acquire_text(step, text + used, size - (size_t)used);
    else if (step->what == STEP_FAULT)
        fault_text(step, text + used, size - (size_t)used);
    else if (step->what < STEP_FAULT)
        snprintf(text + used, size - (size_t)used, " slot=%d ms=%lld", step->slot,
                 (long long)(step->what == STEP_EXTEND ? step->ttl_ms : step->ms));
    else if (step->what >= STEP_CUT)
        snprintf(text + used, size - (size_t)used, " process=%d server=%d ways=%u ms=%lld",
                 step->process, step->server, step->ways, (long long)step->ms);
    else
        snprintf(text + used, size - (size_t)used, " process=%d ms=%lld", step->process,
                 (long long)step->ms);
    return text;
}

void plan_print(const struct plan *plan)
{
    char text[256];
    printf("plan %llu, schedule %llu: %d processes, %d workers, %d names; notify=%d queue=%d "
           "latency=%lld "
           "ttl=%lld window=%lld max=%lld unreachable=%lld close=%lld; ",
           (unsigned long long)plan->seed, (unsigned long long)plan->schedule, plan->processes,
           plan->workers, plan->names, plan->notify, plan->queue, (long long)plan->latency_ms,
           (long long)plan->ttl_ms, (long long)plan->handover_window_ms,
           (long long)plan->handover_max, (long long)plan->unreachable_ms,
           (long long)plan->close_ms);
    if (plan->driver == PLAN_SQLITE)
        printf("flushes=%d slow=%lld ms busy=%lld reserve=%lld; ", plan->flushes,
               (long long)plan->slow_ms, (long long)plan->command_timeout_ms,
               (long long)plan->reserve_ms);
    else if (plan->driver != PLAN_SIM)
        printf("servers=%d layout=%d slow=1/%u %lld ms split=1/%u command=%lld connect=%lld "
               "keeps=%d no-kill=%d; ",
               plan->servers, (int)plan->layout, plan->slow_one_in, (long long)plan->slow_ms,
               plan->split_one_in, (long long)plan->command_timeout_ms,
               (long long)plan->connect_timeout_ms, plan->keeps_data, plan->no_kill);
    printf("switch 1/%u change 1/%u jitter %lld ns stall 1/%u spurious 1/%u\n", plan->switch_one_in,
           plan->change_one_in, (long long)plan->jitter_ns, plan->stall_one_in,
           plan->spurious_one_in);
    for (int i = 0; i < plan->count; i++) {
        const struct step *step = &plan->steps[i];
        if (step->dropped)
            continue;
        if (step->worker < 0)
            printf("%4u nemesis   ", step->id);
        else
            printf("%4u p%d worker%d", step->id, plan->process_of[step->worker], step->worker);
        printf("  %s\n", plan_step_text(step, text, sizeof text));
    }
}

bool plan_keep(struct plan *plan, const char *list)
{
    for (int i = 0; i < plan->count; i++)
        plan->steps[i].dropped = true;
    while (*list) {
        char *end;
        long from = strtol(list, &end, 10), to = from;
        if (end == list)
            return false;
        if (*end == '-')
            to = strtol(end + 1, &end, 10);
        for (long i = from; i <= to && i >= 0 && i < plan->count; i++)
            plan->steps[i].dropped = false;
        list = *end == ',' ? end + 1 : end;
        if (*end != ',' && *end != '\0')
            return false;
    }
    return true;
}
