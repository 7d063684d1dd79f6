/* claim.c - the claims by name, their states, and the count of their calls. claim.h has the table of the states. */
#include "claim.h"

#include <stdlib.h>
#include <string.h>

#define AGAIN_NS (1000 * NS_PER_MS)
#define SLOT_MAX 0xffffff
#define LOOK_GRID_NS (100 * NS_PER_MS) /* claims that fall due together need one sweep */

/* ---- names and claims ------------------------------------------------------------------------------ */

static size_t name_key(const struct driver *driver, const mortise_op *op, char key[KEY_MAX])
{
    size_t prefix_len = strlen(driver->prefix);
    memcpy(key, driver->prefix, prefix_len);
    size_t length = prefix_len + name_write(op->name, op->name_len, key + prefix_len);
    key[length++] = '/';
    return length;
}

static struct name *name_of(struct driver *driver, const mortise_op *op, bool make)
{
    char key[KEY_MAX];
    struct name *found;
    size_t length = name_key(driver, op, key);
    HASH_FIND(hh, driver->names, key, length, found);
    if (found != NULL || !make)
        return found;
    found = calloc(1, sizeof(*found) + length);
    if (found == NULL)
        return NULL;
    memcpy(found->key, key, length);
    found->key_len = length;
    memcpy(found->name, op->name, op->name_len);
    found->name_len = op->name_len;
    HASH_ADD(hh, driver->names, key, length, found);
    if (found->hh.tbl == NULL) {
        free(found);
        return NULL;
    }
    return found;
}

static void name_free(struct driver *driver, struct name *name)
{
    HASH_DELETE(hh, driver->names, name);
    free(name);
}

/* ---- slots: see KEYS ----------------------------------------------------------------------------------- */

static uint64_t slot_bit(uint32_t slot)
{
    return slot < SLOTS ? UINT64_C(1) << slot : 0;
}

void claims_begin_series(struct driver *driver)
{
    driver->key_id.series++;
}

static uint32_t slot_take(struct driver *driver, struct name *name)
{
    uint64_t used = name->slots | driver->busy_slots;
    for (uint32_t slot = 0; slot < SLOTS; slot++)
        if ((used & slot_bit(slot)) == 0) {
            name->slots |= slot_bit(slot);
            return slot;
        }
    if (driver->next_slot < SLOTS || driver->next_slot > SLOT_MAX) {
        driver->next_slot = SLOTS;
        claims_begin_series(driver);
    }
    return driver->next_slot++;
}

static void slot_hold(struct driver *driver, uint32_t slot)
{
    if (slot < SLOTS && driver->slot_calls[slot]++ == 0)
        driver->busy_slots |= slot_bit(slot);
}

static void slot_let_go(struct driver *driver, uint32_t slot)
{
    if (slot < SLOTS && --driver->slot_calls[slot] == 0)
        driver->busy_slots &= ~slot_bit(slot);
}

void claim_cover(struct driver *driver, struct claim *claim, struct claim *other)
{
    other->covered_by = claim;
    if ((claim->covered_slots & slot_bit(other->slot)) == 0)
        slot_hold(driver, other->slot);
    claim->covered_slots |= slot_bit(other->slot);
}

/* No call of the claim is on its way any more. */
static void slots_settle(struct driver *driver, struct claim *claim)
{
    for (uint32_t slot = 0; claim->covered_slots != 0; slot++) {
        if ((claim->covered_slots & slot_bit(slot)) != 0)
            slot_let_go(driver, slot);
        claim->covered_slots &= ~slot_bit(slot);
    }
    if (claim->is_busy)
        slot_let_go(driver, claim->slot);
    claim->is_busy = false;
}

/* ---- claims ------------------------------------------------------------------------------------------- */

struct claim *claim_find(struct driver *driver, const mortise_op *op)
{
    struct name *name = name_of(driver, op, false);
    struct claim *claim = name == NULL ? NULL : name->claims;
    while (claim != NULL && memcmp(&claim->grant, &op->grant, sizeof(op->grant)) != 0)
        claim = claim->next;
    return claim;
}

struct claim *claim_new(struct driver *driver, const mortise_op *op)
{
    struct name *name = name_of(driver, op, true);
    struct claim *claim = name == NULL ? NULL : calloc(1, sizeof(*claim));
    if (claim == NULL) {
        if (name != NULL && name->claims == NULL)
            name_free(driver, name);
        return NULL;
    }
    claim->name = name;
    claim->grant = op->grant;
    if (op->mode == MORTISE_SHARED)
        claim->kind = (struct kind){.shared = true, .permits = op->permits};
    claim->slot = slot_take(driver, name);
    struct key_id id = driver->key_id;
    id.slot = claim->slot;
    claim->last_len = contender_write(claim->kind, &id, claim->last);
    claim->state = CLAIM_IDLE;
    claim->ends_ns = MORTISE_NEVER;
    claim->look_ns = MORTISE_NEVER;
    DL_APPEND(name->claims, claim);
    driver->claim_count++;
    return claim;
}

