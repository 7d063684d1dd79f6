/* flights.h - 64 cycles in flight on one thread by the asynchronous API, each on its own name. */
#ifndef MORTISE_BENCH_FLIGHTS_H
#define MORTISE_BENCH_FLIGHTS_H

#include "common.h"

#define FLIGHTS 64

struct flights {
    mortise_client *client;
    int fd;
    size_t to_begin, to_end;
    mortise_lease *last; /* the last one that was asked for */
    struct flight {
        struct flights *all;
        char name[160];
    } each[FLIGHTS];
};

/* Takes the client's callbacks for itself (mortise_fd). The names are NAME/00 to NAME/63. */
void flights_open(struct flights *all, mortise_client *client, const char *name);
/* n times acquire + release_nowait, n > 0. Returns when everything is released. A bench_case's loop. */
void flights_cycles(void *flights, size_t n);

#endif
