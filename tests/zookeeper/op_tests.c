/* op_tests.c - what only plugins ask of a driver: tokens not below a floor, and the small records. The module is
 * loaded by itself, with a host of a few lines. */
#include "stage.h"

#include <mortise/driver.h>

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

struct rig {
    mortise_host host; /* first: a mortise_host * is its rig */
    mortise_value values[16];
    void *ctx;
    pthread_mutex_t lock;
    pthread_cond_t filled;
    struct posted *first, **end;
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

static void host_doubt(mortise_host *host, const char *name, size_t name_len)
{
    (void)host;
    (void)name;
    (void)name_len;
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

static bool load(void)
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

static void rig_open(struct rig *rig, const char *client_id)
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
                               .resolve = host_resolve};
    rig_value(rig, "servers", stage.servers, 0);
    rig_value(rig, "root", "/ops", 0);
    rig_value(rig, "session_timeout", "some", LIFE_MS);
    rig_value(rig, "connect_timeout", "some", TEST_PATIENCE_MS);
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

/* What was posted, and a turn; waits a little for more. */
static void rig_run(struct rig *rig)
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

static void rig_close(struct rig *rig)
{
    module->close(rig->ctx);
    for (struct posted *next; rig->first; rig->first = next) {
        next = rig->first->next;
        free(rig->first);
    }
}

static void start(struct rig *rig, mortise_op *op)
{
    op->issuer = NULL;
    op->status = MORTISE_TIMEDOUT;
    module->start(rig->ctx, &op, 1);
}

static mortise_status finish(struct rig *rig, struct rig *other, mortise_op *op)
{
    int64_t until_ms = test_now_ms() + TEST_PATIENCE_MS;
    while (!op->issuer && test_now_ms() < until_ms) {
        rig_run(rig);
        if (other)
            rig_run(other);
    }
    return op->status;
}

static mortise_op acquire_of(const char *name, unsigned char grant, uint64_t floor)
{
    mortise_op op = {.kind = MORTISE_OP_ACQUIRE,
                     .name = name,
                     .name_len = strlen(name),
                     .ttl_ms = 30000,
                     .token_floor = floor};
    op.grant.bytes[0] = grant;
    return op;
}

static void release(struct rig *rig, mortise_op *op)
{
    mortise_op back = {
        .kind = MORTISE_OP_RELEASE, .name = op->name, .name_len = op->name_len, .grant = op->grant};
    start(rig, &back);
    CU_ASSERT_EQUAL(finish(rig, NULL, &back), MORTISE_OK);
    CU_ASSERT(back.sure);
}

/* ---- tokens -------------------------------------------------------------------------------------------- */

static uint64_t token_of(struct rig *rig, const char *name, unsigned char grant, uint64_t floor)
{
    mortise_op op = acquire_of(name, grant, floor);
    start(rig, &op);
    CU_ASSERT_EQUAL(finish(rig, NULL, &op), MORTISE_OK);
    CU_ASSERT(op.token >= floor);
    release(rig, &op);
    return op.token;
}

/* A floor raises the base for all: later tokens of every client are above it, without a floor. */
static void test_floors(void)
{
    static struct rig one, two;
    const uint64_t high = UINT64_C(2000000000000000);
    CU_ASSERT_FATAL(load());
    rig_open(&one, "00000000000000000000000000000001");
    rig_open(&two, "00000000000000000000000000000002");
    uint64_t low = token_of(&one, "a", 1, 0);
    CU_ASSERT(low > 0 && low < high);
    CU_ASSERT_EQUAL(token_of(&two, "a", 2, high), high);
    uint64_t next = token_of(&one, "a", 3, 0);
    CU_ASSERT(next > high && next < high + 1000);
    CU_ASSERT(token_of(&one, "b", 4, low) > next); /* a floor that is below asks for nothing */
    for (unsigned char i = 0; i < 20;
         i++) { /* both at once: one of them is too late, and reads it again */
        uint64_t floor = high + (uint64_t)(i + 1) * 1000000;
        mortise_op first = acquire_of("c", (unsigned char)(10 + i), floor + i),
                   second = acquire_of("d", (unsigned char)(100 + i), floor);
        start(&one, &first);
        start(&two, &second);
        CU_ASSERT_EQUAL(finish(&one, &two, &first), MORTISE_OK);
        CU_ASSERT_EQUAL(finish(&two, &one, &second), MORTISE_OK);
        CU_ASSERT(first.token >= floor + i && second.token >= floor);
        release(&one, &first);
        release(&two, &second);
    }
    CU_ASSERT(token_of(&two, "c", 200, 0) > high + 20 * 1000000);
    mortise_op beyond = acquire_of("e", 201, UINT64_MAX); /* its base could not be read again */
    start(&one, &beyond);
    CU_ASSERT_EQUAL(finish(&one, &two, &beyond), MORTISE_BACKEND);
    CU_ASSERT(token_of(&one, "e", 202, 0) < high + 100 * 1000000);
    rig_close(&one);
    rig_close(&two);
}

/* ---- an acquire that comes at a bad moment ------------------------------------------------------------ */

static bool never(void *argument)
{
    (void)argument;
    return false;
}

/* The library is told that the session is over, and the pump is not yet: who asks then waits for the next one. */
#define ASKED 100

static void test_asked_as_the_session_ends(void)
{
    static struct rig one;
    static mortise_op ops[ASKED];
    static char names[ASKED][8];
    char text[256] = "";
    CU_ASSERT_FATAL(load());
    rig_open(&one, "00000000000000000000000000000005");
    mortise_op ping = {.kind = MORTISE_OP_PING, .buffer = text, .buffer_size = sizeof text};
    start(&one, &ping);
    CU_ASSERT_EQUAL_FATAL(finish(&one, NULL, &ping), MORTISE_OK);
    CU_ASSERT(session_close_by_hand((int64_t)strtoull(strstr(text, "0x"), NULL, 16)));
    for (int i = 0; i < ASKED; i++) { /* from before the library is told until after it */
        snprintf(names[i], sizeof names[i], "f%d", i);
        ops[i] = acquire_of(names[i], (unsigned char)(i + 1), 0);
        start(&one, &ops[i]);
        CU_ASSERT_PTR_NULL(ops[i].issuer);
        test_poll(never, NULL, 20);
    }
    for (int i = 0; i < ASKED; i++) {
        CU_ASSERT_EQUAL(finish(&one, NULL, &ops[i]), MORTISE_OK);
        release(&one, &ops[i]);
    }
    rig_close(&one);
}

/* The same acquire comes again when the ttl of what it was given has passed: that is not given a second time. */
static void test_asked_again_too_late(void)
{
    static struct rig one;
    CU_ASSERT_FATAL(load());
    rig_open(&one, "00000000000000000000000000000006");
    mortise_op op = acquire_of("g", 1, 0);
    op.ttl_ms = 2000;
    start(&one, &op);
    CU_ASSERT_EQUAL(finish(&one, NULL, &op), MORTISE_OK);
    uint64_t token = op.token;
    test_poll(never, NULL, op.ttl_ms + 50); /* and the driver has no turn */
    start(&one, &op);
    CU_ASSERT_EQUAL(finish(&one, NULL, &op), MORTISE_INDETERMINATE);
    CU_ASSERT(token_of(&one, "g", 2, 0) > token); /* its node is gone */
    rig_close(&one);
}

/* ---- records -------------------------------------------------------------------------------------------- */

static mortise_status write_record(struct rig *rig, const char *text, size_t size,
                                   uint64_t *version)
{
    mortise_op op = {.kind = MORTISE_OP_WRITE,
                     .name = "the/record",
                     .name_len = 10,
                     .record = text,
                     .record_size = size,
                     .record_version = *version};
    start(rig, &op);
    mortise_status status = finish(rig, NULL, &op);
    if (status == MORTISE_OK)
        *version = op.record_version;
    return status;
}

static void expect_record(struct rig *rig, const char *text, size_t size, uint64_t version)
{
    char buffer[MORTISE_RECORD_MAX];
    mortise_op op = {.kind = MORTISE_OP_READ,
                     .name = "the/record",
                     .name_len = 10,
                     .buffer = buffer,
                     .buffer_size = sizeof buffer};
    start(rig, &op);
    CU_ASSERT_EQUAL(finish(rig, NULL, &op), MORTISE_OK);
    CU_ASSERT_EQUAL(op.record_version, version);
    CU_ASSERT_EQUAL_FATAL(op.record_size, size);
    CU_ASSERT_EQUAL(memcmp(buffer, text, size), 0);
}

static void test_records(void)
{
    static struct rig one, two;
    static char large[MORTISE_RECORD_MAX];
    uint64_t version = 0, stale = 0;
    CU_ASSERT_FATAL(load());
    rig_open(&one, "00000000000000000000000000000003");
    rig_open(&two, "00000000000000000000000000000004");
    expect_record(&one, "", 0, 0);
    CU_ASSERT_EQUAL(write_record(&one, "a\0b", 3, &version), MORTISE_OK);
    CU_ASSERT(version > 0);
    expect_record(&two, "a\0b", 3, version);
    CU_ASSERT_EQUAL(write_record(&two, "other", 5, &stale), MORTISE_BUSY); /* must be absent */
    stale = version;
    CU_ASSERT_EQUAL(write_record(&two, large, sizeof large, &version), MORTISE_OK);
    CU_ASSERT(version > stale);
    CU_ASSERT_EQUAL(write_record(&one, "late", 4, &stale), MORTISE_BUSY);
    expect_record(&one, large, sizeof large, version);
    CU_ASSERT_EQUAL(write_record(&one, "", 0, &version), MORTISE_OK);
    expect_record(&two, "", 0, version);
    rig_close(&one);
    rig_close(&two);
}

const CU_TestInfo op_tests[] = {
    {"floors", test_floors},
    {"asked as the session ends", test_asked_as_the_session_ends},
    {"asked again too late", test_asked_again_too_late},
    {"records", test_records},
    CU_TEST_INFO_NULL,
};
