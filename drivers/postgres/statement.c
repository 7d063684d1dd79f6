/* statement.c - a request goes to the connection that is for it. Knows what renews, and nothing else of what requests are
 * for. */
#include "statement.h"

#include "driver.h"

#include <string.h>

struct request *statement_new(struct driver *driver, const struct handler *handler)
{
    struct request *request = (struct request *)request_new(&driver->locks, SQL_TASK_OWN);
    if (request != NULL)
        request->handler = handler;
    return request;
}

void statement_free(struct request *request)
{
    request_free(&request->base);
}

/* Renewals go alone, on the second connection; they do not wait for it if there is the first. */
static struct link *link_for(const struct request *request)
{
    struct driver *driver = statement_driver(request);
    bool renews = request->base.task == SQL_TASK_OP && request->base.kind == MORTISE_OP_RENEW;
    if (!renews)
        return &driver->main;
    driver->live_wanted = true;
    bool instead = driver->live.state != LINK_READY && driver->main.state == LINK_READY;
    return instead ? &driver->main : &driver->live;
}

/* It goes out with flight_go(): nothing fails in here. */
void statement_send(struct request *request, enum text text, enum lane lane)
{
    PQclear(request->result);
    request->result = NULL;
    request->text = text;
    request->lane = lane;
    request->not_before_ns = 0;
    struct link *link = request->link != NULL && request->link->state == LINK_READY
                            ? request->link
                            : link_for(request);
    flight_queue(link, request);
}
