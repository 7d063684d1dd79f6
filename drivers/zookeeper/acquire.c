/* acquire.c - the way of a claim to the head of its queue: makes its node, reads the folder, watches the node that blocks
 * it. claim.h has the table of its states; tokens.c goes on when it is first. */
#include "claim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FOLDER_TRIES 5
#define LOOK_AGAIN_NS (2000 * NS_PER_MS) /* if there is no room for a watch */
#define PERMITS_NS (500 * NS_PER_MS)     /* a node that refuses our permits may be gone by then */

/* ---- first, blocked, or a try that meets somebody ------------------------------------------------------ */

static const char *text_of(const char *text)
{
    return text == NULL ? "" : text;
}

static const char *node_of(const struct request *request)
{
    return strrchr(request->path, '/') + 1;
}

/* For a claim to be shared that has read a node which is exclusive only by its name. True: it looks again, or has failed. */
static bool is_opened(struct driver *driver, struct claim *claim, const struct request *request,
                      enum look look)
{
    mortise_info info = {.size = sizeof(info)};
    const char *node = node_of(request);
    if (!claim->kind.shared || request->rc != ZOK || note_read(request->text, &info) < 0 ||
        info.mode != MORTISE_SHARED || strcmp(text_of(claim->opened), node) == 0)
        return false;
    char *opened = strdup(node);
    if (opened == NULL && claim->state == CLAIM_MEETING) { /* BUSY would not be true */
        claim_fail(driver, claim, MORTISE_NOMEM, ZSYSTEMERROR);
        return true;
    }
    if (opened == NULL) {
        claim_retry(driver, claim, LOOK_AGAIN_NS);
        return false;
    }
    free(claim->opened);
    claim->opened = opened;
    if (claim->state == CLAIM_MEETING)
        claim_become(driver, claim, claim->node[0] != '\0' ? CLAIM_QUEUED : CLAIM_LOOKING);
    claim_list(driver, claim, look);
    return true;
}

static void holder_met(struct driver *driver, struct request *request)
{
    struct claim *claim = claim_arrived(driver, request);
    struct claim *whole = claim == NULL ? NULL : claim_whole(claim);
    if (claim == NULL || whole->op == NULL || is_opened(driver, claim, request, LOOK_SURE))
        return;
    if (request->rc == ZOK && whole->op->info != NULL) {
        mortise_info *info = whole->op->info;
        struct contender contender;
        note_holder(driver, driver->base, NULL, request, info);
        node_read(node_of(request), claim_style(driver, claim), &contender);
        if (contender.kind.shared)
            info->mode = MORTISE_SHARED;
        info->permits = contender.kind.permits;
        info->holders = 1; /* at least */
    }
    claim_drop(driver, whole); /* when it ends, the try is BUSY */
}

/* A try is not first: reads which contender is. */
static void meet_holder(struct driver *driver, struct claim *claim, const char *node)
{
    claim->step++;
    claim_become(driver, claim, CLAIM_MEETING);
    claim_sent(driver, claim,
               send_get(driver, claim->name->folder, node, claim_reply(claim, holder_met)));
}

/* The first contender has another number of permits: the acquire fails, and reports the owner of that node. */
static void other_permits_met(struct driver *driver, struct request *request)
{
    struct claim *claim = claim_arrived(driver, request);
    mortise_info info = {.size = sizeof(info)};
    struct contender contender;
    if (claim == NULL || claim->op == NULL)
        return;
    if (request->rc == ZNONODE) {
        claim_become(driver, claim, claim->node[0] != '\0' ? CLAIM_QUEUED : CLAIM_LOOKING);
        claim_list(driver, claim, LOOK_SURE);
        return;
    }
    node_read(node_of(request), claim_style(driver, claim), &contender);
    note_read(request->text, &info); /* an unreadable note: another client */
    fault_permits(driver, claim->op, contender.kind.permits, &info);
    claim->op = NULL;
    claim_drop(driver, claim);
}

