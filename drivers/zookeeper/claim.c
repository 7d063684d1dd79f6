/* claim.c - the claims by name, their states, and the count of their requests. claim.h has the table of the states. */
#include "claim.h"

#include <stdlib.h>
#include <string.h>

#define AGAIN_NS (1000 * NS_PER_MS)
#define LOOK_GRID_NS (100 * NS_PER_MS) /* claims that fall due together need one sweep */

/* ---- names and claims ------------------------------------------------------------------------------ */

static struct name *name_of(struct driver *driver, const char *name, size_t name_len,
                            enum part part, bool make)
{
    char folder[PART_MAX];
    struct name *found;
    folder_of_name(name, name_len, driver->root[0] == '\0', folder);
    folder_of_part(driver->style, part, folder);
    size_t length = strlen(folder);
    HASH_FIND(hh, driver->names, folder, length, found);
    if (found != NULL || !make)
        return found;
    found = calloc(1, sizeof(*found) + length + 1);
    if (found == NULL)
        return NULL;
    memcpy(found->folder, folder, length + 1);
    memcpy(found->name, name, name_len);
    found->name_len = name_len;
    const char *slash = strrchr(found->folder, '/');
    found->above = slash == NULL ? NULL : strndup(folder, (size_t)(slash - found->folder));
    if (slash == NULL || found->above != NULL)
        HASH_ADD(hh, driver->names, folder, length, found);
    if (found->hh.tbl == NULL) {
        free(found->above);
        free(found);
        return NULL;
    }
    return found;
}

static void name_free(struct driver *driver, struct name *name)
{
    if (driver->next_name == name)
        driver->next_name = name->hh.next;
    HASH_DELETE(hh, driver->names, name);
    free(name->above);
    free(name);
}

struct claim *claim_find(struct driver *driver, const mortise_op *op)
{
    struct name *name = name_of(driver, op->name, op->name_len, PART_LEASES, false);
    struct claim *claim = name == NULL ? NULL : name->claims;
    while (claim != NULL && memcmp(&claim->grant, &op->grant, sizeof(op->grant)) != 0)
        claim = claim->next;
    return claim;
}

struct claim *claims_of_path(struct driver *driver, const char *path, const char **node)
{
    size_t root = strlen(driver->root);
    const char *slash = strrchr(path, '/'), *folder = path + root + 1;
    struct name *name = NULL;
    if (strncmp(path, driver->root, root) != 0 || slash == NULL || slash <= folder)
        return NULL;
    HASH_FIND(hh, driver->names, folder, (size_t)(slash - folder), name);
    *node = slash + 1;
    return name == NULL ? NULL : name->claims;
}

static struct claim *new_in(struct driver *driver, const char *text, size_t text_len,
                            enum part part, const mortise_grant_id *grant)
{
    struct name *name = name_of(driver, text, text_len, part, true);
    struct claim *claim = name == NULL ? NULL : calloc(1, sizeof(*claim));
    if (claim == NULL) {
        if (name != NULL && name->claims == NULL)
            name_free(driver, name);
        return NULL;
    }
    claim->name = name;
    claim->part = part;
    claim->grant = *grant;
    claim->state = CLAIM_IDLE;
    claim->ends_ns = MORTISE_NEVER;
    claim->look_ns = MORTISE_NEVER;
    DL_APPEND(name->claims, claim);
    return claim;
}

struct claim *claim_new(struct driver *driver, const mortise_op *op)
{
    return new_in(driver, op->name, op->name_len, PART_LEASES, &op->grant);
}

struct claim *claim_new_gate(struct driver *driver, struct claim *claim)
{
    const struct name *name = claim->name;
    struct claim *gate = new_in(driver, name->name, name->name_len, PART_GATE, &claim->grant);
    if (gate == NULL)
        return NULL;
    gate->opens = claim;
    claim->gate = gate;
    return gate;
}

void claim_part(struct claim *claim, struct claim *gate)
{
    if (claim != NULL)
        claim->gate = NULL;
    if (gate != NULL)
        gate->opens = NULL;
}

static void claim_free(struct driver *driver, struct claim *claim)
{
    DL_DELETE(driver->old_claims, claim);
    free(claim->before);
    free(claim->passed);
    free(claim->opened);
    free(claim);
}

void claim_not_late(struct driver *driver, struct claim *claim)
{
    if (claim->prev_late != NULL)
        DL_DELETE2(driver->backlog, claim, prev_late, next_late);
    claim->prev_late = claim->next_late = NULL;
}

void claim_not_raising(struct driver *driver, struct claim *claim)
{
    if (claim->prev_raising != NULL)
        DL_DELETE2(driver->raising, claim, prev_raising, next_raising);
    claim->prev_raising = claim->next_raising = NULL;
}

bool claim_is_late(struct driver *driver, struct claim *claim)
{
    if (claim->prev_late != NULL)
        return true;
    if (driver->backlog == NULL && driver->session->open < OPEN_MAX)
        return false;
    DL_APPEND2(driver->backlog, claim, prev_late, next_late);
    return true;
}

bool claim_may_pass(const struct driver *driver, const struct claim *claim,
                    const struct request *request)
{
    struct contender before, own;
    enum node_style style = claim_style(driver, claim);
    return node_read(claim->before, style, &before) && node_read(claim->node, style, &own) &&
           number_compare(before.number, own.number) == NUMBER_UNDECIDED &&
           request->stat.czxid > claim->czxid;
}

void claims_sweep_by(struct driver *driver, int64_t at_ns)
{
    if (at_ns < driver->sweep_ns)
        driver->sweep_ns = at_ns;
}

