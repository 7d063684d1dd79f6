/* redlock.h - what the files of the Redlock driver share, and what each file does. protocol.md has the protocol: the
 * requests to a node, their answers, and what the client may believe afterwards.
 *
 *   module.c     the module's table and options; opens, turns and closes an instance
 *   dispatch.c   ops arrive, wait for nodes, are canceled
 *   acquire.c    ACQUIRE: rounds of votes, the token
 *   vote.c       what an acquire asks of a node, and how the answer is read
 *   renewal.c    RENEW: many in one request, with the repair of lost votes
 *   release.c    RELEASE
 *   inspect.c    INSPECT, BREAK, PING
 *   findings.c   what PING adds for `mortise doctor`
 *   list.c       LIST
 *   pubsub.c     wakes waiters when a lock is released
 *   courtesy.c   lets the woken waiters ask before the client that released
 *   pause.c      how long contenders pause that have split the votes
 *   bar.c        a waiting writer keeps new readers out
 *   undo.c       removes a claim from the nodes, now or when they are back
 *   ballot.c     one question to several nodes, and what they answer: ballot.h
 *   tally.c      who holds a lock, according to several nodes
 *   holders.c    the shared holders, according to several nodes
 *   claim.c      what the nodes may have of a grant id: claim.h
 *   outcome.c    how an op ends
 *   node.c       the nodes: connected, usable, trusted: node.h
 *   clock.c      the time in the nodes, for the proposed tokens
 *   scripts/     what a node executes: one script is one atomic step
 *
 * A file calls the files below it directly. It calls files above it through tables of functions: node_events,
 * ballot_kind. Connections and their faults are in ../lib/redis. Of N nodes (odd) q = N/2 + 1 are a quorum. The pump
 * lets in only one thread at a time. */
#ifndef MORTISE_DRIVERS_REDLOCK_REDLOCK_H
#define MORTISE_DRIVERS_REDLOCK_REDLOCK_H

#include "../lib/redis/channels.h"
#include "ballot.h"

#define TOKEN_MAX UINT64_C(9007199254740991) /* the largest exact number in a script */
#define FLOOR_MAX (TOKEN_MAX - UINT32_MAX)   /* leaves room for tokens above it */
#define MARK '+' /* a refused caller's, in place of the first space of a value: pubsub.c */
#define MARKS 80
#define COURTESIES 64
#define BARRED 64
#define TICK_NS (INT64_C(250) * NS_PER_MS) /* how often undos are repeated */
#define RENEW_MAX 128                      /* renewals in one script: a tenth of a millisecond */

enum option {
    OPTION_NODES,
    OPTION_NODE_TIMEOUT,
    OPTION_MAX_TTL,
    OPTION_NODE_PERSISTENT,
    OPTION_FENCING,
    OPTION_FOREIGN,
    OPTION_RETRY,
    OPTION_USERNAME,
    OPTION_PASSWORD,
    OPTION_DATABASE,
    OPTION_TLS,
    OPTION_TLS_CA,
    OPTION_TLS_CERT,
    OPTION_TLS_KEY,
    OPTION_CONNECT_TIMEOUT,
    OPTION_COMMAND_TIMEOUT,
    OPTION_COUNT
};

/* ---- what an op waits for: its driver_data ----------------------------------------------------------- */

enum op_place {
    OP_NOWHERE, /* it is being started, or has ended */
    OP_WAITING, /* it waits for nodes, in driver->waiting */
    OP_ATTEMPT, /* ACQUIRE: a struct attempt */
    OP_BALLOT,  /* a struct ballot, whose `op` it is */
    OP_LIST     /* a struct list */
};

static inline void op_put(mortise_op *op, enum op_place place, void *at)
{
    op->driver_data[0] = at;
    op->driver_data[1] = (void *)(uintptr_t)place;
}

static inline enum op_place op_place(const mortise_op *op)
{
    return (enum op_place)(uintptr_t)op->driver_data[1];
}

/* The object that the op waits for; NULL if the op is in another place. */
static inline void *op_at(const mortise_op *op, enum op_place place)
{
    return op_place(op) == place ? op->driver_data[0] : NULL;
}

/* ---- outcome.c ------------------------------------------------------------------------------------------ */

void op_complete(struct driver *driver, mortise_op *op, mortise_status status);
void op_fail(struct driver *driver, mortise_op *op, mortise_status status, int native,
             bool retryable, const char *text);
void op_fail_memory(struct driver *driver, mortise_op *op);
/* Fails the op because only so many nodes answered. `why` is the fault of one of the others, or NULL. `refusing` has a bit
 * for each node that answered with a lasting error; if it is not 0, `why` is one of these errors. UNREACHABLE becomes
 * BACKEND if the other nodes are no quorum. */
