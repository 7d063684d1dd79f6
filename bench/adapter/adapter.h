/* adapter.h - one thing that is measured, as a program: the library, a bare floor, or a rival.
 *
 * An adapter is started with an address, says "ready VERSION", and then does what it is told, a line at a time:
 *
 *   turns name=N own=0|1 threads=T hold_us=H from_ns=A to_ns=B patience_ms=P out=FILE
 *             T threads acquire and release again and again, each its own name (own=1) or all the same, from the
 *             instant A until B. Who waits then gives up after P more; one whose turn surely comes need not. Told: done
 *   many name=N from_ns=A to_ns=B     cycles, 64 in flight, one thread. Told: done count=… ns=…
 *   loop name=N from_ns=A to_ns=B     cycles of one caller that can only be counted, likewise
 *   pulse name=N period_us=P from_ns=A to_ns=B out=FILE
 *             a cycle is due every P, whether or not the one before has ended. Told: done
 *   hold name=N count=M ttl_ms=T      holds N/0 to N/M-1 from now on. Told when they are held: done
 *   wait name=N count=W               W clients wait for N from now on. Told when they have begun: done
 *   crowd name=N count=W              W callers of the one client wait for N, and give it back. Told when they have begun
 *   clients name=N count=M ttl_ms=T   M further clients, each holds N/i. Told when all hold
 *   touch name=N count=M              takes N/0 to N/M-1 and gives them back, so that the server knows them. Told: done
 *   free                              gives the last that it holds back. Told: done ns=(the instant before)
 *   first                             waits for the first grant of a crowd. Told: done ns=(its instant)
 *   state name=N                      what it costs to ask a held lease for its state. Told: done count=… ns=…
 *   quit                              gives back what it holds, and ends
 *
 * "cannot" says that this adapter has no such thing; anything else that goes wrong ends it, with a line on the
 * standard error stream. Instants are of CLOCK_MONOTONIC, which all processes of a machine share. In FILE is a
 * struct instants for each turn, and nothing else: what is computed from them is computed in one place for all that
 * is measured (digest.c), the same way. Rivals in other languages speak the same: see bench/rivals. */
#ifndef MORTISE_BENCH_ADAPTER_H
#define MORTISE_BENCH_ADAPTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Of one turn: each is read when it is so, granted_ns after the lock was had and releasing_ns before it is given back,
 * also where nothing is done in between. granted_ns 0: it was refused, or given up. A whole turn that cannot be told
 * apart (`cycle`) has its end three times. */
struct instants {
    int64_t asked_ns, granted_ns, releasing_ns, done_ns;
};

struct adapter {
    const char *name;
    /* The server, or what a thread shares with others; the version, for people. */
    const char *(*open)(const char *where);
    /* What one thread needs; threads are numbered from 0. NULL: nothing. */
    void *(*worker)(unsigned number);
    /* The two halves of a turn, on a name that all may want. take: false if it was refused; *held is give's. NULL: it
     * has none for that. */
    bool (*take)(void *worker, const char *name, void **held);
    void (*give)(void *worker, const char *name, void *held);
    /* A whole turn on a name of the thread's own, for one that has something else for it. */
    void (*cycle)(void *worker, const char *name);
    /* So many cycles, 64 in flight. */
    void (*many)(const char *name, size_t count);
    /* So many, one after the other: where a single one cannot be told apart. */
    void (*loop)(const char *name, size_t count);
    void (*hold)(const char *name, unsigned count, int64_t ttl_ms);
    void (*wait)(const char *name, unsigned count);
    /* Many of something. The last two return an instant. */
    void (*crowd)(const char *name, unsigned count);
    void (*clients)(const char *name, unsigned count, int64_t ttl_ms);
    void (*touch)(const char *name, unsigned count);
    int64_t (*free)(void);
    int64_t (*first)(void);
    /* So many looks at a held lease. */
    void (*state)(const char *name, size_t count);
    void (*close)(void);
};

/* The whole program. */
int adapter_main(int argc, char **argv, const struct adapter *adapter);

#endif
