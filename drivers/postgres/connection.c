/* connection.c - makes a connection by libpq, which tries all addresses, and takes what comes in on it. */
#include "driver.h"

#include <stdio.h>
#include <string.h>

#define TLS_RECORDS 8

const char *connection_where(const struct link *link, char *text, size_t size)
{
    const struct hosts *hosts = &link->remote->hosts;
    const PGconn *conn = pg_link_const(link)->conn;
    const char *host = conn != NULL ? PQhost(conn) : NULL,
               *port = conn != NULL ? PQport(conn) : NULL;
    if (host == NULL || *host == '\0')
        host = hosts->at[0].name;
    if (port == NULL || *port == '\0')
        port = hosts->at[0].port;
    snprintf(text, size, "%.100s:%.20s", *host != '\0' ? host : "postgres", port);
    return text;
}

void connection_end(struct link *link)
{
    struct pg_link *mine = pg_link(link);
    PQfinish(mine->conn);
    mine->conn = NULL;
    mine->events = 0;
    mine->unflushed = mine->listens = mine->got = false;
    mine->at = 0;
    if (link->live)
        link->remote->locks.hears = false;
}

/* ---- it is made -------------------------------------------------------------------------------- */

/* Somebody canceled a commit that waited for the synchronous standby: the server answers as if the change were safe, and
 * says so only in a warning. The text of the warning is translated; the name of the function is not. */
static void take_notice(void *arg, const PGresult *result)
{
    struct pg_link *mine = arg;
    const char *function = PQresultErrorField(result, PG_DIAG_SOURCE_FUNCTION);
    if (function != NULL && strcmp(function, "SyncRepWaitForLSN") == 0)
        mine->unconfirmed = true;
}

/* If the server itself refuses the connection, one of these settings is wrong. */
void connection_failed(struct link *link)
{
    char text[400];
    const char *said = PQerrorMessage(pg_link(link)->conn);
    const char *end = said + strlen(said);
    while (end > said && (end[-1] == '\n' || end[-1] == ' '))
        end--;
    bool refused = link->state == LINK_CONNECTING && strstr(said, "FATAL:") != NULL;
    snprintf(text, sizeof(text), "%.*s%s", (int)(end - said < 320 ? end - said : 320), said,
             refused ? "; check the user, the password and the database of conninfo" : "");
    link_failed_why(link, MORTISE_UNREACHABLE, true, text);
}

static bool poll_for(struct link *link, short events)
{
    struct pg_link *mine = pg_link(link);
    mine->events = events;
    return link_poll(link, PQsocket(mine->conn));
}

void connection_begin(struct link *link)
{
    struct pg_link *mine = pg_link(link);
    mine->conn = target_connect(driver_of(link), &link->addresses);
    if (mine->conn == NULL) {
        link_failed_why(link, MORTISE_NOMEM, true, "out of memory");
        return;
    }
    PQsetNoticeProcessor(mine->conn, NULL, NULL);
    PQsetNoticeReceiver(mine->conn, take_notice, mine);
    mine->unconfirmed = false;
    if (PQstatus(mine->conn) == CONNECTION_BAD)
        connection_failed(link);
    else
        poll_for(link, POLLOUT);
}

bool connection_pass_by(struct link *link)
{
    const PGconn *conn = pg_link(link)->conn;
    return conn != NULL && target_pass_by(driver_of(link), &link->addresses, conn);
}

static void established(struct link *link)
{
    PGconn *conn = pg_link(link)->conn;
    link->share_ns = MORTISE_NEVER;
    if (!poll_for(link, POLLIN))
        return;
    if (PQsetnonblocking(conn, 1) != 0 || PQenterPipelineMode(conn) != 1)
        connection_failed(link);
    else
        setup_begin(link);
}

/* One step. */
static void go_on(struct link *link)
{
    link_poll_no_more(link);
    PostgresPollingStatusType status = PQconnectPoll(pg_link(link)->conn);
    if (status == PGRES_POLLING_FAILED)
        connection_failed(link);
    else if (status == PGRES_POLLING_OK)
        established(link);
    else
        poll_for(link, status == PGRES_POLLING_READING ? POLLIN : POLLOUT);
}

/* ---- what comes in ----------------------------------------------------------------------------- */

short connection_events(const struct link *link)
{
    return pg_link_const(link)->events;
}

/* False: the connection is gone. */
static bool take_results(struct link *link)
{
    PGconn *conn = pg_link(link)->conn;
    bool last_null = false;
    while (!PQisBusy(conn)) {
        PGresult *result = PQgetResult(conn);
        if (result == NULL && last_null)
            return true;
        last_null = result == NULL;
        if (!(link->state == LINK_READY ? group_result(link, result) : setup_result(link, result)))
            return false;
    }
    return true;
}

static void hear(struct link *link)
{
    struct driver *driver = driver_of(link);
    PGnotify *notify;
    while ((notify = PQnotifies(pg_link(link)->conn)) != NULL) {
        if (strcmp(notify->relname, driver->channel) == 0)
            notify_heard(driver, notify->extra);
        PQfreemem(notify);
    }
}

static void read_all(struct link *link)
{
    PGconn *conn = pg_link(link)->conn;
    char why[320];
    bool fine = PQconsumeInput(conn) == 1;
    /* bytes that TLS has read already make no descriptor ready */
    for (int i = 0; i < TLS_RECORDS && fine && PQsslInUse(conn); i++)
        fine = PQconsumeInput(conn) == 1;
    if (!take_results(link))
        return;
    if (fine && PQstatus(conn) == CONNECTION_OK) {
        hear(link);
        return;
    }
    snprintf(why, sizeof(why), "%s", PQerrorMessage(conn));
    if (link->state == LINK_READY)
        link_lose_why(link, why);
    else
        link_failed_why(link, MORTISE_UNREACHABLE, true, why);
}

/* While libpq cannot write, it may have to read. */
void connection_come_in(struct link *link, short events)
{
    struct pg_link *mine = pg_link(link);
    (void)events;
    if (link->state == LINK_CONNECTING) {
        go_on(link);
        return;
    }
    read_all(link);
    if (mine->conn == NULL || !mine->unflushed || group_flush(link))
        return;
    if (link->state == LINK_READY)
        link_lose_why(link, PQerrorMessage(mine->conn));
    else
        connection_failed(link);
}

/* The server's last message, if any, comes before the end of file. */
bool connection_is_there(struct link *link)
{
    for (int i = 0; i < TLS_RECORDS && link->state == LINK_READY; i++) {
        enum link_peek peek = link_peek(link);
        if (peek == PEEK_NOTHING)
            return true;
        if (peek == PEEK_BYTES)
            read_all(link);
        else
            link_lose_why(link, "the server closed the connection");
    }
    return link->state == LINK_READY;
}
