/* sql.h - the statements of the SQLite driver, by number. Beside each: what is bound to it, and what it returns.
 *
 * Prepared once per connection and kept. Nothing is ever pasted into one (R10). */
#ifndef MORTISE_SQLITE_SQL_H
#define MORTISE_SQLITE_SQL_H

#include <stddef.h>

enum text {
    TEXT_READ,         /* name -> version, owner, grants, acquired_at, expires_at, waiters, note */
    TEXT_INSERT,       /* name, then the row's columns in that order */
    TEXT_UPDATE,       /* likewise */
    TEXT_LIST,         /* from, before (database_bind_end), now -> name, then as TEXT_READ */
    TEXT_PING,         /* -> layout */
    TEXT_RECORD_READ,  /* name -> version, value */
    TEXT_RECORD_MAKE,  /* name, value -> version */
    TEXT_RECORD_WRITE, /* name, value, version -> version */
    TEXT_TOUCH,        /* a write for its own sake, before a checkpoint */
    TEXT_SWEEP_FROM,   /* -> name, where the last sweep ended */
    TEXT_SWEEP_TO,     /* from, count -> the name at the end of the next stretch */
    TEXT_SWEEP,        /* from, before (likewise), now, oldest version */
    TEXT_SWEEP_NOTE,   /* name: where this one ended, or NULL */
    TEXT_BEGIN,
    TEXT_COMMIT,
    TEXT_ROLLBACK,
    TEXT_COUNT
};

#define LAYOUT_VERSION 1

/* Our tables, with the texts that SQLite keeps of them. */
enum { SQL_TABLE_META, SQL_TABLE_LOCK, SQL_TABLE_RECORD, SQL_TABLES };
struct sql_table {
    const char *name, *text;
};
extern const struct sql_table sql_tables[SQL_TABLES];

extern const char *const sql_texts[TEXT_COUNT];
extern const char sql_schema[];   /* makes the tables */
extern const char sql_objects[];  /* -> type, name, text of all that the database holds */
extern const char sql_meta[];     /* key -> value */
extern const char sql_meta_set[]; /* key, value */
extern const char sql_free_all[]; /* after a restart of the host */
const char *sql_schema_text(void);

#endif
