/* claim.h - a claim: one acquisition of one name, from its first request until the servers can have nothing of it.
 *
 * In the servers a claim is one key below its name, attached to the lease of a session. Here it is in one of these states:
 *
 *   IDLE        wanted; the servers have nothing of it; no call on its way
 *   LOOKING     a shared try; looks before it puts its key
 *   ASKING      its acquire is on its way
 *   UNCERTAIN   its acquire may have been executed, but the reply is lost; waits for a join
 *   QUEUED      has a key; a look is on its way, or will be sent
 *   WAITING     other keys block it, and are being watched
 *   FIRST       no key blocks it; the base of the tokens, or its own note, is being written
 *   READY       has a token; waits until its session is proven for long enough
 *   HELD        granted
 *   GONE        was HELD; its key or its session is gone, so the lease is LOST
 *   UNWANTED    nobody wants it; its acquire is on its way
 *   DOUBTFUL    nobody wants it; its acquire may have been executed; waits for a join
 *   DELETING    nobody wants it; deletes its key
 *   REDELETING  as DELETING, but the key may be gone already: "no key" is a success
 *   ENDED       off all lists; is freed when its last request is answered
 *
 * The table says what happens in each state. "again" is the next connection, the claim's turn in the backlog, or a retry.
 * "unwanted" is a cancel, a release, a failure, a ttl that passed, or a caller that gave up. "session over": the session's
 * lease is gone, and with it every key that was attached to it.
 *
 *   state       answer                                again         unwanted     session over
 *   IDLE        -                                     ASKING a b    ENDED        IDLE
 *   LOOKING     nobody: ASKING; somebody: BUSY c      LOOKING       ENDED        IDLE
 *   ASKING      first: FIRST; blocked: WAITING, a     UNCERTAIN     UNWANTED     IDLE
 *               try: DELETING c; has a key: QUEUED;
 *               not joined: IDLE; somebody, an
 *               exclusive try: BUSY c; lost: UNCERTAIN;
 *               no space: REDELETING f; refused: ENDED g
 *   UNCERTAIN   -                                     ASKING b      DOUBTFUL     IDLE
 *   QUEUED      first: FIRST; blocked: WAITING, a     QUEUED        DELETING     IDLE d
 *               try: DELETING c; no key: IDLE
 *   WAITING     event: QUEUED; its turn: FIRST;       QUEUED        DELETING     IDLE d
 *               watch canceled: QUEUED
 *   FIRST       written: READY; other base or note:   QUEUED        DELETING     IDLE d
 *               QUEUED
 *   READY       proven: HELD                          QUEUED        DELETING     IDLE d
 *   HELD        key deleted: GONE; made shared e      HELD          DELETING     GONE d
 *   GONE        -                                     GONE          ENDED LOST   GONE
 *   UNWANTED    put: DELETING; not put: ENDED;        DOUBTFUL      UNWANTED     ENDED d
 *               has a key: DELETING; lost: DOUBTFUL;
 *               no space: REDELETING f; refused: ENDED g
 *   DOUBTFUL    -                                     REDELETING b  DOUBTFUL     ENDED d
 *   DELETING    done: ENDED; no key: ENDED LOST;      DELETING      DELETING     ENDED d
 *               lost: REDELETING; refused: after a
 *               pause
 *   REDELETING  done, no key: ENDED; refused: after   REDELETING    REDELETING   ENDED d
 *               a pause
 *
 *   a: LOOKING for a shared try. b: when its session is joined. c: the op is BUSY. If two looks have shown the same first
 *   contender, with another number of permits, it is INVALID, whether it is a try or not. Between these looks a claim that
 *   may wait is WAITING for that key, for half a second at most. d: but if a move may have been executed, the claim is QUEUED
 *   instead of IDLE. Instead of GONE it stays HELD, and looks at its own key. Instead of ENDED it is REDELETING, and deletes
 *   the key. e: a renewal with MORTISE_OP_DOWNGRADE puts the key's note again, and is answered when the put is. If the put is
 *   lost: INDETERMINATE, and the repeat puts the same note. If there is no space, the key is read, and its note decides: done
 *   or BACKEND. f: the write that reaches the limit of the database is executed, although it is answered with a refusal. Any
 *   other refusal says that this acquire has made no key. g: but REDELETING if the reply to an earlier acquire was lost, and no
 *   answer since has shown what that acquire has done.
 *
 * MOVES. When a session is LEFT, each of its claims from QUEUED to HELD moves its key to the next session, while it goes on in
 * its state. The request names the lease that the key has, so it takes effect only once, whenever it is executed: no key moves
 * to a lease that was left. Until the move is answered, the deadline is that of the old session. Thousands of claims may have
 * to move. They take turns in the backlog; otherwise the last ones would not be answered within the time of a call, and the
 * connection would be given up.
 *
 *   event                               no move           on its way         unknown
 *   the next session is joined          on its way        -                  on its way
 *   done                                -                 no move            no move
 *   not done, the key has another lease -                 unknown            unknown
 *   not done, no key                    -                 no key a           no key a
 *   refused (no right)                  -                 as before, a pause -
 *   refused (no space)                  -                 unknown, a pause   -
 *   the next session is over            -                 no move b          no move b
 *   the connection is lost              -                 unknown            unknown
 *
 *   a: a HELD claim becomes GONE, any other QUEUED. b: then the key moves anew, to another session; the answer that is still on
 *     its way is ignored.
 *
 * Why the holes are closed:
 *   - An acquire's reply is lost. Each acquire compares the revision of the session's key, and a join changes that revision. So
 *     when the join is answered, the acquire was executed before the join, or never will be. The same acquire again finds the
 *     key, or puts it.
 *   - The same, and the caller gives up: after the join the claim deletes the key, whether or not it exists.
 *   - The session ends before the join: its lease is gone, so the acquire cannot be executed, and its key is gone.
 *   - The predecessor vanishes before it is watched. The watch begins at the revision of the look that showed it, or the key is read
 *     after the watch was made (watch.c).
 *   - The predecessor is a key of this client whose delete is on its way: requests are executed in any order. The acquire deletes
 *     that key, too (*covers* it). The acquire's answer decides whether the covered claim was LOST. If the acquire deleted the
 *     key, the key was there. If not, the answer to the delete counts; the delete is sent again until the acquire is answered.
 *     If the acquire's answer is lost, the covered claim is REDELETING.
 *   - The event comes, and the own key has gone meanwhile. The look after the event shows whether the own key is there. A turn
 *     needs no look, because its watch reports the own key, too (wait.c).
 *   - Somebody deletes the own key. A waiting claim sees it at its next look. A held claim watches its key from a tenth of a
 *     second after the grant on, and then makes the core check (host->doubt).
 *   - The same while there is no connection; or the servers are restored from a snapshot without the key. A held claim looks at
 *     its key after each reconnection, before it watches it again. Until the look is answered, the claim stays HELD.
 *   - The caller gives up without a connection. The claim stays until a server has said that there is no key, or that the
 *     session is over.
 *   - The core asks again after INDETERMINATE: the claim is still here, and serves the new op. If the claim is GONE, it ends, and the
 *     op is BUSY; if it is being deleted, the op is INDETERMINATE.
 *   - The holder is stopped past its deadline. The lease was LOST then. When the process runs again, the core releases the claim.
 *     If the ttl has passed too, the driver notices it and deletes the key. If it is stopped for longer, the servers end the
 *     session.
 *   - The servers refuse the delete (no right): the release reports it, and the claim tries again after a pause. An unwanted
 *     claim keeps no session alive, so the key goes when nothing else in the session is held or wanted.
 *   - Two shared claims with an exclusive one between them. The second one waits for the exclusive one, because nobody
 *     overtakes.
 *   - Three shared claims A, B, C in that order, and B has another number of permits. B waits to see whether A stays. If C got
 *     in, B would be the first as soon as A has gone, and get in too. So C waits for B, and looks again when B is refused, or
 *     after half a second. By then B may be the first; then C is refused.
 *   - The exclusive holder becomes shared while others wait. Its key, its revision and its token stay. Shared claims watch
 *     the last exclusive key before them for changes, too. A holder never becomes exclusive again.
 *   - Several permits come back at once, or not those of the first keys: any event among the P keys before a claim makes it
 *     look again.
 *   - A release and the first requests of a new session arrive around the end of the old session: keys are not named by lease,
 *     so this does no harm.
 *   - A key is used again, and a delete of its earlier claim is still on its way: see KEYS.
 *
 * KEYS. A server remembers each key until its history is compacted. Whenever somebody asks for the queue, it looks at all keys
 * that have existed below the name. So the claims of a name use the same few keys again and again: each has a slot, which is
 * free again when the claim has ended. Requests are executed in any order, and those of a lost connection at any time.
 * Therefore
 *   - a slot below SLOTS is not taken while a call that may change a key with this slot is on its way: a call of a claim that
 *     has ended, or an acquire that covers the key. This holds for all names alike, because an ended claim has no name any
 *     more;
 *   - after a loss of the connection, claims begin another series of keys;
 *   - slots from SLOTS on are never used again, and neither is an instance's random part. */
