/* redis_shared.pml - shared holders of the Redis driver as a model for spin: the marker, the set of holders beside it, phases,
 * the queue whose places have a mode, downgrades; over a network that loses, and a server whose keys somebody deletes.
 * drivers/redis/protocol.md has the states and the table; run.sh runs this. redis_queue.pml has the queue's own proof (pushes
 * that are late or lost, connections, inboxes): here a push arrives at once, or never.
 *
 * The server's steps carry the names of the scripts: open_shares, add, admit, hand_on, shared_acquire, queue_acquire, renew,
 * release, downgrade. TIME is in thirds of the ttl; what has an instant has an age. An age of TTL: so old that a deadline from
 * it has passed.
 *
 * SAFETY, the assertions:
 *   no_overlap      nobody begins to believe that it holds, or believes for longer, while another does, unless both share;
 *                   who got the lock before somebody deleted a key of it counts for nothing
 *   few_enough      never more believe than there are permits
 *   in_order        nobody is given the lock before a fresh place that was in the queue first, unless both share
 *   passed_on       a script that ends a hold leaves nobody at the head of the queue who could be let in
 *   is_covered      the marker does not end before a holder
 *   stays_void      who was a holder of a phase whose marker is gone is none of a later phase
 *
 * Each plant is a mistake that must be found:
 *
 *   BUG_NO_PHASE    holders are not compared with the phase of the marker
 *   BUG_FIRST       the marker ends with the first holder, not the last
 *   BUG_BARGE       a shared request does not look at the queue
 *   BUG_CROWD       a release lets in all shared places, however many permits there are
 *   BUG_ONE         a release lets in the head alone
 *   BUG_DOWNGRADE   a downgrade frees the lock in between
 *
 * What run.sh runs:
 *
 *     check quick   two          -DCLIENTS=2 -DFAULTS=1
 *     check nightly three        -DCLIENTS=3 -DFAULTS=0 -DNO_RENEW
 *     check nightly two-faults   -DCLIENTS=2 -DFAULTS=2
 *     check nightly three-faults -DCLIENTS=3 -DFAULTS=1 -DNO_RENEW -DHC4
 *     check nightly permits      -DCLIENTS=3 -DFAULTS=0 -DPERMITS=2 -DHC4
 *     plant quick   no-phase     stays_void -DCLIENTS=3 -DBUG_NO_PHASE -DNO_RENEW
 *     plant nightly first        is_covered -DCLIENTS=2 -DBUG_FIRST
 *     plant quick   barge        in_order   -DCLIENTS=3 -DFAULTS=0 -DBUG_BARGE -DNO_RENEW
 *     plant nightly crowd        few_enough -DCLIENTS=3 -DFAULTS=0 -DPERMITS=1 -DBUG_CROWD -DNO_RENEW
 *     plant nightly one          passed_on  -DCLIENTS=3 -DFAULTS=0 -DBUG_ONE -DNO_RENEW
 *     plant quick   downgrade    no_overlap -DCLIENTS=2 -DFAULTS=0 -DBUG_DOWNGRADE
 */

#ifndef CLIENTS
#define CLIENTS 3
#endif
#ifndef FAULTS
#define FAULTS 1 /* lost answers, lost pushes, deaths, deleted keys: that many in all */
#endif
#ifndef PERMITS
#define PERMITS 0 /* 0: any number */
#endif

#define TTL 3
#define FRESH 2
#define NOBODY 255
#define OLDER(age) age = (age < TTL -> age + 1 : TTL)

#define IDLE 0
#define WAITS 1
#define HOLDS 2
#define LETS_GO 3
#define DONE 4

#define NOTHING 0
#define ACQUIRE 1
#define RENEW 2
#define DOWNGRADE 3
#define RELEASE 4
#define TAKEN 5
#define YOURS 6
#define QUEUED 7
#define RENEWED 8
#define GONE 9
#define RELEASED 10
#define IS_REQUEST(x) ((x) >= ACQUIRE && (x) <= RELEASE)

/* The lock: nobody's, exclusive (owner), or a marker (phase: who began it; each client begins at most one). */
byte owner = NOBODY, phase = NOBODY, left;
/* Beside it. */
byte side_phase = NOBODY, ends[CLIENTS]; /* thirds; 0: no holder */
byte places, place[CLIENTS], seen[CLIENTS], stamp[CLIENTS];

