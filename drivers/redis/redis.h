/* redis.h - the structures of the Redis driver, what each file does, and what can go wrong. op.h has the states of an op.
 *
 * protocol.md has the requests, their keys and replies, and what the client may believe afterwards. A file uses only the files
 * below its own line, so no two need each other:
 *
 *   module.c       the module's table and options; opens an instance
 *   cluster.c      routes each op to the node that has its slot; gather.c: lists and pings of all nodes (cluster.h)
 *   node.c         opens, turns and closes what a client has at one server
 *   dispatch.c     accepts ops, keeps them while there is no connection, sends and cancels them
 *   lease.c        acquire, release, break; renewal.c: renewals, many in one script; list.c, pages.c: lists; record.c: small named
 *                  records
 *   inspect.c      reads one lock; ping
 *   findings.c     what a ping says about the server's settings
 *   transaction.c  acquire, renew and release by WATCH and MULTI, if scripts are forbidden; transaction_part.c: one op of it
 *   shared.c       shared holders: acquire, release, downgrade, look, and the bar against new ones (shared.h)
 *   queue.c        waits for a turn in the queue that is in the server
 *   turn.c         a release that is sent together with the next caller's acquire
 *   answer.c       what the server's answer means for an op
 *   replicas.c     min_replicas: a third connection, on which the driver waits for replicas
 *   pubsub.c       the second connection: reports releases to waiters
 *   request.c      a request of an op, from its sending to its reply or loss; how ops end
 *   seats.c        the ops that wait in the queue (seats.h)
 *   failover.c     which of several servers is the primary, and what happens if it is a new one
 *   uncertain.c    grants whose lost requests may still be executed
 *   holder.c       who holds a lock, read from its value; keys.c: names of keys and channels; script.c: calls of scripts
 *   scripts/       what the server executes. A script is one atomic step
 *
 * A part that must call a part above it gets a table of functions: `routes` (cluster.c), `dispatch` (send, start, cancel) and
 * `inbox` (queue.c) in struct driver; the release that replicas.c makes has `done`, as every op has.
 *
 * `struct driver` is what a client has at one server: its connections, requests, doubts, seats, subscriptions. Without a
 * cluster there is one, with a cluster there is one for each node that is in use.
 *
 * For a lock named N (with the namespace before it), the server has these keys. A cluster hashes the part in braces:
 *
 *   N                   the lock: a string, or a hash (mode), which expires with its holder
 *   {N}:mortise:token   the last token, for a day after its time
 *   {N}:mortise:news    the channel on which releases are published
 *   {N}:mortise:queue   the waiters, in order (queue.c)
 *   {N}:mortise:record  a record of that name
 *   {N}:mortise:holders, :shares, :bar  beside a lock that is shared (protocol.md); scripts derive their names from the queue's
 *
 * THE HOLES:
 *
 *   The request is lost, or its reply: an acquire, release, downgrade or write ends INDETERMINATE, the rest UNREACHABLE. The
 *     core asks again under the same grant id. Then every script finds its own grant and changes nothing. An acquire reports
 *     that it only found the grant, so its deadline counts from the first sending. A release that finds nothing reports that.
 *   A request of an older connection is executed after the clean-up looked: the link ends the old connection in the server
 *     first. If it may not do so, the grants whose acquires were under way when the connection broke are *in doubt*, and a
 *     release of such a grant is not `sure` until the past is settled (uncertain.c).
 *   The server restarts empty: it has forgotten its locks (docs/promises.md). A renewal finds nothing: LOST.
 *   The server is stopped and its replies come late: deadlines count from before the sending, so this is harmless.
 *   The driver itself releases an acquire that replicas did not confirm, and that release has no answer: it may be executed
 *     later, and would delete what the same grant gets meanwhile. Until the past is settled, an acquire of that grant is BUSY,
 *     and the core takes another grant id.
 *   A canceled acquire is still executed: the release that the core then sends comes behind it on the same connection, or finds
 *     the grant in doubt on the next connection.
 *   Thousands of locks are acquired at once: at most ASKING_MAX acquires are under way, and the rest are HELD_BACK (those with
 *     a seat: queue.c), so that renewals and releases do not wait behind them. An acquire that is canceled there costs the
 *     server nothing.
 *   The server does not know the script (flushed, another server): NOSCRIPT, so nothing was done. The script is sent as text,
 *     unless the op was canceled.
 *   The script fails half-way: OOM and READONLY come at its first write, NOPERM at the first command that the user may not run.
 *     The lock is made last. If what comes behind is refused (its end, what the holders who share it need), it is removed again.
 *     While its slot moves, any command may be refused, because a key is not there (SPLIT): what may have changed something is
 *     INDETERMINATE.
 *   An ACL refuses PUBLISH: the release succeeds (pcall); waiters sleep until their hint.
 *   SUBSCRIBE is refused: logged once; waiters ask every `retry`, and the driver subscribes again now and then.
 *   The second connection cannot be made, or SUBSCRIBE is not answered, in two attempts and for a second: the same, until
 *     SUBSCRIBE is answered.
 *   INFO is refused: after a reconnection, nobody knows whether the server is the same process, so all held locks are renewed.
 *   A release is published between a waiter's BUSY and its subscription: the confirmation of the subscription counts as news,
 *     so the waiter tries again. The same holds when a broken subscription is made again.
 *   Another server becomes the primary: failover.c. A slot of a cluster moves: cluster.h. */
