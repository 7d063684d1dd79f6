/* redlock.h - what the files of the Redlock driver share, and which file does what. protocol.md has the protocol: the
 * requests to a node, their answers, and what the client may believe afterwards.
 *
 *   module.c     the module's table and options; opens, turns and closes an instance
 *   dispatch.c     ops arrive, wait for nodes, are canceled
 *   acquire.c    ACQUIRE: rounds of votes, the token
 *   vote.c       what an acquire asks of a node, and how the answer is read
 *   renewal.c    RENEW: many in one request, with the repair of lost votes
 *   release.c    RELEASE
 *   inspect.c    INSPECT, BREAK, PING
 *   findings.c   what PING adds for `mortise doctor`
 *   list.c       LIST
 *   pubsub.c       wakes waiters when a lock is released
 *   courtesy.c   ... and come before the client that released
 *   pause.c      how long contenders pause that have split the votes
 *   bar.c        a waiting writer keeps new readers out
 *   undo.c       takes a claim off the nodes, now or when they are back
 *   ballot.c     one question to several nodes, and what they answer: ballot.h
 *   tally.c      who holds a lock, by what several nodes say
 *   holders.c    who shares a lock, by what several nodes say
 *   claim.c      what the nodes may have of a grant id: claim.h
 *   outcome.c    how an op ends
 *   node.c       the nodes: connected, usable, trusted: node.h
 *   clock.c      what time it is in the nodes, for the tokens that are proposed
 *   scripts/     what a node executes: one script is one atomic step
 *
 * A file calls those below it. Those above it are called through tables of functions: node_events, ballot_kind.
 * Connections and their faults are in ../lib/redis. Of N nodes (odd) q = N/2 + 1 are a quorum. The pump lets one thread
 * in at a time. */
#ifndef MORTISE_DRIVERS_REDLOCK_REDLOCK_H
#define MORTISE_DRIVERS_REDLOCK_REDLOCK_H

#include "../lib/redis/channels.h"
#include "ballot.h"

#define TOKEN_MAX UINT64_C(9007199254740991) /* what a number in a script holds exactly */
#define FLOOR_MAX (TOKEN_MAX - UINT32_MAX)   /* leaves room for tokens above it */
#define MARK '+' /* a refused caller's, in place of the first space of a value: pubsub.c */
#define MARKS 80
#define COURTESIES 64
#define BARRED 64
#define TICK_NS (INT64_C(250) * NS_PER_MS) /* how often undos are repeated */
#define RENEW_MAX 128                      /* in one script: a tenth of a millisecond */

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
    OP_WAITING, /* for nodes: in driver->waiting */
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

/* What it waits for; NULL if that is something else. */
static inline void *op_at(const mortise_op *op, enum op_place place)
{
    return op_place(op) == place ? op->driver_data[0] : NULL;
}

/* ---- outcome.c ------------------------------------------------------------------------------------------ */

void op_complete(struct driver *driver, mortise_op *op, mortise_status status);
void op_fail(struct driver *driver, mortise_op *op, mortise_status status, int native,
             bool retryable, const char *text);
void op_fail_memory(struct driver *driver, mortise_op *op);
/* Too few nodes answered: so many did; `why` is the fault of one of the others, or NULL. `refusing`: nodes, a bit each, that
 * answered with an error that lasts: then `why` is one of those. UNREACHABLE becomes BACKEND if the others are no quorum. */
void op_fail_few(struct driver *driver, mortise_op *op, mortise_status status, unsigned answered,
                 const struct link_fault *why, unsigned refusing);

/* ---- undo.c ---------------------------------------------------------------------------------------------- */

/* Who takes votes back: what the answers say of other holders, and whether a bar is set, depends on it. */
enum undoer {
    UNDOER_NOBODY, /* a release, or nobody waits for it */
    UNDOER_READER, /* a caller that was refused, and wants to share the lock */
    UNDOER_WRITER, /* ... wants it alone */
    UNDOER_WAITER  /* the same, and waits: bars new readers */
};
void undo_put(struct ballot *ballot, struct vote *vote);
enum vote_state undo_take(struct ballot *ballot, struct vote *vote, redisReply *reply);
/* Ends the claim and asks all nodes that may have something of it to delete it. The caller sets the op
 * before ballot_begun. NULL: out of memory; it is done later, for nobody. */
struct ballot *undo_new(struct driver *driver, const struct ballot_kind *kind, struct claim *claim,
                        bool loud, enum undoer undoer, char mark);
/* The same for nobody. */
void undo_all(struct driver *driver, struct claim *claim);
/* A node is back. */
void undo_node_up(struct driver *driver, const struct node *node);
void undo_turn(struct driver *driver, int64_t now_ns);
int64_t undo_due_ns(const struct driver *driver);

/* ---- vote.c ---------------------------------------------------------------------------------------------- */

/* What the votes propose: sets the ballot's token and digits. */
void vote_propose(struct ballot *ballot, const mortise_op *op);
/* For a ballot_kind: asks for a vote. */
void vote_put(struct ballot *ballot, struct vote *vote);
enum vote_state vote_take(struct ballot *ballot, struct vote *vote, redisReply *reply);
/* For a ballot_kind: writes ballot->token where the vote is there. */
void vote_put_token(struct ballot *ballot, struct vote *vote);
enum vote_state vote_take_token(struct ballot *ballot, struct vote *vote, redisReply *reply);
/* After the tokens of other readers were larger: a token that q of the nodes can take. 0: too few have the claim. */
uint64_t vote_outbid_token(const struct ballot *ballot);
/* The smallest token that q of the votes can take, with clocks that are far ahead left out of account. */
uint64_t vote_needed_token(const struct ballot *ballot);

