/* upkeep.c - what the driver does from time to time: checkpoints, and the deletion of rows that have been free for long. Knows
 * no op.
 *
 * Checkpoints. SQLite before 3.51.3 can lose committed pages if a process begins a checkpoint while the log
 * is wholly copied and another one begins the log anew in that instant: the first one then relies on a
 * header that is no longer true. That happens if many processes write all the time. So SQLite's own checkpoints are off, and
 * ours keep away from that state: one process at a time (flock on the folder of inboxes), and it commits something *after* it
 * has that lock and *before* it begins. Then the log has a frame that nobody has copied, and as long as that is so, nobody
 * begins the log anew. If somebody has removed the folder, clients that opened the file later have another folder: only the
 * lock of the folder that is in the place counts. While no folder can be made, there are no checkpoints, and the log grows. On
 * a full disk nothing can be committed first. Then another connection takes the write lock meanwhile, because without it nobody
 * begins the log anew. (SQLite's FULL does not do that: if the write lock is not free, it copies nevertheless.) A process that
 * is stopped in the middle of a checkpoint only makes the log grow, as with SQLite's own checkpoints. But while a
 * connection has the write lock for it (on a full disk, or for a long log: see below), it blocks the file, as in the middle of
 * a transaction. A checkpoint waits for the disk, and this client executes nothing else meanwhile. If that takes long, the log
 * says so: others that wait for a lock of this client cannot tell it from a notification that was lost.
 *
 * A log begins anew when a transaction begins while all of it is copied. While several processes keep committing, a checkpoint
 * is over too late: something has been committed that it did not see. So if the log is long, another one copies the rest, with
 * the write lock of another connection, for which it waits a moment. The file is flushed before, so that others wait only for
 * the flush of what was committed during the first one. If that took a second, as on a slow disk, they do not, and the log goes
 * on. It also goes on as long as somebody reads in it.
 *
 * Sweeping. A row is kept for its version. If that is older than a day of wall clock, the next token is
 * larger without it, unless the clock is set back by more than a day. Each sweep checks the next stretch of names, and notes in
 * the file where it ended. */
#include "driver.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define CHECKPOINT_OVERDUE 4000
#define CHECKPOINT_AGAIN 250 /* frames until the next try, if the log goes on */
#define WRITE_LOCK_TRIES 100 /* one a millisecond; others hold it for some ten microseconds */
#define SLOW_NS (1000 * NS_PER_MS)
#define SWEEP_ROWS 512
#define SWEEP_EVERY_NS (INT64_C(60000) * NS_PER_MS)

int upkeep_committed(void *ctx, sqlite3 *db, const char *schema, int frames)
{
    struct driver *driver = ctx;
    (void)db;
    (void)schema;
    if (frames < CHECKPOINT_FRAMES || frames < driver->log_frames) /* the log has begun anew */
        driver->checkpoint_at = CHECKPOINT_FRAMES;
    driver->log_frames = frames;
    return SQLITE_OK;
}

/* ---- checkpoints ------------------------------------------------------------------------------- */

/* Also logs if the process was stopped meanwhile, because the effect on others is the same. */
static void tell_if_slow(const struct driver *driver, int64_t begun_ns)
{
    mortise_host *host = driver->locks.host;
    int64_t ns = host->now(host) - begun_ns;
    if (ns >= SLOW_NS)
        host->log(host, 4,
                  "%s: a checkpoint took %" PRId64 " ms, as on a slow disk; this process acquired, "
                  "renewed and released nothing meanwhile",
                  driver->path, ns / NS_PER_MS);
}

static void tell_of_folder(const struct driver *driver, bool found, int code)
{
    mortise_host *host = driver->locks.host;
    if (found)
        host->log(host, 4,
                  "%s-wal is not copied into the database any more, and grows: the directory "
                  "%s-wake cannot be locked: %s",
                  driver->path, driver->path, strerror(code));
    else
        host->log(host, 4,
                  "%s-wal is not copied into the database any more, and grows: the directory "
                  "%s-wake was removed or replaced, and cannot be opened or made: %s",
                  driver->path, driver->path, strerror(code));
}

