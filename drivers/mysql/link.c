/* link.c - a connection to the server: made, lost, made again, and what comes in on it. link.h has the states. Knows no
 * op.
 *
 * libmariadb closes its socket by itself when it reads an end of file. But the core must be told before a descriptor that it
 * polls is closed. So it polls a copy, which is ours. */
#include "driver.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utlist.h>

#define BACKOFF_MIN_NS (20 * NS_PER_MS)
#define BACKOFF_STEPS 6 /* doublings, to 1.3 s */
#define LOOK_FIRST_NS (NS_PER_MS / 2)
#define LOOK_LAST_NS (64 * NS_PER_MS)
#define SHARES_MAX 3                 /* of connect_timeout, for the addresses */
#define STOOD_NS (10000 * NS_PER_MS) /* a connection that lasted for so long was no failure */

static int64_t now_ns(const struct link *link)
{
    return link->driver->locks.host->now(link->driver->locks.host);
}

const char *link_where(const struct link *link, char *text, size_t size)
{
    const struct driver *driver = link->driver;
    const struct host_entry *entry = link->address < driver->address_count
                                         ? driver->addresses[link->address].entry
                                         : &driver->hosts[0];
    if (driver->host_count == 0)
        snprintf(text, size, "%.150s", driver->values[OPTION_SOCKET].text);
    else
        snprintf(text, size, "%.150s:%s", entry->name, entry->port);
    return text;
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
    if (link->fd >= 0) {
        link->driver->locks.host->closing(link->driver->locks.host, link->fd);
        close(link->fd);
    }
    link->fd = -1;
    conn_close(&link->conn);
    link->stale = false;
    link->share_ns = link->look_ns = MORTISE_NEVER;
    link->peer[0] = '\0';
}

static void go_down(struct link *link)
{
    finish(link);
    link->deadline_ns = MORTISE_NEVER;
    link->state = LINK_DOWN;
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

static void note_trouble(struct link *link, mortise_status status, const struct sql_fault *fault)
{
    char where[200];
    fault_error(&link->driver->trouble, status, fault->native, fault->retryable, "%s: %s",
                link_where(link, where, sizeof(where)), fault->text);
}

void link_lose(struct link *link, const struct sql_fault *fault)
{
    struct request *request, *next, *lost;
    note_trouble(link, MORTISE_UNREACHABLE, fault);
    link->driver->trouble.retryable = true;
    if (now_ns(link) - link->ready_ns >= STOOD_NS)
        link->failures = 0;
    lost = flight_take(link);
    link->driver->events->lost(link, lost);
    go_down(link);
    back_off(link);
    DL_FOREACH_SAFE (lost, request, next) {
        request->next = request->previous = NULL;
        request->link = NULL;
        request->handler->lost(request, true);
    }
}

static struct sql_fault fault_of(mortise_status status, bool retryable, const char *why)
{
    struct sql_fault fault = {.status = status, .retryable = retryable};
    snprintf(fault.text, sizeof(fault.text), "%s", why);
    return fault;
}

void link_lose_why(struct link *link, const char *why)
{
    struct sql_fault fault = fault_of(MORTISE_UNREACHABLE, true, why);
    link_lose(link, &fault);
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

/* No address is left. */
static void give_up(struct link *link)
{
    struct request *queue = link->queue, *request, *next;
    go_down(link);
    if (link->failures == 0)
        link->failures = 1;
    if (link->live)
        link->driver->live_wanted = false; /* until somebody renews again */
    back_off(link);
    link->queue = NULL;
    DL_FOREACH_SAFE (queue, request, next) {
        request->next = request->previous = NULL;
        request->link = NULL;
        if (!takes_over(link, request))
            request->handler->lost(request, false);
    }
}

static void connect_to(struct link *link, size_t address);

void link_failed(struct link *link, const struct sql_fault *fault)
{
    /* what a person can mend is told rather than that a further host does not answer */
    if (link->address == 0 || link->driver->trouble.status == MORTISE_UNREACHABLE)
        note_trouble(link, fault->status, fault);
    finish(link);
    if (link->address + 1 < link->driver->address_count && link->deadline_ns > now_ns(link))
        connect_to(link, link->address + 1);
    else
        give_up(link);
}

void link_failed_why(struct link *link, mortise_status status, bool retryable, const char *why)
{
    struct sql_fault fault = fault_of(status, retryable, why);
    link_failed(link, &fault);
}

void link_close(struct link *link)
{
    go_down(link);
    text_free(&link->out);
}

/* ---- coming up --------------------------------------------------------------------------------- */

static bool has_work(const struct link *link)
{
    const struct driver *driver = link->driver;
    if (link->live && driver->live_wanted)
        return true;
    if (!link->live && driver->settled_ns != 0 && now_ns(link) < driver->settled_ns)
        return true; /* to end sessions of lost connections, which may keep rows locked */
    return link->queue != NULL;
}

/* The kernel is to notice a silent network. A program that this one starts must not have the connection. */
static void prepare_socket(const struct link *link, int fd)
{
    const int on = 1, idle_s = 10, interval_s = 3, count = 3;
    unsigned timeout_ms = (unsigned)link->driver->values[OPTION_COMMAND_TIMEOUT].number;
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    if (link->driver->host_count == 0) /* a socket */
        return;
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof(idle_s));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof(interval_s));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof(count));
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout_ms, sizeof(timeout_ms));
}

static void connecting_event(struct link *link, enum conn_event event)
{
    struct fault fault;
    if (event == CONN_WAITS)
        return;
    if (event == CONN_CONNECTED) {
        setup_begin(link);
        return;
    }
    if (link->conn.mysql == NULL) {
        link_failed_why(link, MORTISE_NOMEM, true, "out of memory");
        return;
    }
    fault_read(link->conn.mysql, &fault);
    link_failed(link, &fault.base);
}

