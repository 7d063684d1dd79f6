/* stage.c - servers, proxy, clients and the bare handle of the fault tests; see stage.h. */
#include "stage.h"

#include <inttypes.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#define ROOT "/faults"
#define PATH_SIZE 800

struct stage stage;

/* ---- servers ------------------------------------------------------------------------------------- */

static void read_value(const char *line, void *argument)
{
    (void)argument;
    char key[16];
    for (int i = 1; i <= 3; i++) {
        int length = snprintf(key, sizeof key, i == 1 ? "PORT=" : "PORT%d=", i);
        if (strncmp(line, key, (size_t)length) == 0)
            stage.ports[i - 1] = (int)strtol(line + length, NULL, 10);
    }
    if (strncmp(line, "SERVERS=", 8) == 0)
        snprintf(stage.servers, sizeof stage.servers, "%s", line + 8);
}

/* Runs servers.sh; its lines go to `each`. Its exit code. */
static int run(const char *verb, const char *const *words,
               void (*each)(const char *line, void *argument))
{
    return scene_servers("zookeeper", stage.folder, verb, words, each, NULL);
}

bool stage_server(const char *verb, int only)
{
    char word[16];
    const char *const words[] = {word, NULL};
    snprintf(word, sizeof word, "only=%d", only);
    return run(verb, only > 0 ? words : NULL, NULL) == 0;
}

bool stage_server_with(int only, const char *const *keys)
{
    char word[16];
    const char *words[16] = {word};
    snprintf(word, sizeof word, "only=%d", only);
    for (int n = 1; *keys && n < 15; n++)
        words[n] = *keys++;
    return run("start", words, NULL) == 0;
}

int stage_quorum_port(int only)
{
    char path[300];
    snprintf(path, sizeof path, "%s/%d-peer.port", stage.folder, only);
    char *text = test_file_read(path);
    int port = text ? (int)strtol(text, NULL, 10) : 0;
    free(text);
    return port;
}

/* By its own word. (servers.sh knows it, too, but starts ten programs to ask, and an election is looked at again and again.) */
static bool leads(int port)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const struct timeval patience = {.tv_sec = 5}; /* one that is stopped takes connections */
    char said[4096];
    size_t size = 0;
    ssize_t got;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return false;
    if (setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) == 0 &&
        connect(fd, (const struct sockaddr *)&address, sizeof address) == 0 &&
        send(fd, "srvr", 4, MSG_NOSIGNAL) == 4)
        while (size < sizeof said - 1 &&
               (got = recv(fd, said + size, sizeof said - 1 - size, 0)) > 0)
            size += (size_t)got;
    close(fd);
    said[size] = '\0';
    return strstr(said, "\nMode: leader\n") != NULL;
}

static bool somebody_leads(void *leader)
{
    for (int i = 0; i < stage.count; i++)
        if (leads(stage.ports[i])) {
            *(int *)leader = i + 1;
            return true;
        }
    return false;
}

int stage_leader(void)
{
    int leader = 0;
    test_poll(somebody_leads, &leader, TEST_PATIENCE_MS);
    return leader;
}

static void watch_nothing(zhandle_t *zh, int type, int state, const char *path, void *context)
{
    (void)zh;
    (void)type;
    (void)state;
    (void)path;
    (void)context;
}

static void be_quiet(const char *message)
{
    (void)message;
}

static bool peek_connected(void *argument)
{
    (void)argument;
    return zoo_state(stage.peek) == ZOO_CONNECTED_STATE;
}

int stage_begin(int count, const char *const *keys)
{
    const char *words[16] = {NULL};
    char guard[32], nodes[16];
    int n = 0;
    stage.count = count;
    snprintf(guard, sizeof guard, "guard=%d", (int)getpid());
    snprintf(nodes, sizeof nodes, "nodes=%d", count);
    words[n++] = guard;
    words[n++] = nodes;
    while (keys && *keys && n < 15)
        words[n++] = *keys++;
    if (!test_folder_make(stage.folder, sizeof stage.folder))
        return 1;
    int code = run("start", words, read_value);
    if (code != 0)
        return code == TEST_SKIP_CODE ? test_skip("zookeeper", "there is no ZooKeeper here") : 1;
    if (!test_proxy_start(&stage.proxy, stage.folder, "127.0.0.1", stage.ports[0]))
        return 1;
    stage.peek = zookeeper_init2(stage.servers, watch_nothing, 30000, NULL, NULL,
                                 ZOO_NO_LOG_CLIENTENV, be_quiet);
    if (stage.peek && test_poll(peek_connected, NULL, 3 * TEST_PATIENCE_MS))
        return 0;
    fprintf(stderr, "the servers have started, and let nobody in\n");
    return 1;
}

void stage_end(void)
{
    if (stage.peek)
        zookeeper_close(stage.peek);
    test_proxy_end(&stage.proxy);
    run("end", NULL, NULL);
    test_folder_remove(stage.folder);
}

/* ---- clients --------------------------------------------------------------------------------------- */

static mortise_client *open_at(const char *servers, const char *settings)
{
    char url[512];
    mortise_client *client = NULL;
    snprintf(url, sizeof url, "zookeeper://%s" ROOT "?%s%s%s", servers,
             strstr(settings, "session_timeout=") ? "" : LIFE "&",
             strstr(settings, "unreachable_timeout=") ? "" : PATIENT "&",
             settings[0] == '&' ? settings + 1 : "handover_window=50ms");
    EXPECT(OK, mortise_open(url, &client, &detail));
    return client;
}

