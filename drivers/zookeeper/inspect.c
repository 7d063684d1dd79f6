/* inspect.c - who holds a name (inspect, break), or all names (list).
 *
 * A listing has one item for each name. An item reads the queue of its folder, and then the nodes of the contenders that may
 * hold. A list first reads the folders of the root. It asks for some items at a time, because there may be thousands, and
 * emits them sorted by name when all are known.
 *
 * The names of the nodes show who holds (queue.h), with two exceptions. The first contender, or the first one behind leases of
 * another library, may be exclusive only by its name: then the shared ones directly behind it hold, too, and are read next. At
 * the end of the numbers, the contender with the smallest czxid holds. */
#include "query.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WINDOW 64 /* how many items are requested at a time */
#define TRIES 10  /* tries if the first contender goes between two looks */

/* A contender that may hold the name. */
struct holder {
    char *node;
    struct node_kind kind;
    int64_t czxid;
    mortise_info *info; /* NULL: not read, or gone */
};

struct item {
    char *folder, *gate; /* of the leases; that of a semaphore's gate, or NULL */
    int32_t gate_count;  /* of the contenders there */
    size_t name_len;
    unsigned tries;
    int32_t waiters;
    struct holder *holders;    /* in the end: those that hold, the smallest token first */
    size_t count, asked, open; /* of all; of those requested; of those not answered */
    bool is_tie;               /* only one of them holds: the one with the smallest czxid */
    char name[MORTISE_NAME_MAX];
};

struct listing {
    struct item *items;
    size_t count, next, open; /* next: the next one to request; open: those under way */
    int64_t base;             /* of the tokens */
};

static void holders_free(struct item *item)
{
    for (size_t i = 0; i < item->count; i++) {
        free(item->holders[i].node);
        free(item->holders[i].info);
    }
    free(item->holders);
    item->holders = NULL;
    item->count = item->asked = item->open = 0;
    item->is_tie = false;
}

static void listing_free(struct query *query)
{
    struct listing *listing = query->listing;
    query->listing = NULL;
    if (listing == NULL)
        return;
    for (size_t i = 0; i < listing->count; i++) {
        holders_free(&listing->items[i]);
        free(listing->items[i].folder);
        free(listing->items[i].gate);
    }
    free(listing->items);
    free(listing);
}

/* ---- the end -------------------------------------------------------------------------------------------- */

static void emit(struct driver *driver, struct query *query, const struct item *item,
                 const struct holder *holder)
{
    snprintf(holder->info->name, sizeof(holder->info->name), "%.*s", (int)item->name_len,
             item->name);
    driver->host->emit(driver->host, query->op, holder->info);
}

static void finish_list(struct driver *driver, struct query *query)
{
    struct listing *listing = query->listing;
    for (size_t i = 0; i < listing->count; i++)
        if (listing->items[i].count > 0)
            emit(driver, query, &listing->items[i], listing->items[i].holders);
    query_complete(driver, query, MORTISE_OK);
}

static void broken(struct driver *driver, struct request *request)
{
    struct query *query = query_answer(driver, request, true);
    if (query != NULL)
        query_complete(driver, query, request->rc == ZOK ? MORTISE_OK : MORTISE_LOST);
}

static void delete_holder(struct driver *driver, struct query *query, const struct item *item,
                          const struct holder *holder)
{
    query->written = true;
    query_sent(driver, query,
               send_delete(driver, item->folder, holder->node, query_reply(query, broken)));
}

/* An exclusive holder is in the gate, too, and keeps others out there. */
static void gate_searched(struct driver *driver, struct request *request)
{
    struct query *query = query_answer(driver, request, true);
    char owner[33], other[33];
    if (query == NULL)
        return;
    const struct item *item = query->listing->items;
    const struct holder *holder = item->holders;
    query->written = true;
    bool known = request->rc == ZOK && node_owner(holder->node, owner);
    for (size_t i = 0; known && i < request->children->count; i++)
        if (node_owner(request->children->names[i], other) && strcmp(owner, other) == 0)
            send_delete(driver, item->gate, request->children->names[i], (struct reply_to){0});
    delete_holder(driver, query, item, holder);
}

/* Deletes the very node that was read. Another grant's node has another name. */
static void finish_break(struct driver *driver, struct query *query, const struct item *item)
{
    const struct holder *holder = item->holders, *end = item->holders + item->count;
    while (holder != end && holder->info->token != query->op->token)
        holder++;
    if (holder == end) {
        query_complete(driver, query, item->count == 0 ? MORTISE_LOST : MORTISE_NOTOWNER);
        return;
    }
    if (item->gate != NULL && !holder->kind.shared)
        query_sent(driver, query, send_list(driver, item->gate, query_reply(query, gate_searched)));
    else
        delete_holder(driver, query, item, holder);
}

