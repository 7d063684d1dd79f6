/* internal.h - the PostgreSQL driver's own structures, and which file does what with them.
 *
 *   module.c      the module's table and options; opens and closes an instance
 *   target.c      where the servers are: what libpq makes of the settings, and their addresses
 *   link.c        a connection: made, lost, made again; what comes in on it
 *   setup.c       a new connection: who is there, the tables, the prepared statements
 *   flight.c      statements go out in groups, a transaction each, and what comes back
 *   locked.c      names whose rows somebody else keeps locked
 *   sql.c         the texts of the statements; args.c: what is bound to them
 *   fault.c       SQLSTATEs as statuses and messages
 *   flow.c        ops come in, and are told
 *   lease.c       acquire, renew, release; rows.c: a row read from a result, and written where unchanged
 *   look.c        inspect, list, ping; record.c: the small named records
 *   waiting.c     who waits for what, who is woken
 *   ghost.c       lost connections whose backends may still be at work
 *
 * What the ops do to a row, and why that is safe, stands in ../lib/sql/rowlease.h. What differs from an
 * embedded database: the clock is the server's, read by the statement that uses it (clock_timestamp(),
 * never the transaction's now()); nothing is known before its answer; and the connection may go.
 *
 * A LINK, one of two
 *
 *            somebody needs it             addresses              libpq says OK
 *     DOWN ──────────────────▶ RESOLVING ───────────▶ CONNECTING ───────────────▶ SETTING_UP ──▶ READY
 *      ▲ ▲                        │ connect_timeout       │ refused, time-out        │ no tables,    │
 *      │ └────────────────────────┴───────────────────────┴──────────────────────────┘ no right …   │
 *      └── at once the first time, then with a growing pause ◀── end of file, command_timeout ───────┘
 *
 *   MAIN    acquires, releases, everything that is asked.
 *   LIVE    renewals and LISTEN, so that nothing stands in their way. Made when first needed. Where it
 *           cannot be had, and MAIN can, the renewals go there.
 *
 * A REQUEST is an op on its way, or an errand of this driver's own. It takes up to three steps:
 *
 *   QUICK   the one statement of the common case. Touches a row: done. None: READ. (An acquire makes the row
 *           in that statement too, but not where it has seen it before: looking for what need not be made
 *           costs the server a tenth of the cycle.)
 *   READ    the row, and the server's clock. rowlease.c says what becomes of it.
 *   SWAP    written where it is still as it was read. It is not: READ again, after a pause that grows and
 *           is not the same for any two, or those who swap the same row would all be in each other's way.
 *           One waiter more is not swapped but appended where the name is still held or kept: a row that goes
 *           round within one process is another whenever it has been read, and nobody else would get in.
 *
 * Requests wait in a queue of their link (a lane: LAZY, DURABLE, READING) and go out in a *group*: one
 * pipeline, one sync, hence one implicit transaction. Its statements are in the order of their names, so
 * that groups of two clients cannot wait for each other in a circle. A group is smaller than the 8 KiB at
 * which libpq writes by itself, so it goes out whole, in one write, or not at all: a client that is stopped
 * leaves no transaction half told, and no row locked for longer than the statements last. Nothing of
 * a group is told before its sync has come back: rows arrive before the commit.
 *   LAZY     releases and registrations, synchronous_commit off: one that is lost in a crash lasts until
 *            the ttl. Notifications are sent here: they hold a lock of the whole cluster until the
 *            commit, which is short as it waits for no disk.
 *   DURABLE  acquires, renewals, records (reading them, too: see THE HOLES): a grant that is lost in a crash would let a second holder in.
 *            One group at a time: what comes meanwhile shares the next commit. It does not overtake a
 *            release that waits in LAZY (release_nowait, and then the same name again).
 *   READING  the rest.
 *
 * THE HOLES, and what closes them
 *
 *   A statement fails: its group was rolled back. It is told so; the others go out again, one by one.
 *   (A row that somebody keeps locked: only the one that waited for it is told, after lock_timeout. It waits
 *   in slices, alone and with pauses between, so that others are held up by one slice at a time.)
 *   Serialization failure, deadlock: all go out again, a few times.
 *   The connection is lost between statement and answer: executed or not, nobody knows. Acquires, releases
 *   and writes are INDETERMINATE; the core repeats them, under the same grant id.
 *   …and the backend is alive after that (it waits for a row, or the network between is gone while the
 *   bytes are in its socket): it may execute the acquire after a release has looked and found nothing. Such
 *   a backend is a *ghost*. The next connection ends it (pg_terminate_backend, where pid *and* start of the
 *   backend are the same) and looks until it is gone. While it is there, and for acquires that were on
 *   their way to it, a release is not `sure`. Whether it is sure is settled when the release is *sent*:
 *   what is found out between sending and answer does not count.
 *   …and what it was to write was a record: who reads it next must not see it change afterwards by its own
 *   hand. So records are read when the ghosts are gone, or so old that they are cut off: the kernel gives up
 *   sending after a command_timeout, and the server what it executes after another.
 *   …or it has half of a group and waits for the rest, with rows locked: so it is ended also where no
 *   acquire was on its way to it. This process may be gone, too: the server is told to look after its
 *   side of the connection as we do (tcp_keepalives_idle …).
 *   …and there is a pooler between: the backend is not known. So there each group ends with a look at the
 *   server's clock, and fails if it is too late (a quarter of command_timeout after it was sent). When that
 *   is over, and as long as a commit may take, the ghost is as good as gone. (Not where the server's clock
 *   was set back by more than that since the last group.)
 *   A session that waits for a synchronous standby in its commit is ended (as a ghost, or by an operator).
 *   PostgreSQL then makes the change visible although no standby has it. So what is visible proves nothing:
 *   an acquire that finds its own claim there writes the row again, unchanged, and a record is read under a
 *   row lock, which is a write, too. The commits of these wait for the standby, and it receives all
 *   earlier changes before them.
 *   Somebody cancels a commit that waits for the standby (pg_cancel_backend): the server answers as if it were
 *   safe, with a warning. The connection counts as lost then, and its requests as not answered.
 *   The server answers nothing (frozen, partition): command_timeout ends the connection, as above. One that
 *   is silent while a connection is made is passed by after its share of connect_timeout.
 *   The server restarts: connections end, grants and records are there (durable), lazy releases of the
 *   last moments may not be. Ghosts are gone: their pids are not found.
 *   The server is a standby now: "read-only transaction" ends the connection, so that the next one looks
 *   for the primary among the hosts.
 *   The role's transactions are repeatable read or serializable by default: a connection of our own says READ COMMITTED
 *   for its session. Behind a pooler that cannot be said before a group's first statement without one more, and need
 *   not be: what a group reads was so after it was sent, and a write to a row that was changed since then fails, and
 *   goes out again. Only the making of the tables, where nothing is written that both would write, says it.
 *   The caller gives up: not sent, it is taken out of the queue; sent, it is INDETERMINATE, and its later
 *   answer only says whether this client stands in a list of waiters.
 *   A release comes before LISTEN is in force: nobody is put in a row's list before it is.
 *   The listening connection is lost: everybody who waits asks again once there is a new one; in between
 *   they look by themselves.
 *   This process stops or dies anywhere: see groups. Its claims end with their ttl; its place in lists of
 *   waiters costs the others one reservation.
 *   The notification queue is full, or locked by a commit that hangs (of any database of the cluster): the
 *   release fails, and goes out again without a notification. That follows by itself, again and again until
 *   the server takes it; meanwhile nobody loses its place, and whoever comes first may have the lock.
 *   Out of memory for a request: the op fails with NOMEM; nothing was sent. */