/* -1: another client has the lock, or there is no folder that can be locked. The latter is logged once. */
static int lock_folder(struct driver *driver)
{
    bool renewed = inbox_renew_folder(driver);
    int lock = -1, code = errno;
    bool found = renewed || inbox_folder_is_in_place(driver);
    if (found) {
        lock = inbox_lock_folder(driver);
        code = errno;
    }
    bool failed = lock < 0 && (!found || code != EWOULDBLOCK);
    if (failed && !driver->folder_failed)
        tell_of_folder(driver, found, code);
    driver->folder_failed = failed;
    return lock;
}

/* SQLite's own waits soon last for tens of milliseconds. In these, others can commit a thousand times. */
static int wait_for_writers(void *unused, int tries)
{
    (void)unused;
    clock_nanosleep(CLOCK_MONOTONIC, 0, &(struct timespec){.tv_nsec = 1000000}, NULL);
    return tries < WRITE_LOCK_TRIES;
}

/* The connection keeps the log as it is until it is closed. NULL: somebody else writes, or the lock would be that of another
 * file. Closing it does not drop the locks of driver->db, because SQLite counts locks for the process. */
static sqlite3 *take_write_lock(const struct driver *driver)
{
    sqlite3 *db = NULL;
    int rc = files_are_in_place(driver) ? connection_open_as(driver, &db) : SQLITE_CANTOPEN;
    if (rc == SQLITE_OK) {
        sqlite3_db_config(db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
        sqlite3_busy_handler(db, wait_for_writers, NULL);
        rc = sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL);
    }
    if (rc == SQLITE_OK && files_are_in_place(driver))
        return db;
    sqlite3_close(db);
    return NULL;
}

enum guard { BY_COMMIT, BY_WRITE_LOCK }; /* what prevents others from beginning the log anew */

/* Returns SQLITE_BUSY if not all of the log was copied that was there at the beginning. */
static int copy_log(struct driver *driver, enum guard guard)
{
    int frames = 0, copied = 0, rc = SQLITE_OK;
    sqlite3 *writer = NULL;
    if (guard == BY_COMMIT)
        rc = database_write(driver, TEXT_TOUCH);
    else if ((writer = take_write_lock(driver)) == NULL)
        rc = SQLITE_BUSY;
    if (files_index_is_other(driver) || !inbox_folder_is_in_place(driver))
        rc = SQLITE_BUSY; /* clients with another index copy only when the folder is unlocked */
    if (rc == SQLITE_OK)
        rc = sqlite3_wal_checkpoint_v2(driver->db, "main", SQLITE_CHECKPOINT_PASSIVE, &frames,
                                       &copied);
    sqlite3_close(writer);
    return rc == SQLITE_OK && copied < frames ? SQLITE_BUSY : rc;
}

/* SQLite has not done so if others committed while it copied. */
static bool flush_database(const struct driver *driver)
{
    sqlite3_file *file = NULL;
    int rc = sqlite3_file_control(driver->db, "main", SQLITE_FCNTL_FILE_POINTER, &file);
    return rc == SQLITE_OK && file->pMethods->xSync(file, SQLITE_SYNC_NORMAL) == SQLITE_OK;
}

/* The folder is locked. */
static void copy_in_turn(struct driver *driver, enum guard guard, int64_t begun_ns)
{
    mortise_host *host = driver->locks.host;
    if (copy_log(driver, guard) != SQLITE_OK || guard == BY_WRITE_LOCK ||
        driver->log_frames < CHECKPOINT_OVERDUE)
        return;
    if (flush_database(driver) && host->now(host) - begun_ns < SLOW_NS)
        copy_log(driver, BY_WRITE_LOCK);
}

/* Whether the log begins anew is not known before the next commit: see upkeep_committed(). */
static void checkpoint(struct driver *driver, enum guard guard)
{
    int64_t begun_ns = driver->locks.host->now(driver->locks.host);
    int lock = lock_folder(driver);
    if (lock >= 0) {
        copy_in_turn(driver, guard, begun_ns);
        close(lock);
        tell_if_slow(driver, begun_ns);
    }
    driver->checkpoint_at = driver->log_frames + CHECKPOINT_AGAIN;
    if (driver->checkpoint_at < CHECKPOINT_FRAMES)
        driver->checkpoint_at = CHECKPOINT_FRAMES;
}

void upkeep_make_room(struct driver *driver)
{
    checkpoint(driver, BY_WRITE_LOCK);
}

/* A new database is only in the log. Copying it gives its pages their room on the disk. */
void upkeep_begin(struct driver *driver)
{
    if (driver->log_frames > 0)
        checkpoint(driver, BY_COMMIT);
}

