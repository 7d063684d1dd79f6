/* call_tests.c - one call goes wrong: its reply is lost, its stream is reset, GOAWAY, a refusal of what was done, an answer of
 * another member. */
#include "stage.h"

#include <dlfcn.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define BACKEND_TEXT "etcdserver: mvcc: database space exceeded"

static bool was_hit(void *argument)
{
    (void)argument;
    return middle_hits() > 0;
}

/* A first acquire and its release: everything that a client says. */
static void take_with(const struct rule *rule, const char *name, mortise_client *direct)
{
    mortise_client *client = client_behind_middle("ttl=30s");
    middle_rule(rule);
    mortise_lease *lease = take(client, name);
    if (lease) {
        CHECK(wait_contenders(direct, name, 1));
        SAFE(mortise_state(lease) != MORTISE_STATE_LOST);
        give_back(lease);
    }
    CHECK(middle_clear() == 1);
    CHECK(wait_contenders(direct, name, 0));
    client_end(client);
}

/* The delete of its key. */
static void release_with(enum fault fault, mortise_client *direct)
{
    const char *name = fresh_name();
    mortise_client *client = client_behind_middle("ttl=30s");
    mortise_lease *lease = take(client, name);
    middle_rule(
        &(struct rule){.method = "KV/DeleteRange", .contains = name, .fault = fault, .times = 1});
    give_back(lease);
    CHECK(middle_clear() == 1);
    CHECK(wait_contenders(direct, name, 0));
    client_end(client);
}

/* Each call that there is before the lock is held and after it, in each way. */
static void test_each_call(void)
{
    static const enum fault faults[] = {LOSE, DROP, RESET, GO_AWAY};
    static const struct {
        const char *method, *contains;
    } calls[] = {{"Maintenance/Status", NULL},
                 {"Lease/LeaseGrant", NULL},
                 {"KV/Txn", "%sessions"}, /* the join is the first of these */
                 {"KV/Txn", "%tokens"}};  /* the acquire */
    mortise_client *direct = client_direct("");
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        for (size_t k = 0; k < sizeof faults / sizeof *faults; k++) {
            snprintf(doing, sizeof doing, "%s, fault %zu", calls[i].method, k);
            take_with(&(struct rule){.method = calls[i].method,
                                     .contains = calls[i].contains,
                                     .fault = faults[k],
                                     .times = 1},
                      fresh_name(), direct);
        }
    for (size_t k = 0; k < sizeof faults / sizeof *faults; k++) {
        snprintf(doing, sizeof doing, "release, fault %zu", k);
        release_with(faults[k], direct);
    }
    doing[0] = '\0';
    client_end(direct);
}

/* A keep-alive, or the read after it, is lost: the lease is held on. */
static void test_beats(void)
{
    static const enum fault faults[] = {LOSE, RESET, GO_AWAY};
    mortise_client *client = client_behind_middle("ttl=4s");
    mortise_lease *lease = take(client, fresh_name());
    for (size_t i = 0; i < 2; i++)
        for (size_t k = 0; k < 3; k++) {
            middle_rule(&(struct rule){.method = i == 0 ? "Lease/LeaseKeepAlive" : "KV/Txn",
                                       .contains = i == 0 ? NULL : "%sessions",
                                       .fault = faults[k],
                                       .times = 1});
            CHECK(test_poll(was_hit, NULL, TEST_PATIENCE_MS));
            middle_clear();
            CHECK(wait_state(lease, MORTISE_STATE_HELD, TEST_PATIENCE_MS));
        }
    give_back(lease);
    client_end(client);
}

/* Keep-alives are answered, reads are not: nothing is proven. */
static void test_keep_alive_alone(void)
{
    mortise_client *client = client_behind_middle("ttl=2s");
    mortise_lease *lease = take(client, fresh_name());
    middle_rule(&(struct rule){.method = "KV/Txn", .fault = HOLD, .times = 1000});
    CHECK(wait_state(lease, MORTISE_STATE_LOST, TEST_PATIENCE_MS));
    middle_clear();
    EXPECT(LOST, mortise_release(lease, &detail));
    client_end(client);
}

