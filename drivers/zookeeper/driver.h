/* driver.h - the ZooKeeper driver: its files, its data, and the functions through which lower files call upper ones.
 *
 * protocol.md says on one page what the driver sends and what it may believe afterwards. Each file uses only files below it
 * in this list, except acquire.c, release.c and tokens.c, which are one part:
 *
 *   module.c    the module's table and options; opens and closes an instance; hands out the ops
 *   lease.c     what the core's ops and the session's events mean for the claims
 *   acquire.c   the way of a claim to the head of its queue; tokens.c: from there to the grant
 *   release.c   ends a claim that nobody wants any more
 *   folder.c    makes the folder of a claim
 *   claim.c     the claims and their states (claim.h has the table)
 *   inspect.c   inspect, break and list; record.c: small records; ping.c: ping
 *   query.c     what inspect.c and record.c have in common
 *   session.c   the session (session.h has the table)
 *   beat.c      its beats (beat.h has the table); pace.c: when it beats
 *   proof.c     until when the session is proven to live
 *   servers.c   the list of servers: looks names up, joins addresses
 *   threads.c   whether the library can have its threads
 *   request.c   requests, and the mailbox of the library's threads
 *   watch.c     which nodes are watched, and how much room that takes
 *   fault.c     errors: codes, statuses, messages
 *   note.c      the text in the nodes
 *   queue.c     which node blocks which; names.c: names of folders and nodes */
#ifndef MORTISE_ZOOKEEPER_DRIVER_H
#define MORTISE_ZOOKEEPER_DRIVER_H

#define HASH_NONFATAL_OOM 1 /* an element that could not be added has hh.tbl == NULL */

#include "queue.h"
#include "request.h"

#include <uthash.h>
#include <utlist.h>

#define NS_PER_MS INT64_C(1000000)
#define ROOT_MAX 512
#define DATA_MAX (MORTISE_NOTE_MAX + 64) /* in a node of ours */
#define QUOTED_SIZE 160                  /* a name in a message */

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

/* The functions of upper files that lower files call. module.c fills it in. */
struct upcalls {
    /* request.c */
    void (*session_event)(struct driver *driver, int state);
    void (*node_event)(struct driver *driver, const char *path, bool deleted);
    void (*event_missed)(struct driver *driver); /* there was no memory for one of the session */
    void (*mail_is_read)(struct driver *driver); /* the last of a batch was handled */
    /* servers.c */
    void (*servers_known)(struct driver *driver); /* all look-ups have ended */
    /* session.c */
    void (*connected)(struct driver *driver);
    void (*suspended)(struct driver *driver); /* the connection is lost */
    void (*away)(struct driver *driver);      /* a call may have waited too long for a connection */
    void (*proven)(struct driver *driver);    /* the deadline has moved */
    /* The session has ended. abandoned: the servers may not know that yet, and the session's nodes may still exist. */
    void (*over)(struct driver *driver, bool abandoned);
    bool (*is_asking)(
        const struct driver *driver); /* a query waits for an answer of this session */
};

/* What is known of the base of the tokens; see tokens.c. */
enum base_state { BASE_UNKNOWN, BASE_ASKED, BASE_KNOWN };

struct driver {
    mortise_host *host;
    const struct upcalls *upcalls;
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
    int64_t lookup_ns; /* when the names of the servers were last looked up; 0: never */

    struct mailbox mailbox;
    unsigned calls;        /* counts calls of the module, and connections */
    unsigned barrier_call; /* the call in which the last barrier was sent */
    struct watch *watches; /* uthash, by path */
    size_t watch_bytes;

    struct session *session; /* NULL: there is none */
    struct session *retired; /* sessions that are being closed */
    unsigned session_number; /* of the last session that was made */
    int64_t begin_ns;    /* when to make a session; NEVER: there is one, or names are looked up */
    int64_t away_ns;     /* since when there is no connection; 0: there is one */
    int64_t away_due_ns; /* when to look for calls that have waited too long for one */
    /* A refused session is connected first, and the reply that refuses it may be lost with its connection. So only an answer to
     * a request ends this state. */
    int refused;        /* why the servers refuse this client (a code of the library); 0: unknown */
    int64_t refused_ns; /* since when they do; 0: they do not */
    char trouble[160];  /* why there is no session, in words */

