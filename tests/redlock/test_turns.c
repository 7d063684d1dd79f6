/* test_turns.c - who is next: the driver promises no order, but no process starves. On three nodes. */
#include "nodes.h"

#include <time.h>

static struct nodes nodes;

/* A node that is stopped for seconds is not down: each try must be answered. */
#define PATIENT AT_ONCE "node_timeout = 30s\nconnect_timeout = 30s\n"

static mortise_client *open_all(void)
{
    return nodes_open(&nodes, ALL, NULL, PATIENT);
}

/* A majority has this mark on the lock, or a larger one. On the third node, the vote of the refused caller may have
 * been first. */
static bool is_marked(const char *name, char wanted)
{
    int marked = 0;
    for (int i = 0; i < nodes.count; i++) {
        redisReply *reply = ask(&nodes.node[i], "GETRANGE mortise:%s 32 32", name);
        marked += reply && reply->type == REDIS_REPLY_STRING && reply->len == 1 &&
                  reply->str[0] >= wanted;
        freeReplyObject(reply);
    }
    return marked >= 2;
}

static bool is_marked_first(void *name)
{
    return is_marked(name, '+');
}

static bool is_marked_second(void *name)
{
    return is_marked(name, ',');
}

/* Once more, the waiter was notified in vain. True: once, and not twice for one release by nodes that were late. */
static bool mark_once(char *name, mortise_client *late)
{
    CHECK(test_poll(is_marked_second, name, TEST_PATIENCE_MS));
    bool twice = is_marked(name, '-');
    EXPECT(BUSY, try_once(late, name));
    CHECK(is_marked_second(name));
    return !twice;
}

/* A caller that was notified in vain leaves a mark that says so; a later caller does not remove it. */
static void test_marks(void)
{
    char name[] = "marks";
    mortise_client *holder = open_all(), *client = open_all(), *late = open_all();
    bool seen = false;
    for (int i = 0; i < 300 && !seen && !failures; i++) {
        struct pending pending = PENDING_INIT;
        mortise_lease *lease = take(holder, name);
        pending_start(&pending, client, name, MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = LONG_MS));
        CHECK(test_poll(is_marked_first, name, TEST_PATIENCE_MS));
        bool first =
            !is_marked_second(name); /* a late node's message about the last round does not count */
        CHECK(wait_subscribed(&nodes, 3, name));
        give(lease);
        /* a caller that asks at once is mostly earlier than one that must be notified */
        if (mortise_acquire(holder, name, MORTISE_OPTIONS(.wait_ms = 0, .ttl_ms = LONG_MS), &lease,
                            &detail) == MORTISE_OK) {
            seen = mark_once(name, late) && first;
            give(lease);
        }
        CHECK(pending_join(&pending) == MORTISE_OK);
        give(pending.lease);
        CHECK(wait_subscribed(&nodes, 0, name));
    }
    CHECK(seen);
    close_client(holder);
    close_client(client);
    close_client(late);
}

static int64_t now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

/* Returns how long a release and the next acquire take together at best; `other` is refused in between, or NULL. */
static int64_t best_turn_us(mortise_client *holder, mortise_client *other, const char *name)
{
    int64_t best_us = INT64_MAX;
    for (int i = 0; i < 20 && !failures; i++) {
        mortise_lease *lease = take(holder, name);
        if (other)
            EXPECT(BUSY, try_once(other, name));
        int64_t before_us = now_us();
        give(lease);
        lease = take(holder, name);
        int64_t took_us = now_us() - before_us;
        best_us = took_us < best_us ? took_us : best_us;
        give(lease);
    }
    return best_us;
}

/* Connections that hear the releases of a name, and do not ask for it. */
static void listen_to(redisContext **ears, const char *name)
{
    for (int i = 0; i < nodes.count; i++) {
        ears[i] = redisConnect("127.0.0.1", nodes.group.ports[i]);
        redisReply *reply =
            ears[i] ? redisCommand(ears[i], "SUBSCRIBE {mortise:%s}:mortise:news", name) : NULL;
        CHECK(reply && reply->type == REDIS_REPLY_ARRAY);
        freeReplyObject(reply);
    }
}

static void listen_no_more(redisContext **ears)
{
    for (int i = 0; i < nodes.count; i++)
        if (ears[i])
            redisFree(ears[i]);
}

/* The same, of one that had to wait for the lock, so that its vote brought a mark along. Nobody waits any more; or one
 * other waits, who hears the release, but does not ask. */
