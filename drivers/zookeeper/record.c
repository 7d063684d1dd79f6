/* record.c - the small named records, which outlive clients, and ping. */
#include "query.h"

#include <stdio.h>
#include <string.h>

#define FOLDER_TRIES 3

static void record_path(const struct driver *driver, const mortise_op *op, char path[PATH_SIZE])
{
    char folder[FOLDER_MAX];
    folder_of_name(op->name, op->name_len, false, folder);
    path_of(driver, "%records", folder, path);
}

/* ---- reading ------------------------------------------------------------------------------------------- */

static void was_read(struct driver *driver, struct request *request)
{
    struct query *query = query_answer(driver, request, true);
    if (query == NULL)
        return;
    mortise_op *op = query->op;
    op->record_size = 0;
    op->record_version = 0;
    if (request->rc == ZOK) {
        if (request->text_size > op->buffer_size) {
            query_fail(driver, query, MORTISE_BACKEND, ZDATAINCONSISTENCY);
            return;
        }
        memcpy(op->buffer, request->text, request->text_size);
        op->record_size = request->text_size;
        op->record_version = (uint64_t)(uint32_t)request->stat.version + 1;
    }
    query_complete(driver, query, MORTISE_OK);
}

void record_read(struct driver *driver, struct query *query)
{
    char path[PATH_SIZE];
    query->step++;
    record_path(driver, query->op, path);
    query_sent(driver, query,
               send_barrier(driver) && send_get(driver, path, false, query_reply(query, was_read)));
}

/* ---- writing ------------------------------------------------------------------------------------------- */

static void was_written(struct driver *driver, struct request *request)
{
    int rc = request->rc;
    bool busy = rc == ZBADVERSION || rc == ZNODEEXISTS;
    if (busy)
        request->rc = ZOK; /* this too is a complete answer */
    struct query *query = query_answer(driver, request, true);
    if (query == NULL)
        return;
    mortise_op *op = query->op;
    if (rc == ZNONODE && op->record_version == 0 && query->tries++ < FOLDER_TRIES) {
        session_make_root(driver, "%records");
        query->begin(driver, query);
        return;
    }
    if (rc == ZOK)
        op->record_version = (uint64_t)(uint32_t)request->stat.version + 1;
    query_complete(driver, query, rc == ZOK ? MORTISE_OK : MORTISE_BUSY);
}

void record_write(struct driver *driver, struct query *query)
{
    const mortise_op *op = query->op;
    char path[PATH_SIZE];
    query->step++;
    query->written = true;
    struct reply_to to = query_reply(query, was_written);
    record_path(driver, op, path);
    if (op->record_version > INT32_MAX)
        query_complete(driver, query, MORTISE_BUSY);
    else if (op->record_version == 0)
        query_sent(driver, query,
                   send_create(driver, path, op->record, op->record_size, ZOO_PERSISTENT, to));
    else
        query_sent(
            driver, query,
            send_set(driver, path, op->record, op->record_size, (int)(op->record_version - 1), to));
}

/* ---- ping ---------------------------------------------------------------------------------------------- */

static void pinged(struct driver *driver, struct request *request)
{
    struct query *query = query_answer(driver, request, true);
    char server[256];
    if (query == NULL)
        return;
    snprintf(query->op->buffer, query->op->buffer_size,
             "ZooKeeper at %.100s, session 0x%llx, timeout %lld ms",
             fault_server(driver, server, sizeof(server)), (unsigned long long)driver->session->id,
             (long long)(driver->session->proof.timeout_ns / NS_PER_MS));
    query_complete(driver, query, MORTISE_OK);
}

void ping_begin(struct driver *driver, struct query *query)
{
    query->step++;
    query_sent(driver, query, send_sync(driver, query_reply(query, pinged)));
}
