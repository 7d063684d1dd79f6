/* look.c - what is only looked at: inspect, list, ping. The first leg's side is what is told of;
 * inspect, where nobody is there, of the second's. Names of the plugin's own are not listed. */
#include "internal.h"

#include <stdio.h>
#include <string.h>

/* ---- list ---------------------------------------------------------------------------------------- */

static void emitted(mortise_op *op, const mortise_info *info)
{
    struct ask *ask = (struct ask *)op;
    struct call *call = ask->of;
    struct migrate *migrate = call->migrate;
    size_t prefix_len = migrate->sides[ask->side].prefix_len, own = strlen(MIGRATE_PREFIX);
    if (strlen(info->name) >= prefix_len + own &&
        memcmp(info->name + prefix_len, MIGRATE_PREFIX, own) == 0)
        return;
    migrate->host->emit(migrate->host, call->upper, info);
}

/* ---- starting ------------------------------------------------------------------------------------ */

static void start_on(struct call *call, enum migrate_side side)
{
    ask_send(call_prepare(call, side, call->upper->kind));
}

static void start_list(struct call *call)
{
    struct ask *ask = call_prepare(call, call->migrate->legs[0], MORTISE_OP_LIST);
    ask->op.emitted = emitted;
    ask_send(ask);
}

static void start_ping(struct call *call)
{
    struct migrate *migrate = call->migrate;
    for (size_t i = 0; i < migrate->leg_count; i++) {
        enum migrate_side side = migrate->legs[i];
        struct ask *ask = call_prepare(call, side, MORTISE_OP_PING);
        call->lines[side][0] = '\0';
        ask->op.name = NULL;
        ask->op.name_len = 0;
        ask->op.buffer = call->lines[side];
        ask->op.buffer_size = sizeof(call->lines[side]);
        ask_send(ask);
    }
}

void look_start(struct call *call)
{
    if (call->upper->kind == MORTISE_OP_INSPECT)
        start_on(call, call->migrate->legs[0]);
    else if (call->upper->kind == MORTISE_OP_LIST)
        start_list(call);
    else if (call->upper->kind == MORTISE_OP_PING)
        start_ping(call);
    else
        call_fail(call, MORTISE_NOTSUP, false,
                  "migrate: records are of one side, and are not moved");
}

/* ---- answers ------------------------------------------------------------------------------------- */

static void inspected(struct call *call, const struct ask *ask)
{
    struct migrate *migrate = call->migrate;
    bool more = migrate->leg_count == 2 && ask->side == migrate->legs[0];
    if (ask->op.status != MORTISE_OK)
        call_fail_kept(call, ask->op.status);
    else if (more && !call->canceled && !call->upper->info->held)
        start_on(call, migrate->legs[1]);
    else
        call_complete(call, MORTISE_OK);
}

static void pinged(struct call *call)
{
    struct migrate *migrate = call->migrate;
    mortise_op *upper = call->upper;
    for (size_t i = 0; i < migrate->leg_count; i++) {
        mortise_status status = call->asks[migrate->legs[i]].op.status;
        if (status != MORTISE_OK) {
            call_fail_kept(call, status);
            return;
        }
    }
    const char *first = call->lines[migrate->legs[0]], *second = call->lines[migrate->legs[1]];
    if (upper->buffer_size > 0 && migrate->leg_count == 1)
        snprintf(upper->buffer, upper->buffer_size, "phase %s: %s",
                 migrate_phase_word(migrate->phase), first);
    else if (upper->buffer_size > 0)
        snprintf(upper->buffer, upper->buffer_size, "phase both: from %s; to %s", first, second);
    call_complete(call, MORTISE_OK);
}

void look_answered(struct call *call, struct ask *ask)
{
    if (ask->op.status != MORTISE_OK && ask->op.error != NULL)
        call_keep_error(call, ask);
    if (call_is_out(call))
        return;
    if (ask->op.kind == MORTISE_OP_PING)
        pinged(call);
    else if (ask->op.kind == MORTISE_OP_INSPECT)
        inspected(call, ask);
    else
        call_fail_kept(call, ask->op.status);
}
