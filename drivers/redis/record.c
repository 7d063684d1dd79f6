/* record.c - small named records, which outlive clients: "<version> <bytes>" beside the name. */
#include "sending.h"

#include <stdlib.h>

/* A server that has become a replica keeps its connections, and may lag. In a cluster, such a node answers MOVED instead. */
static void tell(struct driver *driver, mortise_op *op)
{
    if (driver->in_cluster)
        op_complete(driver, op, MORTISE_OK);
    else
        answer_of_primary(driver, op, MORTISE_OK);
}

static void take(struct driver *driver, mortise_op *op, const redisReply *reply)
{
    const char *blank = memchr(reply->str, ' ', reply->len);
    size_t digits = blank != NULL ? (size_t)(blank - reply->str) : 0;
    size_t size = reply->len - digits - 1;
    uint64_t version = text_number(reply->str, digits);
    if (blank == NULL || version == 0 || size > op->buffer_size) {
        op_fail_odd(driver, op);
        return;
    }
    memcpy(op->buffer, blank + 1, size);
    op->record_size = size;
    op->record_version = version;
    tell(driver, op);
}

static void was_read(struct request *request, redisReply *reply)
{
    mortise_op *op = request->op;
    if (reply->type == REDIS_REPLY_STRING) {
        take(request->driver, op, reply);
        return;
    }
    op->record_version = 0;
    op->record_size = 0;
    tell(request->driver, op);
}

void record_read(struct driver *driver, mortise_op *op)
{
    struct request *request = request_begin(driver, op, was_read);
    if (request == NULL)
        return;
    link_command(&driver->link, 2);
    link_text(&driver->link, "GET");
    key_put(&driver->link, op, KEY_RECORD);
    link_call_end(&driver->link, &request->call, 1);
}

static void written(struct request *request, redisReply *reply)
{
    mortise_op *op = request->op;
    if (reply->type != REDIS_REPLY_INTEGER) {
        op_fail_odd(request->driver, op);
        return;
    }
    op->record_version = (uint64_t)reply->integer;
    op_complete(request->driver, op, reply->integer > 0 ? MORTISE_OK : MORTISE_BUSY);
}

void record_write(struct driver *driver, mortise_op *op)
{
    struct request *request = request_begin(driver, op, written);
    if (request == NULL)
        return;
    request_script(request, SCRIPT_RECORD_WRITE, 1, 2);
    key_put(&driver->link, op, KEY_RECORD);
    link_number(&driver->link, (int64_t)op->record_version);
    link_argument(&driver->link, op->record, op->record_size);
    link_call_end(&driver->link, &request->call, 1);
}
