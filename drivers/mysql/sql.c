/* sql.c - the texts of the statements; sql.h says which values are filled in, and protocol.md what each statement promises.
 *
 * TIME is UTC_TIMESTAMP(6): the server's clock when it began this one statement, whatever time zone the session has. The clock
 * is read after the statement was sent and before a wait for the row, so a claim ends a little early, by that wait; see the
 * holes in lib/sql/rowlease.h. Times are stored as µs since 1970; a free row has expired at 0.
 *
 * Each write of a row raises its revision. So even a statement that writes the old values is a change for the server: its
 * commit waits until the log has the whole row. And a row with the same version and revision is unchanged.
 *
 * A server that became read-only (a replica) lets users with special rights write. Our statements do not write to such a
 * server. If a replica executed them itself, it would find no row to change, so the changes must come to it as rows. With
 * binlog_format = MIXED they do, for two reasons: the statements read a system variable (MySQL's manual, "Determination of Safe
 * and Unsafe Statements in Binary Logging"), and InnoDB logs only rows at READ COMMITTED (the same, "Transaction Isolation
 * Levels"). With STATEMENT, setup.c refuses the server. */
#include "sql.h"

#include "../lib/sql/rowlease.h"

#define NOW_US "TIMESTAMPDIFF(MICROSECOND,TIMESTAMP'1970-01-01 00:00:00',UTC_TIMESTAMP(6))"
#define WRITABLE "CONCAT(@@global.read_only) IN ('0','OFF')"
#define LAST_VERSION "9223372036854775807"
#define A_DAY_US "86400000000"

const char sql_now_us[] = NOW_US;

#define MAKE_LOCK                                                                                  \
    "CREATE TABLE IF NOT EXISTS mortise_lock(\n"                                                   \
    "    name VARBINARY(512) NOT NULL PRIMARY KEY,\n"                                              \
    "    version BIGINT NOT NULL,           -- of the last hold: its token\n"                      \
    "    owner VARBINARY(512),              -- null: the hold has no owner\n"                      \
    "    grants VARBINARY(24576),           -- who holds: a grant id, or with an owner (id, "      \
    "expiry)...\n"                                                                                 \
    "    acquired_at BIGINT NOT NULL,       -- microseconds since 1970, UTC\n"                     \
    "    expires_at BIGINT NOT NULL,        -- likewise; 0: free\n"                                \
    "    waiters VARBINARY(3072),           -- not in use\n"                                       \
    "    note VARBINARY(256),               -- host, pid and program of the holder\n"              \
    "    revision BIGINT NOT NULL           -- raised with each change\n"                          \
    ") ENGINE=InnoDB ROW_FORMAT=DYNAMIC"
#define MAKE_RECORD                                                                                \
    "CREATE TABLE IF NOT EXISTS mortise_record(\n"                                                 \
    "    name VARBINARY(512) NOT NULL PRIMARY KEY,\n"                                              \
    "    version BIGINT NOT NULL,\n"                                                               \
    "    value VARBINARY(4096) NOT NULL,\n"                                                        \
    "    looks BIGINT NOT NULL              -- how often it was read\n"                            \
    ") ENGINE=InnoDB ROW_FORMAT=DYNAMIC"
#define MAKE_META                                                                                  \
    "CREATE TABLE IF NOT EXISTS mortise_meta(\n"                                                   \
    "    name VARBINARY(64) NOT NULL PRIMARY KEY, -- layout; swept: when last; sweep: how far\n"   \
    "    value VARBINARY(255) NOT NULL\n"                                                          \
    ") ENGINE=InnoDB ROW_FORMAT=DYNAMIC"
#define MAKE_LAYOUT                                                                                \
    "INSERT IGNORE INTO mortise_meta(name, value) VALUES ('layout', '" LAYOUT_VERSION              \
    "'), ('swept', '0')"
_Static_assert(ROWLEASE_WAITERS_MAX *ROWLEASE_WAITER_SIZE == 3072 &&
                   ROWLEASE_HOLDS_MAX * ROWLEASE_HOLD_SIZE == 24576 && MORTISE_OWNER_MAX == 512 &&
                   MORTISE_NAME_MAX == 512 && MORTISE_NOTE_MAX == 256 && MORTISE_RECORD_MAX == 4096,
               "as above");

const char *sql_schema_text(void)
{
    return "-- Run this once, in the database that the option `database` names. The clients' user "
           "needs SELECT, INSERT,\n-- UPDATE and DELETE on the three tables.\n" MAKE_LOCK
           ";\n" MAKE_RECORD ";\n" MAKE_META ";\n" MAKE_LAYOUT ";\n";
}

const char *const sql_make[] = {MAKE_LOCK, MAKE_RECORD, MAKE_META, MAKE_LAYOUT};
const size_t sql_make_count = sizeof(sql_make) / sizeof(sql_make[0]);

/* ---- a new connection -------------------------------------------------------------------------- */

