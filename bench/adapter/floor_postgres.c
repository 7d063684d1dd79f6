/* floor_postgres.c - the bare floors on PostgreSQL, as an adapter (adapter.h): the driver's own two statements by
 * blocking libpq (../postgres_floor.h), a connection for each thread; for a name that all want, a session's advisory
 * lock, which is no lease and has no token. The address is a URL of libpq. */
#include "../common.h"
#include "../postgres_floor.h"
#include "adapter.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define OWN_NAME "floor-%d/%u" /* of this process */

static const char *address;
static struct postgres_statements statements;
static pthread_mutex_t learning = PTHREAD_MUTEX_INITIALIZER;

struct own {
    PGconn *conn;
    char name[32];
    bool learnt;
} owns[256];

static const char *open_server(const char *where)
{
    static char version[64];
    int number = PQlibVersion();
    address = where;
    snprintf(version, sizeof(version), "libpq %d.%d", number / 10000, number % 10000);
    return version;
}

static void *open_worker(unsigned number)
{
    struct own *own = &owns[number];
    snprintf(own->name, sizeof(own->name), OWN_NAME, (int)getpid(), number);
    own->conn = postgres_connect(address);
    return own;
}

/* Learns what the driver executes, and makes a row. Only if that is measured: the advisory lock needs neither. */
static void learn(struct own *own)
{
    static bool learnt;
    pthread_mutex_lock(&learning);
    if (!learnt)
        postgres_record(address, &statements);
    learnt = true;
    mortise_client *client = bench_open(address);
    bench_release(bench_acquire(client, own->name, NULL)); /* makes the row */
    bench_close(client);
    pthread_mutex_unlock(&learning);
    postgres_floor_prepare(own->conn, &statements);
    own->learnt = true;
}

static void cycle(void *worker, const char *name)
{
    struct own *own = worker;
    (void)name;
    if (!own->learnt) /* in the warm-up */
        learn(own);
    postgres_floor_cycle(own->conn, own->name);
}

static void advise(PGconn *conn, const char *statement, const char *name)
{
    postgres_need(conn, PQexecParams(conn, statement, 1, NULL, &name, NULL, NULL, 0),
                  PGRES_TUPLES_OK, "advisory lock");
}

static bool lock(void *worker, const char *name, void **held)
{
    (void)held;
    advise(((struct own *)worker)->conn, "SELECT pg_advisory_lock(hashtext($1))", name);
    return true;
}

static void unlock(void *worker, const char *name, void *held)
{
    (void)held;
    advise(((struct own *)worker)->conn, "SELECT pg_advisory_unlock(hashtext($1))", name);
}

int main(int argc, char **argv)
{
    return adapter_main(argc, argv,
                        &(struct adapter){.name = "floor_postgres",
                                          .open = open_server,
                                          .worker = open_worker,
                                          .cycle = cycle,
                                          .take = lock,
                                          .give = unlock});
}
