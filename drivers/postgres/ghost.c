/* ghost.c - lost connections whose backends may still execute what they were sent. protocol.md says why that
 * matters. */
#include "driver.h"

#include <stdlib.h>
#include <string.h>

#define AGAIN_NS (5 * NS_PER_MS)
#define AGAIN_STEPS 8    /* doublings, to 1.3 s: some backends cannot be ended */
#define DRIFT_SHARE 1000 /* a clock that is slower by more is broken */

struct ghost {
    struct ghost *next;
    int pid;               /* 0: not known */
    int64_t backend_start; /* 0: not known */
    int64_t until_ns;      /* gone by then, in any case */
    int64_t look_ns;       /* not before */
    int64_t settled_ns;    /* writes no more */
    unsigned looks;
    struct request *errand;
    size_t count; /* of grants that were on their way to it */
    mortise_grant_id grants[];
};

static const struct handler handler;

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

/* It may write, or keep rows locked while it waits for the rest of a group. */
static bool may_write(const struct request *request)
{
    return request->lane != LANE_READING && request->handler != &handler;
}

/* Records are read when none of them writes any more. */
static void note_settled(struct driver *driver)
{
    driver->settled_ns = 0;
    for (const struct ghost *ghost = driver->ghosts; ghost != NULL; ghost = ghost->next)
        if (ghost->settled_ns > driver->settled_ns)
            driver->settled_ns = ghost->settled_ns;
}

/* How long something of it may still be executed. The server's clock was read a while ago, and may be slower than ours;
 * the commit comes after the look at the clock, and may wait (for a standby, for example). */
static int64_t pooled_ns(const struct link *link, int64_t now)
{
    const struct driver *driver = link->driver;
    int64_t drift_ns = (now - link->clock_ns) / DRIFT_SHARE;
    int64_t commit_ns = driver->values[OPTION_COMMAND_TIMEOUT].number * NS_PER_MS;
    return flight_patience_ns(driver) * 102 / 100 + 2 * NS_PER_MS + drift_ns + commit_ns;
}

/* A ghost is forgotten after the longest ttl; behind a pooler, when nothing of it can be executed. */
void ghost_make(struct link *link, const struct request *requests)
{
    struct driver *driver = link->driver;
    size_t count = 0;
    bool matters =
        false; /* it is to be ended; or, where its backend is not known, records are read after it */
    for (const struct request *request = requests; request != NULL; request = request->next) {
        count += was_asked(request);
        matters =
            matters || writes_record(request) || (link->backend_start != 0 && may_write(request));
    }
    if (count == 0 && !matters)
        return;
    struct ghost *ghost = calloc(1, sizeof(*ghost) + count * sizeof(ghost->grants[0]));
    if (ghost == NULL && (ghost = calloc(1, sizeof(*ghost))) == NULL)
        return; /* a claim may last until its ttl */
    ghost->pid = link->backend_start != 0 ? link->pid : 0;
    ghost->backend_start = link->backend_start;
    int64_t now = driver->locks.host->now(driver->locks.host);
    ghost->until_ns = now + MORTISE_TTL_MAX_MS * NS_PER_MS;
    ghost->settled_ns = now + 2 * driver->values[OPTION_COMMAND_TIMEOUT].number * NS_PER_MS;
    if (link->pooled)
        ghost->until_ns = ghost->settled_ns = now + pooled_ns(link, now);
    for (const struct request *request = requests; request != NULL; request = request->next)
        if (was_asked(request))
            ghost->grants[ghost->count++] = request->base.grant;
    ghost->next = driver->ghosts;
    driver->ghosts = ghost;
    driver->ghost_ns = now;
    note_settled(driver);
}

bool ghost_has(const struct driver *driver, const mortise_grant_id *grant)
{
    for (const struct ghost *ghost = driver->ghosts; ghost != NULL; ghost = ghost->next)
        for (size_t i = 0; i < ghost->count; i++)
            if (memcmp(&ghost->grants[i], grant, sizeof(*grant)) == 0)
                return true;
    return false;
}

static void look_for(struct driver *driver, struct ghost *ghost)
{
    struct request *request = statement_new(driver, &handler);
    if (request == NULL) {
        driver->ghost_ns = driver->locks.host->now(driver->locks.host) + 1000 * NS_PER_MS;
        return;
    }
    request->argument = ghost;
    ghost->errand = request;
    args_int4(&request->args, ghost->pid);
    args_time(&request->args, ghost->backend_start);
    request->alone = true;
    statement_send(request, TEXT_GHOST, LANE_LAZY);
    flight_first(request); /* what comes after it may wait for a row that the ghost keeps locked */
}

static void lay(struct driver *driver, struct ghost *ghost)
{
    struct ghost **at = &driver->ghosts;
    while (*at != ghost)
        at = &(*at)->next;
    *at = ghost->next;
    free(ghost);
    note_settled(driver);
}

/* No row: it is gone, and whatever it did is done. No answer: look again. */
static void answered(struct request *request)
{
    struct driver *driver = statement_driver(request);
    struct ghost *ghost = request->argument;
    int64_t now = driver->locks.host->now(driver->locks.host);
    ghost->errand = NULL;
    ghost->looks += ghost->looks < AGAIN_STEPS;
    if (request->result != NULL && PQresultStatus(request->result) == PGRES_TUPLES_OK &&
        PQntuples(request->result) == 0)
        lay(driver, ghost);
    else
        ghost->look_ns = now + locks_jitter(&driver->locks, AGAIN_NS << ghost->looks);
    driver->ghost_ns = now;
    statement_free(request);
}

static void failed(struct request *request, const struct fault *fault)
{
    (void)fault;
    answered(request);
}

static void lost(struct request *request, bool sent)
{
    (void)sent;
    answered(request);
}

static const struct handler handler = {.answered = answered, .failed = failed, .lost = lost};

static void next_look(struct driver *driver, int64_t due_ns)
{
    if (due_ns < driver->ghost_ns)
        driver->ghost_ns = due_ns;
}

void ghost_turn(struct driver *driver)
{
    struct ghost *ghost, *next;
    int64_t now = driver->locks.host->now(driver->locks.host);
    if (driver->ghosts == NULL || now < driver->ghost_ns || driver->main.state != LINK_READY)
        return;
    driver->ghost_ns = MORTISE_NEVER;
    for (ghost = driver->ghosts; ghost != NULL; ghost = next) {
        next = ghost->next;
        if (ghost->errand != NULL)
            continue;
        if (ghost->until_ns <= now)
            lay(driver, ghost);
        else if (ghost->pid != 0 && ghost->look_ns <= now)
            look_for(driver, ghost);
        else
            next_look(driver, ghost->pid != 0 ? ghost->look_ns : ghost->until_ns);
    }
}

int64_t ghost_due(const struct driver *driver)
{
    bool looks = driver->ghosts != NULL && driver->main.state == LINK_READY;
    return looks ? driver->ghost_ns : MORTISE_NEVER;
}

void ghost_free(struct driver *driver)
{
    while (driver->ghosts != NULL)
        lay(driver, driver->ghosts);
}
