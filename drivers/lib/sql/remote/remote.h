/* remote.h - what the dialects of database servers share. A dialect of drivers/lib/sql that talks to a server over
 * connections consists of this folder, the client library's calls, the texts of its statements, and a table, struct
 * remote_dialect.
 *
 *   instance.c   what a module calls: start, interest, turn, close
 *   ops.c        what happens to the request of an op
 *   statement.c  a request goes to its connection
 *   queue.c      requests wait there, and form groups
 *   flight.c     a group goes out, and comes back committed or rolled back
 *   link.c       a connection: made, lost, made again
 *   hosts.c      the servers, and their addresses
 *   ghost.c      lost connections whose sessions may still be at work
 *   locked.c     names whose rows another session keeps locked
 *   known.c      names whose rows are known to exist
 *   sweep.c      when rows that have been free for long are deleted
 *   fault.c      errors and their texts
 *   text.c       statements as texts, with values as literals (text.h)
 *   binding.c    the values of a step, in the order in which all dialects bind them
 *   helper.c     a thread for what a client library cannot do without blocking (helper.h)
 *
 * A dialect embeds struct remote, struct link and struct request at the beginning of its own structures. */
#ifndef MORTISE_SQL_REMOTE_H
#define MORTISE_SQL_REMOTE_H

#include "../dialect.h"
#include "link.h"

#include <poll.h>

#define KNOWN_MAX 2048 /* names whose rows are known to exist */
#define LOCKED_MAX 32  /* names whose rows were locked lately */
#define HOSTS_MAX 16
#define HOST_SIZE 256
#define NS_PER_MS SQL_NS_PER_MS

struct host_entry {
    char name[HOST_SIZE], port[8];
    char address[64]; /* numeric, if no look-up is needed; "": a unix socket */
    bool look_up;
    bool asked;       /* the look-up is under way */
    int64_t found_ns; /* when its addresses came; 0: there are none, or an attempt has used them */
};

struct hosts {
    struct host_entry at[HOSTS_MAX];
    size_t count, asked_count;
    struct addresses found; /* by the last look-ups, some of which may still be under way */
    char trouble[160];      /* why there is no address */
};

struct locked {
    uint32_t mark; /* the name's hash */
    int64_t until_ns;
};

enum ghost_answer { GHOST_GONE, GHOST_THERE, GHOST_ASKED };

/* Called in the pump. A NULL slot is left out only if its comment says so. */
struct remote_dialect {
    const char *name; /* of the driver, in errors */
    size_t group_max, group_bytes;

    /* Connections. */
    /* The link is CONNECTING: begins a connection to link->address, or to all addresses (see pass_by). On failure
     * it calls link_failed. When the connection is made, the dialect sets it up, and calls link_ready. */
    void (*connect)(struct link *link);
    /* NULL: each connect is for one address, and if that fails or is silent, the next address is tried. Otherwise the client
     * library tries all addresses. This slot is called when its present address is silent, and makes the next attempt begin
     * with the address behind it. False: that is impossible. */
    bool (*pass_by)(struct link *link);
    /* Frees the connection, if there is one. */
    void (*close)(struct link *link);
    short (*events)(const struct link *link); /* to poll link->fd for */
    /* The descriptor is ready. */
    void (*come_in)(struct link *link, short events);
    /* Called while nothing is in flight. False: the server had closed the connection, and the link is lost by now. */
    bool (*is_there)(struct link *link);
    const char *(*where)(const struct link *link, char *text, size_t size); /* "host:port" */
    /* Whether something other than requests needs the connection; NULL: nothing does. */
    bool (*is_wanted)(const struct link *link);
    void (*ready)(struct link *link); /* NULL: nothing to do */

    /* Groups. */
    /* Whether a group of that lane may go out now, if there is something for it. */
    bool (*is_open)(const struct link *link, enum lane lane);
    /* The bytes that a request adds to a group. request NULL: the bytes of a group without its requests. */
    size_t (*size)(const struct link *link, const struct request *request);
    /* False: the link was lost. */
    bool (*send)(struct link *link, struct group *group);
    /* Frees the result of a request. */
    void (*forget)(struct request *request);
    /* Sends other things that are due; NULL: the dialect has none. */
    void (*go)(struct remote *remote);

