/* sql.h - the statements of the PostgreSQL driver, by number. Beside each is what is bound to it.
 *
 * Prepared once per connection, or sent with their text behind a pooler. Nothing is ever pasted into a statement
 * (R10), except the channel of LISTEN, which takes no parameter; the channel is our own random number in hex. */
#ifndef MORTISE_POSTGRES_SQL_H
#define MORTISE_POSTGRES_SQL_H

#include <stdbool.h>
#include <stddef.h>

enum text {
    TEXT_ACQUIRE, /* name, floor, grant, ttl, note -> version; without an owner, if free and nobody waits */
    TEXT_ACQUIRE_NEW,  /* likewise; makes the row where there is none */
    TEXT_ACQUIRE_NEXT, /* likewise, inbox -> version; if that inbox is the first waiter */
    TEXT_RENEW,        /* name, version, grant, ttl -> true; without an owner */
    TEXT_RELEASE, /* name, version, grant, reservation, whether to notify -> waiters; without an owner */
    TEXT_READ,   /* name -> version, owner, grants, acquired_at, expires_at, waiters, note, clock */
    TEXT_INSERT, /* name, then the row's columns in that order -> true */
    TEXT_SWAP, /* likewise; then the old version, grants, expires_at, waiters; then channel (or null) and
               * payload -> true */
    TEXT_SWAP_LAZY, /* likewise */
    TEXT_ENLIST, /* name, inbox, grant, owner (or null), what it waits for -> expires_at, clock, version; the inbox is the
                 * last waiter if the name is held, not by those two, or kept, and the inbox is not in the list */
    TEXT_BAR, /* name, the owner of shared holders, inbox (or null) -> as TEXT_ENLIST; bars them, and the inbox is a waiter */
    TEXT_NOTIFY, /* channel, payload */
    TEXT_LIST,   /* from, before (or null) -> name, then as TEXT_READ */
    TEXT_PING, /* our clock in s, whether the schema was found -> server version, layout, findings */
    TEXT_RECORD_READ,  /* name -> version, value */
    TEXT_RECORD_AWAIT, /* likewise, as it is when a write whose commit hangs is over */
    TEXT_RECORD_MAKE,  /* name, value -> version */
    TEXT_RECORD_WRITE, /* name, value, version -> version */
    TEXT_GHOST, /* pid, start of the backend -> whether it was told to end; no row: it is gone, or is this session */
    TEXT_SWEEP_TURN, /* if the last is so many µs ago -> where that one was given up (or null); no row: it is not this
                      * client's turn */
    TEXT_SWEEP, /* from -> the name behind which to go on; null: that was the last stretch */
    TEXT_COUNT
};

#define LAYOUT_VERSION "1"

struct sql_text {
    const char *text;
    const char *name;  /* of the prepared statement */
    const char *types; /* of the parameters, a letter each: see sql_oid() */
};

extern const struct sql_text sql_texts[TEXT_COUNT];
/* The pid that we were told (-1: it does not matter), lock and statement time-outs, the schema ("": find it)
 * -> is it so, start of the backend, recovery, is there mortise_lock, mortise_meta, clock, pid, the schema (or
 * null), may it be used, is it on the role's path, how many schemas have a mortise_lock, their names. */
extern const char sql_identify[];
extern const char sql_layout[]; /* -> layout */
extern const char
    sql_settings[]; /* lock, statement time-out, schema: of one transaction. Fails if read-only */
extern const char sql_path[];     /* schema, whether for one transaction only */
extern const char sql_in_order[]; /* no plan of this transaction sorts if an index has the order */
extern const char sql_in_time[];  /* an instant -> clock; fails (division by zero) after it */
extern const char sql_make_begin[], sql_make_end[];
extern const char sql_make_lock[];  /* one client makes tables at a time */
extern const char sql_make_alone[]; /* schema: fails (division by zero) if another has them */
extern const char *const sql_make[];
extern const size_t sql_make_count;
unsigned sql_oid(char letter);
const char *sql_schema_text(void);

#endif
