/* test_tokens.c - tokens only grow (R6): over grants, hand-overs, losses, repeats and shared owners, as the core
 * reports them; and who shares a lock with an owner (R3: each lease is a grant of its own). */
#include "rig.h"

#define CONFIG "ttl = 3s\n"

static struct rig rig, second;
static struct outcome got;

static void test_each_grant_is_larger(void)
{
    uint64_t last = 0;
    rig_open(&rig, CONFIG);
    rig_open(&second, CONFIG);
    for (int i = 0; i < 50; i++) {
        mortise_lease *lease = take(i % 2 ? &rig : &second, "a", NULL);
        CU_ASSERT(mortise_token(lease) > last);
        last = mortise_token(lease);
        CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_OK);
        CU_ASSERT_EQUAL(mortise_token(lease), 0);
    }
    sim->tokens_from(UINT64_C(1) << 63); /* all 64 bits of it come through */
    mortise_lease *lease = take(&rig, "a", NULL);
    CU_ASSERT_EQUAL(mortise_token(lease), UINT64_C(1) << 63);
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_OK);
    rig_close(&rig);
    rig_close(&second);
}

/* Hands over, waits, loses, comes back: what each holder saw, in the order in which they held. */
static void test_over_hand_over_and_loss(void)
{
    rig_open(&rig, CONFIG);
    rig_open(&second, CONFIG);
    mortise_lease *lease = take(&rig, "a", NULL);
    uint64_t first = mortise_token(lease), last;
    want(&rig, &got, "a", FOREVER);
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_OK);
    settle();
    CU_ASSERT_EQUAL_FATAL(got.status, MORTISE_OK);
    CU_ASSERT_EQUAL(mortise_token(got.lease), first); /* the same grant */
    last = first;
    struct outcome next;
    want(&second, &next, "a", FOREVER); /* another process */
    sim->lose("a");
    sim->news_all();
    settle();
    CU_ASSERT_EQUAL_FATAL(next.status, MORTISE_OK);
    CU_ASSERT(mortise_token(next.lease) > last);
    last = mortise_token(next.lease);
    CU_ASSERT_EQUAL(mortise_token(got.lease),
                    first); /* of no use any more: that is what it is for */
    advance_ms(1000);
    CU_ASSERT_EQUAL(mortise_state(got.lease), MORTISE_STATE_LOST);
    CU_ASSERT_EQUAL(mortise_release(got.lease, NULL), MORTISE_LOST);
    want(&rig, &got, "a", FOREVER);
    CU_ASSERT_EQUAL(mortise_release(next.lease, NULL), MORTISE_OK);
    advance_ms(200);
    CU_ASSERT_EQUAL_FATAL(got.status, MORTISE_OK);
    CU_ASSERT(mortise_token(got.lease) > last);
    CU_ASSERT_EQUAL(mortise_release(got.lease, NULL), MORTISE_OK);
    rig_close(&rig);
    rig_close(&second);
}

static void test_renewal_keeps_it(void)
{
    rig_open(&rig, CONFIG);
    mortise_lease *lease = take(&rig, "a", NULL);
    uint64_t token = mortise_token(lease);
    sim->tokens_from(1000);
    advance_ms(20000);
    CU_ASSERT_EQUAL(mortise_token(lease), token);
    tap(&rig);
    advance_ms(1000);
    CU_ASSERT_EQUAL(taps[0].op.token, token); /* the backend is told which */
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_OK);
    rig_close(&rig);
}

/* ---- shared owners --------------------------------------------------------------------------------- */

#define AS(owner_) MORTISE_OPTIONS(.wait_ms = 0, .owner = owner_)