/* Waits for this node. until_ns: until when, if because of its permits; else 0. False: the acquire has failed. */
static bool wait_for(struct driver *driver, struct claim *claim, const char *node, int64_t until_ns)
{
    char *before = strdup(node);
    free(claim->before);
    claim->before = before;
    claim->crowded = false;
    claim->permits_until_ns = until_ns;
    if (before == NULL)
        claim_fail(driver, claim, MORTISE_NOMEM, ZSYSTEMERROR);
    else
        claim_wait(driver, claim);
    return before != NULL;
}

/* The other node may be about to go: a caller that is refused for the same reason deletes its node only afterwards. So a
 * caller that may wait watches that node for a while before it fails. */
static void meet_other_permits(struct driver *driver, struct claim *claim, const char *node)
{
    bool is_known = claim->permits_until_ns != 0 && strcmp(text_of(claim->before), node) == 0;
    int64_t until_ns = is_known ? claim->permits_until_ns : now_of(driver) + PERMITS_NS;
    if (claim->look != LOOK_SURE) {
        claim_list(driver, claim, LOOK_SURE);
        return;
    }
    if (now_of(driver) < until_ns && !claim_is_try(claim)) {
        if (!wait_for(driver, claim, node, until_ns))
            return;
        claim_watch_before(driver, claim);
        claim_retry(driver, claim, until_ns - now_of(driver));
        return;
    }
    claim->step++;
    claim_become(driver, claim, CLAIM_MEETING);
    claim_sent(driver, claim,
               send_get(driver, claim->name->folder, node, claim_reply(claim, other_permits_met)));
}

static void watched_before(struct driver *driver, struct request *request)
{
    struct claim *claim = claim_arrived(driver, request);
    if (claim == NULL || claim->state != CLAIM_WAITING)
        return;
    if (request->rc == ZNONODE)
        claim_list(driver, claim, LOOK_HERE);
    else if (request->rc != ZOK)
        claim_fail(driver, claim, MORTISE_BACKEND, request->rc);
    else if (is_opened(driver, claim, request, LOOK_HERE))
        return;
    else if (!claim->crowded && claim_may_pass(driver, claim, request)) {
        free(claim->passed);
        claim->passed = claim->before;
        claim->before = NULL;
        claim_list(driver, claim, LOOK_HERE);
    } else if (!request->watches && claim->retry_ns == 0)
        claim_retry(driver, claim, LOOK_AGAIN_NS);
}

void claim_watch_before(struct driver *driver, struct claim *claim)
{
    claim_sent(driver, claim,
               send_get_and_watch(driver, claim->name->folder, claim->before,
                                  claim_reply(claim, watched_before)));
}

/* The permits are used up: watches as many contenders before it as there are permits. It has watched most of them since an
 * earlier look, so each release costs each waiter one read (watch.c). */
static void watch_crowd(struct driver *driver, struct claim *claim, const struct children *children,
                        const struct seeker *seeker)
{
    struct contender *all = calloc(children->count, sizeof(*all));
    size_t count = all == NULL ? 0 : queue_nearest(children, seeker, claim->kind.permits, all);
    bool sent = all != NULL || claim_sent(driver, claim, false);
    for (size_t i = 0; sent && i < count; i++)
        sent = node_is_watched(driver, claim->name->folder, all[i].node) ||
               claim_sent(driver, claim,
                          send_get_and_watch(driver, claim->name->folder, all[i].node,
                                             claim_reply(claim, watched_before)));
    free(all);
}

static void wait_behind(struct driver *driver, struct claim *claim, const struct children *children,
                        const struct seeker *seeker, const struct queue_view *view)
{
    if (!wait_for(driver, claim, view->before, 0))
        return;
    claim->crowded = view->crowded;
    if (claim->crowded)
        watch_crowd(driver, claim, children, seeker);
    else
        claim_watch_before(driver, claim);
}

/* ---- the folder was read --------------------------------------------------------------------------------- */

