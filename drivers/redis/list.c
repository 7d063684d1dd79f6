/* list.c - all held locks under a prefix: a page of keys by SCAN, then a look at each key of the page. The answer shows the
 * locks that were held during the listing, not at one instant. Keys that are no lock of this layout are left out, because the
 * database may have other keys.
 *
 *   SCAN ──page──▶ a look at each of its keys ──▶ SCAN … cursor 0 ──▶ ROLE ──▶ sorted, emitted
 *                    └─ who shares those that are shared ─┘
 *
 * A node of a cluster is first asked how many keys it has got from other nodes (INFO commandstats): that number is the `token`
 * of the op. With LIST_COUNTS, nothing else is asked (gather.c). If a key has left the node between SCAN and the look at the
 * key, the list is not `sure`.
 *
 *   NOSCRIPT: the text of a script goes with the first of several looks. If that look is redirected, the node has not read the
 *     text. Then the looks for shared holders are repeated for the other keys; with other looks, the list is not `sure`.
 *
 *   The server becomes a replica: the listing fails, even if only the ROLE at its end shows it.
 *   The op is canceled: the next answer frees the list.
 *   The connection breaks: the op fails, and the list is freed. */
#include "pages.h"
#include "sending.h"
#include "shared.h"

#include <stdio.h>
#include <stdlib.h>

struct found {
    struct found *next;
    mortise_info info;
    bool shared; /* its shared holders are still to be asked for */
    size_t name_len;
    char name[]; /* with the namespace */
};

/* A list has this instead of a request, because it makes many calls. */
struct list {
    struct link_call call; /* first */
    struct driver *driver;
    mortise_op *op; /* NULL: canceled, or failed */
    char cursor[PAGE_CURSOR_SIZE];
    redisReply *page; /* the keys of this page; owned */
    size_t at;        /* the key being looked at */
    struct found *found;
    size_t count;
    struct found *looks; /* the next one for which a look is answered */
    unsigned sharing;    /* of the page */
};

static void scan(struct list *list);
static void look_at_page(struct list *list);
static void ask_who_shares(struct list *list);
static void lost(struct link_call *call, enum link_loss loss, const struct link_fault *fault);

static void free_list(struct list *list)
{
    struct found *found = list->found, *next;
    for (; found != NULL; found = next) {
        next = found->next;
        free(found);
    }
    if (list->page != NULL)
        freeReplyObject(list->page);
    free(list);
}

static void fail_list(struct list *list, const struct link_fault *fault)
{
    if (list->op != NULL)
        op_fail(list->driver, list->op, fault);
    free_list(list);
}

static bool is_unknown_script(const redisReply *reply)
{
    return reply->type == REDIS_REPLY_ERROR &&
           link_error_of(reply->str, reply->len) == LINK_ERROR_NOSCRIPT;
}

/* A key has left this node since SCAN named it; or the first key of the looks has, and with it the text of the script. */
static bool is_on_its_way(const struct list *list, const redisReply *reply)
{
    enum link_error error = link_error_of(reply->str, reply->len);
    return list->driver->in_cluster &&
           (error == LINK_ERROR_MOVED || error == LINK_ERROR_ASK || error == LINK_ERROR_TRYAGAIN ||
            error == LINK_ERROR_SPLIT || error == LINK_ERROR_NOSCRIPT);
}

static void refuse_list(struct list *list, const redisReply *reply)
{
    struct link_fault fault;
    link_fault_reply(&list->driver->link, reply, &fault);
    fail_list(list, &fault);
}

/* The answer to a look at a key is an error. */
static void refuse_look(struct list *list, const redisReply *reply)
{
    struct link_fault fault;
    if (is_on_its_way(list, reply)) {
        list->op->sure = false;
        return;
    }
    link_fault_reply(&list->driver->link, reply, &fault);
    op_fail(list->driver, list->op, &fault);
    list->op = NULL;
}

static void begin(struct list *list, void (*replied)(struct link_call *, unsigned, redisReply *))
{
    list->call.replied = replied;
    list->call.lost = lost;
    link_call_begin(&list->driver->link, &list->call);
}

/* Whether another answer on this connection said READONLY. A replica's answers do not count, and the connection can end
 * only when nothing more is asked on it. */
static bool has_left(struct list *list)
{
    struct link_fault fault;
    if (link_is_up(&list->driver->link))
        return false;
    failover_fault(list->driver, &fault);
    fail_list(list, &fault);
    return true;
}

/* ---- the end ------------------------------------------------------------------------------------------ */

static int compare(const void *a, const void *b)
{
    const struct found *one = *(const struct found *const *)a;
    const struct found *two = *(const struct found *const *)b;
    size_t shorter = one->name_len < two->name_len ? one->name_len : two->name_len;
    int order = memcmp(one->name, two->name, shorter);
    return order != 0 ? order : (one->name_len > two->name_len) - (one->name_len < two->name_len);
}