#ifndef MORTISE_POSTGRES_INTERNAL_H
#define MORTISE_POSTGRES_INTERNAL_H

#define HASH_NONFATAL_OOM 1 /* an element that could not be added has hh.tbl == NULL */

#include "../lib/sql/rowlease.h"
#include "args.h"
#include "hosts.h"
#include "sql.h"

#include <libpq-fe.h>
#include <uthash.h>

#define GROUP_MAX 56      /* statements in one transaction */
#define GROUP_BYTES 7500  /* of a group on the wire: below libpq's 8192 */
#define LAZY_GROUPS_MAX 3 /* in flight on one link */
#define GROUPS_MAX (LAZY_GROUPS_MAX + 2)
#define QUOTED_SIZE 160 /* a name in a message */
#define POLL_MS 100     /* hint for a waiter who cannot be told: the first looks */
#define POLL_STEPS 3    /* doublings of it */
#define POLL_LOOKS 4    /* between two of them */
#define CHANNEL_SIZE 32
#define KNOWN_MAX 2048 /* names whose rows are known to be there */
#define LOOKS_MAX 256  /* names that are looked at from time to time */
#define LOCKED_MAX 32  /* names whose rows were locked lately */
#define SCHEMA_SIZE 64
#define NS_PER_MS INT64_C(1000000)

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

