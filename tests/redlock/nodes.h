/* nodes.h - several independent Redis servers for the tests of the Redlock driver. Tests read each one directly; a
 * fault proxy is in front of each. */
#ifndef MORTISE_TESTS_REDLOCK_NODES_H
#define MORTISE_TESTS_REDLOCK_NODES_H

#include <rig.h>

#define NODES_MAX SERVERS_MAX
#define ALL ((1u << NODES_MAX) - 1)
/* What most tests want: servers that were started a moment ago may vote. */
#define AT_ONCE "node_persistent = yes\n"

struct nodes {
    struct server group;           /* the processes */
    struct server node[NODES_MAX]; /* what is asked of each */
    struct test_proxy proxy[NODES_MAX];
    int count;
    bool proxied;
};

/* Starts them, with these further KEYs; the exit code. */
int nodes_start(struct nodes *nodes, int count, const char *const *keys);
/* Ends them; false: something was left. Nodes must run. */
bool nodes_end(struct nodes *nodes);
/* stop, kill, start, freeze, thaw, for each node of the set. */
void nodes_do(struct nodes *nodes, const char *verb, unsigned set);
/* One command to the proxy of each node of the set. */
void nodes_say(struct nodes *nodes, unsigned set, const char *command);
/* A client with these lines in [mortise] and [redlock], straight to the nodes of the set and, for the others, to
 * ports at which nobody is. */
mortise_client *nodes_open(struct nodes *nodes, unsigned set, const char *core,
                           const char *redlock);
/* Through the proxies. */
mortise_client *nodes_open_by(struct nodes *nodes, const char *core, const char *redlock);
/* Opens with exactly these nodes. */
mortise_status nodes_open_list(struct nodes *nodes, const char *list, const char *core,
                               const char *redlock, mortise_client **client);
/* Which nodes have the lock; those that do not answer have not. */
unsigned nodes_with(struct nodes *nodes, const char *name);
/* Until exactly these have it. */
bool wait_nodes_with(struct nodes *nodes, const char *name, unsigned set);
/* The largest token that the node was told of. */
uint64_t last_token(struct nodes *nodes, int node, const char *name);
/* Commands that all nodes have executed, those of the looker included. */
int64_t nodes_commands(struct nodes *nodes, const char *command);
/* Until one waiter is told of a release by exactly so many nodes; until then it asks nothing. */
bool wait_subscribed(struct nodes *nodes, int count, const char *name);

#endif
