/* writer.c - the thread that writes the counts: when it begins, after each period of `every`, and when the client
 * closes. If a write fails, it tries again at the next turn. No other thread waits for it. */
#include "internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void complain(struct metrics *metrics, int cause)
{
    if (!metrics->failing && cause == EAGAIN)
        errand_log(&metrics->errand, 4,
                   "metrics: all %d slots in %s are taken; tried again (`slots`)",
                   metrics->place.slots, metrics->place.folder);
    else if (!metrics->failing)
        errand_log(&metrics->errand, 4, "metrics: %s cannot be written to: %s; tried again",
                   metrics->place.folder, strerror(cause));
    metrics->failing = true;
}

static bool have_place(struct metrics *metrics)
{
    if (place_is_held(&metrics->place))
        return true;
    if (!place_take(&metrics->place))
        return false;
    char *file = place_read(&metrics->place);
    text_resume(metrics, file != NULL ? file : "");
    free(file);
    return true;
}

static void take_turn(struct metrics *metrics)
{
    if (!have_place(metrics)) {
        complain(metrics, errno);
        return;
    }
    text_make(metrics);
    if (metrics->text.full || !place_write(&metrics->place, &metrics->text)) {
        complain(metrics, metrics->text.full ? EFBIG : errno);
        return;
    }
    text_written(metrics);
    metrics->failing = false;
}

/* lock held. True: the thread must stop. */
static bool sleep_until(struct metrics *metrics, const struct timespec *until)
{
    int code = 0;
    while (!metrics->stops && code != ETIMEDOUT)
        code = pthread_cond_timedwait(&metrics->changed, &metrics->lock, until);
    return metrics->stops;
}

static bool sleep_for(struct metrics *metrics, int64_t ms)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    int64_t ns = until.tv_nsec + ms % 1000 * 1000000;
    until.tv_sec += (time_t)(ms / 1000 + ns / 1000000000);
    until.tv_nsec = (long)(ns % 1000000000);
    pthread_mutex_lock(&metrics->lock);
    bool stops = sleep_until(metrics, &until);
    pthread_mutex_unlock(&metrics->lock);
    return stops;
}

static void *writer_main(void *argument)
{
    struct metrics *metrics = argument;
    pthread_setname_np(pthread_self(), "mortise-metrics");
    do
        take_turn(metrics);
    while (!sleep_for(metrics, metrics->every_ms));
    take_turn(metrics);
    if (!errand_done(&metrics->errand))
        metrics_free(metrics);
    return NULL;
}

bool writer_start(struct metrics *metrics)
{
    return errand_start(&metrics->errand, writer_main, metrics);
}

bool writer_stop(struct metrics *metrics)
{
    pthread_mutex_lock(&metrics->lock);
    metrics->stops = true;
    pthread_cond_signal(&metrics->changed);
    pthread_mutex_unlock(&metrics->lock);
    return errand_end(&metrics->errand);
}
