/* queue.c - queue = yes: the waiters of all processes are in a queue in the server. A release hands the lock to the first
 * waiter and notifies its client's inbox. So only one waiter is woken, in order, and needs no request for it. This file has the
 * client's part: the ops that wait, their *seats* (seats.c), and when they ask again.
 *
 * THE PROTOCOL. For a lock N the server has: the lock (its grant, its expiry), and the queue, a list of *places*. A place has
 * the waiter's grant id, its ttl, its client's inbox, when the server last heard of it (`seen`), and the *stamp*, which the
 * waiter sets: the instant, on its host's monotonic clock, before it sent the request that made or refreshed this place. Each
 * script is one atomic step:
 *
 *   acquire (queue_*_acquire)   If the grant holds already: "yours". If the lock is free and the queue empty: taken. If it is
 *                               free and somebody waits, because a holder has died: hand-on; if nobody before it was given the
 *                               lock: taken. Otherwise it sits: its place is appended, or refreshed (stamp, seen; places before
 *                               it that are not fresh are removed). The answer is "queued", and when it must ask again at the
 *                               latest. A try never sits: "busy".
 *   hand-on (include/queue)     Pops places until one gets the lock, for its whole ttl from now, under a new token;
 *                               PUBLISH "<grant> <token> <stamp>" to its inbox. It skips places that were not seen for two
 *                               thirds of their ttl, and places whose inboxes nobody listens to. A place has a mode
 *                               (protocol.md). If a shared place gets the lock, the shared places directly behind it get it,
 *                               too. tests/model/redis_shared.pml is a model of that.
 *   release, break              The lock is deleted, then hand-on. If nobody took it, a message goes to the channel of the
 *                               name, for waiters without a queue. A release under a grant that does not hold removes its place
 *                               from the queue.
 *   turn (queue_string_turn)    A release, and the first acquire of the same client's next caller, as one step (turn.c).
 *   join (hash)                 Waiters of the owner that just got the lock hold it, too, at once.
 *   renew                       As without a queue: extends the claim of this grant, or says that it is gone.
 *
 * In the client, an acquire is SENT or SEATED (op.h):
 *
 *          busy, no inbox            subscribed        "queued"
 *   SENT ────────────────▶ SEATED ────────────▶ SENT ────────▶ SEATED ──"<grant> <token> <stamp>"──▶ granted
 *     │                   (no place)             ▲            (a place)       from the inbox
 *     └──taken──▶ granted                        └──refresh──────┘
 *                                                    │ taken, "yours"
 *                                                    └──────────────▶ granted
 *
 *   refresh: the same acquire is sent again: every third of the ttl; when the holder's remaining time is over; as often as the
 *     shortest ttl of the places before it, whose owners may hold and die unseen (the server says when); when a connection is
 *     back; every `retry` with foreign = poll, or while a writer without a place bars it. A seat has at most one request under
 *     way.
 *   F (op->first_sent_ns): the stamp of the last request that was answered "queued"; before that, the first sending.
 *   "Yours" also says how long the claim still lasts.
 *
 * WHY THE DEADLINE IS EARLIER THAN THE EXPIRY. A message carries the stamp that the place had when it was popped. The request
 * with that stamp was sent after that instant, and executed before the lock was given. So the deadline, stamp + ttl, is earlier
 * than the expiry, given + ttl, whatever was delayed, lost or repeated. A message whose stamp is before F reports a grant that
 * is gone, because "queued" was answered since. It is ignored. After "yours", the lock was given after the last "queued", so
 * the deadline counts from F. But it is no later than the claim's end as the answer says it, counted from before the request
 * (another server may have another history). Nothing else moves F, least of all a message. The first renewal is due a third of
 * the ttl after that instant, when the next refresh would have been: at once, if that has passed. A place that was last seen
 * two thirds of its ttl ago is skipped, so a third of the ttl is left.
 *
 * THE HOLES, step by step:
 *
 *   The inbox must be subscribed to before a place is taken, because hand-on takes a client without a listener for dead. Until
 *     the subscription is in force, an acquire only tries.
 *   The message comes over another connection, before the answer that there is a place: the seat is made before the request is
 *     sent. If the message says that the place is gone, the op asks again as soon as that answer has come.
 *   A message says that the place is gone, soon after another one that said so: the op asks again after PAUSE_MS. It may be one
 *     of several callers whose user has no right to let any of them in, so that each makes the others ask.
 *   The message comes twice, or after a refresh was answered "yours": there is no seat any more, so nothing happens.
 *   The message comes while a refresh is under way. If the refresh was executed before the grant, the message has the stamp of
 *     the refresh, and the answer to the refresh does not matter. If the refresh was not executed yet, the driver waits for its
 *     answer, which is "yours"; if it is executed after the lease has ended, it takes the lock anew. If the driver believed the
 *     message at once, nobody would release what a late refresh takes.
 *   The message is lost, with or without its connection: the next refresh finds "yours", a third of the ttl later at the
 *     latest, or at once when a connection is made again.
 *   The message comes after the ttl: its deadline has passed, and the core releases the grant.
 *   The message is late, its grant has ended, and the place was taken anew: its stamp is before F, so it is ignored.
 *   The request is lost, or its reply: the op is INDETERMINATE, and the core asks again under the same grant, "again": the
 *     place is found, not doubled. If a request of an older connection is executed after that, it can double the place, or set
 *     an old stamp: then the message is ignored, and the refresh finds "yours". The link ends old connections. If it may not,
 *     releases go on until the past is settled, and each removes all places of its grant.
 *   Once a place may exist, any failure is INDETERMINATE, even a refusal (OOM, READONLY, NOPERM) or BUSY: the lock may be given
 *     to the grant at any time, so the core must ask for it with its F, or release it. A first request that is refused leaves
 *     neither a place nor a grant: what may be refused comes before them, or they are removed again.
 *   The caller gives up: INDETERMINATE at once. The core's release removes the place or, if the message crosses it, hands the
 *     lock on. Without a connection, the place is skipped after two thirds of its ttl. If it was given the lock before, that
 *     claim ends with the ttl.
 *   The process is killed while it has a place: its sockets are closed, nobody listens, and the place is skipped. If the grant
 *     comes just before the server notices, the lock belongs to a dead process for its ttl, as if the process had been killed
 *     just after the grant.
 *   Why not give the lock for a short time only, until the receiver confirms? Its deadline would count from the stamp, too,
 *     which is up to a third of the ttl old. So the deadline would have passed already, and no waiter could hold without a
 *     request of its own.
 *   The process is stopped, or its host falls silent, while it has a place: it is given the lock once, for its ttl, or skipped
 *     when two thirds of the ttl are over. When it goes on, the stamp shows that the deadline has passed.
 *   The holder dies: all waiters ask when its time is over. The first one to ask hands the lock on, in the order of the queue.
 *   The holder dies, and a newcomer tries before any waiter has asked: the newcomer's script hands the lock on, and the
 *     newcomer is BUSY.
 *   The server lost its data (flushed, restarted): the refresh takes the lock, or a new place at the end.
 *   The connection breaks: ops that are SEATED stay, and ask when it is back. If it cannot be made again, they are
 *     INDETERMINATE. If the inbox's connection breaks, a refresh only tries until that connection is back, and leaves the place
 *     as it is. The place may be skipped meanwhile, and is then taken anew.
 *   Two threads: only the head of a name's waitlist has an op, and the pump serialises ops. Two clients in a process, or
 *     several callers of an owner: each has a grant and a place.
 *   Out of memory in the client: BUSY; the core asks again later. In the server: the script is refused at its first write, so
 *     nothing was done.
 *   No token is left: nobody is given the lock, and an acquire reports it.
 *   An ACL refuses PUBLISH: it looks as if nobody listened, so the queue is emptied, and waiters get the lock when they ask.
 *   SUBSCRIBE is refused: nobody sits; waiters ask every `retry` (pubsub.c).
 *   The inbox's connection cannot be made: seated ops ask every `retry`, too, and have a chance whenever nobody else waits.
 *   Such a waiter is exclusive, and others share the lock: it bars new shared holders (shared.c). A barred op gets no place,
 *     because shared holders give the lock to places. It asks every `retry`, until it has the lock, or a place behind the
 *     waiter that barred it.
 *   The queue expires with all its places, twice the longest ttl after the last refresh. If it is evicted, it is made anew.
 *   After a failover, another server is the primary, with its own state of the lock and the queue. Changes that it never got
 *     belong to another history. For example, a grant that was broken or released at the old primary, after which F moved
 *     there, may still exist here. So "yours" says how long the claim lasts. A place that exists here is valid, but its floor
 *     is the one that the old primary was asked for. If an op finds that it was given the lock under a token below the floor
 *     that it asks for now (failover.c: this server's clock is behind), it gets a larger token, because it has not reported one
 *     yet. A message is believed only if it comes from the server that the driver uses now, and for a place that was requested
 *     there. A hand-on before the waiters have come to this server skips them, because nobody listens. They sit down in the
 *     order in which they come, and their old order is lost.
 *   Its slot moves to another node of a cluster (cluster.c): the op goes there with its F, and asks "again". A place moves with
 *     the slot, but its message is believed only if its stamp is that of a request to this node (seat->since_ns).
 *   Too many ops want to ask at once when a connection is back: they ask in turn, as answers make room (has_room).
 *   Clients without the queue take a lock that is free, and do not hand it on when they release: waiters notice it when they
 *     ask; soon with foreign = poll, otherwise when the holder's remaining time is over. Two never hold at once, because the
 *     lock is the same key.
 *   The server's clock jumps forward: locks end early, as everywhere, and places look old, so they are taken anew. If it jumps
 *     back, places look fresh for longer. */
