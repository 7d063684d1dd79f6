/* module.c - the etcd driver as a module: its table and its options; opens and closes an instance; says which file handles
 * which op. driver.h has the list of the files. */
#include "../lib/host_text.h"
#include "claim.h"
#include "query.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NOTE_LINES 3 /* host, pid, program */
#define SETTLE_MS 300

static const mortise_option options[OPTION_COUNT] = {
    [OPTION_ENDPOINTS] = {.key = "endpoints",
                          .type = MORTISE_OPTION_TEXT,
                          .flags = MORTISE_OPTION_URL_AUTHORITY,
                          .default_text = "127.0.0.1:2379",
                          .help = "the members of the cluster, as a list of HOST or HOST:PORT"},
    [OPTION_PREFIX] = {.key = "prefix",
                       .type = MORTISE_OPTION_TEXT,
                       .flags = MORTISE_OPTION_URL_PATH,
                       .default_text = "mortise",
                       .help = "what all keys begin with, before a slash; empty: nothing"},
    [OPTION_USER] = {.key = "user",
                     .type = MORTISE_OPTION_TEXT,
                     .flags = MORTISE_OPTION_URL_USER,
                     .help = "the user, if the servers have authentication enabled"},
    [OPTION_PASSWORD] = {.key = "password",
                         .type = MORTISE_OPTION_TEXT,
                         .flags = MORTISE_OPTION_SECRET | MORTISE_OPTION_URL_PASSWORD,
                         .help = "the password of the user"},
    [OPTION_CONNECT_TIMEOUT] =
        {.key = "connect_timeout",
         .type = MORTISE_OPTION_DURATION,
         .default_text = "2s",
         .minimum = 1,
         .maximum = 3600000,
         .help = "how long calls wait for a member that answers before they fail; longer if not "
                 "every endpoint has been tried by then"},
    [OPTION_TIMEOUT] = {.key = "timeout",
                        .type = MORTISE_OPTION_DURATION,
                        .default_text = "2s",
                        .minimum = 10,
                        .maximum = 3600000,
                        .help = "how long a request may take before the next member is tried"},
    [OPTION_TLS] = {.key = "tls",
                    .type = MORTISE_OPTION_BOOL,
                    .default_text = "no",
                    .help = "encrypted connections; the certificates of the servers are checked"},
    [OPTION_TLS_CA] = {.key = "tls_ca",
                       .type = MORTISE_OPTION_TEXT,
                       .help = "file of the CA certificates (PEM); without it those of the system"},
    [OPTION_TLS_CERT] = {.key = "tls_cert",
                         .type = MORTISE_OPTION_TEXT,
                         .help = "file of this client's certificate (PEM)"},
    [OPTION_TLS_KEY] = {.key = "tls_key",
                        .type = MORTISE_OPTION_TEXT,
                        .help = "file of its key (PEM)"},
};

/* ---- what lower files tell ---------------------------------------------------------------------------- */

static void watched(struct driver *driver, enum watch_target kind, void *target,
                    enum watch_event event)
{
    if (kind == WATCHES_SESSION)
        session_watched(driver, target, event);
    else
        lease_watched(driver, kind, target, event);
}

static const struct upcalls upcalls = {
    .watched = watched,
    .turn = claim_turn,
    .seen = claim_move,
    .late = claim_late,
    .ready = lease_ready,
    .proven = lease_proven,
    .left = lease_left,
    .over = lease_session_over,
    .refused = lease_refused,
};

static void link_is_there(struct driver *driver)
{
    sessions_up(driver);
    lease_up(driver);
    queries_up(driver);
}

static void link_is_gone(struct driver *driver)
{
    watches_end(driver);
    sessions_down(driver);
    lease_down(driver);
    queries_down(driver);
}

static void history_is_other(struct driver *driver, bool is_other_cluster)
{
    driver->host->log(driver->host, 4,
                      is_other_cluster ? "the servers are another cluster than before"
                                       : "the servers have less data than before, as if they were "
                                         "restored: tokens go on 2^40 higher");
    tokens_history(driver, is_other_cluster);
    lease_history(driver);
}

static const struct link_events link_events = {
    .up = link_is_there,
    .down = link_is_gone,
    .term = sessions_term,
    .history = history_is_other,
    .watch = watch_message,
};

/* ---- opening and closing ----------------------------------------------------------------------------- */

