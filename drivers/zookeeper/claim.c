/* claim.c - a claim on a name, from the node that is made for it to the node that is deleted; the picture
 * and its holes stand in internal.h. */
#include "driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AGAIN_NS (1000 * NS_PER_MS)
#define REFUSED_NS (10 * 1000 * NS_PER_MS)

/* ---- names and claims ------------------------------------------------------------------------------ */

static struct name *name_of(struct driver *driver, const char *name, size_t name_len, bool make)
{
    char folder[FOLDER_MAX];
    struct name *found;
    folder_of_name(name, name_len, driver->root[0] == '\0', folder);
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
    HASH_ADD(hh, driver->names, folder, length, found);
    if (found->hh.tbl == NULL) {
        free(found);
        return NULL;
    }
    return found;
}

static void name_free(struct driver *driver, struct name *name)
{
    HASH_DELETE(hh, driver->names, name);
    free(name);
}

struct claim *claim_find(struct driver *driver, const mortise_op *op)
{
    struct name *name = name_of(driver, op->name, op->name_len, false);
    struct claim *claim = name == NULL ? NULL : name->claims;
    while (claim != NULL && memcmp(&claim->grant, &op->grant, sizeof(op->grant)) != 0)
        claim = claim->next;
    return claim;
}

struct claim *claim_new(struct driver *driver, const mortise_op *op)
{
    struct name *name = name_of(driver, op->name, op->name_len, true);
    struct claim *claim = name == NULL ? NULL : calloc(1, sizeof(*claim));
    if (claim == NULL) {
        if (name != NULL && name->claims == NULL)
            name_free(driver, name);
        return NULL;
    }
    claim->name = name;
    claim->grant = op->grant;
    claim->ends_ns = MORTISE_NEVER;
    DL_APPEND(name->claims, claim);
    return claim;
}

static void claim_free(struct driver *driver, struct claim *claim)
{
    DL_DELETE(driver->old_claims, claim);
    queue_forget(claim);
    free(claim);
}

static void not_late(struct driver *driver, struct claim *claim)
{
    if (claim->late)
        DL_DELETE2(driver->backlog, claim, prev_late, next_late);
    claim->late = false;
}

bool claims_stuck(const struct driver *driver)
{
    bool stuck = false;
    for (struct name *name = driver->names; name != NULL; name = name->hh.next)
        for (struct claim *claim = name->claims; claim != NULL; claim = claim->next) {
            if (claim->goal != GOAL_LEAVE || !claim->refused)
                return false;
            stuck |= !claim->behind;
        }
    return stuck && driver->queries == NULL;
}

static void note_refused(struct driver *driver, struct claim *claim, bool refused)
{
    driver->refused_claims += refused - claim->refused;
    claim->refused = refused;
    if (driver->refused_claims > 0)
        lease_sweep_by(driver, now_of(driver)); /* is it the last that keeps the session alive? */
}

void claim_end(struct driver *driver, struct claim *claim, mortise_status status)
{
    struct name *name = claim->name;
    while (claim->releases != NULL) {
        mortise_op *op = claim->releases;
        LL_DELETE(claim->releases, op);
        op->sure = true;
        driver->host->complete(driver->host, op, status);
    }
    if (claim->op != NULL) {
        claim->op->hint_ms = -1;
        driver->host->complete(driver->host, claim->op, MORTISE_BUSY);
    }
    claim->op = NULL;
    not_late(driver, claim);
    DL_DELETE(name->claims, claim);
    if (name->claims == NULL)
        name_free(driver, name);
    note_refused(driver, claim, false);
    claim->ended = true;
    claim->name = NULL;
    claim->step++;
    DL_APPEND(driver->old_claims, claim);
    if (claim->pending == 0)
        claim_free(driver, claim);
}

void claims_each(struct driver *driver, claim_visit *visit)
{
    for (struct name *name = driver->names, *next; name != NULL; name = next) {
        next = name->hh.next;
        for (struct claim *claim = name->claims, *after; claim != NULL; claim = after) {
            after = claim->next; /* with the last claim the name goes, and this is NULL */
            visit(driver, claim);
        }
    }
}

static void free_one(struct driver *driver, struct claim *claim)
{
    claim->pending = 0;     /* their answers were thrown away */
    claim->releases = NULL; /* none are left, nor acquires */
    claim->op = NULL;
    claim_end(driver, claim, MORTISE_OK);
}

void claims_free(struct driver *driver)
{
    claims_each(driver, free_one);
    while (driver->old_claims != NULL)
        claim_free(driver, driver->old_claims);
    watches_end(driver);
}

/* ---- requests of a claim ---------------------------------------------------------------------------- */

struct reply_to claim_reply(struct claim *claim,
                            void (*answered)(struct driver *driver, struct request *request))
{
    return (struct reply_to){answered, claim, claim->step, false};
}

/* Counts what was sent. What was not (out of memory) is as if its reply were lost: it is made up for after
 * the next connection, or by the next event; and the acquire is told. */