    /* Ghosts. */
    /* Asks whether that session exists; may also end it. False: out of memory. */
    bool (*ghost_look)(struct request *request, const struct session *session);
    /* Judges by the result. ASKED: the request was sent again. */
    enum ghost_answer (*ghost_take)(struct request *request, const struct session *session);
    /* If the session of that connection is not known: for how long the server may still execute what it was sent.
     * Otherwise 0. NULL: sessions are always known. */
    int64_t (*lingers_ns)(const struct link *link, int64_t now_ns);

    /* Begins to delete rows that have been free for long, if the fleet has not done it lately; see sweep.c. One request does
     * all of it. NULL: out of memory. */
    struct request *(*sweep)(struct remote *remote);
};

/* Options that all of them have. */
#define REMOTE_CONNECT_TIMEOUT                                                                     \
    {                                                                                              \
        .key = "connect_timeout", .type = MORTISE_OPTION_DURATION, .default_text = "5s",           \
        .minimum = 50, .maximum = 600000, .help = "how long an attempt to connect may take"        \
    }
#define REMOTE_COMMAND_TIMEOUT                                                                     \
    {                                                                                              \
        .key = "command_timeout", .type = MORTISE_OPTION_DURATION, .default_text = "5s",           \
        .minimum = 50, .maximum = 600000,                                                          \
        .help = "how long a statement may take; if the server does not answer in that time, the "  \
                "connection is closed"                                                             \
    }
#define REMOTE_LOCK_TIMEOUT                                                                        \
    {                                                                                              \
        .key = "lock_timeout", .type = MORTISE_OPTION_DURATION, .default_text = "1s",              \
        .minimum = 1, .maximum = 600000,                                                           \
        .help = "how long a request waits for a row that another session keeps locked"             \
    }

/* An instance: the beginning of the dialect's structure, which calloc() made. */
struct remote {
    struct sql_locks locks;
    const struct remote_dialect *dialect;
    int64_t connect_ms, command_ms, lock_ms; /* the options …_timeout */
    int64_t pause_ms;                        /* the first pause between attempts at a locked row */
    struct link *main, *live;
    uint64_t numbers;
    struct hosts hosts;
    mortise_error trouble; /* of the last connection that failed */
    bool live_wanted;      /* a lease is to be renewed */

    struct ghost *ghosts;
    int64_t ghost_ns;
    int64_t settled_ns; /* when ghosts write no more. 0: there is no ghost */

    int64_t sweep_ns;
    bool sweep_last;                   /* sweep when the client closes */
    struct request *sweep;             /* the one under way; or NULL */
    bool sweeps_last;                  /* the one under way began with the close */
    char sweep_from[MORTISE_NAME_MAX]; /* the next stretch begins behind this name */
    size_t sweep_from_len;

    uint32_t known[KNOWN_MAX]; /* by hash. 0 */
    struct locked locked[LOCKED_MAX];
    int64_t locked_until_ns; /* no entry counts after that */
};

static inline int64_t remote_now(const struct remote *remote)
{
    return remote->locks.host->now(remote->locks.host);
}

/* ---- instance.c: slots of the module, whose ctx is the instance --------------------------------- */

/* Sets all fields but the options. */
void remote_init(struct remote *remote, mortise_host *host, const struct remote_dialect *dialect,
                 const struct sql_dialect *locks, int64_t reserve_ms);
void remote_start(void *ctx, mortise_op **ops, size_t n);
void remote_cancel(void *ctx, mortise_op *op);
void remote_watch(void *ctx, const char *name, size_t name_len);
void remote_unwatch(void *ctx, const char *name, size_t name_len);
size_t remote_interest(void *ctx, struct pollfd *fds, size_t capacity, int64_t *due_ns);
void remote_turn(void *ctx, const struct pollfd *ready, size_t n);
/* Sends what can go. Call it at the end of each task that is posted to the pump. */
void remote_go(struct remote *remote);
/* Ends all requests and the connections, and frees the instance. */
void remote_close(void *ctx);
/* Frees an instance that was not opened. */
void remote_free(struct remote *remote);

/* ---- ops.c: for the tables of the dialect ------------------------------------------------------- */

void op_sending(struct request *request);
void op_failed(struct request *request, const struct fault *fault);
void op_lost(struct request *request, bool sent);
/* Slots of struct sql_dialect. */
void op_cancel(struct sql_request *base);
const char *op_where(const struct sql_request *base, char *text, size_t size);
/* Makes a READ pause after the second WRITE in vain. The pause grows and is random, because clients that write the same
 * row at the same time would all get in each other's way. */
void op_pause(struct request *request);
/* A slot of struct sql_dialect, for a dialect whose READs pause. */
void op_hasten(struct sql_locks *locks, const char *name, size_t name_len, int64_t far_ns,
               int64_t due_ns);

