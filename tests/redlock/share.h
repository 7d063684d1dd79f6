/* share.h - callers that share a lock, for the tests of the Redlock driver. */
#ifndef MORTISE_TESTS_REDLOCK_SHARE_H
#define MORTISE_TESTS_REDLOCK_SHARE_H

#include "nodes.h"

#define SHARED(...) MORTISE_OPTIONS(.mode = MORTISE_SHARED, __VA_ARGS__)

/* OK within patience, or the check has failed and it is NULL. Without a ttl in the options: a long one. */
mortise_lease *acquire(mortise_client *client, const char *name, const mortise_options *options);
mortise_lease *share(mortise_client *client, const char *name);
/* Tries once; what it gets it gives back. */
mortise_status try_share(mortise_client *client, const char *name);
/* Waits for ever. */
void want(struct pending *pending, mortise_client *client, const char *name, mortise_mode mode);

#endif
