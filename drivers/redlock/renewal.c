/* renewal.c - RENEW, and the repair of votes that nodes have lost.
 *
 *   q nodes extended it               OK; a node that has lost it, and only then, gets it back (repair.lua)
 *   more than N - q do not have it    NOTOWNER if another has it, else LOST; what is left is undone
 *   neither, and no more answers      UNREACHABLE: the core asks again
 *
 * Each grant has a ballot of its own. Renewals that are due together arrive together, and go to each node in one request:
 * a script that answers for each grant. */
#include "redlock.h"

#include <stdlib.h>

/* One request to a node, for one or more ballots. */
struct bundle {
    struct link_call call; /* first */
    struct node *node;
    bool by_text; /* sent with the script's text */
    unsigned count;
    struct vote *votes[];
};

/* ---- repair --------------------------------------------------------------------------------------------------------- */

static void repair_put(struct ballot *ballot, struct vote *vote)
{
    ballot_script(vote, SCRIPT_REPAIR, 2, 4);
    put_key(vote);
    put_side(vote, "token");
    put_grant(vote);
    link_number(&vote->node->link, ballot->ttl_ms);
    put_digits(vote);
    link_argument(&vote->node->link, ballot->driver->note, ballot->driver->note_len);
}

static enum vote_state repair_take(struct ballot *ballot, struct vote *vote, redisReply *reply)
{
    bool has_it = reply->type == REDIS_REPLY_INTEGER && reply->integer == 2;
    (void)ballot;
    ballot_note(vote, has_it ? TRACE_HAS : TRACE_HAS_NOT);
    return VOTE_YES;
}

static const struct ballot_kind repairing = {
    .put = repair_put, .take = repair_take, .effect = EFFECT_VOTE};

/* The renewal has won: the node gets the lock back for as long as the others have it, unless the claim is ending. One
 * that is on the way then is executed before the undo. Without memory the next renewal repairs it. */
static void repair(struct ballot *renewal, const struct vote *vote)
{
    struct driver *driver = renewal->driver;
    struct claim *claim = renewal->claim;
    int64_t left_ms =
        renewal->ttl_ms - (now_of(driver) - renewal->sent_ns + NS_PER_MS - 1) / NS_PER_MS;
    if (left_ms <= 0 || claim->state != CLAIM_WANTED || claim->round != renewal->round ||
        claim_is_barred(claim, vote->node->index) || !link_is_up(&vote->node->link))
        return;
    struct ballot *ballot = ballot_new(driver, &repairing, claim);
    if (ballot == NULL)
        return;
    ballot->ttl_ms = left_ms;
    ballot_number(ballot, renewal->token);
    ballot_ask(ballot, vote->node->index, VOTE_ASKED);
    ballot_begun(ballot);
}

/* ---- renew ------------------------------------------------------------------------------------------------------------ */

/* One digit: 2 renewed, 1 another has the lock, 0 it is not there. */
static enum vote_state renew_take(struct ballot *ballot, struct vote *vote, redisReply *reply)
{
    char answer = reply->type == REDIS_REPLY_STRING && reply->len == 1 ? reply->str[0] : '?';
    if (answer < '0' || answer > '2')
        return VOTE_FAULT;
    ballot_note(vote, answer == '2' ? TRACE_HAS : TRACE_HAS_NOT);
    if (answer == '0' && ballot->state == BALLOT_WON)
        repair(ballot, vote);
    return answer == '2' ? VOTE_YES : answer == '1' ? VOTE_OTHER : VOTE_ABSENT;
}

static void renew_won(struct ballot *ballot)
{
    struct driver *driver = ballot->driver;
    mortise_op *op = ballot->op;
    for (unsigned i = 0; i < driver->count; i++)
        if (ballot->votes[i].state == VOTE_ABSENT)
            repair(ballot, &ballot->votes[i]);
    op->from_ns = ballot->sent_ns;
    op->good_for_ms = op->ttl_ms;
    op_complete(driver, op, MORTISE_OK);
}

/* The grant cannot have a quorum again: what is left of it must not be in others' way. */
static void renew_lost(struct ballot *ballot)
{
    struct driver *driver = ballot->driver;
    if (ballot->round == ballot->claim->round)
        undo_all(driver, ballot->claim);
    if (ballot->op != NULL)
        op_complete(driver, ballot->op,
                    ballot->counts[VOTE_OTHER] > 0 ? MORTISE_NOTOWNER : MORTISE_LOST);
}

