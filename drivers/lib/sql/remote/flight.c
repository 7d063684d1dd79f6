/* flight.c - requests go out in groups, each a transaction, and come back. The dialect sends a group, takes its results,
 * and says what failed. This file does not know what requests are for. */
#include "remote.h"

#include <utlist.h>

#define TRIES_MAX 6 /* after a serialization failure, a deadlock or a cancellation */

static const struct group *group_at(const struct link *link, size_t i)
{
    return &link->groups[(link->first_group + i) % GROUPS_MAX];
}

struct group *flight_group(struct link *link)
{
    return &link->groups[link->first_group];
}

size_t flight_count(const struct link *link, enum lane lane)
{
    size_t count = 0;
    for (size_t i = 0; i < link->group_count; i++)
        count += group_at(link, i)->lane == lane;
    return count;
}

bool flight_idle(const struct link *link)
{
    return link->group_count == 0 && queue_is_empty(link);
}

bool flight_has_own(const struct link *link)
{
    for (size_t i = 0; i < link->group_count; i++) {
        const struct group *group = group_at(link, i);
        for (size_t k = 0; k < group->count; k++)
            if (group->requests[k]->base.op == NULL)
                return true;
    }
    return false;
}

/* ---- a group goes out --------------------------------------------------------------------------- */

/* Before the first byte leaves: deadlines count from here. */
static void note_sent(struct request *request, int64_t now_ns)
{
    request->base.flying = true;
    request->base.sent_ns = now_ns;
    if (request->base.op == NULL)
        link_look_soon(request->link);
    if (request->handler->sending != NULL)
        request->handler->sending(request);
}

/* LANE_COUNT: none */
static enum lane next_lane(const struct link *link)
{
    const struct remote_dialect *dialect = link->remote->dialect;
    int lane = 0;
    while (lane < LANE_COUNT &&
           (link->queue[lane] == NULL || !dialect->is_open(link, (enum lane)lane) ||
            queue_ready(link, (enum lane)lane) == NULL))
        lane++;
    return (enum lane)lane;
}

static bool send_next(struct link *link, enum lane lane)
{
    struct group *group = &link->groups[(link->first_group + link->group_count++) % GROUPS_MAX];
    queue_compose(link, lane, group);
    group->sent_ns = remote_now(link->remote);
    for (size_t i = 0; i < group->count; i++)
        note_sent(group->requests[i], group->sent_ns);
    return link->remote->dialect->send(link, group);
}

bool flight_go(struct link *link)
{
    while (link->state == LINK_READY && next_lane(link) != LANE_COUNT) {
        if (link->group_count == 0 && !link->remote->dialect->is_there(link))
            return false;
        enum lane lane = next_lane(link);
        if (lane != LANE_COUNT && !send_next(link, lane))
            return false;
    }
    return link->state == LINK_READY;
}

/* A lane that is not open waits for an answer, which starts a turn and opens it. */
int64_t flight_paused(const struct link *link)
{
    int64_t due_ns = MORTISE_NEVER;
    for (int lane = 0; lane < LANE_COUNT; lane++) {
        if (link->queue[lane] == NULL || !link->remote->dialect->is_open(link, (enum lane)lane))
            continue;
        int64_t lane_ns = queue_due(link, (enum lane)lane);
        due_ns = lane_ns < due_ns ? lane_ns : due_ns;
    }
    return due_ns;
}

/* A quarter longer than command_timeout, so that a server with the same time-out notices first. */
int64_t flight_due(const struct link *link)
{
    int64_t patience_ms = link->remote->command_ms;
    if (link->group_count == 0)
        return MORTISE_NEVER;
    int64_t sent_ns = group_at(link, 0)->sent_ns;
    int64_t from_ns = sent_ns > link->heard_ns ? sent_ns : link->heard_ns;
    return from_ns + (patience_ms + patience_ms / 4) * NS_PER_MS;
}

