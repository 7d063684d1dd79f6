/* internal.h - the Redlock driver's own structures, which file does what with them, and what can go wrong.
 *
 *   module.c     the module's table and options; opens and closes an instance; the turn
 *   node.c       the nodes: connected to, known to be down, guarded after a restart
 *   flow.c       ops come in, wait for nodes, are canceled, end
 *   ballot.c     one request to several nodes, and what they answered
 *   claim.c      what may stand in the nodes under a grant, until it is known to be gone
 *   attempt.c    acquire: votes, token, undoing, again after a while
 *   lease.c      release, and undoing what nobody wants
 *   renew.c      renewals, many in one request, with repair
 *   clock.c      what time it is in the nodes, for the tokens that are proposed
 *   tally.c      who has a lock, of what several nodes say
 *   look.c       inspect, ping; list.c
 *   news.c       who waits is told of a release
 *   courtesy.c   …and comes before who released
 *   scripts/     what is executed in a node: one script is one atomic step
 *
 * Connections and their faults are ../lib/redis's. N nodes (odd), independent masters; q = N/2 + 1 is a quorum. In a
 * node there is of a lock named L (with the namespace before it):
 *
 *   L                   the lock: "<grant> <token, 16 digits> <since, us>\n<note>", which expires with its ttl; with a mark
 *                       in place of the first space from when somebody was refused there: see news.c
 *   {L}:mortise:token   the largest token that this node was told of; for a day after its time
 *   {L}:mortise:news    the channel that tells of a release
 *
 * ACQUIRE (attempt.c)
 *
 *              usable      yes of q                    written by q
 *   waiting ─────────▶ asking ────────────▶ confirming ────────────▶ granted
 *      ▲                 │ q cannot be had       │ q cannot be had    (from asking at once, where q took the token
 *      │                 │                       │                     that was proposed; or without fencing)
 *      │                 ▼                       ▼
 *      │               undoing, on ALL nodes that may have a vote of ours
 *      │                 │ another has a quorum: BUSY       too few nodes answer: UNREACHABLE, INDETERMINATE
 *      │                 ▼ nobody has one: a split vote
 *      └──────────── pausing, for a random time, longer each round; BUSY after some rounds
 *
 *   asking: each vote is SET NX PX in the node (ask.lua), sent to all usable nodes in one go. The deadline counts
 *     from before the first was sent. Decided as soon as q say yes, or cannot any more.
 *   A reply is lost, the connection breaks: the vote may be there, or may come to be: the bit of this node stays in
 *     claim->maybe until an undo behind it was answered. The link ends the old connection in the server before
 *     anything is asked on a new one; where it may not (unsettled), the undo is repeated until the ttl has passed. While
 *     the node is not reached the claim is kept: the vote may lie unread in its sockets for longer than any ttl.
 *   An undo has no answer, and its connection broke: it may be executed later, and would delete a vote that the same
 *     grant gets meanwhile. Until the node is settled, this grant gets no vote there, and no renewal of it counts there
 *     (claim->stray). If that leaves fewer than q nodes, the op ends so that the core takes another grant id.
 *   A yes comes late: after a grant it is one vote more. After a failure the undo is behind it, on the same
 *     connection, or on the next one (claim.c remembers it).
 *   A node hangs: when it has been silent for node_timeout all who wait for it give it up; and it is not asked any more
 *     (is not `usable`) as long as its oldest answer is that late. One that answers, however many before us, does not. Undos
 *     are sent to it all the same. Its socket is looked at before: it may be this process that stood still.
 *   A node is down: nothing is sent, so nothing has to be undone there. It is tried in the background.
 *   A node was started less than max_ttl ago: it may have forgotten votes of grants that still hold. It is asked, but
 *     its vote does not count (ASIDE), unless node_persistent. No ttl is longer than max_ttl, so after that nothing
 *     that it forgot can be held. "Less than" goes by what the server says, and by this host's clock from when its
 *     run id was first seen to be another.
 *   The process is stopped between the votes and the decision: the deadline counts from before them, and the core
 *     looks at the clock; the confirmation is refused where the vote has expired.
 *   The token: the client proposes one with the votes, a little ahead of the nodes' clocks (clock.c). A node that gives
 *     its vote takes it if it is larger than any that it knew and not behind its clock; else it says what would be.
 *     Where q nodes have taken it the grant is complete, after one round trip. Else confirming: what q counted votes
 *     can take is written, as a maximum, to nodes where the lock still is this grant's; q of them.
 *     Either way q nodes have written this token while they had this grant's vote. A later grant has its votes from
 *     q nodes: one of them is among those, and wrote before that vote (had the later vote been there first, the write
 *     would have been refused). It took, or asked for, a larger one. A late write is refused, or lowers nothing.
 *   A node was emptied: what it knew of tokens is lost; they grow by the clocks then, q of which a token is not behind.
 *   undoing: BUSY is told when our own votes are gone, so the same grant id can be used again. An undo tells (loud) who
 *     waits if others may have taken our votes for a quorum; a split does not, or waiters would wake each other for ever.
 *   The caller gives up: the op ends at once; the core releases that grant id, behind all that was sent.
 *   The same grant id comes again: ask.lua finds its own vote and extends it. A grant that was told of and not ended
 *     (claim->token) is asked for with its token, which nodes that have it accept; where q do, it is the same hold. Undos of
 *     a former try that are on the way come before the new votes; their answers no longer say anything about them, and one
 *     that is answered NOSCRIPT is not sent again (claim->generation).
 *   Out of memory: before anything was sent NOMEM; for an undo: claim->again, by timer. Half a command breaks the link.
 *   Two threads: the pump lets one in at a time.
 *
 * RENEW (renew.c): OK when q nodes have the grant still; LOST when q cannot have it any more, then it is undone
 *   everywhere; else UNREACHABLE. Nodes that have lost it (restarted, or they refused it once) get it back, after and
 *   only after q were seen to have it (repair.lua).
 *   A repair after the release: it is not sent once the claim is ending. One on the way is before the undo.
 *   A repaired vote on a restarted node: counts for the holder. No other has a quorum then: it would need this node's
 *     vote, which is not counted for others as long as the holder's q stand.
 *   A holder without q: no repair, LOST; its leftovers are undone.
 *
 * RELEASE: an undo on all nodes in `maybe`, done when q answered; the others go on by themselves: sent when a node that
 *   was down is back. UNREACHABLE, INDETERMINATE: the core asks again. `sure` when of q nodes it is known that nothing is
 *   left, and nothing can come.
 *   A node hangs without whose word it is not known whether the grant still had q: it is waited for until it is slow; then
 *   the others' word is enough, if none of them has lost it.
 *
 * BREAK: looks which grant has that token, and undoes that one. */
