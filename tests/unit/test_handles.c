/* test_handles.c - handles that were released, are forged, or whose slot has a new owner: the library refuses them,
 * and never touches the new owner's lease. And wrong arguments, which do nothing. */
#include "rig.h"

static struct rig rig;
static struct outcome got;

static bool is_spent(mortise_lease *lease)
{
    char text[64] = "x";
    return mortise_state(lease) == MORTISE_STATE_LOST && mortise_remaining_ms(lease) == 0 &&
           mortise_token(lease) == 0 && mortise_owner(lease, text, sizeof(text)) == 0 &&
           text[0] == '\0' && mortise_release(lease, NULL) == MORTISE_INVALID &&
           mortise_release_nowait(lease, NULL) == MORTISE_INVALID;
}

static void test_second_release(void)
{
    mortise_error error;
    rig_open(&rig, "");
    mortise_lease *lease = take(&rig, "a", NULL);
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_OK);
    CU_ASSERT_EQUAL(mortise_release(lease, &error), MORTISE_INVALID);
    CU_ASSERT_EQUAL(error.status, MORTISE_INVALID);
    CU_ASSERT(is_spent(lease));
    rig_close(&rig);
}

/* The slot is taken again, many times: the old handles are nobody's. */
static void test_reuse(void)
{
    enum { COUNT = 100 };
    mortise_lease *old[COUNT];
    rig_open(&rig, "");
    for (int i = 0; i < COUNT; i++) {
        old[i] = take(&rig, "a", NULL);
        for (int k = 0; k < i; k++)
            CU_ASSERT(old[k] != old[i]);
        CU_ASSERT_EQUAL(mortise_release(old[i], NULL), MORTISE_OK);
    }
    mortise_lease *now = take(&rig, "a", NULL);
    for (int i = 0; i < COUNT; i++)
        CU_ASSERT(is_spent(old[i]));
    CU_ASSERT_EQUAL(mortise_state(now), MORTISE_STATE_HELD); /* none of that touched it */
    CU_ASSERT_EQUAL(mortise_release(now, NULL), MORTISE_OK);
    rig_close(&rig);
}

static void test_release_after_the_loss(void)
{
    rig_open(&rig, "ttl = 3s\n");
    mortise_lease *lease = take(&rig, "a", MORTISE_OPTIONS(.no_renew = true));
    advance_ms(10000);
    mortise_lease *next = take(&rig, "a", NULL);
    CU_ASSERT(mortise_token(next) > mortise_token(lease));
    CU_ASSERT_EQUAL(mortise_release(lease, NULL),
                    MORTISE_LOST); /* [40] it does not look successful */
    CU_ASSERT(is_spent(lease));
    CU_ASSERT_EQUAL(mortise_state(next), MORTISE_STATE_HELD);
    CU_ASSERT_EQUAL(sim->claims(), 1);
    CU_ASSERT_EQUAL(mortise_release(next, NULL), MORTISE_OK);
    rig_close(&rig);
}

static void test_hand_over_spends(void)
{
    rig_open(&rig, "");
    mortise_lease *lease = take(&rig, "a", NULL);
    want(&rig, &got, "a", FOREVER);
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_OK);
    settle();
    CU_ASSERT_EQUAL(stats_of(&rig).handovers, 1);
    CU_ASSERT(is_spent(lease));
    CU_ASSERT_EQUAL(mortise_state(got.lease), MORTISE_STATE_HELD);
    CU_ASSERT_EQUAL(mortise_release(got.lease, NULL), MORTISE_OK);
    CU_ASSERT(is_spent(got.lease));
    rig_close(&rig);
}

