/* chores.c - statements of the driver's own: one asks whether the backend of a lost connection is gone, and tells it to end;
 * others delete rows that have been free for long. */
#include "driver.h"

#define DRIFT_SHARE 1000 /* a clock that is slower by more counts as broken */
#define STRETCH_PAUSE_NS (10 * NS_PER_MS)
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

/* No row: the backend is gone, or a pooler has given it to this connection. Whatever it did is done. */
enum ghost_answer ghost_take(struct request *request, const struct session *session)
{
    (void)session;
    const PGresult *result = pg_request(request)->result;
    bool answered = result != NULL && PQresultStatus(result) == PGRES_TUPLES_OK;
    return answered && PQntuples(result) == 0 ? GHOST_GONE : GHOST_THERE;
}

/* For a connection behind a pooler. The server's clock was read a while ago, and may be slower than ours. The commit
 * comes after the look at the clock, and may wait (for a standby, for example). No time-out of the server ends that wait,
 * so a commit that takes longer than this comes late: protocol.md says what it may do. */
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

static struct remote *sweeper(const struct request *request)
{
    return (struct remote *)request->base.locks;
}

static void send_stretch(struct request *request, int64_t pause_ns)
{
    struct remote *remote = sweeper(request);
    struct args *args = &pg_request(request)->args;
    args_begin(args);
    args_bytes(args, remote->sweep_from, remote->sweep_from_len);
    request->tries = request->waits = 0;
    request->locked_ns = 0;
    statement_send(request, TEXT_SWEEP, LANE_LAZY);
    request->not_before_ns = remote_now(remote) + pause_ns;
}

/* The result of TURN says where the last sweep was given up, or nothing. */
static void swept(struct request *request)
{
    const PGresult *result = pg_request(request)->result;
    bool turn = pg_request(request)->text == TEXT_SWEEP_TURN;
    if (PQntuples(result) != 1 || PQnfields(result) != 2 || !sweep_goes_on(sweeper(request))) {
        sweep_over(request);
        return;
    }
    bool more = sweep_next(sweeper(request), PQgetvalue(result, 0, 0),
                           (size_t)PQgetlength(result, 0, 0)); /* null: 0 */
    if (turn || more)
        send_stretch(request, turn ? 0 : STRETCH_PAUSE_NS);
    else
        sweep_over(request);
}

struct request *sweep(struct remote *remote)
{
    static const struct handler handler = {
        .answered = swept, .failed = sweep_failed, .lost = sweep_lost};
    struct request *request = statement_new(remote, &handler);
    if (request == NULL)
        return NULL;
    args_int8(&pg_request(request)->args, APART_US);
    request->alone = true; /* its rows have no common order with those of others */
    statement_send(request, TEXT_SWEEP_TURN, LANE_LAZY);
    return request;
}
