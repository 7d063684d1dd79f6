/* holders.c - several holders of one name: each has its own token, expiry and end; permits; inspect, break.
 * Skipped where the driver has no shared locks or no permits. */
#include "conformance.h"

#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

enum { MOST = 8 };

struct seen {
    size_t count;
    mortise_info infos[MOST];
};

static bool see(const mortise_info *info, void *user_data)
{
    struct seen *seen = user_data;
    if (seen->count < MOST)
        seen->infos[seen->count] = *info;
    return ++seen->count < MOST;
}

static struct seen holders_of(const char *name)
{
    struct seen seen = {0};
    EXPECT(OK, mortise_holders(subject.looker, name, see, &seen, &detail));
    return seen;
}

struct wanted {
    const char *name;
    size_t count;
    uint64_t token;
};

static bool are_so_many(void *argument)
{
    const struct wanted *wanted = argument;
    return holders_of(wanted->name).count == wanted->count;
}

static bool wait_holders(const char *name, size_t count)
{
    return test_poll(are_so_many, &(struct wanted){.name = name, .count = count}, TEST_PATIENCE_MS);
}

static bool is_gone(void *argument)
{
    const struct wanted *wanted = argument;
    struct seen seen = holders_of(wanted->name);
    for (size_t i = 0; i < seen.count && i < MOST; i++)
        if (seen.infos[i].token == wanted->token)
            return false;
    return true;
}

/* A taker that holds the name together with others; false: there are no other processes. */
static bool start_holder(struct test_process *taker, const char *name, int64_t ttl_ms,
                         unsigned permits, uint64_t *token)
{
    char line[300];
    if (!subject.processes)
        printf("(skipped: no other processes) ");
    if (!subject.processes || !taker_start(taker, NULL))
        return false;
    snprintf(line, sizeof line, "acquire %s %d %d - shared permits=%u", name, TEST_PATIENCE_MS,
             (int)ttl_ms, permits);
    *token = taker_number(taker, line);
    return true;
}

static int64_t killed_ms(int64_t ttl_ms)
{
    return subject.killed_ms ? subject.killed_ms : ttl_ms;
}

/* ---- inspect and break -------------------------------------------------------------------------- */

static bool count_one(const mortise_info *info, void *count)
{
    CU_ASSERT_EQUAL(info->holders, 3);
    ++*(int *)count;
    return true;
}

static void test_inspect(void)
{
    mortise_client *clients[3] = {open_client(NULL), open_client(NULL), open_client(NULL)};
    const char *name = fresh_name();
    uint32_t permits = has(MORTISE_CAP_PERMITS) ? 4711 : 0;
    mortise_lease *leases[3];
    if (lacks(MORTISE_CAP_SHARED) || !has(MORTISE_CAP_INSPECT))
        goto end;
    for (int i = 0; i < 3; i++)
        leases[i] = take_shared(clients[i], name, 60000, permits);
    CU_ASSERT(soon_tells_token(clients[1], name, mortise_token(leases[0])));
    mortise_info info = look(clients[1], name);
    CU_ASSERT(info.held);
    CU_ASSERT_EQUAL(info.mode, MORTISE_SHARED);
    CU_ASSERT_EQUAL(info.permits, permits);
    CU_ASSERT_EQUAL(info.holders, 3);
    CU_ASSERT_EQUAL(info.token, mortise_token(leases[0]));
    struct seen seen = holders_of(name);
    CU_ASSERT_EQUAL_FATAL(seen.count, 3);
    for (int i = 0; i < 3; i++) {
        char owner[MORTISE_OWNER_MAX + 1] = "";
        mortise_owner(leases[i], owner, sizeof owner);
        CU_ASSERT_EQUAL(seen.infos[i].token, mortise_token(leases[i]));
        CU_ASSERT_EQUAL(seen.infos[i].mode, MORTISE_SHARED);
        CU_ASSERT_STRING_EQUAL(seen.infos[i].name, name);
        CU_ASSERT(!has(MORTISE_CAP_FENCING) || strcmp(seen.infos[i].owner, owner) == 0);
        CU_ASSERT(seen.infos[i].pid > 0);
        CU_ASSERT(seen.infos[i].remaining_ms <= 60000);
    }
    int count = 0;
    if (has(MORTISE_CAP_LIST))
        EXPECT(OK, mortise_list(subject.looker, name, count_one, &count, &detail));
    CU_ASSERT_EQUAL(count, has(MORTISE_CAP_LIST)); /* a name is listed once */
    for (int i = 0; i < 3; i++)
        give(leases[i]);
    CU_ASSERT(wait_holders(name, 0));
    leases[0] = take(clients[0], name, 60000);
    seen = holders_of(name);
    CU_ASSERT_EQUAL(seen.count, 1);
    CU_ASSERT_EQUAL(seen.infos[0].mode, MORTISE_EXCLUSIVE);
    CU_ASSERT_EQUAL(seen.infos[0].holders, 1);
    CU_ASSERT_EQUAL(seen.infos[0].permits, 0);
    give(leases[0]);
end:
    for (int i = 0; i < 3; i++)
        close_client(clients[i]);
}

