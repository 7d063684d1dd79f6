/* watch.c - which nodes the library watches for this client.
 *
 * After a reconnection the library sets all watches again in one request. Servers refuse a request of more than a
 * megabyte, each time, so a client with too many watches would never come back. So the driver counts their paths and sets
 * no more watches than fit; a claim without a watch looks again from time to time.
 *
 * A path is noted before the request is sent. The watch's event, a failure of the request and the end of the session remove
 * it. */
#include "driver.h"

#include <stdlib.h>
#include <string.h>

#ifndef WATCH_BYTES_MAX
#define WATCH_BYTES_MAX 700000
#endif
#define LENGTH_BYTES 4 /* before each path */

struct watch {
    UT_hash_handle hh;
    char path[];
};

static struct watch *find(const struct driver *driver, const char *path, size_t length)
{
    struct watch *watch;
    HASH_FIND(hh, driver->watches, path, length, watch);
    return watch;
}

void watch_note(struct driver *driver, const char *path)
{
    size_t length = strlen(path);
    struct watch *watch = find(driver, path, length);
    if (watch != NULL || (watch = calloc(1, sizeof(*watch) + length + 1)) == NULL)
        return;
    memcpy(watch->path, path, length + 1);
    HASH_ADD(hh, driver->watches, path, length, watch);
    if (watch->hh.tbl == NULL)
        free(watch);
    else
        driver->watch_bytes += length + LENGTH_BYTES;
}

bool watch_fits(const struct driver *driver, const char *path)
{
    size_t length = strlen(path);
    return find(driver, path, length) != NULL ||
           driver->watch_bytes + length + LENGTH_BYTES <= WATCH_BYTES_MAX;
}

static void remove_watch(struct driver *driver, struct watch *watch)
{
    driver->watch_bytes -= strlen(watch->path) + LENGTH_BYTES;
    HASH_DELETE(hh, driver->watches, watch);
    free(watch);
}

void watch_forget(struct driver *driver, const char *path)
{
    struct watch *watch = find(driver, path, strlen(path));
    if (watch != NULL)
        remove_watch(driver, watch);
}

void watches_end(struct driver *driver)
{
    while (driver->watches != NULL)
        remove_watch(driver, driver->watches);
}
