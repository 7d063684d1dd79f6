/* notify.c - callbacks of the application, and events to observers.
 *
 * Callbacks wait in a queue and run one at a time, with no lock held, on a notifier thread of the client (started when
 * first needed) or in mortise_dispatch(). A callback that blocks delays only the callbacks behind it. A callback may use
 * every function of the library. If it closes its client, its thread runs the callbacks left and frees the client. */
#include "client/core.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

static _Thread_local unsigned depth;       /* of callbacks on this thread */
static _Thread_local uint32_t depth_epoch; /* a child made in a callback is in none */

bool notify_inside(void)
{
    return depth > 0 && depth_epoch == atomic_load_explicit(&fork_epoch, memory_order_relaxed);
}

struct notice *notify_new(void)
{
    return calloc(1, sizeof(struct notice));
}

/* ---- the queue ---- */

/* notify lock held */
static void signal_fd(struct client *client)
{
    uint64_t one = 1;
    if (!client->signaled)
        client->signaled = write(client->notify_event, &one, sizeof(one)) == (ssize_t)sizeof(one);
}

/* notify lock held */
static void push_notice(struct client *client, struct notice *notice)
{
    notice->next = NULL;
    *client->notices_end = notice;
    client->notices_end = &notice->next;
    client->notice_count++;
    if (!client->fd_mode)
        pthread_cond_broadcast(&client->notify_cond);
    else if (client->dispatchers == 0) /* else who dispatches looks before it returns */
        signal_fd(client);
}

static void push(struct client *client, struct notice *notice)
{
    pthread_mutex_lock(&client->notify_lock);
    push_notice(client, notice);
    pthread_mutex_unlock(&client->notify_lock);
}

static void fill(struct notice *notice, const struct grant *grant, mortise_lease_state state)
{
    *notice = (struct notice){.lease = slot_handle(&grant->slot),
                              .state = state,
                              .on_state = grant->on_state,
                              .user_data = grant->user_data};
}

/* HELD or SUSPECT: where nobody dispatches, one notice of a lease waits, with what was last. */
static void push_change(struct grant *grant, mortise_lease_state state)
{
    struct client *client = grant->client;
    pthread_mutex_lock(&client->notify_lock);
    struct notice *change = grant->change;
    if (change != NULL)
        change->state = state;
    else if ((change = notify_new()) != NULL) { /* else it goes untold; a loss does not */
        fill(change, grant, state);
        change->grant = grant;
        grant->change = change;
        push_notice(client, change);
    }
    pthread_mutex_unlock(&client->notify_lock);
}

void notify_state_locked(struct grant *grant, mortise_lease_state state)
{
    struct notice *notice = grant->lost_notice;
    if (grant->on_state == NULL)
        return;
    if (state != MORTISE_STATE_LOST) {
        push_change(grant, state);
        return;
    }
    grant->lost_notice = NULL;
    if (notice == NULL)
        return;
    fill(notice, grant, state);
    push(grant->client, notice);
}

void notify_settle_locked(struct grant *grant)
{
    if (grant->change == NULL)
        return;
    pthread_mutex_lock(&grant->client->notify_lock);
    struct notice *change = grant->change;
    if (change != NULL) /* else it is being told */
        change->grant = NULL;
    grant->change = NULL;
    pthread_mutex_unlock(&grant->client->notify_lock);
}

void notify_acquired_locked(struct client *client, struct waiter *waiter)
{
    timer_stop(&client->timers, &waiter->timer);
    timer_unreserve(&client->timers);
    if (waiter->previous_async != NULL)
        waiter->previous_async->next_async = waiter->next_async;
    else
        client->asyncs = waiter->next_async;
    if (waiter->next_async != NULL)
        waiter->next_async->previous_async = waiter->previous_async;
    pump_attention(&client->pump, -1);
    waiter->notice = (struct notice){.waiter = waiter};
    push(client, &waiter->notice);
}

/* ---- running ---- */

/* The lease was released: its on_state is not called any more. */
static bool is_spent(const struct notice *notice)
{
    return notice->waiter == NULL && !slot_is(slab_find(&grant_slab, notice->lease), notice->lease);
}

