/* process.c - holders and waiters in other processes, which are really killed and stopped. */
#include "conformance.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

/* A taker that holds the name; false where there are no other processes. */
static bool start_holder(struct test_process *taker, const char *name, int64_t ttl_ms,
                         uint64_t *token)
{
    char line[300];
    if (!subject.processes || !taker_start(taker, NULL))
        return false;
    snprintf(line, sizeof line, "acquire %s %d %d", name, TEST_PATIENCE_MS, (int)ttl_ms);
    *token = taker_number(taker, line);
    return true;
}

static bool is_woken(mortise_client *client)
{
    struct test_process taker;
    struct blocked blocked;
    const char *name = fresh_name();
    uint64_t token;
    if (!start_holder(&taker, name, has(MORTISE_CAP_NOTIFY) ? 60000 : subject.ttl_ms, &token))
        return true;
    EXPECT(BUSY, try_once(client, name));
    int64_t began_ms = test_now_ms();
    blocked_start(&blocked, client, name, MORTISE_OPTIONS(.wait_ms = TEST_PATIENCE_MS));
    CU_ASSERT(wait_local_waiters(client, 1));
    if (has(MORTISE_CAP_NOTIFY))
        wait_waiters(name, 1); /* else it might ask for the first time when all is over */
    taker_expect(&taker, "release", "OK");
    EXPECT(OK, blocked_join(&blocked));
    bool told = was_told(began_ms);
    CU_ASSERT(!has(MORTISE_CAP_FENCING) || mortise_token(blocked.lease) > token);
    give(blocked.lease);
    taker_end(&taker);
    return told;
}

static void test_busy_and_woken(void)
{
    mortise_client *client = open_client(NULL);
    bool told = false;
    for (int i = 0; i < TOLD_TRIES && !told; i++)
        told = is_woken(client);
    CU_ASSERT(told);
    close_client(client);
}

/* And the other way round: this process gives, the other one waits. */
static bool wakes_other(mortise_client *client, struct test_process *taker)
{
    const char *name = fresh_name();
    char line[300], heard[1200] = "";
    mortise_lease *lease = take(client, name, has(MORTISE_CAP_NOTIFY) ? 60000 : subject.ttl_ms);
    snprintf(line, sizeof line, "acquire %s -1 0", name);
    int64_t began_ms = test_now_ms();
    CU_ASSERT(test_say(taker, "%s", line));
    CU_ASSERT(wait_waiters(name, 1) || !has(MORTISE_CAP_INSPECT) || look(client, name).waiters < 0);
    give(lease);
    CU_ASSERT(test_hear(taker, heard, sizeof heard, TEST_PATIENCE_MS));
    bool told = was_told(began_ms);
    CU_ASSERT_NSTRING_EQUAL(heard, "OK ", 3);
    EXPECT(BUSY, try_once(client, name));
    taker_expect(taker, "nowait", "OK");
    give(take(client, name, 0));
    return told;
}

static void test_wakes_other(void)
{
    struct test_process taker;
    mortise_client *client = open_client(NULL);
    bool told = false;
    if (subject.processes && taker_start(&taker, NULL)) {
        for (int i = 0; i < TOLD_TRIES && !told; i++)
            told = wakes_other(client, &taker);
        CU_ASSERT(told);
        taker_end(&taker);
    }
    close_client(client);
}

static int64_t after_killed_late_ms(void *unused)
{
    (void)unused;
    struct test_process taker;
    mortise_client *client = open_client(NULL);
    const char *name = fresh_name();
    int64_t took_ms = 0;
    uint64_t token;
    if (start_holder(&taker, name, subject.ttl_ms, &token)) {
        test_kill(&taker);
        int64_t killed_ms = test_now_ms();
        mortise_lease *lease = take(client, name, 0);
        took_ms = test_now_ms() - killed_ms;
        CU_ASSERT(!has(MORTISE_CAP_FENCING) || mortise_token(lease) > token);
        give(lease);
    }
    close_client(client);
    return took_ms - (subject.killed_ms ? subject.killed_ms : subject.ttl_ms);
}

static void test_killed(void)
{
    CU_ASSERT(soon(after_killed_late_ms, NULL));
}

/* Held, for as long as its ttl promises, also after its holder's death. */
static void test_killed_keeps_ttl(void)
{
    struct test_process taker;
    mortise_client *client = open_client(NULL);
    const char *name = fresh_name();
    uint64_t token;
    int64_t ttl_ms = has(MORTISE_CAP_FENCING) ? 60000 : 6000; /* what cannot be broken must end */
    if (has(MORTISE_CAP_LEASE) && start_holder(&taker, name, ttl_ms, &token)) {
        test_kill(&taker);
        EXPECT(BUSY, try_once(client, name));
        if (has(MORTISE_CAP_FENCING)) {
            EXPECT(OK, mortise_break(client, name, token, &detail));
            EXPECT(OK, try_once(client, name));
        }
    }
    close_client(client);
}

