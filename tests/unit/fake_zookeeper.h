/* fake_zookeeper.h - ZooKeeper in memory, behind the functions of its C library: one ensemble and one client, which a
 * test drives request by request. Nothing happens by itself: the test executes requests, breaks connections and ends
 * sessions. */
#ifndef MORTISE_TESTS_FAKE_ZOOKEEPER_H
#define MORTISE_TESTS_FAKE_ZOOKEEPER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FAKE_TIMEOUT_MS 10000

extern int fake_timeout_ms; /* that the servers grant; fake_reset() sets it to FAKE_TIMEOUT_MS */
extern int fake_handles;    /* how many were made */
extern int fake_lists;      /* how often the library was told the list of servers, while there was no connection, */
extern int fake_bad_lists;  /* and while there was one: it would close the socket */
extern int fake_refusals;   /* so many creates are refused from now on, for want of memory; they are never answered */
extern int fake_gets;       /* how often the client asked for a node and a watch on it */

/* Forgets all nodes. close_is_heard: when a client closes a session, the servers end it; else its nodes stay. */
void fake_reset(bool close_is_heard);
/* Connects a client that is not connected. False: there is none. */
bool fake_connect(void);
/* Executes the oldest request of the connected client and answers it. False: there is none. */
bool fake_step(void);
/* Loses the connection: some of the requests that are under way are executed first, none is answered. False: there is no
 * connection. */
bool fake_cut(int executed);
/* Ends the session of the client. False: there is none. */
bool fake_expire(void);

/* Ends all sessions of the client but the present one, which it does not keep alive any more. */
void fake_end_old_sessions(void);

/* A node that another client makes, with a number if the path ends with '-'; the path that it has. */
const char *fake_make(const char *path);
/* Another client writes this node, and makes it if it is missing. */
void fake_write(const char *path, const char *data);
/* The number that this node has for data, and how often it was written since it was made; 0: there is none. */
int64_t fake_number(const char *path, int *writes);
bool fake_delete(const char *path);
/* The czxid of the client's first node below this folder; 0: it has none. */
int64_t fake_czxid(const char *folder);
/* A node below this folder. False: there is none. */
bool fake_delete_first(const char *folder);
/* How many nodes there are below this folder; *first: whether the first of them by number is of the client. */
int fake_contenders(const char *folder, bool *first);
/* Whether a node of the client below this folder has data that end so. */
bool fake_says(const char *folder, const char *end);

#endif
