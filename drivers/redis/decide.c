/* decide.c - what the scripts decide in the server, decided here, from what was read under WATCH. The
 * comments of scripts/ say why; this file, and decide_redisson.c for Redisson's layout, must say the same. */
#include "decide.h"

#include <inttypes.h>
#include <stdio.h>

/* ---- what was read ---------------------------------------------------------------------------------------- */

/* One with more digits than a token may have is beyond the end, too. */
static bool is_last_token(const redisReply *token)
{
    bool digits = token != NULL && token->type == REDIS_REPLY_STRING && token->len > 16;
    for (size_t i = 0; digits && i < (size_t)token->len; i++)
        digits = token->str[i] >= '0' && token->str[i] <= '9';
    return digits || number_of(token) >= TOKEN_MAX;
}

static bool starts_with_grant(const redisReply *state, const mortise_op *op)
{
    char hex[GRANT_HEX + 1];
    key_hex(&op->grant, hex);
    return state->type == REDIS_REPLY_STRING && state->len >= GRANT_HEX &&
           memcmp(state->str, hex, GRANT_HEX) == 0;
}

/* The grants of a native hash. */
struct grants {
    uint64_t mine, last, last_other; /* when they end, ms; 0: none */
    bool any;
};

static struct grants grants_of(const struct decision *d)
{
    struct grants grants = {.mine = 0};
    const redisReply *state = d->view->state;
    char mine[2 + GRANT_HEX + 1] = "g:";
    key_hex(&d->op->grant, mine + 2);
    for (size_t i = 0; state->type == REDIS_REPLY_ARRAY && i + 1 < state->elements; i += 2) {
        const redisReply *field = state->element[i];
        if (field->len != 2 + GRANT_HEX || memcmp(field->str, "g:", 2) != 0)
            continue;
        uint64_t ends = number_of(state->element[i + 1]);
        bool is_mine = memcmp(field->str, mine, 2 + GRANT_HEX) == 0;
        grants.any = true;
        grants.last = ends > grants.last ? ends : grants.last;
        if (is_mine)
            grants.mine = ends;
        else if (ends > grants.last_other)
            grants.last_other = ends;
    }
    return grants;
}

/* ---- strings ------------------------------------------------------------------------------------------------------ */

static void string_acquire(struct decision *d)
{
    const redisReply *state = d->view->state;
    char value[GRANT_HEX + 64 + MORTISE_NOTE_MAX];
    if (starts_with_grant(state, d->op)) {
        mortise_info info;
        holder_of_string(state->str, state->len, 0, &info);
        found(d, info.token, pttl(d));
        return;
    }
    if (!is_absent(state)) {
        busy(d, pttl(d));
        return;
    }
    d->plan.token = new_token(d);
    set_token(d, d->plan.token);
    key_hex(&d->op->grant, value);
    int length =
        snprintf(value + GRANT_HEX, sizeof(value) - GRANT_HEX, " %" PRIu64 " %" PRIu64 "\n%.*s",
                 d->plan.token, d->view->now_us, (int)d->op->note_len, d->op->note);
    command(d, 5, "SET", KEY_LOCK);
    bytes(d, value, GRANT_HEX + (size_t)length);
    text(d, "PX");
    number(d, (uint64_t)d->op->ttl_ms);
}

static void string_renew(struct decision *d)
{
    if (!starts_with_grant(d->view->state, d->op)) {
        renewed(d, is_absent(d->view->state) ? '0' : '1');
        return;
    }
    command(d, 3, "PEXPIRE", KEY_LOCK);
    number(d, (uint64_t)d->op->ttl_ms);
}

static void string_release(struct decision *d)
{
    if (starts_with_grant(d->view->state, d->op))
        free_lock(d);
    else
        released(d, is_absent(d->view->state) ? 0 : 1);
}

/* ---- hashes ---------------------------------------------------------------------------------------------------------- */

/* "g:<grant>" */
static void grant_field(struct decision *d, char kind)
{
    char field[2 + GRANT_HEX + 1] = {kind, ':'};
    key_hex(&d->op->grant, field + 2);
    bytes(d, field, 2 + GRANT_HEX);
}

static void add_grant(struct decision *d, const struct grants *grants)
{
    uint64_t ends = now_ms(d) + (uint64_t)d->op->ttl_ms;
    command(d, 6, "HSET", KEY_LOCK);
    grant_field(d, 'g');
    number(d, ends);
    grant_field(d, 'n');
    bytes(d, d->op->note, d->op->note_len);
    command(d, 3, "PEXPIREAT", KEY_LOCK);
    number(d, ends > grants->last ? ends : grants->last);
}

/* The grants that have ended, with their notes. */
static void drop_ended(struct decision *d)
{
    const redisReply *state = d->view->state;
    for (size_t i = 0; i + 1 < state->elements; i += 2) {
        const redisReply *field = state->element[i];
        char note[2 + GRANT_HEX];
        if (field->len != 2 + GRANT_HEX || memcmp(field->str, "g:", 2) != 0 ||
            number_of(state->element[i + 1]) > now_ms(d))
            continue;
        memcpy(note, field->str, sizeof(note));
        note[0] = 'n';
        command(d, 4, "HDEL", KEY_LOCK);
        bytes(d, field->str, field->len);
        bytes(d, note, sizeof(note));
    }
}

