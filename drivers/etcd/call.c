/* call.c - the calls on a link: how they are sent, what their answers mean, and the token of the user. See link.h. */
#include "call.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

#define TOKEN_TRIES 2
#define SPENT "the connection is used up: it has no number for another call"

/* ---- the end of a call ---------------------------------------------------------------------------------- */

static void call_free(struct call *call)
{
    answer_free(&call->answer);
    writer_free(&call->message);
    grpc_call_free(&call->grpc);
    free(call);
}

static void call_end(struct call *call, enum call_end end)
{
    struct link *link = call->link;
    DL_DELETE(link->calls, call);
    link->open--;
    call->end = end;
    if (call->to.answered != NULL)
        call->to.answered(link->driver, call);
    call_free(call);
}

void calls_lost(struct link *link)
{
    struct call *lost = link->calls; /* handlers make no new calls, because the link is not UP */
    link->calls = NULL;
    link->calls_due_ns = MORTISE_NEVER; /* otherwise the pump would spin until the next attempt */
    link->token_state = TOKEN_NONE;
    while (lost != NULL) {
        struct call *call = lost;
        DL_DELETE(lost, call);
        link->open--;
        /* A call that waited for a token was not executed. */
        bool is_refused = call->parked && link->refused;
        call->end = is_refused ? CALL_REFUSED : CALL_LOST;
        call->code = is_refused ? GRPC_UNAUTHENTICATED : 0;
        snprintf(call->text, sizeof(call->text), "%s",
                 is_refused ? link->refusal : "the connection is lost");
        if (call->to.answered != NULL)
            call->to.answered(link->driver, call);
        call_free(call);
    }
}

void calls_free(struct link *link)
{
    while (link->calls != NULL) {
        struct call *call = link->calls;
        DL_DELETE(link->calls, call);
        call_free(call);
    }
}

bool calls_are_overdue(struct link *link, int64_t now_ns)
{
    const struct call *call;
    if (link->calls_due_ns > now_ns)
        return false;
    link->calls_due_ns = MORTISE_NEVER;
    DL_FOREACH (link->calls, call)
        if (call->due_ns < link->calls_due_ns)
            link->calls_due_ns = call->due_ns;
    return link->calls_due_ns <= now_ns;
}

void link_settle(struct link *link, int64_t timeout_ms)
{
    int64_t end_ns = link->host->now(link->host) + timeout_ms * NS_PER_MS, left_ns;
    while (link_is_up(link) && link->open > 0 &&
           (left_ns = end_ns - link->host->now(link->host)) > 0) {
        int64_t due_ns = MORTISE_NEVER;
        struct pollfd fd;
        link_flush(link);
        if (link_interest(link, &fd, 1, &due_ns) == 0)
            break;
        int count = poll(&fd, 1, (int)(left_ns / NS_PER_MS) + 1);
        link_turn(link, &fd, count > 0 ? 1 : 0);
    }
}

/* ---- sending ------------------------------------------------------------------------------------------------ */

static const struct grpc_events call_events;

struct call *link_begin(struct link *link, enum method method, struct reply_to to)
{
    struct call *call = calloc(1, sizeof(*call));
    if (call == NULL)
        return NULL;
    call->grpc.events = &call_events;
    call->link = link;
    call->method = method;
    call->to = to;
    grpc_begin(&call->grpc, &call->mark);
    return call;
}

static bool start(struct call *call)
{
    struct link *link = call->link;
    bool with_token = link->token_state == TOKEN_THERE && call->method != METHOD_AUTHENTICATE;
    call->token_number = link->token_number;
    call->known_revision = link->revision;
    call->history = link->history;
    call->parked = false;
    if (grpc_start(&link->grpc, &call->grpc, method_path(call->method),
                   with_token ? link->token : NULL, call->timeout_ns / NS_PER_MS))
        return true;
    if (grpc_is_spent(&link->grpc))
        link_break_later(link, SPENT);
    return false;
}

bool link_send_within(struct link *link, struct call *call, int64_t timeout_ns)
{
    bool greets = call->method == METHOD_STATUS || call->method == METHOD_AUTHENTICATE;
    bool may_send = link_is_up(link) || (link->state == LINK_GREETING && greets);
    int64_t longest_ns = link->settings->timeout_ms * NS_PER_MS;
    grpc_end(&call->grpc, call->mark);
    call->timeout_ns = timeout_ns < longest_ns ? timeout_ns : longest_ns;
    call->sent_ns = link->host->now(link->host);
    call->due_ns = call->sent_ns + call->timeout_ns;
    call->parked = link->token_state == TOKEN_ASKED && call->method != METHOD_AUTHENTICATE;
    if (!may_send || call->grpc.out.failed || (!call->parked && !start(call))) {
        call_free(call);
        return false;
    }
    DL_APPEND(link->calls, call);
    link->open++;
    if (call->due_ns < link->calls_due_ns)
        link->calls_due_ns = call->due_ns;
    return true;
}

