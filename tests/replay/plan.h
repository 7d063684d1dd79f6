/* plan.h - the plan of a run: how the clients are configured, what each worker calls, and which faults there are. All of it
 * follows from the seed. Knows the words of the API, and executes nothing. */
#ifndef MORTISE_TESTS_REPLAY_PLAN_H
#define MORTISE_TESTS_REPLAY_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    PLAN_PROCESSES = 4,
    PLAN_WORKERS = 8,
    PLAN_STEPS = 512,
    PLAN_SLOTS = 2,
    PLAN_NAMES = 3,
    PLAN_SERVERS = 5
};

#define PLAN_WHAT_MAP(X)                                                                           \
    X(ACQUIRE, "acquire")                                                                          \
    X(ACQUIRE_ASYNC, "acquire-async")                                                              \
    X(ACQUIRE_MANY, "acquire-many")                                                                \
    X(CANCEL, "cancel")                                                                            \
    X(AWAIT, "await")                                                                              \
    X(RELEASE, "release")                                                                          \
    X(RELEASE_NOWAIT, "release-nowait")                                                            \
    X(RELEASE_ASYNC, "release-async")                                                              \
    X(EXTEND, "extend")                                                                            \
    X(DOWNGRADE, "downgrade")                                                                      \
    X(WORK, "work")                                                                                \
    X(COUNT, "count")                                                                              \
    X(INSPECT, "inspect")                                                                          \
    X(CLOSE, "close")                                                                              \
    X(FAULT, "fault")                                                                              \
    X(NEWS, "news")                                                                                \
    X(DEAF, "deaf")                                                                                \
    X(DOUBT, "doubt")                                                                              \
    X(LOSE, "lose")                                                                                \
    X(STOP, "stop")                                                                                \
    X(KILL, "kill")                                                                                \
    X(WALL, "wall")                                                                                \
    X(PAUSE, "pause")                                                                              \
    X(CUT, "cut")                                                                                  \
    X(CUT_ALL, "cut-all")                                                                          \
    X(BLOCK, "block")                                                                              \
    X(SERVER_STOP, "server-stop")                                                                  \
    X(RESTART, "restart")                                                                          \
    X(FLUSH, "flush-scripts")                                                                      \
    X(SERVER_WALL, "server-wall")                                                                  \
    X(HANGUP, "hang-up")                                                                           \
    X(HOLD, "hold")                                                                                \
    X(FORK, "fork")                                                                                \
    X(FAILOVER, "failover")                                                                        \
    X(LINK_BLOCK, "block-link")                                                                    \
    X(LINK_CUT, "cut-link")                                                                        \
    X(DISK_SLOW, "slow-disk")                                                                      \
    X(DISK_FULL, "full-disk")                                                                      \
    X(DISK_BAD, "bad-disk")
enum plan_what {
#define PLAN_WHAT_ENUM(name, word) STEP_##name,
    PLAN_WHAT_MAP(PLAN_WHAT_ENUM)
#undef PLAN_WHAT_ENUM
};

enum plan_driver {
    PLAN_SIM,
    PLAN_REDIS,
    PLAN_REDLOCK,
    PLAN_SQLITE,
    PLAN_FAILOVER,
    PLAN_FORGETS,
    PLAN_DRIVERS
};
enum plan_layout { LAYOUT_STRING, LAYOUT_HASH, LAYOUT_WATCH }; /* of redis: mode, atomicity */

/* What the application does in the on_state callback of a lease, or in the callback of an async acquire. */
enum plan_callback {
    CALLBACK_NONE,
    CALLBACK_NOTE,
    CALLBACK_RELEASE,
    CALLBACK_TRY,
    CALLBACK_CLOSE,
    CALLBACK_SLOW
};

struct step {
    unsigned id;
    int worker; /* -1: the nemesis */
    enum plan_what what;
    int slot, name, process;
    int64_t wait_ms, ttl_ms, max_hold_ms, ms;
    bool shared, owner, no_renew, release_now;
    enum plan_callback callback;
    /* FAULT, with the values of tests/sim/sim.h */
    uint32_t kinds;
    int fate, status, on_cancel, times;
    int64_t request_ms, reply_ms;
    bool hold_request, hold_reply;
    /* CUT and behind it: the network and the servers; ways: of enum net_way, as bits */
    int server;
    unsigned ways;
    bool dropped; /* by the shrinker */
};

struct plan {
    enum plan_driver driver;
    uint64_t seed, schedule;
    int processes, workers, names;
    int process_of[PLAN_WORKERS];
    bool dispatches[PLAN_PROCESSES]; /* its callbacks run in mortise_dispatch() */
    bool faults, stalls, losses; /* losses: the backend may forget claims, and doubts them then */
    bool doubts;                 /* many losses are followed by slow renewals */
    bool turns;                  /* workers hold one lease after the other: somebody always waits */
    bool readers;    /* most acquires are shared, and may join one claim */
    bool extends;    /* many leases are not renewed, and extended */
    unsigned no_end; /* bits: these workers end with their steps, and do not get each name then */
    bool lasting;    /* the ttl is so long that nothing is mended by it */
    /* the clients' settings */
    bool notify, queue, log;
    int64_t latency_ms, handover_window_ms, handover_max, unreachable_ms, close_ms, ttl_ms;
    /* the servers and their network; latency_ms: how long a message travels at most */
    int servers;
    int64_t wall_offset_ms[PLAN_SERVERS], drift_ppm[PLAN_SERVERS];
    enum plan_layout layout;
    bool late;    /* what old connections bring meets new requests */
    bool no_kill; /* the server has no command to end an old connection */
    bool replica; /* server 1 is a replica of server 0 */
    int min_replicas;
    bool keeps_data; /* a server that is restarted has its data still */
    uint32_t slow_one_in, split_one_in;
    int64_t slow_ms, command_timeout_ms, connect_timeout_ms;
    /* the file; latency_ms: how long four flushes take, slow_ms: one while the disk is slow */
    bool flushes; /* each commit is flushed */
    int64_t reserve_ms;
    /* the scheduler's */
    uint32_t switch_one_in, change_one_in, stall_one_in, spurious_one_in;
    int64_t jitter_ns, stall_ms;
    struct step steps[PLAN_STEPS];
    int count;
};

/* schedule: the seed of the interleaving; 0: that of the plan. */
void plan_make(struct plan *plan, enum plan_driver driver, uint64_t seed, uint64_t schedule);
/* The same plan under another interleaving. */
void plan_reschedule(struct plan *plan, uint64_t schedule);
/* A request may travel for longer than the ttl: nobody releases what it acquires. */
bool plan_has_late_requests(const struct plan *plan);
/* Whether an answer may take that long without any fault: others of the client go first, each in several ways. */
bool plan_is_slow(const struct plan *plan, int64_t ms);
/* One line without a newline. Returns text. */
char *plan_step_text(const struct step *step, char *text, size_t size);
void plan_print(const struct plan *plan);
/* "3,7,9-12": the only steps that are kept. False: it cannot be read. */
bool plan_keep(struct plan *plan, const char *list);

#endif
