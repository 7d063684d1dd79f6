/* sql.c - the texts of the statements; see sql.h for what is bound to them, and internal.h for why an op is
 * one statement where it can be. None of them calls a function with arguments: database.c permits none. */
#include "sql.h"

/* Times are microseconds since the host's start; `version` is a wall clock's, see rowlease.h. */
#define LOCK_TABLE                                                                                 \
    "mortise_lock(\n"                                                                              \
    "    name BLOB NOT NULL PRIMARY KEY,\n"                                                        \
    "    version INTEGER NOT NULL,      -- of the last hold: its token\n"                          \
    "    owner BLOB,                    -- NULL: the hold is not shared\n"                         \
    "    grants BLOB,                   -- who holds: a grant id, or with an owner (id, "          \
    "expiry)...\n"                                                                                 \
    "    acquired_at INTEGER NOT NULL,  -- microseconds since the host's start\n"                  \
    "    expires_at INTEGER NOT NULL,\n"                                                           \
    "    waiters BLOB,                  -- (inbox, 0)... of waiters, in their order\n"             \
    "    note BLOB                      -- host, pid and program of the holder\n"                  \
    ") WITHOUT ROWID"
#define RECORD_TABLE                                                                               \
    "mortise_record(\n"                                                                            \
    "    name BLOB NOT NULL PRIMARY KEY,\n"                                                        \
    "    version INTEGER NOT NULL,\n"                                                              \
    "    value BLOB NOT NULL\n"                                                                    \
    ") WITHOUT ROWID"
#define META_TABLE                                                                                 \
    "mortise_meta(\n"                                                                              \
    "    key TEXT NOT NULL PRIMARY KEY, -- layout, boot_id, checkpoints, swept\n"                  \
    "    value\n"                                                                                  \
    ") WITHOUT ROWID"

const char sql_schema[] = "CREATE TABLE IF NOT EXISTS " LOCK_TABLE ";\n"
                          "CREATE TABLE IF NOT EXISTS " RECORD_TABLE ";\n"
                          "CREATE TABLE IF NOT EXISTS " META_TABLE ";\n";

const struct sql_table sql_tables[SQL_TABLES] = {
    [SQL_TABLE_META] = {"mortise_meta", "CREATE TABLE " META_TABLE},
    [SQL_TABLE_LOCK] = {"mortise_lock", "CREATE TABLE " LOCK_TABLE},
    [SQL_TABLE_RECORD] = {"mortise_record", "CREATE TABLE " RECORD_TABLE},
};

const char *sql_schema_text(void)
{
    return sql_schema;
}

const char sql_objects[] = "SELECT type, name, sql FROM sqlite_master";
const char sql_meta[] = "SELECT value FROM mortise_meta WHERE key = ?1";
const char sql_meta_set[] = "INSERT INTO mortise_meta(key, value) VALUES (?1, ?2) "
                            "ON CONFLICT(key) DO UPDATE SET value = ?2";
const char sql_free_all[] =
    "UPDATE mortise_lock SET owner = NULL, grants = NULL, acquired_at = 0, expires_at = 0, "
    "waiters = NULL, note = NULL";

#define ROW_COLUMNS "version, owner, grants, acquired_at, expires_at, waiters, note"

const char *const sql_texts[SQL_COUNT] = {
    [SQL_ACQUIRE] =
        "INSERT INTO mortise_lock(name, version, owner, grants, acquired_at, expires_at, note) "
        "VALUES (?1, ?2, NULL, ?3, ?4, ?5, ?6) "
        "ON CONFLICT(name) DO UPDATE SET "
        "version = CASE WHEN version < ?2 THEN ?2 ELSE version + 1 END, owner = NULL, "
        "grants = ?3, acquired_at = ?4, expires_at = ?5, note = ?6 "
        "WHERE expires_at <= ?4 AND version < 9223372036854775807 AND waiters IS NULL RETURNING "
        "version",
    [SQL_RENEW] = "UPDATE mortise_lock "
                  "SET expires_at = CASE WHEN expires_at < ?5 THEN ?5 ELSE expires_at END "
                  "WHERE name = ?1 AND version = ?2 AND grants = ?3 AND owner IS NULL "
                  "AND expires_at > ?4 RETURNING expires_at",
    [SQL_RELEASE] = "UPDATE mortise_lock SET grants = NULL, acquired_at = 0, note = NULL, "
                    "expires_at = CASE WHEN waiters IS NULL THEN 0 ELSE ?5 END "
                    "WHERE name = ?1 AND version = ?2 AND grants = ?3 AND owner IS NULL "
                    "AND expires_at > ?4 RETURNING waiters",
    [SQL_READ] = "SELECT " ROW_COLUMNS " FROM mortise_lock WHERE name = ?1",
    [SQL_INSERT] = "INSERT INTO mortise_lock(name, " ROW_COLUMNS ") "
                   "VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) ON CONFLICT(name) DO NOTHING",
    [SQL_SWAP] = "UPDATE mortise_lock SET version = ?2, owner = ?3, grants = ?4, "
                 "acquired_at = ?5, expires_at = ?6, waiters = ?7, note = ?8 "
                 "WHERE name = ?1 AND version = ?9 AND grants IS ?10 AND expires_at = ?11 "
                 "AND waiters IS ?12",
    [SQL_LIST] = "SELECT name, " ROW_COLUMNS " FROM mortise_lock "
                 "WHERE name >= ?1 AND (?2 IS NULL OR name < ?2) "
                 "AND expires_at > ?3 AND grants IS NOT NULL ORDER BY name",
    [SQL_PING] = "SELECT value FROM mortise_meta WHERE key = 'layout'",
    [SQL_RECORD_READ] = "SELECT version, value FROM mortise_record WHERE name = ?1",
    [SQL_RECORD_MAKE] = "INSERT INTO mortise_record(name, version, value) VALUES (?1, 1, ?2) "
                        "ON CONFLICT(name) DO NOTHING RETURNING version",
    [SQL_RECORD_WRITE] = "UPDATE mortise_record SET version = version + 1, value = ?2 "
                         "WHERE name = ?1 AND version = ?3 AND version < 9223372036854775807 "
                         "RETURNING version",
    [SQL_TOUCH] = "INSERT INTO mortise_meta(key, value) VALUES ('checkpoints', 1) "
                  "ON CONFLICT(key) DO UPDATE SET value = value % 1000000 + 1",
    [SQL_SWEEP_FROM] = "SELECT value FROM mortise_meta WHERE key = 'swept'",
    [SQL_SWEEP_TO] =
        "SELECT name FROM mortise_lock WHERE name >= ?1 ORDER BY name LIMIT 1 OFFSET ?2",
    [SQL_SWEEP] = "DELETE FROM mortise_lock WHERE name >= ?1 AND (?2 IS NULL OR name < ?2) "
                  "AND expires_at <= ?3 AND version < ?4",
    [SQL_SWEEP_NOTE] = "INSERT INTO mortise_meta(key, value) VALUES ('swept', ?1) "
                       "ON CONFLICT(key) DO UPDATE SET value = ?1",
    [SQL_BEGIN] = "BEGIN IMMEDIATE",
    [SQL_COMMIT] = "COMMIT",
    [SQL_ROLLBACK] = "ROLLBACK",
};
