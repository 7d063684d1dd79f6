/* undo.c - removes a claim from the nodes: now, by a timer if that failed, and when a node is back. undo.lua deletes
 * the lock if it is this grant's, and wakes the waiters if the end of the claim is to be announced. The claim is kept
 * until each node has answered, or max_ttl has passed: see claim.h. */
#include "redlock.h"

/* ---- the request ------------------------------------------------------------------------------------------------ */

/* Whether the node announces the release (undo.lua). If the vote brought a mark along, the mark does not show whether
 * others wait. Then the number of clients that hear the release shows it. */
static const char *telling(const struct ballot *ballot, const struct vote *vote)
{
    const struct claim *claim = ballot->claim;
    if (!claim->announced)
        return "0";
    if (claim->mark == ' ')
        return "1";
    return pubsub_listens(vote->node, claim->name, claim->name_len) ? "3" : "2";
}

/* undo.lua is for a claim that is certainly exclusive, and for a caller that does not ask for other holders. */
void undo_put(struct ballot *ballot, struct vote *vote)
{
    static const char *const undoers[] = {[UNDOER_NOBODY] = "-",
                                          [UNDOER_READER] = "reader",
                                          [UNDOER_WRITER] = "writer",
                                          [UNDOER_WAITER] = "waiter"};
    struct link *link = &vote->node->link;
    bool shared = ballot->claim->shared || ballot->undoer != UNDOER_NOBODY;
    ballot_script(vote, shared ? SCRIPT_UNDO_SHARED : SCRIPT_UNDO, shared ? 4 : 1, shared ? 5 : 4);
    put_key(vote);
    if (shared) {
        put_side(vote, "holders");
        put_side(vote, "shares");
        put_side(vote, "bar");
    }
    put_grant(vote);
    put_side(vote, "news");
    link_argument(link, telling(ballot, vote), 1);
    link_argument(link, &ballot->mark, 1);
    if (shared)
        link_text(link, undoers[ballot->undoer]);
}

/* The reply: 2 deleted, 3 deleted and waiters are woken; 0 absent; else the holder. */
enum vote_state undo_take(struct ballot *ballot, struct vote *vote, redisReply *reply)
{
    bool found = reply->type == REDIS_REPLY_INTEGER && reply->integer >= 2, other = false;
    ballot->woke |= found && reply->integer == 3;
    if (ballot->state == BALLOT_OPEN)
        other = tally_add(&ballot->tally, reply, ballot_info(ballot));
    vote->gone = vote->had && !found;
    vote->had = vote->had && found;
    ballot_note(vote, TRACE_UNDONE);
    return found ? VOTE_YES : other ? VOTE_OTHER : VOTE_ABSENT;
}

static const struct ballot_kind undoing = {
    .put = undo_put, .take = undo_take, .effect = EFFECT_UNDO};

/* If nothing was asked for at the node, nothing is there. The undo does not wait for a late node. */
static void undo_node(struct ballot *ballot, unsigned i)
{
    const struct node *node = &ballot->driver->nodes[i];
    if (!claim_has_trace(ballot->claim, i)) {
        ballot_set(ballot, i, VOTE_ABSENT);
        return;
    }
    bool usable = node_is_usable(node, ballot->sent_ns);
    ballot->votes[i].had = ballot->claim->traces[i].state == TRACE_THERE;
    if (link_is_up(&node->link))
        ballot_ask(ballot, i, usable ? VOTE_ASKED : VOTE_FAULT);
    else
        ballot_set(ballot, i, VOTE_FAULT);
    if (!usable)
        link_fault_set(&ballot->why, MORTISE_UNREACHABLE, true, 0, "%s: no answer",
                       node->settings.endpoint.text);
}

struct ballot *undo_new(struct driver *driver, const struct ballot_kind *kind, struct claim *claim,
                        bool announced, enum undoer undoer, char mark)
{
    struct ballot *ballot = ballot_new(driver, kind, claim);
    claim_end(driver, claim, announced);
    if (ballot != NULL) {
        ballot->undoer = (unsigned char)undoer;
        ballot->mark = mark;
    }
    for (unsigned i = 0; i < driver->count; i++)
        if (ballot != NULL)
            undo_node(ballot, i);
        else
            claim_undo_later(driver, claim, i);
    return ballot;
}

void undo_all(struct driver *driver, struct claim *claim)
{
    struct ballot *ballot = undo_new(driver, &undoing, claim, true, UNDOER_NOBODY, MARK);
    if (ballot != NULL)
        ballot_begun(ballot);
}

/* ---- what is left to do ---------------------------------------------------------------------------------------- */

static void undo_on(struct driver *driver, struct claim *claim, unsigned node)
{
    struct ballot *ballot = ballot_new(driver, &undoing, claim);
    claim->traces[node].again = false;
    if (ballot == NULL) {
        claim_undo_later(driver, claim, node);
        return;
    }
    ballot_ask(ballot, node, VOTE_ASKED);
    ballot_begun(ballot);
}

void undo_node_up(struct driver *driver, const struct node *node)
{
    struct claim *claim, *next;
    if (link_settled(&node->link))
        claims_settle(driver, node->index);
    for (claim = driver->ending; claim != NULL; claim = next) {
        next = claim->next;
        if (claim_has_trace(claim, node->index))
            undo_on(driver, claim, node->index);
    }
}

/* True: a node that can answer may have something of the claim, so somebody must turn the driver. */
static bool tick(struct driver *driver, struct claim *claim)
{
    bool heard = false;
    for (unsigned i = 0; i < driver->count; i++) {
        if (!claim_has_trace(claim, i) || !link_is_up(&driver->nodes[i].link))
            continue; /* undo_node_up() does it when the node is back */
        heard = true;
        if (claim->traces[i].again)
            undo_on(driver, claim, i);
    }
    return heard;
}

void undo_turn(struct driver *driver, int64_t now_ns)
{
    struct claim *claim, *next;
    bool heard = false;
    claims_expire(driver, now_ns);
    if (driver->tick_ns > now_ns)
        return;
    driver->tick_ns = MORTISE_NEVER;
    for (claim = driver->ending; claim != NULL; claim = next) {
        next = claim->next;
        heard |= tick(driver, claim);
    }
    if (heard)
        driver->tick_ns = now_ns + TICK_NS;
}

int64_t undo_due_ns(const struct driver *driver)
{
    int64_t due_ns = claims_due_ns(driver);
    return driver->tick_ns < due_ns ? driver->tick_ns : due_ns;
}
