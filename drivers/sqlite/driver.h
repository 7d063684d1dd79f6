/* driver.h - an instance of the SQLite driver. What it writes, and what may be believed afterwards: protocol.md.
 *
 *   module.c      the module's table and options; opens and closes an instance
 *   transactions.c requests wait while the file is busy, and go out in transactions
 *   dialect.c     the steps of drivers/lib/sql as statements
 *   connection.c  a connection to the file is opened
 *   database.c    the connection of the instance: opened, its statements prepared; opened anew if the file is replaced
 *   files.c       whether the files that SQLite has open are in their places
 *   replaced.c    the log and the index that a replaced database leaves beside the new one
 *   layout.c      what is in the file: made or checked; rows freed after a restart of the host
 *   upkeep.c      checkpoints, and the sweeping of rows that have been free for long
 *   inbox.c       the sockets that carry notifications between processes
 *   path.c       which file, in which folder; filesystem.c: is that disk a local one
 *   trust.c       which other users could change that file or its folder
 *   clock.c       the clock that all processes of a host agree on, and the boot it belongs to
 *   forks.c       that a child of this process may open clients of its own
 *   fault.c       SQLite's result codes as statuses and messages
 *   sql.c         the texts of the statements
 *
 * Advisory locks of POSIX belong to the process, and closing any descriptor of a file drops them all.
 * Therefore a process must not open the database with a second copy of the SQLite library (one linked
 * statically, say, beside the shared one that this driver uses), and this driver opens the file by SQLite
 * only: path.c makes it without a descriptor, or under another name. Several clients in one process are fine.
 * After fork() the child must not use, nor close, the parent's clients, and the core sees to that; it may open
 * its own (forks.c). */
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
#define CHECKPOINT_FRAMES 1000      /* of the log: then it is copied */
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

/* The database, and what SQLite keeps beside it. */
enum { FILE_DATABASE, FILE_LOG, FILE_INDEX, FILES };

struct file {
    dev_t device;
    ino_t inode; /* 0: there is none */
    struct statx_timestamp born; /* the number of a deleted file is given to another one; 0: not known here */
};

struct request {
    struct sql_request base;
    struct request *next, *previous; /* in the queue */
    int64_t deadline_ns;             /* it fails if the file is still busy then. 0: it was not busy yet */
};

enum readiness {
    DATABASE_READY,
    DATABASE_BUSY,  /* others are still at work by an index, or a database, that was replaced */
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
    sqlite3 *db; /* NULL: to be opened again */
    sqlite3_stmt *statements[TEXT_COUNT];
    int64_t step_until_ns; /* the statement that runs now is ended then */
    bool broken;           /* open it again before the next request */
    bool open_later;       /* it could not be opened, but in a moment, when another client has left what was replaced */
    int64_t reopen_ns;     /* not before */
    int64_t look_ns;       /* see then whether the index is in its place… */
    int64_t inside_ns;     /* …and then whether the database is, with its tables as they were */
    int64_t touch_ns;      /* tell those who delete what is old */
    struct file files[FILES]; /* that are open */
    struct file left[FILES];  /* replaced.c: those of a database that is not in its place any more; inode 0: none */
    int64_t left_until_ns;    /* so long they are tried to be removed; 0: not tried yet. Negative: from then on once each time that it is opened */
    int schema_version;    /* of the tables, as they were looked at; -1: not known */
    mortise_error trouble; /* why it is not open */

    /* transactions.c */
    struct request *queue;            /* utlist */
    struct request *batch[BATCH_MAX]; /* in the transaction */
    int64_t retry_ns;                 /* the file was busy: not before. NEVER: it was not */
    unsigned retries;
    bool made_room; /* the disk was full, and a checkpoint was made for these requests */

    /* inbox.c */
    int wake_folder;                  /* "<path>-wake" */
    int outbox_fd;                    /* what is sent with; -1: none yet */
    int inbox_fd;                     /* -1: none yet */
    bool inbox_failed, outbox_failed; /* and it was said in the log */

