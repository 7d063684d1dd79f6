/* follower_tests.c - a follower that is cut off from its leader, or lags behind it, while its clients still reach it.
 * The first of the three servers reaches the quorum ports of the others through proxies; it is restarted so that it
 * follows one of them. Its clients reach it through the stage's proxy. */
#include "stage.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HOLDERS 10
/* The timeouts of their sessions: so these end at all distances from the ticks of the leader's clock. */
#define SHORTEST_MS 3000
#define SPREAD_MS 100
#define BEAT_BYTES 80 /* the answer to a beat has more; one to a ping fewer */

static struct test_proxy links[2]; /* from the first server to the second and third */

static bool follows(void *argument)
{
    (void)argument;
    return stage_leader() > 1;
}

static bool one_link_is_used(void *argument)
{
    (void)argument;
    return test_proxy_count(&links[0], "now") + test_proxy_count(&links[1], "now") == 1;
}

static void put_proxies_between(void)
{
    static bool done;
    char ways[2][32];
    if (done)
        return;
    done = true;
    const char *const keys[] = {ways[0], ways[1], NULL};
    for (int i = 0; i < 2; i++) {
        int port = stage_quorum_port(i + 2);
        CU_ASSERT_FATAL(port > 0 && test_proxy_start(&links[i], stage.folder, "127.0.0.1", port));
        snprintf(ways[i], sizeof ways[i], "way=1:%d:%d", i + 2, links[i].port);
    }
    CU_ASSERT_FATAL(stage_server("stop", 1));
    CU_ASSERT_FATAL(test_poll(follows, NULL, TEST_PATIENCE_MS));
    CU_ASSERT_FATAL(stage_server_with(1, keys));
    CU_ASSERT_FATAL(test_poll(one_link_is_used, NULL, TEST_PATIENCE_MS));
}

static void say_links(const char *command)
{
    for (int i = 0; i < 2; i++)
        CU_ASSERT_FATAL(test_proxy_say(&links[i], "%s", command));
}

/* ---- cut off ------------------------------------------------------------------------------------------ */

static bool beat_answered(void *argument)
{
    int64_t *before = argument, now = test_proxy_count(&stage.proxy, "down");
    bool jumped = now - *before > BEAT_BYTES;
    *before = now;
    return jumped;
}

/* Every half tick the leader asks its followers which clients they have heard from. It does not know what came after
 * that. So a client that trusts its follower is caught soonest if the cut comes at the end of that time. */
#define PINGS 5
#define BEFORE_MS 60

static double ping_ms, ping_every_ms; /* when one came, and the next ones */

static int64_t link_bytes(void)
{
    return test_proxy_count(&links[0], "down") + test_proxy_count(&links[1], "down");
}

static bool link_moved(void *before)
{
    return link_bytes() != *(int64_t *)before;
}

/* While nothing else uses the connection. */
static void learn_pings(void)
{
    for (int i = 0; i < PINGS; i++) {
        int64_t before = link_bytes();
        CU_ASSERT(test_poll(link_moved, &before, TEST_PATIENCE_MS));
        double now_ms = (double)test_now_ms();
        if (i == 0)
            ping_ms = now_ms;
        ping_every_ms = (now_ms - ping_ms) / (i > 0 ? i : 1);
    }
    ping_every_ms = ping_every_ms < BEFORE_MS ? BEFORE_MS : ping_every_ms;
}

static bool ping_is_near(void *argument)
{
    double since_ms = (double)test_now_ms() - ping_ms;
    (void)argument;
    while (since_ms > ping_every_ms)
        since_ms -= ping_every_ms;
    return since_ms > ping_every_ms - BEFORE_MS;
}

static bool any_lost(void *argument)
{
    const struct waiter *waiters = argument;
    for (int i = 0; i < HOLDERS; i++)
        if (mortise_state(waiters[i].other) == MORTISE_STATE_LOST)
            return true;
    return false;
}

struct round {
    mortise_client *clients[HOLDERS], *other;
    struct waiter waiters[HOLDERS];
};

/* Waits until the creation of their sessions no longer counts, but beats do. False: one of them has ended by then,
 * because the machine is busy with something else. */
static bool hold_all(struct round *round)
{
    char settings[64];
    round->other = client_at(stage_leader(), "");
    for (int i = 0; i < HOLDERS; i++) {
        const char *name = fresh_name();
        snprintf(settings, sizeof settings, "&session_timeout=%dms&tick=1s",
                 SHORTEST_MS + i * SPREAD_MS);
        round->clients[i] = client_behind_proxy(settings);
        round->waiters[i] = (struct waiter){.other = take(round->clients[i], name)};
        waiter_start(&round->waiters[i], round->other, name);
    }
    return !test_poll(any_lost, round->waiters, SHORTEST_MS + HOLDERS * SPREAD_MS) &&
           test_proxy_count(&stage.proxy, "now") == HOLDERS;
}

