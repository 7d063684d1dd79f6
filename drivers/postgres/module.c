/* module.c - the PostgreSQL driver as a module: its table, its options, how an instance is opened and closed.
 *
 * A table of a database is the backend. driver.h says what each file does, protocol.md what happens if something
 * fails. Opening makes no connection; the first op makes one. */
#include "driver.h"

#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#ifndef LIBPQ_HAS_PIPELINING
#error "libpq 14 or later is needed"
#endif

#define SLICE_MS 200 /* of lock_timeout: how long a statement waits for a row */

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
                         .help = "the password, in place of one in conninfo or in libpq's "
                                 "password file"},
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
    [OPTION_CONNECT_TIMEOUT] = REMOTE_CONNECT_TIMEOUT,
    [OPTION_COMMAND_TIMEOUT] = REMOTE_COMMAND_TIMEOUT,
    [OPTION_LOCK_TIMEOUT] = REMOTE_LOCK_TIMEOUT,
    [OPTION_RESERVE] = {.key = "reserve",
                        .type = MORTISE_OPTION_DURATION,
                        .default_text = "50ms",
                        .minimum = 0,
                        .maximum = 10000,
                        .help = "how long a released lock is reserved for the process that "
                                "has waited longest; 0: the first process to ask gets it"},
};

/* ---- what happens on the links ---------------------------------------------------------------------- */

static void go(struct remote *remote)
{
    setup_listen(remote->live);
}

static bool is_wanted(const struct link *link)
{
    const struct driver *driver = driver_of(link);
    return link->live && driver->listen_wanted && driver->remote.locks.names != NULL;
}

static void ready(struct link *link)
{
    struct driver *driver = driver_of(link);
    driver->remote.locks.unlisted = driver->main.pooled;
    if (pg_link(link)->listens)
        locks_hearing(&driver->remote.locks);
}

static const struct remote_dialect dialect = {
    .name = DRIVER_NAME,
    .group_max = PIPELINE_MAX,
    .group_bytes = GROUP_BYTES,
    .connect = connection_begin,
    .pass_by = connection_pass_by,
    .close = connection_end,
    .events = connection_events,
    .come_in = connection_come_in,
    .is_there = connection_is_there,
    .where = connection_where,
    .is_wanted = is_wanted,
    .ready = ready,
    .is_open = group_is_open,
    .size = group_size,
    .send = group_send,
    .forget = statement_forget,
    .go = go,
    .ghost_look = ghost_look,
    .ghost_take = ghost_take,
    .lingers_ns = ghost_lingers_ns,
    .sweep = sweep,
};

/* ---- the module ----------------------------------------------------------------------------------- */

/* libpq reads its environment by getenv(), even at each later connection. So the caller of a set-uid program could choose the
 * server (PGHOSTADDR) and the certificates that vouch for it (PGSSLROOTCERT, the files below HOME), and learn the password
 * (R11). */
static mortise_status check_environment(mortise_error *error)
{
    if (getauxval(AT_SECURE) == 0)
        return MORTISE_OK;
    for (char **at = environ; at != NULL && *at != NULL; at++)
        if (strncmp(*at, "PG", 2) == 0 || strncmp(*at, "HOME=", 5) == 0)
            return fault_error(error, DRIVER_NAME, MORTISE_CONFIG, 0, false,
                               "HOME, and variables that begin with PG, must not be set in a "
                               "set-uid program: libpq obeys them");
    return MORTISE_OK;
}

static mortise_status open_driver(const mortise_open_args *args, void **ctx, mortise_error *error)
{
    mortise_status status = check_environment(error);
    if (status != MORTISE_OK)
        return status;
    struct driver *driver = calloc(1, sizeof(*driver));
    const mortise_value *values = args->values;
    if (driver == NULL)
        return fault_error(error, DRIVER_NAME, MORTISE_NOMEM, 0, true, "out of memory");
    driver->values = values;
    driver->remote.main = &driver->main.link;
    driver->remote.live = &driver->live.link;
    driver->remote.connect_ms = values[OPTION_CONNECT_TIMEOUT].number;
    driver->remote.command_ms = values[OPTION_COMMAND_TIMEOUT].number;
    driver->remote.lock_ms = values[OPTION_LOCK_TIMEOUT].number;
    driver->remote.pause_ms = driver->remote.lock_ms < SLICE_MS ? driver->remote.lock_ms : SLICE_MS;
    remote_init(&driver->remote, args->host, &dialect, &postgres_dialect,
                values[OPTION_RESERVE].number);
    notify_channel(&driver->remote.locks.inbox, driver->channel);
    status = target_find(driver, error);
    if (status == MORTISE_OK)
        *ctx = driver;
    else
        remote_free(&driver->remote);
    return status;
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
    .name = DRIVER_NAME,
    .version = MORTISE_VERSION_TEXT,
    .summary = "tables in a PostgreSQL database",
    .options = options,
    .option_count = OPTION_COUNT,
    .open = open_driver,
    .start = remote_start,
    .cancel = remote_cancel,
    .interest = remote_interest,
    .turn = remote_turn,
    .close = remote_close,
    .capabilities_of = capabilities_of,
    .watch = remote_watch,
    .unwatch = remote_unwatch,
    .schema = sql_schema_text,
};