static void test_owners_share(void)
{
    rig_open(&rig, CONFIG);
    rig_open(&second, CONFIG);
    mortise_lease *one = take(&rig, "a", AS("o")), *two = take(&rig, "a", AS("o"));
    mortise_lease *three = take(&second, "a", AS("o")); /* over processes */
    CU_ASSERT_PTR_NOT_EQUAL(one, two);
    CU_ASSERT_EQUAL(mortise_token(two), mortise_token(one));
    CU_ASSERT_EQUAL(mortise_token(three), mortise_token(one));
    mortise_lease *none;
    CU_ASSERT_EQUAL(mortise_acquire(rig.handle, "a", AS("p"), &none, NULL), MORTISE_BUSY);
    CU_ASSERT_EQUAL(mortise_acquire(rig.handle, "a", AS("oo"), &none, NULL), MORTISE_BUSY);
    CU_ASSERT_EQUAL(mortise_acquire(rig.handle, "a", TRY, &none, NULL), MORTISE_BUSY);
    char text[8];
    CU_ASSERT_EQUAL(mortise_owner(one, text, sizeof(text)), 1);
    CU_ASSERT_STRING_EQUAL(text, "o");
    /* R3: each release ends its own grant, in any order */
    CU_ASSERT_EQUAL(mortise_release(one, NULL), MORTISE_OK);
    CU_ASSERT_EQUAL(sim->claims(), 1);
    advance_ms(10000);
    CU_ASSERT_EQUAL(mortise_state(two), MORTISE_STATE_HELD); /* each is renewed for itself */
    CU_ASSERT_EQUAL(mortise_state(three), MORTISE_STATE_HELD);
    CU_ASSERT_EQUAL(mortise_release(three, NULL), MORTISE_OK);
    CU_ASSERT_EQUAL(sim->claims(), 1);
    CU_ASSERT_EQUAL(mortise_release(two, NULL), MORTISE_OK);
    ASSERT_NOTHING_LEFT();
    rig_close(&rig);
    rig_close(&second);
}

/* A hold is a set of grants, not a count: a repeat adds nothing that would have to be given back. */
static void test_repeats_are_not_counted(void)
{
    rig_open(&rig, CONFIG);
    mortise_lease *one = take(&rig, "a", AS("o"));
    SCRIPT(.kinds = OP(ACQUIRE), .times = 3, .fate = SIM_LOSE_REPLY,
           .status = MORTISE_INDETERMINATE);
    want(&rig, &got, "a", MORTISE_OPTIONS(.wait_ms = -1, .owner = "o"));
    advance_ms(1000);
    CU_ASSERT_EQUAL_FATAL(got.status, MORTISE_OK);
    CU_ASSERT_EQUAL(mortise_release(got.lease, NULL), MORTISE_OK);
    mortise_info info = {.size = sizeof(info)};
    CU_ASSERT_EQUAL(mortise_inspect(rig.handle, "a", &info, NULL), MORTISE_OK);
    CU_ASSERT_EQUAL(info.leases, 1);
    CU_ASSERT_EQUAL(mortise_release(one, NULL), MORTISE_OK);
    ASSERT_NOTHING_LEFT();
    rig_close(&rig);
}

static void *take_as_thread(void *argument)
{
    mortise_lease *lease;
    *(mortise_status *)argument =
        mortise_acquire(rig.handle, "a", AS(MORTISE_OWNER_THREAD), &lease, NULL);
    return NULL;
}

static void test_thread_owner(void)
{
    pthread_t thread;
    mortise_status status = MORTISE_OK;
    rig_open(&rig, CONFIG);
    rig_open(&second, CONFIG);
    mortise_lease *one = take(&rig, "a", AS(MORTISE_OWNER_THREAD));
    mortise_lease *two = take(&rig, "a", AS(MORTISE_OWNER_THREAD));
    CU_ASSERT_EQUAL(mortise_token(two), mortise_token(one));
    pthread_create(&thread, NULL, take_as_thread, &status);
    pthread_join(thread, NULL);
    CU_ASSERT_EQUAL(status, MORTISE_BUSY); /* another thread */
    mortise_lease *none;
    CU_ASSERT_EQUAL(mortise_acquire(second.handle, "a", AS(MORTISE_OWNER_THREAD), &none, NULL),
                    MORTISE_BUSY); /* another client */
    CU_ASSERT_EQUAL(mortise_release(one, NULL), MORTISE_OK);
    CU_ASSERT_EQUAL(mortise_release(two, NULL), MORTISE_OK);
    rig_close(&rig);
    rig_close(&second);
}

