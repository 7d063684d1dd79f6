/* claim.h - a claim: one acquisition of one name, from its first request until the servers can hold nothing of it.
 *
 * In the servers a claim is one key below its name, attached to the lease of a session. Here it is in one of these states:
 *
 *   IDLE        wanted; the servers have nothing of it; nothing on its way
 *   LOOKING     a shared try; looks before it puts its key
 *   ASKING      its acquire is on its way
 *   UNCERTAIN   its acquire may have been executed, the reply is lost; waits for a join
 *   QUEUED      has a key; a look is on its way, or will be sent
 *   WAITING     other keys block it, and are being watched
 *   FIRST       no key blocks it; the base of the tokens, or its own note, is being written
 *   READY       has a token; waits until its session is proven for long enough
 *   HELD        granted
 *   GONE        was HELD; its key or its session is gone: the lease is LOST
 *   UNWANTED    nobody wants it; its acquire is on its way
 *   DOUBTFUL    nobody wants it; its acquire may have been executed; waits for a join
 *   DELETING    nobody wants it; deletes its key
 *   REDELETING  as DELETING, but the key may have gone before: if there is none, that is a success
 *   ENDED       off all lists; is freed when its last request is answered
 *
 * What happens in each state. "again" is the next connection, the claim's turn in the backlog, or a retry. "unwanted" is a
 * cancel, a release, a failure, a ttl that passed, or a caller that gave up. "session over": its lease is gone, and every
 * key that was attached to it.
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
 *   may wait is WAITING for that key, for half a second at most. d: if a move may have been executed: QUEUED, HELD looks at its own key,
 *   and the others delete it (REDELETING). e: a renewal with MORTISE_OP_DOWNGRADE puts the note of the key again, and is answered when that
 *   is; lost: INDETERMINATE, and the repeat puts the same; no space: what the key says decides, done or BACKEND. f: the write that
 *   reaches the limit of the database is executed, although its answer is the refusal. Any other refusal says that this acquire has
 *   made no key. g: but REDELETING if an earlier acquire was lost, and no answer has shown since what it has done.
 *
 * MOVES. When a session is LEFT, each of its claims from QUEUED to HELD moves its key to the next session, beside what else it
 * does. The request names the lease that the key has, so it is done once, whenever it is executed: a lease that was left is
 * never moved to again. Until it is answered, the deadline is that of the old session. Thousands may have to move: they take turns
 * in the backlog, else the last ones would not be answered within the time of a call, and the connection given up.
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
 *   a: HELD: GONE; else QUEUED. b: and anew, to another session; the answer that is still on its way means nothing.
 *
 * Why the holes are closed:
 *   - An acquire's reply is lost. Each acquire compares the revision of the session's key, and a join changes it. So after the
 *     join is answered, the acquire was executed before, or never will be. The same acquire again finds the key, or puts it.
 *   - The same, and the caller gives up: after the join the key is deleted, whether or not it is there.
 *   - The session ends before the join: its lease is gone, so the acquire cannot be executed, and its key is gone.
 *   - The predecessor vanishes before it is watched. The watch begins at the revision of the look that showed it, or the key is read
 *     after the watch was made (watch.c).
 *   - The predecessor is a key of this client whose delete is on its way: requests are executed in any order. The acquire deletes
 *     that key, too (*covers* it). What its answer says decides whether the covered claim was LOST: had the acquire deleted
 *     the key, it was there; had it not, the answer to the delete counts, which is sent again until the acquire is answered.
 *     If that answer is lost, the covered claim is REDELETING.
 *   - The event comes, and the own key has gone meanwhile. The look after the event shows the own key, or that it is not there. A
 *     turn needs no look: its watch tells of the own key, too (wait.c).
 *   - Somebody deletes the own key. A waiting claim sees that when it looks next. A held one watches its key, from a tenth of a second
 *     on, and the core is told to look (host->doubt).
 *   - The same while there is no connection; or the servers are made of a snapshot that does not have the key. A held claim looks
 *     at its key after each reconnection, before it watches it again. Until that is answered it goes on.
 *   - The caller gives up without a connection. The claim stays until a server said that there is no key, or that the session
 *     is over.
 *   - The core asks again after INDETERMINATE: the claim is still here, and serves the new op. If the claim is GONE, it ends, and the
 *     op is BUSY; if it is being deleted, the op is INDETERMINATE.
 *   - The holder is stopped past its deadline. The lease was LOST then. When the process runs again, the core releases the claim.
 *     If the ttl has passed too, the driver sees that, and deletes the key. If it is stopped for longer, the servers end the
 *     session.
 *   - The servers refuse the delete (no right): the release says so, and the claim tries again after a pause. An unwanted claim
 *     keeps no session alive, so the key ends when nothing else is held or wanted.
 *   - Two shared claims with an exclusive one between them. The second one waits for the exclusive one: nobody overtakes.
 *   - The same with one of another number of permits between them, which waits to see whether the first one stays. If the second one
 *     got in, that one would be the first when the first has gone, and get in too. So the second one waits for it, and
 *     looks again when it is refused, or after half a second: it may be the first then, and the second one is refused.
 *   - The exclusive holder becomes shared while others wait. Its key, its revision and its token stay. Shared claims watch
 *     the last exclusive key before them for changes, too. A holder never becomes exclusive again.
 *   - Several permits come back at once, or others than the first ones: any event among the P keys before it makes a claim
 *     look again.
 *   - A release and the first requests of a new session cross the end of the old one: keys are not named by lease.
 *   - A key is used again, and a delete of its earlier claim is still on its way: see KEYS.
 *
 * KEYS. A server remembers each key until its history is compacted, and looks at all that there were below a name whenever
 * somebody asks for the queue. So the claims of a name use the same few keys again and again: each has a slot, which is
 * free again when the claim has ended. Requests are executed in any order, and those of a lost connection at any time. Therefore
 *   - a slot below SLOTS is not taken while a call that may change a key with it is on its way: a call of a claim that has ended,
 *     or an acquire that covers it. That counts for all names alike, because the ended claim has none;
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
    mortise_op *releases; /* utlist; they wait for its end */
    uint64_t step;        /* answers to looks and writes of earlier steps mean nothing; */
    uint64_t ask;         /* likewise of acquires */
    unsigned pending;     /* calls on their way */
    bool has_looked;      /* a shared try: nobody was there */
    bool made;            /* the servers may have its key, and no acquire is on its way */
    bool maybe;  /* an acquire was lost, and no answer has said since whether there is a key */
    bool covers; /* its last acquire deletes the key of another claim, too */
    const struct claim
        *covered_by; /* DELETING: whose acquire, on its way, deletes its key, too; or NULL */

    struct session *session; /* of its acquire, and of its key if `lease` is its lease */
    int64_t lease;           /* of its key; 0: not known */
    struct session *moves_to;
    enum move move;
    bool moves_again;          /* when the move on its way was sent, an earlier one was unknown */
    uint64_t move_step;        /* answers to earlier moves mean nothing: the key tells */
    bool untold;               /* its key was moved, and the core does not know yet */
    int64_t created, modified; /* revisions of its key */
    int64_t seen_at;           /* the revision at which its key was last seen; 0: it must be seen */
    int64_t met;               /* the create revision of the last key met that has other permits */
    int64_t queue_base;        /* of the tokens, as its last look has read it; -1: it was none */
    int64_t noted_base;        /* the base of the tokens in its key; -1: not known */
    int64_t noted_ms;          /* the wall clock in it */
    int64_t base;              /* with which it counts */
    bool downgraded;           /* it was exclusive, and its key says that it is shared now */
    mortise_op *downgrade;     /* the renewal that waits until the key says so, or NULL */

    int64_t own_watch;
    int64_t *watches; /* of the keys that block it */
    size_t watch_count;

    uint64_t token_floor, token;
    int64_t ttl_ms;
    struct patience patience; /* of its op */
    int64_t from_ns;          /* before the look that showed it first was sent */
    int64_t ends_ns;          /* when it is over if nobody renews it; NEVER: an op waits for it */
    int64_t look_ns;          /* HELD: when to watch its own key; NEVER: it is watched */
    int64_t retry_ns;         /* when to try again what failed; 0: nothing did */
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

