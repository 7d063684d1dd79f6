/* rows.c - a row of the table: taken from a result, and written back where it is still as it was read. */
#include "internal.h"

#include <string.h>

#define EPOCH_US INT64_C(946684800000000) /* 2000-01-01, PostgreSQL's, since 1970 */
#define SWAPS_MAX 64                      /* in a row that failed */
#define PAUSE_MIN_NS (2 * NS_PER_MS)
#define PAUSE_STEPS 6 /* doublings, to 128 ms */

/* ---- reading ----------------------------------------------------------------------------------- */

int64_t result_int8(const PGresult *result, int tuple, int column)
{
    const unsigned char *at = (const unsigned char *)PQgetvalue(result, tuple, column);
    uint64_t value = 0;
    if (PQgetlength(result, tuple, column) != 8)
        return 0;
    for (int i = 0; i < 8; i++)
        value = value << 8 | at[i];
    return (int64_t)value;
}

int64_t result_time(const PGresult *result, int tuple, int column)
{
    int64_t us = result_int8(result, tuple, column);
    return us == INT64_MIN ? 0 : us;
}

struct rowlease_time row_time(const struct driver *driver, int64_t now_us)
{
    return (struct rowlease_time){.now_us = now_us,
                                  .wall_us = now_us + EPOCH_US,
                                  .reserve_us = driver->values[OPTION_RESERVE].number * 1000};
}

/* A bytea; false: it is longer than it may be. Null is 0 bytes. */
static bool take_bytes(const PGresult *result, int tuple, int column, void *to, size_t size,
                       size_t *len)
{
    *len = (size_t)PQgetlength(result, tuple, column);
    if (*len > size)
        return false;
    if (*len > 0)
        memcpy(to, PQgetvalue(result, tuple, column), *len);
    return true;
}

bool row_take(const PGresult *result, int tuple, int first, struct rowlease_row *row,
              int64_t *now_us)
{
    *now_us = result_time(result, tuple, first + 7);
    row->exists = !PQgetisnull(result, tuple, first);
    row->version = row->exists ? result_int8(result, tuple, first) : 0;
    row->shared = !PQgetisnull(result, tuple, first + 1);
    bool fits =
        take_bytes(result, tuple, first + 1, row->owner, sizeof(row->owner), &row->owner_len);
    fits =
        take_bytes(result, tuple, first + 2, row->grants, sizeof(row->grants), &row->grants_len) &&
        fits;
    row->acquired_us = row->exists ? result_time(result, tuple, first + 3) : 0;
    row->expires_us = row->exists ? result_time(result, tuple, first + 4) : 0;
    fits = take_bytes(result, tuple, first + 5, row->waiters, sizeof(row->waiters),
                      &row->waiters_len) &&
           fits;
    fits =
        take_bytes(result, tuple, first + 6, row->note, sizeof(row->note), &row->note_len) && fits;
    return fits && *now_us > 0 && rowlease_valid(row);
}

/* The more swaps of it have failed, the longer. */
static int64_t pause_until(const struct request *request)
{
    struct driver *driver = request->driver;
    unsigned steps = request->swaps - 2 < PAUSE_STEPS ? request->swaps - 2 : PAUSE_STEPS;
    return driver->host->now(driver->host) + jitter_ns(driver, PAUSE_MIN_NS << steps);
}

void row_read(struct request *request, const char *name, size_t name_len)
{
    args_begin(&request->args);
    args_bytes(&request->args, name, name_len);
    request_send(request, STEP_READ, SQL_READ, LANE_READING);
    if (request->swaps > 1)
        request->not_before_ns = pause_until(request);
}

bool row_was_read(struct request *request)
{
    static const struct fault nonsense = {
        .status = MORTISE_BACKEND, .text = "the row makes no sense; was it written by hand?"};
    struct driver *driver = request->driver;
    request->read_ns = request->sent_ns;
    if (PQntuples(request->result) == 1 &&
        row_take(request->result, 0, 0, &driver->row, &request->now_us)) {
        rowlease_copy(&driver->next, &driver->row);
        return true;
    }
    request_failed(request, &nonsense);
    return false;
}

/* ---- writing ----------------------------------------------------------------------------------- */

void row_channel(const struct rowlease_inbox *inbox, char *channel)
{
    static const char digits[] = "0123456789abcdef";
    memcpy(channel, "mortise_", 8);
    channel += 8;
    for (size_t i = 0; i < ROWLEASE_INBOX_SIZE; i++) {
        *channel++ = digits[inbox->bytes[i] >> 4];
        *channel++ = digits[inbox->bytes[i] & 15];
    }
    *channel = '\0';
}

