/* migrate_next.pml - a migration that begins where another one has ended, as a model for spin: A -> S is at its end, S -> C takes
 * steps, there and back (plugins/migrate/protocol.h, 9). migrate.pml has one migration, with all that can happen to presences
 * and claims; here both last as long as their client wants them. run.sh runs this.
 *
 * A client of phase new of A -> S, which somebody forgot, uses S alone; one of phase new of S -> C uses C alone: they meet nowhere.
 * Operators of S -> C take steps; an operator of A -> S opens S to its phase new, and closes it to its phase both. Anyone may stop
 * between any two actions.
 *
 * SAFETY, the assertions:
 *   no_overlap  the two clients never hold at the same time
 *   is_reached  false: the client of S -> C has held after the other one had (the plant `reach` must find it)
 *
 * Each plant is a part of the protocol that is left out, and must be missed:
 *
 *   BREAK_CLOSE    S -> C does not close the register of A -> S
 *   BREAK_WAIT     it does not wait for the clients of A -> S
 *   BREAK_LOOK     A -> S opens S without looking at the register of S -> C
 *   BREAK_EARLY    it looks there before it reads the version of its own register
 *   BREAK_REWRITE  a register of A -> S that is closed already is not written again
 *
 * With NEVER, A -> S has never taken a step: its register on S is absent, and S -> C does not write it. So both operators look
 * again before they open. Between that look and the opening, A -> S does nothing else here: INSTANT is what can happen otherwise.
 *
 *   BREAK_AGAIN    S -> C does not look again
 *   BREAK_SECOND   A -> S does not look again
 *
 * What run.sh runs:
 *
 *     check quick   one        -DOPERATORS=1 -DSTEPS=2
 *     check nightly two        -DOPERATORS=2 -DSTEPS=2
 *     check nightly four-steps -DOPERATORS=1 -DSTEPS=4
 *     check quick   never      -DOPERATORS=1 -DSTEPS=2 -DNEVER
 *     plant quick   again      no_overlap -DOPERATORS=1 -DSTEPS=1 -DNEVER -DBREAK_AGAIN
 *     plant quick   second     no_overlap -DOPERATORS=1 -DSTEPS=1 -DNEVER -DBREAK_SECOND
 *     plant quick   instant    no_overlap -DOPERATORS=1 -DSTEPS=1 -DNEVER -DINSTANT
 *     plant quick   reach      is_reached -DOPERATORS=1 -DSTEPS=1 -DREACH
 *     plant quick   close      no_overlap -DOPERATORS=1 -DSTEPS=1 -DBREAK_CLOSE
 *     plant quick   wait       no_overlap -DOPERATORS=1 -DSTEPS=1 -DBREAK_WAIT
 *     plant quick   look       no_overlap -DOPERATORS=1 -DSTEPS=1 -DBREAK_LOOK
 *     plant quick   early      no_overlap -DOPERATORS=1 -DSTEPS=1 -DBREAK_EARLY
 *     plant quick   rewrite    no_overlap -DOPERATORS=1 -DSTEPS=3 -DBREAK_REWRITE
 */

#ifndef OPERATORS
#define OPERATORS 1
#endif
#ifndef STEPS
#define STEPS 2
#endif

#define OLD 1
#define BOTH 2
#define NEW 4

/* The registers, with their versions: `to` of A -> S, `from` and `to` of S -> C. */
#ifdef NEVER
#define FIRST BOTH
#define WRITTEN (seen_first != 0)
#else
#define FIRST NEW
#define WRITTEN true
#endif
byte first = FIRST, from = OLD | BOTH, to = BOTH;
byte first_version, from_version, to_version;

/* Presences; bit o: operator o waits for this grant. */
bool first_here, second_here;
byte first_awaited, second_awaited;

bool first_holds, second_holds, first_held;
bool no_overlap = true, is_reached = true;

inline hold(mine)
{
    d_step {
        mine = true;
        no_overlap = !(first_holds && second_holds);
        assert(no_overlap);
        first_held = first_held || first_holds;
#ifdef REACH
        is_reached = !(first_held && second_holds);
        assert(is_reached)
#endif
    }
}

