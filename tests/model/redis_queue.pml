/* redis_queue.pml - the queue of drivers/redis/queue.c as a model for spin: clients that acquire, wait, are given
 * the lock by a message, renew, give it back, give up and die, over a network that delays and loses. run.sh runs it.
 *
 * The server's steps carry the names of its scripts: queue_acquire, queue_release, hand_on, sit, leave, renew. One
 * step of a client is one turn of its pump. The layout is the string's: no owner is shared.
 *
 * TIME is in thirds of the ttl, and whatever has an instant has an *age* instead, so that the model is finite without
 * a last hour: a place its stamp and when it was seen, a client its F (first_sent_ns), a message when it was sent.
 * Clocks run alike. An age of TTL means: so old that a deadline from it has passed. Without DELAYS time may pass
 * in every state: a client that is stopped, or a message that is late, is one that does nothing for a while.
 *
 * SAFETY, the assertions:
 *   no_two_holders      nobody begins to believe that it holds, or believes for longer, while another does; but who
 *                       was given the lock before the server lost its data counts for nothing
 *   token_grows         who begins to believe has the newest token that was given out
 *   in_order            the lock is given to the first in the queue that is fresh and has a listener
 *   passed_on           a release, or an acquire, leaves no free lock to such a one
 *   is_heard            nobody is given the lock by a message that nobody hears
 *   nothing_left        a release that was answered leaves neither lock nor place
 *   is_wanted           and who ended its round is not given the lock any more. (Neither holds where requests of an
 *                       older connection can be executed after the release: UNSETTLED.)
 * An invalid end state: somebody waits, and nothing can happen any more.
 *
 * LIVENESS: there is no endless succession of thirds of a ttl in which somebody waits. With DELAYS, thirds pass only
 * when nothing is due, but for so many in which somebody or something is late, or a holder goes on. So a cycle with
 * time in it is a waiter, or a release, that hangs.
 *
 * Two clients go through everything; of three, one only tries, or none does, nobody renews (NO_RENEW), and delays are
 * counted; states are told apart by a hash there (HC4). Clients that are alike begin in the order of their numbers.
 *
 * With TURNS clients 0 and 1 are callers of one process. One that lets go may take the other along (turn.c): the release of
 * its grant and the first acquire of the other are one request, one step in the server, and two answers. They are lost
 * together, and die together. The server may refuse the step ("nothing was done"), and both are asked for apart then.
 *
 * Each plant is a mistake that must be found, or the model is an idle one:
 *
 *   BUG_ARRIVAL      the deadline of a push counts from its arrival
 *   BUG_NO_STAMP     a push has no stamp: its deadline counts from F, whichever grant it tells of
 *   BUG_YOURS_MOVES  the deadline of a "yours" counts from the request that was answered so
 *   BUG_STAYS        who gives up leaves its place in the queue
 *   BUG_UNHEARD      a push that nobody hears is not passed on
 *   BUG_BARGE        a try takes a free lock, whoever is queued
 *   BUG_NO_REFRESH   a waiter does not ask again by itself
 *   BUG_OVERTAKEN    a push is believed while a refresh is under way
 *   BUG_TURN_BARGES  who is taken along gets the lock before those who wait
 *   BUG_TURN_UNHEARD a turn gives the lock to an inbox that nobody hears, and leaves it there
 *   BUG_TURN_SILENT  who is taken along and gives up meanwhile is taken for one that was never sent
 *   BUG_TURN_HALF    of a turn that was refused only the release is asked for again
 *
 * HOLDERS_ONLY leaves out token_grows and is_wanted, which a false deadline can offend first.
 *
 * What run.sh runs: check WHEN NAME OPTIONS; plant WHEN NAME FOUND-BY OPTIONS.
 *
 *     check quick   two          -DCLIENTS=2 -DFAULTS=1
 *     check nightly two-hang     -DCLIENTS=2 -DFAULTS=1 -DDELAYS=3 -DLIVENESS
 *     check nightly three        -DCLIENTS=3 -DFAULTS=0 -DDELAYS=3 -DNO_RENEW -DHC4
 *     check nightly three-trier  -DCLIENTS=3 -DFAULTS=0 -DDELAYS=2 -DNO_RENEW -DTRIER -DHC4
 *     check quick   turn         -DCLIENTS=2 -DFAULTS=1 -DTURNS -DNO_RENEW
 *     check nightly turn-renew   -DCLIENTS=2 -DFAULTS=1 -DTURNS
 *     check nightly turn-hang    -DCLIENTS=2 -DFAULTS=1 -DDELAYS=3 -DTURNS -DLIVENESS
 *     check nightly turn-three   -DCLIENTS=3 -DFAULTS=0 -DDELAYS=3 -DTURNS -DNO_RENEW -DHC4
 *     check nightly turn-faults  -DCLIENTS=3 -DFAULTS=1 -DDELAYS=1 -DTURNS -DNO_RENEW -DHC4
 *     plant quick   arrival      no_two_holders -DCLIENTS=2 -DBUG_ARRIVAL -DHOLDERS_ONLY
 *     plant nightly no-stamp     no_two_holders -DCLIENTS=2 -DBUG_NO_STAMP -DHOLDERS_ONLY
 *     plant nightly yours-moves  no_two_holders -DCLIENTS=2 -DBUG_YOURS_MOVES -DHOLDERS_ONLY
 *     plant nightly token        token_grows    -DCLIENTS=2 -DBUG_ARRIVAL
 *     plant nightly stays        nothing_left   -DCLIENTS=2 -DBUG_STAYS
 *     plant nightly unheard      is_heard       -DCLIENTS=2 -DBUG_UNHEARD
 *     plant nightly barge        in_order       -DCLIENTS=3 -DFAULTS=0 -DTRIER -DNO_RENEW -DDELAYS=3 -DBUG_BARGE
 *     plant quick   overtaken    is_wanted      -DCLIENTS=2 -DBUG_OVERTAKEN
 *     plant nightly turn-barges  in_order       -DCLIENTS=3 -DFAULTS=0 -DDELAYS=1 -DTURNS -DNO_RENEW -DBUG_TURN_BARGES
 *     plant nightly turn-unheard in_order       -DCLIENTS=3 -DFAULTS=1 -DDELAYS=1 -DTURNS -DNO_RENEW -DBUG_TURN_UNHEARD
 *     plant quick   turn-silent  is_wanted      -DCLIENTS=2 -DFAULTS=0 -DTURNS -DNO_RENEW -DBUG_TURN_SILENT
 *     plant quick   turn-half    invalid        -DCLIENTS=2 -DFAULTS=0 -DDELAYS=1 -DTURNS -DBUG_TURN_HALF
 *     plant quick   no-refresh   cycle          -DCLIENTS=2 -DDELAYS=1 -DLIVENESS -DBUG_NO_REFRESH
 */

