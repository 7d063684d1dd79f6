/* locked.c - names whose rows another session keeps locked. A statement that waits for such a row in the server stalls
 * everything behind it on the connection. So it does that once, for a second, which is the least that the server knows. Then
 * it goes out again after pauses, alone, and waits no more in the server, until lock_timeout is over. Requests for the same
 * name soon afterwards do not wait in the server from the start. */
#include "driver.h"

#include <string.h>

#define PAUSE_NS (50 * NS_PER_MS)
#define PAUSE_STEPS 2 /* doublings */
#define KEPT_NS (10000 * NS_PER_MS)

static uint32_t mark_of(const char *name, size_t len)
{
    uint32_t hash = UINT32_C(2166136261);
    for (size_t i = 0; i < len; i++)
        hash = (hash ^ (unsigned char)name[i]) * UINT32_C(16777619);
    return hash;
}

bool locked_lately(struct driver *driver, const char *name, size_t len)
{
    int64_t now = driver->locked_until_ns > 0 ? driver->locks.host->now(driver->locks.host) : 0;
    uint32_t mark = now < driver->locked_until_ns ? mark_of(name, len) : 0;
    for (size_t i = 0; i < LOCKED_MAX && now < driver->locked_until_ns; i++)
        if (driver->locked[i].mark == mark && driver->locked[i].until_ns > now)
            return true;
    return false;
}

static void keep_in_mind(struct driver *driver, const char *name, size_t len, int64_t now)
{
    uint32_t mark = mark_of(name, len);
    struct locked *place = &driver->locked[0];
    for (size_t i = 0; i < LOCKED_MAX; i++) {
        struct locked *at = &driver->locked[i];
        if (at->mark == mark) {
            place = at;
            break;
        }
        if (at->until_ns < place->until_ns)
            place = at;
    }
    *place = (struct locked){.mark = mark, .until_ns = now + KEPT_NS};
    driver->locked_until_ns = place->until_ns;
}

bool locked_again(struct request *request, const char *name, size_t len)
{
    struct driver *driver = statement_driver(request);
    int64_t now = driver->locks.host->now(driver->locks.host);
    int64_t patience_ns = driver->values[OPTION_LOCK_TIMEOUT].number * NS_PER_MS;
    unsigned steps = request->waits < PAUSE_STEPS ? request->waits : PAUSE_STEPS;
    keep_in_mind(driver, name, len, now);
    if (request->locked_ns == 0)
        request->locked_ns = request->base.sent_ns;
    if (now - request->locked_ns >= patience_ns)
        return false;
    request->waits++;
    request->no_wait = true;
    request->not_before_ns = now + locks_jitter(&driver->locks, PAUSE_NS << steps);
    return true;
}
