/* session.c - grants, joins, keeps and ends the sessions. session.h has the tables of their states, and why a beat proves what
 * it proves. */
#include "session.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AGAIN_NS (1000 * NS_PER_MS)
#define MARGIN_NS (2 * NS_PER_MS)
#define BEAT_MIN_NS (200 * NS_PER_MS) /* a beat is never shorter, however short the ttl is */

/* The one place where the state changes. */
static void become(struct driver *driver, struct session *session, enum session_state state)
{
    session->state = state;
    session->step += state != SESSION_LIVE; /* answers to an earlier beat or grant count no more */
    if (state != SESSION_LIVE) {
        session->beat_sent_ns = 0;
        watch_stop(driver, session->watch);
        session->watch = 0;
    }
}

static int64_t beat_every_ns(const struct session *session)
{
    int64_t every_ns = session->ttl_ns / BEATS_PER_TTL;
    return every_ns > BEAT_MIN_NS ? every_ns : BEAT_MIN_NS;
}

/* ---- finding and making ------------------------------------------------------------------------------- */

struct session *session_of_lease(const struct driver *driver, int64_t lease)
{
    struct session *session;
    DL_FOREACH (driver->sessions, session)
        if (session->lease == lease && session->state != SESSION_OVER)
            return session;
    return NULL;
}

/* Nothing more is proven for the session. The claims that still wait for one of its joins keep it. */
static void forget(struct driver *driver, struct session *session)
{
    become(driver, session, session->claims == 0 ? SESSION_OVER : SESSION_LEFT);
}

static bool is_open(const struct session *session)
{
    return session->state != SESSION_LEFT && session->state != SESSION_OVER;
}

struct session *session_for(struct driver *driver, int64_t ttl_ms)
{
    int64_t ttl_s = (ttl_ms + ttl_ms / 4 + 999) / 1000, now_ns = now_of(driver);
    struct session *session;
    DL_FOREACH (driver->sessions, session) {
        if (session->asked_ttl_s != ttl_s || !is_open(session))
            continue;
        if (session->state == SESSION_RESTING) {
            bool is_fresh = session->deadline_ns - now_ns > session->ttl_ns / 2;
            if (!is_fresh) {
                forget(driver, session);
                continue;
            }
            become(driver, session, SESSION_LIVE);
            session->beat_due_ns = now_ns;
        }
        session->busy_ns = now_ns;
        return session;
    }
    session = calloc(1, sizeof(*session));
    if (session == NULL)
        return NULL;
    session->asked_ttl_s = ttl_s;
    session->busy_ns = now_ns;
    DL_APPEND(driver->sessions, session);
    return session;
}

/* ---- calls ------------------------------------------------------------------------------------------------ */

static struct reply_to reply(struct session *session, reply_handler *answered)
{
    return (struct reply_to){.answered = answered, .target = session, .step = session->step};
}

/* If there are other members, a late beat makes the driver give the connection up early enough to try one of them. */
static bool send_call(struct driver *driver, struct session *session, struct call *call)
{
    bool may_switch = session->beat_sent_ns != 0 && driver->link.endpoints.count > 1;
    int64_t within_ns = may_switch ? 2 * beat_every_ns(session) : INT64_MAX;
    bool sent = call != NULL && link_send_within(&driver->link, call, within_ns);
    session->pending += sent;
    if (!sent)
        session->retry_ns = now_of(driver) + AGAIN_NS;
    return sent;
}

/* NULL: the answer is of an earlier step, or lost. */
static struct session *arrived(struct call *call)
{
    struct session *session = call->to.target;
    session->pending--;
    return call->to.step == session->step && call->end != CALL_LOST ? session : NULL;
}

static void over(struct driver *driver, struct session *session)
{
    if (session->state == SESSION_OVER)
        return;
    become(driver, session, SESSION_OVER);
    driver->upcalls->over(driver, session);
}

void session_end(struct driver *driver, struct session *session)
{
    over(driver, session);
}

static void refused(struct driver *driver, struct session *session, const struct call *call)
{
    session->retry_ns = now_of(driver) + AGAIN_NS;
    if (session->refused_ns == 0)
        session->refused_ns = now_of(driver);
    driver->upcalls->refused(driver, session, call);
}

