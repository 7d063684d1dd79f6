/* ghost.c - a ghost is a lost connection whose session may still execute what it was sent. The dialect's protocol.md says why
 * that matters, and which statements look for a session and end it.
 *
 * | the answer | then                                                 |
 * |------------|------------------------------------------------------|
 * | GONE       | whatever it did is done: forgotten                   |
 * | THERE      | another look, after a pause that grows; failed, lost: the same |
 * | ASKED      | the dialect has sent another statement for this look |
 *
 * If the second connection has that session now, the ghost is GONE without a look.
 *
 * If the session is not known (behind a pooler), nobody looks, and the dialect says how long the session may last. If the
 * connection is to another server by now, nobody can look, but what the session commits may still arrive from the old server.
 * Looks begin when there is a connection to the old server again; until then, the ghost counts as THERE for the longest ttl.
 * For the same reason, a look that was not sent yet does not wait for the next connection: it may end a session, and on another
 * server that session's number may belong to another session. */
#include "remote.h"

#include <stdlib.h>
#include <string.h>

#define AGAIN_NS (5 * NS_PER_MS)
#define AGAIN_STEPS 8 /* doublings, to 1.3 s: some sessions cannot be ended at once */

struct ghost {
    struct ghost *next;
    struct session session;
    int64_t until_ns;   /* it is gone by then, in any case */
    int64_t look_ns;    /* not before */
    int64_t settled_ns; /* writes no more */
    unsigned looks;
    struct request *errand;
    size_t count; /* of grants that were on their way to the session */
    mortise_grant_id grants[];
};

static const struct handler handler;

static struct remote *remote_of(const struct request *request)
{
    return (struct remote *)request->base.locks;
}

/* ---- made --------------------------------------------------------------------------------------- */

static bool was_asked(const struct request *request)
{
    const struct sql_request *base = &request->base;
    bool writes = base->step == SQL_TAKE || (base->step == SQL_WRITE && base->durable);
    return base->task == SQL_TASK_OP && base->kind == MORTISE_OP_ACQUIRE && writes;
}

static bool writes_record(const struct request *request)
{
    return request->base.task == SQL_TASK_OP && request->base.step == SQL_RECORD_WRITE;
}

/* Whether the request may write, or keep rows locked while it waits for another row, or for the rest of its group. */
static bool may_write(const struct request *request)
{
    return request->lane != LANE_READING && request->handler != &handler;
}

/* Records are read only when no ghost writes any more. */
static void note_settled(struct remote *remote)
{
    remote->settled_ns = 0;
    for (const struct ghost *ghost = remote->ghosts; ghost != NULL; ghost = ghost->next)
        if (ghost->settled_ns > remote->settled_ns)
            remote->settled_ns = ghost->settled_ns;
}

/* A ghost is forgotten after the longest ttl; if its session is not known, as soon as the server can execute nothing of it
 * any more. */
static void set_times(struct ghost *ghost, const struct link *link)
{
    const struct remote *remote = link->remote;
    const struct remote_dialect *dialect = remote->dialect;
    int64_t now = remote_now(remote);
    int64_t lingers_ns = dialect->lingers_ns != NULL ? dialect->lingers_ns(link, now) : 0;
    ghost->until_ns = now + MORTISE_TTL_MAX_MS * NS_PER_MS;
    ghost->settled_ns = now + 2 * remote->command_ms * NS_PER_MS;
    if (lingers_ns > 0)
        ghost->until_ns = ghost->settled_ns = now + lingers_ns;
}

void ghost_make(const struct link *link, const struct request *requests)
{
    struct remote *remote = link->remote;
    bool matters = false; /* the session must end, or, if unknown, records must wait for it */
    size_t count = 0;
    for (const struct request *request = requests; request != NULL; request = request->next) {
        count += was_asked(request);
        matters =
            matters || writes_record(request) || (link->session.id != 0 && may_write(request));
    }
    if (count == 0 && !matters)
        return;
    struct ghost *ghost = calloc(1, sizeof(*ghost) + count * sizeof(ghost->grants[0]));
    if (ghost == NULL && (count = 0, ghost = calloc(1, sizeof(*ghost))) == NULL)
        return; /* a claim may last until its ttl */
    ghost->session = link->session;
    set_times(ghost, link);
    for (const struct request *request = requests; request != NULL; request = request->next)
        if (was_asked(request) && ghost->count < count)
            ghost->grants[ghost->count++] = request->base.grant;
    ghost->next = remote->ghosts;
    remote->ghosts = ghost;
    remote->ghost_ns = remote_now(remote);
    note_settled(remote);
}

