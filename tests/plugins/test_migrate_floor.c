/* test_migrate_floor.c - tokens of the migrate plugin over days: what clients of phase both learn from a floor that
 * is a day ahead, and what it is worth after the way back. */
#include "migrate_rig.h"

#define HOUR_MS (INT64_C(3600) * 1000)

static struct rig old, both, new;
static struct outcome got;
static const char *const clocks = "[sim]\nclock = yes\n[sim_other]\nclock = yes\n";
/* `from` counts over all names, as on sessions. */
static const char *const counts = "[sim]\nwithout = lease\n[sim_other]\nclock = yes\n";

/* The way of a step: a floor by tokens of both sides, above what is there. */
static uint64_t step_floor(uint64_t floor)
{
    uint64_t tokens[2], floors[2] = {floor, floor};
    for (unsigned side = 0; side < 2; side++) {
        struct rig rig = {NULL, NULL};
        side_open(&rig, side);
        mortise_lease *lease = take(&rig, MIGRATE_FLOOR_LOCK, NULL);
        tokens[side] = mortise_token(lease);
        CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_OK);
        CU_ASSERT_EQUAL(mortise_close(rig.handle, NULL), MORTISE_OK);
    }
    return migrate_floor_after(tokens, floors);
}

static uint64_t take_and_release(struct rig *rig, const char *name)
{
    mortise_lease *lease = take(rig, name, NULL);
    uint64_t token = mortise_token(lease);
    CU_ASSERT_EQUAL(mortise_release_nowait(lease, NULL), MORTISE_OK);
    settle();
    return token;
}

/* A client of phase both waits for one of phase new, whose token is a day ahead; works on for so long; takes a name,
 * which one of phase new then takes some times; and the fleet goes back. */
static void test_days(const char *settings, int64_t hours, bool raised)
{
    uint64_t last = 0, floor;
    other->reset();
    migrate_open(&both, "both", settings);
    if (raised)
        sim->tokens_from((uint64_t)now_ns() / 1000 + 5 * MIGRATE_FLOOR_LEAD_US);
    take_and_release(&both, "warm");
    floor = step_floor(0);
    register_set(MIGRATE_FROM, MIGRATE_BOTH, 0);
    register_set(MIGRATE_TO, MIGRATE_BOTH | MIGRATE_NEW, floor);
    rig_close(&both); /* the restart in which it learns the floor */
    migrate_open(&both, "both", settings);
    migrate_open(&new, "new", settings);
    mortise_lease *lease = take(&new, "n", NULL);
    want(&both, &got, "n", FOREVER);
    advance_ms(20000);
    CU_ASSERT_EQUAL(got.calls, 0);
    CU_ASSERT_EQUAL(mortise_release_nowait(lease, NULL), MORTISE_OK);
    advance_ms(3000);
    CU_ASSERT_EQUAL_FATAL(got.status, MORTISE_OK);
    CU_ASSERT_EQUAL(mortise_release_nowait(got.lease, NULL), MORTISE_OK);
    advance_ms(hours * HOUR_MS);
    last = take_and_release(&both, "m");
    for (int i = 0; i < 5; i++) {
        uint64_t token = take_and_release(&new, "m");
        CU_ASSERT(token > last);
        last = token;
    }
    rig_close(&new);
    floor = step_floor(floor);
    register_set(MIGRATE_TO, MIGRATE_BOTH, floor);
    register_set(MIGRATE_FROM, MIGRATE_OLD | MIGRATE_BOTH, floor);
    migrate_open(&old, "old", settings);
    CU_ASSERT(take_and_release(&old, "m") > last);
    rig_close(&old);
    rig_close(&both);
    ASSERT_NOTHING_LEFT_ANYWHERE();
}

/* T does not stay a day ahead of the clocks. */
static void test_clocks(void)
{
    test_days(clocks, 1, false);
    sim->reset();
    test_days(clocks, 25, false);
}

/* `from` counts from far ahead of what the clock of `to` says. */
static void test_one_counts(void)
{
    test_days(counts, 1, true);
    sim->reset();
    test_days(counts, 25, true);
}

/* Floors of quick steps have put a name's tokens above the clock by days, and it is waited for, for days, in phase
 * both: it stays below the floor of the next step. */
