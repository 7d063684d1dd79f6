/* redis_queue.c - the costs and benefits of the queue in a Redis server: the cycle of a single client, with and
 * without the queue; the time from a release in one process to the lock in another, beside a bare script that
 * publishes; eight processes on one lock, beside a token that goes round by BLPOP and RPUSH; the requests of a
 * hundred waiting processes.
 *
 * Each measurement forks processes, which note what they do in memory that they share with this one. */
#include "common.h"
#include "redis_server.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define RING 8
#define CROWD 100
#define NS_PER_MS 1000000

/* ---- processes ---- */

struct member {
    _Atomic uint64_t turns;
    _Atomic int64_t longest_ns, told_ns; /* of its waits; when it last had what it waited for */
    char apart[104];
};

/* The shared memory, and the processes that share it. */
struct squad {
    _Atomic bool go, stop;
    _Atomic unsigned ready;
    _Atomic uint64_t allowed; /* turns, of hear_lock() */
    struct member members[CROWD];
};

struct run {
    const struct redis_server *server;
    int cpu;
    unsigned count;
    void (*body)(const struct run *run, struct squad *squad, struct member *member);
    int64_t ttl_ms;
    struct squad *squad;
    pid_t pids[CROWD];
};

static void nap(void)
{
    bench_sleep_until_ns(bench_now_ns() + NS_PER_MS / 5);
}

static void become_member(struct run *run, unsigned number, pid_t parent)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() == parent)
        run->body(run, run->squad, &run->squad->members[number]);
    _exit(0);
}

