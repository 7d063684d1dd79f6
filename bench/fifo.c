/* fifo.c - the bare floor of a hand-over; see fifo.h. Knows only POSIX threads. */
#include "fifo.h"

#include <stddef.h>

void fifo_waiter_begin(struct fifo_waiter *waiter)
{
    pthread_cond_init(&waiter->cond, NULL);
}

void fifo_waiter_end(struct fifo_waiter *waiter)
{
    pthread_cond_destroy(&waiter->cond);
}

static void stand_in_queue_locked(struct fifo *fifo, struct fifo_waiter *waiter)
{
    waiter->passed = false;
    waiter->next = NULL;
    if (fifo->last != NULL)
        fifo->last->next = waiter;
    else
        fifo->first = waiter;
    fifo->last = waiter;
    while (!waiter->passed)
        pthread_cond_wait(&waiter->cond, &fifo->mutex);
}

void fifo_acquire(struct fifo *fifo, struct fifo_waiter *waiter)
{
    pthread_mutex_lock(&fifo->mutex);
    if (fifo->held)
        stand_in_queue_locked(fifo, waiter);
    fifo->held = true;
    pthread_mutex_unlock(&fifo->mutex);
}

void fifo_release(struct fifo *fifo)
{
    pthread_mutex_lock(&fifo->mutex);
    struct fifo_waiter *heir = fifo->first;
    if (heir == NULL) {
        fifo->held = false;
        pthread_mutex_unlock(&fifo->mutex);
        return;
    }
    fifo->first = heir->next;
    if (fifo->first == NULL)
        fifo->last = NULL;
    heir->passed = true; /* it stays held: by nobody, then by the heir */
    pthread_mutex_unlock(&fifo->mutex);
    /* Signals outside of the mutex, because otherwise the heir would block on it at once. A late signal is harmless. */
    pthread_cond_signal(&heir->cond);
}
