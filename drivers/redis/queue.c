/* queue.c - queue = yes: the waiters of all processes stand in a queue in the server, and who releases hands the
 * lock to the first of them by a message to its client's inbox: one is woken, in order, by no request of its own.
 * Here are the ops that wait so, their *seats*, and when they ask again.
 *
 * THE PROTOCOL. In the server, for a lock N: the lock (its grant, its expiry); the queue, a list of *places*, each
 * with the waiter's grant id, its ttl, its client's inbox, when the server last heard of it (`seen`), and the
 * *stamp*, which is the waiter's own: the instant, on its host's monotonic clock, before it sent the request that
 * made or refreshed this place. A script is one atomic step:
 *
 *   acquire (queue_*_acquire)   it holds already: "yours". The lock is free and the queue empty: taken. Free, and
 *                               somebody waits (a holder has died): hand-on; if nobody before it was given it:
 *                               taken. Else it sits: its place is refreshed (stamp, seen; the places before
 *                               it that are not fresh are taken out), or appended: "queued", and in how long it has to
 *                               ask again at the latest. A try never sits: "busy".
 *   hand-on (include/queue)     pops places until one gets the lock, for its whole ttl from now, under a new token;
 *                               PUBLISH "<grant> <token> <stamp>" to its inbox. Passed over: who was not seen in
 *                               two thirds of its ttl; whose inbox nobody listens to.
 *   release, break              the lock is deleted, then hand-on; if nobody took it, a message to the channel of
 *                               the name, for those that wait without a queue. Release under a grant that does not
 *                               hold: its place is taken out of the queue.
 *   join (hash)                 who waits for the owner that a lock was just given to holds with it, at once.
 *   renew                       as everywhere: extends what stands under this grant, or says that it is gone.
 *
 * In the client:
 *
 *            busy, no inbox            subscribed         "queued"
 *   request ───────────────▶ unplaced ────────────▶ request ────────▶ seated ──"<grant> <token> <stamp>"──▶ granted
 *      │                                             ▲                │          from the inbox
 *      └──taken──▶ granted                           └───refresh──────┘
 *                                                         │ taken, "yours"
 *                                                         └──────────────▶ granted
 *
 *   refresh: the same acquire again: every third of the ttl; when what remained of the holder's time is over, and as
 *     often as the shortest ttl of those before it, who may hold and die unseen (the server says when); when a
 *     connection is back; every `retry` with foreign = poll. At most one request of a seat is under way.
 *   F (op->first_sent_ns): the stamp of the last request that was answered "queued"; before, the first sending.
 *   "Yours" says how long that stands yet.
 *
 * WHY THE DEADLINE IS EARLIER THAN THE EXPIRY. A push carries the stamp that the place had when it was popped: the
 * request with that stamp was executed before the lock was given, and sent after the stamp; so deadline = stamp +
 * ttl is earlier than the expiry, given + ttl, whatever was delayed, lost or repeated on any leg. A push whose stamp
 * is before F tells of a grant that is gone ("queued" was answered since), and counts for nothing. "Yours": what
 * was given was given after the last "queued", so it counts from F, but no longer than the answer says that it
 * stands, from before it was asked (another server may have another history). Nothing else moves F: least of all a push.
 * The first renewal is due a third of the ttl after that instant, when the next refresh would have been: at once, if
 * that has passed already. No place is served that was last seen two thirds of its ttl ago, so a third is left.
 *
 * THE HOLES, step by step:
 *
 *   The inbox must be subscribed to before a place is taken: who hands on to an inbox without a listener takes its
 *     client for dead. Until it is, an acquire only tries. (unplaced)
 *   The push comes before the answer that there is a place, since they take different connections: the seat is made
 *     before the request is sent.
 *   The push comes after a refresh has said "yours", or twice: there is no seat any more; nothing happens.
 *   The push comes while a refresh is on its way that was executed before it: then the stamp is that refresh's, and
 *     nothing more will come of it. Or that has not been executed yet: then it is waited for, and says "yours"; if
 *     it is late by more than the lease it takes the lock anew. Nobody would give back what it takes after the push
 *     was believed.
 *   The push is lost, with or without its connection: the next refresh finds "yours", a third of the ttl later at
 *     the latest; when a connection is made anew, at once.
 *   The push is late by more than the ttl: its deadline has passed; the core gives the grant back.
 *   The push is late, and its grant ended, and the place was taken anew: its stamp is before F: ignored.
 *   The request is lost, or its reply: the op is INDETERMINATE: the core asks again under the same grant, "again": the
 *     place is found, not doubled. A request of an older connection that is executed after that can double it, or set
 *     an old stamp: then the push is ignored, and the refresh finds "yours". The link ends old connections; where it
 *     may not, releases go on until the past is settled, and each takes out all places of its grant.
 *   Whatever fails once a place may be there is INDETERMINATE, also a refusal (OOM, READONLY, NOPERM) or BUSY: the
 *     grant may be given at any time, and must be asked for with its F, or released. A first request that is
 *     refused has done nothing: every script reads what it needs before its first write.
 *   The caller gives up: INDETERMINATE at once; the core's release takes the place out of the queue, or, if the push
 *     crosses, hands the lock on. Without a connection: the place is passed over after two thirds of its ttl; if it
 *     was given the lock, that ends with the ttl.
 *   The process is killed, with a place: its sockets are closed, nobody listens: passed over. A push in the instant
 *     before the server has seen the end: the lock is a dead one's, for its ttl, as if killed just after.
 *   Why no short provisional grant then, until the receiver confirms: its deadline would count from the stamp too,
 *     which is up to a third of the ttl old: past already, and nobody could hold without a request of its own.
 *   The process is stopped, or its host died without a word, with a place: given the lock, once, for its ttl; or passed
 *     over, when two thirds of the ttl are over. When it goes on, the stamp says that the deadline has passed.
 *   The holder dies: all waiters ask when its time is over; the first to ask hands on, in the order of the queue.
 *   The holder dies, a newcomer tries before any waiter has asked: its own script hands on; it is BUSY.
 *   The server lost its data (flushed, restarted): the refresh takes the lock, or a new place, at the end.
 *   The connection breaks: who is seated stays; all ask when it is back; if it cannot be made anew they are
 *     INDETERMINATE. The inbox's connection breaks: until it is back a refresh only tries, and leaves the place
 *     as it is; it may be passed over in the meantime, and is taken anew.
 *   Two threads: only the head of a name's local queue is an op; the pump serialises. Two clients in a process, and an
 *     owner's callers: a grant each, a place each.
 *   Out of memory, here: BUSY; the core asks again later. There: refused at the first write, nothing was done.
 *   Out of tokens: nobody is given the lock; an acquire says so.
 *   PUBLISH is refused by an ACL: nobody listens: the queue is emptied, and waiters take their turn when they ask.
 *   SUBSCRIBE is refused: nobody sits; waiters look every `retry` (news.c).
 *   The queue expires with all in it, twice the longest ttl after the last refresh; an evicted one is made anew.
 *   Another server is the primary (a failover), with what it has of the lock and the queue. What it never had, or
 *     undid never, is of another history: a grant that was broken, or taken back, at the old one, after which F moved
 *     there, may stand here. So "yours" says how long it stands. A place is a place; but what it says of tokens
 *     (its floor) the old primary was asked for: who finds itself given the lock under a token below the floor that it
 *     asks for now (place.c: this clock is behind) is given a larger one, since it was told of none yet. A push is
 *     believed only of the server that is asked, for a place that it was asked for. Who hands on here before those
 *     that wait have come passes over them, as nobody listens; they are seated as they come: their order is lost.
 *   Too many wait at once for one connection (it is back): they ask in turn, as the answers come (has_room).
 *   Neighbours without the queue take what is free, and do not hand on what they release: waiters find out when they
 *     ask: with foreign = poll soon, else when the time is over that they were told. Never two holders: the lock
 *     is the same key.
 *   The server's clock jumps forward: locks end early, as everywhere, and places look old: taken anew. Back: places
 *     look fresh for longer. */
