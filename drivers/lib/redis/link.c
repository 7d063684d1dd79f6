/* link.c - the states of a connection, its timers, its reading and writing; see link.h. */
#include "link.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define BACKOFF_MIN_MS 10
#define BACKOFF_MAX_MS 1000
#define LASTED_MS 1000 /* a useless connection that breaks earlier counts as a failed attempt */
#define IDLE_MS 1000   /* after so long without input, check whether it is open */
#define TLS_LOOK_MS 5  /* TLS may want to read before it can write: hiredis does not say which */

static void begin_attempt(struct link *link);
static void connect_next(struct link *link);
static void attempt_failed(struct link *link);
static void greeted(struct link *link, const struct link_fault *fault);

static int64_t now_of(const struct link *link)
{
    return link->host->now(link->host);
}

void link_init(struct link *link, mortise_host *host, const struct link_settings *settings,
               const struct link_callbacks *callbacks, void *owner)
{
    static const struct link_ends ends = {
        .addressed = connect_next, .failed = attempt_failed, .greeted = greeted};
    memset(link, 0, sizeof(*link));
    link->ends = &ends;
    link->host = host;
    link->settings = settings;
    link->callbacks = callbacks;
    link->owner = owner;
    link->fd = -1;
    link->due_ns = MORTISE_NEVER;
    link->last_call = &link->first;
    link->settled = true;
    link->endpoint = settings->endpoint;
}

bool link_is_connecting(const struct link *link)
{
    return link->state != LINK_DOWN && link->state != LINK_UP;
}

bool link_settled(const struct link *link)
{
    return link->settled;
}

/* ---- ending a connection ------------------------------------------------------------------------- */

static void lose_calls(struct link *link, const struct link_fault *fault)
{
    struct link_call *call = link->first;
    uint64_t written = link->written;
    link->first = NULL;
    link->last_call = &link->first;
    link->outstanding = 0;
    while (call != NULL) {
        struct link_call *next = call->next;
        call->lost(call, call->begins_at < written ? LINK_LOST : LINK_NOT_SENT, fault);
        call = next;
    }
}

static void close_connection(struct link *link)
{
    link_unwrap(link);
    link->out.length = link->out.done = 0;
    link->out.failed = false;
    link->breaks = link->demoted = link->rejected = false;
    link->awaited_ns = 0;
}

static int64_t backoff_ns(struct link *link)
{
    uint32_t random;
    unsigned step = link->failures < 8 ? link->failures - 1 : 7;
    int64_t ns = (int64_t)(BACKOFF_MIN_MS << step) * LINK_NS_PER_MS;
    if (ns > BACKOFF_MAX_MS * LINK_NS_PER_MS)
        ns = BACKOFF_MAX_MS * LINK_NS_PER_MS;
    link->host->random(link->host, &random, sizeof(random));
    return ns / 2 + (int64_t)(random % (uint64_t)(ns / 2 + 1));
}

/* From any state. Tells the outstanding calls first, then the owner. */
static void go_down(struct link *link, const struct link_fault *why)
{
    struct link_fault fault = *why;
    bool was_up = link->state == LINK_UP;
    if (was_up)
        link_remember(link);
    link->state = LINK_DOWN;
    link->last = fault;
    bool lasted = was_up && !link->demoted && !link->rejected &&
                  (link->useful || now_of(link) - link->up_ns >= LASTED_MS * LINK_NS_PER_MS);
    link->broke = was_up;
    link->failures = lasted ? 0 : link->failures + 1;
    link->due_ns = lasted ? now_of(link) : now_of(link) + backoff_ns(link);
    if (link->first != NULL)
        link_discard(link);
    close_connection(link);
    if (!was_up)
        link_free_tls(link); /* the certificate files may be new: read them again */
    lose_calls(link, &fault);
    if (link->callbacks->down != NULL)
        link->callbacks->down(link, link->owner, &fault);
}

static void attempt_failed(struct link *link)
{
    go_down(link, &link->last);
}

void link_break(struct link *link, const struct link_fault *fault)
{
    if (link->state == LINK_DOWN || link->breaks)
        return;
    if (!link->reading) {
        go_down(link, fault);
        return;
    }
    link->breaks = true; /* the reader is in use: break it afterwards */
    link->why = *fault;
}

void link_reject(struct link *link, const struct link_fault *fault)
{
    if (link->state == LINK_DOWN)
        return;
    link->rejected = true;
    link_break(link, fault);
}

static void break_by_errno(struct link *link, const char *what, int problem)
{
    struct link_fault fault;
    link_fault_set(&fault, MORTISE_UNREACHABLE, true, problem, "%s: %s: %s", link->endpoint.text,
                   what, strerror(problem));
    link_break(link, &fault);
}

static void break_text(struct link *link, const char *text)
{
    struct link_fault fault;
    link_fault_set(&fault, MORTISE_UNREACHABLE, true, 0, "%s: %s", link->endpoint.text, text);
    link_break(link, &fault);
}

/* Use it only if nothing is outstanding but the greeting, or calls that nobody misses. */
static void close_quietly(struct link *link)
{
    close_connection(link);
    link->first = NULL;
    link->last_call = &link->first;
    link->outstanding = 0;
    link->state = LINK_DOWN;
}