static void start(struct run *run)
{
    pid_t parent = getpid();
    void *memory =
        mmap(NULL, sizeof(struct squad), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        bench_die("out of memory");
    run->squad = memory;
    fflush(stdout);
    bench_pin(run->cpu);
    for (unsigned i = 0; i < run->count; i++) {
        run->pids[i] = fork();
        if (run->pids[i] == 0)
            become_member(run, i, parent);
        if (run->pids[i] < 0)
            bench_die("fork failed");
    }
    bench_pin(bench.cpu);
    while (atomic_load(&run->squad->ready) < run->count)
        nap();
    atomic_store(&run->squad->go, true);
}

static void is_ready(struct squad *squad)
{
    atomic_fetch_add(&squad->ready, 1);
    while (!atomic_load(&squad->go))
        nap();
}

static void finish(struct run *run)
{
    atomic_store(&run->squad->stop, true);
    for (unsigned i = 0; i < run->count; i++) {
        int status;
        if (waitpid(run->pids[i], &status, 0) < 0 || status != 0)
            bench_die("a process of the benchmark failed");
    }
    munmap(run->squad, sizeof(struct squad));
}

static mortise_client *open_client(const struct redis_server *server, const char *more)
{
    char url[96];
    snprintf(url, sizeof(url), "redis://127.0.0.1:%d?handover_max=0%s", server->port, more);
    return bench_open(url);
}

static redisReply *ask(redisContext *context, const char *format, const char *argument)
{
    return redis_server_sure(context, redisCommand(context, format, argument));
}

static int64_t ask_number(redisContext *context, const char *format, const char *argument)
{
    redisReply *reply = ask(context, format, argument);
    int64_t number = reply->type == REDIS_REPLY_INTEGER ? reply->integer : -1;
    freeReplyObject(reply);
    return number;
}

/* ---- alone ---- */

struct alone {
    mortise_client *client;
    const char *name;
    int cpu;
};

static void cycles(void *context, size_t n)
{
    struct alone *alone = context;
    while (n-- > 0)
        bench_release(bench_acquire(alone->client, alone->name, NULL));
}

static double alone_ns(struct bench_case *self, double seconds)
{
    struct alone *alone = self->context;
    bench_pin(alone->cpu);
    double ns = bench_ns_per_turn(self, seconds);
    bench_pin(bench.cpu);
    return ns;
}

/* ---- from a release to the next ---- */

static int compare(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

struct handing {
    struct run run;
    mortise_client *client; /* NULL: bare */
    redisContext *context;
};

static void hear_bare(const struct run *run, struct squad *squad, struct member *member)
{
    redisContext *context = redis_server_connect(run->server);
    freeReplyObject(ask(context, "SUBSCRIBE %s", "bench"));
    is_ready(squad);
    while (!atomic_load(&squad->stop)) {
        void *reply = NULL;
        if (redisGetReply(context, &reply) != REDIS_OK)
            bench_die("the floor: %s", context->errstr);
        atomic_store(&member->told_ns, bench_now_ns());
        freeReplyObject(reply);
        atomic_fetch_add(&member->turns, 1);
    }
    redisFree(context);
}

static void hear_lock(const struct run *run, struct squad *squad, struct member *member)
{
    mortise_client *client = open_client(run->server, "");
    is_ready(squad);
    while (!atomic_load(&squad->stop)) {
        if (atomic_load(&member->turns) == atomic_load(&squad->allowed)) {
            nap();
            continue;
        }
        mortise_lease *lease = bench_acquire(client, "handing", MORTISE_OPTIONS(.wait_ms = -1));
        atomic_store(&member->told_ns, bench_now_ns());
        bench_release(lease);
        atomic_fetch_add(&member->turns, 1);
    }
    bench_close(client);
}

static void wait_turn(struct member *member, uint64_t turns)
{
    while (atomic_load(&member->turns) == turns)
        nap();
}

static int64_t hand_bare(struct handing *handing, struct member *member)
{
    static const char script[] = "redis.call('publish', ARGV[1], 'x') return 2";
    uint64_t turns = atomic_load(&member->turns);
    nap(); /* it sleeps again */
    int64_t from = bench_now_ns();
    freeReplyObject(redis_server_sure(handing->context,
                                      redisCommand(handing->context, "EVAL %s 0 bench", script)));
    wait_turn(member, turns);
    return atomic_load(&member->told_ns) - from;
}

static int64_t hand_lock(struct handing *handing, struct member *member)
{
    uint64_t turns = atomic_load(&member->turns);
    mortise_lease *lease =
        bench_acquire(handing->client, "handing", MORTISE_OPTIONS(.wait_ms = -1));
    atomic_fetch_add(&handing->run.squad->allowed, 1);
    while (ask_number(handing->context, "LLEN %s", "{mortise:handing}:mortise:queue") < 1)
        nap();
    nap();
    int64_t from = bench_now_ns();
    bench_release(lease);
    wait_turn(member, turns);
    return atomic_load(&member->told_ns) - from;
}

/* The median of the round, in nanoseconds. */
static double handing_ns(struct bench_case *self, double seconds)
{
    static int64_t took[20000];
    struct handing *handing = self->context;
    bench_pin(handing->run.cpu);
    start(&handing->run);
    bench_pin(handing->run.cpu);
    struct member *member = &handing->run.squad->members[0];
    int64_t until = bench_now_ns() + (int64_t)(seconds * 1e9);
    size_t n = 0;
    while (n < 5 || (bench_now_ns() < until && n < sizeof(took) / sizeof(took[0])))
        took[n++] =
            handing->client != NULL ? hand_lock(handing, member) : hand_bare(handing, member);
    atomic_store(&handing->run.squad->stop, true);
    if (handing->client == NULL)
        hand_bare(handing, member); /* so that it notices that */
    bench_pin(bench.cpu);
    finish(&handing->run);
    qsort(took, n, sizeof(took[0]), compare);
    return (double)took[n / 2];
}

/* ---- eight on one ---- */

static void note_turn(struct member *member, int64_t from)
{
    int64_t took = bench_now_ns() - from;
    if (took > atomic_load_explicit(&member->longest_ns, memory_order_relaxed))
        atomic_store_explicit(&member->longest_ns, took, memory_order_relaxed);
    atomic_fetch_add_explicit(&member->turns, 1, memory_order_relaxed);
}

static void go_round_bare(const struct run *run, struct squad *squad, struct member *member)
{
    redisContext *context = redis_server_connect(run->server);
    is_ready(squad);
    while (!atomic_load_explicit(&squad->stop, memory_order_relaxed)) {
        int64_t from = bench_now_ns();
        freeReplyObject(ask(context, "BLPOP %s 0", "ring"));
        note_turn(member, from);
        freeReplyObject(ask(context, "RPUSH %s token", "ring"));
    }
    redisFree(context);
}

static void go_round(const struct run *run, struct squad *squad, struct member *member)
{
    mortise_client *client = open_client(run->server, "");
    mortise_error error;
    is_ready(squad);
    while (!atomic_load_explicit(&squad->stop, memory_order_relaxed)) {
        int64_t from = bench_now_ns();
        mortise_lease *lease = bench_acquire(client, "ring", MORTISE_OPTIONS(.wait_ms = -1));
        note_turn(member, from);
        if (mortise_release_nowait(lease, &error) != MORTISE_OK)
            bench_die("release: %s", error.message);
    }
    bench_close(client);
}

struct ring {
    struct run run;
    struct bench_series *share, *longest; /* NULL: not told */
};

/* Nanoseconds for each turn, in a window in which all of them run. */
static double ring_ns(struct bench_case *self, double seconds)
{
    struct ring *ring = self->context;
    struct squad *squad;
    uint64_t before[RING], sum = 0;
    double furthest = 0, longest = 0;
    start(&ring->run);
    squad = ring->run.squad;
    bench_sleep_until_ns(bench_now_ns() + (int64_t)(seconds * 1e9 / 4));
    for (unsigned i = 0; i < RING; i++) {
        before[i] = atomic_load(&squad->members[i].turns);
        atomic_store(&squad->members[i].longest_ns, 0);
    }
    int64_t from = bench_now_ns();
    bench_sleep_until_ns(from + (int64_t)(seconds * 1e9));
    for (unsigned i = 0; i < RING; i++) {
        before[i] = atomic_load(&squad->members[i].turns) - before[i];
        sum += before[i];
    }
    double took = (double)(bench_now_ns() - from);
    for (unsigned i = 0; i < RING && sum > 0; i++) {
        double off = (double)before[i] * RING / (double)sum - 1;
        double wait = (double)atomic_load(&squad->members[i].longest_ns) / NS_PER_MS;
        furthest = off > furthest ? off : -off > furthest ? -off : furthest;
        longest = wait > longest ? wait : longest;
    }
    finish(&ring->run);
    if (ring->share != NULL) {
        bench_add(ring->share, 100 * furthest);
        bench_add(ring->longest, longest);
    }
    return took / (double)(sum > 0 ? sum : 1);
}

/* ---- a hundred that wait ---- */

static void only_wait(const struct run *run, struct squad *squad, struct member *member)
{
    mortise_client *client = open_client(run->server, "");
    (void)member;
    is_ready(squad);
    bench_release(
        bench_acquire(client, "crowd", MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = run->ttl_ms)));
    bench_close(client);
}

/* Requests of a waiting process in one ttl. */
static double waiting_commands(const struct redis_server *server, int64_t ttl_ms)
{
    struct run run = {server, BENCH_ANY_CPU, CROWD, only_wait, ttl_ms, NULL, {0}};
    mortise_client *client = open_client(server, "");
    redisContext *context = redis_server_connect(server);
    mortise_lease *lease =
        bench_acquire(client, "crowd", MORTISE_OPTIONS(.wait_ms = 0, .ttl_ms = ttl_ms));
    start(&run);
    while (ask_number(context, "LLEN %s", "{mortise:crowd}:mortise:queue") < CROWD)
        nap();
    uint64_t asked = redis_server_calls(server, "evalsha") + redis_server_calls(server, "eval");
    bench_sleep_until_ns(bench_now_ns() + ttl_ms * NS_PER_MS);
    asked = redis_server_calls(server, "evalsha") + redis_server_calls(server, "eval") - asked;
    bench_release(lease);
    finish(&run);
    bench_close(client);
    redisFree(context);
    return (double)asked / CROWD;
}

/* ---- all of it ---- */

enum {
    NO_QUEUE,
    QUEUE,
    BARE_HANDING,
    HANDING,
    BARE_RING,
    RING_ON_ONE,
    BARE_FREE,
    RING_FREE,
    CASES
};

static void make_rings(struct bench_case *cases, struct ring *rings)
{
    cases[BARE_RING] = (struct bench_case){
        bench_new_series("ring_bare", "8 processes, BLPOP and RPUSH, on one processor", "ns"),
        ring_ns, NULL, &rings[0], 0};
    cases[RING_ON_ONE] = (struct bench_case){
        bench_new_series("ring", "8 processes, one lock, on one processor", "ns"), ring_ns, NULL,
        &rings[1], 0};
    cases[BARE_FREE] = (struct bench_case){
        bench_new_series("ring_bare_free", "8 processes, BLPOP and RPUSH, free", "ns"), ring_ns,
        NULL, &rings[2], 0};
    cases[RING_FREE] =
        (struct bench_case){bench_new_series("ring_free", "8 processes, one lock, free", "ns"),
                            ring_ns, NULL, &rings[3], 0};
    rings[1].share =
        bench_new_series("share", "… furthest from its even share, on one processor", "%");
    rings[1].longest = bench_new_series("longest", "… longest wait, on one processor", "ms");
    rings[3].share = bench_new_series("share_free", "… furthest from its even share, free", "%");
    rings[3].longest = bench_new_series("longest_free", "… longest wait, free", "ms");
}

static void check_all(const struct bench_case *cases, const struct ring *rings)
{
    bench_check("queue_over_none", "the cycle of one alone: queue / none", cases[QUEUE].series,
                cases[NO_QUEUE].series, BENCH_AT_MOST, 1.03);
    bench_check("handing_over_bare", "release to held / a bare script that publishes",
                cases[HANDING].series, cases[BARE_HANDING].series, BENCH_AT_MOST, 1.25);
    bench_check("ring_rate", "rate, 8 processes, on one processor: one lock / bare ring",
                cases[BARE_RING].series, cases[RING_ON_ONE].series, BENCH_AT_LEAST, 0.5);
    bench_check("ring_rate_free", "rate, 8 processes, free: one lock / bare ring",
                cases[BARE_FREE].series, cases[RING_FREE].series, BENCH_AT_LEAST, 0.5);
    for (int i = 1; i < 4; i += 2) {
        bench_check(i == 1 ? "even" : "even_free",
                    i == 1 ? "furthest from an even share, %"
                           : "furthest from an even share, free, %",
                    rings[i].share, NULL, BENCH_NEVER_ABOVE, 20);
        bench_check(i == 1 ? "wait" : "wait_free",
                    i == 1 ? "longest wait, ms" : "longest wait, free, ms", rings[i].longest, NULL,
                    BENCH_NEVER_ABOVE, 50);
    }
}

int main(int argc, char **argv)
{
    static struct redis_server server, on_one;
    struct bench_case cases[CASES];
    bench.rounds = 11;
    bench_begin(argc, argv, "redis_queue", "waiting for a lock on Redis, per turn", 0.4);
    int one = bench.cpu != BENCH_ANY_CPU ? bench.cpu : bench_first_cpu();
    redis_server_start(&server, bench.cpu);
    redis_server_start(&on_one, one);
    bench_pin(one);
    struct alone none = {open_client(&on_one, "&queue=no"), "alone", one};
    struct alone queue = {open_client(&on_one, ""), "alone", one};
    struct handing handings[2] = {{{&on_one, one, 1, hear_bare, 0, NULL, {0}}, NULL, NULL},
                                  {{&on_one, one, 1, hear_lock, 0, NULL, {0}}, NULL, NULL}};
    struct ring rings[4] = {{{&on_one, one, RING, go_round_bare, 0, NULL, {0}}, NULL, NULL},
                            {{&on_one, one, RING, go_round, 0, NULL, {0}}, NULL, NULL},
                            {{&server, bench.cpu, RING, go_round_bare, 0, NULL, {0}}, NULL, NULL},
                            {{&server, bench.cpu, RING, go_round, 0, NULL, {0}}, NULL, NULL}};
    for (int i = 0; i < 2; i++)
        handings[i].context = redis_server_connect(&on_one);
    handings[1].client = open_client(&on_one, "");
    bench_pin(bench.cpu);
    freeReplyObject(ask(on_one.control, "RPUSH %s token", "ring"));
    freeReplyObject(ask(server.control, "RPUSH %s token", "ring"));
    cases[NO_QUEUE] =
        (struct bench_case){bench_new_series("alone_none", "acquire + release, queue = no", "ns"),
                            alone_ns, cycles, &none, 0};
    cases[QUEUE] =
        (struct bench_case){bench_new_series("alone_queue", "acquire + release, queue = yes", "ns"),
                            alone_ns, cycles, &queue, 0};
    cases[BARE_HANDING] = (struct bench_case){
        bench_new_series("publish", "a script that publishes, to its message", "ns"), handing_ns,
        NULL, &handings[0], 0};
    cases[HANDING] = (struct bench_case){
        bench_new_series("handing", "a release, to the lock in another process", "ns"), handing_ns,
        NULL, &handings[1], 0};
    make_rings(cases, rings);
    bench_rounds(cases, CASES);
    check_all(cases, rings);
    struct bench_series *waiting =
        bench_new_series("waiting", "requests of each of 100 waiting processes in a ttl", "");
    if (bench.only == NULL || strcmp(bench.only, "waiting") == 0)
        bench_add_only(waiting, waiting_commands(&server, bench.quick ? 1500 : 30000), BENCH_COUNT);
    bench_check("waiting_requests", "requests of a waiting process in a ttl", waiting, NULL,
                BENCH_AT_MOST, 3);
    bench_close(none.client);
    bench_close(queue.client);
    bench_close(handings[1].client);
    for (int i = 0; i < 2; i++)
        redisFree(handings[i].context);
    redis_server_stop(&server);
    redis_server_stop(&on_one);
    return bench_end();
}
