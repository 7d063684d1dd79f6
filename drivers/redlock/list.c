/* list.c - all held locks under a prefix: each node is asked for its locks, page after page (list.lua), and the locks that
 * one grant has on a quorum are emitted. The answer shows the locks that were held during the listing, not at one instant.
 *
 * A scan that has no op any more (canceled, failed) ends with its next answer; the last scan frees the list. */
#include "redlock.h"

#include <stdlib.h>

#define CURSOR_DIGITS 20

/* A key that a node has. */
struct found {
    UT_hash_handle hh;
    bool named[NODES_MAX]; /* by which nodes: SCAN may name a key twice */
    struct tally tally;
    struct holders holders;
    unsigned unread; /* nodes that say it is shared, but not by whom */
    mortise_info info;
    size_t name_len;
    char name[];
};

/* The locks of one node. */
struct scan {
    struct link_call call; /* first */
    struct list *list;
    struct node *node;
    char cursor[CURSOR_DIGITS + 1]; /* begins and ends with "0" */
    bool by_text;                   /* sent with the script's text */
};

struct list {
    struct driver *driver;
    mortise_op *op;             /* NULL: canceled, or failed */
    unsigned running, complete; /* scans; list_start counts as one that runs */
    struct link_fault why;      /* of scans that failed: fault_keep() */
    unsigned refusing;          /* a bit for each node that answered with a lasting error */
    struct found *found;
    struct scan scans[];
};

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
    unsigned unknown = driver->count - list->complete;
    bool shared = best != NULL && best->shared;
    if (shared && holders_settle(&found->holders, driver, unknown + found->unread) > 0)
        found->info = found->holders.all->info;
    else if (shared && found->unread > 0 && found->unread + unknown >= driver->quorum)
        found->info = (mortise_info){.size = sizeof(found->info),
                                     .held = true,
                                     .mode = MORTISE_SHARED,
                                     .holders = 1, /* at least */
                                     .leases = 1,
                                     .held_ms = -1,
                                     .remaining_ms = best->remaining_ms,
                                     .waiters = -1};
    else if (best == NULL || best->shared || !tally_is_held(driver, best, unknown))
        return;
    if (!driver->fencing)
        found->info.token = 0;
    text_copy(found->info.name, sizeof(found->info.name), found->name, found->name_len);
    driver->host->emit(driver->host, list->op, &found->info);
}

static void finish(struct list *list)
{
    struct driver *driver = list->driver;
    if (list->complete < driver->quorum) {
        op_fail_few(driver, list->op, MORTISE_UNREACHABLE, list->complete, &list->why,
                    list->refusing);
        return;
    }
    HASH_SORT(list->found, by_name);
    for (struct found *found = list->found; found != NULL; found = found->hh.next)
        emit(list, found);
    op_complete(driver, list->op, MORTISE_OK);
}

/* A scan, or list_start(), has ended. */
static void list_ended(struct list *list)
{
    struct found *found, *next;
    if (--list->running > 0)
        return;
    if (list->op != NULL)
        finish(list);
    HASH_ITER (hh, list->found, found, next) {
        HASH_DEL(list->found, found);
        holders_free(&found->holders);
        free(found);
    }
    free(list);
}

/* ---- a page ------------------------------------------------------------------------------------------------------- */

/* NULL: no memory. */
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

/* Whether it is a marker without its holders, because a key beside it has another type. */
static bool is_unread(const redisReply *holder)
{
    return holder->elements == 4 && holder->element[3]->type == REDIS_REPLY_NIL;
}

/* {key, holder}. False: out of memory. */
static bool take_lock(struct scan *scan, const redisReply *lock)
{
    const redisReply *key = lock->element[0], *holder = lock->element[1];
    if (key_is_side(key->str, key->len))
        return true;
    struct found *found = find(scan->list, key);
    if (found != NULL && !found->named[scan->node->index]) {
        if (tally_add(&found->tally, holder, &found->info)) {
            holders_add(&found->holders, holder);
            found->unread += is_unread(holder);
        }
        found->named[scan->node->index] = true;
    }
    return found != NULL && !found->holders.failed;
}

static bool is_page(const redisReply *reply)
{
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements == 0 ||
        reply->element[0]->type != REDIS_REPLY_STRING || reply->element[0]->len > CURSOR_DIGITS)
        return false;
    for (size_t i = 1; i < reply->elements; i++) {
        const redisReply *lock = reply->element[i];
        if (lock->type != REDIS_REPLY_ARRAY || lock->elements != 2 ||
            lock->element[0]->type != REDIS_REPLY_STRING)
            return false;
    }
    return true;
}

static void take_page(struct scan *scan, const redisReply *page)
{
    struct list *list = scan->list;
    text_copy(scan->cursor, sizeof(scan->cursor), page->element[0]->str, page->element[0]->len);
    for (size_t i = 1; i < page->elements; i++)
        if (!take_lock(scan, page->element[i])) {
            op_fail_memory(list->driver, list->op);
            list->op = NULL;
            return;
        }
}

/* ---- scanning ------------------------------------------------------------------------------------------------------- */

static void scan_send(struct scan *scan)
{
    struct link *link = &scan->node->link;
    const mortise_op *op = scan->list->op;
    link_call_begin(link, &scan->call);
    scan->by_text = ballot_script_on(scan->node, SCRIPT_LIST, 0, 2);
    link_text(link, scan->cursor);
    link_argument(link, op->name, op->name_len);
    link_call_end(link, &scan->call, 1);
}

static void scanned(struct link_call *call, unsigned index, redisReply *reply)
{
    struct scan *scan = (struct scan *)call;
    struct list *list = scan->list;
    (void)index;
    if (list->op != NULL && script_is_unknown(reply, scan->by_text) &&
        link_is_up(&scan->node->link)) {
        scan->node->known[SCRIPT_LIST] = false;
        scan_send(scan);
        return;
    }
    if (list->op != NULL && is_page(reply)) {
        take_page(scan, reply);
        if (list->op != NULL && strcmp(scan->cursor, "0") != 0) {
            scan_send(scan);
            return;
        }
        list->complete++;
    } else {
        struct link_fault fault;
        link_fault_reply(&scan->node->link, reply, &fault);
        fault_keep(&list->why, &fault);
        if (fault_lasts(&fault))
            list->refusing |= 1u << scan->node->index;
    }
    list_ended(list);
}

static void scan_lost(struct link_call *call, enum link_loss loss, const struct link_fault *fault)
{
    struct scan *scan = (struct scan *)call;
    (void)loss;
    fault_keep(&scan->list->why, fault);
    list_ended(scan->list);
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
        *scan = (struct scan){.call = {.replied = scanned, .lost = scan_lost},
                              .list = list,
                              .node = &driver->nodes[i],
                              .cursor = "0"};
        if (!node_is_usable(scan->node, now))
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
