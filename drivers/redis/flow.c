/* flow.c - how ops come in, wait for the connection, are sent, canceled, and end; see internal.h. */
#include "internal.h"

#include <stdio.h>
#include <stdlib.h>

#define FREE_FLIGHTS 1024
#define ASKING_MAX 256 /* acquires under way: a few milliseconds of the server's time */

static void replied(struct link_call *call, unsigned index, redisReply *reply);
static void lost(struct link_call *call, enum link_loss loss, const struct link_fault *fault);

/* ---- flights ------------------------------------------------------------------------------------ */

static struct flight *new_flight(struct driver *driver)
{
    struct flight *flight = driver->free_flights;
    if (flight == NULL)
        return calloc(1, sizeof(*flight));
    driver->free_flights = flight->next_free;
    driver->free_count--;
    return flight;
}

static void free_flight(struct flight *flight)
{
    struct driver *driver = flight->driver;
    driver->asking -= flight->kind == MORTISE_OP_ACQUIRE;
    if (driver->free_count >= FREE_FLIGHTS) {
        free(flight);
        return;
    }
    flight->next_free = driver->free_flights;
    driver->free_flights = flight;
    driver->free_count++;
}

struct flight *flow_take_off(struct driver *driver, mortise_op *op,
                             void (*answer)(struct flight *flight, redisReply *reply))
{
    struct flight *flight = new_flight(driver);
    if (flight == NULL) {
        flow_fail_memory(driver, op);
        return NULL;
    }
    flight->driver = driver;
    flight->op = op;
    flight->grant = op->grant;
    flight->kind = op->kind;
    driver->asking += op->kind == MORTISE_OP_ACQUIRE;
    flight->ttl_ms = op->ttl_ms;
    flight->call.replied = replied;
    flight->call.lost = lost;
    op->driver_data[0] = flight;
    flow_go_on(flight, answer);
    return flight;
}

void flow_go_on(struct flight *flight, void (*answer)(struct flight *flight, redisReply *reply))
{
    flight->answer = answer;
    flight->script = SCRIPT_COUNT;
    flight->wish = WISH_NONE;
    flight->again = true;
    link_call_begin(&flight->driver->link, &flight->call);
    flow_sent(flight->op, &flight->call);
}

void flow_sent(mortise_op *op, const struct link_call *call)
{
    if (op->first_sent_ns == 0)
        op->first_sent_ns = call->sent_ns;
}

/* NOSCRIPT: nothing was done. Once more, with the text, unless nobody waits for it. */
static void send_text(struct flight *flight)
{
    struct driver *driver = flight->driver;
    mortise_op *op = flight->op;
    driver->known[flight->script] = false;
    if (op == NULL)
        return;
    flight->op = NULL; /* it gets another flight */
    op->driver_data[0] = NULL;
    flow_send(driver, op);
}

static void refused(struct flight *flight, const redisReply *reply)
{
    struct link_fault fault;
    if (flight->op != NULL)
        queue_refused(flight->driver, flight->op, flight->wish);
    if (flight->script != SCRIPT_COUNT && !flight->by_text &&
        link_error_of(reply->str, reply->len) == LINK_ERROR_NOSCRIPT) {
        send_text(flight);
        return;
    }
    if (flight->op == NULL)
        return;
    link_fault_reply(&flight->driver->link, reply, &fault);
    flow_fail(flight->driver, flight->op, &fault);
    flight->op = NULL;
}

static void replied(struct link_call *call, unsigned index, redisReply *reply)
{
    struct flight *flight = (struct flight *)call;
    bool last = index + 1 == call->expected;
    flight->again = false;
    if (reply->type == REDIS_REPLY_ERROR && flight->answer != look_role_told)
        refused(flight, reply);
    else if (last && flight->op != NULL)
        flight->answer(flight, reply);
    if (last && !flight->again)
        free_flight(flight);
}

static void enqueue(struct driver *driver, mortise_op *op)
{
    op->next = op->previous = NULL;
    DL_APPEND2(driver->waiting, op, previous, next);
}

/* What changes nothing may be asked again, once, as soon as the connection is back. */
bool flow_ask_again(struct driver *driver, mortise_op *op)
{
    if (op->driver_data[1] != NULL)
        return false;
    op->driver_data[0] = NULL;
    op->driver_data[1] = driver; /* a mark */
    enqueue(driver, op);
    return true;
}