static void test_after_the_close(void)
{
    mortise_lease *more;
    mortise_info info = {.size = sizeof(info)};
    mortise_stats stats = {.size = sizeof(stats)};
    mortise_module_info module = {.size = sizeof(module)};
    char text[16];
    rig_open(&rig, "");
    mortise_lease *lease = take(&rig, "a", NULL);
    mortise_client *client = rig.handle;
    rig_close(&rig);
    struct rig next;
    rig_open(&next, ""); /* on the same slot, perhaps */
    mortise_lease *held = take(&next, "a", NULL);
    CU_ASSERT_PTR_NOT_EQUAL(next.handle, client);
    CU_ASSERT(is_spent(lease));
    CU_ASSERT_EQUAL(mortise_acquire(client, "a", FOREVER, &more, NULL), MORTISE_CLOSED);
    CU_ASSERT_EQUAL(mortise_acquire_async(client, "a", TRY, told, &got, NULL, NULL),
                    MORTISE_CLOSED);
    CU_ASSERT_EQUAL(mortise_cancel(client, 1), MORTISE_CLOSED);
    CU_ASSERT_EQUAL(mortise_dispatch(client), MORTISE_CLOSED);
    CU_ASSERT_EQUAL(mortise_inspect(client, "a", &info, NULL), MORTISE_CLOSED);
    CU_ASSERT_EQUAL(mortise_break(client, "a", 1, NULL), MORTISE_CLOSED);
    CU_ASSERT_EQUAL(mortise_ping(client, text, sizeof(text), NULL), MORTISE_CLOSED);
    CU_ASSERT_EQUAL(mortise_stats_get(client, &stats), MORTISE_CLOSED);
    CU_ASSERT_EQUAL(mortise_capabilities(client), 0);
    CU_ASSERT_PTR_NULL(mortise_config_source(client));
    CU_ASSERT_EQUAL(mortise_default_wait_ms(client), MORTISE_WAIT_DEFAULT);
    CU_ASSERT_FALSE(mortise_module_at(client, 0, &module));
    CU_ASSERT_EQUAL(mortise_close(client, NULL), MORTISE_CLOSED);
    CU_ASSERT_EQUAL(mortise_state(held), MORTISE_STATE_HELD);
    CU_ASSERT_EQUAL(mortise_release(held, NULL), MORTISE_OK);
    rig_close(&next);
}

/* Any bits at all. */
static void test_forged(void)
{
    static int local;
    static const uintptr_t bits[] = {0,          1,          2,           1ul << 32,
                                     ~0ul,       1ul << 63,  0xffffffff,  0x100000001,
                                     0x3fffffff, 0x1000fffe, 0x300000001, 0xfffffffffffffffe};
    rig_open(&rig, "");
    mortise_lease *lease = take(&rig, "a", NULL);
    uintptr_t real = (uintptr_t)lease;
    for (size_t i = 0; i < sizeof(bits) / sizeof(bits[0]); i++) {
        uintptr_t forged = bits[i];
        if (forged == real || forged == (uintptr_t)rig.handle || forged == 0)
            continue;
        CU_ASSERT(is_spent((mortise_lease *)forged));
        CU_ASSERT_EQUAL(mortise_capabilities((mortise_client *)forged), 0);
        mortise_status status = mortise_close((mortise_client *)forged, NULL);
        CU_ASSERT(status == MORTISE_INVALID || status == MORTISE_CLOSED);
    }
    for (int64_t off = -4; off <= 4; off++) { /* other generations of the same slot */
        uintptr_t forged = real + ((uintptr_t)off << 32);
        CU_ASSERT(off == 0 || is_spent((mortise_lease *)forged));
    }
    CU_ASSERT(is_spent((mortise_lease *)(uintptr_t)&local));
    CU_ASSERT_EQUAL(mortise_state(NULL), MORTISE_STATE_LOST);
    CU_ASSERT_EQUAL(mortise_token(NULL), 0);
    CU_ASSERT_EQUAL(mortise_owner(NULL, NULL, 0), 0);
    CU_ASSERT_EQUAL(mortise_state(lease), MORTISE_STATE_HELD);
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_OK);
    rig_close(&rig);
}

/* ---- arguments ------------------------------------------------------------------------------------- */

static mortise_status try_options(const char *name, mortise_options options)
{
    mortise_lease *lease = (mortise_lease *)&rig;
    mortise_error error = {.message = ""};
    mortise_status status = mortise_acquire(rig.handle, name, &options, &lease, &error);
    if (status == MORTISE_OK) {
        CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_OK);
    } else {
        CU_ASSERT_PTR_NULL(lease);
        CU_ASSERT_EQUAL(error.status, status);
        CU_ASSERT(error.message[0] != '\0');
    }
    return status;
}

