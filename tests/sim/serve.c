/* serve.c - the requests of the sim's backend: one function for each kind of op, executed as one step.
 *
 * It keeps the promises of driver.h: every request may be sent twice, renew and release change only the grant that
 * they name, and no claim is ever shortened. Records are kept here. */
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

char serve_problem[256];

static int64_t later(int64_t instant, int64_t duration_ms)
{
    return duration_ms > (INT64_MAX - instant) / 1000000 ? INT64_MAX
                                                         : instant + duration_ms * 1000000;
}

static void tell_holder(struct instance *instance, const struct claim *claim, size_t index,
                        int64_t now_ns, mortise_info *info)
{
    static const char digits[] = "0123456789abcdef";
    struct member member = claim_member(claim, index);
    info->held_ms = (now_ns - member.since_ns) / 1000000;
    int64_t expires = claim->shared ? member.grant.expires_ns : claim_expires(claim);
    info->remaining_ms = expires == MORTISE_NEVER ? -1 : (expires - now_ns) / 1000000;
    info->token = instance->capabilities & MORTISE_CAP_FENCING ? member.token : 0;
    info->leases = claim->shared ? 1 : (uint32_t)(1 + more_count(claim));
    info->mode = claim->shared ? MORTISE_SHARED : MORTISE_EXCLUSIVE;
    info->permits = claim_permits(claim);
    info->holders = (uint32_t)(1 + more_count(claim));
    if (claim->extra && claim->extra->owner) {
        memcpy(info->owner, claim->extra->owner, claim->extra->owner_len);
        info->owner[claim->extra->owner_len] = '\0';
    } else {
        for (size_t i = 0; i < MORTISE_GRANT_ID_SIZE; i++) {
            info->owner[2 * i] = digits[member.grant.id.bytes[i] >> 4];
            info->owner[2 * i + 1] = digits[member.grant.id.bytes[i] & 15];
        }
        info->owner[(size_t)2 * MORTISE_GRANT_ID_SIZE] = '\0';
    }
    sscanf(store_note(member.note), "%64[^\n]\n%" SCNd64 "\n%32[^\n]", info->host, &info->pid,
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
        tell_holder(instance, claim, 0, now_ns, info);
    struct watch *watch;
    int count = 0;
    if (claim->extra)
        DL_COUNT2(claim->extra->watches, watch, count, claim_next);
    info->waiters = (int32_t)(count + (int)flight_queue_length(claim));
}

enum { BAR_MS = 2000 }; /* how long an exclusive waiter keeps new shared holders out */

/* When the op may be admitted at the latest. */
static int64_t until(const struct claim *claim, const mortise_op *op, int64_t now_ns)
{
    bool reader = op->mode == MORTISE_SHARED && (!claim->held || claim->shared);
    if (reader && claim_barred(claim, now_ns))
        return claim->extra->barred_ns;
    return reader && op->permits > 0 ? claim_first_expires(claim) : claim_expires(claim);
}

static mortise_status busy(struct instance *instance, mortise_op *op, struct claim *claim,
                           int64_t now_ns)
{
    int64_t expires = until(claim, op, now_ns);
    if (op->mode == MORTISE_EXCLUSIVE && claim->shared && !instance->queue &&
        !(op->flags & MORTISE_OP_TRY)) {
        claim->extra->barred_ns = later(now_ns, BAR_MS);
        if (expires > later(now_ns, BAR_MS / 2)) /* it asks again before its bar has gone */
            expires = later(now_ns, BAR_MS / 2);
    }
    op->hint_ms = expires == MORTISE_NEVER ? -1 : (expires - now_ns + 999999) / 1000000;
    if (op->info)
        tell(instance, claim, op->name, op->name_len, now_ns, op->info);
    return MORTISE_BUSY;
}

bool serve_admits(const struct claim *claim, const mortise_op *op)
{
    if (!claim->held)
        return true;
    if (op->mode == MORTISE_EXCLUSIVE || !claim->shared)
        return claim_same_owner(claim, op);
    return claim_permits(claim) != op->permits || op->permits == 0 ||
           1 + more_count(claim) < op->permits;
}

/* A shared request keeps behind those that wait. The queue's head has left the queue when it is served. */
static bool waits_behind(const struct instance *instance, struct claim *claim, const mortise_op *op,
                         int64_t now_ns, bool from_queue)
{
    if (op->mode == MORTISE_EXCLUSIVE || from_queue)
        return false;
    return flight_queue_length(claim) > 0 || (!instance->queue && claim_barred(claim, now_ns));
}

static mortise_status other_permits(struct instance *instance, const mortise_op *op,
                                    const struct claim *claim)
{
    mortise_info info = {.size = sizeof info};
    tell_holder(instance, claim, 0, claim->since_ns, &info);
    snprintf(serve_problem, sizeof serve_problem,
             "permits = %" PRIu32 " was asked for, but %s (pid %" PRId64
             ") holds it with permits = %" PRIu32,
             op->permits, info.host, info.pid, info.permits);
    return MORTISE_INVALID;
}

static mortise_status acquire(struct instance *instance, mortise_op *op, int64_t now_ns,
                              int64_t sent_ns, bool from_queue, struct claim **found)
{
    if (op->owner && !(instance->capabilities & MORTISE_CAP_REENTRANT))
        return MORTISE_NOTSUP;
    struct claim *claim = *found = store_name(op->name, op->name_len);
    if (!claim)
        return MORTISE_NOMEM;
    bool held = claim_refresh(claim, now_ns);
    struct grant *grant = claim_grant(claim, &op->grant);
    if (!grant) {
        if (held && op->mode == MORTISE_SHARED && claim->shared &&
            claim_permits(claim) != op->permits)
            return other_permits(instance, op, claim);
        if (!serve_admits(claim, op) || waits_behind(instance, claim, op, now_ns, from_queue))
            return busy(instance, op, claim, now_ns);
        if (held ? !claim_add(claim, op, now_ns) : !claim_take(claim, op, now_ns))
            return MORTISE_NOMEM;
        grant = claim_grant(claim, &op->grant);
        grant->expires_ns = 0;
    }
    int64_t expires = later(now_ns, op->ttl_ms);
    if (grant->expires_ns < expires) /* it may be a repeat, which extends the claim */
        grant->expires_ns = expires;
    op->token = instance->capabilities & MORTISE_CAP_FENCING ? claim_token(claim, grant) : 0;
    op->from_ns = sent_ns;
    op->good_for_ms = op->ttl_ms;
    return MORTISE_OK;
}

/* False: out of memory. */
static bool downgrade(struct claim *claim, int64_t now_ns)
{
    if (claim->shared)
        return true;
    if (!store_extra(claim))
        return false;
    claim->shared = true;
    claim->extra->permits = 0;
    claim->extra->token = claim->token;
    claim_freed(claim, now_ns);
    return true;
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
    if (op->flags & MORTISE_OP_DOWNGRADE && !downgrade(claim, now_ns))
        return MORTISE_NOMEM;
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
    struct grant *grant =
        by_token ? claim_of_token(claim, op->token) : claim_grant(claim, &op->grant);
    if (!grant)
        return MORTISE_NOTOWNER;
    bool shared = claim->shared;
    if (by_token && !shared)
        claim_drop(claim);
    else
        claim_remove(claim, grant);
    if (!claim->held || shared)
        claim_freed(claim, now_ns);
    return MORTISE_OK;
}

static mortise_status inspect(struct instance *instance, mortise_op *op, int64_t now_ns)
{
    if (!(instance->capabilities & MORTISE_CAP_INSPECT))
        return MORTISE_NOTSUP;
    struct claim *claim = store_find(op->name, op->name_len);
    tell(instance, claim, op->name, op->name_len, now_ns, op->info);
    if (!op->emitted || !op->info->held)
        return MORTISE_OK;
    mortise_info info = *op->info;
    for (size_t i = 0; i < (claim->shared ? 1 + more_count(claim) : 1); i++) {
        tell_holder(instance, claim, i, now_ns, &info);
        instance->host->emit(instance->host, op, &info);
    }
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

mortise_status serve_from_queue(struct instance *instance, mortise_op *op, int64_t now_ns,
                                struct claim *claim)
{
    return acquire(instance, op, now_ns, now_ns, true, &claim);
}

mortise_status serve(struct instance *instance, mortise_op *op, int64_t now_ns, int64_t sent_ns,
                     bool ghost, struct claim **claim)
{
    if (op->name_len > MORTISE_NAME_MAX || op->owner_len > MORTISE_OWNER_MAX)
        return MORTISE_INVALID;
    switch (op->kind) {
    case MORTISE_OP_ACQUIRE:
        return acquire(instance, op, now_ns, sent_ns, false, claim);
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
