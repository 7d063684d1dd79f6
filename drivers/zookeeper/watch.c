/* watch.c - which nodes the library watches for this client.
 *
 * After a reconnection the library sets all watches again in one request. Servers refuse a request of more than a megabyte,
 * each time, so a client with too many watches would never come back. So the driver counts the bytes of their paths and sets no
 * more watches than fit. A claim without a watch looks again from time to time.
 *
 * A path is noted before the request is sent. The watch's event, a failure of the request and the end of the session remove
 * it.
 *
 * A watch *stands* on one connection, from the answer to its request until its event is read. A claim that waits for one of
 * P permits watches P nodes, and looks again after each event of one of them; then it asks only for those nodes on which no
 * watch stands. Why the others wake it:
 *   - The event of a standing watch is yet to be read, although it may be in the mailbox. It goes to all claims in the folder
 *     (lease.c), whichever claim asked for the watch. A claim that leaves a node out waits from the same call on, so it gets
 *     the event. An event that was read earlier has removed the watch.
 *   - The request is on its way: its watch does not stand. If the node is gone by then, there will be no event, and only the
 *     claim that asked learns that.
 *   - The claim that asked has ended: the watch stays, because nobody removes it, and ends with its event.
 *   - The node is made anew, with the same name: the end of the former node is an event of its own.
 *   - There is another session: the watches have ended, and events of an earlier session do not count.
 *   - There is another connection: the library sets the watches again, but none of them stands. All waiting claims look again
 *     then, and ask for each node.
 *   - There was no memory for an event: no beat proves anything before there is another session or connection (session.h). */
#include "driver.h"

#include <stdlib.h>
#include <string.h>

#ifndef WATCH_BYTES_MAX
#define WATCH_BYTES_MAX 700000
#endif
#define LENGTH_BYTES 4 /* before each path */

struct watch {
    UT_hash_handle hh;
    bool stands;
    char path[];
};

static struct watch *find(const struct driver *driver, const char *path, size_t length)
{
    struct watch *watch;
    HASH_FIND(hh, driver->watches, path, length, watch);
    return watch;
}

/* NULL: no memory. */
static struct watch *note(struct driver *driver, const char *path)
{
    size_t length = strlen(path);
    struct watch *watch = find(driver, path, length);
    if (watch != NULL || (watch = calloc(1, sizeof(*watch) + length + 1)) == NULL)
        return watch;
    memcpy(watch->path, path, length + 1);
    HASH_ADD(hh, driver->watches, path, length, watch);
    if (watch->hh.tbl == NULL) {
        free(watch);
        return NULL;
    }
    driver->watch_bytes += length + LENGTH_BYTES;
    return watch;
}

void watch_note(struct driver *driver, const char *path)
{
    note(driver, path);
}

void watch_set(struct driver *driver, const char *path)
{
    struct watch *watch = note(driver, path);
    if (watch != NULL)
        watch->stands = true;
}

bool watch_stands(const struct driver *driver, const char *path)
{
    const struct watch *watch = find(driver, path, strlen(path));
    return watch != NULL && watch->stands;
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

void watches_connected(struct driver *driver)
{
    for (struct watch *watch = driver->watches; watch != NULL; watch = watch->hh.next)
        watch->stands = false;
}

void watches_end(struct driver *driver)
{
    while (driver->watches != NULL)
        remove_watch(driver, driver->watches);
}
