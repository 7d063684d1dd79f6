/* internal.h - the ZooKeeper driver's own structures, which file does what with them, and why it is safe.
 *
 *   module.c    the module's table and options; opens and closes an instance; ops come in
 *   servers.c   the list of servers: names looked up, addresses put together
 *   session.c   the session: asked for, connected, lost, expired, ended; its beats
 *   proof.c     until when the session is proven to live
 *   request.c   requests to the library and their answers, carried from its threads into the pump
 *   names.c     folders, nodes, queues
 *   claim.c     a claim on a name, from beginning to end; queue.c: its way to the head of the queue
 *   base.c      what is added to every token
 *   watch.c     the watches, and how much room they take
 *   lease.c     what the core's ops and the session's fortune do to claims
 *   query.c     inspect, break, ping and records; list.c: list
 *   note.c      what stands in a node; fault.c: codes as statuses and messages
 *
 * A lock is a folder (a container: the server removes it when it is idle), a contender an ephemeral
 * sequential node in it. The smallest number holds. Root is a path; beside the folders stand in it
 *   %sessions/<client id>   ephemeral, what a session beats with
 *   %tokens                 what is added to every token (below)
 *   %records/<name>         the small named records
 *
 * THREADS. The library has two of its own for each handle. What they call copies what it is told into a
 * request or event, puts that into the mailbox and posts; all else is done in the pump, in the order in
 * which the library's threads saw it. The library puts a lost connection's unanswered requests between the
 * event that tells of the loss and the one that tells of the next connection. A request sent in between is
 * either answered after the latter or lost before it.
 *
 * A CLAIM.
 *
 *        acquire                       list: another is before it
 *   ──▶ MAKE ─────────────▶ listed ───────────────────────────▶ WATCH ──┐
 *        ▲  create + list,     │  ▲                               │      │ it is gone
 *        │  one flight         │  └───────────── list ◀───────────┴──────┘
 *        │                     │ it is first
 *   own node is gone           ▼
 *                            RAISE (only where the token's floor asks) ──▶ PROVE ──▶ HELD ──▶ LEAVE
 *                            the base is raised, compare and set      session proven   delete, answered
 *
 * All answers come in the order of the requests, and what one connection reads only goes forward.
 *   The create says that there is no folder: the folder is made, with the same two behind it.
 *   The create's reply is lost (connection): it may have been executed. After the reconnection, a barrier
 *     (below) and then list: a server that lags would not show the node, a second one would be made and wait
 *     for the first. What is found under the claim's uuid is adopted if its ephemeralOwner is this very session;
 *     else it dies with another session and is waited for like anybody's. No old request can come in behind
 *     that look: the leader refuses those of a session that has moved, and one server keeps the order.
 *   The connection is lost between create and list: the node is known; list again, behind a barrier.
 *   The session expires: its nodes are gone before the server says so. Waiting claims begin anew in the next
 *     session, under the same uuid; held ones are LOST.
 *   Nothing is heard for a third longer than the session lasts: every lease is LOST by then. The servers may
 *     still hear the client, which goes on reconnecting and so keeps the session alive, and its nodes. It is
 *     abandoned: no more is sent for it; the nodes that are known are deleted from the next session, others
 *     end with it.
 *   The predecessor vanishes before it is watched: list again; the place is not lost. It is asked for by
 *     `get`, because the watch of an `exists` on a node that is gone would stand in the server for ever.
 *   The own node is deleted by somebody: a waiting claim sees it at its next list and begins anew; a held
 *     one has a watch on it, from a tenth of a second on, and the core is told to look (host->doubt): LOST.
 *   A number was given twice (a server at the end of the 2^31 does so): the one with the smaller czxid is
 *     before. The predecessor's Stat is at hand when it is watched; if its czxid is larger than the own one
 *     it is noted as later and the list is looked at again.
 *   The caller gives up: the claim leaves, whether or not there is a connection: the node is deleted when
 *     its name is known, or looked for by its uuid after the next connection. The claim is forgotten
 *     only when the server said that the node is gone, or the session's end was told.
 *   The core asks again after INDETERMINATE: the claim is still here, and is attached to the new op.
 *   The holder is stopped past its ttl: the lease was LOST at its deadline; when the process goes on, the
 *     driver sees that the ttl passed without a renewal, and deletes the node. A process that is killed or
 *     stopped for longer than the session's timeout loses it there.
 *   The servers refuse the delete (an ACL by which one may make nodes, and not delete them): the release says
 *     so. When the client has nothing else, it ends its session, and the node with it; until then, and where
 *     that end does not reach the servers, the delete is tried again from time to time.
 *   Out of memory: the op fails; a request that could not be made is as one whose reply was lost.
 *
 * TWO STYLES. A client of Mortise counts the nodes of both styles, whatever its own is; a client of Curator or kazoo
 * counts those of its own style only. The name of a node says whether Mortise made it. So a claim of style S that has
 * listed the folder does this, and two clients of Mortise never hold at once, whatever their styles are:
 *
 *   the folder has                                   the claim             why that is safe
 *   nodes of style S only                            queues                all count each other
 *   a node of T, not Mortise's; another recipe       CONFIG                its client does not count ours
 *   Mortise's nodes of T, and the first is of S      queues behind all     Mortise's clients count both, by number
 *   Mortise's node of T is the first                 looks once more,      nothing is granted. The clients of S that
 *                                                    then CONFIG           another library has would be let in beside T
 *   two made at once, S before T                     S goes on, T CONFIG   S is the first in both lists
 *   S before T, S is gone when T looks               T is the only one     as above
 *
 *   So of two clients of Mortise the one that comes to a folder in use fails, and not those that are there. It looks
 *   once more because T may be there for the time of one answer only, before it fails itself. A node that an older
 *   version of Mortise made has no mark, and is taken for that of another library.
 *
 * WHAT A LOOK KNOWS. A follower may lag, and `sync` has it catch up with its leader. But a leader answers `sync`
 * and reads at once, and may tell its followers of a commit before it applies it: a client of the leader's may not
 * find what another was told is done, by a follower. So looks that must know of it are behind a *barrier*: a
 * write, as a beat is one; what comes behind it in this session is read when all before it is applied. A try
 * looks behind a sync first, for that costs no write: who finds nobody makes his node, a write. Who finds
 * somebody looks again, behind a barrier, before he is told that it is busy.
 *
 * THE TOKEN is the czxid of the own node plus the base. czxids grow with every change in the ensemble. The
 * base is watched (base.c); where it is not known it is read by a request behind the list that shows the
 * claim as first. So it is at least what any former holder of that name had read or written. An op's floor
 * raises it by compare and set before the grant counts. The node says which base its holder counts with, for
 * inspect and break: it is made with the base that the client knew, and written once more if that was out of
 * date.
 *
 * THE DEADLINE. Only the servers expire a session, and a client that is cut off is not told. Its followers
 * tell the leader once in half a tick of whom they heard. So the session *beats*: it writes to a node of its
 * own, every tenth of its timeout, one beat after the other. When beats P, Q and R were answered, Q sent
 * half a tick or more after the answer to P, and R after the answer to Q, then the leader has heard of
 * the session after P was sent:
 *   - P was committed by a leader that had a quorum then, and that leader pings the follower within half a
 *     tick of committing P; so before Q reaches it, and before it answers Q to the follower (one link, in
 *     order);
 *   - so the follower has answered that ping, with a touch of the session in it, before it told us of Q,
 *     and before it forwards R (one link, in order);
 *   - R was committed: the leader had read the touch, and still had a quorum.
 * Hence it expires no earlier than P's sending + timeout. A later leader starts all sessions with their
 * full timeout, after a quorum has left the one that committed R.
 *   The making of a session is a write of the leader's: it counts at once, from before it was asked for.
 *   A reconnection is checked by the leader, which touches the session, but without a quorum: it counts when
 *     the first beat behind it is answered, from before the last beat that was known answered or lost before
 *     the connection stood. While there is no connection beats are sent all the same, to be lost,
 *     so that this instant is a recent one.
 *   Everything less 1 % and 2 ms. A lease ends at that deadline or its own ttl, whichever is earlier; a
 *   renewal is answered from it without a word to the server, unless the connection is lost or a beat
 *   overdue: then it fails, and the lease is SUSPECT.
 *   The process is stopped, or the machine asleep: instants are of CLOCK_BOOTTIME, taken before sending.
 *   A follower is cut off right after answering a beat: its touch does not count before R is answered.
 *
 * RESTING. A client without a claim needs no deadline. When it has had none for a timeout, its session stops to
 * beat, and the library's pings alone keep it alive, which the servers answer without a write. The proof grows
 * old meanwhile, and a new one takes half a timeout. So the next claim gets a new session: the making of one
 * proves at once. If queries are under way in the old session, the claim waits for their answers first (the session
 * is *leaving*): ended earlier, a list would fail, and of a break nobody would know whether it was done. A query that
 * comes meanwhile waits for the new session.
 *
 * ENDING A SESSION. zookeeper_close() may wait for some seconds, and joins the library's threads. An expired
 * session is ended on a thread of its own; the last one in close(), which also joins those threads, so that
 * nothing posts after it. Requests that the library had not answered by then are freed unanswered. */
