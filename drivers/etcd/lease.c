/* lease.c - what the claims do at an acquire, a renewal and a release of the core, at an event of a session or a key,
 * and when a time has come. */
#include "claim.h"

#include <string.h>

#define SWEEP_AGAIN_NS (1000 * NS_PER_MS)

/* ---- acquire --------------------------------------------------------------------------------------- */

static void begin(struct driver *driver, struct claim *claim, mortise_op *op)
{
    claim->op = op;
    patience_begin(driver, &claim->patience);
    claim->token_floor = op->token_floor;
    op_set_data(op, claim);
}

/* An acquire whose claim exists already: the first reply was lost on its way to the caller, or no server answered. */
static void attach(struct driver *driver, struct claim *claim, mortise_op *op)
{
    bool is_late = claim->state == CLAIM_HELD && claim->ends_ns <= now_of(driver);
    if (claim->state == CLAIM_GONE) {
        claim->op = op; /* it will be BUSY: what the first acquire got is lost */
        claim_drop(driver, claim);
        return;
    }
    if (is_late)
        claim_drop(driver, claim);
    if (is_late || claim->op != NULL || claim->state > CLAIM_HELD) {
        fault_leaving(driver, op);
        return;
    }
    begin(driver, claim, op);
    if (claim->state == CLAIM_HELD)
        claim_grant(driver, claim);
    else {
        claim->ends_ns = MORTISE_NEVER;
        claim_go(driver, claim);
    }
}

void lease_acquire(struct driver *driver, mortise_op *op)
{
    struct claim *claim = claim_find(driver, op);
    if (op->first_sent_ns == 0)
        op->first_sent_ns = now_of(driver);
    if (claim != NULL) {
        attach(driver, claim, op);
        return;
    }
    if ((claim = claim_new(driver, op)) == NULL) {
        driver->host->complete(driver->host, op, MORTISE_NOMEM);
        return;
    }
    claim->ttl_ms = op->ttl_ms;
    begin(driver, claim, op);
    claim_go(driver, claim);
}

void lease_cancel_acquire(struct driver *driver, mortise_op *op)
{
    struct claim *claim = op_claim(op);
    bool is_nothing = claim->state == CLAIM_LOOKING || (claim->state == CLAIM_IDLE && !claim->made);
    claim->op = NULL;
    driver->host->complete(driver->host, op, is_nothing ? MORTISE_CANCELED : MORTISE_INDETERMINATE);
    claim_drop(driver, claim);
}

/* ---- renew and release ------------------------------------------------------------------------------- */

/* Answers without a request, from the time until which the session is proven. in_doubt: the status if that time is not
 * known. */
static void renew(struct driver *driver, struct claim *claim, mortise_op *op,
                  mortise_status in_doubt)
{
    int64_t now_ns = now_of(driver), until_ns = claim_deadline(claim);
    if (!session_is_well(driver, claim->session) || until_ns - now_ns < NS_PER_MS) {
        fault_unreachable(driver, op, in_doubt);
        return;
    }
    int64_t ends_ns = now_ns + op->ttl_ms * NS_PER_MS;
    if (ends_ns > claim->ends_ns)
        claim->ends_ns = ends_ns;
    until_ns = until_ns < ends_ns ? until_ns : ends_ns;
    op->from_ns = now_ns;
    op->good_for_ms = (until_ns - now_ns) / NS_PER_MS;
    driver->host->complete(driver->host, op, MORTISE_OK);
}

/* The servers have refused the write of the downgrade for want of space. That is an answer, so the write is not executed later,
 * and the present content of the key decides. (An earlier write whose answer was lost may be executed later; the core knows
 * that, and asks again.) */
static void looked_downgraded(struct driver *driver, struct call *call)
{
    struct claim *claim = claim_answered(driver, call);
    const struct kvs *own = &call->answer.ops[0];
    mortise_info info = {.size = sizeof(info)};
    if (claim == NULL || claim->downgrade == NULL)
        return;
    if (call->end == CALL_DONE && (own->count == 0 || own->all[0].created != claim->created)) {
        claim_vanish(driver, claim);
        return;
    }
    mortise_op *op = claim->downgrade;
    claim->downgrade = NULL;
    if (call->end == CALL_LOST)
        fault_unreachable(driver, op, MORTISE_INDETERMINATE);
    else if (call->end == CALL_REFUSED)
        fault_refused(driver, op, MORTISE_INDETERMINATE, call);
    else if (note_read(own->all[0].value, &info) >= 0 && info.mode == MORTISE_SHARED) {
        claim->downgraded = true;
        renew(driver, claim, op, MORTISE_INDETERMINATE);
    } else
        fault_no_space(driver, op);
}

