/* node.c - what a client has at one server: opened, turned, closed. */
#include "node.h"

#include "seats.h"

#include <stdlib.h>

void node_open(struct driver *driver, int64_t min_replicas, int64_t replica_timeout_ms)
{
    link_init(&driver->link, driver->host, &driver->settings, &dispatch_callbacks, driver);
    pubsub_open(driver, &queue_inbox);
    replicas_open(driver, min_replicas, replica_timeout_ms);
}

/* Only this node publishes to this inbox, and only if the client listens here (scripts/include/queue: tell). */
static void name_inbox(struct driver *driver)
{
    static const char digits[] = "0123456789abcdef";
    char *id = strrchr(driver->inbox, ':') + 1;
    id[0] = 'n';
    id[1] = digits[driver->server >> 4 & 15];
    id[2] = digits[driver->server & 15];
}

struct driver *node_new(const struct driver *like, const struct endpoint *at, int server)
{
    struct driver *driver = calloc(1, sizeof(*driver));
    if (driver == NULL)
        return NULL;
    driver->host = like->host;
    driver->values = like->values;
    memcpy(driver->section, like->section, sizeof(driver->section));
    driver->settings = like->settings;
    driver->settings.endpoint = *at;
    driver->settings.any_of_cluster = false;
    driver->settings.role_optional = true; /* a replica answers MOVED to everything */
    driver->dispatch = like->dispatch;
    driver->routes = like->routes;
    driver->cluster = like->cluster;
    driver->in_cluster = true;
    driver->layout = like->layout;
    driver->fencing = like->fencing;
    driver->queued = like->queued;
    driver->foreign_polled = like->foreign_polled;
    driver->retry_ms = like->retry_ms;
    driver->clock = like->clock;
    memcpy(driver->inbox, like->inbox, sizeof(driver->inbox));
    driver->server = server;
    name_inbox(driver);
    node_open(driver, like->replicas.wanted, like->replicas.timeout_ms);
    return driver;
}

void node_free(struct driver *driver)
{
    pubsub_close(driver);
    link_close(&driver->replicas.link);
    link_close(&driver->link);
    requests_free(driver);
    uncertain_forget(driver);
    free(driver->transaction);
    primary_close(driver->primary);
    free(driver);
}

/* ---- the pump ------------------------------------------------------------------------------------------- */

size_t node_interest(const struct driver *driver, struct pollfd *fds, size_t capacity,
                     int64_t *due_ns)
{
    size_t n = link_interest(&driver->link, fds, capacity, due_ns);
    n += link_interest(&driver->news, fds + n, capacity - n, due_ns);
    n += link_interest(&driver->replicas.link, fds + n, capacity - n, due_ns);
    if (driver->primary != NULL)
        n += primary_interest(driver->primary, fds + n, capacity - n, due_ns);
    if (failover_look_due_ns(driver) < *due_ns)
        *due_ns = failover_look_due_ns(driver);
    if (queue_due_ns(driver) < *due_ns)
        *due_ns = queue_due_ns(driver);
    return n;
}

void node_turn(struct driver *driver, const struct pollfd *ready, size_t n)
{
    link_turn(&driver->link, ready, n);
    queue_turn(driver); /* early, because a waiter that does not ask in time loses its place */
    dispatch_turn(driver);
    link_turn(&driver->news, ready, n);
    link_turn(&driver->replicas.link, ready, n);
    if (driver->primary != NULL)
        primary_turn(driver->primary, ready, n);
    replicas_turn(driver);
}

void node_flush(struct driver *driver)
{
    link_flush(&driver->link);
    link_flush(&driver->news);
    link_flush(&driver->replicas.link);
}

/* ---- at rest -------------------------------------------------------------------------------------------- */

bool node_is_quiet(const struct driver *driver)
{
    bool asks = driver->link.first != NULL || driver->waiting != NULL ||
                driver->held_back != NULL || driver->seated != NULL || driver->watched != NULL;
    return !asks && driver->replicas.waiting == NULL && !driver->replicas.under_way &&
           driver->replicas.undoing == 0;
}

bool node_is_idle(struct driver *driver)
{
    const struct link *link = &driver->link;
    uncertain_drop(driver, now_of(driver));
    bool doubts = driver->doubts != NULL || driver->all_doubtful || driver->strays != NULL ||
                  driver->all_stray || link->past_count > 0 || link->blind;
    return node_is_quiet(driver) && !doubts;
}

/* Closed, and no answer of a look-up is still to come. */
static bool is_closed(const struct link *link)
{
    return link->state == LINK_DOWN && link_count_look_ups(link) == 0;
}

/* Requests that were lost there are forgotten when the longest ttl has passed, because the server may never come back. */
bool node_is_gone(struct driver *driver, int64_t quiet_for_ns)
{
    uncertain_drop(driver, now_of(driver));
    bool closed =
        is_closed(&driver->link) && is_closed(&driver->news) && is_closed(&driver->replicas.link);
    bool unsure = driver->all_doubtful || driver->strays != NULL || driver->all_stray;
    return closed && driver->doubts == NULL &&
           (!unsure || quiet_for_ns > driver->longest_ms * NS_PER_MS);
}

void node_unwant(struct driver *driver)
{
    link_unwant(&driver->link);
    link_unwant(&driver->news);
    driver->inbox_wanted = false;
    driver->unheard.since_ns = 0;
}

void node_rest(struct driver *driver)
{
    link_rest(&driver->link);
    link_rest(&driver->news);
    link_rest(&driver->replicas.link);
    driver->inbox_ready = driver->inbox_wanted = false;
    driver->replicas.counting = false;
}
