/* turn.c - one script for each turn: a release takes along the first acquire of this client's next caller. If the core does not
 * pass claims on itself (handover_max = 0), a turn would otherwise take two scripts: the release, and the acquire that makes
 * the next caller's place.
 *
 * With MORTISE_OP_NEXT, the core says that this client holds the name, and that the op belongs to its next caller. The driver
 * keeps such an op for KEEP_MS at most. If the release comes meanwhile, both are one request, queue_string_turn, which is
 * queue_string_release and then queue_string_acquire as one atomic step. Each op has its own answer. So all that queue.c says
 * about the two scripts holds here as well; this is only one of the orders in which the server may execute them.
 * tests/model/redis_queue.pml has the step (TURNS).
 *
 * The op that is taken along, by its states:
 *
 *   event                           | KEPT (SEATED, no place)         | ALONG (SENT, on the other's call)
 *   --------------------------------|---------------------------------|---------------------------------------------
 *   the release of the name is sent | ALONG; F is that instant        | -
 *   KEEP_MS are over                | it is sent alone                | -
 *   {2, token}                      | -                               | granted, from F
 *   {2, -ms}                        | -                               | SEATED with a place
 *   nil, or refused before a write  | -                               | it is sent alone, "again": its F stays
 *   an error after a write          | -                               | INDETERMINATE, as the release is
 *   a push with the stamp F         | ignored: it has no place        | granted; the answer says nothing more
 *   the call is lost                | -                               | INDETERMINATE; UNREACHABLE if it was not sent
 *   the connection breaks           | it is sent when it is back      | as above
 *   ... and cannot be made          | UNREACHABLE                     | -
 *   the inbox breaks                | it is sent alone, without a wish| the place may be passed over (queue.c)
 *   canceled                        | CANCELED: nothing was sent      | INDETERMINATE; the core's release follows
 *   the release is canceled         | -                               | nothing changes
 *   its slot moves                  | it goes along (moving.c)        | refused (MOVED): alone, and led on from there
 *
 * The release, while it takes an acquire along:
 *
 *   {2, ...}: done. nil, or refused before a write: it is sent alone. An error after a write, or lost: INDETERMINATE, and the
 *   core repeats it. Canceled: the reply is dropped; the core repeats it.
 *
 * THE HOLES:
 *
 *   The process dies in between: there is no between, because the script is one step. The place that was made is skipped,
 *     because nobody listens. A lock that was taken belongs to a dead process for its ttl, as after an acquire.
 *   The push for another client's grant, or for the own one, comes before the answer: told() compares it with the stamp of the
 *     call, and the request of the op that is taken along has the same stamp.
 *   Nobody listens to the push: the script hands on, maybe to the place that it has just made.
 *   The server is out of memory: the first write is refused, so nothing was done. Then both are sent alone. The release must
 *     not be refused for want of memory, and alone it is not, because it begins with a pop.
 *   min_replicas: the acquired lock is confirmed as after an acquire.
 *   Order: the place is made up to KEEP_MS later than without this. As always, processes are served in the order in which the
 *     server first heard of them. */
#include "seats.h"

#define KEEP_MS 5
#define ARGUMENTS 5

/* ---- kept --------------------------------------------------------------------------------------------- */

static bool may_be_kept(const struct driver *driver, const mortise_op *op)
{
    const unsigned others = MORTISE_OP_TRY | MORTISE_OP_REPEAT;
    const struct op_data *data = data_of(op);
    return (op->flags & MORTISE_OP_NEXT) != 0 && (op->flags & others) == 0 &&
           op->mode == MORTISE_EXCLUSIVE && driver->queued && driver->layout == LAYOUT_STRING &&
           driver->inbox_ready && op->first_sent_ns == 0 && seat_of(op) == NULL && !data->placed &&
           !data->asking && data->redirects == 0;
}

bool turn_keep(struct driver *driver, mortise_op *op)
{
    if (!may_be_kept(driver, op) || seat_kept(driver, op) != NULL)
        return false;
    int64_t now = now_of(driver);
    struct seat *seat = seat_new(driver, op, now);
    if (seat == NULL)
        return false;
    op_set(op, OP_SEATED, seat);
    seat_set_due(driver, seat, now + KEEP_MS * NS_PER_MS);
    seat_keep(
        driver,
        seat); /* without memory it is only a seat without a place, which asks when it is due */
    return true;
}

/* ---- apart -------------------------------------------------------------------------------------------- */

