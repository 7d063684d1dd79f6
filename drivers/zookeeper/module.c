/* module.c - the ZooKeeper driver as a module: its table and its options; opens and closes an instance; says which file
 * handles which op. driver.h has the list of the files. */
#include "claim.h"
#include "query.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NOTE_LINES 3 /* host, pid, program */

static const mortise_option options[OPTION_COUNT] = {
    [OPTION_SERVERS] = {.key = "servers",
                        .type = MORTISE_OPTION_TEXT,
                        .flags = MORTISE_OPTION_URL_AUTHORITY,
                        .default_text = "127.0.0.1:2181",
                        .help = "the ensemble, as a list of HOST or HOST:PORT"},
    [OPTION_ROOT] = {.key = "root",
                     .type = MORTISE_OPTION_TEXT,
                     .flags = MORTISE_OPTION_URL_PATH,
                     .default_text = "/mortise",
                     .help = "the node above all locks; the driver makes it if it is missing"},
    [OPTION_SESSION_TIMEOUT] = {.key = "session_timeout",
                                .type = MORTISE_OPTION_DURATION,
                                .default_text = "30s",
                                .minimum = 100,
                                .maximum = 3600000,
                                .help = "how long after the last sign of life the servers end the "
                                        "session and its locks; the servers limit the value"},
    [OPTION_TICK] = {.key = "tick",
                     .type = MORTISE_OPTION_DURATION,
                     .minimum = 1,
                     .maximum = 3600000,
                     .help = "the servers' tickTime; required if the session's timeout is "
                             "less than two ticks; otherwise it lets deadlines be proven "
                             "sooner"},
    [OPTION_CONNECT_TIMEOUT] = {.key = "connect_timeout",
                                .type = MORTISE_OPTION_DURATION,
                                .default_text = "2s",
                                .minimum = 1,
                                .maximum = 3600000,
                                .help = "how long calls wait for a connection before they fail"},
    [OPTION_NODE_STYLE] =
        {.key = "node_style",
         .type = MORTISE_OPTION_CHOICE,
         .default_text = "curator",
         .choices = "curator|kazoo|curator-rw|kazoo-rw|curator-semaphore|kazoo-semaphore",
         .help = "whose names the nodes have: those of Curator's mutex, of kazoo's Lock, or of "
                 "the read/write locks or the semaphores of either; clients of other styles in "
                 "the same folder are refused"},
    [OPTION_AUTH] = {.key = "auth",
                     .type = MORTISE_OPTION_TEXT,
                     .flags = MORTISE_OPTION_SECRET,
                     .help = "SCHEME:CREDENTIALS, for example digest:user:password; only "
                             "this user then has access to the nodes"},
    [OPTION_TLS] = {.key = "tls",
                    .type = MORTISE_OPTION_BOOL,
                    .default_text = "no",
                    .help = "encrypted connections; this driver has none, so yes is "
                            "refused"},
};

/* ---- what lower files tell ---------------------------------------------------------------------------- */

static void connected(struct driver *driver)
{
    queries_connected(driver);
    lease_connected(driver);
}

static void away(struct driver *driver)
{
    queries_away(driver);
    lease_away(driver);
}

static void event_missed(struct driver *driver)
{
    lease_event_missed(driver);
    session_event_missed(driver);
}

static const struct upcalls upcalls = {
    .session_event = session_event,
    .node_event = lease_node_event,
    .event_missed = event_missed,
    .mail_is_read = claims_go_late,
    .servers_known = session_servers_known,
    .connected = connected,
    .suspended = lease_suspended,
    .away = away,
    .proven = lease_proven,
    .over = lease_session_over,
    .is_asking = queries_are_open,
};

/* ---- opening and closing ----------------------------------------------------------------------------- */

