/* ballot.h - a ballot: one question to several nodes, and their answers; and the tally of the answers about a lock's
 * holder.
 *
 * A ballot is OPEN until its kind decides it: as soon as the answers are enough (WON), or cannot be enough any more, or
 * no more will come (CLOSED). Then its op goes on. The ballot lives until each node has answered or its connection is
 * lost, because a late answer still shows what the node has (claim.h).
 *
 * Each node has a vote in it:
 *
 *   state         event                                     next
 *   NOT_ASKED     sent                                      ASKED, ASKED_ASIDE; FAULT if the node is late
 *                 not to be asked                           ABSENT, OTHER or FAULT, as the kind knows
 *   ASKED         an answer                                 YES, ABSENT, OTHER, or FAULT if it is nonsense
 *                 NOSCRIPT                                  ASKED: sent again with the text of the script, while wanted
 *                 an error; the connection broke;           FAULT
 *                 silent for node_timeout
 *   ASKED_ASIDE   the same, of a node whose vote does       YES_ASIDE instead of YES
 *                 not count (node.h)
 *   the others    a late answer                             no change; it is noted in the claim */
#ifndef MORTISE_DRIVERS_REDLOCK_BALLOT_H
#define MORTISE_DRIVERS_REDLOCK_BALLOT_H

#include "claim.h"

#include "../lib/redis/holder.h"

#define TOKEN_DIGITS 16

struct ballot;

enum vote_state {
    VOTE_NOT_ASKED,
    VOTE_ASKED,
    VOTE_ASKED_ASIDE,
    VOTE_YES,
    VOTE_YES_ASIDE,
    VOTE_ABSENT, /* no: the node has nothing of it */
    VOTE_OTHER,  /* no: another grant has the lock */
    VOTE_FAULT,  /* no answer, an error, down, too late */
    VOTE_STATES
};

struct vote {
    struct link_call call; /* first */
    struct ballot *ballot;
    struct node *node;
    enum vote_state state;
    enum script script; /* SCRIPT_COUNT: none */
    bool by_text;       /* sent with the script's text */
    bool
        had; /* undo: when it was sent, the node had said last that it has the grant; and it did not say
                         * since that it has it no more, which is: */
    bool gone;
    uint64_t need;     /* acquire: a token larger than all that the node knew */
    uint64_t clock_us; /* acquire: its clock, if it did not take the proposed token; else 0 */
};

enum ballot_effect {
    EFFECT_NONE,
    EFFECT_VOTE, /* a lost request may leave a vote in the node */
    EFFECT_UNDO  /* a lost request may delete a vote */
};

struct ballot_kind {
    /* Writes the request: one command to vote->node. NULL: all votes are bundled. */
    void (*put)(struct ballot *ballot, struct vote *vote);
    /* Reads an answer that is no error, even a late one. */
    enum vote_state (*take)(struct ballot *ballot, struct vote *vote, redisReply *reply);
    /* An OPEN ballot has changed: decides it if possible; if `over`, it must decide. NULL: this kind has nothing to decide. */
    void (*look)(struct ballot *ballot, bool over);
    enum ballot_effect effect;
};

#define SEEN_MAX 8

/* A holder, according to some nodes. */
struct seen {
    char grant[GRANT_HEX];
    size_t length; /* shorter: of another kind of client */
    bool shared;   /* it is the marker of a shared lock */
    unsigned nodes;
    unsigned alike; /* of these nodes, those with this token, or, if it is 0, with this time */
    uint64_t token; /* the largest */
    uint64_t since; /* token 0: the earliest */
    int64_t remaining_ms; /* the longest; -1: for ever */
};

struct tally {
    struct seen seen[SEEN_MAX];
    unsigned count;
};

/* A shared holder, according to some nodes. */
struct holder {
    UT_hash_handle hh;
    char grant[GRANT_HEX];
    unsigned nodes;
    mortise_info info; /* with the largest token and the longest time that a node reported */
};

struct holders {
    struct holder *all; /* by grant; when they are settled, in the order of their tokens */
    bool failed;        /* out of memory */
};

enum ballot_state { BALLOT_OPEN, BALLOT_WON, BALLOT_CLOSED };

struct ballot {
    struct ballot *next, *previous; /* in the list of OPEN ballots */
    struct driver *driver;
    const struct ballot_kind *kind;
    enum ballot_state state;
    struct claim *claim; /* a reference */
    unsigned round;      /* the claim's round when it was sent */
    mortise_op *op;      /* the op that waits for it, itself or by its attempt; NULL: none */
    int64_t ttl_ms;
    int64_t sent_ns;          /* before the first request was sent */
    unsigned calls;           /* answers outstanding */
    unsigned asked;           /* nodes that got a request of their own */
    const struct vote *first; /* the first one sent: the others' requests are copies of it */
    unsigned counts[VOTE_STATES];
    unsigned errors;               /* answers that are errors */
    unsigned refusing;             /* a bit for each node that answered it, or its predecessor, with a lasting error */
    char hex[GRANT_HEX + 1];       /* the grant */
    char digits[TOKEN_DIGITS + 1]; /* the token or the time that is sent */
    struct link_fault why;         /* fault_keep(); status OK: none */