/* The proof ends at an instant before a request was sent + the ttl that the servers gave, less the drift of the clocks. */
static void prove(struct driver *driver, struct session *session, int64_t from_ns, int64_t ttl_ns)
{
    int64_t until_ns = from_ns + ttl_ns - ttl_ns / 100 - MARGIN_NS;
    if (until_ns <= session->deadline_ns)
        return;
    session->deadline_ns = until_ns;
    session->refused_ns = 0;
    driver->upcalls->proven(driver, session);
}

/* ---- the join ---------------------------------------------------------------------------------------------- */

static void watch_key(struct driver *driver, struct session *session, int64_t revision)
{
    watch_stop(driver, session->watch);
    session->watch = watch_start(driver, WATCHES_SESSION, session, session_key(session),
                                 (struct bytes){0}, revision + 1, false);
}

static void joined(struct driver *driver, struct call *call)
{
    struct session *session = call->to.target;
    session->pending--;
    if (session->join != JOIN_SENT || call->end == CALL_LOST || session->state == SESSION_OVER)
        return;
    session->join = call->end == CALL_DONE ? JOINED : JOIN_NEEDED;
    if (fault_is_no_lease(call))
        over(driver, session);
    else if (call->end == CALL_REFUSED)
        refused(driver, session, call);
    else {
        session->joined_at = call->answer.header.revision;
        if (session->state == SESSION_LIVE)
            watch_key(driver, session, session->joined_at);
        driver->upcalls->ready(driver, session);
    }
}

static void join(struct driver *driver, struct session *session)
{
    struct call *call = link_begin(&driver->link, METHOD_TXN, reply(session, joined));
    if (call != NULL)
        txn_put(&call->grpc.out, BRANCH_THEN,
                &(struct put){.key = session_key(session),
                              .value = bytes_of(driver->note, driver->note_len),
                              .lease = session->lease});
    if (send_call(driver, session, call))
        session->join = JOIN_SENT;
}

void session_rejoin(struct driver *driver, struct session *session)
{
    (void)driver;
    if (session->join == JOINED)
        session->join = JOIN_NEEDED;
}

void session_doubt(struct session *session)
{
    session->join = JOIN_NEEDED;
}

/* ---- the grant --------------------------------------------------------------------------------------------------- */

static void granted(struct driver *driver, struct call *call)
{
    struct session *session = arrived(call);
    if (session == NULL || session->state != SESSION_GRANTING)
        return;
    const struct answer *answer = &call->answer;
    /* half of what fits, because an instant is added to it */
    bool is_done = call->end == CALL_DONE && answer->lease == session->lease && answer->ttl_s > 0 &&
                   answer->ttl_s < INT64_MAX / (2000 * NS_PER_MS);
    /* if the term is another one: see THE TERM */
    bool is_good = is_done && answer->header.term == session->asked_term &&
                   driver->link.term == session->asked_term;
    become(driver, session, is_good ? SESSION_LIVE : SESSION_WANTED);
    if (is_good) {
        session->ttl_ns = answer->ttl_s * 1000 * NS_PER_MS;
        session->term = session->asked_term;
        session->history = driver->link.history;
        session->beat_due_ns = call->sent_ns + beat_every_ns(session);
        prove(driver, session, call->sent_ns, session->ttl_ns);
        join(driver, session);
    } else if (call->end == CALL_REFUSED && call->code != GRPC_ALREADY_EXISTS)
        refused(driver, session, call);
}

static void grant(struct driver *driver, struct session *session)
{
    uint64_t id;
    driver->host->random(driver->host, &id, sizeof(id));
    session->lease = (int64_t)(id >> 1 | 1);
    session->join = JOIN_NEEDED;
    session->key_len =
        (size_t)snprintf(session->key, sizeof(session->key), "%s%%sessions/%s/%" PRIx64,
                         driver->prefix, driver->client_id, (uint64_t)session->lease);
    become(driver, session, SESSION_GRANTING);
    session->asked_term = driver->link.term;
    struct call *call = link_begin(&driver->link, METHOD_GRANT, reply(session, granted));
    if (call != NULL)
        write_grant(&call->grpc.out, session->lease, session->asked_ttl_s);
    if (!send_call(driver, session, call))
        become(driver, session, SESSION_WANTED);
}