#ifndef MORTISE_DRIVERS_REDIS_REDIS_H
#define MORTISE_DRIVERS_REDIS_REDIS_H

#include "../lib/redis/channels.h"
#include "../lib/redis/holder.h"
#include "../lib/redis/primary.h"
#include "../lib/redis/script.h"
#include "op.h"
#include "scripts.h"

#include <string.h>

#include <utlist.h>

#define FIELD_MAX (MORTISE_OWNER_MAX > 64 ? MORTISE_OWNER_MAX : 64)
#define TOKEN_MAX UINT64_C(9007199254740991) /* the largest exact number in a script */
#define FLOOR_MAX (TOKEN_MAX - UINT32_MAX)   /* leaves room for tokens above it */
#define RENEW_MAX 128                        /* renewals in one script: a tenth of a millisecond */
#define INBOX_SIZE 64
#define SECTION_SIZE 80
#define WISH_SIZE (INBOX_SIZE + 80)
/* More than our longest value. Another program's value may be large, but this much of it shows whose it is. */
#define VALUE_END "4095"
#define NS_PER_MS INT64_C(1000000)

enum layout { LAYOUT_STRING, LAYOUT_HASH, LAYOUT_REDISSON };

/* What an acquire that has to wait asks for: nothing; a place; a place, although it may have one already. */
enum wish { WISH_NONE, WISH_NEW, WISH_AGAIN };

enum key { KEY_LOCK, KEY_TOKEN, KEY_NEWS, KEY_QUEUE, KEY_RECORD, KEY_HOLDERS, KEY_SHARES };

/* ---- the instance ----------------------------------------------------------------------------------- */

/* A request under way for an op. */
struct request {
    struct link_call call;   /* first */
    struct link_call asking; /* ASKING, before it */
    struct request *along;   /* an acquire that is in the same call (turn.c); or NULL */
    struct driver *driver;
    struct request *next_free;
    mortise_op *op; /* NULL: the op was canceled, or has ended */
    mortise_grant_id grant;
    mortise_op_kind kind;
    int64_t ttl_ms;
    struct seat *seat;  /* the op's seat, while the op is SENT; or NULL */
    enum script script; /* SCRIPT_COUNT: none */
    bool by_text;       /* the script's */
    enum wish wish;     /* for a place in the queue */
    bool goes_on;       /* a call has begun, and no reply to it has come */
    bool takes_errors;  /* an error reply is an answer, too */
    mortise_status
        verdict; /* of a release that found nothing, if the server is the primary; else MORTISE_OK */
    /* Gets the last reply, which is no error. The op still exists, and must be completed, or sent on. */
    void (*answer)(struct request *request, redisReply *reply);
};

/* A grant with a request that was lost. */
struct lost_grant {
    UT_hash_handle hh;
    mortise_grant_id grant;
    int64_t until_ns; /* by then the ttl has passed */
};

