/* driver.h - an instance of the SQLite driver. What it writes, and what may be believed afterwards: protocol.md.
 *
 *   module.c      the module's table and options; opens and closes an instance
 *   transactions.c requests wait while the file is busy, and go out in transactions
 *   dialect.c     the steps of drivers/lib/sql as statements
 *   connection.c  a connection to the file is opened
 *   database.c    the connection of the instance: opens it, prepares its statements, and opens it anew if the
 *                 file is replaced
 *   files.c       whether the files that SQLite has open are in their places
 *   replaced.c    the log and the index that a replaced database leaves beside the new one
 *   layout.c      makes or checks the content of the file; frees rows after a restart of the host
 *   upkeep.c      checkpoints, and the sweeping of rows that have been free for long
 *   inbox.c       the sockets that carry notifications between processes
 *   path.c        which file, in which folder; filesystem.c: whether that disk is a local one
 *   trust.c       which other users could change that file or its folder
 *   clock.c       the clock that all processes of a host agree on, and the boot it belongs to
 *   forks.c       that a child of this process may open clients of its own
 *   fault.c       SQLite's result codes as statuses and messages
 *   sql.c         the texts of the statements
 *
 * Advisory locks of POSIX belong to the process, and closing any descriptor of a file drops them all.
 * Therefore a process must not open the database with a second copy of the SQLite library (for example one that is
 * linked statically, beside the shared one that this driver uses). And this driver opens the file only by SQLite:
 * path.c makes it without a descriptor, or under another name. Several clients in one process are fine. After fork()
 * the child must neither use nor close the parent's clients, which the core ensures; it may open its own
 * (forks.c). */
#ifndef MORTISE_SQLITE_DRIVER_H
#define MORTISE_SQLITE_DRIVER_H

#include "../lib/sql/dialect.h"
#include "sql.h"

#include <limits.h>
#include <pthread.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <sys/types.h>

#define BATCH_MAX 256               /* requests in one transaction */
#define CHECKPOINT_FRAMES 1000      /* a log of so many is copied */
#define QUOTED_SIZE SQL_QUOTED_SIZE /* a name in a message */
#define NS_PER_MS SQL_NS_PER_MS
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

/* The database, and the files that SQLite keeps beside it. */
enum { FILE_DATABASE, FILE_LOG, FILE_INDEX, FILES };

struct file {
    dev_t device;
    ino_t inode; /* 0: there is none */
    struct statx_timestamp born; /* needed because the number of a deleted file is used again; 0: unknown */
};

struct request {
    struct sql_request base;
    struct request *next, *previous; /* in the queue */
    int64_t deadline_ns;             /* it fails if the file is still busy then; 0: it was not busy yet */
};

enum readiness {
    DATABASE_READY,
    DATABASE_BUSY,  /* other clients still work by a replaced index or database */
    DATABASE_CLOSED /* driver->trouble */
};

struct driver {
    struct sql_locks locks;
    const mortise_value *values;

    /* forks.c */
    pthread_mutex_t lock; /* held in each call, so that fork() waits for its end */
    pid_t pid;
    unsigned generation;
    struct driver *next_open, *previous_open;

    /* path.c, clock.c */
    char path[PATH_MAX];
    unsigned mode; /* of the file */
    char boot_id[40];
    int64_t clock_offset_ns; /* of this process's time namespace */

    /* database.c */
    sqlite3 *db; /* NULL: must be opened again */
    sqlite3_stmt *statements[TEXT_COUNT];
    int64_t step_until_ns; /* when to end the statement that runs now */
    bool broken;           /* open it again before the next request */
    bool open_later;       /* it can be opened in a moment, when another client has left the replaced files */
    int64_t reopen_ns;     /* not before */
    int64_t look_ns;       /* when to check whether the index is in its place… */
    int64_t inside_ns;     /* …and whether the database is, with its tables unchanged */
    int64_t touch_ns;      /* when to touch the files for programs that delete old ones */
    struct file files[FILES]; /* that are open */
    struct file left[FILES];  /* replaced.c: those of a database that is not in its place any more; inode 0: none */
    int64_t left_until_ns;    /* when to stop removing them; 0: not tried yet. Negative: from then on once at each opening */
    int schema_version;    /* of the tables when they were checked; -1: unknown */
    mortise_error trouble; /* why it is not open */

    /* transactions.c */
    struct request *queue;            /* utlist */
    struct request *batch[BATCH_MAX]; /* those in the transaction */
    int64_t retry_ns;                 /* when to try a busy file again; NEVER: it was not busy */
    unsigned retries;
    bool made_room; /* the disk was full, and a checkpoint was made for these requests */

    /* inbox.c */
    int wake_folder;                  /* "<path>-wake" */
    int outbox_fd;                    /* the socket that sends; -1: none yet */
    int inbox_fd;                     /* -1: none yet */
    bool inbox_failed, outbox_failed; /* and it was said in the log */

