/* attempt.c - an acquire: rounds of votes, until it is granted, refused, or given up; see internal.h.
 *
 * A round that was split (nobody has a quorum) is tried again here, after a random time that grows with the rounds: so
 * that of several contenders one is alone soon. After some rounds the core waits in our place. */
#include "internal.h"

#include <stdlib.h>

#define ROUNDS_TRY 5 /* of one that must not wait: some 15 ms */
#define ROUNDS_WAIT 7
#define PAUSE_NS NS_PER_MS            /* the first one, at the most; doubled each round */
#define NOW_MAX_US (INT64_C(1) << 60) /* no clock says more: there is room to calculate */
#define SPREAD_MAX_NS (INT64_C(32) * NS_PER_MS)
#define HINT_SPLIT_MS 100

struct attempt {
    struct attempt *next, *previous; /* of those that pause; or free */
    struct driver *driver;
    mortise_op *op;
    struct claim *claim;   /* of this round */
    struct ballot *ballot; /* under way; NULL: it pauses */
    unsigned rounds;
    int64_t due_ns; /* of the pause */
};

static void round_begin(struct attempt *attempt);
static void undo(struct attempt *attempt, bool loud, const struct ballot *failed);
static void busy(struct attempt *attempt, int64_t remaining_ms, bool surely);

uint64_t random_below(struct driver *driver, uint64_t limit)
{
    uint64_t random;
    driver->host->random(driver->host, &random, sizeof(random));
    return random % limit;
}

/* ---- an attempt --------------------------------------------------------------------------------------------- */

static struct attempt *attempt_new(struct driver *driver, mortise_op *op)
{
    struct attempt *attempt = driver->free_attempts;
    if (attempt != NULL)
        driver->free_attempts = attempt->next;
    else if ((attempt = malloc(sizeof(*attempt))) == NULL)
        return NULL;
    *attempt = (struct attempt){.driver = driver, .op = op};
    op->driver_data[0] = attempt;
    return attempt;
}

static void let_go(struct attempt *attempt)
{
    if (attempt->claim != NULL)
        claim_unref(attempt->claim);
    attempt->claim = NULL;
}

static void attempt_free(struct attempt *attempt)
{
    struct driver *driver = attempt->driver;
    let_go(attempt);
    if (attempt->ballot != NULL) {
        attempt->ballot->attempt = NULL;
        attempt->ballot->info = NULL;
    }
    attempt->next = driver->free_attempts;
    driver->free_attempts = attempt;
}

void attempts_free(struct driver *driver)
{
    struct attempt *next;
    for (struct attempt *attempt = driver->free_attempts; attempt != NULL; attempt = next) {
        next = attempt->next;
        free(attempt);
    }
}

/* Ends it: the op is the caller's again. */
static mortise_op *conclude(struct attempt *attempt)
{
    mortise_op *op = attempt->op;
    attempt_free(attempt);
    return op;
}

/* Votes may be left in so many nodes that they could be a quorum. Of a repeat, too: the claim knows what all former tries
 * under this grant may have left. */
static bool is_unsure(const struct attempt *attempt)
{
    unsigned left = attempt->claim == NULL || !attempt->claim->listed
                        ? 0
                        : (unsigned)__builtin_popcount(attempt->claim->maybe);
    return left >= attempt->driver->quorum;
}

static mortise_status unsure_status(struct attempt *attempt)
{
    if (!is_unsure(attempt))
        return MORTISE_UNREACHABLE;
    attempt->claim->awaited = true;
    return MORTISE_INDETERMINATE;
}

static void fail_few(struct attempt *attempt, unsigned answered, const struct link_fault *why)
{
    struct driver *driver = attempt->driver;
    mortise_status status = unsure_status(attempt);
    flow_fail_few(driver, conclude(attempt), status, answered, why);
}

static void grant(struct attempt *attempt, uint64_t token, int64_t sent_ns)
{
    struct driver *driver = attempt->driver;
    attempt->claim->token = driver->fencing ? token : 0;
    mortise_op *op = conclude(attempt);
    op->token = driver->fencing ? token : 0;
    op->from_ns = sent_ns;
    op->good_for_ms = op->ttl_ms;
    driver->spread_ns /= 2;
    news_granted(driver, op->name, op->name_len);
    flow_complete(driver, op, MORTISE_OK);
}