#include "redis.h"

#include <stdlib.h>

/* ---- asking ------------------------------------------------------------------------------------------- */

static bool may_wait(const struct driver *driver, const mortise_op *op)
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
    if (!may_wait(driver, op) || !driver->inbox_ready)
        return WISH_NONE;
    if (request->seat == NULL)
        request->seat = seat_new(driver, op);
    struct seat *seat = request->seat;
    if (seat == NULL)
        return WISH_NONE;
    bool again = seat->placed;
    text[0] = again ? 'a' : 'n';
    put_digits(text + 1, 10, (uint64_t)op->ttl_ms);
    put_digits(text + 12, 19, (uint64_t)request->call.sent_ns);
    put_digits(text + 32, 16, failover_floor(driver, op));
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

/* Around `retry`, so that waiters do not keep step. */
static int64_t retry_ms(struct driver *driver)
{
    uint32_t number;
    driver->host->random(driver->host, &number, sizeof(number));
    return driver->retry_ms / 2 + 1 + number % (driver->retry_ms + 1);
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t refresh_ms(struct driver *driver, const mortise_op *op, int64_t at_latest_ms)
{
    int64_t ms = smaller(op->ttl_ms / 3, at_latest_ms);
    return driver->foreign_polled ? smaller(ms, retry_ms(driver)) : ms;
}

bool queue_keep(struct driver *driver, mortise_op *op, enum wish wish, int64_t at_latest_ms,
                int64_t sent_ns)
{
    struct seat *seat = seat_of(op);
    int64_t now = now_of(driver), due_ns = now;
    if (!may_wait(driver, op))
        return false;
    if (seat == NULL)
        seat = seat_new(driver, op);
    if (seat == NULL)
        return false;
    op_set(op, OP_SEATED, seat);
    if (wish != WISH_NONE)
        op->first_sent_ns = sent_ns; /* whatever is granted from here on is later than this */
    if (wish == WISH_NONE && !driver->inbox_ready)
        pubsub_want_inbox(driver);
    if (wish != WISH_NONE || !driver->inbox_ready) /* else the inbox has come in between */
        due_ns = now + refresh_ms(driver, op, at_latest_ms) * NS_PER_MS;
    seat_set_due(driver, seat, due_ns);
    return true;
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

/* What came to the inbox. False: it makes no sense. */
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
    uint64_t stamp = holder_number(space + 1, (size_t)(end - space - 1));
    *token = holder_number(number, (size_t)(space - number));
    *stamp_ns = stamp <= INT64_MAX ? (int64_t)stamp : 0;
    return *token > 0 && *stamp_ns > 0;
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
        stamp_ns > now_of(driver))
        return;
    mortise_op *op = seat->op;
    struct request *request = data_of(op)->state == OP_SENT ? data_of(op)->request : NULL;
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
