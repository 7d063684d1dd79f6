/* alone.c - a host for the Redlock module, with a clock that can be moved; see alone.h. */
#include "alone.h"

#include <dlfcn.h>
#include <netdb.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define FDS (4 * NODES_MAX)
#define TTL_MS 60000      /* max_ttl */
#define PATIENCE_MS 45000 /* less than that: what is left to expire is seen */

static struct alone *alone_of(mortise_host *host)
{
    return (struct alone *)host;
}

/* ---- what the driver is given ------------------------------------------------------------------------------------ */

static int64_t now(mortise_host *host)
{
    struct timespec time;
    clock_gettime(CLOCK_BOOTTIME, &time);
    return time.tv_sec * S_NS + time.tv_nsec + alone_of(host)->shift_ns;
}

static void complete(mortise_host *host, mortise_op *op, mortise_status status)
{
    struct call *call = (struct call *)op;
    (void)host;
    CHECK(!call->done); /* exactly once */
    op->status = status;
    call->done = true;
}

static void fail(mortise_host *host, mortise_op *op, mortise_status status, int32_t native,
                 bool retryable, const char *format, ...) __attribute__((format(printf, 6, 7)));
static void fail(mortise_host *host, mortise_op *op, mortise_status status, int32_t native,
                 bool retryable, const char *format, ...)
{
    struct call *call = (struct call *)op;
    va_list words;
    (void)native;
    (void)retryable;
    va_start(words, format);
    vsnprintf(call->text, sizeof call->text, format, words);
    va_end(words);
    complete(host, op, status);
}

static void emit(mortise_host *host, mortise_op *op, const mortise_info *info)
{
    (void)host;
    ((struct call *)op)->info = *info;
}

static void news(mortise_host *host, const char *name, size_t name_len)
{
    (void)name;
    (void)name_len;
    alone_of(host)->news++;
}

static void news_all(mortise_host *host)
{
    alone_of(host)->news++;
}

static void doubt(mortise_host *host, const char *name, size_t name_len)
{
    (void)name;
    (void)name_len;
    alone_of(host)->doubts++;
}

static void closing(mortise_host *host, int fd)
{
    (void)host;
    (void)fd;
}