static void claim_free(struct driver *driver, struct claim *claim)
{
    DL_DELETE(driver->old_claims, claim);
    slots_settle(driver, claim);
    free(claim->watches);
    free(claim);
}

void claim_not_late(struct driver *driver, struct claim *claim)
{
    if (claim->prev_late != NULL)
        DL_DELETE2(driver->backlog, claim, prev_late, next_late);
    claim->prev_late = claim->next_late = NULL;
}

void claims_sweep_by(struct driver *driver, int64_t at_ns)
{
    if (at_ns < driver->sweep_ns)
        driver->sweep_ns = at_ns;
}

void claim_look_by(struct driver *driver, struct claim *claim, int64_t after_ns)
{
    claim->look_ns = (now_of(driver) + after_ns) / LOOK_GRID_NS * LOOK_GRID_NS + LOOK_GRID_NS;
    claims_sweep_by(driver, claim->look_ns);
}

void claim_retry(struct driver *driver, struct claim *claim, int64_t after_ns)
{
    claim->retry_ns = now_of(driver) + after_ns;
    claims_sweep_by(driver, claim->retry_ns);
}

void claim_key(const struct claim *claim, struct key *key)
{
    const struct name *name = claim->name;
    memcpy(key->text, name->key, name->key_len);
    memcpy(key->text + name->key_len, claim->last, claim->last_len);
    key->size = name->key_len + claim->last_len;
}

void claim_border(const struct claim *claim, char border, struct key *key)
{
    const struct name *name = claim->name;
    memcpy(key->text, name->key, name->key_len);
    key->size = name->key_len + (border != NAME_END);
    key->text[key->size - 1] = border;
}

void claim_tell(struct driver *driver, struct claim *claim)
{
    driver->host->doubt(driver->host, claim->name->name, claim->name->name_len);
}

/* ---- states ----------------------------------------------------------------------------------------- */

/* Adds the claim to the counters of a session, or takes it off. */
static void count(const struct claim *claim, struct session *session, unsigned by)
{
    if (session == NULL)
        return;
    session->claims += by;
    if (claim->state <= CLAIM_HELD)
        session->wanted += by;
    if (claim->state == CLAIM_UNCERTAIN || claim->state == CLAIM_DOUBTFUL)
        session->doubtful += by;
}

void claim_set_session(struct claim *claim, struct session *session)
{
    count(claim, claim->session, -1u);
    claim->session = session;
    count(claim, session, 1);
}

void claim_set_move(struct claim *claim, struct session *session)
{
    count(claim, claim->moves_to, -1u);
    claim->moves_to = session;
    count(claim, session, 1);
    if (session == NULL)
        claim->move = MOVE_NONE;
}

void claim_unwatch(struct driver *driver, struct claim *claim)
{
    for (size_t i = 0; i < claim->watch_count; i++)
        watch_stop(driver, claim->watches[i]);
    free(claim->watches);
    claim->watches = NULL;
    claim->watch_count = 0;
}

void claim_become(struct driver *driver, struct claim *claim, enum claim_state state)
{
    count(claim, claim->session, -1u);
    count(claim, claim->moves_to, -1u);
    if (claim->state == CLAIM_WAITING && state != CLAIM_WAITING)
        claim_unwatch(driver, claim);
    if (claim->state == CLAIM_HELD && state != CLAIM_HELD) {
        watch_stop(driver, claim->own_watch);
        claim->own_watch = 0;
    }
    claim->state = state;
    count(claim, claim->session, 1);
    count(claim, claim->moves_to, 1);
    if (claim->downgrade != NULL && state != CLAIM_HELD) {
        mortise_op *op = claim->downgrade;
        claim->downgrade = NULL;
        driver->host->complete(driver->host, op, MORTISE_LOST);
    }
}

void claim_uncover(struct driver *driver, struct claim *claim)
{
    struct claim *other;
    DL_FOREACH (claim->name->claims, other) {
        if (other->covered_by != claim)
            continue;
        other->covered_by = NULL;
        if (other->state == CLAIM_DELETING)
            claim_become(driver, other, CLAIM_REDELETING);
    }
}