/* A break ends the one holder that has the token. */
static void test_break(void)
{
    mortise_client *clients[3];
    const char *name = fresh_name();
    mortise_lease *leases[3];
    for (int i = 0; i < 3; i++)
        clients[i] = open_client("renew_every = 100ms");
    if (lacks(MORTISE_CAP_SHARED) || !has(MORTISE_CAP_FENCING))
        goto end;
    for (int i = 0; i < 3; i++)
        leases[i] = take_shared(clients[i], name, 60000, 0);
    EXPECT(NOTOWNER, mortise_break(subject.looker, name, mortise_token(leases[2]) + 1, &detail));
    EXPECT(OK, mortise_break(subject.looker, name, mortise_token(leases[1]), &detail));
    mortise_status again = mortise_break(subject.looker, name, mortise_token(leases[1]), &detail);
    CU_ASSERT(again == MORTISE_NOTOWNER || again == MORTISE_LOST);
    CU_ASSERT(wait_state(leases[1], MORTISE_STATE_LOST, TEST_PATIENCE_MS));
    CU_ASSERT(wait_renewals(clients[0], 2));
    CU_ASSERT(wait_renewals(clients[2], 2));
    CU_ASSERT_EQUAL(mortise_state(leases[0]), MORTISE_STATE_HELD);
    CU_ASSERT_EQUAL(mortise_state(leases[2]), MORTISE_STATE_HELD);
    EXPECT(LOST, mortise_release(leases[1], &detail));
    SAFE(try_once(subject.looker, name) == MORTISE_BUSY);
    give(leases[0]);
    SAFE(try_once(subject.looker, name) == MORTISE_BUSY);
    give(leases[2]);
    EXPECT(OK, try_once(subject.looker, name));
end:
    for (int i = 0; i < 3; i++)
        close_client(clients[i]);
}

/* ---- holders that die --------------------------------------------------------------------------- */

/* The renewals of a holder keep writers out beyond its first ttl. False: it has lost the lease, and knows that; a machine that
 * stands still may do that. */
static bool was_kept(mortise_client *writer, const char *name, mortise_lease *kept)
{
    mortise_status tried = try_once(writer, name);
    bool lost = mortise_state(kept) == MORTISE_STATE_LOST;
    SAFE(tried == MORTISE_BUSY || lost);
    mortise_release(kept, NULL);
    return !lost;
}

/* It blocks a writer for its own ttl, whatever the others do: a longer ttl of theirs, and their renewals, do not count. */
static int64_t after_dead_reader_late_ms(void *unused)
{
    (void)unused;
    struct test_process taker;
    mortise_client *living = open_client("renew_every = 100ms"), *writer = open_client(NULL);
    mortise_client *brief = open_client(NULL);
    const char *name = fresh_name();
    int64_t took_ms = 0;
    uint64_t token;
    mortise_lease *lease = take_shared(living, name, 60000, 0);
    mortise_lease *kept = take_shared(brief, name, subject.ttl_ms, 0); /* renewed, too */
    if (start_holder(&taker, name, subject.ttl_ms, 0, &token)) {
        SAFE(!has(MORTISE_CAP_FENCING) || token > mortise_token(lease));
        test_kill(&taker);
        int64_t began_ms = test_now_ms();
        if (has(MORTISE_CAP_INSPECT) && has(MORTISE_CAP_FENCING))
            CU_ASSERT(test_poll(is_gone, &(struct wanted){.name = name, .token = token},
                                TEST_PATIENCE_MS)); /* the living ones go on renewing */
        CU_ASSERT_EQUAL(mortise_state(lease), MORTISE_STATE_HELD);
        SAFE(try_once(writer, name) == MORTISE_BUSY);
        give(lease);
        bool was_renewed = was_kept(writer, name, kept);
        lease = take(writer, name, 0);
        took_ms = was_renewed ? test_now_ms() - began_ms : TEST_PATIENCE_MS;
    } else
        give(kept);
    give(lease);
    close_client(living);
    close_client(brief);
    close_client(writer);
    return took_ms - killed_ms(subject.ttl_ms);
}

