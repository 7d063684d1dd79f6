/* holders.c - the shared holders of a lock, according to several nodes. Each holder has votes of its own. The marker, which
 * all of them have in common, only shows that there are holders. There may be very many, and all answers come in the pump, so
 * a holder is found by its grant without a walk over the others. */
#include "redlock.h"

#include <stdlib.h>

/* NULL: no memory. */
static struct holder *find(struct holders *holders, const char *grant)
{
    struct holder *holder;
    HASH_FIND(hh, holders->all, grant, GRANT_HEX, holder);
    if (holder != NULL)
        return holder;
    holder = calloc(1, sizeof(*holder));
    if (holder == NULL)
        return NULL;
    memcpy(holder->grant, grant, GRANT_HEX);
    holder->info.size = sizeof(holder->info);
    HASH_ADD(hh, holders->all, grant, GRANT_HEX, holder);
    if (holder->hh.tbl != NULL)
        return holder;
    free(holder);
    return NULL;
}

static void add(struct holders *holders, int64_t remaining_ms, const redisReply *value,
                uint64_t now_us)
{
    struct holder *holder = find(holders, value->str);
    if (holder == NULL) {
        holders->failed = true;
        return;
    }
    mortise_info *info = &holder->info;
    uint64_t token = info->token;
    int64_t before_ms = info->remaining_ms;
    holder->nodes++;
    holder_of_string(value->str, value->len, now_us, info);
    info->token = token > info->token ? token : info->token;
    info->remaining_ms = remaining_ms > before_ms ? remaining_ms : before_ms;
    info->mode = MORTISE_SHARED;
}

void holders_add(struct holders *holders, const redisReply *reply)
{
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 4 ||
        reply->element[2]->type != REDIS_REPLY_STRING ||
        reply->element[3]->type != REDIS_REPLY_ARRAY)
        return;
    const redisReply *now = reply->element[2], *list = reply->element[3];
    for (size_t i = 0; i + 1 < list->elements; i += 2) {
        const redisReply *left = list->element[i], *value = list->element[i + 1];
        if (left->type == REDIS_REPLY_INTEGER && value->type == REDIS_REPLY_STRING &&
            value->len > GRANT_HEX)
            add(holders, left->integer, value, text_number(now->str, now->len));
    }
}

static int by_token(const struct holder *left, const struct holder *right)
{
    return (left->info.token > right->info.token) - (left->info.token < right->info.token);
}

unsigned holders_settle(struct holders *holders, const struct driver *driver, unsigned unknown)
{
    struct holder *holder, *next;
    HASH_ITER (hh, holders->all, holder, next) {
        bool known = holder->nodes >= driver->quorum;
        bool presumed = holder->nodes + unknown >= driver->quorum && holder->info.token > 0;
        if (known || presumed)
            continue;
        HASH_DEL(holders->all, holder);
        free(holder);
    }
    HASH_SORT(holders->all, by_token);
    unsigned kept = HASH_COUNT(holders->all);
    for (holder = holders->all; holder != NULL; holder = holder->hh.next)
        holder->info.holders = kept;
    return kept;
}

void holders_free(struct holders *holders)
{
    struct holder *holder, *next;
    HASH_ITER (hh, holders->all, holder, next) {
        HASH_DEL(holders->all, holder);
        free(holder);
    }
}
