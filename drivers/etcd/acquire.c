/* acquire.c - the way of a claim to the head of its queue: puts its key, looks at the queue, watches the keys that block it.
 * claim.h has the table of its states; grant.c goes on when it is first. */
#include "claim.h"

#include <stdlib.h>

#define WATCH_AGAIN_NS                                                                             \
    (1000 * NS_PER_MS)               /* without room for a watch, or when the server ends one */
#define PERMITS_NS (500 * NS_PER_MS) /* a key that blocks by its permits may be gone by then */

static bool is_try(const struct claim *claim)
{
    return claim->op != NULL && (claim->op->flags & MORTISE_OP_TRY) != 0;
}

/* The keys that delimit the queue of a claim. */
struct keys {
    struct key own, begin, shared_begin, same_begin, same_end, shared_end, end, tokens;
    struct borders borders;
};

/* The keys of one number of permits begin with it and a dash, and end before the character behind the dash. For an
 * exclusive claim these keys mean nothing and are not used. */
static void same_keys(struct keys *keys)
{
    keys->same_begin = keys->own;
    keys->same_begin.size -= HEX_SIZE - 1; /* without the key id */
    keys->same_end = keys->same_begin;
    keys->same_end.text[keys->same_end.size - 1]++;
}

static void keys_of(const struct driver *driver, const struct claim *claim, struct keys *keys)
{
    claim_key(claim, &keys->own);
    claim_border(claim, CONTENDERS_BEGIN, &keys->begin);
    claim_border(claim, SHARED_BEGIN, &keys->shared_begin);
    claim_border(claim, SHARED_END, &keys->shared_end);
    claim_border(claim, NAME_END, &keys->end);
    tokens_key(driver, &keys->tokens);
    same_keys(keys);
    keys->borders = (struct borders){
        .begin = key_bytes(&keys->begin),
        .shared_begin = key_bytes(&keys->shared_begin),
        .same_begin = key_bytes(&keys->same_begin),
        .same_end = key_bytes(&keys->same_end),
        .shared_end = key_bytes(&keys->shared_end),
        .end = key_bytes(&keys->end),
    };
}

/* ---- first, blocked, or a try that meets somebody ------------------------------------------------------ */

/* A try is over. It reports a holder if one is known, and is BUSY as soon as its own key is gone. */
static void meet(struct driver *driver, struct claim *claim, const struct kv *somebody)
{
    if (claim->op->info != NULL && somebody != NULL) {
        mortise_info *info = claim->op->info;
        note_holder(somebody, driver->base, info);
        info->waiters = -1;
        info->holders = 1; /* at least */
    }
    claim_drop(driver, claim);
}

static void send_look(struct driver *driver, struct claim *claim, int64_t created);

/* The first contender has another number of permits. Its key may be about to go, because a caller that is refused for the
 * same reason deletes its key only afterwards. So the acquire fails only at the second look that shows this key, and
 * reports its owner. A waiting claim looks again when the key is gone, or after a pause; a try at once. */
static void meet_permits(struct driver *driver, struct claim *claim, const struct kv *holder,
                         int64_t revision)
{
    mortise_info info = {.size = sizeof(info)};
    bool is_first_look = claim->met != holder->created;
    claim->met = holder->created;
    if (is_first_look && claim->state == CLAIM_LOOKING)
        send_look(driver, claim, 0);
    else if (is_first_look && is_try(claim))
        claim_look(driver, claim);
    else if (is_first_look) {
        claim_wait(driver, claim, &(struct queue_view){.before = holder}, revision);
        claim_retry(driver, claim, PERMITS_NS);
    } else {
        note_holder(holder, driver->base, &info);
        if (claim->op != NULL)
            fault_permits(driver, claim->op, info.permits, &info);
        claim->op = NULL;
        claim_drop(driver, claim);
    }
}

