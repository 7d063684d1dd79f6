/* gather.c - a list or a ping of a cluster: one op for each node that has slots, all at the same time.
 *
 *   state     event                                      what follows                                   next
 *   (new)     a ping, and the map is known               each node is asked                             ASKS
 *   (new)     otherwise                                  the map is read anew: the client may not have  LOOKS
 *                                                        heard of a master that was added, or promoted
 *   LOOKS     the map                                    each node is asked                             ASKS
 *   LOOKS     no map, or slots without a node            it fails
 *   ASKS      one fails                                  the others are waited for; it fails
 *   ASKS      all have answered, a ping                  the lines of all
 *   ASKS      all have answered, a list                  each is asked how many keys came from others   COUNTS
 *   COUNTS    one fails                                  as above
 *   COUNTS    all have answered                          the map is read once more                      CHECKS
 *   CHECKS    nothing has moved                          the names of all in order
 *   CHECKS    keys have moved, or slots                  all are asked once more; names are added       ASKS
 *   CHECKS    a key has left between SCAN and the look   likewise; but after PASSES_MAX it fails. The same if a node does not
 *             know the script, whose text went to that key
 *   any       canceled                                   the ops of the nodes are canceled
 *
 *   A lock moves from a node that was not read yet to one that was: either its slot has another owner at the end, or that node
 *     has got a key since it was asked. The next pass begins after that move, and finds the lock at its new place. If it was on
 *     its way for the second time, the first pass that missed no key has found it. A lock that was found once is in the list,
 *     even if it is free by the end: a list does not show one instant.
 *   The user may not ask for INFO: the driver does not notice a key that came to a node (docs/redis.md). */
#include "../lib/ping.h"
#include "cluster.h"
#include "sending.h"

#include <stdio.h>
#include <stdlib.h>

#define LINE_SIZE 2000     /* with the findings about a node */
#define FINDING_MARK " | " /* driver.h, MORTISE_OP_PING */
#define PASSES_MAX 8

struct part {
    mortise_op op; /* first; op_is_own() */
    mortise_error error;
    struct gather *gather;
    char line[LINE_SIZE]; /* a ping */
    int server;
    uint64_t arrived; /* a list: keys from other nodes, so far */
    bool under_way;
};

enum gather_state { GATHER_LOOKS, GATHER_ASKS, GATHER_COUNTS, GATHER_CHECKS };

struct gather {
    struct gather *previous, *next; /* of the cluster */
    struct cluster *cluster;
    enum gather_state state;
    uint64_t look;    /* LOOKS, CHECKS: the number of the look that it waits for */
    uint64_t changes; /* of the map, when the nodes were asked */
    unsigned passes;
    mortise_op *of; /* NULL: canceled */
    struct part *parts, *failed;
    size_t count, left;
    mortise_info *infos;
    size_t info_count, info_room;
    bool missed;  /* in this pass a key has left a node before the look at it, */
    bool arrived; /* or has come to one */
    bool whole;   /* a pass has missed no key */
    bool no_memory;
};

static void free_gather(struct gather *gather)
{
    DL_DELETE2(gather->cluster->gathers, gather, previous, next);
    free(gather->parts);
    free(gather->infos);
    free(gather);
}

static int compare(const void *a, const void *b)
{
    return strcmp(((const mortise_info *)a)->name, ((const mortise_info *)b)->name);
}

static void tell_names(struct gather *gather)
{
    mortise_host *host = gather->cluster->host;
    mortise_info *infos = gather->infos;
    if (gather->info_count > 1)
        qsort(infos, gather->info_count, sizeof(*infos), compare);
    for (size_t i = 0; i < gather->info_count; i++)
        if (i == 0 || compare(&infos[i - 1], &infos[i]) != 0)
            host->emit(host, gather->of, &infos[i]);
}

/* The length of the text before the next finding. */
static int to_mark(const char *text)
{
    const char *mark = strstr(text, FINDING_MARK);
    return (int)(mark != NULL ? (size_t)(mark - text) : strlen(text));
}

