/* inspect.c - who holds a name (inspect, break), or all names (list).
 *
 * A listing has one item for each name. An item reads the queue of its folder, and then the node of the first contender. A
 * list reads the folders of the root before that, asks for some items at a time, because there may be thousands, and emits
 * them in the order of their names when all is known. */
#include "query.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WINDOW 64 /* items that are being asked for */
#define TRIES 10  /* when the first contender has gone between two looks */

struct item {
    const char *folder;
    size_t name_len;
    unsigned tries;
    int32_t waiters;
    char *first;        /* the node of the holder */
    mortise_info *info; /* NULL: nobody holds the name */
    char name[MORTISE_NAME_MAX];
};

struct listing {
    struct item *items;
    size_t count, next, open; /* the next to be asked for; those that are being asked for */
    int64_t base;             /* of the tokens */
    struct children *folders;
    char folder[FOLDER_MAX]; /* of inspect and break */
};

static void listing_free(struct query *query)
{
    struct listing *listing = query->listing;
    query->listing = NULL;
    if (listing == NULL)
        return;
    for (size_t i = 0; i < listing->count; i++) {
        free(listing->items[i].first);
        free(listing->items[i].info);
    }
    free(listing->items);
    free(listing->folders);
    free(listing);
}

/* ---- the end -------------------------------------------------------------------------------------------- */

static void finish_list(struct driver *driver, struct query *query)
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

static void broken(struct driver *driver, struct request *request)
{
    struct query *query = query_answer(driver, request, true);
    if (query != NULL)
        query_complete(driver, query, request->rc == ZOK ? MORTISE_OK : MORTISE_LOST);
}

/* Deletes the very node that was read. Another grant's node has another name. */
static void finish_break(struct driver *driver, struct query *query, const struct item *item)
{
    if (item->info == NULL)
        query_complete(driver, query, MORTISE_LOST);
    else if (item->info->token != query->op->token)
        query_complete(driver, query, MORTISE_NOTOWNER);
    else {
        query->written = true;
        query_sent(driver, query,
                   send_delete(driver, item->folder, item->first, query_reply(query, broken)));
    }
}

static void finish_inspect(struct driver *driver, struct query *query, const struct item *item)
{
    mortise_info *info = query->op->info, asked = *info;
    if (item->info != NULL) {
        *info = *item->info;
        info->size = asked.size;
        memcpy(info->name, asked.name, sizeof(info->name));
    } else {
        info->held = false;
        info->held_ms = info->remaining_ms = 0;
    }
    info->waiters = item->waiters;
    query_complete(driver, query, MORTISE_OK);
}

static void finish(struct driver *driver, struct query *query)
{
    if (query->op->kind == MORTISE_OP_LIST)
        finish_list(driver, query);
    else if (query->op->kind == MORTISE_OP_RELEASE)
        finish_break(driver, query, query->listing->items);
    else
        finish_inspect(driver, query, query->listing->items);
}

/* ---- the items -------------------------------------------------------------------------------------------- */

static bool ask_item(struct driver *driver, struct query *query, size_t index);

static void ask_more(struct driver *driver, struct query *query)
{
    struct listing *listing = query->listing;
    while (listing->open < WINDOW && listing->next < listing->count) {
        listing->open++;
        if (!ask_item(driver, query, listing->next++))
            return; /* the query has failed */
    }
    if (listing->open == 0)
        finish(driver, query);
}

static void item_done(struct driver *driver, struct query *query)
{
    query->listing->open--;
    ask_more(driver, query);
}

/* If the first contender has gone each time, the name counts as not held, and that is true: the one that held it when the
 * listing began is gone, and nobody holds it until the next one hears of that. The item looks again only because the asker
 * would rather know the next one. A failure would be worse: one busy name would hide all others. */
static void holder_read(struct driver *driver, struct request *request)
{
    struct query *query = query_answer(driver, request, true);
    if (query == NULL)
        return;
    struct item *item = &query->listing->items[request->to.index];
    if (request->rc == ZNONODE && item->tries++ < TRIES) {
        ask_item(driver, query, request->to.index);
        return;
    }
    if (request->rc == ZOK) {
        item->info = calloc(1, sizeof(*item->info));
        if (item->info == NULL) { /* a list that leaves out a holder is worse than none */
            query_complete(driver, query, MORTISE_NOMEM);
            return;
        }
        item->info->size = sizeof(*item->info);
        item->info->waiters = -1;
        note_holder(driver, query->listing->base, item->first, request, item->info);
    }
    item_done(driver, query);
}