byte state[CLIENTS];
bool shares[CLIENTS];  /* what the client asks for, and believes to be */
bool asked[CLIENTS];   /* shared: as the request on the wire says */
byte wire[CLIENTS], sent[CLIENTS], first_sent[CLIENTS], belief[CLIENTS];
bool before[CLIENTS];  /* it got the lock before a key of it was deleted */
bool dead[CLIENTS];
byte faults = FAULTS;
bool losing;           /* the next push */

/* Zero between the steps. */
byte k, m, n, s, since, answer, first, count, last, shared_state, found, mine;
byte no_overlap, few_enough, in_order, passed_on, is_covered, stays_void;

inline forget()
{
    k = 0; m = 0; n = 0; s = 0; since = 0; answer = 0; first = 0; count = 0; last = 0; shared_state = 0; found = 0; mine = 0;
    no_overlap = 0; few_enough = 0; in_order = 0; passed_on = 0; is_covered = 0; stays_void = 0
}

/* ---- include/queue, include/shared ---- */

inline take_out(at)
{
    m = at;
    do
    :: m + 1 < places -> place[m] = place[m + 1]; seen[m] = seen[m + 1]; stamp[m] = stamp[m + 1]; m++
    :: else -> break
    od;
    places--;
    place[places] = 0; seen[places] = 0; stamp[places] = 0
}

inline leave(i)
{
    k = 0;
    do
    :: k < places && place[k] == i -> take_out(k)
    :: k < places && place[k] != i -> k++
    :: else -> break
    od
}

inline clear_side()
{
    k = 0;
    do
    :: k < CLIENTS -> ends[k] = 0; k++
    :: else -> break
    od;
    side_phase = NOBODY
}

/* Which holders there are; a marker whose holders have all ended, or belong to another phase, is none here: the
 * model's keys are deleted together or not at all, but for the marker. */
inline open_shares()
{
    shared_state = phase != NOBODY;
#ifdef BUG_NO_PHASE
    if
    :: phase == NOBODY && owner == NOBODY && side_phase != NOBODY ->
        phase = side_phase; shared_state = true
    :: else
    fi;
#endif
    count = 0;
    last = 0;
    k = 0;
    do
    :: k < CLIENTS ->
        if
        :: shared_state && ends[k] > 0 ->
            count++;
#ifdef BUG_FIRST
            last = (last == 0 || ends[k] < last -> ends[k] : last)
#else
            last = (ends[k] > last -> ends[k] : last)
#endif
        :: else
        fi;
        k++
    :: else -> break
    od
}

inline settle()
{
    open_shares();
    if
    :: shared_state && count == 0 -> phase = NOBODY; left = 0; clear_side(); shared_state = false
    :: shared_state && count > 0 -> left = last
    :: else
    fi;
    k = 0;
    do
    :: k < CLIENTS ->
        is_covered = !shared_state || ends[k] <= left;
        assert(is_covered);
        k++
    :: else -> break
    od
}

inline add(i)
{
    if
    :: phase == NOBODY ->
#ifndef BUG_NO_PHASE
        clear_side();
#endif
        owner = NOBODY; phase = i; side_phase = i
    :: else
    fi;
    ends[i] = TTL;
    before[i] = false;
    stays_void = true;
    k = 0;
    do
    :: k < CLIENTS -> stays_void = stays_void && !(ends[k] > 0 && before[k]); k++
    :: else -> break
    od;
    assert(stays_void);
    settle()
}

#define HAS_ROOM (PERMITS == 0 || count < PERMITS)

/* The push arrives now, or never. A refresh that is under way will say "yours". */
inline tell(i, age)
{
    if
    :: !dead[i] && state[i] == WAITS && age <= first_sent[i] &&
       (wire[i] == NOTHING || (wire[i] == QUEUED && sent[i] == age)) ->
        if
        :: losing -> losing = false
        :: else -> wire[i] = NOTHING; sent[i] = 0; granted(i, age)
        fi
    :: else
    fi
}

