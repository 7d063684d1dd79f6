/* sql.h - the statements of the SQLite driver, by number. What is bound to each stands beside it.
 *
 * Prepared once per connection and kept. Nothing is ever pasted into one (R10). */
#ifndef MORTISE_SQLITE_SQL_H
#define MORTISE_SQLITE_SQL_H

#include <stddef.h>

enum sql {
    SQL_ACQUIRE,      /* name, least version, grant, now, expiry, note -> version; unshared, if
                       * free and nobody waits */
    SQL_RENEW,        /* name, version, grant, now, expiry -> expiry; unshared */
    SQL_RELEASE,      /* name, version, grant, now, end of the reservation -> waiters; unshared */
    SQL_READ,         /* name -> version, owner, grants, acquired_at, expires_at, waiters, note */
    SQL_INSERT,       /* name, then the row's columns in that order */
    SQL_SWAP,         /* likewise; then the old version, grants, expires_at, waiters */
    SQL_LIST,         /* from, before (or NULL), now -> name, then as SQL_READ */
    SQL_PING,         /* -> layout */
    SQL_RECORD_READ,  /* name -> version, value */
    SQL_RECORD_MAKE,  /* name, value -> version */
    SQL_RECORD_WRITE, /* name, value, version -> version */
    SQL_TOUCH,        /* a write for its own sake, before a checkpoint */
    SQL_SWEEP_FROM,   /* -> name, where the last sweep ended */
    SQL_SWEEP_TO,     /* from, count -> the name at the end of the next stretch */
    SQL_SWEEP,        /* from, to (or NULL), now, oldest version */
    SQL_SWEEP_NOTE,   /* name: where this one ended, or NULL */
    SQL_BEGIN,
    SQL_COMMIT,
    SQL_ROLLBACK,
    SQL_COUNT
};

#define LAYOUT_VERSION 1

/* Our tables, with the texts that SQLite keeps of them. */
enum { SQL_TABLE_META, SQL_TABLE_LOCK, SQL_TABLE_RECORD, SQL_TABLES };
struct sql_table {
    const char *name, *text;
};
extern const struct sql_table sql_tables[SQL_TABLES];

extern const char *const sql_texts[SQL_COUNT];
extern const char sql_schema[];   /* makes the tables */
extern const char sql_objects[];  /* -> type, name, text of all that the database holds */
extern const char sql_meta[];     /* key -> value */
extern const char sql_meta_set[]; /* key, value */
extern const char sql_free_all[]; /* after a restart of the host */
const char *sql_schema_text(void);

#endif
