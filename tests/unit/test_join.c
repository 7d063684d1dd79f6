/* test_join.c - shared callers of one process that join a claim: the table of core/lock/join.c. */
#include "client/calls.h"
#include "rig.h"

#define CONFIG "ttl = 3s\nhandover_window = 1s\n"
#define SHARED MORTISE_OPTIONS(.wait_ms = MORTISE_WAIT_FOREVER, .mode = MORTISE_SHARED)
#define WATCHED(states)                                                                            \
    MORTISE_OPTIONS(.mode = MORTISE_SHARED, .on_state = on_state, .user_data = (states))

static struct rig rig, other;
static struct outcome got, outcomes[64];
static mortise_lease *host, *guest;

static void start(const char *config)
{
    rig_open(&rig, config);
    tap(&rig);
}

static void finish(void)
{
    settle();
    ASSERT_NOTHING_LEFT();
    rig_close(&rig);
}

static void give_back(mortise_lease *lease)
{
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_OK);
    settle();
}

static bool joined(const mortise_options *options)
{
    uint64_t before = stats_of(&rig).joins;
    mortise_lease *lease = take(&rig, "a", options);
    bool was = stats_of(&rig).joins > before;
    give_back(lease);
    return was;
}

static void test_join(void)
{
    start(CONFIG);
    host = take(&rig, "a", SHARED);
    guest = take(&rig, "a", SHARED);
    CU_ASSERT_EQUAL(tapped_count(MORTISE_OP_ACQUIRE), 1);
    CU_ASSERT_PTR_NOT_EQUAL(guest, host);
    CU_ASSERT_EQUAL(mortise_token(guest), mortise_token(host));
    CU_ASSERT_EQUAL(mortise_remaining_ms(guest), mortise_remaining_ms(host));
    CU_ASSERT_EQUAL(stats_of(&rig).held, 2);
    CU_ASSERT_EQUAL(mortise_downgrade(guest, NULL), MORTISE_OK);
    /* the lease of the host ends first: the guest goes on, and is renewed */
    give_back(host);
    CU_ASSERT_EQUAL(tapped_count(MORTISE_OP_RELEASE), 0);
    CU_ASSERT_EQUAL(mortise_state(host), MORTISE_STATE_LOST);
    CU_ASSERT_EQUAL(mortise_release(host, NULL), MORTISE_INVALID);
    advance_ms(20000);
    CU_ASSERT_EQUAL(mortise_state(guest), MORTISE_STATE_HELD);
    CU_ASSERT_EQUAL(mortise_extend(guest, 1000, NULL), MORTISE_INVALID);
    give_back(guest);
    CU_ASSERT_EQUAL(tapped_count(MORTISE_OP_RELEASE), 1);
    CU_ASSERT_EQUAL(stats_of(&rig).held, 0);
    /* the guest ends first */
    host = take(&rig, "a", SHARED);
    give_back(take(&rig, "a", SHARED));
    CU_ASSERT_EQUAL(mortise_state(host), MORTISE_STATE_HELD);
    give_back(host);
    CU_ASSERT_EQUAL(tapped_count(MORTISE_OP_RELEASE), 2);
    finish();
}

/* A crowd that waits for the same writer costs one request. */
static void test_crowd(void)
{
    rig_open(&other, CONFIG);
    start(CONFIG);
    mortise_lease *writer = take(&other, "a", NULL);
    for (int i = 0; i < 64; i++)
        want(&rig, &outcomes[i], "a", SHARED);
    tap_count = 0;
    give_back(writer);
    advance_ms(100);
    CU_ASSERT_EQUAL(tapped_count(MORTISE_OP_ACQUIRE), 1);
    for (int i = 0; i < 64; i++) {
        CU_ASSERT_EQUAL_FATAL(outcomes[i].status, MORTISE_OK);
        CU_ASSERT_EQUAL(outcomes[i].order, i + 1);
    }
    for (int i = 0; i < 64; i++)
        give_back(outcomes[i].lease);
    CU_ASSERT_EQUAL(tapped_count(MORTISE_OP_RELEASE), 1);
    rig_close(&other);
    finish();
}