#ifndef MORTISE_ZOOKEEPER_INTERNAL_H
#define MORTISE_ZOOKEEPER_INTERNAL_H

#define HASH_NONFATAL_OOM 1 /* an element that could not be added has hh.tbl == NULL */

#include "names.h"
#include "proof.h"

#include <pthread.h>
#include <uthash.h>
#include <utlist.h>
#include <zookeeper/zookeeper.h>

#define NS_PER_MS INT64_C(1000000)
#define ROOT_MAX 512
#define PATH_SIZE (ROOT_MAX + FOLDER_MAX + NODE_MAX)
#define DATA_MAX (MORTISE_NOTE_MAX + 64) /* of a node */
#define QUOTED_SIZE 160                  /* a name in a message */
#define BEATS_PER_TIMEOUT 10
#define OPEN_MAX 256 /* requests on their way, about: the beats stand behind them */

enum option {
    OPTION_SERVERS,
    OPTION_ROOT,
    OPTION_SESSION_TIMEOUT,
    OPTION_TICK,
    OPTION_CONNECT_TIMEOUT,
    OPTION_NODE_STYLE,
    OPTION_AUTH,
    OPTION_TLS,
    OPTION_COUNT
};

struct driver;
struct session;
struct listing;
struct watch;

/* ---- request.c ------------------------------------------------------------------------------------ */

