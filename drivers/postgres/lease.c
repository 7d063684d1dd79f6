/* lease.c - acquire, renew and release. The common case is one statement, which does in SQL what rowlease.c
 * does in C; where it touches nothing, the row is read, and rowlease.c says why, or what else is to be done.
 *
 * Deadlines. A claim that a statement makes ends, by the server's clock, a ttl after that statement read it;
 * the statement was sent before. So for its holder it counts from the sending. One made by a SWAP ends a ttl
 * after the clock that the READ brought: it counts from the sending of the READ. */
#include "internal.h"

#include <string.h>

/* ---- acquire: one statement ---------------------------------------------------------------------- */

static bool token_fits(const mortise_op *op)
{
    return op->token_floor <= INT64_MAX;
}

/* FNV-1a */
static uint64_t hash_of(const mortise_op *op, uint32_t *mark)
{
    uint64_t hash = UINT64_C(14695981039346656037);
    for (size_t i = 0; i < op->name_len; i++)
        hash = (hash ^ (unsigned char)op->name[i]) * UINT64_C(1099511628211);
    *mark = (uint32_t)(hash >> 32) | 1;
    return hash;
}

/* Names that share a place push each other out; one that looks like another costs a READ more. */
static uint32_t *known_place(struct driver *driver, const mortise_op *op, uint32_t *mark)
{
    return &driver->known[hash_of(op, mark) % KNOWN_MAX];
}

static bool is_known(struct driver *driver, const mortise_op *op)
{
    uint32_t mark;
    return *known_place(driver, op, &mark) == mark;
}

static void now_known(struct driver *driver, const mortise_op *op, bool there)
{
    uint32_t mark, *place = known_place(driver, op, &mark);
    *place = there ? mark : 0;
}

static void quick_acquire(struct request *request, bool next)
{
    const mortise_op *op = request->op;
    struct args *args = &request->args;
    enum sql sql = is_known(request->driver, op) ? SQL_ACQUIRE : SQL_ACQUIRE_NEW;
    size_t note_len = op->note_len < MORTISE_NOTE_MAX ? op->note_len : MORTISE_NOTE_MAX;
    args_begin(args);
    args_bytes(args, op->name, op->name_len);
    args_int8(args, (int64_t)op->token_floor);
    args_bytes(args, op->grant.bytes, MORTISE_GRANT_ID_SIZE);
    args_interval(args, rowlease_ttl_us(op));
    args_bytes_or_null(args, op->note, note_len);
    if (next)
        args_bytes(args, request->driver->inbox.bytes, ROWLEASE_INBOX_SIZE);
    request_send(request, STEP_QUICK, next ? SQL_ACQUIRE_NEXT : sql, LANE_DURABLE);
}

static void look_anew(struct driver *driver, const mortise_op *op);

/* In this order: the entry may go with the request. */
static void granted(struct request *request, uint64_t token, int64_t from_ns)
{
    mortise_op *op = request->op;
    if (op != NULL) {
        look_anew(request->driver, op);
        op->token = token;
        op->from_ns = from_ns;
        op->good_for_ms = op->ttl_ms;
    }
    request_done(request, MORTISE_OK);
}

static void quick_acquired(struct request *request)
{
    const PGresult *result = request->result;
    mortise_op *op = request->op;
    if (PQntuples(result) != 1) {
        if (op == NULL)
            request_done(request, MORTISE_CANCELED);
        else
            row_read(request, op->name, op->name_len);
        return;
    }
    if (request->sql == SQL_ACQUIRE_NEXT)
        waiting_left(request->driver, request->name);
    if (request->sql == SQL_ACQUIRE_NEW && op != NULL)
        now_known(request->driver, op, true);
    granted(request, (uint64_t)result_int8(result, 0, 0), request->sent_ns);
}

/* ---- acquire: read, then write ------------------------------------------------------------------- */

/* Where this client can be told, and remembers where it was put. */
static const struct rowlease_inbox *inbox_of(struct request *request)
{
    struct driver *driver = request->driver;
    const mortise_op *op = request->op;
    bool waits = (op->flags & MORTISE_OP_TRY) == 0;
    if (request->name == NULL) {
        request->name = waiting_name(driver, op->name, op->name_len, waits && driver->listening);
        if (request->name != NULL)
            request->name->references++;
    }
    if (request->name == NULL || !(driver->listening || request->name->registered))
        return NULL;
    return &driver->inbox;
}

/* Its place in the list says that it sleeps until the claim ends that it was enlisted behind. Where that is not the one
 * that was read, of whose holder it was told, it looks again at once. */
static int64_t enlisted_for_ms(const struct request *request)
{
    const PGresult *result = request->result;
    int64_t us = result_time(result, 0, 0) - result_time(result, 0, 1);
    bool same = result_int8(result, 0, 2) == request->version;
    return same && us > 0 ? (us + 999) / 1000 : 1;
}

