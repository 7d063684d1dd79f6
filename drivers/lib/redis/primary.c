/* primary.c - a look for the primary: all candidates are asked at once, each on a connection of its own, which is closed again;
 * see primary.h. */
#include "primary.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LATER_MAX_MS 500 /* so long the look waits for the others after a claim */

static void scout_up(struct link *link, void *owner);
static void scout_down(struct link *link, void *owner, const struct link_fault *fault);
static void replied(struct link_call *call, unsigned index, redisReply *reply);
static void lost(struct link_call *call, enum link_loss loss, const struct link_fault *fault);

static const struct link_callbacks callbacks = {.up = scout_up, .down = scout_down};

static bool has_sentinels(const struct primary *primary)
{
    return primary->name[0] != '\0';
}

/* ---- opening and closing ------------------------------------------------------------------------------ */

static size_t count_of(const char *list)
{
    size_t count = 1;
    for (; *list != '\0'; list++)
        count += *list == ',';
    return count;
}

static void open_scout(struct primary *primary, struct scout *scout,
                       const struct link_settings *like, const struct endpoint *endpoint)
{
    scout->primary = primary;
    scout->settings = *like;
    scout->settings.endpoint = *endpoint;
    scout->settings.primary = false; /* a replica may answer too */
    scout->settings.command_timeout_ms = like->connect_timeout_ms;
    link_init(&scout->link, primary->host, &scout->settings, &callbacks, scout);
}

static const char *open_scouts(struct primary *primary, const char *list,
                               const struct link_settings *like)
{
    const char *port = has_sentinels(primary) ? SENTINEL_PORT : LINK_PORT, *problem = NULL;
    struct endpoint endpoint;
    for (size_t i = 0; i < primary->count; i++) {
        if (!endpoint_next(&list, port, &endpoint, &problem))
            return problem;
        open_scout(primary, &primary->scouts[i], like, &endpoint);
    }
    return NULL;
}

struct primary *primary_open(mortise_host *host, const char *list, const char *sentinel_name,
                             const struct link_settings *like, const struct primary_callbacks *told,
                             void *owner, const char **problem)
{
    size_t count = count_of(list);
    *problem = "at most 16 are asked";
    if (count > PRIMARY_CANDIDATES)
        return NULL;
    struct primary *primary = calloc(1, sizeof(*primary) + count * sizeof(primary->scouts[0]));
    *problem = "out of memory";
    if (primary == NULL)
        return NULL;
    primary->host = host;
    primary->callbacks = told;
    primary->owner = owner;
    primary->count = count;
    primary->patience_ms = like->connect_timeout_ms;
    if (sentinel_name != NULL)
        snprintf(primary->name, sizeof(primary->name), "%s", sentinel_name);
    *problem = open_scouts(primary, list, like);
    if (*problem != NULL) {
        free(primary);
        return NULL;
    }
    if (has_sentinels(primary))
        sentinel_open(primary);
    return primary;
}

void primary_close(struct primary *primary)
{
    if (primary == NULL)
        return;
    for (size_t i = 0; i < primary->count; i++)
        link_close(&primary->scouts[i].link);
    if (has_sentinels(primary))
        link_close(&primary->news);
    free(primary);
}

/* ---- a look --------------------------------------------------------------------------------------------- */

static int64_t now_of(const struct primary *primary)
{
    return primary->host->now(primary->host);
}

static void begin(struct primary *primary)
{
    primary->looking = true;
    primary->again = primary->clustered = false;
    primary->ends_ns = now_of(primary) + primary->patience_ms * LINK_NS_PER_MS;
    for (size_t i = 0; i < primary->count; i++) {
        struct scout *scout = &primary->scouts[i];
        scout->state = SCOUT_ASKS;
        memset(&scout->claim, 0, sizeof(scout->claim));
        link_want(&scout->link);
    }
}

void primary_look(struct primary *primary)
{
    primary->telling = false;
    if (!primary->looking)
        begin(primary);
}

void primary_verify(struct primary *primary)
{
    primary->again |= primary->looking;
    if (primary->looking)
        return;
    primary->telling = true;
    begin(primary);
}

