/* link.c - a connection to the server: how it is made, lost, and made again, and what comes in on it. link.h has the states.
 * Knows no op.
 *
 * Client libraries close their sockets by themselves: when they try the next address, and when they read an end of file.
 * But a descriptor that the core polls may be closed only after host->closing(). So the core polls a copy, which belongs to
 * this file. */
#include "remote.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utlist.h>

#define BACKOFF_MIN_NS (20 * NS_PER_MS)
#define BACKOFF_STEPS 6 /* doublings, to 1.3 s */
#define LOOK_FIRST_NS (NS_PER_MS / 2)
#define LOOK_LAST_NS (64 * NS_PER_MS)
#define SHORT_NS (2 * NS_PER_MS)     /* before checking for fewer bytes than expected */
#define SHARES_MAX 3                 /* connect_timeout is divided into at most so many */
#define STOOD_NS (10000 * NS_PER_MS) /* a connection that lasted so long was no failure */

static int64_t now_ns(const struct link *link)
{
    return remote_now(link->remote);
}

void link_init(struct remote *remote, struct link *link, bool live)
{
    link->remote = remote;
    link->live = live;
    link->fd = -1;
    link->deadline_ns = link->share_ns = link->look_ns = MORTISE_NEVER;
}

bool link_poll(struct link *link, int fd)
{
    link->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (link->fd < 0)
        link_failed_why(link, MORTISE_UNREACHABLE, true, "no descriptor is left");
    return link->fd >= 0;
}

void link_poll_no_more(struct link *link)
{
    if (link->fd >= 0) {
        link->remote->locks.host->closing(link->remote->locks.host, link->fd);
        close(link->fd);
    }
    link->fd = -1;
}

static void finish(struct link *link)
{
    link_poll_no_more(link);
    link->remote->dialect->close(link);
    link->share_ns = link->look_ns = MORTISE_NEVER;
    link->expected = 0;
    memset(&link->session, 0, sizeof(link->session));
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
        link->retry_ns += locks_jitter(&link->remote->locks, BACKOFF_MIN_NS << steps);
    link->failures++;
}

static void note_trouble(struct link *link, mortise_status status, const struct sql_fault *fault)
{
    const struct remote_dialect *dialect = link->remote->dialect;
    char line[320], where[200];
    fault_line(fault->text, line, sizeof(line));
    fault_error(&link->remote->trouble, dialect->name, status, fault->native, fault->retryable,
                "%s: %s", dialect->where(link, where, sizeof(where)), line);
}

