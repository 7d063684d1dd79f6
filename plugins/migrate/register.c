/* register.c - the registration: presences first, then the registers, then the decision. protocol.h (4).
 *
 *   IDLE ── an acquire comes, and D has passed ──▶ TAKE ── all presences are good ──▶ READ ── registers are read ──┐
 *    ▲                                              ▲ │ one cannot be taken: all waiting calls fail, UNREACHABLE    │
 *    │                                              │ ▼                                                             ▼
 *    │                                              │ IDLE                                                     allowed?
 *    │                                              └── a presence lapsed since TAKE ◀─────────────────────────── yes, no
 *    ├── all waiting calls go on ◀── registered ◀──────────────────────────────────────────────────────────────┘    │
 *    └── LEAVE ◀── all waiting calls fail, CONFIG ◀── NAME: which clients are in the way? (a second at most) ◀──────┘
 *                                                     or that is known already (meet.c)
 *
 * When the client closes, LEAVE ends when nothing is out any more: neither a presence nor a release of what was dropped.
 *
 * Two answers are optional: the register of `to` for a client of phase old, and the names of the clients in the way. The
 * registration waits for them no longer than GRACE. Calls that wait for it are those of the acquire above, which passes a
 * table of functions (struct register_events). */
#include "internal.h"

#include <stdio.h>
#include <string.h>
#include <utlist.h>

#define GRACE_NS (1000 * NS_PER_MS)

static void begin(struct migrate *migrate);
static void begin_reading(struct migrate *migrate);
static void decide(struct migrate *migrate);
static void left(struct migrate *migrate);

static struct side *leg(struct migrate *migrate, size_t i)
{
    return &migrate->sides[migrate->legs[i]];
}

int64_t registered_until(const struct migrate *migrate)
{
    int64_t until_ns = MORTISE_NEVER;
    for (size_t i = 0; i < migrate->leg_count; i++) {
        const struct presence *presence = &migrate->sides[migrate->legs[i]].presence;
        if (presence->deadline_ns < until_ns)
            until_ns = presence->deadline_ns;
    }
    return until_ns;
}

static bool all_good(struct migrate *migrate)
{
    int64_t now_ns = now_of(migrate);
    for (size_t i = 0; i < migrate->leg_count; i++)
        if (!presence_is_good(&leg(migrate, i)->presence, now_ns))
            return false;
    return true;
}

bool registered(struct migrate *migrate)
{
    return migrate->here && migrate->lapses == migrate->lapses_before && all_good(migrate);
}

static void lost(struct migrate *migrate)
{
    migrate->lapses++;
    migrate->epoch++;
    migrate->here = false;
    migrate->host->log(migrate->host, 4,
                       "this client lost its presence, and so all its leases");
    migrate->host->doubt(migrate->host, NULL, 0);
}

/* ---- the end of a registration ------------------------------------------------------------------------------- */

static void all_go_on(struct migrate *migrate)
{
    struct call *call;
    migrate->registering = REGISTER_IDLE;
    while ((call = migrate->to_register) != NULL) {
        DL_DELETE2(migrate->to_register, call, previous_waiting, next_waiting);
        migrate->register_events->registered(call);
    }
}

static void all_fail(struct migrate *migrate, mortise_status status, bool retryable,
                     const char *message)
{
    struct call *call;
    while ((call = migrate->to_register) != NULL) {
        DL_DELETE2(migrate->to_register, call, previous_waiting, next_waiting);
        call_fail(call, status, retryable, "%s", message);
    }
}

/* The presence was released, but a request to take it may still be on its way. */
static bool is_unsure(const mortise_op *op)
{
    return op->kind == MORTISE_OP_RELEASE && !op->sure &&
           (op->status == MORTISE_OK || op->status == MORTISE_LOST ||
            op->status == MORTISE_NOTOWNER);
}

/* A presence has a name that only this client uses. Explains BUSY all the same. */
static const char *why_busy(const struct migrate *migrate, const struct ask *ask)
{
    if (migrate->sides[ask->side].presence.leftover)
        return "an earlier request has not been undone yet";
    return migrate->leg_count < SIDES ? "the presence of an earlier request is still there"
                                      : "the presence of an earlier request is still there, or "
                                        "`from` and `to` are the same database";
}

