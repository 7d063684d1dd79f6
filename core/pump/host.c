/* host.c - the table that a module gets from the core (mortise_host in driver.h). Each function finds
 * the pump through its instance; all but now, post, log and random are called inside the pump. */
#include "base/log.h"
#include "pump/pump_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct instance *instance_of(mortise_host *host)
{
    return (struct instance *)host;
}

static struct pump *pump_of(mortise_host *host)
{
    return instance_of(host)->core;
}

static int64_t host_now(mortise_host *host)
{
    (void)host;
    return clock_now();
}

static void host_log(mortise_host *host, int level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void host_log(mortise_host *host, int level, const char *format, ...)
{
    char line[1024];
    if (level > 6 || !pump_of(host)->logs)
        return;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);
    make_one_line(line);
    log_line(level, "mortise: [%s] %s", instance_of(host)->section, line);
}

static int64_t within(int64_t number, int64_t least, int64_t most)
{
    return number < least ? least : number > most ? most : number;
}

/* Corrects values that no driver can mean: a request that was sent in the future (R1), or a claim of ours or of another
 * holder that outlives every ttl. */
static void bound_numbers(mortise_op *op)
{
    if (op->kind != MORTISE_OP_ACQUIRE && op->kind != MORTISE_OP_RENEW)
        return;
    op->hint_ms = within(op->hint_ms, -1, MORTISE_TTL_MAX_MS);
    if (op->status != MORTISE_OK)
        return;
    op->from_ns = within(op->from_ns, 0, clock_now());
    op->good_for_ms = within(op->good_for_ms, 0, MORTISE_TTL_MAX_MS);
}

static mortise_status known(mortise_status status)
{
    return status > MORTISE_OK || status < MORTISE_BACKEND ? MORTISE_BACKEND : status;
}

/* A completion from a thread that is not inside the pump, or a second one, breaks the contract: the core cannot repair
 * that, but it must not be harmed by it. If a plugin is being closed, a completion by a module below it is no mistake:
 * the plugin cancels its requests, and nobody wants the answers any more. */
static bool complete(mortise_host *host, mortise_op *op, mortise_status status)
{
    struct pump *pump = pump_of(host);
    if (pump_inside_here != pump) {
        if (!atomic_load(&pump->loader->closing))
            host_log(host, 3, "the module completed an op outside of the pump; ignored");
        return false;
    }
    if (pump_complete(pump, op, known(status))) {
        bound_numbers(op);
        return true;
    }
    host_log(host, 3, "the module completed an op that was not outstanding; ignored");
    return false;
}

static void host_complete(mortise_host *host, mortise_op *op, mortise_status status)
{
    complete(host, op, status);
}

static void host_fail(mortise_host *host, mortise_op *op, mortise_status status, int32_t native,
                      bool retryable, const char *format, ...)
    __attribute__((format(printf, 6, 7)));

static void host_fail(mortise_host *host, mortise_op *op, mortise_status status, int32_t native,
                      bool retryable, const char *format, ...)
{
    if (!complete(host, op, status))
        return;
    mortise_error *error = malloc(sizeof(*error)); /* without it, only the status is there */
    if (error == NULL)
        return;
    va_list arguments;
    va_start(arguments, format);
    failed_with(error, op->status, instance_of(host)->module.name, native, retryable, format,
                arguments);
    va_end(arguments);
    free(op->error);
    op->error = error;
}

static void host_emit(mortise_host *host, mortise_op *op, const mortise_info *info)
{
    size_t size = instance_of(host)->module.info_size;
    if (op->emitted == NULL)
        return;
    if (size >= sizeof(*info)) {
        op->emitted(op, info);
        return;
    }
    mortise_info whole = {.size = sizeof(whole)}; /* an older module fills less: the rest is zero */
    memcpy(&whole, info, size);
    whole.size = sizeof(whole);
    op->emitted(op, &whole);
}

static void host_news(mortise_host *host, const char *name, size_t name_len)
{
    struct instance *above = instance_of(host)->above;
    while (above != NULL && above->module.news == NULL)
        above = above->above;
    if (above != NULL)
        above->module.news(above->ctx, name, name_len);
    else
        pump_of(host)->upcalls->news(pump_of(host), name, name_len);
}

static void host_news_all(mortise_host *host)
{
    pump_of(host)->upcalls->news(pump_of(host), NULL, 0);
}

/* The names below a plugin may differ from those of the core above it (another namespace, names of its own), and only the
 * plugin could translate them. So a doubt from below a plugin is taken for one of all names. Asking too often does no
 * harm, but a doubt about a name that the core does not know would be lost. */
static void host_doubt(mortise_host *host, const char *name, size_t name_len)
{
    struct pump *pump = pump_of(host);
    atomic_fetch_add(&pump->doubts,
                     1); /* before the look: a grant that is still being delivered notices it */
    if (instance_of(host)->above != NULL)
        pump->doubt_below = true;
    else
        pump->upcalls->doubt(pump, name, name_len);
}

/* A plugin may have made the op: then only the plugin knows which op of the core depends on it. */
static void host_waiting(mortise_host *host, mortise_op *op)
{
    struct pump *pump = pump_of(host);
    const struct instance *above = instance_of(host)->above;
    bool own = pump_inside_here == pump && op->core_state == OP_STARTED;
    if (own) {
        pump->upcalls->waiting(pump, op);
        return;
    }
    if (pump_inside_here != pump || op->core_state != OP_OF_PLUGIN) {
        host_log(host, 3, "the module reported that an op waits that was not outstanding; ignored");
        return;
    }
    while (above != NULL && above->module.waiting == NULL)
        above = above->above;
    if (above != NULL)
        above->module.waiting(above->ctx, op);
}

static void host_post(mortise_host *host, void (*run)(void *ctx, void *argument), void *argument)
{
    if (!pump_post(pump_of(host), instance_of(host), run, argument))
        host_log(host, 3, "out of memory: an event of the module was dropped");
}

static void host_closing(mortise_host *host, int fd)
{
    pump_closing_fd(pump_of(host), fd);
}

static void host_random(mortise_host *host, void *bytes, size_t size)
{
    pump_of(host)->upcalls->random(pump_of(host), bytes, size);
}

static mortise_status host_open_below(mortise_host *host, const char *section,
                                      mortise_below **below, mortise_error *error)
{
    struct instance *instance;
    mortise_status status =
        loader_open(pump_of(host)->loader, section, instance_of(host), 0, &instance, error);
    *below = status == MORTISE_OK ? &instance->below : NULL;
    return status;
}

static bool host_resolve(mortise_host *host, const char *node, const char *port,
                         mortise_resolved resolved, void *argument)
{
    return resolve_begin(pump_of(host), instance_of(host), node, port, resolved, argument);
}

void host_prepare(struct instance *instance, void *pump)
{
    instance->core = pump;
    instance->host = (mortise_host){
        .size = sizeof(mortise_host),
        .now = host_now,
        .complete = host_complete,
        .fail = host_fail,
        .emit = host_emit,
        .news = host_news,
        .news_all = host_news_all,
        .post = host_post,
        .closing = host_closing,
        .log = host_log,
        .random = host_random,
        .quote = quote_name,
        .open_below = host_open_below,
        .resolve = host_resolve,
        .doubt = host_doubt,
        .waiting = host_waiting,
    };
}

/* A module that failed to open may have answers of threads on their way, while the client goes on without the module. */
void host_forget(struct instance *instance, void *pump)
{
    resolve_forget(pump, instance);
    pump_forget_posted(pump, instance);
}
