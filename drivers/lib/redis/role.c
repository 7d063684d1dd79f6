/* role.c - what servers say of themselves, and which one is believed if two say that they are the primary; see primary.h for the
 * order of the reasons. */
#include "primary.h"
#include "text.h"

#include <stdio.h>
#include <string.h>

#define LAG_MAX_S 10 /* a replica that has been silent for longer does not count */

void role_ask(struct scout *scout)
{
    struct link *link = &scout->link;
    link_command(link, 1);
    link_text(link, "ROLE");
    link_command(link, 2);
    link_text(link, "INFO");
    link_text(link, "replication");
    link_call_end(link, &scout->call, 2);
}

/* ---- answers -------------------------------------------------------------------------------------------- */

static void take_role(struct scout *scout, const redisReply *reply)
{
    const redisReply *role =
        reply->type == REDIS_REPLY_ARRAY && reply->elements > 0 ? reply->element[0] : NULL;
    if (role == NULL) {
        link_fault_reply(&scout->link, reply, &scout->fault);
        scout->state = SCOUT_FAILED;
        return;
    }
    scout->claim.made = text_is(role, "master");
    memcpy(scout->claim.run_id, scout->link.run_id, sizeof(scout->claim.run_id));
}

/* "slave0:ip=…,port=…,state=online,offset=…,lag=0" */
static bool follows(const char *line, size_t length)
{
    const char *lag = memmem(line, length, ",lag=", 5);
    return memmem(line, length, ",state=online,", 14) != NULL && lag != NULL &&
           text_digits(lag + 5, length - (size_t)(lag + 5 - line)) <= LAG_MAX_S;
}

static unsigned count_replicas(const char *text, size_t length)
{
    unsigned count = 0;
    while (length > 0) {
        const char *end = memchr(text, '\n', length);
        size_t line = end == NULL ? length : (size_t)(end - text) + 1;
        bool replica =
            line > 6 && memcmp(text, "slave", 5) == 0 && text[5] >= '0' && text[5] <= '9';
        count += replica && follows(text, line);
        text += line;
        length -= line;
    }
    return count;
}

/* If the server refuses INFO, the driver cannot tell apart two servers that both say "master". */
static void take_info(struct scout *scout, const redisReply *reply)
{
    struct claim *claim = &scout->claim;
    char offset[24];
    if (reply->type != REDIS_REPLY_STRING)
        return;
    link_info(reply, "master_replid:", claim->history, sizeof(claim->history));
    link_info(reply, "master_replid2:", claim->history_before, sizeof(claim->history_before));
    link_info(reply, "master_repl_offset:", offset, sizeof(offset));
    claim->offset = text_digits(offset, strlen(offset));
    claim->replicas = count_replicas(reply->str, reply->len);
}

void role_take(struct scout *scout, unsigned index, const redisReply *reply)
{
    if (index == 0)
        take_role(scout, reply);
    else
        take_info(scout, reply);
}

/* ---- two ---------------------------------------------------------------------------------------------------- */

/* The history of `one` began as the history of the other. */
static bool succeeds(const struct claim *one, const struct claim *other)
{
    return other->history[0] != '\0' && strcmp(one->history_before, other->history) == 0;
}

static bool is_believed(const struct claim *one, const struct claim *other)
{
    if (one->run_id[0] != '\0' && strcmp(one->run_id, other->run_id) == 0)
        return true; /* one server by two names */
    if (succeeds(one, other) || succeeds(other, one))
        return succeeds(one, other);
    if (one->replicas != other->replicas)
        return one->replicas > other->replicas;
    return one->offset > 0 && other->offset == 0;
}

static bool is_believed_of_all(const struct primary *primary, const struct scout *scout)
{
    for (size_t i = 0; i < primary->count; i++) {
        const struct scout *other = &primary->scouts[i];
        if (other != scout && other->state == SCOUT_TOLD && other->claim.made &&
            !is_believed(&scout->claim, &other->claim))
            return false;
    }
    return true;
}

const struct scout *role_choose(const struct primary *primary, struct link_fault *fault)
{
    bool any = false;
    for (size_t i = 0; i < primary->count; i++) {
        const struct scout *scout = &primary->scouts[i];
        bool claims = scout->state == SCOUT_TOLD && scout->claim.made;
        any |= claims;
        if (claims && is_believed_of_all(primary, scout))
            return scout;
    }
    if (any)
        link_fault_set(fault, MORTISE_UNREACHABLE, true, 0,
                       "more than one of the servers says that it is the primary, and nothing "
                       "tells which one is");
    else
        primary_reasons(primary, "no primary among the servers", " is a replica", fault);
    return NULL;
}
