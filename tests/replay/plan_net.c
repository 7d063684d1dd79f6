/* plan_net.c - plans for drivers that have servers and a network. See plan.h.
 *
 * A plan keeps to what the driver promises. With redis: unless the plan has losses, the server keeps its data when it is
 * killed, and its clock never jumps forward. With redlock: nodes may forget (node_persistent = no). */
#include "plan_draw.h"

/* Nodes may have clocks that differ and drift. If they forget, tokens follow their clocks. */
static void choose_nodes(struct plan *plan)
{
    plan->servers = one_in(3) ? 5 : 3;
    plan->losses = false;
    plan->keeps_data = !one_in(3);
    for (int s = 0; s < plan->servers; s++) {
        plan->wall_offset_ms[s] = plan->keeps_data ? PICK_MS(0, -300, 300, 2000, 3600000) : 0;
        plan->drift_ppm[s] = PICK_MS(0, -4000, 4000);
    }
}

void plan_net_settings(struct plan *plan)
{
    static const enum plan_layout layouts[] = {LAYOUT_STRING, LAYOUT_STRING, LAYOUT_HASH,
                                               LAYOUT_HASH, LAYOUT_WATCH};
    plan->layout = plan->driver == PLAN_REDLOCK ? LAYOUT_STRING : PICK(layouts);
    plan->queue = plan->driver != PLAN_REDLOCK && plan->layout != LAYOUT_WATCH && !one_in(3);
    plan->servers = 1;
    plan->ttl_ms = plan->lasting ? 30000 : PICK_MS(1000, 1000, 3000);
    plan->keeps_data = !plan->losses;
    if (plan->driver == PLAN_REDLOCK)
        choose_nodes(plan);
    plan->late = plan->faults && one_in(4);
    plan->no_kill = plan->late && one_in(2);
    plan->latency_ms = PICK_MS(1, 1, 1, 5, 30);
    plan->slow_one_in = plan->faults ? (uint32_t)PICK_MS(0, 0, 100, 20) : 0;
    plan->slow_ms = PICK_MS(50, 1000, 5000);
    plan->split_one_in = (uint32_t)PICK_MS(0, 10, 100);
    plan->command_timeout_ms = PICK_MS(300, 1000, 3000);
    plan->connect_timeout_ms = PICK_MS(300, 1000, 3000);
    if (plan->late) {
        plan->names = 1;
        plan->turns = true;
        plan->command_timeout_ms = 300;
        plan->ttl_ms = plan->lasting ? 30000 : 3000;
    }
}

void plan_net_restrict(const struct plan *plan, struct step *step)
{
    if (one_in(40))
        step->what = STEP_FORK;
    if (plan->layout != LAYOUT_HASH)
        step->owner = false;
    if (plan->layout == LAYOUT_WATCH || plan->driver == PLAN_REDLOCK) /* no permits */
        step->shared &= plan->layout != LAYOUT_WATCH && step->name != 2;
    if (plan->layout == LAYOUT_WATCH && step->what == STEP_DOWNGRADE)
        step->what = STEP_COUNT;
}

/* There are always faults. A server that is killed has nothing, and gets all from the other one. */
void plan_failover_settings(struct plan *plan)
{
    plan->faults = true;
    plan->stalls = plan->losses = false;
    plan_net_settings(plan);
    plan->servers = 2;
    plan->replica = true;
    plan->min_replicas = plan->driver == PLAN_FAILOVER ? 1 : 0;
    plan->keeps_data = false;
    plan->no_kill = plan->late = false;
}

static void choose_jump(const struct plan *plan, struct step *step)
{
    step->ms = plan->losses ? PICK_MS(100, 1000, 5000, 3600000) : -PICK_MS(1, 100, 500, 2000);
}

