/* results.c - answers with several results: the held names, and the holders of a name. */
#include "client/query.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIST_BLOCK 32000 /* bytes */

/* The results of a list, packed one behind the other: a whole mortise_info mostly takes ten times as much as
 * its texts. */
struct block {
    struct block *next;
    size_t used;
    _Alignas(int64_t) char bytes[LIST_BLOCK];
};

struct packed {
    size_t size; /* with the texts: name, owner, host, program, each with its end */
    int64_t pid, held_ms, remaining_ms;
    uint64_t token;
    uint32_t leases, permits, holders;
    int32_t waiters;
    mortise_mode mode;
    bool held;
    char texts[];
};

/* Returns room for a result, or NULL. Earlier results stay where they are and are not copied again. */
static struct packed *list_room(struct query *query, size_t size)
{
    struct block *last = query->list_last;
    if (last == NULL || sizeof(last->bytes) - last->used < size) {
        struct block *block = malloc(sizeof(*block));
        if (block == NULL)
            return NULL;
        block->next = NULL;
        block->used = 0;
        if (last == NULL)
            query->list = block;
        else
            last->next = block;
        query->list_last = last = block;
    }
    struct packed *room = (struct packed *)(void *)(last->bytes + last->used);
    last->used += size;
    room->size = size;
    return room;
}

static char *put_text(char *at, const char *text)
{
    size_t size = strlen(text) + 1;
    memcpy(at, text, size);
    return at + size;
}

void query_emitted(mortise_op *op, const mortise_info *given)
{
    struct query *query = (struct query *)op;
    mortise_info info = *given;
    query_complete_info(&info);
    size_t size = offsetof(struct packed, texts) + strlen(info.name) + strlen(info.owner) +
                  strlen(info.host) + strlen(info.program) + 4;
    size += -size % _Alignof(struct packed);
    struct packed *packed = list_room(query, size);
    query->list_failed |= packed == NULL;
    if (packed == NULL)
        return;
    packed->pid = info.pid;
    packed->held_ms = info.held_ms;
    packed->remaining_ms = info.remaining_ms;
    packed->token = info.token;
    packed->leases = info.leases;
    packed->waiters = info.waiters;
    packed->held = info.held;
    packed->mode = info.mode;
    packed->permits = info.permits;
    packed->holders = info.holders;
    put_text(put_text(put_text(put_text(packed->texts, info.name), info.owner), info.host),
             info.program);
}

static const char *get_text(const char *at, char *text, size_t size)
{
    snprintf(text, size, "%s", at);
    return at + strlen(at) + 1;
}

static void unpack(const struct packed *packed, mortise_info *info)
{
    *info = (mortise_info){.size = sizeof(*info),
                           .held = packed->held,
                           .pid = packed->pid,
                           .held_ms = packed->held_ms,
                           .remaining_ms = packed->remaining_ms,
                           .token = packed->token,
                           .leases = packed->leases,
                           .waiters = packed->waiters,
                           .mode = packed->mode,
                           .permits = packed->permits,
                           .holders = packed->holders};
    const char *at = get_text(packed->texts, info->name, sizeof(info->name));
    at = get_text(at, info->owner, sizeof(info->owner));
    at = get_text(at, info->host, sizeof(info->host));
    get_text(at, info->program, sizeof(info->program));
}

void query_free_results(struct query *query)
{
    while (query->list != NULL) {
        struct block *block = query->list;
        query->list = block->next;
        free(block);
    }
}

/* Calls `each` for all results, without the prefix of the client's names. */
static void tell_list(const struct query *query, size_t prefix, mortise_list_callback each,
                      void *user_data)
{
    mortise_info info;
    for (const struct block *block = query->list; block != NULL; block = block->next) {
        const struct packed *packed;
        for (size_t at = 0; at < block->used; at += packed->size) {
            packed = (const struct packed *)(const void *)(block->bytes + at);
            unpack(packed, &info);
            query_strip_namespace(prefix, &info);
            if (!each(&info, user_data))
                return;
        }
    }
}

mortise_status mortise_list(mortise_client *handle, const char *prefix, mortise_list_callback each,
                            void *user_data, mortise_error *error)
{
    struct client *client;
    if (each == NULL)
        return failed(error, MORTISE_INVALID, "mortise_list: no callback");
    mortise_status status = client_enter(handle, &client, error);
    if (status != MORTISE_OK)
        return status;
    struct query *query = NULL;
    status = query_need(client, MORTISE_CAP_LIST, "list", error);
    if (status == MORTISE_OK)
        query = query_new(client, MORTISE_OP_LIST, prefix, &status, error);
    if (query != NULL)
        status = query_ask(&query, "list", error);
    if (status == MORTISE_OK && query->list_failed)
        status = failed(error, MORTISE_NOMEM, "list: out of memory");
    size_t strip = client->locks.settings.namespace_len;
    client_count_out(client); /* the callback may close it */
    if (status == MORTISE_OK)
        tell_list(query, strip, each, user_data);
    query_free(query);
    client_end_call();
    return status;
}

mortise_status mortise_holders(mortise_client *handle, const char *name, mortise_list_callback each,
                               void *user_data, mortise_error *error)
{
    struct client *client;
    if (each == NULL)
        return failed(error, MORTISE_INVALID, "mortise_holders: no callback");
    mortise_status status = client_enter(handle, &client, error);
    if (status != MORTISE_OK)
        return status;
    struct query *query = NULL;
    status = query_need(client, MORTISE_CAP_INSPECT, "list holders", error);
    if (status == MORTISE_OK)
        query = query_new(client, MORTISE_OP_INSPECT, name, &status, error);
    if (query != NULL) {
        query->task.op.emitted = query_emitted;
        status = query_ask(&query, "list holders of", error);
    }
    if (status == MORTISE_OK && query->list == NULL && query->info.held) {
        /* a driver without shared locks: there is one holder */
        snprintf(query->info.name, sizeof(query->info.name), "%s", query->name);
        query_emitted(&query->task.op, &query->info);
    }
    if (status == MORTISE_OK && query->list_failed)
        status = failed(error, MORTISE_NOMEM, "list holders: out of memory");
    size_t strip = client->locks.settings.namespace_len;
    client_count_out(client); /* the callback may close it */
    if (status == MORTISE_OK)
        tell_list(query, strip, each, user_data);
    query_free(query);
    client_end_call();
    return status;
}
