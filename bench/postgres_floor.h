/* postgres_floor.h - a cycle on PostgreSQL by blocking libpq and nothing else: the driver's own two statements,
 * prepared and bound as it does. A failure ends the program. */
#ifndef MORTISE_BENCH_POSTGRES_FLOOR_H
#define MORTISE_BENCH_POSTGRES_FLOOR_H

#include <libpq-fe.h>
#include <stdint.h>

/* The two statements, as text that is read from the server, which shows the last statement of a session. That also
 * proves that a cycle consists of those two. */
struct postgres_statements {
    char take[1024], give[1024];
};

PGconn *postgres_connect(const char *url);
/* Ends the program unless the result has this status; frees the result. */
void postgres_need(PGconn *conn, PGresult *result, ExecStatusType status, const char *doing);
void postgres_prepare(PGconn *conn, const char *name, const char *text);

/* Makes cycles on a name with a client of its own. After that, the driver's table exists. */
void postgres_record(const char *url, struct postgres_statements *statements);
/* Prepares both as "take" and "give". */
void postgres_floor_prepare(PGconn *conn, const struct postgres_statements *statements);
/* The name's row must exist, because a client has acquired the name before. */
void postgres_floor_cycle(PGconn *conn, const char *name);

/* Each runs one of the statements, with the values that the driver binds; `give` takes the first `count` of them. */
int64_t postgres_take(PGconn *conn, const char *statement, const char *name, int64_t number);
void postgres_give(PGconn *conn, const char *statement, const char *name, int64_t token, int count);
/* Runs another statement on a name; returns the first value of its only row. */
int64_t postgres_look(PGconn *conn, const char *statement, const char *name);

#endif