    /* upkeep.c */
    int log_frames;    /* as of the last commit */
    int checkpoint_at; /* copy the log when it has so many */
    bool folder_failed; /* without wake_folder there was no checkpoint, and the log says so */
    int64_t sweep_ns;
};

/* ---- path.c, filesystem.c, trust.c, clock.c --------------------------------------------------------------- */

/* Fills path (absolute, its folder resolved) and mode; makes the default folder. */
mortise_status path_find(struct driver *driver, mortise_error *error);
/* Opens or makes the folder of inboxes. Returns the descriptor, or -1 with errno. */
int path_open_wake_folder(const struct driver *driver);
mortise_status filesystem_check(const char *folder, mortise_error *error);
/* Adds findings about the file system to the answer of a ping, as driver.h (MORTISE_OP_PING) says. */
void filesystem_findings(const struct driver *driver, const mortise_op *op);
mortise_status trust_check_folder(const struct driver *driver, const char *folder,
                                  mortise_error *error);
bool trust_accepts_owner(const struct driver *driver, uid_t owner);
/* Checks the file, the files that SQLite keeps beside it, and the folder of inboxes, as far as they exist. */
mortise_status trust_check_files(const struct driver *driver, mortise_error *error);
mortise_status clock_open(struct driver *driver, mortise_error *error);
bool clock_boot_is_own(void); /* true in a container that shows a boot id of its own */
/* The clock that all processes of the host agree on, and wall time, in µs. */
void clock_read(const struct driver *driver, int64_t *now_us, int64_t *wall_us);
int64_t clock_host_ns(const struct driver *driver, int64_t us); /* of the database's µs */

/* ---- files.c -------------------------------------------------------------------------------------- */

const char *files_path(const struct driver *driver, int which, char *path, size_t size);
/* Reads which files are in the places. */
void files_read(const struct driver *driver, struct file *files);
/* Whether this process has the index open that is in its place, or there is none. */
bool files_index_is_open(const struct file *files);
/* Whether it has that index open for another database than the one that is in its place. */
bool files_index_is_of_other(const struct file *files);
/* Whether the place of an opened file has another file now. */
bool files_is_other(const struct file *opened, const struct file *now, int which);
bool files_index_is_other(const struct driver *driver);
/* Whether the database and the log are in their places, and no other index is in its place. */
bool files_are_in_place(const struct driver *driver);
void files_touch(const struct driver *driver);

/* ---- connection.c --------------------------------------------------------------------------------- */

/* Open a connection: to driver->db, or to *db, which must be closed even if it failed. Nothing is read yet. */
mortise_status connection_open(struct driver *driver, mortise_error *error);
int connection_open_as(const struct driver *driver, sqlite3 **db);
mortise_status connection_failed(struct driver *driver, int rc, mortise_error *error);

/* ---- replaced.c ----------------------------------------------------------------------------------- */

/* Call it before the open files are closed. now: the files in their places. True: the open ones are noted as left. */
bool replaced_note(struct driver *driver, const struct file *now);
/* Call it before a database is opened that path_find() has found. Also takes over what another client of this process has left,
 * even a client that is in a call. True: this client did not know about it. */
bool replaced_take(struct driver *driver);
/* Whether another client of this process has the old database open, with the files that are in the place. Call it before the
 * last replaced_take(), because each client has its files in `left` before it takes them out of `files`. */
bool replaced_is_in_use(struct driver *driver);
/* Removes the left files. Unless it returns READY, see driver->trouble. */
enum readiness replaced_clear(struct driver *driver, int64_t now_ns);
void replaced_forget(struct driver *driver); /* it is open: what is beside it belongs to it */
void replaced_leave(struct driver *driver);  /* it is not opened again, or could not be opened */

/* ---- database.c ----------------------------------------------------------------------------------- */

mortise_status database_open(struct driver *driver, int64_t patience_ms, mortise_error *error);
void database_close(struct driver *driver);
/* Makes sure that there is a connection to the file that is in the place now. */
enum readiness database_ready(struct driver *driver);
/* As sqlite3_step(), but it ends after some seconds: SQLITE_INTERRUPT. Then a slow commit may have succeeded. */
int database_step(struct driver *driver, sqlite3_stmt *statement);
/* Binds a name that ends a stretch of names; 0 bytes: there is no end. */
int database_bind_end(sqlite3_stmt *statement, int at, const void *end, size_t len);
/* SQLite's count of changes of the tables; -1: it cannot be read now. */
int database_schema_version(struct driver *driver);
/* Runs a statement that returns nothing; binds must be in place. A result code, SQLITE_OK for done. */
int database_run(struct driver *driver, enum text which);
/* Begins a transaction that writes. Each such transaction must begin with this, so that nobody writes by an index
 * that others have replaced. Returns SQLITE_BUSY if the index was replaced, too. */
