/* clock.c - the clock whose time rows contain, and the boot of the host to which that time belongs.
 *
 * CLOCK_BOOTTIME, because neither a suspended machine nor a step of the wall clock may lengthen a claim.
 * A process in a time namespace of its own (a restored container) sees this clock shifted. The driver removes the
 * shift, so that all processes of the host agree. Knows no row and no database. */
#include "driver.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define NS_PER_S INT64_C(1000000000)

static mortise_status read_boot_id(struct driver *driver, mortise_error *error)
{
    static const char path[] = "/proc/sys/kernel/random/boot_id";
    FILE *file = fopen(path, "re");
    bool read = file != NULL && fgets(driver->boot_id, sizeof(driver->boot_id), file) != NULL;
    int code = errno;
    if (file != NULL)
        fclose(file);
    driver->boot_id[strcspn(driver->boot_id, "\n")] = '\0';
    if (read && strlen(driver->boot_id) >= 32)
        return MORTISE_OK;
    return fault_error(error, MORTISE_CONFIG, code, false,
                       "cannot read %s, which tells a restart of the host from a running one: %s",
                       path, read ? "not an id" : strerror(code));
}

/* The file with the shift describes the namespace in which children are born. If that is not this process's own
 * namespace, the shift of its own cannot be found. */
static bool namespace_is_childrens(void)
{
    char own[64], childrens[64];
    ssize_t a = readlink("/proc/self/ns/time", own, sizeof(own));
    ssize_t b = readlink("/proc/self/ns/time_for_children", childrens, sizeof(childrens));
    return a > 0 && b > 0 && (a != b || memcmp(own, childrens, (size_t)a) != 0);
}

static mortise_status read_clock_offset(struct driver *driver, mortise_error *error)
{
    char line[128];
    int64_t s = 0, ns = 0;
    driver->clock_offset_ns = 0;
    if (namespace_is_childrens())
        return fault_error(
            error, MORTISE_CONFIG, 0, false,
            "this process has made a time namespace for its children; open the client "
            "before, or in a child");
    FILE *file = fopen("/proc/self/timens_offsets", "re");
    if (file == NULL)
        return MORTISE_OK; /* a kernel without time namespaces */
    while (fgets(line, sizeof(line), file) != NULL)
        if (sscanf(line, "boottime %" SCNd64 " %" SCNd64, &s, &ns) == 2)
            break;
    fclose(file);
    if (s > INT64_MAX / NS_PER_S / 4 || s < -(INT64_MAX / NS_PER_S / 4) || ns < -NS_PER_S ||
        ns > NS_PER_S)
        return fault_error(error, MORTISE_CONFIG, 0, false,
                           "/proc/self/timens_offsets makes no sense");
    driver->clock_offset_ns = s * NS_PER_S + ns;
    return MORTISE_OK;
}

mortise_status clock_open(struct driver *driver, mortise_error *error)
{
    mortise_status status = read_boot_id(driver, error);
    return status == MORTISE_OK ? read_clock_offset(driver, error) : status;
}

bool clock_boot_is_own(void)
{
    char *line = NULL;
    size_t capacity = 0;
    bool found = false;
    FILE *file = fopen("/proc/self/mountinfo", "re");
    while (file != NULL && !found && getline(&line, &capacity, file) > 0)
        found = strstr(line, " /proc/sys/kernel/random/boot_id ") != NULL;
    free(line);
    if (file != NULL)
        fclose(file);
    return found;
}

/* Rounds both down, so that a claim never looks longer than it is. */
void clock_read(const struct driver *driver, int64_t *now_us, int64_t *wall_us)
{
    struct timespec wall;
    clock_gettime(CLOCK_REALTIME, &wall);
    int64_t now_ns = driver->locks.host->now(driver->locks.host) - driver->clock_offset_ns;
    *now_us = now_ns / 1000;
    *wall_us = (int64_t)wall.tv_sec * 1000000 + wall.tv_nsec / 1000;
}

int64_t clock_host_ns(const struct driver *driver, int64_t us)
{
    return us * 1000 + driver->clock_offset_ns;
}
