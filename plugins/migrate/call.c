/* call.c - an op of the core from its arrival to its answer: its requests to the sides, and its one answer, which it gets
 * only when none of its requests is out any more. Does not know the kind of the op; dispatch.c does. */
#include "internal.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

/* ---- arrival ----------------------------------------------------------------------------------- */

bool call_name_second(struct call *call)
{
    struct migrate *migrate = call->migrate;
    const struct side *first = &migrate->sides[migrate->legs[0]],
                      *second = &migrate->sides[migrate->legs[1]];
    size_t bare_len = call->upper->name_len - first->prefix_len;
    if (second->prefix_len + bare_len > MORTISE_NAME_MAX)
        return false;
    memcpy(call->second_name, second->prefix, second->prefix_len);
    memcpy(call->second_name + second->prefix_len, call->upper->name + first->prefix_len, bare_len);
    call->name[migrate->legs[1]] = call->second_name;
    call->name_len[migrate->legs[1]] = second->prefix_len + bare_len;
    return true;
}

struct call *call_make(struct migrate *migrate, mortise_op *upper,
                       void (*answered)(struct ask *ask))
{
    struct call *call = malloc(sizeof(*call));
    if (call == NULL)
        return NULL;
    memset(call, 0, offsetof(struct call, error));
    call->second_name[0] = '\0';
    call->migrate = migrate;
    call->upper = upper;
    call->state = CALL_OTHER;
    call->hint_ms = -1;
    upper->driver_data[0] = call;
    for (size_t i = 0; i < SIDES; i++)
        call->asks[i] =
            (struct ask){.migrate = migrate, .side = i, .answered = answered, .of = call};
    call->name[migrate->legs[0]] = upper->name;
    call->name_len[migrate->legs[0]] = upper->name_len;
    DL_APPEND2(migrate->calls, call, previous, next);
    return call;
}

/* ---- requests ------------------------------------------------------------------------------------ */

struct ask *call_prepare(struct call *call, enum migrate_side side, mortise_op_kind kind)
{
    const mortise_op *upper = call->upper;
    struct ask *ask = &call->asks[side];
    ask_prepare(ask, kind);
    ask->op.name = call->name[side];
    ask->op.name_len = call->name_len[side];
    ask->op.owner = upper->owner;
    ask->op.owner_len = upper->owner_len;
    ask->op.ttl_ms = upper->ttl_ms;
    ask->op.info = upper->info;
    return ask;
}

bool call_is_out(const struct call *call)
{
    return call->asks[MIGRATE_FROM].out || call->asks[MIGRATE_TO].out;
}

/* ---- answers ------------------------------------------------------------------------------------- */

/* Frees the call; its op belongs to the core again. */
static mortise_op *call_end(struct call *call)
{
    mortise_op *upper = call->upper;
    if (call->claim != NULL)
        claim_leave(call->claim);
    DL_DELETE2(call->migrate->calls, call, previous, next);
    upper->driver_data[0] = NULL;
    free(call->lines);
    while (call->list != NULL) {
        struct listed *listed = call->list;
        call->list = listed->next;
        free(listed);
    }
    free(call);
    return upper;
}

void call_complete(struct call *call, mortise_status status)
{
    mortise_host *host = call->migrate->host;
    host->complete(host, call_end(call), status);
}

void call_fail(struct call *call, mortise_status status, bool retryable, const char *format, ...)
{
    mortise_host *host = call->migrate->host;
    char message[960];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof(message), format, arguments);
    va_end(arguments);
    host->fail(host, call_end(call), status, 0, retryable, "%s", message);
}

void call_keep_error(struct call *call, const struct ask *ask)
{
    char text[96];
    call->has_error = ask != NULL && ask->op.error != NULL;
    if (!call->has_error)
        return;
    call->error = *ask->op.error;
    if (call->migrate->leg_count > 1)
        snprintf(call->error.message, sizeof(call->error.message), "%s: %.800s",
                 side_text(call->migrate, ask->side, text, sizeof(text)), ask->op.error->message);
}

/* Whether the core repeats a release that has failed in this way. */
static bool may_pass(mortise_status status, const mortise_error *error)
{
    return status == MORTISE_UNREACHABLE || status == MORTISE_INDETERMINATE ||
           status == MORTISE_CANCELED || status == MORTISE_TIMEDOUT || status == MORTISE_NOMEM ||
           (error != NULL && error->retryable);
}

bool call_failure_may_pass(const struct call *call)
{
    return call->failed && may_pass(call->status, call->has_error ? &call->error : NULL);
}

void call_keep_failure(struct call *call, const struct ask *ask)
{
    mortise_status status = ask->op.status;
    if (status != MORTISE_INDETERMINATE && call_failure_may_pass(call))
        return;
    call->failed = true;
    call->status = status;
    call_keep_error(call, ask);
}

void call_fail_kept(struct call *call, mortise_status status)
{
    mortise_host *host = call->migrate->host;
    mortise_error error;
    if (!call->has_error) {
        call_complete(call, status);
        return;
    }
    error = call->error;
    host->fail(host, call_end(call), status, error.native, error.retryable, "%s", error.message);
}

const char *side_text(const struct migrate *migrate, enum migrate_side side, char *text,
                      size_t size)
{
    snprintf(text, size, "`%s` [%.60s]", migrate_side_word(side), migrate->sides[side].section);
    return text;
}
