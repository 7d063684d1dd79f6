/* stage.c - servers, proxies and clients of the fault tests; see stage.h. */
#include "stage.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include <unistd.h>

struct stage stage;

/* ---- servers ------------------------------------------------------------------------------------- */

static void keep(char *to, size_t size, const char *line, const char *name)
{
    size_t length = strlen(name);
    if (strncmp(line, name, length) == 0 && line[length] == '=')
        snprintf(to, size, "%s", line + length + 1);
}

static void read_value(const char *line, void *argument)
{
    (void)argument;
    char name[16], port[16];
    for (int i = 0; i < SERVERS_MAX; i++) {
        port[0] = '\0';
        snprintf(name, sizeof name, i == 0 ? "PORT" : "PORT%d", i + 1);
        keep(port, sizeof port, line, name);
        if (port[0] != '\0')
            stage.ports[i] = (int)strtol(port, NULL, 10);
    }
    keep(stage.servers, sizeof stage.servers, line, "SERVERS");
    keep(stage.ca, sizeof stage.ca, line, "CA");
    keep(stage.cert, sizeof stage.cert, line, "CERT");
    keep(stage.key, sizeof stage.key, line, "KEY");
    keep(stage.user, sizeof stage.user, line, "USER");
    keep(stage.password, sizeof stage.password, line, "PASSWORD");
}

/* Runs servers.sh; its lines go to `each`. Its exit code. */
static int run(const char *verb, const char *const *words,
               void (*each)(const char *line, void *argument), void *argument)
{
    return scene_servers("etcd", stage.folder, verb, words, each, argument);
}

bool stage_server(const char *verb, int only)
{
    char word[16];
    const char *const words[] = {word, NULL};
    snprintf(word, sizeof word, "only=%d", only);
    return run(verb, only > 0 ? words : NULL, NULL, NULL) == 0;
}

bool stage_server_with(int only, const char *const *keys)
{
    char word[16];
    const char *words[16] = {word};
    snprintf(word, sizeof word, "only=%d", only);
    for (int n = 1; *keys && n < 15; n++)
        words[n] = *keys++;
    return run("start", words, NULL, NULL) == 0;
}

static int leading;

static void read_role(const char *line, void *argument)
{
    (void)argument;
    if (strncmp(line, "ROLE", 4) == 0 && strstr(line, "=leader"))
        leading = line[4] == '=' ? 1 : line[4] - '0';
}

static bool somebody_leads(void *argument)
{
    (void)argument;
    leading = 0;
    run("values", NULL, read_role, NULL);
    return leading > 0;
}

int stage_leader(void)
{
    return test_poll(somebody_leads, NULL, 3 * TEST_PATIENCE_MS) ? leading : 0;
}

struct said {
    char *text;
    size_t size;
};

static void read_said(const char *line, void *argument)
{
    const struct said *said = argument;
    size_t length = strlen(said->text);
    if (length + 2 < said->size)
        snprintf(said->text + length, said->size - length, "%s\n", line);
}

bool ctl_at(int only, const char *const *words, char *said, size_t size)
{
    char word[16];
    const char *all[24] = {word};
    snprintf(word, sizeof word, "only=%d", only);
    for (int n = 1; *words && n < 23; n++)
        all[n] = *words++;
    if (said)
        said[0] = '\0';
    return run("ask", all, said ? read_said : NULL, &(struct said){said, size}) == 0;
}

/* A free port, before anybody listens there. */
static int free_port(void)
{
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof here;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool is_good = fd >= 0 && bind(fd, (struct sockaddr *)&here, sizeof here) == 0 &&
                   getsockname(fd, (struct sockaddr *)&here, &size) == 0;
    if (fd >= 0)
        close(fd);
    return is_good ? ntohs(here.sin_port) : 0;
}

