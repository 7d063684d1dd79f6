/* trace.c - the trace's hash and text, and the report of a run that fails. See sched.h. */
#include "real.h"
#include "sched_internal.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>

bool sched_tracing;

void sched_mix(uint64_t value)
{
    uint64_t hash = (sched.hash ^ value) * UINT64_C(0xFF51AFD7ED558CCD);
    sched.hash = hash ^ (hash >> 32);
}

uint64_t sched_hash(void)
{
    return sched.hash;
}

uint64_t sched_steps(void)
{
    return sched.steps;
}

uint64_t sched_switches(void)
{
    return sched.switches;
}

void sched_trace(const char *format, ...)
{
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    for (const char *c = text; *c; c++)
        sched_mix((uint64_t)*c);
    if (!sched_tracing)
        return;
    int64_t at_ns = sched.now_ns - SCHED_START_NS;
    printf("%6lld.%06lld ms  p%d %-12s %s\n", (long long)(at_ns / 1000000),
           (long long)(at_ns % 1000000), sched_process(), sched_thread_name(), text);
}

/* ---- a failure ---- */

enum { FRAMES = 48 };
static void *frames[FRAMES];
static int frame_count;
static _Atomic bool place_known;

/* Runs on each thread: only the thread itself knows where it is. It does not go on afterwards. */
static void find_place(int signal)
{
    (void)signal;
    sched_self = NULL;
    frame_count = backtrace(frames, FRAMES);
    atomic_store(&place_known, true);
}

/* One line for each frame of the program and its libraries: "function at file:line". */
static void print_frames(void)
{
    for (int i = 2; i < frame_count; i++) {
        Dl_info info;
        char command[600], line[256];
        if (!dladdr(frames[i], &info) || strstr(info.dli_fname, "libc."))
            continue;
        snprintf(command, sizeof command, "addr2line -s -f -p -e '%s' 0x%lx 2>/dev/null",
                 info.dli_fname,
                 (unsigned long)((uintptr_t)frames[i] - (uintptr_t)info.dli_fbase - 1));
        FILE *output = popen(command, "r");
        if (output && fgets(line, sizeof line, output) && strncmp(line, "sched_", 6) != 0)
            printf("    %s", line);
        if (output)
            pclose(output);
    }
}

static void print_thread(const struct thread *thread)
{
    static const char *const words[] = {
#define WAIT_WORD(name, word) word,
        SCHED_WAIT_MAP(WAIT_WORD)
#undef WAIT_WORD
    };
    const struct process *process = &sched.processes[thread->process];
    printf("thread %u (%s), process %d%s: %s", thread->number, thread->name, thread->process,
           process->killed                            ? ", killed"
           : process->stopped_until_ns > sched.now_ns ? ", stopped"
                                                      : "",
           words[thread->wait]);
    if (thread->due_ns != SCHED_NEVER && thread->wait != WAIT_NOTHING)
        printf(", until %.3f ms", (double)(thread->due_ns - SCHED_START_NS) / 1e6);
    printf("\n");
    fflush(stdout);
    if (thread->wait == WAIT_OVER)
        return;
    atomic_store(&place_known, false);
    real()->syscall(SYS_tgkill, real()->syscall(SYS_getpid), thread->tid, SIGUSR2);
    for (int i = 0; i < 5000 && !atomic_load(&place_known); i++)
        real()->usleep(200);
    if (atomic_load(&place_known))
        print_frames();
}

void sched_fail(const char *format, ...)
{
    va_list arguments;
    printf("FINDING: at %.6f ms, thread %u (%s): ", (double)(sched.now_ns - SCHED_START_NS) / 1e6,
           sched_thread(), sched_thread_name());
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    printf("\n");
    sched_self = NULL; /* what follows is not scheduled */
    if (sched_tracing) {
        struct sigaction action = {.sa_handler = find_place};
        sigaction(SIGUSR2, &action, NULL);
        for (unsigned i = 0; i < sched.count; i++)
            print_thread(sched.threads[i]);
    }
    fflush(stdout);
    if (sched.settings.failed)
        sched.settings.failed();
    _exit(1);
}
