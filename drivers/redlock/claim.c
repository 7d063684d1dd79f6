/* claim.c - what may stand in the nodes under a grant, and its end: nothing is forgotten before each node has said that
 * it has nothing of it, or its ttl has passed; see internal.h. */
#include "internal.h"

#include <stdlib.h>

#define AGAIN_NS (INT64_C(250) * NS_PER_MS)
#define SWEEP_NS (INT64_C(30000) * NS_PER_MS)

struct claim *claim_new(const char *name, size_t name_len)
{
    struct claim *claim = malloc(sizeof(*claim) + name_len);
    if (claim == NULL)
        return NULL;
    memset(claim, 0, sizeof(*claim));
    claim->references = 1;
    claim->name_len = name_len;
    if (name_len > 0)
        memcpy(claim->name, name, name_len);
    return claim;
}

struct claim *claim_ref(struct claim *claim)
{
    claim->references++;
    return claim;
}

void claim_unref(struct claim *claim)
{
    if (--claim->references == 0)
        free(claim);
}

struct claim *claim_find(struct driver *driver, const mortise_grant_id *grant)
{
    struct claim *claim;
    HASH_FIND(hh, driver->claims, grant, sizeof(*grant), claim);
    return claim;
}

struct claim *claim_take(struct driver *driver, const mortise_op *op)
{
    struct claim *claim = claim_find(driver, &op->grant);
    if (claim != NULL)
        return claim_ref(claim);
    claim = claim_new(op->name, op->name_len);
    if (claim == NULL)
        return NULL;
    claim->grant = op->grant;
    HASH_ADD(hh, driver->claims, grant, sizeof(claim->grant), claim);
    if (claim->hh.tbl == NULL) {
        free(claim);
        return NULL;
    }
    claim->listed = true;
    if (driver->sweep_ns == MORTISE_NEVER)
        driver->sweep_ns = now_of(driver) + SWEEP_NS;
    return claim_ref(claim); /* the table has one */
}

static void drop(struct driver *driver, struct claim *claim)
{
    if (claim->ending)
        DL_DELETE2(driver->ending, claim, previous, next);
    HASH_DEL(driver->claims, claim);
    claim->listed = claim->ending = false;
    claim
        ->generation++; /* an undo that is on the way is not sent again: a new claim's votes may be before it */
    claim_unref(claim);
}

void claim_begin(struct driver *driver, struct claim *claim)
{
    claim->generation++;
    claim->again = claim->votes = 0;
    if (claim->ending)
        DL_DELETE2(driver->ending, claim, previous, next);
    claim->ending = claim->loud = claim->awaited = false;
}

void claim_lasts(struct claim *claim, int64_t from_ns, int64_t ttl_ms)
{
    int64_t until_ns = from_ns + (ttl_ms + 1000) * NS_PER_MS;
    if (!claim->ending && until_ns > claim->until_ns)
        claim->until_ns = until_ns;
}

void claim_told(struct claim *claim, unsigned generation, unsigned node, bool has_it)
{
    uint32_t bit = 1u << node;
    if (generation == claim->generation)
        claim->votes = has_it ? claim->votes | bit : claim->votes & ~bit;
}

/* The same grant may be asked for again, and what is known of it matters then. */
static bool is_kept(const struct claim *claim)
{
    return claim->stray != 0 || claim->awaited;
}

void claim_end(struct driver *driver, struct claim *claim, bool loud)
{
    claim->loud |= loud;
    claim->token = 0; /* what is taken under this grant from here on is another hold */
    if (!claim->listed || claim->ending)
        return;
    if (claim->maybe == 0 && !is_kept(claim)) {
        drop(driver, claim);
        return;
    }
    claim->ending = true;
    claim->until_ns = now_of(driver) + driver->max_ttl_ms * NS_PER_MS;
    DL_APPEND2(driver->ending, claim, previous, next);
    claim_again(driver, claim, 0); /* nobody else may be there to read the answers */
}

void claim_again(struct driver *driver, struct claim *claim, uint32_t nodes)
{
    claim->again |= nodes;
    if (driver->again_ns == MORTISE_NEVER)
        driver->again_ns = now_of(driver) + AGAIN_NS;
}