static void hex(const char *bytes, size_t len, char *text)
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < len; i++) {
        *text++ = digits[(unsigned char)bytes[i] >> 4];
        *text++ = digits[(unsigned char)bytes[i] & 15];
    }
    *text = '\0';
}

static void bind_row(struct args *args, const char *name, size_t name_len,
                     const struct rowlease_row *row)
{
    args_bytes(args, name, name_len);
    args_int8(args, row->version);
    args_bytes_or_null(args, row->owner, row->shared ? row->owner_len : 0);
    args_bytes_or_null(args, row->grants, row->grants_len);
    args_time(args, row->acquired_us);
    args_time(args, row->expires_us);
    args_bytes_or_null(args, row->waiters, row->waiters_len);
    args_bytes_or_null(args, row->note, row->note_len);
}

/* Version, grants, expiry and waiters are the whole state: owner and note change with the grants. */
static void bind_old(struct args *args, const struct rowlease_row *row)
{
    args_int8(args, row->version);
    args_bytes_or_null(args, row->grants, row->grants_len);
    args_time(args, row->expires_us);
    args_bytes_or_null(args, row->waiters, row->waiters_len);
}

static void send_swap(struct request *request, enum sql sql, enum lane lane)
{
    static const struct fault no_memory = {
        .status = MORTISE_NOMEM, .retryable = true, .text = "out of memory"};
    static const struct fault crowded = {.status = MORTISE_UNREACHABLE,
                                         .retryable = true,
                                         .text = "the row is changed all the time by others"};
    if (++request->swaps > SWAPS_MAX)
        request_failed(request, &crowded);
    else if (!args_keep(&request->args))
        request_failed(request, &no_memory);
    else
        request_send(request, STEP_SWAP, sql, lane);
}

void row_hush(struct request *request)
{
    struct args *args = &request->args;
    request->quiet = true;
    if (request->sql == SQL_RELEASE)
        args->numbers[4][0] = 0;
    else if (request->sql == SQL_SWAP || request->sql == SQL_SWAP_LAZY)
        args->values[12] = NULL;
}

/* One waiter more, and nothing else: not a compare-and-swap, which would fail again and again where a name goes from
 * hand to hand within one process faster than others can read its row and write it. */
_Static_assert(ROWLEASE_WAITERS_MAX *ROWLEASE_WAITER_SIZE == 3072, "as in SQL_ENLIST");
static void enlist(struct request *request, const char *name, size_t name_len)
{
    const mortise_op *op = request->op;
    struct args *args = &request->args;
    bool owned = op != NULL && op->owner != NULL;
    args_begin(args);
    args_bytes(args, name, name_len);
    args_bytes(args, request->driver->inbox.bytes, ROWLEASE_INBOX_SIZE);
    args_bytes_or_null(args, op != NULL ? op->grant.bytes : NULL,
                       op != NULL ? MORTISE_GRANT_ID_SIZE : 0);
    args_bytes_or_null(args, owned ? op->owner : NULL, owned ? op->owner_len : 0);
    send_swap(request, SQL_ENLIST, LANE_LAZY);
}

/* The first waiter is notified in the same transaction: this process may die right after it, and nobody else
 * would do it. Only what is lazy wakes anybody. */
void row_swap(struct request *request, const char *name, size_t name_len, bool durable)
{
    struct driver *driver = request->driver;
    const struct rowlease_row *from = &driver->row, *to = &driver->next;
    char channel[CHANNEL_SIZE], payload[2 * MORTISE_NAME_MAX + 1];
    struct args *args = &request->args;
    bool wake = request->answer.wake, notify = wake && !request->quiet;
    request->version = to->version;
    if (from->exists && to->waiters_len > from->waiters_len) {
        enlist(request, name, name_len);
        return;
    }
    args_begin(args);
    bind_row(args, name, name_len, to);
    if (!from->exists) {
        send_swap(request, SQL_INSERT, LANE_DURABLE);
        return;
    }
    bind_old(args, from);
    if (wake)
        rowlease_waiters(to->waiters, to->waiters_len, &request->wake, 1);
    if (notify) {
        row_channel(&request->wake, channel);
        hex(name, name_len, payload);
    }
    args_text(args, notify ? channel : NULL);
    args_text(args, notify ? payload : NULL);
    if (durable)
        send_swap(request, SQL_SWAP, LANE_DURABLE);
    else
        send_swap(request, SQL_SWAP_LAZY, LANE_LAZY);
}
