/* presence.c - the presence on one side: a lock with a name of its own, under this client's note. protocol.h (3).
 *
 *   none ── taken ──▶ had ── renewed ──▶ had, D moves
 *            │ reply lost: maybe. Taken again under the same grant, which brings the first sending's instant: D may have
 *            │             passed by then, and it is renewed at once
 *            ▼
 *           had ── D passes ──▶ lapsed: renewed at the next registration, which moves D if the server has it still, or says LOST
 *                ── LOST ─────▶ none; before D: all grants are lost with it
 *           had ── given back ──▶ none; no answer, or one that is not sure: leftover. It may stand until its ttl ends, or a
 *                                 late request may take it yet, in this client's own way: it is asked back again before
 *                                 another is taken. (Not taken under the same grant: the late request would take that away.)
 *
 * Here is no decision about who may live: that is register.c. */
#include "internal.h"

#include <string.h>

#define RETRY_MIN_NS (20 * NS_PER_MS)

static void answered(struct ask *ask);

void presence_init(struct migrate *migrate, enum migrate_side which, const char *client_id)
{
    struct side *side = &migrate->sides[which];
    struct presence *presence = &side->presence;
    char name[MIGRATE_NAME_SIZE];
    migrate_presence_name(migrate->phase, client_id, name);
    memcpy(presence->name, side->prefix, side->prefix_len);
    memcpy(presence->name + side->prefix_len, name, strlen(name) + 1);
    presence->name_len = side->prefix_len + strlen(name);
    presence->ask =
        (struct ask){.migrate = migrate, .side = which, .answered = answered, .of = presence};
    presence->renew_ns = MORTISE_NEVER;
}

bool presence_is_good(const struct presence *presence, int64_t now_ns)
{
    return presence->had && now_ns < presence->deadline_ns;
}

/* ---- asking ------------------------------------------------------------------------------------ */

static void prepare(struct presence *presence, mortise_op_kind kind)
{
    mortise_op *op = &presence->ask.op;
    ask_prepare(&presence->ask, kind);
    op->name = presence->name;
    op->name_len = presence->name_len;
    op->grant = presence->grant;
    op->ttl_ms = presence->ask.migrate->presence_ms;
    op->token = presence->token;
}

static void take(struct presence *presence)
{
    struct migrate *migrate = presence->ask.migrate;
    if (!presence->maybe) {
        migrate->host->random(migrate->host, &presence->grant, sizeof(presence->grant));
        presence->first_sent_ns = 0;
        presence->token = 0;
    }
    prepare(presence, MORTISE_OP_ACQUIRE);
    presence->ask.op.flags = MORTISE_OP_TRY | (presence->maybe ? MORTISE_OP_REPEAT : 0u);
    presence->ask.op.first_sent_ns = presence->first_sent_ns;
    ask_send(&presence->ask);
}

static void renew(struct presence *presence)
{
    presence->renew_ns = MORTISE_NEVER; /* set by the answer */
    prepare(presence, MORTISE_OP_RENEW);
    ask_send(&presence->ask);
}

static void release(struct presence *presence)
{
    presence->deadline_ns = 0;
    presence->renew_ns = MORTISE_NEVER;
    prepare(presence, MORTISE_OP_RELEASE);
    presence->ask.op.flags = presence->leftover ? MORTISE_OP_REPEAT : 0u;
    ask_send(&presence->ask);
}

void presence_want(struct migrate *migrate, enum migrate_side side)
{
    struct presence *presence = &migrate->sides[side].presence;
    if (presence->ask.out)
        return; /* its answer will do, or brings us here again */
    if (presence->leftover)
        release(presence);
    else if (presence->had)
        renew(presence);
    else
        take(presence);
}

bool presence_give_back(struct migrate *migrate, enum migrate_side side)
{
    struct presence *presence = &migrate->sides[side].presence;
    if (presence->ask.out) {
        presence->again = true;
        if (presence->ask.op.kind != MORTISE_OP_RELEASE)
            ask_cancel(&presence->ask);
        return true;
    }
    if (!presence->maybe)
        return false;
    release(presence);
    return true;
}

/* ---- answers ----------------------------------------------------------------------------------- */

