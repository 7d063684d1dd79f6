/* driver.h - the functions by which the files of the ZooKeeper driver call one another. All of the pump,
 * unless said otherwise. */
#ifndef MORTISE_ZOOKEEPER_DRIVER_H
#define MORTISE_ZOOKEEPER_DRIVER_H

#include "internal.h"

/* ---- request.c ------------------------------------------------------------------------------------ */

/* Who is to have the answer. */
struct reply_to {
    void (*answered)(struct driver *driver, struct request *request);
    void *target;
    uint64_t step;
    bool quiet; /* the answer to the next request, which is sent at once, wakes the pump for both */
};

void mail_init(struct driver *driver);
/* The last: throws away what is in it. No thread of the library's is left. */
void mail_end(struct driver *driver);
/* At the end: waits for the answers that are under way, which nobody wants to know. The library would leak
 * those that it has but did not yet deliver. */
void mail_settle(struct driver *driver, int64_t timeout_ms);
void mail_read(struct driver *driver);
/* Any thread of the library's: the watcher of a handle. */
void watch_session(zhandle_t *zh, int type, int state, const char *path, void *session);
/* Gives the answer that stands in it to whom it belongs, and frees it. */
void request_end(struct driver *driver, struct request *request);

/* False: not sent, out of memory or no session; there will be no answer. A node that is made answers with
 * its path and Stat, `get` with data and Stat, `list` with the children. */
bool send_create(struct driver *driver, const char *path, const char *data, size_t size, int mode,
                 struct reply_to to);
bool send_delete(struct driver *driver, const char *path, struct reply_to to);
bool send_set(struct driver *driver, const char *path, const char *data, size_t size, int version,
              struct reply_to to);
bool send_get(struct driver *driver, const char *path, bool watch, struct reply_to to);
/* With a watch, also if there is no such node. */
bool send_exists(struct driver *driver, const char *path, struct reply_to to);
bool send_list(struct driver *driver, const char *path, struct reply_to to);
/* The server catches up with its leader, which itself may not have applied yet what others were told is done. */
bool send_sync(struct driver *driver, struct reply_to to);
/* What is read behind it knows of all that anybody was told is done: it is a write to the session's node, which is there
 * since the session began; and where it is not, the refusal is a transaction too. */
bool send_barrier(struct driver *driver);

/* ---- servers.c ------------------------------------------------------------------------------------ */

mortise_status servers_read(struct driver *driver, mortise_error *error);
void servers_ask(struct driver *driver);
bool servers_asking(const struct driver *driver);
/* "192.0.2.1:2181,…" of all that are known, to be freed; NULL: none is, or out of memory. */
char *servers_text(const struct driver *driver);
void servers_free(struct driver *driver);

/* ---- session.c ------------------------------------------------------------------------------------ */

void session_event(struct driver *driver, int state);
void session_turn(struct driver *driver, int64_t now_ns);
void session_due(const struct driver *driver, int64_t *due_ns);
/* The names of the servers have been looked up, again. */
void session_servers_known(struct driver *driver);
void session_close_all(struct driver *driver);
/* Ends it, with all nodes of it, and begins another. */
void session_give_up(struct driver *driver);
/* A claim is about to begin: there must be a session that proves itself. It is made at once, or as soon as the
 * queries that are under way are answered. */
void session_wake(struct driver *driver);
int64_t session_timeout_ns(const struct driver *driver);
/* Until when a claim is good; 0: nothing is proven. */
int64_t session_deadline(const struct driver *driver);
/* The connection stands and answers. */
bool session_is_well(const struct driver *driver, int64_t now_ns);
/* A call begins, and may have to wait for a connection, but for no longer than that is configured: the
 * instant now; and whether one that began then, or since when there is none, has waited long enough. */
int64_t session_patience(struct driver *driver);
bool session_is_away(struct driver *driver, int64_t asked_ns);
/* How long ago, in milliseconds, that was which the servers' clock says; -1 unknown. */
int64_t session_since_ms(const struct driver *driver, int64_t servers_ms);
/* "127.0.0.1:2181", the server that it is connected to; else the config's list. */
const char *session_server(const struct driver *driver, char *buffer, size_t size);
/* Makes the nodes above the folders, with `folder` below them if it is not NULL. */
void session_make_root(struct driver *driver, const char *folder);

/* ---- fault.c -------------------------------------------------------------------------------------- */

