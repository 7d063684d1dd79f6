/* instance.c - what a module calls: ops come in, the core polls, the instance ends. Opening makes no connection; the first
 * op makes one. */
#include "remote.h"

#include <stdlib.h>
#include <utlist.h>

#define LEAVE_NS (500 * NS_PER_MS) /* for what a closing client must still send */

void remote_init(struct remote *remote, mortise_host *host, const struct remote_dialect *dialect,
                 const struct sql_dialect *locks, int64_t reserve_ms)
{
    remote->dialect = dialect;
    locks_init(&remote->locks, host, locks, reserve_ms);
    link_init(remote, remote->main, false);
    link_init(remote, remote->live, true);
    remote->ghost_ns = MORTISE_NEVER;
    sweep_begin(remote);
}

void remote_go(struct remote *remote)
{
    link_want(remote->main);
    link_want(remote->live);
    if (remote->dialect->go != NULL)
        remote->dialect->go(remote);
    flight_go(remote->main);
    flight_go(remote->live);
}

void remote_start(void *ctx, mortise_op **ops, size_t n)
{
    struct remote *remote = ctx;
    locks_start(&remote->locks, ops, n);
    remote_go(remote);
}

void remote_cancel(void *ctx, mortise_op *op)
{
    struct remote *remote = ctx;
    locks_cancel(&remote->locks, op);
    remote_go(remote);
}

void remote_watch(void *ctx, const char *name, size_t name_len)
{
    struct remote *remote = ctx;
    locks_watch(&remote->locks, name, name_len);
    remote_go(remote);
}

void remote_unwatch(void *ctx, const char *name, size_t name_len)
{
    struct remote *remote = ctx;
    locks_unwatch(&remote->locks, name, name_len);
    remote_go(remote);
}

static int64_t earlier(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

size_t remote_interest(void *ctx, struct pollfd *fds, size_t capacity, int64_t *due_ns)
{
    struct remote *remote = ctx;
    struct link *links[] = {remote->main, remote->live};
    size_t count = 0;
    for (size_t i = 0; i < 2; i++) {
        *due_ns = earlier(*due_ns, link_due(links[i]));
        if (links[i]->fd >= 0 && count < capacity)
            fds[count++] = link_pollfd(links[i]);
    }
    *due_ns = earlier(*due_ns, earlier(remote->locks.chore_ns, ghost_due(remote)));
    return count;
}

void remote_turn(void *ctx, const struct pollfd *ready, size_t n)
{
    struct remote *remote = ctx;
    link_turn(remote->main, ready, n);
    link_turn(remote->live, ready, n);
    locks_turn(&remote->locks);
    ghost_turn(remote);
    sweep_turn(remote);
    remote_go(remote);
}

/* ---- the end ------------------------------------------------------------------------------------ */

/* Called after each answer, because an answer may put this client into a list, or fail to take it off one; then it leaves
 * again. An answer may also mean that a statement of the sweep goes out again. */
static void leave(struct remote *remote)
{
    if (remote->main->state == LINK_READY)
        locks_leave(&remote->locks);
    sweep_turn(remote);
    remote_go(remote);
}

/* Leaves the lists of waiters, and waits for the answers to all requests that were sent or are queued, if the server
 * answers within a moment. */
static void finish_work(struct remote *remote)
{
    struct link *main = remote->main;
    int64_t until_ns = remote_now(remote) + LEAVE_NS;
    leave(remote);
    while (main->state == LINK_READY && !(locks_have_left(&remote->locks) && flight_idle(main))) {
        struct pollfd fd = link_pollfd(main);
        int64_t now_ns = remote_now(remote), left_ns = earlier(until_ns, link_due(main)) - now_ns;
        if (now_ns >= until_ns)
            return;
        poll(&fd, 1, left_ns > 0 ? (int)(left_ns / NS_PER_MS) + 1 : 0);
        link_turn(main, &fd, 1);
        leave(remote);
    }
}

/* The ops of these requests have been completed as canceled before. */
static void drop_requests(struct link *link)
{
    struct request *request, *next, *flying = flight_take(link);
    DL_FOREACH_SAFE2(flying, request, next, next)
    statement_free(request);
    for (int lane = 0; lane < LANE_COUNT; lane++) {
        DL_FOREACH_SAFE2(link->queue[lane], request, next, next)
        statement_free(request);
        link->queue[lane] = NULL;
    }
}

void remote_free(struct remote *remote)
{
    ghost_free(remote);
    locks_free(&remote->locks);
    free(remote);
}

void remote_close(void *ctx)
{
    struct remote *remote = ctx;
    remote->locks.closing = true;
    finish_work(remote);
    drop_requests(remote->main);
    drop_requests(remote->live);
    link_close(remote->main);
    link_close(remote->live);
    remote_free(remote);
}
