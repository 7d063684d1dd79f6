/* release.c - ends a claim that nobody wants any more: its node is deleted as soon as that is possible. */
#include "claim.h"

#define PASSING_NS (1000 * NS_PER_MS)      /* the pause after an error that may pass */
#define REFUSED_NS (10 * 1000 * NS_PER_MS) /* the pause after any other error */

/* The node blocks the queue until its session ends. So the claim stays, and the delete is tried again. */
void claim_not_deleted(struct driver *driver, struct claim *claim, int rc)
{
    bool passes = rc == ZTHROTTLEDOP || rc == ZSYSTEMERROR ||
                  claim->made_in != driver->session->number; /* it ends with an old session */
    driver->host->log(driver->host, 3, "a node could not be found or deleted: %s", zerror(rc));
    if (rc == ZNOAUTH && claim->state != CLAIM_SEARCHING)
        claim_become(driver, claim, CLAIM_REFUSED);
    claim_retry(driver, claim, passes ? PASSING_NS : REFUSED_NS);
    struct claim *opens = claim->opens;
    if (opens != NULL) { /* if it were granted, nobody else would get through its gate */
        claim_part(opens, claim);
        claim_fail(driver, opens, MORTISE_BACKEND, rc);
    }
    while (claim->releases != NULL) {
        mortise_op *op = claim->releases;
        LL_DELETE(claim->releases, op);
        fault_tell(driver, op, MORTISE_BACKEND, rc);
    }
}

/* The gate is free for the next one: the claim that went through it is granted, or begins anew. */
static void left_gate(struct driver *driver, struct claim *claim)
{
    if (claim->state == CLAIM_READY && claim->op != NULL)
        claim_grant(driver, claim);
    else if (claim->state == CLAIM_IDLE)
        claim_go(driver, claim);
}

static void deleted(struct driver *driver, struct request *request)
{
    struct claim *claim = claim_answered(driver, request);
    int rc = request->rc;
    if (claim == NULL || rc == ZSESSIONEXPIRED)
        return;
    bool is_old = request->to.step != claim->step, is_lost = fault_is_loss(rc);
    /* An old delete that was sent between two connections may be executed right before the next one. */
    if (claim->state == CLAIM_DELETING && (is_lost || (is_old && rc == ZOK)))
        claim_become(driver, claim, CLAIM_REDELETING);
    if (is_old || is_lost)
        return;
    if (rc != ZOK && rc != ZNONODE) {
        claim_not_deleted(driver, claim, rc);
        return;
    }
    struct claim *opens = claim->opens;
    claim_end(driver, claim,
              rc == ZNONODE && claim->state == CLAIM_DELETING ? MORTISE_LOST : MORTISE_OK);
    if (opens != NULL)
        left_gate(driver, opens);
}

void claim_delete(struct driver *driver, struct claim *claim)
{
    claim->retry_ns = 0;
    claim_sent(driver, claim,
               send_delete(driver, claim->name->folder, claim->node, claim_reply(claim, deleted)));
}

/* The state of a claim that has become unwanted. ENDED: the servers have nothing of it. */
static enum claim_state unwanted(const struct claim *claim)
{
    switch (claim->state) {
    case CLAIM_IDLE: /* the node, if any, is of an abandoned session */
    case CLAIM_LOOKING:
    case CLAIM_GONE: /* only the gate's node is gone, or there is none */
        return claim->node[0] != '\0' ? CLAIM_REDELETING : CLAIM_ENDED;
    case CLAIM_MAKING:
        return CLAIM_UNWANTED;
    case CLAIM_UNCERTAIN:
        return CLAIM_SEARCHING;
    case CLAIM_MEETING:
        return claim->node[0] != '\0' ? CLAIM_DELETING : CLAIM_ENDED;
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

void claim_leave_gate(struct driver *driver, struct claim *claim)
{
    struct claim *gate = claim->gate;
    claim_part(claim, gate);
    if (gate != NULL)
        claim_drop(driver, gate);
}

void claim_drop(struct driver *driver, struct claim *claim)
{
    claim_leave_gate(driver, claim);
    enum claim_state state = unwanted(claim);
    if (state == CLAIM_ENDED) {
        claim_end(driver, claim, MORTISE_OK);
        return;
    }
    claim_become(driver, claim, state);
    claim_go(driver, claim);
}

void claim_fail(struct driver *driver, struct claim *claim, mortise_status status, int rc)
{
    claim = claim_whole(claim);
    mortise_op *op = claim->op;
    claim->op = NULL;
    if (op != NULL)
        fault_tell(driver, op, status, rc);
    claim_drop(driver, claim);
}

void claim_refuse(struct driver *driver, struct claim *claim, const char *folder, const char *node)
{
    struct claim *whole = claim_whole(claim);
    mortise_op *op = whole->op;
    whole->op = NULL;
    if (op != NULL)
        fault_foreign(driver, op, claim_style(driver, claim), folder, node);
    claim_drop(driver, whole);
}
