/* errand.h - the thread of an observer that writes files. A file system may hang for ever, and no close may (R9): so
 * a thread that does not get on is left standing, with all that it uses, and whoever closes goes on.
 *
 * What is left standing outlives the client: the host table is gone then, and errand_log() says nothing any more. When
 * the thread comes back it frees what it was left with. Its code must still be there: a module with an errand is
 * linked with -z nodelete. */
#ifndef MORTISE_ERRAND_H
#define MORTISE_ERRAND_H

#include <mortise/driver.h>

#include <pthread.h>

/* Without a step for so long it hangs. More than a thread of ours waits for anything that is not a file system. */
#define ERRAND_STILL_MS 5000

struct errand {
    mortise_host *host;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* of CLOCK_MONOTONIC */
    bool done, left;
    uint64_t steps;
};

void errand_init(struct errand *errand, mortise_host *host);
void errand_free(struct errand *errand); /* it was not started, or has ended */
/* A thread that takes no signals; false: none could be had. */
bool errand_start(struct errand *errand, void *(*run)(void *), void *argument);
/* Waits until the thread is done. False: it hangs, and was left standing; nothing of its own may be touched. */
bool errand_end(struct errand *errand);

/* Of the thread itself: it got on. */
void errand_step(struct errand *errand);
/* As host->log, while there is a host. */
void errand_log(struct errand *errand, int level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The last that it does. False: it was left standing, and frees what it has. */
bool errand_done(struct errand *errand);

#endif