/* The side has no records, and the side that has its register could not be opened. */
static void cannot_without(struct migrate *migrate, enum migrate_side side)
{
    char text[96], others[96], message[700];
    snprintf(message, sizeof(message),
             "migrate: the register of %s, which keeps no records, is on %s, which could not be "
             "opened: %s",
             side_text(migrate, side, text, sizeof(text)),
             side_text(migrate, other_side(side), others, sizeof(others)),
             migrate->sides[other_side(side)].why);
    migrate->registering = REGISTER_IDLE;
    all_fail(migrate, MORTISE_CONFIG, false, message);
}

/* The side could not be asked, or has refused. */
static void cannot(struct migrate *migrate, const struct ask *ask, const char *what)
{
    char text[96], message[700];
    const mortise_op *op = &ask->op;
    mortise_status status = op->status;
    bool passing = status == MORTISE_UNREACHABLE || status == MORTISE_INDETERMINATE ||
                   status == MORTISE_CANCELED || status == MORTISE_TIMEDOUT ||
                   status == MORTISE_BUSY || status == MORTISE_OK || is_unsure(op);
    snprintf(message, sizeof(message), "migrate: %s %s: %.400s", what,
             side_text(migrate, ask->side, text, sizeof(text)),
             status == MORTISE_BUSY ? why_busy(migrate, ask)
             : is_unsure(op)        ? "an earlier presence may still be taken by a late request"
             : op->error != NULL    ? op->error->message
                                    : "no answer");
    migrate->registering = REGISTER_IDLE;
    if (status == MORTISE_NOTSUP) /* neither side keeps records */
        status = MORTISE_CONFIG;
    all_fail(migrate, passing ? MORTISE_UNREACHABLE : status,
             passing || (op->error != NULL && op->error->retryable), message);
}

/* ---- (i) ------------------------------------------------------------------------------------------ */

static bool failed(const struct presence *presence)
{
    const mortise_op *op = &presence->ask.op;
    if (op->kind == MORTISE_OP_RENEW)
        return op->status != MORTISE_OK && op->status != MORTISE_LOST &&
               op->status != MORTISE_NOTOWNER;
    if (op->kind == MORTISE_OP_RELEASE)
        return presence->leftover;
    return op->kind == MORTISE_OP_ACQUIRE && op->status != MORTISE_OK;
}

static bool any_out(struct migrate *migrate)
{
    for (size_t i = 0; i < migrate->leg_count; i++)
        if (leg(migrate, i)->presence.ask.out)
            return true;
    return false;
}

static void begin(struct migrate *migrate)
{
    int64_t now_ns = now_of(migrate);
    migrate->here = false;
    if (migrate->to_register == NULL) {
        migrate->registering = REGISTER_IDLE;
        return;
    }
    migrate->registering = REGISTER_TAKE;
    for (size_t i = 0; i < migrate->leg_count; i++)
        if (!presence_is_kept(&leg(migrate, i)->presence, now_ns))
            presence_want(migrate, migrate->legs[i]);
    if (!any_out(migrate) && all_good(migrate))
        begin_reading(migrate);
}

void register_want(struct migrate *migrate)
{
    if (migrate->registering == REGISTER_IDLE)
        begin(migrate);
}

/* True if all presences are good, or a registration makes them good. A presence on one side does not register a client. If it
 * were renewed, a client that has nothing to do would stay there forever; a step would take it for a client of another migration,
 * and wait. */
bool register_wants_presences(struct migrate *migrate)
{
    return migrate->registering != REGISTER_IDLE || migrate->to_register != NULL ||
           all_good(migrate);
}

static void presence_answered(struct migrate *migrate, enum migrate_side side)
{
    struct presence *presence = &migrate->sides[side].presence;
    if (migrate->registering != REGISTER_TAKE)
        return;
    if (failed(presence) && !presence_is_good(presence, now_of(migrate)))
        cannot(migrate, &presence->ask, "cannot register this client's presence on");
    else if (!any_out(migrate))
        begin(migrate); /* asks again for presences that are not good, or goes on to (ii) */
}

/* ---- (ii) ----------------------------------------------------------------------------------------- */

static struct side *side_of(struct ask *reader)
{
    return reader->of;
}

static void read_register(struct side *side)
{
    struct ask *reader = &side->reader;
    struct migrate *migrate = reader->migrate;
    enum migrate_side own = side == &migrate->sides[MIGRATE_FROM] ? MIGRATE_FROM : MIGRATE_TO;
    reader->side = side->elsewhere ? other_side(own) : own;
    const struct side *where = &migrate->sides[reader->side];
    snprintf(side->register_name, sizeof(side->register_name), "%s%s", where->prefix,
             migrate_register_name(own));
    ask_prepare(reader, MORTISE_OP_READ);
    reader->op.name = side->register_name;
    reader->op.name_len = strlen(side->register_name);
    reader->op.buffer = side->text;
    reader->op.buffer_size = sizeof(side->text);
    ask_send(reader);
}

