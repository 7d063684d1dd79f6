/* query.h - what is asked besides locks: inspect, break, list, ping and the small records.
 *
 * Every read is linearizable, so it shows all that was answered to anybody before it was sent. A query whose connection is
 * lost begins anew, unless it has sent a write: then it is INDETERMINATE. A list asks for less at once then. */
#ifndef MORTISE_ETCD_QUERY_H
#define MORTISE_ETCD_QUERY_H

#include "driver.h"

typedef void query_begin(struct driver *driver, struct query *query);

struct query {
    struct query *next, *prev;
    mortise_op *op; /* NULL: answered; the query is freed when nothing is pending */
    struct patience patience;
    query_begin *begin;
    uint64_t step;                     /* answers to calls of earlier steps mean nothing */
    unsigned pending;                  /* calls on their way */
    bool written;                      /* a write was sent */
    bool was_lost;                     /* a connection, with a read on its way */
    struct listing *listing;           /* of inspect.c, */
    void (*drop)(struct query *query); /* which frees it, once it is there */
};

/* ---- query.c -------------------------------------------------------------------------------------- */

void query_start(struct driver *driver, mortise_op *op, query_begin *begin);
void query_cancel(struct driver *driver, mortise_op *op);
void queries_up(struct driver *driver);
void queries_down(struct driver *driver);
void queries_away(struct driver *driver);
void queries_free(struct driver *driver);

/* For the files below: */
/* A transaction of the next step of a query. NULL: no memory. */
struct call *query_call(struct driver *driver, struct query *query, reply_handler *answered);
/* The same of another method. */
struct call *query_call_to(struct driver *driver, struct query *query, enum method method,
                           reply_handler *answered);
/* Sends it, if that is possible. Else the query has failed, and may be freed, or waits for a connection. */
void query_send(struct driver *driver, struct query *query, struct call *call);
/* The same for a write: the query has no other one. */
void query_send_write(struct driver *driver, struct query *query, struct call *call);
/* An answer is here: its query; NULL: it means nothing any more, or it was a failure and the query has dealt with it. */
struct query *query_answer(struct driver *driver, struct call *call);
void query_complete(struct driver *driver, struct query *query, mortise_status status);
void query_fail(struct driver *driver, struct query *query, mortise_status status,
                const char *what);

/* ---- inspect.c, dead.c, record.c, ping.c -------------------------------------------------------------------------- */

query_begin inspect_begin, list_begin, dead_begin, ping_begin, record_read, record_write;

#endif
