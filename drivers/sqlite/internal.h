/* internal.h - the SQLite driver's own structures, and which file does what with them.
 *
 *   module.c      the module's table and options; opens and closes an instance
 *   place.c       which file, in which folder; filesystem.c: is that disk a local one
 *   trust.c       who else could change that file or its folder
 *   clock.c       the clock that all processes of a host agree on, and the boot it belongs to
 *   database.c    the connection: opened, its statements prepared
 *   layout.c      what is in the file: made or checked; rows freed after a restart of the host
 *   sql.c         the texts of the statements
 *   fault.c       SQLite's result codes as statuses and messages
 *   flow.c        ops come in, wait while the file is busy, go out in transactions
 *   lease.c       acquire, renew, release on rows; rows.c: a row read, and written by compare-and-swap
 *   look.c        inspect, list, ping; record.c: the small named records
 *   waiting.c     who waits for what, who is woken; inbox.c: the sockets that carry it between processes
 *   upkeep.c      checkpoints, and the sweeping of rows long free
 *   forks.c       that a child of this process may open clients of its own
 *
 * What the ops do to a row, and why that is safe, stands in ../lib/sql/rowlease.h. What stands here is
 * how it meets the file:
 *
 *   An op of the common case is one statement, which is one transaction of its own. Where it touches no
 *   row, or the case is not common (waiters, owners), the row is read, the new one made by rowlease.c and
 *   written where it is still as it was read. Nothing is held between the two.
 *
 *        start ──▶ statement ──ok──▶ outcome kept ──commit──▶ completed, waiters woken
 *          │           │ busy                       │ failed
 *          │           ▼                            ▼
 *          └──────▶ queue ◀── timer, 100 µs to 4 ms; after busy_timeout UNREACHABLE
 *
 *   The process is killed: SQLite's locks go with it; a transaction without its commit frame never was.
 *   The process is stopped inside a statement: it holds the file against all writers until it goes on or
 *   is killed. Theirs wait in their queues, and fail after busy_timeout. (docs/promises.md says so.)
 *   The file is locked: by a short transaction of another client, or for long by somebody's shell. Nothing
 *   was done, so the op is tried again as if for the first time; it never sleeps in here.
 *   The disk is full: a commit without its last frame never was. A checkpoint is tried once, since the log
 *   begins anew in its old room after it; then the op fails, and says so.
 *   The commit fails otherwise (I/O error): the frames may be found by a later recovery. An acquire,
 *   release or write is INDETERMINATE then; the core releases the grant id.
 *   Somebody changes the tables, or adds triggers: opening fails (layout.c). While the file is open, triggers and
 *   views are off, an expression that calls a function fails, and a statement that works for some seconds is interrupted;
 *   and within a second of use the change is seen, and the file opened again, which fails.
 *   The commit is lost in a power cut (synchronous = normal): every holder was on this host.
 *   The host restarts: the boot id in the file is another, and the first to open frees every row. A container
 *   with a boot id of its own does so only while nobody else has the file open (layout.c).
 *   The file is deleted or replaced underneath: seen within a second; the driver opens what is there now.
 *   The process dies between commit and waking: the waiters' hint ends. See rowlease.h.
 *
 * Advisory locks of POSIX belong to the process, and closing any descriptor of a file drops them all.
 * Therefore a process must not open the database with a second copy of the SQLite library (one linked
 * statically, say, beside the shared one that this driver uses), and this driver opens the file by SQLite
 * only. Several clients in one process are fine. After fork() the child must not use, nor close, the
 * parent's clients, and the core sees to that; it may open its own (forks.c). */
#ifndef MORTISE_SQLITE_INTERNAL_H
#define MORTISE_SQLITE_INTERNAL_H

#define HASH_NONFATAL_OOM 1 /* an element that could not be added has hh.tbl == NULL */

#include "../lib/sql/rowlease.h"
#include "sql.h"

#include <limits.h>
#include <pthread.h>
#include <sqlite3.h>
#include <sys/types.h>
#include <uthash.h>

#define BATCH_MAX 256   /* ops in one transaction */
#define WAKE_MAX 8      /* waiters tried at once before their list is looked at again */
#define QUOTED_SIZE 160 /* a name in a message */
#define POLL_MS 100     /* hint for a waiter who cannot be told: no inbox, list full */
#define NS_PER_MS INT64_C(1000000)
#define DAY_US INT64_C(86400000000)

enum option {
    OPTION_PATH,
    OPTION_SYNCHRONOUS,
    OPTION_BUSY_TIMEOUT,
    OPTION_RESERVE,
    OPTION_MODE,
    OPTION_FILESYSTEM,
    OPTION_SHARED,
    OPTION_COUNT
};

/* What became of an op in its transaction; told once that is committed. */
struct outcome {
    struct rowlease_answer answer;
    uint64_t record_version;
    size_t record_size;
    bool joined_list, left_list; /* this client's inbox, in the row's list of waiters */
    size_t waiter_count;         /* in all; the first of them: */
    struct rowlease_inbox waiters[WAKE_MAX];
    int64_t version; /* of the row they wait for */
};

