/* machine.c - what the benchmarks need from the machine and from the library besides the measuring: time, processors,
 * threads, a folder, clients. A failure here ends the program; see common.h. */
#include "common.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

int64_t bench_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

void bench_sleep_until_ns(int64_t at_ns)
{
    struct timespec at = {(time_t)(at_ns / 1000000000), (long)(at_ns % 1000000000)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR)
        ;
}

/* ---- processors and threads ---- */

static const cpu_set_t *allowed(void)
{
    static cpu_set_t set;
    static bool known;
    if (!known && sched_getaffinity(0, sizeof(set), &set) < 0)
        bench_die("sched_getaffinity: %s", strerror(errno));
    known = true;
    return &set;
}

int bench_first_cpu(void)
{
    int cpu = 0;
    while (cpu < CPU_SETSIZE - 1 && !CPU_ISSET(cpu, allowed()))
        cpu++;
    return cpu;
}

void bench_pin(int cpu)
{
    cpu_set_t set = *allowed(); /* as it was at the program's start: read at the first call */
    if (cpu != BENCH_ANY_CPU) {
        CPU_ZERO(&set);
        if (cpu < CPU_SETSIZE)
            CPU_SET(cpu, &set);
    }
    if (sched_setaffinity(0, sizeof(set), &set) < 0)
        bench_die("processor %d cannot be had: %s", cpu, strerror(errno));
}

pthread_t bench_thread(void *(*body)(void *), void *argument)
{
    pthread_t thread;
    int error = pthread_create(&thread, NULL, body, argument);
    if (error != 0)
        bench_die("a thread could not be started: %s", strerror(error));
    return thread;
}

/* ---- the library ---- */

/* BUILD/bench/NAME uses the modules in BUILD/lib/mortise and BUILD/tests/modules, where the sim driver is. An installed program
 * has no such folder above it, and uses the modules that the library finds by itself. */
static void set_module_path(void)
{
    char program[PATH_MAX], path[2 * PATH_MAX + 64];
    ssize_t length = readlink("/proc/self/exe", program, sizeof(program) - 1);
    if (length <= 0)
        return;
    program[length] = '\0';
    for (int up = 0; up < 2; up++) {
        char *slash = strrchr(program, '/');
        if (slash != NULL)
            *slash = '\0';
    }
    snprintf(path, sizeof(path), "%s/lib/mortise", program);
    if (access(path, X_OK) != 0)
        return;
    snprintf(path, sizeof(path), "%s/lib/mortise:%s/tests/modules", program, program);
    setenv("MORTISE_MODULE_PATH", path, 0);
}

mortise_client *bench_open(const char *where)
{
    mortise_client *client;
    mortise_error error;
    set_module_path();
    if (mortise_open(where, &client, &error) != MORTISE_OK)
        bench_die("%s: %s", where, error.message);
    return client;
}

void bench_close(mortise_client *client)
{
    mortise_error error;
    if (mortise_close(client, &error) != MORTISE_OK)
        bench_die("close: %s", error.message);
}

mortise_lease *bench_acquire(mortise_client *client, const char *name,
                             const mortise_options *options)
{
    mortise_lease *lease;
    mortise_error error;
    if (mortise_acquire(client, name, options, &lease, &error) != MORTISE_OK)
        bench_die("acquire: %s", error.message);
    return lease;
}

void bench_release(mortise_lease *lease)
{
    mortise_error error;
    if (mortise_release(lease, &error) != MORTISE_OK)
        bench_die("release: %s", error.message);
}

/* ---- the folder ---- */

static char folder[PATH_MAX];

/* Empties the folder of a descriptor, and closes the descriptor: databases, and the sockets beside them. */
static void empty_folder(int fd)
{
    DIR *entries = fdopendir(fd);
    if (entries == NULL) {
        close(fd);
        return;
    }
    for (struct dirent *entry; (entry = readdir(entries)) != NULL;) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        int below = openat(fd, entry->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (below >= 0)
            empty_folder(below);
        unlinkat(fd, entry->d_name, below >= 0 ? AT_REMOVEDIR : 0);
    }
    closedir(entries);
}

static void remove_folder(void)
{
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0)
        empty_folder(fd);
    rmdir(folder);
}

const char *bench_folder(void)
{
    if (folder[0] != '\0')
        return folder;
    const char *above = bench.folder != NULL ? bench.folder : getenv("TMPDIR");
    int length = snprintf(folder, sizeof(folder), "%s/mortise-bench-XXXXXX",
                          above != NULL && above[0] != '\0' ? above : "/tmp");
    if (length < 0 || (size_t)length >= sizeof(folder) || mkdtemp(folder) == NULL)
        bench_die("no folder could be made in %s: %s", above != NULL ? above : "/tmp",
                  strerror(errno));
    atexit(remove_folder);
    return folder;
}
