/* inspect.c - who holds a name (inspect, break), or all names (list).
 *
 * Inspect and break read all keys of the name in one request. A list reads all keys below the prefix, a page at a time, each
 * page as of the revision of the first one; then it sorts them by name and by create revision. If that revision is compacted
 * meanwhile, the list begins anew. Keys that belong to no lock ("%sessions" and so on) lie between two ranges and are not
 * read. Keys of a longer prefix, which may lie below a name, are skipped.
 *
 * The holders are: the first contender; and if that one is shared, or says that it was made shared, the shared ones behind it
 * up to the next exclusive one, as many as there are permits (queue.h). */
#include "query.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAGE 1000
/* The page size after a lost connection: perhaps the page was larger than a message may be, or took longer than a call may
 * take. */
#define PAGE_LOST 100

/* A contender. */
struct item {
    mortise_info info;
    int64_t created;
    bool is_shared; /* by its key */
    size_t name_len;
    char name[MORTISE_NAME_MAX];
};

struct listing {
    struct item *items;
    size_t count, capacity;
    int64_t base, revision;
    size_t page;    /* how many keys are asked for at once */
    unsigned range; /* which of the ranges is being read */
    size_t next_len;
    char next[KEY_MAX]; /* the key behind the last one that was read */
};

static void listing_free(struct query *query)
{
    if (query->listing != NULL)
        free(query->listing->items);
    free(query->listing);
    query->listing = NULL;
}

/* False: the query has failed. */
static bool listing_new(struct driver *driver, struct query *query)
{
    listing_free(query);
    query->drop = listing_free;
    query->listing = calloc(1, sizeof(*query->listing));
    if (query->listing == NULL)
        query_fail(driver, query, MORTISE_NOMEM, NULL);
    return query->listing != NULL;
}

/* ---- taking the keys ------------------------------------------------------------------------------------ */

/* The escaped name in a key: what is between the prefix and the last slash. */
static size_t name_of(const struct driver *driver, struct bytes key, char name[MORTISE_NAME_MAX])
{
    size_t prefix_len = strlen(driver->prefix), last_len;
    key_last(key, &last_len);
    if (key.size < prefix_len + last_len + 2)
        return 0;
    return name_read((const char *)key.data + prefix_len, key.size - prefix_len - last_len - 1,
                     name, MORTISE_NAME_MAX);
}

static bool make_room(struct listing *listing)
{
    if (listing->count < listing->capacity)
        return true;
    size_t capacity = listing->capacity == 0 ? 16 : 2 * listing->capacity;
    struct item *items = realloc(listing->items, capacity * sizeof(*items));
    if (items == NULL)
        return false;
    listing->items = items;
    listing->capacity = capacity;
    return true;
}

/* Skips keys that belong to no lock. False: no memory. */
static bool take(struct driver *driver, struct listing *listing, const struct kvs *kvs)
{
    for (size_t i = 0; i < kvs->count; i++) {
        const struct kv *kv = &kvs->all[i];
        size_t last_len;
        const char *last = key_last(kv->key, &last_len);
        if (!make_room(listing))
            return false;
        struct item *item = &listing->items[listing->count];
        memset(item, 0, sizeof(*item));
        item->info.size = sizeof(item->info);
        item->info.waiters = -1;
        item->name_len = name_of(driver, kv->key, item->name);
        item->created = kv->created;
        item->is_shared = contender_read(last, last_len).kind.shared;
        note_holder(kv, listing->base, &item->info);
        listing->count +=
            item->name_len > 0 && last_len > 0 && (unsigned char)last[0] >= CONTENDERS_BEGIN;
    }
    return true;
}

static int compare(const void *a, const void *b)
{
    const struct item *one = a, *two = b;
    size_t shorter = one->name_len < two->name_len ? one->name_len : two->name_len;
    int order = memcmp(one->name, two->name, shorter);
    if (order == 0)
        order = (one->name_len > two->name_len) - (one->name_len < two->name_len);
    return order != 0 ? order : (one->created > two->created) - (one->created < two->created);
}

static void sort(struct listing *listing)
{
    if (listing->count > 1) /* `items` of an empty one is NULL, which qsort() must not be given */
        qsort(listing->items, listing->count, sizeof(*listing->items), compare);
}

/* How many of these contenders of one name, which are in their order, hold it. */
static size_t count_holders(const struct item *items, size_t count)
{
    size_t holders = count > 0;
    bool opens = count > 0 && items[0].info.mode == MORTISE_SHARED;
    while (opens && holders < count && items[holders].is_shared &&
           items[holders].info.permits == items[0].info.permits &&
           (items[0].info.permits == 0 || holders < items[0].info.permits))
        holders++;
    return holders;
}