/* A balancer of calls between: what one member says proves nothing of another. */
static void test_other_member(void)
{
    mortise_client *client = client_behind_middle("ttl=2s");
    mortise_lease *lease = take(client, fresh_name());
    middle_rule(
        &(struct rule){.method = "Lease/LeaseKeepAlive", .fault = OTHER_MEMBER, .times = 1000});
    CHECK(wait_state(lease, MORTISE_STATE_LOST, TEST_PATIENCE_MS));
    CHECK(middle_clear() > 1);
    EXPECT(LOST, mortise_release(lease, &detail));
    lease = take(client, fresh_name());
    give_back(lease);
    client_end(client);
}

/* The write that reaches the limit is done, and refused. Another lock keeps the session alive, so the key would stay. */
static void test_refused_and_done(void)
{
    mortise_client *client = client_behind_middle("ttl=30s"), *other = client_direct("");
    mortise_lease *kept = take(client, fresh_name()), *lease = NULL;
    const char *name = fresh_name();
    middle_rule(&(struct rule){.method = "KV/Txn",
                               .contains = name,
                               .fault = REFUSE,
                               .times = 1,
                               .status = 8,
                               .text = BACKEND_TEXT});
    lease = take(
        client,
        name); /* the core asks again, with another grant id: behind the key, if that had stayed */
    CHECK(middle_clear() == 1);
    CHECK(wait_contenders(other, name, 1));
    give_back(lease);
    CHECK(wait_contenders(other, name, 0));
    give_back(kept);
    client_end(client);
    client_end(other);
}

/* A downgrade is refused for space. Only the first write may have been done, so its key tells. */
static void test_downgrade_refused(void)
{
    static const struct rule nothing = {.method = "KV/Txn",
                                        .contains = "mortise/1 ", /* of the note: a write */
                                        .fault = REFUSE_NOT,
                                        .times = 1000,
                                        .status = 8,
                                        .text = BACKEND_TEXT};
    struct rule done = nothing;
    done.fault = REFUSE;
    done.times = 1;
    done.then = &nothing;
    mortise_client *client = client_behind_middle("ttl=4s"), *other = client_direct("");
    for (int is_done = 0; is_done < 2; is_done++) {
        const char *name = fresh_name();
        mortise_lease *lease = take(client, name), *beside = NULL;
        middle_rule(is_done ? &done : &nothing);
        mortise_status status = mortise_downgrade(lease, &detail);
        CHECK(middle_clear() == (is_done ? 0 : 1));
        CHECK(status == (is_done ? MORTISE_OK : MORTISE_BACKEND));
        if (!is_done) {
            SAYS("disarm the alarm");
            CHECK(wait_state(lease, MORTISE_STATE_HELD, TEST_PATIENCE_MS));
            EXPECT(BUSY, mortise_acquire(other, name,
                                         MORTISE_OPTIONS(.mode = MORTISE_SHARED, .wait_ms = 0),
                                         &beside, &detail));
            EXPECT(OK, mortise_downgrade(lease, &detail));
        }
        EXPECT(OK,
               mortise_acquire(other, name, MORTISE_OPTIONS(.mode = MORTISE_SHARED, .wait_ms = 0),
                               &beside, &detail));
        give_back(beside);
        give_back(lease);
    }
    client_end(client);
    client_end(other);
}

static void test_refused(void)
{
    mortise_client *client = client_behind_middle("ttl=30s"), *other = client_direct("");
    mortise_lease *kept = take(client, fresh_name()), *lease = NULL;
    const char *name = fresh_name();
    middle_rule(&(struct rule){.method = "KV/Txn",
                               .contains = name,
                               .fault = REFUSE_NOT,
                               .times = 1,
                               .status = 7,
                               .text = "etcdserver: permission denied"});
    EXPECT(BACKEND, mortise_acquire(client, name, MORTISE_OPTIONS(.wait_ms = TEST_PATIENCE_MS),
                                    &lease, &detail));
    SAYS("permission denied");
    middle_clear();
    CHECK(wait_contenders(other, name, 0));
    lease = take(client, name);
    give_back(lease);
    give_back(kept);
    client_end(client);
    client_end(other);
}