/* A name that callers of this client wait for, or whose waiters it still has to look after. */
struct name {
    UT_hash_handle hh;
    bool watched;        /* by the core */
    bool registered;     /* our inbox stands in the row, as far as we know */
    bool enlist, delist; /* is to be put in, taken out; the file was busy */
    bool missed;         /* was told of before the core watched */
    int64_t
        grace_ns; /* registered by an acquire; if nobody watches by then it is taken out. NEVER */
    int64_t check_ns; /* look then whether the woken waiter took the name. NEVER */
    int64_t check_version;
    uint32_t len;
    char bytes[];
};

struct driver {
    mortise_host *host;
    const mortise_value *values;

    /* forks.c */
    pthread_mutex_t lock; /* held in each call, so that fork() waits for its end */
    pid_t pid;
    unsigned generation;
    struct driver *next_open, *previous_open;

    /* place.c, clock.c */
    char path[PATH_MAX];
    unsigned mode; /* of the file */
    char boot_id[40];
    int64_t clock_offset_ns; /* of this process's time namespace */

    /* database.c */
    sqlite3 *db; /* NULL: to be opened again */
    sqlite3_stmt *statements[SQL_COUNT];
    int64_t step_until_ns; /* the statement that runs now is ended then */
    bool broken;           /* open it again before the next op */
    int64_t reopen_ns;     /* not before */
    int64_t
        look_ns; /* see then whether the file is still in its place, and its tables are as they were */
    int schema_version;    /* of the tables, as they were looked at; -1: not known */
    mortise_error trouble; /* why it is not open */

    /* flow.c */
    mortise_op *queue; /* utlist, by next and previous */
    int64_t retry_ns;  /* NEVER: nothing is waiting */
    unsigned retries;
    uint64_t jitter;
    struct outcome outcome;   /* of an op that is alone */
    struct outcome *outcomes; /* BATCH_MAX of them, made at the first batch */
    mortise_op *batch[BATCH_MAX];

    /* waiting.c, inbox.c */
    struct name *names;
    int64_t chore_ns;
    int wake_folder; /* "<path>-wake" */
    int outbox_fd;   /* what is sent with; -1: none yet */
    int inbox_fd;    /* -1: none yet */
    struct rowlease_inbox inbox;
    bool inbox_failed, outbox_failed; /* and it was said in the log */

    /* upkeep.c */
    int log_frames; /* as of the last commit */
    int checkpoint_at;
    int64_t sweep_ns;

    struct rowlease_row row, next; /* the row being worked on, and what it becomes */
};

/* ---- place.c, filesystem.c, trust.c, clock.c --------------------------------------------------------------- */

/* Fills path (absolute, its folder resolved) and mode; makes the default folder. */
mortise_status place_find(struct driver *driver, mortise_error *error);
/* Opens (makes) the folder of inboxes; the descriptor or -1 with errno. */
int place_open_wake_folder(const struct driver *driver);
mortise_status filesystem_check(const char *folder, mortise_error *error);
mortise_status trust_check_folder(const struct driver *driver, const char *folder,
                                  mortise_error *error);
bool trust_accepts_owner(const struct driver *driver, uid_t owner);
/* The file, what SQLite keeps beside it, and the folder of inboxes; those that exist. */
mortise_status trust_check_files(const struct driver *driver, mortise_error *error);
mortise_status clock_open(struct driver *driver, mortise_error *error);
struct rowlease_time clock_read(const struct driver *driver);
int64_t clock_host_ns(const struct driver *driver, int64_t us); /* of the database's µs */

/* ---- database.c ----------------------------------------------------------------------------------- */

mortise_status database_open(struct driver *driver, int64_t patience_ms, mortise_error *error);
/* Only the connection, driver->db; nothing was read yet. */
mortise_status database_connect(struct driver *driver, mortise_error *error);
mortise_status database_open_failed(struct driver *driver, int rc, mortise_error *error);
void database_close(struct driver *driver);
/* Sees to it that there is a connection to the file that is there now; false: driver->trouble. */
bool database_ready(struct driver *driver);
/* As sqlite3_step, but it ends after some seconds: SQLITE_INTERRUPT. A slow commit may have succeeded then. */
int database_step(struct driver *driver, sqlite3_stmt *statement);
/* SQLite counts the changes of the tables; -1: it cannot be read now. */
int database_schema_version(struct driver *driver);
/* Runs a statement that returns nothing; binds must be in place. A result code, SQLITE_OK for done. */
int database_run(struct driver *driver, enum sql which);

/* ---- layout.c ------------------------------------------------------------------------------------- */

/* Makes or checks what is in the file. *rebooted: its rows are of another boot, and it must be closed for
 * layout_free_rows, which then frees them if nobody else has the file open. */
mortise_status layout_settle(struct driver *driver, bool *rebooted, mortise_error *error);
mortise_status layout_free_rows(struct driver *driver, int64_t until_ns, mortise_error *error);

/* ---- fault.c -------------------------------------------------------------------------------------- */

