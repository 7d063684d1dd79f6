/* sim_host.h - a small host for the tests of the sim driver alone: a clock that moves only when the test moves it,
 * and a record of completions. */
#ifndef MORTISE_TESTS_SIM_HOST_H
#define MORTISE_TESTS_SIM_HOST_H

#include <sim.h>

#include <CUnit/Basic.h>

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MS INT64_C(1000000)

static const mortise_module *module;
static const sim_api *sim;
static int64_t clock_ns;

/* ---- the host --------------------------------------------------------------------------------- */

struct client {
    mortise_host host; /* first: a mortise_host * is its client */
    mortise_value values[8];
    void *ctx;
    unsigned news, news_all, emitted, posts, waits;
    char names[256]; /* emitted */
    void (*run)(void *ctx, void *argument);
};

static inline int64_t host_now(mortise_host *host)
{
    (void)host;
    return clock_ns;
}

/* op->issuer counts the completions. */
static inline void host_complete(mortise_host *host, mortise_op *op, mortise_status status)
{
    (void)host;
    op->status = status;
    if (op->issuer)
        ++*(int *)op->issuer;
}

static inline void host_fail(mortise_host *host, mortise_op *op, mortise_status status,
                             int32_t native, bool retryable, const char *format, ...)
{
    (void)retryable;
    (void)format;
    op->hint_ms = native; /* for the test to see */
    host_complete(host, op, status);
}

static inline void host_emit(mortise_host *host, mortise_op *op, const mortise_info *info)
{
    struct client *client = (struct client *)host;
    (void)op;
    client->emitted++;
    size_t used = strlen(client->names);
    snprintf(client->names + used, sizeof client->names - used, "%s ", info->name);
}

static inline void host_news(mortise_host *host, const char *name, size_t name_len)
{
    (void)name;
    (void)name_len;
    ((struct client *)host)->news++;
}

static inline void host_news_all(mortise_host *host)
{
    ((struct client *)host)->news_all++;
}

static inline void host_post(mortise_host *host, void (*run)(void *, void *), void *argument)
{
    (void)argument;
    ((struct client *)host)->run = run;
    ((struct client *)host)->posts++;
}

static inline void host_waiting(mortise_host *host, mortise_op *op)
{
    (void)op;
    ((struct client *)host)->waits++;
}

static inline const char *host_quote(const char *name, size_t name_len, char *buffer, size_t size)
{
    snprintf(buffer, size, "\"%.*s\"", (int)name_len, name);
    return buffer;
}

static inline int64_t parse(const mortise_option *option, const char *text)
{
    if (option->type == MORTISE_OPTION_BOOL)
        return strcmp(text, "yes") == 0;
    return option->type == MORTISE_OPTION_DURATION ? strtoll(text, NULL, 10) : 0;
}

/* settings: key, text, …, NULL */
static inline struct client *client_open(const char *const *settings)
{
    struct client *client = calloc(1, sizeof *client);
    client->host = (mortise_host){.size = sizeof(mortise_host),
                                  .now = host_now,
                                  .complete = host_complete,
                                  .fail = host_fail,
                                  .emit = host_emit,
                                  .news = host_news,
                                  .news_all = host_news_all,
                                  .post = host_post,
                                  .quote = host_quote,
                                  .waiting = host_waiting};
    for (size_t i = 0; i < module->option_count; i++) {
        const mortise_option *option = &module->options[i];
        const char *text = option->default_text;
        for (const char *const *s = settings; s && *s; s += 2)
            if (strcmp(s[0], option->key) == 0)
                text = s[1];
        client->values[i] = (mortise_value){.text = text, .number = parse(option, text)};
    }
    mortise_open_args args = {
        .size = sizeof args, .host = &client->host, .values = client->values, .section = "sim"};
    mortise_error error;
    if (module->open(&args, &client->ctx, &error) == MORTISE_OK)
        return client;
    free(client);
    return NULL;
}

#define OPEN(...) client_open((const char *const[]){__VA_ARGS__, NULL})