#ifndef CLIENTS
#define CLIENTS 3
#endif
#ifndef ROUNDS
#define ROUNDS 1 /* acquisitions of each client, each with a grant id of its own */
#endif
#ifndef FAULTS
#define FAULTS 1 /* deaths, broken connections, lost messages, a server emptied: that many in all */
#endif

#define TTL 3
#define FRESH 2 /* two thirds */
#define GRANTS (CLIENTS * ROUNDS)
#define NOBODY 255
#define PLACES (GRANTS + 1)
#define PUSHES 2

#define OWNER(g) ((g) / ROUNDS)
#define MINE(i) ((i) * ROUNDS + round[i])
#define ENDED(g) (round[OWNER(g)] > (g) % ROUNDS)
#define ON_WIRE(i) (MINE(i) - (state[i] == IDLE || state[i] == DONE -> 1 : 0)) /* an orphan of the last round */
#define MAY_SIT(i) ((state[i] == WAITS || state[i] == AGAIN) && !trying[i])
#define OLDER(age) age = (age < TTL -> age + 1 : TTL)

/* What a client is about. */
#define IDLE 0
#define WAITS 1  /* an acquire is with the driver */
#define AGAIN 2  /* it was INDETERMINATE; the core will ask again */
#define HOLDS 3
#define LETS_GO 4 /* a release is to be sent, or under way */
#define DONE 5
#define DEAD 6

/* What is on a client's connection: a request, or its answer. */
#define NOTHING 0
#define TRY 1   /* acquire without a wish for a place */
#define SEAT 2  /* "new" */
#define RESEAT 3 /* "again" */
#define RENEW 4
#define RELEASE 5
#define TAKEN 6
#define YOURS 7
#define QUEUED 8
#define BUSY 9
#define RENEWED 10
#define GONE 11
#define RELEASED 12
#define ALONG 13 /* on the request of the other, which is a TURN */
#define TURN 14 /* RELEASE, and SEAT for the other */
#define IS_REQUEST(x) (((x) >= TRY && (x) <= RELEASE) || (x) >= ALONG)

