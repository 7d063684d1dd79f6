/* list.c - all held locks under a prefix. On each node: a page of keys by SCAN, then who has them, page after page. Then
 * the locks that one grant has on a quorum are emitted. The answer is what was held during the listing, not at one
 * instant.
 *
 * A scan that has no op any more (canceled, failed) ends with its next answer; the last scan frees the list. */
#include "../lib/redis/pages.h"
#include "redlock.h"

#include <stdlib.h>

/* A key that a node has. */
struct found {
    UT_hash_handle hh;
    uint32_t nodes; /* that have named it, one bit each: SCAN may name a key twice */
    struct tally tally;
    mortise_info info;
    size_t name_len;
    char name[];
};

struct scan {
    struct link_call call; /* first */
    struct list *list;
    struct node *node;
    char cursor[PAGE_CURSOR_SIZE];
    redisReply *page; /* the keys that are being looked at; or NULL */
};

struct list {
    struct driver *driver;
    mortise_op *op;             /* NULL: canceled, or failed */
    unsigned running, complete; /* scans; list_start counts as one that runs */
    struct link_fault why;
    struct found *found;
    struct scan scans[];
};

static void scan_next(struct scan *scan);
static void look_at_page(struct scan *scan);
static void scan_lost(struct link_call *call, enum link_loss loss, const struct link_fault *fault);

/* ---- the end ----------------------------------------------------------------------------------------------------- */

static int by_name(const struct found *a, const struct found *b)
{
    size_t shorter = a->name_len < b->name_len ? a->name_len : b->name_len;
    int order = memcmp(a->name, b->name, shorter);
    return order != 0 ? order : (a->name_len > b->name_len) - (a->name_len < b->name_len);
}

static void emit(struct list *list, struct found *found)
{
    struct driver *driver = list->driver;
    const struct seen *best = tally_best(&found->tally);
    if (!tally_is_held(driver, best, driver->count - list->complete))
        return;
    if (!driver->fencing)
        found->info.token = 0;
    size_t length = found->name_len < MORTISE_NAME_MAX ? found->name_len : (size_t)MORTISE_NAME_MAX;
    memcpy(found->info.name, found->name, length);
    found->info.name[length] = '\0';
    driver->host->emit(driver->host, list->op, &found->info);
}

static void tell(struct list *list)
{
    struct driver *driver = list->driver;
    if (list->complete < driver->quorum) {
        op_fail_few(driver, list->op, MORTISE_UNREACHABLE, list->complete, &list->why);
        return;
    }
    HASH_SORT(list->found, by_name);
    for (struct found *found = list->found; found != NULL; found = found->hh.next)
        emit(list, found);
    op_complete(driver, list->op, MORTISE_OK);
}

/* A scan, or list_start. */
static void list_ended(struct list *list)
{
    struct found *found, *next;
    if (--list->running > 0)
        return;
    if (list->op != NULL)
        tell(list);
    HASH_ITER (hh, list->found, found, next) {
        HASH_DEL(list->found, found);
        free(found);
    }
    free(list);
}

static void scan_ended(struct scan *scan)
{
    if (scan->page != NULL)
        freeReplyObject(scan->page);
    scan->page = NULL;
    list_ended(scan->list);
}

static void scan_failed(struct scan *scan, const struct link_fault *fault)
{
    scan->list->why = *fault;
    scan_ended(scan);
}

static void scan_refused(struct scan *scan, const redisReply *reply)
{
    struct link_fault fault;
    link_fault_reply(&scan->node->link, reply, &fault);
    scan_failed(scan, &fault);
}

static void no_memory(struct scan *scan)
{
    struct list *list = scan->list;
    if (list->op != NULL)
        op_fail_memory(list->driver, list->op);
    list->op = NULL;
}

/* ---- a page ------------------------------------------------------------------------------------------------------- */

static struct found *find(struct list *list, const redisReply *key)
{
    struct found *found;
    HASH_FIND(hh, list->found, key->str, key->len, found);
    if (found != NULL)
        return found;
    found = calloc(1, sizeof(*found) + key->len);
    if (found == NULL)
        return NULL;
    found->name_len = key->len;
    memcpy(found->name, key->str, key->len);
    HASH_ADD_KEYPTR(hh, list->found, found->name, found->name_len, found);
    if (found->hh.tbl != NULL)
        return found;
    free(found);
    return NULL;
}