/* ---- beats ---------------------------------------------------------------------------------------------------------- */

static void key_read(struct driver *driver, struct call *call)
{
    struct session *session = arrived(call);
    if (session == NULL || session->state != SESSION_LIVE)
        return;
    session->beat_sent_ns = 0;
    if (call->end == CALL_REFUSED) {
        refused(driver, session, call);
        return;
    }
    const struct kvs *kvs = &call->answer.ops[0];
    bool is_there =
        call->answer.op_count == 1 && kvs->count == 1 && kvs->all[0].lease == session->lease;
    if (!is_there || kvs->all[0].modified != session->joined_at)
        session_rejoin(driver, session);
    if (is_there && session->watch == 0)
        watch_key(driver, session, call->answer.header.revision);
    if (is_there && session->keep_alive_sent_ns != 0 && session->asked_term == session->term &&
        call->answer.header.term == session->term)
        prove(driver, session, session->keep_alive_sent_ns, session->keep_alive_ttl_ns);
}

static void read_key(struct driver *driver, struct session *session)
{
    struct call *call = link_begin(&driver->link, METHOD_TXN, reply(session, key_read));
    if (call != NULL)
        txn_range(&call->grpc.out, BRANCH_THEN,
                  &(struct range){.begin = session_key(session), .keys_only = true});
    if (!send_call(driver, session, call))
        session->beat_sent_ns = 0;
}

/* A keep-alive of a lease that does not exist is answered with a ttl of 0. Only the read makes that certain. */
static void kept_alive(struct driver *driver, struct call *call)
{
    struct session *session = arrived(call);
    if (session == NULL || session->state != SESSION_LIVE)
        return;
    int64_t ttl_s = call->end == CALL_DONE ? call->answer.ttl_s : 0;
    bool counts = ttl_s > 0 && ttl_s <= session->ttl_ns / (1000 * NS_PER_MS) &&
                  call->answer.lease == session->lease;
    session->keep_alive_sent_ns = counts ? call->sent_ns : 0;
    session->keep_alive_ttl_ns = ttl_s * 1000 * NS_PER_MS;
    read_key(driver, session);
}

static void beat(struct driver *driver, struct session *session, int64_t now_ns)
{
    session->beat_sent_ns = now_ns;
    session->beat_due_ns = now_ns + beat_every_ns(session);
    session->keep_alive_sent_ns = 0;
    session->asked_term = driver->link.term;
    if (session->asked_term != session->term) { /* this member lags: its read will show the term */
        read_key(driver, session);
        session->beat_due_ns = now_ns + BEAT_MIN_NS;
        return;
    }
    struct call *call = link_begin(&driver->link, METHOD_KEEP_ALIVE, reply(session, kept_alive));
    if (call != NULL)
        write_lease(&call->grpc.out, session->lease);
    if (!send_call(driver, session, call))
        session->beat_sent_ns = 0;
}

void session_hurry(struct driver *driver, struct session *session)
{
    session->beat_due_ns = now_of(driver);
}

bool session_is_well(const struct driver *driver, const struct session *session)
{
    return is_connected(driver) &&
           (session->beat_sent_ns == 0 ||
            now_of(driver) - session->beat_sent_ns <= beat_every_ns(session));
}

/* ---- events ------------------------------------------------------------------------------------------------------------ */

static void leave(struct driver *driver, struct session *session)
{
    bool is_resting = session->state == SESSION_RESTING;
    forget(driver, session);
    if (!is_resting)
        driver->upcalls->left(driver, session);
}

void sessions_term(struct driver *driver, uint64_t term)
{
    struct session *session, *next;
    DL_FOREACH_SAFE (driver->sessions, session, next)
        if ((session->state == SESSION_LIVE || session->state == SESSION_RESTING) &&
            term > session->term)
            leave(driver, session);
}

void sessions_up(struct driver *driver)
{
    struct session *session;
    sessions_term(driver, driver->link.term);
    DL_FOREACH (driver->sessions, session) {
        session->retry_ns = 0;
        if (session->state == SESSION_LIVE && session->history != driver->link.history)
            leave(driver, session);
        if (session->state != SESSION_LIVE)
            continue;
        session->beat_due_ns = now_of(driver);
        if (session->join == JOINED)
            watch_key(driver, session, session->joined_at);
    }
}

