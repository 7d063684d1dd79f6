/* plan_disk.c - plans for the driver whose backend is a file. See plan.h. */
#include "plan_draw.h"

void plan_disk_settings(struct plan *plan)
{
    plan->losses = false;
    plan->queue = false;
    plan->ttl_ms = plan->lasting ? 30000 : PICK_MS(1000, 1000, 3000);
    plan->latency_ms = PICK_MS(0, 0, 4, 40); /* of four flushes */
    plan->flushes = one_in(2);
    plan->slow_ms = PICK_MS(20, 200, 2000);
    plan->command_timeout_ms = PICK_MS(200, 1000, 5000);
    plan->reserve_ms = PICK_MS(0, 20, 20, 300);
    plan->turns = one_in(3);
}

void plan_disk_step(struct plan *plan)
{
    static const enum plan_what whats[] = {STEP_DISK_SLOW, STEP_DISK_SLOW, STEP_DISK_FULL,
                                           STEP_DISK_BAD,  STEP_STOP,      STEP_STOP,
                                           STEP_STOP,      STEP_KILL,      STEP_WALL};
    enum plan_what what = PICK(whats);
    if (what == STEP_KILL && (plan->processes == 1 || plan->lasting))
        what = STEP_STOP;
    struct step *step = plan_add(plan, -1, what);
    step->process = 1 + (int)plan_draw((uint64_t)plan->processes);
    step->ms = PICK_MS(5, 50, 300, 1500);
    step->ways = 1 + (unsigned)plan_draw(6); /* BAD: one call in 2 to 64 fails */
    if (what == STEP_STOP)
        step->ms = (int64_t)plan_draw(plan->lasting ? 5000 : (uint64_t)plan->ttl_ms * 2);
    else if (what == STEP_WALL)
        step->ms = PICK_MS(-86400000, -3600000, 3600000, 86400000);
    struct step *pause = plan_add(plan, -1, STEP_PAUSE);
    pause->ms = PICK_MS(0, 1, 10, 50, 200, 700);
}
