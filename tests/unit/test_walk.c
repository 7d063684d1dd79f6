/* test_walk.c - claims and waitlists on a random walk: callers, owners, time-outs, cancels, hand-overs and faults of
 * every kind, in any order, also while memory is short, with exclusive locks alone and among shared ones. Whatever happened, nothing may be left at the end: no claim,
 * no request, no timer, no caller.
 *
 * `walk SEED` walks one seed with each configuration, `walk SEED COUNT` the next COUNT seeds. A failure prints its
 * seed. */
#include "lock/lease.h"
#include "rig.h"

#define STEPS 400
#define CALLERS 24

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *block, size_t size);

static uint64_t random_state;

static uint32_t draw(uint32_t below)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (uint32_t)(random_state >> 20) % below;
}

/* ---- memory that is short ------------------------------------------------------------------------ */

static uint32_t fails_one_in; /* 0: never */
static _Thread_local bool memory_may_fail;

static bool fails(void)
{
    return memory_may_fail && fails_one_in > 0 && draw(fails_one_in) == 0;
}

void *malloc(size_t size)
{
    return fails() ? NULL : __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
    return fails() ? NULL : __libc_calloc(count, size);
}

void *reallocarray(void *block, size_t count, size_t size)
{
    return fails() ? NULL : __libc_realloc(block, count * size);
}

/* ---- the callers --------------------------------------------------------------------------------- */

static mortise_lease *held[CALLERS];
static struct outcome outcomes[CALLERS];
static bool waits[CALLERS];
static bool modes; /* shared leases, permits and downgrades too */

static void ignore_state(mortise_lease *lease, mortise_lease_state state, void *user_data)
{
    (void)lease;
    (void)state;
    (void)user_data;
}

/* Keeps the leases that came. */
static void collect(void)
{
    for (int i = 0; i < CALLERS; i++) {
        if (!waits[i] || outcomes[i].calls == 0)
            continue;
        CU_ASSERT_EQUAL(outcomes[i].calls, 1);
        waits[i] = false;
        int k = 0;
        while (k < CALLERS && held[k] != NULL)
            k++;
        if (outcomes[i].status == MORTISE_OK && k < CALLERS)
            held[k] = outcomes[i].lease;
        else if (outcomes[i].status == MORTISE_OK)
            mortise_release_nowait(outcomes[i].lease, NULL);
    }
}

/* Most are shared; "c" has permits. Owners are exclusive. */
static void choose_mode(mortise_options *options, const char *name)
{
    if (!modes || options->owner != NULL || draw(3) == 0)
        return;
    options->mode = MORTISE_SHARED;
    options->permits = strcmp(name, "c") == 0 ? 2 : 0;
}

static void acquire_one(struct rig *rig, int i, const char *name)
{
    static const int64_t wait_ms[] = {0, 1, 30, 400, 5000, MORTISE_WAIT_FOREVER};
    static const char *const owners[] = {NULL, NULL, NULL, "x", "y"};
    if (waits[i])
        return;
    memset(&outcomes[i], 0, sizeof(outcomes[i]));
    mortise_options options =
        *MORTISE_OPTIONS(.wait_ms = wait_ms[draw(6)], .ttl_ms = draw(4) > 0 ? 1000 : 700,
                         .owner = owners[draw(5)], .no_renew = draw(6) == 0,
                         .max_hold_ms = draw(6) == 0 ? 1500 : 0,
                         .on_state = draw(2) > 0 ? ignore_state : NULL);
    choose_mode(&options, name);
    mortise_status status = mortise_acquire_async(rig->handle, name, &options, told, &outcomes[i],
                                                  &outcomes[i].request, NULL);
    CU_ASSERT(status == MORTISE_OK || status == MORTISE_NOMEM);
    waits[i] = status == MORTISE_OK;
}

static void release_one(int i)
{
    if (held[i] != NULL)
        mortise_release_nowait(held[i], NULL);
    held[i] = NULL;
}

/* As mortise_downgrade() of a caller that gives up at once: nobody moves the clock while a caller waits. */
static void downgrade_one(struct rig *rig, int i)
{
    struct locks *locks = &rig->client->locks;
    struct release_wait wait = {.error = NULL};
    if (held[i] == NULL || mortise_state(held[i]) == MORTISE_STATE_LOST)
        return;
    struct claim *claim = slab_find(&claim_slab, held[i]);
    sleeper_init(&wait.sleeper, &rig->client->pump);
    pthread_mutex_lock(&locks->lock);
    if (claim->owner_len == 0 && claim->mode == MORTISE_EXCLUSIVE) {
        lease_downgrade_locked(claim, &wait);
        if (claim->downgrader != NULL)
            claim_downgrade_detach_locked(claim);
    }
    locks_unlock(locks, START_NOW);
}