/* A waiter that nobody can notify looks again by itself: soon at first, then less and less often, because a
 * thousand of them load the server. After a pause of some seconds, or a grant, it begins anew. */
static int64_t next_look_ms(struct driver *driver, const mortise_op *op)
{
    uint32_t mark;
    struct looks *looks = &driver->looks[hash_of(op, &mark) % LOOKS_MAX];
    int64_t now = driver->host->now(driver->host);
    if (looks->mark != mark || now - looks->last_ns > 2 * ROWLEASE_LOOK_MS * NS_PER_MS)
        *looks = (struct looks){.mark = mark};
    unsigned steps = looks->count++ / POLL_LOOKS;
    looks->last_ns = now;
    return jitter_ns(driver, (int64_t)(2 * POLL_MS) << (steps < POLL_STEPS ? steps : POLL_STEPS));
}

static void look_anew(struct driver *driver, const mortise_op *op)
{
    uint32_t mark;
    struct looks *looks = &driver->looks[hash_of(op, &mark) % LOOKS_MAX];
    if (looks->mark == mark)
        looks->count = 0;
}

static void told_busy(struct request *request)
{
    struct driver *driver = request->driver;
    mortise_op *op = request->op;
    struct rowlease_answer *answer = &request->answer;
    if (answer->registered && request->name != NULL)
        waiting_registered(driver, request->name);
    if (request->sql == SQL_ENLIST)
        answer->hint_ms = enlisted_for_ms(request);
    if (op != NULL) {
        bool waits = (op->flags & MORTISE_OP_TRY) == 0;
        op->hint_ms = answer->hint_ms;
        int64_t look_ms = waits && !answer->registered ? next_look_ms(driver, op) : 0;
        if (look_ms > 0 && op->hint_ms > look_ms)
            op->hint_ms = look_ms;
        else if (waits && op->hint_ms > ROWLEASE_LOOK_MS)
            op->hint_ms = ROWLEASE_LOOK_MS;
    }
    request_done(request, MORTISE_BUSY);
}

/* Where the claim stood already, it counts from when it was made; the repeat did not extend it. */
static int64_t from_of(const struct request *request)
{
    const mortise_op *op = request->op;
    int64_t age_us = request->now_us - request->answer.from_us;
    int64_t from_ns = request->read_ns - (age_us > 0 ? age_us * 1000 : 0);
    if (op == NULL || request->answer.write || op->first_sent_ns == 0)
        return from_ns;
    return op->first_sent_ns < from_ns ? op->first_sent_ns : from_ns;
}

static void swap_acquired(struct request *request)
{
    struct driver *driver = request->driver;
    const struct rowlease_answer *answer = &request->answer;
    mortise_op *op = request->op;
    if (answer->status != MORTISE_OK) {
        told_busy(request);
        return;
    }
    if (op != NULL && answer->passed)
        waiting_notify(driver, &answer->passed_over, op->name, op->name_len);
    if (answer->write && request->name != NULL && op != NULL && op->owner == NULL)
        waiting_left(driver, request->name);
    granted(request, answer->token, from_of(request));
}

static void trouble(struct request *request)
{
    struct fault fault = {.status = request->answer.status};
    memcpy(fault.text, request->answer.trouble, strlen(request->answer.trouble) + 1);
    request_failed(request, &fault);
}

static void read_for_acquire(struct request *request)
{
    struct driver *driver = request->driver;
    mortise_op *op = request->op;
    const struct rowlease_inbox *inbox = inbox_of(request);
    struct rowlease_time time = row_time(driver, request->now_us);
    now_known(driver, op, driver->row.exists);
    request->answer = rowlease_acquire(&driver->next, op, time, inbox);
    if (request->answer.trouble != NULL) {
        trouble(request);
        return;
    }
    if (request->answer.status == MORTISE_BUSY && op->info != NULL)
        look_tell(&driver->next, request->now_us, op->name, op->name_len, op->info);
    bool grants = request->answer.status == MORTISE_OK;
    if (request->answer.write ||
        grants) /* see THE HOLES: a claim that was made before is written again */
        row_swap(request, op->name, op->name_len, grants);
    else
        swap_acquired(request);
}

/* ---- renew, release ---------------------------------------------------------------------------- */

static void quick_renew(struct request *request)
{
    const mortise_op *op = request->op;
    struct args *args = &request->args;
    args_begin(args);
    args_bytes(args, op->name, op->name_len);
    args_int8(args, (int64_t)op->token);
    args_bytes(args, op->grant.bytes, MORTISE_GRANT_ID_SIZE);
    args_interval(args, rowlease_ttl_us(op));
    request_send(request, STEP_QUICK, SQL_RENEW, LANE_DURABLE);
}

