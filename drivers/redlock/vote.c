/* vote.c - the requests of an acquire to a node, for the vote and for writing the token, and how their answers are read. */
#include "redlock.h"

#define NOW_MAX_US (INT64_C(1) << 60) /* no clock exceeds this: there is room to calculate */

/* ---- the proposal ------------------------------------------------------------------------------------------------ */

/* A grant that holds already keeps its token. Otherwise each round has a proposal of its own (tally.c), even if a floor is
 * ahead of the clocks. Without tokens, a first request is a plain SET with the time. That neither extends a grant nor removes a
 * bar, so a repeat, and a request behind a bar, call the script, and propose nothing. */
void vote_propose(struct ballot *ballot, const mortise_op *op)
{
    struct driver *driver = ballot->driver;
    uint64_t held = ballot->claim->token, floor = op->token_floor;
    if (!driver->fencing) {
        ballot->plain =
            (op->flags & MORTISE_OP_REPEAT) == 0 && !bar_is_set(driver, op->name, op->name_len);
        ballot_number(ballot, ballot->plain ? clock_wall_us() : 0);
        return;
    }
    bool holds = held != 0 && held >= floor;
    floor += floor > 0 ? ballot->round - 1 : 0;
    ballot->proposed = holds ? held : clock_propose(driver, floor);
    ballot_number(ballot, ballot->proposed);
}

/* ---- the vote --------------------------------------------------------------------------------------------------- */

/* Without tokens: sends what other Redlock clients send. */
static void put_set(const struct ballot *ballot, struct vote *vote)
{
    static const char no_token[] = "0000000000000000 ";
    struct link *link = &vote->node->link;
    const struct driver *driver = ballot->driver;
    const struct link_part parts[] = {{ballot->hex, GRANT_HEX},
                                      {&ballot->claim->mark, 1},
                                      {no_token, sizeof(no_token) - 1},
                                      {ballot->digits, TOKEN_DIGITS},
                                      {"\n", 1},
                                      {driver->note, driver->note_len}};
    link_command(link, 6);
    link_argument(link, "SET", 3);
    put_key(vote);
    link_parts(link, parts, 6);
    link_argument(link, "NX", 2);
    link_argument(link, "PX", 2);
    link_number(link, ballot->ttl_ms);
}

static void put_ask_keys(struct vote *vote)
{
    const struct claim *claim = vote->ballot->claim;
    bool barred = bar_is_set(vote->ballot->driver, claim->name, claim->name_len);
    ballot_script(vote, SCRIPT_ASK, barred ? 3 : 2, 5);
    put_key(vote);
    put_side(vote, "token");
    if (barred)
        put_side(vote, "bar");
}

static void put_ask_shared_keys(struct vote *vote)
{
    ballot_script(vote, SCRIPT_ASK_SHARED, 5, 4);
    put_key(vote);
    put_side(vote, "token");
    put_side(vote, "holders");
    put_side(vote, "shares");
    put_side(vote, "bar");
}

void vote_put(struct ballot *ballot, struct vote *vote)
{
    const struct driver *driver = ballot->driver;
    if (ballot->plain) {
        put_set(ballot, vote);
        return;
    }
    if (ballot->claim->shared)
        put_ask_shared_keys(vote);
    else
        put_ask_keys(vote);
    put_grant(vote);
    link_number(&vote->node->link, ballot->ttl_ms);
    link_argument(&vote->node->link, driver->note, driver->note_len);
    put_digits(vote);
    if (!ballot->claim->shared)
        link_argument(&vote->node->link, &ballot->claim->mark, 1);
}

/* Whether the reply is a yes whose node did not take the token. It has two numbers: one more than the largest token that
 * the node knew, and its clock. */
static bool is_need(const redisReply *reply)
{
    return reply->type == REDIS_REPLY_ARRAY && reply->elements == 2 &&
           reply->element[0]->type == REDIS_REPLY_INTEGER && reply->element[0]->integer >= 0 &&
           reply->element[1]->type == REDIS_REPLY_INTEGER && reply->element[1]->integer >= 0 &&
           reply->element[1]->integer <= NOW_MAX_US;
}

