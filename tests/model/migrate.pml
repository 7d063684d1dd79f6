/* migrate.pml - a model of the phase registers and the presences of the migrate plugin (plugins/migrate/protocol.h
 * has them in words): clients of the three phases come, hold, lapse, are killed and come again; operators take
 * steps in either direction and stop between any two actions.
 *
 * Shown: at most one client holds, whatever its phase; the registers are never both open; and from every state that can be reached, once everybody has
 * gone home, every step can be taken, all the way there and back, by what the operators do.
 *
 * How many clients: -DOLDS=2 -DBOTHS=2 -DNEWS=2; operators: -DOPERATORS=2, each of so many steps: -DSTEPS=2. With -DTELL the
 * run ends, as if in error, when a new client holds after an old one has, with -DTELL_LAST when the last steps have been
 * taken: so the model is no idle one.
 *
 * Parts can be left out, and the check must then fail (migrate.sh sees to it):
 *   BREAK_ORDER     a client reads the register before its presence is written
 *   BREAK_DEADLINE  a grant counts though the presence has lapsed
 *   BREAK_AGAIN     who lapsed takes itself for registered, without reading again
 *   BREAK_LAPSES    what was asked for before the presence lapsed, and comes when it is there anew, counts
 *   BREAK_WAIT      a step does not wait for the presences of the phase that it closes
 *   BREAK_VERSION   the other register is opened whatever happened to it since the step began
 *   BREAK_REWRITE   a register that is closed already is not written again
 *   BREAK_BORROWED  another operator's closing, of which the register looks as if it were one's own, will do
 *
 * Time. A client's clock starts before its request is sent, and the server's after: so the server lets a claim go
 * only when the client has counted it as gone (R1). `Time` lets any of them pass at any moment; a client that is
 * stopped meanwhile goes on wherever it was. */

#ifndef OLDS
#define OLDS 1
#endif
#ifndef BOTHS
#define BOTHS 1
#endif
#ifndef NEWS
#define NEWS 1
#endif
#ifndef OPERATORS
#define OPERATORS 2
#endif
#ifndef STEPS
#define STEPS 2
#endif
#define CLIENTS (OLDS + BOTHS + NEWS)

#define OLD 1
#define BOTH 2
#define NEW 4

/* The two servers: registers with their versions, presences, the lock. */
byte reg_from = OLD | BOTH, reg_to = BOTH;
byte version_from, version_to;
bool here_from[CLIENTS], here_to[CLIENTS];
byte lock_from, lock_to; /* who has it, from 1; 0: free */
/* Bit o: operator o waits for the grant of this presence. */
byte awaited_from[CLIENTS], awaited_to[CLIENTS];

/* What the clients count: whether presence and claim are good still. */
bool present_from[CLIENTS], present_to[CLIENTS];
bool claimed[CLIENTS];
bool holds[CLIENTS];

byte phase[CLIENTS];
byte running = CLIENTS + OPERATORS;
bool old_held;

#define uses_from(p) ((p) != NEW)
#define uses_to(p) ((p) != OLD)
#define is_present(c, p)                                                                           \
    ((!uses_from(p) || present_from[c]) && (!uses_to(p) || present_to[c]))
#define is_allowed(p)                                                                              \
    ((!uses_from(p) || (reg_from & (p)) != 0) && (!uses_to(p) || (reg_to & (p)) != 0))

#ifdef BREAK_DEADLINE
#define counts(c, p) claimed[c]
#elif defined(BREAK_LAPSES)
#define counts(c, p) (claimed[c] && is_present(c, p))
#else
#define counts(c, p) (claimed[c] && is_present(c, p) && !stale)
#endif

inline say_here(c, p)
{
    /* the clock, then the server: what lies between shows in no other way than what lies behind */
    if
    :: uses_from(p) -> d_step { present_from[c] = true; here_from[c] = true }
    :: else
    fi;
    if
    :: uses_to(p) -> d_step { present_to[c] = true; here_to[c] = true }
    :: else
    fi
}

inline give_back(c, p)
{
    if
    :: uses_to(p) ->
        d_step {
            holds[c] = false;
            claimed[c] = false;
            if :: lock_to == c + 1 -> lock_to = 0 :: else fi
        }
    :: else
    fi;
    if
    :: uses_from(p) ->
        d_step {
            holds[c] = false;
            claimed[c] = false;
            if :: lock_from == c + 1 -> lock_from = 0 :: else fi
        }
    :: else
    fi
}

inline hold(c, p)
{
    d_step {
        i = 0;
        do
        :: i < CLIENTS -> assert(!holds[i]); i++
        :: else -> break
        od;
        i = 0;
        holds[c] = true;
#ifdef TELL
        assert(!(p == NEW && old_held));
        old_held = old_held || p == OLD
#endif
    }
}

/* The lock of one side; or it lasts: the presence lapses, and another call of this client takes it anew. */
#define wait_for(free)                                                                             \
    do                                                                                             \
    :: free; break                                                                                 \
    :: !is_present(c, p) && !stale -> say_here(c, p); stale = true                                 \
    :: give_back(c, p); goto ready                                                                 \
    od

