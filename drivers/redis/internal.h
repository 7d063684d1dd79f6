/* internal.h - the Redis driver's own structures, and which file does what with them.
 *
 *   module.c       the module's table and options; opens and closes an instance
 *   flow.c         ops come in, wait for the connection, are sent, canceled, answered, failed
 *   scripts/       what is executed in the server: the protocol. One script is one atomic step
 *   doubt.c        grants of which it is not known whether they will yet be made
 *   script.c       EVALSHA, and the text where the server does not know it
 *   lease.c        acquire, release, break; renew.c: renewals, many in one script
 *   transaction.c  the same steps by WATCH and MULTI, where scripts are forbidden, for mode = string without a queue
 *   holder.c       who holds a lock, read from what is in the server; hash.c: those of the hash
 *   look.c         inspect, ping; list.c; record.c: small named records
 *   queue.c        who waits in the queue that stands in the server: its protocol
 *   news.c         the second connection: who waits is told of a release
 *   place.c        which of several servers is the primary, and what follows when it is another
 *   confirm.c      min_replicas: a third connection, on which replicas are waited for
 *   key.c          names of keys and channels
 *
 * The connection and its faults are ../lib/redis's. What is in the server for a lock named N (with the
 * namespace before it; {…} is the part that a cluster hashes):
 *
 *   N                   the lock: a string, or a hash (mode), which expires with its holder
 *   {N}:mortise:token   the last token, while a lower one could be given out; for a day
 *   {N}:mortise:news    the channel that tells of a release
 *   {N}:mortise:queue   who waits, in order (queue.c)
 *   {N}:mortise:record  a record of that name
 *
 * An op's way, and the holes in it:
 *
 *            not connected                up
 *   start ──▶ waiting ─────────────────────┬──▶ flight ──answer──▶ completed
 *          │     │ attempt fails           │      │ connection breaks
 *          │     ▼                         │      ▼
 *          │  UNREACHABLE: nothing sent    │  INDETERMINATE (acquire, release, write), UNREACHABLE (the rest)
 *          └───────────────────────────────┘
 *
 *   The request is lost, or its reply: the op is INDETERMINATE, and the core asks again under the same grant
 *     id. Every script finds its own grant and changes nothing then (an acquire says that it only found it,
 *     so that its deadline counts from the first sending); a release that finds nothing says so.
 *   A request of an older connection is executed after the clean-up looked: the link ends the old
 *     connection in the server first. Where it may not, the grants that were being asked for when the
 *     connection broke are *doubtful*, and a release of one is not `sure` until the past is settled.
 *   The server restarts empty: its locks are forgotten (docs/promises.md). A renewal finds nothing: LOST.
 *   The server is stopped, its replies come late: deadlines count from before the sending, whatever comes.
 *   The driver's own release of an acquire that replicas did not confirm (confirm.c) has no answer: it may be executed
 *     later, and would delete what the same grant gets meanwhile. Until the past is settled, an acquire of that grant is
 *     BUSY, and the core takes another grant id.
 *   A canceled acquire is executed all the same: the release that the core sends then comes behind it on
 *     the same connection; or finds it doubtful on the next one.
 *   Thousands of locks are asked for at once, or one again and again by callers that then hand it over among
 *     themselves, or are waited for when a connection is back: so many acquires at most are under way, and the rest is
 *     held back here (those that wait in queues: queue.c), so that renewals and releases do not stand behind them
 *     all; one that is canceled here costs the server nothing.
 *   The script is not known (flushed, another server): NOSCRIPT, nothing was done; sent again as text, unless
 *     it was canceled.
 *   The script fails half-way: its writes are in an order in which the last one makes the lock; OOM, READONLY,
 *     NOPERM come at the first one.
 *   PUBLISH is refused by an ACL: the release stands (pcall); waiters sleep to their hint.
 *   SUBSCRIBE is refused: said once in the log; waiters look again every `retry`, and it is asked again now and then.
 *   INFO is refused: whether the server is the same process is not known after a reconnection: what is held is renewed.
 *   A release is published between a waiter's BUSY and its subscription: the confirmation of the subscription
 *     is news, so it tries again then. The subscription's connection breaks: the same when it is back.
 *   WATCH: one transaction at a time on the connection; see transaction.c.
 *
 * Failover (servers = a, b; sentinel = …): ../lib/redis/primary.h finds the primary, place.c moves there.
 *
 *                  broke, READONLY, +switch-master             ROLE: master
 *   at A ─────────────────────────────────────▶ seeking ─────────────────────▶ at B
 *                                                 │   ▲                         all that is held is renewed: found,
 *                                                 └───┘ nobody, no answer       or LOST; what waits is sent
 *
 *   A request to A has no answer: the acquire, release or write is INDETERMINATE, and the core asks again,
 *     which is at B. B has it, if it was replicated before B became the primary: found. Or it has not, and never
 *     will: a primary takes in nothing from A. So what B says of a grant is sure, whatever A still does with
 *     what is in its buffers: that changes A's data only, which is thrown away when A becomes a replica. Should
 *     A be the primary again with its own data (it came back as one while nobody else was), then this
 *     driver ends its old connection there first; what A executed before that stands for a ttl.
 *   A release says that nothing is there: so does a replica that lags. ROLE is asked on the same connection
 *     before it is believed.
 *   Nothing is asked of the driver, but leases run, and nobody polls its connections: it looks at them
 *     by a timer, twice a second for as long as there may be leases. Nothing is asked while there is no primary: it looks
 *     for one by itself for as long as the longest ttl; once it is at B the core renews all (host->doubt).
 *   B lacks a grant that A had given (replication is asynchronous): the renewal says LOST. Until then, or until
 *     the deadline, another client may have the lock of B: both hold. docs/promises.md.
 *   B's clock is behind A's: tokens could go back where the last one was not replicated. The greeting asks the
 *     time; the furthest clock that this client saw is the floor of the tokens that it asks for.
 *   A is stopped, and goes on: it believes to be the primary until it hears otherwise. Who is connected to it
 *     gets answers. Sentinels tell by the subscription; else it is READONLY at the first write. */
