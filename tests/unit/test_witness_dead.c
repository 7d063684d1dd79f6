/* test_witness_dead.c - what a witness does after a death: it releases the claims of the dead process, as far as their slots
 * make sense. */
#include "witness_test.h"

#include <signal.h>

static struct rig second;
static struct outcome other;
static char config_file[700];

static void released(mortise_status status, const mortise_error *error, void *user_data)
{
    (void)error;
    told(status, NULL, NULL, user_data);
}

static void bury(const mortise_witness_slot *dead, struct outcome *outcome)
{
    memset(outcome, 0, sizeof(*outcome));
    CU_ASSERT_EQUAL(mortise_release_dead(second.handle, dead, released, outcome, NULL), MORTISE_OK);
    settle();
}

/* The claim of "a", held by a process that is dead for the test: no request of it comes any more. */
static mortise_witness_slot die_holding(mortise_lease **lease)
{
    start("");
    *lease = take(&rig, "a", MORTISE_OPTIONS(.no_renew = true));
    rig_open(&second, "ttl = 3s\nwitness = off\n");
    return slot(0);
}

static void test_release_of_a_dead_holder(void)
{
    mortise_lease *lease;
    mortise_witness_slot dead = die_holding(&lease);
    bury(&dead, &got);
    CU_ASSERT_EQUAL(got.calls, 1);
    CU_ASSERT_EQUAL(got.status, MORTISE_OK);
    mortise_lease *successor = take(&second, "a", NULL);
    bury(&dead, &got); /* late, and twice: it does nothing to the successor */
    CU_ASSERT_EQUAL(got.status, MORTISE_LOST);
    CU_ASSERT_EQUAL(got.calls, 1);
    CU_ASSERT_EQUAL(mortise_state(successor), MORTISE_STATE_HELD);
    advance_ms(1100);
    CU_ASSERT_EQUAL(mortise_state(successor), MORTISE_STATE_HELD);
    release(successor);
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_LOST);
    rig_close(&second);
    finish();
}

static bool seize_before_the_repeat(mortise_op *op)
{
    if (op->kind == MORTISE_OP_RELEASE && (op->flags & MORTISE_OP_REPEAT) != 0 &&
        sim->claims() == 0)
        sim->seize("a", MORTISE_NEVER);
    return false;
}

/* The release is executed and its reply lost, and a waiter has the lock when it is repeated: nothing of the dead process is left, so
 * this is no failure. */
static void test_release_executed_then_taken(void)
{
    mortise_lease *lease;
    mortise_witness_slot dead = die_holding(&lease);
    SCRIPT(.kinds = OP(RELEASE), .times = 1, .fate = SIM_LOSE_REPLY,
           .status = MORTISE_INDETERMINATE);
    tap(&second);
    tap_answer = seize_before_the_repeat;
    bury(&dead, &got);
    CU_ASSERT_EQUAL(got.calls, 1);
    CU_ASSERT_EQUAL(got.status, MORTISE_NOTOWNER);
    CU_ASSERT_EQUAL(sim->claims(), 1);
    sim->give_back("a");
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_LOST);
    rig_close(&second);
    finish();
}

/* ASKED: the request arrives after the first release. The releases go on until the ttl is over. */
static void test_release_of_a_dead_caller(void)
{
    start("");
    SCRIPT(.kinds = OP(ACQUIRE), .times = 1, .request_ns = 700 * MS,
           .on_cancel = SIM_CANCEL_IGNORED);
    want(&rig, &got, "a", MORTISE_OPTIONS(.wait_ms = 100, .no_renew = true));
    mortise_witness_slot dead = slot(0);
    CU_ASSERT_EQUAL(dead.state, MORTISE_WITNESS_ASKED);
    rig_open(&second, "witness = off\n");
    bury(&dead, &other);
    CU_ASSERT_EQUAL(other.calls, 1); /* told with the first answer */
    CU_ASSERT_EQUAL(other.status, MORTISE_LOST);
    size_t ends = sim->count(MORTISE_OP_RELEASE);
    advance_ms(650);
    CU_ASSERT(sim->count(MORTISE_OP_RELEASE) > ends + 2);
    ends = sim->count(MORTISE_OP_RELEASE);
    advance_ms(5000); /* the ttl, and the last pause */
    CU_ASSERT(sim->count(MORTISE_OP_RELEASE) > ends);
    CU_ASSERT_EQUAL(sim->claims(), 0);
    CU_ASSERT_EQUAL(other.calls, 1);
    ends = sim->count(MORTISE_OP_RELEASE);
    advance_ms(20000);
    CU_ASSERT_EQUAL(sim->count(MORTISE_OP_RELEASE), ends); /* and no longer */
    CU_ASSERT_EQUAL(second.client->locks.outstanding, 0);
    rig_close(&second);
    finish();
}

