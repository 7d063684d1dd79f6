/* release.c - RELEASE: an undo on every node that may have something of the grant.
 *
 * The answers of the nodes, one by one, decide the result:
 *
 *   found     the node had the grant, and has deleted it
 *   gone      it had the grant when it was last asked, and has it no more (expired, restarted)
 *   no        it does not have it
 *   silent    no answer yet, or none at all
 *   certain   (besides) nothing of the grant is there, and no request can bring it back: TRACE_NONE
 *
 *   found by q nodes                               OK
 *   no or gone by more than N - q                  LOST; NOTOWNER if another has it
 *   certain of q, found somewhere, gone nowhere;   OK: only the silent nodes could tell more, and they had the grant
 *     found + silent nodes that had it >= q;       when they were last asked. A hanging node costs an eighth of
 *     each silent node is slow by now              node_timeout
 *   no more answers will come                      INDETERMINATE: the core asks again
 *
 * `sure`: certain of q nodes. Nodes that have not answered get the undo when they are back (undo.c). */
#include "redlock.h"

struct evidence {
    unsigned found, gone, certain, silent_had;
    bool waits; /* a silent node may still answer soon */
};

static struct evidence weigh(const struct ballot *ballot)
{
    const struct driver *driver = ballot->driver;
    struct evidence evidence = {0};
    int64_t now = now_of(driver);
    for (unsigned i = 0; i < driver->count; i++) {
        const struct vote *vote = &ballot->votes[i];
        bool asked = vote->state == VOTE_ASKED, silent = asked || vote->state == VOTE_FAULT;
        evidence.found += vote->state == VOTE_YES;
        evidence.gone += vote->gone;
        evidence.certain += !claim_has_trace(ballot->claim, i);
        evidence.silent_had += silent && vote->had;
        evidence.waits |= asked && node_pace_at(vote->node, now) == PACE_PROMPT;
    }
    return evidence;
}

static void release_look(struct ballot *ballot, bool over)
{
    struct driver *driver = ballot->driver;
    mortise_op *op = ballot->op;
    struct evidence evidence = weigh(ballot);
    bool certain = evidence.certain >= driver->quorum;
    bool presumed = certain && evidence.found > 0 && evidence.gone == 0 && !evidence.waits &&
                    evidence.found + evidence.silent_had >= driver->quorum;
    bool found = evidence.found >= driver->quorum || presumed;
    bool lost = ballot_no(ballot) > driver->count - driver->quorum;
    if (op != NULL && !found && !lost && !over)
        return;
    ballot_decide(ballot, found ? BALLOT_WON : BALLOT_CLOSED);
    if (op == NULL)
        return;
    op->sure = certain;
    if (found) {
        courtesy_answered(driver, op->name, op->name_len, ballot->woke);
        op_complete(driver, op, MORTISE_OK);
    } else if (lost)
        op_complete(driver, op, ballot->counts[VOTE_OTHER] > 0 ? MORTISE_NOTOWNER : MORTISE_LOST);
    else
        op_fail_few(driver, op, MORTISE_INDETERMINATE, driver->count - ballot->counts[VOTE_FAULT],
                    &ballot->why, ballot->refusing);
}

static const struct ballot_kind releasing = {
    .put = undo_put, .take = undo_take, .look = release_look, .effect = EFFECT_UNDO};

static void begin(struct driver *driver, mortise_op *op, struct claim *claim)
{
    struct ballot *ballot = undo_new(driver, &releasing, claim, true, UNDOER_NOBODY, MARK);
    if (ballot == NULL) {
        op_fail_memory(driver, op);
        return;
    }
    ballot->op = op;
    op_put(op, OP_BALLOT, ballot);
    ballot_begun(ballot);
}

void release_start(struct driver *driver, mortise_op *op)
{
    bool known = claim_find(driver, &op->grant) != NULL;
    struct claim *claim = claim_take(driver, op);
    if (claim == NULL) {
        op_fail_memory(driver, op);
        return;
    }
    claim->shared |= (op->flags & MORTISE_OP_DOWNGRADE) != 0;
    /* Another client's grant may be on each node, and may still arrive at a node that was asked already. */
    bool dead = (op->flags & MORTISE_OP_DEAD) != 0;
    for (unsigned i = 0; (!known || dead) && i < driver->count; i++)
        if (dead ||
            link_is_up(&driver->nodes[i].link)) /* nothing is known there: a look does no harm */
            claim_note(claim, i, TRACE_ASKED);
    courtesy_released(driver, op->name, op->name_len);
    pubsub_released(driver, op->name, op->name_len);
    begin(driver, op, claim);
    claim_unref(driver, claim);
}

/* ---- break -------------------------------------------------------------------------------------------------------- */

/* Releases in either mode, because a downgrade may have reached any of the nodes, even those that have not answered yet. */
void release_foreign(struct driver *driver, mortise_op *op, const mortise_grant_id *grant)
{
    struct claim *claim = claim_new_foreign(op);
    if (claim == NULL) {
        op_fail_memory(driver, op);
        return;
    }
    claim->grant = *grant;
    claim->shared = true;
    for (unsigned i = 0; i < driver->count; i++)
        claim_note(claim, i, TRACE_ASKED);
    begin(driver, op, claim);
    claim_unref(driver, claim);
}
