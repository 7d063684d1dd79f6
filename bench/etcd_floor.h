/* etcd_floor.h - what is asked of etcd by bare nghttp2 on a blocking socket and nothing else: a transaction that puts one key,
 * a deletion, a watch. One call at a time on a connection, by one thread; a failure ends the program. */
#ifndef MORTISE_BENCH_ETCD_FLOOR_H
#define MORTISE_BENCH_ETCD_FLOOR_H

#include <stdint.h>

/* A connection. The server is HOST:PORT, HOST a numeric IPv4 address. */
struct etcd_bare *etcd_connect(const char *server);
void etcd_close(struct etcd_bare *bare);

/* The lease that the keys are attached to, of so many seconds; nothing keeps it alive. */
void etcd_grant(struct etcd_bare *bare, int64_t ttl_s);
/* One transaction, as short as a lock can be: if there is no such key, it is put, with a value as long as the driver's. Returns
 * its revision. */
int64_t etcd_put(struct etcd_bare *bare, const char *key);
void etcd_delete(struct etcd_bare *bare, const char *key);

/* Sends the deletion and does not wait for the answer; that is what etcd_finish() does. */
void etcd_delete_begin(struct etcd_bare *bare, const char *key);
void etcd_finish(struct etcd_bare *bare);
/* Watches the key for its deletion after this revision; back when the server says that it does. */
void etcd_watch(struct etcd_bare *bare, const char *key, int64_t revision);
/* Back when the deletion is told. */
void etcd_await_event(struct etcd_bare *bare);

#endif
