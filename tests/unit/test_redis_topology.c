/* test_redis_topology.c - the slot map of a Redis Cluster: what is read, whom it believes, and who is asked while servers do not
 * answer. */
#include "redis_link_test.h"

#include "topology.h"

#define SERVERS 5

static struct server servers[SERVERS];
static unsigned looks, changes;
static bool failed;
static struct link_fault looked_fault;

static void changed(void *of)
{
    (void)of;
    changes++;
}

static void looked(void *of, const struct link_fault *fault)
{
    (void)of;
    looks++;
    failed = fault != NULL;
    if (failed)
        looked_fault = *fault;
}

static const struct topology_callbacks callbacks = {.changed = changed, .looked = looked};

/* ---- what is read ---------------------------------------------------------------------------------- */

static redisReply *reply_of(const char *text)
{
    void *reply = NULL;
    redisReader *reader = redisReaderCreate();
    CU_ASSERT_EQUAL(redisReaderFeed(reader, text, strlen(text)), REDIS_OK);
    CU_ASSERT_EQUAL(redisReaderGetReply(reader, &reply), REDIS_OK);
    redisReaderFree(reader);
    CU_ASSERT_PTR_NOT_NULL_FATAL(reply);
    return reply;
}

/* Of a map: the client asks them too, and nobody listens there. */
#define AT(host) "*2\r\n" host ":1\r\n"
#define A AT("$10\r\n127.77.0.1\r\n")
#define B AT("$10\r\n127.77.0.2\r\n")
#define RANGE(first, last, master) "*3\r\n:" #first "\r\n:" #last "\r\n" master

static void test_maps(void)
{
    static const struct {
        const char *text;
        bool is_map;
    } all[] = {
        {"*1\r\n" RANGE(0, 16383, A), true},
        {"*2\r\n" RANGE(0, 0, A) RANGE(1, 16383, B), true},
        {"*1\r\n*4\r\n:5\r\n:6\r\n" A B, true}, /* with a replica */
        {"*0\r\n", false},
        {"+OK\r\n", false},
        {"*1\r\n" RANGE(0, 16384, A), false},
        {"*1\r\n" RANGE(-1, 5, A), false},
        {"*1\r\n" RANGE(6, 5, A), false},
        {"*2\r\n" RANGE(0, 5, A) "+OK\r\n", false},
        {"*1\r\n*2\r\n:0\r\n:5\r\n", false}, /* nobody has it */
        {"*1\r\n*3\r\n+0\r\n:5\r\n" A, false},
        {"*1\r\n*3\r\n:0\r\n+5\r\n" A, false},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        redisReply *reply = reply_of(all[i].text);
        CU_ASSERT_EQUAL(topology_is_map(reply), all[i].is_map);
        freeReplyObject(reply);
    }
}

static void test_servers(void)
{
    static const struct {
        const char *text, *at; /* NULL: it has no address */
        bool portless;
    } all[] = {
        {A, "127.77.0.1:1", false},
        {AT("$5\r\n::1:2\r\n"), "[::1:2]:1", false},
        {AT("$0\r\n\r\n"), "10.0.0.9:1", false}, /* it is where it was asked */
        {AT("$1\r\n?\r\n"), "10.0.0.9:1", false},
        {AT("$-1\r\n"), "10.0.0.9:1", false},
        {AT("$3\r\na b\r\n"), NULL, false},
        {"*2\r\n$1\r\na\r\n:0\r\n", NULL, true},
        {"*2\r\n$1\r\na\r\n:65536\r\n", NULL, false},
        {"*2\r\n$1\r\na\r\n:-1\r\n", NULL, false},
        {"*2\r\n$1\r\na\r\n:65535\r\n", "a:65535", false},
        {"*2\r\n$1\r\na\r\n+7001\r\n", NULL, false},
        {"*1\r\n$1\r\na\r\n", NULL, false},
        {"+a\r\n", NULL, false},
    };
    const struct endpoint from = endpoint_of("10.0.0.9:7009");
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct endpoint at;
        redisReply *reply = reply_of(all[i].text);
        bool read = topology_read_server(reply, &from, &at);
        CU_ASSERT_EQUAL(read, all[i].at != NULL);
        if (read && all[i].at != NULL)
            CU_ASSERT_STRING_EQUAL(at.text, all[i].at);
        CU_ASSERT_EQUAL(topology_is_portless(reply), all[i].portless);
        freeReplyObject(reply);
    }
}