static void end_scouts(struct primary *primary)
{
    for (size_t i = 0; i < primary->count; i++) {
        struct scout *scout = &primary->scouts[i];
        if (scout->state == SCOUT_ASKS)
            link_fault_set(&scout->fault, MORTISE_UNREACHABLE, true, 0, "%s: no answer in time",
                           scout->settings.endpoint.text);
        scout->state = scout->state == SCOUT_TOLD ? SCOUT_TOLD : SCOUT_FAILED;
        link_rest(&scout->link);
    }
}

/* Only the subscription asked for this look: have the sentinels another primary now? */
static void compare(struct primary *primary, const struct endpoint *endpoint)
{
    if (strcmp(endpoint->text, primary->found.text) == 0)
        return;
    primary->found = *endpoint;
    primary->callbacks->moved(primary->owner);
}

static void tell_found(struct primary *primary, const struct scout *scout)
{
    struct endpoint at = has_sentinels(primary) ? scout->claim.at : scout->settings.endpoint;
    if (primary->telling) {
        compare(primary, &at);
        return;
    }
    primary->found = at;
    if (has_sentinels(primary))
        link_want(&primary->news);
    primary->callbacks->found(primary->owner, &at);
}

/* Adds the reason why a sentinel does not help, or counts it if there is no room for the text. */
static void add_silent(struct primary *primary, size_t *used, size_t *left_out, const char *text)
{
    size_t size = sizeof(primary->sentinels) - 40; /* room for the count */
    if (*used + strlen(text) + 4 > size) {
        ++*left_out;
        return;
    }
    *used += (size_t)snprintf(primary->sentinels + *used, size - *used, "; %s", text);
}

/* Kept, because a ping may come while the next look is under way. */
static void note_sentinels(struct primary *primary)
{
    size_t used, left_out = 0;
    unsigned know = 0;
    if (!has_sentinels(primary))
        return;
    for (size_t i = 0; i < primary->count; i++)
        know += primary->scouts[i].state == SCOUT_TOLD && primary->scouts[i].claim.made;
    used = (size_t)snprintf(primary->sentinels, sizeof(primary->sentinels),
                            "; %u of %zu sentinels know it", know, primary->count);
    for (size_t i = 0; i < primary->count; i++) {
        const struct scout *scout = &primary->scouts[i];
        char unknown[sizeof(scout->settings.endpoint.text) + 20];
        snprintf(unknown, sizeof(unknown), "%s: does not know it", scout->settings.endpoint.text);
        if (scout->state == SCOUT_FAILED)
            add_silent(primary, &used, &left_out, scout->fault.text);
        else if (!scout->claim.made)
            add_silent(primary, &used, &left_out, unknown);
    }
    if (left_out > 0)
        snprintf(primary->sentinels + used, sizeof(primary->sentinels) - used, "; and %zu more",
                 left_out);
}

const char *primary_sentinels(const struct primary *primary)
{
    return primary->sentinels;
}

size_t primary_sentinel_count(const struct primary *primary)
{
    return has_sentinels(primary) ? primary->count : 0;
}

static void end(struct primary *primary)
{
    struct link_fault fault;
    end_scouts(primary);
    note_sentinels(primary);
    primary->looking = false;
    if (primary->clustered && primary->callbacks->clustered != NULL) {
        primary->callbacks->clustered(primary->owner);
        return;
    }
    if (primary->again) {
        begin(primary);
        return;
    }
    const struct scout *scout =
        has_sentinels(primary) ? sentinel_choose(primary, &fault) : role_choose(primary, &fault);
    if (scout != NULL)
        tell_found(primary, scout);
    else if (!primary->telling)
        primary->callbacks->not_found(primary->owner, &fault);
}

/* Decides how long to wait for those that have not answered. */
static void hasten(struct primary *primary)
{
    bool claimed = false;
    for (size_t i = 0; i < primary->count; i++)
        claimed |= primary->scouts[i].state == SCOUT_TOLD && primary->scouts[i].claim.made;
    int64_t later_ms = primary->patience_ms / (claimed ? 4 : 2);
    if (claimed && later_ms > LATER_MAX_MS)
        later_ms = LATER_MAX_MS;
    int64_t ends_ns = now_of(primary) + later_ms * LINK_NS_PER_MS;
    if (ends_ns < primary->ends_ns)
        primary->ends_ns = ends_ns;
}

