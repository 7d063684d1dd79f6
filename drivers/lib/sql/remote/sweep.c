/* sweep.c - when rows that have been free for long are deleted, and how far the deletion has got. Now and then, one client does
 * it for all, together with its other work, because a sweep is no reason to wake a client. One in CHANCE clients also does it
 * when it closes, because all clients may be short-lived.
 *
 * No index tells which rows are old, so it is a scan of the table. The dialect reads one stretch of names after another, with a
 * pause between them, and notes in the database behind which name the next one begins. So other requests on the connection wait
 * for one stretch at most, however large the table is, and the next client that sweeps does what the last one left. The size of
 * a stretch counts existing names only: while an old snapshot keeps deleted rows from being cleaned away, a stretch reads
 * those, too. */
#include "remote.h"

#include <string.h>

#define CHANCE 16 /* one in so many clients sweeps when it closes */
#define EVERY_NS (INT64_C(3600000) * NS_PER_MS)

void sweep_begin(struct remote *remote)
{
    mortise_host *host = remote->locks.host;
    unsigned char byte;
    remote->sweep_ns = host->now(host) + locks_jitter(&remote->locks, EVERY_NS);
    host->random(host, &byte, sizeof(byte));
    remote->sweep_last = byte % CHANCE == 0;
}

/* Ends a sweep that waits for its next statement. If a statement is on its way, its answer ends the sweep. */
static void end_pause(struct remote *remote)
{
    struct request *request = remote->sweep;
    if (request == NULL || request->base.flying || sweep_goes_on(remote))
        return;
    queue_remove(request);
    sweep_over(request);
}

void sweep_turn(struct remote *remote)
{
    int64_t now = remote_now(remote);
    bool due = remote->locks.closing ? remote->sweep_last : now >= remote->sweep_ns;
    end_pause(remote);
    if (!due || remote->sweep != NULL || remote->main->state != LINK_READY)
        return;
    remote->sweep_ns = now + locks_jitter(&remote->locks, EVERY_NS);
    remote->sweep_last = false;
    remote->sweeps_last = remote->locks.closing;
    remote->sweep_from_len = 0;
    remote->sweep = remote->dialect->sweep(remote);
}

/* ---- a stretch after the other ------------------------------------------------------------------- */

bool sweep_goes_on(const struct remote *remote)
{
    return !remote->locks.closing || remote->sweeps_last;
}

/* Without this check, a sweep could go on forever if somebody has given the column another order. */
static bool is_behind(const struct remote *remote, const char *name, size_t len)
{
    size_t from_len = remote->sweep_from_len, common = len < from_len ? len : from_len;
    int order = memcmp(name, remote->sweep_from, common);
    return order != 0 ? order > 0 : len > from_len;
}

bool sweep_next(struct remote *remote, const char *name, size_t len)
{
    if (!sweep_goes_on(remote) || len == 0 || len > MORTISE_NAME_MAX ||
        !is_behind(remote, name, len))
        return false;
    memcpy(remote->sweep_from, name, len);
    remote->sweep_from_len = len;
    return true;
}

void sweep_over(struct request *request)
{
    ((struct remote *)request->base.locks)->sweep = NULL;
    statement_free(request);
}

void sweep_failed(struct request *request, const struct fault *fault)
{
    (void)fault;
    sweep_over(request);
}

void sweep_lost(struct request *request, bool sent)
{
    (void)sent;
    sweep_over(request);
}
