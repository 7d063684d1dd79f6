/* acquire.c - ACQUIRE: rounds of votes until a grant, a refusal, or an end. protocol.md says why q votes and a token
 * that q nodes have written are a grant.
 *
 * An attempt is the driver's work on one ACQUIRE:
 *
 *   PAUSING      until due_ns: after a split vote, or to let others come first (courtesy.c)
 *   ASKING       each usable node is asked for its vote
 *   CONFIRMING   q nodes have voted, and a token that q nodes can take is being written
 *   UNDOING      the votes are taken back; the answers say who has the lock
 *
 *   state        event                                       next
 *   none         this client has the lock itself             end: BUSY. The core is notified in its turn (pubsub.c)
 *   PAUSING      due, q nodes can vote                       ASKING
 *                due, too few can                            end: UNREACHABLE, or INDETERMINATE (1)
 *   ASKING       q yes, q took the proposed token            end: OK. The claim stays WANTED
 *                q yes, too few took it                      CONFIRMING (2)
 *                q yes impossible (no, fault, silent)        UNDOING
 *   CONFIRMING   written by q nodes that have the vote       end: OK
 *                q impossible                                UNDOING
 *                shared: q impossible, because other         CONFIRMING, with a larger token; after many tries UNDOING
 *                readers' tokens are larger by now
 *   UNDOING      q nodes name one holder, of one round (3)   end: BUSY, until that one's lease may end
 *                all answered: a grant may have a quorum     end: BUSY, until the next look (retry)
 *                too few answered, voted, or can vote        end: UNREACHABLE, or INDETERMINATE (1)
 *                a split vote: nobody has a quorum           PAUSING, for a random time, doubled each round (pause.c);
 *                                                            after some rounds BUSY: the core waits instead
 *   any          canceled                                    end: INDETERMINATE if a node may have something, else
 *                                                            CANCELED. The core releases what may be left
 *                out of memory                               end: NOMEM, or UNDOING fails: UNREACHABLE (1)
 *
 *   (1) INDETERMINATE if q nodes may still have a vote.
 *   (2) If the grant holds already, as soon as the nodes that have not answered cannot make q that took its token;
 *       those that are slow by now are not waited for.
 *   (3) Votes of two rounds of another acquire look like a holder, and nobody announces their end (tally.c). In that case,
 *       the attempt waits for all answers, and the next row applies. A caller that must not wait is refused because of such
 *       an apparent holder.
 *
 *   The process is stopped between the votes and the decision: the deadline counts from before the first request, and
 *   the core looks at the clock; a node whose vote has expired refuses the token.
 *   A node answers late: a yes after the grant is one vote more; after the end the undo is behind it (claim.h).
 *   The same grant id comes again: a node that has its vote extends it. If q nodes have the grant's token, it is the same
 *   hold; otherwise it is a new one. The nodes that answer first may be other ones, which gave their votes without the
 *   token. */
#include "redlock.h"

#include <stdlib.h>

#define ROUNDS_TRY 5 /* of a caller that must not wait: some 15 ms */
#define ROUNDS_WAIT 7
#define HINT_SPLIT_MS 100
#define CONFIRMS 50      /* tries of a reader whose token others outbid */
#define HINT_BAR_MS 1000 /* a writer asks again while its bar is in force (bar.c) */

enum attempt_state {
    ATTEMPT_DECIDING, /* no request is outstanding: a state only inside the driver */
    ATTEMPT_PAUSING,
    ATTEMPT_ASKING,
    ATTEMPT_CONFIRMING,
    ATTEMPT_UNDOING
};

struct attempt {
    struct attempt *next, *previous; /* in the list of PAUSING attempts */
    struct driver *driver;
    mortise_op *op;
    struct claim *claim; /* a reference */
    enum attempt_state state;
    struct ballot *ballot; /* ASKING, CONFIRMING, UNDOING; else NULL */
    unsigned rounds, confirms;
    int64_t due_ns; /* PAUSING */
};

static void round_begin(struct attempt *attempt);
static void confirm(struct attempt *attempt, const struct ballot *votes, uint64_t token);
static void undo(struct attempt *attempt, bool announced, const struct ballot *failed);

/* ---- the states ----------------------------------------------------------------------------------------------- */