/* From the head of the queue, those who share, while there is room. `self` is not told. */
inline admit(self)
{
    mine = false;
    do
    :: true ->
        open_shares();
        if
        :: places > 0 && place[0] != self && (seen[0] == FRESH || dead[place[0]]) -> take_out(0)
        :: places > 0 && (place[0] == self || (seen[0] < FRESH && !dead[place[0]])) &&
           shared_state && shares[place[0]] &&
#ifdef BUG_CROWD
           true ->
#else
           HAS_ROOM ->
#endif
            n = place[0];
            s = stamp[0];
            take_out(0);
            if
            :: n == self -> mine = true; break
            :: else -> add(n); tell(n, s)
            fi;
#ifdef BUG_ONE
            break
#endif
        :: else -> break
        fi
    od
}

/* The lock is nobody's. */
inline hand_on(self)
{
    mine = false;
    do
    :: places > 0 && owner == NOBODY && phase == NOBODY ->
        n = place[0];
        s = stamp[0];
        if
        :: n == self -> take_out(0); mine = true; break
        :: n != self && (seen[0] == FRESH || dead[n]) -> take_out(0)
        :: n != self && seen[0] < FRESH && !dead[n] && !shares[n] ->
            take_out(0); owner = n; left = TTL; before[n] = false; tell(n, s)
        :: n != self && seen[0] < FRESH && !dead[n] && shares[n] ->
            take_out(0); add(n); tell(n, s);
#ifndef BUG_ONE
            admit(self)
#endif
        fi
    :: else -> break
    od
}

inline sit(i)
{
    k = 0;
    do
    :: k < places && place[k] != i && seen[k] == FRESH -> take_out(k)
    :: k < places && place[k] != i && seen[k] < FRESH -> k++
    :: else -> break
    od;
    if
    :: k == places -> place[k] = i; places++
    :: else
    fi;
    seen[k] = 0;
    stamp[k] = sent[i]
}

/* A fresh place of another, before the own one, and not both share. */
inline look_who_is_first(i)
{
    first = NOBODY;
    k = 0;
    do
    :: k < places && place[k] != i && first == NOBODY ->
        if
        :: seen[k] < FRESH && !dead[place[k]] && !(shares[i] && shares[place[k]]) -> first = place[k]
        :: else
        fi;
        k++
    :: else -> break
    od
}

/* Behind what ends a hold. */
inline check_passed_on()
{
    open_shares();
    passed_on = true;
    k = 0;
    do
    :: k < places && (seen[k] == FRESH || dead[place[k]]) -> k++
    :: else -> break
    od;
    if
    :: k < places && owner == NOBODY && phase == NOBODY -> passed_on = false
    :: k < places && shared_state && shares[place[k]] && HAS_ROOM -> passed_on = false
    :: else
    fi;
    assert(passed_on)
}

inline shared_acquire(i)
{
    settle();
    if
    :: shared_state && ends[i] > 0 -> answer = YOURS
    :: else ->
        look_who_is_first(i);
        mine = false;
        if
        :: places > 0 && owner == NOBODY && phase == NOBODY -> hand_on(i)
        :: places > 0 && shared_state -> admit(i)
        :: else
        fi;
        open_shares();
        if
        :: shared_state && ends[i] > 0 -> answer = YOURS
#ifdef BUG_BARGE
        :: !(shared_state && ends[i] > 0) && owner == NOBODY && HAS_ROOM ->
#else
        :: !(shared_state && ends[i] > 0) && owner == NOBODY && HAS_ROOM && (mine || places == 0) ->
#endif
            leave(i);
            in_order = first == NOBODY;
            assert(in_order);
            add(i);
            answer = TAKEN;
            if
            :: mine -> admit(NOBODY)
            :: else
            fi
        :: else -> sit(i); answer = QUEUED
        fi
    fi
}

inline queue_acquire(i)
{
    settle();
    if
    :: owner == i -> answer = YOURS
    :: else ->
        look_who_is_first(i);
        mine = false;
        if
        :: owner == NOBODY && phase == NOBODY && places > 0 -> hand_on(i)
        :: else
        fi;
        if
        :: owner == NOBODY && phase == NOBODY ->
            in_order = first == NOBODY;
            assert(in_order);
            owner = i; left = TTL; before[i] = false; answer = TAKEN
        :: else -> sit(i); answer = QUEUED
        fi
    fi
}