static void emit(const struct list *list, const mortise_info *info)
{
    mortise_host *host = list->driver->host;
    if (op_is_own(list->driver, list->op))
        list->op->emitted(list->op, info);
    else
        host->emit(host, list->op, info);
}

static void tell(struct list *list)
{
    struct driver *driver = list->driver;
    struct found **all = malloc((list->count + 1) * sizeof(struct found *));
    size_t n = 0;
    if (all == NULL) {
        op_fail_memory(driver, list->op);
        return;
    }
    for (struct found *found = list->found; found != NULL; found = found->next)
        all[n++] = found;
    qsort(all, n, sizeof(struct found *), compare);
    for (size_t i = 0; i < n; i++)
        if (i == 0 || compare(&all[i - 1], &all[i]) != 0) /* SCAN may name a key twice */
            emit(list, &all[i]->info);
    free(all);
    op_complete(driver, list->op, MORTISE_OK);
}

static void role_told(struct link_call *call, unsigned index, redisReply *reply)
{
    struct list *list = (struct list *)call;
    struct link *link = &list->driver->link;
    (void)index;
    if (list->op == NULL || failover_is_primary(reply)) {
        if (list->op != NULL)
            tell(list);
        free_list(list);
        return;
    }
    if (reply->type == REDIS_REPLY_ERROR) { /* the user has lost the right to ROLE meanwhile */
        refuse_list(list, reply);
        return;
    }
    struct link_fault fault;
    failover_fault(list->driver, &fault);
    fail_list(list, &fault);
    link_break(link, &fault);
}

static void ask_role(struct list *list)
{
    struct link *link = &list->driver->link;
    if (!link->role_told) { /* the user may not ask */
        tell(list);
        free_list(list);
        return;
    }
    begin(list, role_told);
    link_command(link, 1);
    link_text(link, "ROLE");
    link_call_end(link, &list->call, 1);
}

/* ---- looking at each -------------------------------------------------------------------------------------- */

static bool keep(struct list *list, const redisReply *key, const mortise_info *info, bool shared)
{
    struct found *found = malloc(sizeof(*found) + key->len);
    if (found == NULL)
        return false;
    found->info = *info;
    found->shared = shared;
    list->sharing += shared;
    found->name_len = key->len;
    memcpy(found->name, key->str, key->len);
    found->next = list->found;
    list->found = found;
    list->count++;
    return true;
}

/* The info has the name with its namespace, as ops do; the core takes the namespace off. */
static bool take(struct list *list, const redisReply *key, const redisReply *reply)
{
    mortise_info info = {.size = sizeof(info)};
    if ((size_t)key->len > MORTISE_NAME_MAX)
        return true; /* longer than any name */
    if (!inspect_take(list->driver, reply, &info) || !info.held || info.remaining_ms == -1)
        return true;
    memcpy(info.name, key->str, key->len);
    info.name[key->len] = '\0';
    bool shared = driver_shares(list->driver) && shared_is_marker(reply->element[0]);
    if (shared)
        info.mode = MORTISE_SHARED; /* even if its holders are unknown */
    return keep(list, key, &info, shared);
}

static void next_page(struct list *list)
{
    freeReplyObject(list->page);
    list->page = NULL;
    if (has_left(list))
        return;
    if (strcmp(list->cursor, "0") != 0)
        scan(list);
    else
        ask_role(list);
}

/* All looks have been answered. */
static void go_on(struct list *list)
{
    if (list->op == NULL)
        free_list(list);
    else if (list->sharing == 0)
        next_page(list);
    else if (!has_left(list))
        ask_who_shares(list);
}

/* ---- who shares ------------------------------------------------------------------------------------------- */

/* The shared locks of the page are the first ones of the list. */
static struct found *next_shared(struct found *found)
{
    while (found != NULL && !found->shared)
        found = found->next;
    return found;
}

/* Whether a key beside the lock has another type, because another program has made it. Before Redis 7, the error begins
 * with other words. */
static bool is_of_another_type(const redisReply *reply)
{
    return memmem(reply->str, reply->len, "WRONGTYPE ", 10) != NULL;
}

/* If nobody shares the lock any more, or some of its keys are on another node or have another type, the list shows what the
 * first look saw. */
static void holders_told(struct link_call *call, unsigned index, redisReply *reply)
{
    struct list *list = (struct list *)call;
    bool unknown = is_unknown_script(reply); /* the look is repeated */
    if (reply->type == REDIS_REPLY_ERROR && list->op != NULL && !unknown &&
        !is_on_its_way(list, reply) && !is_of_another_type(reply))
        refuse_look(list, reply);
    struct found *found = list->looks;
    list->looks = next_shared(found->next);
    if (!unknown)
        shared_take(list->driver, reply, 0, &found->info);
    found->shared = unknown;
    list->sharing += unknown;
    if (index + 1 == call->expected)
        go_on(list);
}