#ifndef MORTISE_ETCD_CLAIM_H
#define MORTISE_ETCD_CLAIM_H

#include "queue.h"
#include "session.h"

enum claim_state {
    CLAIM_IDLE, /* wanted: up to READY */
    CLAIM_LOOKING,
    CLAIM_ASKING,
    CLAIM_UNCERTAIN,
    CLAIM_QUEUED,
    CLAIM_WAITING,
    CLAIM_FIRST,
    CLAIM_READY,
    CLAIM_HELD,
    CLAIM_GONE,
    CLAIM_UNWANTED, /* nobody wants it: from here on */
    CLAIM_DOUBTFUL,
    CLAIM_DELETING,
    CLAIM_REDELETING,
    CLAIM_ENDED
};

enum move { MOVE_NONE, MOVE_SENT, MOVE_UNKNOWN };

struct claim {
    struct claim *next, *prev;           /* of the name */
    struct claim *next_late, *prev_late; /* in the backlog; prev_late NULL: not there */
    struct name *name;
    mortise_grant_id grant;
    struct kind kind; /* as it was asked for */
    uint32_t slot;
    uint64_t covered_slots; /* of keys that its acquires delete, too, while a call is on its way */
    bool is_busy;           /* ENDED: counts as a call of its slot */
    enum claim_state state;
    mortise_op *op;       /* the acquire that waits for it, or NULL */
    mortise_op *releases; /* utlist: releases that wait for its end */
    uint64_t step;        /* answers to looks and writes of earlier steps are ignored; */
    uint64_t ask;         /* likewise for acquires */
    unsigned pending;     /* calls on their way */
    bool has_looked;      /* a shared try: nobody was there */
    bool made;            /* the servers may have its key, and no acquire is on its way */
    bool maybe;  /* an acquire was lost, and no answer since has shown whether a key exists */
    bool covers; /* its last acquire deletes the key of another claim, too */
    const struct claim
        *covered_by; /* DELETING: the claim whose open acquire also deletes this key; or NULL */

