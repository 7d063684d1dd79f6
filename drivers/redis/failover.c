/* failover.c - where the server is, if there are several (servers, sentinel), and what happens if it is a new one: the core
 * renews all held claims, and tokens do not go back with the new server's clock. A single address may lead to a new server, too
 * (a name, a virtual address). ../lib/redis/primary.h finds the primary.
 *
 *                  broke, READONLY, +switch-master             ROLE: master
 *   at A ─────────────────────────────────────▶ seeking ─────────────────────▶ at B
 *                                                 │   ▲                         all held locks are renewed: found,
 *                                                 └───┘ nobody, no answer       or LOST; waiting ops are sent
 *
 *   A request to A has no answer: the acquire, release, downgrade or write is INDETERMINATE, and the core asks again, at B.
 *     Either B got it by replication before it became the primary, and the repeat finds it. Or B never gets it, because a
 *     primary accepts nothing from A. So what B says about a grant is sure, whatever A still executes: that changes only A's
 *     data, which A throws away when it becomes a replica. If A becomes the primary again with its own data, because it came
 *     back while there was no other, this driver first ends its old connection there. What A executed before that lasts for a
 *     ttl.
 *   A waiter is at A, which becomes a replica and keeps its connections: its requests are BUSY, so nothing is written and A
 *     never answers READONLY. Its subscription goes on there, or is refused when it is made again; then the main connection
 *     leaves A, too.
 *   A release finds nothing, or a record is read: a lagging replica would give the same answer. So ROLE is asked on the same
 *     connection before the answer counts. A list and a ping do the same.
 *   No op is outstanding, so nobody polls the connections, but leases are held: the driver checks its connections by a timer,
 *     twice a second as long as there may be leases. While there is no primary, it looks for one for as long as the longest
 *     ttl. When it is at B, the core renews everything (host->doubt).
 *   B lacks a grant that A had given, because replication is asynchronous: the renewal says LOST. Until then, or until the
 *     deadline, another client may have got the lock from B, and both hold it: docs/promises.md.
 *   B's clock is behind A's: tokens could go back if the last one was not replicated. So the greeting asks for the time, and
 *     the latest clock that this client saw is the floor of the tokens that it asks for.
 *   A is stopped, and goes on later: it believes that it is the primary until it hears otherwise, and answers the clients that
 *     are connected to it. Sentinels report the switch by the subscription; otherwise A answers READONLY to the first write
 *     after it has heard. */
#include "redis.h"

#include <stdio.h>

#define NS_PER_US 1000
#define LOOK_NS (500 * NS_PER_MS)
#define LEAVE_NS (10000 * NS_PER_MS)
#define HURRY_NS (10 * NS_PER_MS) /* while a connection is being made */

static void each_link(struct driver *driver, void (*run)(struct link *link, const void *argument),
                      const void *argument)
{
    run(&driver->link, argument);
    run(&driver->news, argument);
    run(&driver->replicas.link, argument);
}

/* ---- seeking -------------------------------------------------------------------------------------------- */

/* Another connection was refused at the server of the main one. A waiter that only reads would never get READONLY. */
static bool is_at_replica(const struct driver *driver, const struct link *other)
{
    return other != &driver->link && other->is_replica && link_is_up(&driver->link) &&
           strcmp(other->endpoint.text, driver->link.endpoint.text) == 0;
}

/* The other connections go to the server of the main one. */
void failover_seek(struct link *link, void *owner)
{
    struct driver *driver = owner;
    if (is_at_replica(driver, link)) {
        link->is_replica = false; /* used up; the next greeting finds out anew */
        link_leave(&driver->link, "the server is a replica now");
    }
    bool known = link != &driver->link && link_is_up(&driver->link);
    if (driver->primary == NULL || known)
        link_found(link);
    else
        primary_look(driver->primary);
}

static void go_to(struct link *link, const void *endpoint)
{
    const struct endpoint *at = endpoint;
    if (link->state == LINK_SEEKING)
        link_found(link);
    else if (link->state != LINK_DOWN && strcmp(link->endpoint.text, at->text) != 0)
        link_leave(link, "another server is the primary now");
}

static void found(void *owner, const struct endpoint *endpoint)
{
    struct driver *driver = owner;
    driver->settings.endpoint = driver->replicas.settings.endpoint = *endpoint;
    each_link(driver, go_to, endpoint);
}

static void give_up(struct link *link, const void *fault)
{
    link_not_found(link, fault);
}

static void not_found(void *owner, const struct link_fault *fault)
{
    each_link(owner, give_up, fault);
}

static void clustered(void *owner)
{
    struct driver *driver = owner;
    driver->routes->discovered(driver);
}

static void leave(struct link *link, const void *why)
{
    link_leave(link, why);
}

static void moved(void *owner)
{
    each_link(owner, leave, "the sentinels name another primary");
}

