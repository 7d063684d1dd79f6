/* replies.c - hands what a server answers to the calls, in order, or to the callback of a connection for subscriptions. It
 * neither reads from the socket nor ends a connection: link.c does that afterwards. */
#include "link.h"

#include <stdlib.h>
#include <string.h>

/* link.c ends the connection when everything that was read has been handed over. */
static void must_break(struct link *link, const struct link_fault *fault)
{
    if (!link->breaks)
        link->why = *fault;
    link->breaks = true;
}

static void must_break_text(struct link *link, const char *text)
{
    struct link_fault fault;
    link_fault_set(&fault, MORTISE_UNREACHABLE, true, 0, "%s: %s", link->endpoint.text, text);
    must_break(link, &fault);
}

static void tell_call(struct link *link, redisReply *reply)
{
    struct link_call *call = link->first;
    unsigned index = call->got++;
    if (call->got == call->expected) {
        link->first = call->next;
        link->outstanding--;
        if (link->first == NULL)
            link->last_call = &link->first;
    }
    call->replied(call, index, reply);
}

static bool says_replica(const struct link *link, const redisReply *reply)
{
    return reply->type == REDIS_REPLY_ERROR && link->settings->primary && link->state == LINK_UP &&
           link_error_of(reply->str, reply->len) == LINK_ERROR_READONLY;
}

static void tell(struct link *link, redisReply *reply)
{
    link->useful |= link->state == LINK_UP;
    link->demoted |= says_replica(link, reply);
    if (link->first != NULL)
        tell_call(link, reply);
    else if (link->callbacks->push != NULL)
        link->callbacks->push(link, link->owner, reply);
    else if (reply->type == REDIS_REPLY_ERROR) { /* it says why it closes the connection */
        struct link_fault fault;
        link_fault_reply(link, reply, &fault);
        fault.status = MORTISE_UNREACHABLE;
        fault.retryable = true;
        must_break(link, &fault);
    } else
        must_break_text(link, "an answer that nobody asked for");
    if (link->demoted && link->first == NULL)
        must_break_text(link, "it is a replica now");
}

void link_tell_replies(struct link *link)
{
    link->reading = true;
    while (!link->breaks) {
        void *reply = NULL;
        if (redisGetReplyFromReader(link->context, &reply) != REDIS_OK) {
            must_break_text(link, link->refusal != NULL
                                      ? link->refusal
                                      : "what it answers is not the Redis protocol");
            break;
        }
        if (reply == NULL)
            break;
        link->elements = 0;
        link->reply_bytes = link->context->reader->len - link->context->reader->pos;
        link->progress_ns = link->host->now(link->host);
        tell(link, reply);
        freeReplyObject(reply);
    }
    link->reading = false;
}
