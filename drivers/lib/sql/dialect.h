/* dialect.h - a SQL lock driver consists of drivers/lib/sql and a dialect. This is the border between them.
 *
 * The library takes ops from the core, decides how a row changes (rowlease.h), keeps the callers that wait, and answers.
 * The dialect executes statements and knows the server. It embeds struct sql_locks at the beginning of its instance and
 * struct sql_request at the beginning of its request, and fills in one table, struct sql_dialect.
 *
 * A REQUEST is an op of the core, or an errand: a request that the library makes for itself. It takes one to a few steps,
 * each a statement:
 *
 *     run() ─▶ the dialect executes request->step, when and with whatever it likes, and puts the result into
 *              locks->result (READ: the row into locks->row as well)
 *          ─▶ locks_step(request) ─┬─ SQL_AGAIN: request->step is another one now; execute that, too
 *                                  └─ SQL_OVER: once all that it wrote is committed, locks_tell(request)
 *     instead of locks_step or locks_tell: locks_fail (the server refused), locks_lost (nobody knows)
 *
 * | step          | statement                                        | locks->result                        |
 * |---------------|--------------------------------------------------|--------------------------------------|
 * | TAKE          | acquire without an owner, free row; with `first` | touched, version (the token)         |
 * |               | also one whose first waiter is this client       |                                      |
 * | EXTEND        | renew without an owner                           | touched                              |
 * | GIVE          | release without an owner; may notify a waiter    | touched, waiters (of the row)        |
 * | READ          | the row; no row is a row that does not exist     | now_us, wall_us; `insane`: the row makes no sense |
 * | WRITE         | locks->next, if the row is still locks->row      | touched                              |
 * | APPEND        | locks->inbox becomes the last waiter of a row    | touched, version, hint_ms            |
 * |               | that is held or reserved; not if it is held under |                                      |
 * |               | the op's grant or owner, or, for a shared op, by  |                                      |
 * |               | shared holders                                   |                                      |
 * | BAR           | of a row that shared holders have: barred until   | touched, version, hint_ms            |
 * |               | two seconds from now; and, if answer.registered,  |                                      |
 * |               | locks->inbox is a waiter                         |                                      |
 * | LIST          | locks_list_row() for each held name              |                                      |
 * | PING          | fills op->buffer                                 |                                      |
 * | RECORD_READ   | locks_record() if there is one                   |                                      |
 * | RECORD_WRITE  | where the version is op->record_version; 0: none | touched, version (the new one)       |
 *
 * TAKE, EXTEND and GIVE are the common case in one statement; a dialect that gains nothing by them leaves them out
 * (`quick` = false). If one touches no row, READ follows, and rowlease.c says why, or what else is to be done. A WRITE that
 * touches no row is followed by READ, too.
 *
 * A dialect may execute several steps of several requests in one transaction, provided that it answers no request before
 * the commit. If the transaction was rolled back, each request goes on from its last step (if the dialect commits between
 * steps) or from its first (locks_restart).
 *
 * What must be durable: a grant or a renewal that a crash undoes would let a second holder in, so it must survive whatever
 * the database survives. `durable` says so; other writes (releases, places in lists) may be lost in a crash.
 *
 * Times: *_ns are host->now(), *_us are the server's clock, on which all of its clients agree. sent_ns must be an
 * instant before the server reads its clock for the step (R1). */
#ifndef MORTISE_SQL_DIALECT_H
#define MORTISE_SQL_DIALECT_H

#include "rowlease.h"

#define SQL_QUOTED_SIZE 160 /* a name in a message */
#define SQL_WAKE_MAX 8      /* waiters that one request knows of */
#define SQL_LOOKS_MAX 1024  /* names that are looked at from time to time */
#define SQL_NS_PER_MS INT64_C(1000000)

struct sql_locks;
struct sql_name;

enum sql_task {
    SQL_TASK_OP,     /* an op of the core; op is NULL if its caller has gone */
    SQL_TASK_ENLIST, /* this client becomes a waiter */
    SQL_TASK_FORGET, /* waiters leave the list: this client, or dead ones */
    SQL_TASK_CHECK,  /* the woken waiter's time is over */
    SQL_TASK_SECOND, /* this client leaves before it could check: notify the second waiter, or all shared ones, too */
    SQL_TASK_OWN     /* the dialect's own; the library only allocates and frees it */
};

enum sql_step {
    SQL_TAKE,
    SQL_EXTEND,
    SQL_GIVE,
    SQL_READ,
    SQL_WRITE,
    SQL_APPEND,
    SQL_BAR,
    SQL_LIST,
    SQL_PING,
    SQL_RECORD_READ,
    SQL_RECORD_WRITE
};

