/* session.c - makes, keeps and ends the session. session.h has the table of its states. */
#include "session.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GO_ON_NS (500 * NS_PER_MS) /* how long to wait for look-ups, if some addresses are known */
#define SETTLE_MS 300
#define AGAIN_NS (1000 * NS_PER_MS) /* the pause before the next attempt to make a session */
#define LOOK_UP_NS                                                                                 \
    (10 * 1000 * NS_PER_MS) /* the pause before names are looked up again, while nobody answers */

/* The one place where the state changes. */
static void become(struct session *session, enum session_state state)
{
    session->state = state;
}

/* ---- making one ---------------------------------------------------------------------------------- */

/* The library must not print. */
static void be_quiet(const char *message)
{
    (void)message;
}

/* NULL: no memory, or no threads. */
static zhandle_t *open_handle(struct driver *driver, struct session *session, const char *servers)
{
    static const char no_thread[] = "cannot start a thread for a session";
    sigset_t all, before; /* signals belong to the application's threads */
    int timeout_ms = (int)driver->values[OPTION_SESSION_TIMEOUT].number;
    zhandle_t *zh = NULL;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool there = threads_are_there();
    if (there)
        zh = zookeeper_init2(servers, watch_session, timeout_ms, NULL, session,
                             ZOO_NO_LOG_CLIENTENV, be_quiet);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!there)
        snprintf(driver->trouble, sizeof(driver->trouble), "%s", no_thread);
    else if (strcmp(driver->trouble, no_thread) == 0)
        driver->trouble[0] = '\0';
    if (zh != NULL)
        zoo_set_servers_resolution_delay(zh, -1);
    return zh;
}

static void make(struct driver *driver, int64_t now_ns)
{
    char *servers = servers_text(driver);
    struct session *session = servers == NULL ? NULL : calloc(1, sizeof(*session));
    driver->begin_ns = MORTISE_NEVER;
    if (session != NULL) {
        session->driver = driver;
        session->state = SESSION_CONNECTING;
        session->number = ++driver->session_number;
        beats_begin(session, now_ns);
        session->zh = open_handle(driver, session, servers);
    }
    if (session != NULL && session->zh != NULL) {
        driver->session = session;
    } else {
        free(session);
        driver->begin_ns = now_ns + AGAIN_NS;
    }
    free(servers);
}

/* Makes a session, and looks the names up first if that was long ago. */
static void begin(struct driver *driver, int64_t now_ns)
{
    bool fresh = driver->lookup_ns != 0 && now_ns - driver->lookup_ns < LOOK_UP_NS;
    char *known = servers_text(driver);
    if (known != NULL && (fresh || servers_asking(driver)))
        make(driver, now_ns);
    else {
        if (!servers_asking(driver))
            servers_ask(driver);
        driver->begin_ns = now_ns + (known != NULL ? GO_ON_NS : AGAIN_NS);
    }
    free(known);
}

/* Only while the library is not connected: if its server is not on the list any more, or by chance if the list is longer, the
 * call closes the socket on this thread, and neither the loss nor the open requests are reported. */
static void tell_servers(struct session *session, const char *servers)
{
    session->servers_late = zoo_state(session->zh) == ZOO_CONNECTED_STATE;
    if (!session->servers_late)
        zoo_set_servers(session->zh, servers); /* no effect if the servers are the same */
}

void session_servers_known(struct driver *driver)
{
    char *servers = servers_text(driver);
    if (driver->session == NULL && servers != NULL)
        make(driver, now_of(driver));
    else if (driver->session != NULL && servers != NULL)
        tell_servers(driver->session, servers);
    free(servers);
}

/* ---- ending one ----------------------------------------------------------------------------------- */

static void free_session(struct driver *driver, struct session *session)
{
    while (session->requests != NULL) {
        session->requests->rc = ZSESSIONEXPIRED;
        request_end(driver, session->requests);
    }
    free(session);
}

static void reap(void *ctx, void *argument)
{
    struct driver *driver = ctx;
    struct session *session = argument;
    pthread_join(session->closer, NULL);
    mail_read(driver); /* the answers that came before the library's threads ended */
    LL_DELETE(driver->retired, session);
    free_session(driver, session);
}

static void *close_handle(void *argument)
{
    struct session *session = argument;
    struct driver *driver = session->driver;
    zookeeper_close(session->zh);
    driver->host->post(driver->host, reap, session);
    return NULL;
}

/* Closes the session on a thread of its own, because that may take seconds. Without a thread, a later turn tries again. */
static void start_closer(struct session *session)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    if (pthread_create(&session->closer, NULL, close_handle, session) == 0)
        become(session, SESSION_CLOSING);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void retire(struct driver *driver, bool abandoned)
{
    struct session *session = driver->session;
    driver->session = NULL;
    become(session, SESSION_OVER);
    LL_PREPEND(driver->retired, session);
    watches_end(driver);
    start_closer(session);
    driver->upcalls->over(driver, abandoned);
}

static void retire_late(struct driver *driver)
{
    struct session *session;
    LL_FOREACH (driver->retired, session)
        if (session->state == SESSION_OVER)
            start_closer(session);
}