/* The number of contenders of the first name in the list. */
static size_t count_name(const struct item *items, size_t count)
{
    size_t same = 1;
    while (same < count && items[same].name_len == items[0].name_len &&
           memcmp(items[same].name, items[0].name, items[0].name_len) == 0)
        same++;
    return same;
}

static void emit(struct driver *driver, struct query *query, struct item *item, size_t holders,
                 size_t waiters)
{
    snprintf(item->info.name, sizeof(item->info.name), "%.*s", (int)item->name_len, item->name);
    item->info.holders = (uint32_t)holders;
    item->info.waiters = waiters > INT32_MAX ? INT32_MAX : (int32_t)waiters;
    driver->host->emit(driver->host, query->op, &item->info);
}

/* ---- inspect and break ------------------------------------------------------------------------------------ */

static void finish_inspect(struct driver *driver, struct query *query)
{
    struct listing *listing = query->listing;
    mortise_op *op = query->op;
    mortise_info *info = op->info, asked = *info;
    size_t holders = count_holders(listing->items, listing->count);
    size_t waiters = listing->count - holders;
    if (holders > 0) {
        *info = listing->items[0].info;
        info->size = asked.size;
        memcpy(info->name, asked.name, sizeof(info->name));
        info->holders = (uint32_t)holders;
    } else {
        info->held = false;
        info->held_ms = info->remaining_ms = 0;
    }
    info->waiters = waiters > INT32_MAX ? INT32_MAX : (int32_t)waiters;
    for (size_t i = 0; op->emitted != NULL && i < holders; i++)
        emit(driver, query, &listing->items[i], holders, waiters);
    query_complete(driver, query, MORTISE_OK);
}

static void broken(struct driver *driver, struct call *call)
{
    struct query *query = query_answer(driver, call);
    if (query != NULL)
        query_complete(driver, query, call->answer.done ? MORTISE_OK : MORTISE_LOST);
}

/* Deletes the very key that was read. */
static void finish_break(struct driver *driver, struct query *query, const struct kvs *kvs)
{
    struct listing *listing = query->listing;
    size_t holders = count_holders(listing->items, listing->count), i = 0;
    while (i < holders && listing->items[i].info.token != query->op->token)
        i++;
    if (i == holders) {
        query_complete(driver, query, holders == 0 ? MORTISE_LOST : MORTISE_NOTOWNER);
        return;
    }
    struct call *call = query_call(driver, query, broken);
    for (size_t k = 0; call != NULL && k < kvs->count; k++)
        if (kvs->all[k].created == listing->items[i].created) {
            txn_if_created(&call->grpc.out, kvs->all[k].key, kvs->all[k].created);
            txn_delete(&call->grpc.out, BRANCH_THEN, kvs->all[k].key);
            break; /* no two keys have the same revision: each acquire is its own transaction */
        }
    query_send_write(driver, query, call);
}

static void name_asked(struct driver *driver, struct call *call)
{
    struct query *query = query_answer(driver, call);
    if (query == NULL)
        return;
    const struct answer *answer = &call->answer;
    base_read(&answer->ops[0], answer->header.cluster, &query->listing->base);
    if (!take(driver, query->listing, &answer->ops[1]))
        query_fail(driver, query, MORTISE_NOMEM, NULL);
    else {
        sort(query->listing);
        if (query->op->kind == MORTISE_OP_INSPECT)
            finish_inspect(driver, query);
        else
            finish_break(driver, query, &answer->ops[1]);
    }
}

static size_t prefix_key(const struct driver *driver, char *key, const char *more, size_t more_len)
{
    size_t length = strlen(driver->prefix);
    memcpy(key, driver->prefix, length);
    memcpy(key + length, more, more_len);
    return length + more_len;
}

void inspect_begin(struct driver *driver, struct query *query)
{
    char escaped[ESCAPED_MAX + 1], begin[KEY_MAX], end[KEY_MAX], tokens[PREFIX_MAX + 16];
    if (!listing_new(driver, query))
        return;
    size_t length = name_write(query->op->name, query->op->name_len, escaped);
    escaped[length++] = '/';
    size_t size = prefix_key(driver, begin, escaped, length);
    memcpy(end, begin, size);
    end[size - 1] = NAME_END;
    begin[size] = CONTENDERS_BEGIN;
    size_t tokens_len = prefix_key(driver, tokens, "%tokens", 7);
    struct call *call = query_call(driver, query, name_asked);
    if (call != NULL) {
        txn_range(&call->grpc.out, BRANCH_THEN,
                  &(struct range){.begin = bytes_of(tokens, tokens_len)});
        txn_range(&call->grpc.out, BRANCH_THEN,
                  &(struct range){.begin = bytes_of(begin, size + 1), .end = bytes_of(end, size)});
    }
    query_send(driver, query, call);
}

