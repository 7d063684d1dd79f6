/* watchdog.c - the thread that serves the heap of due times: renewals, deadlines, retries, time-outs.
 *
 * It does not go into the module stack (a driver stuck in a disk must not keep it from telling a loss):
 * it hands its requests to the service thread. If the system gives no such thread, the watchdog enters the stack itself,
 * because a renewal that is not sent loses the lease. It never runs a callback of the
 * application. It sleeps on a timerfd of CLOCK_BOOTTIME, so that it wakes when a suspended machine does.
 * When a renewal is due, those that are due soon are taken along, so that a driver can send them together:
 * ten thousand leases that were taken one by one fall into step after a few periods. */
#include "client/client.h"

#include <errno.h>
#include <linux/futex.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define SLACK_PARTS 48   /* a renewal may come early by so much of its span: a 16th of its period */
#define BATCH_TIMERS 256 /* served under one holding of the lock */

static struct grant *timer_grant(struct timer *timer)
{
    return (struct grant *)(void *)((char *)timer - offsetof(struct grant, timer));
}

static struct contest *timer_contest(struct timer *timer)
{
    return (struct contest *)(void *)((char *)timer - offsetof(struct contest, retry));
}

static struct release *timer_release(struct timer *timer)
{
    return (struct release *)(void *)((char *)timer - offsetof(struct release, timer));
}

static struct waiter *timer_waiter(struct timer *timer)
{
    return (struct waiter *)(void *)((char *)timer - offsetof(struct waiter, timer));
}

static void serve_locked(struct client *client, struct timer *timer, int64_t now,
                         struct task_list *starts)
{
    timer_stop(&client->timers, timer);
    switch (timer->kind) {
    case TIMER_GRANT:
        grant_timer_locked(timer_grant(timer), now, starts);
        break;
    case TIMER_CONTEST:
        contest_timer_locked(timer_contest(timer), starts);
        break;
    case TIMER_RELEASE:
        release_timer_locked(timer_release(timer), starts);
        break;
    case TIMER_WAITER:
        contest_leave_locked(timer_waiter(timer), MORTISE_TIMEDOUT, starts);
        break;
    }
}

/* A first renewal of its period, not a retry, a deadline, or the patience with one under way. */
static bool is_renewal(struct grant *grant, int64_t due_ns)
{
    return grant->renew && grant->renewal == NULL && grant->failures == 0 &&
           due_ns < atomic_load(&grant->deadline_ns);
}

/* *taking: a renewal was due in this run, and others are taken along. */
static bool is_due(struct timer *timer, int64_t now, bool *taking)
{
    bool due = timer->due_ns <= now;
    if (timer->kind != TIMER_GRANT || !is_renewal(timer_grant(timer), timer->due_ns))
        return due;
    if (due)
        *taking = true;
    int64_t slack_ns = (int64_t)timer_grant(timer)->span_ms * NS_PER_MS / SLACK_PARTS;
    return due || (*taking && timer->due_ns <= now + slack_ns);
}

/* Serves one batch; true: there may be more. */
static bool serve_batch(struct client *client, bool *taking)
{
    struct task_list starts = {NULL, NULL};
    int served = 0;
    pthread_mutex_lock(&client->lock);
    int64_t now = clock_now();
    struct timer_heap *heap = &client->timers;
    for (; served < BATCH_TIMERS && heap->count > 0 && is_due(heap->timers[0], now, taking);
         served++)
        serve_locked(client, heap->timers[0], now, &starts);
    client_unlock(client);
    pump_start_detached(&client->pump, &starts);
    return served == BATCH_TIMERS;
}

int64_t watchdog_run(struct client *client)
{
    bool taking = false;
    while (serve_batch(client, &taking))
        ;
    pthread_mutex_lock(&client->lock);
    int64_t next = timer_next_ns(&client->timers);
    client_unlock(client);
    return next;
}

/* client lock held */
static void arm_locked(struct client *client, int64_t due_ns)
{
    struct itimerspec at = {.it_value = {0, 1}};
    client->watchdog_at_ns = due_ns;
    if (due_ns == MORTISE_NEVER)
        at.it_value.tv_nsec = 0; /* disarmed */
    else if (due_ns > 0)
        at.it_value = (struct timespec){(time_t)(due_ns / NS_PER_S), (long)(due_ns % NS_PER_S)};
    timerfd_settime(client->watchdog_timer, TFD_TIMER_ABSTIME, &at, NULL);
}

void timer_set_locked(struct client *client, struct timer *timer, int64_t due_ns)
{
    timer_set(&client->timers, timer, due_ns);
    if (client->watchdog_runs && due_ns < client->watchdog_at_ns)
        arm_locked(client, due_ns);
}

static void *watchdog_main(void *argument)
{
    struct client *client = argument;
    pthread_setname_np(pthread_self(), "mortise-watch");
    for (;;) {
        watchdog_run(client);
        pthread_mutex_lock(&client->lock);
        bool stops = client->watchdog_stops;
        int64_t due_ns = timer_next_ns(&client->timers);
        arm_locked(client, stops ? 0 : due_ns);
        if (stops)
            client->watchdog_runs = false;
        client_unlock(client);
        if (stops) {
            atomic_store(&client->watchdog_in, 0);
            syscall(SYS_futex, &client->watchdog_in, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
            return NULL;
        }
        uint64_t expirations;
        while (read(client->watchdog_timer, &expirations, sizeof(expirations)) < 0 &&
               errno == EINTR)
            ;
    }
}

/* client lock held */
static bool start_locked(struct client *client)
{
    if (client->watchdog_runs || client->manual)
        return true;
    if (client->watchdog_timer < 0)
        client->watchdog_timer = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC);
    if (client->watchdog_timer < 0)
        return false;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    client->watchdog_at_ns = 0;
    client->watchdog_runs = pthread_create(&client->watchdog, NULL, watchdog_main, client) == 0;
    client->watchdog_made = client->watchdog_runs;
    atomic_store(&client->watchdog_in, client->watchdog_runs); /* it needs the lock to end */
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return client->watchdog_runs;
}

bool watchdog_ready(struct client *client)
{
    if (atomic_load_explicit(&client->watchdog_started, memory_order_acquire))
        return true;
    pthread_mutex_lock(&client->lock);
    bool ready = start_locked(client);
    atomic_store(&client->watchdog_started, ready);
    client_unlock(client);
    return ready;
}

bool watchdog_stop(struct client *client, int64_t until_ns)
{
    pthread_mutex_lock(&client->lock);
    client->watchdog_stops = true;
    if (client->watchdog_runs)
        arm_locked(client, 0);
    client_unlock(client);
    while (atomic_load(&client->watchdog_in) != 0)
        if (!client_sleep_while(&client->watchdog_in, 1, until_ns))
            return false;
    if (client->watchdog_made)
        pthread_join(client->watchdog, NULL);
    client->watchdog_made = false;
    if (client->watchdog_timer >= 0)
        close(client->watchdog_timer);
    client->watchdog_timer = -1;
    return true;
}
