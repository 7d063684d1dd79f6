/* own.c - the own key of a held claim: whether it is still there, and the watch that reports when it goes. The key is watched
 * after it was seen. After a reconnection, thousands of claims may look, so they take turns in the backlog. The answer to a
 * move shows the key, too. */
#include "claim.h"

#define SWEEP_AGAIN_NS (1000 * NS_PER_MS)

/* Call it before the key is looked at or watched again: a forgotten watch would outlive the claim that it points to. */
static void unwatch_own(struct driver *driver, struct claim *claim)
{
    watch_stop(driver, claim->own_watch);
    claim->own_watch = 0;
}

static void own_looked_at(struct driver *driver, struct call *call)
{
    struct claim *claim = claim_answered(driver, call);
    if (claim == NULL || call->to.step != claim->step || claim->state != CLAIM_HELD)
        return;
    if (call->end == CALL_DONE && call->answer.ops[0].count == 0) {
        claim_vanish(driver, claim);
        return;
    }
    claim_look_by(driver, claim,
                  call->end == CALL_REFUSED ? SWEEP_AGAIN_NS : driver->watch_pause_ns);
    if (call->end != CALL_DONE)
        return;
    const struct kv *own = &call->answer.ops[0].all[0];
    struct session *session = session_of_lease(driver, own->lease);
    if (own->created != claim->created) { /* the key was deleted and made again */
        claim_vanish(driver, claim);
        return;
    }
    if (call->answer.header.revision < claim->seen_at) /* a later move was answered before */
        return;
    claim->lease = own->lease;
    claim->modified = own->modified;
    claim->seen_at = call->answer.header.revision;
    if (session != NULL)
        claim_set_session(claim, session);
    claim_move(driver, claim);
}

static void send_look(struct driver *driver, struct claim *claim)
{
    struct key own;
    claim_key(claim, &own);
    struct call *call = claim_begin(driver, claim, own_looked_at);
    if (call != NULL)
        txn_range(&call->grpc.out, BRANCH_THEN,
                  &(struct range){.begin = key_bytes(&own), .keys_only = true});
    if (!claim_send(driver, claim, call))
        claim_look_by(driver, claim, SWEEP_AGAIN_NS);
}

void claim_look_at_own(struct driver *driver, struct claim *claim)
{
    unwatch_own(driver, claim);
    claim->seen_at = 0;
    claim->look_ns = MORTISE_NEVER;
    if (claim->move == MOVE_SENT)
        claim_look_by(driver, claim, 0);
    else if (!claim_is_late(driver, claim))
        send_look(driver, claim);
}

void claim_late(struct driver *driver, struct claim *claim)
{
    claim_move_late(driver, claim);
    if (claim->state != CLAIM_HELD || claim->seen_at != 0)
        return;
    if (claim->move == MOVE_SENT)
        claim_look_by(driver, claim, 0);
    else
        send_look(driver, claim);
}

void claim_watch_own(struct driver *driver, struct claim *claim)
{
    struct key own;
    if (claim->lease == 0 || claim->seen_at == 0) {
        claim_look_at_own(driver, claim);
        return;
    }
    unwatch_own(driver, claim);
    claim_key(claim, &own);
    claim->look_ns = MORTISE_NEVER;
    claim->own_watch = watch_start(driver, WATCHES_OWN, claim, key_bytes(&own), (struct bytes){0},
                                   claim->seen_at + 1, false);
    if (claim->own_watch == 0)
        claim_look_by(driver, claim, SWEEP_AGAIN_NS);
}