#ifndef MORTISE_DRIVERS_REDIS_INTERNAL_H
#define MORTISE_DRIVERS_REDIS_INTERNAL_H

#include "../lib/redis/holder.h"
#include "../lib/redis/primary.h"
#include "../lib/redis/script.h"
#include "scripts.h"

#include <string.h>

#define HASH_NONFATAL_OOM 1 /* an element that could not be added has hh.tbl == NULL */
#include <uthash.h>
#include <utlist.h>

#define FIELD_MAX (MORTISE_OWNER_MAX > 64 ? MORTISE_OWNER_MAX : 64)
#define TOKEN_MAX UINT64_C(9007199254740991) /* what a number in a script holds exactly */
#define FLOOR_MAX (TOKEN_MAX - UINT32_MAX)   /* leaves room for tokens above it */
#define RENEW_MAX 128                        /* renewals in one script: a tenth of a millisecond */
#define QUOTED_SIZE 160
#define INBOX_SIZE 64
#define SECTION_SIZE 80
#define WISH_SIZE (INBOX_SIZE + 80)
/* More than the longest value of ours. Of another program's, which may be large, this is enough to see whose it is. */
#define VALUE_END "4095"
#define NS_PER_MS INT64_C(1000000)

enum option {
    OPTION_SERVERS,
    OPTION_SENTINEL,
    OPTION_SENTINEL_USERNAME,
    OPTION_SENTINEL_PASSWORD,
    OPTION_USERNAME,
    OPTION_PASSWORD,
    OPTION_DATABASE,
    OPTION_TLS,
    OPTION_TLS_CA,
    OPTION_TLS_CERT,
    OPTION_TLS_KEY,
    OPTION_MODE,
    OPTION_DIALECT,
    OPTION_ATOMICITY,
    OPTION_FENCING,
    OPTION_QUEUE,
    OPTION_FOREIGN,
    OPTION_RETRY,
    OPTION_CONNECT_TIMEOUT,
    OPTION_COMMAND_TIMEOUT,
    OPTION_MIN_REPLICAS,
    OPTION_REPLICA_TIMEOUT,
    OPTION_COUNT
};

