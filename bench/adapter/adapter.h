/* adapter.h - one thing that is measured, as a program: the library, a bare floor, or a rival.
 *
 * An adapter is started with an address, says "ready VERSION", and then does what it is told, a line at a time:
 *
 *   turns name=N own=0|1 threads=T hold_us=H from_ns=A to_ns=B patience_ms=P out=FILE
 *             T threads acquire and release again and again, each its own name (own=1) or all the same, from the instant
 *             A until B. A thread that waits then gives up after P more; it need not if its turn surely comes. Told: done
 *   many name=N from_ns=A to_ns=B     cycles, 64 in flight, one thread. Told: done count=… ns=…
 *   loop name=N from_ns=A to_ns=B     cycles of one caller that can only be counted, likewise
 *   pulse name=N period_us=P from_ns=A to_ns=B out=FILE
 *             a cycle is due every P, whether or not the one before has ended. Told: done
 *   hold name=N count=M ttl_ms=T      holds N/0 to N/M-1 from now on. Told when they are held: done
 *   wait name=N count=W               W clients wait for N from now on. Told when they have begun: done
 *   crowd name=N count=W              W callers of the one client wait for N, and release it. Told when they have begun
 *   clients name=N count=M ttl_ms=T   M further clients, each holds N/i. Told when all hold
 *   touch name=N count=M              acquires N/0 to N/M-1 and releases them, so that the server knows them. Told: done
 *   free                              releases the last lock that it holds. Told: done ns=(the instant before)
 *   first                             waits for the first grant of a crowd. Told: done ns=(its instant)
 *   state name=N                      what it costs to ask a held lease for its state. Told: done count=… ns=…
 *   quit                              releases what it holds, and ends
 *
 * "cannot" says that this adapter has no such thing; anything else that goes wrong ends it, with a line on the
 * standard error stream. Instants are of CLOCK_MONOTONIC, which all processes of a machine share. FILE has a struct
 * instants for each turn, and nothing else: digest.c computes all figures from them, for everything that is measured, in
 * the same way. Rivals in other languages use the same lines: see bench/rivals. */
#ifndef MORTISE_BENCH_ADAPTER_H
#define MORTISE_BENCH_ADAPTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The instants of one turn. Each is read at its time: granted_ns after the lock was acquired, and releasing_ns before
 * it is released, even if nothing is done in between. granted_ns 0: the turn was refused, or given up. A whole turn
 * that cannot be split (`cycle`) has its end three times. */
struct instants {
    int64_t asked_ns, granted_ns, releasing_ns, done_ns;
};

struct adapter {
    const char *name;
    /* Opens the server, or whatever threads share. Returns the version, for people. */
    const char *(*open)(const char *where);
    /* Makes what one thread needs; threads are numbered from 0. NULL: nothing. */
    void *(*worker)(unsigned number);
    /* The two halves of a turn, on a name that all may want. take: false if it was refused; *held is for give. NULL:
     * the adapter cannot do that. */
    bool (*take)(void *worker, const char *name, void **held);
    void (*give)(void *worker, const char *name, void *held);
    /* A whole turn on a name of the thread's own, if the adapter does that in another way. */
    void (*cycle)(void *worker, const char *name);
    /* Does so many cycles, 64 in flight. */
    void (*many)(const char *name, size_t count);
    /* Does so many cycles, one after another, if single ones cannot be timed. */
    void (*loop)(const char *name, size_t count);
    void (*hold)(const char *name, unsigned count, int64_t ttl_ms);
    void (*wait)(const char *name, unsigned count);
    /* For workloads with many callers, clients or names. The last two return an instant. */
    void (*crowd)(const char *name, unsigned count);
    void (*clients)(const char *name, unsigned count, int64_t ttl_ms);
    void (*touch)(const char *name, unsigned count);
    int64_t (*free)(void);
    int64_t (*first)(void);
    /* Asks so many times for the state of a held lease. */
    void (*state)(const char *name, size_t count);
    void (*close)(void);
};

/* The whole program. */
int adapter_main(int argc, char **argv, const struct adapter *adapter);

#endif