#ifndef MORTISE_DRIVERS_REDLOCK_INTERNAL_H
#define MORTISE_DRIVERS_REDLOCK_INTERNAL_H

#include "../lib/redis/holder.h"
#include "../lib/redis/script.h"
#include "scripts.h"

#include <string.h>

#define HASH_NONFATAL_OOM 1 /* an element that could not be added has hh.tbl == NULL */
#include <uthash.h>
#include <utlist.h>

#define NODES_MAX 15
#define TOKEN_MAX UINT64_C(9007199254740991) /* what a number in a script holds exactly */
#define FLOOR_MAX (TOKEN_MAX - UINT32_MAX)   /* leaves room for tokens above it */
#define TOKEN_DIGITS 16
#define MARK '+' /* or one behind it, in place of the first space: somebody was refused */
#define MARKS 80
#define QUOTED_SIZE 160
#define COURTESIES 64
#define NS_PER_MS INT64_C(1000000)

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

struct driver;
struct ballot;
struct attempt;

/* ---- node.c ---------------------------------------------------------------------------------------- */

struct node {
    struct driver *driver;
    unsigned index;
    struct link_settings settings;
    struct link link, news;
    bool known[SCRIPT_COUNT]; /* by the server, as far as this connection has told it */
    bool slow;                /* silent for a part of node_timeout: who can do without it does */
    bool late;                /* silent for node_timeout: nobody waits for it any more */
    bool fresh;               /* wanted, and no attempt to connect has ended */
    bool twin;                /* another name of a server that votes already */
    char run_id[41];          /* of the process that was seen last */
    int64_t ahead_us;         /* of its clock to this host's BOOTTIME; 0: not known */
    int64_t trip_ns;          /* how long its answers take, smoothed; 0: not known */
    int64_t alive_ns;         /* when that was last heard of */
    int64_t guarded_until_ns; /* its vote does not count before */
};

