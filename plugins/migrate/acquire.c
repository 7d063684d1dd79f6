/* acquire.c - an acquire: leg 1, then leg 2; in phases old and new there is only leg 1. See protocol.h (6, 7).
 *
 *   WAITS_TO_REGISTER ──▶ FIRST ── granted ──▶ SECOND ── granted, tokens are equal ──▶ OK
 *                          │ BUSY,              │ ▲ BUSY: watched, asked again (wait.c), leg 1 renewed meanwhile
 *                          │ UNREACHABLE        │ └┘
 *                          │                    ├── its token is larger, or leg 1 is lost: UNDO, then FIRST again
 *                          ▼                    ├── BUSY (a try), UNREACHABLE: UNDO, then that answer
 *                         answer                ▼
 *                                              UNDO: both are released ── sure ──▶ the answer, or FIRST again
 *                                                                      └─ unsure ─▶ INDETERMINATE
 *
 * If a reply of a leg is lost, the answer is INDETERMINATE and the claim keeps what may be held. The core then asks again
 * under the same grant: FIRST and SECOND with REPEAT and the instant of the first sending; or it releases, and lease.c
 * releases what may be held. If the lost reply was to a release, that release may still execute, and would end what the same
 * grant acquires meanwhile. So UNDO comes first, until it is sure, and FIRST uses another grant.
 * If the core cancels, requests that are out are canceled. What is held stays with the claim: INDETERMINATE, and the core
 * releases it.
 * If the process is stopped anywhere, the deadline still counts from the sendings of the legs and of the presences.
 * A presence may lapse while a leg keeps the request in its queue, or before the core repeats a request whose reply was lost.
 * Then the client that asked for the grant is not registered any more: steps may have been taken since, and the grant's token
 * may be below those that the other side gave meanwhile. So the grant is released, and the acquire begins again under another
 * grant, with the floor that the registers have now. */
#include "internal.h"

#include <utlist.h>

#define HELD_APART_MS 1000

static void go_on(struct call *call);
static void ask_first(struct call *call);
static void ask_second(struct call *call);
static void begin_again(struct call *call);
static void undo_go_on(struct call *call);

static enum migrate_side first_side(const struct call *call)
{
    return call->migrate->legs[0];
}

static enum migrate_side second_side(const struct call *call)
{
    return call->migrate->legs[1];
}

static struct leg *leg_of(struct call *call, enum migrate_side side)
{
    return &call->claim->legs[side];
}

/* ---- the answer ------------------------------------------------------------------------------------ */

/* The call leaves its claim; what is held, or may be held, stays with the claim. */
static void leave_claim(struct call *call)
{
    call->upper->first_sent_ns = leg_of(call, first_side(call))->first_sent_ns;
    claim_leave(call->claim);
    call->claim = NULL;
}

/* Fails with the error that was kept. Nothing may be out. */
static void finish(struct call *call, mortise_status status)
{
    call->upper->hint_ms = call->hint_ms;
    leave_claim(call);
    call_fail_kept(call, status);
}

static void finish_canceled(struct call *call)
{
    call->has_error = false;
    finish(call, claim_is_clean(call->claim) ? MORTISE_CANCELED : MORTISE_INDETERMINATE);
}

static void succeed(struct call *call)
{
    struct migrate *migrate = call->migrate;
    struct claim *claim = call->claim;
    if (claim->lapses != migrate->lapses) {
        begin_again(call); /* the presence lapsed since the request was sent */
        return;
    }
    struct leg *last = leg_of(call, migrate->legs[migrate->leg_count - 1]);
    call->upper->token = last->token;
    if (migrate->leg_count == 2 && leg_of(call, first_side(call))->token == 0)
        call->upper->token = 0; /* a side without tokens: the grant has none */
    floor_given(call, call->upper->token);
    claim->epoch = migrate->epoch;
    lease_tell(call);
    leave_claim(call);
    call_complete(call, MORTISE_OK);
}

