/* nemesis.c - causes the faults of the plan, and repairs everything at the end. Runs on thread 0, in a process of its
 * own. */
#include "calls.h"
#include "world.h"

#include <unistd.h>

static int rules;

/* What is held arrives, and nothing more is disturbed. Again and again: a reply may be held only after its request was. */
void nemesis_end_faults(void)
{
    for (int rule = 1; rule <= rules; rule++) {
        run_world.sim->end(rule);
        run_world.sim->let_go(rule);
    }
}

static void make_fault(const struct step *step)
{
    rules = run_world.sim->script(&(sim_rule){.kinds = step->kinds,
                                              .times = (unsigned)step->times,
                                              .fate = (sim_fate)step->fate,
                                              .status = (mortise_status)step->status,
                                              .request_ns = step->request_ms * NS_PER_MS,
                                              .reply_ns = step->reply_ms * NS_PER_MS,
                                              .hold_request = step->hold_request,
                                              .hold_reply = step->hold_reply,
                                              .on_cancel = (sim_on_cancel)step->on_cancel});
}

static void cause(const struct step *step)
{
    const sim_api *sim = run_world.sim;
    char text[256];
    sched_trace("%s", plan_step_text(step, text, sizeof text));
    switch (step->what) {
    case STEP_FAULT:
        make_fault(step);
        break;
    case STEP_NEWS:
        sim->news_all();
        break;
    case STEP_DEAF:
        sim->deaf(true);
        usleep((useconds_t)step->ms * 1000);
        sim->deaf(false);
        sim->news_all(); /* as a driver does when its connection is back */
        break;
    case STEP_DOUBT:
        sim->doubt_all();
        break;
    case STEP_LOSE: /* as after a failover to a server that has not got them */
        sim->lose_all();
        run_world.lost_ns = sched_now();
        sim->doubt_all();
        break;
    case STEP_STOP:
        run_world.stopped_ns = sched_now() + step->ms * NS_PER_MS;
        sched_stop(step->process, sched_now() + step->ms * NS_PER_MS);
        break;
    case STEP_KILL:
        sched_kill(step->process);
        break;
    case STEP_WALL:
        calls_set_wall(step->process, step->ms * NS_PER_MS);
        break;
    default:
        usleep((useconds_t)step->ms * 1000);
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
    run_world.sim->news_all();
    run_world.calm = true;
    record_calm();
    sched_trace("calm");
}
