/* stage.h - the setting of the fault tests of the etcd driver: private servers, a proxy for bytes (tests/proxy) and one for calls
 * (middle.h) in front of the first of them, and clients on both sides. */
#ifndef MORTISE_TESTS_ETCD_STAGE_H
#define MORTISE_TESTS_ETCD_STAGE_H

#include "middle.h"

#include <proxy.h>
#include <scene.h>

#define SERVERS_MAX 3

struct stage {
    char folder[256];
    char servers[256]; /* the addresses of all servers, without a proxy */
    char ca[256], cert[256], key[256], user[64], password[64];
    int ports[SERVERS_MAX];
    int count;
    int middle;              /* the port of the proxy for calls */
    struct test_proxy proxy; /* in front of the first */
    struct test_proxy
        ways[SERVERS_MAX]; /* before the port on which the others reach it; cluster tests only */
};
extern struct stage stage;

/* Starts servers with these KEYs of servers.sh. ways: the peers reach each other by proxies. Returns an exit code. */
int stage_begin(int count, bool ways, const char *const *keys);
void stage_end(void);
/* Runs servers.sh VERB for the server `only` (0: all). */
bool stage_server(const char *verb, int only);
/* Starts the server `only`, which has ended, with further KEYs. */
bool stage_server_with(int only, const char *const *keys);
/* Waits for a leader, and returns its number. 0: there was none for long. */
int stage_leader(void);
/* Runs etcdctl at the server `only` with these words; its output is in `said`, as far as there is room. */
bool ctl_at(int only, const char *const *words, char *said, size_t size);
#define CTL(...) ctl_at(1, (const char *const[]){__VA_ARGS__, NULL}, NULL, 0)

/* A port of 127.0.0.1 where nobody says anything. accepts: the kernel accepts connections; else it drops them. */
struct silence {
    int listener, callers[4];
};
/* Returns the port; 0: it failed. */
int silence_begin(struct silence *silence, bool accepts);
void silence_end(struct silence *silence);

/* Opens a client; `settings` as in a URL ("ttl=2s&…"), or "". */
mortise_client *client_at(const char *endpoints, const char *settings);
mortise_client *client_direct(const char *settings); /* all servers */
mortise_client *client_behind_proxy(const char *settings);
mortise_client *client_behind_middle(const char *settings);
mortise_client *client_of(int server, const char *settings);
void client_end(mortise_client *client);

mortise_lease *take(mortise_client *client, const char *name);
void give_back(mortise_lease *lease);
/* How many hold the name or wait for it, as this client sees it; waits until there are so many. */
bool wait_contenders(mortise_client *client, const char *name, int count);
/* Two contend, and the second one's watch is most likely made: after some calls on its connection. */
bool wait_waiting(mortise_client *holder, mortise_client *waiter, const char *name);
/* Where time itself is the event: something ends by then. */
void let_pass(int64_t ms);
/* The whole keys below `prefix`, one a line. */
bool keys_below(const char *prefix, char *keys, size_t size);
/* A key of the name, but not that one. */
bool key_of_name(const char *name, const char *except, char *key, size_t size);
/* The lease to which the key is attached: hexadecimal. */
bool lease_of_key(const char *key, char *lease, size_t size);
bool revoke_all_leases(void);

extern const CU_TestInfo call_tests[], cover_tests[], lease_tests[], permit_tests[], cut_tests[],
    noise_tests[], user_tests[], tls_tests[], cluster_tests[], space_tests[], disk_tests[],
    stream_tests[], restore_tests[], away_tests[];

#endif