/* Answers to calls that were on their way are ignored from now on. */
void sessions_down(struct driver *driver)
{
    struct session *session;
    DL_FOREACH (driver->sessions, session) {
        session->step++;
        session->beat_sent_ns = 0;
        session->watch = 0; /* ended with the connection */
        if (session->join == JOIN_SENT)
            session->join = JOIN_NEEDED;
        if (session->state == SESSION_GRANTING)
            become(driver, session, SESSION_WANTED);
        else if (session->state == SESSION_RESTING)
            forget(driver, session);
    }
}

void session_watched(struct driver *driver, struct session *session, enum watch_event event)
{
    if (event == WATCH_ENDED)
        session->watch = 0; /* the next beat sets another one */
    if (event == WATCH_DELETED)
        session_rejoin(driver, session);
}

/* ---- time ---------------------------------------------------------------------------------------------------------------- */

static void rest(struct driver *driver, struct session *session, int64_t now_ns)
{
    if (session->wanted > 0)
        session->busy_ns = now_ns;
    else if (session->claims == 0 &&
             (session->state == SESSION_LEFT || session->state == SESSION_WANTED))
        become(driver, session, SESSION_OVER);
    else if (session->state == SESSION_LIVE && now_ns - session->busy_ns > session->ttl_ns)
        become(driver, session, SESSION_RESTING);
}

static void turn(struct driver *driver, struct session *session, int64_t now_ns)
{
    rest(driver, session, now_ns);
    if (!is_connected(driver) || session->retry_ns > now_ns)
        return;
    if (session->state == SESSION_WANTED)
        grant(driver, session);
    else if (session->join == JOIN_NEEDED &&
             (session->state == SESSION_LIVE || session->doubtful > 0) &&
             session->state != SESSION_OVER)
        join(driver, session);
    if (session->state == SESSION_LIVE && session->beat_sent_ns == 0 &&
        session->beat_due_ns <= now_ns)
        beat(driver, session, now_ns);
}

void sessions_turn(struct driver *driver)
{
    struct session *session, *next;
    int64_t now_ns = now_of(driver);
    DL_FOREACH_SAFE (driver->sessions, session, next) {
        turn(driver, session, now_ns);
        if (session->state == SESSION_OVER && session->pending == 0 && session->claims == 0) {
            DL_DELETE(driver->sessions, session);
            free(session);
        }
    }
}

static int64_t due_of(const struct session *session)
{
    if (session->state == SESSION_GRANTING || session->state == SESSION_OVER)
        return MORTISE_NEVER;
    if (session->state == SESSION_WANTED)
        return session->retry_ns;
    int64_t due_ns = MORTISE_NEVER;
    if (session->state == SESSION_LIVE && session->beat_sent_ns == 0)
        due_ns =
            session->beat_due_ns > session->retry_ns ? session->beat_due_ns : session->retry_ns;
    if (session->join == JOIN_NEEDED && (session->state == SESSION_LIVE || session->doubtful > 0) &&
        session->retry_ns < due_ns)
        due_ns = session->retry_ns;
    return due_ns;
}

void sessions_due(const struct driver *driver, int64_t *due_ns)
{
    const struct session *session;
    if (!is_connected(driver))
        return;
    DL_FOREACH (driver->sessions, session) {
        int64_t at_ns = due_of(session);
        if (at_ns < *due_ns)
            *due_ns = at_ns;
    }
}

void sessions_leave(struct driver *driver)
{
    struct session *session;
    DL_FOREACH (driver->sessions, session) {
        bool may_be_there = session->state != SESSION_WANTED && session->state != SESSION_OVER;
        struct call *call = may_be_there && is_connected(driver)
                                ? link_begin(&driver->link, METHOD_REVOKE, (struct reply_to){0})
                                : NULL;
        if (call == NULL)
            continue;
        write_lease(&call->grpc.out, session->lease);
        link_send(&driver->link, call);
    }
}

void sessions_free(struct driver *driver)
{
    while (driver->sessions != NULL) {
        struct session *session = driver->sessions;
        DL_DELETE(driver->sessions, session);
        free(session);
    }
}
