/* clock.h - the clock of deadlines. */
#ifndef MORTISE_TOOLS_CLOCK_H
#define MORTISE_TOOLS_CLOCK_H

#include <stdint.h>

/* CLOCK_BOOTTIME, which also counts the time in which the machine is suspended, as the deadlines of leases do. */
int64_t boottime_ns(void);

#endif