    /* upkeep.c */
    int log_frames;    /* as of the last commit; 0: all of it was copied since */
    int checkpoint_at; /* so many of them: then the log is to be copied, now or in another try */
    bool folder_failed; /* no checkpoint could be made without wake_folder, and it was said in the log */
    int64_t sweep_ns;
};

/* ---- path.c, filesystem.c, trust.c, clock.c --------------------------------------------------------------- */

/* Fills path (absolute, its folder resolved) and mode; makes the default folder. */
mortise_status path_find(struct driver *driver, mortise_error *error);
/* Opens (makes) the folder of inboxes; the descriptor or -1 with errno. */
int path_open_wake_folder(const struct driver *driver);
mortise_status filesystem_check(const char *folder, mortise_error *error);
/* Adds what the file system means to the answer of a ping, as driver.h (MORTISE_OP_PING) says. */
void filesystem_findings(const struct driver *driver, const mortise_op *op);
mortise_status trust_check_folder(const struct driver *driver, const char *folder,
                                  mortise_error *error);
bool trust_accepts_owner(const struct driver *driver, uid_t owner);
/* The file, what SQLite keeps beside it, and the folder of inboxes; those that exist. */
mortise_status trust_check_files(const struct driver *driver, mortise_error *error);
mortise_status clock_open(struct driver *driver, mortise_error *error);
bool clock_boot_is_own(void); /* of a container: another program shows this process its boot id */
/* The clock that all processes of the host agree on, and wall time, in µs. */
void clock_read(const struct driver *driver, int64_t *now_us, int64_t *wall_us);
int64_t clock_host_ns(const struct driver *driver, int64_t us); /* of the database's µs */

/* ---- files.c -------------------------------------------------------------------------------------- */

const char *files_path(const struct driver *driver, int which, char *path, size_t size);
/* What is in their places. */
void files_read(const struct driver *driver, struct file *files);
/* Whether this process has the index open that is in its place, or there is none. */
bool files_index_is_open(const struct file *files);
/* Whether it has that index open for another database than the one that is in its place. */
bool files_index_is_of_other(const struct file *files);
/* Whether there is another in the place of what was opened. */
bool files_is_other(const struct file *opened, const struct file *now, int which);
bool files_index_is_other(const struct driver *driver);
/* Whether the database and the log are in their places, and no other index is. */
bool files_are_in_place(const struct driver *driver);
void files_touch(const struct driver *driver);

/* ---- connection.c --------------------------------------------------------------------------------- */

/* To driver->db, or to *db, which must be closed, also if it failed. Nothing was read yet. */
mortise_status connection_open(struct driver *driver, mortise_error *error);
int connection_open_as(const struct driver *driver, sqlite3 **db);
mortise_status connection_failed(struct driver *driver, int rc, mortise_error *error);

/* ---- replaced.c ----------------------------------------------------------------------------------- */

/* Before the files that are open are closed; now: what is in their places. True: they are left. */
bool replaced_note(struct driver *driver, const struct file *now);
/* Before a database is opened that path_find has found: what another client of this process has left, too, even one that is in a
 * call. True: this one did not know of it. */
bool replaced_take(struct driver *driver);
/* Whether another client of this process has the old one open, with what is in its place. Before the last replaced_take(): each client has
 * what it closes in `left` before it is not in `files` any more. */
bool replaced_is_in_use(struct driver *driver);
/* Unless it is READY, see driver->trouble. */
enum readiness replaced_clear(struct driver *driver, int64_t now_ns);
void replaced_forget(struct driver *driver); /* it is open: what is beside it belongs to it */
void replaced_leave(struct driver *driver);  /* it is not opened again, or could not be opened */

/* ---- database.c ----------------------------------------------------------------------------------- */

mortise_status database_open(struct driver *driver, int64_t patience_ms, mortise_error *error);
void database_close(struct driver *driver);
/* Sees to it that there is a connection to the file that is there now. */
enum readiness database_ready(struct driver *driver);
/* As sqlite3_step, but it ends after some seconds: SQLITE_INTERRUPT. A slow commit may have succeeded then. */
int database_step(struct driver *driver, sqlite3_stmt *statement);
/* SQLite counts the changes of the tables; -1: it cannot be read now. */
int database_schema_version(struct driver *driver);
/* Runs a statement that returns nothing; binds must be in place. A result code, SQLITE_OK for done. */
int database_run(struct driver *driver, enum text which);
/* Begins a transaction that writes. Each of them must begin so: nobody writes by an index that others have replaced.
 * SQLITE_BUSY also if it was. */
