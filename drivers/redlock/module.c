/* module.c - the Redlock driver as a module: its table, its options, how an instance is opened, turned and closed.
 *
 * A client has one connection to each of N independent masters for all its requests, and a second one for
 * notifications while a caller waits. redlock.h says which file does what; protocol.md has the requests to a node,
 * their replies, and what the client may believe afterwards. */
#include "redlock.h"

#include "../lib/redis/settings.h"

#include <stdlib.h>

#define IDLE_NS                                                                                    \
    (INT64_C(10000) * NS_PER_MS) /* after so long without ops, dead nodes are left alone */

#define DURATION(word, preset, least_ms, most_ms, text)                                            \
    {                                                                                              \
        .key = word, .type = MORTISE_OPTION_DURATION, .default_text = preset, .minimum = least_ms, \
        .maximum = most_ms, .help = text                                                           \
    }
#define SWITCH(word, preset, text)                                                                 \
    {                                                                                              \
        .key = word, .type = MORTISE_OPTION_BOOL, .default_text = preset, .help = text             \
    }

static const mortise_option options[OPTION_COUNT] = {
    [OPTION_NODES] = {.key = "nodes",
                      .type = MORTISE_OPTION_TEXT,
                      .flags = MORTISE_OPTION_REQUIRED | MORTISE_OPTION_URL_AUTHORITY,
                      .help =
                          "3, 5, 7 … independent masters, none a replica of another: host:port, "
                          "separated by commas"},
    [OPTION_NODE_TIMEOUT] = DURATION("node_timeout", "500ms", 5, 60000,
                                     "how long a decision waits for the answer of a silent node"),
    [OPTION_MAX_TTL] = DURATION("max_ttl", "60s", MORTISE_TTL_MIN_MS, MORTISE_TTL_MAX_MS,
                                "the longest ttl that any client uses; must be the same in "
                                "every config, because a restarted node has no vote for this "
                                "long"),
    [OPTION_NODE_PERSISTENT] = SWITCH("node_persistent", "no",
                                      "yes: every node has appendonly yes and appendfsync always, "
                                      "so it votes as soon as it is back"),
    [OPTION_FENCING] = SWITCH("fencing", "on",
                              "off: no tokens, one round trip less; the plain SET NX PX of "
                              "other Redlock clients"),
    SETTINGS_FOREIGN_ROW,
    [OPTION_RETRY] = DURATION("retry", "100ms", 1, 3600000,
                              "how often a waiter asks with foreign = poll, while the holder is "
                              "unknown, or if subscribing fails"),
    SETTINGS_USERNAME_ROW,
    [OPTION_PASSWORD] = {.key = "password",
                         .type = MORTISE_OPTION_TEXT,
                         .flags = MORTISE_OPTION_SECRET | MORTISE_OPTION_URL_PASSWORD,
                         .help = "the user's password, the same on all nodes"},
    SETTINGS_DATABASE_ROW,
    [OPTION_TLS] = SWITCH("tls", "no",
                          "encrypt, and check the nodes' certificates; needs a build "
                          "with TLS"),
    SETTINGS_TLS_FILE_ROWS,
    [OPTION_CONNECT_TIMEOUT] =
        DURATION("connect_timeout", "1s", 10, 3600000, "how long an attempt to connect may take"),
    [OPTION_COMMAND_TIMEOUT] =
        DURATION("command_timeout", "2s", 10, 3600000,
                 "a connection without an answer for this long is closed; at "
                 "least twice node_timeout"),
};

/* ---- the settings ----------------------------------------------------------------------------------------- */

static mortise_status wrong_nodes(const struct driver *driver, const char *problem,
                                  mortise_error *error)
{
    const char *list = driver->values[OPTION_NODES].text;
    const char *at = strrchr(list, '@'), *shown = at != NULL ? at + 1 : list; /* no password */
    return settings_explain(error, MORTISE_CONFIG, "[%s] nodes = \"%.200s\": %s", driver->section,
                            shown, problem);
}

static bool is_twice(const struct driver *driver, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        if (strcmp(driver->nodes[i].settings.endpoint.text,
                   driver->nodes[n].settings.endpoint.text) == 0)
            return true;
    return false;
}

