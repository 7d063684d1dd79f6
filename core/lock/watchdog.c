/* watchdog.c - the thread that serves the heap of due times: renewals, deadlines, retries, time-outs.
 *
 * It does not go into the module stack, because a driver that is stuck in a disk must not keep it from reporting a loss:
 * it hands its requests to the service thread, which is started before it. It never runs a callback of the application.
 * It sleeps on a timerfd of CLOCK_BOOTTIME, so that it wakes up when a suspended machine does, and on the connection to the
 * witness.
 * When a renewal is due, it also starts those that are due soon, so that a driver can send them together: ten thousand
 * leases that were acquired one by one are renewed together after a few periods. */
#include "base/futex.h"
#include "lock/waitlist.h"

#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define SLACK_PARTS 48   /* a renewal may come early by so much of its span: a 16th of its period */
#define BATCH_TIMERS 256 /* served under one holding of the lock */
#define BLIND_NS NS_PER_S /* between two looks if there is no descriptor for a timer */

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
    case CLAIM_ASKING:
        waitlist_look_locked(claim->waitlist);
        break;
    case CLAIM_HELD:
        claim_held_timer_locked(claim, now);
        break;
    case CLAIM_ENDING:
        claim_ending_timer_locked(claim);
        break;
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

/* *taking: a renewal was due in this run, so renewals that are due soon are started too. */
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

/* A thread that sleeps on a timer which the application has closed cannot be woken, because poll() keeps that timer. So another
 * thread takes its place. If the old thread wakes up, because the old timer fires or the witness ends, it touches nothing of the
 * client any more. Until then it costs a stack.
 *
 *   AWAKE    it serves the timers, and looks at watchdog.timer before it sleeps
 *   ASLEEP   it touches nothing of the client
 *   LEFT     another thread has its place, or all stop
 *
 *   event                             | AWAKE  | ASLEEP                         | LEFT
 *   ----------------------------------|--------|--------------------------------|-----
 *   it goes to sleep (client's lock)  | ASLEEP | -                              | -
 *   it wakes up                       | -      | AWAKE                          | ends
 *   the timer is lost (client's lock) | AWAKE  | LEFT; another, unless all stop | -
 *   all stop, and the timer is there  | ends   | wakes up                       | -    */
enum watch_state { WATCH_AWAKE, WATCH_ASLEEP, WATCH_LEFT };

struct watch_thread {
    struct locks *locks;
    _Atomic uint32_t state;
};

struct sleep {
    int timer, witness;
    int64_t due_ns, witness_ns;
};

/* A thread that sets the timer from here on finds this one asleep. */
static struct sleep go_to_sleep(struct watch_thread *self)
{
    struct locks *locks = self->locks;
    struct sleep sleep;
    pthread_mutex_lock(&locks->lock);
    sleep.due_ns = timer_next_ns(&locks->timers);
    locks_arm_locked(locks, locks->watchdog.stops ? 0 : sleep.due_ns);
    sleep.timer = locks->watchdog.timer;
    sleep.witness = link_fd(&locks->witness);
    sleep.witness_ns = link_due_ns(&locks->witness);
    atomic_store(&self->state, WATCH_ASLEEP);
    pthread_mutex_unlock(&locks->lock);
    return sleep;
}

/* False: it is LEFT. */
static bool wake_up(struct watch_thread *self)
{
    uint32_t state = WATCH_ASLEEP;
    return atomic_compare_exchange_strong(&self->state, &state, WATCH_AWAKE);
}

/* Sleeps until the timer fires, or the witness's connection needs a turn. Returns true in the second case. (Nothing is read from
 * the timer: its number may be another file's by now, and setting the timer again makes it unreadable.) Without a timer, no
 * other thread can wake this one, so it sleeps for a second at most. */
static bool sleep_until_due(const struct sleep *sleep)
{
    struct pollfd fds[] = {{.fd = sleep->timer, .events = POLLIN},
                           {.fd = sleep->witness, .events = POLLIN}};
    int64_t until_ns = sleep->witness_ns;
    if (sleep->timer < 0) {
        int64_t most_ns = clock_now() + BLIND_NS;
        until_ns = sleep->due_ns < until_ns ? sleep->due_ns : until_ns;
        until_ns = most_ns < until_ns ? most_ns : until_ns;
    }
    int ready = poll(fds, 2, clock_poll_ms(until_ns));
    return fds[1].revents != 0 || ready == 0;
}

/* True: all stop. */
static bool turn_round(struct locks *locks, bool turn)
{
    watchdog_run(locks);
    pthread_mutex_lock(&locks->lock);
    if (turn || link_fd(&locks->witness) < 0)
        witness_turn_locked(locks);
    bool stops = locks->watchdog.stops;
    if (stops) {
        locks->watchdog.runs = false;
        locks->watchdog.self = NULL;
    }
    locks_unlock(locks, START_DETACHED);
    return stops;
}

static void *watchdog_main(void *argument)
{
    struct watch_thread *self = argument;
    struct locks *locks = self->locks;
    pthread_setname_np(pthread_self(), "mortise-watch");
    for (bool turn = true; !turn_round(locks, turn);) {
        struct sleep sleep = go_to_sleep(self);
        turn = sleep_until_due(&sleep);
        if (!wake_up(self)) {
            free(self);
            return NULL;
        }
    }
    free(self);
    atomic_store(&locks->watchdog.in, 0);
    futex_wake_all(&locks->watchdog.in);
    return NULL;
}

static bool begin_thread_locked(struct locks *locks)
{
    struct watchdog *watchdog = &locks->watchdog;
    struct watch_thread *self = malloc(sizeof(*self));
    if (self == NULL)
        return false;
    *self = (struct watch_thread){.locks = locks, .state = WATCH_AWAKE};
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    watchdog->runs = pthread_create(&watchdog->thread, NULL, watchdog_main, self) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    watchdog->made = watchdog->runs;
    atomic_store(&watchdog->in, watchdog->runs); /* it needs the lock to end */
    if (!watchdog->runs)
        free(self);
    watchdog->self = watchdog->runs ? self : NULL;
    return watchdog->runs;
}

static void timer_lost_locked(struct locks *locks)
{
    struct watchdog *watchdog = &locks->watchdog;
    uint32_t state = WATCH_ASLEEP;
    if (watchdog->self == NULL ||
        !atomic_compare_exchange_strong(&watchdog->self->state, &state, WATCH_LEFT))
        return;
    pthread_detach(watchdog->thread);
    watchdog->runs = watchdog->made = false;
    watchdog->self = NULL;
    atomic_store(&watchdog->in, 0);
    if (!watchdog->stops && !begin_thread_locked(locks))
        atomic_store(&watchdog->started, false); /* the next acquire tries again */
}

static bool start_locked(struct locks *locks)
{
    if (locks->manual)
        return true;
    if (!pump_ready(locks->pump))
        return false;
    if (locks->watchdog.runs)
        return true;
    if (locks->watchdog.timer < 0)
        locks->watchdog.timer = locks_make_timer();
    if (locks->watchdog.timer < 0)
        return false;
    locks->watchdog.timer_lost = timer_lost_locked;
    witness_turn_locked(locks); /* before the first request */
    locks->watchdog.armed_ns = 0;
    return begin_thread_locked(locks);
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
    if (timerfd_settime(locks->watchdog.timer, 0, &(struct itimerspec){0}, NULL) == 0)
        close(locks->watchdog.timer); /* else the application has closed it */
    locks->watchdog.timer = -1;
    return true;
}
