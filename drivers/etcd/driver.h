/* driver.h - the etcd driver: its files, its data, and the functions through which lower files call upper ones.
 *
 * protocol.md says on one page what the driver sends and what it may believe afterwards. Each file uses only files below it
 * in this list. Exceptions: acquire.c, grant.c and release.c are one part, and link.c and call.c are another.
 *
 *   module.c     the module's table and options; opens and closes an instance; hands out the ops
 *   lease.c      what the core's ops and the sessions' events mean for the claims
 *   own.c        whether the key of a held claim is there
 *   move.c       moves the claims of a session that was left to the next one
 *   acquire.c    the way of a claim to the head of its queue; grant.c: from there to the grant
 *   wait.c       what a claim watches while others block it
 *   release.c    ends a claim that nobody wants any more
 *   claim.c      the claims and their states (claim.h has the table)
 *   inspect.c    inspect, break and list; record.c: small records; ping.c: ping
 *   dead.c       the claims of dead processes
 *   query.c      what these have in common
 *   session.c    the sessions: leases, joins, beats, deadlines (session.h has the table)
 *   watch.c      the watches on keys
 *   queue.c      which key blocks which
 *   fault.c      errors: statuses and messages; note.c: the text in the keys
 *   link.c       the connection (link.h has the table); call.c: the calls on it
 *   grpc.c       gRPC by libnghttp2; socket.c, tls.c: bytes
 *   messages.c   etcd's messages; wire.c: Protocol Buffers
 *   names.c      keys; endpoints.c: the list of endpoints */
#ifndef MORTISE_ETCD_DRIVER_H
#define MORTISE_ETCD_DRIVER_H

#define HASH_NONFATAL_OOM 1 /* an element that could not be added has hh.tbl == NULL */

#include "link.h"
#include "names.h"

#include <uthash.h>
#include <utlist.h>

#define DATA_MAX (MORTISE_NOTE_MAX + 128) /* the value of a key of ours */
#define QUOTED_SIZE 160                   /* a name in a message */
#define SLOTS 64                          /* slots that are used again */
#define OPEN_MAX 256 /* about so many calls on their way: others wait in the backlog */

enum option {
    OPTION_ENDPOINTS,
    OPTION_PREFIX,
    OPTION_USER,
    OPTION_PASSWORD,
    OPTION_CONNECT_TIMEOUT,
    OPTION_TIMEOUT,
    OPTION_TLS,
    OPTION_TLS_CA,
    OPTION_TLS_CERT,
    OPTION_TLS_KEY,
    OPTION_COUNT
};

struct session;
struct claim;
struct watch;
struct query;

enum watch_target { WATCHES_BLOCKER, WATCHES_OWN, WATCHES_SESSION };
enum watch_event {
    WATCH_CHANGED,
    WATCH_DELETED,
    WATCH_ENDED /* by the server: the revision is compacted, or a right is missing */
};

/* The functions of upper files that lower files call. module.c fills it in. */
struct upcalls {
    /* watch.c: for blockers and own keys, `target` is a claim, else a session */
    void (*watched)(struct driver *driver, enum watch_target kind, void *target,
                    enum watch_event event);
    /* watch.c: see wait.c, THE TURN */
    void (*turn)(struct driver *driver, struct claim *claim, int64_t revision, struct bytes before);
    /* acquire.c: the claim's key was seen; the key's lease may be one that proves nothing */
    void (*seen)(struct driver *driver, struct claim *claim);
    /* likewise: the claim's turn in the backlog has come */
    void (*late)(struct driver *driver, struct claim *claim);
    /* session.c */
    void (*ready)(struct driver *driver, struct session *session); /* it is joined */
    void (*proven)(struct driver *driver, struct session *session);
    void (*left)(struct driver *driver, struct session *session);
    void (*over)(struct driver *driver, struct session *session);
    /* The servers refuse to grant the session's lease, or the join. */
    void (*refused)(struct driver *driver, struct session *session, const struct call *call);
};

/* How long an op has been without an answer: see fault.c, PATIENCE. */
struct patience {
    int64_t away_ns; /* since when no server answers; 0: one does */
    size_t tries;    /* the link's then */
};

struct driver {
    mortise_host *host;
    const struct upcalls *upcalls;
    const mortise_value *values;
    char client_id[2 * MORTISE_GRANT_ID_SIZE + 1];
    char note[MORTISE_NOTE_MAX + 1];
    size_t note_len;
    char prefix[PREFIX_MAX]; /* "" or "mortise/" */
    struct link_settings settings;
    struct link link;
    bool up_once;

    int64_t away_due_ns; /* when to look for ops that have waited too long for an answer; */
    size_t tries_seen;   /* likewise if the link's number is another one */

    struct watch *watches; /* uthash, by id */
    int64_t watch_number;
    int64_t
        watch_ended_ns; /* when the servers last ended all watches, not because of a compaction; */
    int64_t watch_pause_ns; /* and how long their owners wait before they watch again */
    struct session *sessions;

