/* futex.h - a word that threads sleep on. */
#ifndef MORTISE_CORE_FUTEX_H
#define MORTISE_CORE_FUTEX_H

#include "base/clock.h"

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Sleeps until it is woken, while the word has this value; it may also wake for no reason. False: it is until_ns. */
static inline bool futex_sleep_while(_Atomic uint32_t *word, uint32_t value, int64_t until_ns)
{
    int64_t left = until_ns - clock_now();
    if (left <= 0)
        return false;
    struct timespec timeout = {(time_t)(left / NS_PER_S), (long)(left % NS_PER_S)};
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, &timeout, NULL, 0);
    return true;
}

static inline void futex_wake_all(_Atomic uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

#endif