static void test_redirects(void)
{
    static const struct {
        const char *text, *to; /* NULL: it makes no sense */
        unsigned slot;
    } all[] = {
        {"-MOVED 3999 127.0.0.1:6381\r\n", "127.0.0.1:6381", 3999},
        {"-ASK 0 host:1\r\n", "host:1", 0},
        {"-MOVED 16383 ::1:6381\r\n", "[::1]:6381", 16383},
        {"-MOVED 1 :6381\r\n", "10.0.0.9:6381", 1},
        {"-MOVED 1 ?:6381\r\n", "10.0.0.9:6381", 1},
        {"-MOVED 1 a:6381\r\n", "a:6381", 1},
        {"-MOVED 16384 host:1\r\n", NULL, 0},
        {"-MOVED  host:1\r\n", NULL, 0},
        {"-MOVED 1\r\n", NULL, 0},
        {"-MOVED 1 \r\n", NULL, 0},
        {"-MOVED 1 host\r\n", NULL, 0},
        {"-MOVED 1 host:0\r\n", NULL, 0},
        {"-MOVED\r\n", NULL, 0},
    };
    const struct endpoint from = endpoint_of("10.0.0.9:7009");
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct endpoint to;
        unsigned slot = KEY_SLOTS;
        redisReply *reply = reply_of(all[i].text);
        bool read = topology_read_redirect(reply, &from, &slot, &to);
        CU_ASSERT_EQUAL(read, all[i].to != NULL);
        if (read && all[i].to != NULL) {
            CU_ASSERT_STRING_EQUAL(to.text, all[i].to);
            CU_ASSERT_EQUAL(slot, all[i].slot);
        }
        freeReplyObject(reply);
    }
}

/* ---- looks ----------------------------------------------------------------------------------------- */

static struct topology *topology;

static void open_all(unsigned count)
{
    static const struct link_settings like = {.connect_timeout_ms = 2000, .client_name = "test"};
    char list[SERVERS * sizeof servers[0].at.sun_path] = "";
    const char *problem;
    for (unsigned i = 0; i < SERVERS; i++) {
        char name[] = {'s', (char)('0' + i), '\0'};
        server_start(&servers[i], name);
        if (i < count)
            snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", i > 0 ? "," : "",
                     servers[i].at.sun_path);
    }
    looks = changes = 0;
    topology = topology_open(&host, list, &like, &callbacks, NULL, &problem);
    CU_ASSERT_PTR_NOT_NULL_FATAL(topology);
}

static void close_all(void)
{
    topology_close(topology);
    for (unsigned i = 0; i < SERVERS; i++)
        server_end(&servers[i]);
}

/* As the pump does. False: nothing has come; then time goes on, or not. */
static bool turn_topology(bool goes_on)
{
    struct pollfd fds[TOPOLOGY_SCOUTS];
    int64_t due_ns = MORTISE_NEVER;
    size_t n = topology_interest(topology, fds, TOPOLOGY_SCOUTS, &due_ns);
    bool ready = poll(fds, n, 0) > 0;
    if (!ready && goes_on && due_ns > now_ns && due_ns != MORTISE_NEVER)
        now_ns = due_ns;
    topology_turn(topology, fds, ready ? n : 0);
    return ready;
}

/* A look, which all servers answer at once. */
static void look(void)
{
    unsigned before = looks;
    bool idle = false;
    topology_want(topology);
    for (int turns = 0; looks == before && turns < 1000; turns++) {
        idle = !turn_topology(idle);
        for (unsigned i = 0; i < SERVERS && looks == before; i++) {
            bool came = server_accept(&servers[i]);
            idle &= !came && server_answer(&servers[i]) == 0;
        }
    }
    CU_ASSERT_EQUAL(looks, before + 1);
    turn_topology(false); /* it closes what it needs no more */
    for (unsigned i = 0; i < SERVERS; i++)
        server_hang_up(&servers[i]);
}

static const char *owner_of(unsigned slot)
{
    int server_at = topology_owner(topology, slot);
    return server_at < 0 ? "nobody" : topology->servers[server_at].at.text;
}

#define ALL_A "*1\r\n" RANGE(0, 16383, A)
#define ALL_B "*1\r\n" RANGE(0, 16383, B)

