/* redis_renew.c - what renewing 10,000 locks, acquired one after another at spread times, costs a Redis server: the
 * number of commands, and its processor time, beside another server on which a bare script renews as many keys, a
 * hundred at a time, once a period, in the same time.
 *
 * The time that an idle server takes (it looks for expired keys) is measured first, with as many keys, and subtracted
 * from both. */
#include "common.h"
#include "redis_server.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOCKS 10000
#define TTL_MS 6000
#define PERIOD_NS (INT64_C(1000000) * TTL_MS / 3)
#define IDLE_NS INT64_C(2000000000) /* less would include work of filling in the keys */
#define KEYS_OF_CALL 100
#define BARE_TTL_MS "600000"

static const char script[] = "for i = 1, #KEYS do\n"
                             "    if redis.call('get', KEYS[i]) == ARGV[i + 1] then\n"
                             "        redis.call('pexpire', KEYS[i], ARGV[1])\n"
                             "    end\n"
                             "end";

/* ---- the bare script --------------------------------------------------------------------------- */

struct bare {
    struct redis_server server;
    redisContext *context;
    char digest[64];
    char keys[LOCKS][32], grants[LOCKS][33];
};

static void replies(redisContext *context, int count)
{
    while (count-- > 0) {
        void *reply = NULL;
        if (redisGetReply(context, &reply) != REDIS_OK)
            reply = NULL;
        freeReplyObject(redis_server_sure(context, reply));
    }
}

static void open_bare(struct bare *bare)
{
    redis_server_start(&bare->server, bench.cpu);
    bare->context = redis_server_connect(&bare->server);
    redisReply *reply =
        redis_server_sure(bare->context, redisCommand(bare->context, "SCRIPT LOAD %s", script));
    snprintf(bare->digest, sizeof(bare->digest), "%s", reply->str);
    freeReplyObject(reply);
    for (int i = 0; i < LOCKS; i++) {
        snprintf(bare->keys[i], sizeof(bare->keys[i]), "bare:bench/lock/%08d", i);
        snprintf(bare->grants[i], sizeof(bare->grants[i]), "%032d", i);
        redisAppendCommand(bare->context, "SET %s %s PX " BARE_TTL_MS, bare->keys[i],
                           bare->grants[i]);
    }
    replies(bare->context, LOCKS);
}

static void append_call(struct bare *bare, int first)
{
    const char *words[4 + 2 * KEYS_OF_CALL] = {"EVALSHA", bare->digest, "100"};
    int count = 3;
    for (int i = 0; i < KEYS_OF_CALL; i++)
        words[count++] = bare->keys[first + i];
    words[count++] = BARE_TTL_MS;
    for (int i = 0; i < KEYS_OF_CALL; i++)
        words[count++] = bare->grants[first + i];
    redisAppendCommandArgv(bare->context, count, words, NULL);
}

static void renew_bare(struct bare *bare)
{
    for (int i = 0; i < LOCKS; i += KEYS_OF_CALL)
        append_call(bare, i);
    replies(bare->context, LOCKS / KEYS_OF_CALL);
}

static void close_bare(struct bare *bare)
{
    redisFree(bare->context);
    redis_server_stop(&bare->server);
}

/* ---- the library ------------------------------------------------------------------------------- */

/* Acquires at equal distances over a period, or as fast as possible if that is slower. */
static void acquire_all(mortise_client *client, mortise_lease **leases)
{
    char name[64];
    int64_t from = bench_now_ns();
    for (int i = 0; i < LOCKS; i++) {
        bench_sleep_until_ns(from + PERIOD_NS * i / LOCKS);
        snprintf(name, sizeof(name), "bench/lock/%08d", i);
        leases[i] = bench_acquire(client, name, MORTISE_OPTIONS(.wait_ms = 0, .ttl_ms = TTL_MS));
    }
}

static mortise_stats stats_of(mortise_client *client)
{
    mortise_stats stats = {.size = sizeof(stats)};
    if (mortise_stats_get(client, &stats) != MORTISE_OK)
        bench_die("no counters");
    return stats;
}

static uint64_t script_calls(const struct redis_server *server)
{
    return redis_server_calls(server, "evalsha") + redis_server_calls(server, "eval");
}

/* ---- both -------------------------------------------------------------------------------------- */

struct figures {
    struct bench_series *commands, *renewals, *idle, *bare, *server;
};