void claim_undone(struct driver *driver, struct claim *claim, unsigned generation, unsigned node)
{
    uint32_t bit = 1u << node;
    if (generation != claim->generation || !claim->listed)
        return;
    if ((claim->broken & bit) != 0 && !link_settled(&driver->nodes[node].link)) {
        claim_again(driver, claim, bit); /* an older request may come behind it */
        return;
    }
    claim->maybe &= ~bit;
    if (claim->ending && claim->maybe == 0 && !is_kept(claim))
        drop(driver, claim);
}

bool claim_is_stray(const struct driver *driver, const struct claim *claim, unsigned node)
{
    return (claim->stray & 1u << node) != 0 && !link_settled(&driver->nodes[node].link);
}

/* ---- what is left to do ---------------------------------------------------------------------------------------- */

void claims_node_up(struct driver *driver, const struct node *node)
{
    uint32_t bit = 1u << node->index;
    struct claim *claim, *next;
    if (link_settled(&node->link))
        for (claim = driver->claims; claim != NULL; claim = claim->hh.next) {
            claim->broken &= ~bit;
            claim->stray &= ~bit;
        }
    for (claim = driver->ending; claim != NULL; claim = next) {
        next = claim->next;
        if ((claim->maybe & bit) != 0 && !undo_on(driver, claim, node->index))
            claim_again(driver, claim, bit);
    }
}

static void undo_again(struct driver *driver, struct claim *claim)
{
    uint32_t nodes = claim->again;
    claim->again = 0;
    for (unsigned i = 0; i < driver->count; i++) {
        if ((nodes & claim->maybe & 1u << i) == 0 || !link_is_up(&driver->nodes[i].link))
            continue; /* a node that comes back is told then */
        if (!undo_on(driver, claim, i))
            claim_again(driver, claim, 1u << i);
    }
}

/* A lease that was not renewed is over without a word: nobody asks for its end. */
static void sweep(struct driver *driver, int64_t now_ns)
{
    struct claim *claim, *next;
    if (driver->sweep_ns > now_ns)
        return;
    HASH_ITER (hh, driver->claims, claim, next) {
        if (claim->ending || claim->references > 1 || claim->until_ns > now_ns)
            continue;
        claim->maybe &= claim->broken; /* the others have expired */
        claim_end(driver, claim, false);
    }
    driver->sweep_ns = driver->claims != NULL ? now_ns + SWEEP_NS : MORTISE_NEVER;
}

/* Votes that were given have expired. One that was asked for on a connection that broke, of a node that has not been
 * reached since, may lie there unread: it is kept in mind until the node is back. */
static void expire(struct driver *driver, struct claim *claim)
{
    uint32_t unread = claim->maybe & claim->broken;
    for (unsigned i = 0; i < driver->count; i++)
        if (link_is_up(&driver->nodes[i].link))
            unread &= ~(1u << i);
    if (unread == 0 && !claim->awaited) {
        drop(driver, claim);
        return;
    }
    DL_DELETE2(driver->ending, claim, previous, next);
    claim->until_ns = now_of(driver) + driver->max_ttl_ms * NS_PER_MS;
    DL_APPEND2(driver->ending, claim, previous, next);
}

/* A node that may have something of it can answer: with NOSCRIPT, too, and is to be sent the text then. */
static bool is_heard(const struct driver *driver, const struct claim *claim)
{
    for (unsigned i = 0; i < driver->count; i++)
        if ((claim->maybe & 1u << i) != 0 && link_is_up(&driver->nodes[i].link))
            return true;
    return false;
}

void claims_turn(struct driver *driver, int64_t now_ns)
{
    struct claim *claim, *next;
    sweep(driver, now_ns);
    while (driver->ending != NULL && driver->ending->until_ns <= now_ns)
        expire(driver, driver->ending);
    if (driver->again_ns > now_ns)
        return;
    driver->again_ns = MORTISE_NEVER;
    for (claim = driver->ending; claim != NULL; claim = next) {
        next = claim->next;
        if (is_heard(driver, claim))
            claim_again(driver, claim, 0);
        if (claim->again != 0)
            undo_again(driver, claim);
    }
}

int64_t claims_due_ns(const struct driver *driver)
{
    int64_t due = driver->again_ns < driver->sweep_ns ? driver->again_ns : driver->sweep_ns;
    if (driver->ending != NULL && driver->ending->until_ns < due)
        due = driver->ending->until_ns;
    return due;
}

void claims_free(struct driver *driver)
{
    while (driver->claims != NULL)
        drop(driver, driver->claims);
}
