/* life.c - a lease over time: its deadline, its renewal, its maximum hold time, its end. */
#include "conformance.h"

#include <poll.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

/* What on_state said. */
struct told {
    struct test_count calls, lost, suspect;
    mortise_lease *lease;
};
#define TOLD_INIT                                                                                  \
    {                                                                                              \
        TEST_COUNT_INIT, TEST_COUNT_INIT, TEST_COUNT_INIT, NULL                                    \
    }

static void on_state(mortise_lease *lease, mortise_lease_state state, void *user_data)
{
    struct told *told = user_data;
    told->lease = lease;
    test_count_add(&told->calls, 1);
    if (state == MORTISE_STATE_LOST)
        test_count_add(&told->lost, 1);
    if (state == MORTISE_STATE_SUSPECT)
        test_count_add(&told->suspect, 1);
}

/* However long that takes: what was granted when its ttl was over is asked for again. */
static mortise_lease *take_with(mortise_client *client, const char *name,
                                const mortise_options *options)
{
    mortise_options patient = *options;
    mortise_lease *lease = NULL;
    patient.wait_ms = TEST_PATIENCE_MS;
    EXPECT(OK, mortise_acquire(client, name, &patient, &lease, &detail));
    return lease;
}

/* A lease is held until its deadline and lost from then on. The next holder gets the name after that, not before. */
static int64_t next_holder_late_ms(void *unused)
{
    (void)unused;
    mortise_client *client = open_client(NULL), *other = open_client(NULL);
    const char *name = fresh_name();
    struct told told = TOLD_INIT;
    int64_t began_ms = test_now_ms(), ttl_ms = subject.ttl_ms;
    mortise_lease *lease =
        take_with(client, name,
                  MORTISE_OPTIONS(.wait_ms = 0, .ttl_ms = ttl_ms, .no_renew = true,
                                  .on_state = on_state, .user_data = &told));
    int64_t remaining_ms = mortise_remaining_ms(lease);
    CU_ASSERT(remaining_ms <= ttl_ms - 2 - ttl_ms / 100); /* the drift margin */
    mortise_lease *next = NULL;
    EXPECT(OK, mortise_acquire(other, name, MORTISE_OPTIONS(.wait_ms = TEST_PATIENCE_MS), &next,
                               &detail));
    CU_ASSERT_EQUAL(mortise_state(lease), MORTISE_STATE_LOST);
    CU_ASSERT_EQUAL(mortise_remaining_ms(lease), 0);
    int64_t took_ms = test_now_ms() - began_ms;
    CU_ASSERT(took_ms >= remaining_ms);
    CU_ASSERT(test_count_wait(&told.lost, 1));
    CU_ASSERT_PTR_EQUAL(told.lease, lease);
    if (has(MORTISE_CAP_FENCING))
        CU_ASSERT(mortise_token(next) > mortise_token(lease));
    EXPECT(LOST, mortise_release(lease, &detail));
    EXPECT(INVALID, mortise_release(lease, &detail));
    CU_ASSERT_EQUAL(test_count_get(&told.lost), 1);
    CU_ASSERT_EQUAL(mortise_state(next), MORTISE_STATE_HELD); /* that release did it no harm */
    EXPECT(BUSY, try_once(client, name));
    give(next);
    close_client(client);
    close_client(other);
    return took_ms - ttl_ms;
}

static void test_deadline(void)
{
    CU_ASSERT(soon(next_holder_late_ms, NULL));
}

#define MS INT64_C(1000000)

static int64_t clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (int64_t)now.tv_sec * 1000 * MS + now.tv_nsec;
}

/* Remaining time only falls, and the state agrees with it at each look, without waiting for the library's
 * threads to notice. It looks without a pause where the end is near, and a thousand times a second before that. */