static void look_downgraded(struct driver *driver, struct claim *claim)
{
    struct key own;
    claim_key(claim, &own);
    struct call *call = claim_begin(driver, claim, looked_downgraded);
    if (call != NULL)
        txn_range(&call->grpc.out, BRANCH_THEN, &(struct range){.begin = key_bytes(&own)});
    if (!claim_send(driver, claim, call)) {
        mortise_op *op = claim->downgrade;
        claim->downgrade = NULL;
        fault_memory(driver, op, MORTISE_INDETERMINATE);
    }
}

/* The key says now that it is shared, or its content is unknown. */
static void downgraded(struct driver *driver, struct call *call)
{
    struct claim *claim = claim_answered(driver, call);
    if (claim == NULL || claim->downgrade == NULL)
        return;
    if (call->end == CALL_DONE && !call->answer.done) {
        claim_vanish(driver, claim);
        return;
    }
    if (fault_is_no_space(call)) {
        look_downgraded(driver, claim);
        return;
    }
    mortise_op *op = claim->downgrade;
    claim->downgrade = NULL;
    if (call->end == CALL_DONE) {
        claim->modified = call->answer.header.revision;
        claim->downgraded = true;
        renew(driver, claim, op, MORTISE_INDETERMINATE);
    } else if (call->end == CALL_LOST)
        fault_unreachable(driver, op, MORTISE_INDETERMINATE);
    else
        fault_refused(driver, op, fault_is_doubtful(call) ? MORTISE_INDETERMINATE : MORTISE_BACKEND,
                      call);
}

/* One write to its own key: its place in the queue, its create revision and so its token stay. */
static void downgrade(struct driver *driver, struct claim *claim, mortise_op *op)
{
    char data[DATA_MAX];
    struct key own;
    if (claim->downgrade != NULL || !is_connected(driver)) {
        fault_unreachable(driver, op, MORTISE_UNREACHABLE);
        return;
    }
    claim_key(claim, &own);
    size_t size = note_write(driver, &claim->grant, claim->base, claim->noted_ms, true, data);
    struct call *call = claim_begin(driver, claim, downgraded);
    if (call != NULL) {
        txn_if_created(&call->grpc.out, key_bytes(&own), claim->created);
        txn_put(&call->grpc.out, BRANCH_THEN,
                &(struct put){
                    .key = key_bytes(&own), .value = bytes_of(data, size), .keep_lease = true});
    }
    if (!claim_send(driver, claim, call)) {
        fault_memory(driver, op, MORTISE_NOMEM);
        return;
    }
    op_set_data(op, claim);
    claim->downgrade = op;
}

void lease_renew(struct driver *driver, mortise_op *op)
{
    struct claim *claim = claim_find(driver, op);
    bool is_held = claim != NULL && claim->state == CLAIM_HELD;
    if (is_held && claim->ends_ns <= now_of(driver)) {
        claim_drop(driver, claim);
        is_held = false;
    }
    if (!is_held)
        driver->host->complete(driver->host, op, MORTISE_LOST);
    else if ((op->flags & MORTISE_OP_DOWNGRADE) != 0 && !claim->kind.shared && !claim->downgraded)
        downgrade(driver, claim, op);
    else
        renew(driver, claim, op, MORTISE_UNREACHABLE);
}

/* The only renewal that can be canceled is one that waits for its downgrade, which may still be executed. */
void lease_cancel_renew(struct driver *driver, mortise_op *op)
{
    op_claim(op)->downgrade = NULL;
    fault_unreachable(driver, op, MORTISE_INDETERMINATE);
}

void lease_release(struct driver *driver, mortise_op *op)
{
    struct claim *claim = claim_find(driver, op);
    if (claim == NULL) { /* a claim ends only when certainly nothing is left of it */
        op->sure = true;
        driver->host->complete(driver->host, op, MORTISE_LOST);
        return;
    }
    op_set_data(op, claim);
    LL_APPEND(claim->releases, op);
    if (!claim_is_unwanted(claim) || (claim->retry_ns != 0 && claim->pending == 0))
        claim_drop(driver, claim);
}

void lease_cancel_release(struct driver *driver, mortise_op *op)
{
    struct claim *claim = op_claim(op);
    bool maybe = claim->state == CLAIM_REDELETING || is_connected(driver);
    LL_DELETE(claim->releases, op);
    fault_unreachable(driver, op, maybe ? MORTISE_INDETERMINATE : MORTISE_UNREACHABLE);
}

/* ---- the watches --------------------------------------------------------------------------------------------- */