static void test_who_may_not(void)
{
    start(CONFIG "handover_max = 3\n");
    host = take(&rig, "a", SHARED);
    CU_ASSERT(joined(SHARED));
    CU_ASSERT_FALSE(joined(MORTISE_OPTIONS(.mode = MORTISE_SHARED, .ttl_ms = 2000)));
    CU_ASSERT_FALSE(joined(MORTISE_OPTIONS(.mode = MORTISE_SHARED, .no_renew = true)));
    CU_ASSERT_FALSE(joined(MORTISE_OPTIONS(.mode = MORTISE_SHARED, .max_hold_ms = 1000)));
    CU_ASSERT_EQUAL(stats_of(&rig).joins, 1);
    give_back(host);
    host = take(&rig, "a", SHARED);
    for (int i = 0; i < 3; i++)
        CU_ASSERT(joined(SHARED));
    CU_ASSERT_FALSE(joined(SHARED)); /* handover_max */
    give_back(host);
    host = take(&rig, "a", SHARED);
    advance_ms(999);
    CU_ASSERT(joined(SHARED));
    advance_ms(1);
    CU_ASSERT_FALSE(joined(SHARED)); /* handover_window */
    give_back(host);
    /* permits are counted in the backend */
    host = take(&rig, "a", MORTISE_OPTIONS(.mode = MORTISE_SHARED, .permits = 2));
    CU_ASSERT_FALSE(joined(MORTISE_OPTIONS(.mode = MORTISE_SHARED, .permits = 2)));
    give_back(host);
    finish();
}

/* Not past a writer of this process, and not while the claim is being checked. */
static void test_who_waits(void)
{
    start(CONFIG);
    host = take(&rig, "a", SHARED);
    want(&rig, &got, "a", FOREVER);
    want(&rig, &outcomes[0], "a", SHARED);
    CU_ASSERT_EQUAL(got.calls + outcomes[0].calls, 0);
    CU_ASSERT_EQUAL(mortise_cancel(rig.handle, got.request), MORTISE_OK);
    advance_ms(3000);
    CU_ASSERT_EQUAL_FATAL(outcomes[0].status, MORTISE_OK);
    give_back(outcomes[0].lease);
    give_back(host);
    host = take(&rig, "a", SHARED);
    int rule = SCRIPT(.kinds = OP(RENEW), .times = 1, .hold_reply = true);
    static char name[] = "a";
    tapped_host()->doubt(tapped_host(), name, 1);
    settle();
    CU_ASSERT_FALSE(joined(SHARED));
    sim->let_go(rule);
    settle();
    give_back(host);
    finish();
}

/* A thread that was stopped on its way to the lock does not join a claim that has ended meanwhile. */
static void test_late_caller(void)
{
    start(CONFIG);
    host = take(&rig, "a", SHARED);
    mortise_options options;
    struct waiter waiter;
    struct full_name name = {"a", 1};
    memset(&waiter, 0, sizeof(waiter));
    CU_ASSERT_EQUAL(call_read_options(rig.client, SHARED, &options, NULL), MORTISE_OK);
    call_fill_waiter(&waiter, &options);
    sleeper_init(&waiter.sleeper, &rig.client->pump);
    set_now(now_ns() + 4000 * MS);
    sim->lose_all();
    pthread_mutex_lock(&rig.client->locks.lock);
    CU_ASSERT_EQUAL(call_join_locked(&rig.client->locks, &name, &waiter), MORTISE_OK);
    locks_unlock(&rig.client->locks, START_NOW);
    CU_ASSERT_EQUAL_FATAL(call_await(rig.client, &waiter, MORTISE_NEVER), MORTISE_OK);
    CU_ASSERT_EQUAL(stats_of(&rig).joins, 0);
    CU_ASSERT_EQUAL(mortise_state(waiter.lease), MORTISE_STATE_HELD);
    give_back(waiter.lease);
    CU_ASSERT_EQUAL(mortise_release(host, NULL), MORTISE_LOST);
    finish();
}