/* ---- confirming: the token -------------------------------------------------------------------------------------- */

static void confirm_put(struct ballot *ballot, struct vote *vote)
{
    (void)ballot;
    ballot_script(vote, SCRIPT_CONFIRM, 2, 2);
    put_key(vote);
    put_side(vote, "token");
    put_grant(vote);
    put_digits(vote);
}

static enum vote_state confirm_take(struct ballot *ballot, struct vote *vote, redisReply *reply)
{
    (void)ballot;
    (void)vote;
    return reply->type == REDIS_REPLY_INTEGER && reply->integer == 1 ? VOTE_YES : VOTE_NO;
}

static void confirm_look(struct ballot *ballot, bool over)
{
    struct attempt *attempt = ballot->attempt;
    unsigned quorum = ballot->driver->quorum;
    bool won = ballot->counts[VOTE_YES] >= quorum;
    if (!won && !over && ballot->counts[VOTE_YES] + ballot->counts[VOTE_ASKED] >= quorum)
        return;
    ballot_decide(ballot);
    if (attempt == NULL)
        return;
    if (won)
        grant(attempt, ballot->token, ballot->sent_ns);
    else
        undo(attempt, true, ballot);
}

static const struct ballot_kind confirming = {
    .put = confirm_put, .take = confirm_take, .look = confirm_look};

/* On the votes' connections, behind them: also where they were not answered yet. */
static void confirm(struct attempt *attempt, const struct ballot *votes)
{
    struct driver *driver = attempt->driver;
    struct ballot *ballot = ballot_new(driver, &confirming, attempt->claim);
    attempt->ballot = ballot;
    if (ballot == NULL) {
        undo(attempt, true, votes);
        return;
    }
    ballot->attempt = attempt;
    ballot->sent_ns = votes->sent_ns; /* the deadline counts from the votes */
    ballot->token = votes->token;
    ballot_number(ballot, votes->token);
    for (unsigned i = 0; i < driver->count; i++)
        if (votes->votes[i].state == VOTE_NOT_ASKED || votes->votes[i].state == VOTE_FAULT ||
            votes->votes[i].state == VOTE_NO || !link_is_up(&driver->nodes[i].link))
            ballot_set(ballot, i, VOTE_NO);
        else
            ballot_ask(ballot, i, VOTE_ASKED);
    ballot_begun(ballot);
}

/* ---- asking --------------------------------------------------------------------------------------------------------- */

/* Without tokens: what other clients of this kind send. */
static void put_set(const struct ballot *ballot, struct vote *vote)
{
    static const char no_token[] = " 0000000000000000 ";
    struct link *link = &vote->node->link;
    const struct driver *driver = ballot->driver;
    const struct link_part parts[] = {{ballot->hex, GRANT_HEX},
                                      {no_token, sizeof(no_token) - 1},
                                      {ballot->digits, TOKEN_DIGITS},
                                      {"\n", 1},
                                      {driver->note, driver->note_len}};
    link_command(link, 6);
    link_argument(link, "SET", 3);
    put_key(vote);
    link_parts(link, parts, 5);
    link_argument(link, "NX", 2);
    link_argument(link, "PX", 2);
    link_number(link, ballot->ttl_ms);
}

static void ask_put(struct ballot *ballot, struct vote *vote)
{
    const struct driver *driver = ballot->driver;
    if (!driver->fencing && !ballot->repeat) {
        put_set(ballot, vote);
        return;
    }
    ballot_script(vote, SCRIPT_ASK, 2, 4);
    put_key(vote);
    put_side(vote, "token");
    put_grant(vote);
    link_number(&vote->node->link, ballot->ttl_ms);
    link_argument(&vote->node->link, driver->note, driver->note_len);
    put_digits(vote);
}

static enum vote_state ask_told(struct ballot *ballot, struct vote *vote, const redisReply *reply)
{
    if (reply->type == REDIS_REPLY_STATUS) /* of SET */
        return VOTE_YES;
    if (reply->type == REDIS_REPLY_INTEGER && reply->integer < 0 && reply->integer >= -NOW_MAX_US) {
        ballot->accepted += vote->state == VOTE_ASKED;
        vote->need = ballot->proposed;
        clock_note(vote->node, ballot->sent_ns, -reply->integer);
        return VOTE_YES;
    }
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 2 ||
        reply->element[0]->type != REDIS_REPLY_INTEGER ||
        reply->element[1]->type != REDIS_REPLY_INTEGER || reply->element[0]->integer < 0 ||
        reply->element[1]->integer < 0 || reply->element[1]->integer > NOW_MAX_US)
        return VOTE_NO;
    vote->need = (uint64_t)reply->element[0]->integer;
    clock_note(vote->node, ballot->sent_ns, reply->element[1]->integer);
    return VOTE_YES;
}