/* min_replicas: replicas.c */
struct replicas {
    int64_t wanted, timeout_ms; /* wanted 0: nothing needs confirmation */
    struct link link;
    struct link_settings settings;
    char run_id[LINK_RUN_ID_SIZE]; /* of the server that granted the waiting ops */
    mortise_op *waiting, *asked;   /* utlist */
    struct link_call call;
    bool under_way, failed;
    struct link_fault fault;
    struct link_call count; /* counts the replicas, once for each connection */
    bool counting;
    int64_t warned; /* the number of replicas that the log has warned about */
    size_t undoing; /* releases under way, here or at another node of the cluster */
    unsigned tries; /* how many writes were refused in a cluster */
    bool again;     /* the last write was refused, and another is tried */
    bool full;      /* one was refused because the memory is full */
};

/* What dispatch.c does for the parts below it. */
struct dispatch_calls {
    void (*send)(struct driver *driver, mortise_op *op);
    void (*start)(struct driver *driver, mortise_op **ops, size_t n);
    void (*cancel)(mortise_op *op);
};

/* What cluster.c does for the parts below it. */
struct route_calls {
    /* The server turned out to be a node of a cluster. */
    void (*discovered)(struct driver *driver);
    /* Cancels an op of the driver's own that has no node. */
    void (*cancel)(struct driver *driver, mortise_op *op);
    /* A node of a cluster refused a request with this error, so nothing was done for the op, which has no request. True:
     * the op was sent on, or ended. False: the error does not concern slots. */
    bool (*redirected)(struct driver *driver, mortise_op *op, const redisReply *reply);
    /* A connection broke, or could not be made: the slots of this node may be elsewhere now. False: the map shows no slots of
     * this node. */
    bool (*doubted)(struct driver *driver);
    /* Whether the node has the slot of this name, according to the map. */
    bool (*serves)(const struct driver *driver, const char *name, size_t name_len);
    /* An op that was led here by ASK, and is SEATED or taken from a list, goes to the node that has its slot according to the
     * map. */
    void (*again)(struct driver *driver, mortise_op *op);
    /* A lock was released at this node, to which its slot is on its way. */
    void (*released)(struct driver *driver, const mortise_op *op);
};

/* The latest clock of a server that this client saw, and when. */
struct seen_clock {
    uint64_t us;
    int64_t ns;
};

/* What queue.c does when the state of the inbox has changed. */
struct inbox_calls {
    void (*changed)(struct driver *driver); /* the driver listens to it now, or that was refused */
    void (*told)(struct driver *driver, const char *text, size_t length);
};

struct driver {
    mortise_host *host;
    const mortise_value *values;
    char section[SECTION_SIZE]; /* "redis:cache", for messages */
    struct link_settings settings;
    struct link link;
    const struct dispatch_calls *dispatch;
    const struct route_calls *routes; /* NULL: do not look for a cluster */
    struct cluster *cluster;
    struct driver *next_node;
    bool in_cluster;  /* it is a node of a cluster, */
    int server;       /* with this index in the map */
    bool had_slots;   /* when the map last changed */
    int64_t quiet_ns; /* since when it has no slots and no requests; 0: it has some */

    enum layout layout;
    bool fencing;
    bool queued; /* waiters are in a queue in the server */
    bool foreign_polled;
    int64_t retry_ms;

    bool known[SCRIPT_COUNT]; /* scripts whose text this connection has sent */
    mortise_op *waiting;      /* utlist, by next and previous */
    mortise_op *held_back;    /* likewise */
    size_t asking;            /* acquires under way */
    struct request *free_requests;
    size_t free_count;

    struct lost_grant *doubts; /* an acquire may still be executed */
    bool all_doubtful;         /* one could not be noted */
    struct lost_grant *strays; /* a release may still be executed */
    bool all_stray;            /* one could not be noted */

    struct seat *seats, *seated; /* in the order of their timers; by grant */
    struct seat *kept;           /* by name: for the release to take along (turn.c) */
    struct transaction
        *transaction; /* atomicity = watch: the one under way, kept for later use; else NULL */