/* ---- binding.c ---------------------------------------------------------------------------------- */

/* How a dialect takes values; `to` is its own. Bytes are not copied; a NULL pointer is bound as null. Spans and times are
 * in µs; 0: no time. */
struct binder {
    void (*number)(void *to, int64_t number);
    void (*span)(void *to, int64_t us);
    void (*time)(void *to, int64_t us);
    void (*bytes)(void *to, const void *bytes, size_t len);
};

/* TAKE: name, token floor, grant, ttl, note or null */
void bind_take(const struct binder *binder, void *to, const struct request *request);
/* EXTEND, GIVE: name, token, grant */
void bind_claim(const struct binder *binder, void *to, const struct request *request);
void bind_name(const struct binder *binder, void *to, const struct request *request);
/* WRITE: version, owner, grants, held since, expires, waiters, note */
void bind_row(const struct binder *binder, void *to, const struct rowlease_row *row);
/* LIST: from, before or null. `end` is MORTISE_NAME_MAX bytes that must outlive the statement. */
void bind_list(const struct binder *binder, void *to, const struct request *request, char *end);
/* RECORD_WRITE: name, value, version if there is one */
void bind_record(const struct binder *binder, void *to, const struct request *request);

/* ---- statement.c -------------------------------------------------------------------------------- */

/* A request of the dialect's own; NULL: out of memory. */
struct request *statement_new(struct remote *remote, const struct handler *handler);
void statement_free(struct request *request);
/* A slot of its handler. */
void statement_lost(struct request *request, bool sent);
/* Puts the request into a queue of its connection; flight_go() sends it from there. */
void statement_queue(struct request *request, enum lane lane);

/* ---- hosts.c ------------------------------------------------------------------------------------ */

/* Reads "db1, db1:3307, [::1]:3307": hosts to look up, with the default port. Returns NULL, or what is wrong with the list. */
const char *hosts_read(struct hosts *hosts, const char *list, const char *port);
/* Asks for the addresses that are not here: resolved() is called later, for each of hosts->asked_count names. */
void hosts_resolve(struct remote *remote, mortise_resolved resolved);
/* `resolved` calls it first. */
void hosts_found(struct remote *remote, void *argument, const struct addrinfo *found,
                 const char *problem);
/* The addresses that were found so far. They serve one attempt. */
void hosts_take(struct hosts *hosts, struct addresses *addresses);
/* Whether no network is between this host and that one. */
bool host_is_local(const char *name);

/* ---- ghost.c, locked.c, known.c, sweep.c -------------------------------------------------------- */

/* The link is lost with these requests in flight. */
void ghost_make(const struct link *link, const struct request *requests);
/* The first connection is being lost: drops the looks that are queued for it and not sent, because they must not go to the
 * next one. */
void ghost_unsent(struct remote *remote);
bool ghost_has(const struct remote *remote, const mortise_grant_id *grant);
void ghost_turn(struct remote *remote);
int64_t ghost_due(const struct remote *remote);
void ghost_free(struct remote *remote);

/* The server ended the request's wait for a row. True: the request must go out again, after a pause that this function has
 * set. */
bool locked_again(struct request *request);
bool locked_lately(const struct remote *remote, const char *name, size_t len);

/* Whether the row of that acquire is known to exist. A wrong `true` costs one more READ. */
bool known_has(const struct remote *remote, const mortise_op *op);
void known_note(const struct request *request, bool there);

void sweep_begin(struct remote *remote);
void sweep_turn(struct remote *remote);
/* The dialect asks between its statements whether to go on. False: the client closes, and does not wait for the sweep. */
bool sweep_goes_on(const struct remote *remote);
/* The next stretch begins behind that name. False: the sweep has nothing more to do. */
bool sweep_next(struct remote *remote, const char *name, size_t len);
/* The sweep is over; frees the request. */
void sweep_over(struct request *request);
/* Slots of its handler, if the statement may fail. */
void sweep_failed(struct request *request, const struct fault *fault);
void sweep_lost(struct request *request, bool sent);

/* ---- fault.c ------------------------------------------------------------------------------------ */

mortise_status fault_error(mortise_error *error, const char *driver, mortise_status status,
                           int native, bool retryable, const char *format, ...)
    __attribute__((format(printf, 6, 7)));
/* Makes one line of a client library's message, which may have several lines. */
void fault_line(const char *text, char *line, size_t size);

#endif
