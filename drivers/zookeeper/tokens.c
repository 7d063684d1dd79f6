/* tokens.c - from the head of the queue to the grant: the token, the proof of the session, the answer.
 *
 * THE TOKEN is the czxid of the claim's node plus a base. czxids grow with every change in the ensemble. The base is in the
 * node %tokens below the root. It makes tokens larger than a floor that an op asks for: a claim raises the base, by compare and
 * set, before it is granted. So a claim must know a base that is at least as large as the one that each former holder of its
 * name has read or written. A claim writes the base that it counts with into its node, for inspect and break.
 *
 * The base is read once for each connection, and watched, so that an acquire need not read it. The event of a watch comes
 * before the answer to any later request of the same connection that could see the change or what followed it. So if a list
 * shows a claim as first, and no event has come since the base was read, then nobody raised the base before the claim was
 * first. A base that was raised within the last seconds (a migration is under way) is not watched, because every raise would
 * wake all clients. Then each claim reads it behind the list that shows it as first.
 *
 * A read of the base in the flight of every create and list would need no watch, but it costs an acquire a tenth.
 *
 * RAISING. In phase `both` of a migration, every acquire needs a larger base. If each claim wrote it for itself, a thousand
 * simultaneous claims would fail because of each other's writes, and send a million. So a client has only one write or one read
 * of the base on its way, for all its claims that need more (driver->raising). It writes the largest base that one of them
 * needs. When that is answered, each claim counts with the base that it needs itself, if that is no larger. So its token is its
 * floor, as a migration needs it.
 *
 *   state    event                                    what follows
 *   IDLE     a claim needs more than it knows         WRITING
 *   WRITING  written                                  who needs no more counts with its own; WRITING for the others, or IDLE
 *            another client wrote, made or deleted    READING, or IDLE if no claim is left
 *            the node
 *   READING  read, or there is none: 0                who needs no more counts with that; WRITING for the others, or IDLE
 *            it makes no sense                        all fail; IDLE
 *   both     refused, or not sent for want of memory  all fail; IDLE
 *            a claim comes                            it waits for the answer
 *            a claim is unwanted, or asked for again  it is off the list. At worst the base is larger than need be
 *            the answer is lost                       IDLE; the claims wait for the next connection, or go with the next claim
 *   any      another connection, another session      IDLE; the claims look again. The write may be executed yet
 *
 * Why a claim may count with less than the node has by then, whether it came before or after the write was sent. Each earlier
 * holder of its name counted with no more than the base that the claim knew when it came, and the claim counts with at least
 * that base. Each later holder of its name reads the base that was written, or a larger one, and the claim counts with at most
 * the written one. (Several shared claims of one name get different tokens.) If the base was read, and not written, claims
 * count with exactly that base. */
#include "claim.h"

#include <stdio.h>
#include <string.h>

#define QUIET_NS (10 * 1000 * NS_PER_MS)
#define WATCH_AFTER_NS (100 * NS_PER_MS) /* most leases have ended by then, and need no watch */

#define NODE "%tokens"

/* ---- the base as this client knows it -------------------------------------------------------------------- */

static void base_watched(struct driver *driver, struct request *request)
{
    if (request->to.step != driver->base_step || request->rc == ZOK || request->rc == ZNONODE)
        return;
    driver->base_step++; /* there is no watch, so the answer to the get is ignored */
    driver->base_state = BASE_UNKNOWN;
}

static void base_told(struct driver *driver, struct request *request)
{
    int64_t base = request->rc == ZOK ? note_base(request) : 0;
    if (request->to.step != driver->base_step)
        return;
    driver->base_state = BASE_UNKNOWN;
    if (base < 0 || (request->rc != ZOK && request->rc != ZNONODE))
        return;
    driver->base_state = BASE_KNOWN;
    driver->base = base;
    driver->base_version = request->rc == ZOK ? request->stat.version : -1;
}

/* An `exists` sets the watch, because a `get` sets none if there is no node. */
static void ask(struct driver *driver)
{
    struct reply_to watched = {.answered = base_watched, .step = ++driver->base_step};
    struct reply_to told = {.answered = base_told, .step = driver->base_step};
    bool sent = send_exists(driver, NODE, NULL, watched) && send_get(driver, NODE, NULL, told);
    driver->base_state = sent ? BASE_ASKED : BASE_UNKNOWN;
}