/* ---- registering ----------------------------------------------------------------------------------- */

void acquire_init(struct migrate *migrate, const char *client_id)
{
    static const struct register_events register_events = {.registered = go_on};
    static const struct wait_events wait_events = {.ask_second = ask_second};
    migrate->wait_events = &wait_events;
    register_init(migrate, client_id, &register_events);
}

void acquire_start(struct call *call)
{
    struct migrate *migrate = call->migrate;
    call->state = CALL_WAITS_TO_REGISTER;
    if (registered(migrate)) {
        go_on(call);
        return;
    }
    DL_APPEND2(migrate->to_register, call, previous_waiting, next_waiting);
    register_want(migrate);
}

static void go_on(struct call *call)
{
    struct migrate *migrate = call->migrate;
    struct claim *claim = call->claim;
    if (claim == NULL)
        claim = claim_find(migrate, &call->upper->grant);
    if (claim != NULL && claim != call->claim && (claim->busy || claim->dropped)) {
        call_fail(call, MORTISE_UNREACHABLE, true, "migrate: the grant is being released");
        return;
    }
    if (claim == NULL)
        claim = claim_make(migrate, call->upper);
    if (claim == NULL) {
        call_fail(call, MORTISE_UNREACHABLE, true, "migrate: out of memory");
        return;
    }
    call->claim = claim;
    claim->busy = true;
    if (claim_is_clean(claim))
        claim->lapses = migrate->lapses;
    if (claim_is_asked_back(claim) || claim->lapses != migrate->lapses)
        begin_again(call);
    else
        ask_first(call);
}

/* ---- a leg ----------------------------------------------------------------------------------------- */

static void ask_leg(struct call *call, enum migrate_side side, uint32_t flags, uint64_t floor)
{
    struct migrate *migrate = call->migrate;
    struct leg *leg = leg_of(call, side);
    struct ask *ask = call_prepare(call, side, MORTISE_OP_ACQUIRE);
    if (!leg->maybe) {
        /* Not the grant id that an earlier try held and released: the side may remember it. */
        if (leg->tries <= TRIES_NAMED)
            claim_grant_of_try(migrate, side, &call->upper->grant, leg->tries, &leg->grant);
        else
            migrate->host->random(migrate->host, &leg->grant, sizeof(leg->grant));
        leg->first_sent_ns = 0;
        leg->token = 0;
        leg->asked_back = leg->given_back = leg->in_doubt = leg->lost = false;
    }
    ask->op.grant = leg->grant;
    ask->op.flags = flags | (leg->maybe ? MORTISE_OP_REPEAT : 0u);
    ask->op.first_sent_ns = leg->first_sent_ns;
    ask->op.token_floor = floor;
    claim_may_last(call->claim, call->upper->ttl_ms);
    ask_send(ask);
}

/* Notes in the leg what an answer says. The request may have been in the server's queue for hours before it was granted, or may
 * have been granted, so the claim may last until a ttl after the answer. */
static void leg_asked(struct call *call, struct leg *leg, const mortise_op *op)
{
    struct claim *claim = call->claim;
    int64_t until_ns = now_of(call->migrate) + op->ttl_ms * NS_PER_MS;
    if (op->first_sent_ns != 0 && leg->first_sent_ns == 0)
        leg->first_sent_ns = op->first_sent_ns;
    if (op->status != MORTISE_OK && op->status != MORTISE_INDETERMINATE)
        return;
    leg->maybe = true;
    leg->tries++;
    if (op->status == MORTISE_OK && op->from_ns + op->good_for_ms * NS_PER_MS > until_ns)
        until_ns = op->from_ns + op->good_for_ms * NS_PER_MS;
    if (until_ns > claim->until_ns)
        claim->until_ns = until_ns;
    if (op->status != MORTISE_OK)
        return;
    leg->held = true;
    leg->token = op->token;
    leg->from_ns = op->from_ns;
    leg->good_for_ms = op->good_for_ms;
}