    struct name *names;       /* uthash, by folder */
    struct name *next_name;   /* claims_each: the next name; NULL: none */
    struct claim *backlog;    /* claims that wait until fewer requests are on their way */
    struct claim *old_claims; /* ENDED, with requests on their way */
    unsigned refused_claims;  /* how many are REFUSED */
    unsigned held_claims;     /* how many are HELD: the session beats more often (pace.h) */
    int64_t sweep_ns;         /* when to look at all claims */
    bool suspects;        /* the core was told to doubt held claims, and not yet that all is well */
    int64_t base;         /* of the tokens, as last read */
    int32_t base_version; /* of its node; -1: there is none */
    enum base_state base_state;
    uint64_t base_step;
    int64_t base_changed_ns; /* 0: never */
    struct claim *raising;   /* utlist: FIRST, and need a larger base */
    bool raise_open;         /* a write or a read of the base is on its way for them */
    uint64_t raise_step;     /* counts connections: answers of earlier ones are ignored */
    int64_t raised_base;     /* what the last write wrote */

    struct query *queries;
    struct query *old_queries; /* answered, with requests on their way */
};

static inline int64_t now_of(const struct driver *driver)
{
    return driver->host->now(driver->host);
}

/* The driver's own data of an op: an acquire or release has a claim, every other op has a query. */
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

/* ---- servers.c ------------------------------------------------------------------------------------ */

mortise_status servers_read(struct driver *driver, mortise_error *error);
void servers_ask(struct driver *driver);
bool servers_asking(const struct driver *driver);
/* "192.0.2.1:2181,…": all known addresses; the caller frees the text. NULL: none, or no memory. */
char *servers_text(const struct driver *driver);
void servers_free(struct driver *driver);

/* ---- threads.c ------------------------------------------------------------------------------------ */

/* Whether the system gives this process two more threads now. Call with all signals blocked. */
bool threads_are_there(void);

/* ---- watch.c -------------------------------------------------------------------------------------- */

bool watch_fits(const struct driver *driver, const char *path);
/* A watch is about to be requested. */
void watch_note(struct driver *driver, const char *path);
/* The answer to that request has come. */
void watch_set(struct driver *driver, const char *path);
/* Whether the watch's event is yet to come, so that a claim that waits for that node need not request a watch. */
bool watch_stands(const struct driver *driver, const char *path);
void watch_forget(struct driver *driver, const char *path);
void watches_connected(struct driver *driver); /* another connection: none stands */
void watches_end(struct driver *driver);       /* with the session */

/* ---- fault.c -------------------------------------------------------------------------------------- */

/* Whether the code says that the connection is gone, so that the request may have been executed or not. */
bool fault_is_loss(int rc);
/* Fails an op with what the library or a server said ("not authorised"). */
void fault_tell(struct driver *driver, mortise_op *op, mortise_status status, int rc);
/* Fails an op because nobody answers, or because the servers refuse this client. */
void fault_unreachable(struct driver *driver, mortise_op *op, mortise_status status);
/* INDETERMINATE: fails an acquire whose grant has a claim that cannot serve it: the claim is unwanted or too late, or another op
 * uses it. */
void fault_leaving(struct driver *driver, mortise_op *op);
/* INVALID: the name is held with another number of permits. */
void fault_permits(struct driver *driver, mortise_op *op, uint32_t permits,
                   const mortise_info *holder);
/* CONFIG: this node in the folder belongs to a client that locks in another way. */
void fault_foreign(struct driver *driver, mortise_op *op, enum node_style style, const char *folder,
                   const char *node);
mortise_status fault_error(mortise_error *error, mortise_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* "127.0.0.1:2181": the server of the connection, or without a connection the list of the config. */
const char *fault_server(const struct driver *driver, char *buffer, size_t size);

/* ---- note.c --------------------------------------------------------------------------------------- */

/* Writes the data of a contender's node and returns its length. downgraded: an exclusive node becomes a shared one. */
size_t note_write(const struct driver *driver, int64_t base, bool downgraded, char data[DATA_MAX]);
/* Reads the data of a contender's node: who made it, and info->mode (SHARED: it was downgraded). Returns the base of its
 * tokens; -1: it is no node of ours. */
int64_t note_read(const char *data, mortise_info *info);
/* Fills info from the answer to a get of a holder's node. base: used if the node does not say its own. node: the node's name,
 * for the owner; NULL: leaves the owner out. */
void note_holder(const struct driver *driver, int64_t base, const char *node,
                 const struct request *request, mortise_info *info);
/* The base that was read from %tokens; negative if it makes no sense. */
int64_t note_base(const struct request *request);

#endif