enum layout { LAYOUT_STRING, LAYOUT_HASH, LAYOUT_REDISSON };

/* What an acquire asks for where it has to wait: nothing, a place, a place where it may have one already. */
enum wish { WISH_NONE, WISH_NEW, WISH_AGAIN };

enum key { KEY_LOCK, KEY_TOKEN, KEY_NEWS, KEY_QUEUE, KEY_RECORD };

struct driver;

/* A call under way for an op. */
struct flight {
    struct link_call call; /* first */
    struct driver *driver;
    struct flight *next_free;
    mortise_op *op; /* NULL: canceled, failed, or it has many (renew.c) */
    mortise_grant_id grant;
    mortise_op_kind kind;
    int64_t ttl_ms;
    enum script script;     /* SCRIPT_COUNT: none */
    bool by_text;           /* the script's */
    enum wish wish;         /* for a place in the queue */
    bool again;             /* it went on with another call */
    mortise_status verdict; /* place.c: of a release, if it is the primary that says so */
    /* The last reply, which is no error. The op is still there; it is to be completed, or sent on. */
    void (*answer)(struct flight *flight, redisReply *reply);
};

/* A grant whose acquire was under way when the connection broke. */
struct doubt {
    UT_hash_handle hh;
    mortise_grant_id grant;
    int64_t until_ns; /* by then the ttl has passed */
};

/* confirm.c */
struct confirm {
    int64_t replicas, timeout_ms; /* replicas 0: nothing is to be confirmed */
    struct link link;
    struct link_settings settings;
    char run_id[LINK_RUN_ID_SIZE]; /* of the server that granted what is waiting */
    mortise_op *waiting, *asked;   /* utlist */
    struct link_call call;
    bool under_way, failed;
    struct link_fault fault;
    struct link_call count; /* of the replicas, once for each connection */
    bool counting;
    int64_t warned; /* that there are so many */
};

struct driver {
    mortise_host *host;
    const mortise_value *values;
    char section[SECTION_SIZE]; /* "redis:cache", for messages */
    struct link_settings settings;
    struct link link;

    enum layout layout;
    bool fencing;
    bool queued; /* waiters stand in a queue in the server */
    bool foreign_polled;
    int64_t retry_ms;

    bool known[SCRIPT_COUNT]; /* by the server, as far as this connection has told it */
    mortise_op *waiting;      /* for the connection: utlist, by next and previous */
    mortise_op *held_back;    /* acquires: enough are under way */
    size_t asking;            /* acquires under way */
    struct flight *free_flights;
    size_t free_count;
    struct doubt *doubts;
    bool all_doubtful;    /* one could not be noted */
    struct doubt *strays; /* grants whose release may be executed yet */
    bool all_stray;       /* one could not be noted */

    struct seat *seats, *seated; /* queue.c: in the order of their timers; by grant */

    struct transaction *transaction; /* atomicity = watch: the one under way, kept for the next; else NULL */

    /* news.c */
    struct link news;
    struct watched *watched; /* by channel */
    char inbox[INBOX_SIZE];  /* this client's channel */
    bool inbox_wanted, inbox_ready;
    bool deaf;               /* listening to the inbox is refused */
    unsigned refusals;       /* names to which subscribing is refused */
    int64_t refused_ns;      /* the last time, or when it was asked again */
    uint64_t said, answered; /* requests on this connection */
    uint64_t inbox_said;     /* which of them it was */

