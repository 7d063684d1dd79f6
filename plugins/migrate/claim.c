/* claim.c - what this client has, or may have, on either side under a grant of the core. The core knows one grant id, but each
 * try on a side has a grant id of its own, because a side may remember, and undo later, a grant that was released.
 *
 * A claim exists from before the first request of an acquire until the sides hold nothing of it, and no request can change
 * that any more. If the core will not ask for a claim again (the presence that it depends on is lost, or the other side's part
 * is lost), it is *dropped*: released here, again and again until that is sure, or its time is over. */
#include "internal.h"

#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#define AGAIN_NS (500 * NS_PER_MS)
#define SWEEP_MIN 1024
#define LEFT_NS (60 * 1000 * NS_PER_MS) /* after a claim's time: no request for it comes any more */

static void drop_answered(struct ask *ask);

void claim_grant_of_try(const struct migrate *migrate, enum migrate_side side,
                        const mortise_grant_id *core, unsigned number, mortise_grant_id *grant)
{
    *grant = *core;
    grant->bytes[0] = (unsigned char)(grant->bytes[0] + number); /* 119 random bits are left */
    if (side != migrate->legs[migrate->leg_count - 1])
        grant->bytes[1] ^= 1; /* the last leg keeps the core's, which inspect and list report */
}

struct claim *claim_find(struct migrate *migrate, const mortise_grant_id *grant)
{
    struct claim *claim;
    HASH_FIND(hh, migrate->claims, grant, sizeof(*grant), claim);
    return claim;
}

/* Forgets claims that have ended by themselves: nothing reports the end of a lease that was left to its ttl. */
static void sweep(struct migrate *migrate)
{
    struct claim *claim, *next;
    int64_t now_ns = now_of(migrate);
    if (HASH_COUNT(migrate->claims) < SWEEP_MIN ||
        HASH_COUNT(migrate->claims) < 2 * migrate->claims_swept)
        return;
    HASH_ITER (hh, migrate->claims, claim, next) {
        if (!claim->busy && !claim->dropped && now_ns > claim->until_ns + LEFT_NS)
            claim_forget(claim);
    }
    migrate->claims_swept = HASH_COUNT(migrate->claims);
}

struct claim *claim_make(struct migrate *migrate, const mortise_op *op)
{
    size_t prefix_len = migrate->sides[migrate->legs[0]].prefix_len;
    size_t name_len = op->name_len - prefix_len;
    sweep(migrate);
    struct claim *claim = calloc(1, sizeof(*claim) + name_len + op->owner_len);
    if (claim == NULL)
        return NULL;
    claim->migrate = migrate;
    claim->grant = op->grant;
    claim->ttl_ms = op->ttl_ms;
    claim->name_len = name_len;
    memcpy(claim->texts, op->name + prefix_len, name_len);
    if (op->owner_len > 0) {
        claim->owner = claim->texts + name_len;
        claim->owner_len = op->owner_len;
        memcpy(claim->texts + name_len, op->owner, op->owner_len);
    }
    for (size_t i = 0; i < SIDES; i++) {
        claim->drops[i] =
            (struct ask){.migrate = migrate, .side = i, .answered = drop_answered, .of = claim};
        if ((op->flags & MORTISE_OP_REPEAT) !=
            0) /* earlier tries were held, and released since; their grant ids are unknown */
            claim->legs[i].tries = TRIES_NAMED + 1;
    }
    HASH_ADD(hh, migrate->claims, grant, sizeof(claim->grant), claim);
    if (claim->hh.tbl == NULL) {
        free(claim);
        return NULL;
    }
    return claim;
}

bool claim_is_clean(const struct claim *claim)
{
    return !claim->legs[MIGRATE_FROM].maybe && !claim->legs[MIGRATE_TO].maybe;
}

bool claim_is_asked_back(const struct claim *claim)
{
    for (size_t i = 0; i < SIDES; i++)
        if (claim->legs[i].maybe && claim->legs[i].asked_back)
            return true;
    return false;
}

void claim_forget(struct claim *claim)
{
    HASH_DELETE(hh, claim->migrate->claims, claim);
    if (claim->dropped)
        DL_DELETE2(claim->migrate->dropped, claim, previous, next);
    free(claim);
}

/* No request makes the claim end earlier: if a renewal only checks the claim, it asks for the time that is left until the
 * lease's deadline, and the server never shortens what it has. */
void claim_may_last(struct claim *claim, int64_t ttl_ms)
{
    int64_t until_ns = now_of(claim->migrate) + ttl_ms * NS_PER_MS;
    if (until_ns > claim->until_ns)
        claim->until_ns = until_ns;
}

void claim_leave(struct claim *claim)
{
    claim->busy = false;
    claim->renewal = NULL;
    if (claim_is_clean(claim))
        claim_forget(claim);
}

/* ---- giving a leg back --------------------------------------------------------------------------- */