static void begin_reading(struct migrate *migrate)
{
    migrate->registering = REGISTER_READ;
    migrate->lapses_before = migrate->lapses;
    migrate->grace_ns = 0;
    for (size_t i = 0; i < SIDES; i++) {
        struct side *side = &migrate->sides[i];
        bool wanted = side->used || migrate->phase == MIGRATE_OLD;
        side->read = false;
        side->stale = side->reader.out;
        if (wanted && side->below != NULL && !side->reader.out)
            read_register(side);
    }
}

/* Goes on when all required answers have come, and the optional ones have come or GRACE is over. */
static void look_whether_read(struct migrate *migrate)
{
    bool optional = false;
    for (size_t i = 0; i < SIDES; i++) {
        struct side *side = &migrate->sides[i];
        if (side->reader.out && side->used)
            return;
        optional |= side->reader.out;
    }
    if (!optional) {
        decide(migrate);
    } else if (migrate->grace_ns == 0) {
        migrate->grace_ns = now_of(migrate) + GRACE_NS;
        due_at(migrate, migrate->grace_ns);
    }
}

static void read_answered(struct ask *reader)
{
    struct migrate *migrate = reader->migrate;
    struct side *side = side_of(reader);
    const mortise_op *op = &reader->op;
    enum migrate_side own = side == &migrate->sides[MIGRATE_FROM] ? MIGRATE_FROM : MIGRATE_TO;
    if (migrate->leaving != NULL)
        left(migrate);
    if (migrate->registering != REGISTER_READ)
        return; /* too late */
    if (side->stale) {
        side->stale = false;
        read_register(side);
        look_whether_read(migrate);
        return;
    }
    if (op->status == MORTISE_NOTSUP && !side->elsewhere) {
        if (migrate->sides[other_side(own)].below != NULL) {
            side->elsewhere = true;
            read_register(side);
            return;
        }
        if (side->used) {
            cannot_without(migrate, own);
            return;
        }
    }
    if (op->status == MORTISE_OK) {
        side->read = true;
        size_t size = op->record_version == 0 ? 0 : op->record_size;
        side->understood = migrate_register_decode(own, side->text, size, &side->reg);
        if (!side->understood)
            migrate->host->log(migrate->host, 4, "%s: this version does not understand the register",
                               side->register_name);
    } else if (side->used) {
        cannot(migrate, reader, "cannot read the register on");
        return;
    }
    look_whether_read(migrate);
}

/* ---- (iii), (iv) ------------------------------------------------------------------------------------ */

static void refuse(struct migrate *migrate)
{
    char text[96], phases[MIGRATE_PHASES_TEXT_SIZE], message[700];
    migrate_phases_text(migrate->sides[migrate->refused_by].reg.phases, phases);
    snprintf(message, sizeof(message),
             "migrate: phase %s is not admitted: the register of %s admits %s%s%s; `mortise migrate "
             "plan` shows the step that must come first",
             migrate_phase_word(migrate->phase),
             side_text(migrate, migrate->refused_by, text, sizeof(text)), phases,
             migrate->meets_count > 0 ? "; this client would meet " : "",
             migrate->meets_count > 0 ? migrate->meets : "");
    migrate->registering = REGISTER_LEAVE;
    all_fail(migrate, MORTISE_CONFIG, false, message);
    for (size_t i = 0; i < migrate->leg_count; i++)
        presence_give_back(migrate, migrate->legs[i]);
    left(migrate);
}

static void met(struct migrate *migrate)
{
    if (migrate->leaving != NULL)
        left(migrate);
    else if (migrate->registering == REGISTER_NAME)
        refuse(migrate);
}

/* Finds the clients in the way. Old and new must never run at the same time; both may run beside either. */
static void name_who_is_met(struct migrate *migrate)
{
    bool asked = false;
    if (meet_is_known(migrate)) {
        refuse(migrate);
        return;
    }
    migrate->meets_count = 0;
    migrate->registering = REGISTER_NAME;
    migrate->grace_ns = now_of(migrate) + GRACE_NS;
    due_at(migrate, migrate->grace_ns);
    if (migrate->phase == MIGRATE_OLD)
        asked = meet_ask(migrate, MIGRATE_TO, MIGRATE_NEW, met);
    else if (migrate->phase == MIGRATE_NEW)
        asked = meet_ask(migrate, MIGRATE_FROM, MIGRATE_OLD, met);
    if (!asked)
        refuse(migrate);
}