static void quick_release(struct request *request)
{
    const mortise_op *op = request->op;
    struct driver *driver = request->driver;
    struct args *args = &request->args;
    args_begin(args);
    args_bytes(args, op->name, op->name_len);
    args_int8(args, (int64_t)op->token);
    args_bytes(args, op->grant.bytes, MORTISE_GRANT_ID_SIZE);
    args_interval(args, driver->values[OPTION_RESERVE].number * 1000);
    args_bool(args, !request->quiet);
    request_send(request, STEP_QUICK, SQL_RELEASE, LANE_LAZY);
}

static void read_for_others(struct request *request)
{
    struct driver *driver = request->driver;
    mortise_op *op = request->op;
    struct rowlease_time time = row_time(driver, request->now_us);
    bool renews = op->kind == MORTISE_OP_RENEW;
    request->answer = renews ? rowlease_renew(&driver->next, op, time)
                             : rowlease_release(&driver->next, op, time);
    if (request->answer.write) {
        row_swap(request, op->name, op->name_len, renews);
        return;
    }
    if (request->answer.wake) { /* it had run out, and nobody was told when it did */
        rowlease_waiters(driver->row.waiters, driver->row.waiters_len, &request->wake, 1);
        waiting_notify(driver, &request->wake, op->name, op->name_len);
    }
    request_done(request, request->answer.status);
}

static void renewed(struct request *request)
{
    mortise_op *op = request->op;
    bool quick = request->step == STEP_QUICK;
    if (op != NULL) {
        op->from_ns = quick ? request->sent_ns : request->read_ns;
        op->good_for_ms = op->ttl_ms;
    }
    request_done(request, MORTISE_OK);
}

/* Who waits was told with the release, or could not be: then it is by itself. */
static void see_to_waiters(struct request *request, bool quick)
{
    struct driver *driver = request->driver;
    const mortise_op *op = request->op;
    const PGresult *result = request->result;
    if (!request->quiet) {
        waiting_check_later(driver, op->name, op->name_len,
                            quick ? (int64_t)op->token : request->version);
        return;
    }
    if (quick)
        rowlease_waiters((const unsigned char *)PQgetvalue(result, 0, 0),
                         (size_t)PQgetlength(result, 0, 0), &request->wake, 1);
    waiting_notify(driver, &request->wake, op->name, op->name_len);
}

static void released(struct request *request)
{
    struct driver *driver = request->driver;
    mortise_op *op = request->op;
    bool quick = request->step == STEP_QUICK;
    bool waiters = quick ? !PQgetisnull(request->result, 0, 0) : request->answer.kept;
    if (op != NULL && waiters)
        see_to_waiters(request, quick);
    if (op != NULL)
        waiting_released(driver, op->name, op->name_len);
    request_done(request, MORTISE_OK);
}

/* ---- all --------------------------------------------------------------------------------------- */

static void start_acquire(struct request *request)
{
    struct driver *driver = request->driver;
    mortise_op *op = request->op;
    struct name *name = waiting_name(driver, op->name, op->name_len, false);
    if (op->owner != NULL || !token_fits(op)) {
        row_read(request, op->name, op->name_len);
        return;
    }
    if (name != NULL) {
        request->name = name;
        name->references++;
    }
    quick_acquire(request, name != NULL && name->registered);
}

void lease_start(struct request *request)
{
    mortise_op *op = request->op;
    bool shared = op->owner != NULL || (op->flags & MORTISE_OP_BREAK) != 0;
    if (op->kind == MORTISE_OP_ACQUIRE)
        start_acquire(request);
    else if (shared || op->token > INT64_MAX)
        row_read(request, op->name, op->name_len);
    else if (op->kind == MORTISE_OP_RENEW)
        quick_renew(request);
    else
        quick_release(request);
}

static void read_came(struct request *request)
{
    if (request->op == NULL)
        request_done(request, MORTISE_CANCELED);
    else if (!row_was_read(request))
        return;
    else if (request->kind == MORTISE_OP_ACQUIRE)
        read_for_acquire(request);
    else
        read_for_others(request);
}

void lease_answered(struct request *request)
{
    bool acquire = request->kind == MORTISE_OP_ACQUIRE, touched = PQntuples(request->result) == 1;
    if (request->step == STEP_READ)
        read_came(request);
    else if (request->step == STEP_QUICK && acquire)
        quick_acquired(request);
    else if (!touched && request->op == NULL)
        request_done(request, MORTISE_CANCELED);
    else if (!touched)
        row_read(request, request->op->name, request->op->name_len);
    else if (acquire)
        swap_acquired(request);
    else if (request->kind == MORTISE_OP_RENEW)
        renewed(request);
    else
        released(request);
}