struct driver;
struct link;

struct fault {
    mortise_status status;
    bool retryable;
    bool again;  /* the same may succeed at once: send it again */
    bool reset;  /* this connection is of no use: make another */
    bool locked; /* it waited for a row for too long, or was canceled */
    bool waited; /* it waited for a row, or for the notifications, for too long */
    bool loud;   /* without a notification it may succeed */
    int native;
    char text[320];
};

/* ---- requests ---------------------------------------------------------------------------------- */

enum lane { LANE_LAZY, LANE_DURABLE, LANE_READING, LANE_COUNT };
enum task {
    TASK_OP,
    TASK_ENLIST, /* to be told of a name */
    TASK_DELIST, /* no more */
    TASK_CHECK,  /* the woken waiter had its time */
    TASK_SECOND, /* we cannot wait for that: tell the next one, too */
    TASK_NOTIFY,
    TASK_GHOST,
    TASK_SWEEP
};
enum step { STEP_QUICK, STEP_READ, STEP_SWAP };

struct request {
    struct request *next, *previous;
    struct driver *driver;
    enum task task;
    enum step step;
    enum lane lane;
    struct link *link;
    mortise_op *op;       /* NULL: the driver's own, or its caller is gone */
    mortise_op_kind kind; /* TASK_OP */
    mortise_grant_id grant;
    struct name *name; /* that it is about, where waiting is concerned */
    struct ghost *ghost;
    bool flying;    /* sent, not answered */
    bool alone;     /* in a group of its own: with others it failed */
    bool quiet;     /* no notification with it */
    bool sure;      /* release: no ghost had its grant when it was sent */
    bool enlisting; /* acquire: may put this client in the list */
    bool registers; /* SWAP: it does */
    bool settles;   /* READ of a record: not while a ghost may still write */
    unsigned tries, swaps, waits;
    uint64_t number;       /* orders those of one name */
    int64_t not_before_ns; /* in its queue: a pause. 0 */
    int64_t locked_ns;     /* since when it waits for a row that is locked. 0 */
    int64_t sent_ns;       /* of the statement under way */
    int64_t read_ns;       /* of the READ that a SWAP is based on */
    int64_t now_us;        /* the server's clock, as of the READ */
    int64_t version;       /* of the row, after it */
    struct rowlease_answer answer;
    struct rowlease_inbox wake; /* the first waiter, if answer.wake */
    enum sql sql;
    struct args args;
    PGresult *result; /* kept until the sync */
};

/* ---- groups and links -------------------------------------------------------------------------- */

struct group {
    struct request *requests[GROUP_MAX];
    enum lane lane;
    size_t count, at;  /* at: whose result comes next */
    size_t lead, tail; /* results before and after the requests': behind a pooler */
    bool got;          /* a result of that one was seen */
    bool failed;       /* `fault` is of… */
    size_t failed_at;  /* …this one; count: of the commit */
    struct fault fault;
    int64_t sent_ns;
};

enum link_state { LINK_DOWN, LINK_RESOLVING, LINK_CONNECTING, LINK_SETTING_UP, LINK_READY };
enum setup_phase { SETUP_IDENTIFY, SETUP_MAKE, SETUP_PREPARE, SETUP_LISTEN };

