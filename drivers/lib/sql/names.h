/* names.h - the names that callers of this client wait for, or whose waiters the client still has to look after. */
#ifndef MORTISE_SQL_NAMES_H
#define MORTISE_SQL_NAMES_H

#define HASH_NONFATAL_OOM 1 /* an element that could not be added has hh.tbl == NULL */

#include "dialect.h"

#include <uthash.h>

/* This client's place in the row's list of waiters, as far as it knows. name_place_go() changes it.
 *
 * | event                                                   | NONE     | TO_ENTER | LISTED   | TO_LEAVE |
 * |---------------------------------------------------------|----------|----------|----------|----------|
 * | WANTED: a caller waits                                  | TO_ENTER | TO_ENTER | LISTED   | TO_ENTER |
 * | DEAF: a caller waits, but no notification can come      | NONE     | NONE     | LISTED   | TO_LEAVE |
 * | UNWANTED: no caller waits any more                      | NONE     | NONE     | TO_LEAVE | TO_LEAVE |
 * | BEGUN: an errand that enters or leaves is under way     | NONE     | NONE     | LISTED   | LISTED   |
 * | ENTERED: an acquire or an errand has entered            | LISTED   | LISTED   | LISTED   | LISTED   |
 * | LEFT: an errand has left, or this client has the name   | NONE     | NONE     | NONE     | NONE     |
 * | UNLISTED: the list is lost, or did not take this client | NONE     | TO_ENTER | NONE     | NONE     |
 * | STRAY: it may be listed, though no caller waits         | TO_LEAVE | TO_LEAVE | TO_LEAVE | TO_LEAVE |
 *
 * TO_LEAVE and WANTED: an errand may have taken this client off the list although its answer was lost. To enter twice
 * does no harm. */
enum name_place { PLACE_NONE, PLACE_TO_ENTER, PLACE_LISTED, PLACE_TO_LEAVE };
#define PLACES 4
enum name_event {
    PLACE_WANTED,
    PLACE_DEAF,
    PLACE_UNWANTED,
    PLACE_BEGUN,
    PLACE_ENTERED,
    PLACE_LEFT,
    PLACE_UNLISTED,
    PLACE_STRAY
};
#define PLACE_EVENTS 8

struct sql_name {
    UT_hash_handle hh;
    unsigned references;        /* of requests */
    bool watched;               /* by the core */
    bool missed;                /* notified before the core watched */
    enum name_place place;
    struct sql_request *errand; /* under way; one at a time */
    unsigned refusals;          /* while the client closes: how often it failed to leave the list */
    int64_t grace_ns;           /* listed by an acquire: leave if nobody watches by then; or NEVER */
    int64_t check_ns;           /* when to see whether the woken waiter took the name; or NEVER */
    int64_t check_version;
    uint32_t len;
    char bytes[];
};

void name_place_go(struct sql_name *name, enum name_event event);
static inline bool name_is_listed(const struct sql_name *name)
{
    return name->place == PLACE_LISTED || name->place == PLACE_TO_LEAVE;
}

struct sql_name *name_find(struct sql_locks *locks, const char *bytes, size_t len);
/* Finds or makes the entry. NULL: out of memory. */
struct sql_name *name_make(struct sql_locks *locks, const char *bytes, size_t len);
void name_unref(struct sql_locks *locks, struct sql_name *name);
void name_drop_if_idle(struct sql_locks *locks, struct sql_name *name);
void names_free(struct sql_locks *locks);

#endif
