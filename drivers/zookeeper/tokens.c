/* tokens.c - from the head of the queue to the grant: the token, the proof of the session, the answer.
 *
 * THE TOKEN is the czxid of the claim's node plus a base. czxids grow with every change in the ensemble. The base is in the
 * node %tokens below the root. It makes tokens larger than a floor that an op asks for: a claim raises it, by compare and
 * set, before it is granted. So a claim must know a base that is at least what every former holder of its name has read or
 * written. A claim writes the base that it counts with into its node, for inspect and break.
 *
 * The base is read once for each connection, and watched, so that an acquire need not ask for it. The event of a watch comes
 * before the answer to any later request of the same connection that could see the change or what followed it. So if a list
 * shows a claim as first, and no event has come since the base was read, then nobody raised it before the claim was first. A
 * base that was raised within the last seconds (a migration is under way) is not watched, because every raise would wake
 * all clients. Then each claim reads it behind the list that shows it as first.
 *
 * A read of the base in the flight of every create and list would need no watch, but it costs an acquire a tenth. */
#include "claim.h"

#include <stdio.h>
#include <string.h>

#define QUIET_NS (10 * 1000 * NS_PER_MS)
#define WATCH_GRID_NS (100 * NS_PER_MS)  /* all claims that fall due together need one sweep */
#define WATCH_AFTER_NS (100 * NS_PER_MS) /* most leases have ended by then, and need no watch */

/* ---- the base as this client knows it -------------------------------------------------------------------- */

static void ask(struct driver *driver);

/* The answer that we wait for, and not one of an earlier connection. */
static bool is_asked(struct driver *driver, const struct request *request)
{
    bool asked = driver->base_state == BASE_ASKED && request->to.step == driver->base_step;
    if (asked)
        driver->base_state = BASE_UNKNOWN;
    return asked;
}

static void learn(struct driver *driver, int64_t base, int32_t version)
{
    if (base < 0)
        return;
    driver->base_state = BASE_KNOWN;
    driver->base = base;
    driver->base_version = version;
}

static void base_absent(struct driver *driver, struct request *request)
{
    if (!is_asked(driver, request))
        return;
    if (request->rc == ZNONODE)
        learn(driver, 0, -1);
    else if (request->rc == ZOK)
        ask(driver); /* it was made in between */
}

static void base_told(struct driver *driver, struct request *request)
{
    char path[PATH_SIZE];
    if (!is_asked(driver, request))
        return;
    if (request->rc == ZOK)
        learn(driver, note_base(request), request->stat.version);
    else if (request->rc == ZNONODE) { /* a `get` leaves no watch then */
        path_of(driver, "%tokens", NULL, path);
        struct reply_to to = {.answered = base_absent, .step = driver->base_step};
        if (send_exists(driver, path, to))
            driver->base_state = BASE_ASKED;
    }
}

static void ask(struct driver *driver)
{
    char path[PATH_SIZE];
    path_of(driver, "%tokens", NULL, path);
    struct reply_to to = {.answered = base_told, .step = ++driver->base_step};
    driver->base_state = send_get(driver, path, true, to) ? BASE_ASKED : BASE_UNKNOWN;
}

void base_connected(struct driver *driver)
{
    ask(driver); /* what is known is of another connection, at another server */
}

bool base_event(struct driver *driver, const char *path)
{
    char own[PATH_SIZE];
    path_of(driver, "%tokens", NULL, own);
    if (strcmp(path, own) != 0)
        return false;
    driver->base_step++;
    driver->base_state = BASE_UNKNOWN;
    driver->base_changed_ns = now_of(driver);
    return true;
}

/* ---- the grant ----------------------------------------------------------------------------------------------- */

void claim_grant(struct driver *driver, struct claim *claim)
{
    mortise_op *op = claim->op;
    int64_t now_ns = now_of(driver), until_ns = session_deadline(driver);
    if (until_ns - now_ns < session_timeout_ns(driver) / BEATS_PER_TIMEOUT)
        return; /* the next beat proves more, and calls again */
    if (claim->state == CLAIM_READY) {
        claim_become(driver, claim, CLAIM_HELD);
        claim->ends_ns = claim->from_ns + claim->ttl_ms * NS_PER_MS;
        claim->look_ns = (now_ns + WATCH_AFTER_NS) / WATCH_GRID_NS * WATCH_GRID_NS + WATCH_GRID_NS;
    }
    if (until_ns > claim->ends_ns)
        until_ns = claim->ends_ns;
    claims_sweep_by(driver, claim->look_ns < claim->ends_ns ? claim->look_ns : claim->ends_ns);
    claim->op = NULL;
    op->token = claim->token;
    op->from_ns = claim->from_ns;
    op->good_for_ms = until_ns > claim->from_ns ? (until_ns - claim->from_ns) / NS_PER_MS : 0;
    driver->host->complete(driver->host, op, MORTISE_OK);
}

