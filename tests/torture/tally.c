/* tally.c - how often each call of a torture process ended with each status, and which endings it complains of. */
#include "tally.h"

#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

enum { STATUSES = 16 };

static const char *const call_words[CALLS] = {"acquire", "release", "nowait",   "close",
                                              "write",   "read",    "downgrade"};
static atomic_ulong counts[CALLS][STATUSES];
static atomic_bool wrong, execs;

void count(enum call call, mortise_status status)
{
    unsigned number = (unsigned)-(int)status;
    atomic_fetch_add(&counts[call][number < STATUSES ? number : STATUSES - 1], 1);
}

static unsigned bits(mortise_status status)
{
    return 1u << (unsigned)-(int)status;
}

static bool may_be(enum call call, mortise_status status)
{
    unsigned away = bits(MORTISE_UNREACHABLE) | bits(MORTISE_INDETERMINATE);
    const unsigned may[CALLS] = {
        [ACQUIRE] = away | bits(MORTISE_OK) | bits(MORTISE_BUSY) | bits(MORTISE_TIMEDOUT) |
                    bits(MORTISE_CANCELED) | bits(MORTISE_BACKEND) |
                    (atomic_load(&execs) ? bits(MORTISE_NOMEM) : 0),
        [RELEASE] = away | bits(MORTISE_OK) | bits(MORTISE_LOST) | bits(MORTISE_BACKEND),
        [NOWAIT] = bits(MORTISE_OK) | bits(MORTISE_LOST),
        [CLOSE] = bits(MORTISE_OK) | bits(MORTISE_UNREACHABLE),
        [DOWNGRADE] = away | bits(MORTISE_OK) | bits(MORTISE_LOST) | bits(MORTISE_BACKEND),
    };
    return may[call] & bits(status);
}

void tally_before_exec(void)
{
    atomic_store(&execs, true);
}

void complain(const char *what, const char *name, const char *why)
{
    atomic_store(&wrong, true);
    fprintf(stderr, "torture %d: %s of %s: %s\n", (int)getpid(), what, name, why);
}

static mortise_status judged(enum call call, bool right, const char *name, mortise_status status,
                             const mortise_error *error)
{
    count(call, status);
    if (!right || !may_be(call, status))
        complain(call_words[call], name, status == MORTISE_OK ? "done" : error->message);
    return status;
}

mortise_status seen(enum call call, const char *name, mortise_status status,
                    const mortise_error *error)
{
    return judged(call, true, name, status, error);
}

mortise_status seen_acquire(const char *name, int64_t wait_ms, mortise_status status,
                            const mortise_error *error)
{
    bool right = (status != MORTISE_BUSY || wait_ms == 0) &&
                 (status != MORTISE_TIMEDOUT || (wait_ms != 0 && wait_ms != MORTISE_WAIT_FOREVER));
    return judged(ACQUIRE, right, name, status, error);
}

void tally_print(void)
{
    for (int call = 0; call < CALLS; call++)
        for (int number = 0; number < STATUSES; number++) {
            unsigned long times = atomic_load(&counts[call][number]);
            if (times > 0)
                printf("%s.%s=%lu ", call_words[call], mortise_status_name((mortise_status)-number),
                       times);
        }
}

bool tally_is_wrong(void)
{
    return atomic_load(&wrong);
}
