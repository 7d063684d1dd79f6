/* driver.h - an instance of the MySQL driver. What it sends, and what may be believed afterwards: protocol.md.
 *
 *   module.c      the module's table and options; opens and closes an instance
 *   dialect.c     the steps of drivers/lib/sql as statements, and their results
 *   sweep.c       rows that have been free for long
 *   ghost.c       lost connections whose sessions may still be at work
 *   statement.c   a request goes to its connection
 *   link.c        a connection: made, lost, made again; what comes in on it
 *   setup.c       a new connection: the settings, which server it is, the tables
 *   flight.c      statements go out in groups, and what comes back
 *   locked.c      names whose rows somebody else keeps locked
 *   target.c      where the servers are, and their addresses
 *   conn.c        a conversation by libmariadb's non-blocking calls
 *   text.c        values as literals; sql.c: the texts of the statements
 *   fault.c       the server's errors as statuses and messages */
#ifndef MORTISE_MYSQL_DRIVER_H
#define MORTISE_MYSQL_DRIVER_H

#include "hosts.h"
#include "link.h"

#define KNOWN_MAX 2048 /* names whose rows are known to be there */
#define LOCKED_MAX 32  /* names whose rows were locked lately */
#define NS_PER_MS SQL_NS_PER_MS

enum option {
    OPTION_HOST,
    OPTION_USER,
    OPTION_PASSWORD,
    OPTION_DATABASE,
    OPTION_SOCKET,
    OPTION_TLS,
    OPTION_TLS_CA,
    OPTION_TLS_CERT,
    OPTION_TLS_KEY,
    OPTION_DURABLE,
    OPTION_CONNECT_TIMEOUT,
    OPTION_COMMAND_TIMEOUT,
    OPTION_LOCK_TIMEOUT,
    OPTION_COUNT
};

struct locked {
    uint32_t mark; /* the name's hash */
    int64_t until_ns;
};

struct driver {
    struct sql_locks locks;
    const mortise_value *values;
    const char *section;
    const struct link_events *events;
    struct link main, live;
    uint64_t numbers;
    bool repeatable;  /* the server's log is by statement: see setup.c */
    char durable[96]; /* why the server may lose what it has committed; empty: it does not */

    /* target.c */
    struct host_entry hosts[HOSTS_MAX];
    size_t host_count, asked_count;
    void (*resolved)(struct driver *driver); /* all addresses that can be found are here */
    struct address addresses[ADDRESSES_MAX];
    size_t address_count;
    char resolve_trouble[160];

    mortise_error trouble; /* of the last connection that failed */
    bool live_wanted;      /* somebody renews */

    struct ghost *ghosts;
    int64_t ghost_ns;
    int64_t settled_ns; /* they write no more then. 0: there is none */

    int64_t sweep_ns;
    bool sweep_last; /* when it closes */

    uint32_t known[KNOWN_MAX]; /* dialect.c: by hash. 0 */
    struct locked locked[LOCKED_MAX];
    int64_t locked_until_ns; /* none of them counts after that */
};

/* ---- target.c ---------------------------------------------------------------------------------- */

mortise_status target_find(struct driver *driver, mortise_error *error);
/* Asks for the addresses; true: they are here (or there is nothing to look up). */
bool target_resolve(struct driver *driver);
/* What libmariadb needs for the address with that index. */
void target_describe(const struct driver *driver, size_t i, struct conn_target *target);

/* ---- locked.c ---------------------------------------------------------------------------------- */

/* It has waited for a row in vain. True: it is to go out again, after the pause that it was given. */
bool locked_again(struct request *request, const char *name, size_t len);
bool locked_lately(struct driver *driver, const char *name, size_t len);

/* ---- dialect.c, ghost.c, sweep.c ------------------------------------------------------------------ */

extern const struct sql_dialect mysql_dialect;

/* The link is lost with these requests in flight. */
void ghost_make(struct link *link, const struct request *requests);
bool ghost_has(const struct driver *driver, const mortise_grant_id *grant);
void ghost_turn(struct driver *driver);
int64_t ghost_due(const struct driver *driver);
void ghost_free(struct driver *driver);

void sweep_begin(struct driver *driver);
void sweep_turn(struct driver *driver);

#endif