enum sql_next { SQL_AGAIN, SQL_OVER };
enum sql_notified { SQL_NOTIFIED, SQL_NOBODY, SQL_NOT_YET };

struct sql_request {
    struct sql_request *next; /* a free one */
    struct sql_locks *locks;
    enum sql_task task;
    enum sql_step step;
    mortise_op *op;       /* NULL: an errand, or the op was canceled */
    mortise_op_kind kind; /* SQL_TASK_OP */
    mortise_grant_id grant;
    struct sql_name *name; /* of an errand; of an acquire that waits */

    /* for the dialect to read */
    bool first;   /* TAKE: this client is in the list of waiters */
    bool durable; /* WRITE: see above */
    bool wakes;   /* WRITE: the first of request->waiters is to be notified once it is committed */
    unsigned swaps; /* WRITEs that touched no row */

    /* what the dialect sets */
    bool flying;     /* a step is with the server: a canceled request lives until the answer */
    bool sure;       /* RELEASE: the server can execute no part of the acquire later */
    bool notified;   /* GIVE, WRITE: the first waiter was notified in the same transaction */
    int64_t sent_ns; /* an instant before the step was sent */

    /* the library's */
    int64_t read_ns, now_us; /* of the READ that a WRITE is based on */
    int64_t version;         /* of the row or record, after it */
    int64_t from_ns;         /* acquire, renew: the claim's time counts from here */
    struct rowlease_answer answer;
    size_t waiter_count, gone_count; /* waiter_count: of all waiters; the array has the first few */
    struct rowlease_inbox waiters[SQL_WAKE_MAX], gone[SQL_WAKE_MAX];
    char trouble[280]; /* answer.trouble in more words, or empty */
};

/* The result of the step that was executed; all zero before the step. Pointers must be valid until locks_step() returns. */
struct sql_result {
    bool touched, insane;
    int64_t version, hint_ms;
    int64_t now_us, wall_us; /* the server's clock, and its wall clock */
    const unsigned char *waiters;
    size_t waiters_len;
};

struct sql_fault {
    mortise_status status;
    bool retryable;
    int native;
    char text[320]; /* "the disk is full" */
};

/* Unless a slot says otherwise, it is called in the pump, must not block, and must call no function of the library
 * except request_new, request_free and locks_unlisted. */
struct sql_dialect {
    size_t request_size;  /* of its request */
    bool quick;           /* has TAKE, EXTEND and GIVE */
    bool append;          /* has APPEND and BAR: a WRITE that adds a waiter would fail too often */
    bool visible_is_safe; /* a crash cannot undo what a READ has seen. Otherwise, an acquire that finds its own claim
                           * writes it again, durably */

    /* Executes request->step, now or later. For a WRITE or APPEND, locks->row and locks->next are
     * valid during the call only. Errors are reported later, by locks_fail or locks_lost. One exception: if there is no
     * memory to keep what the step needs, run() may call locks_fail as the last thing it does, so its caller must not use
     * the request afterwards. It must not do so for a READ that is the first step of an errand. */
    void (*run)(struct sql_request *request);
    /* The op was canceled. If the request is `flying`, the answer still comes, because others may need it. Otherwise
     * the dialect takes the request off its queues, and the library frees it. */
    void (*cancel)(struct sql_request *request);
    /* Frees what the dialect keeps in the request; NULL: nothing. */
    void (*clear)(struct sql_request *request);
    /* Notifies the client that has that inbox, so that it asks again. NOBODY: that client is certainly gone. NOT_YET: it
     * will be notified later. */
    enum sql_notified (*notify)(struct sql_locks *locks, const struct rowlease_inbox *inbox,
                                const char *name, size_t name_len);
    /* Whether a client has that inbox; does not notify it. NULL: always assumed. */
    bool (*is_alive)(struct sql_locks *locks, const struct rowlease_inbox *inbox);
    /* A caller is going to wait, so notifications for locks->inbox must arrive. Sets locks->hears now, or calls
     * locks_hearing() later. False: notifications will never arrive, and waiters must poll. `dropped`: another client took
     * this one off a list; the dialect checks whether the inbox still exists. */
    bool (*hear)(struct sql_locks *locks, bool dropped);
    /* Makes READs of that name due at due_ns if locks_looks_again() is true of them and they would pause beyond far_ns.
     * NULL: no READ of this dialect pauses. */
    void (*hasten)(struct sql_locks *locks, const char *name, size_t name_len, int64_t far_ns,
                   int64_t due_ns);
    /* Which server, for messages. */
    const char *(*where)(const struct sql_request *request, char *text, size_t size);
};