void claim_look_by(struct driver *driver, struct claim *claim, int64_t after_ns)
{
    claim->look_ns = (now_of(driver) + after_ns) / LOOK_GRID_NS * LOOK_GRID_NS + LOOK_GRID_NS;
    claims_sweep_by(driver, claim->look_ns);
}

void claim_retry(struct driver *driver, struct claim *claim, int64_t after_ns)
{
    claim->retry_ns = now_of(driver) + after_ns;
    claims_sweep_by(driver, claim->retry_ns);
}

void claim_tell(struct driver *driver, struct claim *claim)
{
    driver->host->doubt(driver->host, claim->name->name, claim->name->name_len);
}

/* ---- states ----------------------------------------------------------------------------------------- */

/* A try is BUSY because somebody holds the lock, for an unknown time. Any other acquire here is a repeated one, and what the
 * first one got is lost. The core may ask again at once under another grant, and that acquire waits for its turn. */
static void answer_busy(struct driver *driver, struct claim *claim)
{
    mortise_op *op = claim->op;
    claim->op = NULL;
    op->hint_ms = (op->flags & MORTISE_OP_TRY) != 0 ? -1 : 0;
    driver->host->complete(driver->host, op, MORTISE_BUSY);
}

void claim_become(struct driver *driver, struct claim *claim, enum claim_state state)
{
    bool was_held = claim->state == CLAIM_HELD || claim->state == CLAIM_GONE;
    if (claim->op != NULL && was_held && state != CLAIM_HELD)
        answer_busy(driver, claim);
    driver->refused_claims += (state == CLAIM_REFUSED);
    driver->refused_claims -= (claim->state == CLAIM_REFUSED);
    driver->held_claims += (state == CLAIM_HELD);
    driver->held_claims -= (claim->state == CLAIM_HELD);
    claim->state = state;
    if (state != CLAIM_FIRST)
        claim_not_raising(driver, claim);
    if (claim->downgrade != NULL && state != CLAIM_HELD) {
        mortise_op *op = claim->downgrade;
        claim->downgrade = NULL;
        driver->host->complete(driver->host, op, MORTISE_LOST);
    }
    if (driver->refused_claims > 0)
        claims_sweep_by(driver, now_of(driver)); /* checks whether only such claims are left */
}

void claim_wait(struct driver *driver, struct claim *claim)
{
    mortise_op *op = claim_whole(claim)->op;
    claim_become(driver, claim, CLAIM_WAITING);
    if (op != NULL)
        driver->host->waiting(driver->host, op);
}

void claim_end(struct driver *driver, struct claim *claim, mortise_status status)
{
    struct name *name = claim->name;
    while (claim->releases != NULL) {
        mortise_op *op = claim->releases;
        LL_DELETE(claim->releases, op);
        op->sure = true;
        driver->host->complete(driver->host, op, claim->lost ? MORTISE_LOST : status);
    }
    if (claim->op != NULL)
        answer_busy(driver, claim);
    claim_part(claim, claim->gate);
    claim_part(claim->opens, claim);
    claim_not_late(driver, claim);
    DL_DELETE(name->claims, claim);
    if (name->claims == NULL)
        name_free(driver, name);
    claim->name = NULL;
    claim->step++;
    claim_become(driver, claim, CLAIM_ENDED);
    DL_APPEND(driver->old_claims, claim);
    if (claim->pending == 0)
        claim_free(driver, claim);
}

void claims_each(struct driver *driver, claim_visit *visit)
{
    for (struct name *name = driver->names; name != NULL; name = driver->next_name) {
        driver->next_name = name->hh.next;
        for (struct claim *claim = name->claims, *after; claim != NULL; claim = after) {
            after = claim->next; /* NULL at the last claim, with which the name ends */
            visit(driver, claim);
        }
    }
    driver->next_name = NULL;
}

static void free_one(struct driver *driver, struct claim *claim)
{
    claim->pending = 0;     /* their answers were dropped */
    claim->releases = NULL; /* all ops have been completed */
    claim->op = claim->downgrade = NULL;
    claim_end(driver, claim, MORTISE_OK);
}

void claims_free(struct driver *driver)
{
    claims_each(driver, free_one);
    while (driver->old_claims != NULL)
        claim_free(driver, driver->old_claims);
    watches_end(driver);
}

/* ---- requests --------------------------------------------------------------------------------------- */

struct reply_to claim_reply(struct claim *claim, reply_handler *answered)
{
    return (struct reply_to){.answered = answered, .target = claim, .step = claim->step};
}

/* A request that was not sent, because there is no memory, counts as one whose reply was lost. The sweep tries again; if it
 * was an acquire, which has failed here, the sweep drops the claim. */
bool claim_sent(struct driver *driver, struct claim *claim, bool sent)
{
    mortise_op *op = claim->op;
    claim->pending += sent;
    if (sent)
        return true;
    claim_retry(driver, claim, AGAIN_NS);
    if (op != NULL) {
        claim->op = NULL;
        claim->ends_ns = 0;
        fault_tell(driver, op, claim_is_sent(claim) ? MORTISE_INDETERMINATE : MORTISE_NOMEM,
                   ZSYSTEMERROR);
    }
    return false;
}

struct claim *claim_answered(struct driver *driver, struct request *request)
{
    struct claim *claim = request->to.target;
    claim->pending--;
    if (claim->state != CLAIM_ENDED)
        return claim;
    if (claim->pending == 0)
        claim_free(driver, claim);
    return NULL;
}

struct claim *claim_arrived(struct driver *driver, struct request *request)
{
    struct claim *claim = claim_answered(driver, request);
    return claim != NULL && request->to.step == claim->step && !fault_is_loss(request->rc) ? claim
                                                                                           : NULL;
}
