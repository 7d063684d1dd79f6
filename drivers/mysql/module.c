/* module.c - the MySQL driver as a module: its table, its options, how an instance is opened and closed. Serves MySQL and
 * MariaDB, by libmariadb.
 *
 * A table of a database is the backend. driver.h says what each file does, protocol.md what happens if something fails.
 * Opening makes no connection; the first op makes one. */
#include "driver.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>

#define LOCKED_PAUSE_MS 50 /* the pause before a locked row is tried again */

#define TEXT(name, how, words)                                                                     \
    {                                                                                              \
        .key = (name), .type = MORTISE_OPTION_TEXT, .flags = (how), .help = (words)                \
    }
#define BOOL(name, usual, words)                                                                   \
    {                                                                                              \
        .key = (name), .type = MORTISE_OPTION_BOOL, .default_text = (usual), .help = (words)       \
    }

static const mortise_option options[OPTION_COUNT] = {
    [OPTION_HOST] = TEXT("host", MORTISE_OPTION_URL_AUTHORITY,
                         "the server, host or host:port (3306); several with commas between them: "
                         "the first one that can be reached and is not read-only is used; "
                         "host or socket is required"),
    [OPTION_USER] = TEXT("user", MORTISE_OPTION_URL_USER, "the user of the database"),
    [OPTION_PASSWORD] = TEXT("password", MORTISE_OPTION_SECRET | MORTISE_OPTION_URL_PASSWORD,
                             "the user's password"),
    [OPTION_DATABASE] = TEXT("database", MORTISE_OPTION_URL_PATH,
                             "the database with the tables, which must exist; required"),
    [OPTION_SOCKET] = TEXT("socket", 0, "the path of the server's unix socket, in place of host"),
    [OPTION_TLS] =
        BOOL("tls", "no", "yes: encrypt, and check the server's certificate and its name"),
    [OPTION_TLS_CA] = TEXT("tls_ca", 0, "a file of trusted certificates; without it, the system's"),
    [OPTION_TLS_CERT] = TEXT("tls_cert", 0, "the client's own certificate, a file; needs tls_key"),
    [OPTION_TLS_KEY] = TEXT("tls_key", 0, "the client's own key, a file"),
    [OPTION_DURABLE] =
        BOOL("durable", "yes",
             "yes: refuse a server that may lose what it has committed when its host "
             "crashes (innodb_flush_log_at_trx_commit, sync_binlog); no: use it anyway"),
    [OPTION_CONNECT_TIMEOUT] = REMOTE_CONNECT_TIMEOUT,
    [OPTION_COMMAND_TIMEOUT] = REMOTE_COMMAND_TIMEOUT,
    [OPTION_LOCK_TIMEOUT] = REMOTE_LOCK_TIMEOUT,
};

/* ---- libmariadb -------------------------------------------------------------------------------- */

/* The variables that libmariadb reads from its environment, by getenv(), and that matter although this driver passes its own
 * settings: where plugins are, which ones are loaded, and (Connector/C 3.4 and later, at each connection) that no certificate
 * is checked. With these, the caller of a set-uid program could run code in it, or learn the password (R11). The driver always
 * passes a host or socket, a port and a password, so MYSQL_PWD, MYSQL_TCP_PORT and M…_UNIX_PORT are not used. HOME, MYSQL_HOME
 * and MARIADB_HOME are used only with option files. */
static mortise_status check_environment(mortise_error *error)
{
    if (getauxval(AT_SECURE) == 0)
        return MORTISE_OK;
    if (getenv("MARIADB_PLUGIN_DIR") == NULL && getenv("LIBMYSQL_PLUGINS") == NULL &&
        getenv("MARIADB_TLS_DISABLE_PEER_VERIFICATION") == NULL)
        return MORTISE_OK;
    return fault_error(error, DRIVER_NAME, MORTISE_CONFIG, 0, false,
                       "MARIADB_PLUGIN_DIR, LIBMYSQL_PLUGINS and "
                       "MARIADB_TLS_DISABLE_PEER_VERIFICATION must not be set in a set-uid "
                       "program: libmariadb obeys them");
}

/* When libmariadb is initialised, it ignores SIGPIPE for the whole process. This function restores the signal, because that
 * is for the application to decide. */
static mortise_status begin_library(mortise_error *error)
{
    struct sigaction before;
    sigaction(SIGPIPE, NULL, &before);
    int failed = mysql_library_init(0, NULL, NULL);
    sigaction(SIGPIPE, &before, NULL);
    return failed == 0 ? MORTISE_OK
                       : fault_error(error, DRIVER_NAME, MORTISE_NOMEM, 0, true, "out of memory");
}

/* ---- the module ----------------------------------------------------------------------------------- */

static const struct remote_dialect dialect = {
    .name = DRIVER_NAME,
    .group_max = GROUP_MAX,
    .group_bytes = GROUP_BYTES,
    .connect = connection_begin,
    .close = connection_end,
    .events = connection_events,
    .come_in = connection_come_in,
    .is_there = connection_is_there,
    .where = connection_where,
    .is_open = group_is_open,
    .size = group_size,
    .send = group_send,
    .forget = statement_forget,
    .ghost_look = ghost_look,
    .ghost_take = ghost_take,
    .sweep = sweep,
};

static struct driver *make_driver(const mortise_open_args *args)
{
    struct driver *driver = calloc(1, sizeof(*driver));
    if (driver == NULL)
        return NULL;
    driver->values = args->values;
    driver->section = args->section;
    driver->remote.main = &driver->main.link;
    driver->remote.live = &driver->live.link;
    driver->remote.connect_ms = args->values[OPTION_CONNECT_TIMEOUT].number;
    driver->remote.command_ms = args->values[OPTION_COMMAND_TIMEOUT].number;
    driver->remote.lock_ms = args->values[OPTION_LOCK_TIMEOUT].number;
    driver->remote.pause_ms = LOCKED_PAUSE_MS;
    remote_init(&driver->remote, args->host, &dialect, &mysql_dialect, 0);
    driver->remote.locks.unlisted = true; /* nobody is notified: waiters poll */
    return driver;
}

static mortise_status open_driver(const mortise_open_args *args, void **ctx, mortise_error *error)
{
    mortise_status status = check_environment(error);
    if (status == MORTISE_OK)
        status = begin_library(error);
    if (status != MORTISE_OK)
        return status;
    struct driver *driver = make_driver(args);
    if (driver == NULL)
        return fault_error(error, DRIVER_NAME, MORTISE_NOMEM, 0, true, "out of memory");
    status = target_find(driver, error);
    driver->section = NULL;
    *ctx = driver;
    if (status == MORTISE_OK)
        return status;
    remote_free(&driver->remote);
    return status;
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
    .name = DRIVER_NAME,
    .version = MORTISE_VERSION_TEXT,
    .summary = "tables in a MySQL or MariaDB database",
    .options = options,
    .option_count = OPTION_COUNT,
    .open = open_driver,
    .start = remote_start,
    .cancel = remote_cancel,
    .interest = remote_interest,
    .turn = remote_turn,
    .close = remote_close,
    .capabilities_of = capabilities_of,
    .schema = sql_schema_text,
};
