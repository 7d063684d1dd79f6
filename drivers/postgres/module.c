/* module.c - the PostgreSQL driver as a module: its table, its options, how an instance is opened and closed.
 *
 * A table of a database is the backend. internal.h says which file does what, and what happens where
 * something fails. Opening connects to nobody: the first op does. */
#include "internal.h"

#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#ifndef LIBPQ_HAS_PIPELINING
#error "libpq 14 or later is needed"
#endif

#define SWEEP_CHANCE 16            /* one in so many clients sweeps when it closes */
#define LEAVE_NS (500 * NS_PER_MS) /* for what a closing client still has to say */
#define SWEEP_EVERY_NS (INT64_C(3600000) * NS_PER_MS)
#define SWEEP_APART_US INT64_C(1700000000) /* the fleet's; less than half of that */

static const mortise_option options[OPTION_COUNT] = {
    [OPTION_CONNINFO] = {.key = "conninfo",
                         .type = MORTISE_OPTION_TEXT,
                         .flags = MORTISE_OPTION_URL_WHOLE | MORTISE_OPTION_SECRET,
                         .default_text = "",
                         .help = "as libpq has it: \"host=a,b dbname=locks user=app\", or a "
                                 "postgresql:// URL; what is not said is libpq's default (PGHOST, "
                                 "service file, password file)"},
    [OPTION_PASSWORD] = {.key = "password",
                         .type = MORTISE_OPTION_TEXT,
                         .flags = MORTISE_OPTION_SECRET,
                         .help = "the password, where it stands neither in conninfo nor in libpq's "
                                 "password file"},
    [OPTION_SCHEMA] = {.key = "schema",
                       .type = MORTISE_OPTION_TEXT,
                       .default_text = "",
                       .help = "the schema that the tables are in; not given: the only one of the "
                               "database that has them, or else the first of search_path"},
    [OPTION_POOLER] = {.key = "pooler",
                       .type = MORTISE_OPTION_CHOICE,
                       .default_text = "auto",
                       .choices = "auto|yes|no",
                       .help = "yes: a pooler stands between (pgbouncer in transaction mode, say): "
                               "nothing is kept in the session, and waiters look from time to time "
                               "instead of being told"},
    [OPTION_CONNECT_TIMEOUT] = {.key = "connect_timeout",
                                .type = MORTISE_OPTION_DURATION,
                                .default_text = "5s",
                                .minimum = 50,
                                .maximum = 600000,
                                .help = "how long a connection may take to be made"},
    [OPTION_COMMAND_TIMEOUT] = {.key = "command_timeout",
                                .type = MORTISE_OPTION_DURATION,
                                .default_text = "5s",
                                .minimum = 50,
                                .maximum = 600000,
                                .help = "how long a statement may take; the connection is given up "
                                        "if the server does not answer by then"},
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
                        .help =
                            "how long a released lock is kept for the process that waits for it "
                            "longest; 0 lets whoever comes first have it"},
};

static void link_init(struct driver *driver, struct link *link, bool live)
{
    link->driver = driver;
    link->live = live;
    link->fd = -1;
    link->deadline_ns = link->share_ns = link->look_ns = MORTISE_NEVER;
    link->retry_ns = 0;
}

static void free_driver(struct driver *driver)
{
    while (driver->spare != NULL) {
        struct request *request = driver->spare;
        driver->spare = request->next;
        free(request);
    }
    ghost_free(driver);
    waiting_free(driver);
    target_free(driver);
    free(driver);
}

static bool chance(struct driver *driver)
{
    unsigned char byte;
    driver->host->random(driver->host, &byte, sizeof(byte));
    return byte % SWEEP_CHANCE == 0;
}

