/* fleet.c - the processes, proxies and clients of a test's cluster; see fleet.h. */
#include "fleet.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void look_into(struct fleet *fleet, int i)
{
    struct server *node = &fleet->node[i];
    *node = (struct server){.port = fleet->group.ports[i], .lock = PTHREAD_MUTEX_INITIALIZER};
    memcpy(node->folder, fleet->group.folder, sizeof node->folder);
    redisReply *id = ask(node, "CLUSTER MYID");
    snprintf(fleet->id[i], sizeof fleet->id[i], "%s", id && id->str ? id->str : "");
    freeReplyObject(id);
    if (fleet->proxied && !start_proxy(node, &fleet->proxy[i]))
        exit(1);
}

static void lead_to_proxies(struct fleet *fleet)
{
    char command[40];
    for (int i = 0; i < FLEET; i++) {
        snprintf(command, sizeof command, "map %d %d", fleet->node[i].port, fleet->proxy[i].port);
        fleet_say(fleet, ALL_NODES, command);
    }
}

static void add_address(char *list, size_t size, int port)
{
    size_t used = strlen(list);
    snprintf(list + used, size - used, "%s127.0.0.1:%d", used > 0 ? "," : "", port);
}

int fleet_start(struct fleet *fleet, bool proxied, const char *const *keys)
{
    const char *words[12] = {"cluster=3", "replicas=1"};
    size_t n = 2;
    for (; keys && *keys && n < 11; keys++)
        words[n++] = *keys;
    *fleet = (struct fleet){.proxied = proxied, .up = ALL_NODES};
    int code = server_start(&fleet->group, words);
    if (code != 0)
        return code;
    for (int i = 0; i < FLEET; i++)
        look_into(fleet, i);
    if (proxied)
        lead_to_proxies(fleet);
    for (int i = 0; i < MASTERS; i++) {
        add_address(fleet->list, sizeof fleet->list, fleet->node[i].port);
        if (proxied)
            add_address(fleet->proxy_list, sizeof fleet->proxy_list, fleet->proxy[i].port);
        wait_replicated(fleet, i, 1);
    }
    return 0;
}

bool fleet_is_clean(struct fleet *fleet)
{
    bool clean = true;
    for (int i = 0; i < FLEET; i++) {
        freeReplyObject(ask(&fleet->node[i], "READONLY")); /* a replica may read its keys, too */
        clean &= server_is_clean(&fleet->node[i]);
    }
    return clean;
}

bool fleet_end(struct fleet *fleet)
{
    bool clean = fleet->group.port == 0 || fleet_is_clean(fleet);
    for (int i = 0; i < FLEET && fleet->node[i].port > 0; i++) {
        if (fleet->node[i].looker)
            redisFree(fleet->node[i].looker);
        if (fleet->proxied)
            test_proxy_end(&fleet->proxy[i]);
    }
    if (fleet->group.port > 0)
        server_end(&fleet->group);
    return clean;
}

void fleet_do(struct fleet *fleet, const char *verb, int node)
{
    char only[16];
    bool runs = strcmp(verb, "start") == 0 || strcmp(verb, "thaw") == 0;
    snprintf(only, sizeof only, "only=%d", node + 1);
    if (!runs)
        fleet->up &= ~(1u << node);
    server_do(&fleet->group, verb, only);
    if (runs)
        fleet->up |= 1u << node;
}

void fleet_say(struct fleet *fleet, unsigned set, const char *command)
{
    for (int i = 0; i < FLEET; i++)
        if ((set & 1u << i) != 0)
            CHECK(test_proxy_say(&fleet->proxy[i], "%s", command));
}

struct pair {
    struct fleet *fleet;
    int i;
};

/* One that has just started takes itself for a master still, if it was one, until another node tells it. */
static bool one_leads(void *argument)
{
    const struct pair *pair = argument;
    return is_master(pair->fleet, pair->i) != is_master(pair->fleet, REPLICA(pair->i));
}

void fleet_mend(struct fleet *fleet)
{
    for (int i = 0; i < MASTERS; i++) {
        struct pair pair = {fleet, i};
        CHECK(test_poll(one_leads, &pair, TEST_PATIENCE_MS));
        bool replica = !is_master(fleet, i);
        CHECK(wait_replicated(fleet, replica ? REPLICA(i) : i, 1));
        if (replica)
            fleet_promote(fleet, i);
        CHECK(wait_replicated(fleet, i, 1));
        CHECK(wait_owner(fleet, (unsigned)(SLOTS * i / MASTERS), i));
        CHECK(wait_owner(fleet, (unsigned)(SLOTS * (i + 1) / MASTERS - 1), i));
    }
}

/* ---- clients ------------------------------------------------------------------------------------------------- */

mortise_status fleet_open_list(struct fleet *fleet, const char *list, const char *core,
                               const char *redis, mortise_client **client)
{
    char settings[400];
    snprintf(settings, sizeof settings, "cluster = auto\n%s", redis ? redis : "");
    char *path = config_at(&fleet->group, list, core, settings);
    mortise_status status = mortise_open(path, client, &detail);
    free(path);
    return status;
}

mortise_client *fleet_open(struct fleet *fleet, const char *core, const char *redis)
{
    mortise_client *client = NULL;
    EXPECT(OK, fleet_open_list(fleet, fleet->list, core, redis, &client));
    return client;
}

mortise_client *fleet_open_by(struct fleet *fleet, const char *core, const char *redis)
{
    mortise_client *client = NULL;
    EXPECT(OK, fleet_open_list(fleet, fleet->proxy_list, core, redis, &client));
    return client;
}

int64_t fleet_calls(struct fleet *fleet, int node, const char *command)
{
    return calls_of(&fleet->node[node], command);
}

int64_t fleet_listener(struct fleet *fleet, int node)
{
    redisReply *list = ask(&fleet->node[node], "CLIENT LIST TYPE pubsub"); /* "id=…" */
    const char *end = list && list->str ? strchr(list->str, '\n') : NULL;
    int64_t id = end && end[1] == '\0' ? strtoll(list->str + 3, NULL, 10) : -1;
    freeReplyObject(list);
    return id;
}