bool link_send(struct link *link, struct call *call)
{
    return link_send_within(link, call, link->settings->timeout_ms * NS_PER_MS);
}

/* Begins the stream of the watches. If a token is on its way, the stream waits for it, because without a token the servers
 * would refuse every watch. */
static bool begin_watches(struct link *link)
{
    const char *token = link->token_state == TOKEN_THERE ? link->token : NULL;
    if (link->token_state == TOKEN_ASKED)
        return true;
    return grpc_start(&link->grpc, &link->watch, method_path(METHOD_WATCH), token, 0);
}

static const char *why_not_begun(const struct link *link)
{
    return grpc_is_spent(&link->grpc) ? SPENT : "out of memory";
}

/* ---- the token of the user ------------------------------------------------------------------------------------ */

static bool is_text(const struct call *call, const char *text)
{
    return strstr(call->text, text) != NULL;
}

/* The parked calls go on, with a token or without. That of the greeting has its whole time from now on. */
static void unpark(struct link *link)
{
    struct call *call, *next;
    DL_FOREACH_SAFE (link->calls, call, next) {
        if (!call->parked)
            continue;
        if (link->state == LINK_GREETING)
            call->due_ns = link->host->now(link->host) + call->timeout_ns;
        if (!start(call))
            link_break(link, "out of memory");
    }
}

/* Bytes in a message have no NUL behind them. */
static char *copy_text(struct bytes bytes)
{
    char *text = malloc(bytes.size + 1);
    if (text == NULL)
        return NULL;
    if (bytes.size > 0)
        memcpy(text, bytes.data, bytes.size);
    text[bytes.size] = '\0';
    return text;
}

static void authenticated(struct driver *driver, struct call *call)
{
    struct link *link = call->link;
    (void)driver;
    if (call->end == CALL_LOST)
        return;
    if (call->end == CALL_REFUSED && call->code == GRPC_RESOURCE_EXHAUSTED) {
        link_break(link, "%s", call->text); /* "too many requests" says nothing of the user */
        return;
    }
    if (call->end == CALL_REFUSED && !is_text(call, "authentication is not enabled")) {
        link->token_state = TOKEN_NONE;
        memcpy(link->refusal, call->text, sizeof(link->refusal));
        link_refuse(link, "%s", call->text);
        return;
    }
    free(link->token);
    link->token = call->end == CALL_REFUSED ? NULL : copy_text(call->answer.token);
    link->token_state = link->token == NULL ? TOKEN_NONE : TOKEN_THERE;
    link->token_number++;
    unpark(link);
    if (link->watch.out.size > 0 && link->watch.stream == 0 && !begin_watches(link))
        link_break(link, "%s", why_not_begun(link));
}

void calls_authenticate(struct link *link)
{
    struct call *call =
        link_begin(link, METHOD_AUTHENTICATE, (struct reply_to){.answered = authenticated});
    if (call != NULL)
        write_user(&call->grpc.out, link->settings->user,
                   link->settings->password == NULL ? "" : link->settings->password);
    if (call != NULL && link_send(link, call))
        link->token_state = TOKEN_ASKED;
    else
        link_break(link, "out of memory");
}

/* The call was refused because of its token, and not executed. True: it is sent again, with another token. "User name is
 * empty": the call had no token, because authentication was not enabled yet when the driver asked for one. */
static bool is_sent_again(struct call *call)
{
    struct link *link = call->link;
    bool is_for_token = call->code == GRPC_UNAUTHENTICATED || is_text(call, "auth store is old") ||
                        is_text(call, "user name is empty");
    if (!is_for_token || link->settings->user == NULL || call->method == METHOD_AUTHENTICATE ||
        call->token_tries++ >= TOKEN_TRIES)
        return false;
    call->parked = true;
    if (link->token_state != TOKEN_ASKED && call->token_number == link->token_number)
        calls_authenticate(link);
    else if (link->token_state != TOKEN_ASKED && !start(call))
        link_break(link, "out of memory");
    return true;
}

/* ---- answers -------------------------------------------------------------------------------------------------- */

static bool call_message(struct grpc_call *grpc, struct bytes message)
{
    struct call *call = (struct call *)grpc;
    if (call->message.size > 0) /* a second one */
        return false;
    write_raw(&call->message, message.data, message.size);
    return !call->message.failed;
}

