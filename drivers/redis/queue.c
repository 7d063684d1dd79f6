/* queue.c - queue = yes: the waiters of all processes stand in a queue in the server. A release hands the lock to the first
 * of them and tells its client's inbox. One waiter is woken, in order, without a request of its own. This file has the
 * client's part: the ops that wait, their *seats* (seats.c), and when they ask again.
 *
 * THE PROTOCOL. In the server there is for a lock N: the lock (its grant, its expiry); the queue, a list of *places*. A
 * place has the waiter's grant id, its ttl, its client's inbox, when the server last heard of it (`seen`), and the *stamp*,
 * which is the waiter's own: the instant, on its host's monotonic clock, before it sent the request that made or refreshed
 * this place. A script is one atomic step:
 *
 *   acquire (queue_*_acquire)   It holds already: "yours". The lock is free and the queue empty: taken. Free, and somebody
 *                               waits, because a holder has died: hand-on; if nobody before it was given the lock: taken.
 *                               Else it sits: its place is appended, or refreshed (stamp, seen; places before it that
 *                               are not fresh are removed). The answer is "queued", and when it must ask again at the
 *                               latest. A try never sits: "busy".
 *   hand-on (include/queue)     Pops places until one gets the lock, for its whole ttl from now, under a new token;
 *                               PUBLISH "<grant> <token> <stamp>" to its inbox. It passes over places that were not
 *                               seen for two thirds of their ttl, and inboxes to which nobody listens.
 *                               A place has a mode (protocol.md). If a shared place gets the lock, those directly behind
 *                               it that are shared get it too. tests/model/redis_shared.pml is a model of that.
 *   release, break              The lock is deleted, then hand-on. If nobody took it: a message to the channel of the
 *                               name, for waiters without a queue. A release under a grant that does not hold removes
 *                               its place from the queue.
 *   turn (queue_string_turn)    A release, and the first acquire of the same client's next caller, as one step (turn.c).
 *   join (hash)                 Waiters of the owner that just got the lock hold it too, at once.
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
 *   refresh: the same acquire again: every third of the ttl; when the holder's remaining time is over; as often as the
 *     shortest ttl of the places before it, whose owners may hold and die unseen (the server says when); when a connection
 *     is back; every `retry` with foreign = poll, or while a writer without a place bars it. At most one request of a seat is
 *     under way.
 *   F (op->first_sent_ns): the stamp of the last request that was answered "queued"; before that, the first sending.
 *   "Yours" also says how long the claim still lasts.
 *
 * WHY THE DEADLINE IS EARLIER THAN THE EXPIRY. A message carries the stamp that the place had when it was popped. The request
 * with that stamp was sent after the stamp and executed before the lock was given. So the deadline, stamp + ttl, is earlier
 * than the expiry, given + ttl, whatever was delayed, lost or repeated on any way. A message whose stamp is before F tells
 * of a grant that is gone, because "queued" was answered since: it is ignored. "Yours": the lock was given after the last
 * "queued", so the deadline counts from F, but no longer than the answer says that the claim lasts, counted from before the
 * request (another server may have another history). Nothing else moves F, least of all a message. The first renewal is due
 * a third of the ttl after that instant, when the next refresh would have been: at once, if that has passed. A place that was
 * last seen two thirds of its ttl ago is passed over, so a third of the ttl is left.
 *
 * THE HOLES, step by step:
 *
 *   The inbox must be subscribed to before a place is taken, because hand-on takes a client without a listener for dead. Until
 *     then an acquire only tries.
 *   The message comes before the answer that there is a place, over another connection: the seat is made before the request
 *     is sent. If it says that the place is gone, the op asks again as soon as that answer is there.
 *   It says that the place is gone, soon after another that said so: the op asks again after PAUSE_MS. It may be one of several
 *     whose user may not let any of them in, and which tell each other.
 *   The message comes after a refresh was answered "yours", or twice: there is no seat any more, so nothing happens.
 *   The message comes while a refresh is under way. If the refresh was executed before the grant, the stamp is that of the
 *     refresh, and no more will come of it. If it was not executed yet, the driver waits for it, and it says "yours"; if it
 *     is later than the lease it takes the lock anew. Nobody would release what it takes after the message was believed.
 *   The message is lost, with or without its connection: the next refresh finds "yours", a third of the ttl later at the
 *     latest; when a connection is made anew, at once.
 *   The message is later than the ttl: its deadline has passed; the core releases the grant.
 *   The message is late, its grant has ended, and the place was taken anew: its stamp is before F: ignored.
 *   The request is lost, or its reply: the op is INDETERMINATE, and the core asks again under the same grant, "again": the
 *     place is found, not doubled. A request of an older connection that is executed after that can double it, or set an old
 *     stamp: then the message is ignored, and the refresh finds "yours". The link ends old connections; where it may not,
 *     releases go on until the past is settled, and each removes all places of its grant.
 *   Any failure once a place may exist is INDETERMINATE, also a refusal (OOM, READONLY, NOPERM) or BUSY: the lock may be given
 *     to the grant at any time, so the core must ask for it with its F, or release it. A first request that is refused has
 *     done nothing, because every script reads all that it needs before its first write.
 *   The caller gives up: INDETERMINATE at once. The core's release removes the place or, if the message crosses it, hands the
 *     lock on. Without a connection the place is passed over after two thirds of its ttl; if it was given the lock before,
 *     that ends with the ttl.
 *   The process is killed while it has a place: its sockets are closed, nobody listens, and it is passed over. If the grant
 *     comes just before the server notices, the lock is a dead process's for its ttl, as if it had been killed just after.
 *   Why not give the lock for a short time only, until the receiver confirms? Its deadline would count from the stamp too,
 *     which is up to a third of the ttl old: it would have passed already, and nobody could hold without a request of its own.
 *   The process is stopped, or its host fell silent, while it has a place: it is given the lock once, for its ttl, or passed
 *     over when two thirds of the ttl are over. When it goes on, the stamp shows that the deadline has passed.
 *   The holder dies: all waiters ask when its time is over; the first to ask hands on, in the order of the queue.
 *   The holder dies, and a newcomer tries before any waiter has asked: its script hands on, and it is BUSY.
 *   The server lost its data (flushed, restarted): the refresh takes the lock, or a new place at the end.
 *   The connection breaks: ops that are SEATED stay, and ask when it is back; if it cannot be made anew they are
 *     INDETERMINATE. The inbox's connection breaks: until it is back a refresh only tries and leaves the place as it is; the
 *     place may be passed over meanwhile, and is taken anew.
 *   Two threads: only the head of a name's local queue is an op, and the pump serialises. Two clients in a process, or an
 *     owner's callers: each has a grant and a place.
 *   Out of memory in the client: BUSY; the core asks again later. In the server: refused at the first write, nothing was done.
 *   No token is left: nobody is given the lock; an acquire says so.
 *   An ACL refuses PUBLISH: nobody seems to listen, so the queue is emptied, and waiters take their turn when they ask.
 *   SUBSCRIBE is refused: nobody sits; waiters ask every `retry` (pubsub.c).
 *   The inbox's connection cannot be made: those that sit ask every `retry` too, and have a chance whenever nobody else waits.
 *   Such a waiter is exclusive, and others share the lock: it bars new ones (shared.c). Who is barred gets no place, because those
 *     who share give the lock to places. It asks every `retry`, until it has the lock, or a place behind the one that barred it.
 *   The queue expires with all its places, twice the longest ttl after the last refresh; if it is evicted it is made anew.
 *   Another server is the primary (a failover), with what it has of the lock and the queue. What it never got, or did not undo,
 *     belongs to another history: a grant that was broken, or released, at the old primary, after which F moved there, may
 *     still exist here. So "yours" says how long it lasts. A place is a place, but its floor is what the old primary was
 *     asked for. An op that finds itself given the lock under a token below the floor that it asks for now (failover.c: this
 *     clock is behind) gets a larger one, because it has been told of none yet. A message is believed only from the server
 *     that is asked, for a place that it was asked for. A hand-on before the waiters have come here passes over them, because
 *     nobody listens; they sit down as they come, and their order is lost.
 *   Its slot moves to another node of a cluster (cluster.c): the op goes there with its F, and asks "again". A place moves with
 *     the slot, but its push is believed only if its stamp is of a request to this node (seat->since_ns).
 *   Too many wait at once for one connection (it is back): they ask in turn, as answers make room (has_room).
 *   Neighbours without the queue take what is free, and do not hand on what they release: waiters notice when they ask, with
 *     foreign = poll soon, else when the holder's remaining time is over. Never two hold: the lock is the same key.
 *   The server's clock jumps forward: locks end early, as everywhere, and places look old: they are taken anew. Back: places
 *     look fresh for longer. */