/* Presence, then register; then it holds as often as it wants, and leaves, or comes again. */
#define LIVE(here, awaited, reg, holds)                                                            \
    do                                                                                             \
    :: here = true;                                                                                \
       do                                                                                          \
       :: (reg & NEW) != 0 ->                                                                      \
           do                                                                                      \
           :: hold(holds); holds = false                                                           \
           :: break                                                                                \
           od;                                                                                     \
           break                                                                                   \
       :: else -> break                                                                            \
       od;                                                                                         \
       atomic { here = false; awaited = 0 }                                                        \
    :: break                                                                                       \
    od

proctype First()
{
    LIVE(first_here, first_awaited, first, first_holds)
}

proctype Second()
{
    LIVE(second_here, second_awaited, to, second_holds)
}

/* Compare and write; another one wrote it: the step ends. */
#define WRITE(reg, version, seen, value)                                                           \
    atomic {                                                                                       \
        if                                                                                         \
        :: version == seen -> reg = value; version++                                               \
        :: else -> goto stopped                                                                    \
        fi                                                                                         \
    }

/* Waits for the grant that the first look finds; or gives up. */
#define WAIT(here, awaited)                                                                        \
    atomic { if :: here -> awaited = awaited | (1 << o) :: else fi };                              \
    if                                                                                             \
    :: (awaited & (1 << o)) == 0                                                                   \
    :: goto stopped                                                                                \
    fi

/* Of S -> C. */
proctype Operator(byte o)
{
    byte steps = STEPS, seen_from, seen_to, seen_first, other;
    bool forward;

next:
    if
    :: steps == 0 -> goto over
    :: else -> steps--
    fi;
    seen_from = from_version;
    atomic { seen_to = to_version; forward = (to & NEW) == 0 };
    d_step { seen_first = first_version; other = first };
    if
    :: forward ->
        if
        :: (other & BOTH) != 0 && WRITTEN -> goto stopped /* A -> S is not at its end */
        :: else
        fi;
        WRITE(from, from_version, seen_from, BOTH);
#ifdef BREAK_REWRITE
        if
        :: other == 0
        :: else -> WRITE(first, first_version, seen_first, 0)
        fi;
#elif !defined(BREAK_CLOSE)
        if
        :: WRITTEN -> WRITE(first, first_version, seen_first, 0)
        :: else
        fi;
#endif
#ifndef BREAK_WAIT
        WAIT(first_here, first_awaited);
#endif
#if defined(NEVER) && !defined(BREAK_AGAIN)
        if
        :: !WRITTEN && first_version != seen_first -> goto stopped
        :: else
        fi;
#endif
        WRITE(to, to_version, seen_to, BOTH | NEW)
    :: else ->
        WRITE(to, to_version, seen_to, BOTH);
        WAIT(second_here, second_awaited);
        WRITE(from, from_version, seen_from, OLD | BOTH)
    fi;

stopped:
    atomic {
        first_awaited = first_awaited & ~(1 << o);
        second_awaited = second_awaited & ~(1 << o);
        seen_from = 0; seen_to = 0; seen_first = 0; other = 0; forward = false
    };
    goto next;

over:
    skip
}

/* Of A -> S: opens S to phase new again, and closes it to phase both. */
proctype Earlier()
{
    byte seen;
    bool past_old;

#ifdef BREAK_EARLY
    past_old = (from & OLD) == 0;
    seen = first_version;
#else
    seen = first_version;
    past_old = (from & OLD) == 0;
#endif
#ifndef BREAK_LOOK
    if
    :: past_old -> goto stopped
    :: else
    fi;
#endif
#if !defined(NEVER) || defined(BREAK_SECOND)
    WRITE(first, first_version, seen, BOTH | NEW);
#elif defined(INSTANT)
    if
    :: (from & OLD) == 0 -> goto stopped
    :: else
    fi;
    WRITE(first, first_version, seen, BOTH | NEW);
#else
    atomic {
        if
        :: (from & OLD) == 0 || first_version != seen -> goto stopped
        :: else -> first = BOTH | NEW; first_version++
        fi
    };
#endif
    seen = first_version;
    WRITE(first, first_version, seen, NEW);

stopped:
    skip
}

init
{
    byte o;

    atomic {
        run First();
        run Second();
        run Earlier();
        do
        :: o < OPERATORS -> run Operator(o); o++
        :: else -> break
        od
    }
}