static void test_release_without_a_backend(void)
{
    mortise_lease *lease;
    mortise_witness_slot dead = die_holding(&lease);
    int away = SCRIPT(.kinds = OP(RELEASE), .fate = SIM_REFUSE, .status = MORTISE_UNREACHABLE);
    bury(&dead, &got);
    CU_ASSERT_EQUAL(got.calls, 0);
    advance_ms(1500);
    CU_ASSERT_EQUAL(got.calls, 0);
    sim->end(away);
    advance_ms(1400);
    CU_ASSERT_EQUAL(got.calls, 1);
    CU_ASSERT_EQUAL(got.status, MORTISE_OK);
    bury(&dead, &got); /* and if it never comes back: until the ttl is over */
    away = SCRIPT(.kinds = OP(RELEASE), .fate = SIM_REFUSE, .status = MORTISE_UNREACHABLE);
    bury(&dead, &got);
    advance_ms(6000);
    CU_ASSERT_EQUAL(got.calls, 1);
    CU_ASSERT_EQUAL(got.status, MORTISE_UNREACHABLE);
    sim->end(away);
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_LOST);
    rig_close(&second);
    finish();
}

static void test_a_hostile_slot(void)
{
    mortise_lease *lease;
    const mortise_witness_slot dead = die_holding(&lease);
    mortise_witness_slot bad[] = {dead, dead, dead, dead, dead, dead, dead, dead};
    bad[0].state = 3;
    bad[1].state = MORTISE_WITNESS_FREE;
    bad[2].name_len = MORTISE_NAME_MAX + 1;
    bad[3].name_len = 0;
    bad[4].owner_len = UINT32_MAX;
    bad[5].ttl_ms = INT64_MAX;
    bad[6].name[0] = '\0';
    bad[7].flags = UINT32_MAX;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        CU_ASSERT_EQUAL(mortise_release_dead(second.handle, &bad[i], released, &got, NULL),
                        MORTISE_INVALID);
    settle();
    CU_ASSERT_EQUAL(tapped_count(MORTISE_OP_RELEASE), 0);
    release(lease);
    rig_close(&second);
    finish();
}

/* A witness opens the config of others, but not their observers, and is nobody's client. */
static void test_open_for_dead(void)
{
    mortise_client *client = NULL;
    mortise_error error = {.message = ""};
    start("");
    snprintf(config_file, sizeof(config_file), "%s", mortise_config_source(rig.handle));
    CU_ASSERT_EQUAL_FATAL(mortise_open_for_dead(config_file, &client, &error), MORTISE_OK);
    struct client *opened = slab_find(&client_slab, client);
    CU_ASSERT_EQUAL(opened->locks.witness.state, LINK_OFF);
    CU_ASSERT_EQUAL(mortise_config_print(client), mortise_config_print(rig.handle));
    struct rig third = {client, opened};
    rig_close(&third);
    finish();
}

/* The config says what the dead process needed. */
static void test_require_of_the_dead(void)
{
    mortise_client *client = NULL;
    mortise_error error = {.message = ""};
    snprintf(config_file, sizeof(config_file), "%s/require.conf", rig_folder);
    CU_ASSERT_FATAL(
        test_file_write(config_file, "[mortise]\ndriver = sim\nlog = none\nrequire = quorum\n"));
    atomic_store(&client_manual, true);
    CU_ASSERT_EQUAL(mortise_open(config_file, &client, &error), MORTISE_CONFIG);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "quorum"));
    CU_ASSERT_EQUAL_FATAL(mortise_open_for_dead(config_file, &client, &error), MORTISE_OK);
    CU_ASSERT_EQUAL(mortise_close(client, NULL), MORTISE_OK);
}

int main(void)
{
    static const CU_TestInfo tests[] = {
        {"a dead holder", test_release_of_a_dead_holder},
        {"a dead holder, and another has the lock when its release is repeated",
         test_release_executed_then_taken},
        {"a dead caller", test_release_of_a_dead_caller},
        {"the backend is away", test_release_without_a_backend},
        {"a hostile slot", test_a_hostile_slot},
        {"opened for the dead", test_open_for_dead},
        {"opened for the dead, with require", test_require_of_the_dead},
        CU_TEST_INFO_NULL,
    };
    signal(SIGPIPE, SIG_IGN);
    return rig_run("witness_dead", tests);
}
