/* statement.c - a request goes to the connection that is for it. Knows what renews, and nothing else of what requests are
 * for. */
#include "statement.h"

#include "driver.h"

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

void statement_queue(struct request *request, enum text_id id)
{
    struct link *link = request->link != NULL && request->link->state == LINK_READY
                            ? request->link
                            : link_for(request);
    statement_forget(request);
    request->id = id;
    request->lane = sql_texts[id].writes ? LANE_WRITING : LANE_READING;
    request->not_before_ns = 0;
    flight_queue(link, request);
}

bool statement_send(struct request *request, enum text_id id, const struct values *values)
{
    text_clear(&request->text);
    text_fill(&request->text, sql_texts[id].text, values);
    if (request->text.failed)
        return false;
    statement_queue(request, id);
    return true;
}
