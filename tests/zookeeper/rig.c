/* rig.c - the driver alone, with a small host: see rig.h. */
#include "rig.h"

#include <dlfcn.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MS INT64_C(1000000)

static const mortise_module *module;

struct posted {
    struct posted *next;
    void (*run)(void *ctx, void *argument);
    void *argument;
};

/* ---- the host -------------------------------------------------------------------------------------- */

static int64_t host_now(mortise_host *host)
{
    struct timespec now;
    (void)host;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (int64_t)now.tv_sec * 1000 * MS + now.tv_nsec;
}

static void host_complete(mortise_host *host, mortise_op *op, mortise_status status)
{
    (void)host;
    op->status = status;
    op->issuer = op; /* done */
}

static void host_fail(mortise_host *host, mortise_op *op, mortise_status status, int32_t native,
                      bool retryable, const char *format, ...)
{
    (void)native;
    (void)retryable;
    (void)format;
    host_complete(host, op, status);
}

static void host_post(mortise_host *host, void (*run)(void *ctx, void *argument), void *argument)
{
    struct rig *rig = (struct rig *)host;
    struct posted *posted = malloc(sizeof *posted);
    if (!posted)
        return;
    *posted = (struct posted){NULL, run, argument};
    pthread_mutex_lock(&rig->lock);
    *rig->end = posted;
    rig->end = &posted->next;
    pthread_cond_signal(&rig->filled);
    pthread_mutex_unlock(&rig->lock);
}

static void host_log(mortise_host *host, int level, const char *format, ...)
{
    (void)host;
    (void)level;
    (void)format;
}

static const char *quote(const char *name, size_t name_len, char *buffer, size_t size)
{
    snprintf(buffer, size, "\"%.*s\"", (int)name_len, name);
    return buffer;
}

static void host_waiting(mortise_host *host, mortise_op *op)
{
    (void)host;
    (void)op;
}

static void host_doubt(mortise_host *host, const char *name, size_t name_len)
{
    (void)host;
    (void)name;
    (void)name_len;
}

static void host_emit(mortise_host *host, mortise_op *op, const mortise_info *info)
{
    (void)op;
    (void)info;
    ((struct rig *)host)->emitted++;
}

struct lookup {
    mortise_resolved resolved;
    void *argument;
    struct addrinfo *addresses;
};

static void give_addresses(void *ctx, void *argument)
{
    struct lookup *lookup = argument;
    lookup->resolved(ctx, lookup->argument, lookup->addresses, "no address");
    freeaddrinfo(lookup->addresses);
    free(lookup);
}

static bool host_resolve(mortise_host *host, const char *node, const char *port,
                         mortise_resolved resolved, void *argument)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST};
    struct lookup *lookup = malloc(sizeof *lookup);
    *lookup = (struct lookup){resolved, argument, NULL};
    if (getaddrinfo(node, port, &hints, &lookup->addresses) != 0)
        CU_FAIL_FATAL("not an address");
    host_post(host, give_addresses, lookup);
    return true;
}

/* ---- the rig ------------------------------------------------------------------------------------------ */

bool rig_load(void)
{
    char path[512];
    const char *folders = getenv("MORTISE_MODULE_PATH");
    snprintf(path, sizeof path, "%.*s/zookeeper.so", folders ? (int)strcspn(folders, ":") : 0,
             folders ? folders : "");
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    module = library ? dlsym(library, MORTISE_MODULE_SYMBOL) : NULL;
    return module != NULL;
}

static void rig_value(struct rig *rig, const char *key, const char *text, int64_t number)
{
    for (size_t i = 0; i < module->option_count; i++)
        if (strcmp(module->options[i].key, key) == 0)
            rig->values[i] = (mortise_value){.given = true, .text = text, .number = number};
}