static void test_quick_steps(void)
{
    const int steps = 3;
    uint64_t floor = 0;
    other->reset();
    for (int i = 0; i < steps; i++)
        floor = step_floor(floor);
    register_set(MIGRATE_FROM, MIGRATE_BOTH, 0);
    register_set(MIGRATE_TO, MIGRATE_BOTH | MIGRATE_NEW, floor);
    migrate_open(&both, "both", clocks);
    migrate_open(&new, "new", clocks);
    mortise_lease *lease = take(&new, "n", NULL);
    want(&both, &got, "n", FOREVER);
    advance_ms(steps * 24 * HOUR_MS);
    CU_ASSERT_EQUAL(got.calls, 0);
    CU_ASSERT_EQUAL(mortise_release_nowait(lease, NULL), MORTISE_OK);
    advance_ms(3000);
    CU_ASSERT_EQUAL_FATAL(got.status, MORTISE_OK);
    uint64_t last = mortise_token(got.lease);
    CU_ASSERT(last > floor);
    CU_ASSERT_EQUAL(mortise_release_nowait(got.lease, NULL), MORTISE_OK);
    settle();
    rig_close(&new);
    floor = step_floor(floor);
    register_set(MIGRATE_TO, MIGRATE_BOTH, floor);
    register_set(MIGRATE_FROM, MIGRATE_OLD | MIGRATE_BOTH, floor);
    CU_ASSERT(floor > last);
    rig_close(&both);
    ASSERT_NOTHING_LEFT_ANYWHERE();
}

/* An owner's hold by a client of another phase has a token that no floor raises: where the other side gives a larger
 * one the two leases would have different ones, and nothing is left of the second. */
static void test_owners(void)
{
    struct rig side = {NULL, NULL};
    mortise_lease *lease;
    other->reset();
    migrate_open(&old, "old", clocks);
    migrate_open(&both, "both", clocks);
    lease = take(&old, "a", MORTISE_OPTIONS(.owner = "x"));
    uint64_t outdone = mortise_token(lease);
    for (side_open(&side, MIGRATE_TO); outdone <= mortise_token(lease);) {
        mortise_lease *short_one = take(&side, "a", NULL);
        outdone = mortise_token(short_one);
        CU_ASSERT_EQUAL(mortise_release(short_one, NULL), MORTISE_OK);
    }
    CU_ASSERT_EQUAL(mortise_close(side.handle, NULL), MORTISE_OK);
    size_t claims = sim->claims(), presences = other->claims();
    want(&both, &got, "a", MORTISE_OPTIONS(.wait_ms = 0, .owner = "x"));
    CU_ASSERT_EQUAL(got.status, MORTISE_BUSY);
    CU_ASSERT_EQUAL(sim->claims(), claims + 1); /* the presence of `both` */
    CU_ASSERT_EQUAL(other->claims(), presences + 1);
    CU_ASSERT_EQUAL(mortise_state(lease), MORTISE_STATE_HELD);
    CU_ASSERT_EQUAL(mortise_release_nowait(lease, NULL), MORTISE_OK);
    settle();
    want(&both, &got, "a", MORTISE_OPTIONS(.wait_ms = 0, .owner = "x"));
    CU_ASSERT_EQUAL_FATAL(got.status, MORTISE_OK);
    CU_ASSERT(mortise_token(got.lease) > outdone);
    CU_ASSERT_EQUAL(mortise_release_nowait(got.lease, NULL), MORTISE_OK);
    settle();
    rig_close(&old);
    rig_close(&both);
    ASSERT_NOTHING_LEFT_ANYWHERE();
}

/* `to` is waited for, for seconds: what it gives then is not above what `from` gave, and the place in the queue of
 * `from` is not lost for a second try. */
static void test_wait_of_seconds(void)
{
    other->reset();
    register_set(MIGRATE_FROM, MIGRATE_BOTH, 0);
    register_set(MIGRATE_TO, MIGRATE_BOTH | MIGRATE_NEW, 0);
    migrate_open(&both, "both", clocks);
    migrate_open(&new, "new", clocks);
    take_and_release(&both, "warm");
    mortise_lease *lease = take(&new, "n", NULL);
    want(&both, &got, "n", FOREVER);
    uint64_t asked = sim->count(MORTISE_OP_ACQUIRE);
    advance_ms(7000);
    CU_ASSERT_EQUAL(got.calls, 0);
    CU_ASSERT_EQUAL(mortise_release_nowait(lease, NULL), MORTISE_OK);
    advance_ms(3000);
    CU_ASSERT_EQUAL_FATAL(got.status, MORTISE_OK);
    CU_ASSERT_EQUAL(sim->count(MORTISE_OP_ACQUIRE), asked);
    CU_ASSERT_EQUAL(mortise_release_nowait(got.lease, NULL), MORTISE_OK);
    settle();
    rig_close(&new);
    rig_close(&both);
    ASSERT_NOTHING_LEFT_ANYWHERE();
}

int main(void)
{
    static const CU_TestInfo tests[] = {
        {"two clocks", test_clocks},
        {"a clock, and one that counts", test_one_counts},
        {"quick steps", test_quick_steps},
        {"an owner in two phases", test_owners},
        {"a wait of seconds", test_wait_of_seconds},
        CU_TEST_INFO_NULL,
    };
    return migrate_rig_run("migrate_floor", tests);
}
