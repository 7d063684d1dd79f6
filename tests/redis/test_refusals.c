/* test_refusals.c - what a server refuses, and why: each reason has its own error message, which says whether a retry
 * can help, and the driver retries if it can. */
#include "fake.h"
#include "rig.h"

#include <stdio.h>
#include <string.h>

#define RIGHTS                                                                                     \
    "rights=~* &* -@all +@read +@write -@dangerous +@scripting +@pubsub +@transaction "            \
    "+@connection "                                                                                \
    "+time +info"

static struct server server, acl;
static struct fake fake;

static mortise_client *open_fake(const char *core, const char *redis)
{
    char address[40];
    snprintf(address, sizeof address, "127.0.0.1:%d", fake.port);
    return open_at(&server, address, core, redis);
}

/* ---- what it says rarely ----------------------------------------------------------------------------------------- */

static const struct refusal {
    const char *answer;
    mortise_status status;
    bool retryable;
    const char *says[2]; /* the message contains all of them */
} refusals[] = {
    {"-LOADING Redis is loading the dataset in memory\r\n", MORTISE_UNREACHABLE, true, {"LOADING"}},
    {"-MASTERDOWN Link with MASTER is down\r\n", MORTISE_UNREACHABLE, true, {"MASTERDOWN"}},
    {"-BUSY Redis is busy running a script.\r\n", MORTISE_UNREACHABLE, true, {"BUSY"}},
    {"-CLUSTERDOWN The cluster is down\r\n", MORTISE_UNREACHABLE, true, {"CLUSTERDOWN"}},
    {"-READONLY You can't write against a read only replica.\r\n",
     MORTISE_UNREACHABLE,
     true,
     {"READONLY", "not the primary"}},
    {"-MOVED 3999 127.0.0.1:6381\r\n",
     MORTISE_BACKEND,
     false,
     {"MOVED", "a single primary is needed); for a cluster set cluster = yes"}},
    {"-ASK 3999 127.0.0.1:6381\r\n",
     MORTISE_BACKEND,
     false,
     {"ASK", "a single primary is needed); for a cluster set cluster = yes"}},
    {"-MISCONF Redis is configured to save RDB snapshots\r\n", MORTISE_BACKEND, true, {"MISCONF"}},
    {"-NOREPLICAS Not enough good replicas to write.\r\n", MORTISE_BACKEND, true, {"NOREPLICAS"}},
    {"-OOM command not allowed when used memory > 'maxmemory'.\r\n",
     MORTISE_BACKEND,
     true,
     {"OOM"}},
    {"-NOAUTH Authentication required.\r\n", MORTISE_BACKEND, false, {"NOAUTH"}},
    {"-ERR unknown command 'EVAL', with args beginning with: 'a secret'\r\n",
     MORTISE_BACKEND,
     false,
     {"unknown command 'EVAL'"}},
    {"$3\r\nfoo\r\n", MORTISE_INDETERMINATE, true, {"makes no sense"}},
    {"+OK\r\n", MORTISE_INDETERMINATE, true, {"makes no sense"}},
    {"*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n",
     MORTISE_INDETERMINATE,
     true,
     {"too many lists in lists"}},
};

static void test_words(void)
{
    mortise_client *client = open_fake("unreachable_timeout = 300ms", NULL);
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        const struct refusal *refusal = &refusals[i];
        char address[40];
        mortise_lease *lease = NULL;
        snprintf(doing, sizeof doing, "%.40s", refusal->answer);
        snprintf(address, sizeof address, "127.0.0.1:%d: ", fake.port);
        fake_answer(&fake, refusal->answer, 0, NULL);
        mortise_status status =
            mortise_acquire(client, "words", MORTISE_OPTIONS(.wait_ms = 0), &lease, &detail);
        CHECK(status == refusal->status && lease == NULL);
        CHECK(detail.retryable == refusal->retryable);
        SAYS(address);
        SAYS("acquire \"mortise:words\"");
        for (int j = 0; j < 2 && refusal->says[j]; j++)
            SAYS(refusal->says[j]);
        CHECK(strstr(detail.message, "secret") == NULL && strchr(detail.message, '\n') == NULL);
    }
    fake_answer(&fake, ":2\r\n", 0, NULL);
    close_client(client);
}