/* The server. */
byte lock = NOBODY, left; /* thirds of the ttl until it expires */
byte places, place_grant[PLACES], place_stamp[PLACES], place_seen[PLACES];
bool listened[CLIENTS]; /* the inbox is subscribed to */

/* Each client. */
byte state[CLIENTS], round[CLIENTS];
bool trying[CLIENTS];
bool placed[CLIENTS];  /* there may be a place */
byte first_sent[CLIENTS];
byte belief[CLIENTS];  /* thirds until the deadline */
bool ready[CLIENTS];   /* it knows that its inbox is subscribed to */
byte wire[CLIENTS], sent[CLIENTS];
bool orphan[CLIENTS];  /* nobody waits for the answer */

/* To its inbox: the oldest first. */
byte pushes[CLIENTS], push_stamp[CLIENTS * PUSHES];

#ifdef UNSETTLED
/* An acquire of an older connection, which the server may execute yet; doubt: thirds that a release is unsure. */
byte ghost[CLIENTS], ghost_grant[CLIENTS], ghost_sent[CLIENTS], doubt[CLIENTS];
#endif

byte faults = FAULTS;
#ifdef DELAYS
byte delays = DELAYS;
bool due[CLIENTS];
#endif

/* What the properties are told by. */
byte newest = NOBODY;
bool before[GRANTS]; /* given before the server lost its data */

hidden byte k, m, g, s, n, answer, first;
hidden byte handed, told, found, turned;
hidden byte no_two_holders, token_grows, in_order, passed_on, is_heard, is_wanted, nothing_left;

/* ---- include/queue ---- */

inline clear_place(at)
{
    place_grant[at] = 0;
    place_stamp[at] = 0;
    place_seen[at] = 0;
}

inline take_out(at)
{
    m = at;
    do
    :: m + 1 < places ->
        place_grant[m] = place_grant[m + 1];
        place_stamp[m] = place_stamp[m + 1];
        place_seen[m] = place_seen[m + 1];
        m++
    :: else -> break
    od;
    places--;
    clear_place(places)
}

inline leave(grant)
{
#ifndef BUG_STAYS
    k = 0;
    do
    :: k < places && place_grant[k] == grant -> take_out(k)
    :: k < places && place_grant[k] != grant -> k++
    :: else -> break
    od
#else
    skip
#endif
}

inline sit(grant, again, stamp)
{
    k = 0;
    found = false;
    do
    :: again && k < places && place_grant[k] == grant -> found = true; break
    :: again && k < places && place_grant[k] != grant && place_seen[k] < FRESH -> k++
    :: again && k < places && place_grant[k] != grant && place_seen[k] == FRESH -> take_out(k)
    :: else -> break
    od;
    if
    :: found
    :: else ->
        assert(places < PLACES); /* else the model is too small */
        k = places;
        places++;
        place_grant[k] = grant
    fi;
    place_stamp[k] = stamp;
    place_seen[k] = 0
}

inline give(grant)
{
#if !defined(UNSETTLED) && !defined(HOLDERS_ONLY)
    is_wanted = !ENDED(grant);
    assert(is_wanted);
#endif
    lock = grant;
    left = TTL;
    newest = grant;
    before[grant] = false
}

/* PUBLISH. Who is dead, unknown to the server, is told as well. A push that its client has no seat for, now or
 * ever, is left away. */
inline tell(grant, stamp)
{
    n = OWNER(grant);
    told = listened[n];
    if
    :: told && MAY_SIT(n) && grant == MINE(n) && pushes[n] < PUSHES ->
        push_stamp[n * PUSHES + pushes[n]] = stamp;
        pushes[n]++
    :: told && MAY_SIT(n) && grant == MINE(n) && pushes[n] == PUSHES -> /* the oldest is lost */
        push_stamp[n * PUSHES] = push_stamp[n * PUSHES + 1];
        push_stamp[n * PUSHES + 1] = stamp
    :: else
    fi
}

inline hand_on(self)
{
    handed = false;
    do
    :: handed || places == 0 -> break
    :: else ->
        g = place_grant[0];
        s = place_stamp[0];
        n = place_seen[0];
        take_out(0);
        if
        :: g == self -> break
        :: g != self && n < FRESH ->
            give(g);
            tell(g, s);
            if
#ifndef BUG_UNHEARD
            :: !told -> lock = NOBODY; left = 0
#endif
            :: else -> handed = true
            fi
        :: else
        fi
    od
}

