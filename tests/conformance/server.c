/* server.c - the server is stopped, started again and frozen, and its replies are lost, if the subject's hooks can do
 * that. */
#include "conformance.h"

#include <stdio.h>

static const char hurry[] = "!unreachable_timeout = 500ms\nclose_timeout = 60s";

struct told {
    struct test_count suspect, lost;
};
#define TOLD_INIT                                                                                  \
    {                                                                                              \
        TEST_COUNT_INIT, TEST_COUNT_INIT                                                           \
    }

static void on_state(mortise_lease *lease, mortise_lease_state state, void *user_data)
{
    struct told *told = user_data;
    (void)lease;
    if (state != MORTISE_STATE_HELD)
        test_count_add(state == MORTISE_STATE_LOST ? &told->lost : &told->suspect, 1);
}

struct taken {
    mortise_client *client;
    const char *name;
    mortise_options options;
    mortise_lease *lease;
};

static bool is_taken(void *argument)
{
    struct taken *taken = argument;
    return mortise_acquire(taken->client, taken->name, &taken->options, &taken->lease, &detail) ==
           MORTISE_OK;
}

/* By a client with short timeouts: tries again if the machine was slow. */
static mortise_lease *take_told(mortise_client *client, const char *name, int64_t ttl_ms,
                                struct told *told)
{
    struct taken taken = {client, name,
                          *MORTISE_OPTIONS(.wait_ms = TEST_PATIENCE_MS, .ttl_ms = ttl_ms,
                                           .on_state = told ? on_state : NULL, .user_data = told),
                          NULL};
    CU_ASSERT(test_poll(is_taken, &taken, TEST_PATIENCE_MS));
    return taken.lease;
}

static bool is_refused(void *argument)
{
    struct taken *taken = argument;
    mortise_status status = try_once(taken->client, taken->name);
    CU_ASSERT_NOT_EQUAL(status, MORTISE_OK);
    return status == MORTISE_BUSY;
}

static int64_t away_late_ms(void *client)
{
    mortise_lease *lease = (mortise_lease *)(uintptr_t)1;
    int64_t began_ms = test_now_ms();
    mortise_status status =
        mortise_acquire(client, fresh_name(),
                        MORTISE_OPTIONS(.wait_ms = 300, .ttl_ms = subject.ttl_ms), &lease, &detail);
    CU_ASSERT(status == MORTISE_UNREACHABLE || status == MORTISE_TIMEDOUT ||
              status == MORTISE_INDETERMINATE);
    CU_ASSERT_PTR_NULL(lease);
    return test_now_ms() - began_ms - 300;
}

/* The server is down: a call that needs it returns in time with one of the errors that say so. */
static void expect_away(mortise_client *client)
{
    CU_ASSERT(soon(away_late_ms, client));
}

static bool works(void *argument)
{
    mortise_lease *lease;
    return mortise_acquire(argument, fresh_name(), MORTISE_OPTIONS(.wait_ms = 300), &lease, NULL) ==
               MORTISE_OK &&
           mortise_release(lease, NULL) == MORTISE_OK;
}

/* It loses its lease by its own clock while the server is down; then everything works again. */
static void test_restart(void)
{
    if (!(subject.can & HOOK_RESTART))
        return;
    mortise_client *client = open_client(hurry), *other = open_client(hurry),
                   *renewing = open_client("renew_every = 100ms");
    const char *name = fresh_name();
    struct told told = TOLD_INIT, told_first = TOLD_INIT;
    char text[256];
    mortise_lease *lease = take_told(client, name, 3 * subject.ttl_ms, &told),
                  *suspect = take_told(renewing, fresh_name(), 60000, &told_first);
    uint64_t token = mortise_token(lease);
    CU_ASSERT_FATAL(subject_hook("stop"));
    CU_ASSERT(test_count_wait(&told_first.suspect, 1)); /* before it is lost */
    expect_away(other);
    mortise_status pinged = mortise_ping(other, text, sizeof text, &detail);
    CU_ASSERT(pinged == MORTISE_UNREACHABLE || pinged == MORTISE_INDETERMINATE);
    mortise_client *late = open_client(hurry); /* no error: the calls report it */
    expect_away(late);
    CU_ASSERT(wait_state(lease, MORTISE_STATE_LOST, TEST_PATIENCE_MS));
    CU_ASSERT(test_count_wait(&told.lost, 1));
    EXPECT(LOST, mortise_release(lease, &detail));
    CU_ASSERT_FATAL(subject_hook("start"));
    CU_ASSERT(test_poll(works, client, TEST_PATIENCE_MS));
    CU_ASSERT(test_poll(works, other, TEST_PATIENCE_MS));
    CU_ASSERT(test_poll(works, late, TEST_PATIENCE_MS));
    lease = take(subject.looker, name, 0);
    CU_ASSERT(!has(MORTISE_CAP_FENCING) || mortise_token(lease) > token);
    give(lease);
    mortise_release(suspect, NULL);
    close_client(client);
    close_client(other);
    close_client(late);
    close_client(renewing);
}

