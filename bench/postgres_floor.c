/* postgres_floor.c - the statements of a cycle by bare libpq; see postgres_floor.h. They are not written down here:
 * the server reports what the driver has executed. This file chooses the values that are bound to them. */
#include "postgres_floor.h"

#include "common.h"

#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GRANT "0123456789abcdef"
#define NOTE "bench: bare"

PGconn *postgres_connect(const char *url)
{
    PGconn *conn = PQconnectdb(url);
    if (PQstatus(conn) != CONNECTION_OK)
        bench_die("%s", PQerrorMessage(conn));
    return conn;
}

void postgres_need(PGconn *conn, PGresult *result, ExecStatusType status, const char *doing)
{
    if (PQresultStatus(result) != status)
        bench_die("%s: %s", doing, PQerrorMessage(conn));
    PQclear(result);
}

void postgres_prepare(PGconn *conn, const char *name, const char *text)
{
    postgres_need(conn, PQprepare(conn, name, text, 0, NULL), PGRES_COMMAND_OK, name);
}

/* What the driver bound: a number in network order, or its bytes. */
struct bound {
    const char *values[5];
    int lengths[5], count;
    int64_t number;
    int64_t interval[2]; /* µs, then days and months */
};

static void bind(struct bound *bound, const char *name, int64_t number, int64_t interval_us)
{
    bound->number = (int64_t)htobe64((uint64_t)number);
    bound->interval[0] = (int64_t)htobe64((uint64_t)interval_us);
    bound->interval[1] = 0;
    const char *const values[] = {name, (char *)&bound->number, GRANT, (char *)bound->interval};
    const int lengths[] = {(int)strlen(name), 8, 16, 16};
    memcpy(bound->values, values, sizeof(values));
    memcpy(bound->lengths, lengths, sizeof(lengths));
    bound->count = 4;
}

static void bind_more(struct bound *bound, const char *bytes, size_t len)
{
    bound->values[bound->count] = bytes;
    bound->lengths[bound->count++] = (int)len;
}

/* Returns the first value of the only row, if it is a number. */
static int64_t run(PGconn *conn, const char *name, const struct bound *bound, int count)
{
    static const int formats[] = {1, 1, 1, 1, 1};
    uint64_t number = 0;
    PGresult *result = PQexecPrepared(conn, name, count, bound->values, bound->lengths, formats, 1);
    if (PQntuples(result) != 1)
        bench_die("%s: %s", name, PQerrorMessage(conn));
    if (PQgetlength(result, 0, 0) == 8)
        memcpy(&number, PQgetvalue(result, 0, 0), 8);
    postgres_need(conn, result, PGRES_TUPLES_OK, name);
    return (int64_t)be64toh(number);
}

int64_t postgres_take(PGconn *conn, const char *statement, const char *name, int64_t number)
{
    struct bound bound;
    bind(&bound, name, number, 30000000);
    bind_more(&bound, NOTE, sizeof(NOTE) - 1);
    return run(conn, statement, &bound, 5);
}

void postgres_give(PGconn *conn, const char *statement, const char *name, int64_t token, int count)
{
    struct bound bound;
    bind(&bound, name, token, 50000);
    bind_more(&bound, "\1", 1); /* notify a waiter */
    run(conn, statement, &bound, count);
}

int64_t postgres_look(PGconn *conn, const char *statement, const char *name)
{
    struct bound bound;
    bind(&bound, name, 0, 0);
    return run(conn, statement, &bound, 1);
}

/* ---- what the driver does ---- */

/* The last statement of that session. */
static void last_of(PGconn *conn, const char *session, const char *begin, char *text, size_t size)
{
    PGresult *result =
        PQexecParams(conn, "SELECT query FROM pg_stat_activity WHERE application_name = $1", 1,
                     NULL, &session, NULL, NULL, 0);
    if (PQntuples(result) != 1 || strncmp(PQgetvalue(result, 0, 0), begin, strlen(begin)) != 0)
        bench_die("the driver executes something else: %s", PQgetvalue(result, 0, 0));
    if ((size_t)snprintf(text, size, "%s", PQgetvalue(result, 0, 0)) >= size)
        bench_die("the driver's statement is longer than %zu", size);
    PQclear(result);
}

/* A client whose session can be distinguished from all others, and the name of a lock that nobody else wants. */
static mortise_client *open_named(const char *url, char *session, size_t size)
{
    snprintf(session, size, "floor-%d", (int)getpid());
    setenv("PGAPPNAME", session, 1);
    mortise_client *client = bench_open(url);
    bench_release(bench_acquire(client, session, NULL)); /* makes the table and the row */
    unsetenv("PGAPPNAME");
    return client;
}

void postgres_record(const char *url, struct postgres_statements *statements)
{
    char session[64];
    PGconn *conn = postgres_connect(url);
    mortise_client *client = open_named(url, session, sizeof(session));
    mortise_lease *lease = bench_acquire(client, session, NULL);
    last_of(conn, session, "UPDATE mortise_lock SET version", statements->take,
            sizeof(statements->take));
    bench_release(lease);
    last_of(conn, session, "UPDATE mortise_lock SET grants", statements->give,
            sizeof(statements->give));
    bench_close(client);
    PQfinish(conn);
}

void postgres_floor_prepare(PGconn *conn, const struct postgres_statements *statements)
{
    postgres_prepare(conn, "take", statements->take);
    postgres_prepare(conn, "give", statements->give);
}

void postgres_floor_cycle(PGconn *conn, const char *name)
{
    postgres_give(conn, "give", name, postgres_take(conn, "take", name, 0), 5);
}
