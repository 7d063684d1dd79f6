/* sched_internal.h - what the files of the scheduler share: threads and the baton (sched.c), the clock, timers and chance
 * (time.c), the trace and the report of a failure (trace.c). */
#ifndef MORTISE_TESTS_REPLAY_SCHED_INTERNAL_H
#define MORTISE_TESTS_REPLAY_SCHED_INTERNAL_H

#include "sched.h"

#include <stdatomic.h>

#define THREADS_MAX 256 /* that live at once */

struct thread {
    pthread_t real;
    pid_t tid;
    unsigned number;
    int process;
    char name[24];
    _Atomic uint32_t baton; /* a futex: 1: this thread may run */
    uint32_t priority;      /* the highest goes on */
    enum sched_wait wait;
    const void *address;
    bool (*holds)(const void *address);
    bool woken;
    uint64_t files_seen; /* no change of descriptors since ended the wait */
    int64_t due_ns;
    unsigned expired; /* waits in a row whose time had come before */
    int shared_held;  /* mutexes that all processes share */
    bool over, joined, detached;
    void *(*run)(void *argument);
    void *argument, *result;
};

struct process {
    bool killing, killed;
    int64_t stopped_until_ns;
};

struct scheduler {
    bool on;
    struct sched_settings settings;
    struct thread *threads[THREADS_MAX]; /* those that have not been joined */
    unsigned count, created;
    struct process processes[SCHED_PROCESSES];
    bool stopping, killing; /* a process is stopped, or is to be killed */
    bool stalls;
    uint64_t steps, switches, hash, files_epoch;
    uint32_t alone;  /* points since another thread ran */
    uint32_t lowest; /* priority that was given last at a change point */
    int64_t now_ns;
    int64_t next_timer_ns;
    struct sched_timer *timers;
    uint64_t random, bytes; /* states of the two generators */
};
extern struct scheduler sched;
extern _Thread_local struct thread *sched_self;

/* The clock jumps to the next instant that somebody waits for. False: nobody waits for one. */
bool sched_jump(void);
void sched_advance(int64_t by_ns);
void sched_fire_timers(void);
/* When the thread may go on though nobody wakes it. */
int64_t sched_due_of(const struct thread *thread);

#endif