/* False: the lease was released meanwhile, and nothing was called. */
static bool call(struct notice *notice)
{
    struct waiter *waiter = notice->waiter;
    bool calls = !is_spent(notice);
    depth++;
    depth_epoch = atomic_load_explicit(&fork_epoch, memory_order_relaxed);
    if (waiter != NULL)
        waiter->callback(waiter->status, waiter->lease,
                         waiter->status == MORTISE_OK ? NULL : waiter->error,
                         waiter->callback_data);
    else if (calls)
        notice->on_state(notice->lease, notice->state, notice->user_data);
    depth--;
    if (waiter != NULL) {
        free(waiter->lost_notice);
        free(waiter);
    } else
        free(notice);
    return calls;
}

/* notify lock held */
static void unlink_first(struct client *client)
{
    struct notice *notice = client->notices;
    client->notices = notice->next;
    if (client->notices == NULL)
        client->notices_end = &client->notices;
    client->notice_count--;
    if (notice->grant != NULL)
        notice->grant->change = NULL;
}

/* Whether a callback waits. What stands before it and will not be called is dropped. notify lock held */
static bool one_waits(struct client *client)
{
    struct notice *notice;
    while ((notice = client->notices) != NULL && is_spent(notice)) {
        unlink_first(client);
        free(notice);
    }
    return notice != NULL;
}

/* notify lock held */
static struct notice *pop(struct client *client)
{
    if (client->running || !one_waits(client))
        return NULL;
    struct notice *notice = client->notices;
    unlink_first(client);
    client->running = true;
    client->running_thread = pthread_self();
    client->running_lease = notice->lease;
    return notice;
}

enum ran { GOES_ON, CLOSED_INSIDE, FORKED_INSIDE };

/* Called and returns with the notify lock held; drops it for the callback. CLOSED_INSIDE: the callback closed the
 * client; this thread ends it. FORKED_INSIDE: this is a child forked in it: no lock is held, the client is the parent's. */
static enum ran run(struct client *client, struct notice *notice, int *count)
{
    pthread_mutex_unlock(&client->notify_lock);
    *count += call(notice);
    if (atomic_load(&client->slot.epoch) != atomic_load(&fork_epoch))
        return FORKED_INSIDE;
    pthread_mutex_lock(&client->notify_lock);
    client->running = false;
    client->running_lease = NULL;
    pthread_cond_broadcast(&client->notify_cond);
    return client->closed_inside ? CLOSED_INSIDE : GOES_ON;
}

/* A callback closed the client: runs the remaining callbacks and ends the client. `mine`: 1 if this thread dispatches.
 * Called with the notify lock held, which is gone afterwards. */
static void run_rest_and_free(struct client *client, unsigned mine)
{
    struct notice *notice;
    int count = 0;
    while ((notice = pop(client)) != NULL)
        if (run(client, notice, &count) == FORKED_INSIDE)
            return;
    bool notifier = client->notifier_made && pthread_equal(client->notifier, pthread_self());
    bool frees = client->frees, join = client->notifier_made && !notifier;
    pthread_t other = client->notifier;
    pthread_mutex_unlock(&client->notify_lock);
    client_shut(client);
    if (!frees)
        return; /* a thread is stuck in a module: it may come back to the client at any time */
    pthread_mutex_lock(&client->notify_lock);
    while (client->dispatchers > mine || (client->notifier_runs && !notifier))
        pthread_cond_wait(&client->notify_cond, &client->notify_lock);
    pthread_mutex_unlock(&client->notify_lock);
    if (join)
        pthread_join(other, NULL);
    client_free(client);
}

int notify_run(struct client *client, size_t at_most, bool *gone)
{
    int count = 0;
    struct notice *notice;
    *gone = false;
    pthread_mutex_lock(&client->notify_lock);
    while (at_most-- > 0 && (notice = pop(client)) != NULL) {
        enum ran ran = run(client, notice, &count);
        if (ran == CLOSED_INSIDE)
            run_rest_and_free(client, 1);
        *gone = ran != GOES_ON;
        if (*gone)
            return count;
    }
    pthread_mutex_unlock(&client->notify_lock);
    return count;
}

size_t notify_count(struct client *client)
{
    pthread_mutex_lock(&client->notify_lock);
    size_t count = client->notice_count;
    pthread_mutex_unlock(&client->notify_lock);
    return count;
}

