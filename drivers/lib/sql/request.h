/* request.h - what the steps of requests have in common; for the files of drivers/lib/sql. */
#ifndef MORTISE_SQL_REQUEST_H
#define MORTISE_SQL_REQUEST_H

#include "names.h"

/* While an op is in a SQL driver, its driver_data holds its request. */
_Static_assert(sizeof(struct sql_request *) <= sizeof(((mortise_op *)0)->driver_data), "its place");
static inline struct sql_request *request_of(const mortise_op *op)
{
    return op->driver_data[0];
}
static inline void request_bind(mortise_op *op, struct sql_request *request)
{
    op->driver_data[0] = request;
}

/* The next step. */
static inline enum sql_next request_again(struct sql_request *request, enum sql_step step)
{
    request->step = step;
    return SQL_AGAIN;
}

/* The result of a READ came: makes locks->next a copy of the row. False: the row makes no sense, and request->answer says
 * so. */
bool request_was_read(struct sql_request *request, struct rowlease_time *time);
/* locks->next is to be written. */
enum sql_next request_write(struct sql_request *request);
/* The result of a WRITE or an APPEND came. */
enum sql_next request_written(struct sql_request *request);
/* The waiters of a list that request->answer wakes, for waiting_wake(). */
void request_take_waiters(struct sql_request *request, const unsigned char *list, size_t len);
/* Completes the op, if it is still there, and frees the request. */
void request_done(struct sql_request *request, mortise_status status);
/* Fails the op with "<server>: <text> (acquire "name")". */
void request_failed(struct sql_request *request, mortise_status status,
                    const struct sql_fault *fault);
/* Fails the op with what request->answer says. */
void request_refused(struct sql_request *request);
/* Fills what inspect reports about locks->row or locks->next. */
void request_inspect(const struct sql_locks *locks, const struct rowlease_row *row, int64_t now_us,
                     const void *name, size_t name_len, mortise_info *info);
/* Does the same for each holder of locks->row, and passes it to the op's `emitted`. */
void request_emit_holders(const struct sql_request *request, int64_t now_us);

#endif