/* Its delete is on its way. */
static inline bool claim_is_leaving(const struct claim *claim)
{
    return (claim->state == CLAIM_DELETING || claim->state == CLAIM_REDELETING) &&
           claim->pending > 0 && claim->retry_ns == 0;
}

/* It has a key, as far as is known, and somebody wants it. */
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
/* Answers the ops that wait for its end, and takes it off all lists. The caller must not touch it any more. */
void claim_end(struct driver *driver, struct claim *claim, mortise_status status);
void claims_free(struct driver *driver);
typedef void claim_visit(struct driver *driver, struct claim *claim);
/* Calls visit for each claim; it may end the claim that it is given. */
void claims_each(struct driver *driver, claim_visit *visit);
/* Not later than that the driver looks at all claims. */
void claims_sweep_by(struct driver *driver, int64_t at_ns);
/* HELD: watches its own key then, or a little later. */
void claim_look_by(struct driver *driver, struct claim *claim, int64_t after_ns);
/* Tries again then what failed. */
void claim_retry(struct driver *driver, struct claim *claim, int64_t after_ns);
/* Takes it off the backlog. */
void claim_not_late(struct driver *driver, struct claim *claim);
/* Its own key; and the key of the name with this character behind it, or in the place of its last slash (NAME_END). */
void claim_key(const struct claim *claim, struct key *key);
void claim_border(const struct claim *claim, char border, struct key *key);
/* What its acquire has done to the key of another claim will not be known. */
void claim_uncover(struct driver *driver, struct claim *claim);
/* Stops watching the keys that block it. */
void claim_unwatch(struct driver *driver, struct claim *claim);
/* Its acquire deletes the key of the other one, too. */
void claim_cover(struct driver *driver, struct claim *claim, struct claim *other);
/* The connection is lost. */
void claims_begin_series(struct driver *driver);
/* A transaction whose answer goes to its present step. NULL: no memory. */
struct call *claim_begin(struct driver *driver, struct claim *claim, reply_handler *answered);
/* Sends it, and counts it. False: it was not sent; then the acquire has failed, or the claim tries again after a pause. */
bool claim_send(struct driver *driver, struct claim *claim, struct call *call);
/* An answer is here: its claim, or NULL if that has ended. */
struct claim *claim_answered(struct driver *driver, struct call *call);
/* The same; also NULL if the answer is of an earlier step, or lost. */
struct claim *claim_arrived(struct driver *driver, struct call *call);
/* The core is to look at it. */
void claim_tell(struct driver *driver, struct claim *claim);
/* HELD: its own key has gone. */
void claim_vanish(struct driver *driver, struct claim *claim);

