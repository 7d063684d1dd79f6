/* sched.h - a scheduler under which a program has one interleaving for each seed.
 *
 * Threads are real threads, but exactly one of them runs at a time: the others sleep on a futex of their own until they
 * get the baton. A thread enters the scheduler at each point where threads could see each other's work (before a lock,
 * after an unlock, at a wake-up, at a system call). There the numbers of the seed decide which thread goes on. The clock is
 * virtual: it moves a little at each point, and when no thread can run it jumps to the next instant that a thread or
 * a timer waits for. If there is none, the program hangs, and the run fails.
 *
 * Knows threads, addresses and time, but no mutex, no descriptor and no lock of the application: calls_sync.c,
 * calls_file.c and calls_time.c translate the calls of a program for it. */
#ifndef MORTISE_TESTS_REPLAY_SCHED_H
#define MORTISE_TESTS_REPLAY_SCHED_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define SCHED_NEVER INT64_MAX
#define SCHED_START_NS INT64_C(1000000000000) /* the clock at the beginning */
#define SCHED_PROCESSES 16

/* Why a thread enters the scheduler. */
#define SCHED_POINT_MAP(X)                                                                         \
    X(LOCK, "lock")                                                                                \
    X(UNLOCK, "unlock")                                                                            \
    X(WAKE, "wake")                                                                                \
    X(CREATE, "create")                                                                            \
    X(FILE, "file")                                                                                \
    X(CLOCK, "clock")                                                                              \
    X(ATOMIC, "atomic")                                                                            \
    X(YIELD, "yield")
enum sched_point {
#define SCHED_POINT_ENUM(name, word) POINT_##name,
    SCHED_POINT_MAP(SCHED_POINT_ENUM)
#undef SCHED_POINT_ENUM
};

/* What a thread waits for. */
#define SCHED_WAIT_MAP(X)                                                                          \
    X(NOTHING, "runs")                                                                             \
    X(MUTEX, "mutex")    /* until holds() says false */                                            \
    X(COND, "condition") /* until sched_wake() of its address */                                   \
    X(FUTEX, "futex")    /* likewise */                                                            \
    X(THREAD, "join")    /* until holds() says false */                                            \
    X(FILES, "files")    /* likewise; asked again only after sched_files_changed() */              \
    X(TIME, "time")                                                                                \
    X(OVER, "has ended")
enum sched_wait {
#define SCHED_WAIT_ENUM(name, word) WAIT_##name,
    SCHED_WAIT_MAP(SCHED_WAIT_ENUM)
#undef SCHED_WAIT_ENUM
};

struct sched_settings {
    uint64_t seed;
    /* One point in so many: another thread goes on. 0: threads have priorities, and the one with the highest goes on; then
     * one point in `change_one_in` makes the running thread the last. */
    uint32_t switch_one_in, change_one_in;
    int64_t jitter_ns;        /* the clock moves by less than this at each point */
    uint32_t stall_one_in;    /* one point in so many, the thread stands still; 0: never */
    int64_t stall_ns;         /* for less than this */
    uint32_t spurious_one_in; /* waits that end without a reason; 0: never */
    bool kills_anywhere;      /* see sched_kill() */
    uint64_t step_limit;      /* points until the run fails */
    int64_t time_limit_ns;    /* likewise, of virtual time */
    bool trace_points;        /* print every point */
    void (*failed)(void);     /* before the run ends by sched_fail(); not scheduled */
    void (*killed)(int process,
                   int64_t at_ns); /* a process that sched_kill() named has ended now */
};

/* The calling thread becomes thread 0, of process 0. */
void sched_begin(const struct sched_settings *settings);
/* The calling thread, which is thread 0, goes on alone; no other thread ever runs again. */
void sched_end(void);
/* The scheduler is in charge of this thread. */
bool sched_on(void);
uint64_t sched_steps(void);
uint64_t sched_switches(void);

/* Another thread may go on here. */
void sched_point(enum sched_point point);
/* The running thread waits for this address until sched_wake(), or, if `holds` is given, until holds(address) is false. False: it
 * is due_ns. */
bool sched_wait(enum sched_wait wait, const void *address, bool (*holds)(const void *address),
                int64_t due_ns);
/* Ends the wait of up to `count` threads, chosen by the seed. Returns how many. */
int sched_wake(enum sched_wait wait, const void *address, int count);
/* How many threads wait for the address. */
int sched_waiting(const void *address);
void sched_files_changed(void);
/* Wait once in a while without being woken: whether this wait is to end at once. */
bool sched_spurious(void);

/* ---- threads ---- */

/* process -1: that of the calling thread. Returns errno, as pthread_create(). */
int sched_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                 void *argument, int process);
int sched_join(pthread_t thread, void **result);
int sched_detach(pthread_t thread);
unsigned sched_thread(void); /* the number of the running thread, in the order of creation */
const char *sched_thread_name(void);
void sched_name_thread(const char *name);
/* The thread holds one more (or less) mutex that all processes share: it cannot be stopped meanwhile. */
void sched_hold_shared(int change);

/* ---- processes: a number that threads have in common ---- */

int sched_process(void);
void sched_set_process(int process); /* of the calling thread */
/* None of its threads runs until then, except to leave mutexes that all processes share. */
void sched_stop(int process, int64_t until_ns);
/* None of its threads runs ever again, from the next instant on at which none of them has locked a mutex that all
 * processes share; if not kills_anywhere, from the next one at which all of them wait for something else than a mutex. */
void sched_kill(int process);
bool sched_is_killed(int process);
/* sched_kill() was called, and the instant has not come yet. */
bool sched_is_dying(int process);
/* No thread stands still by chance any more. */
void sched_end_stalls(void);

/* ---- time and chance ---- */

int64_t sched_now(void);
/* A timer calls fire(argument) when it is due. NEVER: not set. */
struct sched_timer {
    struct sched_timer *next;
    int64_t due_ns;
    void (*fire)(struct sched_timer *timer);
};
void sched_add_timer(struct sched_timer *timer);
void sched_remove_timer(struct sched_timer *timer);
/* Reads and moves the clock; no other thread goes on. */
int64_t sched_read_clock(void);
/* From 0 to below - 1; decisions of the scheduler. */
uint32_t sched_draw(uint32_t below);
/* Bytes for the program. */
void sched_random(void *bytes, size_t size);

/* ---- what the run prints ---- */

/* Adds to the trace's hash. */
void sched_mix(uint64_t value);
uint64_t sched_hash(void);
/* An event of the trace: hashed, and printed if the trace is wanted. */
void sched_trace(const char *format, ...) __attribute__((format(printf, 1, 2)));
extern bool sched_tracing;
/* The run has failed: prints why, and with the trace what all threads do. Ends the process with code 1. */
void sched_fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

#endif
