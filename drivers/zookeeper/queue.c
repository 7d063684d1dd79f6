/* queue.c - a claim's way to the head of the queue: its node made, looked for, listed, the predecessor
 * watched; then the token, the session's proof, the grant. See internal.h. */
#include "driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FOLDER_TRIES 5
#define LOOK_AGAIN_NS (2000 * NS_PER_MS) /* where there is no room for a watch */
#define WATCH_GRID_NS (100 * NS_PER_MS)  /* all that fall due together are found by one sweep */
#define WATCH_AFTER_NS (100 * NS_PER_MS) /* most leases are over by then, and need no watch */

static void forget_before(struct claim *claim)
{
    free(claim->before);
    claim->before = NULL;
}

static void forget_later(struct claim *claim)
{
    for (size_t i = 0; i < claim->later_count; i++)
        free(claim->later[i]);
    free(claim->later);
    claim->later = NULL;
    claim->later_count = 0;
}

void queue_forget(struct claim *claim)
{
    forget_before(claim);
    forget_later(claim);
}

/* ---- first: the token, the session, the answer ------------------------------------------------------- */

static void base_answered(struct driver *driver, struct request *request);

static struct reply_to base_reply(struct claim *claim)
{
    return claim_reply(claim, base_answered);
}

static bool send_base(struct driver *driver, struct claim *claim)
{
    char path[PATH_SIZE];
    path_of(driver, "%tokens", NULL, path);
    return claim_counted(driver, claim, send_get(driver, path, false, base_reply(claim)));
}

void claim_grant(struct driver *driver, struct claim *claim)
{
    mortise_op *op = claim->op;
    int64_t until_ns = session_deadline(driver),
            ends_ns = claim->from_ns + claim->ttl_ms * NS_PER_MS;
    if (until_ns - now_of(driver) < session_timeout_ns(driver) / BEATS_PER_TIMEOUT)
        return; /* the next beat will tell: lease_proven */
    if (claim->goal == GOAL_OWN) {
        claim->goal = GOAL_HOLD;
        claim->ends_ns = ends_ns;
    }
    until_ns = until_ns < claim->ends_ns ? until_ns : claim->ends_ns;
    claim->op = NULL;
    claim->watch_ns =
        (now_of(driver) + WATCH_AFTER_NS) / WATCH_GRID_NS * WATCH_GRID_NS + WATCH_GRID_NS;
    lease_sweep_by(driver, claim->watch_ns < claim->ends_ns ? claim->watch_ns : claim->ends_ns);
    op->token = claim->token;
    op->from_ns = claim->from_ns;
    op->good_for_ms = until_ns > claim->from_ns ? (until_ns - claim->from_ns) / NS_PER_MS : 0;
    driver->host->complete(driver->host, op, MORTISE_OK);
}

/* The base is known, and high enough. The node says it, if it does not yet. */
static void counted_with(struct driver *driver, struct claim *claim)
{
    char path[PATH_SIZE], data[DATA_MAX];
    claim->token = (uint64_t)claim->czxid + (uint64_t)claim->base;
    if (driver->base_state != BASE_KNOWN)
        driver->base = claim->base;
    if (claim->noted_base != claim->base) {
        struct reply_to nobody = {NULL, NULL, 0, false};
        path_of(driver, claim->name->folder, claim->node, path);
        send_set(driver, path, data, note_write(driver, claim->base, data), -1, nobody);
        claim->noted_base = claim->base;
    }
    if (claim->op != NULL)
        claim_grant(driver, claim);
}

static void raised(struct driver *driver, struct request *request)
{
    struct claim *claim = request->target;
    if (!claim_arrived(driver, request, claim))
        return;
    if (request->rc == ZOK) {
        claim->base = (int64_t)(claim->token_floor - (uint64_t)claim->czxid);
        counted_with(driver, claim);
    } else if (request->rc == ZBADVERSION || request->rc == ZNODEEXISTS || request->rc == ZNONODE)
        send_base(driver, claim); /* somebody else was faster */
    else
        claim_fail(driver, claim, MORTISE_BACKEND, request->rc);
}