bool ghost_has(const struct remote *remote, const mortise_grant_id *grant)
{
    for (const struct ghost *ghost = remote->ghosts; ghost != NULL; ghost = ghost->next)
        for (size_t i = 0; i < ghost->count; i++)
            if (memcmp(&ghost->grants[i], grant, sizeof(*grant)) == 0)
                return true;
    return false;
}

static void lay(struct remote *remote, struct ghost *ghost)
{
    struct ghost **at = &remote->ghosts;
    while (*at != ghost)
        at = &(*at)->next;
    *at = ghost->next;
    free(ghost);
    note_settled(remote);
}

/* ---- looked for --------------------------------------------------------------------------------- */

/* Whether this connection leads to the server of that session. */
static bool is_near(const struct link *link, const struct ghost *ghost)
{
    return strcmp(link->session.server, ghost->session.server) == 0;
}

/* Whether a pooler has kept that session, and given it to this connection. Then whatever it did for the lost connection is
 * done. */
static bool has_it(const struct link *link, const struct ghost *ghost)
{
    return link->session.id == ghost->session.id && link->session.start == ghost->session.start &&
           is_near(link, ghost) && strcmp(link->session.peer, ghost->session.peer) == 0;
}

static void look_for(struct remote *remote, struct ghost *ghost)
{
    struct request *request = statement_new(remote, &handler);
    if (request != NULL) {
        request->argument = ghost;
        request->alone = true;
        ghost->errand = request;
        if (remote->dialect->ghost_look(request, &ghost->session)) {
            queue_first(
                request); /* later requests may wait for a row that the ghost keeps locked */
            return;
        }
        ghost->errand = NULL;
        statement_free(request);
    }
    remote->ghost_ns = remote_now(remote) + 1000 * NS_PER_MS;
}

static void end_errand(struct request *request)
{
    struct remote *remote = remote_of(request);
    struct ghost *ghost = request->argument;
    ghost->errand = NULL;
    remote->ghost_ns = remote_now(remote);
    statement_free(request);
}

static void look_later(struct request *request)
{
    struct remote *remote = remote_of(request);
    struct ghost *ghost = request->argument;
    ghost->looks += ghost->looks < AGAIN_STEPS;
    ghost->look_ns = remote_now(remote) + locks_jitter(&remote->locks, AGAIN_NS << ghost->looks);
    end_errand(request);
}

static void answered(struct request *request)
{
    struct remote *remote = remote_of(request);
    struct ghost *ghost = request->argument;
    enum ghost_answer answer = GHOST_THERE; /* the request may have moved to another connection */
    if (is_near(request->link, ghost))
        answer = remote->dialect->ghost_take(request, &ghost->session);
    if (answer == GHOST_ASKED) {
        queue_first(request);
    } else if (answer == GHOST_GONE) {
        lay(remote, ghost);
        remote->ghost_ns = remote_now(remote);
        statement_free(request);
    } else {
        look_later(request);
    }
}

static void failed(struct request *request, const struct fault *fault)
{
    (void)fault;
    look_later(request);
}

static void lost(struct request *request, bool sent)
{
    (void)sent;
    look_later(request);
}

static const struct handler handler = {.answered = answered, .failed = failed, .lost = lost};

void ghost_unsent(struct remote *remote)
{
    for (struct ghost *ghost = remote->ghosts; ghost != NULL; ghost = ghost->next) {
        struct request *request = ghost->errand;
        if (request == NULL || request->base.flying)
            continue;
        queue_remove(request);
        end_errand(request); /* its look is due: the next connection begins with it */
    }
}

/* ---- by timer ----------------------------------------------------------------------------------- */

static void next_look(struct remote *remote, int64_t due_ns)
{
    if (due_ns < remote->ghost_ns)
        remote->ghost_ns = due_ns;
}

void ghost_turn(struct remote *remote)
{
    struct ghost *ghost, *next;
    int64_t now = remote_now(remote);
    if (remote->ghosts == NULL || now < remote->ghost_ns || remote->main->state != LINK_READY)
        return;
    remote->ghost_ns = MORTISE_NEVER;
    for (ghost = remote->ghosts; ghost != NULL; ghost = next) {
        bool known = ghost->session.id != 0 && is_near(remote->main, ghost);
        next = ghost->next;
        if (ghost->errand != NULL)
            continue;
        if (ghost->until_ns <= now || (known && has_it(remote->live, ghost)))
            lay(remote, ghost);
        else if (known && ghost->look_ns <= now)
            look_for(remote, ghost);
        else
            next_look(remote, known ? ghost->look_ns : ghost->until_ns);
    }
}

int64_t ghost_due(const struct remote *remote)
{
    bool looks = remote->ghosts != NULL && remote->main->state == LINK_READY;
    return looks ? remote->ghost_ns : MORTISE_NEVER;
}

void ghost_free(struct remote *remote)
{
    while (remote->ghosts != NULL)
        lay(remote, remote->ghosts);
}