static int64_t best_woken_turn_us(mortise_client *waiter, mortise_client *other, char *name,
                                  bool heard)
{
    int64_t best_us = INT64_MAX;
    redisContext *ears[NODES_MAX] = {NULL};
    for (int i = 0; i < 20 && !failures; i++) {
        struct pending pending = PENDING_INIT;
        mortise_lease *lease = take(other, name);
        pending_start(&pending, waiter, name, MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = LONG_MS));
        CHECK(test_poll(is_marked_first, name, TEST_PATIENCE_MS));
        CHECK(wait_subscribed(&nodes, 3, name));
        give(lease);
        CHECK(pending_join(&pending) == MORTISE_OK);
        CHECK(wait_subscribed(&nodes, 0, name) && is_marked_first(name));
        if (heard)
            listen_to(ears, name);
        int64_t before_us = now_us();
        give(pending.lease);
        lease = take(waiter, name);
        int64_t took_us = now_us() - before_us;
        best_us = took_us < best_us ? took_us : best_us;
        give(lease);
        if (heard)
            listen_no_more(ears);
        CHECK(wait_subscribed(&nodes, 0, name));
    }
    return best_us;
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* If a release meets the mark of a refused caller, the next acquire of the releasing process waits for a moment, so
 * that others may come first: a millisecond at least. It does not if the mark is of its own vote, and nobody else hears
 * the release. The kinds of turns are compared by their best; a busy machine delays even that, so it may take more turns. */
static void test_courtesy(void)
{
    char woken[] = "woken", heard[] = "heard";
    mortise_client *holder = open_all(), *other = open_all();
    int64_t marked_us = INT64_MAX, plain_us = INT64_MAX, woken_us = INT64_MAX, heard_us = INT64_MAX;
    bool differ = false;
    for (int i = 0; i < 10 && !differ && !failures; i++) {
        marked_us = smaller(marked_us, best_turn_us(holder, other, "courtesy"));
        plain_us = smaller(plain_us, best_turn_us(holder, NULL, "no courtesy"));
        woken_us = smaller(woken_us, best_woken_turn_us(holder, other, woken, false));
        heard_us = smaller(heard_us, best_woken_turn_us(holder, other, heard, true));
        differ = marked_us >= plain_us + 500 && marked_us >= woken_us + 500;
    }
    CHECK(heard_us >= 1000);
    CHECK(differ);
    close_client(holder);
    close_client(other);
}

static struct test_count granted = TEST_COUNT_INIT;
static mortise_lease *second;

static void on_second(mortise_status status, mortise_lease *lease, const mortise_error *error,
                      void *user_data)
{
    (void)error;
    (void)user_data;
    CHECK(status == MORTISE_OK);
    second = lease;
    test_count_add(&granted, 1);
}

static int64_t scripts(void)
{
    return nodes_commands(&nodes, "evalsha") + nodes_commands(&nodes, "eval");
}

static bool are_more(void *before)
{
    return scripts() > *(int64_t *)before;
}

/* Returns how many there are once no more come. */
static int64_t scripts_settled(void)
{
    int64_t before = scripts();
    while (test_poll(are_more, &before, 100))
        before = scripts();
    return before;
}

/* A turn from one caller of this client to the next, while a third one waits. True: the nodes got no more than the release,
 * the votes, and perhaps a token; and the lock is marked. */
static bool is_quiet_turn(mortise_client *client, char *name)
{
    struct pending first = PENDING_INIT;
    mortise_lease *lease = take(client, name);
    int turns = test_count_get(&granted);
    pending_start(&first, client, name, MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = LONG_MS));
    CHECK(test_poll(is_marked_first, name, TEST_PATIENCE_MS));
    CHECK(wait_subscribed(&nodes, 3, name));
    EXPECT(OK,
           mortise_acquire_async(client, name, MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = LONG_MS),
                                 on_second, NULL, NULL, &detail));
    int64_t before = scripts_settled();
    give(lease);
    CHECK(pending_join(&first) == MORTISE_OK);
    bool quiet = scripts_settled() - before <= 3 * nodes.count && is_marked_first(name);
    give(first.lease);
    CHECK(test_count_wait(&granted, turns + 1));
    give(second);
    CHECK(wait_subscribed(&nodes, 0, name));
    return quiet;
}

/* While a client has the lock and its next caller waits for that, the nodes are asked nothing. The vote has brought a
 * mark along, so the release is announced though nobody was refused. A node that is late may cost a turn more. */
static void test_own_holds(void)
{
    char name[] = "own";
    mortise_client *client = nodes_open(&nodes, ALL, "handover_max = 0\n", PATIENT);
    bool quiet = false;
    for (int i = 0; i < 10 && !quiet && !failures; i++)
        quiet = is_quiet_turn(client, name);
    CHECK(quiet);
    close_client(client);
}

static const CU_TestInfo tests[] = {
    {"the next caller of the client that has the lock asks nothing", test_own_holds},
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