void plan_net_step(struct plan *plan)
{
    static const enum plan_what whats[] = {
        STEP_CUT,         STEP_CUT,     STEP_CUT,   STEP_CUT,         STEP_CUT_ALL,
        STEP_CUT_ALL,     STEP_BLOCK,   STEP_BLOCK, STEP_BLOCK,       STEP_SERVER_STOP,
        STEP_RESTART,     STEP_RESTART, STEP_FLUSH, STEP_SERVER_WALL, STEP_HANGUP,
        STEP_SERVER_STOP, STEP_HOLD,    STEP_HOLD,  STEP_HOLD,        STEP_HOLD};
    enum plan_what what = one_in(6) ? (one_in(2) ? STEP_STOP : STEP_WALL) : PICK(whats);
    if (what == STEP_SERVER_WALL && !plan->losses && !plan->keeps_data)
        what = STEP_CUT; /* its tokens may follow its clock */
    if (plan->late && one_in(3))
        what = STEP_HOLD;
    if (plan->processes > 1 && one_in(20) && !plan->lasting)
        what = STEP_KILL;
    struct step *step = plan_add(plan, -1, what);
    step->process = 1 + (int)plan_draw((uint64_t)plan->processes);
    step->server = (int)plan_draw((uint64_t)plan->servers);
    step->ms = PICK_MS(0, 5, 50, 300, 1500);
    step->ways = 1 + (unsigned)plan_draw(3);
    if (what == STEP_HOLD) {
        step->ms = 200 + (int64_t)plan_draw(plan->late ? 2500 : 6000);
        step->server = one_in(2) ? -1 : step->server;
    } else if (what == STEP_STOP || what == STEP_BLOCK || what == STEP_SERVER_STOP)
        step->ms = (int64_t)plan_draw(plan->lasting ? 5000 : (uint64_t)plan->ttl_ms * 2);
    else if (what == STEP_WALL)
        step->ms = PICK_MS(-86400000, -3600000, 3600000, 86400000);
    else if (what == STEP_SERVER_WALL)
        choose_jump(plan, step);
    struct step *pause = plan_add(plan, -1, STEP_PAUSE);
    pause->ms = PICK_MS(0, 1, 10, 50, 200, 700);
}

/* The link is blocked for longer than a failover takes, so that the replica lacks what is new. */
static void add_failover(struct plan *plan)
{
    if (!one_in(3)) {
        struct step *block = plan_add(plan, -1, STEP_LINK_BLOCK);
        block->ms = PICK_MS(50, 500, 2000);
        block->ways = 1 + (unsigned)plan_draw(3);
        struct step *pause = plan_add(plan, -1, STEP_PAUSE);
        pause->ms = PICK_MS(1, 10, 100, 500);
    }
    struct step *failover = plan_add(plan, -1, STEP_FAILOVER);
    failover->ms = PICK_MS(0, 20, 300, 1500);
    failover->ways = 1 + (unsigned)plan_draw(3);
    struct step *pause = plan_add(plan, -1, STEP_PAUSE);
    pause->ms = PICK_MS(0, 10, 200, 1500);
}

void plan_failover_step(struct plan *plan)
{
    static const enum plan_what whats[] = {
        STEP_CUT,  STEP_CUT_ALL, STEP_BLOCK,      STEP_SERVER_STOP, STEP_FLUSH, STEP_HANGUP,
        STEP_HOLD, STEP_HOLD,    STEP_LINK_BLOCK, STEP_LINK_CUT,    STEP_STOP};
    if (one_in(4)) {
        add_failover(plan);
        return;
    }
    struct step *step = plan_add(plan, -1, PICK(whats));
    step->process = 1 + (int)plan_draw((uint64_t)plan->processes);
    step->server = (int)plan_draw((uint64_t)plan->servers);
    step->ways = 1 + (unsigned)plan_draw(3);
    step->ms = (int64_t)plan_draw(plan->lasting ? 5000 : (uint64_t)plan->ttl_ms);
    struct step *pause = plan_add(plan, -1, STEP_PAUSE);
    pause->ms = PICK_MS(0, 1, 10, 50, 200, 700);
}