/* Whether the error came before the lock was given to another, so that nothing was done. */
static bool is_undone(const redisReply *reply)
{
    if (reply->type != REDIS_REPLY_ERROR)
        return reply->type == REDIS_REPLY_NIL;
    enum link_error error = link_error_of(reply->str, reply->len);
    return error != LINK_ERROR_OTHER && error != LINK_ERROR_SPLIT;
}

static void send_alone(struct driver *driver, mortise_op *op)
{
    if (link_is_up(&driver->link))
        driver->dispatch->send(driver, op);
    else if (data_of(op)->state == OP_SEATED)
        seat_set_due(driver, data_of(op)->seat, now_of(driver));
    else
        op_wait(driver, op);
}

static void fail_unsure(struct driver *driver, mortise_op *op, const redisReply *reply)
{
    struct link_fault fault;
    if (op == NULL)
        return;
    if (reply->type != REDIS_REPLY_ERROR) {
        op_fail_odd(driver, op);
        return;
    }
    link_fault_reply(&driver->link, reply, &fault);
    fault.status = MORTISE_INDETERMINATE;
    fault.retryable = true;
    op_fail(driver, op, &fault);
}

static void end_apart(struct request *request, const redisReply *reply)
{
    struct driver *driver = request->driver;
    struct request *along = request->along;
    if (reply->type == REDIS_REPLY_ERROR &&
        link_error_of(reply->str, reply->len) == LINK_ERROR_NOSCRIPT)
        driver->known[request->script] = false;
    if (!is_undone(reply)) {
        fail_unsure(driver, request->op, reply);
        fail_unsure(driver, along->op, reply);
        return;
    }
    if (request->op != NULL)
        send_alone(driver, request_let_go(request));
    if (along->op != NULL)
        send_alone(driver, request_let_go(along));
}

/* ---- the turn ----------------------------------------------------------------------------------------- */

static bool is_done(const redisReply *reply)
{
    return reply->type == REDIS_REPLY_ARRAY && reply->elements == 2 &&
           reply->element[0]->type == REDIS_REPLY_INTEGER && reply->element[0]->integer == 2 &&
           reply->element[1]->type == REDIS_REPLY_INTEGER && reply->element[1]->integer != 0 &&
           reply->element[1]->integer != INT64_MIN;
}

static void answer_along(struct request *along, int64_t number)
{
    struct driver *driver = along->driver;
    mortise_op *op = along->op;
    int64_t sent_ns = along->call.sent_ns;
    if (number > 0)
        answer_granted(driver, op, (uint64_t)number, sent_ns);
    else if (!queue_keep(along, true, -number))
        op_fail_deaf(driver, op);
}

/* Takes the answer. Either op may be gone. */
static void turned(struct request *request, redisReply *reply)
{
    struct request *along = request->along;
    if (!is_done(reply)) {
        end_apart(request, reply);
        return;
    }
    if (request->op != NULL)
        answer_released(request->driver, request->op, 2);
    if (along->op != NULL)
        answer_along(along, reply->element[1]->integer);
}

static struct seat *next_of(struct driver *driver, const mortise_op *op)
{
    const unsigned others =
        MORTISE_OP_REPEAT | MORTISE_OP_BREAK | MORTISE_OP_DOWNGRADE | MORTISE_OP_DEAD;
    if (driver->kept == NULL || (op->flags & others) != 0 || op->mode != MORTISE_EXCLUSIVE ||
        op_is_own(driver, op) || !driver->inbox_ready || driver->deaf || !has_room(driver) ||
        data_of(op)->asking || data_of(op)->redirects > 0)
        return NULL;
    return seat_kept(driver, op);
}

bool turn_take_along(struct request *request)
{
    struct driver *driver = request->driver;
    struct link *link = &driver->link;
    mortise_op *op = request->op;
    struct seat *seat = next_of(driver, op);
    struct request *along = seat != NULL ? request_along(request, seat->op) : NULL;
    char wish[WISH_SIZE];
    if (along == NULL)
        return false;
    const mortise_op *next = along->op;
    const char *verb = pubsub_verb(driver);
    request->answer = turned;
    request->takes_errors = true;
    along->wish = queue_wish(along, wish);
    seat_set_due(driver, seat, MORTISE_NEVER);
    request_script(request, SCRIPT_QUEUE_STRING_TURN, 3, ARGUMENTS + (verb != NULL));
    key_put(link, op, KEY_LOCK);
    key_put(link, op, KEY_TOKEN);
    key_put(link, op, KEY_QUEUE);
    key_put_grant(link, op);
    key_put_grant(link, next);
    link_argument(link, next->note, next->note_len);
    link_text(link, wish);
    key_put_channel(link, driver, op);
    if (verb != NULL)
        link_text(link, verb);
    link_call_end(link, &request->call, 1);
    return true;
}
