/* session.h - the session with the ensemble: its states, its beats, and the deadline that it proves.
 *
 * A client has one session, however many locks it holds. Its nodes live as long as the session.
 *
 *   CONNECTING  asked for, not yet connected
 *   CONNECTED   beats prove until when it lives; claims and queries may begin
 *   SUSPENDED   the connection is lost; the library looks for another one; beats are sent and lost
 *   RESTING     connected; nothing was held or wanted for a timeout; no beats
 *   ASLEEP      as RESTING, and the connection is lost
 *   LEAVING     was RESTING; a claim waits until the open queries are answered
 *   OVER        nothing more is sent for it; a thread that closes it must be started
 *   CLOSING     that thread runs
 *
 *   event                       CONNECTING  CONNECTED  SUSPENDED  RESTING    ASLEEP     LEAVING
 *   connected                   CONNECTED   -          CONNECTED  -          RESTING a  -
 *   connection lost             -           SUSPENDED  -          ASLEEP     -          abandoned
 *   nothing wanted for long     -           RESTING    ASLEEP     -          -          -
 *   a claim comes               -           -          -          LEAVING b  abandoned  -
 *   a query comes               -           -          -          -          abandoned  -
 *   the last query is answered  -           -          -          -          -          abandoned
 *   unproven for too long c     -           abandoned  abandoned  -          -          -
 *   only REFUSED claims left    -           abandoned  -          -          -          -
 *   expired                     ended       ended      ended      ended      ended      ended
 *   refused by auth             abandoned   abandoned  abandoned  abandoned  abandoned  abandoned
 *   no memory for an event d    abandoned   abandoned  abandoned  abandoned  abandoned  abandoned
 *     something is HELD d       -           SUSPENDED  -          -          -          -
 *
 *   a: one beat, so that the servers know it. b: abandoned at once if no query is open. c: a third longer than the timeout.
 *   d: nobody knows any more in which state the session is, or what its watches have reported. The servers end the nodes of a
 *   closed session at once, so a session with leases is not closed: nothing is proven in it until it is connected again, or it
 *   is unproven for too long. When it is connected again, all claims look again, even at their own nodes. unit.zookeeper_memory
 *   has these lines. Ended and abandoned: OVER, then CLOSING; the driver makes another session. Each line has a test in
 *   tests/zookeeper/session_tests.c or cut_tests.c: "suspect, and back", "a client that has nothing rests" (with a
 *   reconnection), "queries of a client that rests", "asked in two sessions" (c), "may not delete", "CURATOR-604", "digest
 *   ACL", "refused by auth", "waits while refused"; "a query comes" in rest_tests.c ("the data is lost"). Without a test:
 *   LEAVING when its connection is lost; no thread to close with.
 *
 * ENDED OR ABANDONED. When the servers say that a session has expired, its nodes are gone. A session without news is abandoned:
 * every lease is LOST by then. But the servers may still hear the client's library, which reconnects for ever and so keeps the
 * session and its nodes alive. So nothing more is sent for the session. Its nodes that are known are deleted from the next
 * session, and the others end with it, a timeout after its last sign of life.
 *
 * RESTING. A client without a claim needs no deadline. When it has had none for a timeout, it stops beating. The library's
 * pings keep the session alive, and the servers answer them without a write. Meanwhile the proof grows old, and a new one takes
 * at least half a tick. So the next claim gets a new session, because making a session is a proof at once. Queries that are
 * open in the old session are answered first (LEAVING). If the session ended earlier, a list would begin anew, and nobody would
 * know whether a break was done. A query that comes meanwhile waits for the new session. A query that comes while the
 * connection is lost makes a new session, too. The reason: servers that have lost or restored their data close each connection
 * of a client that has seen more than they have, before they check whether its session has expired, and a client without beats
 * would never give the session up.
 *
 * THE DEADLINE of all leases is what the beats prove. proof.h has the argument, beat.h the events, pace.h how many beats there
 * are. A renewal is answered from the deadline without a request, unless the connection is lost or a beat is overdue: then the
 * renewal fails, and the lease is SUSPECT. If a server that grants less time has made the deadline earlier, and it passes, a
 * renewal says LOST.
 *
 * CLOSING. zookeeper_close() may wait for seconds, and joins the library's threads. So a session is closed on a thread of its
 * own, and the last one in close(), which also joins those threads. After that nothing posts. Requests that the library has not
 * answered by then are freed. */
