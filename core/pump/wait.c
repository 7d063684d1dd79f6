/* wait.c - threads that wait for an outcome: one leads and polls, the others follow; see pump.h.
 *
 * The word of a sleeper says who may change it. Only the sleeper's own thread moves it between AWAKE, ASLEEP
 * and LEADING. Any thread may name the sleeper (ASLEEP -> NAMED, pump lock held) and, once, wake it (-> DONE).
 * From DONE on, the sleeper's thread may give up its memory; a futex wake on its address after that touches nothing. */
#include "pump/pump_internal.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LOOK_NS NS_PER_S        /* how long a leader polls at most, if something will be due */
#define IDLE_NS (60 * NS_PER_S) /* and if nothing will */

enum sleeper_word { AWAKE, ASLEEP, LEADING, NAMED, DONE };

void sleeper_init(struct sleeper *sleeper, struct pump *pump)
{
    atomic_init(&sleeper->word, AWAKE);
    sleeper->pump = pump;
    sleeper->aside = sleeper->patient = sleeper->follows = sleeper->expected = false;
    sleeper->dependents = 0;
    sleeper->next = sleeper->previous = NULL;
}

bool sleeper_done(const struct sleeper *sleeper)
{
    return atomic_load_explicit(&sleeper->word, memory_order_acquire) == DONE;
}

static bool move(struct sleeper *sleeper, uint32_t from, uint32_t to)
{
    return atomic_compare_exchange_strong(&sleeper->word, &from, to);
}

