/* locked.c - names whose rows another session keeps locked. A statement that waits for such a row in the server stalls
 * everything behind it on the connection. It stalls other clients, too, through the rows that its group has locked. So
 * the dialect sets a short limit for waits in the server. After that limit, the statement goes out again after a
 * pause, alone, until lock_timeout is over. Requests that follow soon for the same name go alone from the start. */
#include "remote.h"

#include <string.h>

#define PAUSE_STEPS 2 /* doublings of the pause at most: others have the connection meanwhile */
#define KEPT_NS (10000 * NS_PER_MS)

static uint32_t mark_of(const char *name, size_t len)
{
    uint32_t hash = UINT32_C(2166136261);
    for (size_t i = 0; i < len; i++)
        hash = (hash ^ (unsigned char)name[i]) * UINT32_C(16777619);
    return hash;
}

bool locked_lately(const struct remote *remote, const char *name, size_t len)
{
    int64_t now = remote->locked_until_ns > 0 ? remote_now(remote) : 0;
    uint32_t mark = now < remote->locked_until_ns ? mark_of(name, len) : 0;
    for (size_t i = 0; i < LOCKED_MAX && now < remote->locked_until_ns; i++)
        if (remote->locked[i].mark == mark && remote->locked[i].until_ns > now)
            return true;
    return false;
}

static void keep_in_mind(struct remote *remote, const char *name, size_t len, int64_t now)
{
    uint32_t mark = mark_of(name, len);
    struct locked *place = &remote->locked[0];
    for (size_t i = 0; i < LOCKED_MAX; i++) {
        struct locked *at = &remote->locked[i];
        if (at->mark == mark) {
            place = at;
            break;
        }
        if (at->until_ns < place->until_ns)
            place = at;
    }
    *place = (struct locked){.mark = mark, .until_ns = now + KEPT_NS};
    remote->locked_until_ns = place->until_ns;
}

bool locked_again(struct request *request)
{
    struct remote *remote = (struct remote *)request->base.locks;
    int64_t now = remote_now(remote), pause_ns = remote->pause_ms * NS_PER_MS;
    unsigned steps = request->waits < PAUSE_STEPS ? request->waits : PAUSE_STEPS;
    size_t len;
    const char *name = request_name(&request->base, &len);
    keep_in_mind(remote, name, len, now);
    if (request->locked_ns == 0)
        request->locked_ns = request->base.sent_ns;
    if (now + pause_ns / 2 - request->locked_ns >= remote->lock_ms * NS_PER_MS)
        return false;
    request->waits++;
    request->locked = true;
    request->not_before_ns = now + locks_jitter(&remote->locks, pause_ns << steps);
    return true;
}
