/* owner.c - leases of one owner share the lock if the driver is reentrant; otherwise an acquire with an owner returns
 * NOTSUP, exactly. */
#include "conformance.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

static mortise_status as_owner(mortise_client *client, const char *name, const char *owner,
                               int64_t wait_ms, mortise_lease **lease)
{
    return mortise_acquire(client, name,
                           MORTISE_OPTIONS(.wait_ms = wait_ms, .ttl_ms = 60000, .owner = owner),
                           lease, &detail);
}

static bool refused_here(mortise_client *client)
{
    mortise_lease *lease;
    if (has(MORTISE_CAP_REENTRANT))
        return false;
    EXPECT(NOTSUP, as_owner(client, fresh_name(), "us", 0, &lease));
    CU_ASSERT_PTR_NULL(lease);
    EXPECT(NOTSUP, as_owner(client, fresh_name(), MORTISE_OWNER_THREAD, -1, &lease));
    return true;
}

/* Two holds in two clients: held until both are released, by nobody else. */
static void share(mortise_client *one, mortise_client *two, mortise_client *other)
{
    const char *name = fresh_name();
    mortise_lease *first, *second, *refused;
    EXPECT(OK, as_owner(one, name, "us", 0, &first));
    EXPECT(OK, as_owner(two, name, "us", 0, &second));
    CU_ASSERT_EQUAL(mortise_token(first), mortise_token(second));
    EXPECT(BUSY, as_owner(other, name, "them", 0, &refused));
    EXPECT(BUSY, as_owner(other, name, "u", 0, &refused));
    EXPECT(BUSY, try_once(other, name));
    if (has(MORTISE_CAP_INSPECT)) {
        mortise_info info = look(other, name);
        CU_ASSERT_STRING_EQUAL(info.owner, "us");
        CU_ASSERT_EQUAL(info.leases, 2);
    }
    give(first);
    EXPECT(INVALID, mortise_release(first, &detail)); /* it does not count twice */
    CU_ASSERT_EQUAL(mortise_state(second), MORTISE_STATE_HELD);
    EXPECT(BUSY, try_once(other, name));
    EXPECT(OK, as_owner(one, name, "us", 0, &first));
    CU_ASSERT_EQUAL(mortise_token(first), mortise_token(second));
    give(second);
    EXPECT(BUSY, try_once(other, name));
    give(first);
    EXPECT(OK, try_once(other, name));
}

static void test_shared(void)
{
    mortise_client *one = open_client(NULL), *two = open_client(NULL), *other = open_client(NULL);
    if (!refused_here(one)) {
        share(one, one, other);
        share(one, two, other);
        share(one, two, one);
        share(one, one, one);
    }
    close_client(one);
    close_client(two);
    close_client(other);
}

static void test_shared_over_processes(void)
{
    struct test_process taker;
    mortise_client *client = open_client(NULL);
    const char *name = fresh_name();
    char line[300];
    bool breaks = has(MORTISE_CAP_FENCING) && has(MORTISE_CAP_INSPECT);
    if (subject.processes && !refused_here(client) && taker_start(&taker, NULL)) {
        mortise_lease *lease;
        EXPECT(OK, as_owner(client, name, "us", 0, &lease));
        snprintf(line, sizeof line, "acquire %s 0 %d us", name, breaks ? 60000 : 6000);
        CU_ASSERT_EQUAL(taker_number(&taker, line), mortise_token(lease));
        taker_expect(&taker, "owner", "OK us");
        give(lease);
        EXPECT(BUSY, try_once(client, name));
        test_kill(&taker); /* its hold ends with its ttl; an operator does not wait for that */
        if (breaks)
            EXPECT(OK, mortise_break(client, name, look(client, name).token, &detail));
    }
    close_client(client);
}

struct in_thread {
    mortise_client *client;
    const char *name;
    mortise_status status;
};

static void *try_as_thread(void *argument)
{
    struct in_thread *in_thread = argument;
    mortise_lease *lease = NULL;
    in_thread->status =
        mortise_acquire(in_thread->client, in_thread->name,
                        MORTISE_OPTIONS(.wait_ms = 0, .owner = MORTISE_OWNER_THREAD), &lease, NULL);
    mortise_release(lease, NULL);
    return NULL;
}

static mortise_status in_other_thread(mortise_client *client, const char *name)
{
    struct in_thread in_thread = {.client = client, .name = name};
    pthread_t thread;
    if (pthread_create(&thread, NULL, try_as_thread, &in_thread) != 0)
        CU_FAIL_FATAL("no thread");
    pthread_join(thread, NULL);
    return in_thread.status;
}

/* Client and thread together are the owner. */
static void test_thread_owner(void)
{
    mortise_client *one = open_client(NULL), *two = open_client(NULL);
    const char *name = fresh_name();
    if (!refused_here(one)) {
        mortise_lease *first, *second, *refused;
        EXPECT(OK, as_owner(one, name, MORTISE_OWNER_THREAD, 0, &first));
        EXPECT(OK, as_owner(one, name, MORTISE_OWNER_THREAD, -1, &second));
        EXPECT(BUSY, in_other_thread(one, name));
        EXPECT(BUSY, as_owner(two, name, MORTISE_OWNER_THREAD, 0, &refused));
        EXPECT(BUSY, try_once(one, name));
        give(first);
        EXPECT(BUSY, in_other_thread(one, name));
        give(second);
        EXPECT(OK, in_other_thread(one, name));
    }
    close_client(one);
    close_client(two);
}

