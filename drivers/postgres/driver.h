/* driver.h - an instance of the PostgreSQL driver. What it sends, and what may be believed afterwards: protocol.md.
 * Connections, queues and groups are those of ../lib/sql/remote.
 *
 *   module.c      the module's table and options; opens and closes an instance
 *   dialect.c     the steps of drivers/lib/sql as statements, and their results
 *   chores.c      statements of the driver's own: rows that have been free for long, backends of lost connections
 *   notify.c      notifications that are not part of another statement
 *   group.c       a group as a pipeline, and the results of its statements
 *   connection.c  makes a connection, and takes what comes in on it
 *   setup.c       a new connection: which backend it is, the tables, the prepared statements
 *   target.c      where the servers are, according to libpq's settings
 *   sql.c         the texts of the statements; args.c: the bound values
 *   fault.c       SQLSTATEs as statuses and messages */
#ifndef MORTISE_POSTGRES_DRIVER_H
#define MORTISE_POSTGRES_DRIVER_H

#include "../lib/sql/remote/remote.h"
#include "args.h"
#include "sql.h"

#include <libpq-fe.h>

#define DRIVER_NAME "postgres"
#define CHANNEL_SIZE 32
#define PAYLOAD_SIZE (2 * MORTISE_NAME_MAX + 1)
#define SCHEMA_SIZE 64
#define PIPELINE_MAX 56   /* statements in one transaction */
#define GROUP_BYTES 7500  /* of a group on the wire: below libpq's 8192 */
#define LAZY_GROUPS_MAX 3 /* in flight on one link */
_Static_assert(PIPELINE_MAX <= GROUP_MAX && LAZY_GROUPS_MAX + 2 <= GROUPS_MAX, "they fit");

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
enum setup_phase { SETUP_IDENTIFY, SETUP_MAKE, SETUP_PREPARE, SETUP_LISTEN };
/* Settings of libpq that have other defaults here. */
enum { DEFAULT_GSSENCMODE = 5, DEFAULTS = 6 };

struct pg_request {
    struct request request;
    enum text text;
    struct args args;
    PGresult *result; /* kept until the end of its transaction */
};

struct pg_link {
    struct link link;
    PGconn *conn;
    short events;               /* to poll for */
    bool pooled;                /* a pooler is between us and the backend */
    int64_t clock_us, clock_ns; /* the server's clock was at least this at that instant of ours */
    /* setup.c */
    enum setup_phase phase;
    size_t setup_at, setup_count;
    bool setup_got, tables_missing;
    bool listens; /* the setup has included LISTEN */
    /* group.c */
    size_t
        at; /* which result of the returning group is next, counting those before and after the requests' */
    bool got; /* a result of that statement was seen */
    bool unflushed;
    bool unconfirmed; /* an answered commit is not on the standby: see protocol.md */
};

struct driver {
    struct remote remote;
    const mortise_value *values;
    struct pg_link main, live;

    size_t first_address;     /* the address to begin with */
    bool defaults[DEFAULTS];  /* no setting overrides it */
    char schema[SCHEMA_SIZE]; /* the schema of the tables: setup.c */
    bool schema_found;        /* from then on, it stays the same */
    bool pooler_seen;         /* a connection went through a pooler */
    char channel[CHANNEL_SIZE];
    bool listen_wanted; /* a caller waits */
};

static inline struct driver *driver_of(const struct link *link)
{
    return (struct driver *)link->remote;
}

static inline struct pg_link *pg_link(struct link *link)
{
    return (struct pg_link *)link;
}

static inline const struct pg_link *pg_link_const(const struct link *link)
{
    return (const struct pg_link *)link;
}

static inline struct pg_request *pg_request(struct request *request)
{
    return (struct pg_request *)request;
}

static inline const struct pg_request *pg_request_const(const struct request *request)
{
    return (const struct pg_request *)request;
}

/* ---- target.c ---------------------------------------------------------------------------------- */

mortise_status target_find(struct driver *driver, mortise_error *error);
/* Addresses are tried in a circle. True: the next attempt begins behind the present address of this connection. */
bool target_pass_by(struct driver *driver, const struct addresses *addresses, const PGconn *conn);
/* Begins a connection to these addresses. NULL: out of memory. */
PGconn *target_connect(struct driver *driver, const struct addresses *addresses);

/* ---- dialect.c, notify.c, fault.c --------------------------------------------------------------- */

extern const struct sql_dialect postgres_dialect;

/* CHANNEL_SIZE, PAYLOAD_SIZE */
void notify_channel(const struct rowlease_inbox *inbox, char *channel);
void notify_payload(const char *name, size_t name_len, char *payload);
enum sql_notified notify_inbox(struct sql_locks *locks, const struct rowlease_inbox *inbox,
                               const char *name, size_t name_len);
void notify_heard(struct driver *driver, const char *payload);

void fault_read(const PGresult *result, struct fault *fault);

/* ---- chores.c: slots of struct remote_dialect --------------------------------------------------- */

bool ghost_look(struct request *request, const struct session *session);
enum ghost_answer ghost_take(struct request *request, const struct session *session);
int64_t ghost_lingers_ns(const struct link *link, int64_t now_ns);
struct request *sweep(struct remote *remote);

/* ---- group.c ----------------------------------------------------------------------------------- */

/* Puts a request, whose arguments are bound, into the queue of its lane. */
void statement_send(struct request *request, enum text text, enum lane lane);
void statement_forget(struct request *request);
size_t group_size(const struct link *link, const struct request *request);
bool group_is_open(const struct link *link, enum lane lane);
bool group_send(struct link *link, struct group *group);
bool group_flush(struct link *link);
/* How long a group behind a pooler may take. */
int64_t group_patience_ns(const struct remote *remote);
/* Takes a result, or NULL, from libpq. False: the connection is gone by now. */
bool group_result(struct link *link, PGresult *result);
int64_t result_int8(const PGresult *result, int tuple, int column);
int64_t result_time(const PGresult *result, int tuple, int column); /* µs; 0: long ago */

/* ---- connection.c: slots of struct remote_dialect ----------------------------------------------- */

void connection_begin(struct link *link);
bool connection_pass_by(struct link *link);
void connection_end(struct link *link);
short connection_events(const struct link *link);
void connection_come_in(struct link *link, short events);
bool connection_is_there(struct link *link);
const char *connection_where(const struct link *link, char *text, size_t size);
/* Fails a link that is not READY yet, with libpq's reason. */
void connection_failed(struct link *link);

/* ---- setup.c ----------------------------------------------------------------------------------- */

void setup_begin(struct link *link);
/* Sends LISTEN on a connection that was made without it, as soon as nothing is in flight. */
void setup_listen(struct link *link);
/* As group_result. */
bool setup_result(struct link *link, PGresult *result);

#endif