proctype Client(byte c; byte p)
{
    byte i;
    bool stale;

again:
#ifdef BREAK_ORDER
    if
    :: !is_allowed(p) -> goto leave
    :: else
    fi;
    say_here(c, p);
#else
    say_here(c, p);
    /* the two registers are read one after the other */
    if
    :: uses_from(p) && (reg_from & p) == 0 -> goto leave
    :: else
    fi;
    if
    :: uses_to(p) && (reg_to & p) == 0 -> goto leave
    :: else
    fi;
#endif

ready:
    if
    :: stale -> stale = false; goto again /* present, but who has read the registers since? */
    :: else
    fi;
    if
    :: goto leave
    :: goto killed
#ifdef BREAK_AGAIN
    :: !is_present(c, p) -> say_here(c, p); goto ready
#else
    :: !is_present(c, p) -> goto again
#endif
    :: is_present(c, p) -> skip
    fi;

    /* acquire: from, then to */
    if
    :: uses_from(p) ->
        wait_for(d_step { lock_from == 0 -> claimed[c] = true; lock_from = c + 1 })
    :: else
    fi;
    if
    :: uses_to(p) ->
        wait_for(d_step { lock_to == 0 -> claimed[c] = claimed[c] || !uses_from(p); lock_to = c + 1 })
    :: else
    fi;
    atomic {
        if
        :: counts(c, p) -> hold(c, p)
        :: else
        fi
    }
    if
    :: give_back(c, p); goto ready
    :: goto killed
    fi;

killed: /* another process takes its place, later or never; what this one had ends by the servers' clocks */
    atomic {
        holds[c] = false; stale = false;
        present_from[c] = false; present_to[c] = false;
        awaited_from[c] = 0; awaited_to[c] = 0; /* it will not hold; the next one's is another grant */
        claimed[c] = false
    }
    if
    :: goto again
    :: goto over
    fi;

leave: /* what it holds it has given back; it refuses, or closes */
    atomic { present_from[c] = false; here_from[c] = false; awaited_from[c] = 0 }
    d_step { present_to[c] = false; here_to[c] = false; awaited_to[c] = 0 }
    if
    :: goto again /* tries again, or is another process */
    :: goto over
    fi;

over:
    running--
}

#ifdef BREAK_DEADLINE
#define lapse(c) skip
#else
#define lapse(c) holds[c] = false /* no grant outlives the presence */
#endif

/* Deadlines pass at any time; afterwards, and only then, the servers let go. */
proctype Time()
{
    byte c;

end:
    do
    :: atomic {
           select(c : 0 .. CLIENTS - 1);
           if
           :: present_from[c] -> present_from[c] = false; lapse(c)
           :: present_to[c] -> present_to[c] = false; lapse(c)
           :: claimed[c] -> claimed[c] = false; holds[c] = false
           :: here_from[c] && !present_from[c] -> here_from[c] = false; awaited_from[c] = 0
           :: here_to[c] && !present_to[c] -> here_to[c] = false; awaited_to[c] = 0
           :: lock_from == c + 1 && !claimed[c] -> lock_from = 0
           :: lock_to == c + 1 && !claimed[c] -> lock_to = 0
           :: else
           fi;
           c = 0
       }
    od
}

/* The first look: who of this phase is here is waited for, by the grant. */
#define first_look(there, awaited, wanted)                                                         \
    atomic {                                                                                       \
        i = 0;                                                                                     \
        do                                                                                         \
        :: i < CLIENTS ->                                                                          \
            if                                                                                     \
            :: there[i] && phase[i] == wanted -> awaited[i] = awaited[i] | (1 << o)                \
            :: else                                                                                \
            fi;                                                                                    \
            i++                                                                                    \
        :: else -> break                                                                           \
        od;                                                                                        \
        i = 0                                                                                      \
    }

/* Is one of them here still? */
#define look(awaited)                                                                              \
    d_step {                                                                                       \
        found = false;                                                                             \
        i = 0;                                                                                     \
        do                                                                                         \
        :: i < CLIENTS ->                                                                          \
            if                                                                                     \
            :: (awaited[i] & (1 << o)) != 0 -> found = true                                        \
            :: else                                                                                \
            fi;                                                                                    \
            i++                                                                                    \
        :: else -> break                                                                           \
        od;                                                                                        \
        i = 0                                                                                      \
    }

/* It waits for nobody any more. */
#define look_away()                                                                                \
    do                                                                                             \
    :: i < CLIENTS ->                                                                              \
        awaited_from[i] = awaited_from[i] & ~(1 << o);                                             \
        awaited_to[i] = awaited_to[i] & ~(1 << o);                                                 \
        i++                                                                                        \
    :: else -> break                                                                               \
    od;                                                                                            \
    i = 0

/* Waits until those are gone; or gives up. */
#ifdef BREAK_WAIT
#define wait_gone(there, awaited, wanted) skip
#else
#define wait_gone(there, awaited, wanted)                                                          \
    first_look(there, awaited, wanted);                                                            \
    do                                                                                             \
    :: look(awaited);                                                                              \
        if                                                                                         \
        :: !found -> break                                                                         \
        :: found -> skip                                                                           \
        :: found -> goto stopped                                                                   \
        fi                                                                                         \
    od