    /* pubsub.c */
    struct link news;
    const struct inbox_calls *inbox_calls;
    struct channel *watched; /* struct watched */
    char inbox[INBOX_SIZE];  /* this client's channel */
    bool inbox_wanted, inbox_ready;
    bool deaf;               /* the server refuses to let it listen to the inbox */
    unsigned refusals;       /* how many names cannot be subscribed to */
    int64_t refused_ns;      /* the time of the last refusal, or of the last new attempt */
    uint64_t said, answered; /* requests on this connection */
    uint64_t unsaid;         /* requests that end a subscription, and have no answer yet */
    uint64_t inbox_said;     /* the number of the inbox's request */
    struct unheard unheard;

    /* failover.c */
    struct primary *primary; /* NULL: there is only one server */
    char run_id[LINK_RUN_ID_SIZE];
    bool was_up;
    int64_t left_ns;         /* when its address last led elsewhere; 0: never */
    int64_t longest_ms;      /* the longest ttl that was granted */
    int64_t leases_until_ns; /* until then there may be leases */
    int64_t looked_ns;
    int64_t restless_until_ns;
    struct seen_clock *clock; /* of all nodes */
    bool clock_behind;        /* this server's clock is behind it */

    struct replicas replicas;
};

/* Whether it can share locks. That needs scripts, tokens and a layout of ours. */
static inline bool driver_shares(const struct driver *driver)
{
    return driver->fencing && driver->layout != LAYOUT_REDISSON && driver->transaction == NULL;
}

static inline int64_t now_of(const struct driver *driver)
{
    return driver->host->now(driver->host);
}

/* ---- dispatch.c ------------------------------------------------------------------------------------- */

extern const struct dispatch_calls dispatch_calls;
extern const struct link_callbacks dispatch_callbacks; /* of the main connection */
void dispatch_start(struct driver *driver, mortise_op **ops, size_t n);
/* The two halves of dispatch: accept an op, or fail it; send the waiting ops, or connect. */
void dispatch_take(struct driver *driver, mortise_op *op);
void dispatch_go(struct driver *driver);
void dispatch_cancel(mortise_op *op);
/* Sends acquires that were held back, as far as there is room. */
void dispatch_turn(struct driver *driver);

/* ---- request.c -------------------------------------------------------------------------------------- */

#define ASKING_MAX 256 /* acquires under way: a few milliseconds of the server's time */

static inline bool has_room(const struct driver *driver)
{
    return driver->asking < ASKING_MAX;
}

/* Makes a request of the op and begins its call. NULL: out of memory, and the op has been failed. */
struct request *request_begin(struct driver *driver, mortise_op *op,
                              void (*answer)(struct request *request, redisReply *reply));
/* The same request goes on with another call; or, if nothing was put into its first call yet, the call gets another answer
 * function. */
void request_go_on(struct request *request,
                   void (*answer)(struct request *request, redisReply *reply));
/* Makes a request of the op that is in the same call as `request`, which was begun. NULL: out of memory, and the op is
 * unchanged. */
struct request *request_along(struct request *request, mortise_op *op);
/* Whether the request only asks if the server that found nothing to release is the primary. */
static inline bool request_is_idle(const struct request *request)
{
    return request->verdict != MORTISE_OK;
}
/* Separates the op from its request: from now on the op has another one, or none. */
mortise_op *request_let_go(struct request *request);
/* The request made no place in the queue: nothing was done, or it was refused a place. So there is none, unless there was
 * one before. */
void request_made_no_place(struct request *request);
/* Begins a script call of the request; the caller puts the keys and the other arguments. */
void request_script(struct request *request, enum script script, unsigned keys, unsigned arguments);
void requests_free(struct driver *driver);

/* Whether the driver itself made the op. */
static inline bool op_is_own(const struct driver *driver, const mortise_op *op)
{
    return op->issuer == (const void *)driver->values;
}

/* Whether it is a renewal that makes an exclusive claim a shared one. */
static inline bool op_downgrades(const mortise_op *op)
{
    return op->kind == MORTISE_OP_RENEW && (op->flags & MORTISE_OP_DOWNGRADE) != 0;
}