static bool is_told_no_redis(void *client)
{
    mortise_lease *lease = NULL;
    mortise_status status =
        mortise_acquire(client, "http", MORTISE_OPTIONS(.wait_ms = 0), &lease, &detail);
    CHECK(status == MORTISE_INDETERMINATE || status == MORTISE_UNREACHABLE);
    return strstr(detail.message, "not the Redis protocol") != NULL;
}

/* Not a Redis at all. The first call may end before any answer. */
static void test_other_protocol(void)
{
    mortise_client *client = open_fake("unreachable_timeout = 200ms", NULL);
    fake_answer(&fake, "HTTP/1.1 400 Bad Request\r\n\r\n", 0, NULL);
    CHECK(test_poll(is_told_no_redis, client, TEST_PATIENCE_MS));
    fake_answer(&fake, ":2\r\n", 0, NULL);
    close_client(client);
}

/* It passes: a waiter does not notice it, and a lease stays HELD. */
static void test_passing(void)
{
    static const char *const passing[] = {
        "-LOADING Redis is loading the dataset in memory\r\n",
        "-BUSY Redis is busy running a script.\r\n",
        "-READONLY You can't write against a read only replica.\r\n",
        "-OOM command not allowed when used memory > 'maxmemory'.\r\n"};
    for (size_t i = 0; i < sizeof passing / sizeof *passing; i++) {
        mortise_client *client = open_fake("renew_every = 50ms", NULL);
        struct told told = TOLD_INIT;
        mortise_lease *lease = NULL;
        snprintf(doing, sizeof doing, "%.20s", passing[i]);
        fake_answer(&fake, passing[i], 3, ":1700000000000000\r\n");
        EXPECT(OK, mortise_acquire(client, "passing",
                                   MORTISE_OPTIONS(.wait_ms = TEST_PATIENCE_MS, .ttl_ms = 15000,
                                                   .on_state = note_state, .user_data = &told),
                                   &lease, &detail));
        CHECK(mortise_token(lease) == 1700000000000000);
        fake_answer(&fake, passing[i], 2, "$1\r\n2\r\n");
        CHECK(test_count_wait(&told.suspect, 1));
        CHECK(test_count_wait(&told.held, 1));
        CHECK(test_count_get(&told.lost) == 0);
        fake_answer(&fake, passing[i], 2, ":2\r\n");
        give(lease);
        close_client(client);
    }
}

/* An answer that cannot be parsed does not say what was done: the request is repeated under the same grant, a held
 * lease is not lost, and a release is repeated until its answer can be parsed. */
static void test_senseless(void)
{
    static const struct {
        const char *acquire, *renew, *release;
    } answers[] = {{"+OK\r\n", "$1\r\n9\r\n", ":7\r\n"},
                   {"*1\r\n:5\r\n", "$2\r\n22\r\n", ":-1\r\n"},
                   {"$3\r\nfoo\r\n", ":2\r\n", "$1\r\n2\r\n"}};
    for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
        mortise_client *client = open_fake("renew_every = 50ms", NULL);
        struct told told = TOLD_INIT;
        mortise_lease *lease = NULL;
        snprintf(doing, sizeof doing, "senseless, %zu", i);
        fake_answer(&fake, answers[i].acquire, 3, ":1700000000000000\r\n");
        EXPECT(OK, mortise_acquire(client, "senseless",
                                   MORTISE_OPTIONS(.wait_ms = 0, .ttl_ms = 15000,
                                                   .on_state = note_state, .user_data = &told),
                                   &lease, &detail));
        fake_answer(&fake, answers[i].renew, 2, "$1\r\n2\r\n");
        CHECK(test_count_wait(&told.suspect, 1));
        CHECK(test_count_wait(&told.held, 1));
        CHECK(test_count_get(&told.lost) == 0);
        fake_answer(&fake, answers[i].release, 1, ":2\r\n");
        give(lease);
        fake_answer(&fake, ":2\r\n", 0, NULL);
        close_client(client);
    }
}

