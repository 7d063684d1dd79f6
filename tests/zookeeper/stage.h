/* stage.h - the setting of the fault tests of the ZooKeeper driver: private servers, a proxy in front of the first of
 * them, clients on both sides of it, and a handle of the client library that reads the nodes directly. */
#ifndef MORTISE_TESTS_ZOOKEEPER_STAGE_H
#define MORTISE_TESTS_ZOOKEEPER_STAGE_H

#include <proxy.h>
#include <scene.h>

#include <zookeeper/zookeeper.h>

/* The timeout of sessions that must not end, however busy the machine is. */
#define LIFE_MS 15000
#define LIFE "session_timeout=15s"
#define TIMEOUT_MS 3000 /* of those that must end in the test */
#define BRIEF "&session_timeout=3s"
#define PATIENT "unreachable_timeout=60s&connect_timeout=20s"

struct stage {
    char folder[256];
    char servers[256]; /* the addresses of all servers, without the proxy */
    int ports[3];
    int count;
    struct test_proxy proxy; /* in front of the first */
    zhandle_t *peek;
};
extern struct stage stage;

/* Starts servers with these KEYs of servers.sh. Returns an exit code. */
int stage_begin(int count, const char *const *keys);
/* Starts the server `only`, which has ended, with further KEYs. */
bool stage_server_with(int only, const char *const *keys);
/* Returns the port on which the other servers reach the server `only`. */
int stage_quorum_port(int only);
void stage_end(void);
/* Runs servers.sh VERB for the server `only` (0: all). */
bool stage_server(const char *verb, int only);
/* Waits for a leader, and returns its number. 0: there was none for long. */
int stage_leader(void);

/* Opens a client through the proxy, or directly; `settings` as in a URL ("&ttl=2s"), or "". Without timeouts in the
 * settings, the client is patient with slow servers. */
mortise_client *client_behind_proxy(const char *settings);
mortise_client *client_direct(const char *settings);
mortise_client *client_at(int server, const char *settings);
void client_end(mortise_client *client);

mortise_lease *take(mortise_client *client, const char *name);

/* Returns how many contenders the servers have for the name; finds the n-th of them in the order of their numbers. */
int contenders(const char *name);
bool contender(const char *name, int n, char *node, size_t size);
/* Waits until there are that many. */
bool wait_contenders(const char *name, int count);
/* The same for a name that is held in a short session. False: the lease is LOST because the machine is busy with
 * something else; the test tries again, at most TRIES times. */
#define TRIES 10
bool held_among(const char *name, int count, mortise_lease *lease);
/* Acquires it, checks that the token is larger, and releases it. */
void take_in_short_session(mortise_client *client, const char *name, uint64_t token);
/* Delete or create a node directly. node NULL: the folder. */
bool node_delete(const char *name, const char *node);
bool node_make(const char *name, const char *node);
/* Returns the current session of the client. 0: none. */
int64_t session_of(mortise_client *client);
/* Ends a session from outside, with its id and the password that the servers give it. */
bool session_close_by_hand(int64_t session);
/* Returns the instant at which it will be LOST without a renewal. 0: it is LOST already. */
int64_t deadline_of(mortise_lease *lease);

extern const CU_TestInfo cut_tests[], node_tests[], crowd_tests[], session_tests[],
    ensemble_tests[], follower_tests[], fifo_tests[], op_tests[], memory_tests[], state_tests[],
    end_tests[], shared_tests[], rest_tests[];

/* The second process of the fifo tests: SERVERS NAME FILE. */
int fifo_main(char **words);

#endif