/* A request of the op is about to be sent. */
void op_sent(mortise_op *op, const struct link_call *call);
/* Gives up the op's seat, and notes what was granted; then op_end. */
void op_complete(struct driver *driver, mortise_op *op, mortise_status status);
/* The first half of op_complete(), if another request follows before the op ends. */
void op_answered(struct driver *driver, mortise_op *op, mortise_status status);
void op_end(struct driver *driver, mortise_op *op, mortise_status status);
/* Fails the op with "<the fault's text> (acquire "name")". The status is INDETERMINATE instead, if the op may have a place
 * in the queue. */
void op_fail(struct driver *driver, mortise_op *op, const struct link_fault *fault);
void op_fail_as(struct driver *driver, mortise_op *op, mortise_status status, bool retryable,
                const char *text);
/* Fails the op because of an answer that makes no sense. It is unknown then what a request that changes something has done. */
void op_fail_odd(struct driver *driver, mortise_op *op);
void op_fail_token(struct driver *driver, mortise_op *op);
/* Fails an op that has a place in the queue, but cannot wait for its turn. */
void op_fail_deaf(struct driver *driver, mortise_op *op);
void op_fail_memory(struct driver *driver, mortise_op *op);
/* Does what the loss of a call means for its op. */
void op_lose(struct driver *driver, mortise_op *op, enum link_loss loss,
             const struct link_fault *fault);
void op_wait(struct driver *driver, mortise_op *op);
/* Makes an op that changes nothing wait again. False: it was lost before. */
bool op_wait_again(struct driver *driver, mortise_op *op);

/* ---- uncertain.c ------------------------------------------------------------------------------------ */

void uncertain_add(struct driver *driver, const mortise_grant_id *grant, int64_t ttl_ms);
bool uncertain_is_sure(struct driver *driver, const mortise_grant_id *grant);
/* A release that the driver itself made was lost. The core asks for the grant again, or releases it. */
void uncertain_add_stray(struct driver *driver, const mortise_grant_id *grant);
/* Whether the op is an acquire that must not be sent. The core takes another grant then, so this stray is forgotten. */
bool uncertain_is_stray(struct driver *driver, const mortise_op *op);
/* Drop the entries whose ttl has passed; or all. */
void uncertain_drop(struct driver *driver, int64_t until_ns);
void uncertain_forget(struct driver *driver);

/* ---- keys.c, script.c, holder.c --------------------------------------------------------------------- */

/* Puts the key as the next argument. */
void key_put(struct link *link, const mortise_op *op, enum key key);
void key_put_of(struct link *link, const char *name, size_t name_len, enum key key);
/* Makes the name of a name's channel. */
void key_add_channel(struct key_parts *parts, const struct driver *driver, const char *name,
                     size_t name_len);
void key_put_channel(struct link *link, const struct driver *driver, const mortise_op *op);
void key_put_grant(struct link *link, const mortise_op *op);
/* The field of the owner in Redisson's layout, and whether the owner is shared (1 or 0), as the next two arguments. */
void key_put_owner(struct link *link, const mortise_op *op);

/* Begins a call; the caller puts the keys and the other arguments. True: the call has the text of the script. */
bool script_put(struct driver *driver, enum script script, unsigned keys, unsigned arguments,
                bool asking);
/* The same on another connection, always with the text. */
void script_put_text(struct link *link, enum script script, unsigned keys, unsigned arguments);

/* Reads the holder from the fields of a hash, as HGETALL returns them. False: it is no lock. */
bool holder_of_hash(const struct driver *driver, const redisReply *fields, uint64_t now_us,
                    mortise_info *info);
/* Reads the holder from the answer to a refused acquire. */
void holder_of_refusal(const struct driver *driver, const redisReply *reply, mortise_info *info);
/* Puts the value of a lock that is a string, as the next argument. */
void holder_put(struct link *link, const mortise_op *op, uint64_t token, uint64_t since_us);

/* ---- failover.c ------------------------------------------------------------------------------------- */

/* Looks for the primary among the servers of the list, or asks its sentinels for the name. */
bool failover_open(struct driver *driver, const char *list, const char *sentinel_name,
                   const struct link_settings *like, const char **problem);
