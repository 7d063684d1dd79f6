/* decide.c - what the scripts decide in the server, decided here, from what was read under WATCH. The
 * comments of scripts/ say why; this file must say the same. */
#include "transaction.h"

#include <inttypes.h>
#include <stdio.h>

struct decision {
    struct driver *driver;
    mortise_op *op;
    const struct view *view;
    bool put;
    struct plan plan;
};

/* ---- commands ----------------------------------------------------------------------------------------- */

static void command(struct decision *d, unsigned arguments, const char *word, enum key key)
{
    d->plan.commands++;
    if (!d->put)
        return;
    link_command(&d->driver->link, arguments);
    link_text(&d->driver->link, word);
    key_put(&d->driver->link, d->driver, d->op, key);
}

static void text(struct decision *d, const char *argument)
{
    if (d->put)
        link_text(&d->driver->link, argument);
}

static void bytes(struct decision *d, const void *data, size_t length)
{
    if (d->put)
        link_argument(&d->driver->link, data, length);
}

static void number(struct decision *d, uint64_t value)
{
    if (d->put)
        link_number(&d->driver->link, (int64_t)value);
}

/* "g:<grant>" */
static void grant_field(struct decision *d, char kind)
{
    char field[2 + GRANT_HEX + 1] = {kind, ':'};
    key_hex(&d->op->grant, field + 2);
    bytes(d, field, 2 + GRANT_HEX);
}

/* ---- what was read ---------------------------------------------------------------------------------------- */

static uint64_t now_ms(const struct decision *d)
{
    return d->view->now_us / 1000;
}

static uint64_t number_of(const redisReply *reply)
{
    return reply != NULL && reply->type == REDIS_REPLY_STRING
               ? holder_number(reply->str, reply->len)
               : 0;
}

/* One with more digits than a token may have is beyond the end, too. */
static bool is_last_token(const redisReply *token)
{
    bool digits = token != NULL && token->type == REDIS_REPLY_STRING && token->len > 16;
    for (size_t i = 0; digits && i < (size_t)token->len; i++)
        digits = token->str[i] >= '0' && token->str[i] <= '9';
    return digits || number_of(token) >= TOKEN_MAX;
}

static uint64_t leading_number(const redisReply *reply)
{
    size_t digits = 0;
    while (digits < (size_t)reply->len && reply->str[digits] >= '0' && reply->str[digits] <= '9')
        digits++;
    return holder_number(reply->str, digits);
}

static int64_t pttl(const struct decision *d)
{
    return d->view->pttl->type == REDIS_REPLY_INTEGER ? d->view->pttl->integer : -2;
}

static bool is_absent(const redisReply *state)
{
    return state->type == REDIS_REPLY_NIL ||
           (state->type == REDIS_REPLY_ARRAY && state->elements == 0);
}

static const redisReply *field_of(const redisReply *state, const char *name, size_t length)
{
    if (state->type != REDIS_REPLY_ARRAY)
        return NULL;
    for (size_t i = 0; i + 1 < state->elements; i += 2)
        if ((size_t)state->element[i]->len == length &&
            memcmp(state->element[i]->str, name, length) == 0)
            return state->element[i + 1];
    return NULL;
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

/* ---- ends ---------------------------------------------------------------------------------------------------- */

static void found(struct decision *d, uint64_t token, int64_t remaining_ms)
{
    lease_found(d->driver, d->op, token, remaining_ms, d->view->read_ns);
}

static void busy(struct decision *d, int64_t remaining_ms)
{
    mortise_info *info = d->op->info;
    const redisReply *state = d->view->state;
    if (info != NULL && state->type == REDIS_REPLY_STRING)
        holder_of_string(state->str, state->len, d->view->now_us, info);
    else if (info != NULL && !holder_of_hash(d->driver, state, d->view->now_us, info))
        holder_set(info, "", 0, 0, 0, 0, "", 0);
    lease_busy(d->driver, d->op, remaining_ms);
}

static void renewed(struct decision *d, char digit)
{
    renew_answer(d->driver, d->op, digit, 0);
}

static void released(struct decision *d, int64_t answer)
{
    lease_released(d->driver, d->op, answer);
}

/* ---- the token -------------------------------------------------------------------------------------------------- */

static uint64_t new_token(struct decision *d)
{
    uint64_t token = d->view->now_us, next = number_of(d->view->token) + 1;
    if (!d->driver->fencing)
        return 1;
    token = next > token ? next : token;
    uint64_t floor = place_floor(d->driver, d->op);
    return floor > token ? floor : token;
}

static void set_token(struct decision *d, uint64_t token)
{
    if (!d->driver->fencing)
        return;
    command(d, 5, "SET", KEY_TOKEN);
    number(d, token);
    text(d, "PX");
    number(d, (token - d->view->now_us) / 1000 + 86400000);
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

static void free_lock(struct decision *d)
{
    d->plan.answer = 2;
    d->plan.frees = true;
    command(d, 2, "DEL", KEY_LOCK);
}

static void string_release(struct decision *d)
{
    if (starts_with_grant(d->view->state, d->op))
        free_lock(d);
    else
        released(d, is_absent(d->view->state) ? 0 : 1);
}

/* ---- hashes ---------------------------------------------------------------------------------------------------------- */

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

/* ---- Redisson's layout ------------------------------------------------------------------------------------------------- */

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

static void redisson_acquire(struct decision *d)
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

static void redisson_renew(struct decision *d)
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

static void redisson_release(struct decision *d)
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