/* ---- the ops ----------------------------------------------------------------------------------------------- */

void acquire_start(struct driver *driver, mortise_op *op);
void acquire_cancel(struct driver *driver, mortise_op *op);
void acquire_turn(struct driver *driver, int64_t now_ns);
int64_t acquire_due_ns(const struct driver *driver);

void release_start(struct driver *driver, mortise_op *op);
/* BREAK: releases another client's grant, exclusive or shared, on the nodes that are up. */
void release_foreign(struct driver *driver, mortise_op *op, const mortise_grant_id *grant);

/* At most RENEW_MAX. */
void renew_together(struct driver *driver, mortise_op **ops, unsigned n);
/* A node is back: downgrades that too few nodes have answered are asked for again. */
void renewal_node_up(struct driver *driver);

void inspect_start(struct driver *driver, mortise_op *op);
void break_start(struct driver *driver, mortise_op *op);
void ping_start(struct driver *driver, mortise_op *op);
/* A ballot about the op's name, which the op waits for. NULL: out of memory; the op has failed. */
struct ballot *inspect_ballot(struct driver *driver, mortise_op *op,
                              const struct ballot_kind *kind);

/* findings.c: a ping is answered; adds what the settings mean, and completes the op. */
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
/* The mark that a vote leaves on the lock that it takes; ' ': none, because this client did not have to wait. */
char pubsub_vote_mark(struct driver *driver, const char *name, size_t name_len);
/* This client has the lock alone until then; 0: not alone. */
void pubsub_granted(struct driver *driver, const char *name, size_t name_len, int64_t until_ns);
/* q nodes name another holder. */
void pubsub_refused(struct driver *driver, const char *name, size_t name_len,
                    const struct seen *holder);
/* It releases the lock. */
void pubsub_released(struct driver *driver, const char *name, size_t name_len);
/* It has lost it. */
void pubsub_lost(struct driver *driver, const char *name, size_t name_len);
/* A subscription of this client is in force on that node. */
bool pubsub_listens(const struct node *node, const char *name, size_t name_len);
/* Each release is heard. */
bool pubsub_hears(struct driver *driver, const char *name, size_t name_len);
/* A caller that waits need not ask before, because it will be notified; 0: it asks. */
int64_t pubsub_quiet_until_ns(struct driver *driver, const char *name, size_t name_len);
/* Fills info of an op that does not ask: this client has the lock, unless it has released it. */
void pubsub_tell_holder(struct driver *driver, const mortise_op *op);
/* The node's other connection broke. */
void pubsub_suspect(struct node *node, const struct link_fault *fault);
void pubsub_turn(struct driver *driver, int64_t now_ns);

/* A release is being sent. */
void courtesy_released(struct driver *driver, const char *name, size_t name_len);
/* It was answered: `contended` if a waiter was refused, and is woken. */
void courtesy_answered(struct driver *driver, const char *name, size_t name_len, bool contended);
/* An acquire must not begin before. */
int64_t courtesy_until_ns(const struct driver *driver, const mortise_op *op);

/* ---- pause.c ------------------------------------------------------------------------------------------------- */

/* The votes of an acquire were split in so many rounds: how long it pauses before the next; not long unless it `waits`. And
 * from now on, woken waiters spread their tries over more time. */
int64_t pause_after_split_ns(struct driver *driver, unsigned rounds, bool waits);

/* ---- bar.c --------------------------------------------------------------------------------------------------- */

/* This client has barred new readers of that name. */
void bar_set(struct driver *driver, const char *name, size_t name_len);
/* It has done so lately, so its next vote takes the bar away. Sometimes true of another name. */
bool bar_is_set(const struct driver *driver, const char *name, size_t name_len);

/* ---- dispatch.c ------------------------------------------------------------------------------------------------ */

void dispatch_start(struct driver *driver, mortise_op **ops, size_t n);
void dispatch_cancel(struct driver *driver, mortise_op *op);
/* Starts ops that waited for nodes, if enough are there. */
void dispatch_look(struct driver *driver);

/* ---- the instance --------------------------------------------------------------------------------------------- */

/* A contended name that this client released, by its hash; a later one may take its slot. */
struct courtesy {
    unsigned hash;
    int64_t until_ns;     /* others come first until then */
    int64_t contended_ns; /* it is taken to be contended until then */
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
    struct unheard unheard; /* fewer than q nodes answer one */
    int64_t retry_ms, node_timeout_ns, max_ttl_ms;
    char note[MORTISE_NOTE_MAX + 1];
    size_t note_len;

    mortise_op *waiting;    /* OP_WAITING: utlist, by next and previous */
    int64_t fresh_until_ns; /* first connections are waited for until then */
    int64_t active_ns;      /* when an op last came */
    int64_t turned_ns;

    struct ballot *open_ballots;
    struct claim *claims, *ending; /* all by grant; those that are ENDING, by until_ns */
    int64_t tick_ns;               /* undos are repeated */
    int64_t sweep_ns;              /* WANTED claims may have expired */
    struct attempt *pausing;
    int64_t proposed_us;     /* the last token that was proposed */
    int64_t spread_ns;       /* woken waiters spread their tries over this */
    struct channel *watched; /* struct watched, by channel */
    int64_t news_due_ns;     /* the first of them notifies the core */
    struct courtesy courtesies[COURTESIES];
    int64_t barred_until_ns[BARRED]; /* names, by their hash, that this client has barred */
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
