/* query.c - requests to the backend that are not about our own locks: inspect, break, ping, records. See query.h; results.c
 * has the requests with several results. */
#include "client/query.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CANCEL_MS                                                                                  \
    200 /* for the answer to a cancel, which comes at once unless a thread is in the stack */

static size_t bytes_of(mortise_op_kind kind)
{
    if (kind == MORTISE_OP_PING)
        return MORTISE_PING_SIZE;
    return kind == MORTISE_OP_READ || kind == MORTISE_OP_WRITE ? MORTISE_RECORD_MAX : 0;
}

void query_free(struct query *query)
{
    if (query == NULL)
        return;
    query_free_results(query);
    free(query);
}

static void unlink_locked(struct query *query)
{
    if (query->previous != NULL)
        query->previous->next = query->next;
    else
        query->client->queries = query->next;
    if (query->next != NULL)
        query->next->previous = query->previous;
}

static void query_done(mortise_op *op)
{
    struct query *query = (struct query *)op;
    struct client *client = query->client;
    pthread_mutex_lock(&client->locks.lock);
    unlink_locked(query);
    query->status = op->status;
    if (op->error != NULL) {
        query->errored = true;
        query->error = *op->error;
    }
    struct sleeper *sleeper = query->sleeper;
    if (sleeper != NULL)
        sleeper_wake(sleeper); /* the caller frees it */
    else
        query_free(query);
    locks_ended_locked(&client->locks);
    locks_unlock(&client->locks, START_NOW);
}

void queries_cancel_locked(struct client *client)
{
    for (struct query *query = client->queries; query != NULL; query = query->next)
        locks_cancel_locked(&client->locks, &query->task);
}

struct query *query_new(struct client *client, mortise_op_kind kind, const char *name,
                        mortise_status *status, mortise_error *error)
{
    struct query *query = calloc(1, sizeof(*query) + bytes_of(kind));
    *status = query == NULL
                  ? failed(error, MORTISE_NOMEM, "out of memory")
                  : client_name(client, name, kind == MORTISE_OP_LIST || kind == MORTISE_OP_PING,
                                query->name, &query->name_len, error);
    if (*status != MORTISE_OK) {
        free(query);
        return NULL;
    }
    mortise_op *op = &query->task.op;
    query->client = client;
    query->info.size = sizeof(query->info);
    query->info.waiters = -1;
    query->info.held_ms = query->info.remaining_ms = -1;
    op->kind = kind;
    op->core_state = OP_IDLE;
    op->name = query->name;
    op->name_len = query->name_len;
    op->info = &query->info;
    op->buffer = query->bytes;
    op->buffer_size = bytes_of(kind);
    op->emitted = kind == MORTISE_OP_LIST ? query_emitted : NULL;
    op->note = client->locks.note;
    op->note_len = client->locks.note_len;
    op->done = query_done;
    return query;
}

static void explain(const struct query *query, const char *verb, mortise_error *error)
{
    char name[QUOTED_SIZE];
    size_t prefix = query->client->locks.settings.namespace_len;
    if (query->errored && error != NULL)
        *error = query->error;
    else
        failed(error, query->status, "%s %s: %s", verb,
               quote_name(query->name + prefix, query->name_len - prefix, name, sizeof(name)),
               mortise_status_text(query->status));
}

/* The time is over: cancels the query. True: the driver has answered, and may know whether the request was sent. */
static bool give_up(struct client *client, struct query *query, struct sleeper *sleeper)
{
    pthread_mutex_lock(&client->locks.lock);
    if (!sleeper_done(sleeper))
        locks_cancel_locked(&client->locks, &query->task);
    locks_unlock(&client->locks, START_NOW);
    pump_wait(&client->pump, sleeper, clock_after_ms(clock_now(), CANCEL_MS));
    pthread_mutex_lock(&client->locks.lock);
    bool done = sleeper_done(sleeper);
    if (!done) {
        query->sleeper = NULL;
        pump_unattend(&client->pump, &query->task);
    }
    locks_unlock(&client->locks, START_NOW);
    return done;
}