struct link {
    struct driver *driver;
    bool live; /* the second one */
    enum link_state state;
    PGconn *conn;
    int fd; /* a copy of libpq's, named in interest; -1 */
    short events;
    bool pooled;           /* somebody stands between us and the backend */
    int64_t backend_start; /* µs; with the pid it names the backend. 0: not known */
    int pid;
    int64_t clock_us, clock_ns; /* the server's clock was at least this at that instant of ours */
    int64_t deadline_ns;        /* of the connection being made. NEVER */
    int64_t share_ns;           /* CONNECTING: of the address that it is at. NEVER */
    int64_t retry_ns;           /* DOWN: not before */
    unsigned failures;          /* in a row */
    int64_t ready_ns;           /* since when it was READY, last */
    /* setup.c */
    enum setup_phase phase;
    size_t setup_at, setup_count;
    bool setup_got, tables_missing;
    bool listens; /* LISTEN was part of it */
    /* flight.c */
    struct request *queue[LANE_COUNT]; /* utlist */
    struct group groups[GROUPS_MAX];   /* a ring */
    size_t first_group, group_count;
    bool unflushed;
    bool unconfirmed; /* a commit that was answered is not on the standby: see THE HOLES */
    int64_t heard_ns; /* when a group came back, last */
    int64_t look_ns;  /* read then, whatever poll says. NEVER */
    int64_t look_step_ns;
};

/* ---- waiting ----------------------------------------------------------------------------------- */

/* A name that callers of this client wait for, or whose waiters it still has to look after. */
struct name {
    UT_hash_handle hh;
    unsigned references;    /* of requests */
    bool watched;           /* by the core */
    bool registered;        /* our inbox stands in the row, as far as we know */
    bool enlist, delist;    /* is to be put in, taken out */
    bool missed;            /* was told of before the core watched */
    struct request *errand; /* ENLIST, DELIST or CHECK under way: one at a time */
    int64_t
        grace_ns; /* registered by an acquire; if nobody watches by then it is taken out. NEVER */
    int64_t check_ns; /* look then whether the woken waiter took the name. NEVER */
    int64_t check_version;
    uint32_t len;
    char bytes[];
};

struct ghost {
    struct ghost *next;
    int pid;               /* 0: not known */
    int64_t backend_start; /* 0: not known */
    int64_t until_ns;      /* gone by then, in any case */
    int64_t look_ns;       /* not before */
    int64_t settled_ns;    /* writes no more */
    unsigned looks;
    struct request *errand;
    size_t count; /* of grants that were on their way to it; SIZE_MAX: not known, any */
    mortise_grant_id grants[];
};

/* ---- rows that are locked ---------------------------------------------------------------------- */

struct looks {
    uint32_t mark;  /* the name's hash. 0 */
    unsigned count; /* in vain, one after the other */
    int64_t last_ns;
};

struct locked {
    uint32_t mark; /* the name's hash */
    int64_t until_ns;
};

/* ---- the instance ------------------------------------------------------------------------------ */

struct driver {
    mortise_host *host;
    const mortise_value *values;
    struct link main, live;
    bool closing;

    /* target.c */
    struct host_entry hosts[HOSTS_MAX];
    size_t host_count, asked_count;
    struct address addresses[ADDRESSES_MAX];
    size_t address_count, first_address; /* which to begin with */
    bool defaults[DEFAULTS];             /* nobody says otherwise */
    char resolve_trouble[160];

    mortise_error trouble;    /* of the last connection that failed */
    char schema[SCHEMA_SIZE]; /* that the tables are in. setup.c */
    bool schema_found;        /* and it stays that */
    bool pooler_told;

    uint64_t jitter;
    uint64_t numbers;
    struct request *spare; /* free requests */
    size_t spare_count;

    /* waiting.c */
    struct name *names;
    int64_t chore_ns;
    struct rowlease_inbox inbox;
    char channel[CHANNEL_SIZE];
    bool listen_wanted, listening;
    bool live_wanted; /* somebody renews */

    struct ghost *ghosts;
    int64_t ghost_ns;
    int64_t sweep_ns;
    bool sweep_last; /* when it closes */
    bool sweep_goes_on;

    struct rowlease_row row, next; /* the row being worked on, and what it becomes */
    uint32_t known[KNOWN_MAX];     /* lease.c: by hash. 0 */
    struct locked locked[LOCKED_MAX];
    struct looks looks[LOOKS_MAX]; /* lease.c: by hash */
    int64_t locked_until_ns;       /* none of them counts after that */
};

