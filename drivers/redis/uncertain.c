/* uncertain.c - grants with a request that was under way when a connection broke. There are two kinds. A *doubt*: an acquire
 * may still be executed. Until the link is settled, or the ttl has passed, no release of such a grant is sure. A *stray*: a
 * release that the driver itself made may still be executed. Such a grant is not acquired again. */
#include "redis.h"

#include <stdlib.h>

static struct lost_grant *find(struct lost_grant *list, const mortise_grant_id *grant)
{
    struct lost_grant *doubt = NULL;
    if (list != NULL)
        HASH_FIND(hh, list, grant, sizeof(*grant), doubt);
    return doubt;
}

/* NULL: no memory. */
static struct lost_grant *add(struct lost_grant **list, const mortise_grant_id *grant)
{
    struct lost_grant *doubt = malloc(sizeof(*doubt));
    if (doubt == NULL)
        return NULL;
    doubt->grant = *grant;
    HASH_ADD(hh, *list, grant, sizeof(*grant), doubt);
    if (doubt->hh.tbl != NULL)
        return doubt;
    free(doubt);
    return NULL;
}

/* Without memory for the entry, no release is sure while the link is not settled. */
void uncertain_add(struct driver *driver, const mortise_grant_id *grant, int64_t ttl_ms)
{
    struct lost_grant *doubt = find(driver->doubts, grant);
    if (doubt == NULL)
        doubt = add(&driver->doubts, grant);
    if (doubt != NULL)
        doubt->until_ns = now_of(driver) + ttl_ms * NS_PER_MS;
    driver->all_doubtful |= doubt == NULL;
}

bool uncertain_is_sure(struct driver *driver, const mortise_grant_id *grant)
{
    if (driver->all_doubtful)
        return false;
    const struct lost_grant *doubt = find(driver->doubts, grant);
    return doubt == NULL || now_of(driver) >= doubt->until_ns;
}

void uncertain_drop(struct driver *driver, int64_t until_ns)
{
    struct lost_grant *doubt, *next;
    HASH_ITER (hh, driver->doubts, doubt, next) {
        if (doubt->until_ns > until_ns)
            continue;
        HASH_DEL(driver->doubts, doubt);
        free(doubt);
    }
}

static void drop_strays(struct driver *driver)
{
    struct lost_grant *stray, *next;
    HASH_ITER (hh, driver->strays, stray, next) {
        HASH_DEL(driver->strays, stray);
        free(stray);
    }
    driver->all_stray = false;
}

void uncertain_forget(struct driver *driver)
{
    uncertain_drop(driver, MORTISE_NEVER);
    driver->all_doubtful = false;
    drop_strays(driver);
}

/* Without memory for the entry, every repeated acquire ends BUSY. */
void uncertain_add_stray(struct driver *driver, const mortise_grant_id *grant)
{
    bool noted = find(driver->strays, grant) != NULL || add(&driver->strays, grant) != NULL;
    driver->all_stray |= !noted;
}

bool uncertain_is_stray(struct driver *driver, const mortise_op *op)
{
    bool again = op->kind == MORTISE_OP_ACQUIRE && (op->flags & MORTISE_OP_REPEAT) != 0;
    struct lost_grant *stray = find(driver->strays, &op->grant);
    if (stray != NULL && (op->kind == MORTISE_OP_ACQUIRE || op->kind == MORTISE_OP_RELEASE)) {
        HASH_DEL(driver->strays, stray);
        free(stray);
    }
    return op->kind == MORTISE_OP_ACQUIRE && (stray != NULL || (driver->all_stray && again));
}