/* ---- acquire.c ------------------------------------------------------------------------------------ */

/* Looks again from what is known, if its session is ready, or waits for its turn. Not for HELD and GONE. */
void claim_go(struct driver *driver, struct claim *claim);
/* Whether it must wait until fewer calls are on their way. Then it is in the backlog. */
bool claim_is_late(struct driver *driver, struct claim *claim);
/* There may be room for claims of the backlog. */
void claims_go_late(struct driver *driver);
/* It has a key: looks at the queue. */
void claim_look(struct driver *driver, struct claim *claim);

/* ---- wait.c --------------------------------------------------------------------------------------- */

/* Others block it, as a look of that revision shows: watches them. */
void claim_wait(struct driver *driver, struct claim *claim, const struct queue_view *view,
                int64_t revision);

/* ---- grant.c -------------------------------------------------------------------------------------- */

/* It is the first of its queue: gets its token, and then the grant. tokens: as the look has read them. */
void claim_be_first(struct driver *driver, struct claim *claim, const struct kvs *tokens,
                    uint64_t cluster);
/* The only key before its own was deleted then; what its value was. */
void claim_turn(struct driver *driver, struct claim *claim, int64_t revision, struct bytes before);
/* READY or HELD: answers the acquire, if the session is proven for long enough. */
void claim_grant(struct driver *driver, struct claim *claim);
void tokens_key(const struct driver *driver, struct key *key);
/* The servers have another history: link.h. */
void tokens_history(struct driver *driver, bool is_other_cluster);

/* ---- release.c ------------------------------------------------------------------------------------ */

/* Nobody wants it any more. It may end at once: the caller must not touch it any more. */
void claim_drop(struct driver *driver, struct claim *claim);
/* Fails the acquire with what the servers said, and drops the claim. */
void claim_fail(struct driver *driver, struct claim *claim, const struct call *call);
/* Sends the delete of its key. */
void claim_delete(struct driver *driver, struct claim *claim);

/* ---- move.c --------------------------------------------------------------------------------------- */

/* If its key must move, moves it, or waits until the next session is ready, and fewer calls are on their way. */
void claim_move(struct driver *driver, struct claim *claim);
/* The same when its turn in the backlog has come. */
void claim_move_late(struct driver *driver, struct claim *claim);
/* If its key was moved, and the core was not told: tells it. */
void claim_tell_moved(struct driver *driver, struct claim *claim);

/* ---- own.c: the key of a held claim -------------------------------------------------------------- */

/* Looks whether it is there, now or in its turn, and watches it then. */
void claim_look_at_own(struct driver *driver, struct claim *claim);
/* Watches it, if it was seen. */
void claim_watch_own(struct driver *driver, struct claim *claim);
/* Its turn in the backlog has come: its key is moved, or looked at. */
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
