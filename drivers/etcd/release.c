/* release.c - ends a claim that nobody wants any more: its key is deleted, whenever that becomes possible. */
#include "claim.h"

#include <string.h>

#define PASSING_NS (1000 * NS_PER_MS)      /* until the next attempt, after an error that passes */
#define REFUSED_NS (10 * 1000 * NS_PER_MS) /* after any other */

/* The key blocks the queue until its session ends. So the claim stays, and the delete is tried again. */
static void not_deleted(struct driver *driver, struct claim *claim, const struct call *call)
{
    driver->host->log(driver->host, 3, "a key could not be deleted: %s", call->text);
    claim_retry(driver, claim, call->code == GRPC_RESOURCE_EXHAUSTED ? PASSING_NS : REFUSED_NS);
    while (claim->releases != NULL) {
        mortise_op *op = claim->releases;
        LL_DELETE(claim->releases, op);
        fault_refused(driver, op, MORTISE_BACKEND, call);
    }
}

/* Claims that wait for the answer to a delete, in place of a watch, look now. */
static void followers_look(struct driver *driver, struct claim *claims)
{
    struct claim *claim, *next;
    DL_FOREACH_SAFE (claims, claim, next)
        if (claim->state == CLAIM_WAITING && claim->watch_count == 0)
            claim_look(driver, claim);
}

static void deleted(struct driver *driver, struct call *call)
{
    struct claim *claim = claim_answered(driver, call);
    if (claim == NULL || call->to.step != claim->step)
        return;
    struct name *name = claim->name;
    bool is_last = name->claims->next == NULL;
    if (call->end == CALL_LOST) { /* all look at the next connection */
        if (claim->state == CLAIM_DELETING)
            claim_become(driver, claim, CLAIM_REDELETING);
        return;
    }
    if (call->end == CALL_REFUSED)
        not_deleted(driver, claim, call);
    else {
        bool is_lost = call->answer.ops[0].total == 0 && claim->state == CLAIM_DELETING;
        memcpy(name->left, claim->last, claim->last_len);
        name->left_len = claim->last_len;
        claim_end(driver, claim, is_lost ? MORTISE_LOST : MORTISE_OK);
    }
    if (!is_last) /* else the name may have gone with the claim */
        followers_look(driver, name->claims);
}

void claim_delete(struct driver *driver, struct claim *claim)
{
    struct key own;
    claim->retry_ns = 0;
    claim_key(claim, &own);
    struct call *call = claim_begin(driver, claim, deleted);
    if (call != NULL)
        txn_delete(&call->grpc.out, BRANCH_THEN, key_bytes(&own));
    claim_send(driver, claim, call);
}

/* What an unwanted claim does instead of what it did. ENDED: the servers have nothing of it. */
static enum claim_state unwanted(const struct claim *claim)
{
    switch (claim->state) {
    case CLAIM_IDLE:
        return claim->made ? CLAIM_REDELETING : CLAIM_ENDED;
    case CLAIM_LOOKING:
    case CLAIM_GONE:
        return CLAIM_ENDED;
    case CLAIM_ASKING:
        return CLAIM_UNWANTED;
    case CLAIM_UNCERTAIN:
        return CLAIM_DOUBTFUL;
    case CLAIM_QUEUED:
    case CLAIM_WAITING:
    case CLAIM_FIRST:
    case CLAIM_READY:
    case CLAIM_HELD:
        return CLAIM_DELETING;
    default:
        return claim->state;
    }
}

void claim_drop(struct driver *driver, struct claim *claim)
{
    enum claim_state state = unwanted(claim);
    if (state == CLAIM_ENDED) {
        claim_end(driver, claim, claim->state == CLAIM_GONE ? MORTISE_LOST : MORTISE_OK);
        return;
    }
    claim_become(driver, claim, state);
    claim_go(driver, claim);
}

void claim_fail(struct driver *driver, struct claim *claim, const struct call *call)
{
    mortise_op *op = claim->op;
    claim->op = NULL;
    if (op != NULL)
        fault_refused(driver, op, MORTISE_BACKEND, call);
    claim_drop(driver, claim);
}