/* After this nothing posts, because no thread is left. The content of the mailbox is dropped before the sessions are
 * freed, because its requests are on their lists. */
void session_close_all(struct driver *driver)
{
    struct session *session, *next;
    LL_FOREACH (driver->retired, session)
        if (session->state == SESSION_CLOSING)
            pthread_join(session->closer, NULL);
        else
            zookeeper_close(session->zh);
    if (driver->session != NULL) {
        if (is_connected(driver))
            mail_settle(driver, SETTLE_MS);
        zookeeper_close(driver->session->zh);
        LL_PREPEND(driver->retired, driver->session);
        driver->session = NULL;
    }
    mail_end(driver);
    LL_FOREACH_SAFE(driver->retired, session, next)
    {
        struct request *request, *other;
        DL_FOREACH_SAFE (session->requests, request, other) {
            request->to.answered = NULL;
            request_end(driver, request);
        }
        free(session);
    }
    driver->retired = NULL;
}

static int64_t patience_ns(const struct driver *driver)
{
    return driver->values[OPTION_CONNECT_TIMEOUT].number * NS_PER_MS;
}

static void look_by(struct driver *driver, int64_t at_ns)
{
    if (at_ns < driver->away_due_ns)
        driver->away_due_ns = at_ns;
}

/* ---- events --------------------------------------------------------------------------------------- */

/* The library repeats the authentication by itself on each later connection. */
static bool authenticate(struct driver *driver)
{
    struct session *session = driver->session;
    if (driver->auth_scheme == NULL || session->id != 0)
        return true;
    return zoo_add_auth(session->zh, driver->auth_scheme, driver->auth_text,
                        (int)strlen(driver->auth_text), NULL, NULL) == ZOK;
}

static void connected(struct driver *driver)
{
    struct session *session = driver->session;
    int64_t now_ns = now_of(driver);
    if (!authenticate(driver)) /* the connection is lost already; another one comes */
        return;
    if (session->state == SESSION_ASLEEP)
        become(session, SESSION_RESTING);
    else if (session->state == SESSION_CONNECTING || session->state == SESSION_SUSPENDED)
        become(session, SESSION_CONNECTED);
    driver->calls++; /* barriers of an earlier connection do not count */
    watches_connected(driver);
    session->id = zoo_client_id(session->zh)->client_id;
    proof_connected(&session->beats.proof, zoo_recv_timeout(session->zh),
                    driver->values[OPTION_TICK].given ? driver->values[OPTION_TICK].number : 0);
    driver->away_ns = 0;
    driver->trouble[0] = '\0';
    if (session->since_ns == 0)
        session->since_ns = now_ns;
    beats_connected(driver, now_ns);
    driver->upcalls->connected(driver);
}

static void suspend(struct driver *driver)
{
    struct session *session = driver->session;
    become(session, session->state == SESSION_CONNECTED ? SESSION_SUSPENDED : SESSION_ASLEEP);
    driver->away_ns = now_of(driver);
    if (session->state == SESSION_SUSPENDED)
        beats_suspended(driver, driver->away_ns);
    look_by(driver, driver->away_ns + patience_ns(driver));
    driver->upcalls->suspended(driver);
}

/* begin_ns: when to make the next one. */
static void end(struct driver *driver, bool abandoned, int64_t begin_ns)
{
    if (is_connected(driver))
        suspend(driver);
    if (driver->away_ns == 0)
        driver->away_ns = now_of(driver);
    driver->begin_ns = begin_ns;
    retire(driver, abandoned);
}

void session_abandon(struct driver *driver)
{
    end(driver, true, now_of(driver));
}

void session_event(struct driver *driver, int state)
{
    mortise_host *host = driver->host;
    if (state == ZOO_CONNECTED_STATE)
        connected(driver);
    else if (state == ZOO_CONNECTING_STATE && driver->session->state == SESSION_LEAVING)
        session_abandon(driver);
    else if (state == ZOO_CONNECTING_STATE && is_connected(driver)) {
        driver->refused = 0; /* if they still refuse, they will say it again */
        suspend(driver);
        if (driver->session->servers_late)
            session_servers_known(driver);
    } else if (state == ZOO_EXPIRED_SESSION_STATE) {
        host->log(host, 4, "the session has expired");
        end(driver, false, now_of(driver));
    } else if (state ==
               ZOO_AUTH_FAILED_STATE) { /* the servers keep the session until its timeout */
        if (driver->refused_ns == 0)
            driver->refused_ns = now_of(driver);
        driver->refused = ZAUTHFAILED;
        end(driver, true, now_of(driver) + AGAIN_NS);
        look_by(driver, driver->refused_ns + patience_ns(driver));
    }
}

void session_event_missed(struct driver *driver)
{
    driver->host->log(driver->host, 3, "out of memory: an event of the session is lost");
    if (driver->held_claims == 0)
        end(driver, true, now_of(driver) + AGAIN_NS);
    else if (is_connected(driver)) /* with the session, its nodes would end before their deadline */
        suspend(driver);
}

