/* module.c - the SQLite driver as a module: its table, its options, how an instance is opened and closed.
 *
 * A database file on a disk of this host is the backend: no server, nothing to install, safe between all
 * processes of the host. driver.h says what each file does, protocol.md what happens if something fails. */
#include "driver.h"

#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#if SQLITE_VERSION_NUMBER < 3037000
#error "SQLite 3.37 or later is needed"
#endif

#define SWEEP_CHANCE 16            /* one in so many clients sweeps when it is opened */
#define MESSAGES_MAX 64            /* in one turn */
#define INBOX_DEEP 8               /* if so many come at once, more may not have fit */
#define LEAVE_NS (500 * NS_PER_MS) /* for what a closing client must still write */

static const mortise_option options[OPTION_COUNT] = {
    [OPTION_PATH] = {.key = "path",
                     .type = MORTISE_OPTION_TEXT,
                     .flags = MORTISE_OPTION_URL_PATH,
                     .help = "the database, an absolute path on a local disk; without it, "
                             "/var/lib/mortise/locks.db for root, else mortise/locks.db "
                             "in $XDG_STATE_HOME or ~/.local/state"},
    [OPTION_SYNCHRONOUS] = {.key = "synchronous",
                            .type = MORTISE_OPTION_CHOICE,
                            .default_text = "normal",
                            .choices = "normal|full",
                            .help = "full: a grant is written to the disk before it counts; "
                                    "normal: grants survive every crash except one of the host, "
                                    "which ends all holders too"},
    [OPTION_BUSY_TIMEOUT] = {.key = "busy_timeout",
                             .type = MORTISE_OPTION_DURATION,
                             .default_text = "5s",
                             .minimum = 0,
                             .maximum = 3600000,
                             .help = "how long an operation waits for a database that another "
                                     "process keeps locked"},
    [OPTION_RESERVE] = {.key = "reserve",
                        .type = MORTISE_OPTION_DURATION,
                        .default_text = "20ms",
                        .minimum = 0,
                        .maximum = 10000,
                        .help = "how long a released lock is reserved for the process that "
                                "has waited longest; 0: the first process to ask gets it"},
    [OPTION_MODE] = {.key = "mode",
                     .type = MORTISE_OPTION_TEXT,
                     .default_text = "0600",
                     .help = "permissions of a new database, in octal; 0660 shares it "
                             "with the group, whose members need shared = yes"},
    [OPTION_FILESYSTEM] = {.key = "filesystem",
                           .type = MORTISE_OPTION_CHOICE,
                           .default_text = "local",
                           .choices = "local|any",
                           .help = "any: accept a directory on a network file system; use it "
                                   "only if no other host does"},
    [OPTION_SHARED] = {.key = "shared",
                       .type = MORTISE_OPTION_BOOL,
                       .default_text = "no",
                       .help = "yes: accept a database that belongs to another user, or "
                               "that is below a directory that other users own or can "
                               "write; you trust everybody who can write either with all "
                               "its locks"},
};

static mortise_status check_library(mortise_error *error)
{
    if (sqlite3_threadsafe() == 0)
        return fault_error(error, MORTISE_CONFIG, 0, false,
                           "the SQLite library of this system was built without thread safety");
    if (sqlite3_libversion_number() < 3037000)
        return fault_error(error, MORTISE_CONFIG, 0, false,
                           "SQLite 3.37 or later is needed; the library of this system is %s",
                           sqlite3_libversion());
    return MORTISE_OK;
}

static void free_driver(struct driver *driver)
{
    locks_free(&driver->locks);
    pthread_mutex_destroy(&driver->lock);
    if (driver->outbox_fd >= 0)
        close(driver->outbox_fd);
    if (driver->wake_folder >= 0)
        close(driver->wake_folder);
    free(driver);
}

static struct driver *new_driver(const mortise_open_args *args)
{
    struct driver *driver = calloc(1, sizeof(*driver));
    if (driver == NULL)
        return NULL;
    pthread_mutex_init(&driver->lock, NULL);
    locks_init(&driver->locks, args->host, &sqlite_dialect, args->values[OPTION_RESERVE].number);
    driver->values = args->values;
    driver->wake_folder = driver->inbox_fd = driver->outbox_fd = -1;
    driver->retry_ns = MORTISE_NEVER;
    driver->checkpoint_at = CHECKPOINT_FRAMES;
    return driver;
}

static void sweep_by_chance(struct driver *driver)
{
    unsigned char chance;
    driver->locks.host->random(driver->locks.host, &chance, sizeof(chance));
    if (chance % SWEEP_CHANCE == 0)
        upkeep_sweep(driver);
}

static mortise_status begin(struct driver *driver, mortise_error *error)
{
    mortise_status status = clock_open(driver, error);
    if (status == MORTISE_OK)
        status = path_find(driver, error);
    if (status == MORTISE_OK)
        status = database_open(driver, driver->values[OPTION_BUSY_TIMEOUT].number, error);
    if (status != MORTISE_OK)
        return status;
    upkeep_begin(driver);
    sweep_by_chance(driver);
    return MORTISE_OK;
}

