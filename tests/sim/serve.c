/* serve.c - what the sim's backend does when it is asked: one function per kind of op, each done whole.
 *
 * Follows the promises of driver.h: every request may be sent twice, renew and release touch the grant
 * that they name and nothing else, no claim is ever shortened. Records are kept here. */
#include "internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

struct record {
    struct record *next, *previous;
    char *name;
    size_t name_len;
    uint64_t version;
    size_t size;
    unsigned char data[MORTISE_RECORD_MAX];
};

static struct record *records;

static int64_t later(int64_t instant, int64_t duration_ms)
{
    return duration_ms > (INT64_MAX - instant) / 1000000 ? INT64_MAX
                                                         : instant + duration_ms * 1000000;
}

static void tell_holder(struct instance *instance, const struct claim *claim, int64_t now_ns,
                        mortise_info *info)
{
    static const char digits[] = "0123456789abcdef";
    info->held_ms = (now_ns - claim->since_ns) / 1000000;
    int64_t expires = claim_expires(claim);
    info->remaining_ms = expires == MORTISE_NEVER ? -1 : (expires - now_ns) / 1000000;
    info->token = instance->capabilities & MORTISE_CAP_FENCING ? claim->token : 0;
    info->leases = (uint32_t)(1 + more_count(claim));
    if (claim->extra && claim->extra->owner) {
        memcpy(info->owner, claim->extra->owner, claim->extra->owner_len);
        info->owner[claim->extra->owner_len] = '\0';
    } else {
        for (size_t i = 0; i < MORTISE_GRANT_ID_SIZE; i++) {
            info->owner[2 * i] = digits[claim->grant.id.bytes[i] >> 4];
            info->owner[2 * i + 1] = digits[claim->grant.id.bytes[i] & 15];
        }
        info->owner[(size_t)2 * MORTISE_GRANT_ID_SIZE] = '\0';
    }
    sscanf(store_note(claim), "%64[^\n]\n%" SCNd64 "\n%32[^\n]", info->host, &info->pid,
           info->program);
}

static void tell(struct instance *instance, struct claim *claim, const char *name, size_t name_len,
                 int64_t now_ns, mortise_info *info)
{
    size_t size = info->size;
    memset(info, 0, sizeof *info);
    info->size = size;
    memcpy(info->name, name, name_len);
    if (!claim)
        return;
    info->held = claim_refresh(claim, now_ns);
    if (info->held)
        tell_holder(instance, claim, now_ns, info);
    struct watch *watch;
    int count = 0;
    if (claim->extra)
        DL_COUNT2(claim->extra->watches, watch, count, claim_next);
    info->waiters = (int32_t)(count + (int)flight_queue_length(claim));
}

static mortise_status busy(struct instance *instance, mortise_op *op, struct claim *claim,
                           int64_t now_ns)
{
    int64_t expires = claim_expires(claim);
    op->hint_ms = expires == MORTISE_NEVER ? -1 : (expires - now_ns + 999999) / 1000000;
    if (op->info)
        tell(instance, claim, op->name, op->name_len, now_ns, op->info);
    return MORTISE_BUSY;
}

static mortise_status acquire(struct instance *instance, mortise_op *op, int64_t now_ns,
                              int64_t sent_ns, struct claim **found)
{
    if (op->owner && !(instance->capabilities & MORTISE_CAP_REENTRANT))
        return MORTISE_NOTSUP;
    struct claim *claim = *found = store_name(op->name, op->name_len);
    if (!claim)
        return MORTISE_NOMEM;
    struct grant *grant = NULL;
    struct grant fresh = {.id = op->grant, .expires_ns = later(now_ns, op->ttl_ms)};
    if (claim_refresh(claim, now_ns)) {
        grant = claim_grant(claim, &op->grant);
        if (!grant && !claim_same_owner(claim, op))
            return busy(instance, op, claim, now_ns);
        if (!grant && !claim_add(claim, &fresh))
            return MORTISE_NOMEM;
    } else {
        if (!claim_take(claim, op, now_ns))
            return MORTISE_NOMEM;
        claim->grant.expires_ns = fresh.expires_ns;
    }
    if (grant && grant->expires_ns < fresh.expires_ns) /* a repeat that extends the claim */
        grant->expires_ns = fresh.expires_ns;
    op->token = instance->capabilities & MORTISE_CAP_FENCING ? claim->token : 0;
    op->from_ns = sent_ns;
    op->good_for_ms = op->ttl_ms;
    return MORTISE_OK;
}

static mortise_status renew(mortise_op *op, int64_t now_ns, int64_t sent_ns)
{
    struct claim *claim = store_find(op->name, op->name_len);
    if (!claim || !claim_refresh(claim, now_ns))
        return MORTISE_LOST;
    struct grant *grant = claim_grant(claim, &op->grant);
    if (!grant)
        return MORTISE_NOTOWNER;
    int64_t expires = later(now_ns, op->ttl_ms);
    if (expires > grant->expires_ns)
        grant->expires_ns = expires;
    op->from_ns = sent_ns;
    op->good_for_ms = op->ttl_ms;
    return MORTISE_OK;
}