void op_fail_few(struct driver *driver, mortise_op *op, mortise_status status, unsigned answered,
                 const struct link_fault *why, unsigned refusing);

/* ---- undo.c ---------------------------------------------------------------------------------------------- */

/* Who takes votes back. What the answers say about other holders, and whether a bar is set, depends on this. */
enum undoer {
    UNDOER_NOBODY, /* a release, or nobody waits for it */
    UNDOER_READER, /* a refused caller that wants to share the lock */
    UNDOER_WRITER, /* a refused caller that wants it alone */
    UNDOER_WAITER  /* the same, and waits: bars new readers */
};
void undo_put(struct ballot *ballot, struct vote *vote);
enum vote_state undo_take(struct ballot *ballot, struct vote *vote, redisReply *reply);
/* Ends the claim and asks all nodes that may have something of it to delete that. The caller sets the op before
 * ballot_begun(). NULL: out of memory; then the undo is sent later, and no op waits for it. */
struct ballot *undo_new(struct driver *driver, const struct ballot_kind *kind, struct claim *claim,
                        bool announced, enum undoer undoer, char mark);
/* The same, without an op that waits for it. */
void undo_all(struct driver *driver, struct claim *claim);
/* A node is back. */
void undo_node_up(struct driver *driver, const struct node *node);
void undo_turn(struct driver *driver, int64_t now_ns);
int64_t undo_due_ns(const struct driver *driver);

/* ---- vote.c ---------------------------------------------------------------------------------------------- */

/* Chooses what the votes propose: sets the ballot's token and digits. */
void vote_propose(struct ballot *ballot, const mortise_op *op);
/* For a ballot_kind: asks for a vote. */
void vote_put(struct ballot *ballot, struct vote *vote);
enum vote_state vote_take(struct ballot *ballot, struct vote *vote, redisReply *reply);
/* For a ballot_kind: writes ballot->token on nodes that have the vote. */
void vote_put_token(struct ballot *ballot, struct vote *vote);
enum vote_state vote_take_token(struct ballot *ballot, struct vote *vote, redisReply *reply);
/* If the tokens of other readers were larger: a token that q of the nodes can take. 0: too few nodes have the claim. */
uint64_t vote_outbid_token(const struct ballot *ballot);
/* The smallest token that q of the votes can take, ignoring clocks that are far ahead. */
uint64_t vote_needed_token(const struct ballot *ballot);

/* ---- the ops ----------------------------------------------------------------------------------------------- */

void acquire_start(struct driver *driver, mortise_op *op);
void acquire_cancel(struct driver *driver, mortise_op *op);
void acquire_turn(struct driver *driver, int64_t now_ns);
int64_t acquire_due_ns(const struct driver *driver);

void release_start(struct driver *driver, mortise_op *op);
/* BREAK: releases another client's grant, exclusive or shared, on the nodes that are up. */
void release_foreign(struct driver *driver, mortise_op *op, const mortise_grant_id *grant);

/* n is at most RENEW_MAX. */
void renew_together(struct driver *driver, mortise_op **ops, unsigned n);
/* A node is back: makes the core renew claims whose downgrade too few nodes have answered. */
void renewal_node_up(struct driver *driver);

void inspect_start(struct driver *driver, mortise_op *op);
void break_start(struct driver *driver, mortise_op *op);
void ping_start(struct driver *driver, mortise_op *op);
/* Makes a ballot about the op's name, for which the op waits. NULL: out of memory; the op has failed. */
struct ballot *inspect_ballot(struct driver *driver, mortise_op *op,
                              const struct ballot_kind *kind);

/* findings.c: continues a ping that was answered; adds the findings about the settings, and completes the op. */
void findings_start(struct driver *driver, mortise_op *op);

void list_start(struct driver *driver, mortise_op *op);
void list_cancel(struct driver *driver, mortise_op *op);

/* ---- pubsub.c, courtesy.c ----------------------------------------------------------------------------------- */

void pubsub_open(struct node *node);
void pubsub_close(struct driver *driver);
void pubsub_watch(struct driver *driver, const char *name, size_t name_len);
void pubsub_unwatch(struct driver *driver, const char *name, size_t name_len);
/* The mark that a refused caller leaves on the lock. */
char pubsub_mark(struct driver *driver, const char *name, size_t name_len);
/* The mark that a vote leaves on the lock that it acquires; ' ': none, because this client did not have to wait. */
char pubsub_vote_mark(struct driver *driver, const char *name, size_t name_len);
/* This client has the lock exclusively until then; 0: not exclusively. */
void pubsub_granted(struct driver *driver, const char *name, size_t name_len, int64_t until_ns);
/* q nodes name another holder. */
void pubsub_refused(struct driver *driver, const char *name, size_t name_len,
                    const struct seen *holder);
