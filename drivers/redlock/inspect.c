/* inspect.c - INSPECT asks who has a lock; BREAK finds the grant with the given token, and releases it; PING asks
 * whether the nodes answer (findings.c goes on from there). */
#include "redlock.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* look.lua fetches 4096 bytes of a value, which may be another program's. */
_Static_assert(GRANT_HEX + 2 * 20 + 3 + MORTISE_NOTE_MAX < 4096, "a value of ours is seen whole");

/* ---- the holder ----------------------------------------------------------------------------------------------- */

static void look_put(struct ballot *ballot, struct vote *vote)
{
    (void)ballot;
    ballot_script(vote, SCRIPT_LOOK, 3, 0);
    put_key(vote);
    put_side(vote, "holders");
    put_side(vote, "shares");
}

/* The reply is nothing, or {remaining, value, now} if a grant has the lock there; with a list of holders, if it is shared. */
static enum vote_state look_take(struct ballot *ballot, struct vote *vote, redisReply *reply)
{
    (void)vote;
    bool found =
        ballot->state == BALLOT_OPEN && tally_add(&ballot->tally, reply, ballot_info(ballot));
    if (found)
        holders_add(&ballot->holders, reply);
    return found ? VOTE_YES : VOTE_ABSENT;
}

/* True: enough nodes have answered to tell. False: the ballot is open, or the op has ended. */
static bool is_decided(struct ballot *ballot, bool over)
{
    struct driver *driver = ballot->driver;
    unsigned answered = ballot->counts[VOTE_YES] + ballot->counts[VOTE_ABSENT];
    const struct seen *best = tally_best(&ballot->tally);
    /* each shared holder has nodes of its own, so all answers are needed */
    bool known = (best != NULL && best->nodes >= driver->quorum && !best->shared) ||
                 ballot->counts[VOTE_ABSENT] >= driver->quorum;
    if (!known && !over)
        return false;
    ballot_decide(ballot, BALLOT_CLOSED);
    if (ballot->op == NULL)
        return false;
    if (answered >= driver->quorum)
        return true;
    op_fail_few(driver, ballot->op, MORTISE_UNREACHABLE, answered, &ballot->why, ballot->refusing);
    return false;
}

/* A minority of the nodes may still have the value of a lock that nobody holds. The answer omits it. */
static void look_forget_holder(mortise_info *info)
{
    mortise_info nobody = {.size = info->size};
    memcpy(nobody.name, info->name, sizeof nobody.name);
    *info = nobody;
}

static void name_info(const mortise_op *op, mortise_info *info)
{
    text_copy(info->name, sizeof(info->name), op->name, op->name_len);
}

/* The first shared holder describes the lock. Each one is reported if the op asked for all. */
static void tell_holders(struct ballot *ballot)
{
    struct driver *driver = ballot->driver;
    mortise_op *op = ballot->op;
    unsigned n = holders_settle(&ballot->holders, driver, ballot->counts[VOTE_FAULT]);
    look_forget_holder(op->info);
    if (n > 0) {
        mortise_info info = ballot->holders.all->info;
        info.size = op->info->size;
        memcpy(info.name, op->info->name, sizeof(info.name));
        *op->info = info;
    }
    const struct holder *holder = op->emitted != NULL ? ballot->holders.all : NULL;
    for (; holder != NULL; holder = holder->hh.next) {
        mortise_info info = holder->info;
        name_info(op, &info);
        driver->host->emit(driver->host, op, &info);
    }
}

static void inspect_look(struct ballot *ballot, bool over)
{
    struct driver *driver = ballot->driver;
    if (!is_decided(ballot, over))
        return;
    mortise_info *info = ballot->op->info;
    const struct seen *best = tally_best(&ballot->tally);
    if (ballot->holders.failed) {
        op_fail_memory(driver, ballot->op);
        return;
    }
    if (best != NULL && best->shared)
        tell_holders(ballot);
    else if (!tally_is_held(driver, best, ballot->counts[VOTE_FAULT]))
        look_forget_holder(info);
    else if (ballot->op->emitted != NULL) {
        mortise_info named = *info;
        name_info(ballot->op, &named);
        driver->host->emit(driver->host, ballot->op, &named);
    }
    if (!driver->fencing)
        info->token = 0;
    info->waiters = -1;
    op_complete(driver, ballot->op, MORTISE_OK);
}

static const struct ballot_kind inspecting = {
    .put = look_put, .take = look_take, .look = inspect_look};

struct ballot *inspect_ballot(struct driver *driver, mortise_op *op, const struct ballot_kind *kind)
{
    struct claim *claim = claim_new_foreign(op);
    struct ballot *ballot = claim != NULL ? ballot_new(driver, kind, claim) : NULL;
    if (claim != NULL)
        claim_unref(driver, claim); /* the ballot has a reference */
    if (ballot == NULL) {
        op_fail_memory(driver, op);
        return NULL;
    }
    ballot->op = op;
    op_put(op, OP_BALLOT, ballot);
    return ballot;
}

static void ask_all(struct ballot *ballot)
{
    if (ballot == NULL)
        return;
    ballot_ask_usable(ballot);
    ballot_begun(ballot);
}