static mortise_status open_driver(const mortise_open_args *args, void **ctx, mortise_error *error)
{
    struct driver *driver = calloc(1, sizeof(*driver));
    if (driver == NULL)
        return fault_error(error, MORTISE_NOMEM, 0, true, "out of memory");
    driver->host = args->host;
    driver->values = args->values;
    link_init(driver, &driver->main, false);
    link_init(driver, &driver->live, true);
    driver->chore_ns = driver->ghost_ns = MORTISE_NEVER;
    driver->sweep_ns = driver->host->now(driver->host) + jitter_ns(driver, SWEEP_EVERY_NS);
    driver->sweep_last = chance(driver);
    driver->host->random(driver->host, &driver->inbox, sizeof(driver->inbox));
    row_channel(&driver->inbox, driver->channel);
    mortise_status status = target_find(driver, error);
    if (status == MORTISE_OK)
        *ctx = driver;
    else
        free_driver(driver);
    return status;
}

static void start(void *ctx, mortise_op **ops, size_t n)
{
    flow_start(ctx, ops, n);
}

static void cancel(void *ctx, mortise_op *op)
{
    flow_cancel(ctx, op);
    flow_go(ctx);
}

static void watch(void *ctx, const char *name, size_t name_len)
{
    waiting_watch(ctx, name, name_len);
    flow_go(ctx);
}

static void unwatch(void *ctx, const char *name, size_t name_len)
{
    waiting_unwatch(ctx, name, name_len);
    flow_go(ctx);
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
    *due_ns = earlier(*due_ns, driver->chore_ns);
    if (driver->ghosts != NULL && driver->main.state == LINK_READY)
        *due_ns = earlier(*due_ns, driver->ghost_ns);
    return count;
}

/* Now and then, with other work: it is no reason to wake anybody. One in so many clients does it when it
 * closes, for they may all be short-lived. It is a scan of the table: one client does it for all. */
static void sweep(struct driver *driver)
{
    int64_t now = driver->host->now(driver->host);
    bool due = driver->closing ? driver->sweep_last : now >= driver->sweep_ns;
    if (!due || driver->main.state != LINK_READY)
        return;
    driver->sweep_ns = now + jitter_ns(driver, SWEEP_EVERY_NS);
    driver->sweep_last = false;
    int64_t apart_us = driver->sweep_goes_on ? 0 : SWEEP_APART_US;
    driver->sweep_goes_on = false;
    struct request *request = request_new(driver, TASK_SWEEP);
    if (request == NULL)
        return;
    args_int8(&request->args, apart_us);
    request->alone = true; /* its rows are in no order with those of others */
    request_send(request, STEP_QUICK, SQL_SWEEP, LANE_LAZY);
}

static void turn(void *ctx, const struct pollfd *ready, size_t n)
{
    struct driver *driver = ctx;
    link_turn(&driver->main, ready, n);
    link_turn(&driver->live, ready, n);
    waiting_turn(driver);
    ghost_turn(driver);
    sweep(driver);
    flow_go(driver);
}

/* Places in others' lists are given up, as far as the server answers within a moment. */
static void leave(struct driver *driver)
{
    int64_t until_ns = driver->host->now(driver->host) + LEAVE_NS;
    if (driver->main.state == LINK_READY)
        waiting_leave(driver);
    sweep(driver);
    flow_go(driver);
    while (driver->main.state == LINK_READY &&
           !(waiting_has_left(driver) && flight_idle(&driver->main))) {
        struct pollfd fd = {.fd = driver->main.fd, .events = driver->main.events};
        int64_t left_ns = until_ns - driver->host->now(driver->host);
        if (left_ns <= 0)
            return;
        poll(&fd, 1, (int)(left_ns / NS_PER_MS) + 1);
        link_turn(&driver->main, &fd, 1);
        flow_go(driver);
    }
}

/* The core was told of its own before, as canceled. */
static void drop_requests(struct link *link)
{
    struct request *request, *next, *flying = flight_take(link);
    DL_FOREACH_SAFE2(flying, request, next, next)
    request_free(request);
    for (int lane = 0; lane < LANE_COUNT; lane++) {
        DL_FOREACH_SAFE2(link->queue[lane], request, next, next)
        request_free(request);
        link->queue[lane] = NULL;
    }
}

static void close_driver(void *ctx)
{
    struct driver *driver = ctx;
    driver->closing = true;
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
                    MORTISE_CAP_REENTRANT,
    .name = "postgres",
    .version = "0.1.0",
    .summary = "a table of a PostgreSQL database",
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
