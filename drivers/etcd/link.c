/* link.c - makes and keeps the connection to a member. link.h has the table of its states; call.c makes the calls. */
#include "call.h"

#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PAUSE_FIRST_NS (50 * NS_PER_MS)
#define PAUSE_MAX_NS (1000 * NS_PER_MS)
#define LASTED_NS (1000 * NS_PER_MS)
#define READ_SIZE 65536
#define LOOK_FIRST_NS NS_PER_MS
#define LOOK_MAX_NS (64 * NS_PER_MS)
#define PING_PAUSE_NS (100 * NS_PER_MS)
#define SHARES_MAX 3 /* of an attempt: each address gets at least a third of the time left */
#define READS_MAX 64 /* in one turn, so that other descriptors are served, too */
#define LATE_NS (30000 * NS_PER_MS) /* for so long a late answer of the resolver counts */

static int64_t now_of(const struct link *link)
{
    return link->host->now(link->host);
}

/* The one place where the state changes. */
static void become(struct link *link, enum link_state state)
{
    link->state = state;
    link->address_due_ns = MORTISE_NEVER;
}

static struct endpoint *endpoint_of(struct link *link)
{
    return &link->endpoints.all[link->endpoints.at];
}

/* ---- looks ------------------------------------------------------------------------------------------------------ */

static bool expects(const struct link *link)
{
    return link->state >= LINK_CONNECTING && (link->state != LINK_UP || link->open > 0);
}

static void plan_look(struct link *link, int64_t step_ns)
{
    link->look_step_ns = step_ns < LOOK_MAX_NS ? step_ns : LOOK_MAX_NS;
    link->look_ns = now_of(link) + link->look_step_ns;
}

/* ---- giving up -------------------------------------------------------------------------------------------- */

static void close_socket(struct link *link)
{
    if (link->socket.fd >= 0)
        link->host->closing(link->host, link->socket.fd);
    socket_close(&link->socket);
    link->unread = false;
    grpc_close(&link->grpc);
    grpc_call_free(&link->watch);
    link->watch = (struct grpc_call){0};
}

/* No pause while there are endpoints that were not tried since the last success. It is random in part, or all clients would come
 * back at once. */
static int64_t pause_ns(const struct link *link)
{
    uint32_t random;
    size_t rounds = link->attempts / link->endpoints.count;
    if (link->attempts % link->endpoints.count != 0 || rounds == 0)
        return 0;
    int64_t pause = rounds > 5 ? PAUSE_MAX_NS : PAUSE_FIRST_NS << (rounds - 1);
    link->host->random(link->host, &random, sizeof(random));
    return pause / 2 + (int64_t)(random % (uint64_t)(pause / 2 + 1));
}

/* False: the connection is given up already. refuses: the servers refuse this client. That stays the reported reason until
 * that endpoint has another trouble, or an endpoint is UP. */
static bool set_trouble(struct link *link, bool refuses, const char *format, va_list arguments)
{
    char text[sizeof(link->trouble)];
    if (link->state == LINK_DOWN || link->breaks)
        return false;
    if (refuses)
        link->refused_at = link->endpoints.at;
    if (refuses || link->endpoints.at == link->refused_at)
        link->refused = refuses;
    if (link->refused && !refuses) /* another endpoint's trouble does not change the refusal */
        return true;
    vsnprintf(text, sizeof(text), format, arguments);
    snprintf(link->trouble, sizeof(link->trouble), "%.90s: %.200s", link_endpoint(link), text);
    return true;
}

static struct look_up *look_up_of(struct link *link)
{
    return &link->look_ups[link->endpoints.at];
}

/* Makes the next attempt at this endpoint begin behind the address that was tried last. */
static void keep_address(struct link *link)
{
    struct look_up *look_up = look_up_of(link);
    size_t count = look_up->count, tried = link->address_at + (link->address_at < count);
    bool is_only = link->endpoints.count == 1 && count > 0;
    link->tries += is_only ? tried : 1;
    link->round = !is_only ? link->endpoints.count : count < SHARES_MAX ? count : SHARES_MAX;
    if (count > 0)
        look_up->last = look_up->addresses[tried - 1];
    look_up->count = 0;
}

