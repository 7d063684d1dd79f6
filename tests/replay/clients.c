/* clients.c - opens and closes the client of a process, and dispatches for it if the plan says so. */
#include "world.h"

#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

struct world run_world;

/* ---- a program with an event loop ---- */

static void *dispatch(void *argument)
{
    struct opened *opened = argument;
    sched_name_thread("dispatcher");
    int hurried = 0; /* a close that did not end is repeated at the end of the run, perhaps a minute later */
    while (!opened->ended) {
        struct pollfd ready = {.fd = opened->fd, .events = POLLIN};
        poll(&ready, 1, opened->closing && hurried++ < 500 ? 1 : 200);
        int count = opened->ended ? MORTISE_CLOSED : mortise_dispatch(opened->handle);
        if (count == MORTISE_CLOSED)
            break;
        if (count == 0) /* the descriptor may be ready for a thread that stands still */
            usleep(1000);
    }
    return NULL;
}

/* ---- opening ---- */

/* Three processes open the file at once, and one of them waits no longer than command_timeout for the lock. */
static bool may_find_it_locked(const struct plan *plan)
{
    return plan->driver == PLAN_SQLITE && plan_is_slow(plan, plan->command_timeout_ms);
}

/* A backend that is looked for when the client is opened may be away then. */
static mortise_client *open_handle(int process)
{
    char config[300];
    mortise_client *handle;
    mortise_error error;
    mortise_status status;
    run_config_of(process, config, sizeof config);
    while ((status = mortise_open(config, &handle, &error)) != MORTISE_OK) {
        bool away = status == MORTISE_UNREACHABLE || status == MORTISE_BACKEND;
        bool locked = status == MORTISE_UNREACHABLE && may_find_it_locked(&run_world.plan);
        if (!locked && (!away || !run_world.may_be_away || run_world.calm))
            sched_fail("mortise_open: %s", error.message);
        sched_trace("open: %s", mortise_status_name(status));
        usleep(20000);
    }
    return handle;
}

static struct opened *open_client(int process)
{
    struct opened *opened = calloc(1, sizeof *opened);
    pthread_t thread;
    opened->handle = open_handle(process);
    opened->process = process;
    opened->dispatches = run_world.plan.dispatches[process];
    sched_trace("the client is open");
    if (!opened->dispatches)
        return opened;
    opened->fd = mortise_fd(opened->handle, NULL);
    if (opened->fd < 0)
        sched_fail("mortise_fd() fails");
    pthread_create(&thread, NULL, dispatch, opened);
    pthread_detach(thread);
    return opened;
}

struct opened *client_of(int process)
{
    struct process *it = &run_world.processes[process];
    pthread_mutex_lock(&it->lock);
    if (it->opened == NULL) {
        it->opened = open_client(process);
        it->count++;
    }
    struct opened *opened = it->opened;
    pthread_mutex_unlock(&it->lock);
    return opened;
}

/* ---- closing ---- */

/* How long a close may take that nobody disturbs: its own time-out several times over, and the seconds that a module which is
 * stuck is waited for. */
static void check_time(const struct plan *plan, int64_t took_ns)
{
    if (!plan->stalls && took_ns > (plan->close_ms * 4 + 20000) * NS_PER_MS)
        sched_fail("mortise_close() took %lld ms", (long long)(took_ns / NS_PER_MS));
}

/* In a callback of the client itself it may return CLOSING; then the client ends behind the callback. */
void client_close(struct opened *opened)
{
    const struct plan *plan = &run_world.plan;
    struct process *it = &run_world.processes[opened->process];
    mortise_error error;
    opened->closing = true;
    it->closers++;
    sched_trace("closes the client");
    for (int tries = 0; tries < 20; tries++) {
        int64_t before_ns = sched_now();
        mortise_status status = mortise_close(opened->handle, &error);
        sched_trace("close: %s", mortise_status_name(status));
        check_time(plan, sched_now() - before_ns);
        if (status == MORTISE_OK || status == MORTISE_UNREACHABLE) {
            if (status != MORTISE_OK && !run_world.may_be_away && plan->latency_ms < plan->close_ms)
                sched_fail("mortise_close() fails without any fault: %s", error.message);
            run_world.all_clean &= status == MORTISE_OK;
            run_world.stuck |= status != MORTISE_OK;
            opened->ended = true;
            opened->closer = sched_thread();
            break;
        }
        if (status == MORTISE_CLOSED)
            break;
        if (status != MORTISE_CLOSING)
            sched_fail("mortise_close() returns %s", mortise_status_name(status));
        usleep(1000);
    }
    it->closers--;
    pthread_mutex_lock(&it->lock);
    if (it->opened == opened)
        it->opened = NULL;
    pthread_mutex_unlock(&it->lock);
}
