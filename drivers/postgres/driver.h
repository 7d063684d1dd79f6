/* driver.h - an instance of the PostgreSQL driver. What it sends, and what may be believed afterwards: protocol.md.
 *
 *   module.c      the module's table and options; opens and closes an instance
 *   dialect.c     the steps of drivers/lib/sql as statements, and their results
 *   sweep.c       rows that have been free for long
 *   ghost.c       lost connections whose backends may still be at work
 *   notify.c      notifications that are not part of another statement
 *   statement.c   a request goes to its connection
 *   link.c        a connection: made, lost, made again; what comes in on it
 *   setup.c       a new connection: who is there, the tables, the prepared statements
 *   flight.c      statements go out in groups, a transaction each, and what comes back
 *   locked.c      names whose rows somebody else keeps locked
 *   target.c      where the servers are: what libpq makes of the settings, and their addresses
 *   result.c      values of results; sql.c: the texts of the statements; args.c: what is bound to them
 *   fault.c       SQLSTATEs as statuses and messages */
#ifndef MORTISE_POSTGRES_DRIVER_H
#define MORTISE_POSTGRES_DRIVER_H

#include "hosts.h"
#include "link.h"

#define CHANNEL_SIZE 32
#define PAYLOAD_SIZE (2 * MORTISE_NAME_MAX + 1)
#define KNOWN_MAX 2048 /* names whose rows are known to be there */
#define LOCKED_MAX 32  /* names whose rows were locked lately */
#define SCHEMA_SIZE 64
#define NS_PER_MS SQL_NS_PER_MS

enum option {
    OPTION_CONNINFO,
    OPTION_PASSWORD,
    OPTION_SCHEMA,
    OPTION_POOLER,
    OPTION_CONNECT_TIMEOUT,
    OPTION_COMMAND_TIMEOUT,
    OPTION_LOCK_TIMEOUT,
    OPTION_RESERVE,
    OPTION_COUNT
};
enum pooler { POOLER_AUTO, POOLER_YES, POOLER_NO };

struct locked {
    uint32_t mark; /* the name's hash */
    int64_t until_ns;
};

struct driver {
    struct sql_locks locks;
    const mortise_value *values;
    const struct link_events *events;
    struct link main, live;
    uint64_t numbers;

    /* target.c */
    struct host_entry hosts[HOSTS_MAX];
    size_t host_count, asked_count;
    void (*resolved)(struct driver *driver); /* all addresses that can be found are here */
    struct address addresses[ADDRESSES_MAX];
    size_t address_count, first_address; /* which to begin with */
    bool defaults[DEFAULTS];             /* nobody says otherwise */
    char resolve_trouble[160];

    mortise_error trouble;    /* of the last connection that failed */
    char schema[SCHEMA_SIZE]; /* that the tables are in. setup.c */
    bool schema_found;        /* and it stays that */
    bool pooler_told;

    char channel[CHANNEL_SIZE];
    bool listen_wanted; /* somebody waits */
    bool live_wanted;   /* somebody renews */

    struct ghost *ghosts;
    int64_t ghost_ns;
    int64_t settled_ns; /* they write no more then. 0: there is none */

    int64_t sweep_ns;
    bool sweep_last; /* when it closes */
    bool sweep_goes_on;

    uint32_t known[KNOWN_MAX]; /* dialect.c: by hash. 0 */
    struct locked locked[LOCKED_MAX];
    int64_t locked_until_ns; /* none of them counts after that */
};

/* ---- result.c ---------------------------------------------------------------------------------- */

int64_t result_int8(const PGresult *result, int tuple, int column);
int64_t result_time(const PGresult *result, int tuple, int column); /* µs; 0: long ago */

/* ---- target.c ---------------------------------------------------------------------------------- */

mortise_status target_find(struct driver *driver, mortise_error *error);
void target_free(struct driver *driver);
/* Asks for the addresses; true: they are here (or there is nothing to look up). */
bool target_resolve(struct driver *driver);
/* They are tried in a circle. True: the one that this connection is at is passed by, the next begins behind. */
bool target_pass_by(struct driver *driver, const PGconn *conn);
/* Begins a connection to them; NULL: out of memory. */
PGconn *target_connect(struct driver *driver);

/* ---- locked.c ---------------------------------------------------------------------------------- */

/* How long one statement waits for a row: a part of lock_timeout. */
int64_t locked_slice_ms(const struct driver *driver);
/* It has waited for that in vain. True: it is to go out again, after the pause that it was given. */
bool locked_again(struct request *request, const char *name, size_t len);
bool locked_lately(struct driver *driver, const char *name, size_t len);

/* ---- dialect.c, notify.c, ghost.c, sweep.c ------------------------------------------------------------ */

extern const struct sql_dialect postgres_dialect;

/* CHANNEL_SIZE, PAYLOAD_SIZE */
void notify_channel(const struct rowlease_inbox *inbox, char *channel);
void notify_payload(const char *name, size_t name_len, char *payload);
enum sql_notified notify_inbox(struct sql_locks *locks, const struct rowlease_inbox *inbox,
                               const char *name, size_t name_len);
void notify_heard(struct driver *driver, const char *payload);

/* The link is lost with these requests in flight. */
void ghost_make(struct link *link, const struct request *requests);
bool ghost_has(const struct driver *driver, const mortise_grant_id *grant);
void ghost_turn(struct driver *driver);
int64_t ghost_due(const struct driver *driver);
void ghost_free(struct driver *driver);

void sweep_begin(struct driver *driver);
void sweep_turn(struct driver *driver);

#endif