#include "seats.h"
#include "shared.h"

#include <stdlib.h>

#define PAUSE_MS 100 /* about the pause of an op whose places go one after another */

/* ---- asking ------------------------------------------------------------------------------------------- */

bool queue_may_wait(const struct driver *driver, const mortise_op *op)
{
    return driver->queued && !driver->deaf && (op->flags & MORTISE_OP_TRY) == 0;
}

/* Writes the number with so many digits, leading zeros, and a blank behind it. */
static void put_digits(char *to, size_t digits, uint64_t number)
{
    to[digits] = ' ';
    while (digits-- > 0) {
        to[digits] = (char)('0' + number % 10);
        number /= 10;
    }
}

enum wish queue_wish(struct request *request, char text[WISH_SIZE])
{
    struct driver *driver = request->driver;
    mortise_op *op = request->op;
    if (request->seat != NULL)
        seat_unkeep(driver, request->seat);
    if (!queue_may_wait(driver, op) || !driver->inbox_ready)
        return WISH_NONE;
    if (request->seat == NULL)
        request->seat = seat_new(driver, op, request->call.sent_ns);
    struct seat *seat = request->seat;
    if (seat == NULL)
        return WISH_NONE;
    driver->inbox_wanted = true; /* a node without slots may not want it, although it is ready */
    link_want(&driver->news);
    bool again = seat->placed;
    text[0] = again ? 'a' : 'n';
    put_digits(text + 1, 10, (uint64_t)op->ttl_ms);
    put_digits(text + 12, 19, (uint64_t)request->call.sent_ns);
    put_digits(text + 32, 16,
               op->mode == MORTISE_SHARED ? SHARED_FLOOR : failover_floor(driver, op));
    memcpy(text + 49, driver->inbox, sizeof(driver->inbox));
    seat->placed = true;
    return again ? WISH_AGAIN : WISH_NEW;
}

