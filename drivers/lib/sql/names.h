/* names.h - the names that callers of this client wait for, or whose waiters it still has to look after. */
#ifndef MORTISE_SQL_NAMES_H
#define MORTISE_SQL_NAMES_H

#define HASH_NONFATAL_OOM 1 /* an element that could not be added has hh.tbl == NULL */

#include "dialect.h"

#include <uthash.h>

struct sql_name {
    UT_hash_handle hh;
    unsigned references;        /* of requests */
    bool watched;               /* by the core */
    bool registered;            /* this client is in the row's list, as far as it knows */
    bool enlist, delist;        /* is to be put in, taken out */
    bool missed;                /* was notified before the core watched */
    struct sql_request *errand; /* under way; one at a time */
    int64_t grace_ns;           /* registered by an acquire: it leaves if nobody watches by then. NEVER */
    int64_t check_ns;           /* see then whether the woken waiter took the name. NEVER */
    int64_t check_version;
    uint32_t len;
    char bytes[];
};

struct sql_name *name_find(struct sql_locks *locks, const char *bytes, size_t len);
/* Found or made; NULL: out of memory. */
struct sql_name *name_make(struct sql_locks *locks, const char *bytes, size_t len);
void name_unref(struct sql_locks *locks, struct sql_name *name);
void name_drop_if_idle(struct sql_locks *locks, struct sql_name *name);
void names_free(struct sql_locks *locks);

#endif