int database_begin(struct driver *driver);
/* Runs such a statement in a transaction of its own. */
int database_write(struct driver *driver, enum text which);

/* ---- layout.c ------------------------------------------------------------------------------------- */

/* Makes or checks what is in the file. *rebooted: its rows are of another boot, and it must be closed for
 * layout_free_rows, which then frees them if nobody else has the file open. */
mortise_status layout_settle(struct driver *driver, bool *rebooted, mortise_error *error);
mortise_status layout_free_rows(struct driver *driver, int64_t until_ns, mortise_error *error);

/* ---- fault.c -------------------------------------------------------------------------------------- */

struct fault {
    struct sql_fault base;
    bool full; /* the disk is */
};
bool fault_is_busy(int rc);
/* code: errno, or 0. committing: that failed. */
struct fault fault_of(int rc, int code, bool committing);
/* Must be called before anything else is done with the connection. */
struct fault fault_read(struct driver *driver, int rc, bool committing);
/* The status for this request: reads and renewals that failed had no effect that anybody would have to look for. */
mortise_status fault_status(const struct sql_request *request, const struct fault *fault);
mortise_status fault_error(mortise_error *error, mortise_status status, int native, bool retryable,
                           const char *format, ...) __attribute__((format(printf, 5, 6)));

/* ---- dialect.c, transactions.c ------------------------------------------------------------------------ */

extern const struct sql_dialect sqlite_dialect;
/* Executes the request's step; a result code of SQLite. */
int dialect_execute(struct driver *driver, struct sql_request *request);

void transactions_run(struct sql_request *request);
void transactions_cancel(struct sql_request *request);
/* Executes what waits, unless the file was busy a moment ago. */
void transactions_go(struct driver *driver);
void transactions_drop(struct driver *driver); /* what waits */

/* ---- inbox.c --------------------------------------------------------------------------------------- */

bool inbox_ready(struct driver *driver);   /* makes it, if need be */
bool inbox_is_lost(struct driver *driver); /* somebody removed it, or its folder is another one */
void inbox_close(struct driver *driver);
/* Whether the folder that this client has open is the one that others find; if not, it opens that one, or makes it. True: it
 * has another one now. */
bool inbox_folder_is_in_place(const struct driver *driver);
bool inbox_renew_folder(struct driver *driver);
/* Locks the folder, which keeps checkpoints apart, until the descriptor is closed. -1: another client has it (EWOULDBLOCK), or see errno. */
int inbox_lock_folder(const struct driver *driver);
void inbox_touch(const struct driver *driver); /* the folder and the socket, as files_touch() does */
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
/* Within a call of this driver: those other drivers of this process that are in no call now. False: one is in a call, or
 * a visit was in vain. */
bool forks_others(struct driver *driver,
                  bool (*visit)(struct driver *driver, struct driver *other,
                                const struct file *now),
                  const struct file *now);

/* Within a call: the lock under which `path`, `files`, `left` and `left_until_ns` are written, also the driver's own. */
void forks_lock_left(void);
void forks_unlock_left(void);
/* All other drivers of this process, also those that are in a call: under that lock, and `visit` may look at these fields only. True:
 * one of the visits was. */
bool forks_left(struct driver *driver,
                bool (*visit)(struct driver *driver, struct driver *other, const struct file *now),
                const struct file *now);

/* ---- upkeep.c ------------------------------------------------------------------------------------- */

int upkeep_committed(void *ctx, sqlite3 *db, const char *schema, int frames);
void upkeep_begin(struct driver *driver); /* after the database was opened */
/* After the ops: a checkpoint if the log is long, and with it now and then a sweep. */
void upkeep_run(struct driver *driver, bool convenient);
void upkeep_make_room(struct driver *driver); /* in the log: the disk is full */
void upkeep_sweep(struct driver *driver);

#endif
