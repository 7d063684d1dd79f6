/* sql.c - the texts of the statements; sql.h says what is bound to them, and protocol.md what each promises.
 *
 * Time is clock_timestamp(), never now(), which is the transaction's beginning. If a statement waits for a row, and
 * the other session has changed the row, everything is computed anew, so the time is read after the wait. If the
 * other session only locked the row, or was rolled back, the values from before the wait are written: then a claim
 * ends a little early, by the wait, but still a ttl after the statement was sent. A free row has expired at
 * -infinity. */
#include "sql.h"

#include "../lib/sql/rowlease.h"

#define MAKE_LOCK                                                                                  \
    "CREATE TABLE IF NOT EXISTS mortise_lock(\n"                                                   \
    "    name bytea NOT NULL PRIMARY KEY,\n"                                                       \
    "    version bigint NOT NULL,           -- of the last hold: its token\n"                      \
    "    owner bytea,                       -- null: the hold has no owner\n"                      \
    "    grants bytea,                      -- who holds: a grant id, or with an owner (id, "      \
    "expiry)...\n"                                                                                 \
    "    acquired_at timestamptz NOT NULL,\n"                                                      \
    "    expires_at timestamptz NOT NULL,   -- -infinity: free\n"                                  \
    "    waiters bytea,                     -- (inbox, 0)... of waiters, in their order\n"         \
    "    note bytea                         -- host, pid and program of the holder\n"              \
    ") WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02)"
#define MAKE_RECORD                                                                                \
    "CREATE TABLE IF NOT EXISTS mortise_record(\n"                                                 \
    "    name bytea NOT NULL PRIMARY KEY,\n"                                                       \
    "    version bigint NOT NULL,\n"                                                               \
    "    value bytea NOT NULL\n"                                                                   \
    ")"
#define MAKE_META                                                                                  \
    "CREATE TABLE IF NOT EXISTS mortise_meta(\n"                                                   \
    "    key text NOT NULL PRIMARY KEY,     -- layout; swept: when last; sweep: how far\n"         \
    "    value text NOT NULL\n"                                                                    \
    ")"
#define MAKE_LAYOUT                                                                                \
    "INSERT INTO mortise_meta(key, value) VALUES ('layout', '" LAYOUT_VERSION "') "                \
    "ON CONFLICT (key) DO NOTHING"

const char *sql_schema_text(void)
{
    return "-- Run this once, in the database that conninfo names. The tables are made in the "
           "first "
           "schema of the\n-- role's search_path. For the option `schema = locks`, run first: "
           "CREATE "
           "SCHEMA IF NOT EXISTS locks;\n-- SET search_path TO locks; The clients' role needs "
           "USAGE on "
           "the schema and SELECT, INSERT, UPDATE and\n-- DELETE on the three tables. One database "
           "must hold them in one schema only, or each client must\n-- say `schema`.\n" MAKE_LOCK
           ";\n" MAKE_RECORD ";\n" MAKE_META ";\n" MAKE_LAYOUT ";\n";
}

/* Two clients that make a table at the same time would get in each other's way, with or without IF NOT EXISTS. */
const char *const sql_make[] = {MAKE_LOCK, MAKE_RECORD, MAKE_META, MAKE_LAYOUT};
const size_t sql_make_count = sizeof(sql_make) / sizeof(sql_make[0]);

/* Until PATH has set the search_path, the role's own is in force, and any schema on it may come before pg_catalog. So
 * until then, each function, operator, type and table is named with its schema. (IN, NULLIF and CASE x WHEN also look for
 * an operator.) Afterwards pg_catalog comes first, and a foreign function or operator could be preferred only if its
 * types fitted better. So our types fit exactly. A literal without a type is a text there, or has the type of the other
 * operand. But f('literal') is a cast if any schema has a type f, for example a domain, whose checks would run. Such a
 * function is named with its schema, too. */
