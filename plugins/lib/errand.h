/* errand.h - an *errand*: the thread of an observer that writes files. A file system may hang forever, or be so slow that the
 * rest of the work takes minutes, but a close must return (R9). So if the thread is not done in time, the close returns and
 * leaves the thread behind, with everything that it uses.
 *
 * Such a thread outlives the client: the host table does not exist any more, and errand_log() does nothing. When the thread
 * goes on, it frees its memory. Its code must still be loaded then, so a module with an errand is linked with
 * -z nodelete. */
#ifndef MORTISE_ERRAND_H
#define MORTISE_ERRAND_H

#include <mortise/driver.h>

#include <pthread.h>

/* How long a close waits for the thread, in all. Our threads wait less than this for anything except a file system. */
#define ERRAND_PATIENCE_MS 5000

struct errand {
    mortise_host *host;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* on CLOCK_MONOTONIC */
    bool done, left;
};

void errand_init(struct errand *errand, mortise_host *host);
void errand_free(struct errand *errand); /* only if the thread was not started, or has ended */
/* Starts a thread that takes no signals. False: it could not be created. */
bool errand_start(struct errand *errand, void *(*run)(void *), void *argument);
/* Waits until the thread is done. False: the thread hangs, or is slow, and was left behind: do not touch what it uses. */
bool errand_end(struct errand *errand);

/* As host->log; does nothing after the thread was left behind. */
void errand_log(struct errand *errand, int level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The thread calls this last. False: the thread was left behind, and must free its memory itself. */
bool errand_done(struct errand *errand);

#endif