/* Goes from any state to DOWN. The next attempt is at the next endpoint. */
static void go_down(struct link *link)
{
    int64_t now_ns = now_of(link);
    bool was_up = link->state == LINK_UP, lasted = was_up && now_ns - link->up_ns >= LASTED_NS;
    close_socket(link);
    link->tls_is_old |= link->state == LINK_SECURING || link->state == LINK_GREETING;
    become(link, LINK_DOWN);
    link->breaks = false;
    link->attempts = lasted ? 0 : link->attempts + 1;
    link->due_ns = now_ns + pause_ns(link);
    link->term = link->member = 0;
    calls_lost(link); /* their errors name this endpoint */
    keep_address(link);
    link->endpoints.at = (link->endpoints.at + 1) % link->endpoints.count;
    if (was_up)
        link->events->down(link->driver);
}

static void end_connection(struct link *link)
{
    if (link->telling)
        link->breaks = true;
    else
        go_down(link);
}

void link_break(struct link *link, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    bool is_new = set_trouble(link, false, format, arguments);
    va_end(arguments);
    if (is_new)
        end_connection(link);
}

void link_refuse(struct link *link, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    bool is_new = set_trouble(link, true, format, arguments);
    va_end(arguments);
    if (is_new)
        end_connection(link);
}

void link_break_later(struct link *link, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    link->breaks |= set_trouble(link, false, format, arguments);
    va_end(arguments);
}

/* ---- an attempt ---------------------------------------------------------------------------------------------- */

static void status_told(struct link *link, struct call *call)
{
    const struct bytes *version = &call->answer.version;
    unsigned major = 0, minor = 0;
    snprintf(link->version, sizeof(link->version), "%.*s",
             (int)(version->size < 31 ? version->size : 31), (const char *)version->data);
    int count = sscanf(link->version, "%u.%u", &major, &minor);
    bool is_too_old = count == 2 && (major < 3 || (major == 3 && minor < 4));
    if (is_too_old)
        link_refuse(link, "etcd %s is too old: 3.4 or later is needed", link->version);
    else if (call->answer.is_learner)
        link_break(link, "the member is a learner, which serves no locks");
    else {
        become(link, LINK_UP);
        link->refused = false;
        link->up_ns = now_of(link);
        link->due_ns = MORTISE_NEVER;
        link->events->up(link->driver);
    }
}

/* A member that does not permit the user to ask for its status may be used. */
static void greeted(struct driver *driver, struct call *call)
{
    struct link *link = call->link;
    (void)driver;
    if (link->state != LINK_GREETING || call->end == CALL_LOST)
        return;
    if (call->end == CALL_DONE || call->code == GRPC_PERMISSION_DENIED) {
        if (call->end == CALL_REFUSED)
            call->answer.version = (struct bytes){(const uint8_t *)"", 0};
        status_told(link, call);
    } else if (call->code == GRPC_UNIMPLEMENTED)
        link_refuse(link, "no etcd of version 3.4 or later answers (%s)", call->text);
    else if (link->settings->user == NULL && strstr(call->text, "user name is empty") != NULL)
        link_refuse(link, "%s", call->text); /* 3.5.28 and later: it would refuse all calls */
    else
        link_break(link, "%s", call->text);
}

static void greet(struct link *link)
{
    become(link, LINK_GREETING);
    if (!grpc_open(&link->grpc, endpoint_of(link)->text, link->settings->tls)) {
        link_break(link, "out of memory");
        return;
    }
    if (link->settings->user != NULL)
        calls_authenticate(link);
    struct call *call = link_begin(link, METHOD_STATUS, (struct reply_to){.answered = greeted});
    if (call == NULL || !link_send(link, call))
        link_break(link, "out of memory");
}

static void secure(struct link *link)
{
    switch (socket_handshake(&link->socket)) {
    case SECURED:
        greet(link);
        return;
    case SECURED_NEVER: /* a server without TLS closes the connection: that is no problem of TLS itself */
        link_break(link, "%s%s", link->socket.problem,
                   strncmp(link->socket.problem, "TLS", 3) == 0 ? "" : "; does it use TLS?");
        return;
    case SECURED_NOT_YET:
        return;
    }
}

static void connected(struct link *link)
{
    if (!link->settings->tls) {
        greet(link);
        return;
    }
    char problem[200] = "";
    become(link, LINK_SECURING);
    if (link->tls_is_old)
        link->tls_is_old = !tls_context_renew(link->tls, &link->settings->tls_settings,
                                              now_of(link), problem, sizeof(problem));
    if (problem[0] != '\0')
        link->host->log(link->host, 4, "the files of TLS stay as they were read before: %s",
                        problem);
    if (!socket_secure(&link->socket, link->tls, endpoint_of(link)->host))
        link_break(link, "%s", link->socket.problem);
    else
        secure(link);
}

