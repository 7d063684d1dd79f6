/* claim.c - the tables of claim.h: what the nodes may have of a grant id, and when nothing can be left of it. */
#include "redlock.h"

#include <stdlib.h>

#define SWEEP_NS (INT64_C(30000) * NS_PER_MS)

/* ---- made and freed ----------------------------------------------------------------------------------------- */

static struct claim *claim_new(const mortise_op *op, enum claim_state state)
{
    struct claim *claim = calloc(1, sizeof(*claim) + op->name_len);
    if (claim == NULL)
        return NULL;
    claim->state = state;
    claim->references = 1;
    claim->mark = ' ';
    claim->shared = op->mode == MORTISE_SHARED;
    claim->name_len = op->name_len;
    if (op->name_len > 0)
        memcpy(claim->name, op->name, op->name_len);
    return claim;
}

struct claim *claim_new_foreign(const mortise_op *op)
{
    return claim_new(op, CLAIM_FOREIGN);
}

struct claim *claim_find(const struct driver *driver, const mortise_grant_id *grant)
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
    claim = claim_new(op, CLAIM_WANTED);
    if (claim == NULL)
        return NULL;
    claim->grant = op->grant;
    HASH_ADD(hh, driver->claims, grant, sizeof(claim->grant), claim);
    if (claim->hh.tbl == NULL) {
        free(claim);
        return NULL;
    }
    if (driver->sweep_ns == MORTISE_NEVER)
        driver->sweep_ns = now_of(driver) + SWEEP_NS;
    return claim;
}

static void set_state(struct driver *driver, struct claim *claim, enum claim_state state)
{
    if (claim->state == CLAIM_ENDING)
        DL_DELETE2(driver->ending, claim, previous, next);
    claim->state = state;
    if (state == CLAIM_ENDING)
        DL_APPEND2(driver->ending, claim, previous, next);
}

static void drop(struct driver *driver, struct claim *claim)
{
    if (claim->state != CLAIM_FOREIGN) {
        set_state(driver, claim, CLAIM_WANTED); /* takes it off the list */
        HASH_DEL(driver->claims, claim);
    }
    free(claim);
}

static bool is_over(const struct driver *driver, const struct claim *claim)
{
    for (unsigned i = 0; i < driver->count; i++)
        if (claim_has_trace(claim, i) || claim_is_barred(claim, i))
            return false;
    return true;
}

struct claim *claim_ref(struct claim *claim)
{
    claim->references++;
    return claim;
}

void claim_unref(struct driver *driver, struct claim *claim)
{
    claim->references--;
    if (claim->references == 0 && (claim->state == CLAIM_FOREIGN || is_over(driver, claim)))
        drop(driver, claim);
}

void claims_free(struct driver *driver)
{
    while (driver->claims != NULL)
        drop(driver, driver->claims);
}

/* ---- the states ----------------------------------------------------------------------------------------------- */

void claim_begin(struct driver *driver, struct claim *claim)
{
    claim->round++;
    claim->announced = false;
    for (unsigned i = 0; i < driver->count; i++) {
        claim->traces[i].again = false;
        claim_note(claim, i, TRACE_HAS_NOT); /* an earlier vote may have been undone */
    }
    set_state(driver, claim, CLAIM_WANTED);
}

void claim_lasts(struct claim *claim, int64_t from_ns, int64_t ttl_ms)
{
    int64_t until_ns = from_ns + (ttl_ms + 1000) * NS_PER_MS;
    if (claim->state == CLAIM_WANTED && until_ns > claim->until_ns)
        claim->until_ns = until_ns;
}

void claim_end(struct driver *driver, struct claim *claim, bool announced)
{
    claim->announced |= announced;
    claim->token = 0; /* from here on, this grant gets another hold */
    if (claim->state != CLAIM_WANTED)
        return;
    claim->until_ns = now_of(driver) + driver->max_ttl_ms * NS_PER_MS;
    set_state(driver, claim, CLAIM_ENDING);
    if (driver->tick_ns == MORTISE_NEVER) /* nobody may be polling for the answers */
        driver->tick_ns = now_of(driver) + TICK_NS;
}

