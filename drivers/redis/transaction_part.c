/* transaction_part.c - one op of a transaction: what is read for it, what the value means, what is written, and what the
 * result of EXEC means. */
#include "transaction_part.h"
#include "sending.h"
#include "shared.h"

#include <inttypes.h>
#include <stdio.h>

#define TOKEN_LIVES_MS 86400000

mortise_op *part_take_out(struct part *part)
{
    mortise_op *op = part->op;
    part->op = NULL;
    return op;
}

static enum key key_of(const mortise_op *op)
{
    return op->kind == MORTISE_OP_WRITE ? KEY_RECORD : KEY_LOCK;
}

static void put(const struct moment *at, unsigned arguments, const char *word, const mortise_op *op,
                enum key key)
{
    link_command(&at->driver->link, arguments);
    link_text(&at->driver->link, word);
    key_put(&at->driver->link, op, key);
}

/* ---- reading ---------------------------------------------------------------------------------------- */

unsigned part_keys(mortise_op_kind kind)
{
    return kind == MORTISE_OP_ACQUIRE ? 2 : 1;
}

void part_put_keys(const struct moment *at, const struct part *part)
{
    key_put(&at->driver->link, part->op, key_of(part->op));
    if (part->op->kind == MORTISE_OP_ACQUIRE)
        key_put(&at->driver->link, part->op, KEY_TOKEN);
}

unsigned part_reads(mortise_op_kind kind)
{
    return kind == MORTISE_OP_ACQUIRE ? 3 : 2;
}

void part_put_reads(const struct moment *at, const struct part *part)
{
    enum key key = key_of(part->op);
    if (part->op->kind == MORTISE_OP_ACQUIRE)
        put(at, 2, "GET", part->op, KEY_TOKEN);
    put(at, 2, "PTTL", part->op, key);
    put(at, 4, "GETRANGE", part->op, key);
    link_text(&at->driver->link, "0");
    link_text(&at->driver->link, VALUE_END);
}

/* ---- deciding ----------------------------------------------------------------------------------------- */

/* The hybrid clock, as in string_acquire.lua. 0: no token is left. */
static uint64_t next_token(const struct moment *at, const mortise_op *op, const redisReply *last)
{
    uint64_t floor = failover_floor(at->driver, op), token = at->now_us, next = 1;
    if (last->type == REDIS_REPLY_STRING && last->len > 16)
        return 0;
    if (last->type == REDIS_REPLY_STRING)
        next = text_number(last->str, last->len) + 1;
    token = next > token ? next : token;
    token = floor > token ? floor : token;
    return token <= TOKEN_MAX ? token : 0;
}

/* The functions below decide what a value means for a part: they complete its op, or leave it to be written. An absent
 * key and an empty value look the same here. For an acquire, PTTL tells them apart: an empty value is somebody's. A
 * renewal and a release take both for an absent key, as the scripts do, because the key may have expired between PTTL and
 * GETRANGE. */

static bool is_absent(const struct part *part, const redisReply *value)
{
    return value->len == 0 && (part->op->kind != MORTISE_OP_ACQUIRE || part->remaining_ms == -2);
}

static bool is_mine(const struct part *part, const redisReply *value)
{
    char hex[GRANT_HEX + 1];
    key_hex(&part->grant, hex);
    return value->len >= GRANT_HEX && memcmp(value->str, hex, GRANT_HEX) == 0;
}

static void decide_acquire(const struct moment *at, struct part *part, const redisReply *value)
{
    mortise_info info;
    if (is_mine(part, value)) {
        holder_of_string(value->str, value->len, 0, &info);
        answer_found(at->driver, part_take_out(part), info.token, part->remaining_ms, at->read_ns);
    } else if (!is_absent(part, value)) {
        mortise_op *op = part_take_out(part);
        if (op->info != NULL)
            holder_of_string(value->str, value->len, at->now_us, op->info);
        answer_busy(at->driver, op, part->remaining_ms);
    } else if (part->number == 0)
        op_fail_token(at->driver, part_take_out(part));
}

static void decide_release(const struct moment *at, struct part *part, const redisReply *value)
{
    bool ends = is_mine(part, value);
    if ((part->op->flags & MORTISE_OP_BREAK) != 0) {
        mortise_info info = {.token = 0};
        holder_of_string(value->str, value->len, 0, &info);
        /* deleting a marker would end all shared holders */
        ends = value->len > 0 && info.token == part->op->token && !shared_is_marker(value);
    }
    if (!ends)
        answer_released(at->driver, part_take_out(part), is_absent(part, value) ? 0 : 1);
}

