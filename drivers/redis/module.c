/* module.c - the Redis driver as a module: its table, its options, how an instance is opened.
 *
 * An instance has one connection for its requests, a second one for its waiters, and with min_replicas a third one, on which it
 * waits for replicas. In a cluster, it has these for each node in use. redis.h says which file does what and what can go wrong;
 * protocol.md has the requests. */
#include "../lib/redis/settings.h"
#include "cluster.h"
#include "sending.h"

#include <stdio.h>
#include <stdlib.h>

enum option {
    OPTION_SERVERS,
    OPTION_SENTINEL,
    OPTION_SENTINEL_USERNAME,
    OPTION_SENTINEL_PASSWORD,
    OPTION_CLUSTER,
    OPTION_USERNAME,
    OPTION_PASSWORD,
    OPTION_DATABASE,
    OPTION_SCHEME,
    OPTION_TLS,
    OPTION_TLS_CA,
    OPTION_TLS_CERT,
    OPTION_TLS_KEY,
    OPTION_MODE,
    OPTION_DIALECT,
    OPTION_ATOMICITY,
    OPTION_FENCING,
    OPTION_QUEUE,
    OPTION_FOREIGN,
    OPTION_RETRY,
    OPTION_CONNECT_TIMEOUT,
    OPTION_COMMAND_TIMEOUT,
    OPTION_MIN_REPLICAS,
    OPTION_REPLICA_TIMEOUT,
    OPTION_COUNT
};

/* The choices of `cluster`, `scheme` and `tls`. */
enum { CLUSTER_NO, CLUSTER_YES, CLUSTER_AUTO };
enum { SCHEME_REDIS, SCHEME_REDISS, SCHEME_REDIS_CLUSTER, SCHEME_REDISS_CLUSTER };
enum { TLS_NO }; /* each other one asks for it */

static const mortise_option options[OPTION_COUNT] = {
    [OPTION_SERVERS] = {.key = "servers",
                        .type = MORTISE_OPTION_TEXT,
                        .flags = MORTISE_OPTION_URL_AUTHORITY,
                        .default_text = "127.0.0.1:6379",
                        .help = "the server: host, host:port, [IPv6]:port, or the path of a "
                                "socket; of several servers (a, b, c) the driver uses the "
                                "primary"},
    [OPTION_SENTINEL] = {.key = "sentinel",
                         .type = MORTISE_OPTION_TEXT,
                         .help = "name@a,b,c: instead of servers, the sentinels (port 26379) "
                                 "that know the primary of that name"},
    [OPTION_SENTINEL_USERNAME] = {.key = "sentinel_username",
                                  .type = MORTISE_OPTION_TEXT,
                                  .help = "an ACL user of the sentinels"},
    [OPTION_SENTINEL_PASSWORD] = {.key = "sentinel_password",
                                  .type = MORTISE_OPTION_TEXT,
                                  .flags = MORTISE_OPTION_SECRET,
                                  .help = "the password for the sentinels; they do not get the "
                                          "servers' password"},
    [OPTION_CLUSTER] = {.key = "cluster",
                        .type = MORTISE_OPTION_CHOICE,
                        .default_text = "auto",
                        .choices = "no|yes|auto",
                        .help =
                            "servers are nodes of a Redis Cluster: each lock is at the node "
                            "that has its slot; auto: the servers say whether they are; the scheme "
                            "redis+cluster means yes"},
    SETTINGS_USERNAME_ROW,
    [OPTION_PASSWORD] = {.key = "password",
                         .type = MORTISE_OPTION_TEXT,
                         .flags = MORTISE_OPTION_SECRET | MORTISE_OPTION_URL_PASSWORD,
                         .help = "the user's password"},
    SETTINGS_DATABASE_ROW,
    [OPTION_SCHEME] = {.key = "scheme",
                       .type = MORTISE_OPTION_CHOICE,
                       .flags = MORTISE_OPTION_URL_SCHEME,
                       .default_text = "redis",
                       .choices = "redis|rediss|redis+cluster|rediss+cluster",
                       .help = "the scheme of a URL, or the name that a file calls the driver by: "
                               "rediss means tls = yes, redis+cluster cluster = yes, "
                               "rediss+cluster both"},
    [OPTION_TLS] = {.key = "tls",
                    .type = MORTISE_OPTION_CHOICE,
                    .default_text = "no",
                    .choices = "no|yes||rediss",
                    .help = "yes (or the scheme rediss): encrypt, and check the server's "
                            "certificate; needs a build with TLS"},
    SETTINGS_TLS_FILE_ROWS,
    [OPTION_MODE] = {.key = "mode",
                     .type = MORTISE_OPTION_CHOICE,
                     .default_text = "string",
                     .choices = "string|hash",
                     .help = "the type of a lock's key in the server; with hash, leases "
                             "of one owner can share the lock"},
    [OPTION_DIALECT] = {.key = "dialect",
                        .type = MORTISE_OPTION_CHOICE,
                        .default_text = "native",
                        .choices = "native|redisson",
                        .help = "redisson: the layout, the channel and the message of Redisson's "
                                "RLock, for sharing locks with Java; needs mode = hash"},
    [OPTION_ATOMICITY] = {.key = "atomicity",
                          .type = MORTISE_OPTION_CHOICE,
                          .default_text = "lua",
                          .choices = "lua|watch",
                          .help = "watch: WATCH and MULTI instead of scripts, for servers that "
                                  "forbid scripts; slower, and only for mode = string"},
    [OPTION_FENCING] = {.key = "fencing",
                        .type = MORTISE_OPTION_BOOL,
                        .default_text = "on",
                        .help = "off: no tokens; with mode = string, the plain SET NX PX "
                                "that other clients use"},
    [OPTION_QUEUE] = {.key = "queue",
                      .type = MORTISE_OPTION_BOOL,
                      .default_text = "yes",
                      .help = "waiters form a queue in the server, and a release hands the lock to "
                              "the first; no (forced by fencing = off, dialect = redisson and "
                              "atomicity = watch): a release is published, and waiters try again"},
    SETTINGS_FOREIGN_ROW,
    [OPTION_RETRY] = {.key = "retry",
                      .type = MORTISE_OPTION_DURATION,
                      .default_text = "100ms",
                      .minimum = 1,
                      .maximum = 3600000,
                      .help = "how often waiters ask with foreign = poll, or if subscribing fails"},
    [OPTION_CONNECT_TIMEOUT] = {.key = "connect_timeout",
                                .type = MORTISE_OPTION_DURATION,
                                .default_text = "2s",
                                .minimum = 10,
                                .maximum = 3600000,
                                .help = "how long an attempt to connect may take"},
    [OPTION_COMMAND_TIMEOUT] = {.key = "command_timeout",
                                .type = MORTISE_OPTION_DURATION,
                                .default_text = "3s",
                                .minimum = 10,
                                .maximum = 3600000,
                                .help = "a connection without an answer for this long counts as "
                                        "broken"},
    [OPTION_MIN_REPLICAS] = {.key = "min_replicas",
                             .type = MORTISE_OPTION_INT,
                             .default_text = "0",
                             .minimum = 0,
                             .maximum = 100,
                             .help = "a lock counts as acquired or renewed only when this many "
                                     "replicas have acknowledged it"},
    [OPTION_REPLICA_TIMEOUT] = {.key = "replica_timeout",
                                .type = MORTISE_OPTION_DURATION,
                                .default_text = "1s",
                                .minimum = 1,
                                .maximum = 3600000,
                                .help = "how long to wait for the replicas; should be less than a "
                                        "sixth of the ttl"},
};