/* Writes "/a//b/" as "/a/b", and "/" as "". */
static mortise_status read_root(struct driver *driver, mortise_error *error)
{
    const char *text = driver->values[OPTION_ROOT].text;
    size_t used = 0;
    for (const char *at = text; *at != '\0';) {
        at += strspn(at, "/");
        size_t length = strcspn(at, "/");
        if (length == 0)
            break;
        bool dots = length <= 2 && strspn(at, ".") >= length;
        if (used + length + 2 > ROOT_MAX || dots)
            return fault_error(error, MORTISE_CONFIG, "zookeeper: root: \"%.200s\" is %s", text,
                               dots ? "not a path of nodes" : "too long");
        used += (size_t)snprintf(driver->root + used, ROOT_MAX - used, "/%.*s", (int)length, at);
        at += length;
    }
    for (const char *at = driver->root; *at != '\0'; at++)
        if ((unsigned char)*at < ' ' || *at == 0x7f)
            return fault_error(error, MORTISE_CONFIG, "zookeeper: root: has control characters");
    return MORTISE_OK;
}

static mortise_status read_auth(struct driver *driver, mortise_error *error)
{
    const char *text = driver->values[OPTION_AUTH].text;
    const char *colon = text == NULL ? NULL : strchr(text, ':');
    driver->acl = text == NULL ? &ZOO_OPEN_ACL_UNSAFE : &ZOO_CREATOR_ALL_ACL;
    if (text == NULL)
        return MORTISE_OK;
    if (colon == NULL || colon == text || colon[1] == '\0' ||
        (size_t)(colon - text) >= sizeof(driver->auth_buffer))
        return fault_error(error, MORTISE_CONFIG,
                           "zookeeper: auth: expected SCHEME:CREDENTIALS, such as "
                           "digest:user:password");
    snprintf(driver->auth_buffer, sizeof(driver->auth_buffer), "%.*s", (int)(colon - text), text);
    driver->auth_scheme = driver->auth_buffer;
    driver->auth_text = colon + 1;
    return MORTISE_OK;
}

static mortise_status read_options(struct driver *driver, mortise_error *error)
{
    if (driver->values[OPTION_TLS].number != 0)
        return fault_error(error, MORTISE_CONFIG,
                           "zookeeper: tls = yes: this driver has no TLS; use a tunnel, or leave "
                           "it out on a network that you trust");
    mortise_status status = read_root(driver, error);
    if (status == MORTISE_OK)
        status = read_auth(driver, error);
    if (status == MORTISE_OK)
        status = servers_read(driver, error);
    driver->style = (enum node_style)driver->values[OPTION_NODE_STYLE].number;
    return status;
}

/* Replaces further line ends, so that the name of a program cannot look like another line. */
static void keep_lines(char *text, int lines)
{
    for (; *text != '\0'; text++)
        if (*text == '\n' && --lines <= 0)
            *text = ' ';
}

static mortise_status driver_open(const mortise_open_args *args, void **ctx, mortise_error *error)
{
    struct driver *driver = calloc(1, sizeof(*driver));
    if (driver == NULL)
        return fault_error(error, MORTISE_NOMEM, "zookeeper: out of memory");
    driver->host = args->host;
    driver->upcalls = &upcalls;
    driver->values = args->values;
    snprintf(driver->client_id, sizeof(driver->client_id), "%s", args->client_id);
    snprintf(driver->note, sizeof(driver->note), "%s", args->note);
    keep_lines(driver->note, NOTE_LINES);
    driver->note_len = strlen(driver->note);
    driver->sweep_ns = MORTISE_NEVER;
    driver->away_ns = now_of(driver);
    driver->away_due_ns = MORTISE_NEVER;
    mail_init(driver);
    mortise_status status = read_options(driver, error);
    if (status != MORTISE_OK) {
        servers_free(driver);
        mail_end(driver);
        free(driver);
        return status;
    }
    *ctx = driver; /* the first turn, which is due at once, makes a session */
    return MORTISE_OK;
}

static void driver_close(void *ctx)
{
    struct driver *driver = ctx;
    session_close_all(driver);
    claims_free(driver);
    queries_free(driver);
    servers_free(driver);
    free(driver);
}

/* A single server is no quorum. */
static uint32_t driver_capabilities(void *ctx)
{
    const struct driver *driver = ctx;
    uint32_t all = MORTISE_CAP_SESSION | MORTISE_CAP_FENCING | MORTISE_CAP_FAIR |
                   MORTISE_CAP_NOTIFY | MORTISE_CAP_INSPECT | MORTISE_CAP_LIST |
                   MORTISE_CAP_QUORUM | MORTISE_CAP_DURABLE | MORTISE_CAP_SHARED |
                   MORTISE_CAP_PERMITS;
    return driver->server_count > 1 ? all : all & ~(uint32_t)MORTISE_CAP_QUORUM;
}