#define EQUALS " OPERATOR(pg_catalog.=) "
#define DIFFERS " OPERATOR(pg_catalog.<>) "
#define AND_TEXT " OPERATOR(pg_catalog.||) "

/* The schemas of this database with a table of ours, whether or not the role may use them. */
#define HAVE                                                                                       \
    "SELECT nspname FROM pg_catalog.pg_class JOIN pg_catalog.pg_namespace AS n "                   \
    "ON n.oid" EQUALS "relnamespace WHERE relkind" EQUALS "ANY ('{r,p}') "                         \
    "AND relpersistence" DIFFERS "'t' AND relname" EQUALS
#define HAVE_LOCK HAVE "'mortise_lock'"
#define HAVE_META HAVE "'mortise_meta'"
/* A transaction of its own with explicit BEGIN and end, so that the second client sees what the first has made,
 * whatever the default isolation is. */
const char sql_make_begin[] = "BEGIN ISOLATION LEVEL READ COMMITTED";
const char sql_make_end[] = "COMMIT";
const char sql_make_lock[] = "SELECT pg_advisory_xact_lock(5642811930437154125)";
const char sql_make_alone[] =
    "SELECT 1 / CASE WHEN EXISTS (" HAVE_LOCK " AND nspname" DIFFERS "$1) THEN 0 ELSE 1 END";
/* Our schema comes first, and the server's own functions before all others, which holds if pg_catalog is not named. So
 * the role's own path, by which types and functions are found as before, follows only if it does not name pg_catalog
 * either, because there may be a function clock_timestamp() on it. A temporary table must hide none of ours, and
 * pg_temp would come first if it were not named. */
#define PATH(schema)                                                                               \
    "pg_catalog.set_config('search_path', pg_catalog.quote_ident(" schema ")" AND_TEXT             \
    "CASE WHEN 'pg_catalog'" EQUALS "ANY (pg_catalog.current_schemas(false)) "                     \
    "OR pg_catalog.current_setting('search_path')" EQUALS "'' THEN '' "                            \
    "ELSE ', '" AND_TEXT "pg_catalog.current_setting('search_path') END" AND_TEXT "', pg_temp', "
const char sql_path[] = "SELECT " PATH("$1") "$2)";

/* These settings are only for a connection of our own: behind a pooler they would stay with somebody else's connection. No plan
 * should read a whole table, because each row is found by its name. But the planner would choose that while a table is small.
 * The plan would stay in use when the table has grown, and a new one would be the same until the table is analyzed. */