static void test_map(void)
{
    struct endpoint b = endpoint_of("127.77.0.2:1");
    open_all(1);
    CU_ASSERT_EQUAL(topology_owner(topology, 0), -1);
    CU_ASSERT_EQUAL(topology_owner(topology, 16383), -1);
    servers[0].slots = "-ERR This instance has cluster support disabled\r\n";
    look();
    CU_ASSERT_TRUE(failed);
    CU_ASSERT_PTR_NOT_NULL(strstr(looked_fault.text, "cluster support disabled"));
    servers[0].slots = "*0\r\n";
    look();
    CU_ASSERT_TRUE(failed);
    CU_ASSERT_PTR_NOT_NULL(strstr(looked_fault.text, "has no slots yet"));
    CU_ASSERT_EQUAL(changes, 0);
    servers[0].slots = "*2\r\n" RANGE(0, 99, A) RANGE(101, 16383, B);
    look();
    CU_ASSERT_FALSE(failed);
    CU_ASSERT_EQUAL(changes, 1);
    CU_ASSERT_STRING_EQUAL(owner_of(0), "127.77.0.1:1");
    CU_ASSERT_STRING_EQUAL(owner_of(99), "127.77.0.1:1");
    CU_ASSERT_STRING_EQUAL(owner_of(100), "nobody");
    CU_ASSERT_STRING_EQUAL(owner_of(101), "127.77.0.2:1");
    CU_ASSERT_STRING_EQUAL(owner_of(16383), "127.77.0.2:1");
    look();
    CU_ASSERT_EQUAL(changes, 1); /* it is the same */
    topology_moved(topology, 5, topology_index(topology, &b));
    CU_ASSERT_EQUAL(changes, 2);
    CU_ASSERT_STRING_EQUAL(owner_of(5), "127.77.0.2:1");
    CU_ASSERT_STRING_EQUAL(owner_of(6), "127.77.0.1:1");
    servers[0].slots = "-ERR This instance has cluster support disabled\r\n";
    look();
    CU_ASSERT_TRUE(failed);
    CU_ASSERT_STRING_EQUAL(owner_of(6), "127.77.0.1:1"); /* what was known stays */
    close_all();
}

/* A server that is cut off from the others has an old map, as its epoch says. If all are so, the cluster was made anew: the
 * next look believes them. */
static void test_old_map(void)
{
    open_all(2);
    servers[0].slots = servers[1].slots = ALL_A;
    servers[0].cluster = servers[1].cluster = "cluster_state:ok\r\ncluster_current_epoch:7\r\n";
    look();
    CU_ASSERT_STRING_EQUAL(owner_of(0), "127.77.0.1:1");
    for (unsigned i = 0; i < 2; i++) { /* whichever is asked first */
        servers[i].slots = ALL_B;
        servers[i].cluster = "cluster_current_epoch:6\r\n";
        for (int round = 0; round < 3; round++) {
            look();
            CU_ASSERT_EQUAL(failed, i == 1 && round == 0);
            CU_ASSERT_STRING_EQUAL(owner_of(0),
                                   i == 0 || round == 0 ? "127.77.0.1:1" : "127.77.0.2:1");
        }
    }
    close_all();
}

/* Another server is asked as soon as one has failed, and each of them once in a look. */
static void test_next_server(void)
{
    open_all(SERVERS);
    for (unsigned i = 0; i < SERVERS - 1; i++)
        servers[i].slots = "-LOADING Redis is loading the dataset in memory\r\n";
    servers[SERVERS - 1].slots = ALL_A;
    for (int round = 0; round < 2; round++) {
        int64_t began_ns = now_ns;
        look();
        CU_ASSERT_FALSE(failed);
        CU_ASSERT_TRUE(round > 0 || now_ns == began_ns);
    }
    for (unsigned i = 0; i < SERVERS; i++)
        CU_ASSERT_TRUE(servers[i].accepted <= 2);
    servers[SERVERS - 1].slots = servers[0].slots;
    unsigned before[SERVERS];
    for (unsigned i = 0; i < SERVERS; i++)
        before[i] = servers[i].accepted;
    look();
    CU_ASSERT_TRUE(failed);
    for (unsigned i = 0; i < SERVERS; i++)
        CU_ASSERT_EQUAL(servers[i].accepted, before[i] + 1);
    close_all();
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
    for (unsigned count = 1; count <= SERVERS; count++) {
        unsigned most = count < TOPOLOGY_SCOUTS ? count : TOPOLOGY_SCOUTS, turns = 0, asked = 0;
        open_all(count);
        int64_t began_ns = now_ns;
        topology_want(topology);
        for (; looks == 0 && turns < 1000; turns++) {
            turn_topology(true);
            if (now_ns < began_ns + 1000 * MS)
                asked = count_accepted();
            else if (now_ns < began_ns + 2000 * MS)
                CU_ASSERT_EQUAL(count_accepted(), asked);
        }
        CU_ASSERT_EQUAL(asked, most);
        CU_ASSERT_EQUAL(looks, 1);
        CU_ASSERT_TRUE(failed);
        CU_ASSERT_TRUE(turns < 40);
        close_all();
    }
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"maps", test_maps},
        {"servers in a map", test_servers},
        {"redirects", test_redirects},
        {"a look", test_map},
        {"an old map", test_old_map},
        {"the next server", test_next_server},
        {"nobody answers", test_nobody_answers},
        CU_TEST_INFO_NULL,
    };
    return link_tests_run("redis_topology", tests);
}
