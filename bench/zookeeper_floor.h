/* zookeeper_floor.h - what is asked of ZooKeeper by its C client and nothing else: an ephemeral sequential node is
 * created and deleted again. On one session; a failure ends the program. */
#ifndef MORTISE_BENCH_ZOOKEEPER_FLOOR_H
#define MORTISE_BENCH_ZOOKEEPER_FLOOR_H

#include <stddef.h>
#include <stdint.h>
#include <zookeeper/zookeeper.h>

/* A session, and the nodes /bench and /bench/bare. Deletions of what its watches are on count as answers. */
zhandle_t *zookeeper_connect(const char *server);

/* The session that the rest is asked on. */
extern zhandle_t *zookeeper_bare;

/* Answers: each call below that begins something brings one. */
void zookeeper_answer(void);
void zookeeper_await(unsigned count);
void zookeeper_on_void(int rc, const void *data);

void zookeeper_create(void);
void zookeeper_delete(void);
/* Of the node created last: its path, and the number of the change that made it. */
const char *zookeeper_made(void);
int64_t zookeeper_made_zxid(void);
/* n times both. A bench_case's loop. */
void zookeeper_cycles(void *context, size_t n);

/* What the driver writes into its node, as long. */
extern const char zookeeper_data[];
extern const int zookeeper_data_length;
/* Of the node, but for its number. */
extern const char zookeeper_path[];

#endif
