/* test_options.c - the options of an acquire: what a missing wait means, and options of another version. */
#include "rig.h"

static struct rig rig, other;

/* ---- wait ------------------------------------------------------------------------------------------ */

/* How long an acquire of a held name waits. */
static int64_t waits_ms(const mortise_options *options, mortise_status wanted)
{
    struct outcome got;
    int64_t began_ns = now_ns();
    want(&other, &got, "held", options);
    if (got.calls == 0)
        advance_ms(60000);
    CU_ASSERT_EQUAL(got.calls, 1);
    CU_ASSERT_EQUAL(got.status, wanted);
    return (got.at_ns - began_ns) / MS;
}

/* A field that is not named is the config's, with options and without. Only who says so tries once. */
static void test_unnamed_wait(void)
{
    mortise_options filled = {.size = sizeof(filled), .ttl_ms = 1000};
    rig_open(&rig, "");
    rig_open(&other, "wait = 2s\n");
    mortise_lease *lease = take(&rig, "held", NULL);
    CU_ASSERT_EQUAL(waits_ms(NULL, MORTISE_TIMEDOUT), 2000);
    CU_ASSERT_EQUAL(waits_ms(MORTISE_OPTIONS(), MORTISE_TIMEDOUT), 2000);
    CU_ASSERT_EQUAL(waits_ms(MORTISE_OPTIONS(.ttl_ms = 1000), MORTISE_TIMEDOUT), 2000);
    CU_ASSERT_EQUAL(waits_ms(MORTISE_OPTIONS(.wait_ms = 3000), MORTISE_TIMEDOUT), 3000);
    CU_ASSERT_EQUAL(waits_ms(MORTISE_OPTIONS(.wait_ms = 0), MORTISE_BUSY), 0);
    CU_ASSERT_EQUAL(waits_ms(&filled, MORTISE_BUSY), 0);
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_OK);
    rig_close(&other);
    rig_close(&rig);
    ASSERT_NOTHING_LEFT();
}

/* ---- versions -------------------------------------------------------------------------------------- */

/* Options of a program that was built with the header of a later version. */
struct later {
    mortise_options known;
    uint64_t unknown[4];
};

static mortise_status take_later(struct later *given, mortise_error *error)
{
    mortise_lease *lease = NULL;
    mortise_status status = mortise_acquire(rig.handle, "a", &given->known, &lease, error);
    if (status == MORTISE_OK)
        CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_OK);
    return status;
}

static void test_later_options(void)
{
    struct later given = {.known.size = sizeof(given)};
    mortise_error error = {.message = ""};
    rig_open(&rig, "");
    CU_ASSERT_EQUAL(take_later(&given, &error), MORTISE_OK);
    tap(&rig);
    for (size_t i = sizeof(given.known); i < sizeof(given); i++) {
        ((unsigned char *)&given)[i] = 1;
        CU_ASSERT_EQUAL(take_later(&given, &error), MORTISE_INVALID);
        ((unsigned char *)&given)[i] = 0;
    }
    CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "built for a newer version"));
    CU_ASSERT_EQUAL(tap_count, 0); /* the backend was not asked */
    given.unknown[3] = 1;
    given.known.size -= sizeof(given.unknown[3]);
    CU_ASSERT_EQUAL(take_later(&given, &error), MORTISE_OK); /* it is no part of the options */
    rig_close(&rig);
}

/* The program that was compiled with the header of 0.1, but linked to this library. */
static void test_options_of_0_1(void)
{
    mortise_options given = {.size = offsetof(mortise_options, mode)};
    mortise_lease *lease;
    mortise_error error = {.message = ""};
    rig_open(&rig, "");
    CU_ASSERT_EQUAL(mortise_acquire(rig.handle, "a", &given, &lease, &error), MORTISE_INVALID);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "of mortise 0.1"));
    rig_close(&rig);
}

static bool see_held(const mortise_info *info, void *user_data)
{
    *(mortise_info *)user_data = *info;
    return false;
}

