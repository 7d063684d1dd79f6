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
 * (the sim's default namespace is empty).
 *
 * The way of an op: the request travels (request_ns, or held), is executed, the reply travels (reply_ns, or held),
 * the op is completed. A rule changes that for the next ops that match it; the first matching rule wins. Ops that
 * match no rule take the config's `latency` for the request, and no time for the reply.
 *
 * Config: without = "reentrant, list" (capabilities to remove), latency = DURATION, queue = yes|no (a FIFO in the
 * backend that keeps an op until its turn), notify = yes|no (waiters are notified of a release), clock = yes|no
 * (tokens follow the clock, for each name separately; from the opening on until reset). */
#ifndef MORTISE_TESTS_SIM_H
#define MORTISE_TESTS_SIM_H

#include <mortise/driver.h>

#define SIM_OP(kind) (1u << (kind))

typedef enum sim_fate {
    SIM_PASS = 0,   /* executed and answered */
    SIM_REFUSE,     /* not executed, answered with `status` */
    SIM_LOSE_REPLY, /* executed, answered with `status`: INDETERMINATE, say */
    SIM_GHOST,      /* answered with `status` when the reply is due; the request goes on travelling
                         * on its own and is executed when it arrives, like one in the buffers of a dead
                         * connection. Until then no release of its grant is `sure`. */
    SIM_SILENT,     /* not executed, never answered */
    SIM_SILENT_EXECUTED /* executed, never answered */
} sim_fate;

typedef enum sim_on_cancel {
    SIM_CANCEL_INDETERMINATE = 0, /* answered at once; a request on its way becomes a ghost */
    SIM_CANCEL_CLEAN,             /* recalled or undone, answered CANCELED */
    SIM_CANCEL_IGNORED            /* as if nobody had canceled: answered late, or never */
} sim_on_cancel;

typedef struct sim_rule {
    /* which ops */
    uint32_t kinds;   /* SIM_OP(MORTISE_OP_ACQUIRE) | …; 0: every kind */
    const char *name; /* NULL: every name; copied */
    unsigned skip;    /* so many matching ops pass untouched first */
    unsigned times;   /* then it applies to so many; 0: until it is ended */
    /* what becomes of them */
    sim_fate fate;
    mortise_status status; /* of REFUSE, LOSE_REPLY, GHOST */
    int32_t native;        /* the native code that goes with it */
    int64_t request_ns, reply_ns;
    bool hold_request, hold_reply; /* until let_go(), instead of the time */
    sim_on_cancel on_cancel;
    bool twice; /* completed a second time right after the first: a driver's bug */
} sim_rule;

typedef struct sim_api {
    uint32_t size; /* sizeof(sim_api) */

    /* Adds a rule behind the others. Returns its number, > 0; 0: out of memory. */
    int (*script)(const sim_rule *rule);
    /* It matches nothing more; ops under way go on as they were told to. */
    void (*end)(int rule);
    /* What it holds now goes on: held requests arrive, held replies and ghosts too. */
    void (*let_go)(int rule);
    /* How many ops it was applied to; how many it holds now. Ended rules count on. */
    uint64_t (*hits)(int rule);
    uint64_t (*held)(int rule);
    /* Waits, in real time, until hits(rule) >= n; false after timeout_ms. */
    bool (*wait_hits)(int rule, uint64_t n, int64_t timeout_ms);

    /* The name's claim is gone (expired, deleted by an operator). Nobody is told. false: none there. */
    bool (*lose)(const char *name);
    /* Every claim is gone: a server that came back empty. Tokens go on. */
    void (*lose_all)(void);
    /* The name is now held by a stranger until the instant (MORTISE_NEVER: for ever); returns its token. */
    uint64_t (*seize)(const char *name, int64_t expires_ns);
    /* The stranger, or whoever holds it, gives it back: waiters are told. */
    bool (*give_back)(const char *name);
    /* News for everybody who watches (a reconnection). */
    void (*news_all)(void);
    /* The next token is at least this. */
    void (*tokens_from)(uint64_t token);

    /* Ops started since reset, by kind (MORTISE_OP_…), or of every kind (0). */
    uint64_t (*count)(int kind);
    /* Names that are held (expired ones that nobody looked at since included). */
    size_t (*claims)(void);
    /* Clients that wait for a name: watching or queued. All names: NULL. */
    size_t (*waiters)(const char *name);
    /* Ops that were taken and not answered, of all clients; requests of answered ones on their way. */
    size_t (*outstanding)(void);
    size_t (*ghosts)(void);
    /* Open instances of the driver. */
    size_t (*instances)(void);

    /* Forgets claims, records, rules, ghosts and counts; tokens start at 1. Ops that are held go on. */
    void (*reset)(void);
} sim_api;

#define SIM_API_SYMBOL "sim_api_v1"
MORTISE_API extern const sim_api sim_api_v1;

#endif