static void test_owner_bounds(void)
{
    char owner[MORTISE_OWNER_MAX + 2];
    mortise_lease *lease;
    rig_open(&rig, CONFIG);
    memset(owner, 'x', sizeof(owner));
    owner[MORTISE_OWNER_MAX + 1] = '\0';
    CU_ASSERT_EQUAL(mortise_acquire(rig.handle, "a", AS(owner), &lease, NULL), MORTISE_INVALID);
    CU_ASSERT_EQUAL(mortise_acquire(rig.handle, "a", AS(""), &lease, NULL), MORTISE_INVALID);
    owner[MORTISE_OWNER_MAX] = '\0';
    lease = take(&rig, "a", AS(owner));
    CU_ASSERT_EQUAL(mortise_owner(lease, NULL, 0), MORTISE_OWNER_MAX);
    char text[16];
    CU_ASSERT_EQUAL(mortise_owner(lease, text, sizeof(text)), MORTISE_OWNER_MAX);
    CU_ASSERT_EQUAL(strlen(text), sizeof(text) - 1);
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_OK);
    rig_close(&rig);
}

static void test_where_nobody_shares(void)
{
    mortise_lease *lease = NULL;
    mortise_error error;
    rig_open(&rig, CONFIG "[sim]\nwithout = reentrant, fencing\n");
    CU_ASSERT_EQUAL(mortise_acquire(rig.handle, "a", AS("o"), &lease, &error), MORTISE_NOTSUP);
    CU_ASSERT_EQUAL(mortise_acquire(rig.handle, "a", AS(MORTISE_OWNER_THREAD), &lease, NULL),
                    MORTISE_NOTSUP);
    CU_ASSERT_EQUAL(mortise_acquire_async(rig.handle, "a", AS("o"), told, &got, NULL, NULL),
                    MORTISE_NOTSUP);
    lease = take(&rig, "a", NULL);
    CU_ASSERT_EQUAL(mortise_token(lease), 0);
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_OK);
    rig_close(&rig);
}

/* R10: what comes from outside is passed on byte by byte and shown as one printable line. */
static void test_bytes(void)
{
    static const char name[] = "a'; --\n\t\x01%s%n\\\"\xff/..";
    mortise_lease *lease = NULL;
    mortise_error error;
    rig_open(&rig, CONFIG "namespace = n s%s:\n");
    tap(&rig);
    mortise_lease *held = take(&rig, name, AS(name));
    CU_ASSERT_EQUAL(taps[0].op.name_len, strlen("n s%s:") + sizeof(name) - 1);
    CU_ASSERT_EQUAL(memcmp(rig.client->locks.names->text, "n s%s:", 6), 0);
    CU_ASSERT_EQUAL(memcmp(rig.client->locks.names->text + 6, name, sizeof(name)), 0);
    CU_ASSERT_EQUAL(taps[0].op.owner_len, sizeof(name) - 1);
    CU_ASSERT_EQUAL(mortise_acquire(rig.handle, name, TRY, &lease, &error), MORTISE_BUSY);
    for (const char *c = error.message; *c != '\0'; c++)
        CU_ASSERT(*c >= ' ' && *c <= '~');
    CU_ASSERT_PTR_NOT_NULL(strstr(error.message, "\\xff"));
    CU_ASSERT_PTR_NULL(strstr(error.message, "n s")); /* names are the caller's */
    char text[64];
    CU_ASSERT_EQUAL(mortise_owner(held, text, sizeof(text)), sizeof(name) - 1);
    CU_ASSERT_STRING_EQUAL(text, name);
    CU_ASSERT_EQUAL(mortise_release(held, NULL), MORTISE_OK);
    rig_close(&rig);
}

int main(void)
{
    static const CU_TestInfo tests[] = {
        {"R6: each grant's is larger", test_each_grant_is_larger},
        {"R6: over hand-over and loss", test_over_hand_over_and_loss},
        {"R6: a renewal keeps it", test_renewal_keeps_it},
        {"R3: owners share", test_owners_share},
        {"R4: repeats are not counted", test_repeats_are_not_counted},
        {"a thread as owner", test_thread_owner},
        {"bounds of an owner", test_owner_bounds},
        {"where nobody shares", test_where_nobody_shares},
        {"R10: bytes from outside", test_bytes},
        CU_TEST_INFO_NULL,
    };
    return rig_run("tokens", tests);
}