/* Lost by the backend's word: all of them, each with its callback. */
static void test_lost(bool without_host)
{
    struct states of_host = {0}, of_guest = {0}, of_other = {0};
    start(CONFIG);
    host = take(&rig, "a", WATCHED(&of_host));
    guest = take(&rig, "a", WATCHED(&of_guest));
    mortise_lease *third = take(&rig, "a", WATCHED(&of_other));
    if (without_host)
        give_back(host);
    give_back(third);
    sim->lose("a");
    advance_ms(1100);
    CU_ASSERT_EQUAL(mortise_state(guest), MORTISE_STATE_LOST);
    CU_ASSERT_EQUAL(of_guest.count, 1);
    CU_ASSERT_EQUAL(of_guest.seen[0], MORTISE_STATE_LOST);
    CU_ASSERT_PTR_EQUAL(of_guest.lease, guest);
    CU_ASSERT_EQUAL(of_host.count, without_host ? 0 : 1);
    CU_ASSERT_EQUAL(of_other.count, 0);
    CU_ASSERT_EQUAL(stats_of(&rig).losses, without_host ? 1 : 2);
    CU_ASSERT_EQUAL(mortise_release(guest, NULL), MORTISE_LOST);
    if (!without_host)
        CU_ASSERT_EQUAL(mortise_release(host, NULL), MORTISE_LOST);
    CU_ASSERT_EQUAL(stats_of(&rig).held, 0);
    finish();
}

static void test_host_lost(void)
{
    test_lost(false);
}

static void test_lost_without_a_host(void)
{
    test_lost(true);
}

/* No answer: suspect, then lost at the deadline, which is the same for all; what a renewal may have moved is released. */
static void test_deadline(bool without_host)
{
    struct states of_guest = {0};
    start(CONFIG "handover_max = 100\n");
    host = take(&rig, "a", SHARED);
    guest = take(&rig, "a", WATCHED(&of_guest));
    int64_t until_ns = now_ns() + mortise_remaining_ms(guest) * MS;
    if (without_host)
        give_back(host);
    int rule = SCRIPT(.kinds = OP(RENEW), .fate = SIM_LOSE_REPLY, .status = MORTISE_INDETERMINATE);
    advance_ms(1100);
    CU_ASSERT_EQUAL(mortise_state(guest), MORTISE_STATE_SUSPECT);
    sim->end(rule);
    advance_ms(1000);
    CU_ASSERT_EQUAL(mortise_state(guest), MORTISE_STATE_HELD);
    CU_ASSERT(mortise_remaining_ms(guest) > 1000);
    until_ns = now_ns() + mortise_remaining_ms(guest) * MS;
    rule = SCRIPT(.kinds = OP(RENEW), .fate = SIM_LOSE_REPLY, .status = MORTISE_INDETERMINATE);
    while (mortise_remaining_ms(guest) > 0)
        advance_ms(100);
    advance_ms(1); /* time goes by outside of it, too: the watchdog sees the deadline now */
    CU_ASSERT(now_ns() >= until_ns);
    CU_ASSERT_EQUAL(of_guest.seen[of_guest.count - 1], MORTISE_STATE_LOST);
    sim->end(rule);
    CU_ASSERT_EQUAL(mortise_release(guest, NULL), MORTISE_LOST);
    if (!without_host)
        CU_ASSERT_EQUAL(mortise_release(host, NULL), MORTISE_LOST);
    advance_ms(1000);
    finish();
}

static void test_guest_at_the_deadline(void)
{
    test_deadline(false);
    test_deadline(true);
}

/* A renewal for guests only is out at their deadline, and gets no answer: it is canceled, so that nothing of it is left. */
static void test_renewal_out_at_the_deadline(void)
{
    start(CONFIG);
    host = take(&rig, "a", SHARED);
    guest = take(&rig, "a", SHARED);
    give_back(host);
    int away = SCRIPT(.kinds = OP(RENEW), .fate = SIM_REFUSE, .status = MORTISE_UNREACHABLE);
    advance_ms(2700);
    CU_ASSERT_EQUAL(mortise_state(guest), MORTISE_STATE_SUSPECT);
    sim->end(away);
    int silent = SCRIPT(.kinds = OP(RENEW), .fate = SIM_SILENT);
    claims_doubt(&rig.client->locks, "a",
                 1); /* the next try comes so late that its own time ends at the deadline */
    settle();
    CU_ASSERT_EQUAL_FATAL(sim->hits(silent), 1);
    CU_ASSERT(mortise_remaining_ms(guest) > 0);
    CU_ASSERT_EQUAL(sim->outstanding(), 1);
    advance_ms(mortise_remaining_ms(guest) + 1);
    CU_ASSERT_EQUAL(mortise_state(guest), MORTISE_STATE_LOST);
    CU_ASSERT_EQUAL(sim->hits(silent), 1);
    CU_ASSERT_EQUAL_FATAL(sim->outstanding(), 0);
    CU_ASSERT_EQUAL(rig.client->locks.outstanding, 0);
    CU_ASSERT_EQUAL(mortise_release(guest, NULL), MORTISE_LOST);
    sim->end(silent);
    finish();
}