void link_leave(struct link *link, const char *why)
{
    if (link->state == LINK_UP || link->reading)
        break_text(link, why);
    else if (link->state != LINK_SEEKING)
        close_quietly(link);
    if (link->state != LINK_DOWN) /* it seeks anyway, or breaks after handing over its replies */
        return;
    link->failures = 0;
    link->due_ns = now_of(link);
    if (link->wanted)
        begin_attempt(link);
}

void link_rest(struct link *link)
{
    close_quietly(link);
    link->wanted = false;
    link->due_ns = MORTISE_NEVER;
    link->failures = link->past_count = 0;
    link->blind = false;
    link->settled = true;
}

void link_close(struct link *link)
{
    struct link_fault fault;
    link_fault_set(&fault, MORTISE_CLOSED, false, 0, "closed");
    close_connection(link);
    lose_calls(link, &fault);
    link->state = LINK_DOWN;
    link->wanted = false;
    link->closed = true;
    link->due_ns = MORTISE_NEVER;
    link_bytes_free(&link->out);
    link_free_tls(link);
}

/* ---- connecting ---------------------------------------------------------------------------------- */

void link_want(struct link *link)
{
    link->wanted = true;
    if (link->state == LINK_DOWN && (link->due_ns == MORTISE_NEVER || link->due_ns <= now_of(link)))
        begin_attempt(link);
}

void link_unwant(struct link *link)
{
    link->wanted = false;
}

static void begin_connecting(struct link *link)
{
    link->endpoint = link->settings->endpoint;
    link->state = LINK_RESOLVING;
    link->address_count = link->address_at = 0;
    link->attempt_end_ns = now_of(link) + link->settings->connect_timeout_ms * LINK_NS_PER_MS;
    link->due_ns = link->attempt_end_ns;
    link_fault_set(&link->last, MORTISE_UNREACHABLE, true, 0,
                   "%s: the name was not looked up in time", link->endpoint.text);
    link_look_up(link);
}

static void begin_attempt(struct link *link)
{
    if (link->closed)
        return;
    if (link->callbacks->seek == NULL) {
        begin_connecting(link);
        return;
    }
    link->state = LINK_SEEKING;
    link->due_ns = MORTISE_NEVER; /* the callback answers */
    link->callbacks->seek(link, link->owner);
}

void link_found(struct link *link)
{
    if (link->state == LINK_SEEKING)
        begin_connecting(link);
}

void link_not_found(struct link *link, const struct link_fault *fault)
{
    if (link->state == LINK_SEEKING)
        go_down(link, fault);
}

/* Each address gets its share of the time that is left. */
static void connect_next(struct link *link)
{
    link->state = LINK_CONNECTING;
    for (; link->address_at < link->address_count; link->address_at++) {
        int64_t now = now_of(link), left = link->attempt_end_ns - now;
        link->due_ns = now + left / (int64_t)(link->address_count - link->address_at);
        link->fd = link_socket(link);
        if (link->fd >= 0) {
            link_fault_set(&link->last, MORTISE_UNREACHABLE, true, 0, "%s: no connection yet",
                           link->endpoint.text);
            return;
        }
        link_fault_set(&link->last, MORTISE_UNREACHABLE, true, errno, "%s: %s", link->endpoint.text,
                       strerror(errno));
    }
    go_down(link, &link->last);
}

static void connect_failed(struct link *link, int problem)
{
    link_fault_set(&link->last, MORTISE_UNREACHABLE, true, problem, "%s: %s%s", link->endpoint.text,
                   strerror(problem), problem == ECONNREFUSED ? "; does a server run there?" : "");
    link_unwrap(link);
    link->address_at++;
    connect_next(link);
}

static void connected(struct link *link)
{
    int problem = 0;
    socklen_t size = sizeof(problem);
    struct link_fault fault;
    if (getsockopt(link->fd, SOL_SOCKET, SO_ERROR, &problem, &size) < 0)
        problem = errno;
    if (problem != 0) {
        connect_failed(link, problem);
        return;
    }
    if (!link_wrap(link, &fault)) {
        go_down(link, &fault);
        return;
    }
    link_fault_set(&link->last, MORTISE_UNREACHABLE, true, 0, "%s: no answer to the greeting yet",
                   link->endpoint.text);
    link->state = LINK_GREETING;
    link->written = 0;
    link->due_ns = now_of(link) + link->settings->connect_timeout_ms * LINK_NS_PER_MS;
    link_greet(link);
}

static void greeted(struct link *link, const struct link_fault *fault)
{
    if (fault != NULL) {
        link_break(link, fault);
        return;
    }
    link->state = LINK_UP;
    link->up_ns = now_of(link);
    link->useful = false;
    link->due_ns = MORTISE_NEVER;
    link->callbacks->up(link, link->owner);
    link_flush(link);
}

/* ---- reading and writing --------------------------------------------------------------------------- */

static void read_replies(struct link *link);