static void lost(struct link_call *call, enum link_loss loss, const struct link_fault *fault)
{
    struct flight *flight = (struct flight *)call;
    mortise_op *op = flight->op;
    bool changes = flight->kind == MORTISE_OP_ACQUIRE || flight->kind == MORTISE_OP_RELEASE ||
                   flight->kind == MORTISE_OP_WRITE;
    if (flight->kind == MORTISE_OP_ACQUIRE && loss == LINK_LOST)
        flow_doubt(flight->driver, &flight->grant, flight->ttl_ms);
    if (op != NULL && loss == LINK_NOT_SENT)
        queue_refused(flight->driver, op, flight->wish);
    if (op != NULL && (changes || !flow_ask_again(flight->driver, op)))
        flow_lose(flight->driver, op, loss, fault);
    free_flight(flight);
}

/* ---- the ends of an op ---------------------------------------------------------------------------- */

void flow_end(struct driver *driver, mortise_op *op, mortise_status status)
{
    if (op->issuer == driver)
        confirm_undone(driver, op, status);
    else
        driver->host->complete(driver->host, op, status);
}

void flow_complete(struct driver *driver, mortise_op *op, mortise_status status)
{
    queue_unseat(driver, op);
    if (status == MORTISE_OK)
        place_note(driver, op);
    if (!place_questions(driver, op, status) && !confirm_takes(driver, op, status))
        flow_end(driver, op, status);
}

const char *flow_verb(mortise_op_kind kind)
{
    static const char *const verbs[] = {
        [MORTISE_OP_ACQUIRE] = "acquire", [MORTISE_OP_RENEW] = "renew",
        [MORTISE_OP_RELEASE] = "release", [MORTISE_OP_INSPECT] = "inspect",
        [MORTISE_OP_LIST] = "list",       [MORTISE_OP_READ] = "read",
        [MORTISE_OP_WRITE] = "write",     [MORTISE_OP_PING] = "ping",
    };
    return verbs[kind];
}

static void fail_as(struct driver *driver, mortise_op *op, mortise_status status, int native,
                    bool retryable, const char *text)
{
    char name[QUOTED_SIZE] = "";
    if (op->issuer == driver) {
        confirm_undone(driver, op, status);
        return;
    }
    if (queue_is_placed(driver, op)) { /* it may be granted at any time */
        status = MORTISE_INDETERMINATE;
        retryable = true;
    }
    queue_unseat(driver, op);
    if (op->name_len > 0 && op->kind != MORTISE_OP_PING)
        driver->host->quote(op->name, op->name_len, name, sizeof(name));
    driver->host->fail(driver->host, op, status, native, retryable, "%s (%s%s%s)", text,
                       flow_verb(op->kind), name[0] != '\0' ? " " : "", name);
}

void flow_fail(struct driver *driver, mortise_op *op, const struct link_fault *fault)
{
    const char *advice = "";
    char text[480];
    if (fault->error == LINK_ERROR_NOAUTH && strstr(fault->text, "NOAUTH") != NULL)
        advice = "; set password_file (or password), and username for a user of an ACL";
    if (fault->error == LINK_ERROR_NOPERM && strstr(fault->text, "'eval") != NULL)
        advice = "; where scripts are forbidden, set atomicity = watch";
    snprintf(text, sizeof(text), "%s%s", fault->text, advice);
    fail_as(driver, op, fault->status, fault->native, fault->retryable, text);
}

void flow_fail_odd(struct driver *driver, mortise_op *op)
{
    char text[320];
    snprintf(text, sizeof(text), "%s: an answer that makes no sense",
             driver->settings.endpoint.text);
    fail_as(driver, op, MORTISE_BACKEND, 0, false, text);
}

void flow_fail_token(struct driver *driver, mortise_op *op)
{
    fail_as(driver, op, MORTISE_BACKEND, 0, false, "the token has come to its end, 2^53");
}

void flow_fail_deaf(struct driver *driver, mortise_op *op)
{
    fail_as(driver, op, MORTISE_INDETERMINATE, 0, true, "it cannot be waited for in the queue");
}

void flow_fail_memory(struct driver *driver, mortise_op *op)
{
    fail_as(driver, op, MORTISE_NOMEM, 0, true, "out of memory");
}