/* ---- the scripts ---- */

/* Whose turn it is, as the property sees it. Who asks is alive, as old as its place may be. */
inline look_who_is_first(self)
{
    first = NOBODY;
    k = 0;
    do
    :: k < places && first == NOBODY ->
        if
        :: place_grant[k] == self || (place_seen[k] < FRESH && listened[OWNER(place_grant[k])]) ->
            first = place_grant[k]
        :: else
        fi;
        k++
    :: else -> break
    od
}

inline check_order()
{
    in_order = lock == NOBODY || first == NOBODY || lock == first;
    assert(in_order);
    passed_on = lock != NOBODY || first == NOBODY;
    assert(passed_on);
    is_heard = !handed || listened[OWNER(lock)];
    assert(is_heard)
}

inline queue_acquire(grant, wish, stamp)
{
    handed = false;
    if
    :: lock == grant -> answer = YOURS
    :: else ->
        look_who_is_first(grant);
        found = lock == NOBODY;
#ifdef BUG_BARGE
        if
        :: wish == TRY
        :: else
#endif
        if
        :: found && places > 0 -> hand_on(grant)
        :: else
        fi;
#ifdef BUG_BARGE
        fi;
#endif
        if
        :: lock == NOBODY -> give(grant); answer = TAKEN
        :: else -> answer = (wish == TRY -> BUSY : QUEUED)
        fi;
        if
        :: found -> check_order()
        :: else
        fi;
        if
        :: answer == QUEUED -> sit(grant, wish == RESEAT, stamp)
        :: else
        fi
    fi
}

inline queue_release(grant)
{
    if
    :: lock == grant ->
        lock = NOBODY;
        left = 0;
        look_who_is_first(NOBODY);
        hand_on(NOBODY);
        check_order()
    :: else -> leave(grant)
    fi;
    answer = RELEASED
}

inline renew(grant)
{
    if
    :: lock == grant -> left = TTL; answer = RENEWED
    :: else -> answer = GONE
    fi
}

inline execute(request, grant, stamp)
{
    if
    :: request <= RESEAT -> queue_acquire(grant, request, stamp)
    :: request == RENEW -> renew(grant)
    :: request == RELEASE -> queue_release(grant)
    fi
}

#ifdef TURNS
#define OTHER(i) (1 - (i))

/* queue_string_turn. `turned`: it was done; else nothing was. */
inline queue_turn(grant, next, stamp)
{
    turned = false;
    if
    :: lock == grant && places == 0 ->
        turned = true;
        give(next);
        answer = TAKEN
#ifdef BUG_TURN_BARGES
    :: lock == grant && places > 0 ->
        turned = true;
        look_who_is_first(NOBODY);
        handed = false;
        give(next);
        check_order();
        answer = TAKEN
#else
    :: lock == grant && places > 0 && place_seen[0] < FRESH ->
        turned = true;
        sit(next, false, stamp);
        lock = NOBODY;
        left = 0;
        look_who_is_first(NOBODY);
#ifdef BUG_TURN_UNHEARD
        g = place_grant[0];
        s = place_stamp[0];
        take_out(0);
        give(g);
        tell(g, s);
        handed = true;
#else
        hand_on(NOBODY);
#endif
        check_order();
        answer = QUEUED
#endif
    :: else
    fi
}

/* Both answers, or both are asked for apart. */
inline answer_turn(i, j)
{
    if
    :: turned ->
        wire[i] = (orphan[i] -> NOTHING : RELEASED);
        orphan[i] = false;
        if
        :: wire[j] == ALONG && orphan[j] -> wire[j] = NOTHING; orphan[j] = false; sent[j] = 0
        :: wire[j] == ALONG && !orphan[j] -> wire[j] = answer
        :: else
        fi
    :: else ->
        wire[i] = (orphan[i] -> NOTHING : RELEASE);
        orphan[i] = false;
        if
#ifdef BUG_TURN_HALF
        :: wire[j] == ALONG && !orphan[j] -> skip /* never answered */
#else
        :: wire[j] == ALONG && !orphan[j] -> wire[j] = RESEAT; sent[j] = 0
#endif
        :: wire[j] == ALONG && orphan[j] -> wire[j] = NOTHING; orphan[j] = false; sent[j] = 0
        :: else
        fi
    fi
}
#endif

/* ---- the client ---- */

inline drop_push(i)
{
    push_stamp[i * PUSHES] = push_stamp[i * PUSHES + 1];
    push_stamp[i * PUSHES + 1] = 0;
    pushes[i]--
}

