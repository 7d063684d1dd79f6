/* mysql_floor.h - a cycle on MySQL by blocking libmariadb and nothing else: the driver's own two statements, on a connection that
 * is set like the driver's. A failure ends the program. */
#ifndef MORTISE_BENCH_MYSQL_FLOOR_H
#define MORTISE_BENCH_MYSQL_FLOOR_H

#include <mysql.h>
#include <stddef.h>

/* What they are, for one name; and what the driver sets on a new connection. */
struct mysql_statements {
    char settings[1024];
    char take[2048], give_head[1024], give_tail[1024]; /* between the latter two: the version */
};

/* user NULL: as the URL says, mysql://user@host:port/database. */
MYSQL *mysql_bare(const char *url, const char *user);
/* Makes a cycle on the name with a client of its own, and reads off the server's log what it has executed; that also proves
 * that a cycle is those two. The server's user `root` must need no password. */
void mysql_record(const char *url, const char *name, struct mysql_statements *statements);
/* On a connection on which the cycle is to be made. */
void mysql_set_alike(MYSQL *mysql, const struct mysql_statements *statements);
void mysql_floor_cycle(MYSQL *mysql, const struct mysql_statements *statements);
/* The first value that a statement returns. */
long long mysql_number(MYSQL *mysql, const char *statement);

#endif