void flow_lose(struct driver *driver, mortise_op *op, enum link_loss loss,
               const struct link_fault *fault)
{
    bool changes = op->kind == MORTISE_OP_ACQUIRE || op->kind == MORTISE_OP_RELEASE ||
                   op->kind == MORTISE_OP_WRITE;
    mortise_status status =
        changes && loss == LINK_LOST ? MORTISE_INDETERMINATE : MORTISE_UNREACHABLE;
    fail_as(driver, op, status, fault->native, true, fault->text);
}

/* ---- in and out --------------------------------------------------------------------------------------- */

/* False: it was failed. */
static bool is_possible(struct driver *driver, mortise_op *op)
{
    const char *problem = NULL;
    mortise_status status = MORTISE_INVALID;
    if (op->kind == MORTISE_OP_ACQUIRE && key_is_side(op->name, op->name_len))
        problem = "a name that begins with '{' must not have \"}:mortise:\" in it";
    else if (op->kind == MORTISE_OP_ACQUIRE && op->token_floor > FLOOR_MAX)
        problem = "the token to begin from is above 2^53";
    else if (op->kind == MORTISE_OP_ACQUIRE && op->owner_len > 0 &&
             driver->layout == LAYOUT_STRING) {
        problem = "an owner cannot be shared with mode = string; set mode = hash";
        status = MORTISE_NOTSUP;
    } else if (driver->layout == LAYOUT_REDISSON && op->owner_len >= 7 &&
               memcmp(op->owner, "mortise", 7) == 0) {
        problem = "with dialect = redisson the name of an owner must not begin with \"mortise\"";
    } else if ((op->flags & MORTISE_OP_BREAK) != 0 && !driver->fencing) {
        problem = "without fencing there is no token by which to break";
        status = MORTISE_NOTSUP;
    }
    if (problem != NULL)
        fail_as(driver, op, status, 0, false, problem);
    return problem == NULL;
}

void flow_send(struct driver *driver, mortise_op *op)
{
    switch (op->kind) {
    case MORTISE_OP_ACQUIRE:
        lease_acquire(driver, op);
        break;
    case MORTISE_OP_RENEW:
        renew_start(driver, &op, 1);
        break;
    case MORTISE_OP_RELEASE:
        lease_release(driver, op);
        break;
    case MORTISE_OP_INSPECT:
        look_inspect(driver, op);
        break;
    case MORTISE_OP_LIST:
        list_start(driver, op);
        break;
    case MORTISE_OP_READ:
        record_read(driver, op);
        break;
    case MORTISE_OP_WRITE:
        record_write(driver, op);
        break;
    case MORTISE_OP_PING:
        look_ping(driver, op);
        break;
    }
}

/* ---- held back ---------------------------------------------------------------------------------------- */

/* The mark of those that are not seated yet. */
bool flow_is_held_back(const struct driver *driver, const mortise_op *op)
{
    return op->driver_data[1] == &driver->held_back;
}

bool flow_has_room(const struct driver *driver)
{
    return driver->asking < ASKING_MAX;
}

static bool hold_back(struct driver *driver, mortise_op *op)
{
    if (op->kind != MORTISE_OP_ACQUIRE || flow_has_room(driver))
        return false;
    op->driver_data[1] = &driver->held_back;
    op->next = op->previous = NULL;
    DL_APPEND2(driver->held_back, op, previous, next);
    return true;
}

static mortise_op *take_held_back(struct driver *driver, mortise_op *op)
{
    DL_DELETE2(driver->held_back, op, previous, next);
    op->driver_data[1] = NULL;
    return op;
}

void flow_turn(struct driver *driver)
{
    while (driver->held_back != NULL && flow_has_room(driver) && link_is_up(&driver->link))
        flow_send(driver, take_held_back(driver, driver->held_back));
}

/* The connection broke: they wait for the next. */
static void put_back(struct driver *driver)
{
    while (driver->held_back != NULL)
        enqueue(driver, take_held_back(driver, driver->held_back));
}

/* ---- sent --------------------------------------------------------------------------------------------- */

