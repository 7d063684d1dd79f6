/* request.c - a request of an op, from its sending to its last reply or its loss; and how ops end. */
#include "oplist.h"
#include "seats.h"

#include <stdio.h>
#include <stdlib.h>

#define FREE_REQUESTS 1024

static void replied(struct link_call *call, unsigned index, redisReply *reply);
static void lost(struct link_call *call, enum link_loss loss, const struct link_fault *fault);

/* ---- requests --------------------------------------------------------------------------------------- */

static struct request *new_request(struct driver *driver)
{
    struct request *request = driver->free_requests;
    if (request == NULL)
        return calloc(1, sizeof(*request));
    driver->free_requests = request->next_free;
    driver->free_count--;
    return request;
}

static void free_request(struct request *request)
{
    struct driver *driver = request->driver;
    driver->asking -= request->kind == MORTISE_OP_ACQUIRE;
    if (driver->free_count >= FREE_REQUESTS) {
        free(request);
        return;
    }
    request->next_free = driver->free_requests;
    driver->free_requests = request;
    driver->free_count++;
}

void requests_free(struct driver *driver)
{
    struct request *request = driver->free_requests, *next;
    for (; request != NULL; request = next) {
        next = request->next_free;
        free(request);
    }
}

/* The answer to ASKING. If it is an error, the request itself gets one, too. */
static void asked(struct link_call *call, unsigned index, redisReply *reply)
{
    (void)call;
    (void)index;
    (void)reply;
}

static void not_asked(struct link_call *call, enum link_loss loss, const struct link_fault *fault)
{
    (void)call;
    (void)loss;
    (void)fault;
}

static void put_asking(struct request *request)
{
    struct link *link = &request->driver->link;
    link_call_begin(link, &request->asking);
    link_command(link, 1);
    link_text(link, "ASKING");
    link_call_end(link, &request->asking, 1);
}

/* Makes a request of the op without beginning its call. NULL: out of memory. */
static struct request *make_request(struct driver *driver, mortise_op *op)
{
    struct request *request = new_request(driver);
    if (request == NULL)
        return NULL;
    request->along = NULL;
    request->driver = driver;
    request->op = op;
    request->grant = op->grant;
    request->kind = op->kind;
    request->ttl_ms = op->ttl_ms;
    request->seat = seat_of(op);
    request->wish = WISH_NONE;
    request->verdict = MORTISE_OK;
    request->call.replied = replied;
    request->call.lost = lost;
    request->asking.replied = asked;
    request->asking.lost = not_asked;
    request->goes_on = false;
    driver->asking += op->kind == MORTISE_OP_ACQUIRE;
    op_set(op, OP_SENT, request);
    return request;
}

struct request *request_begin(struct driver *driver, mortise_op *op,
                              void (*answer)(struct request *request, redisReply *reply))
{
    struct request *request = make_request(driver, op);
    if (request == NULL) {
        op_fail_memory(driver, op);
        return NULL;
    }
    request_go_on(request, answer);
    return request;
}

struct request *request_along(struct request *request, mortise_op *op)
{
    struct request *along = make_request(request->driver, op);
    if (along == NULL)
        return NULL;
    along->script = SCRIPT_COUNT;
    along->goes_on = along->takes_errors = false;
    along->call.sent_ns = request->call.sent_ns;
    op_sent(op, &along->call);
    request->along = along;
    return along;
}

void request_go_on(struct request *request,
                   void (*answer)(struct request *request, redisReply *reply))
{
    bool begun = request->goes_on; /* nothing was put into it yet */
    request->answer = answer;
    request->script = SCRIPT_COUNT;
    request->goes_on = true;
    request->takes_errors = false;
    if (begun)
        return;
    if (data_of(request->op)->asking)
        put_asking(request);
    link_call_begin(&request->driver->link, &request->call);
    op_sent(request->op, &request->call);
}

void request_script(struct request *request, enum script script, unsigned keys, unsigned arguments)
{
    request->script = script;
    request->by_text =
        script_put(request->driver, script, keys, arguments, data_of(request->op)->asking);
}

void op_sent(mortise_op *op, const struct link_call *call)
{
    if (op->first_sent_ns == 0)
        op->first_sent_ns = call->sent_ns;
}

