/* state.c - what a look at a lease costs: mortise_state() beside the clock that it reads.
 *
 * A caller should look before each irreversible step, so a look must be too cheap to leave out: at most twice a bare
 * clock_gettime(CLOCK_BOOTTIME), and no system call. The latter is proved: a thread with a seccomp filter, which
 * makes the kernel end it at any system call but exit, looks a hundred thousand times and survives. Another thread,
 * which makes a system call, shows that the proof can fail. (Strict seccomp is not used, because it also forbids
 * reading the processor's clock.) */
#include "common.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define LOOKS 100000

/* Sanitizers' runtimes make system calls of their own, and wait for threads in their own ways. */
#if defined(__has_feature)
#define BUILT_WITH(sanitizer) __has_feature(sanitizer)
#else
#define BUILT_WITH(sanitizer) 0
#endif
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__) ||                               \
    BUILT_WITH(thread_sanitizer) || BUILT_WITH(address_sanitizer)
#define SANITIZED true
#else
#define SANITIZED false
#endif

static void look_at_clock(void *context, size_t n)
{
    struct timespec now;
    (void)context;
    while (n-- > 0) {
        clock_gettime(CLOCK_BOOTTIME, &now);
        __asm__ volatile("" : : "r"(&now) : "memory"); /* as if it were used */
    }
}

static void look_at_state(void *lease, size_t n)
{
    while (n-- > 0)
        if (mortise_state(lease) != MORTISE_STATE_HELD)
            bench_die("the lease was lost while it was looked at");
}

static void look_at_remaining(void *lease, size_t n)
{
    while (n-- > 0)
        if (mortise_remaining_ms(lease) <= 0)
            bench_die("the lease was lost while it was looked at");
}

static void look_at_token(void *lease, size_t n)
{
    while (n-- > 0)
        if (mortise_token(lease) == 0)
            bench_die("the lease was lost while it was looked at");
}

/* ---- no system call ---- */

struct confined {
    mortise_lease *lease; /* NULL: makes a system call instead, and is ended */
    _Atomic bool entered, survived;
};

/* From here on, the only system call of this thread may be exit. */
static bool confine(void)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_THREAD)};
    struct sock_fprog program = {sizeof(filter) / sizeof(filter[0]), filter};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

static void look_often(mortise_lease *lease)
{
    for (int i = 0; i < LOOKS; i++)
        if (mortise_state(lease) == MORTISE_STATE_LOST || mortise_remaining_ms(lease) <= 0 ||
            mortise_token(lease) == 0)
            return;
}

static void *confined_main(void *argument)
{
    struct confined *confined = argument;
    if (!confine())
        return NULL;
    atomic_store(&confined->entered, true);
    if (confined->lease != NULL)
        look_often(confined->lease);
    else
        syscall(SYS_getppid);
    atomic_store(&confined->survived, true);
    for (;;)
        syscall(SYS_exit,
                0); /* not exit_group, which is forbidden here, and not by the C library */
}

/* Whether a thread that may not make system calls survives. */
static bool survives(mortise_lease *lease, bool *possible)
{
    struct confined confined = {.lease = lease};
    pthread_join(bench_thread(confined_main, &confined), NULL);
    *possible = atomic_load(&confined.entered);
    return atomic_load(&confined.survived);
}

static void prove_no_system_call(mortise_lease *lease)
{
    bool possible;
    if (SANITIZED)
        return;
    bool caller_ended = !survives(NULL, &possible);
    if (!possible || !caller_ended)
        bench_die("a seccomp filter cannot be had here, so nothing can be proved with it");
    bench_proof("state_no_system_call", "mortise_state, _remaining_ms, _token make no system call",
                survives(lease, &possible));
}

int main(int argc, char **argv)
{
    bench_begin(argc, argv, "state", "a look at a lease, beside the clock that it reads", 0.2);
    mortise_client *client = bench_open("sim:");
    mortise_lease *lease =
        bench_acquire(client, "looked at", MORTISE_OPTIONS(.wait_ms = 0, .ttl_ms = 600000));
    struct bench_series *clock =
        bench_new_series("clock_gettime", "clock_gettime(CLOCK_BOOTTIME)", "ns");
    struct bench_series *state = bench_new_series("mortise_state", "mortise_state", "ns");
    struct bench_series *remaining =
        bench_new_series("mortise_remaining_ms", "mortise_remaining_ms", "ns");
    struct bench_series *token = bench_new_series("mortise_token", "mortise_token", "ns");
    struct bench_case cases[] = {
        {.series = clock, .measure = bench_ns_per_turn, .loop = look_at_clock},
        {.series = state, .measure = bench_ns_per_turn, .loop = look_at_state, .context = lease},
        {.series = remaining,
         .measure = bench_ns_per_turn,
         .loop = look_at_remaining,
         .context = lease},
        {.series = token, .measure = bench_ns_per_turn, .loop = look_at_token, .context = lease}};
    bench_rounds(cases, sizeof(cases) / sizeof(cases[0]));
    bench_check("state_over_clock", "mortise_state / clock_gettime", state, clock, BENCH_AT_MOST,
                2.0);
    prove_no_system_call(lease);
    bench_release(lease);
    bench_close(client);
    return bench_end();
}