/* ---- the settings ------------------------------------------------------------------------------------- */

static const char *without_password(const char *list)
{
    const char *at = strrchr(list, '@');
    return at != NULL ? at + 1 : list;
}

/* "name@a,b,c" */
static mortise_status read_sentinels(struct driver *driver, mortise_error *error)
{
    const mortise_value *values = driver->values;
    const char *text = values[OPTION_SENTINEL].text, *at = strchr(text, '@'), *problem;
    char name[PRIMARY_NAME_MAX + 1];
    struct link_settings like = driver->settings;
    size_t length = at != NULL ? (size_t)(at - text) : 0;
    if (values[OPTION_SERVERS].given)
        return settings_explain(
            error, MORTISE_CONFIG,
            "[%s] servers and sentinel exclude each other: sentinels say where the "
            "server is",
            driver->section);
    if (length == 0 || length >= sizeof(name) || strcspn(text, " \t\n") < length)
        return settings_explain(
            error, MORTISE_CONFIG,
            "[%s] sentinel = NAME@HOST, HOST … is expected, NAME of 1 to %d bytes", driver->section,
            PRIMARY_NAME_MAX);
    memcpy(name, text, length);
    name[length] = '\0';
    like.username = values[OPTION_SENTINEL_USERNAME].text;
    like.password = values[OPTION_SENTINEL_PASSWORD].text;
    like.database = 0;
    if (like.username != NULL && like.password == NULL)
        return settings_explain(error, MORTISE_CONFIG,
                                "[%s] sentinel_username needs sentinel_password", driver->section);
    if (!failover_open(driver, at + 1, name, &like, &problem))
        return settings_explain(error, MORTISE_CONFIG, "[%s] sentinel = …@\"%.200s\": %s",
                                driver->section, without_password(at + 1), problem);
    return MORTISE_OK;
}