/* ---- target.c ---------------------------------------------------------------------------------- */

mortise_status target_find(struct driver *driver, mortise_error *error);
void target_free(struct driver *driver);
/* Asks for the addresses; true: they are here (or there is nothing to look up). */
bool target_resolve(struct driver *driver);
/* They are tried in a circle. True: the one that this connection is at is passed by, the next begins behind. */
bool target_pass_by(struct driver *driver, const PGconn *conn);
/* Begins a connection to them; NULL: out of memory. */
PGconn *target_connect(struct driver *driver);

/* ---- link.c ------------------------------------------------------------------------------------ */

/* Begins to make a connection, if there is none and something waits for it. Not to be called while a list of
 * requests or names is being walked: it may fail at once, and then all that waits for it does. */
void link_want(struct link *link);
void link_resolved(struct driver *driver);
void link_turn(struct link *link, const struct pollfd *ready, size_t n);
int64_t link_due(struct link *link);
/* It is of no use any more. What was sent is answered; what was not waits for the next. */
void link_lose(struct link *link, const char *why);
/* The connection could not be made: what waits for it is answered, too. */
void link_failed(struct link *link, mortise_status status, bool retryable, int native,
                 const char *why);
void link_ready(struct link *link);
void link_close(struct link *link);
/* An answer will come that the core does not poll for. */
void link_look_soon(struct link *link);
/* The server has closed it while nothing was under way; false: it is gone by now. */
bool link_is_there(struct link *link);
/* "host:port/database" */
const char *link_where(const struct link *link, char *text, size_t size);
int64_t jitter_ns(struct driver *driver, int64_t ns); /* between half of it and itself */

/* ---- setup.c ----------------------------------------------------------------------------------- */

void setup_begin(struct link *link);
/* LISTEN, on a connection that was made without, as soon as nothing is in flight. */
void setup_listen(struct link *link);
/* A result or NULL from libpq; false: the connection is gone by now. */
bool setup_result(struct link *link, PGresult *result);

/* ---- flight.c ---------------------------------------------------------------------------------- */

/* Appends to the queue of its lane. */
void flight_queue(struct link *link, struct request *request);
void flight_unqueue(struct request *request);
/* It is in a queue: nothing is to go before it. */
void flight_first(struct request *request);
/* How long a group behind a pooler may take. */
int64_t flight_patience_ns(const struct driver *driver);
/* Sends what can go. False: the connection is gone by now. */
bool flight_go(struct link *link);
bool flight_flush(struct link *link);
bool flight_result(struct link *link, PGresult *result);
/* The requests in flight, in order, taken off. */
struct request *flight_take(struct link *link);
int64_t flight_due(const struct link *link);
/* When the first that pauses can go. NEVER */
int64_t flight_paused(struct link *link);
bool flight_idle(const struct link *link); /* nothing in queues or in flight */
bool flight_none(const struct link *link); /* nothing in flight */
/* Something is in flight that no op waits for: the core may not be polling. */
bool flight_has_own(struct link *link);

/* ---- locked.c ---------------------------------------------------------------------------------- */

/* How long one statement waits for a row: a part of lock_timeout. */
int64_t locked_slice_ms(const struct driver *driver);
/* It has waited for that in vain. True: it is to go out again, after the pause that it was given. */
bool locked_again(struct request *request, const char *name, size_t len);
bool locked_lately(struct driver *driver, const char *name, size_t len);

/* ---- fault.c ----------------------------------------------------------------------------------- */

void fault_read(const PGresult *result, struct fault *fault);
/* Fails an op: "<server>: <text> (acquire "name")"; status OK stands for the fault's own. */
void fault_tell(struct link *link, mortise_op *op, mortise_status status,
                const struct fault *fault);
mortise_status fault_error(mortise_error *error, mortise_status status, int native, bool retryable,
                           const char *format, ...) __attribute__((format(printf, 5, 6)));
/* One line of what libpq says, which ends its lines, and may say several. */
void fault_line(const char *text, char *line, size_t size);

/* ---- flow.c ------------------------------------------------------------------------------------ */

