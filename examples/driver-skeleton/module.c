/* module.c - the skeleton as a module: its table of functions, its options; how an instance is opened, polled and
 * closed. Knows nothing of requests (ask.c) or sockets (link.c). */
#include "skeleton.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One row for each key of the config section. The core parses, checks and shows it. */
static const mortise_option options[OPTION_COUNT] = {
    [OPTION_SERVER] = {.key = "server",
                       .type = MORTISE_OPTION_TEXT,
                       .flags = MORTISE_OPTION_URL_AUTHORITY | MORTISE_OPTION_REQUIRED,
                       .help = "the server, as host:port"},
    [OPTION_TIMEOUT] =
        {.key = "timeout",
         .type = MORTISE_OPTION_DURATION,
         .default_text = "2s",
         .minimum = 10,
         .maximum = 3600000,
         .help = "how long the server may take to answer before it counts as unreachable"},
};

static mortise_status refuse(mortise_error *error, const char *why)
{
    memset(error, 0, sizeof(*error));
    error->status = MORTISE_CONFIG;
    snprintf(error->driver, sizeof(error->driver), "skeleton");
    snprintf(error->message, sizeof(error->message), "skeleton: %s", why);
    return MORTISE_CONFIG;
}

/* "host:port", "[::1]:port" */
static bool split(struct skeleton *skeleton, const char *server)
{
    const char *colon = strrchr(server, ':'), *end = colon;
    if (colon == NULL || colon == server || colon[1] == '\0')
        return false;
    if (server[0] == '[' && end[-1] == ']') {
        server++;
        end--;
    }
    int node =
        snprintf(skeleton->node, sizeof(skeleton->node), "%.*s", (int)(end - server), server);
    int port = snprintf(skeleton->port, sizeof(skeleton->port), "%s", colon + 1);
    return node < (int)sizeof(skeleton->node) && port < (int)sizeof(skeleton->port);
}

/* Does not connect: an unreachable server is no error here, and open must return in a bounded time. */
static mortise_status open_skeleton(const mortise_open_args *args, void **ctx, mortise_error *error)
{
    struct skeleton *skeleton = calloc(1, sizeof(*skeleton));
    if (skeleton == NULL) {
        refuse(error, "out of memory");
        return error->status = MORTISE_NOMEM;
    }
    skeleton->host = args->host;
    skeleton->fd = -1;
    skeleton->timeout_ns = args->values[OPTION_TIMEOUT].number * 1000000;
    snprintf(skeleton->client_id, sizeof(skeleton->client_id), "%s", args->client_id);
    if (!split(skeleton, args->values[OPTION_SERVER].text)) {
        free(skeleton);
        return refuse(error, "server: expected host:port");
    }
    *ctx = skeleton;
    return MORTISE_OK;
}

static void start(void *ctx, mortise_op **ops, size_t n)
{
    struct skeleton *skeleton = ctx;
    for (size_t i = 0; i < n; i++)
        ask_start(skeleton, ops[i]);
}

static void cancel(void *ctx, mortise_op *op)
{
    ask_cancel(ctx, op);
}

/* Called often, so it is quick. It changes nothing. */
static size_t interest(void *ctx, struct pollfd *fds, size_t capacity, int64_t *due_ns)
{
    const struct skeleton *skeleton = ctx;
    bool waiting = skeleton->first != NULL || skeleton->watched != NULL;
    if (skeleton->broken)
        *due_ns = 0; /* at once */
    else if (skeleton->state == LINK_UP && is_owed(skeleton))
        *due_ns = answer_due(skeleton);
    else if (skeleton->state != LINK_UP && (skeleton->state != LINK_DOWN || waiting))
        *due_ns = skeleton->due_ns;
    if (skeleton->fd < 0 || capacity == 0)
        return 0;
    bool writes = skeleton->state == LINK_CONNECTING || skeleton->out.used > 0;
    fds[0] =
        (struct pollfd){.fd = skeleton->fd, .events = (short)(writes ? POLLIN | POLLOUT : POLLIN)};
    return 1;
}

static void turn(void *ctx, const struct pollfd *ready, size_t n)
{
    link_turn(ctx, n > 0 ? ready[0].revents : 0);
}

static void watch(void *ctx, const char *name, size_t name_len)
{
    ask_watch(ctx, name, name_len);
}

static void unwatch(void *ctx, const char *name, size_t name_len)
{
    ask_unwatch(ctx, name, name_len);
}

static void close_skeleton(void *ctx)
{
    struct skeleton *skeleton = ctx;
    link_close(skeleton);
    while (skeleton->watched != NULL) {
        struct watched *next = skeleton->watched->next;
        free(skeleton->watched);
        skeleton->watched = next;
    }
    free(skeleton);
}

const mortise_module mortise_module_v1 = {
    MORTISE_MODULE_HEAD,
    .kind = MORTISE_KIND_DRIVER,
    /* only what it can promise: the conformance suite tests each of them */
    .capabilities = MORTISE_CAP_LEASE | MORTISE_CAP_FENCING | MORTISE_CAP_NOTIFY |
                    MORTISE_CAP_INSPECT | MORTISE_CAP_LIST,
    .name = "skeleton",
    .version = "1.0",
    .summary = "an example to copy: a driver for a small lock server",
    .default_namespace = "mortise:",
    .options = options,
    .option_count = OPTION_COUNT,
    .open = open_skeleton,
    .start = start,
    .cancel = cancel,
    .interest = interest,
    .turn = turn,
    .close = close_skeleton,
    .watch = watch,
    .unwatch = unwatch,
};