static mortise_status read_servers(struct driver *driver, mortise_error *error)
{
    const char *list = driver->values[OPTION_SERVERS].text, *problem;
    bool read = strchr(list, ',') != NULL
                    ? failover_open(driver, list, NULL, &driver->settings, &problem)
                    : endpoint_next(&list, LINK_PORT, &driver->settings.endpoint, &problem);
    if (read)
        return MORTISE_OK;
    return settings_explain(error, MORTISE_CONFIG, "[%s] servers = \"%.200s\": %s", driver->section,
                            without_password(driver->values[OPTION_SERVERS].text), problem);
}

static mortise_status read_mode(struct driver *driver, mortise_error *error)
{
    const mortise_value *values = driver->values;
    bool hash = values[OPTION_MODE].number == 1, redisson = values[OPTION_DIALECT].number == 1;
    bool watches = values[OPTION_ATOMICITY].number == 1;
    if (redisson && !hash)
        return settings_explain(error, MORTISE_CONFIG, "[%s] dialect = redisson needs mode = hash",
                                driver->section);
    if (watches && hash)
        return settings_explain(
            error, MORTISE_CONFIG,
            "[%s] atomicity = watch works with mode = string only; for mode = hash, or dialect = "
            "redisson, permit scripts to the user and set atomicity = lua",
            driver->section);
    driver->layout = redisson ? LAYOUT_REDISSON : hash ? LAYOUT_HASH : LAYOUT_STRING;
    driver->fencing = values[OPTION_FENCING].number != 0;
    bool possible = driver->fencing && !watches && !redisson;
    if (values[OPTION_QUEUE].given && values[OPTION_QUEUE].number != 0 && !possible)
        return settings_explain(
            error, MORTISE_CONFIG,
            "[%s] queue = yes is not possible with fencing = off, dialect = redisson or "
            "atomicity = watch; set queue = no",
            driver->section);
    driver->queued = possible && values[OPTION_QUEUE].number != 0;
    driver->foreign_polled = values[OPTION_FOREIGN].number == 1;
    driver->retry_ms = values[OPTION_RETRY].number;
    return !watches || transaction_open(driver)
               ? MORTISE_OK
               : settings_explain(error, MORTISE_NOMEM, "out of memory");
}

static bool is_cluster(const mortise_value *values)
{
    int64_t choice = values[OPTION_CLUSTER].number, scheme = values[OPTION_SCHEME].number;
    bool named = scheme == SCHEME_REDIS_CLUSTER || scheme == SCHEME_REDISS_CLUSTER;
    return choice == CLUSTER_YES || (named && choice == CLUSTER_AUTO);
}

/* Sentinels know no clusters. */
static mortise_status read_cluster(const struct driver *driver, mortise_error *error)
{
    const mortise_value *values = driver->values;
    const char *problem = NULL;
    if (!is_cluster(values))
        return MORTISE_OK;
    if (values[OPTION_SENTINEL].given)
        problem = "cluster = yes and sentinel exclude each other";
    else if (driver->settings.database != 0)
        problem = "a cluster has no database but 0";
    else if (values[OPTION_ATOMICITY].number == 1)
        problem = "atomicity = watch does not work with a cluster";
    return problem == NULL
               ? MORTISE_OK
               : settings_explain(error, MORTISE_CONFIG, "[%s] %s", driver->section, problem);
}

/* Neither the one nor the other may be overlooked: the password would be readable on the way. */
static mortise_status read_tls(struct driver *driver, mortise_error *error)
{
    const mortise_value *values = driver->values;
    struct link_settings *settings = &driver->settings;
    int64_t scheme = values[OPTION_SCHEME].number;
    bool named = scheme == SCHEME_REDISS || scheme == SCHEME_REDISS_CLUSTER;
    settings->tls = named || values[OPTION_TLS].number != TLS_NO;
    settings->tls_ca = values[OPTION_TLS_CA].text;
    settings->tls_cert = values[OPTION_TLS_CERT].text;
    settings->tls_key = values[OPTION_TLS_KEY].text;
    if (!named || !values[OPTION_TLS].given || values[OPTION_TLS].number != TLS_NO)
        return MORTISE_OK;
    return settings_explain(
        error, MORTISE_CONFIG,
        "[%s] tls = no contradicts the name %s, which means TLS: leave it out, or "
        "call the driver redis",
        driver->section, values[OPTION_SCHEME].text);
}

