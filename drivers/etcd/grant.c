/* grant.c - from the head of the queue to the grant: the token, the proof of the session, the answer.
 *
 * THE TOKEN is the create revision of the claim's key plus a base. Revisions grow with every change in the cluster. The base is in
 * the key %tokens. It makes tokens larger than a floor that an op asks for: a claim raises it, by compare and set, before it is
 * granted. Each claim reads the base in the very transaction that shows it as first. A turn reads nothing. It takes the base
 * that its last look has read, unless the key of the only claim that can have held the name since says a larger one; then it
 * looks. So each claim counts with at least the base of every former holder of its name. Another name's base may be larger. A
 * claim writes the base that it counts with into its key, for turns, inspect and break.
 *
 * Somebody may delete %tokens, and then a client that does not know its former value makes it anew. A client never counts with
 * less than the largest base that it knows: it raises a smaller one that it finds.
 *
 * A cluster that was made of a snapshot has the revisions of that snapshot, so it would give tokens a second time. If it also has
 * another id, %tokens names the cluster for which its base is good: the first claim that finds another cluster there raises
 * the base by BASE_JUMP. If the cluster has the same id (link.h, HISTORIES), a client that has seen its revisions go back
 * raises the base, once.
 *
 * ONE JUMP IS ENOUGH for all clients that have seen it. A client knows that another one has jumped if it finds a base that is
 * BASE_JUMP above the largest that the snapshot can have. It knows this largest one if it has read the base in the part of the
 * former history that was lost: behind the revision that the servers had when it noticed the loss, and so behind the snapshot.
 * The base never shrinks, so that of the snapshot is not larger. Otherwise the large base that it finds may come from the
 * former history, so it jumps. */
#include "claim.h"

#include <string.h>

#define BASE_JUMP (INT64_C(1) << 40)     /* more than the revisions that a snapshot can be behind */
#define WATCH_AFTER_NS (100 * NS_PER_MS) /* most leases have ended by then, and need no watch */

void tokens_key(const struct driver *driver, struct key *key)
{
    size_t length = strlen(driver->prefix);
    memcpy(key->text, driver->prefix, length);
    memcpy(key->text + length, "%tokens", 7);
    key->size = length + 7;
}

void tokens_history(struct driver *driver, bool is_other_cluster)
{
    bool was_read_behind = driver->base_at > driver->link.revision;
    int64_t from = was_read_behind ? driver->base : INT64_MAX;
    driver->base_at = 0;
    if (is_other_cluster) /* %tokens reports that case */
        return;
    if (!driver->must_jump || from > driver->jump_from)
        driver->jump_from = from;
    driver->must_jump = true;
}

