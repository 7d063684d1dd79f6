/* fenced_update.c - a row that a lock protects, and a holder that is stopped at the worst moment.
 *
 *     fenced_update LOCKS STORE      e.g. sqlite:/home/ann/locks.db sqlite:/home/ann/goods.db, or
 *                                    postgresql://app@db/shop postgresql://app@db/shop
 *
 * Two processes sell from one stock. The first acquires the lock, reads the stock, and is stopped for longer than its
 * ttl. The second then acquires the lock, sells, and releases it. The first continues, and writes the number that it
 * has computed. Each write carries the token of its lease, and the store refuses a token that is smaller than one it
 * has seen. So the last write changes no row, and no sale is lost. (A real program also calls mortise_state() just
 * before the write. This one does not, to show why the token is needed: a process may be stopped between the two.) */
#include <mortise/mortise.h>

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef WITH_SQLITE
#include <sqlite3.h>
#endif
#ifdef WITH_LIBPQ
#include <libpq-fe.h>
#endif

#define ITEM 1
#define IN_STOCK 100
#define TTL_MS 500
enum { REFUSED = 0, FAILED = 1, TAKEN = 3 }; /* how the first process ends; FAILED: die() */

static void die(const char *doing, const char *why)
{
    fprintf(stderr, "fenced_update: %s: %s\n", doing, why);
    exit(FAILED);
}

/* ---- the store: it must compare and write in one step ---------------------------------------------- */

struct store {
#ifdef WITH_SQLITE
    sqlite3 *sqlite;
#endif
#ifdef WITH_LIBPQ
    PGconn *pq;
#endif
    int unused;
};

static const char make[] = "CREATE TABLE goods(id bigint PRIMARY KEY, amount bigint NOT NULL, "
                           "token bigint NOT NULL)";
static const char fill[] = "INSERT INTO goods VALUES (1, 100, 0)";
static const char look[] = "SELECT amount FROM goods WHERE id = 1";
/* The token is compared here. `<=`, because a holder may write more than once. */
static const char fenced[] =
    "UPDATE goods SET amount = $1, token = $2 WHERE id = $3 AND token <= $2";

static void need_store(const char *where, bool there)
{
    if (!there)
        die(where, "this program was built without that store");
}

static void store_open(struct store *store, const char *where)
{
    bool there = false;
    memset(store, 0, sizeof(*store));
#ifdef WITH_SQLITE
    if (strncmp(where, "sqlite:", 7) == 0) {
        there = true;
        if (sqlite3_open(where + 7, &store->sqlite) != SQLITE_OK)
            die(where, sqlite3_errmsg(store->sqlite));
        sqlite3_busy_timeout(store->sqlite, 5000);
    }
#endif
#ifdef WITH_LIBPQ
    if (strncmp(where, "postgres", 8) == 0) {
        there = true;
        store->pq = PQconnectdb(where);
        if (PQstatus(store->pq) != CONNECTION_OK)
            die(where, PQerrorMessage(store->pq));
    }
#endif
    need_store(where, there);
}

static void store_close(struct store *store)
{
#ifdef WITH_SQLITE
    sqlite3_close(store->sqlite);
#endif
#ifdef WITH_LIBPQ
    PQfinish(store->pq);
#endif
    store->unused = 0;
}

/* Runs a statement. Returns the first value of its result, or the number of rows that it changed. */
static int64_t store_run(struct store *store, const char *sql, int64_t amount, uint64_t token)
{
    int64_t value = 0;
    (void)store, (void)sql, (void)amount, (void)token;
#ifdef WITH_SQLITE
    if (store->sqlite != NULL) {
        sqlite3_stmt *statement;
        if (sqlite3_prepare_v2(store->sqlite, sql, -1, &statement, NULL) != SQLITE_OK)
            die(sql, sqlite3_errmsg(store->sqlite));
        if (sqlite3_bind_parameter_count(statement) == 3) {
            sqlite3_bind_int64(statement, 1, amount);
            sqlite3_bind_int64(statement, 2, (int64_t)token);
            sqlite3_bind_int64(statement, 3, ITEM);
        }
        bool row = sqlite3_step(statement) == SQLITE_ROW;
        value = row ? sqlite3_column_int64(statement, 0) : sqlite3_changes(store->sqlite);
        if (sqlite3_finalize(statement) != SQLITE_OK)
            die(sql, sqlite3_errmsg(store->sqlite));
    }
#endif
#ifdef WITH_LIBPQ
    if (store->pq != NULL) {
        char item_text[24], amount_text[24], token_text[24];
        const char *const values[] = {amount_text, token_text, item_text};
        snprintf(item_text, sizeof(item_text), "%d", ITEM);
        snprintf(amount_text, sizeof(amount_text), "%" PRId64, amount);
        snprintf(token_text, sizeof(token_text), "%" PRIu64, token);
        int count = strchr(sql, '$') != NULL ? 3 : 0;
        PGresult *result = PQexecParams(store->pq, sql, count, NULL, values, NULL, NULL, 0);
        if (PQresultStatus(result) != PGRES_COMMAND_OK && PQresultStatus(result) != PGRES_TUPLES_OK)
            die(sql, PQerrorMessage(store->pq));
        const char *text = PQntuples(result) > 0 ? PQgetvalue(result, 0, 0) : PQcmdTuples(result);
        value = strtoll(text, NULL, 10);
        PQclear(result);
    }
#endif
    return value;
}

