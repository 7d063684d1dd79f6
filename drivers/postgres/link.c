/* link.c - a connection to the server: made, lost, made again, and what comes in on it. link.h has the states. Knows no
 * op.
 *
 * libpq closes its socket by itself: when it tries the next address, and when it reads an end of file. But the
 * core must be told before a descriptor that it polls is closed. So it polls a copy, which is ours. */
#include "driver.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utlist.h>

#define BACKOFF_MIN_NS (20 * NS_PER_MS)
#define TLS_RECORDS 8
#define LOOK_FIRST_NS (NS_PER_MS / 2)
#define LOOK_LAST_NS (64 * NS_PER_MS)
#define SHARES_MAX 3                 /* of connect_timeout, for the addresses */
#define BACKOFF_STEPS 6              /* doublings, to 1.3 s */
#define STOOD_NS (10000 * NS_PER_MS) /* a connection that lasted for so long was no failure */

static int64_t now_ns(const struct link *link)
{
    return link->driver->locks.host->now(link->driver->locks.host);
}

const char *link_where(const struct link *link, char *text, size_t size)
{
    const struct driver *driver = link->driver;
    const char *host = link->conn != NULL ? PQhost(link->conn) : NULL,
               *port = link->conn != NULL ? PQport(link->conn) : NULL;
    if (host == NULL || *host == '\0')
        host = driver->host_count > 0 ? driver->hosts[0].name : "";
    if (port == NULL || *port == '\0')
        port = driver->host_count > 0 ? driver->hosts[0].port : "";
    snprintf(text, size, "%.100s:%.20s", *host != '\0' ? host : "postgres", port);
    return text;
}

/* ---- descriptors ------------------------------------------------------------------------------- */

static void forget_fd(struct link *link)
{
    if (link->fd >= 0) {
        link->driver->locks.host->closing(link->driver->locks.host, link->fd);
        close(link->fd);
    }
    link->fd = -1;
    link->events = 0;
}

/* False: no descriptor is left, and the link has failed. */
static bool copy_fd(struct link *link, short events)
{
    link->fd = fcntl(PQsocket(link->conn), F_DUPFD_CLOEXEC, 0);
    link->events = events;
    if (link->fd < 0)
        link_failed(link, MORTISE_UNREACHABLE, true, errno, "no descriptor is left");
    return link->fd >= 0;
}

void link_init(struct driver *driver, struct link *link, bool live)
{
    link->driver = driver;
    link->live = live;
    link->fd = -1;
    link->deadline_ns = link->share_ns = link->look_ns = MORTISE_NEVER;
}

static void finish(struct link *link)
{
    forget_fd(link);
    PQfinish(link->conn);
    link->conn = NULL;
    link->unflushed = link->listens = false;
    link->deadline_ns = link->share_ns = link->look_ns = MORTISE_NEVER;
    link->state = LINK_DOWN;
    if (link->live)
        link->driver->locks.hears = false;
}

/* ---- going down -------------------------------------------------------------------------------- */

static void back_off(struct link *link)
{
    unsigned steps = link->failures < BACKOFF_STEPS ? link->failures : BACKOFF_STEPS;
    link->retry_ns = now_ns(link);
    if (link->failures > 0)
        link->retry_ns += locks_jitter(&link->driver->locks, BACKOFF_MIN_NS << steps);
    link->failures++;
}

static void note_trouble(struct link *link, mortise_status status, bool retryable, int native,
                         const char *why)
{
    char line[320], where[200];
    fault_line(why, line, sizeof(line));
    fault_error(&link->driver->trouble, status, native, retryable, "%s: %s",
                link_where(link, where, sizeof(where)), line);
}

void link_lose(struct link *link, const char *why)
{
    struct request *request, *next, *lost;
    note_trouble(link, MORTISE_UNREACHABLE, true, 0, why);
    if (now_ns(link) - link->ready_ns >= STOOD_NS)
        link->failures = 0;
    lost = flight_take(link);
    link->driver->events->lost(link, lost);
    finish(link);
    back_off(link);
    DL_FOREACH_SAFE (lost, request, next) {
        request->next = request->previous = NULL;
        request->handler->lost(request, true);
    }
}

/* Renewals that the second connection cannot take go to the first. */
static bool takes_over(struct link *link, struct request *request)
{
    struct link *main = &link->driver->main;
    if (!link->live || request->base.kind != MORTISE_OP_RENEW || main->state != LINK_READY)
        return false;
    flight_queue(main, request);
    return true;
}

void link_failed(struct link *link, mortise_status status, bool retryable, int native,
                 const char *why)
{
    note_trouble(link, status, retryable, native, why);
    finish(link);
    if (link->failures == 0)
        link->failures = 1;
    if (link->live)
        link->driver->live_wanted = false; /* until somebody renews again */
    back_off(link);
    for (int lane = 0; lane < LANE_COUNT; lane++) {
        struct request *queue = link->queue[lane], *request, *next;
        link->queue[lane] = NULL;
        DL_FOREACH_SAFE (queue, request, next) {
            request->next = request->previous = NULL;
            request->link = NULL;
            if (!takes_over(link, request))
                request->handler->lost(request, false);
        }
    }
}

