/* ballot.c - one request to several nodes: sent to all at once, each answer counted as it comes, until what is asked is
 * decided or its time is over. Late answers are taken, too: a ballot lives until each was told. */
#include "internal.h"

#include <stdlib.h>

#define FREE_BALLOTS 256

static void replied(struct link_call *call, unsigned index, redisReply *reply);
static void lost(struct link_call *call, enum link_loss loss, const struct link_fault *fault);

static struct ballot *take_free(struct driver *driver)
{
    struct ballot *ballot = driver->free_ballots;
    if (ballot == NULL)
        return malloc(sizeof(*ballot) + driver->count * sizeof(struct vote));
    driver->free_ballots = ballot->next;
    driver->free_ballot_count--;
    return ballot;
}

struct ballot *ballot_new(struct driver *driver, const struct ballot_kind *kind,
                          struct claim *claim)
{
    struct ballot *ballot = take_free(driver);
    if (ballot == NULL)
        return NULL;
    memset(ballot, 0, offsetof(struct ballot, hex));
    key_hex(&claim->grant, ballot->hex);
    ballot->why.status = MORTISE_OK;
    ballot->tally.count = 0;
    ballot->driver = driver;
    ballot->kind = kind;
    ballot->mark = MARK;
    ballot->claim = claim_ref(claim);
    ballot->generation = claim->generation;
    ballot->sent_ns = now_of(driver);
    ballot->calls = 1; /* until ballot_begun */
    ballot->counts[VOTE_NOT_ASKED] = driver->count;
    for (unsigned i = 0; i < driver->count; i++) {
        struct vote *vote = &ballot->votes[i];
        vote->ballot = ballot;
        vote->node = &driver->nodes[i];
        vote->under_way = vote->gone = false;
        vote->state = VOTE_NOT_ASKED;
        vote->call.replied = replied;
        vote->call.lost = lost;
    }
    DL_APPEND2(driver->undecided, ballot, previous, next);
    return ballot;
}

static void free_ballot(struct ballot *ballot)
{
    struct driver *driver = ballot->driver;
    claim_unref(ballot->claim);
    if (driver->free_ballot_count >= FREE_BALLOTS) {
        free(ballot);
        return;
    }
    ballot->next = driver->free_ballots;
    driver->free_ballots = ballot;
    driver->free_ballot_count++;
}

void ballots_free(struct driver *driver)
{
    struct ballot *next;
    for (struct ballot *ballot = driver->free_ballots; ballot != NULL; ballot = next) {
        next = ballot->next;
        free(ballot);
    }
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

/* The request to all nodes is the same, unless one is to be told a script's text: the bytes are made once. `first` was put
 * last on its link. */
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

/* Whether it is late; it may have answered since that was last looked at. */
static bool look_at_late(struct node *node, int64_t now_ns)
{
    bool late = now_ns >= node_late_ns(node);
    node->late &= late;
    node->slow &= now_ns >= node_slow_ns(node);
    return late;
}

void ballot_ask(struct ballot *ballot, unsigned node, enum vote_state asked)
{
    struct vote *vote = &ballot->votes[node];
    bool late = look_at_late(vote->node, ballot->sent_ns);
    if (ballot->kind->places)
        ballot->claim->maybe |= 1u << node;
    vote->under_way = true;
    ballot->calls++;
    set_state(vote, late ? VOTE_FAULT : asked);
    if (ballot->first == NULL || !send_alike(vote, ballot->first)) {
        send_vote(vote);
        ballot->first = vote;
    }
}

struct vote *ballot_ask_bundled(struct ballot *ballot, unsigned node)
{
    struct vote *vote = &ballot->votes[node];
    bool late = look_at_late(vote->node, ballot->sent_ns);
    vote->under_way = true;
    vote->script = SCRIPT_RENEW;
    vote->by_text = false;
    ballot->calls++;
    set_state(vote, late ? VOTE_FAULT : VOTE_ASKED);
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

void ballot_decide(struct ballot *ballot)
{
    ballot->decided = true;
    DL_DELETE2(ballot->driver->undecided, ballot, previous, next);
}

static void look(struct ballot *ballot, bool over)
{
    if (ballot->decided)
        return;
    if (ballot->kind->look == NULL)
        ballot_decide(ballot);
    else
        ballot->kind->look(ballot, over);
}

static bool is_over(const struct ballot *ballot)
{
    return ballot->counts[VOTE_ASKED] == 0 && ballot->counts[VOTE_ASKED_ASIDE] == 0;
}

static void settle(struct ballot *ballot)
{
    look(ballot, is_over(ballot));
    if (ballot->calls == 0)
        free_ballot(ballot); /* decided: with no call under way it is over */
}

void ballot_begun(struct ballot *ballot)
{
    ballot->calls--;
    settle(ballot);
}

static bool is_open(const struct vote *vote)
{
    return vote->state == VOTE_ASKED || vote->state == VOTE_ASKED_ASIDE;
}

static void give_up(struct vote *vote)
{
    set_state(vote, VOTE_FAULT);
    link_fault_set(&vote->ballot->why, MORTISE_UNREACHABLE, true, 0,
                   "%s: no answer in time (node_timeout)", vote->node->settings.endpoint.text);
}

/* The node has become slow, or late: whatever waits for it looks whether it can do without. */
static void do_without(struct driver *driver, const struct node *node)
{
    struct ballot *ballot, *next;
    for (ballot = driver->undecided; ballot != NULL; ballot = next) {
        struct vote *vote = &ballot->votes[node->index];
        next = ballot->next;
        if (!is_open(vote))
            continue;
        if (node->late)
            give_up(vote);
        look(ballot, is_over(ballot)); /* its answer will come, or its loss: the ballot stays */
    }
}

/* This process may have been stopped since it polled: the answer may be there. */
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
        bool was_slow = node->slow, was_late = node->late;
        if (!was_late && now_ns >= node_late_ns(node))
            look_once_more(node);
        node->slow = now_ns >= node_slow_ns(node);
        node->late = now_ns >= node_late_ns(node);
        if ((node->slow && !was_slow) || (node->late && !was_late))
            do_without(driver, node);
    }
}

