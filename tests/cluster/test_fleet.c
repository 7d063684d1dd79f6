/* test_fleet.c - the rig itself, without the driver: what the nodes answer while a slot moves, while a slot is missing, and when a
 * replica takes over; and that proxies lead to proxies. */
#include "fleet.h"

#include <stdio.h>
#include <string.h>

static struct fleet fleet;

/* What the node answers to a write begins so. */
static bool answers(int node, const char *begin, const char *key)
{
    redisReply *reply = ask(&fleet.node[node], "SET %s v PX 60000", key);
    bool so = reply && reply->str && strncmp(reply->str, begin, strlen(begin)) == 0;
    if (!so)
        fprintf(stderr, "node %d: %s\n", node, reply && reply->str ? reply->str : "no text");
    freeReplyObject(reply);
    return so;
}

static void test_move(void)
{
    struct move move;
    unsigned slot = (unsigned)ask_number(&fleet.node[0], "CLUSTER KEYSLOT {moved}");
    int from = slot_owner(&fleet, 0, slot), to = (from + 1) % MASTERS;
    CHECK(answers(from, "OK", "{moved}:1"));
    CHECK(answers(to, "MOVED ", "{moved}:1"));
    move_begin(&move, &fleet, slot, to);
    CHECK(answers(from, "OK", "{moved}:1"));
    CHECK(answers(from, "ASK ", "{moved}:2"));
    CHECK(move_key(&move, "{moved}:1"));
    CHECK(answers(from, "ASK ", "{moved}:1"));
    freeReplyObject(ask(&fleet.node[to], "ASKING"));
    CHECK(answers(to, "OK", "{moved}:1"));
    freeReplyObject(ask(&fleet.node[to], "ASKING"));
    redisReply *reply = ask(&fleet.node[to], "MGET {moved}:1 {moved}:2");
    CHECK(reply && reply->str && strncmp(reply->str, "TRYAGAIN", 8) == 0);
    freeReplyObject(reply);
    move_end(&move);
    CHECK(answers(from, "MOVED ", "{moved}:1"));
    CHECK(answers(to, "OK", "{moved}:1"));
    CHECK(ask_number(&fleet.node[to], "DEL {moved}:1") == 1);
    move_slot(&fleet, slot, from);
    fleet_mend(&fleet);
}

static void test_down(void)
{
    unsigned slot = slot_of(&fleet, "down");
    int owner = slot_owner(&fleet, 0, slot);
    slot_remove(&fleet, slot);
    CHECK(answers(owner, "CLUSTERDOWN", "mortise:down"));
    slot_give(&fleet, slot, owner);
    CHECK(answers(owner, "OK", "mortise:down"));
    CHECK(ask_number(&fleet.node[owner], "DEL mortise:down") == 1);
}

static void test_taken_over(void)
{
    char name[48];
    name_on(&fleet, 1, "taken", name);
    CHECK(ask_is(&fleet.node[1], "OK", "SET mortise:%s before PX 60000", name));
    CHECK(wait_replicated(&fleet, 1, 1));
    fleet_strand(&fleet, REPLICA(1), true);
    CHECK(ask_is(&fleet.node[1], "OK", "SET mortise:%s unseen PX 60000", name));
    fleet_do(&fleet, "kill", 1);
    fleet_promote(&fleet, REPLICA(1));
    fleet_strand(&fleet, REPLICA(1), false);
    CHECK(ask_is(&fleet.node[REPLICA(1)], "before", "GET mortise:%s", name));
    CHECK(ask_number(&fleet.node[REPLICA(1)], "DEL mortise:%s", name) == 1);
    fleet_do(&fleet, "start", 1);
    fleet_mend(&fleet);
}

static void test_proxies(void)
{
    for (int i = 0; i < MASTERS; i++) {
        struct server by_proxy = {.port = fleet.proxy[i].port, .lock = PTHREAD_MUTEX_INITIALIZER};
        redisReply *ranges = ask(&by_proxy, "CLUSTER SLOTS");
        CHECK(ranges && ranges->elements == MASTERS);
        for (size_t j = 0; ranges && j < ranges->elements; j++)
            for (size_t k = 2; k < ranges->element[j]->elements; k++) {
                bool known = false;
                for (int n = 0; n < FLEET; n++)
                    known |=
                        ranges->element[j]->element[k]->element[1]->integer == fleet.proxy[n].port;
                CHECK(known);
            }
        freeReplyObject(ranges);
        redisFree(by_proxy.looker);
    }
}

static const CU_TestInfo tests[] = {
    {"a slot moves", test_move},
    {"a slot is missing", test_down},
    {"a replica takes over", test_taken_over},
    {"proxies lead to proxies", test_proxies},
    CU_TEST_INFO_NULL,
};

int main(int argc, char **argv)
{
    int code = fleet_start(&fleet, true, NULL);
    if (code == 0)
        code = run_tests("cluster: the rig", tests, argc, argv);
    return !fleet_end(&fleet) && code == 0 ? 1 : code;
}