/* Whether the registers admit this client. A register of `to` that this version does not understand may admit new. */
static bool is_allowed(struct migrate *migrate)
{
    const struct side *to = &migrate->sides[MIGRATE_TO];
    for (size_t i = 0; i < migrate->leg_count; i++)
        if (!migrate_allows(&leg(migrate, i)->reg, migrate->phase)) {
            migrate->refused_by = migrate->legs[i];
            return false;
        }
    migrate->refused_by = MIGRATE_TO;
    return migrate->phase != MIGRATE_OLD || !to->read ||
           (to->understood && migrate_old_may_beside(&to->reg));
}

static void decide(struct migrate *migrate)
{
    migrate->grace_ns = 0;
    if (!is_allowed(migrate)) {
        name_who_is_met(migrate);
    } else if (migrate->lapses == migrate->lapses_before && all_good(migrate)) {
        migrate->here = true;
        all_go_on(migrate);
    } else {
        begin(migrate);
    }
}

/* Whether requests are out whose answers only the close waits for: nothing may be out when the instance ends. */
static bool rest_is_out(const struct migrate *migrate)
{
    for (size_t i = 0; i < SIDES; i++)
        if (migrate->sides[i].reader.out)
            return true;
    return migrate->lister.out || claims_are_out(migrate);
}

/* Whether something is left that ends with its ttl. */
static bool is_any_left(struct migrate *migrate)
{
    for (size_t i = 0; i < migrate->leg_count; i++)
        if (leg(migrate, i)->presence.maybe)
            return true;
    return migrate->dropped != NULL;
}

static void left(struct migrate *migrate)
{
    if (migrate->registering != REGISTER_LEAVE || any_out(migrate))
        return;
    if (migrate->leaving != NULL) {
        if (rest_is_out(migrate))
            return;
        for (size_t i = 0; i < migrate->leg_count; i++)
            presence_stop(migrate, migrate->legs[i]);
        mortise_op *op = migrate->leaving;
        migrate->leaving = NULL;
        migrate->host->complete(migrate->host, op,
                                is_any_left(migrate) ? MORTISE_UNREACHABLE : MORTISE_OK);
        return;
    }
    migrate->registering = REGISTER_IDLE;
    begin(migrate);
}

static void cancel_questions(struct migrate *migrate)
{
    for (size_t i = 0; i < SIDES; i++)
        ask_cancel(&migrate->sides[i].reader);
    ask_cancel(&migrate->lister);
}

void register_leave(struct migrate *migrate, mortise_op *op)
{
    migrate->leaving = op;
    migrate->here = false;
    migrate->registering = REGISTER_LEAVE;
    cancel_questions(migrate);
    claims_leave(migrate, left);
    for (size_t i = 0; i < migrate->leg_count; i++)
        presence_give_back(migrate, migrate->legs[i]);
    left(migrate);
}

void register_leave_now(struct migrate *migrate)
{
    for (size_t i = 0; i < migrate->leg_count; i++)
        presence_stop(migrate, migrate->legs[i]);
    claims_cancel(migrate);
    left(migrate);
}

void register_turn(struct migrate *migrate, int64_t now_ns)
{
    if (migrate->grace_ns == 0)
        return;
    if (now_ns < migrate->grace_ns) {
        due_at(migrate, migrate->grace_ns);
        return;
    }
    migrate->grace_ns = 0;
    if (migrate->registering == REGISTER_NAME)
        ask_cancel(&migrate->lister);
    for (size_t i = 0; i < SIDES && migrate->registering == REGISTER_READ; i++)
        if (!migrate->sides[i].used)
            ask_cancel(&migrate->sides[i].reader);
}

void register_init(struct migrate *migrate, const char *client_id,
                   const struct register_events *events)
{
    static const struct presence_events presence_events = {
        .answered = presence_answered, .given_back = left, .lost = lost};
    migrate->register_events = events;
    for (size_t i = 0; i < migrate->leg_count; i++)
        presence_init(migrate, migrate->legs[i], client_id, &presence_events);
    for (size_t i = 0; i < SIDES; i++)
        migrate->sides[i].reader = (struct ask){
            .migrate = migrate, .side = i, .answered = read_answered, .of = &migrate->sides[i]};
}
