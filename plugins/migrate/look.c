/* look.c - inspect and ping, and the way to list.c.
 *
 * inspect reports the holder of the name. All clients acquire leg 1 before leg 2. So a client that has leg 2
 * holds the name, and a client that has only leg 1 may still be waiting for leg 2. If leg 2 is free, the
 * holder of leg 1 is reported: a client of phase old, or one that is about to acquire leg 2. If leg 2's side
 * does not answer, the inspect fails: a client of phase new may hold the name there, and the token of leg 1
 * need not be that of the lease. */
#include "internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORDS_SIZE = 24 }; /* of the plugin's own words in the answer to a ping */

/* ---- starting ------------------------------------------------------------------------------------ */

static void start_on(struct call *call, enum migrate_side side)
{
    ask_send(call_prepare(call, side, call->upper->kind));
}

/* Each side has as much room for its answer to a ping as without the plugin. */
static size_t line_size(const struct call *call)
{
    return call->upper->buffer_size > 0 ? call->upper->buffer_size : 1;
}

static char *line_of(const struct call *call, enum migrate_side side)
{
    return call->lines + side * line_size(call);
}

static void start_ping(struct call *call)
{
    struct migrate *migrate = call->migrate;
    call->lines = calloc(SIDES, line_size(call));
    if (call->lines == NULL) {
        call_complete(call, MORTISE_NOMEM);
        return;
    }
    for (size_t i = 0; i < migrate->leg_count; i++) {
        enum migrate_side side = migrate->legs[i];
        struct ask *ask = call_prepare(call, side, MORTISE_OP_PING);
        ask->op.name = NULL;
        ask->op.name_len = 0;
        ask->op.buffer = line_of(call, side);
        ask->op.buffer_size = line_size(call);
        ask_send(ask);
    }
}

static void start_inspect(struct call *call)
{
    struct migrate *migrate = call->migrate;
    start_on(call, migrate->legs[0]);
    if (migrate->leg_count == 1)
        return;
    struct ask *ask = call_prepare(call, migrate->legs[1], MORTISE_OP_INSPECT);
    call->second_info = *call->upper->info;
    ask->op.info = &call->second_info;
    ask_send(ask);
}

void look_start(struct call *call)
{
    if (call->upper->kind == MORTISE_OP_INSPECT)
        start_inspect(call);
    else if (call->upper->kind == MORTISE_OP_LIST)
        list_start(call);
    else if (call->upper->kind == MORTISE_OP_PING)
        start_ping(call);
    else
        call_fail(call, MORTISE_NOTSUP, false,
                  "migrate: an application's records belong to one side, and are not moved");
}

/* ---- answers ------------------------------------------------------------------------------------- */

static bool names_grant(const char *owner, const mortise_grant_id *grant)
{
    char text[2 * MORTISE_GRANT_ID_SIZE + 1];
    for (size_t i = 0; i < MORTISE_GRANT_ID_SIZE; i++)
        snprintf(text + 2 * i, 3, "%02x", grant->bytes[i]);
    return strcmp(owner, text) == 0;
}

static bool is_of_claim(const struct claim *claim, enum migrate_side side, const mortise_info *info)
{
    if (!claim->legs[side].held)
        return false;
    if (claim->owner_len == 0)
        return names_grant(info->owner, &claim->legs[side].grant);
    return strlen(info->owner) == claim->owner_len &&
           memcmp(info->owner, claim->owner, claim->owner_len) == 0;
}

/* What this client holds is reported as the core knows it: each leg has a grant of its own, and a token that
 * the core may not have been given because the other side has none. */
static void tell_as_core(const struct call *call, enum migrate_side side)
{
    struct migrate *migrate = call->migrate;
    mortise_info *info = call->upper->info;
    size_t prefix_len = migrate->sides[migrate->legs[0]].prefix_len;
    const char *name = call->upper->name + prefix_len;
    size_t name_len = call->upper->name_len - prefix_len;
    struct claim *claim, *next;
    HASH_ITER (hh, migrate->claims, claim, next) {
        if (claim->name_len != name_len || memcmp(claim->texts, name, name_len) != 0 ||
            !is_of_claim(claim, side, info))
            continue;
        for (size_t i = 0; claim->owner_len == 0 && i < MORTISE_GRANT_ID_SIZE; i++)
            snprintf(info->owner + 2 * i, 3, "%02x", claim->grant.bytes[i]);
        for (size_t i = 0; i < migrate->leg_count; i++)
            if (claim->legs[migrate->legs[i]].token == 0)
                info->token = 0;
        return;
    }
}

static void inspected(struct call *call)
{
    struct migrate *migrate = call->migrate;
    mortise_info *info = call->upper->info, *second = &call->second_info;
    mortise_status status = call->asks[migrate->legs[0]].op.status;
    enum migrate_side side = migrate->legs[0];
    if (migrate->leg_count == 2) {
        mortise_status second_status = call->asks[migrate->legs[1]].op.status;
        if (second_status == MORTISE_OK && second->held) {
            if (status != MORTISE_OK || info->waiters < 0 || second->waiters < 0)
                second->waiters = -1;
            else
                second->waiters +=
                    info->waiters; /* these wait for leg 1, or have leg 1 and wait for leg 2 */
            *info = *second;
            status = MORTISE_OK;
            side = migrate->legs[1];
        } else if (second_status != MORTISE_OK) {
            status = second_status;
        }
    }
    if (status == MORTISE_OK && info->held)
        tell_as_core(call, side);
    if (status == MORTISE_OK)
        call_complete(call, MORTISE_OK);
    else
        call_fail_kept(call, status);
}

/* Where the findings (driver.h, MORTISE_OP_PING) of a side begin. */
static size_t facts_len(const char *line)
{
    const char *findings = strstr(line, " | ");
    return findings != NULL ? (size_t)(findings - line) : strlen(line);
}

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* The findings of both sides come behind the facts of both. If there is no room for all, the facts are cut off: without a finding,
 * there would seem to be no risk. */
static void tell_lines(const struct call *call)
{
    const struct migrate *migrate = call->migrate;
    const mortise_op *upper = call->upper;
    const bool both = migrate->leg_count == 2;
    const char *first = line_of(call, migrate->legs[0]);
    const char *second = both ? line_of(call, migrate->legs[1]) : "";
    size_t first_len = facts_len(first), second_len = facts_len(second);
    size_t rest = WORDS_SIZE + strlen(first + first_len) + strlen(second + second_len);
    size_t room = upper->buffer_size > rest ? upper->buffer_size - rest : 0;
    size_t second_room = smaller(second_len, room / 2);
    first_len = smaller(first_len, room - second_room);
    second_len = smaller(second_len, room - first_len);
    snprintf(upper->buffer, upper->buffer_size, "phase %s: %s%.*s%s%.*s%s%s",
             migrate_phase_word(migrate->phase), both ? "from " : "", (int)first_len, first,
             both ? "; to " : "", (int)second_len, second, first + facts_len(first),
             second + facts_len(second));
}

static void pinged(struct call *call)
{
    struct migrate *migrate = call->migrate;
    for (size_t i = 0; i < migrate->leg_count; i++) {
        mortise_status status = call->asks[migrate->legs[i]].op.status;
        if (status != MORTISE_OK) {
            call_fail_kept(call, status);
            return;
        }
    }
    if (call->upper->buffer_size > 0)
        tell_lines(call);
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
        inspected(call);
    else
        list_answered(call, ask);
}
