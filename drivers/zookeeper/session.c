/* session.c - the session with the ensemble: asked for, connected, lost, expired, ended; and its beats.
 * internal.h tells what a beat proves. */
#include "driver.h"

#include <netdb.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GO_ON_NS (500 * NS_PER_MS) /* names are waited for so long, if some are known */
#define SETTLE_MS 300
#define AGAIN_NS (1000 * NS_PER_MS)        /* after there could be no session */
#define LOOK_UP_NS (10 * 1000 * NS_PER_MS) /* names again, while nobody answers */

static void beat(struct driver *driver, int64_t now_ns);

/* ---- making one ---------------------------------------------------------------------------------- */

/* What the library has to say is said by what it does; it must not print by itself. */
static void be_quiet(const char *message)
{
    (void)message;
}

static zhandle_t *open_handle(struct driver *driver, struct session *session, const char *servers)
{
    sigset_t all, before; /* signals are for the application's threads */
    int timeout_ms = (int)driver->values[OPTION_SESSION_TIMEOUT].number;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    zhandle_t *zh = zookeeper_init2(servers, watch_session, timeout_ms, NULL, session,
                                    ZOO_NO_LOG_CLIENTENV, be_quiet);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
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
        session->beat_due_ns = now_ns;
        session->beat_failures = 1;
        proof_begin(&session->proof, now_ns);
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

/* Looks the names up first, if that was long ago. */
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

void session_servers_known(struct driver *driver)
{
    char *servers = servers_text(driver);
    if (driver->session == NULL && servers != NULL)
        make(driver, now_of(driver));
    else if (driver->session != NULL && servers != NULL)
        zoo_set_servers(driver->session->zh, servers); /* does nothing if they are the same */
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
    mail_read(driver); /* what was put before the library's threads ended */
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

/* On a thread of its own: it may take seconds. Where there can be no thread, a later turn tries again. */
static void start_closer(struct session *session)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    session->closing = pthread_create(&session->closer, NULL, close_handle, session) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void retire(struct driver *driver)
{
    struct session *session = driver->session;
    driver->session = NULL;
    LL_PREPEND(driver->retired, session);
    start_closer(session);
}

static void retire_late(struct driver *driver)
{
    struct session *session;
    LL_FOREACH (driver->retired, session)
        if (!session->closing)
            start_closer(session);
}

/* Nothing is posted after this: no thread is left that could. What is in the mailbox is thrown away first:
 * requests in it are the sessions'. */
void session_close_all(struct driver *driver)
{
    struct session *session, *next;
    LL_FOREACH (driver->retired, session)
        if (session->closing)
            pthread_join(session->closer, NULL);
        else
            zookeeper_close(session->zh);
    if (driver->session != NULL) {
        if (driver->session->connected)
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
            request->answered = NULL;
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

/* The library sends it again by itself on each later connection. */
static bool authenticate(struct driver *driver)
{
    struct session *session = driver->session;
    if (driver->auth_scheme == NULL || session->id != 0)
        return true;
    return zoo_add_auth(session->zh, driver->auth_scheme, driver->auth_text,
                        (int)strlen(driver->auth_text), NULL, NULL) == ZOK;
}

/* The timeout may be shorter than the one that was asked for, by which the next beat was put off. */
static void beat_by(struct driver *driver, int64_t at_ns)
{
    if (at_ns < driver->session->beat_due_ns)
        driver->session->beat_due_ns = at_ns;
}

static void connected(struct driver *driver)
{
    struct session *session = driver->session;
    int64_t now_ns = now_of(driver);
    if (!authenticate(driver)) /* it is lost already; there will be another */
        return;
    session->connected = true;
    session->id = zoo_client_id(session->zh)->client_id;
    proof_connected(&session->proof, zoo_recv_timeout(session->zh),
                    driver->values[OPTION_TICK].given ? driver->values[OPTION_TICK].number : 0);
    driver->away_ns = 0;
    driver->refused = 0;
    driver->trouble[0] = '\0';
    if (session->since_ns == 0)
        session->since_ns = now_ns;
    beat_by(driver, now_ns + session_timeout_ns(driver) / BEATS_PER_TIMEOUT);
    if (!session->beating)
        beat(driver, now_ns);
    base_connected(driver);
    queries_connected(driver);
    lease_connected(driver);
}

static void disconnected(struct driver *driver)
{
    driver->session->connected = false;
    driver->away_ns = now_of(driver);
    look_by(driver, driver->away_ns + patience_ns(driver));
    lease_disconnected(driver);
}

static void over(struct driver *driver)
{
    if (driver->session->connected)
        disconnected(driver);
    if (driver->away_ns == 0)
        driver->away_ns = now_of(driver);
    retire(driver);
    driver->begin_ns = now_of(driver) + (driver->refused != 0 ? AGAIN_NS : 0);
    lease_session_ended(driver);
}

void session_event(struct driver *driver, int state)
{
    mortise_host *host = driver->host;
    if (state == ZOO_CONNECTED_STATE)
        connected(driver);
    else if (state == ZOO_CONNECTING_STATE && driver->session->leaving)
        session_give_up(driver);
    else if (state == ZOO_CONNECTING_STATE && driver->session->connected)
        disconnected(driver);
    else if (state == ZOO_EXPIRED_SESSION_STATE) {
        host->log(host, 4, "the session has expired");
        over(driver);
    } else if (state == ZOO_AUTH_FAILED_STATE) {
        driver->refused = ZAUTHFAILED;
        over(driver);
    }
}

/* Nothing has been proven for longer than the timeout: every lease is LOST. The session may live on in the
 * servers for as long as its client tries to reconnect, if they hear it and it does not hear them. */
static bool is_hopeless(const struct driver *driver, int64_t now_ns)
{
    const struct session *session = driver->session;
    if (session->rests)
        return false; /* nothing was asked, and nothing is held */
    const struct proof *proof = &session->proof;
    int64_t good_ns =
        session->since_ns + proof->timeout_ns; /* it may have been long in the making */
    if (proof->deadline_ns > good_ns)
        good_ns = proof->deadline_ns;
    return session->since_ns != 0 && now_ns > good_ns + proof->timeout_ns / 3;
}

void session_give_up(struct driver *driver)
{
    if (driver->session->connected)
        disconnected(driver);
    retire(driver);
    driver->begin_ns = now_of(driver);
    lease_session_abandoned(driver);
}

void session_wake(struct driver *driver)
{
    if (driver->session == NULL || !driver->session->rests)
        return;
    driver->session->leaving = queries_open(driver);
    if (!driver->session->leaving)
        session_give_up(driver);
}

static bool may_leave(const struct driver *driver)
{
    return driver->session != NULL && driver->session->leaving && !queries_open(driver);
}

/* ---- beats ---------------------------------------------------------------------------------------- */

int64_t session_timeout_ns(const struct driver *driver)
{
    const struct session *session = driver->session;
    return session->proof.timeout_ns != 0
               ? session->proof.timeout_ns
               : driver->values[OPTION_SESSION_TIMEOUT].number * NS_PER_MS;
}

/* A write went to the leader, whatever came of it. */
static bool is_written(int rc)
{
    return rc == ZOK || rc == ZNONODE || rc == ZNODEEXISTS || rc == ZNOAUTH;
}

static void note_time(struct session *session, const struct request *request)
{
    if (request->rc != ZOK || request->stat.mtime <= 0)
        return;
    session->servers_ms = request->stat.mtime;
    session->servers_at_ns = request->sent_ns;
}

static void beat_answered(struct driver *driver, struct request *request)
{
    struct session *session = request->mail.session;
    int64_t now_ns = now_of(driver), deadline_ns = session->proof.deadline_ns;
    session->beating = false;
    if (!is_written(request->rc) || !session->connected) {
        proof_unanswered(&session->proof, request->sent_ns);
        return;
    }
    note_time(session, request);
    proof_answered(&session->proof, request->sent_ns, now_ns);
    if (request->rc == ZNONODE)
        session->beat_failures += session->beat_failures < 8;
    else
        session->beat_failures = 0;
    if (session->beat_failures > 0 && session->beat_failures < 4)
        session->beat_due_ns = now_ns;
    if (session == driver->session && session->proof.deadline_ns != deadline_ns)
        lease_proven(driver);
}

/* Writes to its node; the first time, and where that is gone, it makes it; and where there is no room for it,
 * that too. */
static void beat(struct driver *driver, int64_t now_ns)
{
    struct session *session = driver->session;
    struct reply_to to = {beat_answered, NULL, 0, false};
    char path[PATH_SIZE];
    path_of(driver, "%sessions", driver->client_id, path);
    if (session->beat_failures > 1 && session->connected)
        session_make_root(driver, "%sessions");
    session->beating =
        session->beat_failures == 0
            ? send_set(driver, path, driver->note, driver->note_len, -1, to)
            : send_create(driver, path, driver->note, driver->note_len, ZOO_EPHEMERAL, to);
    session->beat_sent_ns = now_ns;
    session->beat_due_ns = now_ns + session_timeout_ns(driver) / BEATS_PER_TIMEOUT;
}

/* Nothing was held or asked for a timeout. See RESTING. */
static bool has_rest(struct driver *driver, int64_t now_ns)
{
    struct session *session = driver->session;
    if (driver->names != NULL || driver->queries != NULL || session->busy_ns == 0)
        session->busy_ns = now_ns;
    session->rests = session->since_ns != 0 && session->beat_failures == 0 &&
                     now_ns - session->busy_ns > session_timeout_ns(driver);
    if (session->rests)
        session->beat_due_ns = MORTISE_NEVER;
    return session->rests;
}

static void ignored(struct driver *driver, struct request *request)
{
    (void)driver;
    (void)request;
}

void session_make_root(struct driver *driver, const char *folder)
{
    struct reply_to nobody = {ignored, NULL, 0, false};
    char path[PATH_SIZE];
    for (char *slash = driver->root; *slash != '\0';) {
        slash += 1 + strcspn(slash + 1, "/");
        snprintf(path, sizeof(path), "%.*s", (int)(slash - driver->root), driver->root);
        send_create(driver, path, "", 0, ZOO_PERSISTENT, nobody);
    }
    path_of(driver, folder, NULL, path);
    if (folder != NULL)
        send_create(driver, path, "", 0, ZOO_PERSISTENT, nobody);
}

/* ---- what the others want to know ------------------------------------------------------------------ */

int64_t session_deadline(const struct driver *driver)
{
    return driver->session == NULL ? 0 : driver->session->proof.deadline_ns;
}

bool session_is_well(const struct driver *driver, int64_t now_ns)
{
    const struct session *session = driver->session;
    return session != NULL && session->connected &&
           !(session->beating && now_ns - session->beat_sent_ns > session_timeout_ns(driver) / 4);
}

int64_t session_patience(struct driver *driver)
{
    int64_t now_ns = now_of(driver);
    if (driver->away_ns != 0)
        look_by(driver, now_ns + patience_ns(driver));
    return now_ns;
}

bool session_is_away(struct driver *driver, int64_t asked_ns)
{
    if (driver->away_ns == 0)
        return false;
    int64_t since_ns = asked_ns > driver->away_ns ? asked_ns : driver->away_ns;
    bool over = now_of(driver) >= since_ns + patience_ns(driver);
    if (!over)
        look_by(driver, since_ns + patience_ns(driver));
    return over;
}

int64_t session_since_ms(const struct driver *driver, int64_t servers_ms)
{
    const struct session *session = driver->session;
    if (session == NULL || session->servers_ms == 0)
        return -1;
    int64_t since_ms =
        session->servers_ms - servers_ms + (now_of(driver) - session->servers_at_ns) / NS_PER_MS;
    return since_ms < 0 ? 0 : since_ms;
}

const char *session_server(const struct driver *driver, char *buffer, size_t size)
{
    struct sockaddr_storage address;
    socklen_t length = sizeof(address);
    char host[NI_MAXHOST], port[NI_MAXSERV];
    if (driver->session != NULL &&
        zookeeper_get_connected_host(driver->session->zh, (struct sockaddr *)&address, &length) !=
            NULL &&
        getnameinfo((struct sockaddr *)&address, length, host, sizeof(host), port, sizeof(port),
                    NI_NUMERICHOST | NI_NUMERICSERV) == 0)
        snprintf(buffer, size, "%s:%s", host, port);
    else
        snprintf(buffer, size, "%s", driver->values[OPTION_SERVERS].text);
    return buffer;
}

/* ---- time ------------------------------------------------------------------------------------------ */

void session_turn(struct driver *driver, int64_t now_ns)
{
    retire_late(driver);
    if (may_leave(driver))
        session_give_up(driver);
    struct session *session = driver->session;
    if (now_ns >= driver->away_due_ns) {
        driver->away_due_ns = MORTISE_NEVER;
        queries_away(driver);
        lease_away(driver);
    }
    if (session != NULL)
        session->look_ns = now_ns + session_timeout_ns(driver) / BEATS_PER_TIMEOUT;
    if (session != NULL && is_hopeless(driver, now_ns)) {
        driver->host->log(driver->host, 4, "nothing was heard for longer than a session lasts");
        session_give_up(driver);
        session = NULL;
    }
    if (session == NULL && now_ns >= driver->begin_ns)
        begin(driver, now_ns);
    else if (session != NULL && !session->beating && now_ns >= session->beat_due_ns &&
             !has_rest(driver, now_ns))
        beat(driver, now_ns);
    if (session != NULL && driver->away_ns != 0 && now_ns - driver->away_ns > LOOK_UP_NS &&
        now_ns - driver->lookup_ns > LOOK_UP_NS && !servers_asking(driver))
        servers_ask(driver);
}

void session_due(const struct driver *driver, int64_t *due_ns)
{
    const struct session *session = driver->session;
    int64_t at_ns = session == NULL    ? driver->begin_ns
                    : session->beating ? session->look_ns
                                       : session->beat_due_ns;
    if (may_leave(driver))
        at_ns = 0;
    if (driver->away_due_ns < at_ns)
        at_ns = driver->away_due_ns;
    if (at_ns < *due_ns)
        *due_ns = at_ns;
}