bool claim_counted(struct driver *driver, struct claim *claim, bool sent)
{
    claim->pending += sent;
    if (!sent)
        claim_again(driver, claim, AGAIN_NS);
    if (!sent && claim->op != NULL) {
        mortise_op *op = claim->op;
        claim->op = NULL;
        claim->goal = GOAL_LEAVE;
        fault_tell(driver, op, claim->sent ? MORTISE_INDETERMINATE : MORTISE_NOMEM, ZSYSTEMERROR);
    }
    return sent;
}

/* An answer for it is here. False: it means nothing to it any more, or the connection was lost. */
bool claim_arrived(struct driver *driver, struct request *request, struct claim *claim)
{
    claim->pending--;
    if (claim->ended) {
        if (claim->pending == 0)
            claim_free(driver, claim);
        return false;
    }
    return request->step == claim->step && !fault_is_loss(request->rc);
}

void claim_fail(struct driver *driver, struct claim *claim, mortise_status status, int rc)
{
    mortise_op *op = claim->op;
    claim->op = NULL;
    if (op != NULL)
        fault_tell(driver, op, status, rc);
    claim->goal = GOAL_LEAVE;
    claim_go(driver, claim);
}

void claim_refuse(struct driver *driver, struct claim *claim, const char *node)
{
    mortise_op *op = claim->op;
    char folder[PATH_SIZE];
    claim->op = NULL;
    path_of(driver, claim->name->folder, NULL, folder);
    if (op != NULL)
        fault_foreign(driver, op, folder, node);
    claim->goal = GOAL_LEAVE;
    claim_go(driver, claim);
}

void claim_again(struct driver *driver, struct claim *claim, int64_t after_ns)
{
    claim->again_ns = now_of(driver) + after_ns;
    lease_sweep_by(driver, claim->again_ns);
}

/* Curator asks a holder to give up by writing "__REVOKE__" over its node. Ours does not; it goes on to say who it is. */
static void write_note_again(struct driver *driver, struct claim *claim,
                             const struct request *request)
{
    static const struct reply_to nobody = {NULL, NULL, 0, false};
    mortise_info ignored = {.size = sizeof(ignored)};
    char path[PATH_SIZE], data[DATA_MAX];
    if (note_read(request->text, &ignored) >= 0 || claim->noted_base < 0)
        return;
    path_of(driver, claim->name->folder, claim->node, path);
    send_set(driver, path, data, note_write(driver, claim->noted_base, data), -1, nobody);
}

static void watched_own(struct driver *driver, struct request *request)
{
    struct claim *claim = request->target;
    claim->pending--;
    if (claim->ended) {
        if (claim->pending == 0)
            claim_free(driver, claim);
        return;
    }
    if (request->step != claim->step || claim->goal != GOAL_HOLD)
        return;
    if (request->rc == ZNONODE) {
        claim->gone = true;
        driver->host->doubt(driver->host, claim->name->name, claim->name->name_len);
    } else if (request->rc != ZOK)
        claim->watched = false;
    else
        write_note_again(driver, claim, request);
}

void claim_watch_own(struct driver *driver, struct claim *claim)
{
    char path[PATH_SIZE];
    path_of(driver, claim->name->folder, claim->node, path);
    bool watch = watch_fits(driver, path);
    bool sent = send_get(driver, path, watch, claim_reply(claim, watched_own));
    claim->pending += sent;
    claim->looked_ns = now_of(driver);
    claim->watched = sent && watch;
}

/* ---- leaving ---------------------------------------------------------------------------------------- */

/* It stands before everybody while its session lives: never forgotten. */
static void not_deleted(struct driver *driver, struct claim *claim, int rc)
{
    bool passing = rc == ZTHROTTLEDOP || rc == ZSYSTEMERROR || claim->behind;
    driver->host->log(driver->host, 3, "a node could not be deleted: %s", zerror(rc));
    note_refused(driver, claim, rc == ZNOAUTH);
    claim_again(driver, claim, passing ? AGAIN_NS : REFUSED_NS);
    while (claim->releases != NULL) {
        mortise_op *op = claim->releases;
        LL_DELETE(claim->releases, op);
        fault_tell(driver, op, MORTISE_BACKEND, rc);
    }
}

static void deleted(struct driver *driver, struct request *request)
{
    struct claim *claim = request->target;
    int rc = request->rc;
    bool lost = fault_is_loss(rc) && rc != ZSESSIONEXPIRED;
    /* one that was sent while the connection was lost may have gone with the next, before the one of the next step */
    if (!claim->ended && (lost || (rc == ZOK && request->step != claim->step)))
        claim->maybe_deleted = true;
    if (!claim_arrived(driver, request, claim))
        return;
    if (claim->look_again && (rc == ZOK || rc == ZNONODE)) {
        claim->look_again = false;
        claim->maybe = claim->maybe_deleted = true;
        snprintf(claim->old_node, sizeof(claim->old_node), "%s", claim->node);
        claim->node[0] = '\0';
        claim_go(driver, claim);
    } else if (rc == ZOK || (rc == ZNONODE && claim->maybe_deleted))
        claim_end(driver, claim, MORTISE_OK);
    else if (rc == ZNONODE)
        claim_end(driver, claim, MORTISE_LOST);
    else
        not_deleted(driver, claim, rc);
}

