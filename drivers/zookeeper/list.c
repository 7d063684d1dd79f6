/* list.c - the names that are held: all folders, then the queue of each, then its holder; some folders at a
 * time, for there may be thousands. Emitted in the order of names when all is known. */
#include "driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WINDOW 64
#define TRIES 10

struct item {
    struct query *query;
    char *folder; /* in the listing's children */
    size_t name_len;
    unsigned tries;
    char *first;
    mortise_info *info; /* NULL: not held */
    char name[MORTISE_NAME_MAX];
};

struct listing {
    struct item *items;
    size_t count, next, open; /* asked for next; being asked for */
    struct children *folders;
};

void list_free(struct query *query)
{
    struct listing *listing = query->listing;
    if (listing == NULL)
        return;
    for (size_t i = 0; i < listing->count; i++) {
        free(listing->items[i].first);
        free(listing->items[i].info);
    }
    free(listing->items);
    free(listing->folders);
    free(listing);
    query->listing = NULL;
}

static int by_name(const void *a, const void *b)
{
    const struct item *one = a, *two = b;
    size_t shorter = one->name_len < two->name_len ? one->name_len : two->name_len;
    int order = memcmp(one->name, two->name, shorter);
    return order != 0 ? order : (one->name_len > two->name_len) - (one->name_len < two->name_len);
}

static void finish(struct driver *driver, struct query *query)
{
    struct listing *listing = query->listing;
    for (size_t i = 0; i < listing->count; i++) {
        const struct item *item = &listing->items[i];
        if (item->info == NULL)
            continue;
        snprintf(item->info->name, sizeof(item->info->name), "%.*s", (int)item->name_len,
                 item->name);
        driver->host->emit(driver->host, query->op, item->info);
    }
    query_complete(driver, query, MORTISE_OK);
}

static void ask_more(struct driver *driver, struct query *query);

/* Answers of a query have the query as their target; theirs have the item. False as query_answer(). */
static bool item_answer(struct driver *driver, struct request *request, struct item **item)
{
    *item = request->target;
    request->target = (*item)->query;
    return query_answer(driver, request, true);
}

static void item_done(struct driver *driver, struct item *item)
{
    struct query *query = item->query;
    query->listing->open--;
    ask_more(driver, query);
}

/* A list that leaves out a holder is worse than none. */
static void no_memory(struct driver *driver, struct item *item)
{
    query_complete(driver, item->query, MORTISE_NOMEM);
}

static bool ask_item(struct driver *driver, struct item *item);

/* Where the first of the queue has gone each time, the name is left out, and that is true: who had it when the listing was
 * begun was the first then, and is gone; and from when a holder's node goes until the next one hears of it nobody holds the
 * name. It is looked at again only because the next one is what the asker would rather know. To fail would be worse: one
 * name that is always in demand would keep all others from being told. */
static void holder_told(struct driver *driver, struct request *request)
{
    struct item *item;
    if (!item_answer(driver, request, &item))
        return;
    if (request->rc == ZNONODE && item->tries++ < TRIES) {
        ask_item(driver, item);
        return;
    }
    if (request->rc == ZOK) {
        item->info = calloc(1, sizeof(*item->info));
        if (item->info == NULL) {
            no_memory(driver, item);
            return;
        }
        item->info->size = sizeof(*item->info);
        item->info->waiters = -1;
        query_fill(driver, item->query->base, item->first, request, item->info);
    }
    item_done(driver, item);
}

static void queue_told(struct driver *driver, struct request *request)
{
    struct item *item;
    char path[PATH_SIZE + NODE_MAX * 8];
    size_t count = 0;
    if (!item_answer(driver, request, &item))
        return;
    const char *first = request->rc == ZOK ? queue_first(request->children, &count) : NULL;
    free(item->first);
    item->first = first == NULL ? NULL : strdup(first);
    if (item->first == NULL) {
        if (first == NULL)
            item_done(driver, item);
        else
            no_memory(driver, item);
        return;
    }
    snprintf(path, sizeof(path), "%s/%s/%s", driver->root, item->folder, first);
    struct reply_to to = query_reply(item->query, holder_told);
    to.target = item;
    query_sent(driver, item->query, send_get(driver, path, false, to));
}

static bool ask_item(struct driver *driver, struct item *item)
{
    char path[PATH_SIZE];
    struct reply_to to = query_reply(item->query, queue_told);
    to.target = item;
    path_of(driver, item->folder, NULL, path);
    return query_sent(driver, item->query, send_list(driver, path, to));
}

static void ask_more(struct driver *driver, struct query *query)
{
    struct listing *listing = query->listing;
    while (listing->open < WINDOW && listing->next < listing->count) {
        listing->open++;
        if (!ask_item(driver, &listing->items[listing->next++]))
            return; /* the query has failed */
    }
    if (listing->open == 0)
        finish(driver, query);
}

/* Those that are locks and begin with the prefix that is asked for. */
static bool take_folders(struct query *query, struct children *folders)
{
    struct listing *listing = calloc(1, sizeof(*listing));
    query->listing = listing;
    if (listing == NULL)
        return false;
    listing->items = calloc(folders->count + 1, sizeof(*listing->items));
    if (listing->items == NULL)
        return false;
    listing->folders = folders;
    for (size_t i = 0; i < folders->count; i++) {
        struct item *item = &listing->items[listing->count];
        item->name_len = name_of_folder(folders->names[i], item->name, sizeof(item->name));
        item->query = query;
        item->folder = folders->names[i];
        if (item->name_len > 0 && item->name_len >= query->op->name_len &&
            memcmp(item->name, query->op->name, query->op->name_len) == 0)
            listing->count++;
    }
    qsort(listing->items, listing->count, sizeof(*listing->items), by_name);
    return true;
}

static void folders_told(struct driver *driver, struct request *request)
{
    struct query *query = request->target;
    if (!query_answer(driver, request, true))
        return;
    if (request->rc == ZNONODE) {
        query_complete(driver, query, MORTISE_OK);
        return;
    }
    struct children *folders = request->children;
    if (!take_folders(query, folders)) {
        query_complete(driver, query, MORTISE_NOMEM);
        return;
    }
    request->children = NULL; /* the listing's now */
    ask_more(driver, query);
}

static void base_told(struct driver *driver, struct request *request)
{
    struct query *query = request->target;
    if (query_answer(driver, request, true))
        query->base = request->rc == ZOK ? base_read(request) : 0;
}

void list_begin(struct driver *driver, struct query *query)
{
    char path[PATH_SIZE];
    query->step++;
    path_of(driver, "%tokens", NULL, path);
    if (!query_sent(driver, query,
                    send_barrier(driver) &&
                        send_get(driver, path, false, query_reply(query, base_told))))
        return;
    path_of(driver, NULL, NULL, path);
    query_sent(driver, query, send_list(driver, path, query_reply(query, folders_told)));
}