/* "/locks/" in a URL and "locks" in a file both become "locks/". */
static mortise_status read_prefix(struct driver *driver, mortise_error *error)
{
    const char *text = driver->values[OPTION_PREFIX].text;
    if (text[0] == '/')
        text++;
    size_t length = strlen(text);
    while (length > 0 && text[length - 1] == '/')
        length--;
    if (length + 2 > sizeof(driver->prefix))
        return fault_error(error, MORTISE_CONFIG, "etcd: prefix: it is too long");
    snprintf(driver->prefix, sizeof(driver->prefix), "%.*s%s", (int)length, text,
             length > 0 ? "/" : "");
    return MORTISE_OK;
}

static mortise_status read_tls(struct driver *driver, mortise_error *error)
{
    const mortise_value *values = driver->values;
    char problem[200];
    struct link_settings *settings = &driver->settings;
    settings->tls = values[OPTION_TLS].number != 0;
    settings->tls_settings = (struct tls_settings){.ca = values[OPTION_TLS_CA].text,
                                                   .cert = values[OPTION_TLS_CERT].text,
                                                   .key = values[OPTION_TLS_KEY].text};
    const struct tls_settings *files = &settings->tls_settings;
    if (!settings->tls) {
        if (files->ca != NULL || files->cert != NULL || files->key != NULL)
            driver->host->log(driver->host, 4,
                              "connections are not encrypted: tls_ca, tls_cert and tls_key do "
                              "nothing without tls = yes");
        return MORTISE_OK;
    }
    if ((files->cert == NULL) != (files->key == NULL))
        return fault_error(error, MORTISE_CONFIG, "etcd: tls_cert and tls_key need each other");
    driver->link.tls = tls_context_new(files, problem, sizeof(problem));
    return driver->link.tls != NULL ? MORTISE_OK
                                    : fault_error(error, MORTISE_CONFIG, "etcd: tls: %s", problem);
}

static mortise_status read_options(struct driver *driver, mortise_error *error)
{
    const mortise_value *values = driver->values;
    const char *problem, *list = values[OPTION_ENDPOINTS].text;
    if (!endpoints_read(&driver->link.endpoints, list, &problem)) {
        const char *wrong = problem == NULL ? list : problem, *shown;
        size_t length;
        shown = host_text_shown(wrong, &length);
        return fault_error(error, MORTISE_CONFIG, "etcd: endpoints: \"%.*s\" %s",
                           (int)(length < 100 ? length : 100), shown,
                           problem == NULL  ? "names none, or more than 32"
                           : shown != wrong ? "has a user and an @ before it; set user and password"
                                            : "does not begin with HOST or HOST:PORT");
    }
    if (values[OPTION_PASSWORD].text != NULL && values[OPTION_USER].text == NULL)
        return fault_error(error, MORTISE_CONFIG, "etcd: password: it needs a user");
    driver->settings.user = values[OPTION_USER].text;
    driver->settings.password = values[OPTION_PASSWORD].text;
    driver->settings.connect_timeout_ms = values[OPTION_CONNECT_TIMEOUT].number;
    driver->settings.timeout_ms = values[OPTION_TIMEOUT].number;
    mortise_status status = read_prefix(driver, error);
    return status == MORTISE_OK ? read_tls(driver, error) : status;
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
        return fault_error(error, MORTISE_NOMEM, "etcd: out of memory");
    driver->host = args->host;
    driver->upcalls = &upcalls;
    driver->values = args->values;
    snprintf(driver->client_id, sizeof(driver->client_id), "%s", args->client_id);
    snprintf(driver->note, sizeof(driver->note), "%s", args->note);
    keep_lines(driver->note, NOTE_LINES);
    driver->note_len = strlen(driver->note);
    driver->host->random(driver->host, driver->key_id.instance, INSTANCE_SIZE);
    driver->sweep_ns = driver->away_due_ns = MORTISE_NEVER;
    driver->link.driver = driver;
    driver->link.host = driver->host;
    driver->link.settings = &driver->settings;
    driver->link.events = &link_events;
    link_open(&driver->link);
    mortise_status status = read_options(driver, error);
    if (status != MORTISE_OK) {
        link_close(&driver->link);
        free(driver);
        return status;
    }
    *ctx = driver;
    return MORTISE_OK;
}