static void test_dead_reader(void)
{
    if (!lacks(MORTISE_CAP_SHARED))
        CU_ASSERT(soon(after_dead_reader_late_ms, NULL));
}

/* For its own ttl, too, and not less. */
static void test_dead_reader_keeps_ttl(void)
{
    struct test_process taker;
    mortise_client *other = open_client(NULL), *writer = open_client(NULL);
    const char *name = fresh_name();
    uint64_t token;
    if (!lacks(MORTISE_CAP_SHARED) && has(MORTISE_CAP_LEASE) && has(MORTISE_CAP_FENCING) &&
        start_holder(&taker, name, 60000, 0, &token)) {
        give(take_shared(other, name, subject.ttl_ms, 0)); /* a shorter one beside it ends */
        test_kill(&taker);
        SAFE(try_once(writer, name) == MORTISE_BUSY);
        EXPECT(OK, try_shared(other, name, 0));
        SAFE(try_once(writer, name) == MORTISE_BUSY);
        EXPECT(OK, mortise_break(subject.looker, name, token, &detail));
        EXPECT(OK, try_once(writer, name));
    }
    close_client(other);
    close_client(writer);
}

/* A reader that was stopped past its ttl finds out at its first look, and what it does then harms nobody. */
static void test_stopped_reader(void)
{
    struct test_process taker;
    mortise_client *writer = open_client(NULL);
    const char *name = fresh_name();
    uint64_t token;
    if (!lacks(MORTISE_CAP_SHARED) && start_holder(&taker, name, subject.ttl_ms, 0, &token)) {
        int status;
        CU_ASSERT(test_signal(&taker, SIGSTOP));
        CU_ASSERT(waitpid(taker.pid, &status, WUNTRACED) == taker.pid && WIFSTOPPED(status));
        mortise_lease *lease = take(writer, name, 60000);
        SAFE(!has(MORTISE_CAP_FENCING) || mortise_token(lease) > token);
        CU_ASSERT(test_signal(&taker, SIGCONT));
        taker_expect(&taker, "state", "LOST");
        taker_expect(&taker, "release", "LOST");
        CU_ASSERT_EQUAL(mortise_state(lease), MORTISE_STATE_HELD);
        SAFE(try_shared(subject.looker, name, 0) == MORTISE_BUSY);
        give(lease);
        taker_end(&taker);
    }
    close_client(writer);
}

/* ---- permits ------------------------------------------------------------------------------------ */

enum { CLIENTS = 4, THREADS = 12, PERMITS = 3, PASSES = 20 };

struct gate {
    mortise_client *clients[CLIENTS];
    const char *name;
    atomic_int inside, most, turn, overlaps, failures;
};

static void *pass_gate(void *argument)
{
    struct gate *gate = argument;
    int turn = atomic_fetch_add(&gate->turn, 1);
    bool alone = turn == 0; /* maintenance: an exclusive lease waits for all permits */
    for (int i = 0; i < (alone ? 3 : PASSES); i++) {
        mortise_lease *lease;
        mortise_status status =
            mortise_acquire(gate->clients[turn % CLIENTS], gate->name,
                            alone ? MORTISE_OPTIONS(.wait_ms = TEST_PATIENCE_MS, .ttl_ms = 60000)
                                  : MORTISE_OPTIONS(.wait_ms = TEST_PATIENCE_MS, .ttl_ms = 60000,
                                                    .mode = MORTISE_SHARED, .permits = PERMITS),
                            &lease, NULL);
        gate->failures += status != MORTISE_OK;
        if (status != MORTISE_OK)
            continue;
        int weight = alone ? PERMITS : 1;
        int inside = atomic_fetch_add(&gate->inside, weight) + weight;
        int most = atomic_load(&gate->most);
        while (inside > most && !atomic_compare_exchange_weak(&gate->most, &most, inside))
            continue;
        gate->overlaps += inside > PERMITS;
        poll(NULL, 0, 1); /* long enough for one too many to come in */
        atomic_fetch_sub(&gate->inside, weight);
        gate->failures += mortise_release(lease, NULL) != MORTISE_OK;
    }
    return NULL;
}

