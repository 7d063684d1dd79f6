/* service.c - the client's own thread for what no caller waits for; see pump.h.
 *
 * It stays out of the way: as long as callers turn the stack it only looks again every GRACE_NS, and
 * when a caller wants to lead it steps back. It never runs callbacks of the application. */
#include "pump/pump_internal.h"

#include <signal.h>

#define GRACE_NS (5 * NS_PER_MS)       /* how long something may stand before the thread leads */
#define GUARD_MAX_NS (100 * NS_PER_MS) /* how often a leader that does nothing is looked at */
#define DISPATCH_NS (2 * NS_PER_MS)    /* how long the application has for mortise_dispatch */

static bool needed_locked(const struct pump *pump)
{
    return pump->unattended > 0 || pump->followers[0] != NULL || pump->followers[1] != NULL;
}

/* Nothing is outstanding: sleeps until the driver's timer, which a caller may have served by then. If a thread is inside, it
 * may be slow to serve a timer that is due; to look again at once would be a busy loop. */
static void sleep_locked(struct pump *pump)
{
    int64_t soon_ns = pump->inside ? clock_now() + GRACE_NS : 0;
    pump->service_sleeps = true;
    pump->service_until_ns =
        pump->due_ns == MORTISE_NEVER ? MORTISE_NEVER : pump->due_ns + GRACE_NS;
    if (pump->service_until_ns < soon_ns)
        pump->service_until_ns = soon_ns;
    pump_cond_wait_locked(pump, &pump->service_cond, pump->service_until_ns);
    pump->service_sleeps = false;
    if (!pump->inside && pump->due_ns <= clock_now() - GRACE_NS)
        pump->turn_wanted = true;
}

/* Another thread leads. If it makes no turn although there is work (it may get no processor time, or be
 * stopped by a debugger), this thread makes the turn. */
static void guard_locked(struct pump *pump, int64_t *tick_ns)
{
    uint64_t turns = pump->turns, looks = pump->looks;
    pump->service_guards = true;
    if (pump->rested)
        *tick_ns = GRACE_NS; /* there may be no leader soon */
    else if (pump->unattended == 0)
        *tick_ns = GUARD_MAX_NS; /* callers wait for one another, as they often do for a moment */
    pump->rested = false;
    pump_cond_wait_locked(pump, &pump->service_cond, clock_now() + *tick_ns);
    pump->service_guards = false;
    if (pump->turns != turns || pump->looks != looks || pump->inside || pump->stopping)
        *tick_ns = GRACE_NS;
    else if (pump_peek_locked(pump))
        pump_serve_locked(pump);
    else
        *tick_ns = *tick_ns * 2 > GUARD_MAX_NS ? GUARD_MAX_NS : *tick_ns * 2;
}

/* If the application dispatches, gives it time to handle the ready descriptors first. */
static void after_poll_locked(struct pump *pump)
{
    if (!pump->dispatched || !pump->turn_wanted)
        return;
    uint64_t turns = pump->turns;
    int64_t until_ns = clock_now() + DISPATCH_NS;
    while (pump->turns == turns && !pump->stopping && clock_now() < until_ns)
        pump_cond_wait_locked(pump, &pump->service_cond, until_ns);
}

static void lead_locked(struct pump *pump)
{
    pump->led = pump->service_leads = true;
    while (pump->service_leads && !pump->stopping && needed_locked(pump)) {
        if (pump->inside)
            pump_cond_wait_locked(pump, &pump->left, MORTISE_NEVER);
        else if (pump_has_work_locked(pump))
            pump_serve_locked(pump);
        else if (pump->due_ns <= clock_now())
            pump->turn_wanted = true;
        else {
            pump_poll_locked(pump, MORTISE_NEVER);
            after_poll_locked(pump);
        }
    }
    if (pump->service_leads) {
        pump->led = pump->service_leads = false;
        pump_name_next_locked(pump);
    }
}

/* No thread leads. False: another thread has looked at the descriptors within GRACE_NS, or leads now. */
static bool wait_grace_locked(struct pump *pump)
{
    if (pump->service_hurry) {
        pump->service_hurry = false;
        return true;
    }
    uint64_t looks = pump->looks; /* not turns: starting requests reads no answers */
    pump_cond_wait_locked(pump, &pump->service_cond, clock_now() + GRACE_NS);
    return (pump->looks == looks || pump->service_hurry) && !pump->led && !pump->stopping;
}