#define WITH(...) *MORTISE_OPTIONS(__VA_ARGS__)

static void test_arguments(void)
{
    char name[MORTISE_NAME_MAX + 2];
    rig_open(&rig, "namespace = n:\n");
    tap(&rig);
    memset(name, 'x', sizeof(name));
    name[sizeof(name) - 1] = '\0';
    CU_ASSERT_EQUAL(try_options(name, WITH()), MORTISE_INVALID);
    name[MORTISE_NAME_MAX - 1] = '\0';
    CU_ASSERT_EQUAL(try_options(name, WITH()), MORTISE_INVALID); /* with its namespace */
    CU_ASSERT_EQUAL(try_options("", WITH()), MORTISE_INVALID);
    CU_ASSERT_EQUAL(try_options(NULL, WITH()), MORTISE_INVALID);
    CU_ASSERT_EQUAL(try_options("a", WITH(.ttl_ms = 49)), MORTISE_INVALID);
    CU_ASSERT_EQUAL(try_options("a", WITH(.ttl_ms = -1)), MORTISE_INVALID);
    CU_ASSERT_EQUAL(try_options("a", WITH(.ttl_ms = MORTISE_TTL_MAX_MS + 1)), MORTISE_INVALID);
    CU_ASSERT_EQUAL(try_options("a", WITH(.ttl_ms = INT64_MAX)), MORTISE_INVALID);
    CU_ASSERT_EQUAL(try_options("a", WITH(.wait_ms = -3)), MORTISE_INVALID);
    CU_ASSERT_EQUAL(try_options("a", WITH(.wait_ms = INT64_MIN)), MORTISE_INVALID);
    CU_ASSERT_EQUAL(try_options("a", WITH(.wait_ms = MORTISE_WAIT_MAX_MS + 1)), MORTISE_INVALID);
    CU_ASSERT_EQUAL(try_options("a", WITH(.max_hold_ms = -1)), MORTISE_INVALID);
    CU_ASSERT_EQUAL(try_options("a", (mortise_options){.size = 0}), MORTISE_INVALID);
    CU_ASSERT_EQUAL(try_options("a", (mortise_options){.size = 8}), MORTISE_INVALID);
    CU_ASSERT_EQUAL(try_options("a", (mortise_options){.size = SIZE_MAX}), MORTISE_INVALID);
    CU_ASSERT_EQUAL(tap_count, 0); /* they did nothing */
    name[MORTISE_NAME_MAX - 2] = '\0';
    CU_ASSERT_EQUAL(try_options(name, WITH()), MORTISE_OK);
    CU_ASSERT_EQUAL(try_options("a", WITH(.ttl_ms = MORTISE_TTL_MIN_MS)), MORTISE_OK);
    CU_ASSERT_EQUAL(try_options("a", WITH(.ttl_ms = MORTISE_TTL_MAX_MS)), MORTISE_OK);
    CU_ASSERT_EQUAL(try_options("a", WITH(.wait_ms = MORTISE_WAIT_MAX_MS)), MORTISE_OK);
    CU_ASSERT_EQUAL(try_options("a", WITH(.max_hold_ms = INT64_MAX)), MORTISE_OK);
    CU_ASSERT_EQUAL(try_options("a", WITH(.wait_ms = MORTISE_WAIT_DEFAULT)), MORTISE_OK);
    rig_close(&rig);
}