#ifndef MORTISE_ZOOKEEPER_SESSION_H
#define MORTISE_ZOOKEEPER_SESSION_H

#include "beat.h"
#include "driver.h"

#define OPEN_MAX 256 /* about so many requests on their way: a beat waits behind them */

enum session_state {
    SESSION_CONNECTING,
    SESSION_CONNECTED,
    SESSION_SUSPENDED,
    SESSION_RESTING,
    SESSION_ASLEEP,
    SESSION_LEAVING,
    SESSION_OVER,
    SESSION_CLOSING
};

struct session {
    struct session *next; /* among the retired ones */
    struct driver *driver;
    enum session_state state;
    unsigned number; /* counts the sessions of this client */
    zhandle_t *zh;
    struct request *requests; /* those that are not answered */
    unsigned open;            /* how many */
    bool servers_late; /* the library must get the list of servers when the connection is lost */
    bool missed; /* there was no memory for one of its events. Guarded by the mailbox's lock */
    int64_t id;
    int64_t since_ns; /* when it was first connected; 0: never */
    int64_t busy_ns;  /* when there last was a claim or a query */
    int64_t look_ns; /* while a beat is on its way: when to read the mailbox, whatever was posted */
    struct beats beats;
    int64_t servers_ms, servers_at_ns; /* the wall clock of the servers, and when it was read */
    pthread_t closer;
};

static inline bool is_connected(const struct driver *driver)
{
    const struct session *session = driver->session;
    return session != NULL &&
           (session->state == SESSION_CONNECTED || session->state == SESSION_RESTING ||
            session->state == SESSION_LEAVING);
}

/* Whether claims and queries may begin. */
static inline bool is_ready(const struct driver *driver)
{
    return is_connected(driver) && driver->session->state != SESSION_LEAVING;
}

/* The smallest timeout that the servers have granted; before the first connection, the one in the config. */
static inline int64_t session_timeout_ns(const struct driver *driver)
{
    int64_t granted_ns = driver->session->beats.proof.timeout_ns;
    return granted_ns != 0 ? granted_ns : driver->values[OPTION_SESSION_TIMEOUT].number * NS_PER_MS;
}

void session_event(struct driver *driver, int state);
void session_event_missed(struct driver *driver);
void session_servers_known(struct driver *driver);
void session_turn(struct driver *driver, int64_t now_ns);
void session_due(const struct driver *driver, int64_t *due_ns);
void session_close_all(struct driver *driver);
/* A query has come. */
void session_ask(struct driver *driver);
/* Abandons the session; the driver makes another one. */
void session_abandon(struct driver *driver);
/* A claim is about to begin and needs a proven session: a resting session is replaced by a new one. */
void session_wake(struct driver *driver);
/* Until when the session is proven to live; 0: nothing is proven. */
int64_t session_deadline(const struct driver *driver);
/* Until when leases may count although the proof was taken back (proof.h); 0: no longer than the present proof. */
int64_t session_told(const struct driver *driver);
/* Whether the session is connected, and no beat is overdue. */
bool session_is_well(const struct driver *driver, int64_t now_ns);
/* A call begins that may have to wait for a connection, but no longer than connect_timeout. Returns the instant of its
 * beginning. */
int64_t session_patience(struct driver *driver);
/* Whether a call that began at that instant has waited too long. */
bool session_is_away(struct driver *driver, int64_t asked_ns);

#endif