static void give_back(struct round *round, bool were_lost)
{
    for (int i = 0; i < HOLDERS; i++) {
        mortise_status status = mortise_release(round->waiters[i].other, NULL);
        CU_ASSERT(!were_lost || status == MORTISE_LOST);
        if (!were_lost)
            CU_ASSERT_EQUAL(waiter_join(&round->waiters[i]), MORTISE_OK);
        status = mortise_release(round->waiters[i].lease, NULL);
        CU_ASSERT(status == MORTISE_OK || !were_lost);
        client_end(round->clients[i]);
    }
    client_end(round->other);
}

/* Each of the holders has a deadline that nobody can extend any more. It is LOST from then on, and only then the
 * servers have admitted the next one; while each is still connected to a running server. */
static bool cut_off(const char *how)
{
    static struct round round;
    int64_t deadline_ms[HOLDERS], least_ms = INT64_MAX, before;
    put_proxies_between();
    learn_pings();
    if (!hold_all(&round)) {
        give_back(&round, false);
        return false;
    }
    CU_ASSERT(test_poll(ping_is_near, NULL, TEST_PATIENCE_MS));
    before = test_proxy_count(&stage.proxy, "down");
    CU_ASSERT(test_poll(beat_answered, &before, TEST_PATIENCE_MS));
    say_links(how);
    for (int i = 0; i < HOLDERS; i++)
        deadline_ms[i] = deadline_of(round.waiters[i].other);
    if (test_proxy_count(&stage.proxy, "now") != HOLDERS) { /* one was late, and started again */
        say_links("pass");
        give_back(&round, false);
        return false;
    }
    for (int i = 0; i < HOLDERS; i++) {
        CU_ASSERT_EQUAL(waiter_join(&round.waiters[i]), MORTISE_OK);
        CU_ASSERT_EQUAL(round.waiters[i].other_state, MORTISE_STATE_LOST);
        int64_t after_ms = round.waiters[i].granted_ms - deadline_ms[i];
        CU_ASSERT(after_ms >= 0);
        least_ms = after_ms < least_ms ? after_ms : least_ms;
    }
    printf("(%d ms) ", (int)least_ms);
    say_links("pass");
    give_back(&round, true);
    return true;
}

static void cut_off_some_time(const char *how)
{
    bool seen = false;
    for (int tries = 0; tries < TRIES && !seen; tries++)
        seen = cut_off(how);
    CU_ASSERT(seen); /* or the machine was too busy each time */
}

static void test_follower_cut_off(void)
{
    cut_off_some_time("hold");
}

/* It hears nothing from its leader, which receives and executes what it forwards: so the nodes of LOST holders are
 * deleted, and the next ones admitted, before their sessions end. */
static void test_follower_deaf(void)
{
    cut_off_some_time("hold-down");
}

/* ---- behind ------------------------------------------------------------------------------------------- */

/* What one client learned from the leader is visible to another, which asks a follower that does not know it yet. */
static void test_follower_lags(void)
{
    put_proxies_between();
    mortise_client *client = client_at(stage_leader(), ""), *late = client_behind_proxy("");
    const char *name = fresh_name();
    EXPECT(OK, mortise_ping(late, NULL, 0, &detail));
    say_links("delay 400 down");
    for (int i = 0; i < 2; i++) {
        mortise_info info = {.size = sizeof info};
        mortise_lease *lease = take(client, name);
        uint64_t token = mortise_token(lease);
        EXPECT(OK, mortise_inspect(late, name, &info, &detail));
        CU_ASSERT_EQUAL(info.token, token);
        EXPECT(OK, mortise_release(lease, &detail));
        EXPECT(OK, mortise_acquire(late, name, MORTISE_OPTIONS(.wait_ms = 0), &lease, &detail));
        CU_ASSERT(mortise_token(lease) > token);
        EXPECT(OK, mortise_release(lease, &detail));
    }
    say_links("pass");
    client_end(client);
    client_end(late);
}

/* What the first server did for a session, from that place of its log on: whether what came right before it was asked
 * for children was a write, so that it had applied all that anybody was told of; 'w' for each time, 'r' for one that
 * was not. */
