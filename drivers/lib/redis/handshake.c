/* handshake.c - the first requests on a new connection. They say who we are (AUTH, SELECT, CLIENT SETNAME), and ask who the
 * server is (CLIENT ID, INFO: the id of the process). If an older connection to the same process broke, CLIENT KILL ID ends it
 * there, so that the server executes nothing in its buffers later; see link.h. If only a primary will do, the requests ask for
 * the server's role and time (ROLE, TIME). A Sentinel refuses some of these requests with errors; its answer to ROLE identifies
 * it.
 *
 * If a server refuses to say who it is, or to kill the old connection, the greeting goes on, but the past stays unsettled. */
#include "link.h"
#include "text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum step {
    STEP_AUTH = 1,
    STEP_SELECT,
    STEP_NAME,
    STEP_ID,
    STEP_INFO,
    STEP_ROLE,
    STEP_TIME,
    STEP_KILL
};

static void greeted(struct link_call *call, unsigned index, redisReply *reply);
static void lost(struct link_call *call, enum link_loss loss, const struct link_fault *fault);

static struct link *link_of(struct link_call *call)
{
    return (struct link *)(void *)((char *)call - offsetof(struct link, greeting));
}

/* ---- the past --------------------------------------------------------------------------------------- */

static struct link_past *past_here(struct link *link)
{
    for (unsigned i = 0; i < link->past_count; i++)
        if (strcmp(link->pasts[i].run_id, link->run_id) == 0)
            return &link->pasts[i];
    return NULL;
}

static void drop_past(struct link *link, unsigned which)
{
    link->past_count--;
    memmove(&link->pasts[which], &link->pasts[which + 1],
            (link->past_count - which) * sizeof(link->pasts[0]));
}

/* If this process has a past already, that one could not be ended. Then the new one cannot be ended either. */
void link_remember(struct link *link)
{
    link->settled = false;
    if (link->run_id[0] == '\0')
        link->blind = true;
    if (link->run_id[0] == '\0' || past_here(link) != NULL)
        return;
    if (link->past_count == LINK_PASTS)
        drop_past(link, 0);
    struct link_past *past = &link->pasts[link->past_count++];
    memcpy(past->run_id, link->run_id, sizeof(past->run_id));
    past->id = link->id;
}

/* If the link leads to one server only, the processes that it was connected to before are gone. */
static void forget_others(struct link *link)
{
    for (unsigned i = link->past_count; i-- > 0;)
        if (strcmp(link->pasts[i].run_id, link->run_id) != 0)
            drop_past(link, i);
}

/* The old connection that must be ended here, if it can be; or NULL. */
static const struct link_past *look_back(struct link *link)
{
    if (link->run_id[0] == '\0') {
        link->settled = link->past_count == 0 && !link->blind;
        return NULL;
    }
    if (!link->settings->primary)
        forget_others(link);
    const struct link_past *past = past_here(link);
    link->settled = past == NULL && !link->blind;
    return past != NULL && past->id != 0 ? past : NULL;
}

static void killed(struct link *link, bool done)
{
    struct link_past *past = past_here(link);
    if (past != NULL && done)
        drop_past(link, (unsigned)(past - link->pasts));
    else if (past != NULL)
        past->id = 0;
    link->settled = done && !link->blind;
}

/* ---- the requests --------------------------------------------------------------------------------------- */

static void begin(struct link *link)
{
    memset(link->steps, 0, sizeof(link->steps));
    link->greeting_failed = false;
    link->greeting.replied = greeted;
    link->greeting.lost = lost;
    link_call_begin(link, &link->greeting);
}

static void step(struct link *link, unsigned *count, enum step which, unsigned arguments,
                 const char *command)
{
    link->steps[(*count)++] = (unsigned char)which;
    link_command(link, arguments);
    link_text(link, command);
}

void link_greet(struct link *link)
{
    const struct link_settings *settings = link->settings;
    unsigned count = 0;
    link->id = 0;
    link->run_id[0] = link->version[0] = '\0';
    link->uptime_s = -1;
    link->clock_us = 0;
    link->role_told = link->clustered = link->is_replica = false;
    begin(link);
    if (settings->password != NULL) {
        step(link, &count, STEP_AUTH, settings->username != NULL ? 3 : 2, "AUTH");
        if (settings->username != NULL)
            link_text(link, settings->username);
        link_text(link, settings->password);
    }
    if (settings->database != 0) {
        step(link, &count, STEP_SELECT, 2, "SELECT");
        link_number(link, settings->database);
    }
    step(link, &count, STEP_NAME, 3, "CLIENT");
    link_text(link, "SETNAME");
    link_text(link, settings->client_name);
    step(link, &count, STEP_ID, 2, "CLIENT");
    link_text(link, "ID");
    step(link, &count, STEP_INFO, 2, "INFO");
    link_text(link, "server");
    if (settings->primary) {
        step(link, &count, STEP_ROLE, 1, "ROLE");
        step(link, &count, STEP_TIME, 1, "TIME");
    }
    link_call_end(link, &link->greeting, count);
}

static void kill_old(struct link *link, const struct link_past *past)
{
    unsigned count = 0;
    begin(link);
    step(link, &count, STEP_KILL, 4, "CLIENT");
    link_text(link, "KILL");
    link_text(link, "ID");
    link_number(link, past->id);
    link_call_end(link, &link->greeting, count);
}