void node_open(struct driver *driver, struct node *node);
/* Ops are here: all nodes are to be connected to. */
void nodes_want(struct driver *driver);
/* When its oldest answer is late: it has been silent for node_timeout. */
int64_t node_late_ns(const struct node *node);
/* When it is slow: it has been silent for an eighth of that. */
int64_t node_slow_ns(const struct node *node);
/* It can be asked: connected, and no answer is late. */
bool node_is_usable(const struct node *node, int64_t now_ns);
bool node_counts(const struct node *node, int64_t now_ns);
unsigned nodes_usable(const struct driver *driver, bool counted);
/* When the votes of a quorum of usable nodes count; 0: they do, or there are too few. */
int64_t nodes_vote_in_ms(const struct driver *driver);
/* Nothing is gained by waiting for more nodes. */
bool nodes_are_ready(const struct driver *driver);
/* Of a node that refuses us for good, if so many do that there is no quorum; or NULL. */
const struct link_fault *nodes_refusal(const struct driver *driver);
/* Why one of those is missing that are needed; "" if none is. */
const char *nodes_problem(const struct driver *driver);
size_t nodes_interest(const struct driver *driver, struct pollfd *fds, size_t capacity,
                      int64_t *due_ns);

/* ---- claim.c ----------------------------------------------------------------------------------------- */

/* What may stand in the nodes under one grant. There is one from before the first vote is asked for until all
 * nodes are known to have nothing. Bits are nodes. */
struct claim {
    UT_hash_handle hh;
    mortise_grant_id grant;
    struct claim *next, *previous; /* of those that are ending */
    unsigned references;
    unsigned generation; /* of its votes: an undo of older ones says nothing of these */
    uint32_t maybe;      /* a vote may be there, or come to be */
    uint32_t broken;     /* it was asked for on a connection that broke, and may be executed yet */
    uint32_t stray;      /* an undo was lost with its connection, and may be executed yet */
    uint32_t again;      /* to be undone once more, by timer */
    uint32_t votes;      /* said last that they have it */
    uint64_t token;      /* of the grant that was told of last, while it is wanted; 0: none */
    bool listed;         /* in the table */
    bool ending, loud;   /* nobody wants it; who waits is to be told */
    bool awaited;        /* the core does not know how it ended: it asks again or releases */
    int64_t until_ns;    /* whatever there is has expired by then; ending: that can be */
    size_t name_len;
    char name[];
};

/* Of the op's grant: found, or made. A reference of the caller's. NULL without memory. */
struct claim *claim_take(struct driver *driver, const mortise_op *op);
struct claim *claim_find(struct driver *driver, const mortise_grant_id *grant);
/* One that is in no table: of a name, or of another's grant. */
struct claim *claim_new(const char *name, size_t name_len);
struct claim *claim_ref(struct claim *claim);
void claim_unref(struct claim *claim);
/* Its votes are wanted (again). */
void claim_begin(struct driver *driver, struct claim *claim);
/* Its votes live for so long, if they are not renewed. */
void claim_lasts(struct claim *claim, int64_t from_ns, int64_t ttl_ms);
/* What the node said of votes of that generation. */
void claim_told(struct claim *claim, unsigned generation, unsigned node, bool has_it);
void claim_end(struct driver *driver, struct claim *claim, bool loud);
/* An undo of that generation was answered by the node. */
void claim_undone(struct driver *driver, struct claim *claim, unsigned generation, unsigned node);
/* An undo has failed: it is to be sent again. */
void claim_again(struct driver *driver, struct claim *claim, uint32_t nodes);
/* A node is back: what is to be undone there. */
void claims_node_up(struct driver *driver, const struct node *node);
/* The node may yet execute an undo of this grant: its vote does not count, and is not asked for. */
bool claim_is_stray(const struct driver *driver, const struct claim *claim, unsigned node);
void claims_turn(struct driver *driver, int64_t now_ns);
int64_t claims_due_ns(const struct driver *driver);
void claims_free(struct driver *driver);

