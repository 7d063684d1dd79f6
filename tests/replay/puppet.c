/* puppet.c - is preloaded into a real server, and makes it a function of what it is sent. See puppet.h. */
#include "puppet.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_S 1000000000
#define SEED_BYTES 256

static struct puppet *puppet(void)
{
    static struct puppet *shared;
    if (shared)
        return shared;
    const char *fd = getenv(PUPPET_VARIABLE);
    void *memory = fd ? mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED,
                             (int)strtol(fd, NULL, 10), 0)
                      : MAP_FAILED;
    if (memory == MAP_FAILED)
        abort();
    return shared = memory;
}

/* ---- clocks ---- */

int clock_gettime(clockid_t clock, struct timespec *now)
{
    bool wall = clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE;
    if (clock == CLOCK_PROCESS_CPUTIME_ID || clock == CLOCK_THREAD_CPUTIME_ID)
        return (int)syscall(SYS_clock_gettime, clock, now);
    int64_t ns = wall ? puppet()->wall_ns : puppet()->steady_ns;
    *now = (struct timespec){.tv_sec = ns / NS_PER_S, .tv_nsec = ns % NS_PER_S};
    return 0;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    int64_t ns = puppet()->wall_ns;
    (void)zone;
    *now = (struct timeval){.tv_sec = ns / NS_PER_S, .tv_usec = ns % NS_PER_S / 1000};
    return 0;
}

time_t time(time_t *now)
{
    time_t s = puppet()->wall_ns / NS_PER_S;
    if (now)
        *now = s;
    return s;
}

/* ---- another server ---- */

/* The network is beside the servers' folders: net_link.c. The connection is there at once, and says nothing before the
 * other server has accepted it. */
int connect(int fd, const struct sockaddr *address, socklen_t length)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    if (address->sa_family != AF_INET)
        return (int)syscall(SYS_connect, fd, address, length);
    snprintf(to.sun_path, sizeof to.sun_path, "../link%d",
             ntohs(((const struct sockaddr_in *)(const void *)address)->sin_port));
    int link = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (link < 0 || syscall(SYS_connect, link, &to, sizeof to) != 0) {
        close(link);
        errno = ECONNREFUSED;
        return -1;
    }
    dup2(link, fd);
    close(link);
    return 0;
}

/* The child that writes the data down for a replica has ended when the server goes on. */
pid_t fork(void)
{
    pid_t (*real)(void);
    siginfo_t about;
    void *found = dlsym(RTLD_NEXT, "fork");
    memcpy(&real, &found, sizeof real);
    pid_t pid = real();
    if (pid > 0)
        waitid(P_PID, (id_t)pid, &about, WEXITED | WNOWAIT);
    return pid;
}

/* ---- turns ---- */

static void wait_for_turn(void)
{
    struct puppet *shared = puppet();
    atomic_store(&shared->turn, TURN_RUN);
    syscall(SYS_futex, &shared->turn, FUTEX_WAKE, 1, NULL, NULL, 0);
    while (atomic_load(&shared->turn) == TURN_RUN)
        syscall(SYS_futex, &shared->turn, FUTEX_WAIT, TURN_RUN, NULL, NULL, 0);
}

/* The time-out is of no importance: the server looks at its timers after each call, whatever ended it. */
int epoll_wait(int epoll, struct epoll_event *events, int capacity, int timeout_ms)
{
    int count = (int)syscall(SYS_epoll_wait, epoll, events, capacity, 0);
    if (count != 0 || timeout_ms == 0)
        return count;
    wait_for_turn();
    return (int)syscall(SYS_epoll_wait, epoll, events, capacity, 0);
}

/* The allocator's thread waits for an instant of our clock, which the kernel takes for one in the past: it would never
 * sleep. What it does there is of no importance. */
int pthread_cond_timedwait(pthread_cond_t *restrict cond, pthread_mutex_t *restrict mutex,
                           const struct timespec *restrict until)
{
    (void)until;
    return pthread_cond_wait(cond, mutex);
}

/* ---- chance ---- */

pid_t getpid(void)
{
    return puppet()->pid;
}

typedef FILE *open_function(const char *path, const char *mode);

static FILE *open_random(void)
{
    static unsigned char bytes[SEED_BYTES];
    uint64_t x = puppet()->seed;
    for (size_t i = 0; i < sizeof bytes; i++) {
        x = x * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        bytes[i] = (unsigned char)(x >> 56);
    }
    return fmemopen(bytes, sizeof bytes, "r");
}

static FILE *open_file(const char *name, const char *path, const char *mode)
{
    open_function *real;
    if (strcmp(path, "/dev/urandom") == 0)
        return open_random();
    void *found = dlsym(RTLD_NEXT, name);
    memcpy(&real, &found, sizeof real);
    return real(path, mode);
}

FILE *fopen(const char *restrict path, const char *restrict mode)
{
    return open_file("fopen", path, mode);
}

FILE *fopen64(const char *restrict path, const char *restrict mode)
{
    return open_file("fopen64", path, mode);
}
