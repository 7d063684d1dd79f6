/* floor_local.c - floors without a server, as an adapter (adapter.h): the two statements of the SQLite driver alone
 * (../floor.h) for a cycle; flock(2) on a file for a name that all want; the clock for a look at a lease. The address
 * is a folder. */
#include "../common.h"
#include "../floor.h"
#include "adapter.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>

static const char *folder;

static const char *open_folder(const char *where)
{
    static char version[64];
    folder = where;
    snprintf(version, sizeof(version), "SQLite %s", sqlite3_libversion());
    return version;
}

/* ---- alone ---- */

static void statements(void *worker, const char *name, int64_t hold_us, struct instants *at)
{
    static bool open;
    (void)worker;
    (void)name;
    (void)hold_us;
    if (!open)
        floor_open(folder); /* by the one thread that there is */
    open = true;
    at->asked_ns = bench_now_ns();
    floor_cycles(NULL, 1);
    at->done_ns = at->granted_ns = at->releasing_ns = bench_now_ns();
}

/* ---- one of many ---- */

/* A descriptor of its own: a thread's lock is not another's. */
static void *open_file(unsigned number)
{
    char path[1024];
    (void)number;
    snprintf(path, sizeof(path), "%s/flock", folder);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0)
        bench_die("%s cannot be made", path);
    return (void *)(intptr_t)fd;
}

static void lock_file(void *worker, const char *name, int64_t hold_us, struct instants *at)
{
    int fd = (int)(intptr_t)worker;
    (void)name;
    at->asked_ns = bench_now_ns();
    if (flock(fd, LOCK_EX) < 0)
        bench_die("flock");
    at->granted_ns = bench_now_ns();
    adapter_work(hold_us);
    at->releasing_ns = hold_us > 0 ? bench_now_ns() : at->granted_ns;
    flock(fd, LOCK_UN);
    at->done_ns = bench_now_ns();
}

/* ---- state ---- */

static void clocks(const char *name, size_t count)
{
    struct timespec now;
    (void)name;
    while (count-- > 0)
        clock_gettime(CLOCK_BOOTTIME, &now);
}

int main(int argc, char **argv)
{
    return adapter_main(argc, argv,
                        &(struct adapter){.name = "floor_local",
                                          .open = open_folder,
                                          .worker = open_file,
                                          .turn = statements,
                                          .contend = lock_file,
                                          .state = clocks});
}