static mortise_status release(struct instance *instance, mortise_op *op, int64_t now_ns)
{
    bool by_token = op->flags & MORTISE_OP_BREAK;
    if (by_token && !(instance->capabilities & MORTISE_CAP_FENCING))
        return MORTISE_NOTSUP;
    op->sure = by_token || !flight_may_come(&op->grant);
    struct claim *claim = store_find(op->name, op->name_len);
    if (!claim || !claim_refresh(claim, now_ns))
        return MORTISE_LOST;
    struct grant *grant = by_token ? NULL : claim_grant(claim, &op->grant);
    if (by_token ? claim->token != op->token : !grant)
        return MORTISE_NOTOWNER;
    if (by_token)
        claim_drop(claim);
    else
        claim_remove(claim, grant);
    if (!claim->held)
        claim_freed(claim, now_ns);
    return MORTISE_OK;
}

static mortise_status inspect(struct instance *instance, mortise_op *op, int64_t now_ns)
{
    if (!(instance->capabilities & MORTISE_CAP_INSPECT))
        return MORTISE_NOTSUP;
    tell(instance, store_find(op->name, op->name_len), op->name, op->name_len, now_ns, op->info);
    return MORTISE_OK;
}

static int by_name(const void *a, const void *b)
{
    const struct claim *left = *(struct claim *const *)a, *right = *(struct claim *const *)b;
    size_t shorter = left->name_len < right->name_len ? left->name_len : right->name_len;
    int order = memcmp(left->name, right->name, shorter);
    return order ? order : (int)left->name_len - (int)right->name_len;
}

struct selection {
    const mortise_op *op;
    int64_t now_ns;
    struct claim **claims;
    size_t count;
};

static void select_claim(struct claim *claim, void *argument)
{
    struct selection *selection = argument;
    const mortise_op *op = selection->op;
    if (claim->name_len >= op->name_len && memcmp(claim->name, op->name, op->name_len) == 0 &&
        claim_refresh(claim, selection->now_ns))
        selection->claims[selection->count++] = claim;
}

static mortise_status list(struct instance *instance, mortise_op *op, int64_t now_ns)
{
    if (!(instance->capabilities & MORTISE_CAP_LIST))
        return MORTISE_NOTSUP;
    struct selection selection = {.op = op, .now_ns = now_ns};
    selection.claims = calloc(store_count() + 1, sizeof(struct claim *));
    if (!selection.claims)
        return MORTISE_NOMEM;
    store_each(select_claim, &selection);
    qsort(selection.claims, selection.count, sizeof(struct claim *), by_name);
    mortise_info info = {.size = sizeof info};
    for (size_t i = 0; i < selection.count; i++) {
        struct claim *claim = selection.claims[i];
        tell(instance, claim, claim->name, claim->name_len, now_ns, &info);
        instance->host->emit(instance->host, op, &info);
    }
    free(selection.claims);
    return MORTISE_OK;
}

/* ---- records ---------------------------------------------------------------------------------- */

static struct record *find_record(const mortise_op *op)
{
    struct record *record;
    DL_FOREACH (records, record) {
        if (record->name_len == op->name_len && memcmp(record->name, op->name, op->name_len) == 0)
            return record;
    }
    return NULL;
}

static mortise_status read_record(mortise_op *op)
{
    const struct record *record = find_record(op);
    op->record_version = record ? record->version : 0;
    op->record_size = record ? record->size : 0;
    if (op->record_size > op->buffer_size)
        return MORTISE_INVALID;
    if (record)
        memcpy(op->buffer, record->data, record->size);
    return MORTISE_OK;
}

static mortise_status write_record(mortise_op *op)
{
    struct record *record = find_record(op);
    if (op->record_size > MORTISE_RECORD_MAX)
        return MORTISE_INVALID;
    if (op->record_version != (record ? record->version : 0))
        return MORTISE_BUSY;
    if (!record) {
        record = calloc(1, sizeof *record);
        if (!record || !(record->name = malloc(op->name_len + 1))) {
            free(record);
            return MORTISE_NOMEM;
        }
        memcpy(record->name, op->name, op->name_len);
        record->name_len = op->name_len;
        DL_APPEND2(records, record, previous, next);
    }
    memcpy(record->data, op->record, op->record_size);
    record->size = op->record_size;
    op->record_version = ++record->version;
    return MORTISE_OK;
}

mortise_status serve(struct instance *instance, mortise_op *op, int64_t now_ns, int64_t sent_ns,
                     bool ghost, struct claim **claim)
{
    if (op->name_len > MORTISE_NAME_MAX || op->owner_len > MORTISE_OWNER_MAX)
        return MORTISE_INVALID;
    switch (op->kind) {
    case MORTISE_OP_ACQUIRE:
        return acquire(instance, op, now_ns, sent_ns, claim);
    case MORTISE_OP_RENEW:
        return renew(op, now_ns, sent_ns);
    case MORTISE_OP_RELEASE:
        return release(instance, op, now_ns);
    case MORTISE_OP_INSPECT:
        return ghost ? MORTISE_OK : inspect(instance, op, now_ns);
    case MORTISE_OP_LIST:
        return ghost ? MORTISE_OK : list(instance, op, now_ns);
    case MORTISE_OP_READ:
        return ghost ? MORTISE_OK : read_record(op);
    case MORTISE_OP_WRITE:
        return write_record(op);
    case MORTISE_OP_PING:
        if (!ghost && op->buffer_size > 0)
            snprintf(op->buffer, op->buffer_size, "sim: %zu names in memory", store_count());
        return MORTISE_OK;
    }
    return MORTISE_NOTSUP;
}

void serve_reset(void)
{
    struct record *record, *next;
    DL_FOREACH_SAFE (records, record, next) {
        free(record->name);
        free(record);
    }
    records = NULL;
}