/* Starts the query and waits. True: it is complete and belongs to the caller; false: it belongs to the pump. *late: it was
 * canceled. */
static bool run(struct query *query, bool *late)
{
    struct client *client = query->client;
    struct sleeper sleeper;
    sleeper_init(&sleeper, &client->pump);
    pthread_mutex_lock(&client->locks.lock);
    bool closing = client->locks.closing;
    if (!closing) {
        /* cppcheck-suppress autoVariables ; it is taken away before this returns */
        query->sleeper = &sleeper;
        query->next = client->queries;
        if (client->queries != NULL)
            client->queries->previous = query;
        client->queries = query;
        locks_began_locked(&client->locks);
        locks_start_locked(&client->locks, &query->task);
    }
    locks_unlock(&client->locks, START_NOW);
    if (closing) {
        query->status = MORTISE_CLOSED;
        return true;
    }
    int64_t until = clock_after_ms(clock_now(), client->locks.settings.unreachable_timeout_ms);
    if (pump_wait(&client->pump, &sleeper, until))
        return true;
    *late = true;
    return give_up(client, query, &sleeper);
}

/* reason: what the driver says, or "". */
static mortise_status too_late(mortise_status status, mortise_op_kind kind, const char *verb,
                               const char *reason, mortise_error *error)
{
    bool changes = kind == MORTISE_OP_RELEASE || kind == MORTISE_OP_WRITE;
    return failed(
        error, changes && status != MORTISE_CANCELED ? MORTISE_INDETERMINATE : MORTISE_UNREACHABLE,
        "%s: the backend did not answer in time%s%s", verb, reason[0] == '\0' ? "" : "; ", reason);
}

mortise_status query_ask(struct query **query, const char *verb, mortise_error *error)
{
    mortise_op_kind kind = (*query)->task.op.kind;
    bool late = false;
    if (!run(*query, &late)) {
        *query = NULL;
        return too_late(MORTISE_INDETERMINATE, kind, verb, "", error);
    }
    struct query *done = *query;
    if (late && (done->status == MORTISE_CANCELED || done->status == MORTISE_INDETERMINATE))
        return too_late(done->status, kind, verb, done->errored ? done->error.message : "", error);
    if (done->status == MORTISE_CANCELED) {
        done->status = MORTISE_CLOSED;
        done->errored = false;
    }
    if (done->status != MORTISE_OK)
        explain(done, verb, error);
    return done->status;
}

mortise_status query_need(const struct client *client, uint32_t capability, const char *verb,
                          mortise_error *error)
{
    if ((client->capabilities & capability) != 0)
        return MORTISE_OK;
    return failed(error, MORTISE_NOTSUP, "driver %s: cannot %s", client->top->section, verb);
}

/* A driver without shared locks does not fill in the number of holders. */
void query_complete_info(mortise_info *info)
{
    info_terminate(info);
    if (info->held && info->holders == 0)
        info->holders = 1;
}

void query_strip_namespace(size_t prefix, mortise_info *info)
{
    size_t length = strlen(info->name);
    if (prefix > 0 && length >= prefix)
        memmove(info->name, info->name + prefix, length - prefix + 1);
}

mortise_status mortise_inspect(mortise_client *handle, const char *name, mortise_info *info,
                               mortise_error *error)
{
    struct client *client;
    mortise_status status;
    if (info == NULL || info->size < sizeof(info->size))
        return failed(error, MORTISE_INVALID, "mortise_inspect: info->size is not set");
    if ((status = client_enter(handle, &client, error)) != MORTISE_OK)
        return status;
    struct query *query = NULL;
    status = query_need(client, MORTISE_CAP_INSPECT, "inspect", error);
    if (status == MORTISE_OK)
        query = query_new(client, MORTISE_OP_INSPECT, name, &status, error);
    if (query != NULL)
        status = query_ask(&query, "inspect", error);
    if (status == MORTISE_OK) {
        size_t size = info->size < sizeof(*info) ? info->size : sizeof(*info), given = info->size;
        snprintf(query->info.name, sizeof(query->info.name), "%s", query->name);
        query_complete_info(&query->info);
        query_strip_namespace(client->locks.settings.namespace_len, &query->info);
        memcpy(info, &query->info, size);
        info->size = given;
    }
    query_free(query);
    client_leave(client);
    return status;
}

