/* renewal.c - RENEW, and the repair of votes that nodes have lost.
 *
 *   q nodes extended it               OK; only then, a node that has lost it gets it back (repair.lua)
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
    enum script script; /* RENEW, or RENEW_SHARED */
    bool by_text;       /* sent with the script's text */
    unsigned count;
    struct vote *votes[];
};

/* ---- repair --------------------------------------------------------------------------------------------------------- */

static void repair_put(struct ballot *ballot, struct vote *vote)
{
    bool shared = ballot->claim->shared;
    ballot_script(vote, shared ? SCRIPT_REPAIR_SHARED : SCRIPT_REPAIR, shared ? 4 : 2, 4);
    put_key(vote);
    put_side(vote, "token");
    if (shared) {
        put_side(vote, "holders");
        put_side(vote, "shares");
    }
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

/* The renewal has won: the node gets the lock back for as long as the others have it, unless the claim is ending. A
 * repair that is already on its way is executed before the undo. Without memory, the next renewal repairs the
 * vote. */
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

/* The reply is one digit: 2 renewed, 1 another has the lock, 0 it is not there, 3 the node refuses to say. */
static enum vote_state renew_take(struct ballot *ballot, struct vote *vote, redisReply *reply)
{
    char answer = reply->type == REDIS_REPLY_STRING && reply->len == 1 ? reply->str[0] : '?';
    struct link_fault fault;
    if (answer == '3') {
        link_fault_set(&fault, MORTISE_UNREACHABLE, true, 0,
                       "%s: it refuses to tell who holds the lock", vote->node->link.endpoint.text);
        fault_keep(&ballot->why, &fault);
    }
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
    if ((op->flags & MORTISE_OP_DOWNGRADE) != 0)
        ballot->claim->unsettled = false;
    op->from_ns = ballot->sent_ns;
    op->good_for_ms = op->ttl_ms;
    op_complete(driver, op, MORTISE_OK);
}

/* The grant cannot have a quorum again. Its remaining votes must not block others. */
static void renew_lost(struct ballot *ballot)
{
    struct driver *driver = ballot->driver;
    if (ballot->round == ballot->claim->round)
        undo_all(driver, ballot->claim);
    pubsub_lost(driver, ballot->claim->name, ballot->claim->name_len);
    if (ballot->op != NULL)
        op_complete(driver, ballot->op,
                    ballot->counts[VOTE_OTHER] > 0 ? MORTISE_NOTOWNER : MORTISE_LOST);
}

/* A downgrade that reached a node may have been executed there, unless the node answered with an error (downgrade.lua). If all
 * asked nodes answered with a lasting error, the claim is exclusive as before. That counts as a refusal, however few nodes
 * they are. */
static mortise_status renew_unknown(const struct ballot *ballot)
{
    struct claim *claim = ballot->claim;
    bool refused = (unsigned)__builtin_popcount(ballot->refusing) == ballot->asked;
    if ((ballot->op->flags & MORTISE_OP_DOWNGRADE) == 0)
        return MORTISE_UNREACHABLE;
    if (ballot->asked > 0 && !(ballot->begins && refused))
        return MORTISE_INDETERMINATE;
    if (ballot->begins && ballot->round == claim->round)
        claim->shared = false;
    claim->unsettled &= ballot->asked == 0;
    return ballot->asked > 0 ? MORTISE_BACKEND : MORTISE_UNREACHABLE;
}

static void renew_look(struct ballot *ballot, bool over)
{
    struct driver *driver = ballot->driver;
    bool won = ballot->counts[VOTE_YES] >= driver->quorum;
    bool lost = ballot_no(ballot) > driver->count - driver->quorum;
    if (!won && !lost && !over)
        return;
    /* a release may have canceled the renewal, so a canceled one repairs nothing */
    ballot_decide(ballot, won && ballot->op != NULL ? BALLOT_WON : BALLOT_CLOSED);
    if (ballot->state == BALLOT_WON)
        renew_won(ballot);
    else if (lost)
        renew_lost(ballot);
    else if (ballot->op != NULL)
        op_fail_few(driver, ballot->op, renew_unknown(ballot),
                    ballot->counts[VOTE_YES] + ballot_no(ballot), &ballot->why, ballot->refusing);
}

static const struct ballot_kind renewing = {.take = renew_take, .look = renew_look};

/* ---- downgrade -------------------------------------------------------------------------------------------------------- */

/* A downgrade is a renewal that also makes the claim shared. If fewer than q nodes did it, the claim's mode is unknown: the
 * core asks again, and all renewals repeat the request (renew_shared.lua). From the first request on, nobody may count on
 * the lock being exclusive, because a reader may have the votes of nodes that were downgraded, and of others that never had
 * the claim. */
static void downgrade_put(struct ballot *ballot, struct vote *vote)
{
    ballot_script(vote, SCRIPT_DOWNGRADE, 4, 3);
    put_key(vote);
    put_side(vote, "holders");
    put_side(vote, "shares");
    put_side(vote, "bar");
    put_grant(vote);
    link_number(&vote->node->link, ballot->ttl_ms);
    put_side(vote, "news");
}

static const struct ballot_kind downgrading = {
    .put = downgrade_put, .take = renew_take, .look = renew_look};

/* ---- many at once ---------------------------------------------------------------------------------------------- */

static void bundle_send(struct bundle *bundle)
{
    struct link *link = &bundle->node->link;
    bool shared = bundle->script == SCRIPT_RENEW_SHARED;
    link_call_begin(link, &bundle->call);
    bundle->by_text = ballot_script_on(bundle->node, bundle->script,
                                       (shared ? 3 : 1) * bundle->count, 2 * bundle->count);
    for (unsigned i = 0; i < bundle->count; i++) {
        put_key(bundle->votes[i]);
        if (!shared)
            continue;
        put_side(bundle->votes[i], "holders");
        put_side(bundle->votes[i], "shares");
    }
    for (unsigned i = 0; i < bundle->count; i++) {
        put_grant(bundle->votes[i]);
        link_number(link, bundle->votes[i]->ballot->ttl_ms);
    }
    link_call_end(link, &bundle->call, 1);
}

/* The reply has a digit for each grant. Any other reply (an error, nonsense) counts as the answer for all of them. */
static void bundle_replied(struct link_call *call, unsigned index, redisReply *reply)
{
    struct bundle *bundle = (struct bundle *)call;
    bool each = reply->type == REDIS_REPLY_STRING && (size_t)reply->len == bundle->count;
    (void)index;
    if (script_is_unknown(reply, bundle->by_text) && link_is_up(&bundle->node->link)) {
        bundle->node->known[bundle->script] = false;
        bundle_send(bundle); /* behind an undo or a new round, it changes nothing */
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

/* Without memory, these ballots do without the node's answer. */
static void ask_node(struct ballot **ballots, unsigned n, struct node *node, enum script script)
{
    if (n == 0)
        return;
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
    bundle->script = script;
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
    bool downgrade = (op->flags & MORTISE_OP_DOWNGRADE) != 0;
    struct ballot *ballot = ballot_new(driver, downgrade ? &downgrading : &renewing, claim);
    if (ballot == NULL) {
        op_fail_memory(driver, op);
        return NULL;
    }
    ballot->begins = downgrade && !claim->shared;
    if (downgrade)
        claim->shared = claim->unsettled = true; /* from here on it is exclusive nowhere for sure */
    ballot->op = op;
    ballot->ttl_ms = op->ttl_ms;
    ballot->token = op->token;
    claim_lasts(claim, ballot->sent_ns, op->ttl_ms);
    op_put(op, OP_BALLOT, ballot);
    return ballot;
}

/* Puts the exclusive claims first, then the shared ones, then the downgrades. counts[0] and [1]: the numbers of the first
 * two. */
static void sort_by_script(struct ballot **ballots, unsigned n, unsigned counts[2])
{
    struct ballot *sorted[RENEW_MAX];
    unsigned at = 0;
    counts[0] = counts[1] = 0;
    for (unsigned kind = 0; kind < 3; kind++)
        for (unsigned i = 0; i < n; i++) {
            bool downgrade = ballots[i]->kind == &downgrading;
            if (kind != (downgrade ? 2U : ballots[i]->claim->shared ? 1U : 0U))
                continue;
            sorted[at++] = ballots[i];
            if (kind < 2)
                counts[kind]++;
        }
    /* cppcheck-suppress uninitvar ; each ballot is of one of the three kinds, so n are filled */
    memcpy(ballots, sorted, n * sizeof(struct ballot *));
}

static void ask_to_downgrade(struct ballot *ballot, unsigned node)
{
    const struct driver *driver = ballot->driver;
    if (node_is_usable(&driver->nodes[node], ballot->sent_ns) &&
        !claim_is_barred(ballot->claim, node))
        ballot_ask(ballot, node, VOTE_ASKED);
    else
        ballot_set(ballot, node, VOTE_FAULT);
}

void renew_together(struct driver *driver, mortise_op **ops, unsigned n)
{
    struct ballot *ballots[RENEW_MAX];
    unsigned begun = 0, counts[2];
    for (unsigned i = 0; i < n; i++)
        if ((ballots[begun] = renew_begin(driver, ops[i])) != NULL)
            begun++;
    sort_by_script(ballots, begun, counts);
    for (unsigned i = 0; i < driver->count; i++) {
        struct node *node = &driver->nodes[i];
        ask_node(ballots, counts[0], node, SCRIPT_RENEW);
        ask_node(ballots + counts[0], counts[1], node, SCRIPT_RENEW_SHARED);
        for (unsigned k = counts[0] + counts[1]; k < begun; k++)
            ask_to_downgrade(ballots[k], i);
    }
    for (unsigned i = 0; i < begun; i++)
        ballot_begun(ballots[i]);
}

/* The core repeats a renewal after a pause that grows with the ttl. But a caller is waiting for its downgrade. */
void renewal_node_up(struct driver *driver)
{
    for (struct claim *claim = driver->claims; claim != NULL; claim = claim->hh.next)
        if (claim->unsettled && claim->state == CLAIM_WANTED)
            driver->host->doubt(driver->host, claim->name, claim->name_len);
}