static mortise_status read_nodes(struct driver *driver, mortise_error *error)
{
    const char *list = driver->values[OPTION_NODES].text, *problem;
    unsigned n = 0;
    do {
        if (n == NODES_MAX)
            return wrong_nodes(driver, "there are more than 15", error);
        if (!endpoint_next(&list, LINK_PORT, &driver->nodes[n].settings.endpoint, &problem))
            return wrong_nodes(driver, problem, error);
        if (is_twice(driver, n))
            return wrong_nodes(driver, "a node is named twice, and would vote twice", error);
        n++;
    } while (*list != '\0');
    if (n == 1)
        return wrong_nodes(
            driver, "one node is no majority; for a single server use the driver redis", error);
    if (n % 2 == 0)
        return wrong_nodes(driver,
                           "an odd number is needed: an even number tolerates no more "
                           "failures than one node fewer",
                           error);
    driver->count = n;
    driver->quorum = n / 2 + 1;
    return MORTISE_OK;
}

static mortise_status read_settings(struct driver *driver, const char *note, mortise_error *error)
{
    const mortise_value *values = driver->values;
    mortise_status status = read_nodes(driver, error);
    driver->node_timeout_ns = values[OPTION_NODE_TIMEOUT].number * NS_PER_MS;
    driver->max_ttl_ms = values[OPTION_MAX_TTL].number;
    driver->persistent = values[OPTION_NODE_PERSISTENT].number != 0;
    driver->fencing = values[OPTION_FENCING].number != 0;
    driver->foreign_polled = values[OPTION_FOREIGN].number == 1;
    driver->retry_ms = values[OPTION_RETRY].number;
    driver->note_len = strnlen(note, MORTISE_NOTE_MAX);
    memcpy(driver->note, note, driver->note_len);
    for (unsigned i = 0; status == MORTISE_OK && i < driver->count; i++) {
        struct link_settings *settings = &driver->nodes[i].settings;
        settings->username = values[OPTION_USERNAME].text;
        settings->password = values[OPTION_PASSWORD].text;
        settings->database = values[OPTION_DATABASE].number;
        settings->primary = settings->role_optional = true;
        settings->tls = values[OPTION_TLS].number != 0;
        settings->tls_ca = values[OPTION_TLS_CA].text;
        settings->tls_cert = values[OPTION_TLS_CERT].text;
        settings->tls_key = values[OPTION_TLS_KEY].text;
        settings->connect_timeout_ms = values[OPTION_CONNECT_TIMEOUT].number;
        settings->command_timeout_ms = values[OPTION_COMMAND_TIMEOUT].number;
        /* otherwise a connection would end before its node is given up, and no undo could follow the vote on it */
        if (settings->command_timeout_ms < 2 * values[OPTION_NODE_TIMEOUT].number)
            settings->command_timeout_ms = 2 * values[OPTION_NODE_TIMEOUT].number;
        settings_name_client(settings, note);
        status = settings_check(settings, driver->section, error);
    }
    if (status == MORTISE_OK)
        settings_warn(&driver->nodes[0].settings, driver->host);
    return status;
}

/* ---- what the nodes call ------------------------------------------------------------------------------------ */

static void node_up(struct node *node)
{
    undo_node_up(node->driver, node);
    renewal_node_up(node->driver);
    dispatch_look(node->driver);
}

static bool is_idle(const struct driver *driver)
{
    return driver->claims == NULL && driver->waiting == NULL &&
           now_of(driver) - driver->active_ns > IDLE_NS;
}

static void node_down(struct node *node, const struct link_fault *fault)
{
    if (node->link.broke)
        pubsub_suspect(node, fault);
    if (is_idle(node->driver))
        link_unwant(&node->link);
    dispatch_look(node->driver);
}

static const struct node_events node_events = {.up = node_up, .down = node_down};

/* ---- the slots ----------------------------------------------------------------------------------------------- */

/* Does not connect yet; the first op does. */
static mortise_status open_driver(const mortise_open_args *args, void **ctx, mortise_error *error)
{
    struct driver *driver = calloc(1, sizeof(*driver));
    if (driver == NULL)
        return settings_explain(error, MORTISE_NOMEM, "out of memory");
    driver->host = args->host;
    driver->values = args->values;
    driver->section = args->section;
    driver->node_events = &node_events;
    driver->tick_ns = driver->sweep_ns = driver->news_due_ns = MORTISE_NEVER;
    mortise_status status = read_settings(driver, args->note, error);
    driver->section = NULL; /* valid during this call only */
    if (status != MORTISE_OK) {
        free(driver);
        return status;
    }
    for (unsigned i = 0; i < driver->count; i++) {
        driver->nodes[i].driver = driver;
        driver->nodes[i].index = i;
        node_open(driver, &driver->nodes[i]);
        pubsub_open(&driver->nodes[i]);
    }
    *ctx = driver;
    return MORTISE_OK;
}