static enum vote_state read_vote(struct ballot *ballot, struct vote *vote, const redisReply *reply)
{
    if (reply->type == REDIS_REPLY_STATUS) /* of SET */
        return VOTE_YES;
    if (reply->type == REDIS_REPLY_INTEGER && reply->integer < 0 && reply->integer >= -NOW_MAX_US) {
        ballot->accepted += vote->state == VOTE_ASKED;
        vote->need = ballot->proposed;
        clock_note(vote->node, ballot->sent_ns, -reply->integer);
        return VOTE_YES;
    }
    if (!is_need(reply))
        return VOTE_OTHER;
    vote->need = (uint64_t)reply->element[0]->integer;
    vote->clock_us = (uint64_t)reply->element[1]->integer;
    /* without tokens hardly any answer has a time, so a bad sample would stay */
    if (ballot->driver->fencing)
        clock_note(vote->node, ballot->sent_ns, reply->element[1]->integer);
    return VOTE_YES;
}

enum vote_state vote_take(struct ballot *ballot, struct vote *vote, redisReply *reply)
{
    enum vote_state state = read_vote(ballot, vote, reply);
    ballot_note(vote, state == VOTE_YES ? TRACE_HAS : TRACE_HAS_NOT);
    return state;
}

/* A token larger than all that the node knew, and not behind its clock, unless that clock is far ahead of the others. */
static uint64_t need_of(const struct vote *vote)
{
    uint64_t clock_us = clock_outvoted(vote->ballot->driver, vote->clock_us);
    return vote->need > clock_us ? vote->need : clock_us;
}

uint64_t vote_needed_token(const struct ballot *ballot)
{
    int64_t needs[NODES_MAX];
    unsigned n = 0;
    for (unsigned i = 0; i < ballot->driver->count; i++)
        if (ballot->votes[i].state == VOTE_YES)
            needs[n++] = (int64_t)need_of(&ballot->votes[i]);
    sort_numbers(needs, n);
    uint64_t need = (uint64_t)needs[ballot->driver->quorum - 1]; /* there are that many */
    return need > ballot->proposed ? need : ballot->proposed;
}

/* ---- the token -------------------------------------------------------------------------------------------------- */

void vote_put_token(struct ballot *ballot, struct vote *vote)
{
    bool shared = ballot->claim->shared;
    ballot_script(vote, shared ? SCRIPT_CONFIRM_SHARED : SCRIPT_CONFIRM, shared ? 4 : 2, 2);
    put_key(vote);
    put_side(vote, "token");
    if (shared) {
        put_side(vote, "holders");
        put_side(vote, "shares");
    }
    put_grant(vote);
    put_digits(vote);
}

enum vote_state vote_take_token(struct ballot *ballot, struct vote *vote, redisReply *reply)
{
    if (reply->type != REDIS_REPLY_INTEGER)
        return VOTE_ABSENT;
    if (reply->integer == 1)
        vote->need = ballot->token + 1;
    else if (reply->integer < 0 && reply->integer >= -NOW_MAX_US) /* another reader was first */
        vote->need = (uint64_t)-reply->integer;
    return reply->integer == 1 ? VOTE_YES : VOTE_ABSENT;
}

uint64_t vote_outbid_token(const struct ballot *ballot)
{
    int64_t needs[NODES_MAX];
    unsigned n = 0;
    for (unsigned i = 0; i < ballot->driver->count; i++)
        if (ballot->votes[i].need > 0)
            needs[n++] = (int64_t)ballot->votes[i].need;
    if (n < ballot->driver->quorum)
        return 0;
    sort_numbers(needs, n);
    uint64_t need = (uint64_t)needs[ballot->driver->quorum - 1];
    uint64_t proposed = clock_propose(ballot->driver, need);
    return proposed > need ? proposed : need;
}