static mortise_status open_driver(const mortise_open_args *args, void **ctx, mortise_error *error)
{
    mortise_status status = check_library(error);
    if (status != MORTISE_OK)
        return status;
    struct driver *driver = new_driver(args);
    if (driver == NULL)
        return fault_error(error, MORTISE_NOMEM, 0, true, "out of memory");
    forks_open_begin(driver);
    status = begin(driver, error);
    if (status == MORTISE_OK) {
        forks_leave(driver);
        *ctx = driver;
    } else {
        replaced_leave(driver);
        forks_end(driver);
        free_driver(driver);
    }
    return status;
}

/* ---- calls of the core ------------------------------------------------------------------------------- */

/* A checkpoint takes the time of a disk flush: see upkeep_run(). */
static void start(void *ctx, mortise_op **ops, size_t n)
{
    struct driver *driver = ctx;
    bool convenient = true; /* checked before they are completed: afterwards they are not ours */
    for (size_t i = 0; i < n; i++)
        convenient = convenient && ops[i]->kind != MORTISE_OP_ACQUIRE;
    forks_enter(driver);
    locks_start(&driver->locks, ops, n);
    transactions_go(driver);
    upkeep_run(driver, convenient);
    forks_leave(driver);
}

static void cancel(void *ctx, mortise_op *op)
{
    struct driver *driver = ctx;
    forks_enter(driver);
    locks_cancel(&driver->locks, op);
    forks_leave(driver);
}

static void watch(void *ctx, const char *name, size_t name_len)
{
    struct driver *driver = ctx;
    forks_enter(driver);
    locks_watch(&driver->locks, name, name_len);
    transactions_go(driver);
    forks_leave(driver);
}

static void unwatch(void *ctx, const char *name, size_t name_len)
{
    struct driver *driver = ctx;
    forks_enter(driver);
    locks_unwatch(&driver->locks, name, name_len);
    transactions_go(driver);
    forks_leave(driver);
}

static size_t interest(void *ctx, struct pollfd *fds, size_t capacity, int64_t *due_ns)
{
    const struct driver *driver = ctx;
    int64_t chore_ns = driver->locks.chore_ns;
    int64_t due = driver->retry_ns < chore_ns ? driver->retry_ns : chore_ns;
    if (due < *due_ns)
        *due_ns = due;
    if (driver->inbox_fd < 0 || capacity == 0)
        return 0;
    fds[0] = (struct pollfd){.fd = driver->inbox_fd, .events = POLLIN};
    return 1;
}

static void read_messages(struct driver *driver)
{
    char name[MORTISE_NAME_MAX];
    size_t count = 0, len;
    while (count < MESSAGES_MAX && (len = inbox_receive(driver, name, sizeof(name))) > 0) {
        locks_hear(&driver->locks, name, len);
        count++;
    }
    if (count >= INBOX_DEEP)
        driver->locks.host->news_all(driver->locks.host);
}

static void turn(void *ctx, const struct pollfd *ready, size_t n)
{
    struct driver *driver = ctx;
    (void)ready;
    (void)n;
    forks_enter(driver);
    transactions_go(driver);
    read_messages(driver);
    locks_turn(&driver->locks);
    transactions_go(driver);
    upkeep_run(driver, false);
    forks_leave(driver);
}

/* The result of one errand may be a reason for another one. A broken database is not asked again. */
static bool has_left(struct driver *driver)
{
    if (!driver->broken)
        locks_leave(&driver->locks);
    transactions_go(driver);
    return driver->queue == NULL && (driver->broken || locks_have_left(&driver->locks));
}

/* Leaves the lists of waiters, if the file is free within a moment. */
static void leave(struct driver *driver)
{
    mortise_host *host = driver->locks.host;
    int64_t until_ns = host->now(host) + LEAVE_NS;
    driver->locks.closing = true;
    if (driver->db == NULL || files_index_is_other(driver))
        return;
    while (!has_left(driver) && host->now(host) < until_ns)
        clock_nanosleep(CLOCK_MONOTONIC, 0, &(struct timespec){.tv_nsec = 1000000}, NULL);
}

static void close_driver(void *ctx)
{
    struct driver *driver = ctx;
    forks_enter(driver);
    driver->broken = false;
    driver->look_ns = MORTISE_NEVER; /* from here on, the file is not opened anew */
    leave(driver);
    transactions_drop(driver);
    inbox_close(driver);
    database_close(driver);
    replaced_leave(driver);
    forks_end(driver);
    free_driver(driver);
}

const mortise_module mortise_module_v1 = {
    MORTISE_MODULE_HEAD,
    .kind = MORTISE_KIND_DRIVER,
    .capabilities = MORTISE_CAP_LEASE | MORTISE_CAP_FENCING | MORTISE_CAP_DURABLE |
                    MORTISE_CAP_INSPECT | MORTISE_CAP_LIST | MORTISE_CAP_NOTIFY |
                    MORTISE_CAP_REENTRANT | MORTISE_CAP_SHARED | MORTISE_CAP_PERMITS,
    .name = "sqlite",
    .version = MORTISE_VERSION_TEXT,
    .summary = "a database file on this host: no server, safe between its processes",
    .options = options,
    .option_count = OPTION_COUNT,
    .open = open_driver,
    .start = start,
    .cancel = cancel,
    .interest = interest,
    .turn = turn,
    .close = close_driver,
    .watch = watch,
    .unwatch = unwatch,
    .schema = sql_schema_text,
};
