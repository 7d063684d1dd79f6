/* list.c - the held names, without this plugin's own: of the phase's side, or of both sides.
 *
 * In phase both a name may be held on `from` only (by a client of phase old), on `to` only (phase new), or on both. `to` is
 * asked first, and its list is kept. Then the names of `from` are passed on as they come, with those of `to` between them:
 * both lists are in byte order. A name that is on both is reported as `to` has it, as inspect does. So only one side's list
 * is in memory. If either side fails, the list fails, because locks would be missing in it. */
#include "internal.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* The name without the namespace; NULL: one of this plugin's own. */
static const char *bare_name(const struct ask *ask, const mortise_info *info)
{
    size_t prefix_len = ask->migrate->sides[ask->side].prefix_len, own = strlen(MIGRATE_PREFIX);
    if (strlen(info->name) < prefix_len)
        return NULL;
    const char *name = info->name + prefix_len;
    return strncmp(name, MIGRATE_PREFIX, own) == 0 ? NULL : name;
}

static void tell(struct call *call, const mortise_info *info)
{
    call->migrate->host->emit(call->migrate->host, call->upper, info);
}

/* ---- what `to` has --------------------------------------------------------------------------------- */

static char *put_text(char *at, const char *text)
{
    size_t size = strlen(text) + 1;
    memcpy(at, text, size);
    return at + size;
}

static const char *get_text(const char *at, char *text)
{
    size_t size = strlen(at) + 1;
    memcpy(text, at, size);
    return at + size;
}

/* Keeps a packed copy: a whole mortise_info has room for the longest texts, and most texts are short. */
static void keep(mortise_op *op, const mortise_info *info)
{
    const struct ask *ask = (struct ask *)op;
    struct call *call = ask->of;
    const char *name = bare_name(ask, info);
    if (name == NULL || call->list_failed)
        return;
    struct listed *listed = malloc(sizeof(*listed) + strlen(name) + strlen(info->owner) +
                                   strlen(info->host) + strlen(info->program) + 4);
    call->list_failed = listed == NULL;
    if (listed == NULL)
        return;
    listed->next = NULL;
    memcpy(listed->numbers, (const char *)info + offsetof(mortise_info, pid),
           sizeof(listed->numbers));
    put_text(put_text(put_text(put_text(listed->texts, name), info->owner), info->host),
             info->program);
    *call->list_end = listed;
    call->list_end = &listed->next;
}

/* Reports a kept name in the namespace of the core's op. A name that is too long there is skipped: no client could acquire
 * it. */
static void tell_kept(struct call *call, const struct listed *listed)
{
    const struct side *first = &call->migrate->sides[call->migrate->legs[0]];
    mortise_info info = {.size = sizeof(info), .held = true};
    if (first->prefix_len + strlen(listed->texts) > MORTISE_NAME_MAX)
        return;
    memcpy((char *)&info + offsetof(mortise_info, pid), listed->numbers, sizeof(listed->numbers));
    memcpy(info.name, first->prefix, first->prefix_len);
    const char *at = get_text(listed->texts, info.name + first->prefix_len);
    at = get_text(at, info.owner);
    at = get_text(at, info.host);
    get_text(at, info.program);
    tell(call, &info);
}

/* Reports the kept names that come before `name`, and `name` itself if it was kept (NULL: all names). True: it was kept. */
static bool tell_kept_until(struct call *call, const char *name)
{
    int order = -1;
    while (call->list != NULL && order < 0) {
        struct listed *listed = call->list;
        order = name == NULL ? -1 : strcmp(listed->texts, name);
        if (order > 0)
            break;
        tell_kept(call, listed);
        call->list = listed->next;
        free(listed);
    }
    return order == 0;
}

/* ---- what the first leg has ------------------------------------------------------------------------ */

static void emitted(mortise_op *op, const mortise_info *info)
{
    const struct ask *ask = (struct ask *)op;
    struct call *call = ask->of;
    const char *name = bare_name(ask, info);
    if (name != NULL && !tell_kept_until(call, name))
        tell(call, info);
}

/* ---- start and answers ----------------------------------------------------------------------------- */

static void ask_leg(struct call *call, size_t leg)
{
    struct ask *ask = call_prepare(call, call->migrate->legs[leg], MORTISE_OP_LIST);
    ask->op.emitted = leg == 0 ? emitted : keep;
    ask_send(ask);
}

void list_start(struct call *call)
{
    call->list_end = &call->list;
    ask_leg(call, call->migrate->leg_count - 1);
}

void list_answered(struct call *call, const struct ask *ask)
{
    if (ask->op.status != MORTISE_OK) {
        call_fail_kept(call, ask->op.status);
    } else if (call->list_failed) {
        call_complete(call, MORTISE_NOMEM);
    } else if (ask->side != call->migrate->legs[0]) {
        if (call->canceled)
            call_complete(call, MORTISE_CANCELED);
        else
            ask_leg(call, 0);
    } else {
        tell_kept_until(call, NULL);
        call_complete(call, MORTISE_OK);
    }
}
