/* sched.c - threads, the baton, and the choice of the thread that goes on. See sched.h.
 *
 * State of a thread | may run if                                          | becomes
 * ------------------|-----------------------------------------------------|------------------------------
 * NOTHING           | its process runs                                    | any other, in its own calls
 * MUTEX, THREAD     | holds(address) is false                             | NOTHING
 * FILES             | likewise, after a change of any descriptor          | NOTHING
 * COND, FUTEX       | sched_wake() chose it, or its time has come         | NOTHING
 * TIME              | its time has come                                   | NOTHING
 * OVER              | never                                               | freed by the join
 *
 * A thread of a stopped process runs only while it holds a mutex that all processes share. A thread of a killed process
 * never runs. It leaves no mutex locked that another process needs: it is killed when none of its threads has locked one
 * of those that all processes share. If processes share more than that, it is killed at the first instant at which each
 * of its threads waits for something else than a mutex. */
#include "real.h"
#include "sched_internal.h"

#include <errno.h>
#include <execinfo.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>

/* A thread with the highest priority that waits in a busy loop for another one: real schedulers are fair in the end. */
#define ALONE_MAX 3000
#define EXPIRED_MAX 500

struct scheduler sched;
_Thread_local struct thread *sched_self;

bool sched_on(void)
{
    return sched_self != NULL;
}

/* ---- the baton ---- */

