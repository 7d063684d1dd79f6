/* statement.h - a request of drivers/lib/sql, or one of this driver's own, with the statement that it is at. */
#ifndef MORTISE_POSTGRES_STATEMENT_H
#define MORTISE_POSTGRES_STATEMENT_H

#include "../lib/sql/dialect.h"
#include "args.h"
#include "fault.h"
#include "sql.h"

struct driver;
struct link;
struct request;

/* LAZY: releases, places in lists, notifications: synchronous_commit off. DURABLE: grants, renewals, records. See
 * protocol.md. */
enum lane { LANE_LAZY, LANE_DURABLE, LANE_READING, LANE_COUNT };

/* What becomes of a request; each slot may free it. */
struct handler {
    /* It is about to be sent; NULL: nothing to do. */
    void (*sending)(struct request *request);
    /* Its transaction was committed, and request->result is there. */
    void (*answered)(struct request *request);
    /* Its transaction failed, and it was the cause. */
    void (*failed)(struct request *request, const struct fault *fault);
    /* The connection was lost (`sent`: while the statement was on its way), or could not be made: see driver->trouble. */
    void (*lost)(struct request *request, bool sent);
    /* It goes out again, without a notification: that failed. NULL: it has none. */
    void (*silence)(struct request *request);
};

struct request {
    struct sql_request base;
    struct request *next, *previous; /* in a queue of its link */
    const struct handler *handler;
    enum text text;
    enum lane lane;
    struct args args;
    PGresult *result; /* kept until the end of its transaction */
    struct link *link;
    bool alone;            /* in a transaction of its own: with others it failed */
    bool quiet;            /* its notification failed: it goes out without */
    bool only_notifies;    /* without a notification it is nothing */
    bool settles;          /* not while a ghost may still write */
    unsigned tries, waits; /* after failures; for a row that is locked */
    uint64_t number;       /* orders those of one name */
    int64_t not_before_ns; /* in its queue: a pause. 0 */
    int64_t locked_ns;     /* since when it waits for a row that is locked. 0 */
    void *argument;        /* the handler's own */
};

/* A request of this driver's own; NULL: out of memory. */
struct request *statement_new(struct driver *driver, const struct handler *handler);
void statement_free(struct request *request);
static inline struct driver *statement_driver(const struct request *request)
{
    return (struct driver *)request->base.locks; /* its first member */
}
/* Its arguments are bound: it goes to the queue of its lane, on the connection that is for it. */
void statement_send(struct request *request, enum text text, enum lane lane);

#endif