#endif

/* Compare and write. One that looks done, for its answer may have been lost: for an opening it is. */
inline open_if(reg, version, seen, value)
{
    atomic {
        if
        :: version == seen ->
            reg = value; version = version + 1;
            assert((reg_from & OLD) == 0 || (reg_to & NEW) == 0)
        :: version != seen && reg == (value)
        :: else -> goto stopped
        fi
    }
}

/* A closing is written again then, at the version that is there. */
#ifdef BREAK_BORROWED
#define borrow(seen, version) break
#else
#define borrow(seen, version) seen = version
#endif
inline close_if(reg, version, seen, value)
{
    do
    :: atomic { version == seen -> reg = value; version = version + 1; break }
    :: atomic { version != seen && reg == (value) -> borrow(seen, version) }
    :: atomic { version != seen && reg != (value) -> goto stopped }
    od
}

#ifdef BREAK_VERSION
#define known_from version_from
#define known_to version_to
#else
#define known_from seen_from
#define known_to seen_to
#endif

#ifdef BREAK_REWRITE
#define close_side(reg, version, seen, value)                                                      \
    if                                                                                             \
    :: reg == (value)                                                                              \
    :: else -> close_if(reg, version, seen, value)                                                 \
    fi
#else
#define close_side(reg, version, seen, value) close_if(reg, version, seen, value)
#endif

/* old → both, both → new: the first closes `from` to old and opens `to` to new */
inline one_to_two()
{
    close_side(reg_from, version_from, known_from, BOTH);
    wait_gone(here_from, awaited_from, OLD);
    open_if(reg_to, version_to, known_to, BOTH | NEW)
}

/* the same on the way back */
inline two_to_one()
{
    close_side(reg_to, version_to, known_to, BOTH);
    wait_gone(here_to, awaited_to, NEW);
    open_if(reg_from, version_from, known_from, OLD | BOTH)
}

/* new only; `from` may go then */
inline two_to_three()
{
    close_if(reg_to, version_to, known_to, NEW);
    wait_gone(here_to, awaited_to, BOTH);
    open_if(reg_from, version_from, known_from, 0)
}

/* and back from there */
inline three_to_two()
{
    close_if(reg_from, version_from, known_from, BOTH);
    open_if(reg_to, version_to, known_to, BOTH | NEW)
}

/* The registers are read one after the other. */
inline read_both()
{
    seen_from = version_from;
    d_step { seen_to = version_to; to = reg_to }
}

/* Steps; each may end after any of its actions. */
proctype Operator(byte o)
{
    byte steps = STEPS, seen_from, seen_to, to, i;
    bool found;

next:
    if
    :: steps == 0 -> goto over
    :: else -> steps--
    fi;
    /* what to do follows from the second */
    read_both();
    if
    :: (to & NEW) == 0 -> one_to_two()
    :: (to & BOTH) != 0 -> two_to_one()
    :: (to & NEW) != 0 -> two_to_three()
    :: (to & BOTH) == 0 -> three_to_two()
    /* it dies here, and another one comes */
    :: true -> skip
    fi;

stopped:
    atomic { seen_from = 0; seen_to = 0; to = 0; found = false; look_away() }
    goto next;

over:
    running--
}

/* Everybody has gone, in whatever state that left the registers: each step can be taken. */
proctype Last(byte o)
{
    byte seen_from, seen_to, to, i;
    bool found;

    running == 0;
    d_step {
        i = 0;
        do
        :: i < CLIENTS ->
            assert(!holds[i] && !present_from[i] && !present_to[i]);
            here_from[i] = false; here_to[i] = false; /* the servers let go what nobody counts any more */
            awaited_from[i] = 0; awaited_to[i] = 0;
            i++
        :: else -> break
        od;
        lock_from = 0; lock_to = 0;
        i = 0
    }
    /* there */
    read_both();
    if
    :: (to & NEW) == 0 -> one_to_two()
    :: else
    fi;
    assert((reg_from & OLD) == 0);
    read_both();
    two_to_three();
    assert(reg_from == 0 && reg_to == NEW);
    /* and back */
    read_both();
    three_to_two();
    read_both();
    two_to_one();
    assert(reg_from == (OLD | BOTH) && reg_to == BOTH);
#ifdef TELL_LAST
    assert(false);
#endif
    goto done;

stopped: /* nobody else writes, and nobody is there to be waited for */
    assert(false);
done:
    skip
}

init
{
    byte c;

    atomic {
        do
        :: c < CLIENTS ->
            if
            :: c < OLDS -> phase[c] = OLD
            :: c >= OLDS && c < OLDS + BOTHS -> phase[c] = BOTH
            :: c >= OLDS + BOTHS -> phase[c] = NEW
            fi;
            run Client(c, phase[c]);
            c++
        :: c >= CLIENTS && c < CLIENTS + OPERATORS -> run Operator(c - CLIENTS); c++
        :: c == CLIENTS + OPERATORS -> break
        od;
        run Time();
        run Last(OPERATORS)
    }
}