    struct key_id key_id; /* of the next claim, without its slot */
    uint32_t next_slot;   /* the next of the slots that are used once */
    uint64_t
        busy_slots; /* earlier claims have calls on their way that may change keys with these */
    unsigned slot_calls[SLOTS];
    struct name *names; /* uthash, by key */
    size_t claim_count;
    size_t moves;             /* on their way */
    struct claim *backlog;    /* claims that wait until fewer calls are on their way */
    struct claim *old_claims; /* ENDED, with calls on their way */
    int64_t sweep_ns;         /* when to look at all claims */
    int64_t base;             /* of the tokens: the largest that was read */
    int64_t base_at;   /* a revision of this history at which %tokens was not above base; 0: none */
    bool must_jump;    /* the servers went back: the next token has a larger base */
    int64_t jump_from; /* the largest base that the snapshot can have; INT64_MAX: unknown */

    struct query *queries;
    struct query *old_queries; /* answered, with calls on their way */
};

static inline int64_t now_of(const struct driver *driver)
{
    return driver->host->now(driver->host);
}

static inline bool is_connected(const struct driver *driver)
{
    return link_is_up(&driver->link);
}

/* The driver's own data of an op: an acquire, renewal or release has a claim, every other op has a query. */
static inline void op_set_data(mortise_op *op, void *data)
{
    op->driver_data[0] = data;
}

static inline struct claim *op_claim(const mortise_op *op)
{
    return op->driver_data[0];
}

static inline struct query *op_query(const mortise_op *op)
{
    return op->driver_data[0];
}

static inline struct bytes bytes_of(const char *text, size_t size)
{
    return (struct bytes){(const uint8_t *)text, size};
}

/* ---- watch.c -------------------------------------------------------------------------------------- */

/* Watches [begin, end), or the key `begin` if end is empty, from that revision on. puts: also report changes. Returns the
 * watch's number; 0: there is no memory, or no connection. */
int64_t watch_start(struct driver *driver, enum watch_target kind, void *target, struct bytes begin,
                    struct bytes end, int64_t from_revision, bool puts);
/* Watches two keys of a claim's queue, its own and the only one before it, for their deletion. See wait.c, THE TURN. */
int64_t watch_turn(struct driver *driver, struct claim *claim, struct bytes own,
                   struct bytes before, int64_t from_revision);
/* Ignores 0 and the numbers of watches that have ended. */
void watch_stop(struct driver *driver, int64_t number);
bool watch_message(struct driver *driver, struct bytes message);
/* The connection is lost, or the driver is closed. */
void watches_end(struct driver *driver);

/* ---- fault.c -------------------------------------------------------------------------------------- */

/* Fails an op with what the servers said when they refused a call. */
void fault_refused(struct driver *driver, mortise_op *op, mortise_status status,
                   const struct call *call);
/* BACKEND, not retryable: the database is full, and the write was not done. */
void fault_no_space(struct driver *driver, mortise_op *op);
/* Fails an op because nobody answers (or has not yet, over a connection that stands), or because the servers refuse the user. */
void fault_unreachable(struct driver *driver, mortise_op *op, mortise_status status);
/* INDETERMINATE: fails an acquire whose grant has a claim that cannot serve it: the claim is unwanted or too late, or another op
 * uses it. */
void fault_leaving(struct driver *driver, mortise_op *op);
void fault_memory(struct driver *driver, mortise_op *op, mortise_status status);
/* BACKEND: what is stored makes no sense. */
void fault_stored(struct driver *driver, mortise_op *op, const char *what);
/* INVALID: the name is held with another number of permits. */
void fault_permits(struct driver *driver, mortise_op *op, uint32_t permits,
                   const mortise_info *holder);
mortise_status fault_error(mortise_error *error, mortise_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
bool fault_is_no_lease(const struct call *call); /* "requested lease not found" */
/* "database space exceeded": the servers refuse most such writes, but they execute the one that reaches the limit,
 * and answer it in the same way. So nobody knows whether the write was done. */
bool fault_is_doubtful(const struct call *call);
bool fault_is_no_space(const struct call *call);
/* An op begins. */
void patience_begin(struct driver *driver, struct patience *patience);
/* The connection is lost. */
void patience_lost(struct driver *driver, struct patience *patience);
/* Whether the op has been without an answer for so long that it fails. */
bool patience_is_over(struct driver *driver, const struct patience *patience);

/* ---- note.c --------------------------------------------------------------------------------------- */

/* Writes the value of a contender's key and returns its length. downgraded: an exclusive key becomes a shared one. */
size_t note_write(const struct driver *driver, const mortise_grant_id *grant, int64_t base,
                  int64_t time_ms, bool downgraded, char data[DATA_MAX]);
int64_t note_time_ms(void); /* the wall clock */
/* Reads such a value: who made the key, its grant id (info->owner), and info->mode (SHARED: it was downgraded). Returns the
 * base of its tokens; -1: the key is not ours. */
int64_t note_read(struct bytes value, mortise_info *info);
/* Fills info from the key of a holder. base: used if the key does not say its own. */
void note_holder(const struct kv *kv, int64_t base, mortise_info *info);

/* What %tokens says about the base of the tokens, for this cluster. */
enum base_kind { BASE_GOOD, BASE_NONE, BASE_OTHER_CLUSTER, BASE_NONSENSE };
enum base_kind base_read(const struct kvs *kvs, uint64_t cluster, int64_t *base);
size_t base_write(int64_t base, uint64_t cluster, char data[DATA_MAX]);

#endif
