/* oplist.h - lists of ops, by next and previous. */
#ifndef MORTISE_DRIVERS_REDIS_OPLIST_H
#define MORTISE_DRIVERS_REDIS_OPLIST_H

#include "redis.h"

/* Puts an op that is in no list at the end of one. */
static inline void op_append(mortise_op **list, mortise_op *op)
{
    op->next = op->previous = NULL;
    DL_APPEND2(*list, op, previous, next);
}

/* Takes the op out of the list. Its state becomes NEW. */
static inline mortise_op *op_take(mortise_op **list, mortise_op *op)
{
    DL_DELETE2(*list, op, previous, next);
    op_set(op, OP_NEW, NULL);
    return op;
}

#endif
