/* etcd_counts.c - the requests of the etcd driver while nothing happens: with 1,000 locks held, with 100 waiters beside them,
 * and when nothing is held. The server itself counts them (/metrics), so the figures do not depend on the speed of the machine.
 *
 * A beat is a keep-alive and the read behind it, six times in the time of a lease. A spell begins and ends between two beats,
 * as far as looks 20 ms apart can show that. So the bounds for beats have some room; those for requests and writes have
 * none. */
#include "common.h"
#include "etcd_server.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define HELD 1000
#define WAITING 100
#define BEATS 4
#define TTL_MS 1500
#define LEASE_S 2 /* the lease for that ttl: a quarter longer, in whole seconds */
#define LOOK_MS 20
#define PATIENCE_S 60 /* bounds failure only */
#define REST_S 1

static struct etcd_server server;
static mortise_lease *leases[HELD];

struct counts {
    double messages, keep_alives, reads, watches, writes;
    int64_t at_ns;
};

static struct counts look(void)
{
    static const char received[] = "grpc_server_msg_received_total";
    char *metrics = etcd_server_metrics(&server);
    struct counts counts = {
        .messages = etcd_metric(metrics, received, ""),
        .keep_alives = etcd_metric(metrics, received, "method=\"LeaseKeepAlive\""),
        .reads = etcd_metric(metrics, received, "method=\"Txn\""),
        .watches = etcd_metric(metrics, received, "method=\"Watch\""),
        .writes = etcd_metric(metrics, "etcd_server_proposals_committed_total", ""),
        .at_ns = bench_now_ns()};
    free(metrics);
    return counts;
}

static struct counts look_later(int64_t since_ns)
{
    if (bench_now_ns() - since_ns > PATIENCE_S * INT64_C(1000000000))
        bench_die("what was waited for has not come in %d s", PATIENCE_S);
    usleep(LOOK_MS * 1000);
    return look();
}

/* The counts when only beats have come for three looks. */
static struct counts settled(void)
{
    struct counts before = look();
    int64_t since_ns = before.at_ns;
    for (int same = 0; same < 3;) {
        struct counts now = look_later(since_ns);
        double others = now.messages - before.messages - (now.keep_alives - before.keep_alives) -
                        (now.reads - before.reads);
        double unanswered = now.reads - before.reads - (now.keep_alives - before.keep_alives);
        same = others == 0 && unanswered == 0 && now.writes == before.writes ? same + 1 : 0;
        before = now;
    }
    return before;
}

struct spell {
    double requests_a_beat, writes, beats_a_lease;
};

/* Measures from the end of a beat until `beats` further ones are over. */
static struct spell spell(double beats)
{
    struct counts from = settled(), now = from;
    int64_t since_ns = from.at_ns;
    while (now.keep_alives == from.keep_alives ||
           now.reads - from.reads != now.keep_alives - from.keep_alives)
        now = look_later(since_ns);
    from = now;
    while (now.keep_alives < from.keep_alives + beats ||
           now.reads - from.reads < now.keep_alives - from.keep_alives)
        now = look_later(since_ns);
    double count = now.keep_alives - from.keep_alives;
    return (struct spell){(now.messages - from.messages) / count, now.writes - from.writes,
                          count * LEASE_S * 1e9 / (double)(now.at_ns - from.at_ns)};
}

static void hold(mortise_client *client)
{
    char name[32];
    for (int i = 0; i < HELD; i++) {
        snprintf(name, sizeof(name), "held-%d", i);
        leases[i] = bench_acquire(client, name, MORTISE_OPTIONS(.ttl_ms = TTL_MS));
    }
}

static void had(mortise_status status, mortise_lease *lease, const mortise_error *error,
                void *unused)
{
    (void)error;
    (void)unused;
    if (status == MORTISE_OK)
        mortise_release_nowait(lease, NULL);
}

static void wait_all(mortise_client *client)
{
    struct counts before = look();
    int64_t since_ns = before.at_ns;
    mortise_error error;
    char name[32];
    for (int i = 0; i < WAITING; i++) {
        snprintf(name, sizeof(name), "held-%d", i);
        if (mortise_acquire_async(
                client, name, MORTISE_OPTIONS(.ttl_ms = TTL_MS, .wait_ms = MORTISE_WAIT_FOREVER),
                had, NULL, NULL, &error) != MORTISE_OK)
            bench_die("%s", error.message);
    }
    while (look_later(since_ns).watches < before.watches + WAITING)
        ;
}

static void give_back(void)
{
    for (int i = 0; i < HELD; i++)
        mortise_release_nowait(leases[i], NULL);
}

/* What comes in a second, some time after the last release, because the session must end first. */
static struct spell idle(void)
{
    struct counts from = look(), now = from;
    int64_t since_ns = from.at_ns;
    while (now.at_ns - from.at_ns < REST_S * INT64_C(1000000000)) {
        now = look_later(since_ns);
        if ((now.messages != from.messages || now.writes != from.writes) &&
            now.at_ns - since_ns < PATIENCE_S / 4 * INT64_C(1000000000))
            from = now;
    }
    return (struct spell){now.messages - from.messages, now.writes - from.writes, 0};
}

static void tell(const char *key, const char *label, double value, double target)
{
    struct bench_series *series = bench_new_series(key, label, "");
    bench_add_only(series, value, BENCH_COUNT);
    bench_check(key, label, series, NULL, BENCH_AT_MOST, target);
}

int main(int argc, char **argv)
{
    bench_begin(argc, argv, "etcd_counts", "etcd: requests and writes while nothing happens", 1);
    etcd_server_begin(&server, "heartbeat=50 election=500");
    mortise_client *holder = bench_open(server.url), *waiter = bench_open(server.url);
    hold(holder);
    struct spell held = spell(BEATS);
    wait_all(waiter);
    struct spell waited = spell(2 * BEATS); /* of both clients */
    bench_close(waiter);
    give_back();
    struct spell rest = idle();
    bench_close(holder);
    tell("held_requests", "requests a beat, 1,000 locks held", held.requests_a_beat, 2);
    tell("held_beats", "beats in the time of a lease, likewise", held.beats_a_lease, 9);
    tell("held_writes", "writes in 4 beats, likewise", held.writes, 0);
    tell("waited_requests", "requests a beat, 100 of them waited for", waited.requests_a_beat, 2);
    tell("waited_beats", "beats in the time of a lease, of both clients", waited.beats_a_lease, 18);
    tell("waited_writes", "writes in 4 beats, likewise", waited.writes, 0);
    tell("idle_requests", "requests in a second, nothing held or wanted", rest.requests_a_beat, 0);
    tell("idle_writes", "writes in a second, likewise", rest.writes, 0);
    return bench_end();
}
