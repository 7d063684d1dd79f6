/* forks.c - a worker forks, and the child calls the library. Its client belongs to the parent, so each call returns FORKED
 * (LOST, 0), nothing hangs, and no connection is touched.
 *
 * The child is a real process with one thread, which the scheduler has nothing to do with; the parent waits for it at one
 * virtual instant. A mutex that another thread had locked stays locked in the child, as anywhere. */
#include "calls.h"
#include "world.h"

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#define PATIENCE_S 60

enum { CHILD_WELL, CHILD_STATUS = 64 }; /* exit codes; CALLS_TOUCHED is one more */

/* Runs first in the child, because it was registered first. */
static void in_child(void)
{
    if (!sched_on())
        return; /* a run of its own */
    sched_end();
    calls_net_forked();
}

void forks_begin(void)
{
    pthread_atfork(NULL, NULL, in_child);
}

/* The number of the call that went wrong, or 0. Another thread may have closed the client, or released the lease. */
static int call_all(const struct opened *opened, const struct slot *slot, const char *name)
{
    mortise_lease *lease = slot->state == SLOT_HOLDS ? slot->lease : NULL;
    bool spent =
        opened->closing || (lease && (slot->opened->closing || slot->watched->released_inside));
    mortise_lease *none;
    const mortise_options options = {.size = sizeof options, .wait_ms = 0};
    mortise_info info = {.size = sizeof info};
    mortise_stats stats = {.size = sizeof stats};
    const mortise_status statuses[] = {mortise_acquire(opened->handle, name, &options, &none, NULL),
                                       mortise_cancel(opened->handle, 1),
                                       mortise_inspect(opened->handle, name, &info, NULL),
                                       mortise_stats_get(opened->handle, &stats),
                                       lease ? mortise_release_nowait(lease, NULL) : MORTISE_FORKED,
                                       lease ? mortise_release(lease, NULL) : MORTISE_FORKED,
                                       mortise_close(opened->handle, NULL)};
    if (lease && (mortise_state(lease) != MORTISE_STATE_LOST || mortise_token(lease) != 0))
        return 1;
    for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++)
        if (statuses[i] != MORTISE_FORKED &&
            !(spent && (statuses[i] == MORTISE_CLOSED || statuses[i] == MORTISE_INVALID)))
            return (int)i + 2;
    return 0;
}

void forks_try(const struct opened *opened, const struct slot *slot, const char *name)
{
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        alarm(PATIENCE_S);
        int wrong = call_all(opened, slot, name);
        _exit(wrong == 0 ? CHILD_WELL : CHILD_STATUS + wrong);
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid)
        abort();
    sched_trace("forks");
    if (WIFEXITED(status) && WEXITSTATUS(status) == CALLS_TOUCHED)
        sched_fail("a child of a fork touches a connection of its parent");
    if (!WIFEXITED(status))
        sched_fail("a child of a fork ends with signal %d", WTERMSIG(status));
    if (WEXITSTATUS(status) != CHILD_WELL)
        sched_fail("in a child of a fork, call %d does not return FORKED",
                   WEXITSTATUS(status) - CHILD_STATUS);
}
