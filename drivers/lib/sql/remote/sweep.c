/* sweep.c - when rows that have been free for long are deleted. That is a scan of the table: one client does it for all, now
 * and then, with other work. It is no reason to wake anybody. One in so many clients also does it when it closes,
 * because they may all be short-lived. */
#include "remote.h"

#define CHANCE 16 /* one in so many clients */
#define EVERY_NS (INT64_C(3600000) * NS_PER_MS)

void sweep_begin(struct remote *remote)
{
    mortise_host *host = remote->locks.host;
    unsigned char byte;
    remote->sweep_ns = host->now(host) + locks_jitter(&remote->locks, EVERY_NS);
    host->random(host, &byte, sizeof(byte));
    remote->sweep_last = byte % CHANCE == 0;
}

void sweep_turn(struct remote *remote)
{
    int64_t now = remote_now(remote);
    bool due = remote->locks.closing ? remote->sweep_last : now >= remote->sweep_ns;
    if (!due || remote->main->state != LINK_READY)
        return;
    remote->sweep_ns = now + locks_jitter(&remote->locks, EVERY_NS);
    remote->sweep_last = false;
    remote->dialect->sweep(remote);
}
