/* clock.c - the place of the virtual clock; see clock.h. */
#include "base/clock.h"

_Atomic int64_t clock_virtual_ns = -1;
