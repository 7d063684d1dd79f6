/* share.c - callers that share a lock; see share.h. */
#include "share.h"

mortise_lease *acquire(mortise_client *client, const char *name, const mortise_options *options)
{
    mortise_lease *lease = NULL;
    mortise_options given = *options;
    given.ttl_ms = given.ttl_ms > 0 ? given.ttl_ms : LONG_MS;
    given.wait_ms = TEST_PATIENCE_MS;
    EXPECT(OK, mortise_acquire(client, name, &given, &lease, &detail));
    return lease;
}

mortise_lease *share(mortise_client *client, const char *name)
{
    return acquire(client, name, SHARED(.ttl_ms = LONG_MS));
}

mortise_status try_share(mortise_client *client, const char *name)
{
    mortise_lease *lease = NULL;
    mortise_status status =
        mortise_acquire(client, name, SHARED(.wait_ms = 0, .ttl_ms = LONG_MS), &lease, &detail);
    if (lease)
        give(lease);
    return status;
}

void want(struct pending *pending, mortise_client *client, const char *name, mortise_mode mode)
{
    *pending = PENDING_INIT;
    pending_start(pending, client, name,
                  MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = LONG_MS, .mode = mode));
}