static void pass_baton(struct thread *to)
{
    atomic_store(&to->baton, 1);
    real()->syscall(SYS_futex, &to->baton, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static void wait_for_baton(struct thread *self)
{
    while (atomic_load(&self->baton) == 0)
        real()->syscall(SYS_futex, &self->baton, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
    atomic_store(&self->baton, 0);
}

/* ---- which threads can run ---- */

static bool is_woken(struct thread *thread)
{
    if (thread->wait == WAIT_NOTHING)
        return true;
    if (thread->wait == WAIT_OVER)
        return false;
    if (thread->woken || thread->due_ns <= sched.now_ns)
        return true;
    if (!thread->holds)
        return false;
    if (thread->wait == WAIT_FILES) {
        if (thread->files_seen == sched.files_epoch)
            return false;
        thread->files_seen = sched.files_epoch;
    }
    return thread->woken = !thread->holds(thread->address);
}

static bool may_run(const struct thread *thread)
{
    const struct process *process = &sched.processes[thread->process];
    return !process->killed &&
           (process->stopped_until_ns <= sched.now_ns || thread->shared_held > 0);
}

static bool waits_idly(const struct thread *thread)
{
    return thread->wait != WAIT_NOTHING && thread->wait != WAIT_MUTEX;
}

static bool may_be_killed(const struct thread *thread)
{
    return sched.settings.kills_anywhere ? thread->shared_held == 0 : waits_idly(thread);
}

static void kill_if_possible(int number)
{
    struct process *process = &sched.processes[number];
    for (unsigned i = 0; i < sched.count; i++)
        if (sched.threads[i]->process == number && !may_be_killed(sched.threads[i]))
            return;
    process->killing = false;
    process->killed = true;
    sched.killing = false;
    for (int i = 0; i < SCHED_PROCESSES; i++)
        sched.killing |= sched.processes[i].killing;
    if (sched.settings.killed)
        sched.settings.killed(number, sched.now_ns);
}

static unsigned find_runnable(struct thread **runnable)
{
    unsigned count = 0;
    if (sched.killing)
        for (int i = 0; i < SCHED_PROCESSES; i++)
            if (sched.processes[i].killing)
                kill_if_possible(i);
    for (unsigned i = 0; i < sched.count; i++)
        if (may_run(sched.threads[i]) && is_woken(sched.threads[i]))
            runnable[count++] = sched.threads[i];
    return count;
}

int64_t sched_due_of(const struct thread *thread)
{
    const struct process *process = &sched.processes[thread->process];
    if (process->killed || thread->wait == WAIT_OVER)
        return SCHED_NEVER;
    int64_t due_ns = thread->wait == WAIT_NOTHING || thread->woken ? 0 : thread->due_ns;
    return due_ns < process->stopped_until_ns ? process->stopped_until_ns : due_ns;
}

/* ---- the choice ---- */

static struct thread *highest(struct thread **runnable, unsigned count)
{
    struct thread *best = runnable[0];
    for (unsigned i = 1; i < count; i++)
        if (runnable[i]->priority > best->priority)
            best = runnable[i];
    return best;
}

static struct thread *choose(void)
{
    struct thread *runnable[THREADS_MAX];
    for (;;) {
        unsigned count = find_runnable(runnable);
        if (count > 0 && sched.settings.switch_one_in == 0)
            return highest(runnable, count);
        if (count > 0)
            return runnable[count > 1 ? sched_draw(count) : 0];
        if (!sched_jump())
            sched_fail("deadlock: no thread can run, and none waits for a time");
    }
}

static void go_on_with(struct thread *next)
{
    struct thread *self = sched_self;
    if (next == self)
        return;
    sched.switches++;
    sched.alone = 0;
    sched_mix(next->number);
    pass_baton(next);
    wait_for_baton(self);
}

static bool wants_switch(void)
{
    const struct sched_settings *settings = &sched.settings;
    bool long_enough = ++sched.alone > ALONE_MAX;
    if (settings->switch_one_in > 0)
        return sched.killing || sched.stopping || sched_draw(settings->switch_one_in) == 0;
    if (long_enough || (settings->change_one_in > 0 && sched_draw(settings->change_one_in) == 0)) {
        sched_self->priority = --sched.lowest;
        sched.alone = 0;
    }
    return true;
}

static void check_limits(void)
{
    if (sched.steps > sched.settings.step_limit)
        sched_fail("it does not end: %llu points", (unsigned long long)sched.steps);
    if (sched.now_ns - SCHED_START_NS > sched.settings.time_limit_ns)
        sched_fail("it does not end: %lld s", (long long)(sched.now_ns / 1000000000));
}

/* The thread is preempted for long, as on a machine that is far too busy. */
static bool stall(void)
{
    if (!sched.stalls || sched.settings.stall_one_in == 0 || sched_self->shared_held > 0 ||
        sched_draw(sched.settings.stall_one_in) != 0)
        return false;
    int64_t for_ns = (int64_t)sched_draw((uint32_t)(sched.settings.stall_ns / 1000)) * 1000;
    sched_trace("stands still for %lld us", (long long)for_ns / 1000);
    sched_self->due_ns = sched.now_ns + for_ns;
    sched_self->wait = WAIT_MUTEX; /* as if it waited for a mutex: it may not be killed here */
    sched_self->address = NULL;
    sched_self->holds = NULL;
    return true;
}

static const char *const point_words[] = {
#define POINT_WORD(name, word) word,
    SCHED_POINT_MAP(POINT_WORD)
#undef POINT_WORD
};

void sched_point(enum sched_point point)
{
    sched.steps++;
    sched_mix((uint64_t)sched_self->number << 8 | point);
    if (sched.settings.trace_points && sched_tracing)
        sched_trace(". %s", point_words[point]);
    check_limits();
    sched_advance(
        sched.settings.jitter_ns > 0 ? (int64_t)sched_draw((uint32_t)sched.settings.jitter_ns) : 0);
    bool stalled = stall();
    if (!stalled && !wants_switch())
        return;
    go_on_with(choose());
    sched_self->wait = WAIT_NOTHING;
}

/* ---- waiting ---- */

bool sched_wait(enum sched_wait wait, const void *address, bool (*holds)(const void *address),
                int64_t due_ns)
{
    struct thread *self = sched_self;
    sched.steps++;
    sched_mix((uint64_t)self->number << 8 | 128 | wait);
    check_limits();
    self->expired = due_ns <= sched.now_ns ? self->expired + 1 : 0;
    if (self->expired > EXPIRED_MAX)
        sched_fail("busy loop: a thread waits for instants that have passed, again and again");
    self->wait = wait;
    self->address = address;
    self->holds = holds;
    self->due_ns = due_ns;
    self->woken = false;
    self->files_seen = sched.files_epoch - 1;
    go_on_with(choose());
    bool woken = self->woken;
    self->wait = WAIT_NOTHING;
    self->woken = false;
    return woken;
}

int sched_wake(enum sched_wait wait, const void *address, int count)
{
    int woken = 0;
    while (woken < count) {
        struct thread *waiting[THREADS_MAX];
        unsigned n = 0;
        for (unsigned i = 0; i < sched.count; i++) {
            struct thread *thread = sched.threads[i];
            if (thread->wait == wait && thread->address == address && !thread->woken)
                waiting[n++] = thread;
        }
        if (n == 0)
            break;
        waiting[n > 1 ? sched_draw(n) : 0]->woken = true;
        woken++;
    }
    return woken;
}

int sched_waiting(const void *address)
{
    int count = 0;
    for (unsigned i = 0; i < sched.count; i++)
        count += sched.threads[i]->wait != WAIT_NOTHING && sched.threads[i]->wait != WAIT_OVER &&
                 sched.threads[i]->address == address && !sched.threads[i]->woken;
    return count;
}

void sched_files_changed(void)
{
    sched.files_epoch++;
}

bool sched_spurious(void)
{
    return sched.settings.spurious_one_in > 0 && sched_draw(sched.settings.spurious_one_in) == 0;
}

/* ---- threads ---- */

static struct thread *add_thread(int process)
{
    struct thread *thread = calloc(1, sizeof *thread);
    if (!thread || sched.count == THREADS_MAX)
        sched_fail("too many threads");
    thread->number = sched.created++;
    thread->process = process;
    thread->priority = (1u << 30) + sched_draw(1u << 30);
    thread->due_ns = SCHED_NEVER;
    sched.threads[sched.count++] = thread;
    return thread;
}

static void remove_thread(struct thread *thread)
{
    unsigned i = 0;
    while (sched.threads[i] != thread)
        i++;
    sched.count--;
    memmove(&sched.threads[i], &sched.threads[i + 1], (sched.count - i) * sizeof(sched.threads[0]));
    free(thread);
}

void sched_begin(const struct sched_settings *settings)
{
    memset(&sched, 0, sizeof sched);
    sched.settings = *settings;
    sched.stalls = true;
    sched.now_ns = SCHED_START_NS;
    sched.next_timer_ns = SCHED_NEVER;
    sched.lowest = 1u << 30;
    sched.random = settings->seed * UINT64_C(0x9E3779B97F4A7C15) + 1;
    sched.bytes = sched.random ^ UINT64_C(0xD1B54A32D192ED03);
    sched.hash = UINT64_C(1469598103934665603);
    sched.on = true;
    struct thread *self = add_thread(0);
    self->real = pthread_self();
    self->tid = (pid_t)real()->syscall(SYS_gettid);
    sched_self = self;
    sched_name_thread("main");
    backtrace(&(void *){NULL}, 1); /* the first call loads a library */
}

void sched_end(void)
{
    sched_self = NULL;
}

static void *thread_main(void *argument)
{
    struct thread *self = argument;
    self->tid = (pid_t)real()->syscall(SYS_gettid);
    wait_for_baton(self);
    sched_self = self;
    self->result = self->run(self->argument);
    self->wait = WAIT_OVER;
    self->over = true;
    struct thread *next = choose();
    void *result = self->result;
    if (self->detached)
        remove_thread(self);
    sched_self = NULL; /* what the C library does at the end of a thread is not scheduled */
    pass_baton(next);
    return result;
}

int sched_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                 void *argument, int process)
{
    int state = PTHREAD_CREATE_JOINABLE;
    if (attributes)
        pthread_attr_getdetachstate(attributes, &state);
    struct thread *made = add_thread(process < 0 ? sched_self->process : process);
    made->run = run;
    made->argument = argument;
    made->detached = state == PTHREAD_CREATE_DETACHED;
    int problem = real()->pthread_create(&made->real, attributes, thread_main, made);
    if (problem != 0) {
        remove_thread(made);
        return problem;
    }
    *thread = made->real;
    sched_point(POINT_CREATE);
    return 0;
}

static struct thread *find_thread(pthread_t real_thread)
{
    for (unsigned i = 0; i < sched.count; i++)
        if (!sched.threads[i]->detached && pthread_equal(sched.threads[i]->real, real_thread))
            return sched.threads[i];
    sched_fail("a thread is joined or detached that does not exist");
}

static bool is_alive(const void *address)
{
    return !((const struct thread *)address)->over;
}

int sched_join(pthread_t real_thread, void **result)
{
    struct thread *thread = find_thread(real_thread);
    if (thread == sched_self)
        return EDEADLK;
    if (thread->joined)
        sched_fail("a thread is joined twice");
    thread->joined = true;
    sched_point(POINT_YIELD);
    while (!thread->over)
        sched_wait(WAIT_THREAD, thread, is_alive, SCHED_NEVER);
    remove_thread(thread);
    return real()->pthread_join(real_thread, result);
}

int sched_detach(pthread_t real_thread)
{
    struct thread *thread = find_thread(real_thread);
    if (thread->over)
        remove_thread(thread);
    else
        thread->detached = true;
    return real()->pthread_detach(real_thread);
}

unsigned sched_thread(void)
{
    return sched_self ? sched_self->number : 0;
}

const char *sched_thread_name(void)
{
    return sched_self ? sched_self->name : "";
}

void sched_name_thread(const char *name)
{
    strncpy(sched_self->name, name, sizeof(sched_self->name) - 1);
}

void sched_hold_shared(int change)
{
    sched_self->shared_held += change;
}

/* ---- processes ---- */

int sched_process(void)
{
    return sched_self ? sched_self->process : 0;
}

void sched_set_process(int process)
{
    sched_self->process = process;
}

void sched_stop(int process, int64_t until_ns)
{
    sched.processes[process].stopped_until_ns = until_ns;
    sched.stopping = true;
    sched_point(POINT_YIELD);
    sched.stopping = false;
}

void sched_kill(int process)
{
    if (sched.processes[process]
            .killed) /* another process may have made a thread for it since, which never runs */
        return;
    sched.processes[process].killing = sched.killing = true;
    sched_point(POINT_YIELD);
}

bool sched_is_killed(int process)
{
    return sched.processes[process].killed;
}

bool sched_is_dying(int process)
{
    return sched.processes[process].killing;
}

void sched_end_stalls(void)
{
    sched.stalls = false;
}