mortise_status mortise_break(mortise_client *handle, const char *name, uint64_t token,
                             mortise_error *error)
{
    struct client *client;
    if (token == 0)
        return failed(error, MORTISE_INVALID, "mortise_break: the token is 0");
    mortise_status status = client_enter(handle, &client, error);
    if (status != MORTISE_OK)
        return status;
    struct query *query = query_new(client, MORTISE_OP_RELEASE, name, &status, error);
    if (query != NULL) {
        query->task.op.flags = MORTISE_OP_BREAK;
        query->task.op.token = token;
        status = query_ask(&query, "break", error);
    }
    query_free(query);
    client_leave(client);
    return status;
}

mortise_status mortise_ping(mortise_client *handle, char *text, size_t size, mortise_error *error)
{
    struct client *client;
    if (text == NULL && size > 0)
        return failed(error, MORTISE_INVALID, "mortise_ping: no room for the answer");
    if (size > 0)
        text[0] = '\0';
    mortise_status status = client_enter(handle, &client, error);
    if (status != MORTISE_OK)
        return status;
    struct query *query = query_new(client, MORTISE_OP_PING, NULL, &status, error);
    if (query != NULL)
        status = query_ask(&query, "ping", error);
    if (status == MORTISE_OK && size > 0) {
        snprintf(text, size, "%.*s", MORTISE_PING_SIZE - 1, query->bytes);
        size_t length = strlen(text);
        loader_findings(&client->loader, text + length, size - length);
    }
    query_free(query);
    client_leave(client);
    return status;
}

mortise_status mortise_record_read(mortise_client *handle, const char *name, void *buffer,
                                   size_t *size, uint64_t *version, mortise_error *error)
{
    struct client *client;
    if (size == NULL || version == NULL || (buffer == NULL && *size > 0))
        return failed(error, MORTISE_INVALID, "mortise_record_read: no room for the answer");
    size_t room = *size;
    *size = 0;
    *version = 0;
    mortise_status status = client_enter(handle, &client, error);
    if (status != MORTISE_OK)
        return status;
    struct query *query = query_new(client, MORTISE_OP_READ, name, &status, error);
    if (query != NULL)
        status = query_ask(&query, "read record", error);
    if (status == MORTISE_OK && query->task.op.record_version > 0) {
        const mortise_op *op = &query->task.op;
        /* a module may report a larger size than it had room for: read only as much as there is room */
        size_t length = op->record_size < bytes_of(MORTISE_OP_READ) ? op->record_size
                                                                    : bytes_of(MORTISE_OP_READ);
        if (length > 0 && room > 0)
            memcpy(buffer, query->bytes, length < room ? length : room);
        *size = length;
        *version = op->record_version;
    }
    query_free(query);
    client_leave(client);
    return status;
}

mortise_status mortise_record_write(mortise_client *handle, const char *name, const void *record,
                                    size_t size, uint64_t *version, mortise_error *error)
{
    struct client *client;
    if (version == NULL || (record == NULL && size > 0) || size > MORTISE_RECORD_MAX)
        return failed(error, MORTISE_INVALID,
                      "mortise_record_write: no version, no record, or more than %d bytes",
                      MORTISE_RECORD_MAX);
    mortise_status status = client_enter(handle, &client, error);
    if (status != MORTISE_OK)
        return status;
    struct query *query = query_new(client, MORTISE_OP_WRITE, name, &status, error);
    if (query != NULL) {
        mortise_op *op = &query->task.op;
        if (size > 0)
            memcpy(query->bytes, record, size);
        op->record = query->bytes;
        op->record_size = size;
        op->record_version = *version;
        status = query_ask(&query, "write record", error);
    }
    if (status == MORTISE_OK)
        *version = query->task.op.record_version;
    query_free(query);
    client_leave(client);
    return status;
}