/* A driver that was built with smaller infos: what lies behind them in its memory is not read. */
static void test_infos_of_an_older_driver(void)
{
    mortise_info seen = {.size = 0};
    rig_open(&rig, "");
    mortise_lease *lease = take(&rig, "a", MORTISE_OPTIONS(.mode = MORTISE_SHARED, .permits = 7));
    CU_ASSERT_EQUAL(mortise_list(rig.handle, NULL, see_held, &seen, NULL), MORTISE_OK);
    CU_ASSERT_EQUAL(seen.permits, 7);
    rig.client->top->module.info_size = offsetof(mortise_info, mode);
    CU_ASSERT_EQUAL(mortise_list(rig.handle, NULL, see_held, &seen, NULL), MORTISE_OK);
    CU_ASSERT_STRING_EQUAL(seen.name, "a");
    CU_ASSERT_EQUAL(seen.token, mortise_token(lease));
    CU_ASSERT_EQUAL(seen.permits, 0);
    CU_ASSERT_EQUAL(seen.size, sizeof(seen));
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_OK);
    rig_close(&rig);
}

static bool fill_by_size(mortise_op *op)
{
    if (op->kind == MORTISE_OP_INSPECT)
        CU_ASSERT_EQUAL(op->info->size, sizeof(mortise_info));
    return false;
}

/* A driver that is older or newer than the core fills as much of an info as it has room for. */
static void test_room_for_an_info(void)
{
    mortise_info info = {.size = sizeof(info)};
    rig_open(&rig, "");
    tap(&rig);
    tap_answer = fill_by_size;
    CU_ASSERT_EQUAL(mortise_inspect(rig.handle, "a", &info, NULL), MORTISE_OK);
    CU_ASSERT_EQUAL(tap_count, 1);
    tap_answer = NULL;
    rig_close(&rig);
}

/* All that the driver says of a holder is in the list, too. */
static void test_list_tells_all(void)
{
    mortise_info seen = {.size = 0}, asked = {.size = sizeof(asked)};
    rig_open(&rig, "");
    mortise_lease *one = take(&rig, "a", MORTISE_OPTIONS(.owner = "both"));
    mortise_lease *two = take(&rig, "a", MORTISE_OPTIONS(.owner = "both"));
    CU_ASSERT_EQUAL(mortise_list(rig.handle, NULL, see_held, &seen, NULL), MORTISE_OK);
    CU_ASSERT_EQUAL(mortise_inspect(rig.handle, "a", &asked, NULL), MORTISE_OK);
    CU_ASSERT_EQUAL(seen.leases, 2);
    CU_ASSERT_EQUAL(seen.leases, asked.leases);
    CU_ASSERT_EQUAL(seen.held, asked.held);
    CU_ASSERT_EQUAL(seen.mode, asked.mode);
    CU_ASSERT_EQUAL(seen.holders, asked.holders);
    CU_ASSERT_EQUAL(seen.pid, asked.pid);
    CU_ASSERT_EQUAL(seen.token, asked.token);
    CU_ASSERT_STRING_EQUAL(seen.owner, "both");
    CU_ASSERT_STRING_EQUAL(seen.host, asked.host);
    CU_ASSERT_STRING_EQUAL(seen.program, asked.program);
    CU_ASSERT_EQUAL(mortise_release(one, NULL), MORTISE_OK);
    CU_ASSERT_EQUAL(mortise_release(two, NULL), MORTISE_OK);
    rig_close(&rig);
}

/* ---- zeroed memory --------------------------------------------------------------------------------- */

static void test_zero_is_lost(void)
{
    struct {
        mortise_lease_state state;
    } zeroed;
    memset(&zeroed, 0, sizeof(zeroed));
    CU_ASSERT_EQUAL(zeroed.state, MORTISE_STATE_LOST);
}

int main(void)
{
    static const CU_TestInfo tests[] = {
        {"a wait that is not named", test_unnamed_wait},
        {"options of a later version", test_later_options},
        {"options of 0.1", test_options_of_0_1},
        {"infos of an older driver", test_infos_of_an_older_driver},
        {"room for an info", test_room_for_an_info},
        {"a list tells all", test_list_tells_all},
        {"zeroed memory is lost", test_zero_is_lost},
        CU_TEST_INFO_NULL,
    };
    return rig_run("options", tests);
}
