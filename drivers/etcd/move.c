/* move.c - moves the key of a claim to another session when its own session was left. claim.h has the table ("MOVES").
 *
 * THE NEWS. Once a key is moved, a renewal gets more than before: the proof of the next session. Safety does not need that,
 * because the core counts with the earlier proof until then. But a lease that is SUSPECT since the leader changed would wait
 * for its next renewal, and the core may pause for longer than the rest of the lease. So the driver makes the core check
 * (host->doubt). It does not do so for each key: below a plugin each doubt concerns all claims, and the answers to the moves
 * come in many turns. It does so when no move is on its way or in the backlog, and a tenth of a second after the first moved
 * key that it has not reported. */
#include "claim.h"

#define AGAIN_NS (1000 * NS_PER_MS)
#define TELL_NS (100 * NS_PER_MS)

/* Whether its key belongs to a session that proves nothing more, or to a lease that is not ours. */
static bool must_move(const struct claim *claim)
{
    const struct session *session = claim->session;
    return claim_has_key(claim) && claim->lease != 0 &&
           (session == NULL || session->lease != claim->lease || session->state == SESSION_LEFT);
}

/* The key has the lease of the next session now. */
static void arrive(struct driver *driver, struct claim *claim, int64_t revision)
{
    claim->lease = claim->moves_to->lease;
    claim->modified = claim->seen_at = revision;
    claim_set_session(claim, claim->moves_to);
    claim_set_move(claim, NULL);
    if (claim->state == CLAIM_READY && claim->op != NULL)
        claim_grant(driver, claim);
    else if (claim->state == CLAIM_HELD) {
        claim->untold = true;
        claims_sweep_by(driver, now_of(driver) + TELL_NS);
    }
}

void claim_tell_moved(struct driver *driver, struct claim *claim)
{
    bool is_news = claim->untold && claim->state == CLAIM_HELD;
    claim->untold = false;
    if (is_news)
        claim_tell(driver, claim);
}

/* The move was not done: the key has changed otherwise, or, in a restored cluster, another key has its name. */
static void miss(struct driver *driver, struct claim *claim, const struct kvs *own,
                 int64_t revision)
{
    if (own->count == 0 || own->all[0].created != claim->created) {
        claim_set_move(claim, NULL);
        if (claim->state == CLAIM_HELD)
            claim_vanish(driver, claim);
        else
            claim_look(driver, claim);
        return;
    }
    claim->lease = own->all[0].lease;
    claim->modified = own->all[0].modified;
    if (claim->lease == claim->moves_to->lease) {
        arrive(driver, claim, revision);
        return;
    }
    struct session *session = session_of_lease(driver, claim->lease);
    if (session != NULL)
        claim_set_session(claim, session);
    claim_set_move(claim, NULL);
    claim_move(driver, claim);
}

static void take_answer(struct driver *driver, struct call *call)
{
    struct claim *claim = claim_answered(driver, call);
    if (claim == NULL || claim->moves_to == NULL || claim->move != MOVE_SENT ||
        call->to.step != claim->move_step) /* an earlier move, to a session that has ended */
        return;
    claim->move = MOVE_UNKNOWN;
    if (call->end == CALL_LOST)
        return;
    if (claim_is_unwanted(claim)) /* when a session ends, its delete may not have been done */
        return;
    if (!claim_has_key(claim)) {
        claim_set_move(claim, NULL);
        return;
    }
    if (fault_is_no_lease(call)) {
        session_end(driver, claim->moves_to);
        return;
    }
    if (call->end == CALL_REFUSED) {
        bool maybe = claim->moves_again || fault_is_doubtful(call);
        claim->move = maybe ? MOVE_UNKNOWN : MOVE_NONE;
        claim_retry(driver, claim, AGAIN_NS);
        return;
    }
    claim->move = MOVE_NONE;
    if (call->answer.done)
        arrive(driver, claim, call->answer.header.revision);
    else
        miss(driver, claim, &call->answer.ops[0], call->answer.header.revision);
}

static void moved(struct driver *driver, struct call *call)
{
    driver->moves--;
    take_answer(driver, call); /* may send another call */
    if (driver->moves == 0 && driver->backlog == NULL)
        claims_each(driver, claim_tell_moved);
}

static void send_move(struct driver *driver, struct claim *claim)
{
    struct key own;
    claim_key(claim, &own);
    struct call *call = claim_begin(driver, claim, moved);
    if (call != NULL) {
        call->to.step = ++claim->move_step;
        struct writer *out = &call->grpc.out;
        txn_if_created(out, key_bytes(&own), claim->created);
        txn_if_lease(out, key_bytes(&own), claim->lease);
        txn_put(out, BRANCH_THEN,
                &(struct put){
                    .key = key_bytes(&own), .lease = claim->moves_to->lease, .keep_value = true});
        txn_range(out, BRANCH_ELSE, &(struct range){.begin = key_bytes(&own), .keys_only = true});
    }
    bool sent = call != NULL && link_send(&driver->link, call);
    claim->pending += sent;
    driver->moves += sent;
    if (sent) {
        claim->moves_again = claim->move == MOVE_UNKNOWN;
        claim->move = MOVE_SENT;
    } else
        claim_retry(driver, claim, AGAIN_NS);
}

/* has_turn: in the backlog. */
static void move(struct driver *driver, struct claim *claim, bool has_turn)
{
    if (claim->move == MOVE_SENT || !must_move(claim))
        return;
    struct session *next = session_for(driver, claim->ttl_ms);
    if (next == NULL) {
        claim_retry(driver, claim, AGAIN_NS);
        return;
    }
    if (next != claim->moves_to) {
        enum move move = claim->move; /* an earlier move may still be done */
        claim_set_move(claim, next);
        claim->move = move;
    }
    if (is_connected(driver) && session_is_ready(next) &&
        (has_turn || !claim_is_late(driver, claim)))
        send_move(driver, claim);
}

void claim_move(struct driver *driver, struct claim *claim)
{
    move(driver, claim, false);
}

void claim_move_late(struct driver *driver, struct claim *claim)
{
    move(driver, claim, true);
}