/* ---- ballot.c ------------------------------------------------------------------------------------------ */

enum vote_state {
    VOTE_NOT_ASKED,
    VOTE_ASKED,
    VOTE_ASKED_ASIDE, /* of a node whose vote does not count */
    VOTE_YES,
    VOTE_YES_ASIDE,
    VOTE_NO,
    VOTE_FAULT, /* no answer, an error, down, too late */
    VOTE_STATES
};

struct vote {
    struct link_call call; /* first */
    struct ballot *ballot;
    struct node *node;
    enum script script; /* SCRIPT_COUNT: none */
    bool by_text;       /* the script's */
    bool under_way;     /* its answer will come, or its loss */
    bool gone;          /* renew: the node has lost it */
    uint64_t need;      /* acquire: the smallest token that the node can take */
    enum vote_state state;
};

struct ballot_kind {
    /* The request: a command to vote->node. */
    void (*put)(struct ballot *ballot, struct vote *vote);
    /* An answer that is no error. Called for late ones, too. */
    enum vote_state (*take)(struct ballot *ballot, struct vote *vote, redisReply *reply);
    /* Something has changed, nothing is decided: decides, if it can be (ballot_decide). `over`: it must be. NULL: there is
     * nothing to decide. */
    void (*look)(struct ballot *ballot, bool over);
    bool places; /* a lost request may leave a vote in the node */
    bool undoes;
};

#define SEEN_MAX 8

/* One who has the lock according to some nodes. */
struct seen {
    char grant[GRANT_HEX];
    size_t length; /* less: of another kind of client */
    unsigned nodes;
    uint64_t token;
    int64_t remaining_ms; /* the longest; -1 for ever */
};

struct tally {
    struct seen seen[SEEN_MAX];
    unsigned count;
};

struct ballot {
    struct ballot *next, *previous; /* among the undecided; or free */
    struct driver *driver;
    const struct ballot_kind *kind;
    struct claim *claim;
    unsigned generation;     /* of the claim's votes */
    mortise_op *op;          /* NULL: it has none, was canceled, has ended */
    struct attempt *attempt; /* likewise */
    mortise_info *info;      /* the op's, to be filled; or NULL */
    int64_t ttl_ms;
    int64_t sent_ns;          /* before the first was sent */
    uint64_t proposed;        /* of this token it was asked whether it can be */
    uint64_t token;           /* the smallest that all who said yes can take */
    unsigned accepted;        /* have taken it; of votes that count */
    unsigned calls;           /* under way */
    const struct vote *first; /* whose bytes are those of the others */
    bool decided, won;
    char mark;        /* undo: left on the lock where another has it */
    bool told;        /* release: somebody was refused */
    bool repeat;      /* the grant may have votes already */
    bool missing;     /* release: a node that had it has it no more */
    unsigned others;  /* of the no: another has it */
    unsigned certain; /* nothing is left there, and nothing can come */
    unsigned counts[VOTE_STATES];
    char hex[GRANT_HEX + 1];       /* the grant */
    char digits[TOKEN_DIGITS + 1]; /* of the token, or of the time, that is sent */
    struct link_fault why;         /* of the last fault; status OK: none */
    struct tally tally;
    struct vote votes[]; /* one per node */
};

