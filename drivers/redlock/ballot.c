/* ballot.c - one question to several nodes: sent to all at once, each answer counted as it comes; see ballot.h. */
#include "redlock.h"

#include <stdlib.h>

static void replied(struct link_call *call, unsigned index, redisReply *reply);
static void lost(struct link_call *call, enum link_loss loss, const struct link_fault *fault);

struct ballot *ballot_new(struct driver *driver, const struct ballot_kind *kind,
                          struct claim *claim)
{
    struct ballot *ballot = calloc(1, sizeof(*ballot) + driver->count * sizeof(struct vote));
    if (ballot == NULL)
        return NULL;
    key_hex(&claim->grant, ballot->hex);
    ballot->why.status = MORTISE_OK;
    ballot->driver = driver;
    ballot->kind = kind;
    ballot->mark = MARK;
    ballot->claim = claim_ref(claim);
    ballot->round = claim->round;
    ballot->sent_ns = now_of(driver);
    ballot->calls = 1; /* until ballot_begun */
    ballot->counts[VOTE_NOT_ASKED] = ballot->voted = driver->count;
    for (unsigned i = 0; i < driver->count; i++) {
        struct vote *vote = &ballot->votes[i];
        vote->ballot = ballot;
        vote->node = &driver->nodes[i];
        vote->call.replied = replied;
        vote->call.lost = lost;
    }
    DL_APPEND2(driver->open_ballots, ballot, previous, next);
    return ballot;
}

/* ---- asking -------------------------------------------------------------------------------------------------- */

static void set_state(struct vote *vote, enum vote_state state)
{
    vote->ballot->counts[vote->state]--;
    vote->ballot->counts[state]++;
    vote->state = state;
}

static void send_vote(struct vote *vote)
{
    struct link *link = &vote->node->link;
    vote->script = SCRIPT_COUNT;
    vote->by_text = false;
    link_call_begin(link, &vote->call);
    vote->ballot->kind->put(vote->ballot, vote);
    link_call_end(link, &vote->call, 1);
}

/* All nodes get the same request, except those that do not know the script yet, so the bytes are made only once. `first`
 * must be the last call on its link. */
static bool send_alike(struct vote *vote, const struct vote *first)
{
    struct link *link = &vote->node->link;
    if (first->script != SCRIPT_COUNT && (first->by_text || !vote->node->known[first->script]))
        return false;
    link_call_begin(link, &vote->call);
    if (!link_copy(link, &first->node->link, &first->call))
        return false;
    vote->script = first->script;
    vote->by_text = false;
    link_call_end(link, &vote->call, 1);
    return true;
}

/* The node may have answered since its pace was last checked, but its pace must not become slow here: only ballots_turn()
 * does that, and informs the ballots that wait for the node. */
static void set_asked(struct vote *vote, enum vote_state asked)
{
    enum node_pace pace = node_pace_at(vote->node, vote->ballot->sent_ns);
    if (pace < vote->node->pace)
        vote->node->pace = pace;
    vote->ballot->calls++;
    set_state(vote, pace == PACE_LATE ? VOTE_FAULT : asked);
}

void ballot_ask(struct ballot *ballot, unsigned node, enum vote_state asked)
{
    struct vote *vote = &ballot->votes[node];
    if (ballot->kind->effect == EFFECT_VOTE)
        claim_note(ballot->claim, node, TRACE_ASKED);
    set_asked(vote, asked);
    ballot->asked++;
    if (ballot->first == NULL || !send_alike(vote, ballot->first)) {
        send_vote(vote);
        ballot->first = vote;
    }
}

struct vote *ballot_ask_bundled(struct ballot *ballot, unsigned node)
{
    struct vote *vote = &ballot->votes[node];
    vote->script = SCRIPT_COUNT;
    set_asked(vote, VOTE_ASKED);
    return vote;
}

void ballot_set(struct ballot *ballot, unsigned node, enum vote_state state)
{
    set_state(&ballot->votes[node], state);
}

void ballot_ask_usable(struct ballot *ballot)
{
    struct driver *driver = ballot->driver;
    for (unsigned i = 0; i < driver->count; i++)
        if (node_is_usable(&driver->nodes[i], ballot->sent_ns))
            ballot_ask(ballot, i, VOTE_ASKED);
        else
            ballot_set(ballot, i, VOTE_FAULT);
}

/* ---- counting -------------------------------------------------------------------------------------------------- */

void ballot_decide(struct ballot *ballot, enum ballot_state state)
{
    ballot->state = state;
    DL_DELETE2(ballot->driver->open_ballots, ballot, previous, next);
}