inline lose_pushes(i)
{
    do
    :: pushes[i] > 0 -> drop_push(i)
    :: else -> break
    od
}

inline unseat(i)
{
    trying[i] = false;
    placed[i] = false;
    first_sent[i] = 0;
#ifdef DELAYS
    due[i] = false;
#endif
    lose_pushes(i)
}

/* What nobody will look at again. */
inline forget(i)
{
    before[MINE(i)] = false;
    newest = (newest == MINE(i) -> NOBODY : newest)
}

/* A request that was sent is executed all the same. */
inline let_be(i)
{
    if
    :: IS_REQUEST(wire[i]) -> orphan[i] = true
    :: else -> wire[i] = NOTHING
    fi;
    sent[i] = 0
}

inline send_acquire(i)
{
    wire[i] = (trying[i] || !ready[i] -> TRY : (placed[i] -> RESEAT : SEAT));
    placed[i] = placed[i] || wire[i] != TRY;
    sent[i] = 0;
#ifdef DELAYS
    due[i] = false
#endif
}

inline end_round(i)
{
    unseat(i);
    belief[i] = 0;
    forget(i);
    round[i]++;
    ready[i] = ready[i] && round[i] < ROUNDS;
    state[i] = (round[i] < ROUNDS -> IDLE : DONE)
}

inline begin_release(i)
{
    unseat(i);
    let_be(i);
    belief[i] = 0;
    state[i] = LETS_GO
}

inline believe(i, age)
{
    if
    :: TTL - age > belief[i] ->
        belief[i] = TTL - age;
        no_two_holders = true;
        k = 0;
        do
        :: k < CLIENTS ->
            if
            :: k != i && belief[k] > 0 && belief[i] > 0 && !before[MINE(k)] && !before[MINE(i)] ->
                no_two_holders = false
            :: else
            fi;
            k++
        :: else -> break
        od;
        assert(no_two_holders)
    :: else
    fi
}

/* lease_granted, and what the core makes of it: given back if the deadline has passed. */
inline granted(i, age)
{
    if
    :: age < TTL ->
        n = age;
        unseat(i);
        let_be(i);
        state[i] = HOLDS;
        believe(i, n);
#ifndef HOLDERS_ONLY
        token_grows = newest == MINE(i) || before[MINE(i)];
        assert(token_grows)
#endif
    :: else -> begin_release(i)
    fi
}

inline answered(i)
{
    n = wire[i];
    s = sent[i];
    wire[i] = NOTHING;
    sent[i] = 0;
    if
    :: n == TAKEN -> granted(i, s)
#ifdef BUG_YOURS_MOVES
    :: n == YOURS -> granted(i, s)
#else
    :: n == YOURS -> granted(i, first_sent[i])
#endif
    :: n == QUEUED -> first_sent[i] = s
    :: n == BUSY && trying[i] && placed[i] -> begin_release(i)
    :: n == BUSY && trying[i] && !placed[i] -> end_round(i)
    :: n == BUSY && !trying[i]
    :: n == RENEWED && belief[i] > 0 -> believe(i, s)
    :: n == RENEWED && belief[i] == 0 -> begin_release(i)
    :: n == GONE -> end_round(i)
    :: n == RELEASED ->
#ifdef UNSETTLED
        if
        :: doubt[i] > 0 /* once more */
        :: else -> end_round(i)
        fi
#else
        nothing_left = lock != MINE(i);
        k = 0;
        do
        :: k < places -> nothing_left = nothing_left && place_grant[k] != MINE(i); k++
        :: else -> break
        od;
        assert(nothing_left);
        end_round(i)
#endif
    fi
}

/* queue_told */
#ifdef BUG_NO_STAMP
#define IS_NEW(i, stamp) true
#else
#define IS_NEW(i, stamp) (stamp <= first_sent[i])
#endif
/* No request is under way, or it is the one whose place was given the lock. */
#ifdef BUG_OVERTAKEN
#define IS_IN_TURN(i, stamp) true
#else
#define IS_IN_TURN(i, stamp) (wire[i] == NOTHING || (wire[i] == QUEUED && stamp == sent[i]))
#endif

inline pushed(i)
{
    s = push_stamp[i * PUSHES];
    drop_push(i);
    if
    :: state[i] == WAITS && !trying[i] && placed[i] && IS_NEW(i, s) && IS_IN_TURN(i, s) ->
#if defined(BUG_ARRIVAL)
        granted(i, 0)
#elif defined(BUG_NO_STAMP)
        granted(i, first_sent[i])
#else
        granted(i, s)
#endif
    :: else
    fi
}