#include "seats.h"
#include "shared.h"

#include <stdlib.h>

#define PAUSE_MS 100 /* about so long an op pauses whose places go one after the other */

/* ---- asking ------------------------------------------------------------------------------------------- */

bool queue_may_wait(const struct driver *driver, const mortise_op *op)
{
    return driver->queued && !driver->deaf && (op->flags & MORTISE_OP_TRY) == 0;
}

/* So many, with zeros before, and a blank behind. */
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
    driver->inbox_wanted = true; /* a node without slots has unwanted it, though it is ready */
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

static void ask(struct driver *driver, struct seat *seat)
{
    seat_set_due(driver, seat, MORTISE_NEVER);
    if (data_of(seat->op)->state == OP_SEATED)
        driver->dispatch->send(driver, seat->op);
}

/* So that waiters do not keep step. */
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

/* `barred`: an exclusive waiter without a place keeps it out. Nobody says when that one gives up. */
static int64_t refresh_ms(struct driver *driver, const mortise_op *op, bool barred,
                          int64_t at_latest_ms)
{
    int64_t ms = smaller(op->ttl_ms / 3, at_latest_ms);
    bool polls = driver->foreign_polled || driver->unheard.asks || barred;
    return polls ? smaller(ms, around(driver, driver->retry_ms)) : ms;
}

