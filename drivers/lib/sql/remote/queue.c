/* queue.c - the queues in which requests wait for their connection, one per lane, and how they form groups. */
#include "remote.h"

#include <string.h>
#include <utlist.h>

void queue_append(struct link *link, struct request *request)
{
    size_t len;
    const char *name = request_name(&request->base, &len);
    if (request->lane != LANE_READING && locked_lately(link->remote, name, len))
        request->alone = request->locked = true;
    request->link = link;
    request->number = ++link->remote->numbers;
    DL_APPEND2(link->queue[request->lane], request, previous, next);
}

void queue_prepend(struct link *link, struct request *request)
{
    DL_PREPEND2(link->queue[request->lane], request, previous, next);
}

void queue_remove(struct request *request)
{
    DL_DELETE2(request->link->queue[request->lane], request, previous, next);
    request->next = request->previous = NULL;
    request->link = NULL;
}

void queue_first(struct request *request)
{
    struct link *link = request->link;
    DL_DELETE2(link->queue[request->lane], request, previous, next);
    request->number = 0;
    queue_prepend(link, request);
}

bool queue_is_empty(const struct link *link)
{
    return link->queue[LANE_LAZY] == NULL && link->queue[LANE_DURABLE] == NULL &&
           link->queue[LANE_READING] == NULL;
}

/* ---- pauses ------------------------------------------------------------------------------------- */

/* When the request can go; 0: at any time. */
static int64_t ready_at(const struct link *link, const struct request *request)
{
    int64_t settled_ns = request->settles ? link->remote->settled_ns : 0;
    return settled_ns > request->not_before_ns ? settled_ns : request->not_before_ns;
}

static bool pauses(const struct link *link, const struct request *request, int64_t now)
{
    return ready_at(link, request) > now && !link->remote->locks.closing;
}

const struct request *queue_ready(const struct link *link, enum lane lane)
{
    const struct request *request = link->queue[lane];
    int64_t now = request != NULL && ready_at(link, request) > 0 ? remote_now(link->remote) : 0;
    while (request != NULL && pauses(link, request, now))
        request = request->next;
    return request;
}

int64_t queue_due(const struct link *link, enum lane lane)
{
    int64_t due_ns = MORTISE_NEVER;
    for (const struct request *request = link->queue[lane]; request != NULL;
         request = request->next)
        if (ready_at(link, request) < due_ns)
            due_ns = ready_at(link, request);
    return due_ns;
}

/* ---- a group is made ---------------------------------------------------------------------------- */

/* Requests go in the order of their names, so that the groups of two clients cannot deadlock. */
static bool comes_before(const struct request *a, const struct request *b)
{
    size_t a_len, b_len;
    const char *a_name = request_name(&a->base, &a_len), *b_name = request_name(&b->base, &b_len);
    size_t common = a_len < b_len ? a_len : b_len;
    int order = common > 0 ? memcmp(a_name, b_name, common) : 0;
    if (order == 0 && a_len == b_len)
        return a->number < b->number;
    return order != 0 ? order < 0 : a_len < b_len;
}

static void insert(struct group *group, struct request *request)
{
    size_t i = group->count++;
    for (; i > 0 && comes_before(request, group->requests[i - 1]); i--)
        group->requests[i] = group->requests[i - 1];
    group->requests[i] = request;
}

void queue_compose(struct link *link, enum lane lane, struct group *group)
{
    const struct remote_dialect *dialect = link->remote->dialect;
    int64_t now = remote_now(link->remote);
    struct request *request, *next;
    size_t bytes = dialect->size(link, NULL);
    memset(group, 0, sizeof(*group));
    group->lane = lane;
    DL_FOREACH_SAFE (link->queue[lane], request, next) {
        if (pauses(link, request, now))
            continue;
        bytes += dialect->size(link, request);
        bool fits =
            bytes <= dialect->group_bytes && !request->alone && group->count < dialect->group_max;
        if (group->count > 0 && !fits)
            break;
        DL_DELETE2(link->queue[lane], request, previous, next);
        insert(group, request);
        if (request->alone)
            break;
    }
}