struct request *flight_take(struct link *link)
{
    struct request *taken = NULL;
    for (; link->group_count > 0; link->group_count--) {
        const struct group *group = group_at(link, 0);
        for (size_t i = 0; i < group->count; i++) {
            struct request *request = group->requests[i];
            link->remote->dialect->forget(request);
            request->base.flying = false;
            DL_APPEND2(taken, request, previous, next);
        }
        link->first_group = (link->first_group + 1) % GROUPS_MAX;
    }
    return taken;
}

/* ---- a group comes back ------------------------------------------------------------------------- */

static void committed(const struct group *group)
{
    for (size_t i = 0; i < group->count; i++) {
        struct request *request = group->requests[i];
        request->base.flying = false;
        request->handler->answered(request);
    }
}

/* Why a group was rolled back, and what becomes of its requests:
 *
 * | cause        | the one that failed                    | the others           |
 * |--------------|----------------------------------------|----------------------|
 * | STATEMENT    | again, alone, if it may help; or fails  | again, as they were |
 * | COMMIT       | the same, if there is only one          | again, each alone   |
 * | NOTIFICATION | all go again without a notification; a pure notification fails           |
 *
 * NOTIFICATION: the queue of notifications is full, or another session's commit keeps it locked. (A wait for a row fails
 * a statement instead.) */
enum cause { CAUSE_STATEMENT, CAUSE_COMMIT, CAUSE_NOTIFICATION };

static enum cause cause_of(const struct group *group)
{
    if (group->failed_at < group->count)
        return CAUSE_STATEMENT;
    bool notification = (group->fault.flags & (FAULT_LOUD | FAULT_WAITED)) != 0;
    return notification ? CAUSE_NOTIFICATION : CAUSE_COMMIT;
}

/* Whether the request that failed goes out again. */
static bool has_another_try(struct request *request, unsigned flags, enum cause cause, bool silence)
{
    if ((flags & FAULT_WAITED) != 0 && cause != CAUSE_NOTIFICATION)
        return locked_again(request);
    bool helps = (flags & FAULT_AGAIN) != 0 || (silence && !request->quiet);
    return helps && ++request->tries < TRIES_MAX;
}

/* The request goes out again unchanged: its statement checks whether the row still fits. */
static void send_again(struct link *link, struct request *request, bool silence)
{
    if (request->base.task == SQL_TASK_OP && request->base.op == NULL) { /* canceled */
        request_free(&request->base);
        return;
    }
    if (silence && request->handler->silence != NULL)
        request->handler->silence(request);
    queue_prepend(link, request);
}

static void rolled_back(struct link *link, struct group *group)
{
    enum cause cause = cause_of(group);
    const struct fault *fault = &group->fault;
    for (size_t i = group->count; i-- > 0;) {
        struct request *request = group->requests[i];
        bool failed = cause == CAUSE_STATEMENT ? i == group->failed_at : group->count == 1;
        bool silence = cause == CAUSE_NOTIFICATION || (failed && (fault->flags & FAULT_LOUD) != 0);
        request->base.flying = false;
        link->remote->dialect->forget(request);
        if ((silence && request->only_notifies) ||
            (failed && !has_another_try(request, fault->flags, cause, silence))) {
            request->handler->failed(request, fault);
            continue;
        }
        bool split = cause == CAUSE_COMMIT || (silence && request->quiet);
        request->alone = request->alone || failed || split;
        send_again(link, request, silence);
    }
}

bool flight_done(struct link *link)
{
    struct group group = *flight_group(link); /* a copy: the handlers below may queue more */
    link->first_group = (link->first_group + 1) % GROUPS_MAX;
    link->group_count--;
    link->failures = 0;
    if (link->group_count > 0)
        link->heard_ns = remote_now(link->remote);
    link_expect(link, 0);
    if (!group.failed) {
        committed(&group);
        return link->state == LINK_READY;
    }
    rolled_back(link, &group);
    if ((group.fault.flags & FAULT_RESET) == 0)
        return true;
    link_lose(link, &group.fault.base);
    return false;
}