static enum vote_state ask_take(struct ballot *ballot, struct vote *vote, redisReply *reply)
{
    enum vote_state state = ask_told(ballot, vote, reply);
    claim_told(ballot->claim, ballot->generation, vote->node->index, state == VOTE_YES);
    return state;
}

/* The smallest token that q of the votes can take. */
static uint64_t needed(const struct ballot *ballot)
{
    uint64_t needs[NODES_MAX] = {0};
    unsigned n = 0;
    for (unsigned i = 0; i < ballot->driver->count; i++) {
        const struct vote *vote = &ballot->votes[i];
        unsigned at = n;
        if (vote->state != VOTE_YES)
            continue;
        for (; at > 0 && needs[at - 1] > vote->need; at--)
            needs[at] = needs[at - 1];
        needs[at] = vote->need;
        n++;
    }
    uint64_t need = needs[ballot->driver->quorum - 1]; /* there are that many */
    return need > ballot->proposed ? need : ballot->proposed;
}

/* The votes are there. Where q nodes have taken the token that was proposed, it is written already. */
static void ask_won(struct attempt *attempt, struct ballot *ballot)
{
    struct driver *driver = attempt->driver;
    if (!driver->fencing || ballot->accepted >= driver->quorum) {
        grant(attempt, ballot->proposed, ballot->sent_ns);
        return;
    }
    ballot->token = needed(ballot);
    if (ballot->token <= TOKEN_MAX) {
        confirm(attempt, ballot);
        return;
    }
    claim_end(driver, attempt->claim, true);
    claim_again(driver, attempt->claim, attempt->claim->maybe);
    flow_fail(driver, conclude(attempt), MORTISE_BACKEND, 0, false,
              "the token has come to its end, 2^53");
}

static void ask_look(struct ballot *ballot, bool over)
{
    struct attempt *attempt = ballot->attempt;
    const unsigned *counts = ballot->counts, quorum = ballot->driver->quorum;
    bool won = counts[VOTE_YES] >= quorum;
    bool open = counts[VOTE_YES] + counts[VOTE_ASKED] >= quorum;
    if (!won && !over && open)
        return;
    ballot_decide(ballot);
    if (attempt == NULL)
        return;
    if (won)
        ask_won(attempt, ballot);
    else /* loud, if it may look like a quorum to others */
        undo(attempt, counts[VOTE_NO] + counts[VOTE_NOT_ASKED] <= ballot->driver->count - quorum,
             ballot);
}

static const struct ballot_kind asking = {
    .put = ask_put, .take = ask_take, .look = ask_look, .places = true};

static void ask_nodes(struct ballot *ballot)
{
    struct driver *driver = ballot->driver;
    for (unsigned i = 0; i < driver->count; i++) {
        const struct node *node = &driver->nodes[i];
        if (node_is_usable(node, ballot->sent_ns) && !claim_is_stray(driver, ballot->claim, i))
            ballot_ask(ballot, i,
                       node_counts(node, ballot->sent_ns) ? VOTE_ASKED : VOTE_ASKED_ASIDE);
    }
}

/* Of the nodes whose votes count, those that may yet execute an undo of this grant. */
static unsigned count_strays(const struct attempt *attempt)
{
    const struct driver *driver = attempt->driver;
    int64_t now = now_of(driver);
    unsigned n = 0;
    for (unsigned i = 0; attempt->claim != NULL && i < driver->count; i++)
        n += claim_is_stray(driver, attempt->claim, i) && node_is_usable(&driver->nodes[i], now) &&
             node_counts(&driver->nodes[i], now);
    return n;
}

/* This grant cannot have a quorum any more. The core takes another id after BUSY, and after UNREACHABLE unless it
 * repeats this one. */
