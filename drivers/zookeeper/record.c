/* record.c - the small named records, which outlive clients. */
#include "query.h"

#include <stdio.h>
#include <string.h>

#define FOLDER_TRIES 3

/* The name of the record's node below %records. */
static const char *node_of(const mortise_op *op, char node[FOLDER_MAX])
{
    folder_of_name(op->name, op->name_len, false, node);
    return node;
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
    char node[FOLDER_MAX];
    query->step++;
    query_sent(driver, query,
               send_barrier(driver) && send_get(driver, "%records", node_of(query->op, node),
                                                query_reply(query, was_read)));
}

/* ---- writing ------------------------------------------------------------------------------------------- */

static void write_now(struct driver *driver, struct query *query);

/* The answer to the create of the folder. */
static void folder_made(struct driver *driver, struct request *request)
{
    int rc = request->rc;
    if (!fault_is_loss(rc))
        request->rc = ZOK;
    struct query *query = query_answer(driver, request, true);
    if (query != NULL)
        query->folder_rc = rc == ZNODEEXISTS ? ZOK : rc;
}

/* Makes the folder, and writes again. */
static void make_folder(struct driver *driver, struct query *query)
{
    send_root(driver, NULL);
    query->step++;
    if (query_sent(driver, query,
                   send_create(driver, "%records", NULL, "", 0, ZOO_PERSISTENT,
                               query_reply(query, folder_made))))
        write_now(driver, query);
}

static void was_written(struct driver *driver, struct request *request)
{
    int rc = request->rc;
    bool busy = rc == ZBADVERSION || rc == ZNODEEXISTS;
    if (busy)
        request->rc = ZOK; /* this is a complete answer, too */
    struct query *query = query_answer(driver, request, true);
    if (query == NULL)
        return;
    mortise_op *op = query->op;
    if (rc == ZNONODE && op->record_version == 0) {
        if (query->folder_rc != ZOK)
            query_fail(driver, query, MORTISE_BACKEND, query->folder_rc);
        else if (query->tries++ < FOLDER_TRIES)
            make_folder(driver, query);
        else
            query_fail(driver, query, MORTISE_BACKEND, rc);
        return;
    }
    if (rc == ZOK)
        op->record_version = (uint64_t)(uint32_t)request->stat.version + 1;
    query_complete(driver, query, rc == ZOK ? MORTISE_OK : MORTISE_BUSY);
}

static void write_now(struct driver *driver, struct query *query)
{
    const mortise_op *op = query->op;
    char node[FOLDER_MAX];
    query->written = true;
    struct reply_to to = query_reply(query, was_written);
    node_of(op, node);
    if (op->record_version == 0)
        query_sent(
            driver, query,
            send_create(driver, "%records", node, op->record, op->record_size, ZOO_PERSISTENT, to));
    else
        query_sent(driver, query,
                   send_set(driver, "%records", node, op->record, op->record_size,
                            (int)(op->record_version - 1), to));
}

void record_write(struct driver *driver, struct query *query)
{
    query->step++;
    if (query->op->record_version > INT32_MAX)
        query_complete(driver, query, MORTISE_BUSY);
    else
        write_now(driver, query);
}