static void queue_read(struct driver *driver, struct request *request)
{
    static const struct children nobody = {0};
    struct query *query = query_answer(driver, request, true);
    if (query == NULL)
        return;
    struct item *item = &query->listing->items[request->to.index];
    const struct children *children = request->rc == ZOK ? request->children : &nobody;
    struct queue_view view = queue_look(children, driver->style, "", "");
    free(item->first);
    item->first = NULL;
    item->waiters = view.count > INT32_MAX ? INT32_MAX : (int32_t)view.count - (view.count > 0);
    if (view.first == NULL) {
        item_done(driver, query);
        return;
    }
    item->first = strdup(view.first);
    struct reply_to to = query_reply(query, holder_read);
    to.index = request->to.index;
    query_sent(driver, query,
               item->first != NULL && send_get(driver, item->folder, item->first, to));
}

static bool ask_item(struct driver *driver, struct query *query, size_t index)
{
    struct reply_to to = query_reply(query, queue_read);
    to.index = index;
    return query_sent(driver, query, send_list(driver, query->listing->items[index].folder, to));
}

/* ---- the beginning ---------------------------------------------------------------------------------------- */

static int by_name(const void *a, const void *b)
{
    const struct item *one = a, *two = b;
    size_t shorter = one->name_len < two->name_len ? one->name_len : two->name_len;
    int order = memcmp(one->name, two->name, shorter);
    return order != 0 ? order : (one->name_len > two->name_len) - (one->name_len < two->name_len);
}

/* Takes the folders that are locks and begin with the prefix that is asked for. */
static bool take_folders(struct query *query, struct request *request)
{
    struct listing *listing = query->listing;
    struct children *folders = request->children;
    listing->items = calloc(folders->count + 1, sizeof(*listing->items));
    if (listing->items == NULL)
        return false;
    listing->folders = folders;
    request->children = NULL;
    for (size_t i = 0; i < folders->count; i++) {
        struct item *item = &listing->items[listing->count];
        item->name_len = name_of_folder(folders->names[i], item->name, sizeof(item->name));
        item->folder = folders->names[i];
        if (item->name_len > 0 && item->name_len >= query->op->name_len &&
            memcmp(item->name, query->op->name, query->op->name_len) == 0)
            listing->count++;
    }
    qsort(listing->items, listing->count, sizeof(*listing->items), by_name);
    return true;
}

static void folders_read(struct driver *driver, struct request *request)
{
    struct query *query = query_answer(driver, request, true);
    if (query == NULL)
        return;
    if (request->rc == ZOK && !take_folders(query, request))
        query_complete(driver, query, MORTISE_NOMEM);
    else
        ask_more(driver, query);
}

static void base_read(struct driver *driver, struct request *request)
{
    struct query *query = query_answer(driver, request, true);
    if (query != NULL)
        query->listing->base = request->rc == ZOK ? note_base(request) : 0;
}

/* The one item of inspect and break. */
static bool ask_one(struct driver *driver, struct query *query)
{
    struct listing *listing = query->listing;
    const mortise_op *op = query->op;
    listing->items = calloc(1, sizeof(*listing->items));
    if (listing->items == NULL)
        return query_sent(driver, query, false);
    folder_of_name(op->name, op->name_len, driver->root[0] == '\0', listing->folder);
    listing->items->folder = listing->folder;
    listing->count = listing->next = listing->open = 1;
    return ask_item(driver, query, 0);
}

void inspect_begin(struct driver *driver, struct query *query)
{
    bool is_list = query->op->kind == MORTISE_OP_LIST;
    listing_free(query);
    query->drop = listing_free;
    query->step++;
    query->listing = calloc(1, sizeof(*query->listing));
    if (query->listing == NULL || !send_barrier(driver))
        query_sent(driver, query, false);
    else if (is_list ? query_sent(driver, query,
                                  send_list(driver, NULL, query_reply(query, folders_read)))
                     : ask_one(driver, query))
        query_sent(driver, query, send_get(driver, "%tokens", NULL, query_reply(query, base_read)));
}
