/* request.h - requests to the ensemble, and how answers and events come back from the library's threads.
 *
 * THREADS. The library has two threads for each handle. The callbacks that these threads run copy their data into a request or
 * an event, put that into the mailbox, and post. Everything else runs in the pump, in the order in which the library's threads
 * saw it. The library reports the unanswered requests of a lost connection after the event of the loss and before the event of
 * the next connection. A request that the pump sends between these two events is answered after the second one, or reported as
 * lost before it. So if the driver sends every request anew, under a new step, when the session is connected again, it may
 * ignore all answers to older steps. (zoo_set_servers() can close the socket on the pump's thread, and then the library
 * reports neither the loss nor the requests. So session.c calls it only without a connection.)
 *
 * WHAT A LOOK KNOWS. A follower may lag behind its leader. A `sync` makes it catch up. But a leader answers `sync` and reads
 * at once, and it may tell its followers of a commit before it applies the commit itself. Then a client of the leader may miss
 * what a client of a follower already knows. So a look that must not miss anything comes behind a *barrier*: a write of its
 * own. The server answers later requests of the same connection only when it has applied that write, and all writes before it.
 * One barrier serves all looks that begin in one call of the module, because everything that any client was told before that
 * call began was done before the barrier was sent. */
#ifndef MORTISE_ZOOKEEPER_REQUEST_H
#define MORTISE_ZOOKEEPER_REQUEST_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <zookeeper/zookeeper.h>

struct driver;
struct session;
struct request;
struct children;

/* What the library's threads put into the mailbox. */
struct mail {
    struct mail *next;
    struct session *session;
    bool is_event;
};

struct mailbox {
    pthread_mutex_t lock;
    pthread_cond_t filled;
    struct mail *first, **end;
    bool posted;
};

typedef void reply_handler(struct driver *driver, struct request *request);

/* Where an answer goes. */
struct reply_to {
    reply_handler *answered; /* NULL: nobody needs it */
    void *target;
    uint64_t step; /* the target's step when the request was sent */
    size_t index;  /* which part of the target it concerns, */
    size_t part;   /* and which part of that part */
    bool
        quiet; /* the answer does not wake the pump: the next request, sent at once, does so for both */
};

/* One request. It lives until it is answered in the pump, exactly once, or until the driver is closed. */
struct request {
    struct mail mail; /* first */
    struct request *next, *prev;
    struct reply_to to; /* the handler owns nothing of it; the request is freed afterwards */
    char *path;
    bool watches; /* it sets a watch on that path */
    bool refused; /* by the library: it does not count as open */
    int64_t sent_ns;
    /* the answer: */
    int rc;
    struct Stat stat;
    char *text; /* the path of a new node, or the data; terminated behind text_size bytes */
    size_t text_size;
    struct children *children;
};

/* Requests about the node "<root>/<folder>/<node>"; node NULL: the folder; folder NULL: the root.
 *
 * False: not sent, because there is no memory or no session. There will be no answer. A create answers with path and Stat,
 * a get with data and Stat, a list with the children. */
bool send_create(struct driver *driver, const char *folder, const char *node, const char *data,
                 size_t size, int mode, struct reply_to to);
bool send_delete(struct driver *driver, const char *folder, const char *node, struct reply_to to);
bool send_set(struct driver *driver, const char *folder, const char *node, const char *data,
              size_t size, int version, struct reply_to to);
bool send_get(struct driver *driver, const char *folder, const char *node, struct reply_to to);
/* Reads the servers' own node with the members of the ensemble. */
bool send_get_config(struct driver *driver, struct reply_to to);
/* As send_get, but also sets a watch if there is room for it; request->watches says whether it does. */
bool send_get_and_watch(struct driver *driver, const char *folder, const char *node,
                        struct reply_to to);
/* Whether a watch that was set in this way stands (watch.c). */
bool node_is_watched(const struct driver *driver, const char *folder, const char *node);
/* Sets a watch even if the node does not exist. */
bool send_exists(struct driver *driver, const char *folder, const char *node, struct reply_to to);
bool send_list(struct driver *driver, const char *folder, struct reply_to to);
bool send_sync(struct driver *driver, struct reply_to to);
/* True: requests that are sent from now on come behind a barrier. */
bool send_barrier(struct driver *driver);
/* Creates the nodes of the root and, if folder is not NULL, that folder below them. The answers are dropped. */
void send_root(struct driver *driver, const char *folder);

/* Takes the answer off its session's list, hands it to its handler and frees the request. */
void request_end(struct driver *driver, struct request *request);

void mail_init(struct driver *driver);
/* Handles everything in the mailbox. */
void mail_read(struct driver *driver);
/* Before closing: waits for the answers that are under way and drops them. The library would leak answers that it has
 * received but not delivered. */
void mail_settle(struct driver *driver, int64_t timeout_ms);
/* Drops the content of the mailbox. All threads of the library have ended by then. */
void mail_end(struct driver *driver);
/* The watcher of a handle. Called on a thread of the library. */
void watch_session(zhandle_t *zh, int type, int state, const char *path, void *session);

#endif
