/* zookeeper_host.c - a host for the ZooKeeper driver, with a clock of its own: see zookeeper_host.h. */
#include "zookeeper_host.h"

#include "fake_zookeeper.h"
#include "suite.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- a host with a clock of its own ---------------------------------------------------------------------- */

struct posted {
    struct posted *next;
    void (*run)(void *ctx, void *argument);
    void *argument;
};

int64_t now_ns = 1000 * 1000 * MS;
int doubts, look_ups, semaphore_style = CURATOR_SEMAPHORE;
char told[512];
unsigned told_to_wait;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct posted *first_posted, **last_posted = &first_posted;

static int64_t host_now(mortise_host *host)
{
    (void)host;
    return now_ns;
}

static void host_complete(mortise_host *host, mortise_op *op, mortise_status status)
{
    (void)host;
    CU_ASSERT_PTR_NULL(op->issuer); /* once */
    op->status = status;
    op->issuer = op;
}

static void host_fail(mortise_host *host, mortise_op *op, mortise_status status, int32_t native,
                      bool retryable, const char *format, ...)
    __attribute__((format(printf, 6, 7)));

static void host_fail(mortise_host *host, mortise_op *op, mortise_status status, int32_t native,
                      bool retryable, const char *format, ...)
{
    va_list arguments;
    (void)native;
    (void)retryable;
    va_start(arguments, format);
    vsnprintf(told, sizeof(told), format, arguments);
    va_end(arguments);
    host_complete(host, op, status);
}

static void host_post(mortise_host *host, void (*run)(void *ctx, void *argument), void *argument)
{
    struct posted *posted = malloc(sizeof(*posted));
    (void)host;
    *posted = (struct posted){NULL, run, argument};
    pthread_mutex_lock(&lock);
    *last_posted = posted;
    last_posted = &posted->next;
    pthread_mutex_unlock(&lock);
}

static void host_log(mortise_host *host, int level, const char *format, ...)
{
    (void)host;
    (void)level;
    (void)format;
}

static const char *host_quote(const char *name, size_t name_len, char *buffer, size_t size)
{
    snprintf(buffer, size, "\"%.*s\"", (int)name_len, name);
    return buffer;
}

static void host_doubt(mortise_host *host, const char *name, size_t name_len)
{
    (void)host;
    (void)name;
    (void)name_len;
    doubts++;
}

static mortise_resolved resolved;
static void *resolved_for;

static void give_address(void *ctx, void *argument)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(2181)};
    struct addrinfo info = {.ai_family = AF_INET,
                            .ai_addr = (struct sockaddr *)&address,
                            .ai_addrlen = sizeof(address)};
    (void)argument;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    resolved(ctx, resolved_for, &info, NULL);
}

static bool host_resolve(mortise_host *host, const char *node, const char *port,
                         mortise_resolved done, void *argument)
{
    (void)node;
    (void)port;
    resolved = done;
    resolved_for = argument;
    look_ups++;
    host_post(host, give_address, NULL);
    return true;
}

static void host_waiting(mortise_host *host, mortise_op *op)
{
    (void)host;
    (void)op;
    told_to_wait++;
}

static mortise_host host = {.size = sizeof(host),
                            .now = host_now,
                            .complete = host_complete,
                            .fail = host_fail,
                            .post = host_post,
                            .log = host_log,
                            .quote = host_quote,
                            .doubt = host_doubt,
                            .resolve = host_resolve,
                            .waiting = host_waiting};

/* ---- the driver -------------------------------------------------------------------------------------------- */

const mortise_module *const module = &mortise_module_v1;
void *driver_ctx;

static void set_value(mortise_value *values, const char *key, const char *text, int64_t number)
{
    for (size_t i = 0; i < module->option_count; i++)
        if (strcmp(module->options[i].key, key) == 0)
            values[i] = (mortise_value){.given = true, .text = text, .number = number};
}

static mortise_status open_with(const char *servers, bool is_semaphore, int64_t connect_timeout_ms,
                                mortise_error *error)
{
    static mortise_value values[16];
    mortise_open_args args = {.size = sizeof(args),
                              .host = &host,
                              .values = values,
                              .section = "zookeeper",
                              .client_id = "00000000000000000000000000000001",
                              .note = NOTE};
    set_value(values, "servers", servers, 0);
    set_value(values, "root", "/r", 0);
    set_value(values, "session_timeout", "10s", FAKE_TIMEOUT_MS);
    set_value(values, "connect_timeout", "a while", connect_timeout_ms);
    set_value(values, "node_style", "", is_semaphore ? semaphore_style : 0);
    return module->open(&args, &driver_ctx, error);
}

void open_driver(bool is_semaphore, int64_t connect_timeout_ms)
{
    mortise_error error;
    CU_ASSERT_EQUAL_FATAL(open_with("127.0.0.1:2181", is_semaphore, connect_timeout_ms, &error),
                          MORTISE_OK);
}

bool run_posted(void)
{
    pthread_mutex_lock(&lock);
    struct posted *posted = first_posted, *next;
    first_posted = NULL;
    last_posted = &first_posted;
    pthread_mutex_unlock(&lock);
    bool any = posted != NULL;
    for (; posted != NULL; posted = next) {
        next = posted->next;
        posted->run(driver_ctx, posted->argument);
        free(posted);
    }
    if (any)
        module->turn(driver_ctx, NULL, 0);
    return any;
}

void close_driver(void)
{
    module->close(driver_ctx);
    for (struct posted *next; first_posted != NULL; first_posted = next) {
        next = first_posted->next;
        free(first_posted);
    }
    last_posted = &first_posted;
}

mortise_status try_servers(const char *servers, mortise_error *error)
{
    mortise_status status = open_with(servers, false, HOUR_MS, error);
    if (status == MORTISE_OK)
        close_driver();
    return status;
}

void pass_time(void)
{
    int64_t due_ns = MORTISE_NEVER;
    module->interest(driver_ctx, NULL, 0, &due_ns);
    if (due_ns > now_ns && due_ns != MORTISE_NEVER)
        now_ns = due_ns;
    else
        now_ns += MS;
    module->turn(driver_ctx, NULL, 0);
}

void start(mortise_op *op)
{
    op->issuer = NULL;
    module->start(driver_ctx, &op, 1);
}

mortise_op op_of(mortise_op_kind kind, unsigned char grant)
{
    mortise_op op = {.kind = kind, .name = "x", .name_len = 1, .ttl_ms = 600000};
    op.grant.bytes[0] = grant;
    return op;
}
