/* real.h - the C library's own functions, behind those that this program replaces. */
#ifndef MORTISE_TESTS_REPLAY_REAL_H
#define MORTISE_TESTS_REPLAY_REAL_H

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define REAL_MAP(X)                                                                                \
    X(int, pthread_create, (pthread_t *, const pthread_attr_t *, void *(*)(void *), void *))       \
    X(int, pthread_join, (pthread_t, void **))                                                     \
    X(int, pthread_detach, (pthread_t))                                                            \
    X(int, pthread_mutex_init, (pthread_mutex_t *, const pthread_mutexattr_t *))                   \
    X(int, pthread_mutex_lock, (pthread_mutex_t *))                                                \
    X(int, pthread_mutex_trylock, (pthread_mutex_t *))                                             \
    X(int, pthread_mutex_unlock, (pthread_mutex_t *))                                              \
    X(int, pthread_mutex_destroy, (pthread_mutex_t *))                                             \
    X(int, pthread_cond_wait, (pthread_cond_t *, pthread_mutex_t *))                               \
    X(int, pthread_cond_timedwait, (pthread_cond_t *, pthread_mutex_t *, const struct timespec *)) \
    X(int, pthread_cond_signal, (pthread_cond_t *))                                                \
    X(int, pthread_cond_broadcast, (pthread_cond_t *))                                             \
    X(int, pthread_cond_destroy, (pthread_cond_t *))                                               \
    X(int, pthread_once, (pthread_once_t *, void (*)(void)))                                       \
    X(int, pthread_sigmask, (int, const sigset_t *, sigset_t *))                                   \
    X(int, pthread_setname_np, (pthread_t, const char *))                                          \
    X(long, syscall, (long, ...))                                                                  \
    X(int, clock_gettime, (clockid_t, struct timespec *))                                          \
    X(int, poll, (struct pollfd *, nfds_t, int))                                                   \
    X(int, epoll_wait, (int, struct epoll_event *, int, int))                                      \
    X(int, epoll_ctl, (int, int, int, struct epoll_event *))                                       \
    X(ssize_t, read, (int, void *, size_t))                                                        \
    X(ssize_t, write, (int, const void *, size_t))                                                 \
    X(int, close, (int))                                                                           \
    X(int, openat, (int, const char *, int, ...))                                                  \
    X(int, unlink, (const char *))                                                                 \
    X(int, fcntl, (int, int, ...))                                                                 \
    X(int, flock, (int, int))                                                                      \
    X(ssize_t, pread64, (int, void *, size_t, off_t))                                              \
    X(ssize_t, pwrite64, (int, const void *, size_t, off_t))                                       \
    X(int, ftruncate64, (int, off_t))                                                              \
    X(int, fdatasync, (int))                                                                       \
    X(int, fsync, (int))                                                                           \
    X(ssize_t, sendto, (int, const void *, size_t, int, const struct sockaddr *, socklen_t))       \
    X(int, socket, (int, int, int))                                                                \
    X(int, connect, (int, const struct sockaddr *, socklen_t))                                     \
    X(ssize_t, send, (int, const void *, size_t, int))                                             \
    X(ssize_t, recv, (int, void *, size_t, int))                                                   \
    X(int, getsockopt, (int, int, int, void *, socklen_t *))                                       \
    X(int, setsockopt, (int, int, int, const void *, socklen_t))                                   \
    X(ssize_t, getrandom, (void *, size_t, unsigned))                                              \
    X(int, usleep, (useconds_t))                                                                   \
    X(int, nanosleep, (const struct timespec *, struct timespec *))                                \
    X(int, clock_nanosleep, (clockid_t, int, const struct timespec *, struct timespec *))          \
    X(int, sched_yield, (void))                                                                    \
    X(int, timerfd_create, (int, int))                                                             \
    X(int, timerfd_settime, (int, int, const struct itimerspec *, struct itimerspec *))

#define REAL_TYPE(type, name, arguments) typedef type real_##name arguments;
REAL_MAP(REAL_TYPE)
#undef REAL_TYPE

struct real {
#define REAL_MEMBER(type, name, arguments) real_##name *name;
    REAL_MAP(REAL_MEMBER)
#undef REAL_MEMBER
};

/* Found at the first use: other libraries call these functions before main(). */
const struct real *real(void);

#endif