void leg_prepare_release(struct claim *claim, enum migrate_side side, struct ask *ask,
                         const char *name, size_t name_len)
{
    struct leg *leg = &claim->legs[side];
    leg->asked_back = true;
    ask_prepare(ask, MORTISE_OP_RELEASE);
    ask->op.name = name;
    ask->op.name_len = name_len;
    ask->op.owner = claim->owner;
    ask->op.owner_len = claim->owner_len;
    ask->op.grant = leg->grant;
    ask->op.token = leg->token;
    ask->op.flags = leg->held ? 0u : MORTISE_OP_REPEAT;
}

bool leg_released(struct leg *leg, const struct ask *ask, bool *was)
{
    mortise_status status = ask->op.status;
    if (was != NULL)
        *was = status == MORTISE_OK;
    if (status == MORTISE_OK)
        leg->held = false; /* but a late request may still bring it back */
    if (!ask_is_sure(ask))
        return false;
    leg->maybe = leg->held = false;
    return true;
}

/* ---- dropping ------------------------------------------------------------------------------------ */

/* Sends the release of one leg. The name, with the side's namespace, is in a buffer that is kept until the answer. */
static bool drop_leg(struct claim *claim, enum migrate_side which)
{
    const struct side *side = &claim->migrate->sides[which];
    struct ask *ask = &claim->drops[which];
    if (!claim->legs[which].maybe || ask->out)
        return ask->out;
    char *name = malloc(side->prefix_len + claim->name_len);
    if (name == NULL)
        return false; /* again later */
    memcpy(name, side->prefix, side->prefix_len);
    memcpy(name + side->prefix_len, claim->texts, claim->name_len);
    leg_prepare_release(claim, which, ask, name, side->prefix_len + claim->name_len);
    ask_send(ask);
    return true;
}

static void drop_go_on(struct claim *claim)
{
    struct migrate *migrate = claim->migrate;
    int64_t now_ns = now_of(migrate);
    if (claim->drops[MIGRATE_FROM].out || claim->drops[MIGRATE_TO].out)
        return;
    if (claim_is_clean(claim) || now_ns > claim->until_ns) {
        claim_forget(claim);
        return;
    }
    if (migrate->drop_ended != NULL)
        return; /* the client closes, so there is no further try */
    claim->again_ns = now_ns + AGAIN_NS;
    due_at(migrate, claim->again_ns);
}

static void drop_answered(struct ask *ask)
{
    struct claim *claim = ask->of;
    struct migrate *migrate = ask->migrate;
    free((char *)(uintptr_t)ask->op.name);
    ask->op.name = NULL;
    leg_released(&claim->legs[ask->side], ask, NULL);
    drop_go_on(claim);
    if (migrate->drop_ended != NULL)
        migrate->drop_ended(migrate);
}

static void try_drop(struct claim *claim)
{
    claim->again_ns = 0;
    bool to = drop_leg(claim, MIGRATE_TO), from = drop_leg(claim, MIGRATE_FROM);
    if (!to && !from)
        drop_go_on(claim);
}

void claim_drop(struct claim *claim)
{
    if (claim->dropped)
        return;
    claim->dropped = true;
    claim->busy = false;
    claim->renewal = NULL;
    DL_APPEND2(claim->migrate->dropped, claim, previous, next);
    try_drop(claim);
}

void claims_turn(struct migrate *migrate, int64_t now_ns)
{
    struct claim *claim, *next;
    DL_FOREACH_SAFE2(migrate->dropped, claim, next, next)
    {
        if (claim->again_ns != 0 && now_ns >= claim->again_ns)
            try_drop(claim);
        else if (claim->again_ns != 0)
            due_at(migrate, claim->again_ns);
    }
}

void claims_leave(struct migrate *migrate, void (*drop_ended)(struct migrate *migrate))
{
    struct claim *claim, *next;
    migrate->drop_ended = drop_ended;
    DL_FOREACH_SAFE2(migrate->dropped, claim, next, next)
    {
        if (claim->again_ns != 0)
            try_drop(claim);
    }
}

bool claims_are_out(const struct migrate *migrate)
{
    for (const struct claim *claim = migrate->dropped; claim != NULL; claim = claim->next)
        if (claim->drops[MIGRATE_FROM].out || claim->drops[MIGRATE_TO].out)
            return true;
    return false;
}

void claims_cancel(struct migrate *migrate)
{
    for (struct claim *claim = migrate->dropped; claim != NULL; claim = claim->next)
        for (size_t i = 0; i < SIDES; i++)
            ask_cancel(&claim->drops[i]);
}

void claims_end(struct migrate *migrate)
{
    struct claim *claim, *next;
    HASH_ITER (hh, migrate->claims, claim, next) {
        for (size_t i = 0; i < SIDES; i++) {
            ask_cancel(&claim->drops[i]);
            free((char *)(uintptr_t)claim->drops[i].op.name);
        }
        claim_forget(claim);
    }
}
