/* rig.h - the driver alone, loaded with a small host: a test decides when the driver gets a turn. */
#ifndef MORTISE_TESTS_ZOOKEEPER_RIG_H
#define MORTISE_TESTS_ZOOKEEPER_RIG_H

#include "stage.h"

#include <mortise/driver.h>

struct rig {
    mortise_host host; /* first: a mortise_host * is its rig */
    mortise_value values[16];
    void *ctx;
    pthread_mutex_t lock;
    pthread_cond_t filled;
    struct posted *first, **end;
    int emitted; /* results of lists */
};

bool rig_load(void);
/* An instance with the root /ops. client_id: 32 hex digits. */
void rig_open(struct rig *rig, const char *client_id);
void rig_open_at(struct rig *rig, const char *client_id, const char *servers, int64_t timeout_ms);
/* The same for a user; auth: SCHEME:CREDENTIALS. Its calls wait for a connection for five seconds, not for a minute. */
void rig_open_as(struct rig *rig, const char *client_id, const char *auth);
void rig_close(struct rig *rig);
/* Runs what was posted, and a turn; waits a little if nothing was posted. */
void rig_run(struct rig *rig);
/* Starts an op. It is done when op->issuer is not NULL. */
void rig_start(struct rig *rig, mortise_op *op);
void rig_cancel(struct rig *rig, mortise_op *op);
/* Runs the rig, and the other one if it is not NULL, until the op is done. Returns its status. */
mortise_status rig_finish(struct rig *rig, struct rig *other, mortise_op *op);
mortise_op rig_acquire(const char *name, unsigned char grant, uint64_t floor);
/* Releases what this acquire was granted. */
void rig_release(struct rig *rig, mortise_op *op);

#endif
