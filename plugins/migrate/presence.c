/* presence.c - the presence on one side: a lock with a name of its own and with this client's note. See protocol.h (3).
 *
 *   none ── acquired ──▶ held ── renewed ──▶ held, D moves
 *            │ reply lost: maybe. Acquired again under the same grant, with the instant of the first sending; if D has passed
 *            │             by then, it is renewed at once
 *            ▼
 *           held ── D passes ──▶ lapsed: renewed at the next registration. That moves D if the server still has it; else LOST
 *                ── LOST ─────▶ none; before D, all grants are lost with it
 *                ── another presence of this client is not good, and no call waits to register ──▶ not renewed: it ends with its
 *                                ttl, or the next registration renews it
 *           held ── released ──▶ none. If there is no answer, or it is not sure: leftover. The presence may exist until its ttl
 *                                ends, or a late request may still acquire it, and this client would block itself. So it is
 *                                released again before another presence is acquired. That one has another grant, because the
 *                                late release would end a presence under the same grant.
 *
 * presence.c does not decide which presences are needed. The registration above it does, and passes a table of functions
 * that presence.c calls at each change (struct presence_events). */
#include "internal.h"

#include <string.h>

#define RETRY_MIN_NS (20 * NS_PER_MS)

static void answered(struct ask *ask);

void presence_init(struct migrate *migrate, enum migrate_side which, const char *client_id,
                   const struct presence_events *events)
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
    presence->events = events;
}

bool presence_is_good(const struct presence *presence, int64_t now_ns)
{
    return presence->had && now_ns < presence->deadline_ns;
}

bool presence_is_kept(const struct presence *presence, int64_t now_ns)
{
    return presence_is_good(presence, now_ns) &&
           (presence->ask.out || presence->renew_ns != MORTISE_NEVER);
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
        return; /* a request is out: its answer is enough, or leads here again */
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

void presence_stop(struct migrate *migrate, enum migrate_side side)
{
    struct presence *presence = &migrate->sides[side].presence;
    presence->stopped = true;
    presence->renew_ns = MORTISE_NEVER;
    ask_cancel(&presence->ask);
}

/* ---- answers ----------------------------------------------------------------------------------- */

static void good(struct presence *presence, const mortise_op *op)
{
    struct migrate *migrate = presence->ask.migrate;
    int64_t deadline_ns = deadline_of(op->from_ns, op->good_for_ms);
    if (!presence_is_good(presence, now_of(migrate)))
        migrate
            ->lapses++; /* a step may have been taken in between: this client must register again */
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
        presence->events->lost(presence->ask.migrate);
}

/* Tries again, soon at first, but only while the presence is good: after that, the next registration renews it. */
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

/* The presence was released, or is left over: in either case the client is not registered by it any more. */
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
        presence->events->answered(migrate, ask->side);
        presence->events->given_back(migrate);
        return;
    }
    if (op->kind == MORTISE_OP_ACQUIRE)
        taken(presence, op);
    else
        renewed(presence, op);
    if (presence->stopped)
        presence->renew_ns = MORTISE_NEVER;
    if (again && !presence->stopped && presence_give_back(migrate, ask->side))
        return;
    if (again)
        presence->events->given_back(migrate);
    else
        presence->events->answered(migrate, ask->side);
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

void presence_turn(struct migrate *migrate, int64_t now_ns, bool wanted)
{
    for (size_t i = 0; i < migrate->leg_count; i++) {
        struct presence *presence = &migrate->sides[migrate->legs[i]].presence;
        bool due = presence->renew_ns != MORTISE_NEVER && now_ns >= presence->renew_ns &&
                   !presence->ask.out;
        if (due && wanted)
            renew(presence);
        else if (due)
            presence->renew_ns = MORTISE_NEVER;
        due_at(migrate, presence->renew_ns);
    }
}
