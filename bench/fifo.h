/* fifo.h - the bare floor of a hand-over: a strictly fair mutex in one process. Waiters are in one queue. A thread
 * that unlocks passes the mutex to the first waiter and wakes it, by a condition variable of its own. Nothing times
 * out, expires, or has to be asked elsewhere. */
#ifndef MORTISE_BENCH_FIFO_H
#define MORTISE_BENCH_FIFO_H

#include <pthread.h>
#include <stdbool.h>

/* One per thread. */
struct fifo_waiter {
    pthread_cond_t cond;
    bool passed;
    struct fifo_waiter *next;
};

struct fifo {
    pthread_mutex_t mutex;
    bool held;
    struct fifo_waiter *first, *last;
};

#define FIFO_INITIALIZER                                                                           \
    {                                                                                              \
        .mutex = PTHREAD_MUTEX_INITIALIZER                                                         \
    }

void fifo_waiter_begin(struct fifo_waiter *waiter);
void fifo_waiter_end(struct fifo_waiter *waiter);
void fifo_acquire(struct fifo *fifo, struct fifo_waiter *waiter);
void fifo_release(struct fifo *fifo);

#endif