/* A thread sees the deadline of a guest pass just before the answer to a renewal comes: that guest alone is lost. */
static void test_guest_lost_alone(void)
{
    struct states of_guest = {0};
    start(CONFIG);
    host = take(&rig, "a", SHARED);
    guest = take(&rig, "a", WATCHED(&of_guest));
    struct claim *claim = slab_find(&claim_slab, guest);
    atomic_store(&claim->deadline_ns,
                 now_ns() + 100 * MS); /* as if its clock had been read later */
    set_now(now_ns() + 200 * MS);
    CU_ASSERT_EQUAL(mortise_state(guest), MORTISE_STATE_LOST);
    advance_ms(1000);
    CU_ASSERT_EQUAL(of_guest.count, 1);
    CU_ASSERT_EQUAL(mortise_state(host), MORTISE_STATE_HELD);
    CU_ASSERT_EQUAL(mortise_release(guest, NULL), MORTISE_LOST);
    give_back(host);
    finish();
}

/* The same, and the guest was the last that used the claim: it is released, not renewed for nobody. A renewal finds the
 * guest's deadline passed, or the call of the guest's holder does. */
static void test_last_guest_lost_alone(bool by_renewal)
{
    start(CONFIG);
    host = take(&rig, "a", SHARED);
    guest = take(&rig, "a", SHARED);
    give_back(host);
    struct claim *claim = slab_find(&claim_slab, guest);
    atomic_store(&claim->deadline_ns, now_ns() + 100 * MS);
    set_now(now_ns() + 200 * MS);
    if (by_renewal)
        advance_ms(1000);
    CU_ASSERT_EQUAL(mortise_release(guest, NULL), MORTISE_LOST);
    finish();
}

static void test_nobody_left(void)
{
    test_last_guest_lost_alone(true);
    test_last_guest_lost_alone(false);
}

/* The limit of one reader is none for those that share its claim: the claim is not passed on to it. */
static void test_heir_with_a_limit(void)
{
    start(CONFIG);
    host = take(&rig, "a", SHARED);
    guest = take(&rig, "a", SHARED);
    int rule = SCRIPT(.kinds = OP(ACQUIRE), .times = 1, .hold_reply = true);
    want(&rig, &got, "a",
         MORTISE_OPTIONS(.wait_ms = MORTISE_WAIT_FOREVER, .mode = MORTISE_SHARED,
                         .max_hold_ms = 500));
    CU_ASSERT_EQUAL(got.calls, 0);
    give_back(host);
    sim->let_go(rule);
    settle();
    CU_ASSERT_EQUAL_FATAL(got.status, MORTISE_OK);
    advance_ms(5000);
    CU_ASSERT_EQUAL(mortise_state(guest), MORTISE_STATE_HELD);
    CU_ASSERT_EQUAL(mortise_release(got.lease, NULL), MORTISE_LOST);
    give_back(guest);
    finish();
}

/* The client closes with a host that has no lease of its own. */
static void test_close(void)
{
    start(CONFIG);
    host = take(&rig, "a", SHARED);
    guest = take(&rig, "a", SHARED);
    give_back(host);
    (void)take(&rig, "a", SHARED);
    rig_close(&rig);
    CU_ASSERT_EQUAL(mortise_state(guest), MORTISE_STATE_LOST);
    CU_ASSERT_EQUAL(sim->claims(), 0);
}

int main(void)
{
    static const CU_TestInfo tests[] = {
        {"a reader joins", test_join},
        {"a crowd costs one request", test_crowd},
        {"who may not join", test_who_may_not},
        {"who waits", test_who_waits},
        {"a late caller", test_late_caller},
        {"the host is lost", test_host_lost},
        {"lost without a lease of its own", test_lost_without_a_host},
        {"suspect, and the deadline", test_guest_at_the_deadline},
        {"a renewal is out at the deadline", test_renewal_out_at_the_deadline},
        {"a guest is lost alone", test_guest_lost_alone},
        {"the last guest is lost alone", test_nobody_left},
        {"an heir with a limit", test_heir_with_a_limit},
        {"close", test_close},
        CU_TEST_INFO_NULL,
    };
    return rig_run("join", tests);
}