/* The claim has a key, and this is its queue. ops: the answers to the ranges of queue_ask(). */
static void decide(struct driver *driver, struct claim *claim, const struct call *call,
                   const struct kvs *tokens, const struct kvs *ops, size_t count)
{
    struct key own;
    struct queue_view view;
    bool is_good = base_read(tokens, call->answer.header.cluster, &claim->queue_base) == BASE_GOOD;
    if (!is_good)
        claim->queue_base = -1;
    claim_key(claim, &own);
    if (!queue_look(ops, count, claim->kind, key_bytes(&own), &view))
        link_break(&driver->link, "an answer makes no sense");
    else if (view.other_permits != NULL)
        meet_permits(driver, claim, view.other_permits, call->answer.header.revision);
    else if (view.before == NULL && view.crowd == NULL) {
        claim->from_ns = call->sent_ns;
        claim_be_first(driver, claim, tokens, call->answer.header.cluster);
    } else if (is_try(claim))
        meet(driver, claim, view.somebody);
    else {
        claim_wait(driver, claim, &view, call->answer.header.revision);
        if (view.is_stranger) /* by then it was refused, or is the first and refuses this claim */
            claim_retry(driver, claim, PERMITS_NS);
    }
}

/* ---- looks ------------------------------------------------------------------------------------------------ */

/* Takes over what an answer shows of the claim's own key. */
static void take_own(struct driver *driver, struct claim *claim, const struct kv *kv,
                     int64_t revision)
{
    mortise_info info = {.size = sizeof(info)};
    struct session *session = session_of_lease(driver, kv->lease);
    claim->made = true;
    claim->created = kv->created;
    claim->modified = kv->modified;
    claim->lease = kv->lease;
    claim->seen_at = revision;
    claim->noted_base = note_read(kv->value, &info);
    if (session != NULL)
        claim_set_session(claim, session);
}

/* The claim has no key: the servers have nothing of it. */
static void start_again(struct driver *driver, struct claim *claim)
{
    claim->made = false;
    claim->lease = 0;
    claim_set_move(claim, NULL); /* the move names the key that is gone, so it is never done */
    claim_become(driver, claim, CLAIM_IDLE);
    claim_go(driver, claim);
}

enum { LOOK_TOKENS, LOOK_OWN, LOOK_QUEUE };

static void looked(struct driver *driver, struct call *call)
{
    struct claim *claim = claim_arrived(driver, call);
    const struct answer *answer = &call->answer;
    const struct kvs *own = &answer->ops[LOOK_OWN];
    struct queue_view view;
    if (claim == NULL)
        return;
    if (call->end == CALL_REFUSED)
        claim_fail(driver, claim, call);
    else if (answer->op_count < LOOK_QUEUE)
        link_break(&driver->link, "an answer makes no sense");
    else if (own->count > 0) {
        int64_t created = claim->created;
        bool is_queued = claim->state == CLAIM_QUEUED;
        take_own(driver, claim, own->all, answer->header.revision);
        if (!is_queued || claim->created != created) { /* not the key that was asked about */
            claim_look(driver, claim);
            return;
        }
        driver->upcalls->seen(driver, claim);
        decide(driver, claim, call, &answer->ops[LOOK_TOKENS], answer->ops + LOOK_QUEUE,
               answer->op_count - LOOK_QUEUE);
    } else if (claim->state != CLAIM_LOOKING)
        start_again(driver, claim);
    else if (!queue_look(answer->ops + LOOK_QUEUE, answer->op_count - LOOK_QUEUE, claim->kind,
                         (struct bytes){0}, &view))
        link_break(&driver->link, "an answer makes no sense");
    else if (view.other_permits != NULL)
        meet_permits(driver, claim, view.other_permits, answer->header.revision);
    else if (view.before != NULL || view.crowd != NULL)
        meet(driver, claim, view.somebody);
    else {
        claim->has_looked = true;
        start_again(driver, claim);
    }
}

static void send_look(struct driver *driver, struct claim *claim, int64_t created)
{
    struct keys keys;
    claim->step++;
    claim->retry_ns = 0;
    struct call *call = claim_begin(driver, claim, looked);
    if (call != NULL) {
        struct writer *out = &call->grpc.out;
        keys_of(driver, claim, &keys);
        txn_range(out, BRANCH_THEN, &(struct range){.begin = key_bytes(&keys.tokens)});
        txn_range(out, BRANCH_THEN, &(struct range){.begin = key_bytes(&keys.own)});
        queue_ask(out, BRANCH_THEN, &keys.borders, claim->kind, created);
    }
    claim_send(driver, claim, call);
}

