/* ghost.c - lost connections whose sessions may still execute what they were sent. protocol.md says why that
 * matters.
 *
 * | step | statement                                  | a row, or done | no row        | failed, lost, still there |
 * |------|--------------------------------------------|----------------|---------------|---------------------------|
 * | LOOK | is the session in the server's list?       | END            | it is gone    | LOOK, after a pause       |
 * | END  | KILL CONNECTION                            | LOOK, after a pause                                         |
 *
 * A session has gone from the list when its transaction has ended. Its number may be given to another session after the
 * server has restarted, so the client's address must be the same, too. */
#include "driver.h"

#include <stdlib.h>
#include <string.h>

#define AGAIN_NS (5 * NS_PER_MS)
#define AGAIN_STEPS 8 /* doublings, to 1.3 s: some sessions cannot be ended at once */

struct ghost {
    struct ghost *next;
    unsigned long id;
    char peer[PEER_SIZE];
    int64_t until_ns;   /* gone by then, in any case */
    int64_t look_ns;    /* not before */
    int64_t settled_ns; /* writes no more */
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

/* It may write, or wait for a row while it keeps others locked. */
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

/* A ghost is forgotten after the longest ttl. */
void ghost_make(struct link *link, const struct request *requests)
{
    struct driver *driver = link->driver;
    size_t count = 0;
    bool matters = false;
    for (const struct request *request = requests; request != NULL; request = request->next) {
        count += was_asked(request);
        matters = matters || may_write(request);
    }
    if (!matters)
        return;
    struct ghost *ghost = calloc(1, sizeof(*ghost) + count * sizeof(ghost->grants[0]));
    if (ghost == NULL && (ghost = calloc(1, sizeof(*ghost))) == NULL)
        return; /* a claim may last until its ttl */
    ghost->id = link->id;
    memcpy(ghost->peer, link->peer, sizeof(ghost->peer));
    int64_t now = driver->locks.host->now(driver->locks.host);
    ghost->until_ns = now + MORTISE_TTL_MAX_MS * NS_PER_MS;
    ghost->settled_ns = now + 2 * driver->values[OPTION_COMMAND_TIMEOUT].number * NS_PER_MS;
    for (const struct request *request = requests; request != NULL; request = request->next)
        if (was_asked(request) && ghost->count < count)
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

static void lay(struct driver *driver, struct ghost *ghost)
{
    struct ghost **at = &driver->ghosts;
    while (*at != ghost)
        at = &(*at)->next;
    *at = ghost->next;
    free(ghost);
    note_settled(driver);
}

/* ---- errands ----------------------------------------------------------------------------------- */

static bool send(struct request *request, enum text_id id)
{
    const struct ghost *ghost = request->argument;
    struct values values = {.count = 0};
    value_number(&values, (int64_t)ghost->id);
    value_bytes(&values, ghost->peer, strlen(ghost->peer));
    request->alone = true;
    if (!statement_send(request, id, &values))
        return false;
    flight_first(request); /* what comes after it may wait for a row that the ghost keeps locked */
    return true;
}

static void look_for(struct driver *driver, struct ghost *ghost)
{
    struct request *request = statement_new(driver, &handler);
    if (request != NULL) {
        request->argument = ghost;
        ghost->errand = request;
        if (send(request, TEXT_GHOST_LOOK))
            return;
        ghost->errand = NULL;
        statement_free(request);
    }
    driver->ghost_ns = driver->locks.host->now(driver->locks.host) + 1000 * NS_PER_MS;
}

static void look_later(struct request *request)
{
    struct driver *driver = statement_driver(request);
    struct ghost *ghost = request->argument;
    int64_t now = driver->locks.host->now(driver->locks.host);
    ghost->errand = NULL;
    ghost->looks += ghost->looks < AGAIN_STEPS;
    ghost->look_ns = now + locks_jitter(&driver->locks, AGAIN_NS << ghost->looks);
    driver->ghost_ns = now;
    statement_free(request);
}

static void answered(struct request *request)
{
    struct driver *driver = statement_driver(request);
    struct ghost *ghost = request->argument;
    if (request->id == TEXT_GHOST_LOOK && request->rows != NULL) {
        if (mysql_num_rows(request->rows) == 0) {
            lay(driver, ghost);
            driver->ghost_ns = driver->locks.host->now(driver->locks.host);
            statement_free(request);
            return;
        }
        if (send(request, TEXT_GHOST_END))
            return;
    }
    look_later(request);
}

/* Not there any more, perhaps: the next look shows it. */
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

/* ---- by timer ---------------------------------------------------------------------------------- */

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
        else if (ghost->look_ns <= now)
            look_for(driver, ghost);
        else
            next_look(driver, ghost->look_ns);
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
