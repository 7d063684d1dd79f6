/* sql.c - the texts of the statements; see sql.h for what is bound to them. No statement calls a function with
 * arguments, because connection.c permits none. */
#include "sql.h"

/* Times are microseconds since the host's start; `version` is based on the wall clock, see rowlease.h. */
#define LOCK_TABLE                                                                                 \
    "mortise_lock(\n"                                                                              \
    "    name BLOB NOT NULL PRIMARY KEY,\n"                                                        \
    "    version INTEGER NOT NULL,      -- of the last hold: its token\n"                          \
    "    owner BLOB,                    -- NULL: the hold has no owner\n"                          \
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

const char *const sql_texts[TEXT_COUNT] = {
    [TEXT_READ] = "SELECT " ROW_COLUMNS " FROM mortise_lock WHERE name = ?1",
    [TEXT_INSERT] = "INSERT INTO mortise_lock(name, " ROW_COLUMNS ") "
                    "VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
    [TEXT_UPDATE] = "UPDATE mortise_lock SET version = ?2, owner = ?3, grants = ?4, "
                    "acquired_at = ?5, expires_at = ?6, waiters = ?7, note = ?8 WHERE name = ?1",
    [TEXT_LIST] = "SELECT name, " ROW_COLUMNS " FROM mortise_lock "
                  "WHERE name >= ?1 AND name < ?2 "
                  "AND expires_at > ?3 AND grants IS NOT NULL ORDER BY name",
    [TEXT_PING] = "SELECT value FROM mortise_meta WHERE key = 'layout'",
    [TEXT_RECORD_READ] = "SELECT version, value FROM mortise_record WHERE name = ?1",
    [TEXT_RECORD_MAKE] = "INSERT INTO mortise_record(name, version, value) VALUES (?1, 1, ?2) "
                         "ON CONFLICT(name) DO NOTHING RETURNING version",
    [TEXT_RECORD_WRITE] = "UPDATE mortise_record SET version = version + 1, value = ?2 "
                          "WHERE name = ?1 AND version = ?3 AND version < 9223372036854775807 "
                          "RETURNING version",
    [TEXT_TOUCH] = "INSERT INTO mortise_meta(key, value) VALUES ('checkpoints', 1) "
                   "ON CONFLICT(key) DO UPDATE SET value = value % 1000000 + 1",
    [TEXT_SWEEP_FROM] = "SELECT value FROM mortise_meta WHERE key = 'swept'",
    [TEXT_SWEEP_TO] =
        "SELECT name FROM mortise_lock WHERE name >= ?1 ORDER BY name LIMIT 1 OFFSET ?2",
    [TEXT_SWEEP] = "DELETE FROM mortise_lock WHERE name >= ?1 AND name < ?2 "
                   "AND expires_at <= ?3 AND version < ?4",
    [TEXT_SWEEP_NOTE] = "INSERT INTO mortise_meta(key, value) VALUES ('swept', ?1) "
                        "ON CONFLICT(key) DO UPDATE SET value = ?1",
    [TEXT_BEGIN] = "BEGIN IMMEDIATE",
    [TEXT_COMMIT] = "COMMIT",
    [TEXT_ROLLBACK] = "ROLLBACK",
};
