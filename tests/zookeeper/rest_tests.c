/* rest_tests.c - sessions while nothing happens: a client without locks writes nothing, and a lease that is held for long
 * never comes near its end. A set of its own, because each test watches for many seconds. */
#include "stage.h"

#include <stdio.h>
#include <string.h>

/* ---- a client without locks ---------------------------------------------------------------------------------------- */

/* Returns how often the node for the beats of this client's session was written; -1: there is none. */
static int beats_of(mortise_client *client)
{
    int64_t session = session_of(client);
    struct String_vector nodes = {0, NULL};
    struct Stat stat;
    char path[256];
    int beats = -1;
    if (zoo_get_children(stage.peek, "/faults/%sessions", 0, &nodes) != ZOK)
        return -1;
    for (int i = 0; i < nodes.count; i++) {
        snprintf(path, sizeof path, "/faults/%%sessions/%s", nodes.data[i]);
        if (zoo_exists(stage.peek, path, 0, &stat) == ZOK && stat.ephemeralOwner == session)
            beats = stat.version;
    }
    deallocate_String_vector(&nodes);
    return beats;
}

static bool never(void *argument)
{
    (void)argument;
    return false;
}

/* For as long as a short session would last, and longer than between two beats of a session of 12 s. */
static bool wrote_nothing(void *argument)
{
    int beats = beats_of(argument);
    test_poll(never, NULL, TIMEOUT_MS + 1000);
    return beats >= 0 && beats_of(argument) == beats;
}

struct goal {
    mortise_lease *lease;
    int64_t deadline_ms;
};

/* Or it is LOST. */
static bool lasts_until(void *argument)
{
    const struct goal *goal = argument;
    int64_t deadline_ms = deadline_of(goal->lease);
    return deadline_ms == 0 || deadline_ms >= goal->deadline_ms;
}

/* A client without locks rests, and its session lives on. The next lock is proven at once, and is renewed. */
static void test_rests(void)
{
    mortise_client *client = client_direct(BRIEF);
    EXPECT(OK, mortise_release(take(client, fresh_name()), &detail));
    int64_t session = session_of(client);
    CU_ASSERT(test_poll(wrote_nothing, client, TEST_PATIENCE_MS));
    CU_ASSERT_EQUAL(session_of(client), session);
    const char *name = fresh_name();
    bool kept = false;
    for (int tries = 0; tries < TRIES && !kept; tries++) {
        mortise_lease *lease = take(client, name);
        CU_ASSERT(session_of(client) != session);
        struct goal goal = {lease, deadline_of(lease) + 2 * TIMEOUT_MS};
        CU_ASSERT(test_poll(lasts_until, &goal, TEST_PATIENCE_MS));
        kept = mortise_release(lease, &detail) == MORTISE_OK;
    }
    CU_ASSERT(kept);
    client_end(client);
}

struct asker {
    pthread_t thread;
    mortise_client *client;
    const char *name;
    uint64_t token; /* 0: it lists */
    int times;
    mortise_status status;
    mortise_error error;
};

static bool count_name(const mortise_info *info, void *argument)
{
    struct asker *asker = argument;
    asker->times += strcmp(info->name, asker->name) == 0;
    return true;
}

static void *ask_main(void *argument)
{
    struct asker *asker = argument;
    asker->status = asker->token == 0
                        ? mortise_list(asker->client, asker->name, count_name, asker, &asker->error)
                        : mortise_break(asker->client, asker->name, asker->token, &asker->error);
    return NULL;
}

static void ask(struct asker *asker, mortise_client *client, const char *name, uint64_t token)
{
    int64_t before = test_proxy_count(&stage.proxy, "up");
    *asker = (struct asker){.client = client, .name = name, .token = token};
    CU_ASSERT_EQUAL_FATAL(pthread_create(&asker->thread, NULL, ask_main, asker), 0);
    for (int i = 0; i < TEST_PATIENCE_MS && test_proxy_count(&stage.proxy, "up") <= before; i++)
        test_poll(never, NULL, 1);
}