static bool is_over(const struct ballot *ballot)
{
    return ballot->counts[VOTE_ASKED] == 0 && ballot->counts[VOTE_ASKED_ASIDE] == 0;
}

static void look(struct ballot *ballot)
{
    if (ballot->state != BALLOT_OPEN)
        return;
    if (ballot->kind->look == NULL)
        ballot_decide(ballot, BALLOT_CLOSED);
    else
        ballot->kind->look(ballot, is_over(ballot));
}

/* If there was no error, the failed ballot is worth another try, whichever nodes were silent. A vote that does not count
 * yet is not counted here. */
void ballot_follow(struct ballot *ballot, const struct ballot *failed)
{
    if (failed->why.status != MORTISE_OK)
        fault_keep(&ballot->why, &failed->why);
    ballot->refusing |= failed->refusing;
    if (failed->errors > 0)
        ballot->voted -= failed->counts[VOTE_FAULT] + failed->counts[VOTE_NOT_ASKED] +
                         failed->counts[VOTE_ASKED_ASIDE] + failed->counts[VOTE_YES_ASIDE];
}

unsigned ballot_answers(const struct ballot *ballot)
{
    unsigned answered = ballot->driver->count - ballot->counts[VOTE_FAULT];
    return answered < ballot->voted ? answered : ballot->voted;
}

/* When no answer is outstanding, the ballot is decided, so nobody refers to it. */
static void call_ended(struct ballot *ballot)
{
    struct driver *driver = ballot->driver;
    ballot->calls--;
    look(ballot);
    if (ballot->calls > 0)
        return;
    claim_unref(driver, ballot->claim);
    holders_free(&ballot->holders);
    free(ballot);
}

void ballot_begun(struct ballot *ballot)
{
    call_ended(ballot);
}

static bool is_open(const struct vote *vote)
{
    return vote->state == VOTE_ASKED || vote->state == VOTE_ASKED_ASIDE;
}

/* The node has become slow, or late: each ballot that waits for it checks whether it can do without its answer. */
static void do_without(struct driver *driver, const struct node *node)
{
    struct ballot *ballot, *next;
    for (ballot = driver->open_ballots; ballot != NULL; ballot = next) {
        struct vote *vote = &ballot->votes[node->index];
        next = ballot->next;
        if (!is_open(vote))
            continue;
        if (node->pace == PACE_LATE) {
            set_state(vote, VOTE_FAULT);
            struct link_fault silent;
            link_fault_set(&silent, MORTISE_UNREACHABLE, true, 0,
                           "%s: no answer in time (node_timeout)", node->settings.endpoint.text);
            fault_keep(&ballot->why, &silent);
        }
        look(ballot); /* its answer is outstanding: the ballot stays */
    }
}

/* This process may have been stopped since it polled, so the answer may have come. */
static void look_once_more(struct node *node)
{
    struct pollfd ready = {.fd = node->link.fd, .events = POLLIN};
    if (poll(&ready, 1, 0) > 0)
        link_turn(&node->link, &ready, 1);
}

void ballots_turn(struct driver *driver, int64_t now_ns)
{
    for (unsigned i = 0; i < driver->count; i++) {
        struct node *node = &driver->nodes[i];
        enum node_pace before = node->pace;
        if (before != PACE_LATE && node_pace_at(node, now_ns) == PACE_LATE)
            look_once_more(node);
        node->pace = node_pace_at(node, now_ns);
        if (node->pace > before)
            do_without(driver, node);
    }
}

int64_t ballots_due_ns(const struct driver *driver)
{
    int64_t due_ns = MORTISE_NEVER;
    for (unsigned i = 0; driver->open_ballots != NULL && i < driver->count; i++) {
        int64_t node_ns = node_pace_due_ns(&driver->nodes[i]);
        if (node_ns < due_ns)
            due_ns = node_ns;
    }
    return due_ns;
}

/* ---- answers ---------------------------------------------------------------------------------------------------- */

void ballot_note(struct vote *vote, enum trace_event event)
{
    const struct ballot *ballot = vote->ballot;
    unsigned node = vote->node->index;
    if (ballot->round != ballot->claim->round)
        return;
    claim_note(ballot->claim, node, event);
    if (event == TRACE_UNDONE &&
        claim_has_trace(ballot->claim, node)) /* a lost request may come behind it */
        claim_undo_later(ballot->driver, ballot->claim, node);
}

/* Whether a request that was not executed is still wanted. An undo behind the votes of a newer round would undo
 * those, and a vote behind the undo of this round would be undone by nobody. */