void link_close(struct link *link)
{
    if (link->conn != NULL)
        finish(link);
}

/* ---- coming up --------------------------------------------------------------------------------- */

/* Somebody canceled a commit that waited for the synchronous standby: the server answers as if the change were safe, and
 * says so only in a warning. The text of the warning is translated; the name of the function is not. */
static void take_notice(void *arg, const PGresult *result)
{
    struct link *link = arg;
    const char *function = PQresultErrorField(result, PG_DIAG_SOURCE_FUNCTION);
    if (function != NULL && strcmp(function, "SyncRepWaitForLSN") == 0)
        link->unconfirmed = true;
}

static bool has_work(const struct link *link)
{
    const struct driver *driver = link->driver;
    if (link->live &&
        (driver->live_wanted || (driver->listen_wanted && driver->locks.names != NULL)))
        return true;
    if (!link->live && driver->settled_ns != 0 && now_ns(link) < driver->settled_ns)
        return true; /* to end backends of lost connections, which may keep rows locked */
    return link->queue[LANE_LAZY] != NULL || link->queue[LANE_DURABLE] != NULL ||
           link->queue[LANE_READING] != NULL;
}

static void established(struct link *link)
{
    link->share_ns = MORTISE_NEVER;
    if (!copy_fd(link, POLLIN))
        return;
    if (PQsetnonblocking(link->conn, 1) != 0 || PQenterPipelineMode(link->conn) != 1)
        link_failed(link, MORTISE_UNREACHABLE, true, 0, PQerrorMessage(link->conn));
    else
        setup_begin(link);
}

/* One step of the connecting. */
static void poll_connect(struct link *link)
{
    forget_fd(link);
    PostgresPollingStatusType status = PQconnectPoll(link->conn);
    if (status == PGRES_POLLING_FAILED) {
        link_failed(link, MORTISE_UNREACHABLE, true, 0, PQerrorMessage(link->conn));
        return;
    }
    if (status == PGRES_POLLING_OK) {
        established(link);
        return;
    }
    copy_fd(link, status == PGRES_POLLING_READING ? POLLIN : POLLOUT);
}

static void connect_now(struct link *link)
{
    struct driver *driver = link->driver;
    if (driver->address_count == 0) {
        link_failed(link, MORTISE_UNREACHABLE, true, 0, driver->resolve_trouble);
        return;
    }
    link->conn = target_connect(driver);
    if (link->conn == NULL) {
        link_failed(link, MORTISE_NOMEM, true, 0, "out of memory");
        return;
    }
    PQsetNoticeProcessor(link->conn, NULL, NULL);
    PQsetNoticeReceiver(link->conn, take_notice, link);
    link->unconfirmed = false;
    link->state = LINK_CONNECTING;
    if (PQstatus(link->conn) == CONNECTION_BAD) {
        link_failed(link, MORTISE_UNREACHABLE, true, 0, PQerrorMessage(link->conn));
        return;
    }
    if (!copy_fd(link, POLLOUT))
        return;
    link_look_soon(link);
    int64_t timeout_ns = driver->values[OPTION_CONNECT_TIMEOUT].number * NS_PER_MS;
    size_t shares = driver->address_count < SHARES_MAX ? driver->address_count : SHARES_MAX;
    if (shares > 1)
        link->share_ns = now_ns(link) + timeout_ns / (int64_t)shares;
}

/* The address that libpq tries now is silent: try the next one. */
static void pass_by(struct link *link)
{
    link->share_ns = MORTISE_NEVER;
    if (!target_pass_by(link->driver, link->conn))
        return;
    forget_fd(link);
    PQfinish(link->conn);
    link->conn = NULL;
    connect_now(link);
}

void link_want(struct link *link)
{
    struct driver *driver = link->driver;
    if (link->state != LINK_DOWN || driver->locks.closing || !has_work(link) ||
        now_ns(link) < link->retry_ns)
        return;
    link->state = LINK_RESOLVING;
    link->deadline_ns = now_ns(link) + driver->values[OPTION_CONNECT_TIMEOUT].number * NS_PER_MS;
    if (target_resolve(driver))
        connect_now(link);
}

void link_resolved(struct driver *driver)
{
    if (driver->main.state == LINK_RESOLVING)
        connect_now(&driver->main);
    if (driver->live.state == LINK_RESOLVING)
        connect_now(&driver->live);
}

void link_ready(struct link *link)
{
    struct driver *driver = link->driver;
    link->state = LINK_READY;
    link->deadline_ns = link->look_ns = MORTISE_NEVER;
    link->ready_ns = now_ns(link);
    driver->live_wanted = driver->live_wanted && !link->live;
    driver->events->ready(link);
}

/* ---- what comes in ----------------------------------------------------------------------------- */