/* ---- who may not ----------------------------------------------------------------------------------------------------- */

static void expect_refused(const char *redis, const char *says, const char *advice)
{
    mortise_lease *lease = NULL;
    snprintf(doing, sizeof doing, "%s", says);
    mortise_client *client = open_at(&acl, NULL, NULL, redis);
    EXPECT(BACKEND,
           mortise_acquire(client, "refused", MORTISE_OPTIONS(.wait_ms = 0), &lease, &detail));
    SAYS(says);
    if (advice)
        SAYS(advice);
    CHECK(!detail.retryable);
    CHECK(strstr(detail.message, "hunter2") == NULL);
    close_client(client);
}

static void set_user(const char *rights)
{
    CHECK(ask_is(&acl, "OK", "ACL SETUSER mortise %s", rights));
}

static void test_passwords(void)
{
    expect_refused("username = mortise\npassword = hunter2\n", "WRONGPASS", NULL);
    expect_refused("username = nobody\npassword = secret\n", "WRONGPASS", NULL);
    expect_refused("", "NOAUTH", NULL);
    expect_refused("password = hunter2\n", "WRONGPASS", NULL);
}

static const char user[] = "username = mortise\npassword = secret\n";
static const char watching[] = "username = mortise\npassword = secret\natomicity = watch\n";

static void test_scripts_forbidden(void)
{
    set_user("-@scripting");
    expect_refused(user, "NOPERM", "atomicity = watch");
    mortise_client *client = open_at(&acl, NULL, NULL, watching);
    EXPECT(OK, try_once(client, "no scripts"));
    close_client(client);
    set_user("+@scripting");
}

/* If MULTI alone is forbidden, nothing is written without it. */
static void test_multi_forbidden(void)
{
    set_user("-multi");
    expect_refused(watching, "NOPERM", NULL);
    CHECK(ask_number(&acl, "EXISTS mortise:refused") == 0);
    set_user("+multi");
}

/* Neither a script nor a transaction may use the key; later it may. */
static void test_keys_forbidden(void)
{
    CHECK(ask_is(&acl, "OK", "ACL SETUSER mortise resetkeys ~other:*"));
    expect_refused(user, "NOPERM", NULL);
    expect_refused(watching, "NOPERM", NULL);
    CHECK(ask_is(&acl, "OK", "ACL SETUSER mortise ~*"));
    mortise_client *client = open_at(&acl, NULL, NULL, user);
    EXPECT(OK, try_once(client, "refused"));
    close_client(client);
}

/* A request that is refused in the middle leaves nothing. */
static void test_commands_forbidden(void)
{
    static const char *const commands[] = {"set",     "hset", "pexpire", "pexpireat",
                                           "hincrby", "time", "get"};
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        char right[32];
        snprintf(right, sizeof right, "-%s", commands[i]);
        set_user(right);
        for (size_t j = 0; j < VARIANTS; j++) {
            char settings[200];
            mortise_lease *lease = NULL;
            snprintf(doing, sizeof doing, "%s, %s", variants[j].name, right);
            snprintf(settings, sizeof settings, "%s%s", user, variants[j].settings);
            mortise_client *client = open_at(&acl, NULL, NULL, settings);
            mortise_status status = mortise_acquire(
                client, "half-way",
                MORTISE_OPTIONS(.wait_ms = 0, .owner = variants[j].owner, .ttl_ms = LONG_MS),
                &lease, &detail);
            if (status != MORTISE_OK) {
                EXPECT(BACKEND, status);
                CHECK(holds(&acl, "half-way") == 0);
            }
            if (mortise_release(lease, NULL) == MORTISE_OK)
                close_client(client);
            else
                mortise_close(client, NULL);
            ask_number(&acl, "DEL mortise:half-way");
        }
        right[0] = '+';
        set_user(right);
    }
}

struct looked {
    mortise_client *client;
    uint64_t requests;
};

