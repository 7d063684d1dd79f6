/* gather.c - a list or a ping of a cluster: one op for each node that has slots, all at the same time.
 *
 *   GATHERED ──all have answered──▶ its end: the names of all in order; or the lines of all
 *      │ one fails: its failure is kept, and the end waits for the others
 *      │ canceled: the ops of the nodes are canceled
 *
 *   A slot moves meanwhile: a node refuses a look at a key that has left it, and the list fails as UNREACHABLE; the core lists
 *     again. A lock that moves from a node that was not read yet to one that was is missed (docs/redis.md). */
#include "cluster.h"

#include <stdio.h>
#include <stdlib.h>

#define LINE_SIZE 160

struct part {
    mortise_op op; /* first; op_is_own() */
    mortise_error error;
    struct gather *gather;
    char line[LINE_SIZE];
    bool under_way;
};

struct gather {
    struct cluster *cluster;
    mortise_op *of; /* NULL: canceled */
    struct part *failed;
    size_t count, left;
    mortise_info *infos;
    size_t info_count, info_room;
    bool no_memory;
    struct part parts[];
};

static void free_gather(struct gather *gather)
{
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

static void tell_lines(const struct gather *gather)
{
    char *to = gather->of->buffer;
    size_t size = gather->of->buffer_size, used = 0;
    if (to == NULL || size == 0)
        return;
    int n = snprintf(to, size, "a cluster of %zu masters", gather->count);
    used = n > 0 ? (size_t)n : 0;
    for (size_t i = 0; i < gather->count && used < size; i++) {
        n = snprintf(to + used, size - used, "; %s", gather->parts[i].line);
        used += n > 0 ? (size_t)n : 0;
    }
}

static void end(struct gather *gather)
{
    struct driver *alone = gather->cluster->alone;
    mortise_op *of = gather->of;
    const struct part *failed = gather->failed;
    if (of == NULL) {
        free_gather(gather);
        return;
    }
    if (failed != NULL)
        op_fail_as(alone, of, failed->op.status, failed->op.status != MORTISE_BACKEND,
                   failed->error.message);
    else if (gather->no_memory)
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

static void done(mortise_op *op)
{
    struct part *part = (struct part *)op;
    struct gather *gather = part->gather;
    part->under_way = false;
    if (op->status != MORTISE_OK && gather->failed == NULL)
        gather->failed = part;
    if (--gather->left == 0)
        end(gather);
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
    part->gather = gather;
    part->under_way = true;
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

/* What the others know would not be all. */
static void fail_partial(struct cluster *cluster, mortise_op *op, unsigned slots)
{
    char text[100];
    snprintf(text, sizeof(text), "the cluster is down: no node has %u of its %d slots",
             KEY_SLOTS - slots, KEY_SLOTS);
    topology_want(cluster->topology);
    op_fail_as(cluster->alone, op, MORTISE_UNREACHABLE, true, text);
}

void gather_start(struct cluster *cluster, mortise_op *op)
{
    const struct topology *topology = cluster->topology;
    size_t count = 0;
    unsigned slots = 0;
    for (int i = 0; i < topology->server_count; i++) {
        count += topology->servers[i].slots > 0;
        slots += topology->servers[i].slots;
    }
    if (slots < KEY_SLOTS) {
        fail_partial(cluster, op, slots);
        return;
    }
    struct gather *gather = calloc(1, sizeof(*gather) + count * sizeof(gather->parts[0]));
    if (gather == NULL) {
        op_fail_memory(cluster->alone, op);
        return;
    }
    gather->cluster = cluster;
    gather->of = op;
    gather->left = 1; /* until all have begun */
    op_set(op, OP_GATHERED, gather);
    for (int i = 0; i < topology->server_count; i++) {
        if (topology->servers[i].slots == 0)
            continue;
        struct part *part = &gather->parts[gather->count++];
        fill(gather, part);
        gather->left++;
        cluster_send(cluster, i, &part->op);
    }
    if (--gather->left == 0)
        end(gather);
}

void gather_cancel(mortise_op *op)
{
    struct gather *gather = data_of(op)->gather;
    struct cluster *cluster = gather->cluster;
    gather->of = NULL;
    gather->left++;
    for (size_t i = 0; i < gather->count; i++)
        if (gather->parts[i].under_way)
            cluster_cancel(cluster, &gather->parts[i].op);
    op_set(op, OP_NEW, NULL);
    op_complete(cluster->alone, op, MORTISE_CANCELED);
    if (--gather->left == 0)
        free_gather(gather);
}
