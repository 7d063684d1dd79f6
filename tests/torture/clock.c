/* clock.c - a wrong time of day: a library that is loaded (LD_PRELOAD) into a fighter, or into a ZooKeeper server,
 * where libfaketime would also move the instants that threads wait for. The file $MORTISE_CLOCK says by how many
 * seconds the time is ahead; it is read at most once in ten milliseconds. Monotonic clocks are not changed, because
 * threads wait by them for instants that the kernel knows. $MORTISE_CLOCK.seen holds the last value read; a process
 * in which this library has no effect does not write it. */
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_S INT64_C(1000000000)

static atomic_llong ahead_s, read_ns;

static int64_t true_ns(clockid_t clock)
{
    struct timespec now;
    syscall(SYS_clock_gettime, clock, &now);
    return now.tv_sec * NS_PER_S + now.tv_nsec;
}

static void note_seen(const char *path, const char *text)
{
    static const char suffix[] = ".seen";
    char seen[PATH_MAX];
    size_t length = strlen(path);
    if (length + sizeof suffix > sizeof seen)
        abort();
    memcpy(seen, path, length);
    memcpy(seen + length, suffix, sizeof suffix);
    int fd = open(seen, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, text, strlen(text)) < 0)
        abort();
    close(fd);
}

/* No stdio: it may be in the middle of that. */
static void read_file(void)
{
    char text[64];
    const char *path = getenv("MORTISE_CLOCK");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    ssize_t length = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
    if (fd >= 0)
        close(fd);
    if (length <= 0)
        return;
    text[length] = '\0';
    long long ahead = strtoll(text, NULL, 10);
    if (atomic_exchange(&ahead_s, ahead) != ahead)
        note_seen(path, text);
}

static int64_t wrong_ns(void)
{
    int64_t now_ns = true_ns(CLOCK_MONOTONIC);
    long long before_ns = atomic_load(&read_ns);
    if (now_ns - before_ns > NS_PER_S / 100 &&
        atomic_compare_exchange_strong(&read_ns, &before_ns, now_ns))
        read_file();
    return true_ns(CLOCK_REALTIME) + atomic_load(&ahead_s) * NS_PER_S;
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    if (clock != CLOCK_REALTIME)
        return (int)syscall(SYS_clock_gettime, clock, now);
    int64_t ns = wrong_ns();
    *now = (struct timespec){.tv_sec = ns / NS_PER_S, .tv_nsec = ns % NS_PER_S};
    return 0;
}

int gettimeofday(struct timeval *now, void *zone)
{
    (void)zone;
    int64_t ns = wrong_ns();
    *now = (struct timeval){.tv_sec = ns / NS_PER_S, .tv_usec = ns % NS_PER_S / 1000};
    return 0;
}

time_t time(time_t *now)
{
    time_t seconds = wrong_ns() / NS_PER_S;
    if (now)
        *now = seconds;
    return seconds;
}