void link_info(const redisReply *reply, const char *key, char *to, size_t size)
{
    const char *text = memmem(reply->str, reply->len, key, strlen(key));
    to[0] = '\0';
    if (text == NULL)
        return;
    text += strlen(key);
    size_t left = reply->len - (size_t)(text - reply->str), n = 0;
    while (n < left && n < size - 1 && text[n] > ' ' && text[n] <= '~') {
        to[n] = text[n];
        n++;
    }
    to[n] = '\0';
}

int64_t link_info_number(const redisReply *reply, const char *key)
{
    char text[32];
    link_info(reply, key, text, sizeof(text));
    return text[0] < '0' || text[0] > '9' ? -1 : (int64_t)text_digits(text, strlen(text));
}

static void fail(struct link *link, const redisReply *reply)
{
    if (link->greeting_failed)
        return; /* the first is the cause */
    link->greeting_failed = true;
    link_fault_reply(link, reply, &link->greeting_fault);
    if (link->greeting_fault.error == LINK_ERROR_OTHER &&
        memmem(reply->str, reply->len, "max number of clients", 21) != NULL) {
        link->greeting_fault.status = MORTISE_UNREACHABLE;
        link->greeting_fault.retryable = true;
    }
}

/* Errors after which nothing works on this connection, at least for now. */
static bool is_hopeless(const redisReply *reply)
{
    enum link_error error = link_error_of(reply->str, reply->len);
    return error == LINK_ERROR_NOAUTH || error == LINK_ERROR_BUSY || error == LINK_ERROR_LOADING ||
           memmem(reply->str, reply->len, "max number of clients", 21) != NULL;
}

static void take_role(struct link *link, const redisReply *reply)
{
    bool told = reply->type == REDIS_REPLY_ARRAY && reply->elements > 0;
    link->role_told = told;
    if (link->clustered && link->settings->any_of_cluster)
        return;
    if (!told && !link->greeting_failed && !link->settings->role_optional)
        fail(link, reply);
    if (!told || link->greeting_failed || text_is(reply->element[0], "master"))
        return;
    bool sentinel = text_is(reply->element[0], "sentinel");
    link->is_replica = !sentinel;
    link->greeting_failed = true;
    link_fault_set(&link->greeting_fault, MORTISE_UNREACHABLE, !sentinel, 0, "%s is %s",
                   link->endpoint.text,
                   sentinel ? "a Sentinel, which has no locks: `sentinel = name@address` finds the "
                              "primary through it"
                            : "a replica, not the primary: name the primary, or all servers");
}

static void take_time(struct link *link, const redisReply *reply)
{
    link->clock_us = text_time_us(reply);
    link->clock_ns = link->host->now(link->host);
}

static void take(struct link *link, enum step which, redisReply *reply)
{
    bool refused = reply->type == REDIS_REPLY_ERROR;
    char mode[16];
    if (refused && (which == STEP_AUTH || which == STEP_SELECT || is_hopeless(reply)))
        fail(link, reply);
    else if (which == STEP_ID && reply->type == REDIS_REPLY_INTEGER)
        link->id = reply->integer;
    else if (which == STEP_INFO && reply->type == REDIS_REPLY_STRING) {
        link_info(reply, "run_id:", link->run_id, sizeof(link->run_id));
        link_info(reply, "redis_version:", link->version, sizeof(link->version));
        link_info(reply, "redis_mode:", mode, sizeof(mode));
        if (mode[0] == '\0') /* Valkey from 8.0 on */
            link_info(reply, "server_mode:", mode, sizeof(mode));
        link->clustered = strcmp(mode, "cluster") == 0;
        link->uptime_s = link_info_number(reply, "uptime_in_seconds:");
    } else if (which == STEP_ROLE)
        take_role(link, reply);
    else if (which == STEP_TIME && reply->type == REDIS_REPLY_ARRAY)
        take_time(link, reply);
    else if (which == STEP_KILL)
        killed(link, !refused);
}

static bool is_before(const struct link *link, char major)
{
    return link->version[0] >= '0' && link->version[0] < major && link->version[1] == '.';
}

/* Such a node, while it hands over a slot, answers ASK as soon as one of the keys is missing. The lock may still be held at
 * this node, and the other node would grant it a second time. */
static bool is_hasty(const struct link *link)
{
    return is_before(link, '7') ||
           (strncmp(link->version, "7.0.", 4) == 0 && strtoul(link->version + 4, NULL, 10) < 3);
}

/* Before Redis 5, a script must not write after it has asked for the time. */
static void check_version(struct link *link)
{
    if (is_before(link, '5'))
        link_fault_set(&link->greeting_fault, MORTISE_BACKEND, false, 0,
                       "%s: Redis 5.0 or later is needed; this is %s", link->endpoint.text,
                       link->version);
    else if (link->clustered && link->settings->redirects && is_hasty(link))
        link_fault_set(&link->greeting_fault, MORTISE_BACKEND, false, 0,
                       "%s: a cluster needs Redis 7.0.3 or later; this is %s", link->endpoint.text,
                       link->version);
    else
        return;
    link->greeting_failed = true;
}

static void greeted(struct link_call *call, unsigned index, redisReply *reply)
{
    struct link *link = link_of(call);
    enum step which = link->steps[index];
    take(link, which, reply);
    if (index + 1 < call->expected)
        return;
    if (!link->greeting_failed)
        check_version(link);
    if (link->greeting_failed)
        link->ends->greeted(link, &link->greeting_fault);
    else if (which != STEP_KILL && look_back(link) != NULL)
        kill_old(link, look_back(link));
    else
        link->ends->greeted(link, NULL);
}

/* link.c knows why the connection was lost, and does the rest. */
static void lost(struct link_call *call, enum link_loss loss, const struct link_fault *fault)
{
    (void)call;
    (void)loss;
    (void)fault;
}