/* ---- replies ---------------------------------------------------------------------------------------- */

mortise_op *request_let_go(struct request *request)
{
    mortise_op *op = request->op;
    request->op = NULL;
    if (request->seat != NULL)
        op_set(op, OP_SEATED, request->seat);
    else
        op_set(op, OP_NEW, NULL);
    return op;
}

void request_made_no_place(struct request *request)
{
    if (request->seat != NULL && request->wish == WISH_NEW)
        request->seat->placed = false;
}

/* Whether the op changes something. A downgrade does: waiters that want to share get in with it, so nobody must take an
 * executed one for undone. */
static bool changes(const mortise_op *op)
{
    return op->kind == MORTISE_OP_ACQUIRE || op->kind == MORTISE_OP_RELEASE ||
           op->kind == MORTISE_OP_WRITE || op_downgrades(op);
}

/* The script ended half-way, because its slot is on its way to another node: it may have written. */
static bool is_half_done(const struct request *request, const redisReply *reply)
{
    return changes(request->op) && link_error_of(reply->str, reply->len) == LINK_ERROR_SPLIT;
}

static void refused(struct request *request, const redisReply *reply)
{
    struct driver *driver = request->driver;
    struct link_fault fault;
    bool unknown = request->script != SCRIPT_COUNT && !request->by_text &&
                   link_error_of(reply->str, reply->len) == LINK_ERROR_NOSCRIPT;
    if (unknown)
        driver->known[request->script] = false;
    if (request->op == NULL)
        return;
    request_made_no_place(request);
    if (unknown) { /* send it once more, with the text */
        driver->dispatch->send(driver, request_let_go(request));
        return;
    }
    if (driver->in_cluster && !is_half_done(request, reply)) {
        mortise_op *op = request_let_go(request);
        if (driver->routes->redirected(driver, op, reply))
            return;
        link_fault_reply(&driver->link, reply, &fault);
        op_fail(driver, op, &fault);
        return;
    }
    link_fault_reply(&driver->link, reply, &fault);
    if (is_half_done(request, reply))
        fault.status = MORTISE_INDETERMINATE;
    op_fail(driver, request->op, &fault);
    request->op = NULL;
}

static void replied(struct link_call *call, unsigned index, redisReply *reply)
{
    struct request *request = (struct request *)call;
    bool last = index + 1 == call->expected;
    request->goes_on = false;
    if (reply->type == REDIS_REPLY_ERROR && !request->takes_errors)
        refused(request, reply);
    else if (last && (request->op != NULL || request->along != NULL))
        request->answer(request, reply);
    if (!last || request->goes_on)
        return;
    if (request->along != NULL)
        free_request(request->along);
    free_request(request);
}

static void lost(struct link_call *call, enum link_loss loss, const struct link_fault *fault)
{
    struct request *request = (struct request *)call;
    struct driver *driver = request->driver;
    mortise_op *op = request->op;
    if (request_is_idle(request)) /* counts as if it had not been sent */
        loss = LINK_NOT_SENT;
    if (request->along != NULL)
        lost(&request->along->call, loss, fault);
    if (request->kind == MORTISE_OP_ACQUIRE && loss == LINK_LOST)
        uncertain_add(driver, &request->grant, request->ttl_ms);
    if (request->kind == MORTISE_OP_RELEASE && loss == LINK_LOST && op != NULL &&
        op_is_own(driver, op))
        uncertain_add_stray(driver, &request->grant); /* replicas.c knows only where it began */
    if (op != NULL && loss == LINK_NOT_SENT)
        request_made_no_place(request);
    if (op != NULL && (changes(op) || !op_wait_again(driver, op)))
        op_lose(driver, op, loss, fault);
    free_request(request);
}

/* ---- the ends of an op ------------------------------------------------------------------------------ */

void op_wait(struct driver *driver, mortise_op *op)
{
    op_set(op, OP_WAITING, driver);
    op_append(&driver->waiting, op);
}

bool op_wait_again(struct driver *driver, mortise_op *op)
{
    if (data_of(op)->asked_again)
        return false;
    data_of(op)->asked_again = true;
    op_wait(driver, op);
    return true;
}