/* A grant survives the restart, if the driver promises that, and its waiter is not forgotten. This holds unless the
 * restart takes longer than the lease lasts; on a busy machine it may, if the lease depends on a short session. */
static void test_durable(void)
{
    if (!(subject.can & HOOK_RESTART))
        return;
    mortise_client *client = open_client("renew_every = 100ms\nunreachable_timeout = 60s"),
                   *other = open_client("unreachable_timeout = 60s");
    const char *name = fresh_name();
    struct blocked blocked;
    mortise_lease *lease = take(client, name, 30000);
    blocked_start(&blocked, other, name, MORTISE_OPTIONS(.wait_ms = 3 * TEST_PATIENCE_MS));
    CU_ASSERT(wait_local_waiters(other, 1));
    int64_t deadline_ms = test_now_ms();
    deadline_ms += mortise_remaining_ms(lease);
    CU_ASSERT_FATAL(subject_hook("stop"));
    CU_ASSERT_FATAL(subject_hook("start"));
    CU_ASSERT(test_poll(works, client, TEST_PATIENCE_MS));
    bool in_time = test_now_ms() + 500 < deadline_ms;
    if (has(MORTISE_CAP_DURABLE) && in_time) {
        CU_ASSERT_EQUAL(test_count_get(&blocked.done), 0);
        CU_ASSERT(wait_state(lease, MORTISE_STATE_HELD, TEST_PATIENCE_MS));
        give(lease);
    } else {
        mortise_release(lease, NULL);
    }
    if (!in_time)
        printf("(not in time) ");
    EXPECT(OK, blocked_join(&blocked));
    give(blocked.lease);
    close_client(client);
    close_client(other);
}

/* It accepts requests and answers none. */
static void test_frozen(void)
{
    if (!(subject.can & HOOK_FREEZE))
        return;
    mortise_client *client = open_client(hurry);
    const char *name = fresh_name();
    struct told told = TOLD_INIT;
    mortise_lease *lease = take_told(client, name, subject.ttl_ms, &told);
    CU_ASSERT_FATAL(subject_hook("freeze"));
    CU_ASSERT(wait_state(lease, MORTISE_STATE_LOST, TEST_PATIENCE_MS));
    CU_ASSERT(test_count_wait(&told.lost, 1));
    expect_away(client);
    EXPECT(LOST, mortise_release(lease, &detail));
    CU_ASSERT_FATAL(subject_hook("thaw"));
    CU_ASSERT(test_poll(works, client, TEST_PATIENCE_MS));
    give(take(subject.looker, name, 0));
    /* An acquire that was sent to the frozen server may still be executed when its ttl is over, on a machine that is slow. */
    mortise_status status = mortise_close(client, &detail);
    CU_ASSERT(status == MORTISE_OK || (subject.lingers && status == MORTISE_UNREACHABLE));
}