static void enter(struct attempt *attempt, enum attempt_state state, struct ballot *ballot)
{
    struct driver *driver = attempt->driver;
    if (attempt->state == ATTEMPT_PAUSING)
        DL_DELETE2(driver->pausing, attempt, previous, next);
    if (attempt->ballot != NULL)
        attempt->ballot->op = NULL;
    attempt->state = state;
    attempt->ballot = ballot;
    if (ballot != NULL)
        ballot->op = attempt->op;
    if (state == ATTEMPT_PAUSING)
        DL_APPEND2(driver->pausing, attempt, previous, next);
}

static bool waits(const struct attempt *attempt)
{
    return (attempt->op->flags & MORTISE_OP_TRY) == 0;
}

static void pause_until(struct attempt *attempt, int64_t due_ns)
{
    attempt->due_ns = due_ns;
    enter(attempt, ATTEMPT_PAUSING, NULL);
}

/* Ends it: the op is the caller's again. */
static mortise_op *conclude(struct attempt *attempt)
{
    mortise_op *op = attempt->op;
    enter(attempt, ATTEMPT_DECIDING, NULL);
    claim_unref(attempt->driver, attempt->claim);
    free(attempt);
    return op;
}

/* INDETERMINATE if q nodes may have a vote, even one of a former try under this grant id, as the claim knows. */
static mortise_status status_of_few(const struct attempt *attempt)
{
    unsigned left = claim_traces(attempt->driver, attempt->claim);
    return left >= attempt->driver->quorum ? MORTISE_INDETERMINATE : MORTISE_UNREACHABLE;
}

static void fail_few(struct attempt *attempt, unsigned answered, const struct ballot *failed)
{
    struct driver *driver = attempt->driver;
    mortise_status status = status_of_few(attempt);
    op_fail_few(driver, conclude(attempt), status, answered, failed != NULL ? &failed->why : NULL,
                failed != NULL ? failed->refusing : 0);
}

static void busy(struct attempt *attempt, int64_t remaining_ms, bool surely)
{
    struct driver *driver = attempt->driver;
    mortise_op *op = conclude(attempt);
    if (remaining_ms > MORTISE_TTL_MAX_MS)
        remaining_ms = MORTISE_TTL_MAX_MS;
    op->hint_ms = remaining_ms;
    bool looks = driver->foreign_polled || driver->deaf || driver->unheard.asks || !surely;
    if (looks && (remaining_ms < 0 || remaining_ms > driver->retry_ms))
        op->hint_ms = driver->retry_ms;
    op_complete(driver, op, MORTISE_BUSY);
}

static void grant(struct attempt *attempt, uint64_t token, int64_t sent_ns)
{
    struct driver *driver = attempt->driver;
    attempt->claim->token = driver->fencing ? token : 0;
    bool alone = !attempt->claim->shared;
    mortise_op *op = conclude(attempt);
    op->token = driver->fencing ? token : 0;
    op->from_ns = sent_ns;
    op->good_for_ms = op->ttl_ms;
    driver->spread_ns /= 2;
    pubsub_granted(driver, op->name, op->name_len, alone ? sent_ns + op->ttl_ms * NS_PER_MS : 0);
    op_complete(driver, op, MORTISE_OK);
}

/* ---- CONFIRMING: the token ------------------------------------------------------------------------------------- */

/* NULL: canceled. */
static struct attempt *attempt_of(const struct ballot *ballot)
{
    return ballot->op != NULL ? op_at(ballot->op, OP_ATTEMPT) : NULL;
}

/* The grant may hold already with the proposed token. It keeps that token if any q nodes have it, not only those that
 * answered first. */
static bool waits_for_token(const struct ballot *ballot)
{
    const struct driver *driver = ballot->driver;
    unsigned may_have_it = ballot->accepted;
    int64_t now = now_of(driver);
    if (ballot->proposed == 0 || ballot->proposed != ballot->claim->token ||
        ballot->accepted >= driver->quorum)
        return false;
    for (unsigned i = 0; i < driver->count; i++)
        may_have_it += ballot->votes[i].state == VOTE_ASKED &&
                       node_pace_at(ballot->votes[i].node, now) == PACE_PROMPT;
    return may_have_it >= driver->quorum;
}

/* Decides the ballot as soon as q nodes have said yes (*won), or cannot do so any more. Returns the attempt that goes on
 * now; NULL: the ballot is open, or nobody waits for it. */
