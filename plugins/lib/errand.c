/* errand.c - a thread that may hang in a file system, and the wait for its end: see errand.h. */
#include "errand.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <time.h>

/* The wait consists of pieces. So a process that is stopped meanwhile loses one piece of the wait, and not all of it. */
enum { PIECES = 10, PIECE_MS = ERRAND_PATIENCE_MS / PIECES };

void errand_init(struct errand *errand, mortise_host *host)
{
    pthread_condattr_t monotonic;
    *errand = (struct errand){.host = host};
    pthread_mutex_init(&errand->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&errand->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

void errand_free(struct errand *errand)
{
    pthread_cond_destroy(&errand->changed);
    pthread_mutex_destroy(&errand->lock);
}

bool errand_start(struct errand *errand, void *(*run)(void *), void *argument)
{
    sigset_t all, before; /* signals are for the application's threads, and SIGPIPE for none */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool started = pthread_create(&errand->thread, NULL, run, argument) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return started;
}

/* Called with the lock held. Waits until the thread is done, or one piece. */
static void wait_piece(struct errand *errand)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += PIECE_MS * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    int code = 0;
    while (!errand->done && code != ETIMEDOUT)
        code = pthread_cond_timedwait(&errand->changed, &errand->lock, &until);
}

bool errand_end(struct errand *errand)
{
    pthread_mutex_lock(&errand->lock);
    for (int piece = 0; !errand->done && piece < PIECES; piece++)
        wait_piece(errand);
    bool done = errand->done;
    if (!done) {
        errand->left = true;
        errand->host->log(
            errand->host, 3,
            "the file system did not respond in time; the writer thread was abandoned");
        pthread_detach(errand->thread);
    }
    pthread_mutex_unlock(&errand->lock); /* a thread left behind may free it from here on */
    if (done)
        pthread_join(errand->thread, NULL);
    return done;
}

void errand_log(struct errand *errand, int level, const char *format, ...)
{
    char line[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);
    pthread_mutex_lock(&errand->lock);
    if (!errand->left)
        errand->host->log(errand->host, level, "%s", line);
    pthread_mutex_unlock(&errand->lock);
}

bool errand_done(struct errand *errand)
{
    pthread_mutex_lock(&errand->lock);
    bool left = errand->left;
    errand->done = true;
    pthread_cond_signal(&errand->changed);
    pthread_mutex_unlock(&errand->lock);
    return !left;
}