static inline void client_close(struct client *client)
{
    module->close(client->ctx);
    free(client);
}

/* Runs what was posted, then makes a turn. */
static inline void turn(struct client *client)
{
    if (client->run)
        client->run(client->ctx, NULL);
    client->run = NULL;
    module->turn(client->ctx, NULL, 0);
}

static inline int64_t due(struct client *client)
{
    int64_t due_ns = MORTISE_NEVER;
    CU_ASSERT_EQUAL(module->interest(client->ctx, NULL, 0, &due_ns), 0);
    return due_ns;
}

/* ---- ops -------------------------------------------------------------------------------------- */

static inline mortise_op op_of(mortise_op_kind kind, const char *name, unsigned char grant)
{
    static const char note[] = "somewhere\n4711\ntester";
    mortise_op op = {.kind = kind,
                     .name = name,
                     .name_len = strlen(name),
                     .ttl_ms = 1000,
                     .note = note,
                     .note_len = sizeof note - 1,
                     .status = 1};
    op.grant.bytes[0] = grant;
    return op;
}

static inline void start(struct client *client, mortise_op *op)
{
    module->start(client->ctx, &op, 1);
}

static inline mortise_status acquire(struct client *client, const char *name, unsigned char grant)
{
    mortise_op op = op_of(MORTISE_OP_ACQUIRE, name, grant);
    start(client, &op);
    return op.status;
}

static inline mortise_status acquire_as(struct client *client, const char *name,
                                        unsigned char grant, const char *owner, int64_t ttl_ms,
                                        uint64_t *token)
{
    mortise_op op = op_of(MORTISE_OP_ACQUIRE, name, grant);
    op.owner = owner;
    op.owner_len = owner ? strlen(owner) : 0;
    op.ttl_ms = ttl_ms;
    start(client, &op);
    *token = op.token;
    return op.status;
}

static inline mortise_status renew(struct client *client, const char *name, unsigned char grant)
{
    mortise_op op = op_of(MORTISE_OP_RENEW, name, grant);
    start(client, &op);
    return op.status;
}

static inline mortise_status release(struct client *client, const char *name, unsigned char grant)
{
    mortise_op op = op_of(MORTISE_OP_RELEASE, name, grant);
    start(client, &op);
    return op.status;
}

static inline mortise_info inspect(struct client *client, const char *name)
{
    mortise_info info = {.size = sizeof info};
    mortise_op op = op_of(MORTISE_OP_INSPECT, name, 0);
    op.info = &info;
    start(client, &op);
    CU_ASSERT_EQUAL(op.status, MORTISE_OK);
    return info;
}

/* ---- running ----------------------------------------------------------------------------------- */

static inline void before_each(void)
{
    clock_ns = 1000000 * MS;
    sim->reset();
}

static inline void after_each(void)
{
    CU_ASSERT_EQUAL(sim->instances(), 0);
    sim->reset();
}

static inline int run_tests(const char *suite, const CU_TestInfo *tests)
{
    void *library = dlopen(TEST_SIM_DIR "/sim.so", RTLD_NOW | RTLD_LOCAL);
    module = library ? dlsym(library, MORTISE_MODULE_SYMBOL) : NULL;
    sim = library ? dlsym(library, SIM_API_SYMBOL) : NULL;
    if (!module || !sim || CU_initialize_registry() != CUE_SUCCESS) {
        fprintf(stderr, "%s: %s\n", suite, library ? "no such symbol" : dlerror());
        return 1;
    }
    CU_SuiteInfo suites[] = {
        {suite, NULL, NULL, before_each, after_each, (CU_TestInfo *)(uintptr_t)tests},
        CU_SUITE_INFO_NULL,
    };
    CU_register_suites(suites);
    CU_basic_set_mode(CU_BRM_VERBOSE);
    CU_basic_run_tests();
    unsigned failures = CU_get_number_of_failures();
    CU_cleanup_registry();
    return failures ? 1 : 0;
}

#endif
