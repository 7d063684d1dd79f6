/* sentinel.c - what sentinels say: where the primary of a name is, and in which epoch it became the primary. A subscription at
 * one of them reports that another server is the primary now. */
#include "primary.h"
#include "text.h"

#include <stdio.h>
#include <string.h>

#define SWITCHES "+switch-master"

/* ---- asking --------------------------------------------------------------------------------------------- */

void sentinel_ask(struct scout *scout)
{
    struct link *link = &scout->link;
    static const char *const commands[] = {"get-master-addr-by-name", "master"};
    for (size_t i = 0; i < 2; i++) {
        link_command(link, 3);
        link_text(link, "SENTINEL");
        link_text(link, commands[i]);
        link_text(link, scout->primary->name);
    }
    link_call_end(link, &scout->call, 2);
}

static void take_address(struct scout *scout, const redisReply *reply)
{
    if (reply->type == REDIS_REPLY_NIL)
        return; /* it does not know the name */
    bool told = reply->type == REDIS_REPLY_ARRAY && reply->elements == 2 &&
                reply->element[0]->type == REDIS_REPLY_STRING &&
                reply->element[1]->type == REDIS_REPLY_STRING;
    if (told && endpoint_set(&scout->claim.at, reply->element[0]->str, reply->element[0]->len,
                             reply->element[1]->str, reply->element[1]->len)) {
        scout->claim.made = true;
        return;
    }
    link_fault_reply(&scout->link, reply, &scout->fault);
    scout->state = SCOUT_FAILED;
}

/* If the sentinel refuses, the epoch is 0, so any other sentinel overrules it. */
static void take_epoch(struct scout *scout, const redisReply *reply)
{
    for (size_t i = 0; reply->type == REDIS_REPLY_ARRAY && i + 1 < reply->elements; i += 2) {
        const redisReply *value = reply->element[i + 1];
        if (text_is(reply->element[i], "config-epoch") && value->type == REDIS_REPLY_STRING)
            scout->claim.epoch = text_digits(value->str, value->len);
    }
}

void sentinel_take(struct scout *scout, unsigned index, const redisReply *reply)
{
    if (index == 0)
        take_address(scout, reply);
    else
        take_epoch(scout, reply);
}

/* ---- whom to believe --------------------------------------------------------------------------------------- */

static unsigned votes_for(const struct primary *primary, const struct claim *claim)
{
    unsigned votes = 0;
    for (size_t i = 0; i < primary->count; i++) {
        const struct scout *scout = &primary->scouts[i];
        votes += scout->state == SCOUT_TOLD && scout->claim.made &&
                 scout->claim.epoch == claim->epoch &&
                 strcmp(scout->claim.at.text, claim->at.text) == 0;
    }
    return votes;
}

static bool counts_for_more(const struct primary *primary, const struct claim *one,
                            const struct claim *other)
{
    if (one->epoch != other->epoch)
        return one->epoch > other->epoch;
    return votes_for(primary, one) > votes_for(primary, other);
}

const struct scout *sentinel_choose(const struct primary *primary, struct link_fault *fault)
{
    const struct scout *best = NULL;
    char what[PRIMARY_NAME_MAX + 60], name[PRIMARY_NAME_MAX + 3];
    for (size_t i = 0; i < primary->count; i++) {
        const struct scout *scout = &primary->scouts[i];
        if (scout->state != SCOUT_TOLD || !scout->claim.made)
            continue;
        if (best == NULL || counts_for_more(primary, &scout->claim, &best->claim))
            best = scout;
    }
    if (best != NULL)
        return best;
    primary->host->quote(primary->name, strlen(primary->name), name, sizeof(name));
    snprintf(what, sizeof(what), "no sentinel tells where %s is", name);
    primary_reasons(primary, what, " does not know it", fault);
    return NULL;
}

/* ---- the subscription ----------------------------------------------------------------------------------------- */

/* Each attempt is made at the next sentinel. */
static void seek(struct link *link, void *owner)
{
    struct primary *primary = owner;
    if (primary->news_at == primary->count) { /* not all clients begin at the same one */
        uint32_t random;
        primary->host->random(primary->host, &random, sizeof(random));
        primary->news_at = random % primary->count;
    }
    primary->news_settings.endpoint = primary->scouts[primary->news_at].settings.endpoint;
    primary->news_at = (primary->news_at + 1) % primary->count;
    link_found(link);
}

static void up(struct link *link, void *owner)
{
    (void)owner;
    link_command(link, 2);
    link_text(link, "SUBSCRIBE");
    link_text(link, SWITCHES);
    link_awaits(link, true);
}

/* "name old-host old-port new-host new-port" */
static bool is_ours(const struct primary *primary, const redisReply *text)
{
    size_t length = strlen(primary->name);
    return text->type == REDIS_REPLY_STRING && (size_t)text->len > length &&
           memcmp(text->str, primary->name, length) == 0 && text->str[length] == ' ';
}

/* Another Sentinel may permit the subscription. Once all have refused in a row, the connection stays open. */
static void refused(struct primary *primary, const redisReply *reply)
{
    struct link_fault fault;
    link_fault_reply(&primary->news, reply, &fault);
    bool forbidden = fault.error == LINK_ERROR_NOPERM || fault.error == LINK_ERROR_UNKNOWN;
    primary->refusals = forbidden ? primary->refusals + 1 : 0;
    if (primary->refusals < primary->count) {
        link_reject(&primary->news, &fault);
        return;
    }
    primary->refusals = primary->count;
    if (!primary->deaf)
        primary->host->log(primary->host, 4,
                           "%s: subscribing to " SWITCHES
                           " is refused; a switch is noticed when the old primary fails to answer",
                           fault.text);
    primary->deaf = true;
}

/* The message alone is not believed: all sentinels are asked, and the highest epoch counts. */
static void push(struct link *link, void *owner, redisReply *reply)
{
    struct primary *primary = owner;
    link_awaits(link, false);
    if (reply->type == REDIS_REPLY_ERROR) {
        refused(primary, reply);
        return;
    }
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != 3)
        return;
    bool switched = text_is(reply->element[0], "message") && is_ours(primary, reply->element[2]);
    if (text_is(reply->element[0], "subscribe")) {
        primary->deaf = false;
        primary->refusals = 0;
    }
    if (switched || text_is(reply->element[0], "subscribe"))
        primary_verify(primary);
}

void sentinel_open(struct primary *primary)
{
    static const struct link_callbacks callbacks = {.up = up, .push = push, .seek = seek};
    primary->news_at = primary->count;
    primary->news_settings = primary->scouts[0].settings;
    link_init(&primary->news, primary->host, &primary->news_settings, &callbacks, primary);
}