static void test_remaining_falls(void)
{
    enum { NEAR_MS = 100 };
    mortise_client *client = open_client(NULL);
    mortise_lease *lease =
        take_with(client, fresh_name(),
                  MORTISE_OPTIONS(.wait_ms = 0, .ttl_ms = subject.ttl_ms, .no_renew = true));
    int64_t last_ms = INT64_MAX, now_ns = clock_ns(), until_ns = now_ns + TEST_PATIENCE_MS * MS;
    int64_t latest_ns =
        INT64_MAX; /* the deadline is not later: each look at the time left says more */
    int rises = 0, late = 0;
    bool lost = false;
    while (!lost && now_ns < until_ns) {
        if (last_ms >
            20) { /* then only the state: a look at the time may find the loss by itself */
            int64_t left_ms = mortise_remaining_ms(lease);
            int64_t by_now_ns = clock_ns() + (left_ms + 1) * MS;
            rises += left_ms > last_ms || left_ms < 0;
            last_ms = left_ms;
            latest_ns = by_now_ns < latest_ns ? by_now_ns : latest_ns;
        }
        now_ns = clock_ns();
        lost = mortise_state(lease) == MORTISE_STATE_LOST;
        late += now_ns > latest_ns && !lost;
        if (last_ms > NEAR_MS)
            poll(NULL, 0, 1);
    }
    CU_ASSERT_EQUAL(rises, 0);
    CU_ASSERT_EQUAL(late, 0);
    CU_ASSERT_EQUAL(mortise_state(lease), MORTISE_STATE_LOST);
    CU_ASSERT_EQUAL(mortise_remaining_ms(lease), 0);
    EXPECT(LOST, mortise_release_nowait(lease, &detail));
    CU_ASSERT_EQUAL(stats_of(client).losses, 1);
    close_client(client);
}

/* A lease that is not renewed lasts for as long as its holder asks in time, here and in the backend. */
static void test_extend(void)
{
    mortise_client *client = open_client(NULL), *other = open_client(NULL);
    const char *name = NULL;
    mortise_lease *lease = NULL, *none;
    mortise_status status = MORTISE_LOST;
    /* On a machine that is busy for a whole ttl it is LOST, or nobody knows. */
    for (int round = 0; round < 10 && (status == MORTISE_LOST || status == MORTISE_INDETERMINATE);
         round++) {
        mortise_release(lease, NULL);
        name = fresh_name();
        lease =
            take_with(client, name,
                      MORTISE_OPTIONS(.wait_ms = 0, .ttl_ms = subject.ttl_ms, .no_renew = true));
        status = mortise_extend(lease, 60000, &detail);
    }
    EXPECT(OK, status);
    uint64_t token = mortise_token(lease);
    if (!has(MORTISE_CAP_SESSION))
        CU_ASSERT(mortise_remaining_ms(lease) > 50000);
    EXPECT(TIMEDOUT, mortise_acquire(other, name, MORTISE_OPTIONS(.wait_ms = 2 * subject.ttl_ms),
                                     &none, &detail));
    CU_ASSERT_EQUAL(mortise_state(lease), MORTISE_STATE_HELD);
    EXPECT(OK, mortise_extend(lease, MORTISE_TTL_MIN_MS, &detail)); /* that makes it no shorter */
    EXPECT(TIMEDOUT, mortise_acquire(other, name, MORTISE_OPTIONS(.wait_ms = 200), &none, &detail));
    CU_ASSERT_EQUAL(mortise_state(lease), MORTISE_STATE_HELD);
    CU_ASSERT_EQUAL(mortise_token(lease), token);
    give(lease);
    EXPECT(OK, try_once(other, name));
    close_client(client);
    close_client(other);
}

/* A lease that is held from the first test to the last, except for the tests that stop the server, and for two ttls
 * at least. Its ttl is so long that a busy machine does not lose it. */
static struct {
    mortise_client *client;
    mortise_lease *lease;
    char name[64];
    uint64_t token;
    int64_t began_ms;
    struct told told;
} kept = {.told = TOLD_INIT};

void kept_begin(void)
{
    snprintf(kept.name, sizeof kept.name, "kept-%d-%lld", (int)getpid(), (long long)time(NULL));
    kept.client = open_client(NULL);
    kept.began_ms = test_now_ms();
    kept.lease = take_with(kept.client, kept.name,
                           MORTISE_OPTIONS(.wait_ms = 0, .ttl_ms = subject.kept_ms,
                                           .on_state = on_state, .user_data = &kept.told));
    kept.token = mortise_token(kept.lease);
}

