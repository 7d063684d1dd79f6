/* cluster_tests.c - three members: the leader is stopped, killed, cut off from the others, or goes on when there is another one; no
 * member reaches another. */
#include "stage.h"

#include <stdio.h>
#include <sys/resource.h>

enum fault_of_leader { STOPPED, KILLED, CUT_OFF };

static void say_ways(const char *command)
{
    for (int i = 0; i < stage.count; i++)
        CHECK(test_proxy_say(&stage.ways[i], "%s", command));
}

/* From now on that member can open no more descriptors, or some again. */
static bool limit_descriptors(int member, bool limited)
{
    char path[300];
    int pid = 0;
    struct rlimit limit;
    snprintf(path, sizeof path, "%s/%d.pid", stage.folder, member);
    FILE *file = fopen(path, "r");
    bool is_good = file != NULL && fscanf(file, "%d", &pid) == 1;
    if (file != NULL)
        fclose(file);
    if (!is_good || prlimit(pid, RLIMIT_NOFILE, NULL, &limit) != 0)
        return false;
    limit.rlim_cur = limited ? 3 : limit.rlim_max;
    return prlimit(pid, RLIMIT_NOFILE, &limit, NULL) == 0;
}

/* The member is cut off from the others, and its clients keep their connections. The others' way to it is closed. Its own
 * connections to them are cut; the others make theirs again, and it cannot, because it has no descriptors left. */
static bool cut_off(int member)
{
    bool is_good =
        limit_descriptors(member, true) && test_proxy_say(&stage.ways[member - 1], "refuse");
    say_ways("cut");
    return is_good;
}

static void break_leader(enum fault_of_leader fault, int leader)
{
    CHECK(fault == CUT_OFF ? cut_off(leader)
                           : stage_server(fault == STOPPED ? "freeze" : "kill", leader));
}

static bool answers(void *member)
{
    return ctl_at(*(int *)member, (const char *const[]){"get", "anything", NULL}, NULL, 0);
}

static void mend(enum fault_of_leader fault, int leader)
{
    if (fault != CUT_OFF) {
        CHECK(stage_server(fault == STOPPED ? "thaw" : "start", leader));
        return;
    }
    bool lives = limit_descriptors(leader, false);
    CHECK(test_proxy_say(&stage.ways[leader - 1], "accept"));
    if (lives && test_poll(answers, &leader, TEST_PATIENCE_MS / 2))
        return;
    printf("(without descriptors it ended, or listens no more) ");
    stage_server("kill", leader);
    CHECK(stage_server("start", leader));
    CHECK(test_poll(answers, &leader, 3 * TEST_PATIENCE_MS));
}

static bool leads_another(void *leader)
{
    int now = stage_leader();
    return now != 0 && now != *(int *)leader;
}

/* A client of all members: it holds on, and the next one gets it after the release. */
static void live_through(enum fault_of_leader fault)
{
    mortise_client *holder = client_direct("ttl=30s&timeout=1s&connect_timeout=20s"),
                   *client = client_direct("ttl=30s&timeout=1s&connect_timeout=20s");
    const char *name = fresh_name();
    mortise_lease *lease = take(holder, name);
    uint64_t token = mortise_token(lease);
    struct waiter waiter = {.other = lease};
    waiter_start(&waiter, client, name);
    CHECK(wait_contenders(holder, name, 2));
    int leader = stage_leader();
    break_leader(fault, leader);
    CHECK(test_poll(leads_another, &leader, 3 * TEST_PATIENCE_MS));
    CHECK(wait_contenders(holder, name, 2));
    CHECK(wait_state(lease, MORTISE_STATE_HELD, TEST_PATIENCE_MS));
    CHECK(test_count_get(&waiter.done) == 0);
    mend(fault, leader);
    CHECK(wait_contenders(holder, name, 2));
    give_back(lease);
    CHECK(waiter_join(&waiter) == MORTISE_OK);
    SAFE(mortise_token(waiter.lease) > token);
    give_back(waiter.lease);
    client_end(client);
    client_end(holder);
}

static void test_stopped(void)
{
    live_through(STOPPED);
}

static void test_killed(void)
{
    live_through(KILLED);
}

static void test_leader_cut_off(void)
{
    live_through(CUT_OFF);
}