/* What the library's threads put into the mailbox. */
struct mail {
    struct mail *next;
    struct session *session;
    bool is_event;
};

struct event {
    struct mail mail; /* first */
    int type, state;
    char path[];
};

/* One request. Lives from its sending until it is answered in the pump, exactly once, or the driver is
 * closed. */
struct request {
    struct mail mail; /* first */
    struct request *next, *prev;
    /* In the pump. Takes nothing over; the request is freed after it. */
    void (*answered)(struct driver *driver, struct request *request);
    void *target;
    uint64_t step; /* of the target, when it was sent */
    char *watched; /* the path on which it sets a watch; NULL: none */
    bool quiet;    /* its answer wakes nobody: that of the next request comes right behind it */
    int64_t sent_ns;
    /* the answer: */
    int rc;
    struct Stat stat;
    char *text; /* the path made, or the data; terminated beside its size */
    size_t text_size;
    struct children *children;
};

struct mailbox {
    pthread_mutex_t lock;
    pthread_cond_t filled;
    struct mail *first, **end;
    bool posted;
};

/* ---- session.c ------------------------------------------------------------------------------------ */

struct session {
    struct session *next; /* among those that are being ended */
    struct driver *driver;
    zhandle_t *zh;
    struct request *requests; /* that are not answered */
    unsigned open;            /* how many */
    int64_t id;
    int64_t since_ns; /* connected for the first time; 0: never */
    bool connected;
    bool beating;         /* a beat is on its way, sent at */
    int64_t beat_sent_ns; /* (the last one) */
    int64_t beat_due_ns;
    int64_t look_ns;        /* at what the library has put into the mailbox, whatever was posted */
    unsigned beat_failures; /* there was no node to beat with */
    int64_t busy_ns;        /* when there was a claim, last */
    bool rests;             /* it does not beat; a claim needs another session */
    bool
        leaving; /* it rests, and a claim waits until its queries are answered; then there is another */
    struct proof proof;
    int64_t servers_ms, servers_at_ns; /* the servers' wall clock, as of an instant */
    pthread_t closer;
    bool closing; /* the closer was started */
};

/* ---- servers.c ------------------------------------------------------------------------------------ */

struct server {
    struct server *next;
    struct driver *driver;
    char *host, *port;
    char *addresses; /* "192.0.2.1:2181,2001:db8::1:2181"; NULL: none is known */
    bool asked;
};

/* ---- claim.c -------------------------------------------------------------------------------------- */

enum goal { GOAL_OWN, GOAL_HOLD, GOAL_LEAVE };