static bool has_looked(void *argument)
{
    const struct looked *looked = argument;
    return stats_of(looked->client).requests >= looked->requests;
}

static bool has_listener(void *name)
{
    redisReply *reply = ask(&acl, "PUBSUB NUMSUB {mortise:%s}:mortise:news", (const char *)name);
    bool has = reply && reply->elements == 2 && reply->element[1]->integer > 0;
    freeReplyObject(reply);
    return has;
}

/* A client that may not subscribe, and polls often. */
static mortise_client *open_deaf(void)
{
    char settings[100];
    set_user("-subscribe");
    snprintf(settings, sizeof settings, "%sretry = 20ms\n", user);
    return open_at(&acl, NULL, "log = none", settings);
}

/* Waiters poll every `retry`, and everything else works. */
static void test_subscribing_forbidden(void)
{
    struct pending pending = PENDING_INIT;
    mortise_client *client = open_deaf(), *holder = open_at(&acl, NULL, NULL, user);
    for (int i = 0; i < 2; i++) {
        mortise_lease *lease = take(holder, "deaf");
        uint64_t asked = stats_of(client).requests;
        pending = PENDING_INIT;
        pending_start(&pending, client, "deaf", MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = LONG_MS));
        struct looked looked = {client, asked + 4};
        CHECK(test_poll(has_looked, &looked, TEST_PATIENCE_MS));
        CHECK(test_count_get(&pending.calls) == 0);
        give(lease);
        EXPECT(OK, pending_join(&pending));
        give(pending.lease);
    }
    close_client(holder);
    close_client(client);
    set_user("+subscribe");
}

/* A waiter that had to poll takes a place when it may subscribe again, without opening the client again. */
static void test_subscribing_permitted_again(void)
{
    struct pending pending = PENDING_INIT;
    mortise_client *client = open_deaf(), *holder = open_at(&acl, NULL, NULL, user);
    mortise_lease *lease = take(holder, "deaf");
    pending_start(&pending, client, "deaf", MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = LONG_MS));
    struct looked looked = {client, 5}; /* the first one, and one for the refused subscription */
    CHECK(test_poll(has_looked, &looked, TEST_PATIENCE_MS));
    CHECK(queue_length(&acl, "deaf") == 0);
    set_user("+subscribe");
    CHECK(wait_queue(&acl, "deaf", 1));
    CHECK(test_count_get(&pending.calls) == 0);
    give(lease);
    EXPECT(OK, pending_join(&pending));
    CHECK(is_covered(&acl, "deaf", pending.lease));
    give(pending.lease);
    close_client(holder);
    close_client(client);
}

/* Subscribing is forbidden for one name and permitted for another: waiters for the one poll, waiters for the other
 * are notified. */
static void test_one_name_forbidden(void)
{
    static char open[] = "open";
    char settings[120];
    struct pending one = PENDING_INIT, other = PENDING_INIT;
    CHECK(ask_is(&acl, "OK", "ACL SETUSER mortise resetchannels &{mortise:open}:mortise:news"));
    snprintf(settings, sizeof settings, "%squeue = no\nretry = 20ms\n", user);
    mortise_client *client = open_at(&acl, NULL, "log = none", settings);
    mortise_client *holder = open_at(&acl, NULL, NULL, "username = admin\npassword = admin\n");
    mortise_lease *lease = take(holder, "closed"), *second = take(holder, open);
    pending_start(&one, client, "closed", MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = LONG_MS));
    struct looked looked = {client, 5};
    CHECK(test_poll(has_looked, &looked, TEST_PATIENCE_MS));
    pending_start(&other, client, open, MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = LONG_MS));
    CHECK(test_poll(has_listener, open, TEST_PATIENCE_MS));
    give(second);
    EXPECT(OK, pending_join(&other));
    looked.requests = stats_of(client).requests + 4;
    CHECK(test_poll(has_looked, &looked, TEST_PATIENCE_MS)); /* it does not rely on notifications */
    give(lease);
    EXPECT(OK, pending_join(&one));
    give(one.lease);
    give(other.lease);
    close_client(holder);
    close_client(client);
    set_user("allchannels");
}