static uint32_t capabilities_of(void *ctx)
{
    const struct driver *driver = ctx;
    uint32_t capabilities = MORTISE_CAP_LEASE | MORTISE_CAP_NOTIFY | MORTISE_CAP_INSPECT |
                            MORTISE_CAP_LIST | MORTISE_CAP_QUORUM;
    return driver->fencing ? capabilities | MORTISE_CAP_FENCING | MORTISE_CAP_SHARED : capabilities;
}

/* Hands what was written to the kernel. */
static void flush(struct driver *driver)
{
    for (unsigned i = 0; i < driver->count; i++) {
        link_flush(&driver->nodes[i].link);
        link_flush(&driver->nodes[i].news);
    }
}

static void start(void *ctx, mortise_op **ops, size_t n)
{
    dispatch_start(ctx, ops, n);
    flush(ctx);
}

static void cancel(void *ctx, mortise_op *op)
{
    dispatch_cancel(ctx, op);
    flush(ctx);
}

static void watch(void *ctx, const char *name, size_t name_len)
{
    pubsub_watch(ctx, name, name_len);
    flush(ctx);
}

static void unwatch(void *ctx, const char *name, size_t name_len)
{
    pubsub_unwatch(ctx, name, name_len);
    flush(ctx);
}

static void lower(int64_t *due_ns, int64_t to_ns)
{
    if (to_ns < *due_ns)
        *due_ns = to_ns;
}

static size_t interest(void *ctx, struct pollfd *fds, size_t capacity, int64_t *due_ns)
{
    const struct driver *driver = ctx;
    lower(due_ns, ballots_due_ns(driver));
    if (driver->waiting != NULL && driver->fresh_until_ns > driver->turned_ns)
        lower(due_ns, driver->fresh_until_ns);
    lower(due_ns, acquire_due_ns(driver));
    lower(due_ns, undo_due_ns(driver));
    lower(due_ns, driver->news_due_ns);
    return nodes_interest(driver, fds, capacity, due_ns);
}

static void turn_links(struct driver *driver, const struct pollfd *ready, size_t n)
{
    for (unsigned i = 0; i < driver->count; i++) {
        link_turn(&driver->nodes[i].link, ready, n);
        link_turn(&driver->nodes[i].news, ready, n);
    }
}

static void turn(void *ctx, const struct pollfd *ready, size_t n)
{
    struct driver *driver = ctx;
    struct pollfd fds[2 * NODES_MAX];
    if (n == 0) { /* called because of a due time: nobody may have polled for a while */
        int64_t due_ns = MORTISE_NEVER;
        n = nodes_interest(driver, fds, 2 * NODES_MAX, &due_ns);
        if (poll(fds, (nfds_t)n, 0) < 0)
            n = 0;
        ready = fds;
    }
    turn_links(driver, ready, n);
    int64_t now = now_of(driver);
    driver->turned_ns = now;
    ballots_turn(driver, now);
    acquire_turn(driver, now);
    undo_turn(driver, now);
    pubsub_turn(driver, now);
    dispatch_look(driver);
    flush(driver);
}

static void close_driver(void *ctx)
{
    struct driver *driver = ctx;
    pubsub_close(driver);
    for (unsigned i = 0; i < driver->count; i++)
        link_close(&driver->nodes[i].link);
    claims_free(driver);
    free(driver);
}

const mortise_module mortise_module_v1 = {
    MORTISE_MODULE_HEAD,
    .kind = MORTISE_KIND_DRIVER,
    .capabilities = MORTISE_CAP_LEASE | MORTISE_CAP_FENCING | MORTISE_CAP_INSPECT |
                    MORTISE_CAP_LIST | MORTISE_CAP_NOTIFY | MORTISE_CAP_QUORUM | MORTISE_CAP_SHARED,
    .name = "redlock",
    .version = MORTISE_VERSION_TEXT,
    .summary = "a majority of independent Redis servers, asked in parallel",
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
