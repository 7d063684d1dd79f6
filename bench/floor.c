/* floor.c - the bare floor of a cycle on SQLite; see floor.h.
 *
 * The statements are not written down here: SQLite reports each connection that is opened in this process, and each
 * statement that is begun on it, while a client of the library makes one cycle. So the floor is what the driver does
 * today; otherwise the program ends with a message. This file chooses the values that are bound to the statements. */
#include "floor.h"

#include "common.h"

#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define SEEN_MAX 64
#define TEXT_MAX 1024
#define TTL_US INT64_C(30000000)

/* The statements of an acquire, and of a release. */
enum { BEGIN, READ, WRITE, COMMIT, STATEMENTS };
static const int parameters[STATEMENTS] = {
    [READ] = 1,  /* name -> version and seven more */
    [WRITE] = 8, /* name, version, owner, grants, acquired, expires, waiters, note */
};

/* The statements that were begun on the driver's connection, in order. */
static struct {
    char texts[SEEN_MAX][TEXT_MAX];
    size_t count;
} seen;

static struct {
    sqlite3 *db;
    sqlite3_stmt *statements[STATEMENTS];
    uint64_t grants; /* made so far */
} bare;

static const char name[] = "floor";
static const char note[] = "localhost\n12345\ncycle";

/* ---- watching the driver ---- */

static int statement_begun(unsigned event, void *context, void *statement, void *text)
{
    (void)event;
    (void)context;
    (void)statement;
    if (seen.count < SEEN_MAX)
        snprintf(seen.texts[seen.count++], TEXT_MAX, "%s", (const char *)text);
    return 0;
}

static int connection_opened(sqlite3 *db, char **error, const struct sqlite3_api_routines *api)
{
    (void)error;
    (void)api;
    return sqlite3_trace_v2(db, SQLITE_TRACE_STMT, statement_begun, NULL);
}

static void open_driver_once(const char *path)
{
    char url[TEXT_MAX + 16];
    snprintf(url, sizeof(url), "sqlite:%s", path);
    mortise_client *client = bench_open(url);
    bench_release(bench_acquire(client, name, NULL)); /* so that the row exists */
    seen.count = seen.count < SEEN_MAX ? seen.count : SEEN_MAX;
    size_t before = seen.count;
    mortise_lease *lease = bench_acquire(client, name, NULL);
    size_t middle = seen.count;
    bench_release(lease);
    if (middle != before + STATEMENTS || seen.count != middle + STATEMENTS)
        bench_die("a cycle on SQLite was %zu + %zu statements, not %d + %d", middle - before,
                  seen.count - middle, STATEMENTS, STATEMENTS);
    for (int i = 0; i < STATEMENTS; i++)
        if (strcmp(seen.texts[before + i], seen.texts[middle + i]) != 0)
            bench_die("an acquire and a release on SQLite are not the same statements");
    bench_close(client);
    memmove(seen.texts[SEEN_MAX - STATEMENTS], seen.texts[before],
            STATEMENTS * sizeof(seen.texts[0]));
    seen.count = before;
}

static void watch_driver(const char *path)
{
    void (*hook)(void) = (void (*)(void))connection_opened;
    if (sqlite3_auto_extension(hook) != SQLITE_OK)
        bench_die("SQLite does not tell of its connections");
    open_driver_once(path);
    sqlite3_cancel_auto_extension(hook);
}

/* ---- a connection of our own ---- */

static void need(bool fine, const char *doing)
{
    if (!fine)
        bench_die("the floor: %s: %s", doing, sqlite3_errmsg(bare.db));
}

static sqlite3_stmt *prepare(const char *text, int count)
{
    sqlite3_stmt *statement = NULL;
    int rc = sqlite3_prepare_v3(bare.db, text, -1, SQLITE_PREPARE_PERSISTENT, &statement, NULL);
    need(rc == SQLITE_OK, text);
    if (sqlite3_bind_parameter_count(statement) != count)
        bench_die("the driver's statements take other parameters now; floor.c must follow: %s",
                  text);
    return statement;
}

void floor_open(const char *folder)
{
    char path[TEXT_MAX];
    snprintf(path, sizeof(path), "%s/floor.db", folder);
    watch_driver(path);
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_PRIVATECACHE;
    need(sqlite3_open_v2(path, &bare.db, flags, NULL) == SQLITE_OK, "open");
    for (size_t i = 0; i < seen.count; i++)
        if (sqlite3_strnicmp(seen.texts[i], "PRAGMA", 6) == 0)
            need(sqlite3_exec(bare.db, seen.texts[i], NULL, NULL, NULL) == SQLITE_OK,
                 seen.texts[i]);
    for (int i = 0; i < STATEMENTS; i++)
        bare.statements[i] = prepare(seen.texts[SEEN_MAX - STATEMENTS + i], parameters[i]);
}

void floor_close(void)
{
    for (int i = 0; i < STATEMENTS; i++)
        sqlite3_finalize(bare.statements[i]);
    sqlite3_close(bare.db);
}

/* ---- the cycle ---- */

static int64_t clock_us(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static void run(int which)
{
    sqlite3_stmt *statement = bare.statements[which];
    need(sqlite3_step(statement) == SQLITE_DONE, sqlite3_sql(statement));
    need(sqlite3_reset(statement) == SQLITE_OK, sqlite3_sql(statement));
}

/* The version. */
static int64_t read_row(void)
{
    sqlite3_stmt *statement = bare.statements[READ];
    need(sqlite3_bind_blob(statement, 1, name, sizeof(name) - 1, SQLITE_STATIC) == SQLITE_OK,
         "bind");
    need(sqlite3_step(statement) == SQLITE_ROW, "read");
    int64_t version = sqlite3_column_int64(statement, 0);
    for (int i = 1; i < sqlite3_column_count(statement); i++)
        sqlite3_column_blob(statement, i);
    need(sqlite3_reset(statement) == SQLITE_OK, "read");
    return version;
}

/* grant NULL: a release. */
static void write_row(int64_t version, const void *grant)
{
    sqlite3_stmt *statement = bare.statements[WRITE];
    int64_t now_us = clock_us(CLOCK_BOOTTIME), wall_us = clock_us(CLOCK_REALTIME);
    if (grant != NULL)
        version = wall_us > version ? wall_us : version + 1;
    int rc = sqlite3_bind_blob(statement, 1, name, sizeof(name) - 1, SQLITE_STATIC);
    rc |= sqlite3_bind_int64(statement, 2, version);
    rc |= sqlite3_bind_null(statement, 3);
    rc |= sqlite3_bind_blob(statement, 4, grant, 16, SQLITE_STATIC); /* NULL for NULL */
    rc |= sqlite3_bind_int64(statement, 5, grant != NULL ? now_us : 0);
    rc |= sqlite3_bind_int64(statement, 6, grant != NULL ? now_us + TTL_US : 0);
    rc |= sqlite3_bind_null(statement, 7);
    rc |= sqlite3_bind_blob(statement, 8, grant != NULL ? note : NULL, sizeof(note) - 1,
                            SQLITE_STATIC);
    need(rc == SQLITE_OK, "bind");
    run(WRITE);
}

static void transaction(const void *grant)
{
    run(BEGIN);
    write_row(read_row(), grant);
    run(COMMIT);
}

static void cycle(void)
{
    uint64_t grant[2] = {++bare.grants, UINT64_C(0x9e3779b97f4a7c15) * bare.grants};
    transaction(grant);
    transaction(NULL);
}

void floor_cycles(void *context, size_t n)
{
    (void)context;
    while (n-- > 0)
        cycle();
}
