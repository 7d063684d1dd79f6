/* flights.c - as many cycles at a time as there are names; see flights.h. A refusal ends the program. */
#include "flights.h"

#include <poll.h>
#include <stdio.h>

static void acquired(mortise_status status, mortise_lease *lease, const mortise_error *error,
                     void *user_data);

static void begin(struct flight *flight)
{
    mortise_error error;
    flight->all->to_begin--;
    if (mortise_acquire_async(flight->all->client, flight->name, NULL, acquired, flight, NULL,
                              &error) != MORTISE_OK)
        bench_die("acquire: %s", error.message);
}

static void acquired(mortise_status status, mortise_lease *lease, const mortise_error *error,
                     void *user_data)
{
    struct flight *flight = user_data;
    if (status != MORTISE_OK)
        bench_die("acquire: %s", error->message);
    if (--flight->all->to_end == 0) {
        flight->all->last = lease;
        return;
    }
    if (mortise_release_nowait(lease, NULL) != MORTISE_OK)
        bench_die("a release failed");
    if (flight->all->to_begin > 0)
        begin(flight);
}

/* The round is over when the releases are answered, so it waits for the last one. */
void flights_cycles(void *context, size_t n)
{
    struct flights *all = context;
    all->to_begin = all->to_end = n;
    for (size_t i = 0; i < FLIGHTS && all->to_begin > 0; i++)
        begin(&all->each[i]);
    while (all->to_end > 0) {
        struct pollfd ready = {.fd = all->fd, .events = POLLIN};
        poll(&ready, 1, -1);
        if (mortise_dispatch(all->client) < 0)
            bench_die("dispatch failed");
    }
    bench_release(all->last); /* earlier requests of the client are answered before it */
}

void flights_open(struct flights *all, mortise_client *client, const char *name)
{
    all->client = client;
    all->fd = mortise_fd(client, NULL);
    for (unsigned i = 0; i < FLIGHTS; i++) {
        all->each[i].all = all;
        snprintf(all->each[i].name, sizeof(all->each[i].name), "%.100s/%02u", name, i);
    }
}
