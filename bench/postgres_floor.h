/* postgres_floor.h - a cycle on PostgreSQL by blocking libpq and nothing else: the driver's own two statements,
 * prepared and bound as it does. A failure ends the program. */
#ifndef MORTISE_BENCH_POSTGRES_FLOOR_H
#define MORTISE_BENCH_POSTGRES_FLOOR_H

#include <libpq-fe.h>
#include <stdint.h>

/* What they are, as text: read off the server, which tells what a session has executed last; that also proves that a
 * cycle is those two. */
struct postgres_statements {
    char take[1024], give[1024];
};

PGconn *postgres_connect(const char *url);
/* result's status is this one; it is freed. */
void postgres_need(PGconn *conn, PGresult *result, ExecStatusType status, const char *doing);
void postgres_prepare(PGconn *conn, const char *name, const char *text);

/* Makes cycles on a name with a client of its own. The driver's table is there then. */
void postgres_record(const char *url, struct postgres_statements *statements);
/* Prepares both as "take" and "give". */
void postgres_floor_prepare(PGconn *conn, const struct postgres_statements *statements);
/* Its row must be there: a client has had the name. */
void postgres_floor_cycle(PGconn *conn, const char *name);

/* One of them: with the values that the driver binds, of which `give` takes the first `count`. */
int64_t postgres_take(PGconn *conn, const char *statement, const char *name, int64_t number);
void postgres_give(PGconn *conn, const char *statement, const char *name, int64_t token, int count);
/* Another statement on a name; the first value of its one row. */
int64_t postgres_look(PGconn *conn, const char *statement, const char *name);

#endif