/* The slot of one that was led here by ASK may have come here, gone back, and be on its way again: behind ASKING this node would say
 * then that a lock is free that is held where the slot still is. So the map says where to ask. */
static void ask(struct driver *driver, struct seat *seat)
{
    mortise_op *op = seat->op;
    seat_set_due(driver, seat, MORTISE_NEVER);
    if (data_of(op)->state == OP_SEATED && data_of(op)->asking)
        driver->routes->again(driver, op);
    else if (data_of(op)->state == OP_SEATED)
        driver->dispatch->send(driver, op);
}

/* Spreads the times, so that waiters do not ask in step. */
static int64_t around(struct driver *driver, int64_t ms)
{
    uint32_t number;
    driver->host->random(driver->host, &number, sizeof(number));
    return ms / 2 + 1 + number % (ms + 1);
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* `barred`: an exclusive waiter without a place keeps this op out, and nobody reports when that waiter gives up. */
static int64_t refresh_ms(struct driver *driver, const mortise_op *op, bool barred,
                          int64_t at_latest_ms)
{
    int64_t ms = smaller(op->ttl_ms / 3, at_latest_ms);
    bool polls = driver->foreign_polled || driver->unheard.asks || barred;
    return polls ? smaller(ms, around(driver, driver->retry_ms)) : ms;
}

/* When an op asks whose place is gone: at once, but not twice in a row. Otherwise several callers whose user has no right to
 * let any of them in would make each other ask without end. */
static int64_t again_ns(struct driver *driver, const struct seat *seat)
{
    int64_t ms = seat->gone_twice ? smaller(around(driver, PAUSE_MS), seat->op->ttl_ms / 3) : 0;
    return now_of(driver) + ms * NS_PER_MS;
}

bool queue_keep(struct request *request, bool placed, int64_t at_latest_ms)
{
    struct driver *driver = request->driver;
    mortise_op *op = request->op;
    struct seat *seat = seat_of(op);
    int64_t sent_ns = request->call.sent_ns, now = now_of(driver), due_ns = now;
    bool wished = request->wish != WISH_NONE;
    if (!queue_may_wait(driver, op))
        return false;
    if (seat == NULL)
        seat = seat_new(driver, op, sent_ns);
    if (seat == NULL)
        return false;
    op_set(op, OP_SEATED, seat);
    if (data_of(op)->asking && driver->routes->serves(driver, op->name, op->name_len))
        data_of(op)->asking = false; /* the map was corrected while the request was under way */
    data_of(op)->redirects = 0; /* it was answered: it may wait while its slot moves many times */
    if (placed)
        op->first_sent_ns = sent_ns; /* a later grant is executed after this instant */
    if (!wished && !driver->inbox_ready)
        pubsub_want_inbox(driver);
    if (placed && seat->gone_ns == sent_ns) /* told() came before this answer */
        due_ns =
            smaller(again_ns(driver, seat), now + smaller(at_latest_ms, op->ttl_ms) * NS_PER_MS);
    else if (wished || !driver->inbox_ready) /* otherwise the inbox has become ready in between */
        due_ns = now + refresh_ms(driver, op, wished && !placed, at_latest_ms) * NS_PER_MS;
    seat_set_due(driver, seat, due_ns);
    driver->host->waiting(driver->host, op);
    return true;
}

void queue_refuse(struct request *request, int64_t remaining_ms)
{
    struct driver *driver = request->driver;
    mortise_op *op = request->op;
    int64_t at_latest_ms =
        remaining_ms >= 0 && remaining_ms < INT64_MAX ? remaining_ms + 1 : op->ttl_ms;
    if (queue_keep(request, false, at_latest_ms))
        return;
    if (seat_is_placed(op))
        op_fail_deaf(driver, op);
    else
        answer_busy(driver, op, remaining_ms);
}

/* ---- what brings them on --------------------------------------------------------------------------------- */

/* All seats become due at the same instant, so the list stays sorted in its present order. */
void queue_ask_all(struct driver *driver)
{
    struct seat *seat, *next;
    if (!link_is_up(&driver->link))
        return;
    int64_t now = now_of(driver);
    driver->seats = NULL;
    HASH_ITER (hh, driver->seated, seat, next) {
        seat->due_ns = data_of(seat->op)->state == OP_SEATED ? now : MORTISE_NEVER;
        if (seat->due_ns == now)
            DL_APPEND2(driver->seats, seat, previous, next);
    }
    queue_turn(driver);
}

/* If there is no room for a request, an answer comes first and makes room. */
int64_t queue_due_ns(const struct driver *driver)
{
    bool waits = driver->seats != NULL && (has_room(driver) || !link_is_up(&driver->link));
    return waits ? driver->seats->due_ns : MORTISE_NEVER;
}

void queue_turn(struct driver *driver)
{
    if (driver->seats == NULL)
        return;
    int64_t now = now_of(driver);
    bool up = link_is_up(&driver->link);
    while (driver->seats != NULL && driver->seats->due_ns <= now && (!up || has_room(driver))) {
        if (up) {
            ask(driver, driver->seats);
            continue;
        }
        seat_set_due(driver, driver->seats, MORTISE_NEVER); /* asked when the connection is back */
        link_want(&driver->link);
    }
}

/* A character that is no hex digit makes a grant that nobody has. */
static unsigned hex_digit(char c)
{
    return ((unsigned)c & 15) + 9 * ((unsigned)c >> 6 & 1);
}

static void read_hex(const char *text, mortise_grant_id *grant)
{
    for (size_t i = 0; i < MORTISE_GRANT_ID_SIZE; i++)
        grant->bytes[i] = (unsigned char)(hex_digit(text[2 * i]) << 4 | hex_digit(text[2 * i + 1]));
}

/* Reads a message to the inbox. Token 0: the place was taken out, because the shared holders have another number of permits, or
 * because it could not be given the lock: another user lacks the right, or the server refused it, or no token was left.
 * (Clients of 0.1, which do not share, ignore such a message.) False: it makes no sense. */
static bool read_push(const char *text, size_t length, mortise_grant_id *grant, uint64_t *token,
                      int64_t *stamp_ns)
{
    const char *number = text + GRANT_HEX + 1, *end = text + length;
    if (length < GRANT_HEX + 4 || text[GRANT_HEX] != ' ')
        return false;
    read_hex(text, grant);
    const char *space = memchr(number, ' ', (size_t)(end - number));
    if (space == NULL)
        return false;
    uint64_t stamp = text_number(space + 1, (size_t)(end - space - 1));
    *token = text_number(number, (size_t)(space - number));
    *stamp_ns = stamp <= INT64_MAX ? (int64_t)stamp : 0;
    return *stamp_ns > 0;
}

/* Whether the message comes from the server that the driver uses now, for a place that was made or refreshed over the
 * present connection. Otherwise it may belong to another history, whose tokens do not continue those that this client
 * has seen. Then the refresh that is sent when the connection is up finds the grant. */
static bool is_told_here(const struct driver *driver, int64_t stamp_ns)
{
    const struct link *from = &driver->news, *at = &driver->link;
    bool strange =
        from->run_id[0] != '\0' && at->run_id[0] != '\0' && strcmp(from->run_id, at->run_id) != 0;
    return link_is_up(at) && stamp_ns >= at->up_ns && !strange &&
           strcmp(from->endpoint.text, at->endpoint.text) == 0;
}

static void told(struct driver *driver, const char *text, size_t length)
{
    mortise_grant_id grant;
    struct seat *seat;
    uint64_t token;
    int64_t stamp_ns;
    if (!read_push(text, length, &grant, &token, &stamp_ns) || !is_told_here(driver, stamp_ns))
        return;
    HASH_FIND(hh, driver->seated, &grant, sizeof(grant), seat);
    if (seat == NULL || !seat->placed || stamp_ns < seat->op->first_sent_ns ||
        stamp_ns < seat->since_ns || stamp_ns > now_of(driver))
        return;
    mortise_op *op = seat->op;
    struct request *request = data_of(op)->state == OP_SENT ? data_of(op)->request : NULL;
    if (token == 0) {
        int64_t now = now_of(driver);
        seat->gone_twice = data_of(op)->asking || /* its seat is new each time */
                           (seat->told_ns != 0 && now - seat->told_ns < 2 * PAUSE_MS * NS_PER_MS);
        seat->told_ns = now;
        seat->gone_ns = stamp_ns;
        if (request == NULL) /* otherwise the answer handles it, or queue_keep() does */
            seat_set_due(driver, seat, smaller(seat->due_ns, again_ns(driver, seat)));
        queue_turn(driver);
        return;
    }
    if (request != NULL && request->call.sent_ns != stamp_ns)
        return; /* the message has overtaken a refresh, which will say "yours" */
    answer_granted(driver, op, token, stamp_ns);
    if (request != NULL)
        request->op = NULL; /* the refresh was "queued" before the grant */
}

void queue_lose_all(struct driver *driver, const struct link_fault *fault)
{
    struct seat *seat, *next;
    HASH_ITER (hh, driver->seated, seat, next)
        if (data_of(seat->op)->state == OP_SEATED)
            op_lose(driver, seat->op, LINK_NOT_SENT, fault);
}

const struct inbox_calls queue_inbox = {.changed = queue_ask_all, .told = told};