void link_lose(struct link *link, const struct sql_fault *fault)
{
    struct request *request, *next, *lost;
    note_trouble(link, MORTISE_UNREACHABLE, fault);
    link->remote->trouble.retryable = true;
    if (now_ns(link) - link->ready_ns >= STOOD_NS)
        link->failures = 0;
    if (!link->live)
        ghost_unsent(link->remote);
    lost = flight_take(link);
    ghost_make(link, lost);
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

/* If the second connection cannot take a renewal, the renewal goes to the first. */
static bool takes_over(struct link *link, struct request *request)
{
    struct link *main = link->remote->main;
    if (!link->live || request->base.kind != MORTISE_OP_RENEW || main->state != LINK_READY)
        return false;
    queue_append(main, request);
    return true;
}

static void drop_queue(struct link *link, enum lane lane)
{
    struct request *queue = link->queue[lane], *request, *next;
    link->queue[lane] = NULL;
    DL_FOREACH_SAFE (queue, request, next) {
        request->next = request->previous = NULL;
        request->link = NULL;
        if (!takes_over(link, request))
            request->handler->lost(request, false);
    }
}

/* No address is left to try. */
static void give_up(struct link *link)
{
    go_down(link);
    if (link->failures == 0)
        link->failures = 1;
    if (link->live)
        link->remote->live_wanted = false; /* until a lease is to be renewed again */
    back_off(link);
    for (int lane = 0; lane < LANE_COUNT; lane++)
        drop_queue(link, (enum lane)lane);
}

static void connect_to(struct link *link, size_t address);

void link_failed(struct link *link, const struct sql_fault *fault)
{
    const struct remote *remote = link->remote;
    bool one_by_one = remote->dialect->pass_by == NULL;
    /* an error that a person can fix is reported in preference to a further host that does not answer */
    if (link->address == 0 || remote->trouble.status == MORTISE_UNREACHABLE)
        note_trouble(link, fault->status, fault);
    finish(link);
    if (one_by_one && link->address + 1 < link->addresses.count && link->deadline_ns > now_ns(link))
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
}

/* ---- coming up --------------------------------------------------------------------------------- */

static bool has_work(const struct link *link)
{
    const struct remote *remote = link->remote;
    if (link->live && remote->live_wanted)
        return true;
    if (!link->live && remote->settled_ns != 0 && now_ns(link) < remote->settled_ns)
        return true; /* sessions of lost connections must be ended: they may keep rows locked */
    if (remote->dialect->is_wanted != NULL && remote->dialect->is_wanted(link))
        return true;
    return !queue_is_empty(link);
}

static void connect_to(struct link *link, size_t address)
{
    const struct remote *remote = link->remote;
    size_t count = link->addresses.count, shares = count < SHARES_MAX ? count : SHARES_MAX;
    bool others = remote->dialect->pass_by == NULL ? address + 1 < count : count > 1;
    link->address = address;
    link->state = LINK_CONNECTING;
    if (others)
        link->share_ns = now_ns(link) + remote->connect_ms * NS_PER_MS / (int64_t)shares;
    link_look_soon(link);
    remote->dialect->connect(link);
}

static void connect_first(struct link *link)
{
    link->share_ns = MORTISE_NEVER;
    hosts_take(&link->remote->hosts, &link->addresses);
    if (link->addresses.count > 0) {
        connect_to(link, 0);
        return;
    }
    link->address = 0;
    link_failed_why(link, MORTISE_UNREACHABLE, true, link->remote->hosts.trouble);
}

/* If all names are looked up; or if some are, and the others have had their share of the time. */
static void connect_if_found(struct link *link)
{
    const struct hosts *hosts = &link->remote->hosts;
    bool some = link->share_ns == MORTISE_NEVER && hosts->found.count > 0;
    if (link->state == LINK_RESOLVING && (some || hosts->asked_count == 0))
        connect_first(link);
}

static void resolved(void *ctx, void *argument, const struct addrinfo *found, const char *problem)
{
    struct remote *remote = ctx;
    hosts_found(remote, argument, found, problem);
    connect_if_found(remote->main);
    connect_if_found(remote->live);
}

void link_want(struct link *link)
{
    struct remote *remote = link->remote;
    if (link->state != LINK_DOWN || remote->locks.closing || !has_work(link) ||
        now_ns(link) < link->retry_ns)
        return;
    link->state = LINK_RESOLVING;
    link->address = 0;
    link->deadline_ns = now_ns(link) + remote->connect_ms * NS_PER_MS;
    link->share_ns = now_ns(link) + remote->connect_ms * NS_PER_MS / SHARES_MAX;
    hosts_resolve(remote, resolved);
    connect_if_found(link);
}

void link_set_up(struct link *link, bool once_more)
{
    link->state = LINK_SETTING_UP;
    if (!once_more)
        return;
    link->deadline_ns = now_ns(link) + link->remote->connect_ms * NS_PER_MS;
    link_look_soon(link);
}

void link_ready(struct link *link)
{
    struct remote *remote = link->remote;
    link->state = LINK_READY;
    link->deadline_ns = link->share_ns = link->look_ns = MORTISE_NEVER;
    link->ready_ns = now_ns(link);
    remote->live_wanted = remote->live_wanted && !link->live;
    remote->ghost_ns = now_ns(link);
    if (remote->dialect->ready != NULL)
        remote->dialect->ready(link);
}

/* ---- what comes in ----------------------------------------------------------------------------- */

void link_look_soon(struct link *link)
{
    link->look_step_ns = LOOK_FIRST_NS;
    link->look_ns = now_ns(link) + link->look_step_ns;
}

/* At the end of the stream poll() returns, however few bytes are left. */
void link_expect(struct link *link, size_t bytes)
{
    int least = bytes > 0 ? (int)bytes : 1;
    if (bytes > 0) {
        link->look_step_ns = SHORT_NS;
        link->look_ns = now_ns(link) + link->look_step_ns;
    }
    if (link->expected == bytes || link->fd < 0)
        return;
    setsockopt(link->fd, SOL_SOCKET, SO_RCVLOWAT, &least, sizeof(least));
    link->expected = bytes;
}

enum link_peek link_peek(const struct link *link)
{
    char byte;
    ssize_t n = recv(link->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
        return PEEK_NOTHING;
    return n > 0 ? PEEK_BYTES : PEEK_END;
}

struct pollfd link_pollfd(const struct link *link)
{
    return (struct pollfd){.fd = link->fd, .events = link->remote->dialect->events(link)};
}

/* Polls the connection itself. If no caller waits for it, the core polls only when it has something to do. And if
 * this process was stopped, bytes that have arrived must count before a time-out does. Polls less and less often. */
static short glance(struct link *link, short events)
{
    int64_t now = now_ns(link);
    bool due = link->look_ns <= now || link->share_ns <= now || link->deadline_ns <= now ||
               flight_due(link) <= now;
    if (link->fd < 0)
        link->look_ns = MORTISE_NEVER;
    if (link->fd < 0 || events != 0 || !due)
        return events;
    struct pollfd fd = link_pollfd(link);
    bool goes_on = link->state != LINK_READY || flight_has_own(link) || link->expected > 0;
    if (link->look_step_ns < LOOK_LAST_NS)
        link->look_step_ns *= 2;
    link->look_ns = goes_on ? now + link->look_step_ns : MORTISE_NEVER;
    if (poll(&fd, 1, 0) == 1)
        return fd.revents;
    return link->expected > 0 && link_peek(link) == PEEK_BYTES ? POLLIN : 0;
}

static short events_of(const struct link *link, const struct pollfd *ready, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (link->fd >= 0 && ready[i].fd == link->fd)
            return ready[i].revents;
    return 0;
}

/* The time for the connection, or the look-ups' share of it, is over. */
static void time_out_names(struct link *link)
{
    if (link->deadline_ns <= now_ns(link)) {
        link_failed_why(link, MORTISE_UNREACHABLE, true, "the name was not looked up in time");
        return;
    }
    link->share_ns = MORTISE_NEVER;
    connect_if_found(link);
}

/* The time for the connection, or for its present address, is over. A client library that tries all addresses waits
 * without end for a silent one. If an address falls silent while the connection is set up, the library would begin
 * with that address again. */
static void time_out(struct link *link)
{
    bool (*pass_by)(struct link *) = link->remote->dialect->pass_by;
    bool passed = pass_by != NULL && pass_by(link);
    if (pass_by == NULL || link->deadline_ns <= now_ns(link)) {
        link_failed_why(link, MORTISE_UNREACHABLE, true,
                        "no connection within connect_timeout; are host and port right?");
        return;
    }
    link->share_ns = MORTISE_NEVER;
    if (!passed)
        return;
    finish(link);
    connect_to(link, 0);
}

void link_turn(struct link *link, const struct pollfd *ready, size_t n)
{
    short events = glance(link, events_of(link, ready, n));
    if (events != 0)
        link->remote->dialect->come_in(link, events);
    int64_t now = now_ns(link);
    if (link->state == LINK_READY && flight_due(link) <= now)
        link_lose_why(link, "no answer within command_timeout");
    else if (link->state == LINK_DOWN)
        link_want(link);
    else if (events == 0 && (link->deadline_ns <= now || link->share_ns <= now)) {
        if (link->state == LINK_RESOLVING)
            time_out_names(link);
        else
            time_out(link);
    }
}

static int64_t earlier(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

int64_t link_due(const struct link *link)
{
    if (link->state == LINK_DOWN)
        return has_work(link) ? link->retry_ns : MORTISE_NEVER;
    if (link->state == LINK_READY)
        return earlier(earlier(flight_due(link), link->look_ns), flight_paused(link));
    return earlier(link->deadline_ns, earlier(link->share_ns, link->look_ns));
}
