/* watch.c - which nodes the library watches for this client. After a reconnection it sets all watches again in one
 * request, and servers refuse a request of a megabyte, each time: the client would never come back. So
 * their paths are counted, and there is an end to them; who gets none looks again from time to time.
 *
 * A path is noted before the request is sent, and struck out by the watch's event, by a failure of the
 * request, or with the session. */
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

static void strike_out(struct driver *driver, struct watch *watch)
{
    driver->watch_bytes -= strlen(watch->path) + LENGTH_BYTES;
    HASH_DELETE(hh, driver->watches, watch);
    free(watch);
}

void watch_forget(struct driver *driver, const char *path)
{
    struct watch *watch = find(driver, path, strlen(path));
    if (watch != NULL)
        strike_out(driver, watch);
}

void watches_end(struct driver *driver)
{
    while (driver->watches != NULL)
        strike_out(driver, driver->watches);
}