/* The server reads what is between M! and the end of the comment only if it is MariaDB, and behind !50708 only if it is MySQL,
 * which has no max_statement_time; MariaDB leaves 50700 to 99999 aside. A transaction waits for this client only after one of
 * its statements has failed, until the ROLLBACK. Without the time-out here, a client that is stopped at that point would keep
 * rows locked for wait_timeout. */
const char sql_settings[] =
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED,READ WRITE;"
    "SET SESSION autocommit=1,sql_mode='STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION',"
    "timestamp=DEFAULT,completion_type=0,sql_select_limit=18446744073709551615,sql_big_selects=1,"
    "innodb_lock_wait_timeout=$a,lock_wait_timeout=$b"
    "/*!50708 ,max_execution_time=0 *//*M!100101 ,max_statement_time=$b */"
    "/*M!100300 ,idle_transaction_timeout=$b,idle_write_transaction_timeout=$b,"
    "idle_readonly_transaction_timeout=$b */";
const char sql_identify[] =
    "SELECT CONNECTION_ID(),DATABASE(),host,CONCAT_WS(':',@@hostname,@@port,@@server_id) "
    "FROM information_schema.processlist WHERE id=CONNECTION_ID();"
    "SHOW VARIABLES WHERE Variable_name IN ('read_only','innodb_read_only','log_bin',"
    "'binlog_format','sync_binlog','innodb_flush_log_at_trx_commit','wsrep_on');"
    "SELECT table_name,engine FROM information_schema.tables WHERE table_schema=DATABASE() "
    "AND table_name IN ('mortise_lock','mortise_record','mortise_meta')";
const char sql_layout[] = "SELECT value FROM mortise_meta WHERE name='layout'";
/* Makes a node of Galera see everything that all nodes have committed before, when it reads or writes. With dirty reads, it
 * would not wait before it reads. */
const char sql_galera[] = "SET SESSION wsrep_sync_wait=7,wsrep_dirty_reads=OFF";

/* ---- requests ---------------------------------------------------------------------------------- */

const char sql_no_wait[] = "/*M!100303 SET STATEMENT innodb_lock_wait_timeout=0 FOR */ ";

/* For `mortise doctor`: findings.c. Only MariaDB shows the last three values to every user. */
#define STATUS_OF(name)                                                                            \
    "(SELECT variable_value FROM information_schema.global_status WHERE variable_name='" name "')"
#define SETTINGS                                                                                   \
    "@@global.innodb_flush_log_at_trx_commit,CONCAT(@@global.log_bin),@@global.sync_binlog,"       \
    "CONCAT(@@global.innodb_doublewrite)," NOW_US ","                                              \
    "(SELECT COUNT(*) FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%')"      \
    "/*M!100303 ," STATUS_OF("SLAVES_CONNECTED") "," STATUS_OF(                                    \
        "RPL_SEMI_SYNC_MASTER_STATUS") ",@@global.rpl_semi_sync_master_timeout */"
#define COLUMNS "version,owner,grants,acquired_at,expires_at,waiters,note"
#define TAKE                                                                                       \
    "UPDATE mortise_lock SET version=LAST_INSERT_ID(GREATEST(version+1," NOW_US ",$b)),"           \
    "owner=NULL,grants=$c,acquired_at=" NOW_US ",expires_at=" NOW_US "+$d,note=$e,"                \
    "revision=revision+1 WHERE name=$a AND expires_at<=" NOW_US " AND version<" LAST_VERSION       \
    " AND waiters IS NULL AND " WRITABLE
#define IS_OLD "expires_at<=" NOW_US " AND version<" NOW_US "-" A_DAY_US

