/* sim.h - how a test drives the sim driver.
 *
 * The sim driver is a backend in memory, shared by all clients of the process. It answers at once, and reads the time
 * only with host->now(), so it works on a virtual clock as well as on a real one. A test gets the functions below
 * from the loaded module:
 *
 *     void *library = dlopen(path_of_sim_so, RTLD_NOW);
 *     const sim_api *sim = dlsym(library, SIM_API_SYMBOL);
 *
 * All may be called from any thread, also while clients work. Names are those that the driver gets, with the namespace
 * (the sim's default namespace is that of its config, or none).
 *
 * The way of an op: the request travels (request_ns, or held), is executed, the reply travels (reply_ns, or held),
 * the op is completed. A rule changes that for the next ops that match it; the first matching rule wins. Ops that
 * match no rule take the config's `latency` for the request, and no time for the reply.
 *
 * Config: without = "reentrant, list" (capabilities to remove), latency = DURATION, queue = yes|no (a FIFO in the
 * backend that keeps an op until its turn), notify = yes|no (waiters are notified of a release), clock = yes|no
 * (tokens follow the clock, for each name separately; from the opening on until reset),
 * namespace = TEXT (the default namespace of this instance). */
#ifndef MORTISE_TESTS_SIM_H
#define MORTISE_TESTS_SIM_H

#include <mortise/driver.h>

#define SIM_OP(kind) (1u << (kind))

typedef enum sim_fate {
    SIM_PASS = 0,   /* executed and answered */
    SIM_REFUSE,     /* not executed, answered with `status` */
    SIM_LOSE_REPLY, /* executed, answered with `status`, for example INDETERMINATE */
    SIM_GHOST,  /* answered with `status` when the reply is due; the request is still under way and
                         * is executed when it arrives, like one in the buffers of a dead connection. Until
                         * then no release of its grant is `sure`. */
    SIM_SILENT, /* not executed, never answered */
    SIM_SILENT_EXECUTED /* executed, never answered */
} sim_fate;

typedef enum sim_on_cancel {
    SIM_CANCEL_INDETERMINATE = 0, /* answered at once; a request under way becomes a ghost */
    SIM_CANCEL_CLEAN,             /* recalled or undone, answered CANCELED */
    SIM_CANCEL_IGNORED            /* the cancel is ignored: answered late, or never */
} sim_on_cancel;

typedef struct sim_rule {
    /* which ops */
    uint32_t kinds;   /* SIM_OP(MORTISE_OP_ACQUIRE) | …; 0: every kind */
    const char *name; /* NULL: every name; copied */
    unsigned skip;    /* how many matching ops pass unchanged first */
    unsigned times;   /* then it applies to that many; 0: until it is ended */
    /* their outcome */
    sim_fate fate;
    mortise_status status; /* of REFUSE, LOSE_REPLY, GHOST */
    int32_t native;        /* the native code of the error */
    int64_t request_ns, reply_ns;
    bool hold_request, hold_reply; /* until let_go(), instead of the time */
    sim_on_cancel on_cancel;
    bool twice; /* completed a second time right after the first: a driver's bug */
} sim_rule;

typedef struct sim_api {
    uint32_t size; /* sizeof(sim_api) */

    /* Adds a rule after the others. Returns its number, > 0; 0: out of memory. */
    int (*script)(const sim_rule *rule);
    /* Ends a rule: it matches no further ops; open ops keep their outcome. */
    void (*end)(int rule);
    /* Lets go what the rule holds: held requests, replies and ghosts arrive. */
    void (*let_go)(int rule);
    /* Return how many ops it was applied to, and how many it holds now. Ended rules count too. */
    uint64_t (*hits)(int rule);
    uint64_t (*held)(int rule);
    /* Waits, in real time, until hits(rule) >= n; false after timeout_ms. */
    bool (*wait_hits)(int rule, uint64_t n, int64_t timeout_ms);

    /* Removes the name's claim (as if it expired, or an operator deleted it), without news. False: there was none. */
    bool (*lose)(const char *name);
    /* Removes every claim, as a server does that came back empty. Tokens go on. What it granted before and has not been
     * told yet is never told: a driver has lost that connection. Those acquires are INDETERMINATE. */
    void (*lose_all)(void);
    /* Makes a stranger hold the name until the instant (MORTISE_NEVER: forever). Returns its token. */
    uint64_t (*seize)(const char *name, int64_t expires_ns);
    /* The stranger, or any other holder, releases the name: waiters are notified. */
    bool (*give_back)(const char *name);
    /* Sends news to everybody who watches (as after a reconnection). */
    void (*news_all)(void);
    /* The next token is at least this. */
    void (*tokens_from)(uint64_t token);

    /* Returns the ops started since reset, of one kind (MORTISE_OP_…) or all kinds (0). */
    uint64_t (*count)(int kind);
    /* Returns the number of held names (including expired ones that nobody has looked at since). */
    size_t (*claims)(void);
    /* Returns the clients that wait for a name: watching or queued. NULL: all names. */
    size_t (*waiters)(const char *name);
    /* Return the unanswered ops of all clients, and the requests of answered ops that are still under way. */
    size_t (*outstanding)(void);
    size_t (*ghosts)(void);
    /* Returns the number of open instances of the driver. */
    size_t (*instances)(void);

    /* Forgets claims, records, rules, ghosts and counts; tokens start at 1. Ops that are held go on. */
    void (*reset)(void);

    /* While it is on, news of a released name reach nobody, as if connections were down. news_all() goes through. */
    void (*deaf)(bool on);
    /* Whether the name is held under this token. */
    bool (*holds)(const char *name, uint64_t token);
    /* Every client is to ask the backend whether it still holds what it holds (as after a failover). */
    void (*doubt_all)(void);
} sim_api;

#define SIM_API_SYMBOL "sim_api_v1"
MORTISE_API extern const sim_api sim_api_v1;

#endif