/* An acquire ends the session of a client that rests; open requests in it are answered first. */
static void test_queries_at_rest(void)
{
    mortise_client *client = client_behind_proxy("&session_timeout=12s"),
                   *holder = client_direct("");
    const char *listed = fresh_name(), *ended = fresh_name(), *wanted = fresh_name();
    mortise_lease *kept = take(holder, listed), *broken = take(holder, ended);
    struct asker lists, breaks;
    struct waiter waiter = {0};
    EXPECT(OK, mortise_release(take(client, fresh_name()), &detail));
    CU_ASSERT(test_poll(wrote_nothing, client, TEST_PATIENCE_MS));
    int64_t session = session_of(client);
    CU_ASSERT(test_proxy_say(&stage.proxy, "delay 700 down"));
    ask(&lists, client, listed, 0);
    ask(&breaks, client, ended, mortise_token(broken));
    CU_ASSERT(
        wait_contenders(ended, 0)); /* executed, and not answered; the list knows its folders */
    waiter_start(&waiter, client, wanted);
    pthread_join(lists.thread, NULL);
    pthread_join(breaks.thread, NULL);
    CU_ASSERT(test_proxy_say(&stage.proxy, "pass"));
    CU_ASSERT_EQUAL(waiter_join(&waiter), MORTISE_OK);
    CU_ASSERT(session_of(client) != session);
    CU_ASSERT_EQUAL(lists.status, MORTISE_OK);
    CU_ASSERT_EQUAL(lists.times, 1);
    CU_ASSERT_EQUAL(breaks.status, MORTISE_OK);
    EXPECT(OK, mortise_release(waiter.lease, &detail));
    EXPECT(OK, mortise_release(kept, &detail));
    mortise_release(broken, NULL);
    client_end(client);
    client_end(holder);
}

/* ---- how long a lease is good for ------------------------------------------------------------------------ */

#define WATCHED 2

struct shortest {
    mortise_lease *leases[WATCHED];
    int64_t left_ms;
};

static bool is_lost(void *argument)
{
    struct shortest *shortest = argument;
    bool lost = false;
    for (int i = 0; i < WATCHED; i++) {
        int64_t left_ms = mortise_remaining_ms(shortest->leases[i]);
        if (left_ms < shortest->left_ms)
            shortest->left_ms = left_ms;
        lost |= mortise_state(shortest->leases[i]) != MORTISE_STATE_HELD;
    }
    return lost;
}

/* The servers grant a timeout of 30 s. From the first moment on, and as long as everything works, a lease always has
 * more than a fifth of that left, because its holder needs time to act. */
static void test_never_near_its_end(void)
{
    static const char *const asked[WATCHED] = {"&" LIFE, "&session_timeout=60s"};
    mortise_client *clients[WATCHED];
    struct shortest shortest = {.left_ms = INT64_MAX};
    for (int i = 0; i < WATCHED; i++) {
        clients[i] = client_direct(asked[i]);
        shortest.leases[i] = take(clients[i], fresh_name());
    }
    CU_ASSERT_FALSE(test_poll(is_lost, &shortest, LIFE_MS * 2 / 3));
    printf("(%d ms) ", (int)shortest.left_ms);
    CU_ASSERT(shortest.left_ms > LIFE_MS / 5);
    for (int i = 0; i < WATCHED; i++) {
        CU_ASSERT_EQUAL(mortise_release(shortest.leases[i], NULL), MORTISE_OK);
        client_end(clients[i]);
    }
}

/* ---- the data of the servers is lost ---------------------------------------------------------------------------- */

/* A client that only asks from then on: the server closes each connection of its session, and never says that it has expired.
 * The last test of the set, because that is true of the stage's own handle, too. */
static void test_data_lost(void)
{
    mortise_client *client = client_direct(BRIEF);
    struct asker lists = {.name = "nothing"};
    char data[300];
    EXPECT(OK, mortise_release(take(client, fresh_name()), &detail));
    CU_ASSERT(test_poll(wrote_nothing, client, TEST_PATIENCE_MS));
    CU_ASSERT_FATAL(stage_server("kill", 1));
    snprintf(data, sizeof data, "%s/1", stage.folder);
    test_folder_remove(data);
    CU_ASSERT_FATAL(stage_server("start", 1));
    EXPECT(OK, mortise_list(client, "", count_name, &lists, &detail));
    EXPECT(OK, mortise_release(take(client, fresh_name()), &detail));
    client_end(client);
}

const CU_TestInfo rest_tests[] = {
    {"a client that has nothing rests", test_rests},
    {"queries of a client that rests, and an acquire", test_queries_at_rest},
    {"never near its end", test_never_near_its_end},
    {"the data is lost while a client rests", test_data_lost},
    CU_TEST_INFO_NULL,
};