/* Each finding ("risk: …") once, with the node that said it first. */
static void add_findings(const struct gather *gather, const struct part *part)
{
    const struct endpoint *at = &gather->cluster->topology->servers[part->server].at;
    const char *end = gather->of->buffer;
    const size_t mark = sizeof(FINDING_MARK) - 1, level = sizeof("risk: ") - 1;
    for (const char *text = part->line + to_mark(part->line); *text != '\0';) {
        char finding[LINE_SIZE];
        text += mark;
        const int length = to_mark(text);
        snprintf(finding, sizeof(finding), "%.*s", length, text);
        text += length;
        if (strlen(finding) < level)
            continue;
        if (strstr(end, finding + level) == NULL)
            ping_add(gather->of, FINDING_MARK "%.*s%s: %s", (int)level, finding, at->text,
                     finding + level);
    }
}

static void tell_lines(const struct gather *gather)
{
    mortise_op *of = gather->of;
    if (of->buffer == NULL || of->buffer_size == 0)
        return;
    snprintf(of->buffer, of->buffer_size, "a cluster of %zu masters", gather->count);
    for (size_t i = 0; i < gather->count; i++)
        ping_add(of, "; %.*s", to_mark(gather->parts[i].line), gather->parts[i].line);
    for (size_t i = 0; i < gather->count; i++)
        add_findings(gather, &gather->parts[i]);
}

/* Reads the map; gather_looked() goes on. */
static void look(struct gather *gather, enum gather_state state)
{
    gather->state = state;
    gather->look = topology_read(gather->cluster->topology);
}

static void tell(struct gather *gather)
{
    struct driver *alone = gather->cluster->alone;
    mortise_op *of = gather->of;
    if (gather->no_memory)
        op_fail_memory(alone, of);
    else {
        if (of->kind == MORTISE_OP_LIST)
            tell_names(gather);
        else
            tell_lines(gather);
        op_complete(alone, of, MORTISE_OK);
    }
    free_gather(gather);
}

static void ask(struct gather *gather, enum gather_state state);

/* All nodes have answered. */
static void answered(struct gather *gather)
{
    mortise_op *of = gather->of;
    const struct part *failed = gather->failed;
    if (of != NULL && failed == NULL) {
        if (of->kind != MORTISE_OP_LIST || gather->no_memory)
            tell(gather);
        else if (gather->state == GATHER_ASKS)
            ask(gather, GATHER_COUNTS);
        else
            look(gather, GATHER_CHECKS);
        return;
    }
    if (of != NULL)
        op_fail_as(gather->cluster->alone, of, failed->op.status,
                   failed->op.status != MORTISE_BACKEND, failed->error.message);
    free_gather(gather);
}

static void done(mortise_op *op)
{
    struct part *part = (struct part *)op;
    struct gather *gather = part->gather;
    part->under_way = false;
    if (gather->state == GATHER_ASKS) {
        gather->missed |= op->kind == MORTISE_OP_LIST && !op->sure;
        part->arrived = op->token;
    } else
        gather->arrived |= part->arrived != op->token;
    if (op->status != MORTISE_OK && gather->failed == NULL)
        gather->failed = part;
    if (--gather->left == 0)
        answered(gather);
}

static void emitted(mortise_op *op, const mortise_info *info)
{
    struct gather *gather = ((struct part *)op)->gather;
    if (gather->info_count == gather->info_room) {
        size_t room = gather->info_room > 0 ? 2 * gather->info_room : 64;
        mortise_info *infos = realloc(gather->infos, room * sizeof(*infos));
        gather->no_memory |= infos == NULL;
        if (infos == NULL)
            return;
        gather->infos = infos;
        gather->info_room = room;
    }
    gather->infos[gather->info_count++] = *info;
}

static void fill(struct gather *gather, struct part *part)
{
    const mortise_op *of = gather->of;
    part->under_way = true;
    part->op = (mortise_op){.flags = gather->state == GATHER_COUNTS ? LIST_COUNTS : 0};
    part->op.kind = of->kind;
    part->op.name = of->name;
    part->op.name_len = of->name_len;
    part->op.buffer = part->line;
    part->op.buffer_size = sizeof(part->line);
    part->op.error = &part->error;
    part->op.issuer = (void *)(uintptr_t)gather->cluster->alone->values; /* own */
    part->op.done = done;
    part->op.emitted = emitted;
}