const char sql_identify[] =
    "WITH found AS (" HAVE_LOCK "), asked AS (SELECT CASE WHEN $4" DIFFERS "'' THEN $4 "
    "WHEN (SELECT pg_catalog.count(*) FROM found)" EQUALS
    "1 THEN (SELECT nspname::pg_catalog.text FROM found) "
    "ELSE pg_catalog.current_schema()::pg_catalog.text END AS schema) "
    "SELECT mine.same, (SELECT backend_start FROM pg_catalog.pg_stat_activity "
    "WHERE pid" EQUALS "pg_catalog.pg_backend_pid()), "
    "pg_catalog.pg_is_in_recovery(), EXISTS (SELECT FROM found WHERE nspname" EQUALS "schema), "
    "EXISTS (" HAVE_META " AND nspname" EQUALS "schema), pg_catalog.clock_timestamp(), "
    "pg_catalog.pg_backend_pid()::bigint, "
    "schema, EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname" EQUALS "schema "
    "AND pg_catalog.has_schema_privilege(oid, 'USAGE')), "
    "schema" EQUALS "ANY (pg_catalog.current_schemas(false)), "
    "(SELECT pg_catalog.count(*) FROM found), "
    "(SELECT pg_catalog.left(pg_catalog.string_agg("
    "pg_catalog.quote_ident(nspname::pg_catalog.text), ', ' ORDER BY nspname), 200) FROM found), "
    "CASE WHEN mine.same THEN pg_catalog.concat("
    "pg_catalog.set_config('lock_timeout', $2, false), "
    "pg_catalog.set_config('statement_timeout', $3, false), "
    "pg_catalog.set_config('default_transaction_isolation', 'read committed', false), "
    "pg_catalog.set_config('jit', 'off', false), "
    "pg_catalog.set_config('plan_cache_mode', 'force_generic_plan', false), "
    "pg_catalog.set_config('enable_seqscan', 'off', false), "
    "pg_catalog.set_config('synchronous_commit', "
    "CASE WHEN pg_catalog.current_setting('synchronous_commit')" EQUALS "'off' THEN 'on' "
    "ELSE pg_catalog.current_setting('synchronous_commit') END, false), "
    "pg_catalog.set_config('default_transaction_read_only', 'off', false), "
    "pg_catalog.set_config('client_min_messages', 'warning', false), "
    "pg_catalog.set_config('tcp_keepalives_idle', '10', false), "
    "pg_catalog.set_config('tcp_keepalives_interval', '3', false), "
    "pg_catalog.set_config('tcp_keepalives_count', '3', false), "
    "pg_catalog.set_config('tcp_user_timeout', $3, false), "
    "CASE WHEN pg_catalog.current_setting('idle_session_timeout', true) IS NOT NULL "
    "THEN pg_catalog.set_config('idle_session_timeout', '0', false) END, "
    "CASE WHEN pg_catalog.current_setting('transaction_timeout', true) IS NOT NULL "
    "THEN pg_catalog.set_config('transaction_timeout', '0', false) END) END "
    "FROM (SELECT $1" EQUALS "-1 OR $1" EQUALS
    "pg_catalog.pg_backend_pid() AS same) AS mine, asked";
const char sql_layout[] = "SELECT left(value, 31) FROM mortise_meta WHERE key = 'layout'";
/* The first statement changes nothing, and fails if the transaction is read-only. Behind a pooler, the server may be another
 * one than when the connection was made. It may be a standby, where reads are outdated. */
const char sql_settings[] =
    "SELECT pg_catalog.set_config('transaction_read_only', 'off', true), "
    "pg_catalog.set_config('lock_timeout', $1, true), "
    "pg_catalog.set_config('statement_timeout', $2, true), "
    "pg_catalog.set_config('client_min_messages', 'warning', true), "
    "pg_catalog.set_config('jit', 'off', true), "
    "pg_catalog.set_config('enable_seqscan', 'off', true), "
    "CASE WHEN pg_catalog.current_setting('synchronous_commit')" EQUALS "'off' "
    "THEN pg_catalog.set_config('synchronous_commit', 'on', true) END, " PATH("$3") "true)";
const char sql_in_order[] = "SELECT pg_catalog.set_config('enable_sort', 'off', true)";
const char sql_in_time[] =
    "SELECT clock_timestamp(), 1 / CASE WHEN clock_timestamp() > $1 THEN 0 ELSE 1 END";

#define CLOCK_US "(date_part('epoch', clock_timestamp()) * 1000000::float)::bigint"
#define LAZY "pg_catalog.set_config('synchronous_commit', 'off', true)"
#define BEHIND_ALL "pg_catalog.decode(pg_catalog.repeat('ff', 513), 'hex')" /* no name is */
#define ROW_COLUMNS "version, owner, grants, acquired_at, expires_at, waiters, note"
/* Fetches one byte more than is allowed, so that a longer value is refused without being fetched as a whole. */
#define SHORT_WAITERS "substr(waiters, 1, 3073)"
#define SHORT_RECORD "substr(value, 1, 4097)"
#define SHORT_LAYOUT "left(value, 31)"

#define STANDBYS "pg_catalog.current_setting('synchronous_standby_names')"
#define OID(table) "pg_catalog.to_regclass('" table "')::oid"
#define LOCK_OID OID("mortise_lock")
#define OURS LOCK_OID ", " OID("mortise_record") ", " OID("mortise_meta")