static bool take_key(struct scan *scan, const redisReply *key, const redisReply *held)
{
    uint32_t bit = 1u << scan->node->index;
    if (held->type != REDIS_REPLY_ARRAY)
        return true;
    struct found *found = find(scan->list, key);
    if (found == NULL)
        return false;
    if ((found->nodes & bit) == 0)
        tally_add(&found->tally, held, &found->info);
    found->nodes |= bit;
    return true;
}

static void looked(struct link_call *call, unsigned index, redisReply *reply)
{
    struct scan *scan = (struct scan *)call;
    const redisReply *keys = scan->page->element[1];
    (void)index;
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != keys->elements) {
        if (reply->type == REDIS_REPLY_ERROR && scan->list->op != NULL &&
            link_error_of(reply->str, reply->len) == LINK_ERROR_NOSCRIPT) {
            scan->node->known[SCRIPT_LOOK] = false;
            look_at_page(scan);
            return;
        }
        scan_refused(scan, reply);
        return;
    }
    for (size_t i = 0; i < keys->elements && scan->list->op != NULL; i++)
        if (!take_key(scan, keys->element[i], reply->element[i]))
            no_memory(scan);
    freeReplyObject(scan->page);
    scan->page = NULL;
    scan_next(scan);
}

static void begin(struct scan *scan, void (*replied)(struct link_call *, unsigned, redisReply *))
{
    scan->call.replied = replied;
    scan->call.lost = scan_lost;
    link_call_begin(&scan->node->link, &scan->call);
}

static void look_at_page(struct scan *scan)
{
    struct link *link = &scan->node->link;
    const redisReply *keys = scan->page->element[1];
    begin(scan, looked);
    ballot_script_on(scan->node, SCRIPT_LOOK, (unsigned)keys->elements, 0);
    for (size_t i = 0; i < keys->elements; i++)
        link_argument(link, keys->element[i]->str, keys->element[i]->len);
    link_call_end(link, &scan->call, 1);
}

/* ---- scanning ------------------------------------------------------------------------------------------------------- */

static void scanned(struct link_call *call, unsigned index, redisReply *reply)
{
    struct scan *scan = (struct scan *)call;
    (void)index;
    if (scan->list->op == NULL)
        scan_ended(scan);
    else if (!page_is_one(reply))
        scan_refused(scan, reply);
    else if ((scan->page = page_take(reply, scan->cursor)) == NULL) {
        no_memory(scan);
        scan_ended(scan);
    } else if (scan->page->element[1]->elements > 0)
        look_at_page(scan);
    else {
        freeReplyObject(scan->page);
        scan->page = NULL;
        scan_next(scan);
    }
}

static void scan_send(struct scan *scan)
{
    const mortise_op *op = scan->list->op;
    begin(scan, scanned);
    if (!page_put(&scan->node->link, scan->cursor, op->name, op->name_len)) {
        no_memory(scan);
        scan_ended(scan);
        return;
    }
    link_call_end(&scan->node->link, &scan->call, 1);
}

static void scan_next(struct scan *scan)
{
    bool last = strcmp(scan->cursor, "0") == 0;
    scan->list->complete += last;
    if (last || scan->list->op == NULL)
        scan_ended(scan);
    else
        scan_send(scan);
}

static void scan_lost(struct link_call *call, enum link_loss loss, const struct link_fault *fault)
{
    (void)loss;
    scan_failed((struct scan *)call, fault);
}

/* ---- asked by the core ---------------------------------------------------------------------------------------------- */

void list_start(struct driver *driver, mortise_op *op)
{
    struct list *list = calloc(1, sizeof(*list) + driver->count * sizeof(struct scan));
    if (list == NULL) {
        op_fail_memory(driver, op);
        return;
    }
    list->driver = driver;
    list->op = op;
    op_put(op, OP_LIST, list);
    list->running = 1;
    int64_t now = now_of(driver);
    for (unsigned i = 0; i < driver->count; i++) {
        struct scan *scan = &list->scans[i];
        scan->list = list;
        scan->node = &driver->nodes[i];
        memcpy(scan->cursor, "0", 2);
        if (!node_is_usable(scan->node, now) || list->op == NULL)
            continue;
        list->running++;
        scan_send(scan);
    }
    list_ended(list);
}

void list_cancel(struct driver *driver, mortise_op *op)
{
    struct list *list = op_at(op, OP_LIST);
    list->op = NULL;
    op_complete(driver, op, MORTISE_CANCELED);
}
