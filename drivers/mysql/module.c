/* module.c - the MySQL driver as a module: its table, its options, how an instance is opened and closed. Serves MySQL and
 * MariaDB, by libmariadb.
 *
 * A table of a database is the backend. driver.h says which file does what, protocol.md what happens if
 * something fails. Opening makes no connection: the first op does. */
#include "driver.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <utlist.h>

#define LEAVE_NS (500 * NS_PER_MS) /* for what a closing client still has to send */

static const mortise_option options[OPTION_COUNT] = {
    [OPTION_HOST] = {.key = "host",
                     .type = MORTISE_OPTION_TEXT,
                     .flags = MORTISE_OPTION_URL_AUTHORITY,
                     .help =
                         "the server, host or host:port (3306); several with commas between them: "
                         "the first one that can be reached and is not read-only is used"},
    [OPTION_USER] = {.key = "user",
                     .type = MORTISE_OPTION_TEXT,
                     .flags = MORTISE_OPTION_URL_USER,
                     .help = "the user of the database"},
    [OPTION_PASSWORD] = {.key = "password",
                         .type = MORTISE_OPTION_TEXT,
                         .flags = MORTISE_OPTION_SECRET | MORTISE_OPTION_URL_PASSWORD,
                         .help = "the user's password"},
    [OPTION_DATABASE] = {.key = "database",
                         .type = MORTISE_OPTION_TEXT,
                         .flags = MORTISE_OPTION_URL_PATH,
                         .help = "the database with the tables, which must exist; required"},
    [OPTION_SOCKET] = {.key = "socket",
                       .type = MORTISE_OPTION_TEXT,
                       .help = "the path of the server's unix socket, in place of host"},
    [OPTION_TLS] = {.key = "tls",
                    .type = MORTISE_OPTION_BOOL,
                    .default_text = "no",
                    .help = "yes: encrypt, and check the server's certificate and its name"},
    [OPTION_TLS_CA] = {.key = "tls_ca",
                       .type = MORTISE_OPTION_TEXT,
                       .help = "a file of trusted certificates; without it, the system's"},
    [OPTION_TLS_CERT] = {.key = "tls_cert",
                         .type = MORTISE_OPTION_TEXT,
                         .help = "the client's own certificate, a file; needs tls_key"},
    [OPTION_TLS_KEY] = {.key = "tls_key",
                        .type = MORTISE_OPTION_TEXT,
                        .help = "the client's own key, a file"},
    [OPTION_DURABLE] =
        {.key = "durable",
         .type = MORTISE_OPTION_BOOL,
         .default_text = "yes",
         .help = "yes: refuse a server that may lose what it has committed when its host "
                 "crashes (innodb_flush_log_at_trx_commit, sync_binlog); no: use it "
                 "all the same"},
    [OPTION_CONNECT_TIMEOUT] = {.key = "connect_timeout",
                                .type = MORTISE_OPTION_DURATION,
                                .default_text = "5s",
                                .minimum = 50,
                                .maximum = 600000,
                                .help = "how long an attempt to connect may take"},
    [OPTION_COMMAND_TIMEOUT] = {.key = "command_timeout",
                                .type = MORTISE_OPTION_DURATION,
                                .default_text = "5s",
                                .minimum = 50,
                                .maximum = 600000,
                                .help = "how long a statement may take; if the server does not "
                                        "answer in that time, the connection is closed"},
    [OPTION_LOCK_TIMEOUT] = {.key = "lock_timeout",
                             .type = MORTISE_OPTION_DURATION,
                             .default_text = "1s",
                             .minimum = 1,
                             .maximum = 600000,
                             .help = "how long a request waits for a row that another session "
                                     "keeps locked"},
};

static void free_driver(struct driver *driver)
{
    ghost_free(driver);
    locks_free(&driver->locks);
    free(driver);
}

/* ---- libmariadb -------------------------------------------------------------------------------- */

/* It ignores SIGPIPE for the whole process when it begins; that is for the application to decide. */
static mortise_status begin_library(mortise_error *error)
{
    struct sigaction before;
    if (getauxval(AT_SECURE) != 0 &&
        (getenv("MARIADB_PLUGIN_DIR") != NULL || getenv("LIBMYSQL_PLUGINS") != NULL))
        return fault_error(error, MORTISE_CONFIG, 0, false,
                           "MARIADB_PLUGIN_DIR and LIBMYSQL_PLUGINS must not be set in a set-uid "
                           "program");
    sigaction(SIGPIPE, NULL, &before);
    int failed = mysql_library_init(0, NULL, NULL);
    sigaction(SIGPIPE, &before, NULL);
    return failed == 0 ? MORTISE_OK : fault_error(error, MORTISE_NOMEM, 0, true, "out of memory");
}

/* ---- what happens on the links ---------------------------------------------------------------------- */

static void go(struct driver *driver)
{
    link_want(&driver->main);
    link_want(&driver->live);
    flight_go(&driver->main);
    flight_go(&driver->live);
}