/* ---- another server, or the same one ----------------------------------------------------------------------------------- */

/* It may not say which process it is: every lease is renewed after a reconnection, because the server may have
 * forgotten it. */
static void test_unknown_process(void)
{
    char text[256];
    struct told told = TOLD_INIT;
    mortise_lease *lease = NULL;
    set_user("-info");
    mortise_client *client = open_at(&acl, NULL, "unreachable_timeout = 1m", user);
    EXPECT(OK, mortise_acquire(client, "unknown",
                               MORTISE_OPTIONS(.wait_ms = 0, .ttl_ms = 600000,
                                               .on_state = note_state, .user_data = &told),
                               &lease, &detail)); /* renewed in minutes */
    CHECK(ask_number(&acl, "DEL mortise:unknown") == 1);
    CHECK(ask_number(&acl, "CLIENT KILL TYPE normal SKIPME yes") > 0);
    EXPECT(OK, mortise_ping(client, text, sizeof text, &detail));
    CHECK(test_count_wait(&told.lost, 1));
    EXPECT(LOST, mortise_release(lease, &detail));
    close_client(client);
    set_user("+info");
}

/* ---- the key is something else ---------------------------------------------------------------------------------------- */

static void use_otherwise(void *argument)
{
    const struct variant *variant = argument;
    char name[64];
    mortise_lease *lease = NULL;
    snprintf(doing, sizeof doing, "%s", variant->name);
    snprintf(name, sizeof name, "otherwise %s", variant->name);
    mortise_client *client = open_at(&server, NULL, "renew_every = 100ms", variant->settings);
    mortise_lease *good = take_as(client, "good", variant->owner, LONG_MS);
    CHECK(ask_number(&server, "LPUSH mortise:%s mine", name) == 1);
    EXPECT(BACKEND,
           mortise_acquire(client, name, MORTISE_OPTIONS(.wait_ms = 0, .owner = variant->owner),
                           &lease, &detail));
    SAYS("used for something else");
    SAYS("otherwise");
    CHECK(!detail.retryable);
    CHECK(ask_number(&server, "LLEN mortise:%s", name) == 1);
    CHECK(ask_number(&server, "DEL mortise:%s", name) == 1);
    lease = take_as(client, name, variant->owner, LONG_MS);
    CHECK(ask_number(&server, "DEL mortise:%s", name) == 1);
    CHECK(ask_number(&server, "LPUSH mortise:%s mine", name) == 1); /* while it is in use */
    CHECK(wait_state(lease, MORTISE_STATE_LOST, TEST_PATIENCE_MS));
    EXPECT(LOST, mortise_release(lease, &detail));
    CHECK(mortise_state(good) == MORTISE_STATE_HELD);
    CHECK(ask_number(&server, "LLEN mortise:%s", name) == 1);
    CHECK(ask_number(&server, "DEL mortise:%s", name) == 1);
    give(good);
    close_client(client);
}

static void test_wrong_type(void)
{
    for (size_t i = 0; i < VARIANTS; i++)
        use_otherwise((void *)(uintptr_t)&variants[i]);
}

/* A key that expires between two reads of a transaction looks like an empty one: nobody holds it. */
static void test_expired_meanwhile(void)
{
    mortise_client *client = open_at(&server, NULL, NULL, "atomicity = watch\n");
    mortise_lease *lease = take(client, "meanwhile");
    uint64_t token = mortise_token(lease);
    doing[0] = '\0';
    CHECK(ask_is(&server, "OK", "SET mortise:meanwhile %b PX 600000", "", (size_t)0));
    EXPECT(LOST, mortise_break(client, "meanwhile", token, &detail));
    EXPECT(LOST, mortise_release(lease, &detail));
    EXPECT(BUSY, try_once(client, "meanwhile"));
    CHECK(ask_number(&server, "DEL mortise:meanwhile") == 1);
    close_client(client);
}

