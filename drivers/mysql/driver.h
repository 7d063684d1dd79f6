/* driver.h - an instance of the MySQL driver. What it sends, and what may be believed afterwards: protocol.md. Connections,
 * queues and groups are those of ../lib/sql/remote.
 *
 *   module.c      the module's table and options; opens and closes an instance
 *   dialect.c     the steps of drivers/lib/sql as statements, and their results
 *   chores.c      statements of the driver's own: rows that have been free for long, sessions of lost connections
 *   group.c       a group as one text, and the results of its statements
 *   connection.c  makes a connection, and takes what comes in on it
 *   setup.c       a new connection: the settings, which server it is, the tables
 *   target.c      turns the options into servers, and into libmariadb's arguments
 *   conn.c        a conversation by libmariadb's non-blocking calls; handshake.c:
 *                 one with TLS is made on a thread
 *   sql.c         the texts of the statements
 *   findings.c    what a ping adds for `mortise doctor`
 *   fault.c       the server's errors as statuses and messages */
#ifndef MORTISE_MYSQL_DRIVER_H
#define MORTISE_MYSQL_DRIVER_H

#include "../lib/sql/remote/remote.h"
#include "../lib/sql/remote/text.h"
#include "conn.h"
#include "sql.h"

#define DRIVER_NAME "mysql"
#define GROUP_BYTES 200000 /* of a group's text: far below max_allowed_packet */

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

/* UNDONE: if the COMMIT failed with this error, the transaction was rolled back. */
enum { FAULT_UNDONE = FAULT_OWN };
enum setup_phase { SETUP_IDENTIFY, SETUP_MAKE, SETUP_LAYOUT };

struct my_request {
    struct request request;
    enum text_id id;
    struct text text;
    /* the result, kept until the commit: the rows of the last statement, and of the one before it */
    MYSQL_RES *rows, *rows_before;
    unsigned long long touched, insert_id;
    int64_t revision; /* the revision of the row that was last read */
};

struct my_link {
    struct link link;
    struct conn conn;
    struct text out; /* what is being sent */
    /* setup.c */
    enum setup_phase phase;
    size_t setup_at;
    unsigned seen;
    bool galera;
    bool lacks_tables; /* or their first content */
    bool made_tables;
    /* group.c: the group in flight */
    size_t request_at;    /* whose result comes next */
    unsigned part_at;     /* and of which of its statements */
    size_t got, expected; /* results */
    bool transaction;     /* it has BEGIN and COMMIT */
    bool stale;           /* the server has become read-only */
};

struct driver {
    struct remote remote;
    const mortise_value *values;
    const char *section; /* only while it is being opened */
    struct my_link main, live;
    char durable[96]; /* why the server may lose commits; empty: it does not */
    /* chores.c: where the stretch that is being swept ends */
    char sweep_end[MORTISE_NAME_MAX];
    size_t sweep_end_len;
    bool sweep_ends;      /* it is the last stretch */
    bool sweep_noted;     /* the database has a note of the sweep's progress */
    unsigned sweep_count; /* of stretches */
};

static inline struct driver *driver_of(const struct link *link)
{
    return (struct driver *)link->remote;
}

static inline struct my_link *my_link(struct link *link)
{
    return (struct my_link *)link;
}

static inline const struct my_link *my_link_const(const struct link *link)
{
    return (const struct my_link *)link;
}

static inline struct my_request *my_request(struct request *request)
{
    return (struct my_request *)request;
}

static inline const struct my_request *my_request_const(const struct request *request)
{
    return (const struct my_request *)request;
}

/* ---- target.c ---------------------------------------------------------------------------------- */

mortise_status target_find(struct driver *driver, mortise_error *error);
bool target_is_socket(const struct driver *driver);
/* Fills libmariadb's arguments for the address with that index. */
void target_describe(const struct driver *driver, const struct address *address,
                     struct conn_target *target);

/* ---- dialect.c, fault.c ------------------------------------------------------------------------ */

extern const struct sql_dialect mysql_dialect;

void fault_read(MYSQL *mysql, struct fault *fault);

/* ---- findings.c -------------------------------------------------------------------------------- */

/* Adds findings about the settings to the answer of a ping. settings: a text for each enum setting; there are `count`. */
void findings_add(const mortise_op *op, const char *const *settings, unsigned count);

/* ---- chores.c: slots of struct remote_dialect --------------------------------------------------- */

bool ghost_look(struct request *request, const struct session *session);
enum ghost_answer ghost_take(struct request *request, const struct session *session);
struct request *sweep(struct remote *remote);

/* ---- group.c ----------------------------------------------------------------------------------- */

/* Makes the request's text from that statement and these values, and puts the request into a queue. False: out of
 * memory, and nothing has happened. */
bool statement_send(struct request *request, enum text_id id, const struct values *values);
void statement_forget(struct request *request);
size_t group_size(const struct link *link, const struct request *request);
bool group_is_open(const struct link *link, enum lane lane);
bool group_send(struct link *link, struct group *group);
bool group_event(struct link *link, enum conn_event event);

/* ---- connection.c: slots of struct remote_dialect ----------------------------------------------- */

void connection_begin(struct link *link);
void connection_end(struct link *link);
short connection_events(const struct link *link);
void connection_come_in(struct link *link, short events);
bool connection_is_there(struct link *link);
const char *connection_where(const struct link *link, char *text, size_t size);

/* ---- setup.c ----------------------------------------------------------------------------------- */

void setup_begin(struct link *link);
/* False: by now there is another connection, or none. */
bool setup_event(struct link *link, enum conn_event event);

#endif