static void raise_base(struct driver *driver, struct claim *claim)
{
    char path[PATH_SIZE], text[24];
    struct reply_to to = claim_reply(claim, raised);
    uint64_t base = claim->token_floor - (uint64_t)claim->czxid;
    if (base > INT64_MAX) { /* could not be read again */
        claim_fail(driver, claim, MORTISE_BACKEND, ZBADARGUMENTS);
        return;
    }
    int length = snprintf(text, sizeof(text), "%llu", (unsigned long long)base);
    path_of(driver, "%tokens", NULL, path);
    if (claim->base_version >= 0)
        claim_counted(driver, claim,
                      send_set(driver, path, text, (size_t)length, claim->base_version, to));
    else
        claim_counted(driver, claim,
                      send_create(driver, path, text, (size_t)length, ZOO_PERSISTENT, to));
}

static void count_with_base(struct driver *driver, struct claim *claim)
{
    if ((uint64_t)claim->czxid + (uint64_t)claim->base < claim->token_floor)
        raise_base(driver, claim);
    else
        counted_with(driver, claim);
}

static void base_answered(struct driver *driver, struct request *request)
{
    struct claim *claim = request->target;
    if (!claim_arrived(driver, request, claim) || !claim->first || claim->goal != GOAL_OWN)
        return;
    if (request->rc != ZOK && request->rc != ZNONODE) {
        claim_fail(driver, claim, MORTISE_BACKEND, request->rc);
        return;
    }
    claim->base = request->rc == ZOK ? base_read(request) : 0;
    claim->base_version = request->rc == ZOK ? request->stat.version : -1;
    if (claim->base < 0)
        claim_fail(driver, claim, MORTISE_BACKEND, ZDATAINCONSISTENCY);
    else
        count_with_base(driver, claim);
}

/* ---- waiting for the predecessor --------------------------------------------------------------------- */

static bool note_later(struct claim *claim)
{
    char **longer = reallocarray(claim->later, claim->later_count + 1, sizeof(*longer));
    if (longer == NULL)
        return false;
    claim->later = longer;
    claim->later[claim->later_count++] = claim->before;
    claim->before = NULL;
    return true;
}

static void watched_before(struct driver *driver, struct request *request)
{
    struct claim *claim = request->target;
    if (!claim_arrived(driver, request, claim) || claim->before == NULL)
        return;
    if (request->rc == ZNONODE)
        queue_list(driver, claim, LOOK_HERE);
    else if (request->rc != ZOK)
        claim_fail(driver, claim, MORTISE_BACKEND, request->rc);
    else if (request->stat.czxid > claim->czxid && note_later(claim))
        queue_list(driver, claim, LOOK_HERE);
}

void queue_watch_before(struct driver *driver, struct claim *claim)
{
    char path[PATH_SIZE + NODE_MAX * 8];
    int length =
        snprintf(path, sizeof(path), "%s/%s/%s", driver->root, claim->name->folder, claim->before);
    if (length < 0 || (size_t)length >= sizeof(path)) {
        claim_fail(driver, claim, MORTISE_BACKEND, ZBADARGUMENTS);
        return;
    }
    bool watch = watch_fits(driver, path);
    if (claim_counted(driver, claim,
                      send_get(driver, path, watch, claim_reply(claim, watched_before))) &&
        !watch)
        claim_again(driver, claim, LOOK_AGAIN_NS);
}

/* ---- listed ------------------------------------------------------------------------------------------- */

/* A node under the claim's uuid was found, which may be one of a session that is over. */
static void adopted(struct driver *driver, struct request *request)
{
    struct claim *claim = request->target;
    if (!claim_arrived(driver, request, claim))
        return;
    bool own = request->stat.ephemeralOwner == driver->session->id;
    if (request->rc == ZOK && (own || claim->goal == GOAL_LEAVE)) {
        claim->czxid = request->stat.czxid;
        claim->noted_base = -1; /* whatever it says, it is written again */
        claim->maybe = false;
        claim->look_again = !own; /* there may be another one, of this session */
        claim_go(driver, claim);
        return;
    }
    if (request->rc == ZOK)
        snprintf(claim->old_node, sizeof(claim->old_node), "%s", claim->node);
    claim->node[0] = '\0';
    queue_list(driver, claim, LOOK_SURE);
}

/* The next one under the claim's uuid behind those that were of other sessions; NULL: none is left. */
static const char *next_own(const struct claim *claim, const struct children *children)
{
    const char *next = NULL;
    for (size_t i = 0; i < children->count; i++) {
        const char *node = children->names[i];
        if (node_is_of(node, &claim->grant) && strlen(node) < NODE_MAX &&
            strcmp(node, claim->old_node) > 0 && (next == NULL || strcmp(node, next) < 0))
            next = node;
    }
    return next;
}

