/* statement.c - a request goes to its connection. Knows which requests renew, and nothing else about their purpose. */
#include "remote.h"

struct request *statement_new(struct remote *remote, const struct handler *handler)
{
    struct request *request = (struct request *)request_new(&remote->locks, SQL_TASK_OWN);
    if (request != NULL)
        request->handler = handler;
    return request;
}

void statement_free(struct request *request)
{
    request_free(&request->base);
}

void statement_lost(struct request *request, bool sent)
{
    (void)sent;
    statement_free(request);
}

/* Renewals have the second connection for themselves. They do not wait for it to be made if the first one is there. */
static struct link *link_for(const struct request *request)
{
    struct remote *remote = (struct remote *)request->base.locks;
    bool renews = request->base.task == SQL_TASK_OP && request->base.kind == MORTISE_OP_RENEW;
    if (!renews)
        return remote->main;
    remote->live_wanted = true;
    bool instead = remote->live->state != LINK_READY && remote->main->state == LINK_READY;
    return instead ? remote->main : remote->live;
}

void statement_queue(struct request *request, enum lane lane)
{
    struct link *link = request->link != NULL && request->link->state == LINK_READY
                            ? request->link
                            : link_for(request);
    link->remote->dialect->forget(request);
    request->lane = lane;
    request->not_before_ns = 0;
    queue_append(link, request);
}
