/* module.c - the PostgreSQL driver as a module: its table, its options, how an instance is opened and closed.
 *
 * A table of a database is the backend. driver.h says which file does what, protocol.md what happens if
 * something fails. Opening makes no connection: the first op does. */
#include "driver.h"

#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#ifndef LIBPQ_HAS_PIPELINING
#error "libpq 14 or later is needed"
#endif

#define LEAVE_NS (500 * NS_PER_MS) /* for what a closing client still has to send */

static const mortise_option options[OPTION_COUNT] = {
    [OPTION_CONNINFO] = {.key = "conninfo",
                         .type = MORTISE_OPTION_TEXT,
                         .flags = MORTISE_OPTION_URL_WHOLE | MORTISE_OPTION_SECRET,
                         .default_text = "",
                         .help = "a connection string of libpq: \"host=a,b dbname=locks "
                                 "user=app\", or a postgresql:// URL; libpq's defaults apply "
                                 "to the rest (PGHOST, service file, password file)"},
    [OPTION_PASSWORD] = {.key = "password",
                         .type = MORTISE_OPTION_TEXT,
                         .flags = MORTISE_OPTION_SECRET,
                         .help = "the password, if neither conninfo nor libpq's password file "
                                 "has it"},
    [OPTION_SCHEMA] = {.key = "schema",
                       .type = MORTISE_OPTION_TEXT,
                       .default_text = "",
                       .help = "the schema of the tables; without it, the only schema of "
                               "the database that has them, or else the first schema of "
                               "search_path"},
    [OPTION_POOLER] = {.key = "pooler",
                       .type = MORTISE_OPTION_CHOICE,
                       .default_text = "auto",
                       .choices = "auto|yes|no",
                       .help = "yes: the connection goes through a pooler (for example, "
                               "pgbouncer in transaction mode): nothing is kept in the "
                               "session, and waiters poll instead of being notified"},
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
                             .help = "how long a statement waits for a row that another session "
                                     "keeps locked"},
    [OPTION_RESERVE] = {.key = "reserve",
                        .type = MORTISE_OPTION_DURATION,
                        .default_text = "50ms",
                        .minimum = 0,
                        .maximum = 10000,
                        .help = "how long a released lock is reserved for the process that "
                                "has waited longest; 0: the first process to ask gets it"},
};

static void free_driver(struct driver *driver)
{
    ghost_free(driver);
    locks_free(&driver->locks);
    target_free(driver);
    free(driver);
}

/* ---- what happens on the links ---------------------------------------------------------------------- */

static void go(struct driver *driver)
{
    link_want(&driver->main);
    link_want(&driver->live);
    setup_listen(&driver->live);
    flight_go(&driver->main);
    flight_go(&driver->live);
}

static void ready(struct link *link)
{
    struct driver *driver = link->driver;
    driver->ghost_ns = driver->locks.host->now(driver->locks.host);
    driver->locks.unlisted = driver->main.pooled;
    if (link->listens)
        locks_hearing(&driver->locks);
}

static const struct link_events events = {
    .lost = ghost_make, .ready = ready, .notified = notify_heard};

/* ---- the module ----------------------------------------------------------------------------------- */

static mortise_status open_driver(const mortise_open_args *args, void **ctx, mortise_error *error)
{
    struct driver *driver = calloc(1, sizeof(*driver));
    if (driver == NULL)
        return fault_error(error, MORTISE_NOMEM, 0, true, "out of memory");
    driver->values = args->values;
    driver->events = &events;
    driver->resolved = link_resolved;
    locks_init(&driver->locks, args->host, &postgres_dialect, args->values[OPTION_RESERVE].number);
    link_init(driver, &driver->main, false);
    link_init(driver, &driver->live, true);
    driver->ghost_ns = MORTISE_NEVER;
    sweep_begin(driver);
    notify_channel(&driver->locks.inbox, driver->channel);
    mortise_status status = target_find(driver, error);
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

static void watch(void *ctx, const char *name, size_t name_len)
{
    struct driver *driver = ctx;
    locks_watch(&driver->locks, name, name_len);
    go(driver);
}

static void unwatch(void *ctx, const char *name, size_t name_len)
{
    struct driver *driver = ctx;
    locks_unwatch(&driver->locks, name, name_len);
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
            fds[count++] = (struct pollfd){.fd = links[i]->fd, .events = links[i]->events};
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

/* Leaves the lists of waiters, if the server answers within a moment. */
static void leave(struct driver *driver)
{
    int64_t until_ns = driver->locks.host->now(driver->locks.host) + LEAVE_NS;
    if (driver->main.state == LINK_READY)
        locks_leave(&driver->locks);
    sweep_turn(driver);
    go(driver);
    while (driver->main.state == LINK_READY &&
           !(locks_have_left(&driver->locks) && flight_idle(&driver->main))) {
        struct pollfd fd = {.fd = driver->main.fd, .events = driver->main.events};
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
    for (int lane = 0; lane < LANE_COUNT; lane++) {
        DL_FOREACH_SAFE2(link->queue[lane], request, next, next)
        statement_free(request);
        link->queue[lane] = NULL;
    }
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
    bool told = driver->values[OPTION_POOLER].number != POOLER_YES;
    return told ? UINT32_MAX : ~(uint32_t)MORTISE_CAP_NOTIFY;
}

const mortise_module mortise_module_v1 = {
    MORTISE_MODULE_HEAD,
    .kind = MORTISE_KIND_DRIVER,
    .capabilities = MORTISE_CAP_LEASE | MORTISE_CAP_FENCING | MORTISE_CAP_DURABLE |
                    MORTISE_CAP_INSPECT | MORTISE_CAP_LIST | MORTISE_CAP_NOTIFY |
                    MORTISE_CAP_REENTRANT | MORTISE_CAP_SHARED | MORTISE_CAP_PERMITS,
    .name = "postgres",
    .version = "0.1.0",
    .summary = "tables in a PostgreSQL database",
    .options = options,
    .option_count = OPTION_COUNT,
    .open = open_driver,
    .start = start,
    .cancel = cancel,
    .interest = interest,
    .turn = turn,
    .close = close_driver,
    .capabilities_of = capabilities_of,
    .watch = watch,
    .unwatch = unwatch,
    .schema = sql_schema_text,
};