    struct session *session; /* of its acquire, and of its key if `lease` is its lease */
    int64_t lease;           /* of its key; 0: not known */
    struct session *moves_to;
    enum move move;
    bool moves_again;          /* when the move on its way was sent, an earlier one was unknown */
    uint64_t move_step;        /* answers to earlier moves are ignored: the key decides */
    bool untold;               /* its key was moved, and the core was not told yet */
    int64_t created, modified; /* revisions of its key */
    int64_t seen_at;           /* the revision at which its key was last seen; 0: it must be seen */
    int64_t met;               /* the create revision of the last key seen with other permits */
    int64_t queue_base;        /* of the tokens, as its last look has read it; -1: none */
    int64_t noted_base;        /* the base of the tokens in its key; -1: not known */
    int64_t noted_ms;          /* the wall clock in it */
    int64_t base;              /* the base that its token is counted with */
    bool downgraded;           /* it was exclusive, and its key says that it is shared now */
    mortise_op *downgrade;     /* the renewal that waits until the key says so, or NULL */

    int64_t own_watch;
    int64_t *watches; /* of the keys that block it */
    size_t watch_count;

    uint64_t token_floor, token;
    int64_t ttl_ms;
    struct patience patience; /* of its op */
    int64_t from_ns;          /* before the look that showed it as first was sent */
    int64_t ends_ns;          /* when it ends if nobody renews it; NEVER: an op waits for it */
    int64_t look_ns;          /* HELD: when to watch its own key; NEVER: it is watched */
    int64_t retry_ns;         /* when to try again what failed; 0: nothing failed */
    size_t last_len;
    char last[CONTENDER_MAX]; /* of its key: what follows the name's */
};