static void test_permits(void)
{
    struct gate gate = {.name = fresh_name()};
    pthread_t threads[THREADS];
    if (lacks(MORTISE_CAP_PERMITS))
        return;
    for (int i = 0; i < CLIENTS; i++)
        gate.clients[i] = open_client(NULL);
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, pass_gate, &gate) != 0)
            CU_FAIL_FATAL("no thread");
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    SAFE(gate.overlaps == 0);
    SAFE(gate.most <= PERMITS);
    CU_ASSERT_EQUAL(gate.failures, 0);
    for (int i = 0; i < CLIENTS; i++)
        close_client(gate.clients[i]);
}

static bool waits_or_has(void *argument)
{
    struct blocked *blocked = argument;
    return stats_of(blocked->client).waiting == 1 || test_count_get(&blocked->done) > 0;
}

/* All permits at once come back, and all that wait get one; one more does not. *lost: a short lease was lost before its release. */
static bool permits_wake(mortise_client **clients, int64_t short_ms, bool *lost)
{
    const char *name = fresh_name();
    struct blocked waiting[3];
    mortise_lease *leases[3];
    int64_t ttl_ms = has(MORTISE_CAP_NOTIFY) ? 60000 : short_ms;
    for (int i = 0; i < 3; i++)
        leases[i] = take_shared(subject.looker, name, ttl_ms, 3);
    mortise_status fourth = try_shared(clients[0], name, 3);
    *lost = !all_held(leases, 3);
    SAFE(fourth != MORTISE_OK || *lost);
    CU_ASSERT(fourth == MORTISE_BUSY || *lost);
    for (int i = 0; i < 3; i++) {
        blocked_start(&waiting[i], clients[i], name,
                      MORTISE_OPTIONS(.wait_ms = TEST_PATIENCE_MS, .ttl_ms = 60000,
                                      .mode = MORTISE_SHARED, .permits = 3));
        CU_ASSERT(test_poll(waits_or_has, &waiting[i], TEST_PATIENCE_MS));
        bool has_it = test_count_get(&waiting[i].done) > 0;
        SAFE(!has_it || !all_held(leases, 3));
    }
    if (has(MORTISE_CAP_NOTIFY))
        wait_waiters(name, 3);
    int64_t began_ms = test_now_ms();
    for (int i = 0; i < 3; i++) {
        mortise_status released = mortise_release(leases[i], &detail);
        *lost |= released == MORTISE_LOST;
        CU_ASSERT(released == MORTISE_OK || released == MORTISE_LOST);
    }
    CU_ASSERT(!*lost || !has(MORTISE_CAP_NOTIFY));
    for (int i = 0; i < 3; i++)
        EXPECT(OK, blocked_join(&waiting[i]));
    bool told = was_told(began_ms);
    SAFE(try_shared(subject.looker, name, 3) == MORTISE_BUSY);
    for (int i = 0; i < 3; i++)
        give(waiting[i].lease);
    return told && !*lost;
}

static void test_permits_wake(void)
{
    mortise_client *clients[3] = {open_client(NULL), open_client(NULL), open_client(NULL)};
    bool told = lacks(MORTISE_CAP_PERMITS), lost;
    struct short_ttl ttl = {.ms = subject.ttl_ms};
    for (int tries = 0; tries < TOLD_TRIES && !told;) {
        short_ttl_begin(&ttl);
        told = permits_wake(clients, ttl.ms, &lost);
        tries += !short_ttl_excuses(&ttl, lost);
    }
    CU_ASSERT(told);
    for (int i = 0; i < 3; i++)
        close_client(clients[i]);
}

/* The number belongs to those who hold the name: another one is refused, and the message says which number holds and
 * whose it is. */
