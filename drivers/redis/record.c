/* record.c - small named records, which outlive clients: "<version> <bytes>" beside the name. */
#include "internal.h"

#include <stdlib.h>

static void take(struct driver *driver, mortise_op *op, const redisReply *reply)
{
    const char *blank = memchr(reply->str, ' ', reply->len);
    size_t digits = blank != NULL ? (size_t)(blank - reply->str) : 0;
    size_t size = reply->len - digits - 1;
    uint64_t version = holder_number(reply->str, digits);
    if (blank == NULL || version == 0 || size > op->buffer_size) {
        flow_fail_odd(driver, op);
        return;
    }
    memcpy(op->buffer, blank + 1, size);
    op->record_size = size;
    op->record_version = version;
    flow_complete(driver, op, MORTISE_OK);
}

static void was_read(struct flight *flight, redisReply *reply)
{
    mortise_op *op = flight->op;
    if (reply->type == REDIS_REPLY_STRING) {
        take(flight->driver, op, reply);
        return;
    }
    op->record_version = 0;
    op->record_size = 0;
    flow_complete(flight->driver, op, MORTISE_OK);
}

void record_read(struct driver *driver, mortise_op *op)
{
    struct flight *flight = flow_take_off(driver, op, was_read);
    if (flight == NULL)
        return;
    link_command(&driver->link, 2);
    link_text(&driver->link, "GET");
    key_put(&driver->link, driver, op, KEY_RECORD);
    link_call_end(&driver->link, &flight->call, 1);
}

static void written(struct flight *flight, redisReply *reply)
{
    mortise_op *op = flight->op;
    if (reply->type != REDIS_REPLY_INTEGER) {
        flow_fail_odd(flight->driver, op);
        return;
    }
    op->record_version = (uint64_t)reply->integer;
    flow_complete(flight->driver, op, reply->integer > 0 ? MORTISE_OK : MORTISE_BUSY);
}

void record_write(struct driver *driver, mortise_op *op)
{
    struct flight *flight = flow_take_off(driver, op, written);
    if (flight == NULL)
        return;
    script_begin(flight, SCRIPT_RECORD_WRITE, 1, 2);
    key_put(&driver->link, driver, op, KEY_RECORD);
    link_number(&driver->link, (int64_t)op->record_version);
    link_argument(&driver->link, op->record, op->record_size);
    link_call_end(&driver->link, &flight->call, 1);
}