void inspect_start(struct driver *driver, mortise_op *op)
{
    op->info->held = false;
    op->info->held_ms = op->info->remaining_ms = 0;
    ask_all(inspect_ballot(driver, op, &inspecting));
}

/* ---- break ------------------------------------------------------------------------------------------------------- */

static bool read_grant(const char *hex, mortise_grant_id *grant)
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < MORTISE_GRANT_ID_SIZE; i++) {
        const char *high = memchr(digits, hex[2 * i], 16);
        const char *low = memchr(digits, hex[2 * i + 1], 16);
        if (high == NULL || low == NULL)
            return false;
        grant->bytes[i] = (unsigned char)((high - digits) << 4 | (low - digits));
    }
    return true;
}

static void break_look(struct ballot *ballot, bool over)
{
    struct driver *driver = ballot->driver;
    mortise_op *op = ballot->op;
    mortise_grant_id grant;
    if (!is_decided(ballot, over))
        return;
    for (unsigned i = 0; i < ballot->tally.count; i++) {
        const struct seen *seen = &ballot->tally.seen[i];
        if (seen->token == op->token && seen->length == GRANT_HEX && !seen->shared &&
            read_grant(seen->grant, &grant)) {
            release_foreign(driver, op, &grant);
            return;
        }
    }
    const struct holder *holder = ballot->holders.all;
    for (; holder != NULL; holder = holder->hh.next)
        if (holder->info.token == op->token && read_grant(holder->grant, &grant)) {
            release_foreign(driver, op, &grant);
            return;
        }
    if (ballot->holders.failed) { /* it may be one of those that are not in the list */
        op_fail_memory(driver, op);
        return;
    }
    bool held = tally_is_held(driver, tally_best(&ballot->tally), ballot->counts[VOTE_FAULT]);
    op_complete(driver, op, held ? MORTISE_NOTOWNER : MORTISE_LOST);
}

static const struct ballot_kind breaking = {.put = look_put, .take = look_take, .look = break_look};

void break_start(struct driver *driver, mortise_op *op)
{
    ask_all(inspect_ballot(driver, op, &breaking));
}

/* ---- ping ----------------------------------------------------------------------------------------------------------- */

static void ping_put(struct ballot *ballot, struct vote *vote)
{
    struct link *link = &vote->node->link;
    (void)ballot;
    link_command(link, 3); /* a script, to see whether scripts are permitted */
    link_text(link, "EVAL");
    link_text(link, "return 1");
    link_number(link, 0);
}

static enum vote_state ping_take(struct ballot *ballot, struct vote *vote, redisReply *reply)
{
    (void)ballot;
    (void)vote;
    (void)reply;
    return VOTE_YES;
}

/* Writes why each silent node did not answer, as far as there is room. */
static void say_silent(const struct ballot *ballot, char *text, size_t size)
{
    size_t used = strlen(text);
    for (unsigned i = 0; i < ballot->driver->count && used < size; i++) {
        const struct vote *vote = &ballot->votes[i];
        const struct link *link = &vote->node->link;
        const char *endpoint = link->endpoint.text, *why = link->last.text;
        bool known = !link_is_up(link) && why[0] != '\0';
        if (vote->state == VOTE_YES)
            continue;
        int length = known ? snprintf(text + used, size - used, "; %s", why)
                           : snprintf(text + used, size - used, "; %s: %s", endpoint,
                                      vote->node->twin ? "the same server as another node"
                                                       : "no answer, or refused");
        used += length > 0 ? (size_t)length : 0;
    }
}

/* Writes when the freshly started nodes will vote, if that makes a quorum. */
static void say_votes(const struct driver *driver, unsigned answered, char *text, size_t size)
{
    int64_t ms = nodes_vote_in_ms(driver);
    int length = snprintf(text, size, "%u of %u nodes answer, %u may vote", answered, driver->count,
                          nodes_voting(driver));
    if (ms > 0 && length > 0 && (size_t)length < size)
        snprintf(text + length, size - (size_t)length, "; votes count in %" PRId64 " s",
                 (ms + 999) / 1000);
}

static void ping_look(struct ballot *ballot, bool over)
{
    struct driver *driver = ballot->driver;
    mortise_op *op = ballot->op;
    unsigned answered = ballot->counts[VOTE_YES];
    if (!over)
        return;
    ballot_decide(ballot, BALLOT_CLOSED);
    if (op == NULL)
        return;
    if (answered < driver->quorum) {
        op_fail_few(driver, op, MORTISE_UNREACHABLE, answered, &ballot->why, ballot->refusing);
        return;
    }
    if (op->buffer != NULL && op->buffer_size > 0) {
        say_votes(driver, answered, op->buffer, op->buffer_size);
        say_silent(ballot, op->buffer, op->buffer_size);
        findings_start(driver, op);
    } else
        op_complete(driver, op, MORTISE_OK);
}

static const struct ballot_kind pinging = {.put = ping_put, .take = ping_take, .look = ping_look};

void ping_start(struct driver *driver, mortise_op *op)
{
    ask_all(inspect_ballot(driver, op, &pinging));
}
