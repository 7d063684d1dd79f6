/* replicas.c - min_replicas: a grant or renewal is reported only when so many replicas have it.
 *
 *   UNCONFIRMED ──PUBLISH, WAIT N──▶ CONFIRMING ──N or more──▶ completed: OK
 *        │ no connection                 │ fewer, an error, the connection broke
 *        └───────────────┬───────────────┘
 *                        ├─ a renewal: UNREACHABLE, the deadline stays
 *                        ├─ a downgrade: INDETERMINATE, because the server has done it
 *                        └─ an acquire: UNDOING: it is released, then UNREACHABLE
 *
 * WAIT delays everything behind it, so it has a connection of its own. It counts the replicas that have this connection's
 * writes. Replication is one stream, in the order in which the primary executed the writes. So a replica that has a write made
 * after the grant has the grant, too. Once the grant is known, the driver sends a write that leaves nothing (PUBLISH to a
 * channel that nobody uses), and WAIT behind it. One WAIT is under way at a time, for all grants that were known when it was
 * sent; later grants wait for the next one.
 *
 *   In a cluster PUBLISH is not replicated, so the write is a key beside one of those locks, which expires at once. Its slot
 *     may be on its way to this node, so ASKING precedes it. If the slot is on its way from this node, or elsewhere, the write
 *     is refused, and the next key is one of another slot of this node. (A claim whose slot has moved since is at another node,
 *     whose replicas may not have it yet: docs/promises.md.) If the memory is full, such a key is refused, too (OOM). A write
 *     that makes no key is not refused, and is replicated: it sets the end of one of those locks to what it is.
 *   There are more replicas than min_replicas: any of them counts, and one that has not acknowledged may be promoted. The log
 *     warns of this, once for each number of replicas.
 *   The two connections lead to different servers (a failover in between): the run ids differ, so nothing is confirmed.
 *   A renewal is not confirmed: the server's claim is longer than the deadline that the holder believes. The next renewal
 *     tries again.
 *   The release of an unconfirmed acquire fails: INDETERMINATE, and the core releases that grant until it is sure. uncertain.c
 *     handles the case that the core asks for the grant again.
 *   The op is canceled meanwhile: INDETERMINATE, too.
 *   The replicas are slow: the core gives a renewal up after a sixth of the ttl.
 *   It takes longer than the ttl: the core finds that the deadline has passed, and releases. */
#include "oplist.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define CHANNEL "mortise:sync"
#define TRIES_MAX 4
#define SUFFIX_SIZE 16
#define SUFFIXES 2000 /* a node has at least one of so many slots */

/* The release of an unconfirmed acquire: an op of the driver's own. */
struct undo {
    mortise_op op; /* first; op_is_own() */
    struct driver *driver;
    mortise_op *of; /* NULL: canceled */
    struct link_fault fault;
    char texts[]; /* the name, the owner */
};

static void replied(struct link_call *call, unsigned index, redisReply *reply);
static void lost(struct link_call *call, enum link_loss loss, const struct link_fault *fault);

static struct driver *driver_of(struct link_call *call)
{
    return (struct driver *)(void *)((char *)call - offsetof(struct driver, replicas.call));
}

/* ---- not confirmed -------------------------------------------------------------------------------------- */

static void fail_unsure(struct driver *driver, mortise_op *op, const struct link_fault *fault)
{
    struct link_fault unsure = *fault;
    unsure.status = MORTISE_INDETERMINATE;
    unsure.retryable = true;
    op_fail(driver, op, &unsure);
}

static void undone(mortise_op *op)
{
    struct undo *undo = (struct undo *)op;
    undo->driver->replicas.undoing--;
    bool gone = op->status == MORTISE_OK ||
                ((op->status == MORTISE_LOST || op->status == MORTISE_NOTOWNER) && op->sure);
    if (undo->of != NULL && op->status == MORTISE_INDETERMINATE)
        uncertain_add_stray(undo->driver, &undo->op.grant);
    if (undo->of != NULL && gone)
        op_fail(undo->driver, undo->of, &undo->fault);
    else if (undo->of != NULL)
        fail_unsure(undo->driver, undo->of, &undo->fault);
    free(undo);
}