void claim_look(struct driver *driver, struct claim *claim)
{
    claim_become(driver, claim, CLAIM_QUEUED);
    send_look(driver, claim, claim->created);
}

/* ---- the acquire -------------------------------------------------------------------------------------------- */

enum { PUT_DONE, PUT_TOKENS, PUT_QUEUE };            /* put */
enum { NOT_OWN, NOT_SESSION, NOT_FIRST, NOT_COUNT }; /* not put */
_Static_assert(1 + PUT_QUEUE + QUEUE_OPS_MAX <= TXN_OPS_MAX, "a delete, and all of it");

static void was_put(struct driver *driver, struct claim *claim, struct call *call)
{
    const struct answer *answer = &call->answer;
    const struct kvs *ops = answer->ops + claim->covers; /* the delete is the first one */
    claim->made = true;
    claim->maybe = false;
    claim->created = claim->modified = claim->seen_at = answer->header.revision;
    claim->lease = claim->session->lease;
    if (claim_is_unwanted(claim)) {
        claim_become(driver, claim, CLAIM_DELETING);
        claim_go(driver, claim);
        return;
    }
    claim_become(driver, claim, CLAIM_QUEUED);
    driver->upcalls->seen(driver, claim);
    decide(driver, claim, call, &ops[PUT_TOKENS], ops + PUT_QUEUE,
           answer->op_count - claim->covers - PUT_QUEUE);
}

static void was_not_put(struct driver *driver, struct claim *claim, struct call *call)
{
    const struct answer *answer = &call->answer;
    const struct kvs *own = &answer->ops[NOT_OWN], *key = &answer->ops[NOT_SESSION];
    const struct kvs *first = &answer->ops[NOT_FIRST];
    bool is_joined = key->count > 0 && key->all[0].modified == claim->session->joined_at;
    claim->maybe = false;
    if (!is_joined)
        session_rejoin(driver, claim->session);
    if (own->count > 0)
        take_own(driver, claim, own->all, answer->header.revision);
    else
        claim->made = false;
    if (claim_is_unwanted(claim) && own->count == 0)
        claim_end(driver, claim, MORTISE_OK);
    else if (claim_is_unwanted(claim)) {
        claim_become(driver, claim, CLAIM_DELETING);
        claim_go(driver, claim);
    } else if (own->count > 0) {
        claim_look(driver, claim);
    } else if (!is_joined || first->count == 0 || !is_try(claim)) {
        claim_become(driver, claim, CLAIM_IDLE); /* goes on when its session is joined again */
        claim_go(driver, claim);
    } else {
        claim_become(driver, claim, CLAIM_IDLE);
        meet(driver, claim, first->all);
    }
}

/* The servers have refused the acquire. So there is no key, unless this acquire has used up their space, or the reply to an
 * earlier one was lost. */
static void was_refused(struct driver *driver, struct claim *claim, struct call *call)
{
    if (fault_is_no_lease(call)) { /* the claims that wait for the session end with it */
        session_end(driver, claim->session);
        return;
    }
    claim->made = claim->maybe || fault_is_doubtful(call);
    if (claim->state != CLAIM_UNWANTED) {
        claim_become(driver, claim, CLAIM_IDLE);
        claim_fail(driver, claim, call);
    } else if (claim->made) {
        claim_become(driver, claim, CLAIM_REDELETING);
        claim_go(driver, claim);
    } else
        claim_end(driver, claim, MORTISE_OK);
}

/* ---- a delete in the same transaction ---- */

/* Requests are executed in any order. So an acquire can be executed before the delete of this client's last key of that name,
 * although the delete was sent first. Then the client would wait for itself. So if that delete is not answered yet, the acquire
 * deletes the key, too. */
