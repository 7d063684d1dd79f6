/* locks.c - the names and timers of a client, and the end of each critical section under its lock; see locks.h. */
#include "lock/locks.h"
#include "base/high_fd.h"

#include <stdlib.h>
#include <string.h>
#include <sys/timerfd.h>

void locks_make(struct locks *locks, struct pump *pump, struct events *events)
{
    pthread_mutex_init(&locks->lock, NULL);
    locks->pump = pump;
    locks->events = events;
    locks->watchdog.timer = -1;
}

void locks_destroy(struct locks *locks)
{
    while (locks->free_rooms != NULL) {
        struct holder_room *room = locks->free_rooms;
        locks->free_rooms = room->next;
        free(room);
    }
    free(locks->timers.timers);
    pthread_mutex_destroy(&locks->lock);
}

/* ---- the end of a critical section ---- */

void locks_unlock(struct locks *locks, enum start how)
{
    struct wake_list wakes;
    struct task_list starts = locks->starts;
    bool kick = locks->kick;
    wakes.count = locks->wakes.count;
    wakes.leader = locks->wakes.leader;
    if (wakes.count > 0)
        memcpy(wakes.words, locks->wakes.words, wakes.count * sizeof(wakes.words[0]));
    locks->wakes.count = 0;
    locks->wakes.leader = locks->kick = false;
    locks->starts = (struct task_list){NULL, NULL};
    struct pump *pump = locks->pump;
    pthread_mutex_unlock(&locks->lock);
    if (wakes.count > 0 || wakes.leader)
        wake_list_flush(pump, &wakes);
    if (starts.first == NULL && !kick)
        return;
    if (how == START_DETACHED)
        pump_start_detached(pump, &starts);
    else if (how == START_SOON)
        pump_start_soon(pump, &starts);
    else
        pump_start(pump, &starts);
}

void locks_start_locked(struct locks *locks, struct task *task)
{
    task_append(&locks->starts, task);
}

void locks_cancel_locked(struct locks *locks, struct task *task)
{
    pump_cancel(locks->pump, task);
    locks->kick = true;
}

void locks_began_locked(struct locks *locks)
{
    locks->outstanding++;
}

void locks_ended_locked(struct locks *locks)
{
    if (--locks->outstanding > 0 || locks->drain == NULL)
        return;
    struct sleeper *drain = locks->drain;
    locks->drain = NULL;
    sleeper_wake_later(drain, &locks->wakes);
}

/* ---- timers ---- */

static bool arm(int timer, int64_t due_ns)
{
    struct itimerspec at = {.it_value = {0, 1}};
    if (due_ns == MORTISE_NEVER)
        at.it_value.tv_nsec = 0; /* disarmed */
    else if (due_ns > 0)
        at.it_value = (struct timespec){(time_t)(due_ns / NS_PER_S), (long)(due_ns % NS_PER_S)};
    return timerfd_settime(timer, TFD_TIMER_ABSTIME, &at, NULL) == 0;
}

int locks_make_timer(void)
{
    return high_fd(timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK));
}

/* If the timer cannot be set, the application has closed it, and its number may be another file's: that file is not touched. If
 * it were a timer of the application, or of another client, this would set it; but such a timer hardly ever has our number
 * (base/high_fd.h). */
void locks_arm_locked(struct locks *locks, int64_t due_ns)
{
    struct watchdog *watchdog = &locks->watchdog;
    bool had_timer = watchdog->timer >= 0;
    watchdog->armed_ns = due_ns;
    if (arm(watchdog->timer, due_ns))
        return;
    watchdog->timer = locks_make_timer();
    arm(watchdog->timer, due_ns);
    if (had_timer) /* else the thread sleeps without a timer, and looks soon */
        watchdog->timer_lost(locks);
}

void locks_set_timer_locked(struct locks *locks, struct timer *timer, int64_t due_ns)
{
    timer_set(&locks->timers, timer, due_ns);
    if (locks->watchdog.runs && due_ns < locks->watchdog.armed_ns)
        locks_arm_locked(locks, due_ns);
}

void locks_stop_timer_locked(struct locks *locks, struct timer *timer)
{
    timer_stop(&locks->timers, timer);
}

int64_t locks_spread_ms_locked(struct locks *locks, int64_t ms)
{
    return ms / 2 + random_below(&locks->random, ms / 2 + 1);
}

/* ---- names ---- */

struct name *name_find_locked(struct locks *locks, const char *text, size_t length)
{
    struct name *name;
    HASH_FIND(hh, locks->names, text, length, name);
    return name;
}

struct name *name_get_locked(struct locks *locks, const char *text, size_t length)
{
    struct name *name = name_find_locked(locks, text, length);
    if (name != NULL) {
        if (locks->idle_name == name)
            locks->idle_name = NULL;
        name->references++;
        return name;
    }
    name = calloc(1, sizeof(*name) + length + 1);
    if (name == NULL)
        return NULL;
    memcpy(name->text, text, length);
    name->length = (uint32_t)length;
    name->references = 1;
    HASH_ADD_KEYPTR(hh, locks->names, name->text, length, name);
    if (name->hh.tbl == NULL) {
        free(name);
        return NULL;
    }
    return name;
}

static void name_free_locked(struct locks *locks, struct name *name)
{
    HASH_DELETE(hh, locks->names, name);
    free(name->watch);
    free(name);
}

/* Keeps one name, so that a caller that acquires the same name again and again does not make an entry and a table each time. */
void name_put_locked(struct locks *locks, struct name *name)
{
    if (--name->references > 0)
        return;
    struct name *leaves = name;
    if (!locks->closing) {
        leaves = locks->idle_name;
        locks->idle_name = name;
    }
    if (leaves != NULL)
        name_free_locked(locks, leaves);
}

void name_forget_idle_locked(struct locks *locks)
{
    if (locks->idle_name != NULL)
        name_free_locked(locks, locks->idle_name);
    locks->idle_name = NULL;
}
