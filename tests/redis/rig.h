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

#define SERVERS_MAX 5

struct server {
    char folder[200];
    int port, port2, port3;
    int ports[SERVERS_MAX]; /* of all of a group: the first is `port` */
    char sentinels[120];
    char socket[108], socket2[108];
    bool users; /* the looker is "admin" */
    char password[32];
    pthread_mutex_t lock;
    redisContext *looker;
};

/* Starts one with these KEYs of servers/redis.sh, NULL at the end. 0, or the exit code (77: a skip). */
int server_start(struct server *server, const char *const *keys);
/* stop, kill, freeze, thaw, start; of a group with replicas, `which` ("only=2"), or NULL for all. */
bool server_do(struct server *server, const char *verb, const char *which);
/* Soon, nothing is left in it: no key but tokens that expire, no subscription, no client. Says what is. */
bool server_is_clean(struct server *server);
/* Ends it; false: it was not clean. */
bool server_end(struct server *server);
/* Ends those that were started; 1 if one was not clean, else the code. */
int servers_end(struct server *const *servers, size_t count, int code);

/* From now on `ask` and what stands on it look into the server on this port. */
void server_look_at(struct server *server, int port);
/* One command, as one who may do all; the reply is the caller's to free. NULL: no answer. */
redisReply *ask(struct server *server, const char *format, ...);
/* Its integer, or the number that its text begins with; -100: neither. */
int64_t ask_number(struct server *server, const char *format, ...);
/* Its text is this. */
bool ask_is(struct server *server, const char *wanted, const char *format, ...);
/* A number of INFO: "total_connections_received". -1: not there. */
int64_t info_number(struct server *server, const char *section, const char *key);
/* How many hold the lock of this name (below "mortise:"), as the keys say: a string is one; of hashes the
 * grants or the count. 0: it is free. -1: no answer. */
int holds(struct server *server, const char *name);
int64_t pttl(struct server *server, const char *name);
/* Until the name is held so often; false within patience. */
bool wait_holds(struct server *server, const char *name, int wanted);
/* How many stand in its queue. */
int64_t queue_length(struct server *server, const char *name);
bool wait_queue(struct server *server, const char *name, int64_t wanted);
/* Until so many inboxes are listened to. */
bool wait_inboxes(struct server *server, int64_t wanted);
/* An argument for test_poll. */
struct asked {
    struct server *server;
    const char *name;
    int64_t number;
};

/* ---- a primary and its replicas (house.c) ---------------------------------------------------------------- */

#define HOUSE 3
/* Bounds failure: sentinels do nothing for half a minute when they notice that they stood still for two seconds. */
#define FAILOVER_MS 150000

/* Three servers, 0 to 2; `server` looks at the one that is the primary. */
struct house {
    struct server server;
    int ports[HOUSE];
    int primary;
    char list[80]; /* their addresses, the primary of the beginning last */
};

int house_start(struct house *house, const char *const *keys);
/* freeze, thaw, kill, start. */
bool house_do(struct house *house, const char *verb, int member);
/* A command to this one, its reply to be freed. NULL: no answer. */
redisReply *house_ask(struct house *house, int member, const char *format, ...);
/* Makes it the primary, and the others its replicas (that run); looks at it from now on. */
void house_promote(struct house *house, int member);
/* Has it follow the primary. */
void house_follow(struct house *house, int member);
/* Makes it a replica of nobody who is there: it keeps what it has, and hears nothing new. */
void house_strand(struct house *house, int member);
void house_look_at(struct house *house, int member);
/* Until one other than `except` says that it is the primary, and looks at it; -1: none did. */
int house_wait_other(struct house *house, int except);
/* Until all that was written so far is on so many replicas. */
bool house_wait_replicas(struct house *house, int replicas);
/* All run, `primary` is one, and empty, and the others follow. */
void house_mend(struct house *house, int primary);

/* ---- clients (client.c) ------------------------------------------------------------------------------- */

/* With these lines in [mortise] and [redis]; `servers` an address, or NULL for the server itself. */
mortise_client *open_at(struct server *server, const char *servers, const char *core,
                        const char *redis);
mortise_client *open_by(struct server *server, const struct test_proxy *proxy, const char *core,
                        const char *redis);
/* What the same would be opened with: a config's path, to be freed. */
char *config_at(struct server *server, const char *servers, const char *core, const char *redis);
bool start_proxy(struct server *server, struct test_proxy *proxy);
/* tests/taker.c with such a config. */
bool start_taker(struct server *server, struct test_process *taker, const char *redis);
/* Says the line; the answer begins with this. */
bool taker_says(struct test_process *taker, const char *line, const char *wanted);
/* The token of its "OK TOKEN", which it may be about to say; 0: another answer. */
uint64_t taker_token(struct test_process *taker);
void close_client(mortise_client *client);

/* OK, or the check has failed and it is NULL. A ttl beyond all patience, so that what is leaked is seen, and nothing
 * ends by itself however long a process stands still. */
#define LONG_MS 300000
mortise_lease *take(mortise_client *client, const char *name);
mortise_lease *take_as(mortise_client *client, const char *name, const char *owner, int64_t ttl_ms);
void give(mortise_lease *lease);
mortise_status try_once(mortise_client *client, const char *name);
/* UNREACHABLE; or INDETERMINATE, if a thread was in the driver at the instant when the time was over. */
bool not_reached(mortise_status status);
mortise_stats stats_of(mortise_client *client);
bool wait_state(mortise_lease *lease, mortise_lease_state state, int64_t timeout_ms);
/* Until so many more renewals of the client have succeeded than `before`. */
bool wait_renewals(mortise_client *client, uint64_t at_least);
/* The server's claim does not end before the lease's deadline (R1). */
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