void flow_start(struct driver *driver, mortise_op **ops, size_t n);
void flow_cancel(struct driver *driver, mortise_op *op);
/* Sends what all links have to send. */
void flow_go(struct driver *driver);
struct request *request_new(struct driver *driver, enum task task);
void request_free(struct request *request);
/* Sends a statement of it: it goes to the queue of its lane. */
void request_send(struct request *request, enum step step, enum sql sql, enum lane lane);
/* The group was committed; the result is request->result. */
void request_answered(struct request *request);
/* The group failed, and it was this one's fault. */
void request_failed(struct request *request, const struct fault *fault);
/* The connection was lost (sent: it was on its way), or could not be made. */
void request_lost(struct request *request, bool sent, const mortise_error *trouble);
/* Completes the op, if it is still there, and frees the request. */
void request_done(struct request *request, mortise_status status);

/* ---- rows.c ------------------------------------------------------------------------------------ */

/* From a tuple of SQL_READ's or SQL_LIST's columns, the first of which is `first`; false: it makes no sense. */
bool row_take(const PGresult *result, int tuple, int first, struct rowlease_row *row,
              int64_t *now_us);
int64_t result_int8(const PGresult *result, int tuple, int column);
int64_t result_time(const PGresult *result, int tuple, int column); /* µs; 0: long ago */
struct rowlease_time row_time(const struct driver *driver, int64_t now_us);
/* Reads the row. */
void row_read(struct request *request, const char *name, size_t name_len);
/* driver->row was read; driver->next is what it has to become. */
void row_swap(struct request *request, const char *name, size_t name_len, bool durable);
/* The result of a READ in driver->row, with the clock; false: the request was failed. */
bool row_was_read(struct request *request);
/* Sent again, it is to notify nobody: that is why it failed. */
void row_hush(struct request *request);
void row_channel(const struct rowlease_inbox *inbox, char *channel); /* CHANNEL_SIZE */

/* ---- lease.c, look.c, record.c ------------------------------------------------------------------- */

void lease_start(struct request *request);
void lease_answered(struct request *request);
void look_start(struct request *request);
void look_answered(struct request *request);
void record_start(struct request *request);
void record_answered(struct request *request);
void look_tell(const struct rowlease_row *row, int64_t now_us, const void *name, size_t name_len,
               mortise_info *info);

/* ---- waiting.c --------------------------------------------------------------------------------- */

/* The name's entry, made if need be; NULL: there is none, or out of memory. */
struct name *waiting_name(struct driver *driver, const char *name, size_t name_len, bool make);
void waiting_unref(struct driver *driver, struct name *name);
void waiting_registered(struct driver *driver, struct name *name); /* by an acquire */
void waiting_left(struct driver *driver, struct name *name);       /* has the lock now */
void waiting_notify(struct driver *driver, const struct rowlease_inbox *inbox, const char *name,
                    size_t name_len);
void waiting_notify_failed(struct request *request, const struct fault *fault);
/* The woken waiter has a reservation's time to take the name. */
void waiting_check_later(struct driver *driver, const char *name, size_t name_len, int64_t version);
/* Given back: callers of this client that wait behind its own claim are in no list. */
void waiting_released(struct driver *driver, const char *name, size_t name_len);
void waiting_watch(struct driver *driver, const char *name, size_t name_len);
void waiting_unwatch(struct driver *driver, const char *name, size_t name_len);
void waiting_hear(struct driver *driver, const char *payload);
void waiting_listening(struct driver *driver); /* from now on nothing is missed */
void waiting_answered(struct request *request);
void waiting_failed(struct request *request);
void waiting_turn(struct driver *driver);
void waiting_leave(struct driver *driver); /* begins to leave all lists */
bool waiting_has_left(const struct driver *driver);
void waiting_free(struct driver *driver);

/* ---- ghost.c ----------------------------------------------------------------------------------- */

/* The link is lost with these requests in flight. */
void ghost_make(struct link *link, const struct request *requests);
/* Until when those that are there may write what this client has asked. 0: there is none. */
int64_t ghost_settled(const struct driver *driver);
bool ghost_has(const struct driver *driver, const mortise_grant_id *grant);
void ghost_turn(struct driver *driver);
void ghost_answered(struct request *request);
void ghost_free(struct driver *driver);

#endif
