/* helper.c - see helper.h. */
#include "helper.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

struct helper {
    struct helper_work work;
    pthread_t thread;
    pthread_mutex_t lock; /* guards what follows */
    int fd; /* a copy of the socket, because the library may close its own at any time; or -1 */
    bool canceled, over, success;
};

static void *run(void *argument)
{
    struct helper *helper = argument;
    pthread_setname_np(pthread_self(), "mortise-connect");
    bool success = helper->work.run(helper, helper->work.run_argument);
    pthread_mutex_lock(&helper->lock);
    helper->over = true;
    helper->success = success;
    bool canceled = helper->canceled;
    pthread_mutex_unlock(&helper->lock);
    if (!canceled)
        helper->work.done(helper->work.done_argument);
    return NULL;
}

/* Blocks all signals in the thread: they are for the application's threads, and a broken connection must raise no SIGPIPE. */
static bool start(struct helper *helper)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool started = pthread_create(&helper->thread, NULL, run, helper) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return started;
}

struct helper *helper_begin(const struct helper_work *work)
{
    struct helper *helper = calloc(1, sizeof(*helper));
    if (helper == NULL)
        return NULL;
    helper->work = *work;
    helper->fd = -1;
    pthread_mutex_init(&helper->lock, NULL);
    if (start(helper))
        return helper;
    pthread_mutex_destroy(&helper->lock);
    free(helper);
    return NULL;
}

/* Without a copy of the socket nobody could end the thread, so the thread ends by itself. A program that this process
 * starts meanwhile must not inherit the connection. */
bool helper_goes_on(struct helper *helper, int fd)
{
    pthread_mutex_lock(&helper->lock);
    if (helper->fd < 0 && fd >= 0) {
        fcntl(fd, F_SETFD, FD_CLOEXEC);
        helper->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    }
    bool goes_on = !helper->canceled && helper->fd >= 0;
    pthread_mutex_unlock(&helper->lock);
    if (!goes_on && fd >= 0)
        shutdown(fd, SHUT_RDWR);
    return goes_on;
}

bool helper_is_over(struct helper *helper, bool *success)
{
    pthread_mutex_lock(&helper->lock);
    bool over = helper->over;
    *success = helper->success;
    pthread_mutex_unlock(&helper->lock);
    return over;
}

void helper_end(struct helper *helper)
{
    pthread_mutex_lock(&helper->lock);
    helper->canceled = true;
    if (!helper->over && helper->fd >= 0)
        shutdown(helper->fd, SHUT_RDWR);
    pthread_mutex_unlock(&helper->lock);
    pthread_join(helper->thread, NULL);
    if (helper->fd >= 0)
        close(helper->fd);
    pthread_mutex_destroy(&helper->lock);
    free(helper);
}