/* Passes on MORTISE_OP_NEXT (this client's next caller), but only with one leg: then the release is one request too. */
static uint32_t flags_first(const struct call *call)
{
    uint32_t passed = MORTISE_OP_TRY | MORTISE_OP_AGAIN;
    if (call->migrate->leg_count == 1)
        passed |= MORTISE_OP_NEXT;
    return call->upper->flags & passed;
}

static void ask_first(struct call *call)
{
    call->state = CALL_FIRST;
    call->undone = false;
    ask_leg(call, first_side(call), flags_first(call), floor_first(call));
}

static void first_answered(struct call *call, const struct ask *ask)
{
    const mortise_op *op = &ask->op;
    if (op->status == MORTISE_OK) {
        if (call->migrate->leg_count == 1)
            succeed(call);
        else if (call->canceled)
            finish_canceled(call);
        else
            ask_second(call);
        return;
    }
    call->hint_ms = op->hint_ms;
    call_keep_error(call, ask);
    if (op->status == MORTISE_CANCELED && !claim_is_clean(call->claim))
        finish(call, MORTISE_INDETERMINATE);
    else
        finish(call, op->status);
}

/* ---- the second leg -------------------------------------------------------------------------------- */

static void ask_second(struct call *call)
{
    const struct leg *first = leg_of(call, first_side(call));
    if (call->state != CALL_SECOND) {
        call->state = CALL_SECOND;
        floor_first_had(call);
        wait_begin(call);
    }
    call->ask_ns = 0;
    call->news = false;
    ask_leg(call, second_side(call), call->upper->flags & MORTISE_OP_TRY, first->token);
}

/* Cancels what is out, then releases both legs. */
static void undo(struct call *call, enum call_then then, mortise_status status)
{
    wait_end(call);
    call->state = CALL_UNDO;
    call->undone = false;
    call->then = then;
    call->status = status;
    for (size_t i = 0; i < SIDES; i++)
        ask_cancel(&call->asks[i]);
    undo_go_on(call);
}

static void begin_again(struct call *call)
{
    call->has_error = false;
    undo(call, THEN_AGAIN, MORTISE_INDETERMINATE);
}

static void second_had(struct call *call)
{
    const struct leg *first = leg_of(call, first_side(call)),
                     *second = leg_of(call, second_side(call));
    bool tokens = first->token != 0 && second->token != 0;
    if (call->asks[first_side(call)].out)
        return; /* leg 1 is being renewed; its answer leads here again */
    if (tokens && second->token < first->token &&
        (call->asks[second_side(call)].op.flags & MORTISE_OP_REPEAT) != 0) {
        begin_again(call); /* an earlier try holds leg 2; leg 1 was lost, and has a new grant now */
        return;
    }
    if (tokens && call->upper->owner_len > 0 &&
        (second->token < first->token || first->token < call->floor)) {
        /* clients of another phase hold the name for this owner, and no floor raises the token of a hold: it must end first */
        call->has_error = false;
        call->hint_ms = HELD_APART_MS;
        undo(call, THEN_FAIL, MORTISE_BUSY);
        return;
    }
    if (tokens && second->token > first->token) {
        floor_too_low(call, second->token);
        begin_again(call);
    } else if (tokens && second->token < first->token) {
        undo(call, THEN_FAIL, MORTISE_BACKEND); /* the driver breaks the contract of driver.h */
    } else {
        wait_end(call);
        succeed(call);
    }
}