/* If the address at address_at is silent for longer than this, and another one is left, that one is tried. */
static int64_t share_end_ns(struct link *link)
{
    int64_t now_ns = now_of(link), left_ns = link->due_ns - now_ns;
    size_t left = look_up_of(link)->count - link->address_at;
    return left <= 1 ? MORTISE_NEVER
                     : now_ns + left_ns / (int64_t)(left < SHARES_MAX ? left : SHARES_MAX);
}

/* Connects to the address at address_at, or to one behind it. */
static void connect_next(struct link *link)
{
    const struct look_up *look_up = look_up_of(link);
    for (; link->address_at < look_up->count; link->address_at++) {
        const struct address *address = &look_up->addresses[link->address_at];
        if (socket_connect(&link->socket, (const struct sockaddr *)&address->address,
                           address->length)) {
            become(link, LINK_CONNECTING);
            link->address_due_ns = share_end_ns(link);
            plan_look(link, LOOK_FIRST_NS);
            return;
        }
    }
    link_break(link, "%s", link->socket.problem);
}

static void next_address(struct link *link)
{
    char problem[sizeof(link->socket.problem)];
    memcpy(problem, link->socket.problem, sizeof(problem));
    link->host->closing(link->host, link->socket.fd);
    socket_close(&link->socket);
    memcpy(link->socket.problem, problem, sizeof(problem));
    link->address_at++;
    connect_next(link);
}

static void try_address(struct link *link)
{
    if (socket_connected(&link->socket))
        connected(link);
    else
        next_address(link);
}

static void resolved(void *ctx, void *argument, const struct addrinfo *addresses,
                     const char *problem)
{
    struct look_up *look_up = argument;
    struct link *link = look_up->link;
    (void)ctx;
    look_up->is_under_way = false;
    look_up->count = addresses_take(addresses, &look_up->last, look_up->addresses);
    look_up->found_ns = now_of(link);
    if (link->state != LINK_RESOLVING || look_up != look_up_of(link))
        return;
    if (look_up->count == 0)
        link_break(link, "%s", problem == NULL ? "no address" : problem);
    else
        connect_next(link);
}

static void attempt(struct link *link)
{
    int64_t patience_ns = link->settings->connect_timeout_ms * NS_PER_MS;
    struct look_up *look_up = look_up_of(link);
    struct endpoint *endpoint = endpoint_of(link);
    become(link, LINK_RESOLVING);
    link->due_ns = now_of(link) + (link->endpoints.count > 1 ? patience_ns / 2 : patience_ns);
    link->address_at = 0;
    if (look_up->count > 0 && now_of(link) - look_up->found_ns <= LATE_NS) {
        connect_next(link); /* they came too late for the attempt that had asked for them */
        return;
    }
    look_up->count = 0;
    if (look_up->is_under_way) /* for an attempt that was given up: its answer serves this one */
        return;
    look_up->link = link;
    look_up->is_under_way =
        link->host->resolve(link->host, endpoint->host, endpoint->port, resolved, look_up);
    if (!look_up->is_under_way)
        link_break(link, "out of memory or threads");
}

/* ---- the pump -------------------------------------------------------------------------------------------------- */

void link_open(struct link *link)
{
    link->socket = (struct socket){.fd = -1};
    become(link, LINK_DOWN);
    link->due_ns = 0;
    link->round = 1;
    link->calls_due_ns = MORTISE_NEVER;
}

void link_close(struct link *link)
{
    close_socket(link);
    become(link, LINK_DOWN);
    calls_free(link);
    free(link->token);
    tls_context_free(link->tls);
}

static void receive(struct link *link)
{
    uint8_t buffer[READ_SIZE];
    ssize_t size = 0;
    bool is_good = true;
    int i = 0;
    for (; i < READS_MAX && is_good && !link->breaks; i++) {
        size = socket_read(&link->socket, buffer, sizeof(buffer));
        if (size <= 0)
            break;
        if (link->state == LINK_GREETING) /* from now on the calls' own time is the limit */
            link->due_ns = MORTISE_NEVER;
        link->telling = true;
        is_good = grpc_receive(&link->grpc, buffer, (size_t)size);
        link->telling = false;
        if ((size_t)size < sizeof(buffer) && link->socket.tls == NULL)
            break;
    }
    link->unread =
        i == READS_MAX; /* TLS has taken its bytes from the kernel: poll() would not report them */
    if (link->breaks)
        go_down(link);
    else if (!is_good)
        link_break(link, "%s", link->grpc.text);
    else if (size < 0)
        link_break(link, "%s", link->socket.problem);
}