void link_flush(struct link *link)
{
    struct link_bytes *out = &link->out;
    if (link->fd < 0 || link->breaks || link->context == NULL)
        return;
    if (out->failed) {
        break_text(link, "out of memory for a request");
        return;
    }
    if (out->done == out->length && !link->tls_pending)
        return;
    ssize_t n = link_write(link);
    if (n < 0) {
        int problem = errno;
        if (!link->reading)
            read_replies(link); /* replies from before the break, and its reason */
        if (link->fd < 0)
            return;
        break_by_errno(link, "writing", problem != 0 ? problem : EPIPE);
        return;
    }
    out->done += (size_t)n;
    link->written += (uint64_t)n;
    link->blocked = out->done < out->length || link->tls_pending;
    if (out->done == out->length)
        out->done = out->length = 0;
}

/* Whole replies that came before the end of the stream count, because a server that shuts down in order answers first. */
static void read_replies(struct link *link)
{
    struct link_fault fault = {.native = 0};
    errno = 0;
    if (link_read(link) != REDIS_OK) {
        int problem = errno;
        bool ended = link->context->err == REDIS_ERR_EOF;
        const char *reason = link_tls_reason(link);
        if (reason == NULL)
            reason = ended ? "the server closed the connection" : link->context->errstr;
        link_fault_set(&fault, MORTISE_UNREACHABLE, true, ended ? 0 : problem, "%s: %s",
                       link->endpoint.text, reason);
        link->breaks = true;
        link->why = link->state == LINK_GREETING && link->greeting_failed
                        ? link->greeting_fault /* the server said why, and hung up */
                        : fault;
    }
    if (!link->breaks)
        link_tell_replies(link);
    if (link->breaks) {
        fault = link->why;
        go_down(link, &fault);
    }
}

void link_look(struct link *link)
{
    char byte;
    if (!link_is_up(link) || link->first != NULL || link->reading ||
        now_of(link) - link->progress_ns < IDLE_MS * LINK_NS_PER_MS)
        return;
    ssize_t n = recv(link->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    if (n == 0)
        break_text(link, "the server closed the connection");
    else if (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)
        break_by_errno(link, "the connection broke", errno);
}

/* ---- the pump ---------------------------------------------------------------------------------------- */

void link_awaits(struct link *link, bool answers)
{
    if (!answers)
        link->awaited_ns = 0;
    else if (link->awaited_ns == 0)
        link->awaited_ns = now_of(link);
}

/* If there is no answer by then, the connection is broken. */
static int64_t call_due_ns(const struct link *link)
{
    int64_t sent_ns = link->first != NULL ? link->first->sent_ns : link->awaited_ns;
    if (sent_ns == 0)
        return MORTISE_NEVER;
    int64_t since = sent_ns > link->progress_ns ? sent_ns : link->progress_ns;
    return since + link->settings->command_timeout_ms * LINK_NS_PER_MS;
}

static int64_t due_of(const struct link *link)
{
    if (link->state == LINK_UP)
        return call_due_ns(link);
    if (link->state == LINK_DOWN && !link->wanted)
        return MORTISE_NEVER;
    return link->due_ns;
}

size_t link_interest(const struct link *link, struct pollfd *fds, size_t capacity, int64_t *due_ns)
{
    int64_t due = due_of(link);
    if (link->tls_pending && now_of(link) + TLS_LOOK_MS * LINK_NS_PER_MS < due)
        due = now_of(link) + TLS_LOOK_MS * LINK_NS_PER_MS;
    if (due < *due_ns)
        *due_ns = due;
    if (link->fd < 0 || capacity == 0)
        return 0;
    short events = POLLIN;
    if (link->state == LINK_CONNECTING)
        events = POLLOUT;
    else if (link->blocked && !link->tls_pending)
        events |= POLLOUT;
    fds[0] = (struct pollfd){.fd = link->fd, .events = events};
    return 1;
}

static void time_out(struct link *link)
{
    switch (link->state) {
    case LINK_DOWN:
        if (link->wanted)
            begin_attempt(link);
        else
            link->due_ns = MORTISE_NEVER; /* the backoff has passed */
        break;
    case LINK_SEEKING:
        break;
    case LINK_RESOLVING:
        go_down(link, &link->last);
        break;
    case LINK_CONNECTING:
        connect_failed(link, ETIMEDOUT);
        break;
    case LINK_GREETING:
    case LINK_UP:
        link->rejected |= link->first == NULL; /* it awaits answers to subscriptions */
        break_text(link, link->state == LINK_UP ? "no answer in time (command_timeout)"
                                                : "no answer in time (connect_timeout)");
        break;
    }
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
    short events = events_of(link, ready, n);
    if (events != 0 && link->state == LINK_CONNECTING)
        connected(link);
    else if ((events & ~POLLOUT) != 0)
        read_replies(link);
    if (link->blocked && ((events & POLLOUT) != 0 || link->tls_pending))
        link_flush(link);
    if (due_of(link) == MORTISE_NEVER || due_of(link) > now_of(link))
        return;
    if (link->state >= LINK_GREETING && events == 0)
        read_replies(link); /* this process may have been stopped: the answer may be there */
    if (due_of(link) <= now_of(link))
        time_out(link);
}