/* The request may have been executed, or not: its connection is gone. */
bool fault_is_loss(int rc);
/* Fails an op with what the library or server said ("not authorised"), or that nobody answers. */
void fault_tell(struct driver *driver, mortise_op *op, mortise_status status, int rc);
/* CONFIG: this node in the folder is of a client that locks in another way. */
void fault_foreign(struct driver *driver, mortise_op *op, const char *folder, const char *node);
void fault_unreachable(struct driver *driver, mortise_op *op, mortise_status status);
mortise_status fault_error(mortise_error *error, mortise_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* ---- note.c --------------------------------------------------------------------------------------- */

/* What stands in a contender's node; its length. */
size_t note_write(const struct driver *driver, int64_t base, char data[DATA_MAX]);
/* Reads what a node says into info; the base that its holder counts with, or -1. */
int64_t note_read(const char *data, mortise_info *info);
/* "<root>/<folder>" and "<root>/<folder>/<node>"; they fit. */
void path_of(const struct driver *driver, const char *folder, const char *node,
             char path[PATH_SIZE]);
/* The base in the node of the tokens, less than 0: it makes no sense. */
int64_t base_read(const struct request *request);

/* ---- base.c --------------------------------------------------------------------------------------- */

void base_connected(struct driver *driver);
/* An event; false: of another node. */
bool base_event(struct driver *driver, const char *path);
/* Whether driver->base is what it was when the answer was given that is being read now. */
bool base_is_known(struct driver *driver);

/* ---- watch.c -------------------------------------------------------------------------------------- */

bool watch_fits(const struct driver *driver, const char *path);
void watch_note(struct driver *driver, const char *path);
void watch_forget(struct driver *driver, const char *path);
void watches_end(struct driver *driver); /* with the session */

/* ---- claim.c -------------------------------------------------------------------------------------- */

struct claim *claim_find(struct driver *driver, const mortise_op *op);
struct claim *claim_new(struct driver *driver, const mortise_op *op);
/* Does what is next for it to reach its goal, if there is a connection. */
void claim_go(struct driver *driver, struct claim *claim);
/* Answers those who wait for its end, and forgets it. */
void claim_end(struct driver *driver, struct claim *claim, mortise_status status);
/* It does not become what was asked for: fails the acquire, and leaves. */
void claim_fail(struct driver *driver, struct claim *claim, mortise_status status, int rc);
/* Likewise: with this node in the folder, its owner and ours would both hold. */
void claim_refuse(struct driver *driver, struct claim *claim, const char *node);
/* Watches the own node, so that its end is seen. */
void claim_watch_own(struct driver *driver, struct claim *claim);
/* There is room for those in the backlog. */
void claims_late(struct driver *driver);
void claims_event(struct driver *driver, const char *path, bool deleted);
/* Tries again in a second, or so many, what failed. */
void claim_again(struct driver *driver, struct claim *claim, int64_t after_ns);
/* All that there is are nodes that may not be deleted, and one of them at least is of this session. */
bool claims_stuck(const struct driver *driver);
void claims_free(struct driver *driver);
/* Of a claim's requests: who has the answer; that it was sent, or was not (then false, and the acquire has
 * failed); that its answer is here (false: it means nothing any more, or was lost). */
struct reply_to claim_reply(struct claim *claim,
                            void (*answered)(struct driver *driver, struct request *request));
bool claim_counted(struct driver *driver, struct claim *claim, bool sent);
bool claim_arrived(struct driver *driver, struct request *request, struct claim *claim);
typedef void claim_visit(struct driver *driver, struct claim *claim);
/* Calls it for each claim; it may end the claim that it is given. */
void claims_each(struct driver *driver, claim_visit *visit);

/* ---- queue.c -------------------------------------------------------------------------------------- */

void queue_make(struct driver *driver, struct claim *claim);
/* Looks where it stands, behind nothing, a sync or a barrier: this connection may be to a server that lags. */
enum look { LOOK_HERE, LOOK_SYNCED, LOOK_SURE };
void queue_list(struct driver *driver, struct claim *claim, enum look look);
void queue_watch_before(struct driver *driver, struct claim *claim);
/* Is first, or holds: answers the acquire, once the session is proven. */
void claim_grant(struct driver *driver, struct claim *claim);
void queue_forget(struct claim *claim);

/* ---- lease.c: ACQUIRE, RENEW, RELEASE -------------------------------------------------------------- */

void lease_acquire(struct driver *driver, mortise_op *op);
void lease_renew(struct driver *driver, mortise_op *op);
void lease_release(struct driver *driver, mortise_op *op);
void lease_cancel_acquire(struct driver *driver, mortise_op *op);
void lease_cancel_release(struct driver *driver, mortise_op *op);
void lease_connected(struct driver *driver);
void lease_disconnected(struct driver *driver);
void lease_away(struct driver *driver); /* for too long: who waits for an answer is told */
void lease_session_ended(struct driver *driver);
void lease_session_abandoned(struct driver *driver);
void lease_proven(struct driver *driver); /* the deadline has moved */
/* Not later than that. */
void lease_sweep_by(struct driver *driver, int64_t at_ns);
void lease_sweep(struct driver *driver, int64_t now_ns);

/* ---- query.c, list.c ------------------------------------------------------------------------------ */

void query_start(struct driver *driver, mortise_op *op);
void queries_free(struct driver *driver);
/* One of them waits for an answer of this session. */
bool queries_open(const struct driver *driver);
void query_cancel(struct driver *driver, mortise_op *op);
void queries_connected(struct driver *driver);
void queries_away(struct driver *driver);
/* For their own steps: */
struct reply_to query_reply(struct query *query,
                            void (*answered)(struct driver *driver, struct request *request));
/* An answer is here; false: it means nothing any more, or was a failure and is dealt with. `absent`: that
 * there is no such node is an answer too. */
bool query_answer(struct driver *driver, struct request *request, bool absent);
/* A request of it was sent, or not: then it fails, and this is false. */
bool query_sent(struct driver *driver, struct query *query, bool sent);
void query_complete(struct driver *driver, struct query *query, mortise_status status);
/* What a holder's node tells. */
void query_fill(struct driver *driver, int64_t base, const char *node,
                const struct request *request, mortise_info *info);
void list_begin(struct driver *driver, struct query *query);
void list_free(struct query *query);

#endif