/* ---- names, tokens and hashes at their bounds ----------------------------------------------------------------------- */

static bool count_one(const mortise_info *info, void *seen)
{
    *(int *)seen += info->held;
    return true;
}

/* Another program keeps a value under the name of a lock that is larger than any answer may be: that program holds the
 * lock, and the connection stays. */
static void test_large_value(void)
{
    static const char *const strings[] = {"", "queue = no\n", "atomicity = watch\n",
                                          "fencing = off\n"};
    static const char many[] = "for i = 1, 600000 do redis.call('hset', KEYS[1], i, i) end "
                               "return redis.call('hlen', KEYS[1])";
    CHECK(ask_number(&server, "SETRANGE mortise:large 20000000 x") == 20000001);
    for (size_t i = 0; i < sizeof strings / sizeof *strings; i++) {
        mortise_info info = {.size = sizeof info};
        int seen = 0;
        mortise_client *client = open_at(&server, NULL, NULL, strings[i]);
        snprintf(doing, sizeof doing, "a large value, %s", strings[i]);
        CHECK(wait_works(client));
        int64_t before = info_number(&server, "stats", "total_connections_received");
        EXPECT(OK, mortise_inspect(client, "large", &info, &detail));
        CHECK(info.held);
        CHECK(info.owner[0] == '\0');
        EXPECT(OK, mortise_list(client, "large", count_one, &seen, &detail));
        EXPECT(OK, mortise_inspect(client, "nothing", &info, &detail));
        CHECK(!info.held);
        EXPECT(BUSY, try_once(client, "large"));
        CHECK(info_number(&server, "stats", "total_connections_received") == before);
        close_client(client);
    }
    CHECK(ask_number(&server, "DEL mortise:large") == 1);
    CHECK(ask_number(&server, "EVAL %s 1 mortise:large", many) == 600000);
    mortise_client *client = open_at(&server, NULL, NULL, "mode = hash\nqueue = no\n");
    CHECK(wait_works(client));
    int64_t before = info_number(&server, "stats", "total_connections_received");
    EXPECT(BUSY, try_once(client, "large"));
    CHECK(info_number(&server, "stats", "total_connections_received") == before);
    close_client(client);
    CHECK(ask_number(&server, "DEL mortise:large") == 1);
}

/* A name is sent with its length, whatever bytes it contains. */
static void test_line_ends_in_names(void)
{
    static const char *const names[] = {"a\r\nb", "\r\nSET mortise:planted 1\r\n",
                                        "*1\r\n$8\r\nFLUSHALL\r\n", "$5\r\n", "\n"};
    CHECK(ask_is(&server, "OK", "SET mortise:witness here"));
    for (size_t i = 0; i < VARIANTS; i++) {
        mortise_client *client = open_at(&server, NULL, NULL, variants[i].settings);
        for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
            mortise_info info = {.size = sizeof info};
            int seen = 0;
            snprintf(doing, sizeof doing, "%s, name %zu", variants[i].name, k);
            mortise_lease *lease = take_as(client, names[k], variants[i].owner, LONG_MS);
            CHECK(holds(&server, names[k]) == 1);
            EXPECT(OK, mortise_inspect(client, names[k], &info, &detail));
            CHECK(info.held);
            EXPECT(OK, mortise_list(client, names[k], count_one, &seen, &detail));
            CHECK(seen == 1);
            give(lease);
            CHECK(holds(&server, names[k]) == 0);
        }
        close_client(client);
    }
    CHECK(ask_number(&server, "EXISTS mortise:planted") == 0);
    CHECK(ask_is(&server, "here", "GET mortise:witness"));
    CHECK(ask_number(&server, "DEL mortise:witness") == 1);
}

