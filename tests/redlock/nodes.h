/* nodes.h - several independent Redis servers for the tests of the Redlock driver. Tests read each one directly; a
 * fault proxy is in front of each. */
#ifndef MORTISE_TESTS_REDLOCK_NODES_H
#define MORTISE_TESTS_REDLOCK_NODES_H

#include <rig.h>

#define NODES_MAX 5
#define ALL ((1u << NODES_MAX) - 1)
/* The setting of most tests: newly started servers may vote. */
#define AT_ONCE "node_persistent = yes\n"

struct nodes {
    struct server group;           /* the processes */
    struct server node[NODES_MAX]; /* connections of the test to each */
    struct test_proxy proxy[NODES_MAX];
    int count;
    bool proxied;
};

/* Starts them, with these further KEYs. Returns the exit code. */
int nodes_start(struct nodes *nodes, int count, const char *const *keys);
/* Ends them. False: something was left. The nodes must run. */
bool nodes_end(struct nodes *nodes);
/* stop, kill, start, freeze, thaw, for each node of the set. */
void nodes_do(struct nodes *nodes, const char *verb, unsigned set);
/* One command to the proxy of each node of the set. */
void nodes_say(struct nodes *nodes, unsigned set, const char *command);
/* Opens a client with these lines in [mortise] and [redlock], directly to the nodes of the set; the others have ports
 * without a server. */
mortise_client *nodes_open(struct nodes *nodes, unsigned set, const char *core,
                           const char *redlock);
/* Through the proxies. */
mortise_client *nodes_open_by(struct nodes *nodes, const char *core, const char *redlock);
/* Opens with exactly these nodes. */
mortise_status nodes_open_list(struct nodes *nodes, const char *list, const char *core,
                               const char *redlock, mortise_client **client);
/* Returns which nodes have the lock. A node without an answer does not count. */
unsigned nodes_with(struct nodes *nodes, const char *name);
/* Waits until exactly these have it. */
bool wait_nodes_with(struct nodes *nodes, const char *name, unsigned set);
/* Returns the largest token that the node knows. */
uint64_t last_token(struct nodes *nodes, int node, const char *name);
/* Returns how many commands all nodes have executed, including those of the test. */
int64_t nodes_commands(struct nodes *nodes, const char *command);
/* Waits until exactly that many nodes have notified one waiter of a release; until then it asks nothing. */
bool wait_subscribed(struct nodes *nodes, int count, const char *name);

#endif
