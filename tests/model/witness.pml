/* witness.pml - the witness as a model for spin: the slot of a claim, the death of its process, the release by a witness, and
 * the successor; over a network that delays requests and loses replies. <mortise/witness.h> has the table of the slot's
 * states, docs/crash.md the rest; run.sh runs this.
 *
 * Two clients want one lock. Each has one slot, in memory that outlives it, and makes up to CLAIMS grant ids, one after the
 * other. Any of them may be killed before any of its steps, with requests on their way. A step that is not taken for long is
 * a process, or a witness, that is stopped. TIME is in halves of the ttl: what has an instant has an age, up to TTL.
 *
 * A request of a live client may be on its way for ever; one of a dead client arrives before a ttl has passed since the
 * death (a later one would make a claim that ends by itself, as without a witness).
 *
 * SAFETY, the assertions:
 *   no_overlap     nobody is given the lock while a live client believes to hold it
 *   spares_living  a witness takes the lock from nobody who lives
 *   nothing_left   when a witness has done with a dead process, the server has nothing of it, and gets nothing of it any more
 *   is_reached     false: a successor was given a lock that a witness had freed (the plant `reach` must find it)
 *
 * Each plant is a mistake that must be found:
 *
 *   BUG_SOCKET     a witness acts on the closed socket of a process that lives
 *   BUG_LATE_SLOT  the slot is written after the request has left
 *   BUG_NOTHING    a witness stops at the first answer "nothing there" of an ASKED slot
 *   BUG_FOUND      a witness stops at the first release of an ASKED slot that found the claim
 *   BUG_BY_NAME    a witness releases whoever holds the name
 *   BUG_HELD       HELD is written although an earlier reply was lost
 *   BUG_OVERWRITE  a new id is written over one of which a request may be executed yet
 *   BUG_EARLY_FREE the slot is freed when the release is sent, not when it is sure
 *
 * What run.sh runs:
 *
 *     check quick   no-losses     -DWITNESSES=1 -DCLAIMS=1 -DLOSSES=0
 *     check nightly one-witness   -DWITNESSES=1 -DCLAIMS=1
 *     check nightly two-witnesses -DWITNESSES=2 -DCLAIMS=1
 *     check nightly two-claims    -DWITNESSES=1 -DCLAIMS=2 -DHC4
 *     plant nightly reach         is_reached    -DWITNESSES=1 -DCLAIMS=1 -DREACH
 *     plant quick   socket        spares_living -DWITNESSES=1 -DCLAIMS=1 -DBUG_SOCKET
 *     plant quick   late-slot     nothing_left  -DWITNESSES=1 -DCLAIMS=1 -DBUG_LATE_SLOT
 *     plant nightly nothing       nothing_left  -DWITNESSES=1 -DCLAIMS=1 -DBUG_NOTHING
 *     plant quick   found         nothing_left  -DWITNESSES=1 -DCLAIMS=1 -DBUG_FOUND
 *     plant nightly by-name       spares_living -DWITNESSES=1 -DCLAIMS=1 -DBUG_BY_NAME
 *     plant quick   held          nothing_left  -DWITNESSES=1 -DCLAIMS=1 -DBUG_HELD
 *     plant nightly overwrite     nothing_left  -DWITNESSES=1 -DCLAIMS=2 -DBUG_OVERWRITE
 *     plant nightly early-free    nothing_left  -DWITNESSES=1 -DCLAIMS=1 -DBUG_EARLY_FREE
 */

#ifndef WITNESSES
#define WITNESSES 1
#endif
#ifndef CLAIMS
#define CLAIMS 1
#endif
#ifndef LOSSES
#define LOSSES 1 /* replies, in all */
#endif

#define CLIENTS 2
#define TTL 2
#define NOBODY 255
#define OLDER(age) age = (age < TTL -> age + 1 : TTL)
#define ID(client, number) ((client) * CLAIMS + (number))
#define CLIENT_OF(id) ((id) / CLAIMS)

/* A client. */
#define IDLE 0
#define WRITING 1 /* it fills its slot */
#define WRITTEN 2
#define ASKS 3
#define HOLDS 4
#define ENDS 5 /* releases, until that is sure */

/* A slot. */
#define FREE 0
#define ASKED 1
#define HELD 2

/* A reply. */
#define NONE 0
#define GRANTED 1
#define BUSY 2
#define RELEASED 3

/* The server. */
byte holder = NOBODY, age;
bool freed; /* by a witness, and nobody has had it since */