/* For `mortise doctor`: driver.h, MORTISE_OP_PING. dialect.c has the findings about the connection. */
#define FINDING(condition, text) "CASE WHEN " condition " THEN ' | " text "' ELSE '' END"
#define NO_FSYNC                                                                                   \
    FINDING("pg_catalog.current_setting('fsync') = 'off'",                                         \
            "risk: fsync is off: after a crash of its machine the server may have forgotten "      \
            "grants, and grant them again; set fsync = on")
#define NO_PAGES                                                                                   \
    FINDING("pg_catalog.current_setting('full_page_writes') = 'off'",                              \
            "risk: full_page_writes is off: after a crash of its machine the tables may "          \
            "be damaged, and grants forgotten; set it to on")
#define UNLOGGED                                                                                   \
    FINDING("EXISTS (SELECT FROM pg_class WHERE oid = " LOCK_OID " AND relpersistence = 'u')",     \
            "risk: the table mortise_lock is UNLOGGED: a crash of the server empties it, "         \
            "and held locks are granted again; ALTER TABLE mortise_lock SET LOGGED")
#define NO_STANDBY                                                                                 \
    FINDING(STANDBYS " = '' AND EXISTS (SELECT FROM pg_stat_replication)",                         \
            "risk: it has standbys, but synchronous_standby_names is empty: after a "              \
            "failover a held lock may be granted again; name the standbys there")
#define LOCAL                                                                                      \
    FINDING(STANDBYS " <> '' AND pg_catalog.current_setting('synchronous_commit') = 'local'",      \
            "risk: synchronous_commit is local: commits do not wait for the standby, so "          \
            "after a failover a held lock may be granted again; set it to on")
#define SCHEMAS                                                                                    \
    FINDING("(SELECT count(*) FROM pg_class WHERE relname = 'mortise_lock' "                       \
            "AND relkind IN ('r', 'p') AND relpersistence <> 't') > 1",                            \
            "note: several schemas have tables of Mortise: clients with different schemas "        \
            "do not exclude each other; set the option schema to the same in all of them")
/* Reports that a table belongs to another role, which may have made it before the first client did. This is not refused, because
 * a role for such work may have made the tables. */
#define OWNER                                                                                      \
    FINDING("$2 AND EXISTS (SELECT FROM pg_class WHERE oid IN (" OURS ") "                         \
            "AND NOT pg_catalog.pg_has_role(relowner, 'MEMBER') AND NOT EXISTS (SELECT "           \
            "FROM pg_roles WHERE pg_roles.oid = relowner AND rolsuper) AND NOT EXISTS (SELECT "    \
            "FROM pg_database WHERE datname = current_database() AND datdba = relowner))",         \
            "note: a table of Mortise belongs to another role, which can take every lock and "     \
            "have a trigger run with the rights of each client; change the owner, or set the "     \
            "option schema if that role is to be trusted")
#define CLOCKS                                                                                     \
    FINDING("abs(date_part('epoch', clock_timestamp()) - $1::float) > 2::float",                   \
            "note: the clocks of the server and of this host differ by more than two "             \
            "seconds: the times in logs differ; let NTP slew the clocks, because a step forward "  \
            "of the clock of the server frees locks that are held")
#define FINDINGS                                                                                   \
    NO_FSYNC " || " NO_PAGES " || " UNLOGGED " || " NO_STANDBY " || " LOCAL " || " SCHEMAS         \
             " || " OWNER " || " CLOCKS
#define ROW_READ                                                                                   \
    "version, substr(owner, 1, 513), substr(grants, 1, 24577), acquired_at, "                      \
    "expires_at, " SHORT_WAITERS ", substr(note, 1, 257)"
_Static_assert(ROWLEASE_WAITERS_MAX *ROWLEASE_WAITER_SIZE == 3072 &&
                   ROWLEASE_HOLDS_MAX * ROWLEASE_HOLD_SIZE == 24576 && MORTISE_OWNER_MAX == 512 &&
                   MORTISE_NOTE_MAX == 256 && MORTISE_RECORD_MAX == 4096,
               "as above");
