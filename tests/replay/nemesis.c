/* nemesis.c - causes the faults of the plan, and repairs everything at the end. Runs on thread 0, in a process of its
 * own. */
#include "backend.h"
#include "calls.h"
#include "world.h"

#include <unistd.h>

void nemesis_end_faults(void)
{
    run_world.backend->end_faults();
}

static void cause(const struct step *step)
{
    char text[256];
    sched_trace("%s", plan_step_text(step, text, sizeof text));
    switch (step->what) {
    case STEP_STOP:
        run_world.stopped_ns = sched_now() + step->ms * NS_PER_MS;
        record_stopped(step->process, run_world.stopped_ns);
        sched_stop(step->process, run_world.stopped_ns);
        break;
    case STEP_KILL:
        sched_kill(step->process);
        break;
    case STEP_WALL:
        calls_set_wall(step->process, step->ms * NS_PER_MS);
        break;
    case STEP_PAUSE:
        usleep((useconds_t)step->ms * 1000);
        break;
    default:
        run_world.backend->cause(step);
    }
}

void nemesis_run(void)
{
    const struct plan *plan = &run_world.plan;
    for (int i = 0; i < plan->count; i++)
        if (plan->steps[i].worker < 0 && !plan->steps[i].dropped)
            cause(&plan->steps[i]);
    usleep(100000);
}

void nemesis_calm(void)
{
    sched_end_stalls();
    for (int p = 1; p <= run_world.plan.processes; p++)
        while (sched_is_dying(p))
            usleep(1000);
    run_world.backend->calm();
    run_world.calm = true;
    record_calm();
    sched_trace("calm");
}