static void decide_write(const struct moment *at, struct part *part, const redisReply *value)
{
    const char *blank = memchr(value->str, ' ', value->len);
    uint64_t version = blank != NULL ? text_number(value->str, (size_t)(blank - value->str)) : 0;
    part->number = version + 1;
    if (version == part->op->record_version)
        return;
    part->op->record_version = 0;
    op_complete(at->driver, part_take_out(part), MORTISE_BUSY);
}

static void decide(const struct moment *at, struct part *part, const redisReply *value)
{
    if (value->type != REDIS_REPLY_STRING)
        op_fail_odd(at->driver, part_take_out(part));
    else if (part->op->kind == MORTISE_OP_ACQUIRE)
        decide_acquire(at, part, value);
    else if (part->op->kind == MORTISE_OP_RELEASE)
        decide_release(at, part, value);
    else if (part->op->kind == MORTISE_OP_WRITE)
        decide_write(at, part, value);
    else if (!is_mine(part, value))
        answer_renewed(at->driver, part_take_out(part), is_absent(part, value) ? '0' : '1', 0);
}

/* An error for one key fails its op, not the others. As in the script, a lock whose key has another type now is another's. */
static void refuse_one(const struct moment *at, struct part *part, const redisReply *reply)
{
    struct link_fault fault;
    link_fault_reply(&at->driver->link, reply, &fault);
    if (part->op->kind == MORTISE_OP_RENEW && fault.error == LINK_ERROR_WRONGTYPE)
        answer_renewed(at->driver, part_take_out(part), '1', 0);
    else
        op_fail(at->driver, part_take_out(part), &fault);
}

/* `left`: how many more reads of this part follow. */
void part_take(const struct moment *at, struct part *part, unsigned left, const redisReply *reply)
{
    if (reply->type == REDIS_REPLY_ERROR)
        refuse_one(at, part, reply);
    else if (left == 2)
        part->number = next_token(at, part->op, reply);
    else if (left == 1)
        part->remaining_ms = reply->integer;
    else
        decide(at, part, reply);
}

/* ---- writing ---------------------------------------------------------------------------------------- */

unsigned part_writes(mortise_op_kind kind)
{
    return kind == MORTISE_OP_ACQUIRE ? 2 : 1;
}

static void put_acquire(const struct moment *at, const struct part *part)
{
    struct link *link = &at->driver->link;
    put(at, 5, "SET", part->op, KEY_TOKEN);
    link_number(link, (int64_t)part->number);
    link_text(link, "PX");
    link_number(link, (int64_t)((part->number - at->now_us) / 1000) + TOKEN_LIVES_MS);
    put(at, 5, "SET", part->op, KEY_LOCK);
    holder_put(link, part->op, part->number, at->now_us);
    link_text(link, "PX");
    link_number(link, part->ttl_ms);
}

static void put_record(const struct moment *at, const struct part *part)
{
    char head[24];
    int length = snprintf(head, sizeof(head), "%" PRIu64 " ", part->number);
    const struct link_part texts[] = {{head, (size_t)length},
                                      {part->op->record, part->op->record_size}};
    put(at, 3, "SET", part->op, KEY_RECORD);
    link_parts(&at->driver->link, texts, 2);
}

void part_put_writes(const struct moment *at, const struct part *part)
{
    switch (part->op->kind) {
    case MORTISE_OP_ACQUIRE:
        put_acquire(at, part);
        break;
    case MORTISE_OP_RENEW: /* never shortens what is there */
        put(at, 3, "PEXPIRE", part->op, KEY_LOCK);
        link_number(&at->driver->link,
                    part->remaining_ms > part->ttl_ms ? part->remaining_ms : part->ttl_ms);
        break;
    case MORTISE_OP_RELEASE:
        put(at, 2, "DEL", part->op, KEY_LOCK);
        break;
    default:
        put_record(at, part);
        break;
    }
}

/* `results`: of the part's commands. */
void part_tell(const struct moment *at, struct part *part, redisReply *const *results)
{
    mortise_op *op = part_take_out(part);
    bool gone = results[0]->type == REDIS_REPLY_INTEGER && results[0]->integer == 0, failed = false;
    for (unsigned i = 0; i < part_writes(op->kind); i++)
        failed |= results[i]->type == REDIS_REPLY_ERROR;
    if (failed)
        op_fail_odd(at->driver, op);
    else if (op->kind == MORTISE_OP_ACQUIRE)
        answer_granted(at->driver, op, part->number, at->read_ns);
    else if (op->kind == MORTISE_OP_RENEW)
        answer_renewed(at->driver, op, gone ? '0' : '2', at->read_ns);
    else if (op->kind == MORTISE_OP_RELEASE)
        answer_released(at->driver, op, gone ? 0 : 2);
    else {
        op->record_version = part->number;
        op_complete(at->driver, op, MORTISE_OK);
    }
}