void claim_grant(struct driver *driver, struct claim *claim)
{
    mortise_op *op = claim->op;
    const struct session *session = claim->session;
    int64_t now_ns = now_of(driver), until_ns = claim_deadline(claim);
    if (until_ns - now_ns <
        session->ttl_ns / BEATS_PER_TTL) { /* proven(), or a move, calls again */
        session_hurry(driver, claim->session);
        return;
    }
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

static void be_ready(struct driver *driver, struct claim *claim)
{
    claim->token = (uint64_t)claim->created + (uint64_t)claim->base;
    claim_become(driver, claim, CLAIM_READY);
    if (claim->op != NULL)
        claim_grant(driver, claim);
}

static void noted(struct driver *driver, struct call *call)
{
    struct claim *claim = claim_arrived(driver, call);
    if (claim == NULL || claim->state != CLAIM_FIRST)
        return;
    if (call->end == CALL_REFUSED)
        claim_fail(driver, claim, call);
    else if (!call->answer.done) /* its key was moved, or is gone */
        claim_look(driver, claim);
    else {
        claim->modified = call->answer.header.revision;
        claim->noted_base = claim->base;
        be_ready(driver, claim);
    }
}

/* The base is high enough. Writes it into the key, if the key does not have it yet. */
static void count_with(struct driver *driver, struct claim *claim, int64_t base)
{
    char data[DATA_MAX];
    struct key own;
    claim->base = base;
    if (base > driver->base)
        driver->base = base;
    if (claim->noted_base == base) {
        be_ready(driver, claim);
        return;
    }
    claim_key(claim, &own);
    size_t size = note_write(driver, &claim->grant, base, claim->noted_ms, claim->downgraded, data);
    struct call *call = claim_begin(driver, claim, noted);
    if (call != NULL) {
        txn_if_modified(&call->grpc.out, key_bytes(&own), claim->modified);
        txn_put(&call->grpc.out, BRANCH_THEN,
                &(struct put){
                    .key = key_bytes(&own), .value = bytes_of(data, size), .keep_lease = true});
    }
    claim_send(driver, claim, call);
}

static void raised(struct driver *driver, struct call *call)
{
    struct claim *claim = claim_arrived(driver, call);
    if (claim == NULL || claim->state != CLAIM_FIRST)
        return;
    if (call->end == CALL_REFUSED)
        claim_fail(driver, claim, call);
    else if (!call->answer.done) /* another client was faster */
        claim_look(driver, claim);
    else {
        driver->must_jump = false; /* if it had become true meanwhile, this answer would be lost */
        driver->base_at = call->answer.header.revision;
        count_with(driver, claim, claim->base);
    }
}

static void raise_base(struct driver *driver, struct claim *claim, const struct kvs *tokens,
                       uint64_t cluster)
{
    char data[DATA_MAX];
    struct key key;
    tokens_key(driver, &key);
    size_t size = base_write(claim->base, cluster, data);
    struct call *call = claim_begin(driver, claim, raised);
    if (call != NULL) {
        txn_if_modified(&call->grpc.out, key_bytes(&key),
                        tokens->count > 0 ? tokens->all[0].modified : 0);
        txn_put(&call->grpc.out, BRANCH_THEN,
                &(struct put){.key = key_bytes(&key), .value = bytes_of(data, size)});
    }
    claim_send(driver, claim, call);
}

/* See wait.c, THE TURN. */
void claim_turn(struct driver *driver, struct claim *claim, int64_t revision, struct bytes before)
{
    mortise_info info = {.size = sizeof(info)};
    int64_t base = claim->queue_base, noted = note_read(before, &info);
    uint64_t created = (uint64_t)claim->created;
    if (claim->state != CLAIM_WAITING)
        return;
    if (noted > driver->base && created <= (uint64_t)(INT64_MAX - noted))
        driver->base = noted;
    if (before.size == 0 || driver->must_jump || driver->base > base ||
        created > (uint64_t)(INT64_MAX - base) || created + (uint64_t)base < claim->token_floor) {
        claim_look(driver, claim);
        return;
    }
    claim->seen_at = revision;
    claim->from_ns = now_of(driver);
    claim_become(driver, claim, CLAIM_FIRST);
    claim->step++;
    count_with(driver, claim, base);
}

void claim_be_first(struct driver *driver, struct claim *claim, const struct kvs *tokens,
                    uint64_t cluster)
{
    int64_t base, least = 0;
    enum base_kind kind = base_read(tokens, cluster, &base);
    uint64_t floor = claim->token_floor, created = (uint64_t)claim->created;
    claim_become(driver, claim, CLAIM_FIRST);
    claim->step++;
    if (kind == BASE_GOOD && base >= BASE_JUMP && base - BASE_JUMP >= driver->jump_from)
        driver->must_jump = false; /* another client has jumped: ONE JUMP IS ENOUGH */
    bool jumps = kind == BASE_OTHER_CLUSTER || driver->must_jump;
    bool is_good = kind == BASE_GOOD && base >= driver->base && !jumps;
    if (base < driver->base) /* %tokens was deleted, and perhaps made anew; or it was restored */
        base = driver->base;
    if (jumps && base <= INT64_MAX - BASE_JUMP)
        base += BASE_JUMP;
    if (floor > created)
        least = floor - created > INT64_MAX ? -1 : (int64_t)(floor - created);
    mortise_op *op = claim->op;
    if (kind == BASE_NONSENSE || least < 0 || created > (uint64_t)(INT64_MAX - base)) {
        claim->op = NULL;
        if (op != NULL)
            fault_stored(driver, op,
                         kind == BASE_NONSENSE ? "the key %tokens makes no sense"
                                               : "the tokens are used up");
        claim_drop(driver, claim);
        return;
    }
    if (is_good && base >= least) {
        driver->base_at = claim->seen_at;
        count_with(driver, claim, base);
        return;
    }
    claim->base = base > least ? base : least;
    raise_base(driver, claim, tokens, cluster);
}
