/* floor_local.c - floors without a server, as an adapter (adapter.h): the two transactions of the SQLite driver alone
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

static void statements(void *worker, const char *name)
{
    static bool open;
    (void)worker;
    (void)name;
    if (!open)
        floor_open(folder); /* by the only thread, in the warm-up */
    open = true;
    floor_cycles(NULL, 1);
}

/* ---- one of many ---- */

/* Each thread has a descriptor of its own, because a lock belongs to a descriptor. */
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

static bool lock_file(void *worker, const char *name, void **held)
{
    (void)name;
    (void)held;
    if (flock((int)(intptr_t)worker, LOCK_EX) < 0)
        bench_die("flock");
    return true;
}

static void unlock_file(void *worker, const char *name, void *held)
{
    (void)name;
    (void)held;
    flock((int)(intptr_t)worker, LOCK_UN);
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
                                          .cycle = statements,
                                          .take = lock_file,
                                          .give = unlock_file,
                                          .state = clocks});
}
