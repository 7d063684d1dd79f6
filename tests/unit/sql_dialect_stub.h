/* sql_dialect_stub.h - what a dialect of drivers/lib/sql/remote needs and has no part in the tests of it: a connection that takes one
 * group at a time, and reads. */
#ifndef MORTISE_TESTS_SQL_DIALECT_STUB_H
#define MORTISE_TESTS_SQL_DIALECT_STUB_H

#include "remote/remote.h"

#include <poll.h>

static inline bool is_open(const struct link *link, enum lane lane)
{
    (void)lane;
    return link->group_count == 0;
}

static inline size_t no_size(const struct link *link, const struct request *request)
{
    (void)link;
    (void)request;
    return 0;
}

static inline bool is_there(struct link *link)
{
    return link->fd >= 0;
}

static inline short wants_to_read(const struct link *link)
{
    (void)link;
    return POLLIN;
}

static inline void close_nothing(struct link *link)
{
    (void)link;
}

static inline void forget(struct request *request)
{
    (void)request;
}

#endif