static void ready(struct link *link)
{
    struct driver *driver = link->driver;
    driver->ghost_ns = driver->locks.host->now(driver->locks.host);
}

static const struct link_events events = {.lost = ghost_make, .ready = ready};

/* ---- the module ----------------------------------------------------------------------------------- */

static mortise_status open_driver(const mortise_open_args *args, void **ctx, mortise_error *error)
{
    struct driver *driver = calloc(1, sizeof(*driver));
    mortise_status status = begin_library(error);
    if (driver == NULL || status != MORTISE_OK) {
        free(driver);
        return driver == NULL ? fault_error(error, MORTISE_NOMEM, 0, true, "out of memory")
                              : status;
    }
    driver->values = args->values;
    driver->section = args->section;
    driver->events = &events;
    driver->resolved = link_resolved;
    locks_init(&driver->locks, args->host, &mysql_dialect, 0);
    driver->locks.unlisted = true; /* nobody is notified: waiters look by themselves */
    link_init(driver, &driver->main, false);
    link_init(driver, &driver->live, true);
    driver->ghost_ns = MORTISE_NEVER;
    sweep_begin(driver);
    status = target_find(driver, error);
    driver->section = NULL;
    if (status == MORTISE_OK)
        *ctx = driver;
    else
        free_driver(driver);
    return status;
}

static void start(void *ctx, mortise_op **ops, size_t n)
{
    struct driver *driver = ctx;
    locks_start(&driver->locks, ops, n);
    go(driver);
}

static void cancel(void *ctx, mortise_op *op)
{
    struct driver *driver = ctx;
    locks_cancel(&driver->locks, op);
    go(driver);
}

static int64_t earlier(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static size_t interest(void *ctx, struct pollfd *fds, size_t capacity, int64_t *due_ns)
{
    struct driver *driver = ctx;
    struct link *links[] = {&driver->main, &driver->live};
    size_t count = 0;
    for (size_t i = 0; i < 2; i++) {
        *due_ns = earlier(*due_ns, link_due(links[i]));
        if (links[i]->fd >= 0 && count < capacity)
            fds[count++] = link_pollfd(links[i]);
    }
    *due_ns = earlier(*due_ns, earlier(driver->locks.chore_ns, ghost_due(driver)));
    return count;
}

static void turn(void *ctx, const struct pollfd *ready, size_t n)
{
    struct driver *driver = ctx;
    link_turn(&driver->main, ready, n);
    link_turn(&driver->live, ready, n);
    locks_turn(&driver->locks);
    ghost_turn(driver);
    sweep_turn(driver);
    go(driver);
}

/* What was sent, or waits to be, is to be answered, if the server answers within a moment. */
static void leave(struct driver *driver)
{
    int64_t until_ns = driver->locks.host->now(driver->locks.host) + LEAVE_NS;
    sweep_turn(driver);
    go(driver);
    while (driver->main.state == LINK_READY && !flight_idle(&driver->main)) {
        struct pollfd fd = link_pollfd(&driver->main);
        int64_t left_ns = until_ns - driver->locks.host->now(driver->locks.host);
        if (left_ns <= 0)
            return;
        poll(&fd, 1, (int)(left_ns / NS_PER_MS) + 1);
        link_turn(&driver->main, &fd, 1);
        go(driver);
    }
}

/* Their ops were completed before, as canceled. */
static void drop_requests(struct link *link)
{
    struct request *request, *next, *flying = flight_take(link);
    DL_FOREACH_SAFE2(flying, request, next, next)
    statement_free(request);
    DL_FOREACH_SAFE2(link->queue, request, next, next)
    statement_free(request);
    link->queue = NULL;
}

static void close_driver(void *ctx)
{
    struct driver *driver = ctx;
    driver->locks.closing = true;
    leave(driver);
    drop_requests(&driver->main);
    drop_requests(&driver->live);
    link_close(&driver->main);
    link_close(&driver->live);
    free_driver(driver);
}

static uint32_t capabilities_of(void *ctx)
{
    const struct driver *driver = ctx;
    bool durable = driver->values[OPTION_DURABLE].number != 0;
    return durable ? UINT32_MAX : ~(uint32_t)MORTISE_CAP_DURABLE;
}

const mortise_module mortise_module_v1 = {
    MORTISE_MODULE_HEAD,
    .kind = MORTISE_KIND_DRIVER,
    .capabilities = MORTISE_CAP_LEASE | MORTISE_CAP_FENCING | MORTISE_CAP_DURABLE |
                    MORTISE_CAP_INSPECT | MORTISE_CAP_LIST | MORTISE_CAP_REENTRANT |
                    MORTISE_CAP_SHARED | MORTISE_CAP_PERMITS,
    .name = "mysql",
    .version = "0.1.0",
    .summary = "tables in a MySQL or MariaDB database",
    .options = options,
    .option_count = OPTION_COUNT,
    .open = open_driver,
    .start = start,
    .cancel = cancel,
    .interest = interest,
    .turn = turn,
    .close = close_driver,
    .capabilities_of = capabilities_of,
    .schema = sql_schema_text,
};
