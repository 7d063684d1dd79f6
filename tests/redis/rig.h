/* rig.h - what the tests of the Redis driver's faults share: a private server (tests/servers.sh), fault proxies in
 * front of it, clients.
 *
 * The tests use only the public header. They read the contents of the server directly, with hiredis. */
#ifndef MORTISE_TESTS_REDIS_RIG_H
#define MORTISE_TESTS_REDIS_RIG_H

#include <expect.h>
#include <mortise/mortise.h>
#include <proxy.h>
#include <support.h>

#include <CUnit/CUnit.h>
#include <hiredis/hiredis.h>

/* ---- the server (server.c) --------------------------------------------------------------------------- */

#define SERVERS_MAX 6

struct server {
    char folder[200];
    int port, port2, port3;
    int ports[SERVERS_MAX]; /* of all servers of a group: the first is `port` */
    char sentinels[120];
    char socket[108], socket2[108];
    bool users; /* the connection of `ask` is "admin" */
    char password[32];
    pthread_mutex_t lock;
    redisContext *looker;
};

/* Starts a server with these KEYs of servers/redis.sh, NULL at the end. Returns 0 or the exit code (77: skip). */
int server_start(struct server *server, const char *const *keys);
/* stop, kill, freeze, thaw, start; in a group with replicas the server `which` ("only=2"), or all if it is NULL. */
bool server_do(struct server *server, const char *verb, const char *which);
/* Returns whether soon nothing is left in it: no key except tokens that expire, no subscription, no client. Prints what
 * is left. */
bool server_is_clean(struct server *server);
/* Ends it. Returns false if it was not clean. */
bool server_end(struct server *server);
/* Ends those that were started. Returns 1 if one was not clean, else the code. */
int servers_end(struct server *const *servers, size_t count, int code);

/* From now on `ask`, and the functions that use it, read the server on this port. */
void server_look_at(struct server *server, int port);
/* Executes one command, as a user with all rights. The caller frees the reply. NULL: no answer. */
redisReply *ask(struct server *server, const char *format, ...);
/* Returns the integer of the reply, or the number at the beginning of its text; -100: neither. */
int64_t ask_number(struct server *server, const char *format, ...);
/* Returns whether this is the text of the reply. */
bool ask_is(struct server *server, const char *wanted, const char *format, ...);
/* Returns a number of INFO, for example "total_connections_received". -1: there is none. */
int64_t info_number(struct server *server, const char *section, const char *key);
/* Returns how often the server has executed this command; in small letters. */
int64_t calls_of(struct server *server, const char *command);
/* Returns how many leases hold the lock of this name (below "mortise:"), according to the keys: one for a string; the
 * grants or the count of a hash. 0: it is free. -1: no answer. */
int holds(struct server *server, const char *name);
int64_t pttl(struct server *server, const char *name);
/* Waits until the name is held that often. False: not within patience. */
bool wait_holds(struct server *server, const char *name, int wanted);
/* Returns the length of its queue. */
int64_t queue_length(struct server *server, const char *name);
bool wait_queue(struct server *server, const char *name, int64_t wanted);
/* Waits until that many inboxes have a subscriber. */
bool wait_inboxes(struct server *server, int64_t wanted);
/* An argument for test_poll. */
struct asked {
    struct server *server;
    const char *name;
    int64_t number;
};

/* ---- a primary and its replicas (house.c) ---------------------------------------------------------------- */

#define HOUSE 3
/* Only a failure takes this long. Sentinels do nothing for half a minute if they notice that they were stopped for two
 * seconds. */
#define FAILOVER_MS 150000

/* Three servers, 0 to 2; `server` reads the primary. */
struct house {
    struct server server;
    int ports[HOUSE];
    int primary;
    char list[80]; /* their addresses; the first primary is last */
};

int house_start(struct house *house, const char *const *keys);
/* freeze, thaw, kill, start. */
bool house_do(struct house *house, const char *verb, int member);
/* Executes a command on this server. The caller frees the reply. NULL: no answer. */
redisReply *house_ask(struct house *house, int member, const char *format, ...);
/* Makes it the primary, and the others that run its replicas. `server` reads it from now on. */
void house_promote(struct house *house, int member);
/* Makes it a replica of the primary. */
void house_follow(struct house *house, int member);
/* Makes it a replica of an address without a server: it keeps its data, and receives nothing new. */
void house_strand(struct house *house, int member);
void house_look_at(struct house *house, int member);
/* Waits until this sentinel names a server other than `except` that is the primary, and reads that from now on. A server that says
 * so itself may be sent back: the sentinels give a failover up that takes too long. */
