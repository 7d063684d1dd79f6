/* lease.c - what the claims do at an acquire, a renewal and a release of the core, at an event of the session or a
 * node, and when a time has come. */
#include "claim.h"

#include <string.h>

#define SWEEP_AGAIN_NS (1000 * NS_PER_MS)

/* The own node of a held claim has gone, or for an exclusive claim the node in the gate. So others may come. */
static void vanish(struct driver *driver, struct claim *claim)
{
    struct claim *whole = claim_whole(claim);
    bool is_gate = claim->part == PART_GATE, is_alone = is_gate && whole == claim;
    if (is_gate)
        claim_end(driver, claim, MORTISE_OK);
    else
        claim->node[0] = '\0';
    if (is_alone) /* no claim goes through this gate any more */
        return;
    if (whole->state != CLAIM_HELD) {
        claim_fail(driver, whole, MORTISE_BACKEND, ZNONODE);
        return;
    }
    claim_become(driver, whole, CLAIM_GONE);
    whole->lost = true;
    claim_leave_gate(driver, whole);
    claim_tell(driver, whole);
}

/* ---- acquire --------------------------------------------------------------------------------------- */

static void begin(struct driver *driver, struct claim *claim, mortise_op *op)
{
    claim->op = op;
    claim->asked_ns = session_patience(driver);
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
    else { /* if it waits in the gate, that looks once more: its answer tells the core that the op waits */
        bool is_at_gate = claim->gate != NULL && claim->gate->state == CLAIM_WAITING;
        claim->ends_ns = MORTISE_NEVER;
        claim_go(driver, is_at_gate ? claim->gate : claim);
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
    session_wake(driver);
    if ((claim = claim_new(driver, op)) == NULL) {
        driver->host->complete(driver->host, op, MORTISE_NOMEM);
        return;
    }
    claim->ttl_ms = op->ttl_ms;
    if (op->mode == MORTISE_SHARED)
        claim->kind = (struct node_kind){.shared = true, .permits = op->permits};
    begin(driver, claim, op);
    claim_go(driver, claim);
}

void lease_cancel_acquire(struct driver *driver, mortise_op *op)
{
    struct claim *claim = op_claim(op);
    claim->op = NULL;
    driver->host->complete(driver->host, op,
                           claim_is_sent(claim) ? MORTISE_INDETERMINATE : MORTISE_CANCELED);
    claim_drop(driver, claim);
}

/* ---- renew and release ------------------------------------------------------------------------------- */

/* Whether a server that grants less time has taken back what leases were told, and no beat has proven more in time. */
static bool fell_short(const struct driver *driver, int64_t now_ns)
{
    return now_ns >= session_deadline(driver) && now_ns < session_told(driver);
}

/* Answers from the session's proof, without a request. in_doubt: the status if the session is not proven. */
static void renew(struct driver *driver, struct claim *claim, mortise_op *op,
                  mortise_status in_doubt)
{
    int64_t now_ns = now_of(driver), until_ns = session_deadline(driver);
    if (!session_is_well(driver, now_ns) || until_ns - now_ns < NS_PER_MS) {
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

/* The node says now that it is shared, or its content is unknown. */
static void downgraded(struct driver *driver, struct request *request)
{
    struct claim *claim = claim_answered(driver, request);
    if (claim == NULL || request->to.step != claim->step || claim->downgrade == NULL)
        return;
    if (request->rc == ZNONODE) {
        vanish(driver, claim);
        return;
    }
    mortise_op *op = claim->downgrade;
    claim->downgrade = NULL;
    if (request->rc == ZOK) {
        claim->downgraded = true;
        claim_leave_gate(driver, claim);
        renew(driver, claim, op, MORTISE_INDETERMINATE);
    } else if (fault_is_loss(request->rc)) {
        claim->maybe_shared = true;
        fault_unreachable(driver, op, MORTISE_INDETERMINATE);
    } else
        fault_tell(driver, op, MORTISE_BACKEND, request->rc);
}

/* One write to the own node: its place in the queue, its czxid and so its token stay. */
static void downgrade(struct driver *driver, struct claim *claim, mortise_op *op)
{
    char data[DATA_MAX];
    if (claim->downgrade != NULL || !is_connected(driver)) {
        fault_unreachable(driver, op, MORTISE_UNREACHABLE);
        return;
    }
    size_t size = note_write(driver, claim->noted_base, true, data);
    bool sent = send_set(driver, claim->name->folder, claim->node, data, size, -1,
                         claim_reply(claim, downgraded));
    claim->pending += sent;
    if (!sent) {
        fault_tell(driver, op, MORTISE_NOMEM, ZSYSTEMERROR);
        return;
    }
    op_set_data(op, claim);
    claim->downgrade = op;
}

void lease_renew(struct driver *driver, mortise_op *op)
{
    struct claim *claim = claim_find(driver, op);
    int64_t now_ns = now_of(driver);
    bool was_held = claim != NULL && (claim->state == CLAIM_HELD || claim->state == CLAIM_GONE);
    bool is_held = was_held && claim->state == CLAIM_HELD && claim->ends_ns > now_ns;
    if (is_held && fell_short(driver, now_ns)) { /* its node stays until the core has the answer */
        is_held = false;
        claim->ends_ns = now_ns;
        claims_sweep_by(driver, now_ns + NS_PER_MS);
    } else if (was_held && !is_held)
        claim_drop(driver, claim);
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
    struct claim *claim = op_claim(op);
    claim->downgrade = NULL;
    claim->maybe_shared = true;
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

/* ---- the own node of a held claim ---------------------------------------------------------------------- */

/* A client of Curator asks a holder to give up by writing "__REVOKE__" into its node. Our holder keeps the lock, and
 * writes its own note again. Or the write of the base was lost: then others read a smaller token than the holder has. */
static void write_note_again(struct driver *driver, struct claim *claim,
                             const struct request *request)
{
    mortise_info ignored = {.size = sizeof(ignored)};
    if (claim->noted_base < 0 || note_read(request->text, &ignored) == claim->noted_base)
        return;
    claim_note(driver, claim);
    claim_look_by(driver, claim, session_timeout_ns(driver) / 2); /* that may be lost, too */
}

static void own_looked_at(struct driver *driver, struct request *request)
{
    struct claim *claim = claim_answered(driver, request);
    if (claim == NULL || request->to.step != claim->step || claim->state != CLAIM_HELD)
        return;
    if (request->rc == ZNONODE) {
        vanish(driver, claim);
        return;
    }
    if (request->rc != ZOK)
        claim_look_by(driver, claim, 0);
    else if (!request->watches)
        claim_look_by(driver, claim, session_timeout_ns(driver) / 2);
    if (request->rc == ZOK)
        write_note_again(driver, claim, request);
}

/* Reads the own node with a watch, if there is room for one. */
static void look_at_own(struct driver *driver, struct claim *claim)
{
    bool sent = send_get_and_watch(driver, claim->name->folder, claim->node,
                                   claim_reply(claim, own_looked_at));
    claim->pending += sent;
    claim->look_ns = MORTISE_NEVER;
    if (!sent)
        claim_look_by(driver, claim, session_timeout_ns(driver) / 2);
}

static void node_event(struct driver *driver, struct claim *claim, const char *node, bool deleted)
{
    if (claim->state == CLAIM_WAITING && (claim->crowded || strcmp(claim->before, node) == 0)) {
        if (deleted || claim->crowded)
            claim_list(driver, claim, LOOK_HERE);
        else
            claim_watch_before(driver, claim); /* the event has consumed the watch */
    } else if (claim->state == CLAIM_HELD && strcmp(claim->node, node) == 0) {
        if (deleted)
            vanish(driver, claim);
        else
            look_at_own(driver, claim);
    }
}

void lease_node_event(struct driver *driver, const char *path, bool deleted)
{
    const char *node;
    struct claim *claim, *next;
    if (base_event(driver, path))
        return;
    for (claim = claims_of_path(driver, path, &node); claim != NULL; claim = next) {
        next = claim->next;
        node_event(driver, claim, node, deleted);
    }
}

/* ---- the session ---------------------------------------------------------------------------------------- */

static void go_on(struct driver *driver, struct claim *claim)
{
    if (claim->state == CLAIM_HELD && claim->look_ns <= now_of(driver))
        look_at_own(driver, claim);
    else if (claim->state != CLAIM_HELD && claim->state != CLAIM_GONE)
        claim_go(driver, claim);
}

static void doubt_held(struct driver *driver, struct claim *claim)
{
    if (claim->state == CLAIM_HELD)
        claim_tell(driver, claim);
}

/* A client that is cut off gets no events, so the sweep at the deadline makes the core renew, and get LOST. */
static void watch_deadline(struct driver *driver)
{
    int64_t now_ns = now_of(driver);
    if (fell_short(driver, now_ns))
        claims_each(driver, doubt_held);
    else if (now_ns < session_told(driver))
        claims_sweep_by(driver, session_deadline(driver));
}

void lease_connected(struct driver *driver)
{
    base_connected(driver);
    claims_each(driver, go_on);
    watch_deadline(driver);
}

static void look_again(struct driver *driver, struct claim *claim)
{
    (void)driver;
    if (claim->state == CLAIM_HELD)
        claim->look_ns = 0;
}

/* The missed event may have been the end of a held claim's node, which no watch reports again: go_on() looks, or the
 * next sweep. Or the base of the tokens was raised. */
void lease_event_missed(struct driver *driver)
{
    base_changed(driver);
    claims_each(driver, look_again);
}

void lease_suspended(struct driver *driver)
{
    driver->suspects = true;
    claims_each(driver, doubt_held);
}

static void grant_if_ready(struct driver *driver, struct claim *claim)
{
    if (claim->op != NULL && (claim->state == CLAIM_READY || claim->state == CLAIM_HELD))
        claim_grant(driver, claim);
}

void lease_proven(struct driver *driver)
{
    bool were_suspects = driver->suspects;
    claims_each(driver, grant_if_ready);
    if (!were_suspects || !is_connected(driver))
        return;
    driver->suspects = false;
    claims_each(driver, doubt_held); /* the core checks, and finds that all is well */
}

/* Fails the acquire of a caller that has waited too long for a connection. Its claim may have a node, so the claim waits
 * for a ttl for the core to ask again. */
static void tell_away(struct driver *driver, struct claim *claim)
{
    mortise_op *op = claim->op;
    bool is_sent = claim_is_sent(claim);
    if (op == NULL || !session_is_away(driver, claim->asked_ns))
        return;
    claim->op = NULL;
    fault_unreachable(driver, op, is_sent ? MORTISE_INDETERMINATE : MORTISE_UNREACHABLE);
    if (!is_sent || !claim_is_wanted(claim)) {
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

/* The session in which it has a node has ended: that node is gone, and no request of it is executed any more. */
static void session_ended(struct driver *driver, struct claim *claim)
{
    if (claim_is_wanted(claim)) {
        claim->node[0] = '\0';
        claim->made_in = 0;
        claim_become(driver, claim, CLAIM_IDLE);
    } else if (claim->state == CLAIM_HELD)
        vanish(driver, claim);
    else if (claim->state == CLAIM_GONE)
        claim->node[0] = '\0';
    else if (claim_is_unwanted(claim))
        claim_end(driver, claim, MORTISE_OK); /* the node was there until then */
}

/* The claim's node, if it has one, may still exist: its session was abandoned, now or before. */
static void session_abandoned(struct driver *driver, struct claim *claim)
{
    if (claim->state == CLAIM_MAKING)
        claim_become(driver, claim, CLAIM_UNCERTAIN);
    else if (claim_is_wanted(claim) && claim->state != CLAIM_UNCERTAIN)
        claim_become(driver, claim, CLAIM_IDLE);
    else if (claim->state == CLAIM_HELD) {
        claim_become(driver, claim, CLAIM_REDELETING);
        claim_tell(driver, claim);
    } else if (claim->state == CLAIM_DELETING)
        claim_become(driver, claim, CLAIM_REDELETING);
    else if (claim->state == CLAIM_UNWANTED)
        claim_become(driver, claim, CLAIM_SEARCHING);
}

/* A claim whose session is over goes through a new gate. */
static void leave_gate(struct driver *driver, struct claim *claim)
{
    if (claim->opens == NULL)
        return;
    claim_part(claim->opens, claim);
    claim_drop(driver, claim);
}

static void begin_anew(struct driver *driver, struct claim *claim)
{
    claim->step++;
    claim->retry_ns = 0;
    if (claim->made_in == driver->session_number)
        session_ended(driver, claim);
    else
        session_abandoned(driver, claim);
}

static void leave_behind(struct driver *driver, struct claim *claim)
{
    claim->step++;
    claim->retry_ns = 0;
    session_abandoned(driver, claim);
}

void lease_session_over(struct driver *driver, bool abandoned)
{
    claims_each(driver, leave_gate);
    claims_each(driver, abandoned ? leave_behind : begin_anew);
}

/* ---- time ----------------------------------------------------------------------------------------------- */

/* Whether only nodes are left that may not be deleted, and at least one of them ends with this session. */
static bool are_stuck(const struct driver *driver)
{
    bool stuck = false;
    if (driver->refused_claims == 0 || driver->queries != NULL || !is_connected(driver))
        return false;
    for (struct name *name = driver->names; name != NULL; name = name->hh.next)
        for (struct claim *claim = name->claims; claim != NULL; claim = claim->next) {
            if (claim->state != CLAIM_REFUSED)
                return false;
            stuck |= claim->made_in == driver->session->number;
        }
    return stuck;
}

/* Tries again, unless a request is on its way or there is no connection; then the claim keeps waiting. */
static void retry(struct driver *driver, struct claim *claim)
{
    claims_sweep_by(driver, now_of(driver) + SWEEP_AGAIN_NS);
    if (claim->pending == 0)
        claim_go(driver, claim);
}

static void sweep_one(struct driver *driver, struct claim *claim)
{
    int64_t now_ns = now_of(driver);
    bool is_over = claim->ends_ns <= now_ns;
    if (claim->retry_ns > now_ns)
        claims_sweep_by(driver, claim->retry_ns);
    if (claim_is_unwanted(claim)) {
        if (claim->retry_ns <= now_ns)
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
        look_at_own(driver, claim);
    else if (claim_is_wanted(claim) && claim->retry_ns != 0 && claim->retry_ns <= now_ns)
        retry(driver, claim);
}

/* Looks at all claims. Drops those whose ttl has passed without a renewal: their leases were LOST at their deadlines. */
void lease_sweep(struct driver *driver, int64_t now_ns)
{
    if (now_ns < driver->sweep_ns)
        return;
    driver->sweep_ns = MORTISE_NEVER;
    if (are_stuck(driver))
        session_abandon(driver);
    claims_each(driver, sweep_one);
    watch_deadline(driver);
}