static void renew_look(struct ballot *ballot, bool over)
{
    struct driver *driver = ballot->driver;
    bool won = ballot->counts[VOTE_YES] >= driver->quorum;
    bool lost = ballot_no(ballot) > driver->count - driver->quorum;
    if (!won && !lost && !over)
        return;
    /* a canceled renewal may have been canceled for a release: it repairs nothing */
    ballot_decide(ballot, won && ballot->op != NULL ? BALLOT_WON : BALLOT_CLOSED);
    if (ballot->state == BALLOT_WON)
        renew_won(ballot);
    else if (lost)
        renew_lost(ballot);
    else if (ballot->op != NULL)
        op_fail_few(driver, ballot->op, MORTISE_UNREACHABLE,
                    ballot->counts[VOTE_YES] + ballot_no(ballot), &ballot->why);
}

static const struct ballot_kind renewing = {.take = renew_take, .look = renew_look};

/* ---- many at once ---------------------------------------------------------------------------------------------- */

static void bundle_send(struct bundle *bundle)
{
    struct link *link = &bundle->node->link;
    link_call_begin(link, &bundle->call);
    bundle->by_text =
        ballot_script_on(bundle->node, SCRIPT_RENEW, bundle->count, 2 * bundle->count);
    for (unsigned i = 0; i < bundle->count; i++)
        put_key(bundle->votes[i]);
    for (unsigned i = 0; i < bundle->count; i++) {
        put_grant(bundle->votes[i]);
        link_number(link, bundle->votes[i]->ballot->ttl_ms);
    }
    link_call_end(link, &bundle->call, 1);
}

/* A digit for each grant. Anything else (an error, nonsense) is the answer for all of them. */
static void bundle_replied(struct link_call *call, unsigned index, redisReply *reply)
{
    struct bundle *bundle = (struct bundle *)call;
    bool each = reply->type == REDIS_REPLY_STRING && (size_t)reply->len == bundle->count;
    (void)index;
    if (script_is_unknown(reply, bundle->by_text) && link_is_up(&bundle->node->link)) {
        bundle->node->known[SCRIPT_RENEW] = false;
        bundle_send(bundle); /* if an undo or a new round came before it, it changes nothing */
        return;
    }
    for (unsigned i = 0; i < bundle->count; i++) {
        char digit[] = {each ? reply->str[i] : '?', '\0'};
        redisReply one = {.type = REDIS_REPLY_STRING, .str = digit, .len = 1};
        ballot_answered(bundle->votes[i], each ? &one : reply);
    }
    free(bundle);
}

static void bundle_lost(struct link_call *call, enum link_loss loss, const struct link_fault *fault)
{
    struct bundle *bundle = (struct bundle *)call;
    for (unsigned i = 0; i < bundle->count; i++)
        ballot_lost(bundle->votes[i], loss, fault);
    free(bundle);
}

/* Without memory these ballots do without the node. */
static void ask_node(struct ballot **ballots, unsigned n, struct node *node)
{
    struct bundle *bundle = malloc(sizeof(*bundle) + n * sizeof(struct vote *));
    bool usable = bundle != NULL && node_is_usable(node, ballots[0]->sent_ns);
    unsigned count = 0;
    for (unsigned i = 0; i < n; i++)
        if (usable && !claim_is_barred(ballots[i]->claim, node->index))
            bundle->votes[count++] = ballot_ask_bundled(ballots[i], node->index);
        else
            ballot_set(ballots[i], node->index, VOTE_FAULT);
    if (count == 0) {
        free(bundle);
        return;
    }
    bundle->call.replied = bundle_replied;
    bundle->call.lost = bundle_lost;
    bundle->node = node;
    bundle->count = count;
    bundle_send(bundle);
}

/* NULL: the op has ended. */
static struct ballot *renew_begin(struct driver *driver, mortise_op *op)
{
    struct claim *claim = claim_find(driver, &op->grant);
    if (claim == NULL || claim->state != CLAIM_WANTED) { /* it was undone */
        op_complete(driver, op, MORTISE_LOST);
        return NULL;
    }
    struct ballot *ballot = ballot_new(driver, &renewing, claim);
    if (ballot == NULL) {
        op_fail_memory(driver, op);
        return NULL;
    }
    ballot->op = op;
    ballot->ttl_ms = op->ttl_ms;
    ballot->token = op->token;
    claim_lasts(claim, ballot->sent_ns, op->ttl_ms);
    op_put(op, OP_BALLOT, ballot);
    return ballot;
}

void renew_together(struct driver *driver, mortise_op **ops, unsigned n)
{
    struct ballot *ballots[RENEW_MAX];
    unsigned begun = 0;
    for (unsigned i = 0; i < n; i++)
        if ((ballots[begun] = renew_begin(driver, ops[i])) != NULL)
            begun++;
    for (unsigned i = 0; begun > 0 && i < driver->count; i++)
        ask_node(ballots, begun, &driver->nodes[i]);
    for (unsigned i = 0; i < begun; i++)
        ballot_begun(ballots[i]);
}