/* Servers with authentication, from 3.5.28 on, tell a client without a user not even their status. */
static void test_no_user(void)
{
    mortise_client *client = client_behind_middle("connect_timeout=1s");
    mortise_lease *lease = NULL;
    middle_rule(&(struct rule){.method = "Maintenance/Status",
                               .fault = REFUSE_NOT,
                               .times = 100000,
                               .status = 3,
                               .text = "etcdserver: user name is empty"});
    EXPECT(BACKEND, mortise_acquire(client, fresh_name(),
                                    MORTISE_OPTIONS(.wait_ms = TEST_PATIENCE_MS), &lease, &detail));
    SAYS("refused; ");
    SAYS("set user and password");
    CHECK(middle_clear() > 0);
    give_back(take(client, fresh_name()));
    client_end(client);
}

/* The acquire is done, and its reply is lost; its repeat is refused, because the user has no right any more. That says nothing of the
 * first one. Another lock keeps the session alive, so its key would stay. */
static void test_lost_and_refused(void)
{
    static const struct rule refusal = {.method = "KV/Txn",
                                        .contains = "lost-and-refused",
                                        .fault = REFUSE_NOT,
                                        .times = 1,
                                        .status = 7,
                                        .text = "etcdserver: permission denied"};
    mortise_client *client = client_behind_middle("ttl=30s"), *other = client_direct("");
    mortise_lease *kept = take(client, fresh_name()), *lease = NULL;
    struct rule loss = refusal;
    loss.fault = LOSE;
    loss.then = &refusal;
    middle_rule(&loss);
    EXPECT(BACKEND, mortise_acquire(client, "lost-and-refused",
                                    MORTISE_OPTIONS(.wait_ms = TEST_PATIENCE_MS), &lease, &detail));
    SAYS("permission denied");
    CHECK(middle_clear() == 1);
    CHECK(wait_contenders(other, "lost-and-refused", 0));
    give_back(kept);
    client_end(client);
    client_end(other);
}

/* The release is refused, and done: the name is free, and the caller is told that nobody knows, or the repeat's result. */
static void test_release_refused(void)
{
    mortise_client *client = client_behind_middle("ttl=30s"), *other = client_direct("");
    const char *name = fresh_name();
    mortise_lease *lease = take(client, name);
    middle_rule(&(struct rule){.method = "KV/DeleteRange",
                               .contains = name,
                               .fault = REFUSE,
                               .times = 1,
                               .status = 8,
                               .text = "etcdserver: too many requests"});
    mortise_status status = mortise_release(lease, &detail);
    CHECK(status != MORTISE_TIMEDOUT && status != MORTISE_CANCELED);
    CHECK(middle_clear() == 1);
    lease = take(other, name);
    give_back(lease);
    CHECK(wait_contenders(other, name, 0));
    client_end(client);
    client_end(other);
}

/* The caller gives up while its acquire is on its way. */
static void test_given_up(void)
{
    mortise_client *client = client_behind_middle("ttl=30s"), *other = client_direct("");
    mortise_lease *kept = take(client, fresh_name()), *lease = NULL;
    const char *name = fresh_name();
    middle_rule(&(struct rule){.method = "KV/Txn", .contains = name, .fault = HOLD, .times = 1});
    mortise_status status =
        mortise_acquire(client, name, MORTISE_OPTIONS(.wait_ms = 100), &lease, &detail);
    CHECK(status == MORTISE_INDETERMINATE || status == MORTISE_TIMEDOUT);
    CHECK(wait_contenders(other, name, 1));
    middle_clear();
    CHECK(wait_contenders(other, name, 0));
    give_back(kept);
    client_end(client);
    client_end(other);
}

static int64_t processor_ms(void)
{
    struct timespec used;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return (int64_t)used.tv_sec * 1000 + used.tv_nsec / 1000000;
}

