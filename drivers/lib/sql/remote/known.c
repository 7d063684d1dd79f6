/* known.c - names whose rows are known to be there. The statement that makes a row is sent only if the row may be missing.
 * Names that share a place push each other out. A name with the same hash as a known one costs one more READ. */
#include "remote.h"

static size_t place_of(const mortise_op *op, uint32_t *mark)
{
    uint64_t hash = UINT64_C(14695981039346656037); /* FNV-1a */
    for (size_t i = 0; i < op->name_len; i++)
        hash = (hash ^ (unsigned char)op->name[i]) * UINT64_C(1099511628211);
    *mark = (uint32_t)(hash >> 32) | 1;
    return hash % KNOWN_MAX;
}

bool known_has(const struct remote *remote, const mortise_op *op)
{
    uint32_t mark;
    size_t place = place_of(op, &mark);
    return remote->known[place] == mark;
}

void known_note(const struct request *request, bool there)
{
    struct remote *remote = (struct remote *)request->base.locks;
    uint32_t mark;
    if (request->base.kind != MORTISE_OP_ACQUIRE || request->base.op == NULL)
        return;
    size_t place = place_of(request->base.op, &mark);
    remote->known[place] = there ? mark : 0;
}