static void open_with(struct rig *rig, const char *client_id, const char *servers,
                      int64_t timeout_ms, int64_t connect_ms, const char *auth)
{
    *rig = (struct rig){.lock = PTHREAD_MUTEX_INITIALIZER, .filled = PTHREAD_COND_INITIALIZER};
    rig->end = &rig->first;
    rig->host = (mortise_host){.size = sizeof rig->host,
                               .now = host_now,
                               .complete = host_complete,
                               .fail = host_fail,
                               .post = host_post,
                               .log = host_log,
                               .quote = quote,
                               .doubt = host_doubt,
                               .waiting = host_waiting,
                               .emit = host_emit,
                               .resolve = host_resolve};
    rig_value(rig, "servers", servers, 0);
    rig_value(rig, "root", "/ops", 0);
    rig_value(rig, "session_timeout", "some", timeout_ms);
    rig_value(rig, "connect_timeout", "some", connect_ms);
    rig_value(rig, "auth", auth, 0);
    for (size_t i = 0; i < module->option_count; i++)
        if (strcmp(module->options[i].key, "tick") == 0)
            rig->values[i].given = false;
    mortise_open_args args = {.size = sizeof args,
                              .host = &rig->host,
                              .values = rig->values,
                              .section = "zookeeper",
                              .client_id = client_id,
                              .note = "host\n1\nprogram"};
    CU_ASSERT_EQUAL_FATAL(module->open(&args, &rig->ctx, &detail), MORTISE_OK);
}

void rig_open_at(struct rig *rig, const char *client_id, const char *servers, int64_t timeout_ms)
{
    open_with(rig, client_id, servers, timeout_ms, TEST_PATIENCE_MS, NULL);
}

void rig_open_as(struct rig *rig, const char *client_id, const char *auth)
{
    /* The longest session that the servers grant: it must outlive two restarts of the server. */
    open_with(rig, client_id, stage.servers, 30000, 5000, auth);
}

void rig_open(struct rig *rig, const char *client_id)
{
    rig_open_at(rig, client_id, stage.servers, LIFE_MS);
}

/* What was posted, and a turn; waits a little for more. */
void rig_run(struct rig *rig)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += 5 * MS;
    if (until.tv_nsec >= 1000 * MS) {
        until.tv_sec++;
        until.tv_nsec -= 1000 * MS;
    }
    pthread_mutex_lock(&rig->lock);
    if (!rig->first)
        pthread_cond_timedwait(&rig->filled, &rig->lock, &until);
    struct posted *posted = rig->first;
    rig->first = NULL;
    rig->end = &rig->first;
    pthread_mutex_unlock(&rig->lock);
    for (struct posted *next; posted; posted = next) {
        next = posted->next;
        posted->run(rig->ctx, posted->argument);
        free(posted);
    }
    module->turn(rig->ctx, NULL, 0);
}

void rig_close(struct rig *rig)
{
    module->close(rig->ctx);
    for (struct posted *next; rig->first; rig->first = next) {
        next = rig->first->next;
        free(rig->first);
    }
}

void rig_start(struct rig *rig, mortise_op *op)
{
    op->issuer = NULL;
    op->status = MORTISE_TIMEDOUT;
    module->start(rig->ctx, &op, 1);
}

void rig_cancel(struct rig *rig, mortise_op *op)
{
    module->cancel(rig->ctx, op);
}

mortise_status rig_finish(struct rig *rig, struct rig *other, mortise_op *op)
{
    int64_t until_ms = test_now_ms() + TEST_PATIENCE_MS;
    while (!op->issuer && test_now_ms() < until_ms) {
        rig_run(rig);
        if (other)
            rig_run(other);
    }
    return op->status;
}

mortise_op rig_acquire(const char *name, unsigned char grant, uint64_t floor)
{
    mortise_op op = {.kind = MORTISE_OP_ACQUIRE,
                     .name = name,
                     .name_len = strlen(name),
                     .ttl_ms = 30000,
                     .token_floor = floor};
    op.grant.bytes[0] = grant;
    return op;
}

void rig_release(struct rig *rig, mortise_op *op)
{
    mortise_op back = {
        .kind = MORTISE_OP_RELEASE, .name = op->name, .name_len = op->name_len, .grant = op->grant};
    rig_start(rig, &back);
    CU_ASSERT_EQUAL(rig_finish(rig, NULL, &back), MORTISE_OK);
    CU_ASSERT(back.sure);
}
