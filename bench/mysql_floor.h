/* mysql_floor.h - a cycle on MySQL by blocking libmariadb and nothing else: the driver's own two statements, on a connection
 * with the driver's settings. A failure ends the program. */
#ifndef MORTISE_BENCH_MYSQL_FLOOR_H
#define MORTISE_BENCH_MYSQL_FLOOR_H

#include <mysql.h>
#include <stddef.h>

/* The two statements, for one name; and the driver's settings of a new connection. */
struct mysql_statements {
    char settings[1024];
    char take[2048], give_head[1024], give_tail[1024]; /* the version goes between the latter two */
};

/* user NULL: the user in the URL, mysql://user@host:port/database. */
MYSQL *mysql_bare(const char *url, const char *user);
/* Makes a cycle on the name with a client of its own, and reads the executed statements from the server's log. That also
 * proves that a cycle consists of those two. The server's user `root` must need no password. */
void mysql_record(const char *url, const char *name, struct mysql_statements *statements);
/* Makes the driver's settings on a connection that will run the cycle. */
void mysql_set_alike(MYSQL *mysql, const struct mysql_statements *statements);
void mysql_floor_cycle(MYSQL *mysql, const struct mysql_statements *statements);
/* The first value that a statement returns. */
long long mysql_number(MYSQL *mysql, const char *statement);

#endif
