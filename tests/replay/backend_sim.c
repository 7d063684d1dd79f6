/* backend_sim.c - the driver in memory (tests/sim), whose rules delay and lose requests and replies. */
#include "backend.h"
#include "world.h"

#include <dlfcn.h>
#include <unistd.h>

static const sim_api *sim;
static int rules;

static void loaded(void *library)
{
    sim = (const sim_api *)dlsym(library, SIM_API_SYMBOL);
}

static void write_section(FILE *config)
{
    const struct plan *plan = &run_world.plan;
    fprintf(config, "[sim]\nnotify = %s\nqueue = %s\nlatency = %lldms\n",
            plan->notify ? "yes" : "no", plan->queue ? "yes" : "no", (long long)plan->latency_ms);
}

static void nothing(void)
{
}

static void make_fault(const struct step *step)
{
    rules = sim->script(&(sim_rule){.kinds = step->kinds,
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
    default: /* LOSE, as after a failover to a server that has not got them */
        sim->lose_all();
        run_world.lost_ns = sched_now();
        sim->doubt_all();
    }
}

/* Again and again: a reply may be held only after its request was. */
static void end_faults(void)
{
    for (int rule = 1; rule <= rules; rule++) {
        sim->end(rule);
        sim->let_go(rule);
    }
}

static void calm(void)
{
    sim->news_all();
}

static void process_killed(int process)
{
    (void)process;
}

static bool holds(int name, uint64_t token)
{
    return sim->holds(name_text(name), token);
}

static void check_left(int claims, int waiters)
{
    (void)waiters; /* those of all names are known here */
    if ((claims > 0 && !plan_has_late_requests(&run_world.plan)) || sim->waiters(NULL) > 0 ||
        sim->outstanding() > 0)
        sched_fail("left in the backend: %d claims, %zu waiters, %zu requests", claims,
                   sim->waiters(NULL), sim->outstanding());
}

/* The queue of the sim looks at the claim of a process that was killed when the claim before would have expired. */
static int64_t patience_ms(void)
{
    return 0;
}

const struct backend backend_sim = {.name = "sim",
                                    .module = "sim",
                                    .shares_memory = true,
                                    .loaded = loaded,
                                    .write_section = write_section,
                                    .begin = nothing,
                                    .cause = cause,
                                    .end_faults = end_faults,
                                    .calm = calm,
                                    .process_killed = process_killed,
                                    .holds = holds,
                                    .check_left = check_left,
                                    .patience_ms = patience_ms,
                                    .end = nothing};
