/* statement.h - a request of drivers/lib/sql, or one of this driver's own, with the statement that it is at. */
#ifndef MORTISE_MYSQL_STATEMENT_H
#define MORTISE_MYSQL_STATEMENT_H

#include "../lib/sql/dialect.h"
#include "fault.h"
#include "sql.h"
#include "text.h"

#include <mysql.h>

struct driver;
struct link;
struct request;

/* WRITING: a group is a transaction. READING: each statement is one. */
enum lane { LANE_WRITING, LANE_READING };

/* What becomes of a request; each slot may free it. */
struct handler {
    /* It is about to be sent; NULL: nothing to do. */
    void (*sending)(struct request *request);
    /* It was committed; rows, touched and insert_id are there. */
    void (*answered)(struct request *request);
    /* It failed, and changed nothing. */
    void (*failed)(struct request *request, const struct fault *fault);
    /* The connection was lost (`sent`: while the statement was on its way), or could not be made: see driver->trouble. */
    void (*lost)(struct request *request, bool sent);
};

struct request {
    struct sql_request base;
    struct request *next, *previous; /* in a queue of its link */
    const struct handler *handler;
    enum text_id id;
    enum lane lane;
    struct text text;
    struct link *link;
    /* the result, kept until the commit */
    MYSQL_RES *rows;
    unsigned long long touched, insert_id;
    int64_t revision;      /* of the row that was read last */
    bool alone;            /* in a transaction of its own: with others it failed */
    bool no_wait;          /* for a row that is locked */
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
/* The text becomes that statement with these values. Then it goes to a queue, to be sent with flight_go(). False: out of
 * memory, and nothing has happened. */
bool statement_send(struct request *request, enum text_id id, const struct values *values);
/* Likewise; the text is there. */
void statement_queue(struct request *request, enum text_id id);
/* Forgets the result. */
static inline void statement_forget(struct request *request)
{
    mysql_free_result(request->rows);
    request->rows = NULL;
    request->touched = request->insert_id = 0;
}

#endif
