/* sql.h - the statements of the MySQL driver: templates for text_fill(). The values $a, $b … are listed beside each. */
#ifndef MORTISE_MYSQL_SQL_H
#define MORTISE_MYSQL_SQL_H

#include <stdbool.h>
#include <stddef.h>

enum text_id {
    TEXT_ACQUIRE, /* name, floor, grant, ttl, note -> touched, insert id: the version; without an owner, if free and nobody waits */
    TEXT_ACQUIRE_NEW, /* likewise; makes the row if there is none */
    TEXT_RENEW,       /* name, version, grant, ttl -> touched; without an owner */
    TEXT_RELEASE,     /* name, version, grant -> touched; without an owner, if nobody waits */
    TEXT_LOOK, /* name -> writable, clock, version, owner, grants, acquired_at, expires_at, waiters, note, revision */
    TEXT_INSERT, /* name, then those columns in that order, but the revision -> touched */
    TEXT_SWAP,   /* likewise; then the old version and the old revision -> touched */
    TEXT_BAR,    /* name, the owner of shared holders -> touched: they are barred */
    TEXT_NAMES, /* from, before (or null) -> writable; then name, and as TEXT_LOOK without `writable` and the revision */
    TEXT_VERSION,     /* -> enum setting */
    TEXT_RECORD_LOOK, /* name -> writable, version (null: there is none), value */
    TEXT_RECORD_MAKE, /* name, value -> touched */
    TEXT_RECORD_SWAP, /* name, value, version -> touched */
    TEXT_GHOST_LOOK,  /* connection id, client's address -> a row: it is there */
    TEXT_GHOST_END,   /* connection id */
    TEXT_SWEEP_TURN,  /* if the last is so many µs ago -> touched: it is this client's turn */
    TEXT_SWEEP_FROM,  /* -> the name behind which to go on; no row: the first one */
    TEXT_SWEEP_NOTE,  /* that name; empty: the first one */
    TEXT_SWEEP_END, /* from -> the last name of the stretch behind that; no row: it goes to the last row */
    TEXT_SWEEP_LOOK, /* from, last name -> the first SWEEP_MAX of rows in between that have been free for long */
    TEXT_SWEEP_DROP, /* to be followed by the names and sql_sweep_end */
    TEXT_COUNT
};

#define LAYOUT_VERSION "1"
#define SWEEP_MAX 256 /* as in TEXT_SWEEP_LOOK */

struct sql_text {
    const char *text;
    unsigned parts; /* statements; if they write, more than one are one transaction */
    bool writes;
};

/* The columns of TEXT_VERSION. MySQL has none behind SETTING_DUMPS. */
enum setting {
    SETTING_WRITABLE,
    SETTING_VERSION,
    SETTING_LAYOUT,
    SETTING_FLUSH,
    SETTING_BINLOG,
    SETTING_SYNC,
    SETTING_DOUBLEWRITE,
    SETTING_CLOCK, /* us since 1970 */
    SETTING_DUMPS, /* connections of replicas that this user may see */
    SETTING_ALL_HAVE,
    SETTING_REPLICAS = SETTING_ALL_HAVE,
    SETTING_SEMI_SYNC,
    SETTING_SEMI_SYNC_MS,
    SETTING_COUNT
};

extern const struct sql_text sql_texts[TEXT_COUNT];
extern const char sql_sweep_end[];
extern const char sql_now_us[]; /* the server's clock, µs since 1970 */
/* A statement that waits for no row. MySQL takes it for a comment, and waits. */
extern const char sql_no_wait[];
/* $a: lock wait in s, $b: statement time, and how long a transaction waits for the client, in s. */
extern const char sql_settings[];
extern const char sql_identify
    []; /* -> connection id, database, client's address, server; variables; tables and their engines */
extern const char sql_layout[]; /* -> layout */
extern const char sql_galera[];
extern const char *const sql_make[];
extern const size_t sql_make_count;
const char *sql_schema_text(void);

#endif