bool house_wait_named(struct house *house, redisContext *sentinel, int except);
/* Has the sentinels exchange the primary, as often as they give that up, and waits for the end as above. */
bool house_exchange(struct house *house, redisContext *sentinel);
/* Waits until all writes so far are on that many replicas. */
bool house_wait_replicas(struct house *house, int replicas);
/* Makes all of them run, `primary` the primary with no data, and the others its replicas. */
void house_mend(struct house *house, int primary);

/* ---- clients (client.c) ------------------------------------------------------------------------------- */

/* Opens a client with these lines in [mortise] and [redis]; `servers` is an address, or NULL for the server itself. */
mortise_client *open_at(struct server *server, const char *servers, const char *core,
                        const char *redis);
mortise_client *open_by(struct server *server, const struct test_proxy *proxy, const char *core,
                        const char *redis);
/* Returns the path of the config that open_at() would use; the caller frees it. */
char *config_at(struct server *server, const char *servers, const char *core, const char *redis);
bool start_proxy(struct server *server, struct test_proxy *proxy);
/* Starts tests/taker.c with such a config. */
bool start_taker(struct server *server, struct test_process *taker, const char *redis);
/* Sends the line. Returns whether the answer begins with `wanted`. */
bool taker_says(struct test_process *taker, const char *line, const char *wanted);
/* Waits for its answer "OK TOKEN", and returns the token. 0: another answer. */
uint64_t taker_token(struct test_process *taker);
void close_client(mortise_client *client);

/* Acquires it; if that fails, the check fails and the result is NULL. The ttl is longer than all patience, so that a
 * leak is noticed, and nothing expires however long a process is stopped. */
#define LONG_MS 300000
mortise_lease *take(mortise_client *client, const char *name);
mortise_lease *take_as(mortise_client *client, const char *name, const char *owner, int64_t ttl_ms);
void give(mortise_lease *lease);
mortise_status try_once(mortise_client *client, const char *name);
/* Returns whether it is UNREACHABLE; or INDETERMINATE, which is correct if a thread was in the driver when time ran
 * out. */
bool not_reached(mortise_status status);
mortise_stats stats_of(mortise_client *client);
bool wait_state(mortise_lease *lease, mortise_lease_state state, int64_t timeout_ms);
/* Waits until at least that many renewals of the client have succeeded. */
bool wait_renewals(mortise_client *client, uint64_t at_least);
/* Returns whether the server's claim lasts at least until the lease's deadline (R1). */
bool is_covered(struct server *server, const char *name, mortise_lease *lease);
/* Acquires and releases a name of its own, within patience. */
bool wait_works(mortise_client *client);

/* An async acquire. */
struct pending {
    mortise_request request;
    struct test_count calls;
    mortise_status status;
    mortise_lease *lease;
    mortise_error error;
};
#define PENDING_INIT                                                                               \
    (struct pending)                                                                               \
    {                                                                                              \
        .calls = TEST_COUNT_INIT                                                                   \
    }
void pending_start(struct pending *pending, mortise_client *client, const char *name,
                   const mortise_options *options);
/* Its outcome; asserts that it comes. */
mortise_status pending_join(struct pending *pending);

/* Counts what on_state tells. */
struct told {
    struct test_count suspect, lost, held;
};
#define TOLD_INIT                                                                                  \
    (struct told)                                                                                  \
    {                                                                                              \
        TEST_COUNT_INIT, TEST_COUNT_INIT, TEST_COUNT_INIT                                          \
    }
void note_state(mortise_lease *lease, mortise_lease_state state, void *told);

/* ---- what the driver can be set to ---------------------------------------------------------------------- */

struct variant {
    const char *name, *settings;
    const char *owner; /* shared, where it can be */
    bool fencing;
};
#define VARIANTS 11
extern const struct variant variants[VARIANTS];
/* Not by transactions. */
bool has_scripts(const struct variant *variant);

#endif