static void adopted(struct driver *driver, struct request *request)
{
    struct claim *claim = claim_arrived(driver, request);
    if (claim == NULL || claim->state != CLAIM_UNCERTAIN)
        return;
    if (request->rc == ZNONODE) {
        claim_go(driver, claim);
        return;
    }
    if (request->rc != ZOK) {
        claim_fail(driver, claim, MORTISE_BACKEND, request->rc);
        return;
    }
    if (request->stat.ephemeralOwner != driver->session->id) {
        /* it belongs to another driver of this client, with the same root and the same grant */
        claim->node[0] = '\0';
        claim_become(driver, claim, CLAIM_IDLE);
        claim_go(driver, claim);
        return;
    }
    claim->czxid = request->stat.czxid;
    claim->noted_base = -1; /* the node is written again, whatever it says */
    claim_become(driver, claim, CLAIM_QUEUED);
    claim_go(driver, claim);
}

/* The search has found the node of a create whose reply was lost, or nothing. */
static void searched(struct driver *driver, struct claim *claim, const struct children *children)
{
    char prefix[NODE_MAX];
    node_prefix(claim_style(driver, claim), claim->kind, &claim->grant, claim->made_in, prefix);
    const char *node = queue_find(children, prefix);
    bool is_wanted = claim_is_wanted(claim);
    snprintf(claim->node, sizeof(claim->node), "%s", node == NULL ? "" : node);
    if (node == NULL && !is_wanted) {
        claim_end(driver, claim, MORTISE_OK);
        return;
    }
    if (node != NULL && is_wanted && claim->made_in == driver->session->number) {
        claim_sent(driver, claim,
                   send_get(driver, claim->name->folder, node, claim_reply(claim, adopted)));
        return;
    }
    bool is_old = claim->made_in != driver->session->number; /* the node may end with its session */
    claim_become(driver, claim,
                 is_wanted ? CLAIM_IDLE
                 : is_old  ? CLAIM_REDELETING
                           : CLAIM_DELETING);
    claim_go(driver, claim);
}

/* A client of Mortise with the other style is first. It may be about to leave, because a node of our style was before it
 * when it looked. So the claim looks once more before our own acquire fails. */
static void meet_foreign(struct driver *driver, struct claim *claim, const char *node)
{
    struct contender contender;
    node_read(node, claim_style(driver, claim), &contender);
    if (contender.kin == KIN_MORTISE && claim->look != LOOK_SURE)
        claim_list(driver, claim, LOOK_SURE);
    else
        claim_refuse(driver, claim, claim->name->folder, node);
}

static void make(struct driver *driver, struct claim *claim);

/* The answer to the look of a try that has no node yet. */
static void looked(struct driver *driver, struct claim *claim, const struct queue_view *view)
{
    if (view->before == NULL)
        make(driver, claim);
    else if (claim->look == LOOK_SURE)
        meet_holder(driver, claim, view->first);
    else
        claim_list(driver, claim, LOOK_SURE);
}

static void listed(struct driver *driver, struct request *request)
{
    static const struct children nobody = {0};
    struct claim *claim = claim_arrived(driver, request);
    if (claim == NULL)
        return;
    if (request->rc != ZOK && request->rc != ZNONODE) {
        if (claim->state == CLAIM_SEARCHING)
            claim_not_deleted(driver, claim, request->rc);
        else
            claim_fail(driver, claim, MORTISE_BACKEND, request->rc);
        return;
    }
    const struct children *children = request->rc == ZOK ? request->children : &nobody;
    if (claim->state == CLAIM_UNCERTAIN || claim->state == CLAIM_SEARCHING) {
        searched(driver, claim, children);
        return;
    }
    struct seeker seeker = {claim_style(driver, claim), claim->kind, claim->node,
                            text_of(claim->passed), text_of(claim->opened)};
    struct queue_view view = queue_look(children, &seeker);
    if (view.foreign != NULL)
        meet_foreign(driver, claim, view.foreign);
    else if (view.other_permits != NULL && (view.found || claim->state == CLAIM_LOOKING))
        meet_other_permits(driver, claim, view.other_permits);
    else if (claim->state == CLAIM_LOOKING)
        looked(driver, claim, &view);
    else if (!view.found) { /* somebody has deleted the node, or the whole folder */
        claim->node[0] = '\0';
        make(driver, claim);
    } else if (view.before == NULL) {
        claim->from_ns = request->sent_ns;
        claim_be_first(driver, claim);
    } else if (claim_is_try(claim))
        meet_holder(driver, claim, view.first);
    else
        wait_behind(driver, claim, children, &seeker, &view);
}