static void second_answered(struct call *call, const struct ask *ask, bool was_maybe)
{
    const mortise_op *op = &ask->op;
    bool try_once = (call->upper->flags & MORTISE_OP_TRY) != 0;
    if (op->status == MORTISE_OK) {
        second_had(call);
    } else if (op->status == MORTISE_INDETERMINATE) {
        call_keep_error(call, ask);
        wait_end(call);
        call->state = CALL_UNDO; /* but release nothing: the core decides what comes next */
        call->undone = true;
        call->then = THEN_FAIL;
        call->status = MORTISE_INDETERMINATE;
        ask_cancel(&call->asks[first_side(call)]);
        undo_go_on(call);
    } else if (op->status == MORTISE_BUSY && was_maybe) {
        begin_again(call); /* the lost request may still execute */
    } else if (op->status == MORTISE_BUSY && !try_once) {
        wait_busy(call, op->hint_ms);
    } else {
        call->hint_ms = op->hint_ms;
        call_keep_error(call, ask);
        undo(call, THEN_FAIL, op->status);
    }
}

/* ---- undoing --------------------------------------------------------------------------------------- */

static void undo_send(struct call *call)
{
    call->undone = true;
    for (size_t i = call->migrate->leg_count; i-- > 0;) {
        enum migrate_side side = call->migrate->legs[i];
        if (!leg_of(call, side)->maybe)
            continue;
        leg_prepare_release(call->claim, side, &call->asks[side], call->name[side],
                            call->name_len[side]);
        ask_send(&call->asks[side]);
    }
}

static void undo_go_on(struct call *call)
{
    if (call_is_out(call))
        return;
    if (!call->undone && !call->canceled)
        undo_send(call);
    if (call_is_out(call))
        return;
    if (call->canceled) {
        finish_canceled(call);
    } else if (!claim_is_clean(call->claim)) {
        finish(call, MORTISE_INDETERMINATE);
    } else if (call->then == THEN_FAIL) {
        finish(call, call->status);
    } else {
        acquire_start(call);
    }
}

/* ---- answers, cancellation ------------------------------------------------------------------------- */

void acquire_answered(struct call *call, struct ask *ask)
{
    mortise_op_kind kind = ask->op.kind;
    struct leg *leg = leg_of(call, ask->side);
    bool was_maybe = leg->maybe;
    if (kind == MORTISE_OP_ACQUIRE)
        leg_asked(call, leg, &ask->op);
    if (kind == MORTISE_OP_RELEASE)
        leg_released(leg, ask, NULL);
    if (call->state == CALL_FIRST) {
        first_answered(call, ask);
    } else if (call->canceled || call->state == CALL_UNDO) {
        wait_end(call);
        call->state = CALL_UNDO;
        undo_go_on(call);
    } else if (kind == MORTISE_OP_RENEW) {
        if (!wait_renewed(call, ask))
            begin_again(call);
        else if (leg_of(call, second_side(call))->held && !call->asks[second_side(call)].out)
            second_had(call);
    } else {
        second_answered(call, ask, was_maybe);
    }
}

/* Leg 1 waits; or leg 1 was granted, and leg 2 waits: so each side has answered. If leg 1 is lost meanwhile, the acquire begins
 * again, and fails if its side does not answer. */
void acquire_waiting(struct call *call)
{
    bool asks = call->state == CALL_FIRST || call->state == CALL_SECOND;
    if (asks && !call->canceled)
        call->migrate->host->waiting(call->migrate->host, call->upper);
}

void acquire_cancel(struct call *call)
{
    struct migrate *migrate = call->migrate;
    if (call->state == CALL_WAITS_TO_REGISTER) {
        DL_DELETE2(migrate->to_register, call, previous_waiting, next_waiting);
        const struct claim *claim = claim_find(migrate, &call->upper->grant);
        bool unsure = claim != NULL && !claim_is_clean(claim);
        if (call->claim != NULL)
            leave_claim(call);
        call_complete(call, unsure ? MORTISE_INDETERMINATE : MORTISE_CANCELED);
        return;
    }
    if (!call_is_out(call)) { /* the call waits for news of leg 2 */
        wait_end(call);
        finish_canceled(call);
        return;
    }
    for (size_t i = 0; i < SIDES; i++)
        ask_cancel(&call->asks[i]);
}