static void finish_inspect(struct driver *driver, struct query *query, const struct item *item)
{
    mortise_op *op = query->op;
    mortise_info *info = op->info, asked = *info;
    if (item->count > 0) {
        *info = *item->holders->info;
        info->size = asked.size;
        memcpy(info->name, asked.name, sizeof(info->name));
    } else {
        info->held = false;
        info->held_ms = info->remaining_ms = 0;
    }
    info->waiters = item->waiters;
    for (size_t i = 0; op->emitted != NULL && i < item->count; i++) {
        item->holders[i].info->waiters = item->waiters;
        emit(driver, query, item, &item->holders[i]);
    }
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

static int by_token(const void *a, const void *b)
{
    const struct holder *one = a, *two = b;
    return (one->info->token > two->info->token) - (one->info->token < two->info->token);
}

/* Keeps those that hold, according to the answers. */
static void keep_holders(struct item *item)
{
    size_t kept = 0;
    for (size_t i = 0; i < item->count; i++) {
        struct holder holder = item->holders[i];
        bool holds = holder.info != NULL;
        if (holds && item->is_tie && kept > 0) { /* the older one is kept */
            struct holder *other = item->holders, older = *other;
            holds = false;
            if (holder.czxid < older.czxid) {
                *other = holder;
                holder = older;
            }
        } else if (kept > 0 && !holder.kind.shared) /* it waits behind leases of kazoo's */
            holds = false;
        if (holds)
            item->holders[kept++] = holder;
        else {
            free(holder.node);
            free(holder.info);
        }
    }
    item->count = kept;
    if (kept > 0)
        qsort(item->holders, kept, sizeof(*item->holders), by_token);
    for (size_t i = 0; i < kept; i++) {
        mortise_info *info = item->holders[i].info;
        info->mode = item->holders[i].kind.shared ? MORTISE_SHARED : MORTISE_EXCLUSIVE;
        info->permits = item->holders[i].kind.permits;
        info->holders = (uint32_t)kept;
    }
}

/* All answers have come. If all contenders that were read have gone, at each try, the name counts as not held. That is true:
 * those that held it when the listing began are gone, and nobody holds it until the next one is notified. The item looks
 * again only because the next holder is more useful to know. A failure would be worse, because one busy name would hide all
 * others. */
static void settle(struct driver *driver, struct query *query, size_t index)
{
    struct item *item = &query->listing->items[index];
    bool any = item->count == 0;
    for (size_t i = 0; i < item->count; i++)
        any |= item->holders[i].info != NULL;
    if (!any && item->tries++ < TRIES) {
        ask_item(driver, query, index);
        return;
    }
    int64_t contenders = (int64_t)item->waiters;
    keep_holders(item);
    if (item->gate == NULL)
        contenders -= (int64_t)item->count;
    else /* an exclusive holder is still in the gate */
        contenders = item->gate_count - (item->count > 0 && !item->holders[0].kind.shared);
    item->waiters = contenders < 0 ? 0 : (int32_t)contenders;
    item_done(driver, query);
}

static void holder_read(struct driver *driver, struct request *request);

/* Asks for the nodes up to this one. False: the query has failed. */
static bool ask_holders(struct driver *driver, struct query *query, size_t index, size_t end)
{
    struct item *item = &query->listing->items[index];
    while (item->asked < end) {
        struct reply_to to = query_reply(query, holder_read);
        to.index = index;
        to.part = item->asked++;
        item->open++;
        if (!query_sent(driver, query,
                        send_get(driver, item->folder, item->holders[to.part].node, to)))
            return false;
    }
    return true;
}

static void holder_read(struct driver *driver, struct request *request)
{
    struct query *query = query_answer(driver, request, true);
    if (query == NULL)
        return;
    struct item *item = &query->listing->items[request->to.index];
    struct holder *holder = &item->holders[request->to.part];
    item->open--;
    if (request->rc == ZOK) {
        holder->info = calloc(1, sizeof(*holder->info));
        if (holder->info == NULL) { /* a list without a holder is worse than no list */
            query_complete(driver, query, MORTISE_NOMEM);
            return;
        }
        holder->info->size = sizeof(*holder->info);
        holder->info->waiters = -1;
        holder->czxid = request->stat.czxid;
        note_holder(driver, query->listing->base, holder->node, request, holder->info);
        if (!holder->kind.shared && holder->info->mode == MORTISE_SHARED) {
            holder->kind = (struct node_kind){.shared = true};
            if (!item->is_tie && !ask_holders(driver, query, request->to.index, item->count))
                return;
        }
    }
    if (item->open == 0)
        settle(driver, query, request->to.index);
}

/* Copies the contenders that may hold. Returns how many of them to read now; -1: no memory. */
static int64_t take_holders(struct item *item, const struct contender *all, size_t count)
{
    struct queue_reads reads = queue_to_read(all, count);
    item->is_tie = reads.now > 1 && !(all->number >= 0 && all->number < INT32_MAX);
    item->holders = calloc(reads.now + reads.more + 1, sizeof(*item->holders));
    for (size_t i = 0; item->holders != NULL && i < reads.now + reads.more; i++) {
        item->holders[i].kind = all[i].kind;
        item->holders[i].node = strdup(all[i].node);
        if (item->holders[i].node == NULL)
            return -1;
        item->count++;
    }
    return item->holders == NULL ? -1 : (int64_t)reads.now;
}

static void queue_read(struct driver *driver, struct request *request)
{
    static const struct children nobody = {0};
    struct query *query = query_answer(driver, request, true);
    if (query == NULL)
        return;
    struct item *item = &query->listing->items[request->to.index];
    const struct children *children = request->rc == ZOK ? request->children : &nobody;
    struct contender *all = calloc(children->count + 1, sizeof(*all));
    size_t count = all == NULL ? 0 : queue_sort(children, driver->style, all);
    holders_free(item);
    item->waiters = count > INT32_MAX ? INT32_MAX : (int32_t)count;
    int64_t asked = all == NULL ? -1 : take_holders(item, all, count);
    free(all);
    if (asked < 0)
        query_complete(driver, query, MORTISE_NOMEM);
    else if (asked == 0)
        settle(driver, query, request->to.index);
    else
        ask_holders(driver, query, request->to.index, (size_t)asked);
}

static void gate_read(struct driver *driver, struct request *request)
{
    struct query *query = query_answer(driver, request, true);
    struct contender contender;
    int32_t count = 0;
    if (query == NULL)
        return;
    for (size_t i = 0; request->rc == ZOK && i < request->children->count; i++)
        count += node_read(request->children->names[i], STYLE_CURATOR, &contender);
    query->listing->items[request->to.index].gate_count = count;
}

/* Requests the gate first, so that its answer has come when the leases are read. */
static bool ask_item(struct driver *driver, struct query *query, size_t index)
{
    const struct item *item = &query->listing->items[index];
    struct reply_to to = query_reply(query, gate_read);
    to.index = index;
    if (item->gate != NULL && !query_sent(driver, query, send_list(driver, item->gate, to)))
        return false;
    to.answered = queue_read;
    return query_sent(driver, query, send_list(driver, item->folder, to));
}

/* ---- the beginning ---------------------------------------------------------------------------------------- */

static int by_name(const void *a, const void *b)
{
    const struct item *one = a, *two = b;
    size_t shorter = one->name_len < two->name_len ? one->name_len : two->name_len;
    int order = memcmp(one->name, two->name, shorter);
    return order != 0 ? order : (one->name_len > two->name_len) - (one->name_len < two->name_len);
}

/* Sets the folders of an item from the folder of its name. False: no memory. */
static bool set_folders(const struct driver *driver, struct item *item, const char *name)
{
    char folder[PART_MAX], gate[PART_MAX];
    bool has_gate = style_has_gate(driver->style);
    snprintf(folder, sizeof(folder), "%s", name);
    snprintf(gate, sizeof(gate), "%s", name);
    folder_of_part(driver->style, PART_LEASES, folder);
    folder_of_part(driver->style, PART_GATE, gate);
    item->folder = strdup(folder);
    item->gate = has_gate ? strdup(gate) : NULL;
    return item->folder != NULL && (item->gate != NULL || !has_gate);
}

/* Takes the folders that are locks and begin with the requested prefix. */
static bool take_folders(const struct driver *driver, struct query *query, struct request *request)
{
    struct listing *listing = query->listing;
    const struct children *folders = request->children;
    listing->items = calloc(folders->count + 1, sizeof(*listing->items));
    if (listing->items == NULL)
        return false;
    for (size_t i = 0; i < folders->count; i++) {
        struct item *item = &listing->items[listing->count];
        item->name_len = name_of_folder(folders->names[i], item->name, sizeof(item->name));
        if (item->name_len == 0 || item->name_len < query->op->name_len ||
            is_gate_folder(driver->style, folders->names[i]) ||
            memcmp(item->name, query->op->name, query->op->name_len) != 0)
            continue;
        listing->count++;
        if (!set_folders(driver, item, folders->names[i]))
            return false;
    }
    qsort(listing->items, listing->count, sizeof(*listing->items), by_name);
    return true;
}

static void folders_read(struct driver *driver, struct request *request)
{
    struct query *query = query_answer(driver, request, true);
    if (query == NULL)
        return;
    if (request->rc == ZOK && !take_folders(driver, query, request))
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
    char folder[FOLDER_MAX];
    listing->items = calloc(1, sizeof(*listing->items));
    if (listing->items == NULL)
        return query_sent(driver, query, false);
    folder_of_name(op->name, op->name_len, driver->root[0] == '\0', folder);
    listing->items->name_len = op->name_len;
    memcpy(listing->items->name, op->name, op->name_len);
    listing->count = listing->next = listing->open = 1;
    if (!set_folders(driver, listing->items, folder))
        return query_sent(driver, query, false);
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