void kept_end(void)
{
    mortise_close(kept.client, NULL); /* of a run of other tests */
}

static bool ttls_have_passed(void *unused)
{
    (void)unused;
    return test_now_ms() - kept.began_ms > 2 * subject.kept_ms;
}

/* Nobody else comes in. */
static void test_renewal(void)
{
    mortise_client *other = open_client(NULL);
    CU_ASSERT(test_poll(ttls_have_passed, NULL, TEST_PATIENCE_MS));
    EXPECT(BUSY, try_once(other, kept.name));
    CU_ASSERT_NOT_EQUAL(mortise_state(kept.lease), MORTISE_STATE_LOST);
    CU_ASSERT(mortise_remaining_ms(kept.lease) <= subject.kept_ms);
    CU_ASSERT_EQUAL(mortise_token(kept.lease), kept.token);
    CU_ASSERT_EQUAL(test_count_get(&kept.told.lost), 0);
    CU_ASSERT(stats_of(kept.client).renewals >= 2);
    give(kept.lease);
    EXPECT(OK, try_once(other, kept.name));
    close_client(kept.client);
    close_client(other);
}

struct renewed {
    mortise_client *client;
    uint64_t before;
};

static bool is_renewed_ten_times(void *argument)
{
    struct renewed *renewed = argument;
    return stats_of(renewed->client).renewals >= renewed->before + 10;
}

static bool lasts_ten_ttls(mortise_client *client, mortise_client *other, int64_t ttl_ms)
{
    const char *name = fresh_name();
    struct renewed renewed = {client, stats_of(client).renewals};
    mortise_lease *lease = take_with(client, name, MORTISE_OPTIONS(.wait_ms = 0, .ttl_ms = ttl_ms));
    uint64_t token = mortise_token(lease);
    int64_t until_ms = test_now_ms() + 10 * ttl_ms;
    while (test_now_ms() < until_ms && mortise_state(lease) != MORTISE_STATE_LOST)
        wait_state(lease, MORTISE_STATE_LOST, until_ms - test_now_ms());
    bool kept_it = mortise_state(lease) != MORTISE_STATE_LOST;
    if (kept_it) {
        CU_ASSERT(is_renewed_ten_times(&renewed));
        CU_ASSERT_EQUAL(mortise_token(lease), token);
        mortise_status status = try_once(other, name);
        CU_ASSERT(status != MORTISE_OK || mortise_state(lease) == MORTISE_STATE_LOST);
    }
    mortise_release(
        lease, NULL); /* LOST if it is; what the release finds is not the business of this test */
    return kept_it;
}

/* A short lease outlives ten of its ttls. A machine that stands still for longer than a ttl may lose it: then once
 * more. */
static void test_ten_ttls(void)
{
    enum { TRIES = 8 };
    mortise_client *client = open_client(NULL), *other = open_client(NULL);
    struct short_ttl ttl = {.ms = subject.ttl_ms};
    bool kept_it = false;
    for (int tries = 0; tries < TRIES && !kept_it;) {
        short_ttl_begin(&ttl);
        kept_it = lasts_ten_ttls(client, other, ttl.ms);
        tries += !short_ttl_excuses(&ttl, !kept_it);
    }
    CU_ASSERT(kept_it);
    close_client(client);
    close_client(other);
}

/* Renewal ends with the lease: it does not bring a released one back. */
static void test_no_renewal_after_release(void)
{
    mortise_client *client = open_client(NULL), *other = open_client(NULL);
    const char *name = fresh_name();
    enum { ROUNDS = 20 };
    int granted = 0, failed = 0;
    for (int i = 0; i < ROUNDS; i++) {
        mortise_lease *lease;
        if (mortise_acquire(
                client, name,
                MORTISE_OPTIONS(.wait_ms = TEST_PATIENCE_MS / ROUNDS, .ttl_ms = MORTISE_TTL_MIN_MS),
                &lease, &detail) != MORTISE_OK) {
            failed++; /* a busy disk took longer than so short a ttl, time and again */
            continue;
        }
        granted++;
        wait_state(lease, MORTISE_STATE_LOST, 10 + i);
        mortise_status status = mortise_release(lease, &detail);
        CU_ASSERT(status == MORTISE_OK || status == MORTISE_LOST); /* so short a ttl may be lost */
        if (status == MORTISE_OK && failed == 0) /* a claim that came back would soon be gone */
            EXPECT(OK, try_once(other, name));
    }
    CU_ASSERT(granted > 0);
    mortise_lease *lease = take(other, name, 60000);
    CU_ASSERT_EQUAL(stats_of(client).held, 0);
    give(lease);
    close_client(client);
    close_client(other);
}