static void hash_begin(struct decision *d)
{
    d->plan.token = new_token(d);
    set_token(d, d->plan.token);
    command(d, 2, "DEL", KEY_LOCK);
    command(d, 8, "HSET", KEY_LOCK);
    text(d, "o");
    bytes(d, d->op->owner, d->op->owner_len);
    text(d, "t");
    number(d, d->plan.token);
    text(d, "s");
    number(d, d->view->now_us);
}

static void hash_acquire(struct decision *d)
{
    struct grants grants = grants_of(d);
    const redisReply *owner = field_of(d->view->state, "o", 1);
    uint64_t token = number_of(field_of(d->view->state, "t", 1));
    bool ours = owner != NULL && token > 0 && field_of(d->view->state, "s", 1) != NULL;
    bool live = grants.last > now_ms(d);
    bool joins = live && owner != NULL && d->op->owner_len > 0 &&
                 (size_t)owner->len == d->op->owner_len &&
                 memcmp(owner->str, d->op->owner, d->op->owner_len) == 0;
    if (!is_absent(d->view->state) && !ours)
        busy(d, pttl(d)); /* not of this layout */
    else if (grants.mine > now_ms(d))
        found(d, token, (int64_t)(grants.mine - now_ms(d)));
    else if (live && !joins)
        busy(d, (int64_t)(grants.last - now_ms(d)));
    else {
        if (joins) {
            d->plan.token = token;
            drop_ended(d);
        } else
            hash_begin(d);
        add_grant(d, &grants);
    }
}

static void hash_renew(struct decision *d)
{
    struct grants grants = grants_of(d);
    uint64_t ends = now_ms(d) + (uint64_t)d->op->ttl_ms;
    if (grants.mine <= now_ms(d)) {
        renewed(d, grants.last > now_ms(d) ? '1' : '0');
        return;
    }
    command(d, 4, "HSET", KEY_LOCK);
    grant_field(d, 'g');
    number(d, ends > grants.mine ? ends : grants.mine);
    command(d, 3, "PEXPIREAT", KEY_LOCK);
    number(d, ends > grants.last ? ends : grants.last);
}

static void hash_release(struct decision *d)
{
    struct grants grants = grants_of(d);
    bool others = grants.last_other > now_ms(d);
    if (grants.mine == 0) {
        released(d, others || (!grants.any && !is_absent(d->view->state)) ? 1 : 0);
        return;
    }
    if (!others) {
        free_lock(d);
    } else {
        command(d, 4, "HDEL", KEY_LOCK);
        grant_field(d, 'g');
        grant_field(d, 'n');
        command(d, 3, "PEXPIREAT", KEY_LOCK);
        number(d, grants.last_other);
    }
    d->plan.answer = grants.mine > now_ms(d) ? 2 : 0;
}

/* ---- in every layout ---------------------------------------------------------------------------------------------------- */

static void break_it(struct decision *d)
{
    static const char *const fields[] = {[LAYOUT_HASH] = "t", [LAYOUT_REDISSON] = "mortise"};
    const redisReply *state = d->view->state;
    mortise_info info = {.token = 0};
    if (is_absent(state)) {
        released(d, 0);
        return;
    }
    if (state->type == REDIS_REPLY_STRING)
        holder_of_string(state->str, state->len, 0, &info);
    else if (d->driver->layout != LAYOUT_STRING) {
        const char *field = fields[d->driver->layout];
        const redisReply *token = field_of(state, field, strlen(field));
        info.token = token != NULL ? leading_number(token) : 0;
    }
    if (info.token == d->op->token)
        free_lock(d);
    else
        released(d, 1);
}

static void write_record(struct decision *d)
{
    const redisReply *state = d->view->state;
    const char *blank =
        state->type == REDIS_REPLY_STRING ? memchr(state->str, ' ', state->len) : NULL;
    uint64_t version = blank != NULL ? holder_number(state->str, (size_t)(blank - state->str)) : 0;
    char head[24];
    if (version != d->op->record_version) {
        d->op->record_version = 0;
        flow_complete(d->driver, d->op, MORTISE_BUSY);
        return;
    }
    d->plan.version = version + 1;
    int length = snprintf(head, sizeof(head), "%" PRIu64 " ", d->plan.version);
    command(d, 3, "SET", KEY_RECORD);
    const struct link_part parts[] = {{head, (size_t)length}, {d->op->record, d->op->record_size}};
    if (d->put)
        link_parts(&d->driver->link, parts, 2);
}

struct plan decide(struct driver *driver, mortise_op *op, const struct view *view, bool put)
{
    static void (*const acquire[])(struct decision *) = {string_acquire, hash_acquire,
                                                         redisson_acquire};
    static void (*const renew[])(struct decision *) = {string_renew, hash_renew, redisson_renew};
    static void (*const release[])(struct decision *) = {string_release, hash_release,
                                                         redisson_release};
    struct decision d = {.driver = driver, .op = op, .view = view, .put = put};
    if (op->kind == MORTISE_OP_ACQUIRE && is_last_token(view->token))
        flow_fail_token(driver, op);
    else if (op->kind == MORTISE_OP_ACQUIRE)
        acquire[driver->layout](&d);
    else if (op->kind == MORTISE_OP_RENEW)
        renew[driver->layout](&d);
    else if (op->kind == MORTISE_OP_WRITE)
        write_record(&d);
    else if ((op->flags & MORTISE_OP_BREAK) != 0)
        break_it(&d);
    else
        release[driver->layout](&d);
    return d.plan;
}
