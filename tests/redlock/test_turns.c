/* test_turns.c - who comes next: nobody is promised anything, but no process is left behind. On three nodes. */
#include "nodes.h"

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

/* A release that meets a mark, of one who was refused and asks no more: who released comes again a moment later, so that
 * others may come first. How long at the least is what can be seen on a busy machine; shares are the benchmark's. */
static void test_courtesy(void)
{
    mortise_client *holder = nodes_open(&nodes, ALL, NULL, AT_ONCE);
    mortise_client *other = nodes_open(&nodes, ALL, NULL, AT_ONCE);
    for (int i = 0; i < 20 && !failures; i++) {
        mortise_lease *lease = take(holder, "courtesy");
        EXPECT(BUSY, try_once(other, "courtesy"));
        int64_t before_ms = test_now_ms();
        give(lease);
        lease = take(holder, "courtesy");
        CHECK(test_now_ms() - before_ms >= 1);
        give(lease);
    }
    close_client(holder);
    close_client(other);
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
