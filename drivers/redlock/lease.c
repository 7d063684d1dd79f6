/* lease.c - the end of a grant: released, or undone because nobody wants it; see internal.h. */
#include "internal.h"

/* ---- undoing ------------------------------------------------------------------------------------------------- */

static void undo_put(struct ballot *ballot, struct vote *vote)
{
    ballot_script(vote, SCRIPT_UNDO, 1, 4);
    put_key(vote);
    put_grant(vote);
    put_side(vote, "news");
    link_argument(&vote->node->link, ballot->claim->loud ? "1" : "0", 1);
    link_argument(&vote->node->link, &ballot->mark, 1);
}

static bool is_certain(const struct ballot *ballot, unsigned node)
{
    const struct claim *claim = ballot->claim;
    return (claim->broken & 1u << node) == 0 || link_settled(&ballot->driver->nodes[node].link);
}

static enum vote_state undo_take(struct ballot *ballot, struct vote *vote, redisReply *reply)
{
    unsigned node = vote->node->index;
    bool found = reply->type == REDIS_REPLY_INTEGER && reply->integer >= 2;
    ballot->told |= found && reply->integer == 3;
    if (!ballot->decided) {
        mortise_info *info = ballot->attempt != NULL ? ballot->info : NULL;
        ballot->certain += is_certain(ballot, node);
        ballot->others += tally_add(&ballot->tally, reply, info);
    }
    ballot->missing |= !found && (ballot->claim->votes & 1u << node) != 0;
    claim_undone(ballot->driver, ballot->claim, ballot->generation, node);
    return found ? VOTE_YES : VOTE_NO;
}

/* Of q nodes it is certain that nothing is left, and only nodes that are silent could tell whether the grant still stood: it
 * did, if all that had it when they were last asked, and have answered, still had it. */
static bool is_presumed(const struct ballot *ballot)
{
    const struct driver *driver = ballot->driver;
    unsigned had = ballot->counts[VOTE_YES];
    if (ballot->certain < driver->quorum || had == 0 || ballot->missing)
        return false;
    int64_t now = now_of(driver);
    for (unsigned i = 0; i < driver->count; i++) {
        enum vote_state state = ballot->votes[i].state;
        if (state == VOTE_ASKED && now < node_slow_ns(&driver->nodes[i]))
            return false; /* it may answer in a moment */
        bool silent = state == VOTE_ASKED || state == VOTE_FAULT;
        had += silent && (ballot->claim->votes & 1u << i) != 0;
    }
    return had >= driver->quorum;
}

static void complete_release(struct ballot *ballot, bool over)
{
    struct driver *driver = ballot->driver;
    mortise_op *op = ballot->op;
    unsigned answered = driver->count - ballot->counts[VOTE_FAULT];
    bool found = ballot->counts[VOTE_YES] >= driver->quorum || is_presumed(ballot);
    bool gone = ballot->counts[VOTE_NO] > driver->count - driver->quorum;
    if (!found && !gone && !over)
        return;
    ballot_decide(ballot);
    if (op == NULL)
        return;
    op->sure = ballot->certain >= driver->quorum;
    if (found) {
        courtesy_told(driver, op->name, op->name_len, ballot->told);
        flow_complete(driver, op, MORTISE_OK);
    } else if (gone)
        flow_complete(driver, op, ballot->others > 0 ? MORTISE_NOTOWNER : MORTISE_LOST);
    else
        flow_fail_few(driver, op, MORTISE_INDETERMINATE, answered, &ballot->why);
}

static void undo_look(struct ballot *ballot, bool over)
{
    struct attempt *attempt = ballot->attempt;
    const struct seen *best = tally_best(&ballot->tally);
    bool held = best != NULL && best->nodes >= ballot->driver->quorum;
    if (attempt == NULL) {
        complete_release(ballot, over || ballot->op == NULL);
        return;
    }
    if (!over && !held)
        return;
    ballot_decide(ballot);
    attempt_undone(attempt, ballot);
}

static const struct ballot_kind undoing = {
    .put = undo_put, .take = undo_take, .look = undo_look, .undoes = true};

/* Where nothing was asked for there is nothing. A node that is late is not waited for. */
static void undo_node(struct ballot *ballot, unsigned i)
{
    const struct node *node = &ballot->driver->nodes[i];
    if ((ballot->claim->maybe & 1u << i) == 0) {
        ballot_set(ballot, i, VOTE_NO);
        ballot->certain++;
        return;
    }
    bool usable = node_is_usable(node, ballot->sent_ns);
    if (link_is_up(&node->link))
        ballot_ask(ballot, i, usable ? VOTE_ASKED : VOTE_FAULT);
    else
        ballot_set(ballot, i, VOTE_FAULT);
    if (!usable)
        link_fault_set(&ballot->why, MORTISE_UNREACHABLE, true, 0, "%s: no answer",
                       node->settings.endpoint.text);
}

struct ballot *undo_new(struct driver *driver, struct claim *claim, bool loud, char mark)
{
    struct ballot *ballot = ballot_new(driver, &undoing, claim);
    claim_end(driver, claim, loud);
    if (ballot == NULL) {
        claim_again(driver, claim, claim->maybe);
        return NULL;
    }
    ballot->mark = mark;
    for (unsigned i = 0; i < driver->count; i++)
        undo_node(ballot, i);
    return ballot;
}

bool undo_on(struct driver *driver, struct claim *claim, unsigned node)
{
    struct ballot *ballot = ballot_new(driver, &undoing, claim);
    if (ballot == NULL)
        return false;
    ballot_ask(ballot, node, VOTE_ASKED);
    ballot_begun(ballot);
    return true;
}

void undo_all(struct driver *driver, struct claim *claim)
{
    struct ballot *ballot = undo_new(driver, claim, true, MARK);
    if (ballot != NULL)
        ballot_begun(ballot);
}

/* ---- release ------------------------------------------------------------------------------------------------------ */

static uint32_t nodes_up(const struct driver *driver)
{
    uint32_t bits = 0;
    for (unsigned i = 0; i < driver->count; i++)
        bits |= link_is_up(&driver->nodes[i].link) ? 1u << i : 0;
    return bits;
}

void lease_release(struct driver *driver, mortise_op *op)
{
    bool known = claim_find(driver, &op->grant) != NULL;
    struct claim *claim = claim_take(driver, op);
    if (claim == NULL) {
        flow_fail_memory(driver, op);
        return;
    }
    claim->awaited = false;
    if (!known) /* nothing of it is left as far as we know: a look does no harm */
        claim->maybe = nodes_up(driver);
    struct ballot *ballot = undo_new(driver, claim, true, MARK);
    claim_unref(claim);
    if (ballot == NULL) {
        flow_fail_memory(driver, op);
        return;
    }
    ballot->op = op;
    op->driver_data[0] = ballot;
    courtesy_released(driver, op->name, op->name_len);
    ballot_begun(ballot);
}
