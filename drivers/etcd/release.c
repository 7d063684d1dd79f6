/* release.c - ends a claim that nobody wants any more: its key is deleted as soon as that is possible. */
#include "claim.h"

#define PASSING_NS (1000 * NS_PER_MS)      /* the pause after an error that may pass */
#define REFUSED_NS (10 * 1000 * NS_PER_MS) /* the pause after any other error */

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

static void deleted(struct driver *driver, struct call *call)
{
    struct claim *claim = claim_answered(driver, call);
    if (claim == NULL || call->to.step != claim->step)
        return;
    bool is_missing = call->end == CALL_DONE && call->answer.ops[0].total == 0;
    if (call->end == CALL_LOST) {
        if (claim->state == CLAIM_DELETING)
            claim_become(driver, claim, CLAIM_REDELETING);
    } else if (call->end == CALL_REFUSED)
        not_deleted(driver, claim, call);
    else if (is_missing && claim->state == CLAIM_DELETING &&
             claim->covered_by != NULL) /* perhaps the covering acquire was faster */
        claim_delete(driver, claim);
    else
        claim_end(driver, claim,
                  is_missing && claim->state == CLAIM_DELETING ? MORTISE_LOST : MORTISE_OK);
}

void claim_delete(struct driver *driver, struct claim *claim)
{
    struct key own;
    claim->retry_ns = 0;
    claim_key(claim, &own);
    struct call *call =
        link_begin(/* a delete costs the server less than a transaction */
                   &driver->link, METHOD_DELETE,
                   (struct reply_to){.answered = deleted, .target = claim, .step = claim->step});
    if (call != NULL)
        write_delete(&call->grpc.out, key_bytes(&own));
    claim_send(driver, claim, call);
}

/* The state of a claim that has become unwanted. ENDED: the servers have nothing of it. */
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