bool failover_open(struct driver *driver, const char *list, const char *sentinel_name,
                   const struct link_settings *like, const char **problem)
{
    static const struct primary_callbacks callbacks = {
        .found = found, .not_found = not_found, .moved = moved};
    static const struct primary_callbacks curious = {
        .found = found, .not_found = not_found, .moved = moved, .clustered = clustered};
    driver->primary = primary_open(driver->host, list, sentinel_name, like,
                                   driver->routes != NULL ? &curious : &callbacks, driver, problem);
    snprintf(driver->settings.endpoint.text, sizeof(driver->settings.endpoint.text), "the primary");
    return driver->primary != NULL;
}

/* ---- another server ---------------------------------------------------------------------------------------- */

static uint64_t clock_at(const struct driver *driver, int64_t ns)
{
    return driver->clock->us + (uint64_t)((ns - driver->clock->ns) / NS_PER_US);
}

/* The latest clock that this client saw goes on by this machine's clock. */
void failover_compare(struct driver *driver)
{
    const struct link *link = &driver->link;
    if (link->clock_us == 0)
        return;
    driver->clock_behind =
        driver->clock->us != 0 && link->clock_us < clock_at(driver, link->clock_ns);
    if (driver->clock_behind)
        return;
    driver->clock->us = link->clock_us;
    driver->clock->ns = link->clock_ns;
}

/* Whether this driver must look for another server itself. Nobody else does while no op is outstanding. */
static bool looks_around(const struct driver *driver)
{
    return driver->primary != NULL || driver->in_cluster;
}

uint64_t failover_floor(const struct driver *driver, const mortise_op *op)
{
    if (!driver->clock_behind)
        return op->token_floor;
    uint64_t floor = clock_at(driver, now_of(driver));
    floor = floor > FLOOR_MAX ? FLOOR_MAX : floor;
    return floor > op->token_floor ? floor : op->token_floor;
}

bool failover_up(struct driver *driver)
{
    const struct link *link = &driver->link;
    bool same = link->run_id[0] != '\0' && strcmp(driver->run_id, link->run_id) == 0;
    bool may_be_another = driver->was_up && !same; /* or the user may not ask which server it is */
    driver->was_up = true;
    memcpy(driver->run_id, link->run_id, sizeof(driver->run_id));
    failover_compare(driver);
    if (may_be_another)
        driver->host->doubt(driver->host, NULL, 0);
    return may_be_another;
}

/* Some addresses always lead to two servers. LEAVE_NS keeps the driver from going back and forth between them without end. */
bool failover_leads_elsewhere(struct driver *driver)
{
    int64_t now = now_of(driver);
    if (driver->left_ns != 0 && now - driver->left_ns < LEAVE_NS)
        return false;
    if (driver->left_ns == 0)
        driver->host->log(driver->host, 4,
                          "%s leads to another server than before; the locks are asked for "
                          "there now",
                          driver->link.endpoint.text);
    driver->left_ns = now;
    link_leave(&driver->link, "its address leads to another server now");
    return true;
}

/* ---- while there is none ------------------------------------------------------------------------------------- */

void failover_note(struct driver *driver, const mortise_op *op)
{
    if (!looks_around(driver) || (op->kind != MORTISE_OP_ACQUIRE && op->kind != MORTISE_OP_RENEW))
        return;
    int64_t until_ns = op->from_ns + op->ttl_ms * NS_PER_MS;
    if (op->ttl_ms > driver->longest_ms)
        driver->longest_ms = op->ttl_ms;
    if (until_ns > driver->leases_until_ns)
        driver->leases_until_ns = until_ns;
}

/* Nobody polls while no op is outstanding, but the driver should notice a failover before the next renewal. */
int64_t failover_look_due_ns(const struct driver *driver)
{
    if (driver->leases_until_ns <= driver->looked_ns)
        return MORTISE_NEVER;
    bool busy = link_is_connecting(&driver->link) ||
                (driver->primary != NULL && primary_is_busy(driver->primary));
    return driver->looked_ns + (busy ? HURRY_NS : LOOK_NS);
}

bool failover_looks(struct driver *driver)
{
    int64_t now = now_of(driver);
    if (now < failover_look_due_ns(driver))
        return false;
    driver->looked_ns = now;
    return true;
}

void failover_broke(struct driver *driver)
{
    if (looks_around(driver))
        driver->restless_until_ns = now_of(driver) + driver->longest_ms * NS_PER_MS;
}

bool failover_is_restless(const struct driver *driver)
{
    return driver->restless_until_ns != 0 && now_of(driver) < driver->restless_until_ns;
}

/* ---- ROLE -------------------------------------------------------------------------------------------- */

bool failover_is_primary(const redisReply *reply)
{
    return reply->type == REDIS_REPLY_ARRAY && reply->elements > 0 &&
           text_is(reply->element[0], "master");
}

void failover_fault(const struct driver *driver, struct link_fault *fault)
{
    link_fault_set(fault, MORTISE_UNREACHABLE, true, 0, "%s: it is not the primary any more",
                   driver->link.endpoint.text);
}