struct fault {
    mortise_status status;
    bool retryable, full;
    int native;
    char text[256]; /* "the disk is full" */
};
bool fault_is_busy(int rc);
/* Must be called before anything else is done with the connection. */
struct fault fault_read(struct driver *driver, int rc);
/* Fails an op: "<file>: <text> (acquire "name")"; status OK stands for the fault's own. */
void fault_tell(struct driver *driver, mortise_op *op, const struct fault *fault);
mortise_status fault_error(mortise_error *error, mortise_status status, int native, bool retryable,
                           const char *format, ...) __attribute__((format(printf, 5, 6)));

/* ---- rows.c --------------------------------------------------------------------------------------- */

/* Result codes of SQLite; SQLITE_MISMATCH for a row that makes no sense. */
int row_read(struct driver *driver, const char *name, size_t name_len, struct rowlease_row *row);
int row_step(sqlite3_stmt *statement, int first, struct rowlease_row *row); /* from a stepped row */
int row_swap(struct driver *driver, const char *name, size_t name_len,
             const struct rowlease_row *from, const struct rowlease_row *to, bool *swapped);
/* Reads the row and writes what `change` makes of it, until it was not changed in between; the answer and
 * the waiters to be told are in *outcome. */
typedef struct rowlease_answer row_change(struct rowlease_row *row, struct rowlease_time time,
                                          const void *argument);
int row_change_to(struct driver *driver, const char *name, size_t name_len, row_change *change,
                  const void *argument, struct outcome *outcome);

/* ---- lease.c, look.c, record.c: result codes; *outcome is filled on SQLITE_OK ------------------------ */

int lease_acquire(struct driver *driver, mortise_op *op, struct outcome *outcome);
int lease_renew(struct driver *driver, mortise_op *op, struct outcome *outcome);
int lease_release(struct driver *driver, mortise_op *op, struct outcome *outcome);
void look_tell(const struct rowlease_row *row, int64_t now_us, const void *name, size_t name_len,
               mortise_info *info);
int look_inspect(struct driver *driver, mortise_op *op, struct outcome *outcome);
int look_list(struct driver *driver, mortise_op *op, struct outcome *outcome);
int look_ping(struct driver *driver, mortise_op *op, struct outcome *outcome);
int record_read(struct driver *driver, mortise_op *op, struct outcome *outcome);
int record_write(struct driver *driver, mortise_op *op, struct outcome *outcome);

/* ---- flow.c --------------------------------------------------------------------------------------- */

void flow_start(struct driver *driver, mortise_op **ops, size_t n);
void flow_cancel(struct driver *driver, mortise_op *op);
void flow_turn(struct driver *driver);
/* A duration between half of it and itself. */
int64_t flow_jitter(struct driver *driver, int64_t ns);

/* ---- waiting.c, inbox.c ---------------------------------------------------------------------------- */

/* The name's entry, made if need be; NULL: out of memory. */
struct name *waiting_name(struct driver *driver, const char *name, size_t name_len, bool make);
bool waiting_registered(struct driver *driver, const mortise_op *op);
/* After the commit: what an op changed in the list, and whom it has to wake. */
void waiting_settle(struct driver *driver, const mortise_op *op, const struct outcome *outcome);
void waiting_watch(struct driver *driver, const char *name, size_t name_len);
void waiting_unwatch(struct driver *driver, const char *name, size_t name_len);
void waiting_turn(struct driver *driver); /* reads the inbox, does the chores that are due */
/* The inbox, or the lists that it stood in, are gone: all who wait ask again. */
void waiting_anew(struct driver *driver);
void waiting_close(struct driver *driver);

bool inbox_ready(struct driver *driver);   /* makes it, if need be */
bool inbox_is_lost(struct driver *driver); /* somebody removed it */
void inbox_close(struct driver *driver);
bool inbox_is_id(const char *text); /* a name that an inbox could have */
/* The next name that somebody told of; its length, 0: none. */
size_t inbox_receive(struct driver *driver, char *name, size_t size);
/* False: there is nobody behind it. What is sent and not read in time is made up for by news of all. */
bool inbox_send(struct driver *driver, const struct rowlease_inbox *to, const char *name,
                size_t name_len);
bool inbox_is_alive(struct driver *driver, const struct rowlease_inbox *inbox);
/* Removes some sockets of processes that are gone. */
void inbox_sweep(struct driver *driver);

/* ---- forks.c: around each call of the core ----------------------------------------------------------- */

void forks_open_begin(struct driver *opening); /* enters, too */
void forks_enter(struct driver *driver);
void forks_leave(struct driver *driver);
void forks_end(struct driver *driver); /* leaves; it is closed, or was never opened */

/* ---- upkeep.c ------------------------------------------------------------------------------------- */

int upkeep_committed(void *ctx, sqlite3 *db, const char *schema, int frames);
void upkeep_begin(struct driver *driver); /* after the database was opened */
/* After the ops: a checkpoint if the log is long, and with it now and then a sweep. */
void upkeep_run(struct driver *driver, bool convenient);
void upkeep_checkpoint_full(struct driver *driver); /* the disk is full: make room in the log */
void upkeep_sweep(struct driver *driver);

#endif