/* Calls until the queue of those that wait to be accepted is full: what comes then is dropped. */
int silence_begin(struct silence *silence, bool accepts)
{
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof here;
    silence->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool is_good = bind(silence->listener, (struct sockaddr *)&here, sizeof here) == 0 &&
                   getsockname(silence->listener, (struct sockaddr *)&here, &size) == 0 &&
                   listen(silence->listener, accepts ? 100 : 0) == 0;
    for (int i = 0; i < 4; i++) {
        silence->callers[i] = -1;
        if (!accepts)
            silence->callers[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (!accepts && connect(silence->callers[i], (struct sockaddr *)&here, sizeof here) != 0)
            is_good = is_good && errno == EINPROGRESS;
    }
    return is_good ? ntohs(here.sin_port) : 0;
}

void silence_end(struct silence *silence)
{
    close(silence->listener);
    for (int i = 0; i < 4; i++)
        if (silence->callers[i] >= 0)
            close(silence->callers[i]);
}

/* A proxy before the peer port of each server. That port is chosen here, because the proxy is told it first; servers.sh takes
 * what the file says. */
static bool begin_ways(const char **words, int n, char keys[SERVERS_MAX][32])
{
    for (int i = 0; i < stage.count; i++) {
        char path[300], text[16];
        int port = free_port();
        snprintf(path, sizeof path, "%s/%d-peer.port", stage.folder, i + 1);
        snprintf(text, sizeof text, "%d\n", port);
        if (port == 0 || !test_file_write(path, text) ||
            !test_proxy_start(&stage.ways[i], stage.folder, "127.0.0.1", port))
            return false;
        snprintf(keys[i], sizeof keys[i], "way=%d:%d", i + 1, stage.ways[i].port);
        words[n++] = keys[i];
    }
    return true;
}

int stage_begin(int count, bool ways, const char *const *keys)
{
    const char *words[24] = {NULL};
    char guard[32], nodes[16], way_keys[SERVERS_MAX][32];
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
    if (ways && !begin_ways(words, n, way_keys))
        return 1;
    int code = run("start", words, read_value, NULL);
    if (code != 0)
        return code == TEST_SKIP_CODE ? test_skip("etcd", "there is no etcd here") : 1;
    stage.middle = middle_start(stage.ports[0]);
    return stage.middle > 0 &&
                   test_proxy_start(&stage.proxy, stage.folder, "127.0.0.1", stage.ports[0])
               ? 0
               : 1;
}

void stage_end(void)
{
    test_proxy_end(&stage.proxy);
    for (int i = 0; i < SERVERS_MAX; i++)
        if (stage.ways[i].port > 0)
            test_proxy_end(&stage.ways[i]);
    middle_end();
    run("end", NULL, NULL, NULL);
    test_folder_remove(stage.folder);
}

/* ---- clients --------------------------------------------------------------------------------------- */

#define PATIENT "unreachable_timeout=60s&connect_timeout=20s&"

mortise_client *client_at(const char *endpoints, const char *settings)
{
    char url[2048], tls[900] = "", user[160] = "";
    mortise_client *client = NULL;
    if (stage.ca[0] != '\0' && strstr(settings, "tls=") == NULL)
        snprintf(tls, sizeof tls, "&tls=yes&tls_ca=%s%s%s%s%s", stage.ca,
                 stage.cert[0] != '\0' ? "&tls_cert=" : "", stage.cert,
                 stage.key[0] != '\0' ? "&tls_key=" : "", stage.key);
    if (stage.user[0] != '\0')
        snprintf(user, sizeof user, "%s:%s@", stage.user, stage.password);
    snprintf(url, sizeof url, "etcd://%s%s/mortise?%slog=none%s%s%s", user, endpoints,
             strstr(settings, "_timeout=") ? "" : PATIENT, tls, settings[0] != '\0' ? "&" : "",
             settings);
    EXPECT(OK, mortise_open(url, &client, &detail));
    return client;
}

mortise_client *client_direct(const char *settings)
{
    return client_at(stage.servers, settings);
}

static mortise_client *client_at_port(int port, const char *settings)
{
    char endpoint[40];
    snprintf(endpoint, sizeof endpoint, "127.0.0.1:%d", port);
    return client_at(endpoint, settings);
}

mortise_client *client_behind_proxy(const char *settings)
{
    return client_at_port(stage.proxy.port, settings);
}

mortise_client *client_behind_middle(const char *settings)
{
    return client_at_port(stage.middle, settings);
}

mortise_client *client_of(int server, const char *settings)
{
    return client_at_port(stage.ports[server - 1], settings);
}

void client_end(mortise_client *client)
{
    if (client)
        EXPECT(OK, mortise_close(client, &detail));
}

mortise_lease *take(mortise_client *client, const char *name)
{
    mortise_lease *lease = NULL;
    EXPECT(OK, mortise_acquire(client, name, MORTISE_OPTIONS(.wait_ms = 3 * TEST_PATIENCE_MS),
                               &lease, &detail));
    return lease;
}

void give_back(mortise_lease *lease)
{
    if (lease)
        EXPECT(OK, mortise_release(lease, &detail));
}

struct counted {
    mortise_client *client;
    const char *name;
    int count;
};

static bool counts(void *argument)
{
    const struct counted *counted = argument;
    mortise_info info = {.size = sizeof info};
    return mortise_inspect(counted->client, counted->name, &info, NULL) == MORTISE_OK &&
           (int)info.holders + info.waiters == counted->count;
}

bool wait_contenders(mortise_client *client, const char *name, int count)
{
    struct counted counted = {client, name, count};
    return test_poll(counts, &counted, TEST_PATIENCE_MS);
}

static bool is_past(void *until_ms)
{
    return test_now_ms() >= *(const int64_t *)until_ms;
}

void let_pass(int64_t ms)
{
    int64_t until_ms = test_now_ms() + ms;
    test_poll(is_past, &until_ms, ms + TEST_PATIENCE_MS);
}

bool wait_waiting(mortise_client *holder, mortise_client *waiter, const char *name)
{
    bool is_good = wait_contenders(holder, name, 2);
    for (int i = 0; i < 5 && is_good; i++)
        is_good = mortise_ping(waiter, NULL, 0, &detail) == MORTISE_OK;
    return is_good;
}

bool keys_below(const char *prefix, char *keys, size_t size)
{
    return ctl_at(1, (const char *const[]){"get", "--prefix", "--keys-only", prefix, NULL}, keys,
                  size);
}

bool key_of_name(const char *name, const char *except, char *key, size_t size)
{
    char prefix[80], keys[8192], *rest;
    snprintf(prefix, sizeof prefix, "mortise/%s/", name);
    if (!keys_below(prefix, keys, sizeof keys))
        return false;
    for (char *line = strtok_r(keys, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
        if (strcmp(line, except) != 0)
            return snprintf(key, size, "%s", line) < (int)size;
    return false;
}

bool lease_of_key(const char *key, char *lease, size_t size)
{
    char said[4096];
    if (!ctl_at(1, (const char *const[]){"get", key, "--write-out=json", NULL}, said, sizeof said))
        return false;
    const char *member = "\"lease\":", *number = strstr(said, member);
    if (number == NULL)
        return false;
    return snprintf(lease, size, "%llx", strtoull(number + strlen(member), NULL, 10)) < (int)size;
}

/* The leases that the servers have, hexadecimal, one a line; before them "found N leases" is said. */
static bool leases_of_servers(char *leases, size_t size)
{
    char said[4096];
    if (!ctl_at(1, (const char *const[]){"lease", "list", NULL}, said, sizeof said))
        return false;
    const char *rest = strchr(said, '\n');
    snprintf(leases, size, "%s", rest == NULL ? "" : rest + 1);
    return true;
}

bool revoke_all_leases(void)
{
    char leases[4096];
    bool is_good = leases_of_servers(leases, sizeof leases);
    for (char *rest, *lease = strtok_r(leases, "\n", &rest); lease != NULL && is_good;
         lease = strtok_r(NULL, "\n", &rest))
        CTL("lease", "revoke", lease); /* one that has ended meanwhile is no failure */
    return is_good;
}
