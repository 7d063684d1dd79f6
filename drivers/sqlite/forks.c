/* forks.c - a forked child may open clients of its own, even if its parent had some open.
 *
 * SQLite keeps a list of its locks for each process and file. A forked child gets a copy of that list, but none of the locks.
 * A connection that the child opens later would rely on locks that it does not have: another process could take itself for the
 * last user and remove the log. SQLite has no call that forgets these locks. But unlocking them in the child, for each
 * inherited file, has the same effect, and does not touch the parent's locks.
 *
 * That is safe only if no thread was in the middle of a call when the process was forked, so fork() waits for such calls. Most
 * calls are short. But a call that opens the file waits while others have it locked (at most a few times busy_timeout, and a
 * tenth of a second), and a call that copies the log waits for the disk. fork() does not wait for threads that
 * use SQLite for something else: SQLite's mutexes that they have stay locked in the child. Knows nothing of ops and rows. */
#include "driver.h"

#include <pthread.h>
#include <unistd.h>
#include <utlist.h>

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
/* Guards what each driver has open or has left (replaced.c), and where, and the list of drivers, which is changed under both
 * locks. A thread that has this lock waits for nothing else. It is free when the process is forked, because it is taken only in
 * a call or with the lock of the list. */
static pthread_mutex_t left_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct driver *drivers; /* open in this process, or in the one that it was forked from */
static unsigned generation;    /* counts forks; a process id may be the same in another namespace */

static void before_fork(void)
{
    struct driver *driver;
    pthread_mutex_lock(&list_lock);
    DL_FOREACH2(drivers, driver, next_open)
    pthread_mutex_lock(&driver->lock);
}

static void after_fork(void)
{
    struct driver *driver;
    DL_FOREACH2(drivers, driver, next_open)
    pthread_mutex_unlock(&driver->lock);
    pthread_mutex_unlock(&list_lock);
}

static void after_fork_in_child(void)
{
    generation++;
    after_fork();
}

static void prepare(void)
{
    pthread_atfork(before_fork, after_fork, after_fork_in_child);
}

/* The inherited connection is neither used nor closed; only its locks are forgotten. */
static void forget_locks(struct driver *driver)
{
    sqlite3_file *file = NULL;
    if (driver->db == NULL ||
        sqlite3_file_control(driver->db, "main", SQLITE_FCNTL_FILE_POINTER, &file) != SQLITE_OK ||
        file == NULL || file->pMethods == NULL)
        return;
    if (file->pMethods->iVersion >= 2 && file->pMethods->xShmUnmap != NULL)
        file->pMethods->xShmUnmap(file, 0);
    file->pMethods->xUnlock(file, SQLITE_LOCK_NONE);
}

static void enlist(struct driver *driver)
{
    pthread_mutex_lock(&left_lock);
    DL_APPEND2(drivers, driver, previous_open, next_open);
    pthread_mutex_unlock(&left_lock);
}

static void delist(struct driver *driver)
{
    pthread_mutex_lock(&left_lock);
    DL_DELETE2(drivers, driver, previous_open, next_open);
    pthread_mutex_unlock(&left_lock);
}

void forks_open_begin(struct driver *opening)
{
    struct driver *driver, *next;
    pthread_once(&once, prepare);
    pthread_mutex_lock(&list_lock);
    DL_FOREACH_SAFE2(drivers, driver, next, next_open)
    {
        if (driver->generation == generation && driver->pid == getpid())
            continue;
        forget_locks(driver);
        delist(driver);
    }
    opening->generation = generation;
    opening->pid = getpid();
    enlist(opening);
    pthread_mutex_unlock(&list_lock);
    pthread_mutex_lock(&opening->lock);
}

void forks_end(struct driver *driver)
{
    pthread_mutex_unlock(&driver->lock);
    pthread_mutex_lock(&list_lock);
    delist(driver);
    pthread_mutex_unlock(&list_lock);
}

static bool is_another(const struct driver *driver, const struct driver *other)
{
    return other != driver && other->generation == generation && other->pid == getpid();
}

/* fork() first takes the lock of the list, and then those of the drivers. So a thread that has a driver's lock must not
 * wait for another lock. */
bool forks_others(struct driver *driver,
                  bool (*visit)(struct driver *driver, struct driver *other,
                                const struct file *now),
                  const struct file *now)
{
    struct driver *other;
    bool all = true;
    if (pthread_mutex_trylock(&list_lock) != 0)
        return false;
    DL_FOREACH2(drivers, other, next_open)
    {
        if (!is_another(driver, other))
            continue;
        if (pthread_mutex_trylock(&other->lock) != 0) {
            all = false;
            continue;
        }
        all = visit(driver, other, now) && all;
        pthread_mutex_unlock(&other->lock);
    }
    pthread_mutex_unlock(&list_lock);
    return all;
}

void forks_lock_left(void)
{
    pthread_mutex_lock(&left_lock);
}

void forks_unlock_left(void)
{
    pthread_mutex_unlock(&left_lock);
}

bool forks_left(struct driver *driver,
                bool (*visit)(struct driver *driver, struct driver *other, const struct file *now),
                const struct file *now)
{
    struct driver *other;
    bool any = false;
    forks_lock_left();
    DL_FOREACH2(drivers, other, next_open)
    if (is_another(driver, other))
        any = visit(driver, other, now) || any;
    forks_unlock_left();
    return any;
}

void forks_enter(struct driver *driver)
{
    pthread_mutex_lock(&driver->lock);
}

void forks_leave(struct driver *driver)
{
    pthread_mutex_unlock(&driver->lock);
}