static bool is_over(const struct primary *primary)
{
    for (size_t i = 0; i < primary->count; i++)
        if (primary->scouts[i].state == SCOUT_ASKS)
            return now_of(primary) >= primary->ends_ns;
    return true;
}

/* ---- a candidate ------------------------------------------------------------------------------------------ */

static struct scout *scout_of(struct link_call *call)
{
    return (struct scout *)(void *)((char *)call - offsetof(struct scout, call));
}

static void scout_up(struct link *link, void *owner)
{
    struct scout *scout = owner;
    scout->primary->clustered |= link->clustered;
    scout->call.replied = replied;
    scout->call.lost = lost;
    link_call_begin(link, &scout->call);
    if (has_sentinels(scout->primary))
        sentinel_ask(scout);
    else
        role_ask(scout);
}

static void replied(struct link_call *call, unsigned index, redisReply *reply)
{
    struct scout *scout = scout_of(call);
    if (has_sentinels(scout->primary))
        sentinel_take(scout, index, reply);
    else
        role_take(scout, index, reply);
    if (index + 1 < call->expected)
        return;
    scout->state = scout->state == SCOUT_ASKS ? SCOUT_TOLD : scout->state;
    hasten(scout->primary);
}

/* `down` follows. */
static void lost(struct link_call *call, enum link_loss loss, const struct link_fault *fault)
{
    (void)call;
    (void)loss;
    (void)fault;
}

/* One attempt for each look. */
static void scout_down(struct link *link, void *owner, const struct link_fault *fault)
{
    struct scout *scout = owner;
    link_unwant(link);
    if (scout->state != SCOUT_ASKS)
        return;
    scout->state = SCOUT_FAILED;
    scout->fault = *fault;
}

/* ---- what to say of a failure --------------------------------------------------------------------------------- */

void primary_reasons(const struct primary *primary, const char *what, const char *no_claim,
                     struct link_fault *fault)
{
    const struct link_fault *lasting = NULL;
    char text[280];
    size_t used = 0;
    bool told = false;
    for (size_t i = 0; i < primary->count && used < sizeof(text); i++) {
        const struct scout *scout = &primary->scouts[i];
        bool answered = scout->state == SCOUT_TOLD;
        told |= answered;
        if (!answered && !scout->fault.retryable && lasting == NULL)
            lasting = &scout->fault;
        int n = snprintf(text + used, sizeof(text) - used, "%s%s%s", i > 0 ? "; " : "",
                         answered ? scout->settings.endpoint.text : scout->fault.text,
                         answered ? no_claim : "");
        used += n > 0 ? (size_t)n : 0;
    }
    if (lasting != NULL && !told)
        *fault = *lasting; /* a password or a certificate: a later look fails too */
    else
        link_fault_set(fault, MORTISE_UNREACHABLE, true, 0, "%s (%s)", what, text);
}

bool primary_is_busy(const struct primary *primary)
{
    return primary->looking || (has_sentinels(primary) && link_is_connecting(&primary->news));
}

/* ---- the pump ----------------------------------------------------------------------------------------------- */

size_t primary_interest(const struct primary *primary, struct pollfd *fds, size_t capacity,
                        int64_t *due_ns)
{
    size_t n = 0;
    if (has_sentinels(primary))
        n += link_interest(&primary->news, fds, capacity, due_ns);
    if (!primary->looking)
        return n;
    for (size_t i = 0; i < primary->count; i++)
        n += link_interest(&primary->scouts[i].link, fds + n, capacity - n, due_ns);
    int64_t ends_ns = is_over(primary) ? now_of(primary) : primary->ends_ns;
    if (ends_ns < *due_ns)
        *due_ns = ends_ns;
    return n;
}

void primary_turn(struct primary *primary, const struct pollfd *ready, size_t n)
{
    if (has_sentinels(primary)) {
        link_turn(&primary->news, ready, n);
        link_flush(&primary->news);
    }
    for (size_t i = 0; i < primary->count && primary->looking; i++) {
        link_turn(&primary->scouts[i].link, ready, n);
        link_flush(&primary->scouts[i].link);
    }
    if (primary->looking && is_over(primary))
        end(primary);
}
