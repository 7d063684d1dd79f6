/* ghost.c - requests under way whose issuer has already got an answer: they are in the buffers of a connection that
 * the client believes dead, and are executed when they arrive, whatever was decided meanwhile.
 *
 * Knows nothing of open ops; a ghost is a copy. When its time has come, it arrives before the next thing that happens
 * in the backend. */
#include "internal.h"

#include <stdlib.h>
#include <string.h>
#include <utlist.h>

struct ghost {
    struct ghost *next, *previous;
    struct instance stub; /* capabilities only */
    mortise_op op;
    char *texts; /* name, owner, note and record of op */
    int64_t due_ns;
    bool held;
    int rule;
};

static struct ghost *ghosts;

static char *copy_into(char **place, const void *from, size_t size)
{
    char *copy = *place;
    if (size)
        memcpy(copy, from, size);
    *place += size;
    return copy;
}

void ghost_add(const struct instance *instance, const mortise_op *op, int rule, bool held,
               int64_t due_ns)
{
    size_t record_size = op->kind == MORTISE_OP_WRITE ? op->record_size : 0;
    struct ghost *ghost = calloc(1, sizeof *ghost);
    if (!ghost ||
        !(ghost->texts = malloc(op->name_len + op->owner_len + op->note_len + record_size + 1))) {
        free(ghost); /* a request that never arrives */
        return;
    }
    char *place = ghost->texts;
    ghost->op = *op;
    ghost->op.name = copy_into(&place, op->name, op->name_len);
    ghost->op.owner = op->owner ? copy_into(&place, op->owner, op->owner_len) : NULL;
    ghost->op.note = copy_into(&place, op->note, op->note_len);
    ghost->op.record = copy_into(&place, op->record, record_size);
    ghost->op.info = NULL;
    ghost->op.buffer = NULL;
    ghost->stub.capabilities = instance->capabilities;
    ghost->held = held;
    ghost->due_ns = due_ns;
    ghost->rule = rule;
    DL_APPEND2(ghosts, ghost, previous, next);
}

static void ghost_free(struct ghost *ghost)
{
    DL_DELETE2(ghosts, ghost, previous, next);
    free(ghost->texts);
    free(ghost);
}

static struct ghost *ghost_that_is_due(int64_t now_ns)
{
    struct ghost *ghost, *first = NULL;
    DL_FOREACH (ghosts, ghost) {
        if (!ghost->held && ghost->due_ns <= now_ns && (!first || ghost->due_ns < first->due_ns))
            first = ghost;
    }
    return first;
}

void ghosts_arrive(int64_t now_ns)
{
    struct ghost *ghost;
    struct claim *claim;
    while (ghosts && (ghost = ghost_that_is_due(now_ns))) {
        mortise_op op = ghost->op;
        struct instance stub = ghost->stub;
        DL_DELETE2(ghosts, ghost, previous, next);
        serve(&stub, &op, now_ns, now_ns, true, &claim);
        free(ghost->texts);
        free(ghost);
    }
}

bool ghost_under(const mortise_grant_id *grant)
{
    struct ghost *ghost;
    DL_FOREACH (ghosts, ghost) {
        if (ghost->op.kind == MORTISE_OP_ACQUIRE &&
            memcmp(&ghost->op.grant, grant, sizeof *grant) == 0)
            return true;
    }
    return false;
}

uint64_t ghost_held(int rule)
{
    struct ghost *ghost;
    uint64_t count = 0;
    DL_FOREACH (ghosts, ghost) {
        count += ghost->held && ghost->rule == rule;
    }
    return count;
}

void ghost_let_go(int rule)
{
    struct ghost *ghost;
    DL_FOREACH (ghosts, ghost) {
        if (ghost->held && ghost->rule == rule) {
            ghost->held = false;
            ghost->due_ns = INT64_MIN;
        }
    }
}

size_t ghost_count(void)
{
    struct ghost *ghost;
    int count = 0;
    DL_COUNT2(ghosts, ghost, count, next);
    return (size_t)count;
}

void ghosts_reset(void)
{
    while (ghosts)
        ghost_free(ghosts);
}