    /* place.c */
    struct primary *primary; /* NULL: there is one server */
    char run_id[LINK_RUN_ID_SIZE];
    bool was_up;
    int64_t left_ns;         /* when its address led elsewhere, last; 0 never */
    int64_t longest_ms;      /* ttl that was granted */
    int64_t leases_until_ns; /* there may be leases */
    int64_t looked_ns;
    int64_t restless_until_ns;
    uint64_t clock_us; /* the furthest of a server's that was seen, */
    int64_t clock_ns;  /* and when */
    bool clock_behind; /* that of this server is */

    struct confirm confirm;
};

/* ---- flow.c ----------------------------------------------------------------------------------------- */

void flow_start(struct driver *driver, mortise_op **ops, size_t n);
void flow_cancel(struct driver *driver, mortise_op *op);
/* Sends what was held back, as far as there is room. */
void flow_turn(struct driver *driver);
/* For one more acquire under way. */
bool flow_has_room(const struct driver *driver);
bool flow_is_held_back(const struct driver *driver, const mortise_op *op);
void flow_up(struct link *link, void *owner);
void flow_down(struct link *link, void *owner, const struct link_fault *fault);
/* Sends an op: the link is up. */
void flow_send(struct driver *driver, mortise_op *op);
/* A flight for the op, its call begun; NULL: out of memory, and the op was failed. */
struct flight *flow_take_off(struct driver *driver, mortise_op *op,
                             void (*answer)(struct flight *flight, redisReply *reply));
/* The same flight goes on with another call. */
void flow_go_on(struct flight *flight, void (*answer)(struct flight *flight, redisReply *reply));
/* It has its answer, which place.c or confirm.c may have to ask about first. */
void flow_complete(struct driver *driver, mortise_op *op, mortise_status status);
/* Now. */
void flow_end(struct driver *driver, mortise_op *op, mortise_status status);
/* "<what the fault says> (acquire "name")" */
void flow_fail(struct driver *driver, mortise_op *op, const struct link_fault *fault);
/* An answer that makes no sense. */
void flow_fail_odd(struct driver *driver, mortise_op *op);
void flow_fail_token(struct driver *driver, mortise_op *op);
/* It has a place in the queue and cannot wait for its turn. */
void flow_fail_deaf(struct driver *driver, mortise_op *op);
void flow_fail_memory(struct driver *driver, mortise_op *op);
/* A request of the op is about to be sent. */
void flow_sent(mortise_op *op, const struct link_call *call);
const char *flow_verb(mortise_op_kind kind);
/* What a call that was lost means for its op. */
void flow_lose(struct driver *driver, mortise_op *op, enum link_loss loss,
               const struct link_fault *fault);
/* Puts it among those that wait for the connection; false: it was before. */
bool flow_ask_again(struct driver *driver, mortise_op *op);
/* doubt.c */
void flow_doubt(struct driver *driver, const mortise_grant_id *grant, int64_t ttl_ms);
bool flow_is_sure(struct driver *driver, const mortise_grant_id *grant);
/* A release of the driver's own was lost. The core asks for the grant again, or releases it. */
void flow_note_stray(struct driver *driver, const mortise_grant_id *grant);
/* It must not be acquired again: the op ends BUSY. Forgets it, since the core does not use the grant again. */
bool flow_takes_stray(struct driver *driver, mortise_op *op);
/* Those that are over by then; all. */
void flow_drop_doubts(struct driver *driver, int64_t until_ns);
void flow_forget_doubts(struct driver *driver);

/* ---- key.c ------------------------------------------------------------------------------------------ */

/* The key as the next argument. */
void key_put(struct link *link, const struct driver *driver, const mortise_op *op, enum key key);
void key_put_of(struct link *link, const char *name, size_t name_len, enum key key);
/* The channel of a name, for the table of news.c: malloc'ed, with *length; NULL without memory. */
char *key_channel(const struct driver *driver, const char *name, size_t name_len, size_t *length);
void key_put_channel(struct link *link, const struct driver *driver, const mortise_op *op);
void key_put_grant(struct link *link, const mortise_op *op);
/* The field of an owner in Redisson's layout: as given; "uuid:0" made of the grant if unshared. */
size_t key_field(const mortise_op *op, char field[FIELD_MAX + 1]);
/* The field, and whether the owner is shared (1 or 0), as the next two arguments. */
void key_put_owner(struct link *link, const mortise_op *op);

