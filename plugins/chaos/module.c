/* module.c - the chaos plugin as a module: causes faults over any driver, by a seed: late, lost and refused requests,
 * lost replies, requests that arrive when nobody expects them any more (ghosts), lost renewals and news, and pauses.
 * It is for game days, and for tests of applications and of Mortise itself. internal.h has the rules that it keeps. */
#include "internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OF_1000(key_, help_)                                                                       \
    {                                                                                              \
        .key = (key_), .type = MORTISE_OPTION_INT, .default_text = "0", .minimum = 0,              \
        .maximum = 1000, .help = (help_)                                                           \
    }
#define SOME_TIME(key_, default_, help_)                                                           \
    {                                                                                              \
        .key = (key_), .type = MORTISE_OPTION_DURATION, .default_text = (default_), .minimum = 0,  \
        .maximum = 3600000, .help = (help_)                                                        \
    }

static const mortise_option options[OPTION_COUNT] = {
    [OPTION_BELOW] = {.key = "below",
                      .type = MORTISE_OPTION_TEXT,
                      .flags = MORTISE_OPTION_REQUIRED,
                      .help = "the section of the driver, or plugin, whose requests suffer"},
    [OPTION_SEED] = {.key = "seed",
                     .type = MORTISE_OPTION_INT,
                     .default_text = "1",
                     .minimum = 0,
                     .maximum = INT64_MAX,
                     .help = "decides which request suffers what: the same seed, config "
                             "and requests give the same faults"},
    [OPTION_DELAY] = SOME_TIME("delay", "0ms",
                               "how late a request arrives at most; the order of requests "
                               "does not change"),
    [OPTION_REPLY_DELAY] = SOME_TIME("reply_delay", "0ms", "how late a reply arrives at most"),
    [OPTION_REFUSE] =
        OF_1000("refuse", "how many of 1000 requests are refused: UNREACHABLE, nothing "
                          "was sent"),
    [OPTION_LOSE_REQUESTS] =
        OF_1000("lose_requests", "how many of 1000 requests are lost: INDETERMINATE, not "
                                 "executed"),
    [OPTION_LOSE_REPLIES] =
        OF_1000("lose_replies", "how many of 1000 requests lose their reply: INDETERMINATE, "
                                "executed"),
    [OPTION_GHOSTS] = OF_1000("ghosts", "how many of 1000 requests are INDETERMINATE at once, and "
                                        "executed up to ghost_delay later"),
    [OPTION_GHOST_DELAY] =
        SOME_TIME("ghost_delay", "1s", "how late such a request is executed at most"),
    [OPTION_LOSE_RENEWALS] =
        OF_1000("lose_renewals", "how many of 1000 renewals are refused, in addition to the "
                                 "above"),
    [OPTION_LOSE_NEWS] =
        OF_1000("lose_news", "how many of 1000 notifications of a release are lost"),
    [OPTION_PAUSE_EVERY] =
        SOME_TIME("pause_every", "0ms", "how often everything stops for a while"),
    [OPTION_PAUSE_FOR] = SOME_TIME("pause_for", "0ms",
                                   "how long requests, replies and notifications stop each time"),
    [OPTION_ONLY] = {.key = "only",
                     .type = MORTISE_OPTION_TEXT,
                     .help = "the kinds of requests that suffer (pauses affect all), as a "
                             "list: acquire, renew, release, inspect, list, read, write, "
                             "ping; without it, all"},
    [OPTION_TELL] = {.key = "tell",
                     .type = MORTISE_OPTION_BOOL,
                     .default_text = "no",
                     .help = "log each fault"},
};

static mortise_status chaos_open(const mortise_open_args *args, void **ctx, mortise_error *error)
{
    struct chaos *chaos = calloc(1, sizeof(*chaos));
    if (chaos == NULL)
        return error->status = MORTISE_NOMEM;
    chaos->host = args->host;
    chaos->values = args->values;
    chaos->opened_ns = chaos->last_due_ns = args->host->now(args->host);
    mortise_status status = fate_check(chaos, args->section, error);
    if (status == MORTISE_OK)
        status = args->host->open_below(args->host, args->values[OPTION_BELOW].text, &chaos->below,
                                        error);
    if (status == MORTISE_OK)
        *ctx = chaos;
    else
        free(chaos);
    return status;
}