static void *notifier_main(void *argument)
{
    struct client *client = argument;
    int count = 0;
    pthread_setname_np(pthread_self(), "mortise-notify");
    pthread_mutex_lock(&client->notify_lock);
    for (;;) {
        struct notice *notice = client->fd_mode ? NULL : pop(client);
        enum ran ran = notice == NULL ? GOES_ON : run(client, notice, &count);
        if (ran == FORKED_INSIDE)
            return NULL;
        if (ran == CLOSED_INSIDE) {
            pthread_detach(pthread_self());
            run_rest_and_free(client, 0);
            return NULL;
        }
        if (notice == NULL && client->notifier_stops)
            break;
        if (notice == NULL)
            pthread_cond_wait(&client->notify_cond, &client->notify_lock);
    }
    client->notifier_runs = false;
    pthread_cond_broadcast(&client->notify_cond);
    pthread_mutex_unlock(&client->notify_lock);
    return NULL;
}

/* notify lock held */
static bool start(struct client *client)
{
    if (client->fd_mode || client->notifier_runs || client->manual)
        return true;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    client->notifier_runs = pthread_create(&client->notifier, NULL, notifier_main, client) == 0;
    client->notifier_made = client->notifier_runs;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return client->notifier_runs;
}

bool notify_ready(struct client *client)
{
    if (atomic_load_explicit(&client->notifier_started, memory_order_acquire))
        return true;
    pthread_mutex_lock(&client->notify_lock);
    bool ready = start(client);
    atomic_store(&client->notifier_started, ready);
    pthread_mutex_unlock(&client->notify_lock);
    return ready;
}

void notify_drain_lease(struct client *client, mortise_lease *lease)
{
    if (notify_inside())
        return; /* two callbacks that release each other's leases would wait for each other */
    pthread_mutex_lock(&client->notify_lock);
    while (client->running && client->running_lease == lease &&
           !pthread_equal(client->running_thread, pthread_self()) &&
           !(client->notify_closing && pthread_equal(client->closer, client->running_thread)))
        pthread_cond_wait(&client->notify_cond, &client->notify_lock);
    pthread_mutex_unlock(&client->notify_lock);
}

bool notify_runs_elsewhere(struct client *client, const mortise_lease *lease)
{
    pthread_mutex_lock(&client->notify_lock);
    bool runs = client->running && lease != NULL && client->running_lease == lease &&
                !pthread_equal(client->running_thread, pthread_self());
    pthread_mutex_unlock(&client->notify_lock);
    return runs;
}

/* ---- the application's descriptor ---- */

static bool add(int epoll, int fd)
{
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    return epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

/* notify lock held */
static bool open_fd(struct client *client, int pump_epoll)
{
    client->notify_fd = epoll_create1(EPOLL_CLOEXEC);
    client->notify_event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (client->notify_fd >= 0 && client->notify_event >= 0 && add(client->notify_fd, pump_epoll) &&
        add(client->notify_fd, client->notify_event))
        return true;
    if (client->notify_fd >= 0)
        close(client->notify_fd);
    if (client->notify_event >= 0)
        close(client->notify_event);
    client->notify_fd = client->notify_event = -1;
    return false;
}

int notify_open_fd(struct client *client)
{
    int pump_fd = pump_epoll(&client->pump);
    pthread_mutex_lock(&client->notify_lock);
    if (!client->fd_mode && pump_fd >= 0 && open_fd(client, pump_fd)) {
        client->fd_mode = true;
        if (client->notices != NULL)
            signal_fd(client);
    }
    int fd = client->notify_fd;
    pthread_mutex_unlock(&client->notify_lock);
    return fd;
}

bool notify_dispatch_begin(struct client *client)
{
    pthread_mutex_lock(&client->notify_lock);
    bool may = client->fd_mode;
    client->dispatchers += may;
    pthread_mutex_unlock(&client->notify_lock);
    return may;
}

void notify_dispatch_end(struct client *client)
{
    uint64_t value;
    pthread_mutex_lock(&client->notify_lock);
    client->dispatchers--;
    if (one_waits(client))
        signal_fd(client);
    else if (client->signaled)
        client->signaled = read(client->notify_event, &value, sizeof(value)) < 0 && errno == EINTR;
    pthread_cond_broadcast(&client->notify_cond);
    pthread_mutex_unlock(&client->notify_lock);
}

/* ---- the end ---- */

static void wait_until(struct client *client, int64_t until_ns)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    int64_t left = until_ns - clock_now(), ns;
    left = left < NS_PER_MS ? NS_PER_MS : left;
    ns = at.tv_nsec + left % NS_PER_S;
    at.tv_sec += (time_t)(left / NS_PER_S + ns / NS_PER_S);
    at.tv_nsec = (long)(ns % NS_PER_S);
    pthread_cond_timedwait(&client->notify_cond, &client->notify_lock, &at);
}