/* False: the connection is gone. */
static bool take_results(struct link *link)
{
    bool last_null = false;
    while (!PQisBusy(link->conn)) {
        PGresult *result = PQgetResult(link->conn);
        if (result == NULL && last_null)
            return true;
        last_null = result == NULL;
        if (!(link->state == LINK_READY ? flight_result(link, result) : setup_result(link, result)))
            return false;
    }
    return true;
}

static void hear(struct link *link)
{
    PGnotify *notify;
    while ((notify = PQnotifies(link->conn)) != NULL) {
        if (strcmp(notify->relname, link->driver->channel) == 0)
            link->driver->events->notified(link->driver, notify->extra);
        PQfreemem(notify);
    }
}

static void come_in(struct link *link)
{
    char why[320];
    bool fine = PQconsumeInput(link->conn) == 1;
    for (int i = 0; i < TLS_RECORDS && fine && PQsslInUse(link->conn); i++)
        fine = PQconsumeInput(link->conn) ==
               1; /* what TLS has read already makes no descriptor ready */
    if (!take_results(link))
        return;
    if (fine && PQstatus(link->conn) == CONNECTION_OK) {
        hear(link);
        return;
    }
    snprintf(why, sizeof(why), "%s", PQerrorMessage(link->conn));
    if (link->state == LINK_READY)
        link_lose(link, why);
    else
        link_failed(link, MORTISE_UNREACHABLE, true, 0, why);
}

void link_look_soon(struct link *link)
{
    link->look_step_ns = LOOK_FIRST_NS;
    link->look_ns = now_ns(link) + link->look_step_ns;
}

/* What the server said last, if anything, comes before the end of file. */
bool link_is_there(struct link *link)
{
    char byte;
    for (int i = 0; i < TLS_RECORDS; i++) {
        ssize_t n = recv(link->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
            return true;
        if (n > 0)
            come_in(link);
        else
            link_lose(link, "the server closed the connection");
        if (link->state != LINK_READY)
            return false;
    }
    return true;
}

/* Reads less and less often, as long as an answer is expected. */
static void look(struct link *link)
{
    come_in(link);
    if (link->state != LINK_READY || !flight_has_own(link)) {
        link->look_ns = MORTISE_NEVER;
        return;
    }
    if (link->look_step_ns < LOOK_LAST_NS)
        link->look_step_ns *= 2;
    link->look_ns = now_ns(link) + link->look_step_ns;
}

static short events_of(const struct link *link, const struct pollfd *ready, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (link->fd >= 0 && ready[i].fd == link->fd)
            return ready[i].revents;
    return 0;
}

static void turn_up(struct link *link, short events)
{
    if (events != 0) /* if libpq cannot write, it may read */
        come_in(link);
    if (link->state == LINK_READY && link->look_ns <= now_ns(link))
        look(link);
    if (link->conn != NULL && link->unflushed && !flight_flush(link))
        link_lose(link, PQerrorMessage(link->conn));
    if (link->state == LINK_READY && flight_due(link) <= now_ns(link))
        link_lose(link, "no answer within command_timeout");
}

/* If no caller waits for a connection that is being made, the core polls only when it has something to do. And this
 * process may have been stopped: bytes that are there count before a time-out does. */
static short glance(struct link *link, short events)
{
    struct pollfd fd = {.fd = link->fd, .events = link->events};
    int64_t now = now_ns(link);
    bool comes_up = link->state == LINK_CONNECTING || link->state == LINK_SETTING_UP;
    bool due = link->look_ns <= now || link->share_ns <= now || link->deadline_ns <= now;
    if (!comes_up || events != 0 || !due)
        return events;
    if (link->look_step_ns < LOOK_LAST_NS)
        link->look_step_ns *= 2;
    link->look_ns = now + link->look_step_ns;
    return poll(&fd, 1, 0) == 1 ? fd.revents : 0;
}

void link_turn(struct link *link, const struct pollfd *ready, size_t n)
{
    short events = glance(link, events_of(link, ready, n));
    if (link->state == LINK_CONNECTING && events != 0)
        poll_connect(link);
    else if (link->state == LINK_SETTING_UP || link->state == LINK_READY)
        turn_up(link, events);
    else if (link->state == LINK_DOWN)
        link_want(link);
    if (events != 0)
        return;
    if (link->deadline_ns <= now_ns(link)) {
        if (link->conn != NULL)
            target_pass_by(link->driver, link->conn);
        link_failed(link, MORTISE_UNREACHABLE, true, 0, "no connection within connect_timeout");
    } else if (link->state == LINK_CONNECTING && link->share_ns <= now_ns(link)) {
        pass_by(link);
    }
}

static int64_t earlier(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

int64_t link_due(struct link *link)
{
    if (link->state == LINK_DOWN)
        return has_work(link) ? link->retry_ns : MORTISE_NEVER;
    if (link->state == LINK_READY)
        return earlier(earlier(flight_due(link), link->look_ns), flight_paused(link));
    return earlier(link->deadline_ns, earlier(link->share_ns, link->look_ns));
}