void failover_seek(struct link *link, void *owner);
/* The main connection is up. Returns whether it may lead to another server than before. */
bool failover_up(struct driver *driver);
void failover_broke(struct driver *driver);
/* A newer connection to the address is at another server, so the main one goes there, too. False: it did so a moment ago,
 * and stays. */
bool failover_leads_elsewhere(struct driver *driver);
/* Whether the answer to ROLE is a primary's; and the error text if it is not. */
bool failover_is_primary(const redisReply *reply);
void failover_fault(const struct driver *driver, struct link_fault *fault);
/* Compares the server's clock with the latest one. */
void failover_compare(struct driver *driver);
/* A claim was granted or renewed. */
void failover_note(struct driver *driver, const mortise_op *op);
/* When the connections must be checked although nobody polls them; and whether that time has come. */
int64_t failover_look_due_ns(const struct driver *driver);
bool failover_looks(struct driver *driver);
/* Whether there may be leases, so that it goes on looking for the primary. */
bool failover_is_restless(const struct driver *driver);
/* The smallest token that the op may get. */
uint64_t failover_floor(const struct driver *driver, const mortise_op *op);

/* ---- pubsub.c --------------------------------------------------------------------------------------- */

void pubsub_open(struct driver *driver, const struct inbox_calls *inbox_calls);
void pubsub_watch(struct driver *driver, const char *name, size_t name_len);
void pubsub_unwatch(struct driver *driver, const char *name, size_t name_len);
/* The slot of this channel is at this node: still, or again. */
void pubsub_stay(struct driver *driver, struct channel *channel);
/* The slot is at another node. */
void pubsub_leave(struct driver *driver, struct channel *channel);
/* The main connection is UP: the subscriptions must be at the same server. */
void pubsub_follow(struct driver *driver, bool may_be_another);
/* The main connection broke, so this one may have broken, too. */
void pubsub_suspect(struct driver *driver, const struct link_fault *fault);
/* The inbox: this client's own channel, subscribed to when a lock is first waited for. */
void pubsub_want_inbox(struct driver *driver);
/* Whether nobody will report a release of this lock, so that its waiters must ask. */
bool pubsub_is_refused(struct driver *driver, const mortise_op *op);
/* The command that publishes a release; NULL: PUBLISH. */
const char *pubsub_verb(const struct driver *driver);
/* Publishes a release that was executed at another node. */
void pubsub_tell(struct driver *driver, const mortise_op *op);
void pubsub_close(struct driver *driver);

/* ---- replicas.c ------------------------------------------------------------------------------------- */

void replicas_open(struct driver *driver, int64_t wanted, int64_t timeout_ms);
/* The op was granted or renewed, and is confirmed before it is completed. False: no confirmation is needed. */
bool replicas_take(struct driver *driver, mortise_op *op);
void replicas_cancel(mortise_op *op);
/* Call it at the end of each turn. */
void replicas_turn(struct driver *driver);

/* ---- answer.c --------------------------------------------------------------------------------------- */

/* The op was granted by a request that was sent at that instant. */
void answer_granted(struct driver *driver, mortise_op *op, uint64_t token, int64_t sent_ns);
/* The grant existed already, and ends after that time (in the form of PTTL). The request that found it was sent at that
 * instant. */
void answer_found(struct driver *driver, mortise_op *op, uint64_t token, int64_t remaining_ms,
                  int64_t sent_ns);
/* remaining is in the form of PTTL. The holder must be in *op->info before. */
void answer_busy(struct driver *driver, mortise_op *op, int64_t remaining_ms);
/* Ends the op with this verdict if the server is still the primary. Otherwise the op fails, and the driver leaves the
 * server. */
void answer_of_primary(struct driver *driver, mortise_op *op, mortise_status verdict);
/* answer: 2 done, 1 another's, 0 not there. */
void answer_released(struct driver *driver, mortise_op *op, int64_t answer);
/* digit: '2' done, '1' another's, '0' not there, '3' the server refuses to say. */
void answer_renewed(struct driver *driver, mortise_op *op, char digit, int64_t sent_ns);

#endif