/* A checkpoint takes the time of a disk flush. A client that has just acquired a lock, or is about to be woken, should not
 * spend that time while others wait. Some other client will release soon, and can do it. */
void upkeep_run(struct driver *driver, bool convenient)
{
    if (driver->log_frames < driver->checkpoint_at || driver->db == NULL)
        return;
    if (!convenient && driver->log_frames < CHECKPOINT_OVERDUE)
        return;
    checkpoint(driver, BY_COMMIT);
    if (driver->locks.host->now(driver->locks.host) >= driver->sweep_ns)
        upkeep_sweep(driver);
}

/* ---- sweeping ---------------------------------------------------------------------------------- */

struct stretch {
    unsigned char from[MORTISE_NAME_MAX], to[MORTISE_NAME_MAX];
    int from_len, to_len; /* 0: from the first name; to the last */
};

/* Takes the blob of a statement's only row; 0 bytes: none. */
static int take_name(struct driver *driver, sqlite3_stmt *statement, unsigned char *name, int *len)
{
    int rc = database_step(driver, statement);
    *len = 0;
    if (rc == SQLITE_ROW) {
        const void *bytes = sqlite3_column_blob(statement, 0);
        int n = sqlite3_column_bytes(statement, 0);
        if (bytes != NULL && n > 0 && n <= MORTISE_NAME_MAX) {
            memcpy(name, bytes, (size_t)n);
            *len = n;
        }
    }
    sqlite3_reset(statement);
    return rc == SQLITE_ROW || rc == SQLITE_DONE ? SQLITE_OK : rc;
}

static int find_stretch(struct driver *driver, struct stretch *stretch)
{
    sqlite3_stmt *end = driver->statements[TEXT_SWEEP_TO];
    int rc =
        take_name(driver, driver->statements[TEXT_SWEEP_FROM], stretch->from, &stretch->from_len);
    if (rc == SQLITE_OK)
        rc = sqlite3_bind_blob(end, 1, stretch->from, stretch->from_len, SQLITE_STATIC);
    if (rc == SQLITE_OK)
        rc = sqlite3_bind_int(end, 2, SWEEP_ROWS);
    return rc == SQLITE_OK ? take_name(driver, end, stretch->to, &stretch->to_len) : rc;
}

static int sweep_stretch(struct driver *driver, const struct stretch *stretch, int *swept)
{
    sqlite3_stmt *sweep = driver->statements[TEXT_SWEEP];
    int64_t now_us, wall_us;
    clock_read(driver, &now_us, &wall_us);
    int rc = sqlite3_bind_blob(sweep, 1, stretch->from, stretch->from_len, SQLITE_STATIC);
    rc |= database_bind_end(sweep, 2, stretch->to, (size_t)stretch->to_len);
    rc |= sqlite3_bind_int64(sweep, 3, now_us);
    rc |= sqlite3_bind_int64(sweep, 4, wall_us - DAY_US);
    if (rc == SQLITE_OK)
        rc = database_write(driver, TEXT_SWEEP);
    *swept = rc == SQLITE_OK ? sqlite3_changes(driver->db) : 0;
    return rc;
}

static int note_end(struct driver *driver, const struct stretch *stretch)
{
    sqlite3_stmt *note = driver->statements[TEXT_SWEEP_NOTE];
    int rc = stretch->to_len > 0
                 ? sqlite3_bind_blob(note, 1, stretch->to, stretch->to_len, SQLITE_STATIC)
                 : sqlite3_bind_null(note, 1);
    return rc == SQLITE_OK ? database_write(driver, TEXT_SWEEP_NOTE) : rc;
}

/* If the sweep deleted something, the next stretch follows with the next checkpoint. If the file is busy, this stretch
 * waits until then. */
void upkeep_sweep(struct driver *driver)
{
    struct stretch stretch;
    int swept = 0, rc = find_stretch(driver, &stretch);
    if (rc == SQLITE_OK)
        rc = sweep_stretch(driver, &stretch, &swept);
    if (rc == SQLITE_OK && (stretch.from_len > 0 || stretch.to_len > 0))
        note_end(driver, &stretch);
    inbox_sweep(driver);
    driver->sweep_ns =
        driver->locks.host->now(driver->locks.host) + (swept > 0 ? 0 : SWEEP_EVERY_NS);
}