/* Whether nothing was proven for a third longer than the timeout: see ENDED OR ABANDONED. */
static bool is_hopeless(const struct session *session, int64_t now_ns)
{
    const struct proof *proof = &session->beats.proof;
    if (session->state != SESSION_CONNECTED && session->state != SESSION_SUSPENDED)
        return false;
    int64_t good_ns = session->since_ns + proof->timeout_ns; /* the making may have taken long */
    if (proof->deadline_ns > good_ns)
        good_ns = proof->deadline_ns;
    return now_ns > good_ns + proof->timeout_ns / 3;
}

void session_wake(struct driver *driver)
{
    struct session *session = driver->session;
    if (session == NULL || (session->state != SESSION_RESTING && session->state != SESSION_ASLEEP))
        return;
    if (session->state == SESSION_RESTING && driver->upcalls->is_asking(driver))
        become(session, SESSION_LEAVING);
    else
        session_abandon(driver);
}

void session_ask(struct driver *driver)
{
    if (driver->session != NULL && driver->session->state == SESSION_ASLEEP)
        session_abandon(driver); /* nothing is held or wanted in this session */
}

static bool may_leave(const struct driver *driver)
{
    return driver->session != NULL && driver->session->state == SESSION_LEAVING &&
           !driver->upcalls->is_asking(driver);
}

/* ---- resting -------------------------------------------------------------------------------------- */

/* If nothing was held or asked for a timeout, stops the beats. Not while the session has no node to beat with. */
static bool rest(struct driver *driver, int64_t now_ns)
{
    struct session *session = driver->session;
    if (driver->names != NULL || driver->queries != NULL || session->busy_ns == 0)
        session->busy_ns = now_ns;
    if (session->beats.failures > 0)
        return false;
    if (now_ns - session->busy_ns > session_timeout_ns(driver)) {
        if (session->state == SESSION_CONNECTED)
            become(session, SESSION_RESTING);
        else if (session->state == SESSION_SUSPENDED)
            become(session, SESSION_ASLEEP);
    }
    bool rests = session->state == SESSION_RESTING || session->state == SESSION_ASLEEP ||
                 session->state == SESSION_LEAVING;
    if (rests)
        pace_rest(&session->beats.pace);
    return rests;
}

/* ---- what the files above ask ------------------------------------------------------------------ */

int64_t session_deadline(const struct driver *driver)
{
    return driver->session == NULL ? 0 : driver->session->beats.proof.deadline_ns;
}

int64_t session_told(const struct driver *driver)
{
    return driver->session == NULL ? 0 : driver->session->beats.proof.told_ns;
}

bool session_is_well(const struct driver *driver, int64_t now_ns)
{
    return is_connected(driver) && !beats_are_late(driver, now_ns);
}

int64_t session_patience(struct driver *driver)
{
    int64_t now_ns = now_of(driver);
    if (driver->away_ns != 0 || driver->refused_ns != 0)
        look_by(driver, now_ns + patience_ns(driver));
    return now_ns;
}

bool session_is_away(struct driver *driver, int64_t asked_ns)
{
    int64_t since_ns = driver->refused_ns != 0 ? driver->refused_ns : driver->away_ns;
    if (since_ns == 0)
        return false;
    if (since_ns < asked_ns)
        since_ns = asked_ns;
    bool over = now_of(driver) >= since_ns + patience_ns(driver);
    if (!over)
        look_by(driver, since_ns + patience_ns(driver));
    return over;
}

/* ---- time ------------------------------------------------------------------------------------------ */

void session_turn(struct driver *driver, int64_t now_ns)
{
    retire_late(driver);
    if (may_leave(driver))
        session_abandon(driver);
    struct session *session = driver->session;
    if (now_ns >= driver->away_due_ns) {
        driver->away_due_ns = MORTISE_NEVER;
        driver->upcalls->away(driver);
    }
    if (session != NULL)
        session->look_ns = now_ns + session_timeout_ns(driver) / 10;
    if (session != NULL && is_hopeless(session, now_ns)) {
        driver->host->log(driver->host, 4, "nothing was heard for longer than a session lasts");
        session_abandon(driver);
        session = NULL;
    }
    if (session == NULL && now_ns >= driver->begin_ns)
        begin(driver, now_ns);
    else if (session != NULL && beats_are_due(session, now_ns) && !rest(driver, now_ns))
        beats_turn(driver, now_ns);
    if (session != NULL && driver->away_ns != 0 && now_ns - driver->away_ns > LOOK_UP_NS &&
        now_ns - driver->lookup_ns > LOOK_UP_NS && !servers_asking(driver))
        servers_ask(driver);
}

void session_due(const struct driver *driver, int64_t *due_ns)
{
    const struct session *session = driver->session;
    int64_t at_ns = session == NULL                    ? driver->begin_ns
                    : session->beats.state == BEAT_OUT ? session->look_ns
                                                       : beats_due(session);
    if (may_leave(driver))
        at_ns = 0;
    if (driver->away_due_ns < at_ns)
        at_ns = driver->away_due_ns;
    if (at_ns < *due_ns)
        *due_ns = at_ns;
}