void base_connected(struct driver *driver)
{
    driver->raise_step++;
    driver->raise_open = false;
    while (driver->raising != NULL) /* they look again */
        claim_not_raising(driver, driver->raising);
    ask(driver); /* the known base is from another connection, to another server */
}

void base_changed(struct driver *driver)
{
    driver->base_step++;
    driver->base_state = BASE_UNKNOWN;
    driver->base_changed_ns = now_of(driver);
}

bool base_event(struct driver *driver, const char *path)
{
    size_t root = strlen(driver->root);
    if (strlen(path) <= root || strcmp(path + root, "/" NODE) != 0)
        return false;
    base_changed(driver);
    return true;
}

/* ---- the grant ----------------------------------------------------------------------------------------------- */

void claim_grant(struct driver *driver, struct claim *claim)
{
    mortise_op *op = claim->op;
    int64_t now_ns = now_of(driver), until_ns = session_deadline(driver);
    if (until_ns - now_ns < session_timeout_ns(driver) / 10) {
        beats_need(driver); /* the next beat proves more, and calls this again */
        return;
    }
    if (claim->state == CLAIM_READY && claim->kind.shared && claim->gate != NULL)
        return; /* it is granted when it has left the gate, so that others may come */
    if (claim->state == CLAIM_READY) {
        claim_become(driver, claim, CLAIM_HELD);
        claim->ends_ns = claim->from_ns + claim->ttl_ms * NS_PER_MS;
        claim_look_by(driver, claim, WATCH_AFTER_NS);
    }
    if (until_ns > claim->ends_ns)
        until_ns = claim->ends_ns;
    claims_sweep_by(driver, claim->ends_ns);
    claim->op = NULL;
    op->token = claim->token;
    op->from_ns = claim->from_ns;
    op->good_for_ms = until_ns > claim->from_ns ? (until_ns - claim->from_ns) / NS_PER_MS : 0;
    driver->host->complete(driver->host, op, MORTISE_OK);
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t token_with(const struct claim *claim, int64_t base)
{
    return (uint64_t)claim->czxid + (uint64_t)base;
}

void claim_note(struct driver *driver, struct claim *claim)
{
    char data[DATA_MAX];
    bool shared = claim->downgraded || claim->maybe_shared || claim->downgrade != NULL;
    size_t size = note_write(driver, claim->noted_base, shared, data);
    send_set(driver, claim->name->folder, claim->node, data, size, -1, (struct reply_to){0});
}

/* The base is high enough. Writes it into the node, if the node does not have it yet. If that write is lost, the holder sees it
 * when it looks at its node. */
static void count_with(struct driver *driver, struct claim *claim, int64_t base)
{
    claim->token = token_with(claim, base);
    claim->name->last_token = larger(claim->name->last_token, claim->token);
    if (driver->base_state != BASE_KNOWN)
        driver->base = base;
    if (claim->noted_base != base) {
        claim->noted_base = base;
        claim_note(driver, claim);
    }
    claim_become(driver, claim, CLAIM_READY);
    if (claim->kind.shared && claim->gate != NULL && !claim_is_unwanted(claim->gate))
        claim_drop(driver, claim->gate);
    else if (claim->op != NULL)
        claim_grant(driver, claim);
}

/* ---- raising the base --------------------------------------------------------------------------------------- */

/* The base that a claim on the list needs, for its floor, and for a token that other claims of the name have not got. */
static uint64_t wanted(const struct claim *claim)
{
    return larger(larger(claim->token_floor, claim->token), claim->name->last_token + 1) -
           (uint64_t)claim->czxid;
}

static void raise_fail(struct driver *driver, int rc)
{
    while (driver->raising != NULL)
        claim_fail(driver, driver->raising, MORTISE_BACKEND, rc);
}

static void raise_sent(struct driver *driver, bool sent)
{
    driver->raise_open = sent;
    while (!sent && driver->raising != NULL) {
        struct claim *claim = driver->raising;
        claim_not_raising(driver, claim);
        claim_sent(driver, claim, false);
    }
}

static void raised(struct driver *driver, struct request *request);

/* The node has this base. version: of the node; -1: there is none. */
static void raise_base(struct driver *driver, int64_t base, int32_t version)
{
    struct reply_to to = {.answered = raised, .step = driver->raise_step};
    struct claim *claim, *after;
    uint64_t most = 0;
    char text[24];
    DL_FOREACH_SAFE2(driver->raising, claim, after, next_raising)
    {
        if (wanted(claim) <= (uint64_t)base)
            count_with(driver, claim, base);
        else if (wanted(claim) > INT64_MAX) /* nobody could read so large a base again */
            claim_fail(driver, claim, MORTISE_BACKEND, ZBADARGUMENTS);
        else
            most = larger(most, wanted(claim));
    }
    if (driver->raising == NULL)
        return;
    driver->raised_base = (int64_t)most;
    size_t length = (size_t)snprintf(text, sizeof(text), "%llu", (unsigned long long)most);
    raise_sent(driver, version >= 0
                           ? send_set(driver, NODE, NULL, text, length, version, to)
                           : send_create(driver, NODE, NULL, text, length, ZOO_PERSISTENT, to));
}

/* It is written. */
static void count_each(struct driver *driver)
{
    struct claim *claim, *after;
    DL_FOREACH_SAFE2(driver->raising, claim, after, next_raising)
    {
        if (wanted(claim) <= (uint64_t)driver->raised_base)
            count_with(driver, claim, (int64_t)wanted(claim));
    }
    if (driver->base_state != BASE_KNOWN)
        driver->base = driver->raised_base;
}

static void raise_read(struct driver *driver, struct request *request)
{
    int rc = request->rc;
    int64_t base = rc == ZOK ? note_base(request) : 0;
    if (request->to.step != driver->raise_step)
        return;
    driver->raise_open = false;
    if (fault_is_loss(rc))
        return;
    if (base < 0)
        raise_fail(driver, ZDATAINCONSISTENCY);
    else if (rc == ZOK || rc == ZNONODE)
        raise_base(driver, base, rc == ZOK ? request->stat.version : -1);
    else
        raise_fail(driver, rc);
}

static void raised(struct driver *driver, struct request *request)
{
    struct reply_to to = {.answered = raise_read, .step = driver->raise_step};
    int rc = request->rc;
    if (request->to.step != driver->raise_step)
        return;
    driver->raise_open = false;
    if (fault_is_loss(rc))
        return;
    if (rc == ZOK) {
        count_each(driver);
        raise_base(driver, driver->raised_base, request->stat.version);
    } else if (rc != ZBADVERSION && rc != ZNODEEXISTS && rc != ZNONODE)
        raise_fail(driver, rc);
    else if (driver->raising != NULL) /* another client was faster */
        raise_sent(driver, send_get(driver, NODE, NULL, to));
}

/* version: of the base's node as it was read; -1: there was none. */
static void count(struct driver *driver, struct claim *claim, int64_t base, int32_t version)
{
    if (base < 0) {
        claim_fail(driver, claim, MORTISE_BACKEND, ZDATAINCONSISTENCY);
        return;
    }
    claim->token = token_with(claim, base); /* it must not count with less from now on */
    if (claim->token >= claim->token_floor) {
        count_with(driver, claim, base);
        return;
    }
    DL_APPEND2(driver->raising, claim, prev_raising, next_raising);
    if (!driver->raise_open)
        raise_base(driver, base, version);
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
    claim_sent(driver, claim, send_get(driver, NODE, NULL, claim_reply(claim, base_read)));
}

/* kazoo keeps the number of a semaphore's leases in the folder. */
static void number_read(struct driver *driver, struct request *request)
{
    struct claim *claim = claim_arrived(driver, request);
    const mortise_info unknown = {.size = sizeof(unknown)};
    int64_t number = claim == NULL || request->rc != ZOK ? -1 : note_base(request);
    if (number < 0 || number > UINT32_MAX || number == claim->kind.permits || claim->op == NULL)
        return;
    fault_permits(driver, claim->op, (uint32_t)number, &unknown);
    claim->op = NULL;
    claim_drop(driver, claim);
}

bool claim_read_number(struct driver *driver, struct claim *claim)
{
    return driver->style != STYLE_KAZOO_SEMAPHORE || claim->kind.permits == 0 ||
           claim_sent(driver, claim,
                      send_get(driver, claim->name->folder, NULL, claim_reply(claim, number_read)));
}

/* Opens the gate for the claim that is to go through it. */
static void open_gate(struct driver *driver, struct claim *gate)
{
    claim_become(driver, gate, CLAIM_HELD);
    claim_look_by(driver, gate, WATCH_AFTER_NS);
    claim_go(driver, gate->opens);
}

void claim_be_first(struct driver *driver, struct claim *claim)
{
    if (claim->part == PART_GATE) {
        open_gate(driver, claim);
        return;
    }
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