/* ---- list --------------------------------------------------------------------------------------------------- */

static void finish_list(struct driver *driver, struct query *query)
{
    struct listing *listing = query->listing;
    sort(listing);
    for (size_t at = 0, same; at < listing->count; at += same) {
        struct item *items = listing->items + at;
        same = count_name(items, listing->count - at);
        size_t holders = count_holders(items, same);
        emit(driver, query, items, holders, same - holders);
    }
    query_complete(driver, query, MORTISE_OK);
}

/* No escaped name begins with '%' and a letter behind 'F'. If the prefix of the names to list is not empty, there is one
 * range. */
static size_t range_end(const struct driver *driver, const struct query *query, char end[KEY_MAX])
{
    static const char behind_escapes[2] = {'%', 'F' + 1};
    char escaped[ESCAPED_MAX];
    size_t length = name_write(query->op->name, query->op->name_len, escaped);
    if (length == 0 && query->listing->range == 0)
        return prefix_key(driver, end, behind_escapes, sizeof(behind_escapes));
    if (length == 0)
        return prefix_key(driver, end, "\x7f", 1);
    length = prefix_key(driver, end, escaped, length);
    end[length - 1]++;
    return length;
}

/* The next page begins behind this key. If the key is longer than that of any lock, it does not fit. Then the next page begins
 * behind all keys with the same beginning, which belong to no lock either. No key that is listed begins with the byte 0xff. */
static void go_on_behind(struct listing *listing, struct bytes last)
{
    bool fits = last.size < KEY_MAX;
    listing->next_len = fits ? last.size : KEY_MAX;
    memcpy(listing->next, last.data, listing->next_len);
    if (fits) {
        listing->next[listing->next_len++] = '\0';
        return;
    }
    while ((unsigned char)listing->next[listing->next_len - 1] == UINT8_MAX)
        listing->next_len--;
    listing->next[listing->next_len - 1]++;
}

static void list_page(struct driver *driver, struct query *query);

static void page_read(struct driver *driver, struct call *call)
{
    bool is_compacted = call->end == CALL_REFUSED && call->code == GRPC_OUT_OF_RANGE;
    if (is_compacted)
        call->end = CALL_DONE;
    struct query *query = query_answer(driver, call);
    if (query == NULL)
        return;
    if (is_compacted) {
        list_begin(driver, query);
        return;
    }
    struct listing *listing = query->listing;
    const struct kvs *kvs = &call->answer.ops[1];
    if (listing->revision == 0) {
        listing->revision = call->answer.header.revision;
        base_read(&call->answer.ops[0], call->answer.header.cluster, &listing->base);
    }
    if (!take(driver, listing, kvs)) {
        query_fail(driver, query, MORTISE_NOMEM, NULL);
        return;
    }
    if (kvs->count == listing->page) {
        go_on_behind(listing, kvs->all[kvs->count - 1].key);
        list_page(driver, query);
    } else if (listing->range == 0 && query->op->name_len == 0) {
        listing->range = 1;
        listing->next_len = prefix_key(driver, listing->next, "&", 1);
        list_page(driver, query);
    } else
        finish_list(driver, query);
}

static void list_page(struct driver *driver, struct query *query)
{
    char end[KEY_MAX], tokens[PREFIX_MAX + 16];
    struct listing *listing = query->listing;
    size_t end_len = range_end(driver, query, end);
    size_t tokens_len = prefix_key(driver, tokens, "%tokens", 7);
    struct call *call = query_call(driver, query, page_read);
    if (call != NULL) {
        txn_range(&call->grpc.out, BRANCH_THEN,
                  &(struct range){.begin = bytes_of(tokens, tokens_len)});
        txn_range(&call->grpc.out, BRANCH_THEN,
                  &(struct range){.begin = bytes_of(listing->next, listing->next_len),
                                  .end = bytes_of(end, end_len),
                                  .limit = (int64_t)listing->page,
                                  .revision = listing->revision});
    }
    query_send(driver, query, call);
}

void list_begin(struct driver *driver, struct query *query)
{
    char escaped[ESCAPED_MAX];
    if (!listing_new(driver, query))
        return;
    struct listing *listing = query->listing;
    listing->page = query->was_lost ? PAGE_LOST : PAGE;
    size_t length = name_write(query->op->name, query->op->name_len, escaped);
    if (length == 0) /* the first byte that a name can begin with; no key is empty */
        listing->next_len = prefix_key(driver, listing->next, "!", 1);
    else
        listing->next_len = prefix_key(driver, listing->next, escaped, length);
    list_page(driver, query);
}
