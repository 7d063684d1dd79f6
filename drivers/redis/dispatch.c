/* dispatch.c - accepts ops, keeps them while there is no connection or too many are under way, sends them and cancels them.
 * op.h has their states. */
#include "oplist.h"
#include "seats.h"
#include "sending.h"
#include "shared.h"

#include <stdio.h>

/* ---- what cannot be asked --------------------------------------------------------------------------- */

/* False: the op has been failed. */
static bool is_possible(struct driver *driver, mortise_op *op)
{
    const char *problem = NULL;
    mortise_status status = MORTISE_INVALID;
    if (op->kind == MORTISE_OP_ACQUIRE && key_is_side(op->name, op->name_len))
        problem = "a name that begins with '{' must not have \"}:mortise:\" in it";
    else if (op->kind == MORTISE_OP_ACQUIRE && op->token_floor > FLOOR_MAX)
        problem = "the token to begin from is above 2^53";
    else if (op->kind == MORTISE_OP_ACQUIRE && op->owner_len > 0 &&
             driver->layout == LAYOUT_STRING) {
        problem = "an owner cannot be shared with mode = string; set mode = hash";
        status = MORTISE_NOTSUP;
    } else if (driver->layout == LAYOUT_REDISSON && op->owner_len >= 7 &&
               memcmp(op->owner, "mortise", 7) == 0) {
        problem = "with dialect = redisson the name of an owner must not begin with \"mortise\"";
    } else if (op->mode == MORTISE_SHARED && !driver_shares(driver)) {
        problem = "shared leases need tokens, scripts, and a dialect that knows them";
        status = MORTISE_NOTSUP;
    } else if ((op->flags & MORTISE_OP_BREAK) != 0 && !driver->fencing) {
        problem = "without fencing there is no token by which to break";
        status = MORTISE_NOTSUP;
    }
    if (problem != NULL)
        op_fail_as(driver, op, status, false, problem);
    return problem == NULL;
}

/* ---- sending ---------------------------------------------------------------------------------------- */

/* The link is up. */
static void send_op(struct driver *driver, mortise_op *op)
{
    switch (op->kind) {
    case MORTISE_OP_ACQUIRE:
        if (!turn_keep(driver, op))
            lease_acquire(driver, op);
        break;
    case MORTISE_OP_RENEW:
        if (op_downgrades(op))
            shared_downgrade(driver, op);
        else
            renewal_start(driver, &op, 1);
        break;
    case MORTISE_OP_RELEASE:
        lease_release(driver, op);
        break;
    case MORTISE_OP_INSPECT:
        inspect_start(driver, op);
        break;
    case MORTISE_OP_LIST:
        list_start(driver, op);
        break;
    case MORTISE_OP_READ:
        record_read(driver, op);
        break;
    case MORTISE_OP_WRITE:
        record_write(driver, op);
        break;
    case MORTISE_OP_PING:
        inspect_ping(driver, op);
        break;
    }
}

static bool hold_back(struct driver *driver, mortise_op *op)
{
    if (op->kind != MORTISE_OP_ACQUIRE || has_room(driver))
        return false;
    op_set(op, OP_HELD_BACK, driver);
    op_append(&driver->held_back, op);
    return true;
}

void dispatch_turn(struct driver *driver)
{
    while (driver->held_back != NULL && has_room(driver) && link_is_up(&driver->link))
        send_op(driver, op_take(&driver->held_back, driver->held_back));
}

/* A downgrade is always a request of its own. In a cluster, so is the renewal of a shared lock, which has several keys,
 * and of a lock that may have moved. */
static bool goes_alone(const struct driver *driver, const mortise_op *op)
{
    return driver->in_cluster && (op->mode == MORTISE_SHARED || data_of(op)->redirects > 0);
}

/* Renewals have deadlines, so they go first, all of one mode together. */
static void send_renewals(struct driver *driver)
{
    mortise_op *renewals[2][RENEW_MAX], *op, *next;
    size_t count[2] = {0};
    DL_FOREACH_SAFE2(driver->waiting, op, next, next)
    {
        if (op->kind != MORTISE_OP_RENEW || op_downgrades(op))
            continue;
        op_take(&driver->waiting, op);
        if (goes_alone(driver, op)) {
            renewal_start(driver, &op, 1);
            continue;
        }
        bool shared = op->mode == MORTISE_SHARED;
        renewals[shared][count[shared]++] = op;
        if (count[shared] < RENEW_MAX)
            continue;
        renewal_start(driver, renewals[shared], RENEW_MAX);
        count[shared] = 0;
    }
    for (int shared = 0; shared < 2; shared++)
        if (count[shared] > 0)
            renewal_start(driver, renewals[shared], count[shared]);
}

static void send_waiting(struct driver *driver)
{
    send_renewals(driver);
    while (driver->waiting != NULL) {
        mortise_op *op = op_take(&driver->waiting, driver->waiting);
        if (!hold_back(driver, op))
            send_op(driver, op);
    }
}

static void run(struct driver *driver)
{
    if (driver->transaction != NULL)
        transaction_next(driver);
    else
        send_waiting(driver);
    link_flush(&driver->link);
}

/* ---- coming in -------------------------------------------------------------------------------------- */

