/* thread.c - a thread beside the main one. */
#include "thread.h"

#include <signal.h>

int thread_start(pthread_t *thread, void *(*body)(void *argument), void *argument)
{
    sigset_t everything, before;

    sigfillset(&everything);
    pthread_sigmask(SIG_SETMASK, &everything, &before);
    int error = pthread_create(thread, NULL, body, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}
