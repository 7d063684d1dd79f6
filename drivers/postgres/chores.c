/* chores.c - statements of the driver's own: is the backend of a lost connection gone (the statement also tells it to end), and
 * rows that have been free for long. */
#include "driver.h"

#define DRIFT_SHARE 1000             /* a clock that is slower by more is broken */
#define APART_US INT64_C(1700000000) /* between the sweeps of the fleet; less than half an hour */

/* ---- backends ----------------------------------------------------------------------------------- */

bool ghost_look(struct request *request, const struct session *session)
{
    struct args *args = &pg_request(request)->args;
    args_int4(args, (int32_t)session->id);
    args_time(args, session->start);
    statement_send(request, TEXT_GHOST, LANE_LAZY);
    return true;
}

/* No row: it is gone, and whatever it did is done. */
enum ghost_answer ghost_take(struct request *request, const struct session *session)
{
    (void)session;
    const PGresult *result = pg_request(request)->result;
    bool answered = result != NULL && PQresultStatus(result) == PGRES_TUPLES_OK;
    return answered && PQntuples(result) == 0 ? GHOST_GONE : GHOST_THERE;
}

/* Behind a pooler. The server's clock was read a while ago, and may be slower than ours; the commit comes after
 * the look at the clock, and may wait (for a standby, for example). No time-out of the server ends that wait, so one that
 * takes longer than this is a late one: protocol.md says what it may do. */
int64_t ghost_lingers_ns(const struct link *link, int64_t now_ns)
{
    const struct pg_link *mine = pg_link_const(link);
    int64_t drift_ns = (now_ns - mine->clock_ns) / DRIFT_SHARE;
    int64_t commit_ns = link->remote->command_ms * NS_PER_MS;
    if (!mine->pooled)
        return 0;
    return group_patience_ns(link->remote) * 102 / 100 + 2 * NS_PER_MS + drift_ns + commit_ns;
}

/* ---- rows --------------------------------------------------------------------------------------- */

static void swept(struct request *request)
{
    struct driver *driver = (struct driver *)request->base.locks;
    driver->sweep_goes_on = PQntuples(pg_request(request)->result) > 0; /* there may be more */
    if (driver->sweep_goes_on)
        driver->remote.sweep_ns = 0;
    sweep_over(request);
}

struct request *sweep(struct remote *remote)
{
    static const struct handler handler = {
        .answered = swept, .failed = sweep_failed, .lost = sweep_lost};
    struct driver *driver = (struct driver *)remote;
    int64_t apart_us = driver->sweep_goes_on ? 0 : APART_US;
    driver->sweep_goes_on = false;
    struct request *request = statement_new(remote, &handler);
    if (request == NULL)
        return NULL;
    args_int8(&pg_request(request)->args, apart_us);
    request->alone = true; /* its rows are in no order with those of others */
    statement_send(request, TEXT_SWEEP, LANE_LAZY);
    return request;
}