static struct undo *new_undo(struct driver *driver, mortise_op *of, const struct link_fault *fault)
{
    struct undo *undo = calloc(1, sizeof(*undo) + of->name_len + of->owner_len);
    if (undo == NULL)
        return NULL;
    undo->driver = driver;
    undo->of = of;
    undo->fault = *fault;
    memcpy(undo->texts, of->name, of->name_len);
    if (of->owner_len > 0)
        memcpy(undo->texts + of->name_len, of->owner, of->owner_len);
    undo->op.kind = MORTISE_OP_RELEASE;
    undo->op.name = undo->texts;
    undo->op.name_len = of->name_len;
    undo->op.owner = of->owner_len > 0 ? undo->texts + of->name_len : NULL;
    undo->op.owner_len = of->owner_len;
    undo->op.grant = of->grant;
    undo->op.ttl_ms = of->ttl_ms;
    undo->op.token = of->token;
    undo->op.mode = of->mode;
    undo->op.permits = of->permits;
    undo->op.issuer = (void *)(uintptr_t)driver->values; /* own */
    undo->op.done = undone;
    return undo;
}

static void refuse(struct driver *driver, mortise_op *op, const struct link_fault *fault)
{
    if (op_downgrades(op)) {
        fail_unsure(driver, op, fault);
        return;
    }
    if (op->kind == MORTISE_OP_RENEW) {
        op_fail(driver, op, fault);
        return;
    }
    struct undo *undo = new_undo(driver, op, fault);
    if (undo == NULL) {
        fail_unsure(driver, op, fault);
        return;
    }
    mortise_op *release = &undo->op;
    driver->replicas.undoing++;
    op_set(op, OP_UNDOING, undo);
    driver->dispatch->start(driver, &release, 1);
}

static void refuse_all(struct driver *driver, mortise_op **list, const struct link_fault *fault)
{
    while (*list != NULL) {
        mortise_op *op = *list;
        DL_DELETE2(*list, op, previous, next);
        refuse(driver, op, fault);
    }
}

static void refuse_text(struct driver *driver, mortise_op **list, const char *why)
{
    struct link_fault fault;
    link_fault_set(&fault, MORTISE_UNREACHABLE, true, 0, "%s: %s", driver->link.endpoint.text, why);
    refuse_all(driver, list, &fault);
}

/* ---- to be confirmed -------------------------------------------------------------------------------------- */

bool replicas_take(struct driver *driver, mortise_op *op)
{
    struct replicas *replicas = &driver->replicas;
    if (replicas->wanted == 0)
        return false;
    if (strcmp(replicas->run_id, driver->link.run_id) != 0)
        refuse_text(driver, &replicas->waiting, "another server is the primary now");
    memcpy(replicas->run_id, driver->link.run_id, sizeof(replicas->run_id));
    op_set(op, OP_UNCONFIRMED, driver);
    op_append(&replicas->waiting, op);
    link_want(&replicas->link);
    return true;
}

/* Finds a name like the op's whose slot is at this node. The candidates after the first are in other slots. What follows a
 * brace is left out, because only the part in braces determines the slot. False: none was found. */
static bool find_slot(const struct driver *driver, const mortise_op *op, unsigned which, char *name,
                      size_t *name_len)
{
    const char *brace = which > 0 ? memchr(op->name, '{', op->name_len) : NULL;
    size_t base = brace != NULL ? (size_t)(brace - op->name) : op->name_len;
    memcpy(name, op->name, base);
    *name_len = base;
    for (unsigned i = 0; which > 0 && i < SUFFIXES; i++) {
        *name_len = base + (size_t)snprintf(name + base, SUFFIX_SIZE, "#%u", i);
        which -= driver->routes->serves(driver, name, *name_len) &&
                 key_slot(name, *name_len) != key_slot(op->name, op->name_len);
    }
    return which == 0;
}

/* The op whose lock, or the key beside it, is written next. NULL: all have been tried. */
static const mortise_op *whose_write(const struct replicas *replicas)
{
    const mortise_op *op = replicas->asked;
    for (unsigned i = 0; replicas->full && op != NULL && i < replicas->tries; i++)
        op = op->next;
    return op;
}

static void put_key(struct driver *driver, const mortise_op *op)
{
    struct link *link = &driver->replicas.link;
    char name[MORTISE_NAME_MAX + SUFFIX_SIZE];
    size_t name_len;
    find_slot(driver, op, driver->replicas.tries, name, &name_len);
    link_command(link, 5);
    link_text(link, "SET");
    key_put_side(link, name, name_len, "sync");
    link_text(link, "");
    link_text(link, "PX");
    link_text(link, "1");
}

