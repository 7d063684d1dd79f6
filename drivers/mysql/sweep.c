/* sweep.c - rows that have been free for long are deleted.
 *
 * | step | statement                                  | then                                     |
 * |------|--------------------------------------------|------------------------------------------|
 * | TURN | is it long enough since anybody did it?    | yes: LOOK; no: the end                   |
 * | LOOK | which rows? It locks none                  | some: DROP; none: the end                |
 * | DROP | deletes those, if they are still free      | there may be more: LOOK; else the end    |
 *
 * LOOK is a scan of the table: one client does it for all, now and then, with other work. It is no reason to wake
 * anybody. One in so many clients also does it when it closes, because they may all be short-lived. */
#include "driver.h"

#include <string.h>

#define CHANCE 16 /* one in so many clients */
#define EVERY_NS (INT64_C(3600000) * NS_PER_MS)
#define APART_US INT64_C(1700000000) /* the fleet's; less than half of that */

/* The names that were found become the list of DROP. False: there are none. */
static bool write_drop(struct request *request)
{
    MYSQL_ROW row;
    struct text text = {.bytes = NULL};
    size_t count = 0;
    text_add(&text, sql_texts[TEXT_SWEEP_DROP].text, strlen(sql_texts[TEXT_SWEEP_DROP].text));
    while (request->rows != NULL && (row = mysql_fetch_row(request->rows)) != NULL) {
        const unsigned long *lengths = mysql_fetch_lengths(request->rows);
        if (row[0] == NULL || lengths == NULL)
            continue;
        text_add(&text, ",", count++ > 0);
        text_hex(&text, row[0], lengths[0]);
    }
    text_add(&text, sql_sweep_end, strlen(sql_sweep_end));
    text_free(&request->text);
    request->text = text;
    return count > 0 && !text.failed;
}

static void answered(struct request *request)
{
    const struct values none = {.count = 0};
    bool goes_on = request->id == TEXT_SWEEP_LOOK || request->touched > 0;
    if (goes_on && request->id == TEXT_SWEEP_LOOK) {
        if (write_drop(request)) {
            statement_queue(request, TEXT_SWEEP_DROP);
            return;
        }
    } else if (goes_on && statement_send(request, TEXT_SWEEP_LOOK, &none)) {
        return;
    }
    statement_free(request);
}

static void failed(struct request *request, const struct fault *fault)
{
    (void)fault;
    statement_free(request);
}

static void lost(struct request *request, bool sent)
{
    (void)sent;
    statement_free(request);
}

static const struct handler handler = {.answered = answered, .failed = failed, .lost = lost};

void sweep_begin(struct driver *driver)
{
    mortise_host *host = driver->locks.host;
    unsigned char byte;
    driver->sweep_ns = host->now(host) + locks_jitter(&driver->locks, EVERY_NS);
    host->random(host, &byte, sizeof(byte));
    driver->sweep_last = byte % CHANCE == 0;
}

void sweep_turn(struct driver *driver)
{
    int64_t now = driver->locks.host->now(driver->locks.host);
    struct values values = {.count = 0};
    bool due = driver->locks.closing ? driver->sweep_last : now >= driver->sweep_ns;
    if (!due || driver->main.state != LINK_READY)
        return;
    driver->sweep_ns = now + locks_jitter(&driver->locks, EVERY_NS);
    driver->sweep_last = false;
    struct request *request = statement_new(driver, &handler);
    if (request == NULL)
        return;
    value_number(&values, APART_US);
    request->alone = true; /* its rows are in no order with those of others */
    if (!statement_send(request, TEXT_SWEEP_TURN, &values))
        statement_free(request);
}