static void give_up_grant(struct attempt *attempt)
{
    struct driver *driver = attempt->driver;
    if ((attempt->op->flags & MORTISE_OP_REPEAT) != 0) {
        busy(attempt, driver->retry_ms, false);
        return;
    }
    mortise_status status = unsure_status(attempt);
    flow_fail(driver, conclude(attempt), status, 0, true,
              "a lost request that took a vote back may still be executed, and the nodes do not "
              "permit to end its "
              "connection (CLIENT KILL)");
}

static bool may_ask(struct attempt *attempt)
{
    struct driver *driver = attempt->driver;
    unsigned counted = nodes_usable(driver, true), strays = count_strays(attempt);
    if (counted >= driver->quorum + strays)
        return true;
    if (counted >= driver->quorum)
        give_up_grant(attempt);
    else
        fail_few(attempt, counted, NULL);
    return false;
}

/* A grant that stands keeps its token. Without tokens a repeat asks for none, and a first request tells the time. */
static void propose(struct ballot *ballot, const mortise_op *op)
{
    struct driver *driver = ballot->driver;
    uint64_t standing = ballot->claim->token;
    ballot->repeat = (op->flags & MORTISE_OP_REPEAT) != 0;
    if (!driver->fencing) {
        ballot_number(ballot, ballot->repeat ? 0 : clock_wall_us());
        return;
    }
    bool stands = standing != 0 && standing >= op->token_floor;
    ballot->proposed = stands ? standing : clock_propose(driver, op->token_floor);
    ballot_number(ballot, ballot->proposed);
}

/* The listed one; else that of the former round, which may know of strays; or NULL. */
static struct claim *look_up_claim(struct attempt *attempt)
{
    struct claim *claim = claim_find(attempt->driver, &attempt->op->grant);
    if (claim == NULL || claim == attempt->claim)
        return attempt->claim;
    claim_ref(claim);
    if (attempt->claim != NULL)
        claim->stray |= attempt->claim->stray;
    let_go(attempt);
    return attempt->claim = claim;
}

/* A new one in place of what there is. NULL without memory. */
static struct claim *take_claim(struct attempt *attempt)
{
    uint32_t stray = attempt->claim != NULL ? attempt->claim->stray : 0;
    let_go(attempt);
    attempt->claim = claim_take(attempt->driver, attempt->op);
    if (attempt->claim != NULL)
        attempt->claim->stray |= stray;
    return attempt->claim;
}

static void round_begin(struct attempt *attempt)
{
    struct driver *driver = attempt->driver;
    mortise_op *op = attempt->op;
    struct claim *claim = look_up_claim(attempt);
    if (!may_ask(attempt))
        return;
    if (claim == NULL || !claim->listed)
        claim = take_claim(attempt);
    struct ballot *ballot = claim != NULL ? ballot_new(driver, &asking, claim) : NULL;
    if (ballot == NULL) {
        if (claim != NULL)
            claim_end(driver, claim, false);
        flow_fail_memory(driver, conclude(attempt));
        return;
    }
    claim_begin(driver, claim);
    claim_lasts(claim, ballot->sent_ns, op->ttl_ms);
    ballot->generation = claim->generation;
    attempt->rounds++;
    attempt->ballot = ballot;
    ballot->attempt = attempt;
    ballot->ttl_ms = op->ttl_ms;
    propose(ballot, op);
    if (op->first_sent_ns == 0)
        op->first_sent_ns = ballot->sent_ns;
    ask_nodes(ballot);
    ballot_begun(ballot);
}

/* ---- undoing, and what then ------------------------------------------------------------------------------------------- */

static void pause_until(struct attempt *attempt, int64_t due_ns)
{
    attempt->ballot = NULL;
    attempt->due_ns = due_ns;
    DL_APPEND2(attempt->driver->attempts, attempt, previous, next);
}

static void busy(struct attempt *attempt, int64_t remaining_ms, bool surely)
{
    struct driver *driver = attempt->driver;
    mortise_op *op = conclude(attempt);
    if (remaining_ms > MORTISE_TTL_MAX_MS)
        remaining_ms = MORTISE_TTL_MAX_MS;
    op->hint_ms = remaining_ms;
    bool looks = driver->foreign_polled || driver->deaf || !surely;
    if (looks && (remaining_ms < 0 || remaining_ms > driver->retry_ms))
        op->hint_ms = driver->retry_ms;
    flow_complete(driver, op, MORTISE_BUSY);
}