/* Nobody answers: the caller waits, and does not turn round and round. */
static void test_no_answer(void)
{
    mortise_lease *lease = NULL;
    middle_rule(&(struct rule){.method = "", .fault = HOLD, .times = 1000});
    mortise_client *client =
        client_behind_middle("timeout=100ms&connect_timeout=2s&unreachable_timeout=2s");
    int64_t before_ms = processor_ms();
    EXPECT(UNREACHABLE, mortise_acquire(client, fresh_name(), MORTISE_OPTIONS(.wait_ms = 30000),
                                        &lease, &detail));
    CHECK(middle_clear() > 1);
    CHECK(processor_ms() - before_ms < 500);
    give_back(take(client, fresh_name()));
    client_end(client);
}

/* The streams of all watches are reset while somebody waits. */
static void test_watches_reset(void)
{
    mortise_client *holder = client_direct("ttl=30s"), *client = client_behind_middle("ttl=30s");
    const char *name = fresh_name();
    struct waiter waiter = {0};
    mortise_lease *lease = take(holder, name);
    waiter_start(&waiter, client, name);
    for (int i = 0; i < 3; i++) {
        CHECK(wait_contenders(holder, name, 2));
        CHECK(middle_reset_watches() >= 0);
    }
    give_back(lease);
    CHECK(waiter_join(&waiter) == MORTISE_OK);
    give_back(waiter.lease);
    client_end(client);
    client_end(holder);
}

/* ---- what a resolver says, or does not say ---- */

static struct test_count hanging = TEST_COUNT_INIT, gate = TEST_COUNT_INIT;
static int silent_port; /* of an address that names below two.test have before that of the server */

typedef int lookup(const char *, const char *, const struct addrinfo *, struct addrinfo **);

static int find_two(lookup *next, const char *port, const struct addrinfo *hints,
                    struct addrinfo **found)
{
    char silent[16];
    snprintf(silent, sizeof silent, "%d", silent_port);
    int error = next("127.0.0.1", silent, hints, found);
    return error != 0 ? error : next("127.0.0.1", port, hints, &(*found)->ai_next);
}

/* In place of the system's, also for the library. Names below hangs.test have no answer before the gate opens, and those below
 * slow.test have one after a while. */
__attribute__((visibility("default"))) int getaddrinfo(const char *node, const char *port,
                                                       const struct addrinfo *hints,
                                                       struct addrinfo **found)
{
    lookup *next;
    void *symbol = dlsym(RTLD_NEXT, "getaddrinfo");
    memcpy(&next, &symbol, sizeof(next));
    bool is_number = (hints->ai_flags & AI_NUMERICHOST) != 0;
    if (!is_number && strstr(node, "two.test") != NULL)
        return find_two(next, port, hints, found);
    if (!is_number && strstr(node, "slow.test") != NULL) {
        let_pass(500);
        return next("127.0.0.1", port, hints, found);
    }
    if (is_number || strstr(node, "hangs.test") == NULL)
        return next(node, port, hints, found);
    test_count_add(&hanging, 1);
    test_count_wait(&gate, 1);
    return EAI_AGAIN;
}

/* Two names cannot be looked up; the third endpoint needs no look-up. The two stay under way, and are begun once each. */
static void test_resolver_hangs(void)
{
    char endpoints[200];
    snprintf(endpoints, sizeof endpoints, "a.hangs.test,b.hangs.test,%s", stage.servers);
    mortise_client *client = client_at(endpoints, "ttl=30s&connect_timeout=1s");
    mortise_lease *lease = take(client, fresh_name());
    CHECK(test_count_get(&hanging) >= 1 && test_count_get(&hanging) <= 2);
    give_back(lease);
    client_end(client);
    test_count_add(&gate, 1);
}

/* Each look-up takes longer than an attempt, which is 250 ms, and ends before the next attempt at its endpoint. */
static void test_slow_resolver(void)
{
    char endpoints[100];
    snprintf(endpoints, sizeof endpoints, "a.slow.test:%d,b.slow.test:%d,c.slow.test:%d",
             stage.ports[0], stage.ports[0], stage.ports[0]);
    mortise_client *client = client_at(endpoints, "ttl=30s&connect_timeout=500ms");
    give_back(take(client, fresh_name()));
    client_end(client);
}

