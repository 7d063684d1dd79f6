/* sigpipe.h - keeps SIGPIPE from the application while a client library writes. With TLS, the library writes by itself, and
 * a broken connection would end a program that does not expect this signal. */
#ifndef MORTISE_LIB_SIGPIPE_H
#define MORTISE_LIB_SIGPIPE_H

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <time.h>

struct sigpipe {
    sigset_t pipe, before;
    bool was_pending;
};

static inline void sigpipe_block(struct sigpipe *state)
{
    sigset_t pending;
    sigemptyset(&state->pipe);
    sigaddset(&state->pipe, SIGPIPE);
    sigpending(&pending);
    state->was_pending = sigismember(&pending, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &state->pipe, &state->before);
}

/* Discards a SIGPIPE that has come meanwhile. Keeps errno. */
static inline void sigpipe_restore(const struct sigpipe *state)
{
    const struct timespec now = {0, 0};
    int problem = errno;
    while (!state->was_pending && sigtimedwait(&state->pipe, NULL, &now) < 0 && errno == EINTR)
        ;
    pthread_sigmask(SIG_SETMASK, &state->before, NULL);
    errno = problem;
}

#endif
