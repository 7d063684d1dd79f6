/* backend.h - what a run needs to know of the driver under test, and of what is behind it: backend_sim.c has the driver in
 * memory, backend_net.c the drivers with servers and a network. */
#ifndef MORTISE_TESTS_REPLAY_BACKEND_H
#define MORTISE_TESTS_REPLAY_BACKEND_H

#include "plan.h"

#include <stdio.h>

struct backend {
    const char *name, *module; /* of --driver; of the driver's file */
    bool copies; /* each process has a copy of the file of its own: in the folders p0 to p3 */
    bool
        shares_memory; /* a process that is killed in the middle of its work would harm the others */
    /* The module was loaded. */
    void (*loaded)(void *library);
    void (*write_section)(FILE *config);
    /* The scheduler is in charge, and the folder is there. */
    void (*begin)(void);
    /* A step of the nemesis that only this backend has. */
    void (*cause)(const struct step *step);
    /* What is held or stopped goes on. Called again and again. */
    void (*end_faults)(void);
    void (*calm)(void);
    void (*process_killed)(int process);
    /* Whether the backend has this claim now. NULL: it cannot be asked. */
    bool (*holds)(int name, uint64_t token);
    /* All clients were closed, and left these behind: fails if that is wrong. */
    void (*check_left)(int claims, int waiters);
    /* How much longer than the sim's a waiter's turn may take. */
    int64_t (*patience_ms)(void);
    void (*end)(void);
};
extern const struct backend backend_sim, backend_redis, backend_redlock, backend_failover,
    backend_forgets, backend_sqlite;

#endif
