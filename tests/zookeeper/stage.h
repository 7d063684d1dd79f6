/* stage.h - the setting of the fault tests of the ZooKeeper driver: private servers, a proxy in front of the first of
 * them, clients on both sides of it, and a handle of the client library that reads the nodes directly. */
#ifndef MORTISE_TESTS_ZOOKEEPER_STAGE_H
#define MORTISE_TESTS_ZOOKEEPER_STAGE_H

#include <expect.h>
#include <mortise/mortise.h>
#include <proxy.h>
#include <support.h>

#include <CUnit/CUnit.h>
#include <pthread.h>
#include <zookeeper/zookeeper.h>

/* Of sessions: they live on, however busy the machine is, unless they are to end in the test. */
#define LIFE_MS 15000
#define LIFE "session_timeout=15s"
#define TIMEOUT_MS 3000 /* of those that are */
#define BRIEF "&session_timeout=3s"
#define PATIENT "unreachable_timeout=60s&connect_timeout=20s"

struct stage {
    char folder[256];
    char servers[256]; /* all of them, directly */
    int ports[3];
    int count;
    struct test_proxy proxy; /* before the first */
    zhandle_t *peek;
};
extern struct stage stage;

/* Starts servers with these KEYs of servers.sh; an exit code. */
int stage_begin(int count, const char *const *keys);
/* Starts the only-th server, after it was ended, with a further KEY. */
bool stage_server_with(int only, const char *const *keys);
/* The only-th server's port of that kind, by which the others reach it. */
int stage_quorum_port(int only);
void stage_end(void);
/* servers.sh VERB, for the only-th server (0: all). */
bool stage_server(const char *verb, int only);
/* The number of the server that leads, when one does; 0: none did for long. */
int stage_leader(void);

/* A client through the proxy, or past it; `settings` as in a URL ("&ttl=2s"), or "". They are patient with servers
 * that are slow, unless they are told how long to be. */
mortise_client *client_behind_proxy(const char *settings);
mortise_client *client_direct(const char *settings);
mortise_client *client_at(int server, const char *settings);
void client_end(mortise_client *client);

/* A name that was not used yet. Valid for 16 calls. */
const char *fresh_name(void);
mortise_lease *take(mortise_client *client, const char *name);

/* How many contenders the servers have for the name; the n-th of them in the order of their numbers. */
int contenders(const char *name);
bool contender(const char *name, int n, char *node, size_t size);
/* Until there are so many. */
bool wait_contenders(const char *name, int count);
/* The same of a name that is held in a short session. False: the lease is LOST, for the machine is busy with something
 * else; what was to be seen is tried again, so often at the most. */
#define TRIES 10
bool held_among(const char *name, int count, mortise_lease *lease);
/* It can be had, with a larger token, and given back. */
void take_in_short_session(mortise_client *client, const char *name, uint64_t token);
/* By hand. The path of a node, or of the folder for node NULL. */
bool node_delete(const char *name, const char *node);
bool node_make(const char *name, const char *node);
/* The session that it has now; 0: none. */
int64_t session_of(mortise_client *client);
/* Ends a session from outside, as its id and the password that the servers give to it allow. */
bool session_close_by_hand(int64_t session);
/* The instant at which it will be LOST if nobody prolongs it; 0: it is already. */
int64_t deadline_of(mortise_lease *lease);
bool wait_state(mortise_lease *lease, mortise_lease_state state, int64_t timeout_ms);

/* An acquire that waits on a thread of its own. */
struct waiter {
    pthread_t thread;
    mortise_client *client;
    const char *name;
    int64_t wait_ms, granted_ms;
    mortise_status status;
    mortise_lease *lease;
    struct test_count done;
    /* looked at the moment it is granted: nobody else may hold then */
    mortise_lease *other;
    mortise_lease_state other_state;
};
void waiter_start(struct waiter *waiter, mortise_client *client, const char *name);
mortise_status waiter_join(struct waiter *waiter);

extern const CU_TestInfo cut_tests[], node_tests[], crowd_tests[], session_tests[],
    ensemble_tests[], follower_tests[], fifo_tests[], op_tests[], memory_tests[], state_tests[],
    end_tests[];

/* The second process of the fifo tests: SERVERS NAME FILE. */
int fifo_main(char **words);

#endif