static void chaos_close(void *ctx)
{
    struct chaos *chaos = ctx;
    flow_end(chaos);
    free(chaos->heap);
    free(chaos);
}

static void chaos_start(void *ctx, mortise_op **ops, size_t n)
{
    flow_start(ctx, ops, n);
}

static void chaos_cancel(void *ctx, mortise_op *op)
{
    flow_cancel(ctx, op);
}

/* In a pause, the descriptors and due times of the module below are ignored. */
static size_t chaos_interest(void *ctx, struct pollfd *fds, size_t capacity, int64_t *due_ns)
{
    const struct chaos *chaos = ctx;
    int64_t own_ns = flow_due(chaos), now_ns = chaos->host->now(chaos->host);
    int64_t end_ns = fate_pause_end(chaos, now_ns);
    size_t n = 0;
    if (end_ns == 0)
        n = chaos->below->module->interest(chaos->below->ctx, fds, capacity, due_ns);
    else if (end_ns < *due_ns)
        *due_ns = end_ns;
    if (own_ns < *due_ns)
        *due_ns = own_ns;
    return n;
}

static void chaos_turn(void *ctx, const struct pollfd *ready, size_t n)
{
    struct chaos *chaos = ctx;
    if (fate_pause_end(chaos, chaos->host->now(chaos->host)) != 0)
        return;
    chaos->below->module->turn(chaos->below->ctx, ready, n);
    flow_turn(chaos);
}

static uint32_t chaos_capabilities(void *ctx)
{
    const struct chaos *chaos = ctx;
    return chaos->below->capabilities;
}

static const char *chaos_namespace(void *ctx)
{
    const struct chaos *chaos = ctx;
    return chaos->below->default_namespace;
}

static void chaos_watch(void *ctx, const char *name, size_t name_len)
{
    flow_watch(ctx, name, name_len);
}

static void chaos_unwatch(void *ctx, const char *name, size_t name_len)
{
    flow_unwatch(ctx, name, name_len);
}

static void chaos_news(void *ctx, const char *name, size_t name_len)
{
    flow_news(ctx, name, name_len);
}

static void chaos_waiting(void *ctx, mortise_op *op)
{
    flow_waiting(ctx, op);
}

static void chaos_leave(void *ctx, mortise_op *op)
{
    const struct chaos *chaos = ctx;
    if (chaos->below->module->leave != NULL)
        chaos->below->module->leave(chaos->below->ctx, op);
    else
        chaos->host->complete(chaos->host, op, MORTISE_OK);
}

#define ALL_CAPABILITIES                                                                           \
    (MORTISE_CAP_LEASE | MORTISE_CAP_SESSION | MORTISE_CAP_FENCING | MORTISE_CAP_FAIR |            \
     MORTISE_CAP_NOTIFY | MORTISE_CAP_INSPECT | MORTISE_CAP_LIST | MORTISE_CAP_REENTRANT |         \
     MORTISE_CAP_QUORUM | MORTISE_CAP_DURABLE | MORTISE_CAP_SHARED | MORTISE_CAP_PERMITS)

const mortise_module mortise_module_v1 = {
    MORTISE_MODULE_HEAD,
    .kind = MORTISE_KIND_PLUGIN,
    .capabilities = ALL_CAPABILITIES,
    .name = "chaos",
    .version = MORTISE_VERSION_TEXT,
    .summary = "delays, loses and refuses requests of the driver below, by a seed",
    .options = options,
    .option_count = OPTION_COUNT,
    .open = chaos_open,
    .start = chaos_start,
    .cancel = chaos_cancel,
    .interest = chaos_interest,
    .turn = chaos_turn,
    .close = chaos_close,
    .capabilities_of = chaos_capabilities,
    .namespace_of = chaos_namespace,
    .watch = chaos_watch,
    .unwatch = chaos_unwatch,
    .news = chaos_news,
    .leave = chaos_leave,
    .waiting = chaos_waiting,
};