/* Nobody has a majority: what is held is LOST at its deadline, and nobody gets anything. */
static void test_cut_off(void)
{
    mortise_client *client =
        client_direct("ttl=2s&timeout=1s&connect_timeout=2s&unreachable_timeout=2s");
    const char *name = fresh_name();
    mortise_lease *lease = take(client, name), *none = NULL;
    uint64_t token = mortise_token(lease);
    say_ways("refuse");
    CHECK(wait_state(lease, MORTISE_STATE_LOST, TEST_PATIENCE_MS));
    EXPECT(UNREACHABLE,
           mortise_acquire(client, fresh_name(), MORTISE_OPTIONS(.wait_ms = TEST_PATIENCE_MS),
                           &none, &detail));
    say_ways("accept");
    CHECK(stage_leader() != 0);
    EXPECT(LOST, mortise_release(lease, &detail));
    client_end(client);
    client = client_direct("ttl=30s&timeout=1s&connect_timeout=20s&unreachable_timeout=60s");
    lease = take(client, name);
    SAFE(mortise_token(lease) > token);
    give_back(lease);
    client_end(client);
}

/* A client of the leader alone: LOST at its deadline, and nobody has the lock earlier. */
static void lose(enum fault_of_leader fault)
{
    int leader = stage_leader(), another = leader % 3 + 1;
    mortise_client *holder = client_of(leader, "ttl=2s&timeout=10s&connect_timeout=1s"),
                   *client = client_of(another, "ttl=2s&timeout=1s&connect_timeout=20s");
    const char *name = fresh_name();
    mortise_lease *lease = take(holder, name);
    uint64_t token = mortise_token(lease);
    struct waiter waiter = {.other = lease};
    waiter_start(&waiter, client, name);
    CHECK(wait_contenders(client, name, 2));
    break_leader(fault, leader);
    CHECK(waiter_join(&waiter) == MORTISE_OK);
    SAFE(waiter.other_state == MORTISE_STATE_LOST);
    mend(fault, leader);
    EXPECT(LOST, mortise_release(lease, &detail));
    SAFE(mortise_token(waiter.lease) > token);
    mortise_release(waiter.lease, NULL); /* its lease of two seconds may be over by then */
    client_end(client);
    client_end(holder);
}

static void test_stopped_alone(void)
{
    lose(STOPPED);
}

static void test_killed_alone(void)
{
    lose(KILLED);
}

static void test_cut_off_alone(void)
{
    lose(CUT_OFF);
}

/* etcd 12528: a leader that was stopped for longer than the leases last ends them when it goes on, although the next leader keeps
 * them alive. The holder has left these leases. */
static void test_goes_on(void)
{
    mortise_client *holder = client_direct("ttl=3s&timeout=1s&connect_timeout=20s"),
                   *client = client_direct("ttl=3s&timeout=1s&connect_timeout=20s");
    const char *name = fresh_name();
    mortise_lease *lease = take(holder, name);
    struct waiter waiter = {.other = lease};
    waiter_start(&waiter, client, name);
    CHECK(wait_contenders(holder, name, 2));
    int leader = stage_leader();
    CHECK(stage_server("freeze", leader));
    let_pass(6000); /* the lease lasts for four seconds */
    bool was_held = mortise_state(lease) == MORTISE_STATE_HELD;
    CHECK(was_held);
    mend(STOPPED, leader);
    let_pass(2000); /* it looks for ended leases twice a second */
    if (was_held) {
        CHECK(mortise_state(lease) == MORTISE_STATE_HELD);
        CHECK(test_count_get(&waiter.done) == 0);
    }
    mortise_release(lease, NULL);
    CHECK(waiter_join(&waiter) == MORTISE_OK);
    mortise_release(waiter.lease, NULL);
    client_end(client);
    client_end(holder);
}

const CU_TestInfo cluster_tests[] = {
    {"the leader is stopped", test_stopped},
    {"the leader is killed", test_killed},
    {"the leader is cut off", test_leader_cut_off},
    {"the members are cut off", test_cut_off},
    {"the only endpoint is a stopped leader", test_stopped_alone},
    {"the only endpoint is a killed leader", test_killed_alone},
    {"the only endpoint is a leader that is cut off", test_cut_off_alone},
    {"etcd 12528: a stopped leader goes on", test_goes_on},
    CU_TEST_INFO_NULL,
};