void lease_watched(struct driver *driver, enum watch_target kind, struct claim *claim,
                   enum watch_event event)
{
    if (kind == WATCHES_BLOCKER && claim->state == CLAIM_WAITING) {
        if (event == WATCH_ENDED && claim->retry_ns != 0)
            return; /* soon */
        if (event == WATCH_ENDED)
            claim_retry(driver, claim, driver->watch_pause_ns);
        else
            claim_look(driver, claim);
    } else if (kind == WATCHES_OWN && claim->state == CLAIM_HELD) {
        if (event == WATCH_DELETED)
            claim_vanish(driver, claim);
        else if (event == WATCH_ENDED) {
            claim->own_watch = 0;
            claim_look_at_own(driver, claim);
        }
    }
}

/* ---- the sessions ---------------------------------------------------------------------------------------- */

/* There is a connection again. If the servers were restored unnoticed (link.h, HISTORIES), a watch from a revision of the
 * former history on does not report that a key is missing. So the key must be seen first. */
static void go_on(struct driver *driver, struct claim *claim)
{
    claim_move(driver, claim);
    if (claim->state == CLAIM_HELD)
        claim_look_at_own(driver, claim);
    else if (claim->state != CLAIM_HELD && claim->state != CLAIM_GONE)
        claim_go(driver, claim);
}

void lease_up(struct driver *driver)
{
    claims_each(driver, go_on);
}

static void lose(struct driver *driver, struct claim *claim)
{
    patience_lost(driver, &claim->patience);
    claim->own_watch = 0; /* ended with the connection */
    if (claim->state == CLAIM_HELD)
        claim_tell(driver, claim);
}

void lease_down(struct driver *driver)
{
    struct session *session;
    claims_begin_series(driver);
    DL_FOREACH (driver->sessions, session)
        session->suspects = true;
    claims_each(driver, lose);
}

/* The key may be missing, so nothing is proven for it until it is seen again. */
static void forget_own(struct driver *driver, struct claim *claim)
{
    (void)driver;
    if (claim_has_key(claim))
        claim->lease = 0;
}

void lease_history(struct driver *driver)
{
    claims_each(driver, forget_own);
}

void lease_ready(struct driver *driver, struct session *session)
{
    for (struct name *name = driver->names, *next; name != NULL; name = next) {
        next = name->hh.next;
        for (struct claim *claim = name->claims, *after; claim != NULL; claim = after) {
            after = claim->next;
            if (claim->moves_to == session)
                claim_move(driver, claim);
            if (claim->session == session &&
                (claim->state == CLAIM_IDLE || claim->state == CLAIM_UNCERTAIN ||
                 claim->state == CLAIM_DOUBTFUL)) {
                if (claim->state == CLAIM_IDLE)
                    claim->patience.away_ns = 0;
                claim_go(driver, claim);
            }
        }
    }
}

void lease_proven(struct driver *driver, struct session *session)
{
    bool were_suspects = session->suspects;
    session->suspects = false;
    for (struct name *name = driver->names; name != NULL; name = name->hh.next)
        for (struct claim *claim = name->claims; claim != NULL; claim = claim->next) {
            if (claim->session != session)
                continue;
            if (claim->op != NULL && (claim->state == CLAIM_READY || claim->state == CLAIM_HELD))
                claim_grant(driver, claim);
            if (were_suspects && claim->state == CLAIM_HELD)
                claim_tell(driver, claim); /* the core checks, and finds the claim proven */
        }
}

/* A claim that has no key yet goes on with the next session: nobody joins the old one for it. */
static void move_one(struct driver *driver, struct claim *claim)
{
    if (claim->state == CLAIM_IDLE && claim->session != NULL &&
        claim->session->state == SESSION_LEFT)
        claim_go(driver, claim);
    else
        claim_move(driver, claim);
}

void lease_left(struct driver *driver, struct session *session)
{
    (void)session;
    claims_each(driver, move_one);
}

/* The session's lease is gone, and with it every key that was attached to it. No acquire of this session is executed any
 * more. */
static void session_over(struct driver *driver, struct claim *claim)
{
    bool has_moved = claim->move != MOVE_NONE; /* perhaps */
    claim_uncover(driver, claim);
    claim->step++;
    claim->ask++;
    claim->retry_ns = 0;
    claim->lease = 0;
    if (claim_is_unwanted(claim)) {
        if (!has_moved) {
            claim_end(driver, claim, MORTISE_OK); /* the key was there until then */
            return;
        }
        /* No join of that session comes, and an earlier delete may have been executed. */
        claim_become(driver, claim, CLAIM_REDELETING);
        claim_go(driver, claim);
    } else if (claim->state == CLAIM_HELD && has_moved) {
        claim_tell(driver, claim);
        claim_look_at_own(driver, claim);
    } else if (claim->state == CLAIM_HELD)
        claim_vanish(driver, claim);
    else if (claim->state != CLAIM_GONE) {
        claim->made = has_moved;
        claim->maybe = false;
        claim_become(driver, claim, CLAIM_IDLE);
        claim_set_session(claim, NULL);
        claim_go(driver, claim);
    }
}