/* A name has two addresses, and the first is silent: it drops what comes, or it accepts, as the kernel of a stopped process does. */
static void test_silent_address(void)
{
    char endpoint[40];
    mortise_info info = {.size = sizeof info};
    snprintf(endpoint, sizeof endpoint, "two.test:%d", stage.ports[0]);
    for (int accepts = 0; accepts < 2; accepts++) {
        struct silence silence;
        silent_port = silence_begin(&silence, accepts);
        CHECK(silent_port > 0);
        mortise_client *client = client_at(endpoint, "ttl=30s&connect_timeout=2s");
        EXPECT(OK, mortise_inspect(client, fresh_name(), &info, &detail));
        give_back(take(client, fresh_name()));
        client_end(client);
        silence_end(&silence);
    }
}

/* Two of three endpoints are silent, and each new client begins with them. What asks once has its answer all the same. */
static void test_silent_endpoints(void)
{
    char endpoints[200];
    mortise_info info = {.size = sizeof info};
    mortise_lease *lease = NULL;
    struct silence drops, accepts;
    snprintf(endpoints, sizeof endpoints, "127.0.0.1:%d,127.0.0.1:%d,%s",
             silence_begin(&drops, false), silence_begin(&accepts, true), stage.servers);
    for (int acquires = 0; acquires < 2; acquires++) {
        mortise_client *client = client_at(endpoints, "ttl=30s&connect_timeout=2s");
        if (acquires)
            EXPECT(OK, mortise_acquire(client, fresh_name(), MORTISE_OPTIONS(.wait_ms = 0), &lease,
                                       &detail));
        else
            EXPECT(OK, mortise_inspect(client, fresh_name(), &info, &detail));
        give_back(lease);
        client_end(client);
    }
    silence_end(&drops);
    silence_end(&accepts);
}

/* So many endpoints are silent that the call's time is over before each was tried: the error says what was found until then. */
static void test_all_silent(void)
{
    char endpoints[200];
    mortise_info info = {.size = sizeof info};
    struct silence silence[3];
    int ports[3];
    for (int i = 0; i < 3; i++)
        ports[i] = silence_begin(&silence[i], true);
    snprintf(endpoints, sizeof endpoints, "127.0.0.1:%d,127.0.0.1:%d,127.0.0.1:%d", ports[0],
             ports[1], ports[2]);
    mortise_client *client = client_at(endpoints, "connect_timeout=2s&unreachable_timeout=1500ms");
    EXPECT(UNREACHABLE, mortise_inspect(client, fresh_name(), &info, &detail));
    SAYS("did not answer in time; etcd 127.0.0.1:");
    SAYS("no connection within the time");
    client_end(client);
    for (int i = 0; i < 3; i++)
        silence_end(&silence[i]);
}

static void test_foreign_socket(void)
{
    for (int full = 0; full < 2; full++) {
        mortise_client *client = client_behind_proxy("ttl=30s&timeout=300ms");
        mortise_lease *lease = take(client, fresh_name());
        give_back(lease);
        put_foreign_socket(client, stage.proxy.port, full);
        client_end(client);
    }
}

const CU_TestInfo call_tests[] = {
    {"each call in each way", test_each_call},
    {"beats", test_beats},
    {"a keep-alive alone proves nothing", test_keep_alive_alone},
    {"an answer of another member", test_other_member},
    {"refused for space, and done", test_refused_and_done},
    {"a downgrade refused for space", test_downgrade_refused},
    {"refused, and not done", test_refused},
    {"refused, for want of a user", test_no_user},
    {"lost, and its repeat refused", test_lost_and_refused},
    {"a release that is refused, and done", test_release_refused},
    {"given up while it is on its way", test_given_up},
    {"nobody answers", test_no_answer},
    {"the watches are reset", test_watches_reset},
    {"a resolver hangs", test_resolver_hangs},
    {"a resolver is slow", test_slow_resolver},
    {"the first address of a name is silent", test_silent_address},
    {"two silent endpoints", test_silent_endpoints},
    {"all endpoints are silent", test_all_silent},
    {"the program's socket under the number of the connection", test_foreign_socket},
    CU_TEST_INFO_NULL,
};
