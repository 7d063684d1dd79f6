/* doubt.c - grants whose acquire was under way when a connection broke, where it is not known whether that will
 * be executed yet: until they are settled, or their ttl is over, no release of theirs is sure. */
#include "internal.h"

#include <stdlib.h>

/* Without memory for it: nothing is sure for as long as the link is not settled. */
void flow_doubt(struct driver *driver, const mortise_grant_id *grant, int64_t ttl_ms)
{
    struct doubt *doubt;
    int64_t until_ns = driver->host->now(driver->host) + ttl_ms * NS_PER_MS;
    HASH_FIND(hh, driver->doubts, grant, sizeof(*grant), doubt);
    if (doubt == NULL) {
        doubt = malloc(sizeof(*doubt));
        if (doubt == NULL) {
            driver->all_doubtful = true;
            return;
        }
        doubt->grant = *grant;
        HASH_ADD(hh, driver->doubts, grant, sizeof(*grant), doubt);
        if (doubt->hh.tbl == NULL) {
            free(doubt);
            driver->all_doubtful = true;
            return;
        }
    }
    doubt->until_ns = until_ns;
}

bool flow_is_sure(struct driver *driver, const mortise_grant_id *grant)
{
    struct doubt *doubt;
    if (driver->all_doubtful)
        return false;
    if (driver->doubts == NULL)
        return true;
    HASH_FIND(hh, driver->doubts, grant, sizeof(*grant), doubt);
    return doubt == NULL || driver->host->now(driver->host) >= doubt->until_ns;
}

void flow_drop_doubts(struct driver *driver, int64_t until_ns)
{
    struct doubt *doubt, *next;
    HASH_ITER (hh, driver->doubts, doubt, next) {
        if (doubt->until_ns > until_ns)
            continue;
        HASH_DEL(driver->doubts, doubt);
        free(doubt);
    }
}

void flow_forget_doubts(struct driver *driver)
{
    flow_drop_doubts(driver, MORTISE_NEVER);
    driver->all_doubtful = false;
}