/* The one thing no lock can prevent: it must find out at its first look, and the token tells. */
static void test_stopped(void)
{
    struct test_process taker;
    mortise_client *client = open_client(NULL);
    const char *name = fresh_name();
    uint64_t token;
    if (start_holder(&taker, name, subject.ttl_ms, &token)) {
        int status;
        CU_ASSERT(test_signal(&taker, SIGSTOP));
        CU_ASSERT(waitpid(taker.pid, &status, WUNTRACED) == taker.pid && WIFSTOPPED(status));
        mortise_lease *lease = take(client, name, 60000);
        CU_ASSERT(!has(MORTISE_CAP_FENCING) || mortise_token(lease) > token);
        CU_ASSERT(test_signal(&taker, SIGCONT));
        taker_expect(&taker, "state", "LOST");
        taker_expect(&taker, "remaining", "OK 0");
        taker_expect(&taker, "release", "LOST");
        CU_ASSERT_EQUAL(mortise_state(lease), MORTISE_STATE_HELD);
        EXPECT(BUSY, try_once(subject.looker, name));
        give(lease);
        taker_expect(&taker, "ping", "OK");
        taker_end(&taker);
    }
    close_client(client);
}

/* A short stop costs nothing: the lease is renewed when it goes on. */
static void test_stopped_briefly(void)
{
    struct test_process taker;
    mortise_client *client = open_client(NULL);
    const char *name = fresh_name();
    uint64_t token;
    if (start_holder(&taker, name, 60000, &token)) {
        int status;
        CU_ASSERT(test_signal(&taker, SIGSTOP));
        CU_ASSERT(waitpid(taker.pid, &status, WUNTRACED) == taker.pid && WIFSTOPPED(status));
        EXPECT(BUSY, try_once(client, name));
        CU_ASSERT(test_signal(&taker, SIGCONT));
        taker_expect(&taker, "state", "HELD");
        taker_expect(&taker, "release", "OK");
        EXPECT(OK, try_once(client, name));
        taker_end(&taker);
    }
    close_client(client);
}

/* Waiters that die, by whatever death, leave nobody waiting behind them. */
static void test_waiters_killed(void)
{
    struct test_process takers[3];
    mortise_client *client = open_client(NULL);
    const char *name = fresh_name();
    struct pending pending = PENDING_INIT;
    bool with_takers = subject.processes;
    mortise_lease *lease = take(client, name, 60000);
    for (int i = 0; with_takers && i < 3; i++) {
        with_takers = taker_start(&takers[i], NULL) &&
                      test_say(&takers[i], "acquire %s -1 %d", name, (int)subject.ttl_ms);
        wait_waiters(name, i + 1);
    }
    pending.release_at_once = true; /* it may come before them */
    pending_start(&pending, subject.looker, name,
                  MORTISE_OPTIONS(.wait_ms = TEST_PATIENCE_MS, .ttl_ms = 60000));
    if (with_takers) {
        test_kill(&takers[0]);
        test_kill(&takers[2]);
    }
    give(lease);
    if (with_takers) {
        char heard[1200] = "";
        CU_ASSERT(test_hear(&takers[1], heard, sizeof heard, TEST_PATIENCE_MS));
        CU_ASSERT_NSTRING_EQUAL(heard, "OK ", 3);
        test_kill(&takers[1]); /* holds it now, for its ttl: not for the longer one of before */
    }
    PENDING_EXPECT(&pending, OK);
    close_client(client);
}

/* A process that ends without a word leaves its leases to their ttl; one that closes, nothing. */
static void test_closed_there(void)
{
    struct test_process taker;
    mortise_client *client = open_client(NULL);
    const char *name = fresh_name();
    uint64_t token;
    if (start_holder(&taker, name, 60000, &token)) {
        taker_expect(&taker, "close", "OK");
        EXPECT(OK, try_once(client, name));
        taker_expect(&taker, "close", "CLOSED");
        taker_end(&taker);
    }
    close_client(client);
}

const CU_TestInfo process_tests[] = {
    {"woken by another process", test_busy_and_woken},
    {"wakes another process", test_wakes_other},
    {"holder killed", test_killed},
    {"holder killed, ttl not over", test_killed_keeps_ttl},
    {"holder stopped past its ttl", test_stopped},
    {"holder stopped briefly", test_stopped_briefly},
    {"waiters killed", test_waiters_killed},
    {"closed in another process", test_closed_there},
    CU_TEST_INFO_NULL,
};
