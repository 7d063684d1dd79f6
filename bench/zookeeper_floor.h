/* zookeeper_floor.h - bare requests to ZooKeeper by its C client: they create an ephemeral sequential node and delete
 * it again, in one session. A failure ends the program. */
#ifndef MORTISE_BENCH_ZOOKEEPER_FLOOR_H
#define MORTISE_BENCH_ZOOKEEPER_FLOOR_H

#include <stddef.h>
#include <stdint.h>
#include <zookeeper/zookeeper.h>

/* Makes a session, and the nodes /bench and /bench/bare. A deletion that its watches report counts as an answer. */
zhandle_t *zookeeper_connect(const char *server);

/* The session that the other functions use. */
extern zhandle_t *zookeeper_bare;

/* Waits for an answer: each call below that begins something brings one. */
void zookeeper_answer(void);
void zookeeper_await(unsigned count);
void zookeeper_on_void(int rc, const void *data);

void zookeeper_create(void);
void zookeeper_delete(void);
/* The path of the node that was created last, and the number of the change that made it. */
const char *zookeeper_made(void);
int64_t zookeeper_made_zxid(void);
/* n times both. A bench_case's loop. */
void zookeeper_cycles(void *context, size_t n);

/* Text of the same length as the driver writes into its node. */
extern const char zookeeper_data[];
extern const int zookeeper_data_length;
/* The path of the node without its number. */
extern const char zookeeper_path[];

#endif