static void test_permits_differ(void)
{
    mortise_client *client = open_client(NULL), *other = open_client(NULL);
    const char *name = fresh_name();
    struct blocked blocked;
    char pid[32];
    if (!lacks(MORTISE_CAP_PERMITS)) {
        mortise_lease *lease = take_shared(client, name, 60000, 4711);
        EXPECT(INVALID, try_shared(other, name, 4712));
        SAYS("4711");
        if (has(MORTISE_CAP_INSPECT)) {
            snprintf(pid, sizeof pid, "pid %lld", (long long)look(other, name).pid);
            EXPECT(INVALID, try_shared(other, name, 0));
            SAYS("4711");
            SAYS(pid);
        }
        CU_ASSERT_EQUAL(mortise_state(lease), MORTISE_STATE_HELD);
        EXPECT(OK, try_shared(other, name, 4711));
        give(lease);
        lease = take_shared(other, name, 60000, 0);
        EXPECT(INVALID, try_shared(client, name, 2));
        blocked_start(
            &blocked, client, name,
            MORTISE_OPTIONS(.wait_ms = TEST_PATIENCE_MS, .mode = MORTISE_SHARED, .permits = 2));
        mortise_lease *beside = take_shared(subject.looker, name, 60000, 0);
        give(lease);
        EXPECT(INVALID, blocked_join(&blocked)); /* it has no turn between the two */
        give(beside);
        EXPECT(OK, try_shared(client, name, 2));
    }
    close_client(client);
    close_client(other);
}

/* The permit of a killed holder comes back after its own ttl, and once. */
static int64_t after_killed_late_ms(void *argument)
{
    struct short_ttl *ttl = argument;
    struct test_process takers[3];
    mortise_client *client = open_client(NULL);
    const char *name = fresh_name();
    struct blocked blocked;
    int64_t took_ms = 0, ttl_ms = ttl->ms;
    uint64_t tokens[2];
    short_ttl_begin(ttl);
    bool held = start_holder(&takers[0], name, ttl_ms, 2, &tokens[0]) &&
                start_holder(&takers[1], name, 60000, 2, &tokens[1]);
    bool early = false; /* a slow machine has lost the first lease: once more */
    if (held) {
        blocked_start(&blocked, client, name,
                      MORTISE_OPTIONS(.wait_ms = TEST_PATIENCE_MS, .ttl_ms = 60000,
                                      .mode = MORTISE_SHARED, .permits = 2));
        CU_ASSERT(test_poll(waits_or_has, &blocked, TEST_PATIENCE_MS));
        early = test_count_get(&blocked.done) > 0;
    }
    short_ttl_excuses(ttl, early);
    if (early) {
        EXPECT(OK, blocked_join(&blocked));
        taker_expect(&takers[0], "state", "LOST");
        give(blocked.lease);
        taker_end(&takers[0]);
        taker_end(&takers[1]);
        took_ms = INT64_MAX;
    } else if (held) {
        test_kill(&takers[0]);
        int64_t began_ms = test_now_ms();
        EXPECT(OK, blocked_join(&blocked));
        took_ms = test_now_ms() - began_ms;
        SAFE(!has(MORTISE_CAP_FENCING) || mortise_token(blocked.lease) > tokens[1]);
        SAFE(try_shared(subject.looker, name, 2) == MORTISE_BUSY);
        taker_expect(&takers[1], "state", "HELD");
        taker_expect(&takers[1], "release", "OK");
        EXPECT(OK, try_shared(subject.looker, name, 2));
        give(blocked.lease);
        taker_end(&takers[1]);
    }
    close_client(client);
    return took_ms - killed_ms(ttl_ms);
}

static void test_permits_killed(void)
{
    struct short_ttl ttl = {.ms = subject.ttl_ms};
    if (!lacks(MORTISE_CAP_PERMITS))
        CU_ASSERT(soon(after_killed_late_ms, &ttl));
}

const CU_TestInfo holders_tests[] = {
    {"holders: inspect", test_inspect},
    {"holders: break of one", test_break},
    {"holders: a dead reader", test_dead_reader},
    {"holders: a dead reader, ttl not over", test_dead_reader_keeps_ttl},
    {"holders: a reader that was stopped", test_stopped_reader},
    {"holders: permits", test_permits},
    {"holders: all permits come back", test_permits_wake},
    {"holders: another number of permits", test_permits_differ},
    {"holders: permits of the killed", test_permits_killed},
    CU_TEST_INFO_NULL,
};