static void driver_close(void *ctx)
{
    struct driver *driver = ctx;
    sessions_leave(driver);
    link_settle(&driver->link, SETTLE_MS);
    link_close(&driver->link);
    watches_end(driver);
    claims_free(driver);
    queries_free(driver);
    sessions_free(driver);
    free(driver);
}

#define CAPABILITIES                                                                               \
    (MORTISE_CAP_SESSION | MORTISE_CAP_FENCING | MORTISE_CAP_FAIR | MORTISE_CAP_NOTIFY |           \
     MORTISE_CAP_INSPECT | MORTISE_CAP_LIST | MORTISE_CAP_QUORUM | MORTISE_CAP_DURABLE |           \
     MORTISE_CAP_SHARED | MORTISE_CAP_PERMITS)

/* A single server is no quorum. */
static uint32_t driver_capabilities(void *ctx)
{
    const struct driver *driver = ctx;
    return driver->link.endpoints.count > 1 ? CAPABILITIES
                                            : CAPABILITIES & ~(uint32_t)MORTISE_CAP_QUORUM;
}

/* ---- the pump ------------------------------------------------------------------------------------------ */

/* Each call of the module ends with this function. */
static void finish(struct driver *driver)
{
    link_want(&driver->link, driver->names != NULL || driver->queries != NULL);
    sessions_turn(driver);
    claims_go_late(driver);
    link_flush(&driver->link);
}

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
    else if (op->kind == MORTISE_OP_RELEASE || op->kind == MORTISE_OP_INSPECT)
        query_start(driver, op, inspect_begin);
    else if (op->kind == MORTISE_OP_LIST)
        query_start(driver, op, list_begin);
    else if (op->kind == MORTISE_OP_READ)
        query_start(driver, op, record_read);
    else if (op->kind == MORTISE_OP_WRITE)
        query_start(driver, op, record_write);
    else if (op->kind == MORTISE_OP_PING)
        query_start(driver, op, ping_begin);
    else
        driver->host->complete(driver->host, op, MORTISE_NOTSUP);
}

/* Renewals are answered from what is known, so bytes that have come are read first. */
static void driver_start(void *ctx, mortise_op **ops, size_t n)
{
    struct driver *driver = ctx;
    bool renews = false;
    for (size_t i = 0; i < n; i++)
        renews |= ops[i]->kind == MORTISE_OP_RENEW;
    if (renews)
        link_look(&driver->link);
    for (size_t i = 0; i < n; i++)
        start_one(ctx, ops[i]);
    finish(ctx);
}

static void driver_cancel(void *ctx, mortise_op *op)
{
    if (op->kind == MORTISE_OP_ACQUIRE)
        lease_cancel_acquire(ctx, op);
    else if (op->kind == MORTISE_OP_RENEW)
        lease_cancel_renew(ctx, op);
    else if (op->kind == MORTISE_OP_RELEASE &&
             (op->flags & (MORTISE_OP_BREAK | MORTISE_OP_DEAD)) == 0)
        lease_cancel_release(ctx, op);
    else
        query_cancel(ctx, op);
    finish(ctx);
}

static size_t driver_interest(void *ctx, struct pollfd *fds, size_t capacity, int64_t *due_ns)
{
    const struct driver *driver = ctx;
    sessions_due(driver, due_ns);
    if (driver->sweep_ns < *due_ns)
        *due_ns = driver->sweep_ns;
    if (driver->away_due_ns < *due_ns)
        *due_ns = driver->away_due_ns;
    return link_interest(&driver->link, fds, capacity, due_ns);
}

static void driver_turn(void *ctx, const struct pollfd *ready, size_t n)
{
    struct driver *driver = ctx;
    int64_t now_ns = now_of(driver);
    link_turn(&driver->link, ready, n);
    if (now_ns >= driver->away_due_ns || driver->tries_seen != driver->link.tries) {
        driver->away_due_ns = MORTISE_NEVER;
        driver->tries_seen = driver->link.tries;
        queries_away(driver);
        lease_away(driver);
    }
    lease_sweep(driver, now_ns);
    finish(driver);
}

const mortise_module mortise_module_v1 = {
    MORTISE_MODULE_HEAD,
    .kind = MORTISE_KIND_DRIVER,
    .capabilities = CAPABILITIES,
    .name = "etcd",
    .version = MORTISE_VERSION_TEXT,
    .summary = "keys with leases in an etcd cluster: fair, durable, safe without a majority",
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