inline end_client(i)
{
    begin_release(i);
    forget(i);
    ready[i] = false;
    state[i] = DEAD
}

inline die(i)
{
    faults--;
    end_client(i);
#ifdef TURNS
    if
    :: i < 2 && state[OTHER(i)] < DONE -> end_client(OTHER(i)); n = OTHER(i)
    :: else -> n = i
    fi
#endif
}

/* What was on it is lost, or was executed already, or, UNSETTLED, may be executed later. */
inline break_wire(i)
{
#ifdef UNSETTLED
    if
    :: wire[i] != NOTHING && wire[i] != RENEW && wire[i] != RELEASE && wire[i] < RENEWED ->
        doubt[i] = TTL;
        if
        :: wire[i] <= RESEAT && ghost[i] == NOTHING ->
            ghost[i] = wire[i];
            ghost_grant[i] = MINE(i);
            ghost_sent[i] = sent[i]
        :: else
        fi
    :: else
    fi;
#endif
    wire[i] = NOTHING;
    sent[i] = 0;
    orphan[i] = false;
    if
    :: state[i] == WAITS -> state[i] = AGAIN; placed[i] = true
    :: else
    fi
}

inline break_connection(i)
{
    faults--;
#ifdef TURNS
    if
    :: wire[i] >= ALONG -> break_wire(OTHER(i))
    :: else
    fi;
#endif
    break_wire(i)
}

#ifdef DELAYS
#define MAY_ASK(i) due[i]
#else
#define MAY_ASK(i) true
#endif
/* They are alike, but for one that tries. */
#ifdef TRIER
#define TRIES(i) (i == CLIENTS - 1)
#define SITS(i) (i < CLIENTS - 1)
#define MAY_START(i) (i == 0 || TRIES(i) || state[i - 1] != IDLE || round[i - 1] > 0)
#else
#define TRIES(i) true
#define SITS(i) true
#define MAY_START(i) (i == 0 || state[i - 1] != IDLE || round[i - 1] > 0)
#endif

