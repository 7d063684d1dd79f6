/* world.h - a run: processes with a client each, workers that follow the plan, and what they remember of their leases.
 * worker.c executes the plan's steps, callbacks.c is what the application does in callbacks, nemesis.c causes the faults,
 * record.c writes what the checker of tests/torture reads, run.c begins and ends it all.
 *
 * A slot of a worker:
 *
 * state   | meaning                     | acquired | async outcome          | release
 * --------|-----------------------------|----------|------------------------|---------
 * EMPTY   |                             | HOLDS    | -                      | -
 * WAITS   | an async acquire is pending | -        | HOLDS; EMPTY if failed | -
 * HOLDS   | a lease, perhaps lost       | -        | -                      | EMPTY
 *
 * Callbacks write into `struct wish` and `struct watched`, which are never freed, so that a callback that comes too late
 * is a finding and not a crash. */
#ifndef MORTISE_TESTS_REPLAY_WORLD_H
#define MORTISE_TESTS_REPLAY_WORLD_H

#include "plan.h"
#include "sched.h"
#include "sim.h"

#include <mortise/mortise.h>

#define NS_PER_MS INT64_C(1000000)

struct backend;

/* A client from its opening to its end. */
struct opened {
    mortise_client *handle;
    int process, fd;          /* fd: of mortise_fd() */
    bool dispatches, closing; /* closing: a thread has begun to close it */
    bool ended;      /* mortise_close() has returned OK or UNREACHABLE: no callback may run */
    unsigned closer; /* the thread that did it */
};

/* What a lease's on_state may do, and has been told. */
struct watched {
    struct opened *opened;
    enum plan_callback callback;
    bool released;        /* mortise_release() has returned, outside of callbacks */
    bool released_inside; /* a callback released it */
    bool lost;            /* LOST was reported, which is final */
    bool keeps;           /* it is renewed, and there are no faults, or no more */
    bool in_time;         /* if it keeps: each answer is there within the sixth of the ttl that it has */
    int name;
};

/* An async acquire. */
struct wish {
    pthread_mutex_t lock;
    pthread_cond_t decided;
    int times;
    bool release_now;
    mortise_status status;
    mortise_lease *lease;
    struct opened *opened;
    struct watched *watched;
};

enum slot_state { SLOT_EMPTY, SLOT_WAITS, SLOT_HOLDS };

struct slot {
    enum slot_state state;
    mortise_lease *lease;
    mortise_request request;
    struct wish *wish;
    struct watched *watched;
    struct opened *opened;
    int name;
    bool shared, owner, no_renew;
    int64_t deadline_ns; /* not before this, as it was seen last */
};

struct worker {
    int number, process;
    struct slot slots[PLAN_SLOTS];
    bool done_steps, done; /* done: after the calm too */
    pthread_t thread;
};

struct process {
    pthread_mutex_t lock;
    struct opened *opened; /* NULL: not open now */
    int count;             /* of those opened so far */
    int closers;           /* threads that close a client now */
};

struct world {
    struct plan plan;
    char folder[256];
    const char *module_path; /* folders, with colons in between */
    char copies
        [4096]; /* the folder in which p0 to p3 have copies of the module; empty: they share one */
    const struct backend *backend;
    struct process processes[PLAN_PROCESSES];
    struct worker workers[PLAN_WORKERS];
    bool calm, may_be_away; /* the calm: no more faults. may_be_away: the plan has faults at all */
    bool all_clean;         /* every close returned OK */
    int64_t lost_ns;        /* when the backend forgot all claims; 0: never */
    int64_t stopped_ns;     /* until when a process was stopped at the latest */
    bool stuck;             /* a close did not wait for a thread that was too slow */
};
extern struct world run_world;

/* ---- record.c ---- */

void record_begin(const char *folder);
void record_end(void);
void record_held(int name, uint64_t token, int64_t at_ns);
void record_calm(void);
void record_killed(int process, int64_t at_ns);
void record_stopped(int process, int64_t until_ns);
/* The client of this history was closed, though its modules are still open. */
void record_closed_by_close(const char *file_name);
void record_left(const char *text);
/* The fenced counter of a name. */
uint64_t record_read(int name, uint64_t token);
bool record_write(int name, uint64_t token, uint64_t value);

/* ---- callbacks.c ---- */

struct watched *watch_new(struct opened *opened, enum plan_callback callback, int name);
mortise_state_callback watch_function(const struct watched *watched);
struct wish *wish_new(struct opened *opened, struct watched *watched, bool release_now);
void wish_granted(mortise_status status, mortise_lease *lease, const mortise_error *error,
                  void *wish);
/* For mortise_release_async(). */
void told_released(mortise_status status, const mortise_error *error, void *watched);
/* Fails the run if the lease was not kept and there is no cause: no fault, and nobody ends it. */
void check_kept(const struct watched *watched, bool kept);

/* ---- worker.c ---- */

const char *name_text(int name);
uint32_t name_permits(int name);
void *worker_main(void *worker);
/* Fails the run if the call must not return this. */
enum call { CALL_ACQUIRE, CALL_RELEASE, CALL_NOWAIT, CALL_EXTEND, CALL_DOWNGRADE, CALL_QUERY };
void check_status(enum call call, mortise_status status, const struct opened *opened,
                  const mortise_error *error);

/* ---- clients.c ---- */

/* The process's client, which is opened if need be. */
struct opened *client_of(int process);
void client_close(struct opened *opened);

/* ---- forks.c ---- */

/* Before the library is used. */
void forks_begin(void);
void forks_try(const struct opened *opened, const struct slot *slot, const char *name);

/* ---- nemesis.c ---- */

void nemesis_run(void);
void nemesis_end_faults(void);
void nemesis_calm(void);

/* ---- run.c ---- */

/* How long anybody may be without a name after the faults. */
int64_t run_patience_ms(void);
/* Returns path. */
char *run_config_of(int process, char *path, size_t size);
/* In a process of its own. Returns the exit code: 0: the promises held. */
int run_plan(const struct plan *plan, bool tracing, bool points);

#endif