static void look_for_own(struct driver *driver, struct claim *claim,
                         const struct children *children)
{
    char path[PATH_SIZE];
    const char *node = next_own(claim, children);
    if (node == NULL) {
        claim->maybe = false;
        claim_go(driver, claim);
        return;
    }
    snprintf(claim->node, sizeof(claim->node), "%s", node);
    path_of(driver, claim->name->folder, claim->node, path);
    claim_counted(driver, claim, send_get(driver, path, false, claim_reply(claim, adopted)));
}

static void told_holder(struct driver *driver, struct request *request)
{
    struct claim *claim = request->target;
    if (!claim_arrived(driver, request, claim) || claim->op == NULL)
        return;
    mortise_info *info = claim->op->info;
    if (request->rc == ZOK && info != NULL) {
        int64_t base = note_read(request->text, info);
        info->held = true;
        info->token = (uint64_t)request->stat.czxid + (uint64_t)(base < 0 ? driver->base : base);
        info->held_ms = session_since_ms(driver, request->stat.ctime);
        info->remaining_ms = -1;
    }
    claim->goal = GOAL_LEAVE; /* a try registers nowhere: at its end it is told that it is busy */
    claim_go(driver, claim);
}

/* Asks who it is that a try has met. */
static void ask_holder(struct driver *driver, struct claim *claim, const char *node)
{
    char path[PATH_SIZE + NODE_MAX * 8];
    snprintf(path, sizeof(path), "%s/%s/%s", driver->root, claim->name->folder, node);
    if (claim_counted(driver, claim,
                      send_get(driver, path, false, claim_reply(claim, told_holder))))
        return;
    claim_go(driver, claim);
}

static void be_first(struct driver *driver, struct claim *claim)
{
    bool known = base_is_known(driver);
    claim->base = driver->base;
    claim->base_version = driver->base_version;
    if (known)
        count_with_base(driver, claim);
    else
        send_base(driver, claim);
}

static void look_at_queue(struct driver *driver, struct claim *claim, struct request *request)
{
    struct queue_place place =
        queue_look(request->children, claim->node, claim->later, claim->later_count);
    forget_before(claim);
    claim->first = place.found && place.before == NULL;
    if (!place.found) { /* somebody deleted it: begin anew */
        claim->node[0] = '\0';
        claim_go(driver, claim);
    } else if (place.before == NULL) {
        claim->from_ns = request->sent_ns;
        be_first(driver, claim);
    } else if (claim->op != NULL && (claim->op->flags & MORTISE_OP_TRY) != 0) {
        claim->step++;
        ask_holder(driver, claim, queue_first(request->children, NULL));
    } else if ((claim->before = strdup(place.before)) == NULL)
        claim_fail(driver, claim, MORTISE_NOMEM, ZSYSTEMERROR);
    else
        queue_watch_before(driver, claim);
}

/* A client of Mortise with the other style, at the head of the queue: it may be about to leave, because somebody of our
 * style was before it when it looked. So look once more before our own acquire fails. */
static void meet_foreign(struct driver *driver, struct claim *claim, const char *node)
{
    if (node_kin(node, driver->style) == KIN_MORTISE && !claim->sure)
        queue_list(driver, claim, LOOK_SURE);
    else
        claim_refuse(driver, claim, node);
}

static void listed(struct driver *driver, struct request *request)
{
    static const struct children nobody = {0};
    struct claim *claim = request->target;
    const char *foreign;
    if (!claim_arrived(driver, request, claim))
        return;
    const struct children *children = request->rc == ZOK ? request->children : &nobody;
    if (request->rc != ZOK && request->rc != ZNONODE)
        claim_fail(driver, claim, MORTISE_BACKEND, request->rc);
    else if (claim->maybe)
        look_for_own(driver, claim, children);
    else if (claim->goal != GOAL_OWN)
        claim_go(driver, claim);
    else if ((foreign = queue_foreign(children, driver->style)) != NULL)
        meet_foreign(driver, claim, foreign);
    else if (claim->node[0] != '\0' && request->rc == ZOK)
        look_at_queue(driver, claim, request);
    else if (claim->try_once && queue_first(children, NULL) != NULL) {
        if (claim->sure)
            ask_holder(driver, claim, queue_first(children, NULL));
        else
            queue_list(driver, claim, LOOK_SURE);
    } else { /* a try that found nobody; or the folder has gone, and the node with it */
        claim->try_once = false;
        claim->node[0] = '\0';
        claim_go(driver, claim);
    }
}