/* ---- script.c --------------------------------------------------------------------------------------- */

/* Begins a script call of the flight: the keys and the other arguments follow. */
void script_begin(struct flight *flight, enum script script, unsigned keys, unsigned arguments);
/* True: by its text. */
bool script_put(struct driver *driver, enum script script, unsigned keys, unsigned arguments);

/* ---- lease.c, renew.c ---------------------------------------------------------------------------------- */

void lease_acquire(struct driver *driver, mortise_op *op);
void lease_release(struct driver *driver, mortise_op *op);
/* Granted by a request that was sent then. */
void lease_granted(struct driver *driver, mortise_op *op, uint64_t token, int64_t sent_ns);
/* It stood already, and ends in so long (as PTTL says it); the request that says so was sent then. */
void lease_found(struct driver *driver, mortise_op *op, uint64_t token, int64_t remaining_ms,
                 int64_t sent_ns);
/* remaining as PTTL says it; the holder is in *op->info by then. */
void lease_busy(struct driver *driver, mortise_op *op, int64_t remaining_ms);
/* 2 done, 1 another's, 0 not there. */
void lease_released(struct driver *driver, mortise_op *op, int64_t answer);
void renew_start(struct driver *driver, mortise_op **ops, size_t n);
bool renew_cancel(struct driver *driver, mortise_op *op);
void renew_answer(struct driver *driver, mortise_op *op, char digit, int64_t sent_ns);

/* ---- holder.c --------------------------------------------------------------------------------------- */

/* Of the fields of a hash, as HGETALL returns them. False: it is no lock. */
bool holder_of_hash(const struct driver *driver, const redisReply *fields, uint64_t now_us,
                    mortise_info *info);
/* Of the answer to an acquire that is refused. */
void holder_of_refusal(const struct driver *driver, const redisReply *reply, mortise_info *info);
/* The value of a lock that is a string, as the next argument. */
void holder_put(struct link *link, const mortise_op *op, uint64_t token, uint64_t since_us);
/* Fields of Redisson's layout that are ours: a grant's, and what says who holds. */
bool holder_is_grant(const redisReply *field);
bool holder_is_ours(const redisReply *field);

/* ---- look.c, list.c, record.c ------------------------------------------------------------------------- */

void look_inspect(struct driver *driver, mortise_op *op);
void look_ping(struct driver *driver, mortise_op *op);
/* The answer to ROLE, with which a ping begins; an error too: the user may not be allowed to ask. */
void look_role_told(struct flight *flight, redisReply *reply);
/* Reading a lock as one step: MULTI, GETRANGE or HGETALL, PTTL, TIME, with a queue its length, EXEC, whose reply is the last
 * of look_replies. */
unsigned look_replies(const struct driver *driver);
void look_put(struct driver *driver, const char *key, size_t key_len);
/* Of the answer to EXEC. False: it makes no sense, or is no lock. */
bool look_take(const struct driver *driver, const redisReply *reply, mortise_info *info);
void list_start(struct driver *driver, mortise_op *op);
bool list_cancel(struct driver *driver, mortise_op *op);
void record_read(struct driver *driver, mortise_op *op);
void record_write(struct driver *driver, mortise_op *op);

/* ---- transaction.c: atomicity = watch ------------------------------------------------------------------ */

bool transaction_open(struct driver *driver);
/* Begins the next one if none is under way: takes its op from driver->waiting. */
void transaction_next(struct driver *driver);
/* True: the op was in the transaction under way, and was completed. */
bool transaction_cancel(struct driver *driver, mortise_op *op);
/* An EXEC is about to be sent. True: behind UNWATCH, because a key that this connection watches could make it fail. */
bool transaction_disturb(struct driver *driver);

/* ---- place.c ---------------------------------------------------------------------------------------- */