static struct claim *find_leaving(const struct claim *claim)
{
    struct claim *other;
    DL_FOREACH (claim->name->claims, other)
        if (other != claim && claim_is_leaving(other) && other->covered_by == NULL)
            return other;
    return NULL;
}

/* It is known now what the acquire has done to the covered key, so the covered claim learns whether the key was there. */
static void uncover(struct driver *driver, struct claim *claim, bool deleted)
{
    struct claim *other;
    DL_FOREACH (claim->name->claims, other)
        if (other->covered_by == claim)
            break;
    if (other == NULL)
        return;
    other->covered_by = NULL;
    if (deleted)
        claim_end(driver, other, MORTISE_OK);
}

/* This answer counts in every state of the claim, unless its session has ended. */
static void asked(struct driver *driver, struct call *call)
{
    struct claim *claim = claim_answered(driver, call);
    if (claim == NULL || call->to.step != claim->ask)
        return;
    bool is_whole = call->answer.op_count > (size_t)claim->covers + PUT_QUEUE;
    bool is_done = call->end == CALL_DONE && call->answer.done;
    if (call->end == CALL_LOST || (call->end == CALL_REFUSED && fault_is_doubtful(call)))
        claim_uncover(driver, claim);
    else
        uncover(driver, claim, is_done && is_whole && call->answer.ops[0].total > 0);
    if (call->end == CALL_LOST) {
        claim->maybe = true;
        session_doubt(claim->session);
        claim_become(driver, claim, claim_is_unwanted(claim) ? CLAIM_DOUBTFUL : CLAIM_UNCERTAIN);
    } else if (call->end == CALL_REFUSED)
        was_refused(driver, claim, call);
    else if (call->answer.done && is_whole)
        was_put(driver, claim, call);
    else if (!call->answer.done && call->answer.op_count == NOT_COUNT)
        was_not_put(driver, claim, call);
    else
        link_break(&driver->link, "an answer makes no sense");
}

/* leaving: the claim whose key it deletes, or NULL. */
static void write_ask(const struct driver *driver, const struct claim *claim,
                      const struct claim *leaving, struct writer *out)
{
    char data[DATA_MAX];
    struct keys keys;
    const struct session *session = claim->session;
    keys_of(driver, claim, &keys);
    struct bytes own = key_bytes(&keys.own);
    size_t size = note_write(driver, &claim->grant, driver->base, claim->noted_ms, false, data);
    txn_if_created(out, own, 0);
    txn_if_modified(out, session_key(session), session->joined_at);
    if (leaving != NULL) {
        struct key covered;
        claim_key(leaving, &covered);
        txn_delete(out, BRANCH_THEN, key_bytes(&covered));
    } else if (is_try(claim) && !claim->kind.shared)
        txn_if_none(out, keys.borders.begin, keys.borders.end);
    txn_put(out, BRANCH_THEN,
            &(struct put){.key = own, .value = bytes_of(data, size), .lease = session->lease});
    txn_range(out, BRANCH_THEN, &(struct range){.begin = key_bytes(&keys.tokens)});
    queue_ask(out, BRANCH_THEN, &keys.borders, claim->kind, 0);
    txn_range(out, BRANCH_ELSE, &(struct range){.begin = own});
    txn_range(out, BRANCH_ELSE, &(struct range){.begin = session_key(session), .keys_only = true});
    txn_range(out, BRANCH_ELSE,
              &(struct range){.begin = keys.borders.begin,
                              .end = keys.borders.end,
                              .order = ORDER_OLDEST,
                              .limit = 1});
}

static void ask(struct driver *driver, struct claim *claim)
{
    claim->step++;
    claim->ask++;
    claim->retry_ns = 0;
    claim->noted_base = driver->base;
    claim->noted_ms = note_time_ms();
    claim->has_looked = claim->downgraded = false;
    struct claim *leaving = find_leaving(claim);
    claim->covers = leaving != NULL;
    struct call *call = claim_begin(driver, claim, asked);
    if (call != NULL) {
        call->to.step = claim->ask;
        write_ask(driver, claim, leaving, &call->grpc.out);
    }
    if (claim_send(driver, claim, call)) {
        if (leaving != NULL)
            claim_cover(driver, claim, leaving);
        claim->made = true;
        claim_become(driver, claim, CLAIM_ASKING);
    }
}

