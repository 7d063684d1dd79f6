/* cells.c - counts what coverage.py has put into its copy of the core: a thing in a state meets an event, and goes to
 * another state. The counts are in memory that all runs share. */
#include "cells.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { STATES = 16, EVENTS = 16 };

struct counts {
    unsigned long met[STATES][EVENTS];
    unsigned long went[STATES][EVENTS][STATES];
};

static struct counts *counts; /* NULL: nobody wants them */
static _Thread_local const void *at;
static _Thread_local unsigned now;

void cells_begin(void)
{
    counts = mmap(NULL, sizeof *counts, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (counts == MAP_FAILED)
        abort();
}

bool cells_wanted(void)
{
    return counts != NULL;
}

void replay_meets(const void *thing, unsigned state, unsigned event)
{
    at = thing;
    now = event;
    if (counts && thing && state < STATES && event < EVENTS)
        __atomic_fetch_add(&counts->met[state][event], 1, __ATOMIC_RELAXED);
}

void replay_goes(const void *thing, unsigned state, unsigned to)
{
    unsigned event = !at ? CELLS_NO_EVENT : at == thing ? now : CELLS_OF_ANOTHER;
    if (counts && state < STATES && to < STATES)
        __atomic_fetch_add(&counts->went[state][event][to], 1, __ATOMIC_RELAXED);
}

void cells_print(void)
{
    for (unsigned state = 0; counts && state < STATES; state++)
        for (unsigned event = 0; event < EVENTS; event++) {
            if (counts->met[state][event] > 0)
                printf("met %u %u %lu\n", state, event, counts->met[state][event]);
            for (unsigned to = 0; to < STATES; to++)
                if (counts->went[state][event][to] > 0)
                    printf("went %u %u %u %lu\n", state, event, to, counts->went[state][event][to]);
        }
}
