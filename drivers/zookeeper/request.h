/* request.h - requests to the ensemble, and how answers and events come back from the library's threads.
 *
 * THREADS. The library has two threads for each handle. The functions that they call copy what they are told into a request
 * or an event, put that into the mailbox and post. Everything else runs in the pump, in the order in which the library's
 * threads saw it. The library reports the unanswered requests of a lost connection after the event of the loss and before
 * the event of the next connection. A request that the pump sends between these two events is answered after the second
 * one, or reported as lost before it. So whoever sends every request anew, under a new step, when the session is connected
 * again, may ignore all answers to older steps. (zoo_set_servers() can close the socket on the pump's thread, and then the library
 * reports neither the loss nor the requests. So session.c calls it only without a connection.)
 *
 * WHAT A LOOK KNOWS. A follower may lag behind its leader. A `sync` makes it catch up. But a leader answers `sync` and reads
 * at once, and it may tell its followers of a commit before it applies the commit itself: a client of the leader may then
 * miss what a client of a follower already knows. So a look that must not miss anything comes behind a *barrier*: a write
 * of its own. The server answers later requests of the same connection only when it has applied that write, and all before
 * it. One barrier serves all looks that begin in one call of the module: everything that anybody was told before these
 * calls began was done before the barrier was sent. */
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
    reply_handler *answered; /* NULL: nobody wants to know */
    void *target;
    uint64_t step; /* of the target, when the request was sent */
    size_t index;  /* of the part of the target that it is about, */
    size_t part;   /* and of the part of that */
    bool
        quiet; /* the answer wakes nobody: the next request, which is sent at once, wakes the pump for both */
};

/* One request. It lives until it is answered in the pump, exactly once, or until the driver is closed. */
struct request {
    struct mail mail; /* first */
    struct request *next, *prev;
    struct reply_to to; /* the handler takes nothing over; the request is freed after it */
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
/* Of the servers' own node with the members of the ensemble. */
bool send_get_config(struct driver *driver, struct reply_to to);
/* As send_get, and sets a watch if there is room for it: request->watches tells. */
bool send_get_and_watch(struct driver *driver, const char *folder, const char *node,
                        struct reply_to to);
/* A watch that was set so stands (watch.c). */
bool node_is_watched(const struct driver *driver, const char *folder, const char *node);
/* With a watch, also if the node does not exist. */
bool send_exists(struct driver *driver, const char *folder, const char *node, struct reply_to to);
bool send_list(struct driver *driver, const char *folder, struct reply_to to);
bool send_sync(struct driver *driver, struct reply_to to);
/* True: whatever is sent next comes behind a barrier. */
bool send_barrier(struct driver *driver);
/* Creates the nodes of the root and, if folder is not NULL, that folder below them. Nobody is told the answers. */
void send_root(struct driver *driver, const char *folder);

/* Takes the answer off its session's list, hands it to its handler and frees the request. */
void request_end(struct driver *driver, struct request *request);

void mail_init(struct driver *driver);
/* Handles all that is in the mailbox. */
void mail_read(struct driver *driver);
/* At the end: waits for the answers that are under way and drops them. The library would leak answers that it has and did
 * not deliver. */
void mail_settle(struct driver *driver, int64_t timeout_ms);
/* Drops what is in the mailbox. All threads of the library have ended. */
void mail_end(struct driver *driver);
/* The watcher of a handle. Called on a thread of the library. */
void watch_session(zhandle_t *zh, int type, int state, const char *path, void *session);

#endif