/* mortise_close() does not wait for a server that does not answer, and reports what it left: a claim of 3 s. */
static int64_t close_frozen_late_ms(void *unused)
{
    (void)unused;
    mortise_client *client = open_client("!unreachable_timeout = 500ms\nclose_timeout = 1s");
    struct pending pending = PENDING_INIT;
    mortise_lease *lease = take_told(client, fresh_name(), 3000, NULL);
    CU_ASSERT_FATAL(subject_hook("freeze"));
    pending_start(&pending, client, fresh_name(), MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = 3000));
    int64_t began_ms = test_now_ms();
    EXPECT(UNREACHABLE, mortise_close(client, &detail));
    int64_t took_ms = test_now_ms() - began_ms;
    PENDING_EXPECT(&pending, CLOSED);
    CU_ASSERT_EQUAL(mortise_state(lease), MORTISE_STATE_LOST);
    CU_ASSERT_FATAL(subject_hook("thaw"));
    CU_ASSERT(test_poll(works, subject.looker, TEST_PATIENCE_MS));
    return took_ms - 1000;
}

static void test_close_frozen(void)
{
    if (subject.can & HOOK_FREEZE)
        CU_ASSERT(soon(close_frozen_late_ms, NULL));
}

/* Executed, and the reply is lost: a claim that comes too late is released, without waiting for its ttl. */
static void test_reply_lost(void)
{
    if (!(subject.can & HOOK_LOSE))
        return;
    mortise_client *client = open_client(hurry), *other = open_client(NULL);
    const char *name = fresh_name();
    mortise_lease *lease;
    CU_ASSERT_FATAL(subject_hook("lose"));
    mortise_status status = mortise_acquire(
        client, name, MORTISE_OPTIONS(.wait_ms = 300, .ttl_ms = 60000), &lease, &detail);
    CU_ASSERT(status == MORTISE_INDETERMINATE || status == MORTISE_UNREACHABLE ||
              status == MORTISE_TIMEDOUT);
    CU_ASSERT_PTR_NULL(lease);
    CU_ASSERT_FATAL(subject_hook("pass"));
    EXPECT(OK, mortise_acquire(other, name, MORTISE_OPTIONS(.wait_ms = LESS_THAN_A_MINUTE_MS),
                               &lease, &detail));
    give(lease);
    close_client(client);
    close_client(other);
}

struct asked {
    mortise_client *client;
    uint64_t before;
};

/* The first one and a repeat. */
static bool more_requests(void *argument)
{
    const struct asked *asked = argument;
    return stats_of(asked->client).requests >= asked->before + 2;
}

/* Repeated under the same grant, it is granted once. */
static void test_reply_lost_repeated(void)
{
    if (!(subject.can & HOOK_LOSE))
        return;
    mortise_client *client = open_client("!unreachable_timeout = 60s"), *other = open_client(NULL);
    const char *name = fresh_name();
    struct pending pending = PENDING_INIT;
    CU_ASSERT_FATAL(subject_hook("lose"));
    struct asked asked = {client, stats_of(client).requests};
    pending_start(&pending, client, name, MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = 60000));
    CU_ASSERT(test_poll(more_requests, &asked, TEST_PATIENCE_MS));
    CU_ASSERT_FATAL(subject_hook("pass"));
    PENDING_EXPECT(&pending, OK);
    EXPECT(BUSY, try_once(other, name));
    give(pending.lease);
    EXPECT(OK, try_once(other, name));
    close_client(client);
    close_client(other);
}

static bool count_holder(const mortise_info *info, void *count)
{
    (void)info;
    ++*(int *)count;
    return true;
}

/* The same of a shared one: it holds the name once. */
static void test_shared_repeated(void)
{
    mortise_client *client = open_client("!unreachable_timeout = 60s");
    const char *name = fresh_name();
    struct pending pending = PENDING_INIT;
    uint32_t permits = has(MORTISE_CAP_PERMITS) ? 1 : 0;
    int count = 0;
    if (!lacks(MORTISE_CAP_SHARED) && subject.can & HOOK_LOSE) {
        CU_ASSERT_FATAL(subject_hook("lose"));
        struct asked asked = {client, stats_of(client).requests};
        pending_start(&pending, client, name,
                      MORTISE_OPTIONS(.wait_ms = MORTISE_WAIT_FOREVER, .ttl_ms = 60000,
                                      .mode = MORTISE_SHARED, .permits = permits));
        CU_ASSERT(test_poll(more_requests, &asked, TEST_PATIENCE_MS));
        CU_ASSERT_FATAL(subject_hook("pass"));
        PENDING_EXPECT(&pending, OK);
        if (has(MORTISE_CAP_INSPECT)) {
            EXPECT(OK, mortise_holders(subject.looker, name, count_holder, &count, &detail));
            CU_ASSERT_EQUAL(count, 1);
        }
        if (permits > 0)
            SAFE(try_shared(subject.looker, name, permits) == MORTISE_BUSY);
        give(pending.lease);
        EXPECT(OK, try_once(subject.looker, name));
    }
    close_client(client);
}