static void tell(mortise_host *host, int level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void tell(mortise_host *host, int level, const char *format, ...)
{
    (void)host;
    (void)level;
    (void)format;
}

static void fill(mortise_host *host, void *bytes, size_t size)
{
    FILE *file = fopen("/dev/urandom", "re");
    (void)host;
    if (!file || fread(bytes, 1, size, file) != size)
        abort();
    fclose(file);
}

static const char *quote(const char *name, size_t name_len, char *buffer, size_t size)
{
    snprintf(buffer, size, "\"%.*s\"", (int)name_len, name);
    return buffer;
}

/* Addresses in digits alone: found at once, told with the next turn. */
static bool resolve(mortise_host *host, const char *node, const char *port, mortise_resolved told,
                    void *argument)
{
    struct alone *alone = alone_of(host);
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                                   .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    if (alone->lookup_count == ALONE_LOOKUPS || getaddrinfo(node, port, &hints, &found) != 0)
        return false;
    alone->lookups[alone->lookup_count].told = told;
    alone->lookups[alone->lookup_count].argument = argument;
    alone->lookups[alone->lookup_count++].found = found;
    return true;
}

static void tell_lookups(struct alone *alone, bool open)
{
    while (alone->lookup_count > 0) {
        unsigned i = --alone->lookup_count;
        struct addrinfo *found = alone->lookups[i].found;
        if (open)
            alone->lookups[i].told(alone->ctx, alone->lookups[i].argument, found, NULL);
        freeaddrinfo(found);
    }
}

/* ---- an instance -------------------------------------------------------------------------------------------------- */

/* "on", "yes", numbers, and durations in ms and s are all that is needed. */
static mortise_value read_value(const char *text, bool given)
{
    char *unit = NULL;
    int64_t number = text ? strtoll(text, &unit, 10) : 0;
    if (text && (strcmp(text, "on") == 0 || strcmp(text, "yes") == 0))
        number = 1;
    else if (unit && strcmp(unit, "s") == 0)
        number *= 1000;
    return (mortise_value){.given = given, .text = text, .number = number};
}

static void read_settings(struct alone *alone, const char *const *settings)
{
    const mortise_module *module = alone->module;
    for (size_t i = 0; i < module->option_count; i++) {
        const mortise_option *option = &module->options[i];
        const char *text = option->default_text;
        bool choice = option->type == MORTISE_OPTION_CHOICE;
        if (strcmp(option->key, "nodes") == 0)
            text = alone->list;
        for (const char *const *pair = settings; *pair; pair += 2)
            text = strcmp(pair[0], option->key) == 0 ? pair[1] : text;
        alone->values[i] = read_value(choice ? NULL : text, false);
    }
}

const mortise_module *alone_linked;

static bool load(struct alone *alone)
{
    alone->module = alone_linked;
    if (alone_linked)
        return true;
    char path[512];
    const char *folders = getenv("MORTISE_MODULE_PATH");
    int length = folders ? (int)strcspn(folders, ":") : 0;
    snprintf(path, sizeof path, "%.*s/redlock.so", length, folders ? folders : "");
    alone->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    alone->module = alone->library ? dlsym(alone->library, MORTISE_MODULE_SYMBOL) : NULL;
    return CHECK(alone->module != NULL);
}

bool alone_open(struct alone *alone, const int *ports, int count, const char *const *settings)
{
    mortise_error error = {.status = MORTISE_OK};
    size_t length = 0;
    *alone = (struct alone){.host = {sizeof(mortise_host), .now = now, .complete = complete,
                                     .fail = fail, .emit = emit, .news = news, .news_all = news_all,
                                     .closing = closing, .log = tell, .random = fill,
                                     .quote = quote, .resolve = resolve, .doubt = doubt}};
    if (!load(alone))
        return false;
    for (int i = 0; i < count; i++)
        length += (size_t)snprintf(alone->list + length, sizeof alone->list - length,
                                   "%s127.0.0.1:%d", i > 0 ? "," : "", ports[i]);
    CHECK(alone->module->option_count <= ALONE_OPTIONS);
    read_settings(alone, settings);
    const mortise_open_args args = {.size = sizeof args,
                                    .host = &alone->host,
                                    .values = alone->values,
                                    .section = "redlock",
                                    .client_id = "00112233445566778899aabbccddeeff",
                                    .note = ""};
    bool good = alone->module->open(&args, &alone->ctx, &error) == MORTISE_OK;
    if (!good)
        fprintf(stderr, "open: %s\n", error.message);
    return CHECK(good);
}

void alone_close(struct alone *alone)
{
    alone->module->close(alone->ctx);
    tell_lookups(alone, false);
    if (alone->library)
        dlclose(alone->library);
}

/* ---- turning ------------------------------------------------------------------------------------------------------- */

void alone_turn(struct alone *alone, int64_t bound_ms)
{
    struct pollfd fds[FDS];
    int64_t due_ns = MORTISE_NEVER;
    tell_lookups(alone, true);
    size_t n = alone->module->interest(alone->ctx, fds, FDS, &due_ns), ready = 0;
    int64_t left_ns = due_ns == MORTISE_NEVER ? bound_ms * 1000000 : due_ns - now(&alone->host);
    int64_t ms = left_ns <= 0 ? 0 : (left_ns + 999999) / 1000000;
    int count = poll(fds, (nfds_t)n, (int)(ms < bound_ms ? ms : bound_ms));
    for (size_t i = 0; i < n && count > 0; i++)
        if (fds[i].revents)
            fds[ready++] = fds[i];
    if (ready > 0 || due_ns <= now(&alone->host))
        alone->module->turn(alone->ctx, fds, ready);
}

void alone_turn_one(struct alone *alone)
{
    struct pollfd fds[FDS];
    int64_t due_ns = MORTISE_NEVER;
    size_t n = alone->module->interest(alone->ctx, fds, FDS, &due_ns), i = 0;
    poll(fds, (nfds_t)n, 0);
    while (i < n && fds[i].revents == 0)
        i++;
    if (CHECK(i < n))
        alone->module->turn(alone->ctx, &fds[i], 1);
}

bool alone_until(struct alone *alone, bool (*ready)(void *argument), void *argument)
{
    int64_t give_up_ms = test_now_ms() + PATIENCE_MS;
    while (!ready(argument) && test_now_ms() < give_up_ms)
        alone_turn(alone, 5);
    return ready(argument);
}

struct reading {
    struct alone *alone;
    unsigned wanted;
};

static bool are_readable(void *argument)
{
    const struct reading *reading = argument;
    struct pollfd fds[FDS];
    int64_t due_ns = MORTISE_NEVER;
    const struct alone *alone = reading->alone;
    size_t n = alone->module->interest(alone->ctx, fds, FDS, &due_ns);
    unsigned count = 0;
    if (poll(fds, (nfds_t)n, 0) > 0)
        for (size_t i = 0; i < n; i++)
            count += (fds[i].revents & POLLIN) != 0;
    return count >= reading->wanted;
}

bool alone_wait_readable(struct alone *alone, unsigned count)
{
    struct reading reading = {alone, count};
    return test_poll(are_readable, &reading, PATIENCE_MS);
}

/* ---- ops ------------------------------------------------------------------------------------------------------------ */

struct call call_of(mortise_op_kind kind, const char *name)
{
    struct call call;
    memset(&call, 0, sizeof call);
    call.op.kind = kind;
    call.op.name = name;
    call.op.name_len = strlen(name);
    call.op.ttl_ms = TTL_MS;
    fill(NULL, &call.op.grant, sizeof call.op.grant);
    return call;
}

struct call call_about(mortise_op_kind kind, const struct call *lock)
{
    struct call call = call_of(kind, lock->op.name);
    call.op.grant = lock->op.grant;
    call.op.ttl_ms = lock->op.ttl_ms;
    call.op.token = kind == MORTISE_OP_ACQUIRE ? 0 : lock->op.token;
    return call;
}

void call_start(struct alone *alone, struct call *call)
{
    mortise_op *op = &call->op;
    call->done = false;
    call->info.size = sizeof call->info;
    op->info = &call->info;
    op->buffer = call->text;
    op->buffer_size = sizeof call->text;
    memset(op->driver_data, 0, sizeof op->driver_data);
    alone->module->start(alone->ctx, &op, 1);
}

static bool is_done(void *argument)
{
    return ((const struct call *)argument)->done;
}

bool call_wait(struct alone *alone, struct call *call)
{
    bool done = alone_until(alone, is_done, call);
    if (!done)
        alone->module->cancel(alone->ctx, &call->op);
    return CHECK(done);
}

mortise_status call_run(struct alone *alone, struct call *call)
{
    call_start(alone, call);
    call_wait(alone, call);
    return call->op.status;
}

static bool has_worked(void *argument)
{
    struct call lock = call_of(MORTISE_OP_ACQUIRE, "mortise:works"), end;
    if (call_run(argument, &lock) != MORTISE_OK) {
        alone_turn(argument, 5); /* it may have been refused at once */
        return false;
    }
    end = call_about(MORTISE_OP_RELEASE, &lock);
    return call_run(argument, &end) == MORTISE_OK;
}

bool alone_works(struct alone *alone)
{
    return CHECK(test_poll(has_worked, alone, PATIENCE_MS));
}

struct saying {
    struct alone *alone;
    const char *wanted;
    char last[400];
};

static bool says_so(void *argument)
{
    struct saying *saying = argument;
    struct call ping = call_of(MORTISE_OP_PING, "");
    call_run(saying->alone, &ping);
    memcpy(saying->last, ping.text, sizeof saying->last);
    char *findings = strstr(ping.text, " | "); /* for mortise doctor */
    if (findings)
        *findings = '\0';
    size_t len = strlen(saying->wanted);
    bool begins = len > 0 && saying->wanted[len - 1] == '*';
    if (begins ? strncmp(ping.text, saying->wanted, len - 1) == 0
               : strcmp(ping.text, saying->wanted) == 0)
        return true;
    alone_turn(saying->alone, 5); /* it may have been refused at once */
    return false;
}

bool alone_says(struct alone *alone, const char *wanted)
{
    struct saying saying = {.alone = alone, .wanted = wanted};
    bool good = test_poll(says_so, &saying, PATIENCE_MS);
    if (!good)
        fprintf(stderr, "said \"%s\", wanted \"%s\"\n", saying.last, wanted);
    return CHECK(good);
}