/* ASKS, COUNTS: sends the op of each part. */
static void ask(struct gather *gather, enum gather_state state)
{
    gather->state = state;
    gather->left = 1; /* until all have begun */
    for (size_t i = 0; i < gather->count; i++) {
        struct part *part = &gather->parts[i];
        fill(gather, part);
        gather->left++;
        cluster_send(gather->cluster, part->server, &part->op);
    }
    if (--gather->left == 0)
        answered(gather);
}

static void fail(struct gather *gather, mortise_status status, const char *text)
{
    op_fail_as(gather->cluster->alone, gather->of, status, true, text);
    free_gather(gather);
}

/* False: the op has failed, because the answers of only some nodes would not be complete. */
static bool count_nodes(struct gather *gather, const struct topology *topology)
{
    unsigned slots = 0;
    char text[100];
    gather->count = 0;
    for (int i = 0; i < topology->server_count; i++) {
        gather->count += topology->servers[i].slots > 0;
        slots += topology->servers[i].slots;
    }
    if (slots == KEY_SLOTS)
        return true;
    snprintf(text, sizeof(text), "the cluster is down: no node has %u of its %d slots",
             KEY_SLOTS - slots, KEY_SLOTS);
    topology_want(gather->cluster->topology);
    fail(gather, MORTISE_UNREACHABLE, text);
    return false;
}

static void ask_nodes(struct gather *gather)
{
    struct cluster *cluster = gather->cluster;
    const struct topology *topology = cluster->topology;
    if (!count_nodes(gather, topology))
        return;
    free(gather->parts);
    gather->parts = calloc(gather->count, sizeof(gather->parts[0]));
    if (gather->parts == NULL) {
        fail(gather, MORTISE_NOMEM, "out of memory");
        return;
    }
    gather->changes = topology->changes;
    gather->passes++;
    gather->missed = gather->arrived = false;
    struct part *part = gather->parts;
    for (int i = 0; i < topology->server_count; i++)
        if (topology->servers[i].slots > 0)
            *part++ = (struct part){.gather = gather, .server = i};
    ask(gather, GATHER_ASKS);
}

/* The map was read once more. */
static void check(struct gather *gather)
{
    bool moved = gather->changes != gather->cluster->topology->changes;
    bool again = gather->missed || (!gather->whole && (moved || gather->arrived));
    gather->whole |= !gather->missed;
    if (!again)
        tell(gather);
    else if (gather->passes < PASSES_MAX)
        ask_nodes(gather);
    else
        fail(gather, MORTISE_UNREACHABLE, "locks are on their way to other nodes, again and again");
}

void gather_looked(struct cluster *cluster, uint64_t number, const struct link_fault *fault)
{
    struct gather *gather, *next;
    DL_FOREACH_SAFE2(cluster->gathers, gather, next, next)
    {
        bool waits = gather->state == GATHER_LOOKS || gather->state == GATHER_CHECKS;
        if (!waits || gather->look > number)
            continue;
        if (fault != NULL) {
            op_fail(cluster->alone, gather->of, fault);
            free_gather(gather);
        } else if (gather->state == GATHER_LOOKS)
            ask_nodes(gather);
        else
            check(gather);
    }
}

void gather_start(struct cluster *cluster, mortise_op *op)
{
    struct gather *gather = calloc(1, sizeof(*gather));
    if (gather == NULL) {
        op_fail_memory(cluster->alone, op);
        return;
    }
    gather->cluster = cluster;
    gather->of = op;
    DL_APPEND2(cluster->gathers, gather, previous, next);
    op_set(op, OP_GATHERED, gather);
    if (op->kind == MORTISE_OP_PING && cluster->topology->known)
        ask_nodes(gather);
    else
        look(gather, GATHER_LOOKS);
}

void gather_cancel(mortise_op *op)
{
    struct gather *gather = data_of(op)->gather;
    struct cluster *cluster = gather->cluster;
    gather->of = NULL;
    op_set(op, OP_NEW, NULL);
    op_complete(cluster->alone, op, MORTISE_CANCELED);
    if (gather->state == GATHER_LOOKS || gather->state == GATHER_CHECKS) {
        free_gather(gather);
        return;
    }
    gather->left++;
    for (size_t i = 0; i < gather->count; i++)
        if (gather->parts[i].under_way)
            cluster_cancel(cluster, &gather->parts[i].op);
    if (--gather->left == 0)
        free_gather(gather);
}