void lease_session_over(struct driver *driver, struct session *session)
{
    for (struct name *name = driver->names, *next; name != NULL; name = next) {
        next = name->hh.next;
        for (struct claim *claim = name->claims, *after; claim != NULL; claim = after) {
            after = claim->next;
            if (claim->moves_to == session) {
                claim_set_move(claim, NULL);
                claim_move(driver, claim);
            }
            if (claim->session == session)
                session_over(driver, claim);
        }
    }
}

/* The servers refuse to grant the session, or the join. A READY claim waits for its proof, and would lose its place if it
 * failed. So it fails only if the error lasts: "too many requests", which is usual after a change of the leader, gets
 * connect_timeout to pass. */
void lease_refused(struct driver *driver, struct session *session, const struct call *call)
{
    int64_t patience_ns = driver->settings.connect_timeout_ms * NS_PER_MS;
    bool passes = fault_is_doubtful(call) && !fault_is_no_space(call) &&
                  now_of(driver) - session->refused_ns < patience_ns;
    for (struct name *name = driver->names, *next; name != NULL; name = next) {
        next = name->hh.next;
        for (struct claim *claim = name->claims, *after; claim != NULL; claim = after) {
            after = claim->next;
            bool waits = claim->session == session &&
                         (claim->state == CLAIM_IDLE || claim->state == CLAIM_UNCERTAIN);
            waits |= !passes && claim->moves_to == session && claim->state == CLAIM_READY;
            if (waits && claim->op != NULL)
                claim_fail(driver, claim, call);
        }
    }
}

/* ---- time ----------------------------------------------------------------------------------------------- */

/* Fails the acquire of a caller that has waited too long for an answer. Its claim may have a key, so the claim waits
 * for a ttl for the core to ask again. */
static void tell_away(struct driver *driver, struct claim *claim)
{
    mortise_op *op = claim->op;
    if (op == NULL || !patience_is_over(driver, &claim->patience))
        return;
    claim->op = NULL;
    fault_unreachable(driver, op, claim->made ? MORTISE_INDETERMINATE : MORTISE_UNREACHABLE);
    if (!claim->made || !claim_is_wanted(claim)) {
        claim_drop(driver, claim);
        return;
    }
    claim->ends_ns = now_of(driver) + claim->ttl_ms * NS_PER_MS;
    claims_sweep_by(driver, claim->ends_ns);
}

void lease_away(struct driver *driver)
{
    claims_each(driver, tell_away);
}

/* Tries again, unless a call is on its way or there is no connection; then the claim keeps waiting. */
static void retry(struct driver *driver, struct claim *claim)
{
    claims_sweep_by(driver, now_of(driver) + SWEEP_AGAIN_NS);
    if (claim->pending > 0)
        return;
    claim->retry_ns = 0;
    claim_go(driver, claim);
}

static void sweep_one(struct driver *driver, struct claim *claim)
{
    int64_t now_ns = now_of(driver);
    bool is_over = claim->ends_ns <= now_ns;
    bool must_retry = claim->retry_ns != 0 && claim->retry_ns <= now_ns;
    claim_tell_moved(driver, claim);
    if (claim->retry_ns > now_ns)
        claims_sweep_by(driver, claim->retry_ns);
    if (claim_is_unwanted(claim)) {
        if (must_retry)
            retry(driver, claim);
        return;
    }
    if (is_over && claim->op == NULL) {
        claim_drop(driver, claim);
        return;
    }
    claims_sweep_by(driver, is_over ? now_ns + SWEEP_AGAIN_NS : claim->ends_ns);
    if (claim->state == CLAIM_HELD && claim->look_ns > now_ns)
        claims_sweep_by(driver, claim->look_ns);
    else if (claim->state == CLAIM_HELD && is_connected(driver))
        claim_watch_own(driver, claim);
    if (must_retry)
        claim_move(driver, claim);
    if (must_retry && claim_is_wanted(claim))
        retry(driver, claim);
}

/* Looks at all claims. Drops those whose ttl has passed without a renewal: their leases were LOST at their deadlines. */
void lease_sweep(struct driver *driver, int64_t now_ns)
{
    if (now_ns < driver->sweep_ns)
        return;
    driver->sweep_ns = MORTISE_NEVER;
    claims_each(driver, sweep_one);
}