/* ---- the pump ------------------------------------------------------------------------------------------ */

static void start_one(struct driver *driver, mortise_op *op)
{
    bool is_break = (op->flags & MORTISE_OP_BREAK) != 0;
    bool is_dead = (op->flags & MORTISE_OP_DEAD) != 0;
    op_set_data(op, NULL);
    if (op->owner_len > 0)
        driver->host->complete(driver->host, op, MORTISE_NOTSUP);
    else if (op->kind == MORTISE_OP_ACQUIRE)
        lease_acquire(driver, op);
    else if (op->kind == MORTISE_OP_RENEW)
        lease_renew(driver, op);
    else if (op->kind == MORTISE_OP_RELEASE && is_dead)
        query_start(driver, op, dead_begin);
    else if (op->kind == MORTISE_OP_RELEASE && !is_break)
        lease_release(driver, op);
    else if (op->kind >= MORTISE_OP_RELEASE && op->kind <= MORTISE_OP_LIST)
        query_start(driver, op, inspect_begin);
    else if (op->kind == MORTISE_OP_READ)
        query_start(driver, op, record_read);
    else if (op->kind == MORTISE_OP_WRITE)
        query_start(driver, op, record_write);
    else if (op->kind == MORTISE_OP_PING)
        query_start(driver, op, ping_begin);
    else
        driver->host->complete(driver->host, op, MORTISE_NOTSUP);
}

static void driver_start(void *ctx, mortise_op **ops, size_t n)
{
    ((struct driver *)ctx)->calls++;
    for (size_t i = 0; i < n; i++)
        start_one(ctx, ops[i]);
}

static void driver_cancel(void *ctx, mortise_op *op)
{
    ((struct driver *)ctx)->calls++;
    if (op->kind == MORTISE_OP_ACQUIRE)
        lease_cancel_acquire(ctx, op);
    else if (op->kind == MORTISE_OP_RENEW)
        lease_cancel_renew(ctx, op);
    else if (op->kind == MORTISE_OP_RELEASE &&
             (op->flags & (MORTISE_OP_BREAK | MORTISE_OP_DEAD)) == 0)
        lease_cancel_release(ctx, op);
    else
        query_cancel(ctx, op);
}

/* The library polls its sockets itself, so the driver only has due times. */
static size_t driver_interest(void *ctx, struct pollfd *fds, size_t capacity, int64_t *due_ns)
{
    const struct driver *driver = ctx;
    (void)fds;
    (void)capacity;
    session_due(driver, due_ns);
    if (driver->sweep_ns < *due_ns)
        *due_ns = driver->sweep_ns;
    return 0;
}

static void driver_turn(void *ctx, const struct pollfd *ready, size_t n)
{
    struct driver *driver = ctx;
    (void)ready;
    (void)n;
    int64_t now_ns = now_of(driver);
    mail_read(driver);
    session_turn(driver, now_ns);
    lease_sweep(driver, now_ns);
}

const mortise_module mortise_module_v1 = {
    MORTISE_MODULE_HEAD,
    .kind = MORTISE_KIND_DRIVER,
    .capabilities = MORTISE_CAP_SESSION | MORTISE_CAP_FENCING | MORTISE_CAP_FAIR |
                    MORTISE_CAP_NOTIFY | MORTISE_CAP_INSPECT | MORTISE_CAP_LIST |
                    MORTISE_CAP_QUORUM | MORTISE_CAP_DURABLE | MORTISE_CAP_SHARED |
                    MORTISE_CAP_PERMITS,
    .name = "zookeeper",
    .version = MORTISE_VERSION_TEXT,
    .summary = "ephemeral sequential nodes in a ZooKeeper ensemble: fair, durable, safe without a "
               "majority",
    .options = options,
    .option_count = OPTION_COUNT,
    .open = driver_open,
    .start = driver_start,
    .cancel = driver_cancel,
    .interest = driver_interest,
    .turn = driver_turn,
    .close = driver_close,
    .capabilities_of = driver_capabilities,
};