static void wake_futex(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

void sleeper_wake_later(struct sleeper *sleeper, struct wake_list *list)
{
    struct pump *pump = sleeper->pump; /* the sleeper may be gone after the exchange */
    _Atomic uint32_t *word = &sleeper->word;
    uint32_t before = atomic_exchange(word, DONE);
    bool inside = pump_inside_here == pump;
    if (before == LEADING && inside)
        pump->poke_wanted = true; /* if the leader is another thread */
    else if (before == LEADING)
        list->leader = true;
    else if (before == ASLEEP && inside)
        pump_wake_later(pump, word);
    else if (before == ASLEEP && list->count < sizeof(list->words) / sizeof(list->words[0]))
        list->words[list->count++] = word;
    else if (before == ASLEEP)
        wake_futex(word); /* very many at once: it is not worth the room */
}

void wake_list_flush(struct pump *pump, struct wake_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        wake_futex(list->words[i]);
    if (list->leader) {
        pthread_mutex_lock(&pump->lock);
        pump_poke_locked(pump);
        pthread_cond_broadcast(&pump->left);
        pthread_mutex_unlock(&pump->lock);
    }
}

void sleeper_wake(struct sleeper *sleeper)
{
    struct pump *pump = sleeper->pump;
    struct wake_list list = {.count = 0};
    sleeper_wake_later(sleeper, &list);
    wake_list_flush(pump, &list);
}

/* How long to sleep in the kernel, at most: a virtual clock moves without waking a thread. */
static int64_t remaining_ns(int64_t until_ns)
{
    int64_t now = clock_now();
    int64_t left = until_ns <= now ? 0 : until_ns - now;
    if (atomic_load_explicit(&clock_virtual_ns, memory_order_relaxed) >= 0 && left > NS_PER_MS)
        left = NS_PER_MS;
    return left;
}

void pump_cond_wait_locked(struct pump *pump, pthread_cond_t *cond, int64_t until_ns)
{
    if (until_ns == MORTISE_NEVER) {
        pthread_cond_wait(cond, &pump->lock);
        return;
    }
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    int64_t left = remaining_ns(until_ns), ns = at.tv_nsec + left % NS_PER_S;
    at.tv_sec += (time_t)(left / NS_PER_S + ns / NS_PER_S);
    at.tv_nsec = (long)(ns % NS_PER_S);
    pthread_cond_timedwait(cond, &pump->lock, &at);
}

/* ---- the leader ---- */

static void note_ready_locked(struct pump *pump, const struct epoll_event *events, int count)
{
    for (int i = 0; i < count; i++) {
        size_t k = 0;
        while (k < pump->interest_count && pump->interest[k].fd != events[i].data.fd)
            k++;
        if (k == pump->interest_count || pump->ready_count == PUMP_FDS)
            continue; /* the poke, or closed in between */
        pump->ready[pump->ready_count] = pump->interest[k];
        pump->ready[pump->ready_count++].revents = (short)events[i].events;
        pump->turn_wanted = true;
    }
}

/* Uses time-outs of less than a millisecond if the kernel has them (Linux 5.11) and the sandbox allows them; otherwise
 * rounds up. */
static int epoll_wait_ns(int epoll, struct epoll_event *events, int capacity, int64_t timeout_ns)
{
#ifdef SYS_epoll_pwait2
    static _Atomic bool absent;
    if (timeout_ns > 0 && timeout_ns < 20 * NS_PER_MS &&
        !atomic_load_explicit(&absent, memory_order_relaxed)) {
        struct timespec timeout = {timeout_ns / NS_PER_S, timeout_ns % NS_PER_S};
        long n = syscall(SYS_epoll_pwait2, epoll, events, capacity, &timeout, NULL, 0);
        if (n >= 0 || (errno != ENOSYS && errno != EPERM))
            return (int)n;
        atomic_store_explicit(&absent, true, memory_order_relaxed);
    }
#endif
    int64_t ms = timeout_ns / NS_PER_MS + (timeout_ns % NS_PER_MS != 0);
    return epoll_wait(epoll, events, capacity, ms > INT_MAX ? INT_MAX : (int)ms);
}

/* The system gives no epoll set (it is out of descriptors). Polls the stack's descriptors in short turns, because
 * nothing can wake this thread. */
static void poll_without_epoll(struct pump *pump, int64_t until_ns)
{
    struct pollfd fds[PUMP_FDS];
    size_t count = pump->interest_count;
    for (size_t i = 0; i < count; i++)
        fds[i] = pump->interest[i];
    int64_t left = remaining_ns(until_ns);
    pthread_mutex_unlock(&pump->lock);
    poll(fds, (nfds_t)count, left > 5 * NS_PER_MS ? 5 : (int)(left / NS_PER_MS) + 1);
    pthread_mutex_lock(&pump->lock);
    for (size_t i = 0; i < count; i++) {
        struct epoll_event event = {.events = (uint32_t)fds[i].revents, .data.fd = fds[i].fd};
        if (fds[i].revents != 0)
            note_ready_locked(pump, &event, 1);
    }
}

/* While the machine is suspended, the kernel's time-outs stop but due times do not. The leader may be the only thread that looks
 * after a due time, so it looks at the clock once in a while. */
static int64_t poll_ns(int64_t wake_ns)
{
    if (wake_ns == MORTISE_NEVER)
        return IDLE_NS;
    int64_t left = remaining_ns(wake_ns);
    return left < LOOK_NS ? left : LOOK_NS;
}

void pump_poll_locked(struct pump *pump, int64_t until_ns)
{
    struct epoll_event events[PUMP_FDS];
    int64_t wake_ns = until_ns < pump->due_ns ? until_ns : pump->due_ns;
    if (!pump_open_epoll_locked(pump)) {
        poll_without_epoll(pump, wake_ns);
        return;
    }
    pump->polling = true;
    pump->polling_until_ns = wake_ns;
    int64_t left = poll_ns(wake_ns);
    int epoll = pump->wakeup.epoll;
    pthread_mutex_unlock(&pump->lock);
    int count = epoll_wait_ns(epoll, events, PUMP_FDS, left);
    /* The application has closed the set, so it is not ours any more. The next look makes another one. */
    bool is_gone = count < 0 && (errno == EBADF || errno == EINVAL);
    pthread_mutex_lock(&pump->lock);
    pump->polling = false;
    if (is_gone)
        wakeup_forget(&pump->wakeup);
    pump->looks++;
    wakeup_lower(&pump->wakeup);
    note_ready_locked(pump, events, count);
    pthread_cond_broadcast(&pump->left);
}

bool pump_peek_locked(struct pump *pump)
{
    struct epoll_event events[PUMP_FDS];
    pump->looks++;
    if (pump->wakeup.epoll >= 0 && !pump->turn_wanted) {
        int count = epoll_wait(pump->wakeup.epoll, events, PUMP_FDS, 0);
        note_ready_locked(pump, events, count);
    }
    if (!pump->polling) /* else the poke is meant for the thread that polls */
        wakeup_lower(&pump->wakeup);
    if (pump->due_ns <= clock_now())
        pump->turn_wanted = true;
    return pump_has_work_locked(pump);
}

static void lead_locked(struct pump *pump, struct sleeper *sleeper, int64_t until_ns)
{
    if (!move(sleeper, AWAKE, LEADING))
        return;
    while (!sleeper_done(sleeper)) {
        if (!pump->inside && !pump->polling && pump_has_work_locked(pump)) {
            pump_go_inside_locked(pump);
            continue;
        }
        int64_t now = clock_now();
        if (now >= until_ns)
            break;
        if (pump->inside ||
            pump->polling) /* the service thread is there, or a caller that starts a request */
            pump_cond_wait_locked(pump, &pump->left, until_ns);
        else if (pump->due_ns <= now)
            pump->turn_wanted = true;
        else
            pump_poll_locked(pump, until_ns);
    }
    move(sleeper, LEADING, AWAKE);
}

/* Names the first follower that still sleeps, unless one is named already. False: all are awake. *word: the futex to wake
 * after the lock is released; its sleeper may be gone by then. pump lock held */
static bool name_one_of(struct sleeper *next, _Atomic uint32_t **word)
{
    for (; next != NULL; next = next->next) {
        if (next->aside)
            continue;
        if (move(next, ASLEEP, NAMED)) {
            *word = &next->word;
            return true;
        }
        if (atomic_load(&next->word) == NAMED)
            return true;
    }
    return false;
}

static void wake_named(_Atomic uint32_t *word)
{
    if (word != NULL)
        wake_futex(word);
}

/* Names the next leader. *word: as above. pump lock held */
static void name_next_locked(struct pump *pump, _Atomic uint32_t **word)
{
    if (name_one_of(pump->followers[1], word) || name_one_of(pump->followers[0], word))
        return;
    service_follow_up_locked(pump);
    service_attend_locked(pump, true);
}

void pump_name_next_locked(struct pump *pump)
{
    _Atomic uint32_t *word = NULL;
    name_next_locked(pump, &word);
    wake_named(word);
}

/* ---- followers ---- */

static void add_follower_locked(struct pump *pump, struct sleeper *sleeper)
{
    struct sleeper **followers = &pump->followers[sleeper->expected];
    sleeper->previous = NULL;
    sleeper->next = *followers;
    if (*followers != NULL)
        (*followers)->previous = sleeper;
    *followers = sleeper;
    sleeper->follows = true;
    pump->follower_count++;
}

static void remove_follower_locked(struct pump *pump, struct sleeper *sleeper)
{
    if (sleeper->previous != NULL)
        sleeper->previous->next = sleeper->next;
    else
        pump->followers[sleeper->expected] = sleeper->next;
    if (sleeper->next != NULL)
        sleeper->next->previous = sleeper->previous;
    sleeper->follows = false;
    pump->follower_count--;
}

void pump_expect(struct pump *pump, struct sleeper *sleeper)
{
    pthread_mutex_lock(&pump->lock);
    bool follows = sleeper->follows;
    if (follows)
        remove_follower_locked(pump, sleeper);
    sleeper->expected = true;
    if (follows)
        add_follower_locked(pump, sleeper);
    pthread_mutex_unlock(&pump->lock);
}

void pump_depend(struct pump *pump, struct sleeper *sleeper, unsigned count)
{
    pthread_mutex_lock(&pump->lock);
    sleeper->dependents = count;
    pthread_mutex_unlock(&pump->lock);
}

/* named: the futex of a leader that was named, which is woken first; or NULL. */
static void follow_locked(struct pump *pump, struct sleeper *sleeper, int64_t until_ns,
                          _Atomic uint32_t *named)
{
    if (!move(sleeper, AWAKE, ASLEEP)) {
        wake_named(named);
        return;
    }
    add_follower_locked(pump, sleeper);
    service_guard_locked(pump); /* the leader may stand still */
    pthread_mutex_unlock(&pump->lock);
    wake_named(named); /* not earlier: the woken thread would wait for the lock */
    struct timespec timeout, *limit = NULL;
    if (until_ns != MORTISE_NEVER) {
        int64_t left = remaining_ns(until_ns);
        timeout = (struct timespec){(time_t)(left / NS_PER_S), (long)(left % NS_PER_S)};
        limit = &timeout;
    }
    syscall(SYS_futex, &sleeper->word, FUTEX_WAIT_PRIVATE, ASLEEP, limit, NULL, 0);
    pthread_mutex_lock(&pump->lock);
    remove_follower_locked(pump, sleeper);
    if (!move(sleeper, ASLEEP, AWAKE))
        move(sleeper, NAMED, AWAKE);
}

/* Returns the futex to wake after the lock was released, or NULL. */
static _Atomic uint32_t *wait_locked(struct pump *pump, struct sleeper *sleeper, int64_t until_ns)
{
    _Atomic uint32_t *word = NULL;
    while (!sleeper_done(sleeper) && (until_ns == MORTISE_NEVER || clock_now() < until_ns)) {
        if (pump->led && !pump->service_leads) {
            /* Requests that callbacks held back (pump_hold) would wait until the leader finds something ready. */
            if (!pump->inside && !pump->stopping && pump_has_work_locked(pump))
                pump_go_inside_locked(pump);
            else
                follow_locked(pump, sleeper, until_ns, NULL);
            continue;
        }
        /* An expected caller leads itself. Otherwise two of them would name each other forever. */
        if (sleeper->patient && !sleeper->expected && !pump->led &&
            name_one_of(pump->followers[1], &word)) {
            follow_locked(pump, sleeper, until_ns, word);
            word = NULL;
            continue;
        }
        if (pump->service_leads) { /* it steps back: a caller that leads needs no thread switch */
            pump->service_leads = false;
            pump_poke_locked(pump);
        }
        pump->led = true;
        lead_locked(pump, sleeper, until_ns);
        pump->led = false;
    }
    if (pump->led)
        return NULL;
    if (!pump->inside && pump_has_work_locked(pump))
        pump_go_inside_locked(pump); /* work that was left to the leader, which this thread was */
    if (sleeper->dependents > 0 && pump->unattended == 0 && pump->service_runs &&
        pump->follower_count <= sleeper->dependents)
        service_stand_by_locked(pump);
    else
        name_next_locked(pump, &word);
    return word;
}

bool pump_wait(struct pump *pump, struct sleeper *sleeper, int64_t until_ns)
{
    if (sleeper_done(sleeper))
        return true;
    pthread_mutex_lock(&pump->lock);
    _Atomic uint32_t *word = wait_locked(pump, sleeper, until_ns);
    pthread_mutex_unlock(&pump->lock);
    wake_named(word);
    return sleeper_done(sleeper);
}

bool pump_wait_aside(struct pump *pump, struct sleeper *sleeper, int64_t until_ns)
{
    pthread_mutex_lock(&pump->lock);
    sleeper->aside = service_start_locked(pump);
    if (!sleeper->aside) /* a test drives the pump by hand, or the system gives no thread */
        wake_named(wait_locked(pump, sleeper, until_ns));
    while (!sleeper_done(sleeper) && clock_now() < until_ns)
        follow_locked(pump, sleeper, until_ns, NULL);
    pthread_mutex_unlock(&pump->lock);
    return sleeper_done(sleeper);
}

/* ---- without waiting ---- */

void pump_turn(struct pump *pump)
{
    pthread_mutex_lock(&pump->lock);
    if (pump->inside)
        pump_hide_locked(pump);
    else if (pump_peek_locked(pump))
        pump_go_inside_locked(pump);
    service_attend_locked(pump, true);
    pthread_mutex_unlock(&pump->lock);
}

void pump_dispatched(struct pump *pump, int shown)
{
    pthread_mutex_lock(&pump->lock);
    pump->dispatched = !pump->closing; /* closed by another thread meanwhile */
    pump->shown = shown;
    pthread_mutex_unlock(&pump->lock);
}

void pump_closing(struct pump *pump)
{
    pthread_mutex_lock(&pump->lock);
    pump->closing = true;
    pump->dispatched = false;
    pthread_mutex_unlock(&pump->lock);
}

int pump_epoll(struct pump *pump)
{
    pthread_mutex_lock(&pump->lock);
    bool is_ours = wakeup_is_ours(&pump->wakeup);
    if (!is_ours && !pump->polling) { /* else who polls finds out that it is gone, and forgets it */
        wakeup_forget(&pump->wakeup);
        is_ours = pump_open_epoll_locked(pump);
    }
    int epoll = is_ours ? pump->wakeup.epoll : -1;
    pthread_mutex_unlock(&pump->lock);
    return epoll;
}