static void put_write(struct driver *driver)
{
    struct replicas *replicas = &driver->replicas;
    struct link *link = &replicas->link;
    if (!driver->in_cluster) {
        link_command(link, 3);
        link_text(link, "PUBLISH");
        link_text(link, CHANNEL);
        link_text(link, "");
        return;
    }
    link_command(link, 1);
    link_text(link, "ASKING");
    if (replicas->full) {
        script_put_text(link, SCRIPT_SAME_END, 1, 0);
        key_put(link, whose_write(replicas), KEY_LOCK);
    } else
        put_key(driver, whose_write(replicas));
}

static void put(struct driver *driver)
{
    struct replicas *replicas = &driver->replicas;
    struct link *link = &replicas->link;
    replicas->under_way = true;
    replicas->failed = replicas->again = false;
    replicas->call.replied = replied;
    replicas->call.lost = lost;
    link_call_begin(link, &replicas->call);
    put_write(driver);
    link_command(link, 3);
    link_text(link, "WAIT");
    link_number(link, replicas->wanted);
    link_number(link, replicas->timeout_ms);
    link_call_end(link, &replicas->call, driver->in_cluster ? 3 : 2);
}

static void ask(struct driver *driver)
{
    struct replicas *replicas = &driver->replicas;
    mortise_op *op;
    replicas->asked = replicas->waiting;
    replicas->waiting = NULL;
    replicas->tries = 0;
    replicas->full = false;
    DL_FOREACH2(replicas->asked, op, next)
    {
        op_set(op, OP_CONFIRMING, driver);
    }
    put(driver);
}

void replicas_turn(struct driver *driver)
{
    struct replicas *replicas = &driver->replicas;
    struct link *link = &replicas->link;
    if (replicas->waiting == NULL || replicas->under_way || !link_is_up(link))
        return;
    if (replicas->run_id[0] == '\0') {
        refuse_text(driver, &replicas->waiting,
                    "without the right to INFO nothing can be confirmed (min_replicas)");
    } else if (strcmp(link->run_id, replicas->run_id) != 0) {
        refuse_text(driver, &replicas->waiting, "another server is the primary now");
        link_leave(link, "another server is the primary now");
    } else
        ask(driver);
}

/* ---- answers ---------------------------------------------------------------------------------------------- */

/* A write was refused in a cluster. True: another one may succeed. */
static bool try_another(struct replicas *replicas, enum link_error error)
{
    if (error == LINK_ERROR_OOM && !replicas->full) {
        replicas->full = true;
        replicas->tries = 0;
        return true;
    }
    replicas->tries++;
    return (error == LINK_ERROR_MOVED || error == LINK_ERROR_ASK || error == LINK_ERROR_TRYAGAIN) &&
           replicas->tries <= TRIES_MAX;
}

static void fail_call(struct driver *driver, const redisReply *reply)
{
    struct replicas *replicas = &driver->replicas;
    struct link_fault *fault = &replicas->fault;
    if (replicas->failed)
        return;
    replicas->failed = true;
    link_fault_reply(&replicas->link, reply, fault);
    /* the user may have no right to a key of another slot, or to PEXPIRETIME */
    bool other = replicas->tries > 0 || replicas->full;
    replicas->again = driver->in_cluster && try_another(replicas, fault->error);
    if ((fault->error == LINK_ERROR_NOPERM && !other) || fault->error == LINK_ERROR_UNKNOWN)
        return;
    fault->status = MORTISE_UNREACHABLE;
    fault->retryable = true;
}

static void count(struct driver *driver, const redisReply *reply)
{
    struct replicas *replicas = &driver->replicas;
    if (reply->type == REDIS_REPLY_INTEGER && reply->integer >= replicas->wanted)
        return;
    replicas->failed = true;
    link_fault_set(&replicas->fault, MORTISE_UNREACHABLE, true, 0,
                   "%s: after %" PRId64 " ms only %lld of %" PRId64
                   " replicas acknowledged it (min_replicas)",
                   replicas->link.endpoint.text, replicas->timeout_ms,
                   reply->type == REDIS_REPLY_INTEGER ? reply->integer : 0, replicas->wanted);
}

static void confirm_all(struct driver *driver)
{
    struct replicas *replicas = &driver->replicas;
    while (replicas->asked != NULL) {
        mortise_op *op = replicas->asked;
        DL_DELETE2(replicas->asked, op, previous, next);
        op_end(driver, op, MORTISE_OK);
    }
}

