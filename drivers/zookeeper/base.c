/* base.c - the base of the tokens as this client knows it: read once, and watched, so that an acquire need
 * not ask for it.
 *
 * A watch's event comes before the answer to any later request on the same connection that could see the
 * change or what followed it. So when a list shows a claim as first, and no event has come since the base was
 * read under a watch, then nobody raised it before the claim was first. Where it is raised again and again (a
 * migration under way) it is not watched, for all clients would be told each time; then each claim reads it.
 * */
#include "driver.h"

#include <string.h>

#define QUIET_NS (10 * 1000 * NS_PER_MS)

static void ask(struct driver *driver);

static void learn(struct driver *driver, int64_t base, int32_t version)
{
    driver->base_state = base >= 0 ? BASE_KNOWN : BASE_UNKNOWN;
    if (base < 0)
        return;
    driver->base = base;
    driver->base_version = version;
}

static void absent(struct driver *driver, struct request *request)
{
    if (driver->base_state != BASE_ASKED || request->step != driver->base_step)
        return;
    driver->base_state = BASE_UNKNOWN;
    if (request->rc == ZNONODE)
        learn(driver, 0, -1);
    else if (request->rc == ZOK)
        ask(driver); /* made in between */
}

static void told(struct driver *driver, struct request *request)
{
    char path[PATH_SIZE];
    if (driver->base_state != BASE_ASKED || request->step != driver->base_step)
        return;
    driver->base_state = BASE_UNKNOWN;
    if (request->rc == ZOK)
        learn(driver, base_read(request), request->stat.version);
    else if (request->rc == ZNONODE) { /* `get` leaves no watch then */
        path_of(driver, "%tokens", NULL, path);
        if (send_exists(driver, path, (struct reply_to){absent, NULL, driver->base_step, false}))
            driver->base_state = BASE_ASKED;
    }
}

static void ask(struct driver *driver)
{
    char path[PATH_SIZE];
    path_of(driver, "%tokens", NULL, path);
    driver->base_step++;
    if (send_get(driver, path, true, (struct reply_to){told, NULL, driver->base_step, false}))
        driver->base_state = BASE_ASKED;
}

void base_connected(struct driver *driver)
{
    driver->base_state = BASE_UNKNOWN; /* of another connection, at another server */
    ask(driver);
}

bool base_event(struct driver *driver, const char *path)
{
    char own[PATH_SIZE];
    path_of(driver, "%tokens", NULL, own);
    if (strcmp(path, own) != 0)
        return false;
    driver->base_step++;
    driver->base_state = BASE_UNKNOWN;
    driver->base_changed_ns = now_of(driver);
    return true;
}

bool base_is_known(struct driver *driver)
{
    if (driver->base_state == BASE_UNKNOWN &&
        (driver->base_changed_ns == 0 || now_of(driver) - driver->base_changed_ns > QUIET_NS))
        ask(driver);
    return driver->base_state == BASE_KNOWN;
}