static struct attempt *decide(struct ballot *ballot, bool over, bool *won)
{
    unsigned yes = ballot->counts[VOTE_YES], quorum = ballot->driver->quorum;
    *won = yes >= quorum;
    if (!*won && !over && yes + ballot->counts[VOTE_ASKED] >= quorum)
        return NULL;
    if (*won && waits_for_token(ballot))
        return NULL;
    ballot_decide(ballot, *won ? BALLOT_WON : BALLOT_CLOSED);
    return attempt_of(ballot);
}

static void confirm_look(struct ballot *ballot, bool over)
{
    bool won;
    struct attempt *attempt = decide(ballot, over, &won);
    if (attempt == NULL)
        return;
    if (won) {
        grant(attempt, ballot->token, ballot->sent_ns);
        return;
    }
    uint64_t token = attempt->claim->shared ? vote_outbid_token(ballot) : 0;
    if (token > 0 && token <= TOKEN_MAX && attempt->confirms < CONFIRMS)
        confirm(attempt, ballot, token);
    else
        undo(attempt, true, ballot);
}

static const struct ballot_kind confirming = {
    .put = vote_put_token, .take = vote_take_token, .look = confirm_look};

/* Sends the token on the same connections behind the votes, or behind the last try to write a token, even if a node has not
 * answered these yet. */
static void confirm(struct attempt *attempt, const struct ballot *votes, uint64_t token)
{
    struct driver *driver = attempt->driver;
    struct ballot *ballot = ballot_new(driver, &confirming, attempt->claim);
    if (ballot == NULL) {
        undo(attempt, true, votes);
        return;
    }
    enter(attempt, ATTEMPT_CONFIRMING, ballot);
    ballot->sent_ns = votes->sent_ns; /* the deadline counts from the votes */
    attempt->confirms++;
    ballot->token = token;
    ballot_number(ballot, token);
    for (unsigned i = 0; i < driver->count; i++) {
        enum vote_state state = votes->votes[i].state;
        bool may_have_it = state != VOTE_NOT_ASKED && state != VOTE_FAULT && state != VOTE_OTHER;
        if (may_have_it && link_is_up(&driver->nodes[i].link))
            ballot_ask(ballot, i, VOTE_ASKED);
        else
            ballot_set(ballot, i, VOTE_ABSENT);
    }
    ballot_begun(ballot);
}

/* ---- ASKING: the votes ------------------------------------------------------------------------------------------ */

/* q nodes have voted. If q of them took the proposed token, it is written already. */
static void ask_won(struct attempt *attempt, struct ballot *ballot)
{
    struct driver *driver = attempt->driver;
    if (!driver->fencing || ballot->accepted >= driver->quorum) {
        grant(attempt, ballot->proposed, ballot->sent_ns);
        return;
    }
    uint64_t token = vote_needed_token(ballot);
    if (token <= TOKEN_MAX) {
        confirm(attempt, ballot, token);
        return;
    }
    undo_all(driver, attempt->claim);
    op_fail(driver, conclude(attempt), MORTISE_BACKEND, 0, false,
            "the token has come to its end, 2^53");
}

static void ask_look(struct ballot *ballot, bool over)
{
    const struct driver *driver = ballot->driver;
    unsigned without = ballot_no(ballot) + ballot->counts[VOTE_NOT_ASKED];
    bool won;
    struct attempt *attempt = decide(ballot, over, &won);
    if (attempt == NULL)
        return;
    if (won)
        ask_won(attempt, ballot);
    else /* its end is announced if others may have taken our votes for a quorum */
        undo(attempt, without <= driver->count - driver->quorum, ballot);
}

static const struct ballot_kind asking = {
    .put = vote_put, .take = vote_take, .look = ask_look, .effect = EFFECT_VOTE};

/* This grant id cannot get a quorum any more. The core takes another one after BUSY, and after UNREACHABLE unless it
 * repeats this one. */
static void give_up_grant(struct attempt *attempt)
{
    struct driver *driver = attempt->driver;
    if ((attempt->op->flags & MORTISE_OP_REPEAT) != 0) {
        busy(attempt, driver->retry_ms, false);
        return;
    }
    mortise_status status = status_of_few(attempt);
    op_fail(driver, conclude(attempt), status, 0, true,
            "a lost request that took a vote back may still be executed, and the nodes do not "
            "permit to end its connection (CLIENT KILL)");
}