void notify_closing(struct client *client)
{
    pthread_mutex_lock(&client->notify_lock);
    client->notify_closing = true;
    client->closer = pthread_self();
    pthread_cond_broadcast(&client->notify_cond);
    pthread_mutex_unlock(&client->notify_lock);
}

/* Callbacks that this close has to wait for, and whose end will come without it. notify lock held */
static bool others_run(struct client *client)
{
    if (client->running)
        return true;
    if (client->fd_mode)
        return one_waits(client) && client->dispatchers > 0;
    return one_waits(client) || client->notifier_runs;
}

bool notify_closed_here(struct client *client)
{
    pthread_mutex_lock(&client->notify_lock);
    bool here = client->running && client->closed_inside && !one_waits(client) &&
                pthread_equal(client->running_thread, pthread_self());
    pthread_mutex_unlock(&client->notify_lock);
    return here;
}

enum notify_end notify_stop(struct client *client, int64_t until_ns, bool may_free)
{
    struct notice *notice;
    int count = 0;
    enum notify_end end = NOTIFY_DONE;
    pthread_mutex_lock(&client->notify_lock);
    client->notifier_stops = true;
    pthread_cond_broadcast(&client->notify_cond);
    if (client->running && pthread_equal(client->running_thread, pthread_self())) {
        client->closed_inside = true;
        client->frees = may_free;
        end = one_waits(client) ? NOTIFY_INSIDE_LEFT : NOTIFY_INSIDE;
        pthread_mutex_unlock(&client->notify_lock);
        return end;
    }
    while (client->manual && !client->fd_mode && (notice = pop(client)) != NULL)
        if (run(client, notice, &count) == FORKED_INSIDE)
            return NOTIFY_LEFT;
    while (others_run(client) && clock_now() < until_ns)
        wait_until(client, until_ns);
    if (client->running || one_waits(client))
        end = NOTIFY_LEFT;
    pthread_mutex_unlock(&client->notify_lock);
    return end;
}

void notify_end(struct client *client)
{
    pthread_mutex_lock(&client->notify_lock);
    while (client->dispatchers > 0 || client->notifier_runs)
        pthread_cond_wait(&client->notify_cond, &client->notify_lock);
    pthread_mutex_unlock(&client->notify_lock);
    if (client->notifier_made)
        pthread_join(client->notifier, NULL);
}

/* ---- observers ---- */

void observe_locked(struct client *client, mortise_event_kind kind, const struct entry *entry,
                    const struct grant *grant, const struct waiter *waiter, mortise_status status)
{
    if (__builtin_expect(client->observer_count == 0, 1))
        return;
    mortise_event event = {.size = sizeof(event),
                           .kind = kind,
                           .at_ns = clock_now(),
                           .name = entry->name,
                           .name_len = entry->name_len,
                           .status = status};
    if (waiter != NULL) {
        event.caller = waiter->caller;
        event.owner = waiter->owner;
        event.owner_len = waiter->owner_len;
    }
    if (grant != NULL) {
        event.owner = grant->owner;
        event.owner_len = grant->owner_len;
        event.grant = grant->id;
        event.lease = grant->number;
        event.token = atomic_load_explicit(&grant->token, memory_order_relaxed);
        event.deadline_ns = atomic_load(&grant->deadline_ns);
    }
    for (size_t i = 0; i < client->observer_count; i++)
        client->observers[i]->module.observe(client->observers[i]->ctx, &event);
}
