/* zookeeper_host.h - a host for the ZooKeeper driver, with a clock of its own. Nothing happens by itself: a test runs what
 * was posted and lets time pass, and drives the ensemble of fake_zookeeper.h. */
#ifndef MORTISE_TESTS_ZOOKEEPER_HOST_H
#define MORTISE_TESTS_ZOOKEEPER_HOST_H

#include <mortise/driver.h>

#include <stdbool.h>
#include <stdint.h>

#define MS INT64_C(1000000)
#define NOTE "host\n1\nprogram" /* of the client */
#define HOUR_MS 3600000         /* as connect_timeout: no call fails for want of a connection */

enum { CURATOR_SEMAPHORE = 4, KAZOO_SEMAPHORE }; /* their places among the choices of node_style */

extern int64_t now_ns;
extern int doubts; /* how often the driver asked for a renewal */
extern int look_ups;
extern int semaphore_style; /* of a driver with a semaphore */
extern char told[512];      /* the text of the last failure */
extern const mortise_module *const module;
extern unsigned told_to_wait; /* how often the core was told that an acquire waits */
extern void *driver_ctx;      /* of the driver that is open */

void open_driver(bool is_semaphore, int64_t connect_timeout_ms);
void close_driver(void);
/* What the driver says of a config with these servers; it is not open afterwards. */
mortise_status try_servers(const char *servers, mortise_error *error);
/* Runs what was posted. False: nothing was. */
bool run_posted(void);
/* Nothing is under way: the time goes on to when the driver is due. */
void pass_time(void);
/* An op about the name "x". */
mortise_op op_of(mortise_op_kind kind, unsigned char grant);
/* Starts it; op->issuer tells whether it is complete. */
void start(mortise_op *op);

#endif