/* An owner that holds the name does not queue behind the callers that wait for it. */
static void test_passes_waiters(void)
{
    mortise_client *client = open_client(NULL), *other = open_client(NULL);
    const char *name = fresh_name();
    if (!refused_here(client)) {
        struct pending here = PENDING_INIT, there = PENDING_INIT;
        mortise_lease *first, *second, *third;
        here.release_at_once = there.release_at_once = true;
        EXPECT(OK, as_owner(client, name, "us", 0, &first));
        pending_start(&here, client, name, MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = 60000));
        pending_start(&there, other, name, MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = 60000));
        CU_ASSERT(wait_local_waiters(client, 1));
        CU_ASSERT(wait_local_waiters(other, 1));
        EXPECT(OK, as_owner(client, name, "us", TEST_PATIENCE_MS, &second));
        EXPECT(OK, as_owner(other, name, "us", TEST_PATIENCE_MS, &third));
        give(first);
        give(second);
        CU_ASSERT_EQUAL(test_count_get(&here.calls) + test_count_get(&there.calls), 0);
        give(third);
        PENDING_EXPECT(&here, OK);
        PENDING_EXPECT(&there, OK);
    }
    close_client(client);
    close_client(other);
}

/* A shorter ttl of one does not shorten the other's. */
static void test_ttls_of_two(void)
{
    mortise_client *one = open_client(NULL), *two = open_client(NULL), *other = open_client(NULL);
    const char *name = fresh_name();
    if (!refused_here(one)) {
        mortise_lease *longer, *shorter, *refused;
        int64_t began_ms = test_now_ms();
        EXPECT(OK, as_owner(one, name, "us", 0, &longer));
        EXPECT(OK, mortise_acquire(two, name,
                                   MORTISE_OPTIONS(.wait_ms = TEST_PATIENCE_MS,
                                                   .ttl_ms = subject.ttl_ms, .owner = "us",
                                                   .no_renew = true),
                                   &shorter, &detail));
        EXPECT(TIMEDOUT,
               mortise_acquire(other, name, MORTISE_OPTIONS(.wait_ms = 2 * subject.ttl_ms),
                               &refused, &detail));
        CU_ASSERT_EQUAL(mortise_state(longer), MORTISE_STATE_HELD);
        CU_ASSERT(mortise_remaining_ms(longer) >= 60000 - 605 - (test_now_ms() - began_ms));
        CU_ASSERT_EQUAL(mortise_state(shorter), MORTISE_STATE_LOST);
        EXPECT(LOST, mortise_release(shorter, &detail));
        EXPECT(BUSY, try_once(other, name));
        give(longer);
    }
    close_client(one);
    close_client(two);
    close_client(other);
}

/* mortise_owner: as snprintf, whoever the owner is. */
static void test_owner_text(void)
{
    mortise_client *client = open_client(NULL);
    char text[64] = "", cut[5] = "....";
    mortise_lease *lease = take(client, fresh_name(), 0), *again = take(client, fresh_name(), 0);
    CU_ASSERT_EQUAL(mortise_owner(lease, text, sizeof text), 32);
    CU_ASSERT_EQUAL(strlen(text), 32);
    for (size_t i = 0; i < strlen(text); i++)
        CU_ASSERT(isxdigit((unsigned char)text[i]) && !isupper((unsigned char)text[i]));
    CU_ASSERT_EQUAL(mortise_owner(lease, NULL, 0), 32);
    CU_ASSERT_EQUAL(mortise_owner(lease, cut, sizeof cut), 32);
    CU_ASSERT_NSTRING_EQUAL(cut, text, 4);
    CU_ASSERT_EQUAL(cut[4], '\0');
    char other[64] = "";
    mortise_owner(again, other, sizeof other);
    CU_ASSERT_STRING_NOT_EQUAL(text, other);
    give(lease);
    give(again);
    if (!refused_here(client)) {
        EXPECT(OK, as_owner(client, fresh_name(), "somebody", 0, &lease));
        CU_ASSERT_EQUAL(mortise_owner(lease, text, sizeof text), 8);
        CU_ASSERT_STRING_EQUAL(text, "somebody");
        give(lease);
    }
    close_client(client);
}

/* Owners, like names, are bytes. */
static void test_odd_owners(void)
{
    static const char *const odd[] = {"'; --", "a\nb", "%s", "\x01", "\xff", "a ", "a", " a", "A"};
    mortise_client *client = open_client(NULL), *other = open_client(NULL);
    const char *name = fresh_name();
    char longest[MORTISE_OWNER_MAX + 1];
    memset(longest, 'o', MORTISE_OWNER_MAX);
    longest[MORTISE_OWNER_MAX] = '\0';
    for (size_t i = 0; has(MORTISE_CAP_REENTRANT) && i <= sizeof odd / sizeof *odd; i++) {
        const char *owner = i < sizeof odd / sizeof *odd ? odd[i] : longest;
        mortise_lease *first, *second, *refused;
        EXPECT(OK, as_owner(client, name, owner, 0, &first));
        EXPECT(OK, as_owner(other, name, owner, 0, &second));
        EXPECT(BUSY, as_owner(other, name, "other", 0, &refused));
        EXPECT(BUSY, as_owner(other, name, odd[i == 0], 0, &refused));
        if (has(MORTISE_CAP_INSPECT))
            CU_ASSERT_STRING_EQUAL(look(client, name).owner, owner);
        give(first);
        give(second);
    }
    close_client(client);
    close_client(other);
}

const CU_TestInfo owner_tests[] = {
    {"a shared owner", test_shared},
    {"a shared owner over processes", test_shared_over_processes},
    {"the thread as owner", test_thread_owner},
    {"an owner passes those that wait", test_passes_waiters},
    {"ttls of two", test_ttls_of_two},
    {"mortise_owner", test_owner_text},
    {"odd owners", test_odd_owners},
    CU_TEST_INFO_NULL,
};