#define SWAP                                                                                       \
    "UPDATE mortise_lock SET version = $2, owner = $3, grants = $4, acquired_at = $5, "            \
    "expires_at = $6, waiters = $7, note = $8 WHERE name = $1 AND version = $9 "                   \
    "AND grants IS NOT DISTINCT FROM $10 AND expires_at = $11 "                                    \
    "AND waiters IS NOT DISTINCT FROM $12 RETURNING true, "                                        \
    "CASE WHEN $13 IS NOT NULL THEN pg_notify($13, $14) END"
#define TAKE                                                                                       \
    "UPDATE mortise_lock SET version = greatest(version + 1, " CLOCK_US ", $2), owner = NULL, "    \
    "grants = $3, acquired_at = clock_timestamp(), expires_at = clock_timestamp() + $4, note = $5"
#define TAKE_FREE                                                                                  \
    TAKE " WHERE name = $1 AND expires_at <= clock_timestamp() "                                   \
         "AND version < 9223372036854775807 AND waiters IS NULL RETURNING version"
#define READ_RECORD(lock)                                                                          \
    "WITH locked AS (SELECT version, value FROM mortise_record "                                   \
    "WHERE name = $1 AND " STANDBYS " <> '' " lock ") "                                            \
    "SELECT version, " SHORT_RECORD " FROM locked "                                                \
    "UNION ALL SELECT version, " SHORT_RECORD " FROM mortise_record "                              \
    "WHERE name = $1 AND " STANDBYS " = ''"
#define WAITERS_SIZE "3072" /* the longest list: ROWLEASE_WAITERS_MAX */
#define NOTIFY_FIRST                                                                               \
    "pg_notify('mortise_' || encode(substr(waiters, 1, 8), 'hex'), encode(name, 'hex'))"