/* False: the attempt has ended. */
static bool may_ask(struct attempt *attempt)
{
    const struct driver *driver = attempt->driver;
    unsigned voting = nodes_voting(driver), barred = 0;
    int64_t now = now_of(driver);
    for (unsigned i = 0; i < driver->count; i++)
        barred += claim_is_barred(attempt->claim, i) && node_takes_votes(&driver->nodes[i], now) &&
                  node_counts(&driver->nodes[i], now);
    if (voting >= driver->quorum + barred)
        return true;
    if (voting >= driver->quorum)
        give_up_grant(attempt);
    else
        fail_few(attempt, voting, NULL);
    return false;
}

static void ask_nodes(struct ballot *ballot)
{
    const struct driver *driver = ballot->driver;
    for (unsigned i = 0; i < driver->count; i++) {
        const struct node *node = &driver->nodes[i];
        if (node_takes_votes(node, ballot->sent_ns) && !claim_is_barred(ballot->claim, i))
            ballot_ask(ballot, i,
                       node_counts(node, ballot->sent_ns) ? VOTE_ASKED : VOTE_ASKED_ASIDE);
    }
}

static void round_begin(struct attempt *attempt)
{
    struct driver *driver = attempt->driver;
    struct claim *claim = attempt->claim;
    mortise_op *op = attempt->op;
    enter(attempt, ATTEMPT_DECIDING, NULL);
    if (!may_ask(attempt))
        return;
    claim_begin(driver, claim);
    struct ballot *ballot = ballot_new(driver, &asking, claim);
    if (ballot == NULL) {
        undo_all(driver, claim); /* an earlier request under this grant id may have left votes */
        op_fail_memory(driver, conclude(attempt));
        return;
    }
    enter(attempt, ATTEMPT_ASKING, ballot);
    claim->mark = claim->shared ? ' ' : pubsub_vote_mark(driver, op->name, op->name_len);
    attempt->rounds++;
    claim_lasts(claim, ballot->sent_ns, op->ttl_ms);
    ballot->ttl_ms = op->ttl_ms;
    vote_propose(ballot, op);
    if (op->first_sent_ns == 0)
        op->first_sent_ns = ballot->sent_ns;
    ask_nodes(ballot);
    ballot_begun(ballot);
}

/* ---- UNDOING, and what follows ---------------------------------------------------------------------------------- */

/* So many rounds were split that the core pauses instead: for as long as the next pause, but at least `retry`. */
static void busy_after(struct attempt *attempt, int64_t pause_ms, int64_t remaining_ms)
{
    int64_t ms = pause_ms > attempt->driver->retry_ms ? pause_ms : attempt->driver->retry_ms;
    busy(attempt, remaining_ms >= 0 && remaining_ms < ms ? remaining_ms : ms, true);
}

static void split(struct attempt *attempt, const struct seen *best)
{
    struct driver *driver = attempt->driver;
    int64_t pause_ns = pause_after_split_ns(driver, attempt->rounds, waits(attempt));
    if (attempt->rounds < (waits(attempt) ? ROUNDS_WAIT : ROUNDS_TRY))
        pause_until(attempt, now_of(driver) + pause_ns);
    else if (best != NULL)
        busy_after(attempt, pause_ns / NS_PER_MS, best->remaining_ms);
    else
        busy(attempt, (int64_t)random_below(driver, HINT_SPLIT_MS), false);
}

/* Until when the holder's claim, or the bar that keeps a reader out, may end; a writer renews its own bar before. */
static int64_t remaining_ms(struct attempt *attempt, const struct seen *best, unsigned char undoer)
{
    struct driver *driver = attempt->driver;
    if (!best->shared || undoer != UNDOER_WAITER)
        return best->remaining_ms;
    bar_set(driver, attempt->op->name, attempt->op->name_len);
    bool long_wait = best->remaining_ms < 0 || best->remaining_ms > HINT_BAR_MS;
    return long_wait ? HINT_BAR_MS : best->remaining_ms;
}

static bool is_named(const struct ballot *ballot)
{
    const struct seen *best = tally_best(&ballot->tally);
    return best != NULL && best->nodes >= ballot->driver->quorum;
}

