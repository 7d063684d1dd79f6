/* ask.c - requests to the modules below. They are collected while the core is in a call of this module, or while
 * answers come in, so that requests that come together go out together. Knows nothing of what is asked. */
#include "internal.h"

#include <string.h>

#define NOT_COMPLETED ((mortise_status)1) /* host->complete sets another */

static void done(mortise_op *op)
{
    struct ask *ask = (struct ask *)op;
    ask->out = false;
    ask->answered(ask);
}

struct ask *ask_of(mortise_op *op)
{
    return op->done == done ? (struct ask *)op : NULL;
}

void ask_prepare(struct ask *ask, mortise_op_kind kind)
{
    memset(&ask->op, 0, sizeof(ask->op));
    ask->op.kind = kind;
    ask->op.note = ask->migrate->note;
    ask->op.note_len = ask->migrate->note_len;
    ask->op.hint_ms = -1;
    ask->op.status = NOT_COMPLETED;
    ask->op.done = done;
}

/* Only news can put requests into the outbox meanwhile, and they wait for the next flush. */
static void flush(struct side *side)
{
    mortise_op *ops[BATCH];
    while (side->outbox != NULL) {
        size_t n = 0;
        for (; side->outbox != NULL && n < BATCH; side->outbox = side->outbox->next_out) {
            side->outbox->boxed = false;
            ops[n++] = &side->outbox->op;
        }
        if (side->outbox == NULL)
            side->outbox_end = &side->outbox;
        side->below->module->start(side->below->ctx, ops, n);
    }
}

void asks_flush(struct migrate *migrate)
{
    flush(&migrate->sides[MIGRATE_FROM]);
    flush(&migrate->sides[MIGRATE_TO]);
}

static void flush_posted(void *ctx, void *argument)
{
    struct migrate *migrate = ctx;
    (void)argument;
    migrate->flush_posted = false;
    asks_flush(migrate);
}

void ask_send(struct ask *ask)
{
    struct migrate *migrate = ask->migrate;
    struct side *side = &migrate->sides[ask->side];
    ask->out = ask->boxed = true;
    ask->next_out = NULL;
    *side->outbox_end = ask;
    side->outbox_end = &ask->next_out;
    if (migrate->depth > 0)
        return; /* the call of the core sends it at its end */
    if (!migrate->flush_posted) {
        migrate->flush_posted = true;
        migrate->host->post(migrate->host, flush_posted, NULL);
    }
}

void ask_cancel(struct ask *ask)
{
    if (!ask->out || ask->op.status != NOT_COMPLETED)
        return; /* its answer has come and is about to be delivered */
    if (ask->boxed)
        asks_flush(ask->migrate);
    if (ask->op.status != NOT_COMPLETED)
        return; /* `start` has completed it: it does not belong to the module below any more */
    const struct side *side = &ask->migrate->sides[ask->side];
    side->below->module->cancel(side->below->ctx, &ask->op);
}

void asks_drop(struct migrate *migrate)
{
    for (size_t i = 0; i < SIDES; i++)
        for (; migrate->sides[i].outbox != NULL;
             migrate->sides[i].outbox = migrate->sides[i].outbox->next_out)
            migrate->sides[i].outbox->out = migrate->sides[i].outbox->boxed = false;
}

bool ask_is_sure(const struct ask *ask)
{
    const mortise_op *op = &ask->op;
    return op->sure && (op->status == MORTISE_OK || op->status == MORTISE_LOST ||
                        op->status == MORTISE_NOTOWNER);
}