/* Looks that begin at one instant share a barrier. */
static bool barrier_sent(struct driver *driver)
{
    if (driver->barrier == BARRIER_SENT)
        return true;
    bool sent = send_barrier(driver);
    if (sent && driver->barrier == BARRIER_OWED)
        driver->barrier = BARRIER_SENT;
    return sent;
}

void queue_list(struct driver *driver, struct claim *claim, enum look look)
{
    struct reply_to nobody = {NULL, NULL, 0, false};
    char path[PATH_SIZE];
    claim->step++;
    claim->first = false;
    claim->again_ns = 0;
    claim->token = 0;
    path_of(driver, claim->name->folder, NULL, path);
    claim->sure = look == LOOK_SURE;
    if ((look == LOOK_SYNCED && !send_sync(driver, nobody)) ||
        (look == LOOK_SURE && !barrier_sent(driver))) {
        claim_counted(driver, claim, false);
        return;
    }
    claim_counted(driver, claim, send_list(driver, path, claim_reply(claim, listed)));
}

/* ---- making ------------------------------------------------------------------------------------------- */

static void folder_made(struct driver *driver, struct request *request)
{
    struct claim *claim = request->target;
    if (!claim_arrived(driver, request, claim))
        return;
    claim->folder_rc = request->rc;
}

static void make_folder_again(struct driver *driver, struct claim *claim)
{
    if (claim->folders_made == FOLDER_TRIES) {
        claim_fail(driver, claim, MORTISE_BACKEND, claim->folder_rc);
        return;
    }
    claim->folders_made++;
    claim_go(driver, claim);
}

/* Is looked at whatever the claim has come to: this is where the node is. */
static void made(struct driver *driver, struct request *request)
{
    struct claim *claim = request->target;
    int rc = request->rc;
    bool current = request->step == claim->step, ended = claim->ended;
    if (request->mail.session == driver->session)
        claim->creating--;
    if (rc == ZOK && request->text != NULL && !claim->ended) {
        const char *slash = strrchr(request->text, '/');
        snprintf(claim->node, sizeof(claim->node), "%s", slash == NULL ? "" : slash + 1);
        claim->czxid = request->stat.czxid;
        claim->maybe = false;
        claim->folders_made = 0;
    } else if (!claim->ended && rc != ZSESSIONEXPIRED && (fault_is_loss(rc) || rc == ZSYSTEMERROR))
        claim->maybe = true;
    if (!claim_arrived(driver, request, claim)) {
        if (!ended && !current && claim->goal == GOAL_LEAVE && !fault_is_loss(rc))
            claim_go(driver, claim); /* the one that leaves has waited for this */
        return;
    }
    if (rc == ZNONODE)
        make_folder_again(driver, claim);
    else if (rc != ZOK)
        claim_fail(driver, claim, MORTISE_BACKEND, rc);
}

/* Create and list, and the folder before them, in one flight. */
void queue_make(struct driver *driver, struct claim *claim)
{
    char path[PATH_SIZE], prefix[NODE_MAX], data[DATA_MAX];
    struct reply_to nobody = {NULL, NULL, 0, false};
    claim->step++;
    claim->first = claim->sure = false;
    forget_later(claim);
    if (claim->folders_made > 1)
        session_make_root(driver, NULL);
    if (claim->folders_made > 0) {
        path_of(driver, claim->name->folder, NULL, path);
        if (!claim_counted(
                driver, claim,
                send_create(driver, path, "", 0, ZOO_CONTAINER, claim_reply(claim, folder_made))))
            return;
    }
    if (claim->old_node[0] != '\0') {
        path_of(driver, claim->name->folder, claim->old_node, path);
        send_delete(driver, path, nobody);
        claim->old_node[0] = '\0';
    }
    node_prefix(driver->style, &claim->grant, prefix);
    path_of(driver, claim->name->folder, prefix, path);
    claim->noted_base = driver->base;
    struct reply_to to = claim_reply(claim, made);
    to.quiet = true; /* the list is answered with it */
    bool sent = send_create(driver, path, data, note_write(driver, driver->base, data),
                            ZOO_EPHEMERAL_SEQUENTIAL, to);
    claim->creating += sent;
    claim->sent |= sent;
    if (!claim_counted(driver, claim, sent))
        return;
    path_of(driver, claim->name->folder, NULL, path);
    claim_counted(driver, claim, send_list(driver, path, claim_reply(claim, listed)));
}