int64_t ballots_due_ns(const struct driver *driver)
{
    int64_t due = MORTISE_NEVER;
    for (unsigned i = 0; driver->undecided != NULL && i < driver->count; i++) {
        const struct node *node = &driver->nodes[i];
        int64_t due_ns = node->late   ? MORTISE_NEVER
                         : node->slow ? node_late_ns(node)
                                      : node_slow_ns(node);
        if (due_ns < due)
            due = due_ns;
    }
    return due;
}

/* ---- answers ---------------------------------------------------------------------------------------------------- */

/* NOSCRIPT: nothing was done. Once more with the text, if it is still wanted. */
static bool sent_again(struct vote *vote, const redisReply *reply)
{
    struct ballot *ballot = vote->ballot;
    if (vote->script == SCRIPT_COUNT || vote->by_text ||
        link_error_of(reply->str, reply->len) != LINK_ERROR_NOSCRIPT)
        return false;
    vote->node->known[vote->script] = false;
    const struct claim *claim = ballot->claim;
    bool ended = ballot->attempt == NULL || claim->ending || !claim->listed;
    /* behind newer votes, or behind what was to undo it */
    bool stale = ballot->generation != claim->generation || (ballot->kind->places && ended);
    if ((ballot->decided && !ballot->kind->undoes) || stale || !link_is_up(&vote->node->link))
        return false;
    send_vote(vote);
    return true;
}

static void refused(struct vote *vote, const redisReply *reply)
{
    struct ballot *ballot = vote->ballot;
    link_fault_reply(&vote->node->link, reply, &ballot->why);
    if (is_open(vote))
        set_state(vote, VOTE_FAULT);
    if (!ballot->kind->undoes || ballot->generation != ballot->claim->generation)
        return;
    if (ballot->why.error == LINK_ERROR_WRONGTYPE) /* then it is not ours */
        claim_undone(ballot->driver, ballot->claim, ballot->generation, vote->node->index);
    else if (ballot->why.error != LINK_ERROR_NOPERM)
        claim_again(ballot->driver, ballot->claim, 1u << vote->node->index);
}

void ballot_answered(struct vote *vote, redisReply *reply)
{
    struct ballot *ballot = vote->ballot;
    bool aside = vote->state == VOTE_ASKED_ASIDE;
    if (reply->type == REDIS_REPLY_ERROR && sent_again(vote, reply))
        return;
    vote->under_way = false;
    ballot->calls--;
    if (reply->type == REDIS_REPLY_ERROR)
        refused(vote, reply);
    else {
        enum vote_state state = ballot->kind->take(ballot, vote, reply);
        if (is_open(vote))
            set_state(vote, aside && state == VOTE_YES ? VOTE_YES_ASIDE : state);
    }
    settle(ballot);
}

static void replied(struct link_call *call, unsigned index, redisReply *reply)
{
    (void)index;
    ballot_answered((struct vote *)call, reply);
}

/* What was sent may be executed later. The claim may have been dropped, and the grant asked for again. */
static void note_loss(struct ballot *ballot, uint32_t bit)
{
    struct claim *claim = ballot->claim;
    struct claim *listed = claim->listed ? claim : claim_find(ballot->driver, &claim->grant);
    if (ballot->kind->places)
        claim->broken |= bit;
    if (!ballot->kind->undoes)
        return;
    claim->stray |= bit;
    if (listed != NULL)
        listed->stray |= bit;
}

void ballot_lost(struct vote *vote, enum link_loss loss, const struct link_fault *fault)
{
    struct ballot *ballot = vote->ballot;
    vote->under_way = false;
    ballot->calls--;
    if (loss == LINK_LOST)
        note_loss(ballot, 1u << vote->node->index);
    ballot->why = *fault;
    if (is_open(vote))
        set_state(vote, VOTE_FAULT);
    settle(ballot);
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
    struct key_parts parts = {.count = 0};
    key_add_side(&parts, claim->name, claim->name_len, word);
    link_parts(&vote->node->link, parts.part, parts.count);
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