static void split(struct attempt *attempt, const struct seen *best)
{
    struct driver *driver = attempt->driver;
    bool waits = (attempt->op->flags & MORTISE_OP_TRY) == 0;
    driver->spread_ns = driver->spread_ns == 0 ? PAUSE_NS : driver->spread_ns * 2;
    if (driver->spread_ns > SPREAD_MAX_NS)
        driver->spread_ns = SPREAD_MAX_NS;
    uint64_t most_ns = (uint64_t)PAUSE_NS << attempt->rounds;
    if (attempt->rounds < (waits ? ROUNDS_WAIT : ROUNDS_TRY))
        pause_until(attempt, now_of(driver) + (int64_t)random_below(driver, most_ns));
    else if (best != NULL)
        busy(attempt, best->remaining_ms, false);
    else
        busy(attempt, (int64_t)random_below(driver, HINT_SPLIT_MS), false);
}

/* All that can be said of the round: the nodes' answers to the undo tell who has the lock. */
void attempt_undone(struct attempt *attempt, const struct ballot *undone)
{
    struct driver *driver = attempt->driver;
    const struct seen *best = tally_best(&undone->tally);
    unsigned unknown = undone->counts[VOTE_FAULT];
    bool surely = best != NULL && (best->nodes >= driver->quorum || best->token > 0);
    attempt->ballot = NULL;
    if (is_unsure(attempt) && !tally_is_held(driver, best, 0))
        fail_few(attempt, driver->count - unknown, undone->why.status ? &undone->why : NULL);
    else if (surely && tally_is_held(driver, best, unknown)) {
        /* one that is only presumed may be a split vote, whose marks go with it: then no release tells */
        bool decided = best->nodes >= driver->quorum;
        driver->spread_ns /= decided ? 2 : 1;
        busy(attempt, best->remaining_ms, decided);
    } else if (driver->count - unknown < driver->quorum ||
               nodes_usable(driver, true) < driver->quorum)
        fail_few(attempt, driver->count - unknown, undone->why.status ? &undone->why : NULL);
    else
        split(attempt, best);
}

static void undo(struct attempt *attempt, bool loud, const struct ballot *failed)
{
    struct driver *driver = attempt->driver;
    char mark = news_mark(driver, attempt->op->name, attempt->op->name_len);
    struct ballot *ballot = undo_new(driver, attempt->claim, loud, mark);
    attempt->ballot = ballot;
    if (ballot == NULL) {
        fail_few(attempt, 0, &failed->why);
        return;
    }
    if (failed->why.status != MORTISE_OK)
        ballot->why = failed->why;
    ballot->attempt = attempt;
    ballot->info = attempt->op->info;
    ballot_begun(ballot);
}

/* ---- asked by the core ------------------------------------------------------------------------------------------------- */

void attempt_start(struct driver *driver, mortise_op *op)
{
    struct attempt *attempt = attempt_new(driver, op);
    int64_t due_ns = courtesy_until_ns(driver, op);
    if (attempt == NULL)
        flow_fail_memory(driver, op);
    else if (due_ns > now_of(driver))
        pause_until(attempt, due_ns);
    else
        round_begin(attempt);
}

void attempt_cancel(struct driver *driver, mortise_op *op)
{
    struct attempt *attempt = op->driver_data[0];
    bool unsure = attempt->claim != NULL && attempt->claim->listed;
    if (attempt->ballot == NULL)
        DL_DELETE2(driver->attempts, attempt, previous, next);
    conclude(attempt);
    flow_complete(driver, op, unsure ? MORTISE_INDETERMINATE : MORTISE_CANCELED);
}

void attempts_turn(struct driver *driver, int64_t now_ns)
{
    struct attempt *attempt, *next;
    for (attempt = driver->attempts; attempt != NULL; attempt = next) {
        next = attempt->next;
        if (attempt->due_ns > now_ns)
            continue;
        DL_DELETE2(driver->attempts, attempt, previous, next);
        round_begin(attempt);
    }
}

int64_t attempts_due_ns(const struct driver *driver)
{
    int64_t due = MORTISE_NEVER;
    for (const struct attempt *attempt = driver->attempts; attempt != NULL; attempt = attempt->next)
        if (attempt->due_ns < due)
            due = attempt->due_ns;
    return due;
}
