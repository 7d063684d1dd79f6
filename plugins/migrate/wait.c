/* wait.c - an acquire that holds leg 1 and asks or waits for leg 2. It renews leg 1 after each third of its term. If the
 * driver of leg 2 does not queue the request, wait.c watches leg 2 and asks again on news, or when the holder's claim ends. A
 * plugin does not get news of all names (host->news_all), so wait.c asks at least every two seconds. The acquire above passes
 * the function that asks (struct wait_events). */
#include "internal.h"

#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#define ASK_MIN_NS (20 * NS_PER_MS)
#define ASK_MAX_NS (2000 * NS_PER_MS)
#define ASK_UNTOLD_NS (250 * NS_PER_MS) /* for a driver that sends no news of a release */
#define RETRY_NS (50 * NS_PER_MS)

static struct leg *first_leg(struct call *call)
{
    return &call->claim->legs[call->migrate->legs[0]];
}

static struct ask *first_ask(struct call *call)
{
    return &call->asks[call->migrate->legs[0]];
}

static struct ask *second_ask(struct call *call)
{
    return &call->asks[call->migrate->legs[1]];
}

static mortise_below *second_below(struct migrate *migrate)
{
    return migrate->sides[migrate->legs[1]].below;
}

static void look_at(struct migrate *migrate, int64_t at_ns)
{
    if (at_ns < migrate->wait_ns)
        migrate->wait_ns = at_ns;
    due_at(migrate, at_ns);
}

/* ---- watching leg 2 ---------------------------------------------------------------------------- */

static struct watch *find_watch(struct call *call)
{
    enum migrate_side side = call->migrate->legs[1];
    struct watch *watch;
    HASH_FIND(hh, call->migrate->watches, call->name[side], call->name_len[side], watch);
    return watch;
}

static struct watch *make_watch(struct call *call)
{
    struct migrate *migrate = call->migrate;
    enum migrate_side side = migrate->legs[1];
    struct watch *watch = calloc(1, sizeof(*watch) + call->name_len[side]);
    if (watch == NULL)
        return NULL;
    watch->name_len = call->name_len[side];
    memcpy(watch->name, call->name[side], watch->name_len);
    HASH_ADD_KEYPTR(hh, migrate->watches, watch->name, watch->name_len, watch);
    if (watch->hh.tbl == NULL) {
        free(watch);
        return NULL;
    }
    return watch;
}

/* If there is no memory, there is no news, and the call asks again only by time. */
static void watch_second(struct call *call)
{
    mortise_below *below = second_below(call->migrate);
    struct watch *watch = call->watching || below->module->watch == NULL ? NULL : find_watch(call);
    if (call->watching || below->module->watch == NULL)
        return;
    if (watch == NULL && (watch = make_watch(call)) == NULL)
        return;
    call->watching = true;
    if (watch->count++ == 0)
        below->module->watch(below->ctx, watch->name, watch->name_len);
}

static void unwatch_second(struct call *call)
{
    mortise_below *below = second_below(call->migrate);
    if (!call->watching)
        return;
    struct watch *watch = find_watch(call);
    call->watching = false;
    if (--watch->count > 0)
        return;
    if (below->module->unwatch != NULL)
        below->module->unwatch(below->ctx, watch->name, watch->name_len);
    HASH_DELETE(hh, call->migrate->watches, watch);
    free(watch);
}

/* ---- beginning and end --------------------------------------------------------------------------- */

static void set_renewal(struct call *call)
{
    const struct leg *leg = first_leg(call);
    call->renew_ns = leg->from_ns + leg->good_for_ms * NS_PER_MS / 3;
    look_at(call->migrate, call->renew_ns);
}

void wait_begin(struct call *call)
{
    DL_APPEND2(call->migrate->waiting, call, previous_waiting, next_waiting);
    call->waits = true;
    set_renewal(call);
}

void wait_end(struct call *call)
{
    if (!call->waits)
        return;
    call->waits = false;
    DL_DELETE2(call->migrate->waiting, call, previous_waiting, next_waiting);
    unwatch_second(call);
}

void wait_busy(struct call *call, int64_t hint_ms)
{
    struct migrate *migrate = call->migrate;
    bool told = (second_below(migrate)->capabilities & MORTISE_CAP_NOTIFY) != 0;
    int64_t most_ns = told ? ASK_MAX_NS : ASK_UNTOLD_NS;
    int64_t wait_ns = hint_ms < 0 || hint_ms * NS_PER_MS > most_ns ? most_ns : hint_ms * NS_PER_MS;
    migrate->host->waiting(migrate->host, call->upper); /* the core does not get this BUSY */
    watch_second(call); /* this may bring news at once: of a release before the watch */
    if (call->news) {
        migrate->wait_events->ask_second(call);
        return;
    }
    call->ask_ns = now_of(migrate) + (wait_ns < ASK_MIN_NS ? ASK_MIN_NS : wait_ns);
    look_at(migrate, call->ask_ns);
}

/* ---- leg 1 --------------------------------------------------------------------------------------- */

static void renew_first(struct call *call)
{
    enum migrate_side side = call->migrate->legs[0];
    const struct leg *leg = first_leg(call);
    struct ask *ask = call_prepare(call, side, MORTISE_OP_RENEW);
    ask->op.grant = leg->grant;
    ask->op.token = leg->token;
    ask->op.info = NULL;
    call->renew_ns = MORTISE_NEVER;
    claim_may_last(call->claim, call->upper->ttl_ms);
    ask_send(ask);
}

bool wait_renewed(struct call *call, const struct ask *ask)
{
    struct migrate *migrate = call->migrate;
    struct leg *leg = first_leg(call);
    const mortise_op *op = &ask->op;
    int64_t now_ns = now_of(migrate);
    if (op->status == MORTISE_OK) {
        leg->from_ns = op->from_ns;
        leg->good_for_ms = op->good_for_ms;
        set_renewal(call);
        return true;
    }
    bool lost = op->status == MORTISE_LOST || op->status == MORTISE_NOTOWNER;
    if (!lost && now_ns < deadline_of(leg->from_ns, leg->good_for_ms)) {
        call->renew_ns = now_ns + RETRY_NS;
        look_at(migrate, call->renew_ns);
        return true;
    }
    return false;
}

/* ---- news, time ---------------------------------------------------------------------------------- */

void wait_news(struct migrate *migrate, const char *name, size_t name_len)
{
    struct call *call, *next;
    DL_FOREACH_SAFE2(migrate->waiting, call, next, next_waiting)
    {
        enum migrate_side side = migrate->legs[1];
        if (!call->watching || call->name_len[side] != name_len ||
            memcmp(call->name[side], name, name_len) != 0)
            continue;
        call->news = true;
        if (call->ask_ns != 0 && !second_ask(call)->out)
            migrate->wait_events->ask_second(call);
    }
}

void wait_turn(struct migrate *migrate, int64_t now_ns)
{
    struct call *call, *next;
    if (now_ns < migrate->wait_ns) {
        due_at(migrate, migrate->wait_ns);
        return;
    }
    migrate->wait_ns = MORTISE_NEVER;
    DL_FOREACH_SAFE2(migrate->waiting, call, next, next_waiting)
    {
        if (now_ns >= call->renew_ns && !first_ask(call)->out)
            renew_first(call);
        if (call->ask_ns != 0 && now_ns >= call->ask_ns && !second_ask(call)->out)
            migrate->wait_events->ask_second(call);
        look_at(migrate, call->renew_ns);
        if (call->ask_ns != 0)
            look_at(migrate, call->ask_ns);
    }
}