/* NULL without memory. Holds a reference to the claim (its own). */
struct ballot *ballot_new(struct driver *driver, const struct ballot_kind *kind,
                          struct claim *claim);
/* The node's link is up. */
void ballot_ask(struct ballot *ballot, unsigned node, enum vote_state asked);
void ballot_set(struct ballot *ballot, unsigned node, enum vote_state state);
/* Its vote of that node is a part of a request (renew.c); each is told the answer, or the loss. */
struct vote *ballot_ask_bundled(struct ballot *ballot, unsigned node);
void ballot_answered(struct vote *vote, redisReply *reply);
void ballot_lost(struct vote *vote, enum link_loss loss, const struct link_fault *fault);
/* All are asked. It may be gone when this returns. */
void ballot_begun(struct ballot *ballot);
void ballot_decide(struct ballot *ballot);
/* Of nodes that are silent no answer is waited for. */
void ballots_turn(struct driver *driver, int64_t now_ns);
int64_t ballots_due_ns(const struct driver *driver);
void ballots_free(struct driver *driver);
/* The commands of requests. */
void ballot_script(struct vote *vote, enum script script, unsigned keys, unsigned arguments);
bool ballot_script_on(struct node *node, enum script script, unsigned keys, unsigned arguments);
void put_key(const struct vote *vote);
void put_side(const struct vote *vote, const char *word);
void put_grant(const struct vote *vote);
void put_digits(const struct vote *vote);
/* Sets them. */
void ballot_number(struct ballot *ballot, uint64_t number);
/* Asks all usable nodes; the others are faults. */
void ballot_ask_usable(struct ballot *ballot);

/* ---- tally.c ---------------------------------------------------------------------------------------------- */

/* {remaining, value, now}; info (may be NULL) is filled if it is of the one seen most. False: it is not that. */
bool tally_add(struct tally *tally, const redisReply *reply, mortise_info *info);
const struct seen *tally_best(const struct tally *tally);
/* Whether it holds the lock, for all that is known: `unknown` nodes may have it, too. */
bool tally_is_held(const struct driver *driver, const struct seen *best, unsigned unknown);

/* ---- clock.c ------------------------------------------------------------------------------------------------ */

/* A node's clock says now_us in an answer to a request that was sent then. */
void clock_note(struct node *node, int64_t sent_ns, int64_t now_us);
/* How long the answers of a quorum take, within bounds: who lets others go first waits by it. */
int64_t clock_quorum_trip_ns(const struct driver *driver);
/* This host's wall clock, for people to read. */
uint64_t clock_wall_us(void);
/* A token that is probably in time for all nodes; the floor, if nothing is known of their clocks. */
uint64_t clock_propose(struct driver *driver, uint64_t floor);

/* ---- attempt.c ---------------------------------------------------------------------------------------------- */

void attempt_start(struct driver *driver, mortise_op *op);
void attempt_cancel(struct driver *driver, mortise_op *op);
/* Its votes are undone, as far as nodes answer. */
void attempt_undone(struct attempt *attempt, const struct ballot *undone);
void attempts_turn(struct driver *driver, int64_t now_ns);
int64_t attempts_due_ns(const struct driver *driver);
void attempts_free(struct driver *driver);

/* ---- lease.c -------------------------------------------------------------------------------------------------- */

void lease_release(struct driver *driver, mortise_op *op);
/* Undoes the claim on all nodes that may have it. NULL: out of memory, it is done later. The op or attempt is set by
 * the caller, before ballot_begun. */
struct ballot *undo_new(struct driver *driver, struct claim *claim, bool loud, char mark);
/* On one node, with nobody waiting for it. */
bool undo_on(struct driver *driver, struct claim *claim, unsigned node);
/* On all nodes, for nobody: those that are away are told when they are back. */
void undo_all(struct driver *driver, struct claim *claim);

/* ---- renew.c -------------------------------------------------------------------------------------------------- */

#define RENEW_MAX 128 /* in one script: a tenth of a millisecond */