inline end_hold(i)
{
    settle();
    found = false;
    if
    :: owner == i -> owner = NOBODY; left = 0; found = true; hand_on(NOBODY)
    :: shared_state && ends[i] > 0 ->
        ends[i] = 0;
        found = true;
        settle();
        leave(i);
        if
        :: shared_state -> admit(NOBODY)
        :: else -> hand_on(NOBODY)
        fi
    :: else ->
        leave(i);
        if
        :: shared_state -> admit(NOBODY)
        :: else
        fi
    fi;
    if
    :: found || shared_state -> check_passed_on()
    :: else
    fi;
    answer = RELEASED
}

inline renew(i)
{
    settle();
    if
    :: owner == i && !shares[i] -> left = TTL; answer = RENEWED
    :: shared_state && ends[i] > 0 && shares[i] -> ends[i] = TTL; settle(); answer = RENEWED
    :: else -> answer = GONE
    fi
}

inline downgrade(i)
{
    settle();
    if
    :: owner == i ->
#ifdef BUG_DOWNGRADE
        owner = NOBODY; left = 0; hand_on(NOBODY);
        open_shares();
        if
        :: owner == NOBODY -> add(i)
        :: else -> ends[i] = TTL
        fi;
#else
        add(i);
#endif
        admit(NOBODY);
        answer = RENEWED
    :: owner != i && shared_state && ends[i] > 0 -> ends[i] = TTL; settle(); answer = RENEWED
    :: else -> answer = GONE
    fi
}

/* ---- the client ---- */

inline believe(i, age)
{
    if
    :: TTL - age > belief[i] ->
        belief[i] = TTL - age;
        no_overlap = true;
        few_enough = 0;
        m = 0;
        do
        :: m < CLIENTS ->
            if
            :: m != i && belief[m] > 0 && !before[m] && !before[i] && !(shares[m] && shares[i]) -> no_overlap = false
            :: else
            fi;
            few_enough = few_enough + (belief[m] > 0 && !before[m] && shares[m] -> 1 : 0);
            m++
        :: else -> break
        od;
        assert(no_overlap);
        few_enough = PERMITS == 0 || few_enough <= PERMITS;
        assert(few_enough)
    :: else
    fi
}

inline granted(i, age)
{
    since = age; /* it may be first_sent itself */
    first_sent[i] = 0;
    if
    :: since < TTL -> state[i] = HOLDS; believe(i, since)
    :: else -> state[i] = LETS_GO
    fi
}

inline over(i)
{
    state[i] = DONE; belief[i] = 0; wire[i] = NOTHING; sent[i] = 0; first_sent[i] = 0
}

inline answered(i)
{
    n = wire[i];
    s = sent[i];
    wire[i] = NOTHING;
    sent[i] = 0;
    if
    :: n == TAKEN -> granted(i, s)
    :: n == YOURS -> granted(i, first_sent[i])
    :: n == QUEUED -> first_sent[i] = s
    :: n == RENEWED && belief[i] > 0 -> believe(i, s)
    :: n == RENEWED && belief[i] == 0 -> state[i] = LETS_GO
    :: n == GONE -> over(i)
    :: n == RELEASED -> over(i)
    fi
}

inline execute(i)
{
    n = wire[i];
    if
    :: n == ACQUIRE && shares[i] -> shared_acquire(i)
    :: n == ACQUIRE && !shares[i] -> queue_acquire(i)
    :: n == RENEW -> renew(i)
    :: n == DOWNGRADE -> downgrade(i)
    :: n == RELEASE -> end_hold(i)
    fi
}