static void good(struct presence *presence, const mortise_op *op)
{
    struct migrate *migrate = presence->ask.migrate;
    int64_t deadline_ns = deadline_of(op->from_ns, op->good_for_ms);
    if (!presence_is_good(presence, now_of(migrate)))
        migrate
            ->lapses++; /* in between somebody may have stepped: who was registered is not any more */
    presence->maybe = presence->had = true;
    presence->failures = 0;
    presence->span_ms = op->good_for_ms;
    if (deadline_ns > presence->deadline_ns)
        presence->deadline_ns = deadline_ns;
    presence->renew_ns = op->from_ns + op->good_for_ms * NS_PER_MS / 3;
    due_at(migrate, presence->renew_ns);
}

static void gone(struct presence *presence)
{
    bool good = presence_is_good(presence, now_of(presence->ask.migrate));
    presence->maybe = presence->had = false;
    presence->deadline_ns = 0;
    presence->renew_ns = MORTISE_NEVER;
    if (good)
        register_lost(presence->ask.migrate);
}

/* Tried again, soon at first; while it is good, for after that there is nothing to be kept. */
static void renewal_failed(struct presence *presence)
{
    struct migrate *migrate = presence->ask.migrate;
    int64_t span_ns = presence->span_ms * NS_PER_MS, now_ns = now_of(migrate);
    int64_t wait_ns = RETRY_MIN_NS << (presence->failures < 6 ? presence->failures : 6);
    presence->failures++;
    if (wait_ns > span_ns / 6)
        wait_ns = span_ns / 6 > RETRY_MIN_NS ? span_ns / 6 : RETRY_MIN_NS;
    presence->renew_ns = presence_is_good(presence, now_ns) ? now_ns + wait_ns : MORTISE_NEVER;
    due_at(migrate, presence->renew_ns);
}

static void taken(struct presence *presence, const mortise_op *op)
{
    if (op->first_sent_ns != 0 && presence->first_sent_ns == 0)
        presence->first_sent_ns = op->first_sent_ns;
    if (op->status == MORTISE_OK) {
        presence->token = op->token;
        floor_learn(presence->ask.migrate, presence->ask.side, op->token);
        good(presence, op);
    } else if (op->status == MORTISE_INDETERMINATE) {
        presence->maybe = true;
    } else if (op->status == MORTISE_BUSY && presence->maybe) {
        /* The name is this client's own. So the driver's undo of the first request may still be on its way, and would
         * delete what the same grant acquires now: release it, and use another grant. */
        presence->leftover = true;
    }
}

static void renewed(struct presence *presence, const mortise_op *op)
{
    if (op->status == MORTISE_OK)
        good(presence, op);
    else if (op->status == MORTISE_LOST || op->status == MORTISE_NOTOWNER)
        gone(presence);
    else
        renewal_failed(presence);
}

/* Given back, or left over: it does not count for us in either case. */
static void released(struct presence *presence)
{
    presence->maybe = presence->leftover = !ask_is_sure(&presence->ask);
    presence->had = false;
    presence->deadline_ns = 0;
}

static void answered(struct ask *ask)
{
    struct presence *presence = ask->of;
    struct migrate *migrate = ask->migrate;
    const mortise_op *op = &ask->op;
    bool again = presence->again;
    presence->again = false;
    if (op->kind == MORTISE_OP_RELEASE) {
        released(presence);
        register_presence(migrate, ask->side);
        register_left(migrate);
        return;
    }
    if (op->kind == MORTISE_OP_ACQUIRE)
        taken(presence, op);
    else
        renewed(presence, op);
    if (again && presence_give_back(migrate, ask->side))
        return;
    if (again)
        register_left(migrate);
    else
        register_presence(migrate, ask->side);
}

/* ---- time -------------------------------------------------------------------------------------- */

void presence_renew_along(struct migrate *migrate)
{
    int64_t now_ns = now_of(migrate);
    for (size_t i = 0; i < migrate->leg_count; i++) {
        struct presence *presence = &migrate->sides[migrate->legs[i]].presence;
        int64_t early_ns = presence->span_ms * NS_PER_MS / 6;
        if (!presence->ask.out && presence->failures == 0 && presence->had &&
            presence->renew_ns != MORTISE_NEVER && now_ns >= presence->renew_ns - early_ns)
            renew(presence);
    }
}

void presence_turn(struct migrate *migrate, int64_t now_ns)
{
    for (size_t i = 0; i < migrate->leg_count; i++) {
        struct presence *presence = &migrate->sides[migrate->legs[i]].presence;
        if (presence->renew_ns != MORTISE_NEVER && now_ns >= presence->renew_ns &&
            !presence->ask.out)
            renew(presence);
        due_at(migrate, presence->renew_ns);
    }
}