/* When it asks whose place is gone. At once, but not twice in a row: else several callers whose user may not let any of them in make each
 * other ask, without end. */
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
        data_of(op)->asking = false; /* the map learned of it while the request was under way */
    if (placed)
        op->first_sent_ns = sent_ns; /* whatever is granted from here on is later than this */
    if (!wished && !driver->inbox_ready)
        pubsub_want_inbox(driver);
    if (placed && seat->gone_ns == sent_ns) /* told() came before this answer */
        due_ns =
            smaller(again_ns(driver, seat), now + smaller(at_latest_ms, op->ttl_ms) * NS_PER_MS);
    else if (wished || !driver->inbox_ready) /* else the inbox has come in between */
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

/* All become due in one instant: the list stays in its order, whatever that was. */
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

/* Where there is no room an answer comes first. */
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

/* What is not hex makes a grant that nobody has. */
static unsigned hex_digit(char c)
{
    return ((unsigned)c & 15) + 9 * ((unsigned)c >> 6 & 1);
}

static void read_hex(const char *text, mortise_grant_id *grant)
{
    for (size_t i = 0; i < MORTISE_GRANT_ID_SIZE; i++)
        grant->bytes[i] = (unsigned char)(hex_digit(text[2 * i]) << 4 | hex_digit(text[2 * i + 1]));
}

/* What came to the inbox. Token 0: the place was taken out, as those who share have another number of permits, or as it could not
 * be let in: another user may not, or the server refused that, or no token was left (clients of 0.1, which do not share, leave
 * such a push aside). False: it makes no sense. */
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

/* By the server that is asked, of a place that was made or refreshed over the connection that there is. Else it may be
 * of another history, whose tokens do not go on from those that this client has seen: the refresh that goes out
 * when the connection is there finds it. */
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
        seat->gone_twice = seat->told_ns != 0 && now - seat->told_ns < 2 * PAUSE_MS * NS_PER_MS;
        seat->told_ns = now;
        seat->gone_ns = stamp_ns;
        if (request == NULL) /* else the answer says it, or queue_keep() does */
            seat_set_due(driver, seat, smaller(seat->due_ns, again_ns(driver, seat)));
        queue_turn(driver);
        return;
    }
    if (request != NULL && request->call.sent_ns != stamp_ns)
        return; /* a refresh overtaken by the push: it will say "yours" */
    answer_granted(driver, op, token, stamp_ns);
    if (request != NULL)
        request->op = NULL; /* it was "queued" before that */
}

void queue_lose_all(struct driver *driver, const struct link_fault *fault)
{
    struct seat *seat, *next;
    HASH_ITER (hh, driver->seated, seat, next)
        if (data_of(seat->op)->state == OP_SEATED)
            op_lose(driver, seat->op, LINK_NOT_SENT, fault);
}

const struct inbox_calls queue_inbox = {.changed = queue_ask_all, .told = told};
