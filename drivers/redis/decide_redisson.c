/* decide_redisson.c - what the scripts redisson_*.lua decide in the server, decided here; see decide.c. */
#include "decide.h"

#include <inttypes.h>
#include <stdio.h>

/* The holds of a hash of Redisson's layout. */
struct holds {
    const redisReply *owner;
    uint64_t count, ended, left; /* of the owner; of our grants, less this one: ended, not ended */
    uint64_t mine, last;         /* when this grant ends, and the last of the others, ms */
};

static bool is_grant_field(const redisReply *field, const mortise_op *op)
{
    char name[8 + GRANT_HEX + 1] = "mortise:";
    key_hex(&op->grant, name + 8);
    return field->len == 8 + GRANT_HEX && memcmp(field->str, name, 8 + GRANT_HEX) == 0;
}

static void count_grant(const struct decision *d, struct holds *holds, const redisReply *field,
                        uint64_t ends)
{
    if (is_grant_field(field, d->op)) {
        holds->mine = ends;
    } else if (ends <= now_ms(d)) {
        holds->ended++;
    } else {
        holds->left++;
        holds->last = ends > holds->last ? ends : holds->last;
    }
}

static struct holds holds_of(const struct decision *d)
{
    struct holds holds = {.owner = NULL};
    const redisReply *state = d->view->state;
    for (size_t i = 0; state->type == REDIS_REPLY_ARRAY && i + 1 < state->elements; i += 2) {
        const redisReply *field = state->element[i], *value = state->element[i + 1];
        if (holder_is_grant(field))
            count_grant(d, &holds, field, number_of(value));
        else if (!holder_is_ours(field)) {
            holds.owner = field;
            holds.count = number_of(value);
        }
    }
    return holds;
}

static bool is_mine(const struct decision *d, const struct holds *holds)
{
    char field[FIELD_MAX + 1];
    size_t length = key_field(d->op, field);
    return holds->owner != NULL && (size_t)holds->owner->len == length &&
           memcmp(holds->owner->str, field, length) == 0;
}

static void own_field(struct decision *d)
{
    char field[FIELD_MAX + 1];
    bytes(d, field, key_field(d->op, field));
}

static void put_grant_field(struct decision *d)
{
    char name[8 + GRANT_HEX + 1] = "mortise:";
    key_hex(&d->op->grant, name + 8);
    bytes(d, name, 8 + GRANT_HEX);
}

static void extend(struct decision *d, bool fresh)
{
    bool longer = !fresh && pttl(d) > d->op->ttl_ms;
    command(d, 3, "PEXPIRE", KEY_LOCK);
    number(d, (uint64_t)(longer ? pttl(d) : d->op->ttl_ms));
}

static void add_count(struct decision *d, int64_t change)
{
    command(d, 4, "HINCRBY", KEY_LOCK);
    own_field(d);
    if (d->put)
        link_number(&d->driver->link, change);
}

/* Our grants that have ended, and this one where `mine`: their fields. */
static void drop_grants(struct decision *d, bool mine)
{
    const redisReply *state = d->view->state;
    for (size_t i = 0; i + 1 < state->elements; i += 2) {
        const redisReply *field = state->element[i];
        bool ended = number_of(state->element[i + 1]) <= now_ms(d);
        if (!holder_is_grant(field) || !(is_grant_field(field, d->op) ? mine : ended))
            continue;
        command(d, 3, "HDEL", KEY_LOCK);
        bytes(d, field->str, field->len);
    }
}

/* "<token> <since, µs>\n<note>" */
static void begin_hold(struct decision *d)
{
    char value[64 + MORTISE_NOTE_MAX];
    set_token(d, d->plan.token);
    int length = snprintf(value, sizeof(value), "%" PRIu64 " %" PRIu64 "\n%.*s",
                          d->driver->fencing ? d->plan.token : 0, d->view->now_us,
                          (int)d->op->note_len, d->op->note);
    command(d, 4, "HSET", KEY_LOCK);
    text(d, "mortise");
    bytes(d, value, (size_t)length);
}

static void set_grant(struct decision *d, uint64_t ends)
{
    command(d, 4, "HSET", KEY_LOCK);
    put_grant_field(d);
    number(d, ends);
}

static void redisson_take(struct decision *d, const struct holds *holds, bool free)
{
    const redisReply *said = free ? NULL : field_of(d->view->state, "mortise", 7);
    uint64_t token = said != NULL ? leading_number(said) : 0;
    if (token == 0 && d->driver->fencing)
        said = NULL; /* its holders have no tokens */
    d->plan.token = token > 0 ? token : new_token(d);
    if (free)
        command(d, 2, "DEL", KEY_LOCK);
    else
        drop_grants(d, false);
    if (said == NULL)
        begin_hold(d);
    add_count(d, free ? 1 : 1 - (int64_t)holds->ended);
    if (d->op->owner_len > 0)
        set_grant(d, now_ms(d) + (uint64_t)d->op->ttl_ms);
    extend(d, free);
}

void redisson_acquire(struct decision *d)
{
    struct holds holds = holds_of(d);
    bool own_ended = holds.mine > 0 && holds.mine <= now_ms(d);
    holds.ended += own_ended; /* this very grant's, of a try long ago */
    bool foreign = holds.owner != NULL && holds.count == 0; /* not of this layout */
    bool free = !foreign && holds.count <= holds.ended;
    bool mine = !free && !foreign && is_mine(d, &holds);
    const redisReply *said = field_of(d->view->state, "mortise", 7);
    if (mine && (d->op->owner_len == 0 || holds.mine > now_ms(d)))
        found(d, said != NULL ? leading_number(said) : 0,
              holds.mine > now_ms(d) ? (int64_t)(holds.mine - now_ms(d)) : pttl(d));
    else if (!free && !mine)
        busy(d, pttl(d));
    else
        redisson_take(d, &holds, free);
}

void redisson_renew(struct decision *d)
{
    struct holds holds = holds_of(d);
    bool mine = is_mine(d, &holds), shared = d->op->owner_len > 0;
    uint64_t ends = now_ms(d) + (uint64_t)d->op->ttl_ms;
    if (!mine || (shared && holds.mine <= now_ms(d))) {
        renewed(d, mine || is_absent(d->view->state) ? '0' : '1');
        return;
    }
    extend(d, false); /* first: its answer tells whether the hash is still there */
    if (shared)
        set_grant(d, ends > holds.mine ? ends : holds.mine);
}

void redisson_release(struct decision *d)
{
    struct holds holds = holds_of(d);
    bool mine = is_mine(d, &holds), shared = d->op->owner_len > 0;
    uint64_t gone = shared ? holds.ended + 1 : 1;
    if (!mine || (shared && holds.mine == 0)) {
        released(d, mine || is_absent(d->view->state) ? 0 : 1);
        return;
    }
    if (holds.count <= gone) {
        free_lock(d);
    } else {
        add_count(d, -(int64_t)gone);
        if (shared)
            drop_grants(d, true);
        if (shared && holds.count - gone == holds.left) {
            command(d, 3, "PEXPIREAT", KEY_LOCK);
            number(d, holds.last);
        }
    }
    d->plan.answer = !shared || holds.mine > now_ms(d) ? 2 : 0;
}
