/* doubt.c - grants whose request was under way when a connection broke. Doubts: an acquire may still be executed. Until
 * the link is settled, or the ttl has passed, no release of such a grant is sure. Strays: a release of the driver's own may
 * still be executed. Such a grant is not acquired again. */
#include "internal.h"

#include <stdlib.h>

static struct doubt *find(struct doubt *list, const mortise_grant_id *grant)
{
    struct doubt *doubt = NULL;
    if (list != NULL)
        HASH_FIND(hh, list, grant, sizeof(*grant), doubt);
    return doubt;
}

/* NULL without memory. */
static struct doubt *add(struct doubt **list, const mortise_grant_id *grant)
{
    struct doubt *doubt = malloc(sizeof(*doubt));
    if (doubt == NULL)
        return NULL;
    doubt->grant = *grant;
    HASH_ADD(hh, *list, grant, sizeof(*grant), doubt);
    if (doubt->hh.tbl != NULL)
        return doubt;
    free(doubt);
    return NULL;
}

/* Without memory for it: nothing is sure for as long as the link is not settled. */
void flow_doubt(struct driver *driver, const mortise_grant_id *grant, int64_t ttl_ms)
{
    struct doubt *doubt = find(driver->doubts, grant);
    if (doubt == NULL)
        doubt = add(&driver->doubts, grant);
    if (doubt != NULL)
        doubt->until_ns = driver->host->now(driver->host) + ttl_ms * NS_PER_MS;
    driver->all_doubtful |= doubt == NULL;
}

bool flow_is_sure(struct driver *driver, const mortise_grant_id *grant)
{
    if (driver->all_doubtful)
        return false;
    const struct doubt *doubt = find(driver->doubts, grant);
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

static void drop_strays(struct driver *driver)
{
    struct doubt *stray, *next;
    HASH_ITER (hh, driver->strays, stray, next) {
        HASH_DEL(driver->strays, stray);
        free(stray);
    }
    driver->all_stray = false;
}

void flow_forget_doubts(struct driver *driver)
{
    flow_drop_doubts(driver, MORTISE_NEVER);
    driver->all_doubtful = false;
    drop_strays(driver);
}

/* Without memory for it: every repeat ends BUSY. */
void flow_note_stray(struct driver *driver, const mortise_grant_id *grant)
{
    bool noted = find(driver->strays, grant) != NULL || add(&driver->strays, grant) != NULL;
    driver->all_stray |= !noted;
}

bool flow_takes_stray(struct driver *driver, mortise_op *op)
{
    bool again = op->kind == MORTISE_OP_ACQUIRE && (op->flags & MORTISE_OP_REPEAT) != 0;
    if (driver->strays == NULL && !(driver->all_stray && again))
        return false;
    struct doubt *stray = find(driver->strays, &op->grant);
    if (stray != NULL && (op->kind == MORTISE_OP_ACQUIRE || op->kind == MORTISE_OP_RELEASE)) {
        HASH_DEL(driver->strays, stray);
        free(stray);
    }
    if (op->kind != MORTISE_OP_ACQUIRE || (stray == NULL && !(driver->all_stray && again)))
        return false;
    op->hint_ms = driver->retry_ms;
    flow_end(driver, op, MORTISE_BUSY);
    return true;
}