/* The text goes with the first of them, so at least that one is settled by the answer. */
static void ask_who_shares(struct list *list)
{
    struct link *link = &list->driver->link;
    unsigned count = list->sharing;
    list->looks = next_shared(list->found);
    list->sharing = 0;
    begin(list, holders_told);
    for (struct found *found = list->looks; found != NULL; found = next_shared(found->next))
        shared_put_look(list->driver, found == list->looks, false, found->name, found->name_len);
    link_call_end(link, &list->call, count);
}

/* ---- a page ------------------------------------------------------------------------------------------------- */

/* In a cluster, the key's slot may be on its way to this node. */
static void put_look(struct list *list, bool first, const redisReply *key)
{
    if (list->driver->in_cluster) {
        link_command(&list->driver->link, 1);
        link_text(&list->driver->link, "ASKING");
    }
    inspect_put(list->driver, first, key->str, key->len);
}

static unsigned replies_for_key(const struct list *list)
{
    return inspect_replies(list->driver) + list->driver->in_cluster;
}

static void looked(struct link_call *call, unsigned index, redisReply *reply)
{
    struct list *list = (struct list *)call;
    const redisReply *keys = list->page->element[1];
    unsigned each = replies_for_key(list);
    /* a key of another type is refused inside EXEC, which is no failure; but an error of EXEC itself is one */
    if (reply->type == REDIS_REPLY_ERROR && list->op != NULL)
        refuse_look(list, reply);
    if (index % each == each - 1 && list->op != NULL) {
        const redisReply *key = keys->element[list->at++];
        if (reply->type == REDIS_REPLY_ARRAY && !take(list, key, reply)) {
            op_fail_memory(list->driver, list->op);
            list->op = NULL;
        }
    }
    if (index + 1 == call->expected)
        go_on(list);
}

/* ---- pages -------------------------------------------------------------------------------------------------- */

static void look_at_page(struct list *list)
{
    redisReply *keys = list->page->element[1];
    list->at = 0;
    if (has_left(list))
        return;
    if (keys->elements == 0) {
        next_page(list);
        return;
    }
    begin(list, looked);
    for (size_t i = 0; i < keys->elements; i++)
        put_look(list, i == 0, keys->element[i]);
    link_call_end(&list->driver->link, &list->call,
                  (unsigned)keys->elements * replies_for_key(list));
}

static void scanned(struct link_call *call, unsigned index, redisReply *reply)
{
    struct list *list = (struct list *)call;
    (void)index;
    if (list->op == NULL)
        free_list(list);
    else if (!page_is_one(reply))
        refuse_list(list, reply);
    else if ((list->page = page_take(reply, list->cursor)) == NULL) {
        op_fail_memory(list->driver, list->op);
        free_list(list);
    } else
        look_at_page(list);
}

static void scan(struct list *list)
{
    struct link *link = &list->driver->link;
    begin(list, scanned);
    if (!page_put(link, list->cursor, list->op->name, list->op->name_len)) {
        op_fail_memory(list->driver, list->op);
        free_list(list);
        return;
    }
    link_call_end(link, &list->call, 1);
}

/* ---- what comes from other nodes ------------------------------------------------------------------------------ */

/* The number of keys that came from other nodes; 0: none, or the user may not ask. */
static uint64_t read_arrivals(const redisReply *reply)
{
    char text[24] = "";
    if (reply->type == REDIS_REPLY_STRING)
        link_info(reply, "cmdstat_restore-asking:calls=", text, sizeof(text));
    return text_digits(text, strlen(text));
}

static void arrivals_told(struct link_call *call, unsigned index, redisReply *reply)
{
    struct list *list = (struct list *)call;
    (void)index;
    if (list->op != NULL)
        list->op->token = read_arrivals(reply);
    if (list->op != NULL && (list->op->flags & LIST_COUNTS) == 0) {
        scan(list);
        return;
    }
    if (list->op != NULL)
        op_complete(list->driver, list->op, MORTISE_OK);
    free_list(list);
}

static void ask_arrivals(struct list *list)
{
    struct link *link = &list->driver->link;
    begin(list, arrivals_told);
    link_command(link, 2);
    link_text(link, "INFO");
    link_text(link, "commandstats");
    link_call_end(link, &list->call, 1);
}

void list_start(struct driver *driver, mortise_op *op)
{
    struct list *list = calloc(1, sizeof(*list));
    if (list == NULL) {
        op_fail_memory(driver, op);
        return;
    }
    list->driver = driver;
    list->op = op;
    memcpy(list->cursor, "0", 2);
    op_set(op, OP_LISTING, list);
    op->sure = true;
    if (driver->in_cluster)
        ask_arrivals(list);
    else
        scan(list);
}

void list_cancel(mortise_op *op)
{
    struct list *list = data_of(op)->list;
    list->op = NULL;
    op_complete(list->driver, op, MORTISE_CANCELED);
}

static void lost(struct link_call *call, enum link_loss loss, const struct link_fault *fault)
{
    struct list *list = (struct list *)call;
    if (list->op != NULL)
        op_lose(list->driver, list->op, loss, fault);
    free_list(list);
}