    /* acquire */
    bool plain;        /* without tokens: SET asks for the votes */
    uint64_t proposed; /* the token that the votes propose */
    uint64_t token;    /* confirm, renewal: the token that the grant gets, or has */
    unsigned accepted; /* how many counted votes took the proposed token */

    bool begins; /* downgrade: no node had been asked before: the claim was exclusive */

    /* undo, inspect */
    unsigned char undoer;   /* enum undoer */
    struct holders holders; /* the shared holders */
    char mark; /* the mark to leave on the lock if another has it: pubsub.c */
    bool woke; /* a waiter was refused, and is woken */
    unsigned voted; /* how many nodes may have answered its predecessor, without errors, at most */
    struct tally tally;

    struct vote votes[]; /* one per node */
};

/* NULL: no memory. */
struct ballot *ballot_new(struct driver *driver, const struct ballot_kind *kind,
                          struct claim *claim);
/* Sends it to this node, whose link is up. */
void ballot_ask(struct ballot *ballot, unsigned node, enum vote_state asked);
/* Sets the vote of a node that is not asked. */
void ballot_set(struct ballot *ballot, unsigned node, enum vote_state state);
/* Asks all usable nodes; the votes of the others are faults. */
void ballot_ask_usable(struct ballot *ballot);
/* The vote is part of a request for several ballots (renewal.c). That request gets the answer, or is lost, and hands the
 * result on. */
struct vote *ballot_ask_bundled(struct ballot *ballot, unsigned node);
void ballot_answered(struct vote *vote, redisReply *reply);
void ballot_lost(struct vote *vote, enum link_loss loss, const struct link_fault *fault);
/* Every node was asked or set. The ballot may be freed when this returns. */
void ballot_begun(struct ballot *ballot);
/* Only the `look` of the ballot's kind calls it. */
void ballot_decide(struct ballot *ballot, enum ballot_state state);
/* An answer says something about the claim: notes it, if it belongs to the claim's present round. */
void ballot_note(struct vote *vote, enum trace_event event);
/* The info in which the holder must be described, if the op wants that; or NULL. */
static inline mortise_info *ballot_info(const struct ballot *ballot)
{
    const mortise_op *op = ballot->op;
    bool wants = op != NULL && (op->kind == MORTISE_OP_ACQUIRE || op->kind == MORTISE_OP_INSPECT);
    return wants ? op->info : NULL;
}
static inline unsigned ballot_no(const struct ballot *ballot)
{
    return ballot->counts[VOTE_ABSENT] + ballot->counts[VOTE_OTHER];
}
/* This ballot undoes one that failed. It takes over the reason, and which nodes have refused that one. */
void ballot_follow(struct ballot *ballot, const struct ballot *failed);
/* How many nodes have answered, at most: the smaller of the counts for this ballot and for its predecessor. The predecessor counts,
 * too, because a node that refuses votes still executes undos. */
unsigned ballot_answers(const struct ballot *ballot);
/* Stops waiting for nodes that are silent. */
void ballots_turn(struct driver *driver, int64_t now_ns);
int64_t ballots_due_ns(const struct driver *driver);

/* Parts of requests. */
void ballot_script(struct vote *vote, enum script script, unsigned keys, unsigned arguments);
/* The same for a node without a ballot. True: it sends the script's text. */
bool ballot_script_on(struct node *node, enum script script, unsigned keys, unsigned arguments);
void put_key(const struct vote *vote);
void put_side(const struct vote *vote, const char *word);
void put_grant(const struct vote *vote);
void put_digits(const struct vote *vote);
/* Whether the reply is NOSCRIPT to a script that was called by its digest. If so, nothing was executed, and the text must
 * be sent. */
bool script_is_unknown(const redisReply *reply, bool by_text);
/* Sets ballot->digits. */
void ballot_number(struct ballot *ballot, uint64_t number);

/* ---- tally.c -------------------------------------------------------------------------------------------- */

/* Counts a reply {remaining, value, now}; for a shared lock {remaining, marker, now, number of holders, value of one} or,
 * from look.lua, a list of holders. False: it is no such reply. Fills info (may be NULL) with the holder that most nodes
 * name. */
bool tally_add(struct tally *tally, const redisReply *reply, mortise_info *info);
/* The holder that most nodes name; NULL: none. */
const struct seen *tally_best(const struct tally *tally);
/* Whether q nodes name it by votes of one round. If so, it has the lock, or its undo is announced. */
bool tally_is_sure(const struct driver *driver, const struct seen *best);
/* Whether it may hold the lock, if the `unknown` nodes have it, too. */
bool tally_is_held(const struct driver *driver, const struct seen *best, unsigned unknown);

/* ---- holders.c ------------------------------------------------------------------------------------------ */

/* Adds the list in a reply of look.lua, if the lock is shared. */
void holders_add(struct holders *holders, const redisReply *reply);
/* Keeps those that may hold the lock, if the `unknown` nodes have it, too. Sorts them by token. Returns how many there are. */
unsigned holders_settle(struct holders *holders, const struct driver *driver, unsigned unknown);
void holders_free(struct holders *holders);

#endif