/* A try is BUSY because somebody holds the lock, for an unknown time. Any other acquire here is a repeated one, and what
 * the first one got is lost. The core may ask again at once under another grant, and that acquire waits for its turn. */
static void answer_busy(struct driver *driver, struct claim *claim)
{
    mortise_op *op = claim->op;
    claim->op = NULL;
    op->hint_ms = (op->flags & MORTISE_OP_TRY) != 0 ? -1 : 0;
    driver->host->complete(driver->host, op, MORTISE_BUSY);
}

void claim_vanish(struct driver *driver, struct claim *claim)
{
    claim->made = false;
    claim_become(driver, claim, CLAIM_GONE);
    claim_tell(driver, claim);
    if (claim->op != NULL)
        answer_busy(driver, claim);
}

void claim_end(struct driver *driver, struct claim *claim, mortise_status status)
{
    struct name *name = claim->name;
    claim_uncover(driver, claim);
    while (claim->releases != NULL) {
        mortise_op *op = claim->releases;
        LL_DELETE(claim->releases, op);
        op->sure = true;
        driver->host->complete(driver->host, op, status);
    }
    if (claim->op != NULL)
        answer_busy(driver, claim);
    claim_not_late(driver, claim);
    claim_become(driver, claim, CLAIM_ENDED);
    claim_set_session(claim, NULL);
    claim_set_move(claim, NULL);
    DL_DELETE(name->claims, claim);
    name->slots &= ~slot_bit(claim->slot);
    claim->is_busy = claim->pending > 0;
    if (claim->is_busy)
        slot_hold(driver, claim->slot);
    if (name->claims == NULL)
        name_free(driver, name);
    claim->name = NULL;
    claim->step++;
    claim->ask++;
    driver->claim_count--;
    DL_APPEND(driver->old_claims, claim);
    if (claim->pending == 0)
        claim_free(driver, claim);
}

void claims_each(struct driver *driver, claim_visit *visit)
{
    for (struct name *name = driver->names, *next; name != NULL; name = next) {
        next = name->hh.next;
        for (struct claim *claim = name->claims, *after; claim != NULL; claim = after) {
            after = claim->next; /* NULL at the last claim, with which the name ends */
            visit(driver, claim);
        }
    }
}

static void free_one(struct driver *driver, struct claim *claim)
{
    claim->pending = 0;     /* their answers were dropped */
    claim->releases = NULL; /* all ops have been completed */
    claim->op = claim->downgrade = NULL;
    claim_end(driver, claim, MORTISE_OK);
}

void claims_free(struct driver *driver)
{
    claims_each(driver, free_one);
    while (driver->old_claims != NULL)
        claim_free(driver, driver->old_claims);
}

/* ---- calls ------------------------------------------------------------------------------------------- */

struct call *claim_begin(struct driver *driver, struct claim *claim, reply_handler *answered)
{
    return link_begin(
        &driver->link, METHOD_TXN,
        (struct reply_to){.answered = answered, .target = claim, .step = claim->step});
}

/* A call that was not sent, because there is no memory, counts as one whose reply was lost. The sweep tries again; if it
 * was an acquire, which has failed here, the sweep drops the claim. */
bool claim_send(struct driver *driver, struct claim *claim, struct call *call)
{
    mortise_op *op = claim->op;
    bool sent = call != NULL && link_send(&driver->link, call);
    claim->pending += sent;
    if (sent)
        return true;
    claim_retry(driver, claim, AGAIN_NS);
    if (op != NULL && is_connected(driver)) {
        claim->op = NULL;
        claim->ends_ns = 0;
        fault_memory(driver, op, claim->made ? MORTISE_INDETERMINATE : MORTISE_NOMEM);
    }
    return false;
}

struct claim *claim_answered(struct driver *driver, struct call *call)
{
    struct claim *claim = call->to.target;
    claim->pending--;
    bool may_be_look = claim->state == CLAIM_QUEUED; /* claim_wait() judges if that is enough */
    if (call->end != CALL_LOST && !may_be_look)
        claim->patience.away_ns = 0;
    if (claim->pending == 0)
        slots_settle(driver, claim);
    if (claim->state != CLAIM_ENDED)
        return claim;
    if (claim->pending == 0)
        claim_free(driver, claim);
    return NULL;
}

struct claim *claim_arrived(struct driver *driver, struct call *call)
{
    struct claim *claim = claim_answered(driver, call);
    return claim != NULL && call->to.step == claim->step && call->end != CALL_LOST ? claim : NULL;
}