/* The clients. `old` is a request on a connection that the client has given up; `wire` one on the present connection. */
byte state[CLIENTS], claims[CLIENTS], id[CLIENTS], wire[CLIENTS], reply[CLIENTS], sent[CLIENTS];
byte old[CLIENTS];        /* the id of its request; NOBODY: none */
bool repeated[CLIENTS];   /* under this id, a reply was lost */
bool sure[CLIENTS];       /* when the release was sent, no old request was on its way */
bool believes[CLIENTS], dead[CLIENTS], closed[CLIENTS];
byte since[CLIENTS];      /* its death */
byte losses = LOSSES;

/* The slots. */
bool odd[CLIENTS];
byte slot_state[CLIENTS], slot_id[CLIENTS];

/* The witnesses. */
bool knows[WITNESSES * CLIENTS], done[WITNESSES * CLIENTS];

/* Zero between the steps. */
byte got, no_overlap, spares_living, nothing_left, is_reached;

#define ACQUIRES 1
#define RELEASES 2
#define SLOT_FREE(i) slot_state[i] = FREE

inline must(what, condition)
{
    what = (condition);
    assert(what);
    what = 0
}

/* ---- the client ---- */

inline write_slot(i)
{
    slot_id[i] = id[i];
    slot_state[i] = ASKED;
    odd[i] = false
}

inline send(i)
{
    wire[i] = ACQUIRES;
    sent[i] = 0;
    state[i] = ASKS
}

/* The reply is lost with the connection. What was sent there may be executed later; what was executed stays. */
inline lose(i)
{
    losses--;
    old[i] = (wire[i] == ACQUIRES -> id[i] : old[i]);
    wire[i] = NONE;
    reply[i] = NONE
}

inline granted(i)
{
    must(no_overlap, sent[i] >= TTL || !believes[1 - i]);
#ifdef REACH
    must(is_reached, !freed);
#endif
    freed = false;
    believes[i] = sent[i] < TTL;
    state[i] = (sent[i] < TTL -> HOLDS : ENDS);
#ifdef BUG_HELD
    slot_state[i] = HELD
#else
    slot_state[i] = (repeated[i] || sent[i] >= TTL -> slot_state[i] : HELD)
#endif
}

inline forget(i)
{
    SLOT_FREE(i);
    repeated[i] = false;
    state[i] = IDLE
}

proctype Client(byte i)
{
    do
    :: atomic { dead[i] -> break }

    /* A new grant id. */
    :: atomic { !dead[i] && state[i] == IDLE && claims[i] < CLAIMS ->
        id[i] = ID(i, claims[i]);
        claims[i]++;
        state[i] = WRITING;
#ifdef BUG_LATE_SLOT
        send(i)
#else
        odd[i] = true
#endif
       }
#ifdef BUG_LATE_SLOT
    :: atomic { !dead[i] && state[i] == ASKS && slot_state[i] == FREE -> write_slot(i) }
#endif
    :: atomic { !dead[i] && state[i] == WRITING -> write_slot(i); state[i] = WRITTEN }
    :: atomic { !dead[i] && state[i] == WRITTEN -> send(i) }

    /* Answers. */
    :: atomic { !dead[i] && state[i] == ASKS && reply[i] == GRANTED ->
        reply[i] = NONE;
        granted(i)
       }
    :: atomic { !dead[i] && state[i] == ASKS && reply[i] == BUSY ->
        reply[i] = NONE;
        if
        :: repeated[i] -> state[i] = ENDS
        :: else -> forget(i)
        fi
       }

    /* No answer: asks again under the same id, or gives up. */
    :: atomic { !dead[i] && state[i] == ASKS && (wire[i] != NONE || reply[i] != NONE) && losses > 0 && old[i] == NOBODY ->
        lose(i);
        repeated[i] = true;
        if
        :: wire[i] = ACQUIRES
        :: state[i] = ENDS
#ifdef BUG_OVERWRITE
        :: claims[i] < CLAIMS ->
            id[i] = ID(i, claims[i]);
            claims[i]++;
            write_slot(i);
            send(i)
#endif
        fi
       }

    /* The lease is released, or its deadline has passed. */
    :: atomic { !dead[i] && state[i] == HOLDS ->
        believes[i] = false;
        state[i] = ENDS
       }
    :: atomic { !dead[i] && state[i] == ENDS && wire[i] == NONE && reply[i] == NONE ->
        wire[i] = RELEASES;
        sure[i] = old[i] == NOBODY;
#ifdef BUG_EARLY_FREE
        SLOT_FREE(i)
#endif
       }
    /* Sure: the old connection is ended in the server. */
    :: atomic { !dead[i] && state[i] == ENDS && reply[i] == RELEASED ->
        reply[i] = NONE;
        if
        :: sure[i] -> sure[i] = false; forget(i)
        :: else -> skip
        fi
       }
    :: atomic { !dead[i] && state[i] == ENDS && old[i] != NOBODY -> old[i] = NOBODY }

#ifdef BUG_SOCKET
    /* It closes all descriptors, and lives on. A witness that acts on pidfds does not notice. */
    :: atomic { !dead[i] && !closed[i] && state[i] == HOLDS -> closed[i] = true }
#endif

    /* It is killed. */
    :: atomic { !dead[i] -> dead[i] = true; believes[i] = false; reply[i] = NONE }
    od
}