static void undone(struct attempt *attempt, const struct ballot *ballot)
{
    struct driver *driver = attempt->driver;
    const struct seen *best = tally_best(&ballot->tally);
    unsigned unknown = ballot->counts[VOTE_FAULT], answered = ballot_answers(ballot);
    unsigned voting = nodes_voting(driver);
    bool named = is_named(ballot), sure = tally_is_sure(driver, best);
    bool presumed =
        best != NULL && (best->token > 0 || best->shared) && tally_is_held(driver, best, unknown);
    bool left = status_of_few(attempt) == MORTISE_INDETERMINATE;
    enter(attempt, ATTEMPT_DECIDING, NULL);
    if (!named && left)
        fail_few(attempt, answered, ballot);
    else if (named || presumed) {
        /* an unsure holder may be a split vote, whose marks vanish with it, so that no release is announced */
        driver->spread_ns /= sure ? 2 : 1;
        if (named) /* in any case it is known that the message was in vain */
            pubsub_refused(driver, attempt->op->name, attempt->op->name_len, best);
        busy(attempt, remaining_ms(attempt, best, ballot->undoer), sure);
    } else if (answered < driver->quorum || voting < driver->quorum)
        fail_few(attempt, answered < voting ? answered : voting, ballot);
    else
        split(attempt, best);
}

static void undo_look(struct ballot *ballot, bool over)
{
    struct attempt *attempt = attempt_of(ballot);
    bool sure = tally_is_sure(ballot->driver, tally_best(&ballot->tally));
    if (attempt != NULL && !over && !sure && (waits(attempt) || !is_named(ballot)))
        return;
    ballot_decide(ballot, BALLOT_CLOSED);
    if (attempt != NULL)
        undone(attempt, ballot);
}

static const struct ballot_kind undoing = {
    .put = undo_put, .take = undo_take, .look = undo_look, .effect = EFFECT_UNDO};

static void undo(struct attempt *attempt, bool announced, const struct ballot *failed)
{
    struct driver *driver = attempt->driver;
    char mark = pubsub_mark(driver, attempt->op->name, attempt->op->name_len);
    enum undoer undoer = attempt->claim->shared ? UNDOER_READER
                         : waits(attempt)       ? UNDOER_WAITER
                                                : UNDOER_WRITER;
    struct ballot *ballot = undo_new(driver, &undoing, attempt->claim, announced, undoer, mark);
    if (ballot == NULL) {
        fail_few(attempt, 0, failed);
        return;
    }
    enter(attempt, ATTEMPT_UNDOING, ballot);
    ballot_follow(ballot, failed);
    ballot_begun(ballot);
}

/* ---- asked by the core ------------------------------------------------------------------------------------------- */

/* If this client has the lock, or is just releasing it, the caller waits as if it had been refused. */
static int64_t quiet_until(struct driver *driver, const mortise_op *op)
{
    bool asks =
        op->mode == MORTISE_SHARED || (op->flags & (MORTISE_OP_TRY | MORTISE_OP_REPEAT)) != 0;
    return asks ? 0 : pubsub_quiet_until_ns(driver, op->name, op->name_len);
}

void acquire_start(struct driver *driver, mortise_op *op)
{
    struct attempt *attempt = calloc(1, sizeof(*attempt));
    struct claim *claim = attempt != NULL ? claim_take(driver, op) : NULL;
    if (claim == NULL) {
        free(attempt);
        op_fail_memory(driver, op);
        return;
    }
    *attempt = (struct attempt){.driver = driver, .op = op, .claim = claim};
    op_put(op, OP_ATTEMPT, attempt);
    int64_t now = now_of(driver), quiet_until_ns = quiet_until(driver, op),
            due_ns = courtesy_until_ns(driver, op);
    if (quiet_until_ns > now) {
        pubsub_tell_holder(driver, op);
        busy(attempt, (quiet_until_ns - now) / NS_PER_MS + 1, true);
    } else if (due_ns > now && !pubsub_hears(driver, op->name, op->name_len))
        pause_until(attempt, due_ns);
    else
        round_begin(attempt);
}

void acquire_cancel(struct driver *driver, mortise_op *op)
{
    struct attempt *attempt = op_at(op, OP_ATTEMPT);
    bool unsure = claim_traces(driver, attempt->claim) > 0;
    conclude(attempt);
    op_complete(driver, op, unsure ? MORTISE_INDETERMINATE : MORTISE_CANCELED);
}

void acquire_turn(struct driver *driver, int64_t now_ns)
{
    struct attempt *attempt, *next;
    for (attempt = driver->pausing; attempt != NULL; attempt = next) {
        next = attempt->next;
        if (attempt->due_ns <= now_ns)
            round_begin(attempt);
    }
}

int64_t acquire_due_ns(const struct driver *driver)
{
    int64_t due_ns = MORTISE_NEVER;
    for (const struct attempt *attempt = driver->pausing; attempt != NULL; attempt = attempt->next)
        if (attempt->due_ns < due_ns)
            due_ns = attempt->due_ns;
    return due_ns;
}