/* At most RENEW_MAX. */
void renew_together(struct driver *driver, mortise_op **ops, unsigned n);

/* ---- look.c, list.c --------------------------------------------------------------------------------------------- */

void look_inspect(struct driver *driver, mortise_op *op);
void look_break(struct driver *driver, mortise_op *op);
void look_ping(struct driver *driver, mortise_op *op);
void list_start(struct driver *driver, mortise_op *op);
bool list_cancel(struct driver *driver, mortise_op *op);

/* ---- news.c --------------------------------------------------------------------------------------------------------- */

void news_open(struct node *node);
void news_close(struct driver *driver);
void news_watch(struct driver *driver, const char *name, size_t name_len);
void news_unwatch(struct driver *driver, const char *name, size_t name_len);
/* What is to be left on the lock by who is refused. */
char news_mark(struct driver *driver, const char *name, size_t name_len);
void news_granted(struct driver *driver, const char *name, size_t name_len);
void news_suspect(struct node *node, const struct link_fault *fault);
void news_turn(struct driver *driver, int64_t now_ns);

/* ---- courtesy.c --------------------------------------------------------------------------------------------------- */

void courtesy_released(struct driver *driver, const char *name, size_t name_len);
/* The release is answered: whether somebody was refused, and was told. */
void courtesy_told(struct driver *driver, const char *name, size_t name_len, bool told);
/* An acquire is not to begin before. */
int64_t courtesy_until_ns(const struct driver *driver, const mortise_op *op);

/* ---- flow.c ----------------------------------------------------------------------------------------------------------- */

void flow_start(struct driver *driver, mortise_op **ops, size_t n);
void flow_cancel(struct driver *driver, mortise_op *op);
/* Something about the nodes has changed. */
void flow_look(struct driver *driver);
void flow_flush(struct driver *driver);
void flow_complete(struct driver *driver, mortise_op *op, mortise_status status);
void flow_fail(struct driver *driver, mortise_op *op, mortise_status status, int native,
               bool retryable, const char *text);
void flow_fail_memory(struct driver *driver, mortise_op *op);
/* Too few nodes answered: so many did; why is of one of them, or NULL. */
void flow_fail_few(struct driver *driver, mortise_op *op, mortise_status status, unsigned answered,
                   const struct link_fault *why);

/* A name that this client released, by its hash; a place has the last contended one that belongs there. */
struct courtesy {
    unsigned hash;
    int64_t until_ns;     /* others come first until then */
    int64_t contended_ns; /* somebody was refused, not long before this */
};

/* ---- the instance --------------------------------------------------------------------------------------------------------- */

struct driver {
    mortise_host *host;
    const mortise_value *values;
    char section[80]; /* "redlock:five", for messages */
    struct node nodes[NODES_MAX];
    unsigned count, quorum;

    bool fencing, persistent, foreign_polled;
    bool deaf; /* subscribing is refused */
    int64_t retry_ms, node_timeout_ns, max_ttl_ms;
    char note[MORTISE_NOTE_MAX + 1];
    size_t note_len;

    mortise_op *waiting;    /* for nodes: utlist, by next and previous */
    int64_t fresh_until_ns; /* so long the first connections are waited for */
    int64_t active_ns;      /* when an op last came */
    int64_t turned_ns;

    struct ballot *undecided, *free_ballots;
    unsigned free_ballot_count;
    int64_t proposed_us; /* the last token */
    struct claim *claims, *ending;
    int64_t again_ns, sweep_ns;
    struct attempt *attempts, *free_attempts; /* those that pause: utlist */
    int64_t spread_ns;       /* how far those who were told of a release spread their tries */
    struct watched *watched; /* by channel */
    int64_t news_due_ns;     /* of the first of them that is to be told of */
    struct courtesy courtesies[COURTESIES];
};

static inline int64_t now_of(const struct driver *driver)
{
    return driver->host->now(driver->host);
}

/* Any number below `limit` (> 0). */
uint64_t random_below(struct driver *driver, uint64_t limit);

#endif