/* This client releases the lock. */
void pubsub_released(struct driver *driver, const char *name, size_t name_len);
/* This client has lost the lock. */
void pubsub_lost(struct driver *driver, const char *name, size_t name_len);
/* Whether a subscription of this client is in force on that node. */
bool pubsub_listens(const struct node *node, const char *name, size_t name_len);
/* Whether each release of the name is heard. */
bool pubsub_hears(struct driver *driver, const char *name, size_t name_len);
/* A waiting caller need not ask before that instant, because it will be notified; 0: it must ask. */
int64_t pubsub_quiet_until_ns(struct driver *driver, const char *name, size_t name_len);
/* Fills the info of an op that sends no request: this client has the lock, unless it has released it. */
void pubsub_tell_holder(struct driver *driver, const mortise_op *op);
/* The node's other connection broke. */
void pubsub_suspect(struct node *node, const struct link_fault *fault);
void pubsub_turn(struct driver *driver, int64_t now_ns);

/* A release is being sent. */
void courtesy_released(struct driver *driver, const char *name, size_t name_len);
/* The release was answered. `contended`: a waiter was refused before, and is woken now. */
void courtesy_answered(struct driver *driver, const char *name, size_t name_len, bool contended);
/* When an acquire may begin at the earliest. */
int64_t courtesy_until_ns(const struct driver *driver, const mortise_op *op);

/* ---- pause.c ------------------------------------------------------------------------------------------------- */

/* How long an acquire pauses whose votes were split in so many rounds; only a short time unless it `waits`. From now on,
 * woken waiters spread their tries over more time. */
int64_t pause_after_split_ns(struct driver *driver, unsigned rounds, bool waits);

/* ---- bar.c --------------------------------------------------------------------------------------------------- */

/* This client has barred new readers of that name. */
void bar_set(struct driver *driver, const char *name, size_t name_len);
/* Whether it has done so lately, so that its next vote removes the bar. May also be true for another name. */
bool bar_is_set(const struct driver *driver, const char *name, size_t name_len);

/* ---- dispatch.c ------------------------------------------------------------------------------------------------ */

void dispatch_start(struct driver *driver, mortise_op **ops, size_t n);
void dispatch_cancel(struct driver *driver, mortise_op *op);
/* Starts ops that waited for nodes, if enough nodes are connected. */
void dispatch_look(struct driver *driver);

/* ---- the instance --------------------------------------------------------------------------------------------- */

/* A contended name that this client released, found by its hash. A later name may take its slot. */
struct courtesy {
    unsigned hash;
    int64_t until_ns;     /* others come first until then */
    int64_t contended_ns; /* the name counts as contended until then */
};

struct driver {
    mortise_host *host;
    const mortise_value *values;
    const char *section; /* "redlock:five", for messages of open */
    struct node nodes[NODES_MAX];
    const struct node_events *node_events;
    unsigned count, quorum;

    bool fencing, persistent, foreign_polled;
    bool deaf;              /* a node refuses SUBSCRIBE */
    struct unheard unheard; /* fewer than q nodes answer a SUBSCRIBE */
    int64_t retry_ms, node_timeout_ns, max_ttl_ms;
    char note[MORTISE_NOTE_MAX + 1];
    size_t note_len;

    mortise_op *waiting;    /* OP_WAITING: utlist, by next and previous */
    int64_t fresh_until_ns; /* until then, ops wait for first connections */
    int64_t active_ns;      /* when an op last came */
    int64_t turned_ns;

    struct ballot *open_ballots;
    struct claim *claims, *ending; /* all by grant; those that are ENDING, by until_ns */
    int64_t tick_ns;               /* undos are repeated */
    int64_t sweep_ns;              /* when WANTED claims may have expired */
    struct attempt *pausing;
    int64_t proposed_us;     /* the last token that was proposed */
    int64_t spread_ns;       /* the time over which woken waiters spread their tries */
    struct channel *watched; /* struct watched, by channel */
    int64_t news_due_ns;     /* when the first of them notifies the core */
    struct courtesy courtesies[COURTESIES];
    int64_t barred_until_ns[BARRED]; /* by hash: names that this client has barred */
};

static inline int64_t now_of(const struct driver *driver)
{
    return driver->host->now(driver->host);
}

/* Any number below `limit` (> 0). */
static inline uint64_t random_below(struct driver *driver, uint64_t limit)
{
    uint64_t random;
    driver->host->random(driver->host, &random, sizeof(random));
    return random % limit;
}

#endif
