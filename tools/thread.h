/* thread.h - a thread beside the main one. */
#ifndef MORTISE_TOOLS_THREAD_H
#define MORTISE_TOOLS_THREAD_H

#include <pthread.h>

/* Signals are for the main thread, which reads them from a descriptor: this one gets none. Returns 0 or an errno. */
int thread_start(pthread_t *thread, void *(*body)(void *argument), void *argument);

#endif