static void test_renewed_before_max_hold(void)
{
    mortise_client *renewing = open_client("renew_every = 100ms");
    mortise_lease *lease =
        take_with(renewing, fresh_name(),
                  MORTISE_OPTIONS(.wait_ms = 0, .ttl_ms = 60000, .max_hold_ms = 120000));
    CU_ASSERT(wait_renewals(renewing, 3));
    give(lease);
    close_client(renewing);
}

static int64_t max_hold_late_ms(void *unused)
{
    (void)unused;
    mortise_client *client = open_client(NULL), *other = open_client(NULL);
    const char *name = fresh_name();
    struct told told = TOLD_INIT;
    int64_t began_ms = test_now_ms(), hold_ms = 3 * subject.ttl_ms;
    mortise_lease *lease = take_with(client, name,
                                     MORTISE_OPTIONS(.wait_ms = 0, .ttl_ms = subject.ttl_ms,
                                                     .max_hold_ms = hold_ms, .on_state = on_state,
                                                     .user_data = &told)),
                  *next = NULL;
    EXPECT(OK, mortise_acquire(other, name, MORTISE_OPTIONS(.wait_ms = TEST_PATIENCE_MS), &next,
                               &detail));
    CU_ASSERT_EQUAL(mortise_state(lease), MORTISE_STATE_LOST);
    int64_t took_ms = test_now_ms() - began_ms;
    CU_ASSERT(test_count_wait(&told.lost, 1));
    EXPECT(LOST, mortise_release(lease, &detail));
    give(next);
    close_client(client);
    close_client(other);
    return took_ms - hold_ms - subject.ttl_ms;
}

static void test_max_hold(void)
{
    CU_ASSERT(soon(max_hold_late_ms, NULL));
}

/* After release has returned, on_state is not called any more. */
static void test_not_told_after_release(void)
{
    mortise_client *client = open_client(NULL);
    for (int i = 0; i < 10; i++) {
        struct told told = TOLD_INIT;
        mortise_lease *lease;
        mortise_status status = mortise_acquire(
            client, fresh_name(),
            MORTISE_OPTIONS(.wait_ms = TEST_PATIENCE_MS, .ttl_ms = MORTISE_TTL_MIN_MS,
                            .no_renew = true, .on_state = on_state, .user_data = &told),
            &lease, &detail);
        if (status != MORTISE_OK)
            continue; /* a busy disk took longer than so short a ttl, time and again */
        wait_state(lease, MORTISE_STATE_LOST, 40 + i);
        mortise_release(lease, NULL);
        int calls = test_count_get(&told.calls);
        EXPECT(OK, try_once(client, fresh_name()));
        CU_ASSERT_EQUAL(test_count_get(&told.calls), calls);
        CU_ASSERT(calls <= 1);
    }
    close_client(client);
}

const CU_TestInfo life_tests[] = {
    {"deadline", test_deadline},
    {"remaining time falls", test_remaining_falls},
    {"extended by its holder", test_extend},
    {"no renewal after release", test_no_renewal_after_release},
    {"renewed over ten ttls", test_ten_ttls},
    {"renewed until max_hold", test_renewed_before_max_hold},
    {"max_hold", test_max_hold},
    {"not told after release", test_not_told_after_release},
    CU_TEST_INFO_NULL,
};

const CU_TestInfo kept_tests[] = {
    {"renewal over several ttls", test_renewal},
    CU_TEST_INFO_NULL,
};
