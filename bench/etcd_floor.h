/* etcd_floor.h - requests to etcd by bare nghttp2 on a blocking socket, and nothing else: a transaction that puts one key, a
 * deletion, a watch. There is one call at a time on a connection, by one thread. A failure ends the program. */
#ifndef MORTISE_BENCH_ETCD_FLOOR_H
#define MORTISE_BENCH_ETCD_FLOOR_H

#include <stdint.h>

/* A connection. The server is HOST:PORT, HOST a numeric IPv4 address. */
struct etcd_bare *etcd_connect(const char *server);
void etcd_close(struct etcd_bare *bare);

/* Grants the lease that the keys are attached to, for so many seconds. Nothing keeps it alive. */
void etcd_grant(struct etcd_bare *bare, int64_t ttl_s);
/* The shortest transaction of a lock: if there is no such key, puts it, with a value as long as the driver's. Returns its
 * revision. */
int64_t etcd_put(struct etcd_bare *bare, const char *key);
void etcd_delete(struct etcd_bare *bare, const char *key);

/* Sends the deletion without waiting for the answer; etcd_finish() waits. */
void etcd_delete_begin(struct etcd_bare *bare, const char *key);
void etcd_finish(struct etcd_bare *bare);
/* Watches the key for its deletion after this revision. Returns when the server has confirmed the watch. */
void etcd_watch(struct etcd_bare *bare, const char *key, int64_t revision);
/* Returns when the event of the deletion has come. */
void etcd_await_event(struct etcd_bare *bare);

#endif
