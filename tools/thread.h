/* thread.h - a thread beside the main one. */
#ifndef MORTISE_TOOLS_THREAD_H
#define MORTISE_TOOLS_THREAD_H

#include <pthread.h>

/* Starts a thread that gets no signals, because the main thread reads them from a descriptor. Returns 0 or an errno. */
int thread_start(pthread_t *thread, void *(*body)(void *argument), void *argument);

#endif