/* Left behind in a session that was abandoned. */
static void take_old_node(struct claim *claim)
{
    snprintf(claim->node, sizeof(claim->node), "%s", claim->old_node);
    claim->old_node[0] = '\0';
    claim->maybe_deleted = true;
}

static void leave(struct driver *driver, struct claim *claim)
{
    char path[PATH_SIZE];
    if (claim->node[0] == '\0') {
        if (claim->creating > 0) /* its answer comes, or its loss */
            return;
        if (claim->maybe) {
            queue_list(driver, claim, LOOK_SURE);
            return;
        }
        if (claim->old_node[0] == '\0') {
            claim_end(driver, claim, MORTISE_LOST);
            return;
        }
        take_old_node(claim);
    }
    path_of(driver, claim->name->folder, claim->node, path);
    claim_counted(driver, claim, send_delete(driver, path, claim_reply(claim, deleted)));
}

/* ---- the backlog ---------------------------------------------------------------------------------------- */

/* Thousands of claims begin together, or go on after a reconnection: they are not all sent at once, or a
 * beat would be answered after them. In the order in which they came: a name's next acquire is behind its
 * release. */
static bool is_late(struct driver *driver, struct claim *claim)
{
    if (claim->late)
        return true;
    if (claim->goal == GOAL_HOLD || (driver->backlog == NULL && driver->session->open < OPEN_MAX))
        return false;
    claim->late = true;
    claim->step++; /* what it waited for before does not matter any more */
    claim->first = false;
    DL_APPEND2(driver->backlog, claim, prev_late, next_late);
    return true;
}

/* ---- what is next --------------------------------------------------------------------------------------- */

static void go_now(struct driver *driver, struct claim *claim)
{
    if (claim->goal == GOAL_LEAVE) {
        claim->step++;
        leave(driver, claim);
    } else if (claim->goal == GOAL_HOLD) {
        if (!claim->watched && !claim->gone && claim->looked_ns != 0)
            claim_watch_own(driver, claim);
    } else if (claim->maybe || claim->creating > 0) {
        claim->maybe = true;
        queue_list(driver, claim, LOOK_SURE);
    } else if (claim->node[0] != '\0')
        queue_list(driver, claim, LOOK_SURE);
    else if (claim->try_once)
        queue_list(driver, claim, LOOK_SYNCED);
    else
        queue_make(driver, claim);
}

void claim_go(struct driver *driver, struct claim *claim)
{
    bool nothing = claim->node[0] == '\0' && claim->old_node[0] == '\0' && !claim->maybe &&
                   claim->creating == 0;
    if (claim->goal == GOAL_LEAVE && nothing)
        claim_end(driver, claim, claim->gone ? MORTISE_LOST : MORTISE_OK);
    else if (is_ready(driver) && !is_late(driver, claim))
        go_now(driver, claim);
}

void claims_late(struct driver *driver)
{
    driver->barrier = BARRIER_OWED;
    while (driver->backlog != NULL && is_ready(driver) && driver->session->open < OPEN_MAX) {
        struct claim *claim = driver->backlog;
        not_late(driver, claim);
        go_now(driver, claim);
    }
    driver->barrier = BARRIER_EACH;
}

/* ---- events --------------------------------------------------------------------------------------------- */

static void event_for(struct driver *driver, struct claim *claim, const char *node, bool is_deleted)
{
    if (claim->goal == GOAL_OWN && claim->late)
        return; /* it looks when it is its turn */
    if (claim->goal == GOAL_OWN && claim->before != NULL && strcmp(claim->before, node) == 0) {
        if (is_deleted)
            queue_list(driver, claim, LOOK_HERE);
        else
            queue_watch_before(driver, claim);
    } else if (claim->goal == GOAL_HOLD && strcmp(claim->node, node) == 0) {
        if (!is_deleted) { /* the event has used the watch up */
            claim_watch_own(driver, claim);
            return;
        }
        claim->gone = true;
        driver->host->doubt(driver->host, claim->name->name, claim->name->name_len);
    }
}

void claims_event(struct driver *driver, const char *path, bool is_deleted)
{
    size_t root = strlen(driver->root);
    const char *slash = strrchr(path, '/'), *folder = path + root + 1;
    struct name *name = NULL;
    if (strncmp(path, driver->root, root) == 0 && slash != NULL && slash > folder)
        HASH_FIND(hh, driver->names, folder, (size_t)(slash - folder), name);
    struct claim *claim = name == NULL ? NULL : name->claims;
    for (struct claim *after; claim != NULL; claim = after) {
        after = claim->next;
        event_for(driver, claim, slash + 1, is_deleted);
    }
}