mortise_client *client_behind_proxy(const char *settings)
{
    char servers[64];
    snprintf(servers, sizeof servers, "127.0.0.1:%d", stage.proxy.port);
    return open_at(servers, settings);
}

mortise_client *client_direct(const char *settings)
{
    return open_at(stage.servers, settings);
}

mortise_client *client_at(int server, const char *settings)
{
    char servers[64];
    snprintf(servers, sizeof servers, "127.0.0.1:%d", stage.ports[server - 1]);
    return open_at(servers, settings);
}

void client_end(mortise_client *client)
{
    mortise_close(client, NULL);
}

int64_t session_of(mortise_client *client)
{
    char text[256] = "";
    EXPECT(OK, mortise_ping(client, text, sizeof text, &detail));
    const char *place = strstr(text, "session 0x");
    return place ? (int64_t)strtoull(place + 10, NULL, 16) : 0;
}

mortise_lease *take(mortise_client *client, const char *name)
{
    mortise_lease *lease = NULL;
    EXPECT(OK, mortise_acquire(client, name, MORTISE_OPTIONS(.wait_ms = TEST_PATIENCE_MS), &lease,
                               &detail));
    return lease;
}

/* ---- nodes ------------------------------------------------------------------------------------------ */

static void path_of(const char *name, const char *node, char *path, size_t size)
{
    snprintf(path, size, ROOT "/%s%s%s", name, node ? "/" : "", node ? node : "");
}

static long number_of(const char *node)
{
    const char *mark = strstr(node, "lock-");
    return mark ? strtol(mark + 5, NULL, 10) : strtol(node + strcspn(node, "_"), NULL, 10);
}

static int by_number(const void *a, const void *b)
{
    long one = number_of(*(char *const *)a), two = number_of(*(char *const *)b);
    return (one > two) - (one < two);
}

struct asked {
    char path[PATH_SIZE];
    struct String_vector children;
    int code;
};

/* No answer is none: a server that stands still is not one without nodes. */
static bool is_answered(void *argument)
{
    struct asked *asked = argument;
    asked->code = zoo_get_children(stage.peek, asked->path, 0, &asked->children);
    return asked->code == ZOK || asked->code == ZNONODE;
}

static struct String_vector children_of(const char *name)
{
    struct asked asked = {.children = {0, NULL}};
    path_of(name, NULL, asked.path, sizeof asked.path);
    test_poll(is_answered, &asked, TEST_PATIENCE_MS);
    struct String_vector children = asked.children;
    if (asked.code != ZOK)
        children.count = 0;
    else
        qsort(children.data, (size_t)children.count, sizeof *children.data, by_number);
    return children;
}

int contenders(const char *name)
{
    struct String_vector children = children_of(name);
    int count = children.count;
    deallocate_String_vector(&children);
    return count;
}

bool contender(const char *name, int n, char *node, size_t size)
{
    struct String_vector children = children_of(name);
    bool found = n < children.count;
    if (found)
        snprintf(node, size, "%s", children.data[n]);
    deallocate_String_vector(&children);
    return found;
}

struct counted {
    const char *name;
    int count;
    mortise_lease *lease; /* or NULL */
};

static bool is_lost(const struct counted *counted)
{
    return counted->lease && mortise_state(counted->lease) == MORTISE_STATE_LOST;
}

static bool counts(void *argument)
{
    const struct counted *counted = argument;
    return contenders(counted->name) == counted->count || is_lost(counted);
}

bool wait_contenders(const char *name, int count)
{
    struct counted counted = {name, count, NULL};
    return test_poll(counts, &counted, TEST_PATIENCE_MS);
}

bool held_among(const char *name, int count, mortise_lease *lease)
{
    struct counted counted = {name, count, lease};
    CU_ASSERT(test_poll(counts, &counted, TEST_PATIENCE_MS));
    return !is_lost(&counted);
}

void take_in_short_session(mortise_client *client, const char *name, uint64_t token)
{
    for (int tries = 1; tries <= TRIES; tries++) {
        mortise_lease *lease = take(client, name);
        CU_ASSERT(mortise_token(lease) > token);
        bool held = held_among(name, 1, lease);
        mortise_status status = mortise_release(lease, &detail);
        if (held && status != MORTISE_LOST) {
            EXPECT(OK, status);
            return;
        }
    }
    CU_FAIL("its session was lost each time");
}

bool node_delete(const char *name, const char *node)
{
    char path[PATH_SIZE];
    path_of(name, node, path, sizeof path);
    return zoo_delete(stage.peek, path, -1) == ZOK;
}

bool node_make(const char *name, const char *node)
{
    char path[PATH_SIZE];
    path_of(name, node, path, sizeof path);
    return zoo_create(stage.peek, path, "by hand", 7, &ZOO_OPEN_ACL_UNSAFE,
                      node ? ZOO_EPHEMERAL : ZOO_PERSISTENT, NULL, 0) == ZOK;
}

int64_t deadline_of(mortise_lease *lease)
{
    int64_t now_ms = test_now_ms(), left_ms = mortise_remaining_ms(lease);
    return left_ms > 0 ? now_ms + left_ms : 0;
}