/* A lock that this client holds, wants or is about to leave. */
struct name {
    UT_hash_handle hh; /* by key */
    struct claim *claims;
    uint64_t slots; /* in use */
    size_t name_len;
    char name[MORTISE_NAME_MAX];
    size_t key_len;
    char key[]; /* "mortise/NAME/" */
};

struct key {
    size_t size;
    char text[KEY_MAX];
};

static inline struct bytes key_bytes(const struct key *key)
{
    return bytes_of(key->text, key->size);
}

static inline bool claim_is_wanted(const struct claim *claim)
{
    return claim->state <= CLAIM_READY;
}

static inline bool claim_is_unwanted(const struct claim *claim)
{
    return claim->state >= CLAIM_UNWANTED;
}

/* Whether its delete is on its way. */
static inline bool claim_is_leaving(const struct claim *claim)
{
    return (claim->state == CLAIM_DELETING || claim->state == CLAIM_REDELETING) &&
           claim->pending > 0 && claim->retry_ns == 0;
}

/* Whether it has a key, as far as is known, and is wanted. */
static inline bool claim_has_key(const struct claim *claim)
{
    return claim->state >= CLAIM_QUEUED && claim->state <= CLAIM_HELD;
}

/* Until when its session is proven to live; 0: nothing is proven for its key. */
static inline int64_t claim_deadline(const struct claim *claim)
{
    const struct session *session = claim->session;
    return session != NULL && session->lease == claim->lease ? session->deadline_ns : 0;
}

/* ---- claim.c -------------------------------------------------------------------------------------- */

struct claim *claim_find(struct driver *driver, const mortise_op *op);
struct claim *claim_new(struct driver *driver, const mortise_op *op);
/* The one place where the state changes. */
void claim_become(struct driver *driver, struct claim *claim, enum claim_state state);
void claim_set_session(struct claim *claim, struct session *session);
void claim_set_move(struct claim *claim, struct session *session);
/* Answers the ops that wait for the claim's end, and takes the claim off all lists. The caller must not touch it any more. */
void claim_end(struct driver *driver, struct claim *claim, mortise_status status);
void claims_free(struct driver *driver);
typedef void claim_visit(struct driver *driver, struct claim *claim);
/* Calls visit for each claim; it may end the claim that it is given. */
void claims_each(struct driver *driver, claim_visit *visit);
/* The driver looks at all claims at that time or earlier. */
void claims_sweep_by(struct driver *driver, int64_t at_ns);
/* HELD: the claim watches its own key at that time, or a little later. */
void claim_look_by(struct driver *driver, struct claim *claim, int64_t after_ns);
/* The claim tries again at that time what failed. */
void claim_retry(struct driver *driver, struct claim *claim, int64_t after_ns);
/* Takes the claim off the backlog. */
void claim_not_late(struct driver *driver, struct claim *claim);
/* Write keys: the claim's own; and the name's prefix with this character behind it, or instead of its last slash (NAME_END). */
void claim_key(const struct claim *claim, struct key *key);
void claim_border(const struct claim *claim, char border, struct key *key);
/* Nobody will learn what its acquire has done to the covered key of another claim. */
void claim_uncover(struct driver *driver, struct claim *claim);
/* Stops watching the keys that block it. */
void claim_unwatch(struct driver *driver, struct claim *claim);
/* Its acquire deletes the key of the other one, too. */
void claim_cover(struct driver *driver, struct claim *claim, struct claim *other);
/* The connection is lost. */
void claims_begin_series(struct driver *driver);
/* Begins a transaction whose answer goes to the claim's present step. NULL: no memory. */
struct call *claim_begin(struct driver *driver, struct claim *claim, reply_handler *answered);
/* Sends the call, and counts it. False: it was not sent; then the acquire has failed, or the claim tries again after a
 * pause. */
bool claim_send(struct driver *driver, struct claim *claim, struct call *call);
/* The claim of an answer that has come, or NULL if the claim has ended. */
struct claim *claim_answered(struct driver *driver, struct call *call);
/* The same; also NULL if the answer belongs to an earlier step, or is lost. */
struct claim *claim_arrived(struct driver *driver, struct call *call);
/* Makes the core check the claim (host->doubt). */
void claim_tell(struct driver *driver, struct claim *claim);
/* HELD: its own key has gone. */
void claim_vanish(struct driver *driver, struct claim *claim);

