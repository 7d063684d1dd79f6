/* etcd_rig.c - the etcd driver without a server. See etcd_rig.h. */
#include "etcd_rig.h"

#include <CUnit/CUnit.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct driver driver;
struct session next, last;
int64_t now_ns;
unsigned doubts;
char told[512];
uint32_t drawn;

static int64_t host_now(mortise_host *host)
{
    (void)host;
    return now_ns;
}

static void host_doubt(mortise_host *host, const char *name, size_t name_len)
{
    (void)host;
    (void)name;
    (void)name_len;
    doubts++;
}

static void host_complete(mortise_host *host, mortise_op *op, mortise_status status)
{
    (void)host;
    op->status = status;
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
    vsnprintf(told, sizeof told, format, arguments);
    va_end(arguments);
    host_complete(host, op, status);
}

static void host_waiting(mortise_host *host, mortise_op *op)
{
    (void)host;
    (void)op;
}

static void host_random(mortise_host *host, void *bytes, size_t size)
{
    (void)host;
    CU_ASSERT_FATAL(size >= sizeof drawn);
    memset(bytes, 0, size);
    memcpy(bytes, &drawn, sizeof drawn);
}

static const char *host_quote(const char *name, size_t name_len, char *buffer, size_t size)
{
    snprintf(buffer, size, "\"%.*s\"", (int)name_len, name);
    return buffer;
}

void begin(void)
{
    static mortise_host host = {.size = sizeof host,
                                .now = host_now,
                                .doubt = host_doubt,
                                .complete = host_complete,
                                .fail = host_fail,
                                .waiting = host_waiting,
                                .random = host_random,
                                .quote = host_quote};
    static const mortise_value values[OPTION_COUNT];
    static const struct link_settings settings = {.timeout_ms = 5000};
    driver = (struct driver){.host = &host, .values = values, .sweep_ns = MORTISE_NEVER};
    driver.link = (struct link){.driver = &driver,
                                .host = &host,
                                .settings = &settings,
                                .state = LINK_UP,
                                .token_state = TOKEN_ASKED,
                                .calls_due_ns = MORTISE_NEVER};
    now_ns = 1000 * NS_PER_MS;
    doubts = 0;
    last = (struct session){.state = SESSION_LEFT, .lease = OLD_LEASE};
    next = (struct session){
        .state = SESSION_LIVE, .join = JOINED, .lease = NEXT_LEASE, .asked_ttl_s = 2};
    DL_APPEND(driver.sessions, &next);
}

struct claim *make_claim(enum claim_state state, enum move move)
{
    mortise_op op = {.name = "a", .name_len = 1, .kind = MORTISE_OP_ACQUIRE, .ttl_ms = 1000};
    struct claim *claim = claim_new(&driver, &op);
    CU_ASSERT_PTR_NOT_NULL_FATAL(claim);
    claim_set_session(claim, &last);
    if (move != MOVE_NONE)
        claim_set_move(claim, &next);
    claim->move = move;
    claim_become(&driver, claim, state);
    return claim;
}

static void answer_ops(enum call_end end, const struct kvs *ops, size_t count)
{
    struct call *call = driver.link.calls;
    while (call != NULL && call->to.answered == NULL)
        call = call->next;
    CU_ASSERT_PTR_NOT_NULL_FATAL(call);
    reply_handler *answered = call->to.answered;
    call->to.answered = NULL;
    call->end = end;
    call->answer.done = end == CALL_DONE;
    call->answer.header.revision = 100;
    memcpy(call->answer.ops, ops, count * sizeof *ops);
    call->answer.op_count = count;
    driver.link.open--;
    answered(&driver, call);
    memset(call->answer.ops, 0, sizeof call->answer.ops);
}

void answer_with(enum call_end end, struct kv *own)
{
    answer_ops(end, &(struct kvs){.all = own, .count = own != NULL}, 1);
}

void answer_look(struct kv *own, const struct kvs *queue)
{
    struct kv tokens = {.value = bytes_of("0 0", 3), .modified = 1};
    const struct kvs ops[] = {{.all = &tokens, .count = 1}, {.all = own, .count = 1}, *queue};
    answer_ops(CALL_DONE, ops, 3);
}

void answer(enum call_end end)
{
    answer_with(end, NULL);
}

void end_moves(void)
{
    calls_free(&driver.link);
    claims_free(&driver);
    driver = (struct driver){0};
    last = next = (struct session){0};
}