struct releasing {
    pthread_t thread;
    mortise_lease *lease;
    mortise_status status;
};

static void *release_run(void *argument)
{
    struct releasing *releasing = argument;
    releasing->status = mortise_release(releasing->lease, NULL);
    return NULL;
}

/* What a release returns whose reply was lost, and whose repeat is answered. */
static mortise_status release_repeated(mortise_client *client)
{
    struct releasing releasing = {.lease = take_told(client, fresh_name(), 60000, NULL)};
    CU_ASSERT_FATAL(subject_hook("lose"));
    struct asked asked = {client, stats_of(client).requests};
    if (pthread_create(&releasing.thread, NULL, release_run, &releasing) != 0)
        CU_FAIL_FATAL("no thread");
    CU_ASSERT(test_poll(more_requests, &asked, TEST_PATIENCE_MS));
    CU_ASSERT(subject_hook("pass"));
    pthread_join(releasing.thread, NULL);
    return releasing.status;
}

/* It is reported as the success that it was. (LOST before its release, if the machine stood still for as long as a session
 * lasts: then once more.) */
static void test_release_repeated(void)
{
    if (!(subject.can & HOOK_LOSE))
        return;
    mortise_client *client = open_client("!unreachable_timeout = 60s");
    mortise_status status = MORTISE_LOST;
    for (int i = 0; i < TOLD_TRIES && status == MORTISE_LOST; i++)
        status = release_repeated(client);
    EXPECT(OK, status);
    close_client(client);
}

/* A release whose reply was lost is repeated, also when its caller has stopped waiting, and harms nobody who comes after
 * it. */
static void test_release_reply_lost(void)
{
    if (!(subject.can & HOOK_LOSE))
        return;
    mortise_client *client = open_client(hurry), *other = open_client(NULL);
    const char *name = fresh_name();
    mortise_lease *lease = take_told(client, name, 60000, NULL);
    CU_ASSERT_FATAL(subject_hook("lose"));
    mortise_status status = mortise_release(lease, &detail);
    CU_ASSERT(status == MORTISE_OK || status == MORTISE_UNREACHABLE ||
              status == MORTISE_INDETERMINATE);
    CU_ASSERT_FATAL(subject_hook("pass"));
    lease = take(other, name, 60000);
    CU_ASSERT(test_poll(works, client, TEST_PATIENCE_MS));
    CU_ASSERT_EQUAL(mortise_state(lease), MORTISE_STATE_HELD);
    CU_ASSERT(
        test_poll(is_refused, &(struct taken){.client = client, .name = name}, TEST_PATIENCE_MS));
    give(lease);
    close_client(client);
    close_client(other);
}

const CU_TestInfo server_tests[] = {
    {"server restarted", test_restart},
    {"grants over a restart", test_durable},
    {"server frozen", test_frozen},
    {"close while it is frozen", test_close_frozen},
    {"reply of an acquire lost", test_reply_lost},
    {"reply lost, acquire repeated", test_reply_lost_repeated},
    {"reply of a release lost", test_release_reply_lost},
    {"reply lost, release repeated", test_release_repeated},
    CU_TEST_INFO_NULL,
};

/* After all tests that hold something meanwhile. */
const CU_TestInfo repeat_tests[] = {
    {"holders: reply lost, acquire repeated", test_shared_repeated},
    CU_TEST_INFO_NULL,
};