/* ---- acquire.c ------------------------------------------------------------------------------------ */

/* Goes on from what is known, if the session is ready, or waits for the claim's turn in the backlog. Not for HELD and GONE. */
void claim_go(struct driver *driver, struct claim *claim);
/* Whether the claim must wait until fewer calls are on their way. If so, it is in the backlog now. */
bool claim_is_late(struct driver *driver, struct claim *claim);
/* Lets claims of the backlog go on, as far as there is room. */
void claims_go_late(struct driver *driver);
/* Looks at the queue. The claim must have a key. */
void claim_look(struct driver *driver, struct claim *claim);

/* ---- wait.c --------------------------------------------------------------------------------------- */

/* A look of that revision shows that others block the claim: watches them. */
void claim_wait(struct driver *driver, struct claim *claim, const struct queue_view *view,
                int64_t revision);

/* ---- grant.c -------------------------------------------------------------------------------------- */

/* The claim is the first of its queue: gets its token, and then the grant. tokens: %tokens as the look has read it. */
void claim_be_first(struct driver *driver, struct claim *claim, const struct kvs *tokens,
                    uint64_t cluster);
/* The only key before the claim's own was deleted at that revision, and had that value. */
void claim_turn(struct driver *driver, struct claim *claim, int64_t revision, struct bytes before);
/* READY or HELD: answers the acquire, if the session is proven for long enough. */
void claim_grant(struct driver *driver, struct claim *claim);
void tokens_key(const struct driver *driver, struct key *key);
/* The servers have another history: link.h. */
void tokens_history(struct driver *driver, bool is_other_cluster);

/* ---- release.c ------------------------------------------------------------------------------------ */

/* Nobody wants the claim any more. It may end at once, so the caller must not touch it any more. */
void claim_drop(struct driver *driver, struct claim *claim);
/* Fails the acquire with what the servers said, and drops the claim. */
void claim_fail(struct driver *driver, struct claim *claim, const struct call *call);
/* Sends the delete of its key. */
void claim_delete(struct driver *driver, struct claim *claim);

/* ---- move.c --------------------------------------------------------------------------------------- */

/* If its key must move, moves it, or waits until the next session is ready, and fewer calls are on their way. */
void claim_move(struct driver *driver, struct claim *claim);
/* Does the same when the claim's turn in the backlog has come. */
void claim_move_late(struct driver *driver, struct claim *claim);
/* Tells the core that the key was moved, if it was not told before. */
void claim_tell_moved(struct driver *driver, struct claim *claim);

/* ---- own.c: the key of a held claim -------------------------------------------------------------- */

/* Looks whether the key is there, now or in the claim's turn, and then watches it. */
void claim_look_at_own(struct driver *driver, struct claim *claim);
/* Watches the key, if it was seen. */
void claim_watch_own(struct driver *driver, struct claim *claim);
/* The claim's turn in the backlog has come: moves its key, or looks at it. */
void claim_late(struct driver *driver, struct claim *claim);

/* ---- lease.c: the core's ops and the sessions' events ---------------------------------------------- */

void lease_acquire(struct driver *driver, mortise_op *op);
void lease_renew(struct driver *driver, mortise_op *op);
void lease_release(struct driver *driver, mortise_op *op);
void lease_cancel_acquire(struct driver *driver, mortise_op *op);
void lease_cancel_renew(struct driver *driver, mortise_op *op);
void lease_cancel_release(struct driver *driver, mortise_op *op);
void lease_up(struct driver *driver);
void lease_down(struct driver *driver);
/* The servers have another history: link.h. */
void lease_history(struct driver *driver);
void lease_away(struct driver *driver);
void lease_ready(struct driver *driver, struct session *session);
void lease_proven(struct driver *driver, struct session *session);
void lease_left(struct driver *driver, struct session *session);
void lease_session_over(struct driver *driver, struct session *session);
void lease_refused(struct driver *driver, struct session *session, const struct call *call);
void lease_watched(struct driver *driver, enum watch_target kind, struct claim *claim,
                   enum watch_event event);
void lease_sweep(struct driver *driver, int64_t now_ns);

#endif