proctype client(byte i)
{
end:
    do
    /* acquire */
    :: d_step { state[i] == IDLE && wire[i] == NOTHING && SITS(i) && MAY_START(i) ->
            state[i] = WAITS; first_sent[i] = 0; send_acquire(i);
            printf("client %d: acquire\n", i) }
    :: d_step { state[i] == IDLE && wire[i] == NOTHING && TRIES(i) && MAY_START(i) ->
            state[i] = WAITS; trying[i] = true; first_sent[i] = 0; send_acquire(i);
            printf("client %d: acquire, trying\n", i) }
    :: d_step { state[i] == AGAIN ->
            state[i] = WAITS; send_acquire(i);
            printf("client %d: acquire again, %d\n", i, wire[i]) }
    :: d_step { state[i] == WAITS && !trying[i] && wire[i] == NOTHING && MAY_ASK(i) ->
            send_acquire(i);
            printf("client %d: refresh, %d\n", i, wire[i]) }
    /* the server, and what it answers */
    :: d_step { IS_REQUEST(wire[i]) && wire[i] < ALONG ->
            printf("server: request %d of client %d, sent %d ago\n", wire[i], i, sent[i]);
            execute(wire[i], ON_WIRE(i), sent[i]);
            printf("server: answer %d; lock %d, left %d, places %d\n", answer, lock, left, places);
            if
            :: orphan[i] ->
                orphan[i] = false; wire[i] = NOTHING; sent[i] = 0
            :: else -> wire[i] = answer; sent[i] = (answer < BUSY || answer == RENEWED -> sent[i] : 0)
            fi }
    :: d_step { wire[i] > RELEASE && wire[i] < ALONG ->
            printf("client %d: answer %d, asked %d ago\n", i, wire[i], sent[i]);
            answered(i);
            printf("client %d: state %d, belief %d\n", i, state[i], belief[i]) }
    :: d_step { pushes[i] > 0 ->
            printf("client %d: push, stamp %d ago\n", i, push_stamp[i * PUSHES]);
            pushed(i);
            printf("client %d: state %d, belief %d\n", i, state[i], belief[i]) }
    /* the inbox */
    :: d_step { state[i] == WAITS && !trying[i] && !ready[i] && !listened[i] ->
            listened[i] = true;
            printf("server: inbox of client %d\n", i) }
    :: d_step { state[i] == WAITS && !ready[i] && listened[i] ->
            ready[i] = true;
#ifdef DELAYS
            due[i] = true;
#endif
            printf("client %d: inbox confirmed\n", i) }
    :: d_step { ready[i] && !listened[i] ->
            ready[i] = false;
            printf("client %d: inbox found broken\n", i) }
    /* giving up */
    :: d_step { state[i] == WAITS && !trying[i] ->
            printf("client %d: gives up\n", i);
            if
#ifdef BUG_TURN_SILENT
            :: wire[i] == ALONG -> let_be(i); end_round(i)
#endif
            :: wire[i] != NOTHING || placed[i] -> begin_release(i)
            :: else -> end_round(i)
            fi }
    :: d_step { state[i] == AGAIN ->
            printf("client %d: gives up\n", i);
            begin_release(i) }
    /* holding */
#ifndef NO_RENEW
    :: d_step { state[i] == HOLDS && belief[i] > 0 && belief[i] < TTL && wire[i] == NOTHING ->
            wire[i] = RENEW; sent[i] = 0;
            printf("client %d: renew\n", i) }
#endif
    :: d_step { state[i] == HOLDS && belief[i] > 0 ->
            printf("client %d: lets go\n", i);
            begin_release(i) }
    :: d_step { state[i] == HOLDS && belief[i] == 0 ->
            printf("client %d: the lease is over\n", i);
            if
            :: wire[i] != NOTHING && !orphan[i] -> begin_release(i)
            :: else -> end_round(i)
            fi }
    :: d_step { state[i] == LETS_GO && wire[i] == NOTHING ->
            wire[i] = RELEASE; sent[i] = 0;
            printf("client %d: release\n", i) }
#ifdef TURNS
    :: d_step { i < 2 && state[i] == LETS_GO && wire[i] == NOTHING && state[OTHER(i)] == IDLE &&
            wire[OTHER(i)] == NOTHING ->
            wire[i] = TURN; sent[i] = 0;
            state[OTHER(i)] = WAITS; first_sent[OTHER(i)] = 0; wire[OTHER(i)] = ALONG; sent[OTHER(i)] = 0;
            placed[OTHER(i)] = true; ready[OTHER(i)] = true; listened[OTHER(i)] = true;
            printf("client %d: release, and acquire of client %d\n", i, OTHER(i)) }
    :: d_step { wire[i] == TURN ->
            printf("server: turn of client %d, sent %d ago\n", i, sent[OTHER(i)]);
            queue_turn(ON_WIRE(i), ON_WIRE(OTHER(i)), sent[OTHER(i)]);
            answer_turn(i, OTHER(i));
            printf("server: turned %d; lock %d, left %d, places %d\n", turned, lock, left, places) }
    :: d_step { wire[i] == TURN ->
            turned = false;
            answer_turn(i, OTHER(i));
            printf("server: refuses the turn\n") }
#endif
    /* faults */
    :: d_step { faults > 0 && state[i] != IDLE && state[i] < DONE ->
            printf("client %d: dies, without a word\n", i);
            die(i) }
    :: d_step { faults > 0 && state[i] != IDLE && state[i] < DONE && listened[i] ->
            printf("client %d: dies\n", i);
            die(i); listened[i] = false;
#ifdef TURNS
            listened[n] = false
#endif
            }
    :: d_step { faults > 0 && wire[i] != NOTHING && state[i] != DEAD ->
            printf("client %d: the connection breaks\n", i);
            break_connection(i) }
    :: d_step { faults > 0 && pushes[i] > 0 ->
            printf("client %d: a push is lost\n", i);
            faults--; drop_push(i) }
    :: d_step { faults > 0 && listened[i] && state[i] == WAITS ->
            printf("client %d: the inbox breaks\n", i);
            lose_pushes(i); faults--; listened[i] = false }
    :: d_step { faults > 0 && ready[i] && state[i] == WAITS ->
            printf("client %d: the inbox breaks; the server does not see it\n", i);
            lose_pushes(i); faults--; ready[i] = false }
#ifndef DELAYS
    :: d_step { state[i] == DEAD && listened[i] ->
            listened[i] = false;
            printf("server: client %d is gone\n", i) }
#endif
#ifdef UNSETTLED
    :: d_step { ghost[i] != NOTHING ->
            printf("server: request %d of client %d, of an older connection, sent %d ago\n",
                   ghost[i], i, ghost_sent[i]);
            execute(ghost[i], ghost_grant[i], ghost_sent[i]);
            printf("server: answer %d; lock %d, left %d, places %d\n", answer, lock, left, places);
            ghost[i] = NOTHING; ghost_grant[i] = 0; ghost_sent[i] = 0 }
#endif
    od
}

