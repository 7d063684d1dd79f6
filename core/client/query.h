/* query.h - a request to the backend that is not about our own locks, and its answer.
 *
 * A query lives on the heap until it is completed, because the driver may keep it longer than the caller waits. So
 * data to be written is copied into it, and data that was read is copied out of it. */
#ifndef MORTISE_CORE_QUERY_H
#define MORTISE_CORE_QUERY_H

#include "client/client.h"

struct block;

struct query {
    struct task task; /* first */
    struct client *client;
    struct sleeper *sleeper; /* NULL: the caller has gone */
    struct query *next, *previous;
    mortise_status status;
    bool errored;
    mortise_error error;
    mortise_info info;
    struct block *list, *list_last; /* results.c */
    bool list_failed;               /* there was no memory for a result */
    size_t name_len;
    char name[MORTISE_NAME_MAX + 1];
    char bytes[]; /* the line of a PING, a record */
};

/* NULL: *status and *error say why. */
struct query *query_new(struct client *client, mortise_op_kind kind, const char *name,
                        mortise_status *status, mortise_error *error);
/* Asks, waits, and explains a failure. Afterwards the caller frees the query (NULL: there is none). */
mortise_status query_ask(struct query **query, const char *verb, mortise_error *error);
void query_free(struct query *query); /* may be NULL */
/* NOTSUP, if the stack lacks the capability. */
mortise_status query_need(const struct client *client, uint32_t capability, const char *verb,
                          mortise_error *error);
/* Fills in what a driver leaves out of an answer, or cannot know. */
void query_complete_info(mortise_info *info);
void query_strip_namespace(size_t prefix, mortise_info *info);

/* ---- results.c ---- */

/* The `emitted` of a query: copies a result. Inside the pump. */
void query_emitted(mortise_op *op, const mortise_info *info);
void query_free_results(struct query *query);

#endif