/* Together, and before all else: they have deadlines. */
static void send_renewals(struct driver *driver)
{
    mortise_op *renewals[RENEW_MAX], *op, *next;
    size_t n = 0;
    DL_FOREACH_SAFE2(driver->waiting, op, next, next)
    {
        if (op->kind != MORTISE_OP_RENEW)
            continue;
        DL_DELETE2(driver->waiting, op, previous, next);
        renewals[n++] = op;
        if (n < RENEW_MAX)
            continue;
        renew_start(driver, renewals, n);
        n = 0;
    }
    if (n > 0)
        renew_start(driver, renewals, n);
}

/* The rest of what waited, in its order. */
static void send_waiting(struct driver *driver)
{
    send_renewals(driver);
    while (driver->waiting != NULL) {
        mortise_op *op = driver->waiting;
        DL_DELETE2(driver->waiting, op, previous, next);
        if (!hold_back(driver, op))
            flow_send(driver, op);
    }
}

static void run(struct driver *driver)
{
    if (driver->transaction != NULL)
        transaction_next(driver);
    else
        send_waiting(driver);
    link_flush(&driver->link);
}

/* A connection that is being made may settle it: it is looked at again then. */
static bool is_stray(struct driver *driver, mortise_op *op)
{
    return link_is_up(&driver->link) && flow_takes_stray(driver, op);
}

static void take_strays(struct driver *driver)
{
    mortise_op *waiting = driver->waiting, *op, *next;
    driver->waiting = NULL;
    DL_FOREACH_SAFE2(waiting, op, next, next)
    {
        DL_DELETE2(waiting, op, previous, next);
        if (!flow_takes_stray(driver, op))
            enqueue(driver, op);
    }
}

void flow_start(struct driver *driver, mortise_op **ops, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (is_possible(driver, ops[i]) && !is_stray(driver, ops[i]))
            enqueue(driver, ops[i]);
    if (driver->waiting == NULL)
        return;
    link_look(&driver->link);
    if (link_is_up(&driver->link))
        run(driver);
    else
        link_want(&driver->link);
}

/* It has not been sent, and is not to be. */
static bool take_off_list(struct driver *driver, mortise_op *op)
{
    mortise_op *each;
    if (flow_is_held_back(driver, op)) {
        take_held_back(driver, op);
        return true;
    }
    DL_FOREACH2(driver->waiting, each, next)
    {
        if (each != op)
            continue;
        DL_DELETE2(driver->waiting, op, previous, next);
        return true;
    }
    return false;
}

void flow_cancel(struct driver *driver, mortise_op *op)
{
    struct flight *flight = op->driver_data[0];
    bool unsure = (op->flags & MORTISE_OP_REPEAT) != 0;
    if (confirm_cancel(driver, op))
        return;
    if (flight == NULL && (take_off_list(driver, op) || queue_is_seated(driver, op))) {
        unsure |= queue_is_placed(driver, op);
        flow_complete(driver, op, unsure ? MORTISE_INDETERMINATE : MORTISE_CANCELED);
        return;
    }
    if (transaction_cancel(driver, op) || renew_cancel(driver, op) || list_cancel(driver, op) ||
        flight == NULL)
        return;
    flight->op = NULL;
    flow_complete(driver, op, MORTISE_INDETERMINATE);
}

void flow_up(struct link *link, void *owner)
{
    struct driver *driver = owner;
    memset(driver->known, 0, sizeof(driver->known));
    if (link_settled(link))
        flow_forget_doubts(driver);
    else {
        flow_drop_doubts(driver, driver->host->now(driver->host));
        take_strays(driver);
    }
    news_follow(driver, place_up(driver));
    run(driver);
    queue_ask_all(driver);
}

/* A connection that broke is made anew at once, and what waits, waits for that; where that fails, the ops
 * say so, and the next op tries again. */
void flow_down(struct link *link, void *owner, const struct link_fault *fault)
{
    struct driver *driver = owner;
    put_back(driver);
    if (link->broke) {
        place_broke(driver);
        /* The server may come back empty, or another one in its place, and grant what is held here to somebody else before
         * we are connected again. So what is held is renewed as soon as that is possible, and not handed over until then. */
        driver->host->doubt(driver->host, NULL, 0);
        news_suspect(driver, fault);
        return;
    }
    while (driver->waiting != NULL) {
        mortise_op *op = driver->waiting;
        DL_DELETE2(driver->waiting, op, previous, next);
        flow_fail(driver, op, fault);
    }
    queue_lose_all(driver, fault);
    if (!place_is_restless(driver))
        link_unwant(link);
}
