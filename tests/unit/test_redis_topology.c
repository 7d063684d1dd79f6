/* test_redis_topology.c - the slot map of a Redis Cluster while its servers do not answer: who is asked, and when. */
#include "redis_link_test.h"

#include "topology.h"

#define SERVERS 5

static struct server servers[SERVERS];
static unsigned looks;
static struct link_fault looked_fault;

static void changed(void *of)
{
    (void)of;
}

static void looked(void *of, const struct link_fault *fault)
{
    (void)of;
    looks++;
    if (fault != NULL)
        looked_fault = *fault;
}

static unsigned count_accepted(void)
{
    unsigned accepted = 0;
    for (int i = 0; i < SERVERS; i++) {
        server_accept(&servers[i]);
        accepted += servers[i].accepted;
    }
    return accepted;
}

/* All servers stand still. Up to three of them are asked, one after the other, and then the look waits for its end: the pump is
 * called a few times, and not all the time. */
static void test_nobody_answers(void)
{
    static const struct topology_callbacks callbacks = {.changed = changed, .looked = looked};
    const struct link_settings like = {.connect_timeout_ms = 2000, .client_name = "test"};
    for (unsigned count = 1; count <= SERVERS; count++) {
        char list[SERVERS * sizeof servers[0].at.sun_path] = "";
        const char *problem;
        unsigned most = count < TOPOLOGY_SCOUTS ? count : TOPOLOGY_SCOUTS, turns = 0;
        for (unsigned i = 0; i < SERVERS; i++) {
            char name[] = {'s', (char)('0' + i), '\0'};
            server_start(&servers[i], name);
            if (i < count)
                snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", i > 0 ? "," : "",
                         servers[i].at.sun_path);
        }
        looks = 0;
        struct topology *topology = topology_open(&host, list, &like, &callbacks, NULL, &problem);
        CU_ASSERT_PTR_NOT_NULL_FATAL(topology);
        int64_t began_ns = now_ns;
        topology_want(topology);
        while (looks == 0 && turns < 1000) {
            struct pollfd fds[TOPOLOGY_SCOUTS];
            int64_t due_ns = MORTISE_NEVER;
            size_t n = topology_interest(topology, fds, TOPOLOGY_SCOUTS, &due_ns);
            bool ready = poll(fds, n, 0) > 0;
            if (!ready && due_ns > now_ns)
                now_ns = due_ns;
            topology_turn(topology, fds, ready ? n : 0);
            turns++;
            unsigned asked = count_accepted();
            CU_ASSERT_TRUE(asked <= most || now_ns >= began_ns + 2000 * MS);
            if (now_ns >= began_ns + 1000 * MS && now_ns < began_ns + 2000 * MS)
                CU_ASSERT_EQUAL(asked, most);
        }
        CU_ASSERT_EQUAL(looks, 1);
        CU_ASSERT_TRUE(turns < 40);
        topology_close(topology);
        for (unsigned i = 0; i < SERVERS; i++)
            server_end(&servers[i]);
    }
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"nobody answers", test_nobody_answers},
        CU_TEST_INFO_NULL,
    };
    return link_tests_run("redis_topology", tests);
}