struct claim {
    struct claim *next, *prev; /* of the name */
    struct claim *next_late, *prev_late;
    bool late; /* in the backlog */
    struct name *name;
    mortise_grant_id grant;
    enum goal goal;
    mortise_op *op;       /* the acquire that waits for it, or NULL */
    int64_t asked_ns;     /* when it came */
    mortise_op *releases; /* utlist; that wait for its end */
    uint64_t step;        /* answers to requests of an earlier one mean nothing any more */
    unsigned pending;     /* requests on their way that know this claim */
    unsigned creating;    /* creates among them */
    bool try_once;        /* and has not found that nobody is there */
    bool sure;            /* the last list was behind a barrier */
    bool sent;            /* something that may leave a node was sent */
    bool maybe;           /* a create may have been executed whose reply was lost */
    bool maybe_deleted;   /* a delete, likewise */
    bool look_again;      /* once the node is deleted: it was of another session */
    bool watched;         /* the own node is, or will be as soon as the answer is here */
    bool refused;         /* the servers do not let us delete the node */
    bool behind;          /* it is of a session that was given up */
    bool gone;            /* was held; the node or the session is gone */
    bool ended;           /* off the name's list; freed when nothing is pending */
    bool first;           /* the last list said so; the base is about to come */
    int64_t watch_ns;     /* watch the own node from then on */
    int64_t again_ns;  /* try again then what failed, or look again without a watch; 0: no need */
    int64_t looked_ns; /* at the own node, last */
    unsigned folders_made;   /* attempts to make the folder */
    int folder_rc;           /* of the last of them */
    char node[NODE_MAX];     /* "": not known */
    char old_node[NODE_MAX]; /* of a session that was abandoned, to be deleted; "": none */
    int64_t czxid;
    char *before; /* the contender that it waits for */
    char **later; /* contenders with a czxid larger than the own one */
    size_t later_count;
    int64_t noted_base; /* that stands in the node */
    int64_t base;       /* as read last; its node's version, -1: there is none */
    int32_t base_version;
    uint64_t token_floor, token;
    int64_t ttl_ms;
    int64_t from_ns; /* before the list that showed it first was sent */
    int64_t ends_ns; /* when the ttl passes; NEVER while it waits for its turn */
};

/* A lock that this client has to do with. */
struct name {
    UT_hash_handle hh; /* by folder */
    struct claim *claims;
    size_t name_len;
    char name[MORTISE_NAME_MAX];
    char folder[];
};

/* ---- query.c, list.c ------------------------------------------------------------------------------ */

struct query {
    struct query *next, *prev;
    mortise_op *op; /* NULL: answered; freed when nothing is pending */
    int64_t asked_ns;
    void (*begin)(struct driver *driver, struct query *query);
    uint64_t step;
    unsigned pending;
    bool written; /* a write was sent: its loss is INDETERMINATE */
    unsigned tries;
    int64_t base;
    int32_t waiters;
    char *first; /* the holder's node; NULL: nobody holds */
    struct listing *listing;
};

/* ---- base.c --------------------------------------------------------------------------------------- */

enum base_state { BASE_UNKNOWN, BASE_ASKED, BASE_KNOWN };

/* ---- the driver ----------------------------------------------------------------------------------- */

struct driver {
    mortise_host *host;
    const mortise_value *values;
    char client_id[2 * MORTISE_GRANT_ID_SIZE + 1];
    char note[MORTISE_NOTE_MAX + 1];
    size_t note_len;
    char root[ROOT_MAX]; /* "" for "/" */
    enum node_style style;
    const char *auth_scheme, *auth_text; /* NULL: none */
    char auth_buffer[64];
    const struct ACL_vector *acl;

    struct server *servers;
    size_t server_count;
    int64_t lookup_ns; /* when the servers' names were asked for last; 0: never */

    struct mailbox mailbox;
    struct session *session; /* NULL: there is none */
    struct session *retired; /* being ended */
    int64_t begin_ns;        /* make a session then; NEVER: there is one, or names are looked up */
    int64_t away_ns;         /* since when there is no connection; 0: there is one */
    int64_t away_due_ns;     /* look then who has waited too long for one */
    int refused;             /* why the servers let us not in (a code of the library), 0 */
    char trouble[160];       /* why there is no session, in words */

    struct name *names;
    unsigned refused_claims; /* how many are */
    struct claim *backlog;   /* that have to wait until there are fewer requests on their way */
    int64_t sweep_ns;        /* look for claims whose ttl has passed then */
    int64_t base;            /* as read last; its node's version, -1: there is none */
    int32_t base_version;
    enum base_state base_state;
    uint64_t base_step;
    enum {
        BARRIER_EACH,
        BARRIER_OWED,
        BARRIER_SENT
    } barrier;               /* of the looks that begin together */
    int64_t base_changed_ns; /* 0: never */
    bool suspects; /* the core was told to doubt what is held, and not yet that all is well */
    struct watch *watches; /* uthash, by path */
    size_t watch_bytes;
    struct query *queries;
    struct query *old_queries; /* answered, with requests on their way */
    struct claim *old_claims;  /* ended, likewise */
};

static inline int64_t now_of(const struct driver *driver)
{
    return driver->host->now(driver->host);
}

static inline bool is_connected(const struct driver *driver)
{
    return driver->session != NULL && driver->session->connected;
}

/* Claims and queries may begin: not if this session is about to be given up. */
static inline bool is_ready(const struct driver *driver)
{
    return is_connected(driver) && !driver->session->leaving;
}

#endif