proctype client(byte i)
{
end:
    do
    :: d_step { state[i] == IDLE && (i == 0 || state[i - 1] != IDLE) ->
            shares[i] = true; state[i] = WAITS; wire[i] = ACQUIRE;
            printf("client %d: acquire, shared\n", i) }
    :: d_step { state[i] == IDLE && (i == 0 || state[i - 1] != IDLE) ->
            shares[i] = false; state[i] = WAITS; wire[i] = ACQUIRE;
            printf("client %d: acquire\n", i) }
    :: d_step { state[i] == WAITS && wire[i] == NOTHING ->
            wire[i] = ACQUIRE; printf("client %d: asks again\n", i) }
    :: atomic { IS_REQUEST(wire[i]) -> /* no choice in it */
            execute(i);
            if
            :: IS_REQUEST(wire[i]) ->
                wire[i] = answer;
                sent[i] = (answer < GONE -> sent[i] : 0)
            :: else
            fi;
            printf("server: answer %d to client %d; owner %d, phase %d, left %d, places %d\n", answer, i, owner, phase, left, places);
            forget() }
    :: d_step { wire[i] > RELEASE ->
            answered(i); printf("client %d: state %d, belief %d\n", i, state[i], belief[i]); forget() }
#ifndef NO_RENEW
    :: d_step { state[i] == HOLDS && belief[i] > 0 && belief[i] < TTL && wire[i] == NOTHING ->
            wire[i] = RENEW; printf("client %d: renew\n", i) }
#endif
#if PERMITS == 0
    :: d_step { state[i] == HOLDS && belief[i] > 0 && !shares[i] && wire[i] == NOTHING ->
            shares[i] = true; wire[i] = DOWNGRADE; printf("client %d: downgrade\n", i) }
#endif
    :: d_step { state[i] == HOLDS && wire[i] == NOTHING ->
            belief[i] = 0; state[i] = LETS_GO; printf("client %d: lets go\n", i) }
    :: d_step { state[i] == WAITS && wire[i] == NOTHING ->
            first_sent[i] = 0; state[i] = LETS_GO; printf("client %d: gives up\n", i) }
    :: d_step { state[i] == LETS_GO && wire[i] == NOTHING ->
            wire[i] = RELEASE; printf("client %d: release\n", i) }
    /* faults; the core repeats what was lost */
    :: d_step { faults > 0 && wire[i] != NOTHING && state[i] != HOLDS ->
            faults--; wire[i] = NOTHING; sent[i] = 0; printf("client %d: request or answer lost\n", i) }
    :: d_step { faults > 0 && wire[i] != NOTHING && state[i] == HOLDS && wire[i] != DOWNGRADE ->
            faults--;
            wire[i] = NOTHING; sent[i] = 0; printf("client %d: renewal or answer lost\n", i) }
    :: d_step { faults > 0 && (state[i] == WAITS || state[i] == HOLDS) ->
            faults--; over(i); dead[i] = true; printf("client %d: dies\n", i) }
    od
}

/* ---- the world ---- */

inline pass_third()
{
    k = 0;
    do
    :: k < CLIENTS ->
        belief[k] = (belief[k] > 0 -> belief[k] - 1 : 0);
        ends[k] = (ends[k] > 0 -> ends[k] - 1 : 0);
        if
        :: state[k] == WAITS -> OLDER(first_sent[k])
        :: else
        fi;
        if
        :: wire[k] != NOTHING && wire[k] != RELEASE && wire[k] < GONE -> OLDER(sent[k])
        :: else
        fi;
        k++
    :: else -> break
    od;
    k = 0;
    do
    :: k < places ->
        OLDER(stamp[k]);
        seen[k] = (seen[k] < FRESH -> seen[k] + 1 : FRESH);
        k++
    :: else -> break
    od;
    left = (left > 0 -> left - 1 : 0);
    if
    :: left == 0 -> owner = NOBODY; phase = NOBODY
    :: else
    fi
}

#define WANTS(i) (state[i] != IDLE && state[i] != DONE)
#if CLIENTS == 2
#define ANY (WANTS(0) || WANTS(1))
#else
#define ANY (WANTS(0) || WANTS(1) || WANTS(2))
#endif

proctype world()
{
    do
    :: timeout && !ANY -> skip
    :: d_step { ANY -> pass_third(); printf("---- a third; owner %d, phase %d, left %d\n", owner, phase, left); forget() }
    :: d_step { faults > 0 && ANY && places > 0 ->
            faults--; losing = true; printf("server: the next push will be lost\n") }
    :: d_step { faults > 0 && (owner != NOBODY || phase != NOBODY) ->
            faults--; owner = NOBODY; phase = NOBODY; left = 0;
            k = 0;
            do
            :: k < CLIENTS -> before[k] = true; k++
            :: else -> break
            od;
            forget();
            printf("server: the lock is deleted\n") }
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