static void make_fault(void)
{
    static const sim_fate fates[] = {SIM_REFUSE, SIM_LOSE_REPLY,      SIM_GHOST,
                                     SIM_SILENT, SIM_SILENT_EXECUTED, SIM_PASS};
    static const mortise_status refusals[] = {MORTISE_INDETERMINATE, MORTISE_UNREACHABLE,
                                              MORTISE_BACKEND};
    static const uint32_t kinds[] = {OP(ACQUIRE), OP(RENEW), OP(RELEASE),
                                     OP(ACQUIRE) | OP(RENEW) | OP(RELEASE)};
    sim_fate fate = fates[draw(6)];
    SCRIPT(.kinds = kinds[draw(4)], .times = 1 + (int)draw(3), .fate = fate,
           .status = fate == SIM_REFUSE ? refusals[draw(3)] : MORTISE_INDETERMINATE,
           .request_ns = draw(2) > 0 ? 0 : (int64_t)draw(1500) * MS,
           .reply_ns = draw(2) > 0 ? 0 : (int64_t)draw(1500) * MS,
           .on_cancel = draw(2) > 0 ? SIM_CANCEL_INDETERMINATE : SIM_CANCEL_CLEAN);
}

static void step(struct rig *rig)
{
    static const char *const names[] = {"a", "b", "c"};
    const char *name = names[draw(3)];
    int i = (int)draw(CALLERS);
    uint32_t what = draw(16);
    if (what < 4)
        acquire_one(rig, i, name);
    else if (what < 7)
        release_one(i);
    else if (what == 7 && waits[i])
        mortise_cancel(rig->handle, outcomes[i].request);
    else if (what == 8)
        make_fault();
    else if (what == 9)
        sim->news_all();
    else if (what == 10 && draw(4) == 0)
        sim->lose(name);
    else if (what == 11 && draw(3) == 0)
        sim->seize(name, now_ns() + (int64_t)draw(500) * MS);
    else if (what == 12 && modes)
        downgrade_one(rig, i);
    else if (what > 11)
        advance_ms((int64_t)draw(200));
    settle();
    collect();
}

/* ---- the walk ------------------------------------------------------------------------------------ */

static void give_up_all(struct rig *rig)
{
    for (int i = 0; i < CALLERS; i++) {
        release_one(i);
        if (waits[i])
            mortise_cancel(rig->handle, outcomes[i].request);
    }
    settle();
    collect();
    for (int i = 0; i < CALLERS; i++)
        release_one(i);
    for (int i = 0; i < 40 && rig->client->locks.outstanding > 0; i++)
        advance_ms(1000);
}

static size_t free_claims(void)
{
    size_t count = 0;
    for (const struct slot *slot = claim_slab.free; slot != NULL; slot = slot->next_free)
        count++;
    return count;
}

static void walk(uint64_t seed, const char *settings, uint32_t one_in)
{
    struct rig rig;
    unsigned failures = CU_get_number_of_failures();
    random_state = seed * 2654435761u + UINT64_C(88172645463325252);
    rig_open(&rig, settings);
    fails_one_in = one_in;
    memory_may_fail = true;
    for (int i = 0; i < STEPS; i++)
        step(&rig);
    memory_may_fail = false;
    give_up_all(&rig);
    const struct locks *locks = &rig.client->locks;
    CU_ASSERT_EQUAL_FATAL(locks->outstanding, 0);
    CU_ASSERT_EQUAL(locks->stats.held, 0);
    CU_ASSERT_EQUAL(locks->stats.waiting, 0);
    CU_ASSERT_EQUAL(locks->timers.count, 0);
    CU_ASSERT_EQUAL(locks->timers.reserved, 0);
    CU_ASSERT_EQUAL(rig.client->pump.unattended, 0);
    CU_ASSERT_EQUAL(sim->waiters(NULL), 0);
    rig_close_any(&rig);
    CU_ASSERT_EQUAL(free_claims(), claim_slab.count);
    if (CU_get_number_of_failures() != failures)
        printf("    walk %llu fails (%s%s)\n", (unsigned long long)seed, modes ? "modes, " : "",
               settings);
    memset(held, 0, sizeof(held));
    memset(waits, 0, sizeof(waits));
    sim->reset();
    set_now(START_NS);
}

#define SETTINGS "unreachable_timeout = 3s\n"
static uint64_t first_seed = 1, seeds = 25;

/* Exclusive locks alone, then among shared ones. */
static void walks(const char *settings, uint32_t one_in)
{
    for (uint64_t seed = first_seed; seed < first_seed + seeds; seed++) {
        modes = false;
        walk(seed, settings, one_in);
        modes = true;
        walk(seed, settings, one_in);
    }
}

static void test_told(void)
{
    walks(SETTINGS, 0);
}

static void test_polled(void)
{
    walks(SETTINGS "[sim]\nnotify = no\n", 0);
}

static void test_queued(void)
{
    walks(SETTINGS "[sim]\nqueue = yes\nlatency = 5ms\n", 0);
}

static void test_short_of_memory(void)
{
    walks(SETTINGS "[sim]\nlatency = 5ms\n", 20);
}

int main(int argc, char **argv)
{
    static const CU_TestInfo tests[] = {
        {"the backend tells", test_told},
        {"the backend is polled", test_polled},
        {"the backend has a queue", test_queued},
        {"memory is short", test_short_of_memory},
        CU_TEST_INFO_NULL,
    };
    if (argc > 1) {
        first_seed = strtoull(argv[1], NULL, 10);
        seeds = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    }
    return rig_run("walk", tests);
}
