/* sweep.c - rows that have been free for long are deleted.
 *
 * This is a scan of the table: one client does it for all, now and then, with other work. It is no reason to wake
 * anybody. One in so many clients also does it when it closes, because they may all be short-lived. */
#include "driver.h"

#define CHANCE 16 /* one in so many clients */
#define EVERY_NS (INT64_C(3600000) * NS_PER_MS)
#define APART_US INT64_C(1700000000) /* the fleet's; less than half of that */

static void answered(struct request *request)
{
    struct driver *driver = statement_driver(request);
    driver->sweep_goes_on = PQntuples(request->result) > 0; /* there may be more */
    if (driver->sweep_goes_on)
        driver->sweep_ns = 0;
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
    bool due = driver->locks.closing ? driver->sweep_last : now >= driver->sweep_ns;
    if (!due || driver->main.state != LINK_READY)
        return;
    driver->sweep_ns = now + locks_jitter(&driver->locks, EVERY_NS);
    driver->sweep_last = false;
    int64_t apart_us = driver->sweep_goes_on ? 0 : APART_US;
    driver->sweep_goes_on = false;
    struct request *request = statement_new(driver, &handler);
    if (request == NULL)
        return;
    args_int8(&request->args, apart_us);
    request->alone = true; /* its rows are in no order with those of others */
    statement_send(request, TEXT_SWEEP, LANE_LAZY);
}