const struct sql_text sql_texts[TEXT_COUNT] = {
    /* Not INSERT … ON CONFLICT DO UPDATE, because that locks the row, and writes the lock to the log, even if the row
     * is somebody else's. */
    [TEXT_ACQUIRE] = {TAKE_FREE, "mortise_acquire", "bnbib"},
    [TEXT_ACQUIRE_NEW] = {"WITH taken AS (" TAKE_FREE "), "
                          "made AS (INSERT INTO mortise_lock(name, version, grants, acquired_at, "
                          "expires_at, note) SELECT $1, greatest(" CLOCK_US ", $2), $3, "
                          "clock_timestamp(), clock_timestamp() + $4, $5 "
                          "WHERE NOT EXISTS (SELECT FROM mortise_lock WHERE name = $1) "
                          "ON CONFLICT (name) DO NOTHING RETURNING version) "
                          "SELECT version FROM taken UNION ALL SELECT version FROM made",
                          "mortise_acquire_new", "bnbib"},
    [TEXT_ACQUIRE_NEXT] = {TAKE ", waiters = nullif(substr(waiters, 13), '') "
                                "WHERE name = $1 "
                                "AND (grants IS NULL OR expires_at <= clock_timestamp()) "
                                "AND version < 9223372036854775807 "
                                "AND substr(waiters, 1, 8) = $6 RETURNING version",
                           "mortise_acquire_next", "bnbibb"},
    [TEXT_RENEW] = {"UPDATE mortise_lock SET "
                    "expires_at = greatest(expires_at, clock_timestamp() + $4) "
                    "WHERE name = $1 AND version = $2 AND grants = $3 AND owner IS NULL "
                    "AND expires_at > clock_timestamp() RETURNING true",
                    "mortise_renew", "bnbi"},
    [TEXT_RELEASE] = {"UPDATE mortise_lock SET grants = NULL, acquired_at = '-infinity', "
                      "note = NULL, expires_at = CASE WHEN waiters IS NULL THEN '-infinity' "
                      "ELSE clock_timestamp() + $4 END "
                      "WHERE name = $1 AND version = $2 AND grants = $3 AND owner IS NULL "
                      "AND expires_at > clock_timestamp() "
                      "RETURNING " SHORT_WAITERS
                      ", CASE WHEN $5 AND waiters IS NOT NULL THEN " NOTIFY_FIRST " END, " LAZY,
                      "mortise_release", "bnbio"},
    [TEXT_READ] = {"SELECT " ROW_READ
                   ", clock_timestamp() FROM (SELECT $1::bytea AS wanted) AS asked "
                   "LEFT JOIN mortise_lock ON name = wanted",
                   "mortise_read", "b"},
    [TEXT_INSERT] = {"INSERT INTO mortise_lock(name, " ROW_COLUMNS ") "
                     "VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (name) DO NOTHING "
                     "RETURNING true",
                     "mortise_insert", "bnbbttbb"},
    [TEXT_SWAP] = {SWAP, "mortise_swap", "bnbbttbbnbtbxx"},
    [TEXT_SWAP_LAZY] = {SWAP ", " LAZY, "mortise_swap_lazy", "bnbbttbbnbtbxx"},
    [TEXT_ENLIST] = {"UPDATE mortise_lock SET waiters = coalesce(waiters, '') || $2 || $5 "
                     "WHERE name = $1 AND expires_at > clock_timestamp() "
                     "AND ($3 IS NULL OR grants IS DISTINCT FROM $3) "
                     "AND ($4 IS NULL OR owner IS DISTINCT FROM $4) "
                     "AND coalesce(length(waiters), 0) < " WAITERS_SIZE " "
                     "AND position($2 IN coalesce(waiters, '')) = 0 "
                     "RETURNING expires_at, clock_timestamp(), version, " LAZY,
                     "mortise_enlist", "bbbbb"},
    /* Bytes 9 to 16 of the holders are the end of the bar, in µs on PostgreSQL's own epoch: see lib/sql/holders.h. */
    [TEXT_BAR] = {"UPDATE mortise_lock SET "
                  "grants = overlay(grants PLACING int8send(" CLOCK_US
                  " - 946684800000000 + 2000000) "
                  "FROM 9 FOR 8), waiters = CASE WHEN $3 IS NULL "
                  "OR position($3 IN coalesce(waiters, '')) > 0 "
                  "OR coalesce(length(waiters), 0) >= " WAITERS_SIZE " THEN waiters "
                  "ELSE coalesce(waiters, '') || $3 || decode('00000000', 'hex') END "
                  "WHERE name = $1 AND owner = $2 AND expires_at > clock_timestamp() "
                  "RETURNING expires_at, clock_timestamp(), version, " LAZY,
                  "mortise_bar", "bbb"},
    [TEXT_NOTIFY] = {"SELECT pg_notify($1, $2), " LAZY, "mortise_notify", "xx"},
    [TEXT_LIST] = {"SELECT name, " ROW_READ ", clock_timestamp() FROM mortise_lock "
                   "WHERE name >= $1 AND name < coalesce($2, " BEHIND_ALL ") "
                   "AND expires_at > clock_timestamp() AND grants IS NOT NULL ORDER BY name",
                   "mortise_list", "bb"},
    [TEXT_PING] = {"SELECT pg_catalog.current_setting('server_version'), " SHORT_LAYOUT
                   ", " FINDINGS " FROM mortise_meta WHERE key = 'layout'",
                   "mortise_ping", "no"},
    /* Locking the row counts as a write, so the commit waits until the standby has what was read. FOR KEY SHARE conflicts
     * with no other statement of this driver. FOR NO KEY UPDATE waits for an UPDATE whose commit waits for the standby, and
     * for other readers of this kind until their commits are over; it then reads the row as the last one left it. FOR SHARE
     * would not wait for such readers, but a transaction that reads and writes a record could deadlock with another one of
     * its kind. */
    [TEXT_RECORD_READ] = {READ_RECORD("FOR KEY SHARE"), "mortise_record_read", "b"},
    [TEXT_RECORD_AWAIT] = {READ_RECORD("FOR NO KEY UPDATE"), "mortise_record_await", "b"},
    [TEXT_RECORD_MAKE] = {"INSERT INTO mortise_record(name, version, value) VALUES ($1, 1, $2) "
                          "ON CONFLICT (name) DO NOTHING RETURNING version",
                          "mortise_record_make", "bb"},
    [TEXT_RECORD_WRITE] = {"UPDATE mortise_record SET version = version + 1, value = $2 "
                           "WHERE name = $1 AND version = $3 AND version < 9223372036854775807 "
                           "RETURNING version",
                           "mortise_record_write", "bbn"},
    /* Excludes this session: a pooler in session mode may have kept it, and then whatever it did for the lost connection is
     * done. */
    [TEXT_GHOST] = {"SELECT pg_catalog.pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE pid = $1 AND backend_start = $2 "
                    "AND pid <> pg_catalog.pg_backend_pid()",
                    "mortise_ghost", "4t"},
    /* A row is kept for its version. If that is older than a day of wall clock, the next token is larger even without
     * the row, unless the clock is set back by more than a day. */
    [TEXT_SWEEP_TURN] = {"INSERT INTO mortise_meta AS meta(key, value) "
                         "VALUES ('swept', " CLOCK_US "::text) "
                         "ON CONFLICT (key) DO UPDATE SET value = excluded.value "
                         "WHERE abs(excluded.value::bigint - meta.value::bigint) >= $1 "
                         "RETURNING (SELECT pg_catalog.decode(value, 'hex') FROM mortise_meta "
                         "WHERE key = 'sweep' AND length(value) <= 1024 "
                         "AND value ~ '^([0-9a-f][0-9a-f])*$'), " LAZY,
                         "mortise_sweep_turn", "n"},
    /* A stretch ends with the last of 2,000 names, or of 512 old ones. A table of one stretch has no note. The stretch is read
     * by the index, whatever the statistics say: sql_in_order precedes it, and there is no join with `found`, which could read
     * the whole index. */
    [TEXT_SWEEP] =
        {"WITH last AS (SELECT name FROM mortise_lock WHERE name > $1 "
         "ORDER BY name OFFSET 1999 LIMIT 1), "
         "found AS (SELECT name FROM mortise_lock WHERE name > $1 "
         "AND name <= coalesce((SELECT name FROM last), " BEHIND_ALL ") "
         "AND expires_at <= clock_timestamp() AND version < " CLOCK_US " - 86400000000 "
         "ORDER BY name LIMIT 512 FOR UPDATE SKIP LOCKED), "
         "stretch AS (SELECT coalesce("
         "(SELECT name FROM found ORDER BY name OFFSET 511 LIMIT 1), "
         "(SELECT name FROM last)) AS upto), "
         "noted AS (INSERT INTO mortise_meta(key, value) "
         "SELECT 'sweep', coalesce(pg_catalog.encode(upto, 'hex'), '') FROM stretch "
         "WHERE $1 <> '' OR upto IS NOT NULL "
         "ON CONFLICT (key) DO UPDATE SET value = excluded.value), "
         "gone AS (DELETE FROM mortise_lock WHERE name = ANY (ARRAY(SELECT name FROM found))) "
         "SELECT upto, " LAZY " FROM stretch",
         "mortise_sweep", "b"},
};

unsigned sql_oid(char letter)
{
    switch (letter) {
    case 'b':
        return 17; /* bytea */
    case 'n':
        return 20; /* bigint */
    case '4':
        return 23; /* integer */
    case 'i':
        return 1186; /* interval */
    case 't':
        return 1184; /* timestamptz */
    case 'o':
        return 16; /* boolean */
    default:
        return 25; /* text */
    }
}