/* ---- the world ---- */

inline pass_third()
{
    k = 0;
    do
    :: k < CLIENTS ->
        belief[k] = (belief[k] > 0 -> belief[k] - 1 : 0);
        if
        :: state[k] == WAITS || state[k] == AGAIN -> OLDER(first_sent[k])
        :: else
        fi;
        if
        :: wire[k] != NOTHING && wire[k] != RELEASE && !orphan[k] && wire[k] <= QUEUED || wire[k] == RENEWED ||
           (wire[k] == ALONG && !orphan[k]) ->
            OLDER(sent[k])
        :: else
        fi;
        m = 0;
        do
        :: m < pushes[k] -> OLDER(push_stamp[k * PUSHES + m]); m++
        :: else -> break
        od;
#ifdef UNSETTLED
        if
        :: ghost[k] != NOTHING -> OLDER(ghost_sent[k])
        :: else
        fi;
        doubt[k] = (doubt[k] > 0 -> doubt[k] - 1 : 0);
#endif
#if defined(DELAYS) && !defined(BUG_NO_REFRESH)
        due[k] = due[k] || (state[k] == WAITS && wire[k] == NOTHING && !trying[k]);
#endif
        k++
    :: else -> break
    od;
    k = 0;
    do
    :: k < places ->
        OLDER(place_stamp[k]);
        place_seen[k] = (place_seen[k] < FRESH -> place_seen[k] + 1 : FRESH);
        k++
    :: else -> break
    od;
    left = (left > 0 -> left - 1 : 0);
    if
    :: left == 0 -> lock = NOBODY
    :: else
    fi
}

#define WANTS(i) (state[i] != IDLE && state[i] < DONE)
/* Something is to be done before time passes. */
#define PRESSES(i) (wire[i] != NOTHING || pushes[i] > 0 || state[i] == AGAIN || state[i] == HOLDS || \
                    state[i] == LETS_GO || (ready[i] && !listened[i]) || \
                    (state[i] == WAITS && !trying[i] && (due[i] || !ready[i])))
#if CLIENTS == 2
#define ANY(what) (what(0) || what(1))
#elif CLIENTS == 3
#define ANY(what) (what(0) || what(1) || what(2))
#endif

inline forget_places()
{
    do
    :: places > 0 -> places--; clear_place(places)
    :: else -> break
    od
}

inline empty_server()
{
    faults--;
    lock = NOBODY;
    left = 0;
    forget_places();
    k = 0;
    do
    :: k < GRANTS -> before[k] = true; k++
    :: else -> break
    od
}

/* The queue's own expiry is later than that, but not by anything that is asked for. */
inline look_whether_all_are_old()
{
    found = places > 0;
    k = 0;
    do
    :: k < places -> found = found && place_seen[k] == FRESH; k++
    :: else -> break
    od
}

proctype world()
{
    do
    :: timeout && !ANY(WANTS) -> skip /* all is over; else it hangs, an invalid end state */
#ifdef DELAYS
    :: d_step { ANY(WANTS) && !ANY(PRESSES) ->
            pass_third();
            printf("---- a third; lock %d, left %d, places %d\n", lock, left, places) }
#ifdef LIVENESS
accept_third:
       skip
#endif
    :: d_step { ANY(WANTS) && ANY(PRESSES) && delays > 0 ->
            delays--;
            pass_third();
            printf("---- a third, with delays; lock %d, left %d, places %d\n", lock, left, places) }
#else
    :: d_step { ANY(WANTS) ->
            pass_third();
            printf("---- a third; lock %d, left %d, places %d\n", lock, left, places) }
#endif
    :: d_step { places > 0 && place_seen[0] == FRESH ->
            look_whether_all_are_old();
            if
            :: found -> forget_places(); printf("server: the queue expires\n")
            :: else
            fi }
    :: d_step { faults > 0 && ANY(WANTS) ->
            empty_server();
            printf("server: emptied\n") }
    od
}

init
{
    atomic {
        byte i = 0;
        do
        :: i < CLIENTS -> run client(i); i++
        :: else -> break
        od;
        run world()
    }
}