/* ---- what is next ------------------------------------------------------------------------------------------ */

/* Chooses a session for a claim that has no usable one. False: no memory. */
static bool choose_session(struct driver *driver, struct claim *claim)
{
    struct session *session = session_for(driver, claim->ttl_ms);
    mortise_op *op = claim->op;
    claim_set_session(claim, session);
    if (session != NULL)
        return true;
    claim->op = NULL;
    if (op != NULL)
        fault_memory(driver, op, claim->made ? MORTISE_INDETERMINATE : MORTISE_NOMEM);
    claim_retry(driver, claim, WATCH_AGAIN_NS);
    return false;
}

static void begin(struct driver *driver, struct claim *claim)
{
    if (!choose_session(driver, claim) || !session_is_ready(claim->session))
        return;
    if (is_try(claim) && claim->kind.shared && !claim->made && !claim->has_looked) {
        claim_become(driver, claim, CLAIM_LOOKING);
        send_look(driver, claim, 0);
    } else
        ask(driver, claim);
}

/* A claim that waited for a join goes on when the join is answered. */
static void settle(struct driver *driver, struct claim *claim)
{
    if (claim->session->join != JOINED)
        return;
    if (claim->state == CLAIM_DOUBTFUL) {
        claim_become(driver, claim, CLAIM_REDELETING);
        claim_delete(driver, claim);
    } else {
        claim_become(driver, claim, CLAIM_IDLE);
        begin(driver, claim);
    }
}

/* Forgets what it was waiting for. */
static void start_over(struct driver *driver, struct claim *claim)
{
    claim->step++;
    if (claim->state == CLAIM_LOOKING)
        claim_become(driver, claim, CLAIM_IDLE);
    else if (claim_is_wanted(claim) && claim->state > CLAIM_QUEUED)
        claim_become(driver, claim, CLAIM_QUEUED);
}

static void go_now(struct driver *driver, struct claim *claim)
{
    switch (claim->state) {
    case CLAIM_IDLE:
        begin(driver, claim);
        return;
    case CLAIM_UNCERTAIN:
    case CLAIM_DOUBTFUL:
        settle(driver, claim);
        return;
    case CLAIM_QUEUED:
        claim_look(driver, claim);
        return;
    case CLAIM_DELETING:
    case CLAIM_REDELETING:
        claim_delete(driver, claim);
        return;
    default: /* ASKING and UNWANTED wait for their answers; the others have no next call */
        return;
    }
}

/* Thousands of claims may begin together, go on after a reconnection, or move. Not all of their calls are sent at once.
 * Claims keep their order: the next acquire of a name is behind its release. Held claims go first, because only they have a
 * deadline. */
bool claim_is_late(struct driver *driver, struct claim *claim)
{
    if (claim->prev_late != NULL)
        return true;
    if (driver->backlog == NULL && driver->link.open < OPEN_MAX)
        return false;
    if (claim->state == CLAIM_HELD)
        DL_PREPEND2(driver->backlog, claim, prev_late, next_late);
    else
        DL_APPEND2(driver->backlog, claim, prev_late, next_late);
    return true;
}

void claim_go(struct driver *driver, struct claim *claim)
{
    if (claim->state == CLAIM_IDLE && claim->session == NULL &&
        !choose_session(driver, claim)) /* a session is wanted, connected or not */
        return;
    if (!is_connected(driver))
        return;
    start_over(driver, claim);
    if (!claim_is_late(driver, claim))
        go_now(driver, claim);
}

void claims_go_late(struct driver *driver)
{
    while (driver->backlog != NULL && is_connected(driver) && driver->link.open < OPEN_MAX) {
        struct claim *claim = driver->backlog;
        claim_not_late(driver, claim);
        driver->upcalls->late(driver, claim);
        go_now(driver, claim);
    }
}