int database_begin(struct driver *driver);
/* Runs such a statement in a transaction of its own. */
int database_write(struct driver *driver, enum text which);

/* ---- layout.c ------------------------------------------------------------------------------------- */

/* Makes or checks the content of the file. *rebooted: its rows are of another boot. Then the file must be closed for
 * layout_free_rows(), which frees the rows if nobody else has the file open. */
mortise_status layout_settle(struct driver *driver, bool *rebooted, mortise_error *error);
mortise_status layout_free_rows(struct driver *driver, int64_t until_ns, mortise_error *error);

/* ---- fault.c -------------------------------------------------------------------------------------- */

struct fault {
    struct sql_fault base;
    bool full; /* the disk is */
};
bool fault_is_busy(int rc);
/* code: errno, or 0. committing: the commit failed. */
struct fault fault_of(int rc, int code, bool committing);
/* Call it before anything else is done with the connection. */
struct fault fault_read(struct driver *driver, int rc, bool committing);
/* The status for this request. Reads and renewals that failed had no effect that anybody must clean up. */
mortise_status fault_status(const struct sql_request *request, const struct fault *fault);
mortise_status fault_error(mortise_error *error, mortise_status status, int native, bool retryable,
                           const char *format, ...) __attribute__((format(printf, 5, 6)));

/* ---- dialect.c, transactions.c ------------------------------------------------------------------------ */

extern const struct sql_dialect sqlite_dialect;
/* Executes the request's step. Returns a result code of SQLite. */
int dialect_execute(struct driver *driver, struct sql_request *request);

void transactions_run(struct sql_request *request);
void transactions_cancel(struct sql_request *request);
/* Executes the waiting requests, unless the file was busy a moment ago. */
void transactions_go(struct driver *driver);
void transactions_drop(struct driver *driver); /* what waits */

/* ---- inbox.c --------------------------------------------------------------------------------------- */

bool inbox_ready(struct driver *driver);   /* makes the inbox if needed */
bool inbox_is_lost(struct driver *driver); /* somebody has removed it, or its folder was replaced */
void inbox_close(struct driver *driver);
/* The first: whether the folder that this client has open is the one that others find. The second: opens that one if not, or
 * makes it. True: it has another one now. */
bool inbox_folder_is_in_place(const struct driver *driver);
bool inbox_renew_folder(struct driver *driver);
/* Locks the folder, which keeps checkpoints apart, until the descriptor is closed. -1: another client has it (EWOULDBLOCK), or see errno. */
int inbox_lock_folder(const struct driver *driver);
void inbox_touch(const struct driver *driver); /* the folder and the socket, as files_touch() does */
bool inbox_is_id(const char *text); /* a name that an inbox could have */
/* Reads the next name that somebody has announced. Returns its length; 0: none. */
size_t inbox_receive(struct driver *driver, char *name, size_t size);
/* False: nobody has that inbox any more. If messages are not read in time, the receiver asks for all its names instead. */
bool inbox_send(struct driver *driver, const struct rowlease_inbox *to, const char *name,
                size_t name_len);
bool inbox_is_alive(struct driver *driver, const struct rowlease_inbox *inbox);
/* Removes some sockets whose processes are gone. */
void inbox_sweep(struct driver *driver);

/* ---- forks.c: around each call of the core ----------------------------------------------------------- */

void forks_open_begin(struct driver *opening); /* enters, too */
void forks_enter(struct driver *driver);
void forks_leave(struct driver *driver);
void forks_end(struct driver *driver); /* leaves; it is closed, or was never opened */
/* Within a call of this driver: visits the other drivers of this process that are in no call now. False: one is in a
 * call, or a visit has failed. */
bool forks_others(struct driver *driver,
                  bool (*visit)(struct driver *driver, struct driver *other,
                                const struct file *now),
                  const struct file *now);

/* Within a call: takes the lock under which `path`, `files`, `left` and `left_until_ns` are written, even the driver's own. */
void forks_lock_left(void);
void forks_unlock_left(void);
/* Visits all other drivers of this process, even those that are in a call, under that lock; `visit` may use only these fields.
 * True: one of the visits returned true. */
bool forks_left(struct driver *driver,
                bool (*visit)(struct driver *driver, struct driver *other, const struct file *now),
                const struct file *now);

/* ---- upkeep.c ------------------------------------------------------------------------------------- */

int upkeep_committed(void *ctx, sqlite3 *db, const char *schema, int frames);
void upkeep_begin(struct driver *driver); /* call it when the database was opened */
/* Call it after the ops: makes a checkpoint if the log is long, and with it, now and then, a sweep. */
void upkeep_run(struct driver *driver, bool convenient);
void upkeep_make_room(struct driver *driver); /* in the log, because the disk is full */
void upkeep_sweep(struct driver *driver);

#endif