/* Ends an acquire whose grant is a stray as BUSY, so that the core takes another grant id. */
static void end_stray(struct driver *driver, mortise_op *op)
{
    op->hint_ms = driver->retry_ms;
    op_end(driver, op, MORTISE_BUSY);
}

static void end_strays(struct driver *driver)
{
    mortise_op *op, *next;
    DL_FOREACH_SAFE2(driver->waiting, op, next, next)
    if (uncertain_is_stray(driver, op))
        end_stray(driver, op_take(&driver->waiting, op));
}

void dispatch_take(struct driver *driver, mortise_op *op)
{
    if (!is_possible(driver, op))
        return;
    /* A connection that is being made may settle the strays, so it is checked again then. */
    if (link_is_up(&driver->link) && uncertain_is_stray(driver, op))
        end_stray(driver, op);
    else
        op_wait(driver, op);
}

void dispatch_go(struct driver *driver)
{
    if (driver->waiting == NULL)
        return;
    link_look(&driver->link);
    link_want(&driver->link); /* also if it is up: a node without slots is not wanted */
    if (link_is_up(&driver->link))
        run(driver);
}

void dispatch_start(struct driver *driver, mortise_op **ops, size_t n)
{
    for (size_t i = 0; i < n; i++)
        dispatch_take(driver, ops[i]);
    dispatch_go(driver);
}

/* ---- canceled --------------------------------------------------------------------------------------- */

/* The op's request is under way: its reply will be dropped. */
static void cancel_request(mortise_op *op)
{
    struct request *request = data_of(op)->request;
    op_complete(request->driver, op,
                request_is_idle(request) ? MORTISE_CANCELED : MORTISE_INDETERMINATE);
    request->op = NULL;
}

static void cancel_unsent(struct driver *driver, mortise_op *op)
{
    bool unsure = (op->flags & MORTISE_OP_REPEAT) != 0 || seat_is_placed(op);
    op_complete(driver, op, unsure ? MORTISE_INDETERMINATE : MORTISE_CANCELED);
}

void dispatch_cancel(mortise_op *op)
{
    struct driver *driver;
    switch (data_of(op)->state) {
    case OP_NEW:
    case OP_UNROUTED: /* these two: cluster.c */
    case OP_GATHERED:
        break;
    case OP_WAITING:
        driver = data_of(op)->driver;
        cancel_unsent(driver, op_take(&driver->waiting, op));
        break;
    case OP_HELD_BACK:
        driver = data_of(op)->driver;
        cancel_unsent(driver, op_take(&driver->held_back, op));
        break;
    case OP_SEATED:
        cancel_unsent(data_of(op)->seat->driver, op);
        break;
    case OP_SENT:
        cancel_request(op);
        break;
    case OP_RENEWING:
        renewal_cancel(op);
        break;
    case OP_LISTING:
        list_cancel(op);
        break;
    case OP_WATCHED:
        transaction_cancel(op);
        break;
    case OP_UNCONFIRMED:
    case OP_CONFIRMING:
    case OP_UNDOING:
        replicas_cancel(op);
        break;
    }
}

/* ---- the connection --------------------------------------------------------------------------------- */

/* These were led here by ASK before there was a connection. Since then the slot may have come here, gone back, and be on its way
 * again. */
static void ask_by_map(struct driver *driver)
{
    mortise_op *op, *next;
    DL_FOREACH_SAFE2(driver->waiting, op, next, next)
    {
        if (data_of(op)->asking)
            driver->routes->again(driver, op_take(&driver->waiting, op));
    }
}

static void up(struct link *link, void *owner)
{
    struct driver *driver = owner;
    if (link->clustered && !driver->in_cluster && driver->routes != NULL) {
        driver->routes->discovered(driver);
        return;
    }
    memset(driver->known, 0, sizeof(driver->known));
    if (link_settled(link))
        uncertain_forget(driver);
    else {
        uncertain_drop(driver, now_of(driver));
        end_strays(driver);
    }
    pubsub_follow(driver, failover_up(driver));
    ask_by_map(driver);
    run(driver);
    queue_ask_all(driver);
}

/* A connection that broke is made again at once, and the ops wait for that. If the attempt fails, they fail, and the next
 * op tries again. */
static void down(struct link *link, void *owner, const struct link_fault *fault)
{
    struct driver *driver = owner;
    bool useful = !driver->in_cluster || driver->routes->doubted(driver);
    while (driver->held_back != NULL)
        op_wait(driver, op_take(&driver->held_back, driver->held_back));
    if (link->broke) {
        failover_broke(driver);
        /* The server may come back empty, or another one in its place, and grant a lock that is held here to somebody else
         * before this client is connected again. So all held claims are renewed as soon as possible, and not handed over until
         * then. */
        driver->host->doubt(driver->host, NULL, 0);
        pubsub_suspect(driver, fault);
        return;
    }
    while (driver->waiting != NULL)
        op_fail(driver, op_take(&driver->waiting, driver->waiting), fault);
    queue_lose_all(driver, fault);
    if (!useful || !failover_is_restless(driver))
        link_unwant(link);
}

const struct link_callbacks dispatch_callbacks = {.up = up, .down = down, .seek = failover_seek};
const struct dispatch_calls dispatch_calls = {
    .send = send_op, .start = dispatch_start, .cancel = dispatch_cancel};