/* ---- the traces ----------------------------------------------------------------------------------------------- */

void claim_note(struct claim *claim, unsigned node, enum trace_event event)
{
    enum {
        NONE = TRACE_NONE,
        POSSIBLE = TRACE_POSSIBLE,
        THERE = TRACE_THERE,
        ADRIFT = TRACE_ADRIFT
    };
    static const unsigned char next[TRACE_EVENTS][TRACE_STATES] = {
        [TRACE_ASKED] = {POSSIBLE, POSSIBLE, THERE, ADRIFT},
        [TRACE_HAS] = {NONE, THERE, THERE, ADRIFT},
        [TRACE_HAS_NOT] = {NONE, POSSIBLE, POSSIBLE, ADRIFT},
        [TRACE_UNDONE] = {NONE, NONE, NONE, ADRIFT},
        [TRACE_LOST] = {ADRIFT, ADRIFT, ADRIFT, ADRIFT},
        [TRACE_UNDO_LOST] = {NONE, POSSIBLE, THERE, ADRIFT},
        [TRACE_SETTLED] = {NONE, POSSIBLE, THERE, POSSIBLE},
        [TRACE_EXPIRED] = {NONE, NONE, NONE, NONE},
    };
    struct trace *trace = &claim->traces[node];
    trace->state = next[event][trace->state];
    if (event == TRACE_UNDO_LOST)
        trace->undo_adrift = true;
    else if (event == TRACE_SETTLED || event == TRACE_EXPIRED)
        trace->undo_adrift = false;
}

void claim_undo_later(struct driver *driver, struct claim *claim, unsigned node)
{
    claim->traces[node].again = true;
    if (driver->tick_ns == MORTISE_NEVER)
        driver->tick_ns = now_of(driver) + TICK_NS;
}

unsigned claim_traces(const struct driver *driver, const struct claim *claim)
{
    unsigned n = 0;
    for (unsigned i = 0; i < driver->count; i++)
        n += claim_has_trace(claim, i);
    return n;
}

void claims_settle(struct driver *driver, unsigned node)
{
    for (struct claim *claim = driver->claims; claim != NULL; claim = claim->hh.next)
        claim_note(claim, node, TRACE_SETTLED);
}

/* ---- expiry ------------------------------------------------------------------------------------------------------- */

/* The votes have expired. But a lost request may still lie unread in a node that is out of reach. */
static void expire(struct driver *driver, struct claim *claim)
{
    for (unsigned i = 0; i < driver->count; i++) {
        const struct trace *trace = &claim->traces[i];
        bool lost = trace->state == TRACE_ADRIFT || trace->undo_adrift;
        if (!lost || link_is_up(&driver->nodes[i].link))
            claim_note(claim, i, TRACE_EXPIRED);
    }
    if (claim->references == 0 && is_over(driver, claim)) {
        drop(driver, claim);
        return;
    }
    claim->until_ns = now_of(driver) + driver->max_ttl_ms * NS_PER_MS;
    set_state(driver, claim,
              CLAIM_ENDING); /* goes to the end of the list, which is sorted by until_ns */
}

/* A lease that was not renewed ends silently, because nobody releases it. */
static void sweep(struct driver *driver, int64_t now_ns)
{
    struct claim *claim, *next;
    HASH_ITER (hh, driver->claims, claim, next)
        if (claim->state == CLAIM_WANTED && claim->references == 0 && claim->until_ns <= now_ns)
            expire(driver, claim);
    driver->sweep_ns = driver->claims != NULL ? now_ns + SWEEP_NS : MORTISE_NEVER;
}

void claims_expire(struct driver *driver, int64_t now_ns)
{
    if (driver->sweep_ns <= now_ns)
        sweep(driver, now_ns);
    while (driver->ending != NULL && driver->ending->until_ns <= now_ns)
        expire(driver, driver->ending);
}

int64_t claims_due_ns(const struct driver *driver)
{
    bool sooner = driver->ending != NULL && driver->ending->until_ns < driver->sweep_ns;
    return sooner ? driver->ending->until_ns : driver->sweep_ns;
}