/* ---- selling ----------------------------------------------------------------------------------- */

static mortise_lease *take(mortise_client *client)
{
    mortise_lease *lease;
    mortise_error error;
    if (mortise_acquire(client, "stock", MORTISE_OPTIONS(.wait_ms = 20000, .ttl_ms = TTL_MS),
                        &lease, &error) != MORTISE_OK)
        die("acquire", error.message);
    return lease;
}

static mortise_client *open_locks(const char *where)
{
    mortise_client *client;
    mortise_error error;
    if (mortise_open(where, &client, &error) != MORTISE_OK)
        die(where, error.message);
    return client;
}

/* Sells `count` items. Between the read and the write it reports that it has read, and waits for an answer. */
static bool sell(const char *locks, const char *where, int count, int say, int hear)
{
    struct store store;
    mortise_client *client = open_locks(locks);
    store_open(&store, where);
    mortise_lease *lease = take(client);
    int64_t amount = store_run(&store, look, 0, 0);
    char byte = 'x';
    if (say >= 0 && (write(say, &byte, 1) != 1 || read(hear, &byte, 1) != 1))
        die("pipe", "it is closed");
    bool sold = store_run(&store, fenced, amount - count, mortise_token(lease)) == 1;
    mortise_release(lease, NULL);
    mortise_close(client, NULL);
    store_close(&store);
    return sold;
}

/* The process that is stopped. Neither process has both ends of a pipe, so each notices if the other one is gone. */
static void sell_slowly(char **argv, const int said[2], const int heard[2])
{
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* nobody else would continue it */
    close(said[0]);
    close(heard[1]);
    _exit(sell(argv[1], argv[2], 1, said[1], heard[0]) ? TAKEN : REFUSED);
}

int main(int argc, char **argv)
{
    struct store store;
    int said[2], heard[2], status;
    char byte;
    signal(SIGPIPE, SIG_IGN); /* write() reports that the other process is gone */
    if (argc != 3 || pipe(said) != 0 || pipe(heard) != 0)
        die("usage", "fenced_update LOCKS STORE");
    store_open(&store, argv[2]);
    store_run(&store, make, 0, 0);
    store_run(&store, fill, 0, 0);
    store_close(&store);

    pid_t slow = fork(); /* before any client is opened: a client must not cross a fork */
    if (slow == 0)
        sell_slowly(argv, said, heard);
    close(said[1]);
    close(heard[0]);
    if (slow < 0 || read(said[0], &byte, 1) != 1) /* it has read the stock: 100 */
        die("the first process", "it did not get the lock");
    kill(slow, SIGSTOP);
    bool sold = sell(argv[1], argv[2], 10, -1, -1); /* waits until the first lease has expired */
    kill(slow, SIGCONT);
    if (write(heard[1], &byte, 1) != 1 || waitpid(slow, &status, 0) != slow)
        die("the first process", "it is gone");
    if (!WIFEXITED(status) || (WEXITSTATUS(status) != REFUSED && WEXITSTATUS(status) != TAKEN))
        die("the first process", "it failed");

    store_open(&store, argv[2]);
    int64_t left = store_run(&store, look, 0, 0);
    store_close(&store);
    bool refused = WEXITSTATUS(status) == REFUSED;
    printf("of %d, 10 were sold%s; the write of the holder that had been stopped was %s; %" PRId64
           " are left\n",
           IN_STOCK, sold ? "" : " (not!)", refused ? "refused" : "taken (!)", left);
    return sold && refused && left == IN_STOCK - 10 ? 0 : 1;
}
