/* test_queue_many.c - a client that asks for more locks at once than it may have requests under way, and one of which
 * hundreds of callers wait when its connection is back. */
#include "fake.h"
#include "rig.h"

#include <stdio.h>

static struct server server;

#define MANY 1000

/* More than may be under way; nothing is answered, and all are given up. */
static void test_many(void)
{
    static struct pending pendings[MANY];
    struct test_proxy proxy;
    if (!start_proxy(&server, &proxy))
        return;
    mortise_client *client = open_by(&server, &proxy, NULL, "command_timeout = 1m\n");
    CHECK(wait_works(client));
    CHECK(test_proxy_say(&proxy, "delay 1000000 both"));
    for (int i = 0; i < MANY; i++) {
        char name[32];
        snprintf(name, sizeof name, "many-%d", i);
        pendings[i] = PENDING_INIT;
        pending_start(&pendings[i], client, name, MORTISE_OPTIONS(.wait_ms = -1));
    }
    for (int i = 0; i < MANY; i += 2)
        EXPECT(OK, mortise_cancel(client, pendings[i].request));
    for (int i = 0; i < MANY; i += 2)
        EXPECT(CANCELED, pending_join(&pendings[i]));
    CHECK(test_proxy_say(&proxy, "pass"));
    for (int i = 1; i < MANY; i += 2) {
        EXPECT(OK, pending_join(&pendings[i]));
        EXPECT(OK, mortise_release_nowait(pendings[i].lease, &detail));
    }
    close_client(client);
    test_proxy_end(&proxy);
}

#define SEATS 600
#define UNDER_WAY 256 /* of acquires, at most */

static struct fake fake;

/* The acquires that it has got: three keys, and four arguments or, with a wish for a place, five. */
static int asked(void)
{
    return atomic_load(&fake.asked[7]) + atomic_load(&fake.asked[8]);
}

static bool is_asked(void *at_least)
{
    return asked() >= *(const int *)at_least;
}

static bool have_places(void *unused)
{
    (void)unused;
    return atomic_load(&fake.asked[8]) >= SEATS;
}

static bool is_released(void *unused)
{
    (void)unused;
    return atomic_load(&fake.asked[5]) > 0;
}

/* Many callers of one client wait, each for its own lock, when its connections break, and nothing is answered on the
 * next one: a few of them ask, so a release is not behind all the others. Those follow when there are answers. */
static void test_many_wait(void)
{
    static struct pending pendings[SEATS];
    char address[40];
    if (!CHECK(fake_start(&fake)))
        return;
    snprintf(address, sizeof address, "127.0.0.1:%d", fake.port);
    mortise_client *client = open_at(&server, address, "unreachable_timeout = 1m",
                                     "command_timeout = 10m\nconnect_timeout = 1m\n");
    fake_answer(&fake, ":1700000000000000\r\n", 0, NULL);
    mortise_lease *lease = take_as(client, "held", NULL, 600000);
    fake_seat(&fake);
    for (int i = 0; i < SEATS; i++) {
        char name[32];
        snprintf(name, sizeof name, "seat-%d", i);
        pendings[i] = PENDING_INIT;
        pending_start(&pendings[i], client, name, MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = 600000));
    }
    CHECK(test_poll(have_places, NULL, TEST_PATIENCE_MS)); /* the next request is due in minutes */
    int before = asked(), full = before + UNDER_WAY;
    fake_cut(&fake, true);
    CHECK(test_poll(is_asked, &full, TEST_PATIENCE_MS));
    EXPECT(OK, mortise_release_nowait(lease, &detail));
    CHECK(test_poll(is_released, NULL, TEST_PATIENCE_MS));
    CHECK(asked() == full);
    fake_answer(&fake, ":2\r\n", 0, NULL);
    fake_cut(&fake, false);
    for (int i = 0; i < SEATS; i++) {
        EXPECT(OK, pending_join(&pendings[i]));
        EXPECT(OK, mortise_release_nowait(pendings[i].lease, &detail));
    }
    close_client(client);
    fake_end(&fake);
}

static const CU_TestInfo tests[] = {
    {"more acquires than are let on the way", test_many},
    {"more that wait than are let on the way, when the connection is back", test_many_wait},
    CU_TEST_INFO_NULL,
};

int main(int argc, char **argv)
{
    int code = server_start(&server, NULL);
    if (code == 0)
        code = run_tests("redis: queue, many at once", tests, argc, argv);
    return servers_end((struct server *const[]){&server}, 1, code);
}