/* Looks for the primary among the servers of the list, or asks its sentinels for the name. */
bool place_open(struct driver *driver, const char *list, const char *sentinel_name,
                const struct link_settings *like, const char **problem);
void place_seek(struct link *link, void *owner);
/* The main connection is up; it broke; a claim was given. */
bool place_up(struct driver *driver);
/* A newer connection to the address is at another server: the main one goes there, too. False: it did so a moment ago, and
 * stays. */
bool place_leads_elsewhere(struct driver *driver);
/* The answer to ROLE is a primary's; and what to say if not. */
bool place_is_primary(const redisReply *reply);
void place_fault(const struct driver *driver, struct link_fault *fault);
void place_broke(struct driver *driver);
void place_note(struct driver *driver, const mortise_op *op);
/* When the connections are to be looked at though nobody polls them; whether that is now. */
int64_t place_look_due_ns(const struct driver *driver);
bool place_looks(struct driver *driver);
/* There may be leases: it goes on looking for the primary. */
bool place_is_restless(const struct driver *driver);
/* Below which the token must not be. */
uint64_t place_floor(const struct driver *driver, const mortise_op *op);
/* True: it asks first whether this is the primary still. */
bool place_questions(struct driver *driver, mortise_op *op, mortise_status status);

/* ---- confirm.c -------------------------------------------------------------------------------------- */

void confirm_open(struct driver *driver, int64_t replicas, int64_t timeout_ms);
/* True: the replicas are asked first. */
bool confirm_takes(struct driver *driver, mortise_op *op, mortise_status status);
/* It waits for replicas. */
bool confirm_has(const struct driver *driver, const mortise_op *op);
bool confirm_cancel(struct driver *driver, mortise_op *op);
/* At the end of each turn. */
void confirm_turn(struct driver *driver);
/* An op of its own has ended. */
void confirm_undone(struct driver *driver, mortise_op *op, mortise_status status);
/* ---- queue.c ---------------------------------------------------------------------------------------- */

/* What an acquire that is sent at that instant asks for, and the argument that says so. */
enum wish queue_wish(struct driver *driver, mortise_op *op, int64_t sent_ns, char text[WISH_SIZE]);
/* The answer was an error, or it was not sent: nothing was done. */
void queue_refused(struct driver *driver, const mortise_op *op, enum wish wish);
/* It has to wait, and to ask again in so long at the latest; with a wish it has a place now. True: the op is kept. */
bool queue_keep(struct driver *driver, mortise_op *op, enum wish wish, int64_t at_latest_ms,
                int64_t sent_ns);
bool queue_is_seated(const struct driver *driver, const mortise_op *op);
/* It may have a place, or the lock, in the server. */
bool queue_is_placed(const struct driver *driver, const mortise_op *op);
void queue_unseat(struct driver *driver, mortise_op *op);
/* A connection is back: they ask, as many at a time as there is room for. */
void queue_ask_all(struct driver *driver);
int64_t queue_due_ns(const struct driver *driver);
void queue_turn(struct driver *driver);
/* A message came to the inbox. */
void queue_told(struct driver *driver, const char *text, size_t length);
/* The connection cannot be made anew. */
void queue_lose_all(struct driver *driver, const struct link_fault *fault);

/* ---- news.c ----------------------------------------------------------------------------------------- */

void news_open(struct driver *driver);
void news_watch(struct driver *driver, const char *name, size_t name_len);
void news_unwatch(struct driver *driver, const char *name, size_t name_len);
/* The other connection broke: this one may have, too. */
/* The main connection is UP: the subscriptions must be at the same server. */
void news_follow(struct driver *driver, bool may_be_another);
void news_suspect(struct driver *driver, const struct link_fault *fault);
/* The inbox: this client's own channel, subscribed to when a lock is first waited for. */
void news_want_inbox(struct driver *driver);
bool news_inbox_ready(const struct driver *driver);
/* Nobody will be told of its release: it is to be looked for. */
bool news_is_refused(struct driver *driver, const mortise_op *op);
void news_close(struct driver *driver);

#endif