/* The base is high enough. The node says it, if it does not yet. */
static void count_with(struct driver *driver, struct claim *claim, int64_t base)
{
    char path[PATH_SIZE], data[DATA_MAX];
    claim->token = (uint64_t)claim->czxid + (uint64_t)base;
    if (driver->base_state != BASE_KNOWN)
        driver->base = base;
    if (claim->noted_base != base) {
        path_of(driver, claim->name->folder, claim->node, path);
        send_set(driver, path, data, note_write(driver, base, data), -1, (struct reply_to){0});
        claim->noted_base = base;
    }
    claim_become(driver, claim, CLAIM_READY);
    if (claim->op != NULL)
        claim_grant(driver, claim);
}

static void read_base(struct driver *driver, struct claim *claim);

static void raised(struct driver *driver, struct request *request)
{
    struct claim *claim = claim_arrived(driver, request);
    int rc = request->rc;
    if (claim == NULL || claim->state != CLAIM_FIRST)
        return;
    if (rc == ZOK)
        count_with(driver, claim, (int64_t)(claim->token_floor - (uint64_t)claim->czxid));
    else if (rc == ZBADVERSION || rc == ZNODEEXISTS || rc == ZNONODE)
        read_base(driver, claim); /* somebody else was faster */
    else
        claim_fail(driver, claim, MORTISE_BACKEND, rc);
}

/* version: of the base's node as it was read; -1: there was none. */
static void count(struct driver *driver, struct claim *claim, int64_t base, int32_t version)
{
    char path[PATH_SIZE], text[24];
    uint64_t wanted = claim->token_floor - (uint64_t)claim->czxid;
    if (base >= 0 && (uint64_t)claim->czxid + (uint64_t)base >= claim->token_floor) {
        count_with(driver, claim, base);
        return;
    }
    if (base < 0 || wanted > INT64_MAX) { /* nobody could read such a base again */
        claim_fail(driver, claim, MORTISE_BACKEND, base < 0 ? ZDATAINCONSISTENCY : ZBADARGUMENTS);
        return;
    }
    struct reply_to to = claim_reply(claim, raised);
    size_t length = (size_t)snprintf(text, sizeof(text), "%llu", (unsigned long long)wanted);
    path_of(driver, "%tokens", NULL, path);
    bool sent = version >= 0 ? send_set(driver, path, text, length, version, to)
                             : send_create(driver, path, text, length, ZOO_PERSISTENT, to);
    claim_sent(driver, claim, sent);
}

static void base_read(struct driver *driver, struct request *request)
{
    struct claim *claim = claim_arrived(driver, request);
    int rc = request->rc;
    if (claim == NULL || claim->state != CLAIM_FIRST)
        return;
    if (rc == ZOK)
        count(driver, claim, note_base(request), request->stat.version);
    else if (rc == ZNONODE)
        count(driver, claim, 0, -1);
    else
        claim_fail(driver, claim, MORTISE_BACKEND, rc);
}

static void read_base(struct driver *driver, struct claim *claim)
{
    char path[PATH_SIZE];
    path_of(driver, "%tokens", NULL, path);
    claim_sent(driver, claim, send_get(driver, path, false, claim_reply(claim, base_read)));
}

void claim_be_first(struct driver *driver, struct claim *claim)
{
    bool quiet =
        driver->base_changed_ns == 0 || now_of(driver) - driver->base_changed_ns > QUIET_NS;
    claim_become(driver, claim, CLAIM_FIRST);
    if (driver->base_state == BASE_KNOWN) {
        count(driver, claim, driver->base, driver->base_version);
        return;
    }
    if (driver->base_state == BASE_UNKNOWN && quiet)
        ask(driver);
    read_base(driver, claim);
}