void claim_list(struct driver *driver, struct claim *claim, enum look look)
{
    claim->step++;
    claim->retry_ns = 0;
    claim->look = look;
    if (claim_is_wanted(claim) && claim->node[0] != '\0' && claim->state != CLAIM_UNCERTAIN)
        claim_become(driver, claim, CLAIM_QUEUED);
    if (look == LOOK_SURE)
        beats_look(driver); /* the beat is the barrier then */
    bool sent = (look != LOOK_SYNCED || send_sync(driver, (struct reply_to){0})) &&
                (look != LOOK_SURE || send_barrier(driver)) &&
                send_list(driver, claim->name->folder, claim_reply(claim, listed));
    if (claim_sent(driver, claim, sent))
        beats_look(driver);
}

/* ---- making ------------------------------------------------------------------------------------------------ */

/* The servers have refused the create: there is no node. */
static void not_made(struct driver *driver, struct claim *claim, int rc)
{
    if (claim->state == CLAIM_UNWANTED)
        claim_end(driver, claim, MORTISE_OK);
    else if (claim->state == CLAIM_MAKING) {
        claim_become(driver, claim, CLAIM_IDLE);
        if (rc == ZNONODE && claim->folder_tries++ < FOLDER_TRIES)
            make(driver, claim);
        else
            claim_fail(driver, claim, MORTISE_BACKEND, rc == ZNONODE ? claim->folder_rc : rc);
    } /* UNCERTAIN, SEARCHING: the list on its way shows the node */
}

/* The reply is lost: with the connection, or (ZSYSTEMERROR) for want of memory; then no reconnection makes the claim go on. */
static void made_perhaps(struct driver *driver, struct claim *claim, int rc)
{
    if (claim->state == CLAIM_MAKING) {
        claim_become(driver, claim, CLAIM_UNCERTAIN);
        if (rc == ZSYSTEMERROR)
            claim_fail(driver, claim, MORTISE_BACKEND, rc);
    } else if (claim->state == CLAIM_UNWANTED) {
        claim_become(driver, claim, CLAIM_SEARCHING);
        if (rc == ZSYSTEMERROR)
            claim_go(driver, claim);
    }
}

/* This answer counts in every state of the claim, because it has the name of the node. */
static void made(struct driver *driver, struct request *request)
{
    struct claim *claim = claim_answered(driver, request);
    int rc = request->rc;
    if (claim == NULL || rc == ZSESSIONEXPIRED) /* the end of the session is an event of its own */
        return;
    if (rc != ZOK && (fault_is_loss(rc) || rc == ZSYSTEMERROR))
        made_perhaps(driver, claim, rc);
    else if (rc != ZOK)
        not_made(driver, claim, rc);
    else {
        const char *slash = strrchr(request->text, '/');
        snprintf(claim->node, sizeof(claim->node), "%s", slash == NULL ? "" : slash + 1);
        claim->czxid = request->stat.czxid;
        claim->folder_tries = 0;
        claim_become(driver, claim, claim_is_wanted(claim) ? CLAIM_QUEUED : CLAIM_DELETING);
        if (claim_is_unwanted(claim))
            claim_go(driver, claim); /* otherwise the list is on its way */
    }
}

/* A claim of a semaphore makes no node before it is through the gate. */
static bool is_through_gate(struct driver *driver, struct claim *claim)
{
    if (!style_has_gate(driver->style) || claim->part == PART_GATE)
        return true;
    if (claim->gate != NULL)
        return claim->gate->state == CLAIM_HELD;
    if (claim_new_gate(driver, claim) == NULL)
        claim_sent(driver, claim, false);
    else
        claim_go(driver, claim->gate);
    return false;
}

