/* query.h - the ops that are not about a claim: inspect, break, list, ping and the small records.
 *
 * Reads come behind a barrier (request.h), because the server of this connection may lag behind what the caller knows
 * from elsewhere. If the connection of a query is lost, the query begins anew, unless it has sent a write: then it is
 * INDETERMINATE. */
#ifndef MORTISE_ZOOKEEPER_QUERY_H
#define MORTISE_ZOOKEEPER_QUERY_H

#include "session.h"

struct query;
typedef void query_begin(struct driver *driver, struct query *query);

struct query {
    struct query *next, *prev;
    mortise_op *op; /* NULL: answered; the query is freed when nothing is pending */
    int64_t asked_ns;
    query_begin *begin;
    uint64_t step;    /* answers to requests of earlier steps are ignored */
    unsigned pending; /* requests on their way */
    bool written;     /* a write was sent */
    unsigned tries;
    unsigned deleted; /* nodes that dead.c has deleted */
    bool surely;      /* dead.c: the look under way is behind a barrier */
    int folder_rc; /* record.c: why the folder of the records could not be made; ZOK: no reason known */
    struct listing *listing;           /* of inspect.c, */
    void (*drop)(struct query *query); /* frees `listing`, if there is one */
};

/* ---- query.c -------------------------------------------------------------------------------------- */

void query_start(struct driver *driver, mortise_op *op, query_begin *begin);
void query_cancel(struct driver *driver, mortise_op *op);
bool queries_are_open(const struct driver *driver);
void queries_connected(struct driver *driver);
void queries_away(struct driver *driver);
void queries_free(struct driver *driver);

/* For the files below: */
struct reply_to query_reply(struct query *query, reply_handler *answered);
/* Counts a request that was sent. False: it was not, and the query has failed. */
bool query_sent(struct driver *driver, struct query *query, bool sent);
/* The query of an answer that has come. NULL: the answer is outdated, or it was a failure that has been handled.
 * absent: "no such node" is an answer, too. */
struct query *query_answer(struct driver *driver, struct request *request, bool absent);
void query_complete(struct driver *driver, struct query *query, mortise_status status);
void query_fail(struct driver *driver, struct query *query, mortise_status status, int rc);

/* ---- inspect.c, record.c, ping.c, dead.c -------------------------------------------------------------------------- */

query_begin inspect_begin, ping_begin, record_read, record_write, dead_begin;

#endif