/* The time that a server without clients takes in a second, in milliseconds. */
static double idle_ms(const struct redis_server *server)
{
    double from_ns = redis_server_cpu_ns(server);
    int64_t from = bench_now_ns();
    bench_sleep_until_ns(from + IDLE_NS);
    double taken = (double)(bench_now_ns() - from) / 1e9;
    return (redis_server_cpu_ns(server) - from_ns) / 1e6 / taken;
}

/* Passes so many periods, in each of which the bare keys are renewed once. */
static void pass_periods(struct bare *bare, int periods)
{
    int64_t from = bench_now_ns();
    for (int i = 0; i < periods; i++) {
        bench_sleep_until_ns(from + i * PERIOD_NS + PERIOD_NS / 2);
        renew_bare(bare);
    }
    bench_sleep_until_ns(from + periods * PERIOD_NS);
}

static void measure_window(const struct redis_server *server, mortise_client *client,
                           struct bare *bare, double idle_ms_per_s, const struct figures *figures)
{
    int periods = (int)(bench.seconds * 1e9 / (double)PERIOD_NS);
    periods = periods < 1 ? 1 : periods;
    int64_t from = bench_now_ns();
    double mine_ns = redis_server_cpu_ns(server), bare_ns = redis_server_cpu_ns(&bare->server);
    uint64_t calls = script_calls(server), renewals = stats_of(client).renewals;
    pass_periods(bare, periods);
    mine_ns = redis_server_cpu_ns(server) - mine_ns;
    bare_ns = redis_server_cpu_ns(&bare->server) - bare_ns;
    calls = script_calls(server) - calls;
    renewals = stats_of(client).renewals - renewals;
    double taken_ns = (double)(bench_now_ns() - from), idle_ns = idle_ms_per_s / 1e3 * taken_ns;
    double locks_and_periods = taken_ns / PERIOD_NS * LOCKS;
    bench_add(figures->commands, (double)calls / (locks_and_periods / 100));
    bench_add(figures->renewals, (double)renewals / locks_and_periods);
    bench_add(figures->bare, (bare_ns - idle_ns) / 1e6 / periods);
    bench_add(figures->server, (mine_ns - idle_ns) / 1e6 / ((double)renewals / 10000));
}

static void measure(const struct redis_server *server, mortise_client *client, struct bare *bare,
                    const struct figures *figures)
{
    static mortise_lease *leases[LOCKS];
    double idle = idle_ms(&bare->server);
    bench_add_only(figures->idle, idle, BENCH_ONCE);
    acquire_all(client, leases);
    pass_periods(bare, 2); /* until their renewals have become regular */
    for (int i = 0; i < bench.rounds; i++)
        measure_window(server, client, bare, idle, figures);
    bool all_held = stats_of(client).held == LOCKS && stats_of(client).losses == 0;
    for (size_t i = 0; i < LOCKS; i++)
        bench_release(leases[i]);
    bench_proof("all_held", "every lock was held to the end", all_held);
}

int main(int argc, char **argv)
{
    static struct redis_server server;
    static struct bare bare;
    char url[64];
    bench.rounds = 5;
    bench_begin(argc, argv, "redis_renew", "10,000 locks held on Redis, ttl 6 s, renewed", 4);
    redis_server_start(&server, bench.cpu);
    open_bare(&bare);
    snprintf(url, sizeof(url), "redis://127.0.0.1:%d", server.port);
    mortise_client *client = bench_open(url);
    bench_release(bench_acquire(client, "first", NULL));
    struct figures figures = {
        bench_new_series("commands", "script calls per 100 locks and period", "calls"),
        bench_new_series("renewals", "renewals of a lock in a period", "times"),
        bench_new_series("idle", "a server with nothing to do, in a second", "ms"),
        bench_new_series("bare", "a server for 10,000 keys, bare script, 100 a call", "ms"),
        bench_new_series("server", "the server for 10,000 renewals", "ms")};
    measure(&server, client, &bare, &figures);
    bench_check("commands_per_100", "script calls per 100 locks and period", figures.commands, NULL,
                BENCH_AT_MOST, 3);
    bench_check("server_over_bare", "the server's time / bare script", figures.server, figures.bare,
                BENCH_AT_MOST, 2.0);
    bench_close(client);
    close_bare(&bare);
    redis_server_stop(&server);
    return bench_end();
}