static void *service_main(void *argument)
{
    struct pump *pump = argument;
    int64_t tick_ns = GRACE_NS;
    pthread_setname_np(pthread_self(), "mortise-pump");
    pthread_mutex_lock(&pump->lock);
    while (!pump->stopping) {
        if (!pump->inside && pump_has_work_locked(pump))
            pump_serve_locked(pump);
        else if (!needed_locked(pump))
            sleep_locked(pump);
        else if (pump->led)
            guard_locked(pump, &tick_ns);
        else if (wait_grace_locked(pump))
            lead_locked(pump);
    }
    if (!pump->inside && pump_has_work_locked(pump)) /* work that a caller has left to it */
        pump_serve_locked(pump);
    pump->service_runs = false;
    pthread_cond_broadcast(&pump->left);
    pthread_mutex_unlock(&pump->lock);
    return NULL;
}

bool service_start_locked(struct pump *pump)
{
    if (pump->manual || pump->stopping)
        return false;
    if (pump->service_runs)
        return true;
    sigset_t all, before; /* signals are for the application's threads */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pump->service_runs = pthread_create(&pump->service, NULL, service_main, pump) == 0;
    pump->service_made = pump->service_runs;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return pump->service_runs;
}

bool pump_ready(struct pump *pump)
{
    pthread_mutex_lock(&pump->lock);
    /* stopping: the call gets CLOSED */
    bool ready = service_start_locked(pump) || pump->manual || pump->stopping;
    pthread_mutex_unlock(&pump->lock);
    return ready;
}

/* The thread would sleep past the driver's timer: the timer is due before the sleep ends; or the machine was suspended
 * meanwhile, and the sleep lasts longer by that time. */
static bool oversleeps_locked(const struct pump *pump)
{
    return pump->due_ns + GRACE_NS < pump->service_until_ns ||
           (pump->service_sleeps && pump->service_until_ns <= clock_now());
}

void service_attend_locked(struct pump *pump, bool timer)
{
    bool wanted = pump->unattended > 0;
    if (!wanted && timer && !pump->led && pump->due_ns != MORTISE_NEVER)
        wanted = !pump->service_runs || oversleeps_locked(pump);
    if (wanted && service_start_locked(pump) && pump->service_sleeps) {
        pump->service_sleeps = false; /* one signal is enough */
        pthread_cond_signal(&pump->service_cond);
    }
}

void service_guard_locked(struct pump *pump)
{
    if (!pump->service_leads && service_start_locked(pump) && pump->service_sleeps) {
        pump->service_sleeps = false;
        pthread_cond_signal(&pump->service_cond);
    }
}

void service_stand_by_locked(struct pump *pump)
{
    if (!pump->rested && pump->service_guards)
        pthread_cond_signal(&pump->service_cond);
    pump->rested = true;
}

void service_follow_up_locked(struct pump *pump)
{
    if (!pump->service_guards || pump->unattended == 0)
        return;
    pump->service_guards = false;
    pthread_cond_signal(&pump->service_cond);
}

/* The service thread does the work, and not a caller that leads: the caller may get no processor time (a debugger, a
 * signal handler, a low priority), and renewals must not depend on that. */
bool service_take_over_locked(struct pump *pump)
{
    bool led_by_caller = pump->led && !pump->service_leads;
    if (!service_start_locked(pump)) {
        if (led_by_caller)
            pump_poke_locked(pump);
        return led_by_caller;
    }
    pump->service_sleeps = pump->service_guards = false;
    if (!led_by_caller) {
        pump->service_hurry = true;
        pump_poke_locked(pump); /* the service thread may be leading */
    }
    pthread_cond_broadcast(&pump->service_cond);
    return true;
}

void pump_hurry(struct pump *pump)
{
    pthread_mutex_lock(&pump->lock);
    if (pump->unattended > 0 && !pump->led && !pump->dispatched && service_start_locked(pump)) {
        pump->service_hurry = true;
        pump->service_sleeps = false;
        pthread_cond_signal(&pump->service_cond);
    }
    pthread_mutex_unlock(&pump->lock);
}

bool pump_stop(struct pump *pump, int64_t until_ns)
{
    pthread_mutex_lock(&pump->lock);
    pump->stopping = true;
    pump_poke_locked(pump);
    pthread_cond_broadcast(&pump->service_cond);
    pthread_cond_broadcast(&pump->left);
    while ((pump->service_runs || pump->inside) && clock_now() < until_ns)
        pump_cond_wait_locked(pump, &pump->left, until_ns);
    bool ended = !pump->service_runs && !pump->inside;
    bool made = pump->service_made;
    pump->service_made = false;
    pthread_t service = pump->service;
    pthread_mutex_unlock(&pump->lock);
    /* A thread that is stuck in a module may end later; no thread waits for that. */
    if (made && ended)
        pthread_join(service, NULL);
    else if (made)
        pthread_detach(service);
    return ended;
}
