/* scale.h - the workload `scale` in one process: many callers that wait, many clients, or many names. */
#ifndef MORTISE_BENCH_SCALE_H
#define MORTISE_BENCH_SCALE_H

#include <mortise/mortise.h>

#include <stdint.h>

/* count callers of one client wait for one name. Each gives the lock back at once. */
void scale_crowd(mortise_client *client, const char *name, unsigned count);
/* Waits until the first caller of the last crowd was granted, and returns that instant. */
int64_t scale_first_ns(void);
/* count further clients, each of which holds NAME/i. */
void scale_clients(const char *address, const char *name, unsigned count, int64_t ttl_ms);
/* Acquires NAME/0 to NAME/count-1 and releases them, some at a time. */
void scale_touch(mortise_client *client, const char *name, unsigned count);
void scale_close(void);

#endif