static void connect_to(struct link *link, size_t address)
{
    struct driver *driver = link->driver;
    struct conn_target target;
    int64_t timeout_ns = driver->values[OPTION_CONNECT_TIMEOUT].number * NS_PER_MS;
    size_t shares = driver->address_count < SHARES_MAX ? driver->address_count : SHARES_MAX;
    link->address = address;
    link->state = LINK_CONNECTING;
    if (address + 1 < driver->address_count)
        link->share_ns = now_ns(link) + timeout_ns / (int64_t)shares;
    target_describe(driver, address, &target);
    enum conn_event event = conn_connect(&link->conn, &target);
    /* through a unix socket it may be there without a wait */
    int fd = event != CONN_FAILED ? conn_socket(&link->conn) : -1;
    if (event != CONN_FAILED && (fd < 0 || (link->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0)) < 0)) {
        link_failed_why(link, MORTISE_UNREACHABLE, true, "no descriptor is left");
        return;
    }
    if (fd >= 0)
        prepare_socket(link, fd);
    link_look_soon(link);
    connecting_event(link, event);
}

static void connect_first(struct link *link)
{
    if (link->driver->address_count > 0) {
        connect_to(link, 0);
        return;
    }
    link->address = 0;
    link_failed_why(link, MORTISE_UNREACHABLE, true, link->driver->resolve_trouble);
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
        connect_first(link);
}

void link_resolved(struct driver *driver)
{
    if (driver->main.state == LINK_RESOLVING)
        connect_first(&driver->main);
    if (driver->live.state == LINK_RESOLVING)
        connect_first(&driver->live);
}

void link_ready(struct link *link)
{
    struct driver *driver = link->driver;
    link->state = LINK_READY;
    link->deadline_ns = link->share_ns = link->look_ns = MORTISE_NEVER;
    link->ready_ns = now_ns(link);
    driver->live_wanted = driver->live_wanted && !link->live;
    driver->events->ready(link);
}

/* ---- what comes in ----------------------------------------------------------------------------- */

static void event(struct link *link, enum conn_event event)
{
    if (link->state == LINK_CONNECTING)
        connecting_event(link, event);
    else if (link->state == LINK_SETTING_UP)
        setup_event(link, event);
    else if (link->state == LINK_READY)
        flight_event(link, event);
}

/* Some of what libmariadb waits for may have come. */
static void come_in(struct link *link, short events)
{
    int ready = 0;
    if ((events & (POLLIN | POLLHUP | POLLERR)) != 0)
        ready |= MYSQL_WAIT_READ;
    if ((events & (POLLOUT | POLLHUP | POLLERR)) != 0)
        ready |= MYSQL_WAIT_WRITE;
    if (link->conn.state != CONN_IDLE && (ready & link->conn.waits) != 0)
        event(link, conn_go(&link->conn, ready & link->conn.waits));
    else if (link->conn.state == CONN_IDLE && link->state == LINK_READY &&
             (ready & MYSQL_WAIT_READ))
        link_is_there(link);
}

void link_look_soon(struct link *link)
{
    link->look_step_ns = LOOK_FIRST_NS;
    link->look_ns = now_ns(link) + link->look_step_ns;
}

/* Nobody asked, and yet there is something to read: an end of file, or the reason for one. */
bool link_is_there(struct link *link)
{
    char byte;
    ssize_t n = recv(link->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
        return true;
    link_lose_why(link, "the server closed the connection");
    return false;
}

struct pollfd link_pollfd(const struct link *link)
{
    int waits = link->conn.state == CONN_IDLE ? MYSQL_WAIT_READ : link->conn.waits;
    short events = 0;
    if ((waits & MYSQL_WAIT_READ) != 0)
        events |= POLLIN;
    if ((waits & MYSQL_WAIT_WRITE) != 0)
        events |= POLLOUT;
    return (struct pollfd){.fd = link->fd, .events = events};
}

/* If no caller waits for it, the core polls only when it has something to do. And this process may have been stopped:
 * bytes that are there count before a time-out does. Looks less and less often. */
static short glance(struct link *link, short events)
{
    struct pollfd fd = link_pollfd(link);
    int64_t now = now_ns(link);
    bool due = link->look_ns <= now || link->share_ns <= now || link->deadline_ns <= now ||
               flight_due(link) <= now;
    if (link->fd < 0 || events != 0 || !due)
        return events;
    bool goes_on = link->state != LINK_READY || flight_has_own(link);
    if (link->look_step_ns < LOOK_LAST_NS)
        link->look_step_ns *= 2;
    link->look_ns = goes_on ? now + link->look_step_ns : MORTISE_NEVER;
    return poll(&fd, 1, 0) == 1 ? fd.revents : 0;
}

static short events_of(const struct link *link, const struct pollfd *ready, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (link->fd >= 0 && ready[i].fd == link->fd)
            return ready[i].revents;
    return 0;
}

void link_turn(struct link *link, const struct pollfd *ready, size_t n)
{
    short events = glance(link, events_of(link, ready, n));
    if (events != 0) {
        come_in(link, events);
        return;
    }
    int64_t now = now_ns(link);
    if (link->state == LINK_DOWN)
        link_want(link);
    else if (link->state == LINK_READY && flight_due(link) <= now)
        link_lose_why(link, "no answer within command_timeout");
    else if (link->deadline_ns <= now || link->share_ns <= now)
        link_failed_why(link, MORTISE_UNREACHABLE, true, "no connection within connect_timeout");
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
