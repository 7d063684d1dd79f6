/* holders.c - the shared holders of a lock, according to several nodes. Each holder has votes of its own. The marker, which
 * all of them have in common, only shows that there are holders. */
#include "redlock.h"

#include <stdlib.h>

static struct holder *find(struct holders *holders, const char *grant)
{
    for (unsigned i = 0; i < holders->count; i++)
        if (memcmp(holders->all[i].grant, grant, GRANT_HEX) == 0)
            return &holders->all[i];
    if (holders->count == holders->capacity) {
        unsigned capacity = holders->capacity > 0 ? 2 * holders->capacity : 8;
        struct holder *all = realloc(holders->all, capacity * sizeof(*all));
        if (all == NULL)
            return NULL;
        holders->all = all;
        holders->capacity = capacity;
    }
    struct holder *holder = &holders->all[holders->count++];
    memset(holder, 0, sizeof(*holder));
    memcpy(holder->grant, grant, GRANT_HEX);
    holder->info.size = sizeof(holder->info);
    return holder;
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

static int by_token(const void *a, const void *b)
{
    const struct holder *left = a, *right = b;
    return (left->info.token > right->info.token) - (left->info.token < right->info.token);
}

unsigned holders_settle(struct holders *holders, const struct driver *driver, unsigned unknown)
{
    unsigned kept = 0;
    for (unsigned i = 0; i < holders->count; i++) {
        const struct holder *holder = &holders->all[i];
        bool known = holder->nodes >= driver->quorum;
        bool presumed = holder->nodes + unknown >= driver->quorum && holder->info.token > 0;
        if (known || presumed)
            holders->all[kept++] = *holder;
    }
    holders->count = kept;
    if (kept > 1)
        qsort(holders->all, kept, sizeof(*holders->all), by_token);
    for (unsigned i = 0; i < kept; i++)
        holders->all[i].info.holders = kept;
    return kept;
}

void holders_free(struct holders *holders)
{
    free(holders->all);
    *holders = (struct holders){.all = NULL};
}