static mortise_status read_settings(struct driver *driver, const char *note, mortise_error *error)
{
    const mortise_value *values = driver->values;
    struct link_settings *settings = &driver->settings;
    settings->username = values[OPTION_USERNAME].text;
    settings->password = values[OPTION_PASSWORD].text;
    settings->database = values[OPTION_DATABASE].number;
    settings->connect_timeout_ms = values[OPTION_CONNECT_TIMEOUT].number;
    settings->command_timeout_ms = values[OPTION_COMMAND_TIMEOUT].number;
    settings->primary = true;
    settings->role_optional =
        !values[OPTION_SENTINEL].given && strchr(values[OPTION_SERVERS].text, ',') == NULL;
    settings_name_client(settings, note);
    mortise_status status = read_tls(driver, error);
    if (status == MORTISE_OK)
        status = settings_check(settings, driver->section, error);
    if (status == MORTISE_OK)
        status = values[OPTION_SENTINEL].given ? read_sentinels(driver, error)
                                               : read_servers(driver, error);
    if (status == MORTISE_OK)
        status = read_cluster(driver, error);
    if (status == MORTISE_OK)
        status = read_mode(driver, error);
    if (status == MORTISE_OK)
        settings_warn(settings, driver->host);
    return status;
}

/* ---- the slots ------------------------------------------------------------------------------------------- */

static struct cluster *new_cluster(struct driver *driver)
{
    const mortise_value *values = driver->values;
    bool looks = values[OPTION_CLUSTER].number != CLUSTER_NO && !values[OPTION_SENTINEL].given;
    return cluster_open(driver, values[OPTION_SERVERS].text, looks, is_cluster(values));
}

/* Does not connect yet; the first op does. */
static mortise_status open_driver(const mortise_open_args *args, void **ctx, mortise_error *error)
{
    struct driver *driver = calloc(1, sizeof(*driver));
    struct cluster *cluster = NULL;
    mortise_status status = MORTISE_NOMEM;
    if (driver != NULL) {
        driver->host = args->host;
        driver->values = args->values;
        driver->dispatch = &dispatch_calls;
        snprintf(driver->section, sizeof(driver->section), "%s", args->section);
        snprintf(driver->inbox, sizeof(driver->inbox), "mortise:inbox:%.32s", args->client_id);
        cluster = new_cluster(driver);
    }
    if (cluster == NULL) {
        free(driver);
        return settings_explain(error, status, "out of memory");
    }
    status = read_settings(driver, args->note, error);
    node_open(driver, args->values[OPTION_MIN_REPLICAS].number,
              args->values[OPTION_REPLICA_TIMEOUT].number);
    if (status == MORTISE_OK)
        *ctx = cluster;
    else
        cluster_close(cluster);
    return status;
}

static uint32_t capabilities_of(void *ctx)
{
    const struct driver *driver = ((const struct cluster *)ctx)->alone;
    uint32_t capabilities =
        MORTISE_CAP_LEASE | MORTISE_CAP_NOTIFY | MORTISE_CAP_INSPECT | MORTISE_CAP_LIST;
    if (driver->fencing)
        capabilities |= MORTISE_CAP_FENCING;
    if (driver->queued)
        capabilities |= MORTISE_CAP_FAIR;
    if (driver->layout != LAYOUT_STRING)
        capabilities |= MORTISE_CAP_REENTRANT;
    if (driver_shares(driver))
        capabilities |= MORTISE_CAP_SHARED | MORTISE_CAP_PERMITS;
    return capabilities;
}

static void start(void *ctx, mortise_op **ops, size_t n)
{
    cluster_start(ctx, ops, n);
}

static void cancel(void *ctx, mortise_op *op)
{
    cluster_cancel(ctx, op);
}

static void watch(void *ctx, const char *name, size_t name_len)
{
    cluster_watch(ctx, name, name_len);
}

static void unwatch(void *ctx, const char *name, size_t name_len)
{
    cluster_unwatch(ctx, name, name_len);
}

static size_t interest(void *ctx, struct pollfd *fds, size_t capacity, int64_t *due_ns)
{
    return cluster_interest(ctx, fds, capacity, due_ns);
}

static void turn(void *ctx, const struct pollfd *ready, size_t n)
{
    cluster_turn(ctx, ready, n);
}

static void close_driver(void *ctx)
{
    cluster_close(ctx);
}

const mortise_module mortise_module_v1 = {
    MORTISE_MODULE_HEAD,
    .kind = MORTISE_KIND_DRIVER,
    .capabilities = MORTISE_CAP_LEASE | MORTISE_CAP_FENCING | MORTISE_CAP_INSPECT |
                    MORTISE_CAP_LIST | MORTISE_CAP_NOTIFY | MORTISE_CAP_REENTRANT |
                    MORTISE_CAP_FAIR | MORTISE_CAP_SHARED | MORTISE_CAP_PERMITS,
    .name = "redis",
    .version = MORTISE_VERSION_TEXT,
    .summary = "one Redis primary, or the masters of a cluster: scripts, waiters notified "
               "by a subscription",
    .default_namespace = "mortise:",
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
};