/* No token is larger than 2^53 - 1, the largest number that a script counts exactly; none is smaller than the last. */
static void test_end_of_tokens(void)
{
    static const char *const last[] = {"9007199254740991", "9007199254740992",
                                       "9223372036854775807", "18446744073709551615"};
    for (size_t i = 0; i < VARIANTS; i++) {
        mortise_client *client = open_at(&server, NULL, NULL, variants[i].settings);
        for (size_t k = 0; variants[i].fencing && k < sizeof last / sizeof *last; k++) {
            mortise_lease *lease = NULL;
            snprintf(doing, sizeof doing, "%s, %s", variants[i].name, last[k]);
            CHECK(ask_is(&server, "OK", "SET {mortise:end}:mortise:token %s", last[k]));
            mortise_status status = mortise_acquire(
                client, "end",
                MORTISE_OPTIONS(.owner = variants[i].owner, .ttl_ms = LONG_MS, .wait_ms = 2000),
                &lease, &detail);
            CHECK(status == MORTISE_BACKEND);
            SAYS("2^53");
            CHECK(holds(&server, "end") == 0);
            if (lease)
                give(lease);
        }
        close_client(client);
    }
    freeReplyObject(ask(&server, "DEL {mortise:end}:mortise:token"));
}

/* The next grant of an owner removes those that ended without a release, however many there are. */
static void test_many_ended(void)
{
    static const char *const settings[] = {"mode = hash\n", "mode = hash\nqueue = no\n",
                                           "mode = hash\ndialect = redisson\n"};
    for (int i = 0; i < 3; i++) {
        const char *prefix = i == 2 ? "mortise:" : "g:";
        snprintf(doing, sizeof doing, "%s", settings[i]);
        freeReplyObject(ask(&server, "EVAL %s 1 mortise:many %s",
                            "for i = 1, 9000 do redis.call('hset', KEYS[1], ARGV[1] .. "
                            "string.format('%032x', i), '1') end "
                            "redis.call('hset', KEYS[1], ARGV[1] .. string.rep('f', 32), "
                            "'99999999999999', 'o', 'us:1', 't', '1', 's', '1', 'us:1', '9001') "
                            "redis.call('pexpire', KEYS[1], 600000)",
                            prefix));
        if (i == 2)
            freeReplyObject(ask(&server, "HDEL mortise:many o t s"));
        else
            freeReplyObject(ask(&server, "HDEL mortise:many us:1"));
        mortise_client *client = open_at(&server, NULL, NULL, settings[i]);
        mortise_lease *lease = take_as(client, "many", "us:1", LONG_MS);
        CHECK(ask_number(&server, "HLEN mortise:many") < 20);
        give(lease);
        freeReplyObject(ask(&server, "DEL mortise:many"));
        close_client(client);
    }
}

static const CU_TestInfo tests[] = {
    {"refusals have words of their own", test_words},
    {"not Redis at all", test_other_protocol},
    {"refusals that pass are waited for", test_passing},
    {"answers that make no sense", test_senseless},
    {"wrong passwords, none, unknown users", test_passwords},
    {"scripts are forbidden", test_scripts_forbidden},
    {"MULTI is forbidden", test_multi_forbidden},
    {"keys are forbidden", test_keys_forbidden},
    {"single commands are forbidden", test_commands_forbidden},
    {"subscribing is forbidden", test_subscribing_forbidden},
    {"subscribing is forbidden, and permitted again", test_subscribing_permitted_again},
    {"subscribing to one name is forbidden", test_one_name_forbidden},
    {"a server that does not say which it is", test_unknown_process},
    {"keys of another type", test_wrong_type},
    {"a key that expires between two reads", test_expired_meanwhile},
    {"a large value of another program", test_large_value},
    {"line ends in names", test_line_ends_in_names},
    {"the end of the tokens", test_end_of_tokens},
    {"thousands of grants that ended", test_many_ended},
    CU_TEST_INFO_NULL,
};

int main(int argc, char **argv)
{
    static const char *const users[] = {"user=mortise", "password=secret", RIGHTS, NULL};
    int code = fake_start(&fake) ? server_start(&server, NULL) : 1;
    if (code == 0)
        code = server_start(&acl, users);
    if (code == 0)
        code = run_tests("redis: refusals", tests, argc, argv);
    fake_end(&fake);
    return servers_end((struct server *const[]){&server, &acl}, 2, code);
}
