/* backend_sqlite.c - the driver sqlite: one file, and a copy of the driver and of its library for each process of the run
 * (calls_disk.c says why). */
#include "backend.h"
#include "calls.h"
#include "world.h"

#include <unistd.h>

static struct calls_disk_faults faults;

static void loaded(void *library)
{
    (void)library;
}

static void write_section(FILE *config)
{
    const struct plan *plan = &run_world.plan;
    fprintf(
        config,
        "[sqlite]\npath = %s/locks.db\nsynchronous = %s\nbusy_timeout = %lldms\nreserve = %lldms\n",
        run_world.folder, plan->flushes ? "full" : "normal", (long long)plan->command_timeout_ms,
        (long long)plan->reserve_ms);
}

static void begin(void)
{
    faults = (struct calls_disk_faults){.flush_ns = run_world.plan.latency_ms * NS_PER_MS / 4};
    calls_disk_set(&faults);
    calls_disk_begin();
}

static void cause(const struct step *step)
{
    int64_t until_ns = sched_now() + step->ms * NS_PER_MS;
    switch (step->what) {
    case STEP_DISK_SLOW:
        faults.slow_until_ns = until_ns;
        faults.slow_ns = run_world.plan.slow_ms * NS_PER_MS;
        break;
    case STEP_DISK_FULL:
        faults.full_until_ns = until_ns;
        break;
    default: /* BAD */
        faults.bad_until_ns = until_ns;
        faults.bad_one_in = 1u << step->ways;
    }
    calls_disk_set(&faults);
}

static void end_faults(void)
{
    faults.slow_until_ns = faults.full_until_ns = faults.bad_until_ns = 0;
    calls_disk_set(&faults);
}

static void check_left(int claims, int waiters)
{
    if (claims > 0 || waiters > 0)
        sched_fail("left in the file: %d claims, %d waiters", claims, waiters);
}

/* A process that is killed before it tells a waiter leaves it to look by itself, after ten seconds at most. If none was
 * killed, the replay must find a waiter that nobody tells: so the limit is below ten seconds. */
static int64_t patience_ms(void)
{
    for (int p = 1; p <= run_world.plan.processes; p++)
        if (sched_is_killed(p))
            return 10000 + run_world.plan.command_timeout_ms;
    return 0;
}

static void nothing(void)
{
}

const struct backend backend_sqlite = {.name = "sqlite",
                                       .module = "sqlite",
                                       .copies = true,
                                       .loaded = loaded,
                                       .write_section = write_section,
                                       .begin = begin,
                                       .cause = cause,
                                       .end_faults = end_faults,
                                       .calm = end_faults,
                                       .process_killed = calls_disk_end_process,
                                       .check_left = check_left,
                                       .patience_ms = patience_ms,
                                       .end = nothing};
