/* redlock.c - what one uncontended acquire + release costs on five Redis servers, beside bare loops: one server after
 * the other; all at once, done when all have answered; all at once, done when three have. And with one node dead, or
 * hanging.
 *
 * *On one processor*: client and servers share it, so that all work adds up. *Free*: the system places them. */
#include "redlock_floor.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

static void cycles(void *client, size_t n)
{
    while (n-- > 0)
        bench_release(bench_acquire(client, "one caller", NULL));
}

/* ---- where ---- */

struct place {
    struct redis_server servers[REDLOCK_NODES], hanging;
    struct redlock_floor floor;
    mortise_client *plain, *fenced, *with_dead, *with_hanging;
};

static mortise_client *open_client(const struct place *place, int last_port, const char *settings)
{
    char url[200];
    int length = snprintf(url, sizeof(url), "redlock://");
    for (int i = 0; i < REDLOCK_NODES; i++)
        length += snprintf(url + length, sizeof(url) - (size_t)length, "127.0.0.1:%d%s",
                           i + 1 < REDLOCK_NODES ? place->servers[i].port : last_port,
                           i + 1 < REDLOCK_NODES ? "," : "?node_persistent=yes");
    snprintf(url + length, sizeof(url) - (size_t)length, "%s", settings);
    mortise_client *client = bench_open(url);
    bench_release(bench_acquire(client, "first", NULL));
    return client;
}

static void open_place(struct place *place, int cpu)
{
    for (int i = 0; i < REDLOCK_NODES; i++)
        redis_server_start(&place->servers[i], cpu);
    redis_server_start(&place->hanging, cpu);
    bench_pin(cpu);
    redlock_floor_open(&place->floor, place->servers);
    int last = place->servers[REDLOCK_NODES - 1].port;
    place->plain = open_client(place, last, "&fencing=off");
    place->fenced = open_client(place, last, "");
    place->with_dead = open_client(place, 1, "&fencing=off");
    place->with_hanging = open_client(place, place->hanging.port, "&fencing=off");
    kill(place->hanging.pid, SIGSTOP);
    bench_pin(bench.cpu);
}

static void close_place(struct place *place)
{
    bench_close(place->plain);
    bench_close(place->fenced);
    bench_close(place->with_dead);
    bench_close(place->with_hanging);
    redlock_floor_close(&place->floor);
    for (int i = 0; i < REDLOCK_NODES; i++)
        redis_server_stop(&place->servers[i]);
    redis_server_stop(&place->hanging);
}

/* ---- cases ---- */

static int one;

/* A `measure`: the loop on the one processor. */
static double ns_on_one(struct bench_case *self, double seconds)
{
    bench_pin(one);
    double ns = bench_ns_per_turn(self, seconds);
    bench_pin(bench.cpu);
    return ns;
}

enum { SEQUENTIAL, ALL, QUORUM, PLAIN, FENCED, DEAD, HANGING, CASES };

static const struct {
    const char *key, *free_key, *label, *free_label;
} texts[CASES] = {
    {"sequential", "sequential_free", "bare, one node after the other",
     "bare, one node after the other, free"},
    {"all", "all_free", "bare, all at once, done when all answered",
     "bare, all at once, done when all answered, free"},
    {"quorum", "quorum_free", "bare, all at once, done when three answered",
     "bare, all at once, done when three answered, free"},
    {"plain", "plain_free", "acquire + release, fencing = off",
     "acquire + release, fencing = off, free"},
    {"fenced", "fenced_free", "acquire + release, with tokens",
     "acquire + release, with tokens, free"},
    {"dead", "dead_free", "fencing = off, one node dead", "fencing = off, one node dead, free"},
    {"hanging", "hanging_free", "fencing = off, one node hanging",
     "fencing = off, one node hanging, free"},
};

static void make_cases(struct bench_case *cases, struct place *place, bool free)
{
    static void (*const loops[CASES])(void *, size_t) = {redlock_floor_sequential,
                                                         redlock_floor_all,
                                                         redlock_floor_quorum,
                                                         cycles,
                                                         cycles,
                                                         cycles,
                                                         cycles};
    void *const contexts[CASES] = {&place->floor,      &place->floor, &place->floor,
                                   place->plain,       place->fenced, place->with_dead,
                                   place->with_hanging};
    for (int i = 0; i < CASES; i++)
        cases[i] =
            (struct bench_case){bench_new_series(free ? texts[i].free_key : texts[i].key,
                                                 free ? texts[i].free_label : texts[i].label, "ns"),
                                free ? bench_ns_per_turn : ns_on_one, loops[i], contexts[i], 0};
}

/* A ratio of rates is the inverse of the ratio of times. */
static void check_rate(const char *key, const char *label, const struct bench_case *mine,
                       const struct bench_case *floor, double target)
{
    bench_check(key, label, floor->series, mine->series, BENCH_AT_LEAST, target);
}

static void check_at_most(const char *key, const char *label, const struct bench_case *mine,
                          const struct bench_case *other, double target)
{
    bench_check(key, label, mine->series, other->series, BENCH_AT_MOST, target);
}

static void check_all(const struct bench_case *on_one, const struct bench_case *free)
{
    check_rate("plain_rate", "rate, fencing = off / bare, three answered", &on_one[PLAIN],
               &on_one[QUORUM], 0.85);
    check_rate("fenced_rate", "rate, with tokens / bare, three answered", &on_one[FENCED],
               &on_one[QUORUM], 0.5);
    check_rate("plain_rate_free", "rate, fencing = off / bare, three answered, free", &free[PLAIN],
               &free[QUORUM], 0.85);
    check_rate("fenced_rate_free", "rate, with tokens / bare, three answered, free", &free[FENCED],
               &free[QUORUM], 0.5);
    check_at_most("dead_over_plain", "time of a cycle, one of the five dead / all there",
                  &on_one[DEAD], &on_one[PLAIN], 1.1);
    check_at_most("hanging_over_plain", "time of a cycle, one of the five hanging / all there",
                  &on_one[HANGING], &on_one[PLAIN], 1.1);
}

int main(int argc, char **argv)
{
    static struct place on_one, free;
    struct bench_case cases[2 * CASES];
    bench.rounds = 31;
    bench_begin(argc, argv, "redlock", "one uncontended acquire + release on five Redis, per cycle",
                0.05);
    one = bench.cpu != BENCH_ANY_CPU ? bench.cpu : bench_first_cpu();
    open_place(&on_one, one);
    open_place(&free, bench.cpu);
    make_cases(cases, &on_one, false);
    make_cases(cases + CASES, &free, true);
    bench_rounds(cases, 2 * CASES);
    check_all(cases, cases + CASES);
    close_place(&on_one);
    close_place(&free);
    return bench_end();
}
