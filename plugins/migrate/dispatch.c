/* dispatch.c - passes each request of the core to the file that knows its kind, and so the answers that come from
 * below for that request. */
#include "internal.h"

#include <string.h>

/* ---- answers from below -------------------------------------------------------------------------- */

static void answered(struct ask *ask)
{
    struct call *call = ask->of;
    switch (call->upper->kind) {
    case MORTISE_OP_ACQUIRE:
        acquire_answered(call, ask);
        break;
    case MORTISE_OP_RENEW:
    case MORTISE_OP_RELEASE:
        lease_answered(call, ask);
        break;
    default:
        look_answered(call, ask);
    }
}

/* ---- requests of the core ------------------------------------------------------------------------ */

/* Whether the name is one of the plugin's own. */
static bool is_reserved(const struct migrate *migrate, const mortise_op *op)
{
    size_t prefix_len = migrate->sides[migrate->legs[0]].prefix_len, own = strlen(MIGRATE_PREFIX);
    return op->name_len >= prefix_len + own &&
           memcmp(op->name + prefix_len, MIGRATE_PREFIX, own) == 0;
}

static void start(struct migrate *migrate, mortise_op *op)
{
    struct call *call = call_make(migrate, op, answered);
    if (call == NULL) {
        migrate->host->fail(migrate->host, op, MORTISE_UNREACHABLE, 0, true,
                            "migrate: out of memory");
        return;
    }
    if (migrate->leg_count == 2 && op->kind != MORTISE_OP_PING && !call_name_second(call)) {
        call_fail(call, MORTISE_INVALID, false,
                  "migrate: the name is too long for the namespace of `to`");
    } else if (op->kind == MORTISE_OP_ACQUIRE && is_reserved(migrate, op)) {
        call_fail(call, MORTISE_INVALID, false,
                  "migrate: names that begin with \"" MIGRATE_PREFIX "\" are reserved for the plugin");
    } else if (op->kind == MORTISE_OP_ACQUIRE) {
        acquire_start(call);
    } else if (op->kind == MORTISE_OP_RENEW) {
        lease_renew(call);
    } else if (op->kind == MORTISE_OP_RELEASE) {
        lease_release(call);
    } else {
        look_start(call);
    }
}

void dispatch_start(struct migrate *migrate, mortise_op **ops, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (ops[i]->kind == MORTISE_OP_RENEW) {
            presence_renew_along(migrate);
            break;
        }
    for (size_t i = 0; i < n; i++)
        start(migrate, ops[i]);
}

void dispatch_cancel(struct migrate *migrate, mortise_op *op)
{
    struct call *call = op->driver_data[0];
    if (op == migrate->leaving) {
        register_leave_now(migrate);
        return;
    }
    call->canceled = true;
    if (op->kind == MORTISE_OP_ACQUIRE) {
        acquire_cancel(call);
        return;
    }
    for (size_t i = 0; i < SIDES; i++)
        ask_cancel(&call->asks[i]);
}

void dispatch_waiting(struct migrate *migrate, mortise_op *op)
{
    const struct ask *ask = ask_of(op);
    if (ask == NULL || ask->migrate != migrate)
        migrate->host->waiting(migrate->host, op);
    else if (ask->answered == answered)
        acquire_waiting(ask->of);
}