static bool is_wanted(const struct ballot *ballot)
{
    const struct claim *claim = ballot->claim;
    if (ballot->round != claim->round)
        return false;
    if (ballot->kind->effect == EFFECT_UNDO)
        return true;
    bool ended = ballot->op == NULL || claim->state != CLAIM_WANTED;
    return ballot->state == BALLOT_OPEN && (ballot->kind->effect == EFFECT_NONE || !ended);
}

bool script_is_unknown(const redisReply *reply, bool by_text)
{
    return reply->type == REDIS_REPLY_ERROR && !by_text &&
           link_error_of(reply->str, reply->len) == LINK_ERROR_NOSCRIPT;
}

static bool sent_again(struct vote *vote, const redisReply *reply)
{
    if (vote->script == SCRIPT_COUNT || !script_is_unknown(reply, vote->by_text))
        return false;
    vote->node->known[vote->script] = false;
    if (!is_wanted(vote->ballot) || !link_is_up(&vote->node->link))
        return false;
    send_vote(vote);
    return true;
}

static void refused(struct vote *vote, const redisReply *reply)
{
    struct ballot *ballot = vote->ballot;
    struct link_fault fault;
    link_fault_reply(&vote->node->link, reply, &fault);
    fault_keep(&ballot->why, &fault);
    ballot->errors++;
    if (fault_lasts(&fault))
        ballot->refusing |= 1u << vote->node->index;
    if (is_open(vote))
        set_state(vote, VOTE_FAULT);
    if (ballot->kind->effect != EFFECT_UNDO || ballot->round != ballot->claim->round)
        return;
    if (fault.error == LINK_ERROR_WRONGTYPE) /* then the key is not ours */
        ballot_note(vote, TRACE_UNDONE);
    else if (fault.error != LINK_ERROR_NOPERM)
        claim_undo_later(ballot->driver, ballot->claim, vote->node->index);
}

void ballot_answered(struct vote *vote, redisReply *reply)
{
    struct ballot *ballot = vote->ballot;
    if (sent_again(vote, reply))
        return;
    if (reply->type == REDIS_REPLY_ERROR)
        refused(vote, reply);
    else {
        enum vote_state before = vote->state, state = ballot->kind->take(ballot, vote, reply);
        if (is_open(vote))
            set_state(vote,
                      before == VOTE_ASKED_ASIDE && state == VOTE_YES ? VOTE_YES_ASIDE : state);
    }
    call_ended(ballot);
}

static void replied(struct link_call *call, unsigned index, redisReply *reply)
{
    (void)index;
    ballot_answered((struct vote *)call, reply);
}

void ballot_lost(struct vote *vote, enum link_loss loss, const struct link_fault *fault)
{
    static const enum trace_event events[] = {
        [EFFECT_VOTE] = TRACE_LOST, [EFFECT_UNDO] = TRACE_UNDO_LOST};
    struct ballot *ballot = vote->ballot;
    if (loss == LINK_LOST && ballot->kind->effect != EFFECT_NONE)
        claim_note(ballot->claim, vote->node->index, events[ballot->kind->effect]);
    fault_keep(&ballot->why, fault);
    if (is_open(vote))
        set_state(vote, VOTE_FAULT);
    call_ended(ballot);
}

static void lost(struct link_call *call, enum link_loss loss, const struct link_fault *fault)
{
    ballot_lost((struct vote *)call, loss, fault);
}

/* ---- requests ----------------------------------------------------------------------------------------------------- */

bool ballot_script_on(struct node *node, enum script script, unsigned keys, unsigned arguments)
{
    static const struct link_script scripts[SCRIPT_COUNT] = {
#include "scripts.inc"
    };
    return script_call(&node->link, &scripts[script], &node->known[script], keys, arguments);
}

void ballot_script(struct vote *vote, enum script script, unsigned keys, unsigned arguments)
{
    vote->script = script;
    vote->by_text = ballot_script_on(vote->node, script, keys, arguments);
}

void put_key(const struct vote *vote)
{
    const struct claim *claim = vote->ballot->claim;
    link_argument(&vote->node->link, claim->name, claim->name_len);
}

void put_side(const struct vote *vote, const char *word)
{
    const struct claim *claim = vote->ballot->claim;
    key_put_side(&vote->node->link, claim->name, claim->name_len, word);
}

void put_grant(const struct vote *vote)
{
    link_argument(&vote->node->link, vote->ballot->hex, GRANT_HEX);
}

void put_digits(const struct vote *vote)
{
    link_argument(&vote->node->link, vote->ballot->digits, TOKEN_DIGITS);
}

void ballot_number(struct ballot *ballot, uint64_t number)
{
    for (size_t i = TOKEN_DIGITS; i > 0; i--, number /= 10)
        ballot->digits[i - 1] = (char)('0' + number % 10);
}
