/* test_turns.c - who comes next: nobody is promised anything, but no process is left behind. On three nodes. */
#include "nodes.h"

#include <stdatomic.h>
#include <string.h>

static struct nodes nodes;

/* The mark that a majority has on the lock is `wanted`: on the third, the vote of who was refused may have been first. */
static bool is_marked(const char *name, const char *wanted)
{
    int marked = 0;
    for (int i = 0; i < nodes.count; i++) {
        redisReply *reply = ask(&nodes.node[i], "GETRANGE mortise:%s 32 32", name);
        marked += reply && reply->str && strcmp(reply->str, wanted) == 0;
        freeReplyObject(reply);
    }
    return marked >= 2;
}

static bool is_marked_first(void *name)
{
    return is_marked(name, "+");
}

static bool is_marked_second(void *name)
{
    return is_marked(name, ",");
}

/* Who was told in vain leaves a mark that says so; one who comes later does not take it away. */
static void test_marks(void)
{
    char name[] = "marks";
    mortise_client *holder = nodes_open(&nodes, ALL, NULL, AT_ONCE);
    mortise_client *client = nodes_open(&nodes, ALL, NULL, AT_ONCE);
    mortise_client *late = nodes_open(&nodes, ALL, NULL, AT_ONCE);
    bool in_vain = false;
    for (int i = 0; i < 50 && !in_vain && !failures; i++) {
        struct pending pending = PENDING_INIT;
        mortise_lease *lease = take(holder, name);
        pending_start(&pending, client, name, MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = LONG_MS));
        CHECK(test_poll(is_marked_first, name, TEST_PATIENCE_MS));
        CHECK(wait_subscribed(&nodes, 3, name));
        give(lease);
        /* who asks at once is mostly there before who has to be told */
        in_vain = mortise_acquire(holder, name, MORTISE_OPTIONS(.wait_ms = 0, .ttl_ms = LONG_MS),
                                  &lease, &detail) == MORTISE_OK;
        if (in_vain) {
            CHECK(test_poll(is_marked_second, name, TEST_PATIENCE_MS));
            EXPECT(BUSY, try_once(late, name));
            CHECK(is_marked(name, ","));
            give(lease);
        }
        CHECK(pending_join(&pending) == MORTISE_OK);
        give(pending.lease);
        CHECK(wait_subscribed(&nodes, 0, name));
    }
    CHECK(in_vain);
    close_client(holder);
    close_client(client);
    close_client(late);
}

#define TURNS 300

struct taker {
    mortise_client *client;
    int self;
};

static atomic_int started, last, changes;

static void take_turns(void *argument)
{
    const struct taker *taker = argument;
    atomic_fetch_add(&started, 1);
    while (atomic_load(&started) < 2)
        sched_yield();
    for (int i = 0; i < TURNS && !failures; i++) {
        mortise_lease *lease = take(taker->client, "turns");
        if (atomic_exchange(&last, taker->self) != taker->self)
            atomic_fetch_add(&changes, 1);
        give(lease);
    }
}

/* Two clients that give and take without a pause: neither has all its turns before the other has one. */
static void test_courtesy(void)
{
    struct taker takers[2];
    for (int i = 0; i < 2; i++)
        takers[i] = (struct taker){nodes_open(&nodes, ALL, "handover_max = 0", AT_ONCE), i + 1};
    in_parallel(take_turns, takers, sizeof *takers, 2);
    printf("(%d changes in %d turns) ", atomic_load(&changes), 2 * TURNS);
    CHECK(atomic_load(&changes) >= TURNS / 10);
    for (int i = 0; i < 2; i++)
        close_client(takers[i].client);
}

static const CU_TestInfo tests[] = {
    {"marks of who was told in vain", test_marks},
    {"who gives back lets others come first", test_courtesy},
    CU_TEST_INFO_NULL,
};

int main(int argc, char **argv)
{
    int code = nodes_start(&nodes, 3, NULL);
    if (code == 0)
        code = run_tests("redlock turns", tests, argc, argv);
    return !nodes_end(&nodes) && code == 0 ? 1 : code;
}
