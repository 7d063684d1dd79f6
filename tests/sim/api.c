/* api.c - the functions of sim.h: how a test reads the sim's backend and changes its behaviour.
 *
 * Each takes the one mutex and calls store.c or flight.c. None of them completes an op, because that belongs in a
 * pump: they wake the instances concerned instead. */
#include "internal.h"

#include <string.h>
#include <time.h>
#include <utlist.h>

static int api_script(const sim_rule *rule)
{
    sim_lock();
    int number = script_add(rule);
    sim_unlock(NULL);
    return number;
}

static void api_end(int rule)
{
    sim_lock();
    script_end(rule);
    sim_unlock(NULL);
}

static void api_let_go(int rule)
{
    sim_lock();
    flight_let_go(rule);
    sim_unlock(NULL);
}

static uint64_t api_hits(int rule)
{
    sim_lock();
    uint64_t hits = script_hits(rule);
    sim_unlock(NULL);
    return hits;
}

static uint64_t api_held(int rule)
{
    sim_lock();
    uint64_t held = flight_held(rule);
    sim_unlock(NULL);
    return held;
}

static bool api_wait_hits(int rule, uint64_t n, int64_t timeout_ms)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    int64_t deadline_ns = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec + timeout_ms * 1000000;
    sim_lock();
    bool come = script_wait_hits(rule, n, deadline_ns);
    sim_unlock(NULL);
    return come;
}

static bool api_lose(const char *name)
{
    sim_lock();
    struct claim *claim = store_find(name, strlen(name));
    bool held = claim && claim->held;
    if (held)
        claim_drop(claim);
    sim_unlock(NULL);
    return held;
}

static void lose_one(struct claim *claim, void *argument)
{
    (void)argument;
    claim_drop(claim);
}

static void api_lose_all(void)
{
    sim_lock();
    store_each(lose_one, NULL);
    flight_lose_grants();
    sim_unlock(NULL);
}

static uint64_t api_seize(const char *name, int64_t expires_ns)
{
    sim_lock();
    struct claim *claim = store_name(name, strlen(name));
    uint64_t token = claim && claim_seize(claim, expires_ns, sim_any_now()) ? claim->token : 0;
    sim_unlock(NULL);
    return token;
}

static bool api_give_back(const char *name)
{
    sim_lock();
    struct claim *claim = store_find(name, strlen(name));
    bool held = claim && claim->held;
    if (held) {
        claim_drop(claim);
        claim_freed(claim, sim_any_now());
    }
    sim_unlock(NULL);
    return held;
}

static void api_news_all(void)
{
    struct instance *instance;
    sim_lock();
    DL_FOREACH (sim_instances, instance) {
        instance->news_all = true;
        sim_dirty(instance);
    }
    sim_unlock(NULL);
}

static void api_deaf(bool on)
{
    sim_lock();
    sim_deaf = on;
    sim_unlock(NULL);
}

static bool api_holds(const char *name, uint64_t token)
{
    sim_lock();
    struct claim *claim = store_find(name, strlen(name));
    bool holds = claim && claim_of_token(claim, token) != NULL;
    sim_unlock(NULL);
    return holds;
}

static void api_doubt_all(void)
{
    struct instance *instance;
    sim_lock();
    DL_FOREACH (sim_instances, instance) {
        instance->doubt_all = true;
        sim_dirty(instance);
    }
    sim_unlock(NULL);
}

static void api_tokens_from(uint64_t token)
{
    sim_lock();
    store_tokens_from(token);
    sim_unlock(NULL);
}

static uint64_t api_count(int kind)
{
    sim_lock();
    uint64_t count = flight_count(kind);
    sim_unlock(NULL);
    return count;
}

static void count_held(struct claim *claim, void *count)
{
    *(size_t *)count += claim->held;
}

static size_t claim_waiters(const struct claim *claim)
{
    struct watch *watch;
    int count = 0;
    if (claim->extra)
        DL_COUNT2(claim->extra->watches, watch, count, claim_next);
    return (size_t)count + flight_queue_length(claim);
}

static void count_waiters(struct claim *claim, void *count)
{
    *(size_t *)count += claim_waiters(claim);
}

static size_t api_claims(void)
{
    size_t count = 0;
    sim_lock();
    store_each(count_held, &count);
    sim_unlock(NULL);
    return count;
}

static size_t api_waiters(const char *name)
{
    size_t count = 0;
    sim_lock();
    const struct claim *claim = name ? store_find(name, strlen(name)) : NULL;
    if (!name)
        store_each(count_waiters, &count);
    else if (claim)
        count = claim_waiters(claim);
    sim_unlock(NULL);
    return count;
}

static size_t api_outstanding(void)
{
    struct instance *instance;
    size_t count = 0;
    sim_lock();
    DL_FOREACH (sim_instances, instance) {
        count += flight_outstanding(instance);
    }
    sim_unlock(NULL);
    return count;
}

static size_t api_ghosts(void)
{
    sim_lock();
    size_t count = ghost_count();
    sim_unlock(NULL);
    return count;
}

static size_t api_instances(void)
{
    struct instance *instance;
    int count = 0;
    sim_lock();
    DL_COUNT(sim_instances, instance, count);
    sim_unlock(NULL);
    return (size_t)count;
}

static void api_reset(void)
{
    sim_lock();
    flight_reset();
    script_reset();
    store_reset();
    serve_reset();
    sim_unlock(NULL);
}

MORTISE_API const sim_api sim_api_v1 = {
    .size = sizeof(sim_api),
    .script = api_script,
    .end = api_end,
    .let_go = api_let_go,
    .hits = api_hits,
    .held = api_held,
    .wait_hits = api_wait_hits,
    .lose = api_lose,
    .lose_all = api_lose_all,
    .seize = api_seize,
    .give_back = api_give_back,
    .news_all = api_news_all,
    .tokens_from = api_tokens_from,
    .count = api_count,
    .claims = api_claims,
    .waiters = api_waiters,
    .outstanding = api_outstanding,
    .ghosts = api_ghosts,
    .instances = api_instances,
    .reset = api_reset,
    .deaf = api_deaf,
    .holds = api_holds,
    .doubt_all = api_doubt_all,
};