static void replied(struct link_call *call, unsigned index, redisReply *reply)
{
    struct driver *driver = driver_of(call);
    struct replicas *replicas = &driver->replicas;
    bool asking =
        driver->in_cluster && index == 0; /* without the right to it the write may succeed */
    if (reply->type == REDIS_REPLY_ERROR && !asking)
        fail_call(driver, reply);
    if (index + 1 < call->expected)
        return;
    replicas->under_way = false;
    if (replicas->again && whose_write(replicas) != NULL) {
        put(driver);
        return;
    }
    if (!replicas->failed)
        count(driver, reply);
    if (replicas->failed)
        refuse_all(driver, &replicas->asked, &replicas->fault);
    else
        confirm_all(driver);
}

static void lost(struct link_call *call, enum link_loss loss, const struct link_fault *fault)
{
    struct driver *driver = driver_of(call);
    (void)loss;
    driver->replicas.under_way = false;
    refuse_all(driver, &driver->replicas.asked, fault);
}

/* ---- the connection ------------------------------------------------------------------------------------------ */

static void counted(struct link_call *call, unsigned index, redisReply *reply)
{
    struct driver *driver =
        (struct driver *)(void *)((char *)call - offsetof(struct driver, replicas.count));
    struct replicas *replicas = &driver->replicas;
    char text[24] = "";
    (void)index;
    replicas->counting = false;
    if (reply->type == REDIS_REPLY_STRING)
        link_info(reply, "connected_slaves:", text, sizeof(text));
    int64_t there = (int64_t)text_digits(text, strlen(text));
    if (there > replicas->wanted && there != replicas->warned)
        driver->host->log(driver->host, 4,
                          "%s has %" PRId64 " replicas, and min_replicas is %" PRId64
                          ": a failover to one that had not acknowledged a lock forgets it",
                          replicas->link.endpoint.text, there, replicas->wanted);
    replicas->warned = there > replicas->wanted ? there : 0;
}

static void not_counted(struct link_call *call, enum link_loss loss, const struct link_fault *fault)
{
    struct driver *driver =
        (struct driver *)(void *)((char *)call - offsetof(struct driver, replicas.count));
    (void)loss;
    (void)fault;
    driver->replicas.counting = false;
}

/* Whether this connection leads to another server than the main one, which is older. Grants of that server cannot be
 * confirmed here. */
static bool is_elsewhere(const struct driver *driver)
{
    const char *locks = driver->link.run_id, *here = driver->replicas.link.run_id;
    return link_is_up(&driver->link) && locks[0] != '\0' && here[0] != '\0' &&
           strcmp(locks, here) != 0;
}

/* At the end of the turn, replicas_turn() asks about the waiting ops. */
static void up(struct link *link, void *owner)
{
    struct driver *driver = owner;
    struct replicas *replicas = &driver->replicas;
    if (is_elsewhere(driver))
        failover_leads_elsewhere(driver);
    if (replicas->counting)
        return;
    replicas->counting = true;
    replicas->count.replied = counted;
    replicas->count.lost = not_counted;
    link_call_begin(link, &replicas->count);
    link_command(link, 2);
    link_text(link, "INFO");
    link_text(link, "replication");
    link_call_end(link, &replicas->count, 1);
}

static void down(struct link *link, void *owner, const struct link_fault *fault)
{
    struct driver *driver = owner;
    if (link->broke && driver->replicas.waiting != NULL)
        return;
    refuse_all(driver, &driver->replicas.waiting, fault);
    link_unwant(link);
}

void replicas_open(struct driver *driver, int64_t wanted, int64_t timeout_ms)
{
    static const struct link_callbacks callbacks = {.up = up, .down = down, .seek = failover_seek};
    struct replicas *replicas = &driver->replicas;
    replicas->wanted = wanted;
    replicas->timeout_ms = timeout_ms;
    replicas->settings = driver->settings;
    replicas->settings.command_timeout_ms += timeout_ms; /* WAIT answers that late */
    link_init(&replicas->link, driver->host, &replicas->settings, &callbacks, driver);
    replicas->link.beside = &driver->link;
}

void replicas_cancel(mortise_op *op)
{
    struct op_data *data = data_of(op);
    struct undo *undo = data->state == OP_UNDOING ? data->undo : NULL;
    struct driver *driver = undo != NULL ? undo->driver : data->driver;
    if (data->state == OP_UNCONFIRMED) {
        DL_DELETE2(driver->replicas.waiting, op, previous, next);
    } else if (data->state == OP_CONFIRMING) {
        DL_DELETE2(driver->replicas.asked, op, previous, next);
    } else {
        undo->of = NULL;
        if (data_of(&undo->op)->state == OP_UNROUTED)
            driver->routes->cancel(driver, &undo->op);
        else
            driver->dispatch->cancel(&undo->op);
    }
    op_end(driver, op, MORTISE_INDETERMINATE);
}