static void test_out_parameters(void)
{
    mortise_error error;
    mortise_request request = 4711;
    rig_open(&rig, "");
    CU_ASSERT_EQUAL(mortise_acquire(rig.handle, "a", TRY, NULL, &error), MORTISE_INVALID);
    CU_ASSERT_EQUAL(mortise_acquire(NULL, "a", TRY, (mortise_lease **)&request, &error),
                    MORTISE_INVALID);
    request = 4711;
    CU_ASSERT_EQUAL(mortise_acquire_async(rig.handle, "a", TRY, NULL, NULL, &request, NULL),
                    MORTISE_INVALID);
    CU_ASSERT_EQUAL(request, 0);
    request = 4711;
    CU_ASSERT_EQUAL(mortise_acquire_async(rig.handle, "", TRY, told, &got, &request, NULL),
                    MORTISE_INVALID);
    CU_ASSERT_EQUAL(request, 0);
    CU_ASSERT_EQUAL(mortise_open("/nowhere", NULL, NULL), MORTISE_INVALID);
    mortise_client *client = rig.handle;
    CU_ASSERT_EQUAL(mortise_open("/nowhere/at/all.conf", &client, &error), MORTISE_CONFIG);
    CU_ASSERT_PTR_NULL(client);
    mortise_info info = {.size = 0};
    CU_ASSERT_EQUAL(mortise_inspect(rig.handle, "a", &info, NULL), MORTISE_INVALID);
    CU_ASSERT_EQUAL(mortise_inspect(rig.handle, "a", NULL, NULL), MORTISE_INVALID);
    CU_ASSERT_EQUAL(mortise_break(rig.handle, "a", 0, NULL), MORTISE_INVALID);
    CU_ASSERT_EQUAL(mortise_list(rig.handle, NULL, NULL, NULL, NULL), MORTISE_INVALID);
    CU_ASSERT_EQUAL(mortise_ping(rig.handle, NULL, 16, &error), MORTISE_INVALID);
    CU_ASSERT_EQUAL(mortise_ping(rig.handle, NULL, 0, NULL), MORTISE_OK);
    settle();
    rig_close(&rig);
}

static void test_name(void)
{
    char text[MORTISE_NAME_MAX + 1] = "x";
    rig_open(&rig, "namespace = n:\n");
    mortise_lease *lease = take(&rig, "lock", NULL);
    CU_ASSERT_EQUAL(mortise_name(lease, text, sizeof(text)), 4);
    CU_ASSERT_STRING_EQUAL(text, "lock");
    CU_ASSERT_EQUAL(mortise_name(lease, text, 3), 4);
    CU_ASSERT_STRING_EQUAL(text, "lo");
    CU_ASSERT_EQUAL(mortise_name(lease, NULL, 0), 4);
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_OK);
    CU_ASSERT_EQUAL(mortise_name(lease, text, sizeof(text)), 0);
    CU_ASSERT_STRING_EQUAL(text, "");
    CU_ASSERT_EQUAL(mortise_name(NULL, text, sizeof(text)), 0);
    rig_close(&rig);
}

/* A program that was built with a smaller struct is not written past its end. */
static void test_smaller_structs(void)
{
    struct {
        mortise_stats stats;
        char after[8];
    } room;
    memset(&room, 0x55, sizeof(room));
    rig_open(&rig, "");
    room.stats.size = offsetof(mortise_stats, handovers);
    CU_ASSERT_EQUAL(mortise_stats_get(rig.handle, &room.stats), MORTISE_OK);
    CU_ASSERT_EQUAL(room.stats.handovers, UINT64_C(0x5555555555555555));
    CU_ASSERT_EQUAL(room.stats.size, offsetof(mortise_stats, handovers));
    mortise_info info;
    memset(&info, 0x55, sizeof(info));
    info.size = offsetof(mortise_info, owner);
    CU_ASSERT_EQUAL(mortise_inspect(rig.handle, "a", &info, NULL), MORTISE_OK);
    CU_ASSERT_STRING_EQUAL(info.name, "a");
    CU_ASSERT_EQUAL(info.owner[0], 0x55);
    rig_close(&rig);
}

int main(void)
{
    static const CU_TestInfo tests[] = {
        {"a second release", test_second_release},
        {"a slot that is used again", test_reuse},
        {"release after the loss", test_release_after_the_loss},
        {"a hand-over spends the handle", test_hand_over_spends},
        {"use after close", test_after_the_close},
        {"forged handles", test_forged},
        {"arguments", test_arguments},
        {"out-parameters", test_out_parameters},
        {"the name of a lease", test_name},
        {"smaller structs", test_smaller_structs},
        CU_TEST_INFO_NULL,
    };
    return rig_run("handles", tests);
}
