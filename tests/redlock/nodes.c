/* nodes.c - several independent Redis servers of a test; see nodes.h. */
#include "nodes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void look_into(struct nodes *nodes, int i)
{
    struct server *node = &nodes->node[i];
    *node = (struct server){.port = nodes->group.ports[i], .lock = PTHREAD_MUTEX_INITIALIZER};
    memcpy(node->folder, nodes->group.folder, sizeof node->folder);
    node->users = nodes->group.users;
    if (nodes->proxied && !start_proxy(node, &nodes->proxy[i]))
        exit(1);
}

int nodes_start(struct nodes *nodes, int count, const char *const *keys)
{
    const char *words[8];
    char number[16];
    size_t n = 0;
    snprintf(number, sizeof number, "nodes=%d", count);
    words[n++] = number;
    for (; keys && *keys && n < 7; keys++)
        words[n++] = *keys;
    words[n] = NULL;
    nodes->count = count;
    int code = server_start(&nodes->group, words);
    for (int i = 0; code == 0 && i < count; i++)
        look_into(nodes, i);
    return code;
}

bool nodes_end(struct nodes *nodes)
{
    bool clean = true;
    for (int i = 0; i < nodes->count && nodes->node[i].port > 0; i++) {
        clean &= server_is_clean(&nodes->node[i]);
        if (nodes->node[i].looker)
            redisFree(nodes->node[i].looker);
        if (nodes->proxied)
            test_proxy_end(&nodes->proxy[i]);
    }
    if (nodes->group.port > 0)
        server_end(&nodes->group);
    return clean;
}

void nodes_do(struct nodes *nodes, const char *verb, unsigned set)
{
    char only[16];
    for (int i = 0; i < nodes->count; i++) {
        if ((set & 1u << i) == 0)
            continue;
        snprintf(only, sizeof only, "only=%d", i + 1);
        server_do(&nodes->group, verb, only);
    }
}

void nodes_say(struct nodes *nodes, unsigned set, const char *command)
{
    for (int i = 0; i < nodes->count; i++)
        if ((set & 1u << i) != 0)
            CHECK(test_proxy_say(&nodes->proxy[i], "%s", command));
}

/* ---- clients ------------------------------------------------------------------------------------------------- */

/* So that nodes that stand still for seconds are none that are away; a test for which they are says how long. */
static const char *unless_given(const char *settings, const char *key, const char *value)
{
    static _Thread_local char lines[4][64];
    static _Thread_local unsigned next;
    char *line = lines[next++ % 4];
    bool given = settings && strstr(settings, key);
    snprintf(line, sizeof lines[0], given ? "" : "%s = %s\n", key, value);
    return line;
}

mortise_status nodes_open_list(struct nodes *nodes, const char *list, const char *core,
                               const char *redlock, mortise_client **client)
{
    static int count;
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    char path[300], text[1000];
    pthread_mutex_lock(&lock);
    snprintf(path, sizeof path, "%s/redlock-%d.conf", nodes->group.folder, ++count);
    pthread_mutex_unlock(&lock);
    snprintf(text, sizeof text,
             "[mortise]\ndriver = redlock\n%s%s\n[redlock]\nnodes = %s\n%s%s%s\n",
             unless_given(core, "unreachable_timeout", "60s"), core ? core : "", list,
             unless_given(redlock, "node_timeout", "3s"), unless_given(redlock, "max_ttl", "10m"),
             redlock ? redlock : "");
    CHECK(test_file_write(path, text));
    return mortise_open(path, client, &detail);
}

static mortise_client *open_ports(struct nodes *nodes, const int *ports, const char *core,
                                  const char *redlock)
{
    mortise_client *client = NULL;
    char list[200];
    int length = 0;
    for (int i = 0; i < nodes->count; i++)
        length += snprintf(list + length, sizeof list - (size_t)length, "%s127.0.0.1:%d",
                           i > 0 ? "," : "", ports[i]);
    EXPECT(OK, nodes_open_list(nodes, list, core, redlock, &client));
    return client;
}

mortise_client *nodes_open(struct nodes *nodes, unsigned set, const char *core, const char *redlock)
{
    int ports[NODES_MAX];
    for (int i = 0; i < nodes->count; i++)
        ports[i] = (set & 1u << i) != 0 ? nodes->group.ports[i] : i + 1; /* nobody is there */
    return open_ports(nodes, ports, core, redlock);
}

mortise_client *nodes_open_by(struct nodes *nodes, const char *core, const char *redlock)
{
    int ports[NODES_MAX];
    for (int i = 0; i < nodes->count; i++)
        ports[i] = nodes->proxy[i].port;
    return open_ports(nodes, ports, core, redlock);
}

/* ---- looking -------------------------------------------------------------------------------------------------- */

unsigned nodes_with(struct nodes *nodes, const char *name)
{
    unsigned set = 0;
    for (int i = 0; i < nodes->count; i++)
        set |= holds(&nodes->node[i], name) > 0 ? 1u << i : 0;
    return set;
}

struct wanted {
    struct nodes *nodes;
    const char *name;
    unsigned set;
};

static bool have_it(void *argument)
{
    const struct wanted *wanted = argument;
    return nodes_with(wanted->nodes, wanted->name) == wanted->set;
}

bool wait_nodes_with(struct nodes *nodes, const char *name, unsigned set)
{
    struct wanted wanted = {nodes, name, set & ((1u << nodes->count) - 1)};
    bool good = test_poll(have_it, &wanted, TEST_PATIENCE_MS);
    if (!good)
        fprintf(stderr, "%s: nodes %x, wanted %x\n", name, nodes_with(nodes, name), wanted.set);
    return good;
}

uint64_t last_token(struct nodes *nodes, int node, const char *name)
{
    int64_t token = ask_number(&nodes->node[node], "GET {mortise:%s}:mortise:token", name);
    return token > 0 ? (uint64_t)token : 0;
}

int64_t nodes_commands(struct nodes *nodes, const char *command)
{
    int64_t sum = 0;
    for (int i = 0; i < nodes->count; i++)
        sum += calls_of(&nodes->node[i], command);
    return sum;
}

struct subscribed {
    struct nodes *nodes;
    int wanted;
    const char *name;
};

static bool is_subscribed(void *argument)
{
    const struct subscribed *subscribed = argument;
    int count = 0;
    for (int i = 0; i < subscribed->nodes->count; i++) {
        redisReply *reply = ask(&subscribed->nodes->node[i],
                                "PUBSUB NUMSUB {mortise:%s}:mortise:news", subscribed->name);
        count += reply && reply->elements == 2 && reply->element[1]->integer == 1;
        freeReplyObject(reply);
    }
    return count == subscribed->wanted;
}

bool wait_subscribed(struct nodes *nodes, int count, const char *name)
{
    struct subscribed subscribed = {nodes, count, name};
    return test_poll(is_subscribed, &subscribed, TEST_PATIENCE_MS);
}