static void looks_of(size_t from, int64_t session, char *looks, size_t size)
{
    char path[300], mark[40];
    bool written = false;
    size_t count = 0;
    snprintf(path, sizeof path, "%s/1.log", stage.folder);
    snprintf(mark, sizeof mark, "sessionid:0x%llx ", (unsigned long long)session);
    char *text = test_file_read(path), *rest = NULL;
    char *line = text && strlen(text) >= from ? strtok_r(text + from, "\n", &rest) : NULL;
    for (; line; line = strtok_r(NULL, "\n", &rest)) {
        if (!strstr(line, mark) || !strstr(line, "Processing request"))
            continue;
        if (strstr(line, "type:getChildren") && count + 1 < size)
            looks[count++] = written ? 'w' : 'r';
        written = strstr(line, "type:setData") != NULL;
    }
    looks[count] = '\0';
    free(text);
}

static size_t log_length(void)
{
    char path[300];
    snprintf(path, sizeof path, "%s/1.log", stage.folder);
    char *text = test_file_read(path);
    size_t length = text ? strlen(text) : 0;
    free(text);
    return length;
}

/* A leader answers `sync` before it has applied what its followers have told, which cannot be made to last here. What
 * can be seen: by such a look alone nobody is BUSY, and nothing is held. */
static void test_looks_behind_a_write(void)
{
    put_proxies_between(); /* a follower */
    mortise_client *holder = client_at(2, ""), *client = client_at(1, "");
    const char *name = fresh_name();
    mortise_lease *lease = take(holder, name), *refused = NULL;
    mortise_info info = {.size = sizeof info};
    char looks[16];
    int64_t session = session_of(client);
    size_t before = log_length();
    EXPECT(BUSY, mortise_acquire(client, name, MORTISE_OPTIONS(.wait_ms = 0), &refused, &detail));
    looks_of(before, session, looks, sizeof looks);
    CU_ASSERT(strlen(looks) > 1 && looks[0] == 'r'); /* again if the connection was lost */
    CU_ASSERT_EQUAL(looks[strlen(looks) - 1], 'w');
    before = log_length();
    EXPECT(OK, mortise_inspect(client, name, &info, &detail));
    looks_of(before, session, looks, sizeof looks);
    CU_ASSERT(strlen(looks) > 0 && looks[strlen(looks) - 1] == 'w');
    EXPECT(OK, mortise_release(lease, &detail));
    client_end(holder);
    client_end(client);
}

/* The create was executed, and its answer and that of the list are lost with the connection; the client continues at a
 * follower that lags behind. */
static void test_lost_before_the_list(void)
{
    struct test_proxy first;
    mortise_client *client = NULL;
    const char *name = fresh_name();
    char url[200], looks[16];
    struct waiter waiter = {0};
    CU_ASSERT_FATAL(
        test_proxy_start(&first, stage.folder, "127.0.0.1", stage.ports[stage_leader() - 1]));
    CU_ASSERT_FATAL(test_proxy_say(&stage.proxy, "refuse"));
    snprintf(url, sizeof url, "zookeeper://127.0.0.1:%d,127.0.0.1:%d/faults?" LIFE "&" PATIENT,
             first.port, stage.proxy.port);
    EXPECT(OK, mortise_open(url, &client, &detail));
    EXPECT(OK, mortise_release(take(client, name), &detail));
    int64_t session = session_of(client);
    CU_ASSERT_FATAL(test_proxy_say(&first, "lose"));
    waiter_start(&waiter, client, name);
    CU_ASSERT(wait_contenders(name, 1));
    size_t before = log_length();
    say_links("delay 400 down");
    CU_ASSERT_FATAL(test_proxy_say(&stage.proxy, "accept"));
    CU_ASSERT_FATAL(test_proxy_say(&first, "refuse"));
    CU_ASSERT_EQUAL(waiter_join(&waiter), MORTISE_OK);
    CU_ASSERT_EQUAL(session_of(client), session);
    CU_ASSERT(wait_contenders(name, 1));
    looks_of(before, session, looks, sizeof looks);
    CU_ASSERT_EQUAL(looks[0], 'w');
    say_links("pass");
    CU_ASSERT_EQUAL(mortise_release(waiter.lease, NULL), MORTISE_OK);
    client_end(client);
    test_proxy_end(&first);
}

static void test_ends(void)
{
    for (int i = 0; i < 2; i++)
        test_proxy_end(&links[i]);
}

const CU_TestInfo follower_tests[] = {
    {"CURATOR-206: cut off from its leader, after a beat", test_follower_cut_off},
    {"CURATOR-206: hears nothing of its leader", test_follower_deaf},
    {"a follower that lags", test_follower_lags},
    {"looks behind a write", test_looks_behind_a_write},
    {"lost between create and list, at a follower that lags", test_lost_before_the_list},
    {"the end", test_ends},
    CU_TEST_INFO_NULL,
};