/* The statuses which say that the server did not execute the call. */
static bool is_refusal(int status)
{
    switch (status) {
    case GRPC_INVALID_ARGUMENT:
    case GRPC_NOT_FOUND:
    case GRPC_ALREADY_EXISTS:
    case GRPC_PERMISSION_DENIED:
    case GRPC_RESOURCE_EXHAUSTED:
    case GRPC_FAILED_PRECONDITION:
    case GRPC_OUT_OF_RANGE:
    case GRPC_UNIMPLEMENTED:
    case GRPC_UNAUTHENTICATED:
        return true;
    default:
        return false;
    }
}

/* See HISTORIES. */
static bool goes_back(const struct call *call)
{
    bool is_of_majority =
        call->method == METHOD_TXN || call->method == METHOD_DELETE || call->method == METHOD_GRANT;
    return is_of_majority && call->history == call->link->history &&
           call->answer.header.revision < call->known_revision;
}

static void begin_history(struct link *link, int64_t revision, bool is_other_cluster)
{
    link->history++;
    link->revision = revision;
    link->events->history(link->driver, is_other_cluster);
}

/* False: the answer means nothing, and the connection is given up. */
static bool take_header(struct call *call)
{
    struct link *link = call->link;
    const struct header *header = &call->answer.header;
    bool is_other_member = link->member != 0 && header->member != link->member;
    bool is_other_cluster = link->cluster != 0 && header->cluster != link->cluster;
    bool is_first = link->term == 0;    /* on this connection */
    if (call->history != link->history) /* the link is being given up */
        return false;
    if (is_other_member) {
        link_break(link, "answers come from several members: a balancer of calls is in between");
        return false;
    }
    if (header->term == 0 || (is_other_cluster && !is_first)) {
        link_break(link, "an answer makes no sense");
        return false;
    }
    bool is_earlier = goes_back(call);
    bool is_late = is_earlier || (is_other_cluster && link->state == LINK_UP);
    if (is_earlier || is_other_cluster)
        begin_history(link, header->revision, is_other_cluster);
    link->member = header->member;
    link->cluster = header->cluster;
    if (header->revision > link->revision)
        link->revision = header->revision;
    if (is_late) {
        link_break(link, is_other_cluster
                             ? "the servers are another cluster than before"
                             : "the servers have less data than before: were they restored?");
        return false;
    }
    bool is_new = header->term > link->term; /* answers may overtake each other */
    if (is_new)
        link->term = header->term;
    if (is_new && link->state == LINK_UP)
        link->events->term(link->driver, link->term);
    return true;
}

static void call_ended(struct grpc_call *grpc)
{
    struct call *call = (struct call *)grpc;
    struct link *link = call->link;
    call->code = grpc->status;
    memcpy(call->text, grpc->text, sizeof(call->text));
    if (is_refusal(grpc->status)) {
        if (!is_sent_again(call))
            call_end(call, CALL_REFUSED);
        return;
    }
    struct bytes message = {call->message.data, call->message.size};
    if (grpc->status != GRPC_OK)
        link_break(link, "%s (gRPC status %d)", call->text, grpc->status);
    else if (!answer_read(call->method, message, &call->answer))
        link_break(link, "an answer makes no sense");
    else if (call->method == METHOD_AUTHENTICATE || take_header(call))
        call_end(call, CALL_DONE);
    /* otherwise the call ends as LOST with the connection */
}

static const struct grpc_events call_events = {.message = call_message, .ended = call_ended};

/* ---- the watch stream -------------------------------------------------------------------------------------------- */

static struct link *link_of_watch(struct grpc_call *grpc)
{
    return (struct link *)((char *)grpc - offsetof(struct link, watch));
}

static bool watch_message(struct grpc_call *grpc, struct bytes message)
{
    struct link *link = link_of_watch(grpc);
    return link->events->watch(link->driver, message);
}

static void watch_ended(struct grpc_call *grpc)
{
    struct link *link = link_of_watch(grpc);
    link_break(link, "the watch has ended: %s", grpc->text);
}

struct writer *link_watch_begin(struct link *link, size_t *mark)
{
    static const struct grpc_events events = {.message = watch_message, .ended = watch_ended};
    link->watch.events = &events;
    link->watch.is_stream = true;
    grpc_begin(&link->watch, mark);
    return &link->watch.out;
}

void link_watch_end(struct link *link, size_t mark)
{
    grpc_end(&link->watch, mark);
    bool is_sent = !link->watch.out.failed;
    if (is_sent && link->watch.stream != 0)
        grpc_push(&link->grpc, &link->watch);
    else if (is_sent)
        is_sent = begin_watches(link);
    if (!is_sent)
        link_break_later(link, "%s", why_not_begun(link));
}

void link_watch_stop(struct link *link)
{
    grpc_cancel(&link->grpc, &link->watch);
    link->watch.out.size = link->watch.sent =
        0; /* its input may be in use: the next stream drops it */
}