void op_end(struct driver *driver, mortise_op *op, mortise_status status)
{
    if (!op_is_own(driver, op)) {
        driver->host->complete(driver->host, op, status);
        return;
    }
    op->status = status; /* an op of the driver's own: replicas.c */
    op->done(op);
}

void op_answered(struct driver *driver, mortise_op *op, mortise_status status)
{
    seat_leave(driver, op);
    if (status == MORTISE_OK)
        failover_note(driver, op);
}

void op_complete(struct driver *driver, mortise_op *op, mortise_status status)
{
    op_answered(driver, op, status);
    op_end(driver, op, status);
}

static void fail(struct driver *driver, mortise_op *op, mortise_status status, int native,
                 bool retryable, const char *text)
{
    if (op_is_own(driver, op)) {
        if (op->error != NULL)
            snprintf(op->error->message, sizeof(op->error->message), "%s", text);
        op_end(driver, op, status);
        return;
    }
    if (seat_is_placed(op)) { /* it may be given the lock at any time */
        status = MORTISE_INDETERMINATE;
        retryable = true;
    }
    seat_leave(driver, op);
    text_fail(driver->host, op, status, native, retryable, text);
}

void op_fail_as(struct driver *driver, mortise_op *op, mortise_status status, bool retryable,
                const char *text)
{
    fail(driver, op, status, 0, retryable, text);
}

/* What to do about an error reply of this kind with these words: the first row that fits. */
static const char *advice_of(const struct link_fault *fault)
{
    static const struct {
        enum link_error error;
        const char *words, *advice;
    } rows[] = {
        {LINK_ERROR_NOAUTH, "NOAUTH",
         "; set password_file (or password), and username for a user of an ACL"},
        {LINK_ERROR_NOAUTH, "WRONGPASS", " Check username and password"},
        {LINK_ERROR_NOPERM, "'eval", "; where scripts are forbidden, set atomicity = watch"},
        {LINK_ERROR_NOPERM, "", "; give this right to the user (docs/redis.md lists all)"},
        {LINK_ERROR_MOVED, "", "; for a cluster set cluster = yes"},
        {LINK_ERROR_ASK, "", "; for a cluster set cluster = yes"},
        {LINK_ERROR_OTHER, "DB index", "; the server has fewer databases: set database"},
        {LINK_ERROR_OTHER, "without any password",
         " The server has no password: remove it from the configuration"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (rows[i].error == fault->error && strstr(fault->text, rows[i].words) != NULL)
            return rows[i].advice;
    return "";
}

void op_fail(struct driver *driver, mortise_op *op, const struct link_fault *fault)
{
    char text[480];
    snprintf(text, sizeof(text), "%s%s", fault->text, advice_of(fault));
    fail(driver, op, fault->status, fault->native, fault->retryable, text);
}

void op_fail_odd(struct driver *driver, mortise_op *op)
{
    char text[320];
    bool unsure = changes(op) || op->kind == MORTISE_OP_RENEW;
    snprintf(text, sizeof(text), "%s: an answer that makes no sense",
             driver->settings.endpoint.text);
    op_fail_as(driver, op, unsure ? MORTISE_INDETERMINATE : MORTISE_BACKEND, unsure, text);
}

void op_fail_token(struct driver *driver, mortise_op *op)
{
    op_fail_as(driver, op, MORTISE_BACKEND, false, "the token has come to its end, 2^53");
}

void op_fail_deaf(struct driver *driver, mortise_op *op)
{
    op_fail_as(driver, op, MORTISE_INDETERMINATE, true, "it cannot be waited for in the queue");
}

void op_fail_memory(struct driver *driver, mortise_op *op)
{
    op_fail_as(driver, op, MORTISE_NOMEM, true, "out of memory");
}

void op_lose(struct driver *driver, mortise_op *op, enum link_loss loss,
             const struct link_fault *fault)
{
    bool unsure = changes(op) && loss == LINK_LOST;
    fail(driver, op, unsure ? MORTISE_INDETERMINATE : MORTISE_UNREACHABLE, fault->native, true,
         fault->text);
}