struct sql_looks {
    uint32_t mark;   /* of the name's hash; 0: none. Another name may take the place if count is 0, or the look is 5 s late */
    unsigned count;  /* looks in vain, in a row; reduced if the name changes hands meanwhile: */
    unsigned moves;  /* how often a look found that it had changed hands */
    int64_t version; /* of the row, at the last look */
    int64_t last_ns, due_ns;
};

/* An instance. */
struct sql_locks {
    mortise_host *host;
    const struct sql_dialect *dialect;
    int64_t reserve_us; /* how long a released name is kept for its first waiter */
    bool closing;
    bool unlisted; /* waiters cannot be listed (behind a pooler): inspect does not know their number */

    struct sql_request *spare; /* free requests */
    size_t spare_count;
    uint64_t jitter;

    struct sql_name *names; /* that callers here wait for, or whose waiters need looking after */
    int64_t chore_ns;       /* when locks_turn() has something to do; or NEVER */
    struct rowlease_inbox inbox; /* random: what this client is called in lists of waiters */
    bool hears;                  /* and notifications for it arrive */
    bool looking;                /* some waiters poll: */
    struct sql_looks looks[SQL_LOOKS_MAX];

    struct sql_result result;
    struct rowlease_row row, next; /* the row that was read, and the one to write */
};

/* ---- what the module calls ------------------------------------------------------------------------ */

void locks_init(struct sql_locks *locks, mortise_host *host, const struct sql_dialect *dialect,
                int64_t reserve_ms);
void locks_free(struct sql_locks *locks);
void locks_start(struct sql_locks *locks, mortise_op **ops, size_t n);
void locks_cancel(struct sql_locks *locks, mortise_op *op);
void locks_watch(struct sql_locks *locks, const char *name, size_t name_len);
void locks_unwatch(struct sql_locks *locks, const char *name, size_t name_len);
void locks_turn(struct sql_locks *locks); /* errands that are due */
/* Begins to leave all lists. Call it again and again, and execute the requests that it makes, until locks_have_left(), or
 * until closing has taken too long. */
void locks_leave(struct sql_locks *locks);
bool locks_have_left(const struct sql_locks *locks);

/* ---- what the dialect calls ------------------------------------------------------------------------- */

enum sql_next locks_step(struct sql_request *request);
/* The next three complete the op and free the request. */
void locks_tell(struct sql_request *request);
void locks_fail(struct sql_request *request, mortise_status status, const struct sql_fault *fault);
/* The connection was lost. `sent`: the step was on its way; then the status depends on what the step may have done. */
void locks_lost(struct sql_request *request, bool sent, const mortise_error *trouble);
void locks_restart(struct sql_request *request);
/* The status of an op if the answer to its present step is lost. */
mortise_status locks_lost_status(const struct sql_request *request);
void locks_list_row(struct sql_request *request, const void *name, size_t name_len, int64_t now_us);
/* LIST: writes the first name after all names that begin with the prefix: the prefix is cut after its last byte that is not
 * 0xff, and that byte is raised by one. Returns its length; 0: there is no such name. */
size_t locks_end_of_prefix(const char *prefix, size_t len, char *end);
void locks_record(struct sql_request *request, int64_t version, const void *value, size_t len);
/* Whether the request is a READ, not sent yet, of a caller that waits and has looked in vain before (MORTISE_OP_AGAIN). */
bool locks_looks_again(const struct sql_request *request);
/* When such a READ is due. 0: at once. For a dialect that notifies nobody, because the core asks more often than that. */
int64_t locks_look_due(const struct sql_request *request);
/* A notification came. */
void locks_hear(struct sql_locks *locks, const char *name, size_t name_len);
/* Notifications arrive from now on. Callers that waited before ask again. */
void locks_hearing(struct sql_locks *locks);
/* The lists of waiters that this client was in are lost. */
void locks_unlisted(struct sql_locks *locks);

struct sql_request *request_new(struct sql_locks *locks, enum sql_task task); /* NULL: no memory */
void request_free(struct sql_request *request);
/* The name that the request concerns; "" and 0 if none. */
const char *request_name(const struct sql_request *request, size_t *len);
/* A random duration between ns / 2 and ns. */
int64_t locks_jitter(struct sql_locks *locks, int64_t ns);

#endif