const struct sql_text sql_texts[TEXT_COUNT] = {
    [TEXT_ACQUIRE] = {TAKE, 1, true},
    [TEXT_ACQUIRE_NEW] = {TAKE ";INSERT IGNORE INTO mortise_lock(name,version,grants,acquired_at,"
                               "expires_at,note,revision) SELECT $a,LAST_INSERT_ID(GREATEST(" NOW_US
                               ",$b)),$c," NOW_US "," NOW_US "+$d,$e," NOW_US
                               " FROM DUAL WHERE " WRITABLE,
                          2, true},
    [TEXT_RENEW] = {"UPDATE mortise_lock SET expires_at=GREATEST(expires_at," NOW_US "+$d),"
                    "revision=revision+1 WHERE name=$a AND version=$b AND grants=$c "
                    "AND owner IS NULL AND expires_at>" NOW_US " AND " WRITABLE,
                    1, true},
    [TEXT_RELEASE] = {"UPDATE mortise_lock SET grants=NULL,acquired_at=0,expires_at=0,note=NULL,"
                      "revision=revision+1 WHERE name=$a AND version=$b AND grants=$c "
                      "AND owner IS NULL AND expires_at>" NOW_US " AND waiters IS NULL "
                      "AND " WRITABLE,
                      1, true},
    /* The row of `layout` always exists, so the result always has one row, with the clock. */
    [TEXT_LOOK] = {"SELECT " WRITABLE "," NOW_US "," COLUMNS ",revision FROM mortise_meta AS meta "
                   "LEFT JOIN mortise_lock ON mortise_lock.name=$a WHERE meta.name='layout'",
                   1, false},
    [TEXT_INSERT] = {"INSERT IGNORE INTO mortise_lock(name," COLUMNS ",revision) "
                     "SELECT $a,$b,$c,$d,$e,$f,$g,$h," NOW_US " FROM DUAL WHERE " WRITABLE,
                     1, true},
    [TEXT_SWAP] = {"UPDATE mortise_lock SET version=$b,owner=$c,grants=$d,acquired_at=$e,"
                   "expires_at=$f,waiters=$g,note=$h,revision=revision+1 "
                   "WHERE name=$a AND version=$i AND revision=$j AND " WRITABLE,
                   1, true},
    /* Bytes 9 to 16 of the holders are the end of the bar: see lib/sql/holders.h. */
    [TEXT_BAR] = {"UPDATE mortise_lock SET grants=INSERT(grants,9,8,UNHEX(LPAD(HEX(" NOW_US
                  "+2000000),16,'0'))),revision=revision+1 "
                  "WHERE name=$a AND owner=$b AND expires_at>" NOW_US " AND " WRITABLE,
                  1, true},
    /* If this were joined to the row of `layout`, as in TEXT_LOOK, the names would not come in the order of the key: the server
     * would have to sort the whole rows. */
    [TEXT_NAMES] = {"SELECT " WRITABLE ";SELECT name," NOW_US "," COLUMNS
                    " FROM mortise_lock WHERE name>=$a "
                    "AND ($b IS NULL OR name<$b) AND expires_at>" NOW_US
                    " AND grants IS NOT NULL ORDER BY name",
                    2, false},
    [TEXT_VERSION] = {"SELECT " WRITABLE ",VERSION(),value," SETTINGS
                      " FROM mortise_meta WHERE name='layout'",
                      1, false},
    /* The row is written first, and so locked: what is then read is as durable as this commit. As above, there is always
     * one row, so "no record", too, is believed only if the server accepts writes. */
    [TEXT_RECORD_LOOK] =
        {"UPDATE mortise_record SET looks=looks+1 WHERE name=$a AND " WRITABLE ";SELECT " WRITABLE
         ",version,mortise_record.value FROM mortise_meta AS meta "
         "LEFT JOIN mortise_record ON mortise_record.name=$a WHERE meta.name='layout'",
         2, true},
    [TEXT_RECORD_MAKE] = {"INSERT IGNORE INTO mortise_record(name,version,value,looks) "
                          "SELECT $a,1,$b,0 FROM DUAL WHERE " WRITABLE,
                          1, true},
    [TEXT_RECORD_SWAP] = {"UPDATE mortise_record SET version=version+1,value=$b "
                          "WHERE name=$a AND version=$c AND version<" LAST_VERSION " AND " WRITABLE,
                          1, true},
    [TEXT_GHOST_LOOK] = {"SELECT 1 FROM information_schema.processlist WHERE id=$a AND host=$b", 1,
                         false},
    [TEXT_GHOST_END] = {"KILL CONNECTION $a", 1, false},
    /* A row is kept for its version. If that is older than a day of wall clock, the next token is larger even without
     * the row, unless the clock is set back by more than a day. */
    [TEXT_SWEEP_TURN] = {"UPDATE mortise_meta SET value=" NOW_US " WHERE name='swept' "
                         "AND ABS(CAST(value AS SIGNED)-" NOW_US ")>=$a AND " WRITABLE,
                         1, true},
    /* The progress of the last sweep is in a row of its own; if the name is too long for it, its beginning. */
    [TEXT_SWEEP_FROM] = {"SELECT value FROM mortise_meta WHERE name='sweep'", 1, false},
    [TEXT_SWEEP_NOTE] =
        {"INSERT INTO mortise_meta(name,value) SELECT 'sweep',LEFT($a,255) FROM DUAL "
         "WHERE " WRITABLE " ON DUPLICATE KEY UPDATE value=LEFT($a,255)",
         1, true},
    [TEXT_SWEEP_END] = {"SELECT name FROM mortise_lock WHERE name>$a ORDER BY name LIMIT 1999,1", 1,
                        false},
    [TEXT_SWEEP_LOOK] = {"SELECT name FROM mortise_lock WHERE name>$a AND name<=$b AND " IS_OLD
                         " ORDER BY name LIMIT 256",
                         1, false},
    [TEXT_SWEEP_DROP] = {"DELETE FROM mortise_lock WHERE name IN (", 1, true},
};
const char sql_sweep_end[] = ") AND " IS_OLD " AND " WRITABLE;