/* The folder above both parts of a semaphore must have no contenders of other recipes, whose clients look only there. */
static void above_listed(struct driver *driver, struct request *request)
{
    struct claim *claim = claim_arrived(driver, request);
    struct contender contender;
    for (size_t i = 0; claim != NULL && request->rc == ZOK && i < request->children->count; i++)
        if (node_read(request->children->names[i], STYLE_CURATOR, &contender)) {
            claim_refuse(driver, claim, claim->name->above, contender.node);
            return;
        }
}

static bool list_above(struct driver *driver, struct claim *claim)
{
    const char *above = claim->name->above;
    return above == NULL || claim->part != PART_GATE ||
           claim_sent(driver, claim, send_list(driver, above, claim_reply(claim, above_listed)));
}

/* Sends create and list in one flight, and before them the create of the folder if it was missing. */
static void make(struct driver *driver, struct claim *claim)
{
    const char *folder = claim->name->folder;
    char prefix[NODE_MAX], data[DATA_MAX];
    claim_become(driver, claim, CLAIM_IDLE);
    if (!is_through_gate(driver, claim))
        return;
    claim->step++;
    claim->look = LOOK_HERE;
    free(claim->passed);
    free(claim->opened);
    claim->passed = claim->opened = NULL;
    if (claim->folder_tries > 0 && !claim_make_folder(driver, claim))
        return;
    if (claim->node[0] != '\0') /* a node of an abandoned session */
        send_delete(driver, folder, claim->node, (struct reply_to){0});
    claim->node[0] = '\0';
    claim->noted_base = driver->base;
    node_prefix(claim_style(driver, claim), claim->kind, &claim->grant, driver->session->number,
                prefix);
    struct reply_to to = claim_reply(claim, made);
    to.quiet = true; /* the list is answered right behind it */
    if (!claim_sent(driver, claim,
                    send_create(driver, folder, prefix, data,
                                note_write(driver, driver->base, false, data),
                                ZOO_EPHEMERAL_SEQUENTIAL, to)))
        return;
    claim->made_in = driver->session->number;
    claim_become(driver, claim, CLAIM_MAKING);
    if (list_above(driver, claim) && claim_read_number(driver, claim) &&
        claim_sent(driver, claim, send_list(driver, folder, claim_reply(claim, listed))))
        beats_look(driver);
}

/* ---- what is next ------------------------------------------------------------------------------------------ */

/* Forgets what the claim was waiting for. */
static void start_over(struct driver *driver, struct claim *claim)
{
    claim->step++;
    if (claim->state == CLAIM_MAKING)
        claim_become(driver, claim, CLAIM_UNCERTAIN);
    else if (claim_is_wanted(claim) && claim->state > CLAIM_UNCERTAIN)
        claim_become(driver, claim, claim->node[0] != '\0' ? CLAIM_QUEUED : CLAIM_IDLE);
    else if (claim->state == CLAIM_LOOKING)
        claim_become(driver, claim, CLAIM_IDLE);
}

static void go_now(struct driver *driver, struct claim *claim)
{
    switch (claim->state) {
    case CLAIM_IDLE:
        if (claim_is_try(claim) && !claim_is_sent(claim)) {
            claim_become(driver, claim, CLAIM_LOOKING);
            claim_list(driver, claim, LOOK_SYNCED);
        } else
            make(driver, claim);
        return;
    case CLAIM_UNCERTAIN:
    case CLAIM_QUEUED:
    case CLAIM_SEARCHING:
        claim_list(driver, claim, LOOK_SURE);
        return;
    case CLAIM_DELETING:
    case CLAIM_REDELETING:
    case CLAIM_REFUSED:
        claim_delete(driver, claim);
        return;
    default: /* UNWANTED waits for its answer; the others have no next request */
        return;
    }
}

void claim_go(struct driver *driver, struct claim *claim)
{
    if (!is_ready(driver))
        return;
    start_over(driver, claim);
    if (!claim_is_late(driver, claim))
        go_now(driver, claim);
}

void claims_go_late(struct driver *driver)
{
    while (driver->backlog != NULL && is_ready(driver) && driver->session->open < OPEN_MAX) {
        struct claim *claim = driver->backlog;
        claim_not_late(driver, claim);
        go_now(driver, claim);
    }
}
