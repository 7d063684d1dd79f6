/* watchdog.c - the thread that serves the heap of due times: renewals, deadlines, retries, time-outs.
 *
 * It does not go into the module stack (a driver stuck in a disk must not keep it from telling a loss):
 * it hands its requests to the service thread. If the system gives no such thread, the watchdog enters the stack itself,
 * because a renewal that is not sent loses the lease. It never runs a callback of the
 * application. It sleeps on a timerfd of CLOCK_BOOTTIME, so that it wakes when a suspended machine does, and on the
 * connection to the witness.
 * When a renewal is due, those that are due soon are taken along, so that a driver can send them together:
 * ten thousand leases that were taken one by one fall into step after a few periods. */
#include "base/futex.h"
#include "lock/waitlist.h"

#include <poll.h>
#include <signal.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define SLACK_PARTS 48   /* a renewal may come early by so much of its span: a 16th of its period */
#define BATCH_TIMERS 256 /* served under one holding of the lock */

static struct claim *claim_of(struct timer *timer)
{
    return (struct claim *)(void *)((char *)timer - offsetof(struct claim, timer));
}

static struct waiter *waiter_of(struct timer *timer)
{
    return (struct waiter *)(void *)((char *)timer - offsetof(struct waiter, timer));
}

static void serve_claim_locked(struct claim *claim, int64_t now)
{
    switch (claim->state) {
    case CLAIM_PAUSED:
        waitlist_ask_locked(claim->waitlist);
        break;
    case CLAIM_HELD:
        claim_held_timer_locked(claim, now);
        break;
    case CLAIM_ENDING:
        claim_ending_timer_locked(claim);
        break;
    case CLAIM_ASKING:
    case CLAIM_LEAVING:
    case CLAIM_JOINED:
    case CLAIM_LOST:
    case CLAIM_GONE:
        break; /* no timer runs */
    }
}

static void serve_locked(struct locks *locks, struct timer *timer, int64_t now)
{
    locks_stop_timer_locked(locks, timer);
    if (timer->kind == TIMER_CLAIM)
        serve_claim_locked(claim_of(timer), now);
    else
        waitlist_leave_locked(waiter_of(timer), MORTISE_TIMEDOUT);
}

/* *taking: a renewal was due in this run, and others are taken along. */
static bool is_due(struct timer *timer, int64_t now, bool *taking)
{
    bool due = timer->due_ns <= now;
    if (timer->kind != TIMER_CLAIM || !claim_is_renewal(claim_of(timer)))
        return due;
    if (due)
        *taking = true;
    int64_t slack_ns = (int64_t)claim_of(timer)->span_ms * NS_PER_MS / SLACK_PARTS;
    return due || (*taking && timer->due_ns <= now + slack_ns);
}

/* Serves one batch; true: there may be more. */
static bool serve_batch(struct locks *locks, bool *taking)
{
    int served = 0;
    pthread_mutex_lock(&locks->lock);
    int64_t now = clock_now();
    struct timer_heap *heap = &locks->timers;
    for (; served < BATCH_TIMERS && heap->count > 0 && is_due(heap->timers[0], now, taking);
         served++)
        serve_locked(locks, heap->timers[0], now);
    locks_unlock(locks, START_DETACHED);
    return served == BATCH_TIMERS;
}

int64_t watchdog_run(struct locks *locks)
{
    bool taking = false;
    while (serve_batch(locks, &taking))
        ;
    pthread_mutex_lock(&locks->lock);
    int64_t next = timer_next_ns(&locks->timers);
    locks_unlock(locks, START_DETACHED);
    return next;
}

/* Milliseconds from now to due_ns, rounded up; -1: never. */
static int poll_ms(int64_t due_ns)
{
    int64_t left_ns = due_ns == MORTISE_NEVER ? 0 : due_ns - clock_now();
    if (due_ns == MORTISE_NEVER)
        return -1;
    return left_ns <= 0           ? 0
           : left_ns >= INT32_MAX ? INT32_MAX / 1000
                                  : (int)(left_ns / NS_PER_MS) + 1;
}

/* Sleeps until the timer fires, or the witness's connection needs a turn: then true. due_ns: of the timer, in case the
 * program has closed its descriptor. */
static bool sleep_until_due(const struct locks *locks, int witness, int64_t witness_ns,
                            int64_t due_ns)
{
    struct pollfd fds[] = {{.fd = locks->watchdog.timer, .events = POLLIN},
                           {.fd = witness, .events = POLLIN}};
    uint64_t expirations;
    int ready = poll(fds, 2, poll_ms(witness_ns));
    if (ready > 0 && (fds[0].revents & POLLNVAL) != 0)
        poll(NULL, 0, poll_ms(due_ns));
    else if (ready > 0 && fds[0].revents != 0 &&
             read(locks->watchdog.timer, &expirations, sizeof(expirations)) < 0)
        return false; /* it was set again meanwhile */
    return fds[1].revents != 0 || ready == 0;
}

static void *watchdog_main(void *argument)
{
    struct locks *locks = argument;
    bool turn = true;
    pthread_setname_np(pthread_self(), "mortise-watch");
    for (;;) {
        watchdog_run(locks);
        pthread_mutex_lock(&locks->lock);
        if (turn || link_fd(&locks->witness) < 0)
            witness_turn_locked(locks);
        int witness = link_fd(&locks->witness);
        int64_t witness_ns = link_due_ns(&locks->witness);
        bool stops = locks->watchdog.stops;
        int64_t due_ns = timer_next_ns(&locks->timers);
        locks_arm_locked(locks, stops ? 0 : due_ns);
        if (stops)
            locks->watchdog.runs = false;
        locks_unlock(locks, START_DETACHED);
        if (stops) {
            atomic_store(&locks->watchdog.in, 0);
            futex_wake_all(&locks->watchdog.in);
            return NULL;
        }
        turn = sleep_until_due(locks, witness, witness_ns, due_ns);
    }
}

static bool start_locked(struct locks *locks)
{
    if (locks->watchdog.runs || locks->manual)
        return true;
    if (locks->watchdog.timer < 0)
        locks->watchdog.timer = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
    if (locks->watchdog.timer < 0)
        return false;
    witness_turn_locked(locks); /* before the first request */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    locks->watchdog.armed_ns = 0;
    locks->watchdog.runs = pthread_create(&locks->watchdog.thread, NULL, watchdog_main, locks) == 0;
    locks->watchdog.made = locks->watchdog.runs;
    atomic_store(&locks->watchdog.in, locks->watchdog.runs); /* it needs the lock to end */
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return locks->watchdog.runs;
}

bool watchdog_ready(struct locks *locks)
{
    if (atomic_load_explicit(&locks->watchdog.started, memory_order_acquire))
        return true;
    pthread_mutex_lock(&locks->lock);
    bool ready = start_locked(locks);
    atomic_store(&locks->watchdog.started, ready);
    locks_unlock(locks, START_DETACHED);
    return ready;
}

bool watchdog_stop(struct locks *locks, int64_t until_ns)
{
    pthread_mutex_lock(&locks->lock);
    locks->watchdog.stops = true;
    if (locks->watchdog.runs)
        locks_arm_locked(locks, 0);
    locks_unlock(locks, START_DETACHED);
    while (atomic_load(&locks->watchdog.in) != 0)
        if (!futex_sleep_while(&locks->watchdog.in, 1, until_ns))
            return false;
    if (locks->watchdog.made)
        pthread_join(locks->watchdog.thread, NULL);
    locks->watchdog.made = false;
    if (locks->watchdog.timer >= 0)
        close(locks->watchdog.timer);
    locks->watchdog.timer = -1;
    return true;
}