/* ---- the server ---- */

inline acquire(i, grant, answer)
{
    if
    :: holder == NOBODY -> holder = grant; age = 0; answer = GRANTED
    :: holder == grant -> answer = GRANTED
    :: else -> answer = BUSY
    fi
}

proctype Server()
{
    byte c;
    do
    :: atomic { c = 0; wire[0] != NONE || wire[1] != NONE || old[0] != NOBODY || old[1] != NOBODY ->
        if
        :: c = 0
        :: c = 1
        fi;
        got = NONE;
        if
        :: wire[c] == ACQUIRES ->
            acquire(c, id[c], got);
            wire[c] = NONE;
            reply[c] = (dead[c] -> NONE : got)
        :: wire[c] == RELEASES ->
            holder = (holder == id[c] -> NOBODY : holder);
            wire[c] = NONE;
            reply[c] = (dead[c] -> NONE : RELEASED)
        :: old[c] != NOBODY ->
            acquire(c, old[c], got); /* nobody hears the answer */
            old[c] = NOBODY
        :: wire[c] == NONE && old[c] == NOBODY -> skip
        fi;
        got = 0; c = 0
       }
    od
}

/* ---- time ---- */

#define ON_ITS_WAY(i) (wire[i] == ACQUIRES || old[i] != NOBODY)
#define MUST_ARRIVE(i) (dead[i] && since[i] == TTL - 1 && ON_ITS_WAY(i))

inline pass(i)
{
    OLDER(sent[i]);
    since[i] = (dead[i] && since[i] < TTL -> since[i] + 1 : since[i]);
    believes[i] = believes[i] && sent[i] < TTL
}

proctype Time()
{
    do
    :: atomic { !MUST_ARRIVE(0) && !MUST_ARRIVE(1) ->
        pass(0);
        pass(1);
        OLDER(age);
        holder = (age == TTL -> NOBODY : holder);
        age = (holder == NOBODY -> 0 : age)
       }
    od
}

/* ---- the witness ---- */

#define AT(w, i) ((w) * CLIENTS + (i))

/* got: the claim was there. */
inline release_dead(i)
{
#ifdef BUG_BY_NAME
    got = holder != NOBODY;
    must(spares_living, holder == NOBODY || dead[CLIENT_OF(holder)]);
#else
    got = holder == slot_id[i];
    must(spares_living, !got || dead[CLIENT_OF(holder)]);
#endif
    freed = freed || got;
    holder = (got -> NOBODY : holder);
    age = (got -> 0 : age)
}

inline finish(w, i)
{
    done[AT(w, i)] = true;
    must(nothing_left, !ON_ITS_WAY(i) && (holder == NOBODY || CLIENT_OF(holder) != i))
}

#ifdef BUG_SOCKET
#define ENDED(i) (dead[i] || closed[i])
#else
#define ENDED(i) dead[i]
#endif

inline act(w, i)
{
    if
    :: odd[i] || slot_state[i] == FREE -> finish(w, i)
    :: !odd[i] && slot_state[i] == HELD -> release_dead(i); finish(w, i)
    :: !odd[i] && slot_state[i] == ASKED ->
        release_dead(i);
        if
        :: since[i] == TTL -> finish(w, i)
#ifdef BUG_NOTHING
        :: !got -> finish(w, i)
#endif
#ifdef BUG_FOUND
        :: got -> finish(w, i)
#endif
        :: else -> skip
        fi
    fi;
    got = 0
}

/* It may crash at any instant, or be stopped: then it takes no step. A second one was started at another time, or the clients
 * went over to it. */
proctype Witness(byte w)
{
    do
    :: atomic { !knows[AT(w, 0)] && !dead[0] -> knows[AT(w, 0)] = true }
    :: atomic { !knows[AT(w, 1)] && !dead[1] -> knows[AT(w, 1)] = true }
    :: atomic { knows[AT(w, 0)] && ENDED(0) && !done[AT(w, 0)] -> act(w, 0) }
    :: atomic { knows[AT(w, 1)] && ENDED(1) && !done[AT(w, 1)] -> act(w, 1) }
    od
}

init
{
    atomic {
        id[0] = NOBODY; id[1] = NOBODY;
        old[0] = NOBODY; old[1] = NOBODY;
        slot_id[0] = NOBODY; slot_id[1] = NOBODY;
        run Server();
        run Time();
        run Client(0);
        run Client(1);
        run Witness(0);
#if WITNESSES > 1
        run Witness(1);
#endif
    }
}