/* See PINGS. */
static void answer_ping(struct link *link)
{
    int64_t now_ns = link->grpc.has_ping ? now_of(link) : 0;
    if (!link->grpc.has_ping || now_ns < link->ping_ns)
        return;
    grpc_ping_answer(&link->grpc);
    link->ping_ns = now_ns + PING_PAUSE_NS;
}

void link_flush(struct link *link)
{
    const uint8_t *data;
    ssize_t size = 0;
    if (link->state != LINK_GREETING && link->state != LINK_UP)
        return;
    if (link->breaks) {
        go_down(link);
        return;
    }
    answer_ping(link);
    if (grpc_wants_to_send(&link->grpc))
        plan_look(link, LOOK_FIRST_NS);
    bool written = true;
    link->telling = true; /* a request that cannot be sent ends here */
    while (written && !link->socket.blocked && (size = grpc_send(&link->grpc, &data)) > 0)
        written = socket_write(&link->socket, data, (size_t)size);
    link->telling = false;
    if (link->breaks)
        go_down(link);
    else if (size < 0)
        link_break(link, "%s", link->grpc.text);
    else if (!written || !socket_flush(&link->socket))
        link_break(link, "%s", link->socket.problem);
}

/* Whether the kernel has bytes for this connection. */
static bool is_there(const struct link *link)
{
    struct pollfd fd;
    int64_t ignored = MORTISE_NEVER;
    return link_interest(link, &fd, 1, &ignored) == 1 && poll(&fd, 1, 0) == 1;
}

void link_look(struct link *link)
{
    if (link->state == LINK_UP && (link->unread || is_there(link)))
        receive(link);
}

size_t link_interest(const struct link *link, struct pollfd *fds, size_t capacity, int64_t *due_ns)
{
    int64_t due = link->state == LINK_DOWN && !link->wanted ? MORTISE_NEVER : link->due_ns;
    if (link->calls_due_ns < due)
        due = link->calls_due_ns;
    if (link->address_due_ns < due)
        due = link->address_due_ns;
    if (expects(link) && link->look_ns < due)
        due = link->look_ns;
    if (link->grpc.has_ping && link->ping_ns < due)
        due = link->ping_ns;
    if (link->unread)
        due = 0;
    if (due < *due_ns)
        *due_ns = due;
    if (link->socket.fd < 0 || capacity == 0)
        return 0;
    bool writes = link->state == LINK_CONNECTING || link->socket.blocked;
    fds[0] =
        (struct pollfd){.fd = link->socket.fd, .events = (short)(POLLIN | (writes ? POLLOUT : 0))};
    return 1;
}

/* Handles ready descriptors and times that have come. */
void link_turn(struct link *link, const struct pollfd *ready, size_t n)
{
    bool is_ready =
        n > 0 && link->socket.fd >= 0 && ready[0].fd == link->socket.fd && ready[0].revents != 0;
    int64_t now_ns = now_of(link);
    is_ready = is_ready || link->unread;
    if (is_ready)
        plan_look(link, LOOK_FIRST_NS);
    else if (expects(link) && link->look_ns <= now_ns) {
        is_ready = is_there(link);
        plan_look(link, is_ready ? LOOK_FIRST_NS : 2 * link->look_step_ns);
    }
    if (is_ready && link->state == LINK_CONNECTING)
        try_address(link);
    else if (is_ready && link->state == LINK_SECURING)
        secure(link);
    else if (is_ready && (link->state == LINK_GREETING || link->state == LINK_UP)) {
        link->socket.blocked = false;
        receive(link);
    }
    if (link->state == LINK_DOWN) {
        if (link->wanted && link->due_ns <= now_ns)
            attempt(link);
    } else if (link->state != LINK_UP && link->due_ns <= now_ns)
        link_break(link, link->state == LINK_RESOLVING
                             ? "the name was not looked up in time"
                             : "no connection within the time; is it etcd?");
    else if (link->address_due_ns <= now_ns)
        next_address(link);
    else if (calls_are_overdue(link, now_ns))
        link_break(link, "no answer within the time");
    else if (link->state == LINK_UP && link->open == 0 && grpc_is_old(&link->grpc))
        link_break(link, "half of the connection's stream ids are used; reconnecting");
}
