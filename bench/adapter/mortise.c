/* mortise.c - the library as an adapter (adapter.h): one client for all threads of the process, as an application
 * would have it. On the public header only. A refusal is recorded and not fatal, because some workloads kill
 * servers. */
#include "../common.h"
#include "../flights.h"
#include "adapter.h"
#include "scale.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *address;
static mortise_client *client, *flying;
static struct flights flights;

static const char *open_client(const char *where)
{
    static char version[256];
    char text[200] = "";
    address = where;
    client = bench_open(where);
    mortise_module_info info = {.size = sizeof(info)};
    mortise_ping(client, text, sizeof(text), NULL);
    snprintf(version, sizeof(version), "mortise %s, %s: %s", mortise_version(),
             mortise_module_at(client, 0, &info) ? info.name : "", text);
    return version;
}

/* ---- turns ---- */

static bool take(void *worker, const char *name, void **held)
{
    mortise_lease *lease;
    (void)worker;
    if (mortise_acquire(client, name, NULL, &lease, NULL) != MORTISE_OK)
        return false;
    *held = lease;
    return true;
}

static void give(void *worker, const char *name, void *lease)
{
    (void)worker;
    (void)name;
    mortise_release(lease, NULL); /* what it reports about the hold is not measured here */
}

static void many(const char *name, size_t count)
{
    if (flying == NULL) {
        flying = bench_open(address);
        flights_open(&flights, flying, name);
    }
    flights_cycles(&flights, count);
}

/* ---- held ---- */

/* Leases that are acquired together. */
static struct crowd {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    mortise_lease **leases;
    mortise_client **clients; /* of waiters: each has its own, as if it were a process */
    unsigned count;
} held = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER},
  waiting = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void on_held(mortise_status status, mortise_lease *lease, const mortise_error *error,
                    void *user_data)
{
    (void)user_data;
    if (status != MORTISE_OK)
        bench_die("hold: %s", error->message);
    pthread_mutex_lock(&held.lock);
    held.leases[held.count++] = lease;
    pthread_cond_signal(&held.changed);
    pthread_mutex_unlock(&held.lock);
}

static void *room(size_t count)
{
    void *made = calloc(count, sizeof(void *));
    if (made == NULL)
        bench_die("out of memory");
    return made;
}

static void ask(mortise_client *of, const char *name, const mortise_options *options,
                mortise_acquire_callback callback)
{
    mortise_error error;
    if (mortise_acquire_async(of, name, options, callback, NULL, NULL, &error) != MORTISE_OK)
        bench_die("acquire: %s", error.message);
}

static void hold(const char *name, unsigned count, int64_t ttl_ms)
{
    char one[160];
    unsigned before = held.count;
    held.leases = realloc(held.leases, (before + count) * sizeof(held.leases[0]));
    if (held.leases == NULL)
        bench_die("out of memory");
    for (unsigned i = 0; i < count; i++) {
        snprintf(one, sizeof(one), "%s/%u", name, i);
        ask(client, one, MORTISE_OPTIONS(.wait_ms = MORTISE_WAIT_FOREVER, .ttl_ms = ttl_ms),
            on_held);
    }
    pthread_mutex_lock(&held.lock);
    while (held.count < before + count)
        pthread_cond_wait(&held.changed, &held.lock);
    pthread_mutex_unlock(&held.lock);
}

static int64_t free_last(void)
{
    int64_t now_ns = bench_now_ns();
    bench_release(held.leases[--held.count]);
    return now_ns;
}

/* ---- many ---- */

static void crowd(const char *name, unsigned count)
{
    scale_crowd(client, name, count);
}

static void clients(const char *name, unsigned count, int64_t ttl_ms)
{
    scale_clients(address, name, count, ttl_ms);
}

static void touch(const char *name, unsigned count)
{
    scale_touch(client, name, count);
}

/* ---- waiting ---- */

/* Releases the lock at once, because the next one waits for it. */
static void on_waited(mortise_status status, mortise_lease *lease, const mortise_error *error,
                      void *user_data)
{
    (void)error;
    (void)user_data;
    if (status == MORTISE_OK)
        mortise_release_nowait(lease, NULL);
}

static void wait_for(const char *name, unsigned count)
{
    waiting.clients = room(count);
    waiting.count = count;
    for (unsigned i = 0; i < count; i++) {
        waiting.clients[i] = bench_open(address);
        ask(waiting.clients[i], name, MORTISE_OPTIONS(.wait_ms = MORTISE_WAIT_FOREVER), on_waited);
    }
}

/* ---- state ---- */

/* Asks for the state of one lease, which is acquired at the first call and held until the end. */
static void state(const char *name, size_t count)
{
    static volatile mortise_lease_state seen;
    static mortise_lease *lease;
    if (lease == NULL)
        lease = bench_acquire(client, name, NULL);
    while (count-- > 0)
        seen = mortise_state(lease);
    if (seen != MORTISE_STATE_HELD)
        bench_die("the lease was lost");
}

/* Releases what is held; waiting acquires complete with CLOSED. */
static void close_clients(void)
{
    for (unsigned i = 0; i < waiting.count; i++)
        mortise_close(waiting.clients[i], NULL);
    free(waiting.clients);
    scale_close();
    if (flying != NULL)
        mortise_close(flying, NULL);
    mortise_close(client, NULL);
    free(held.leases);
}

int main(int argc, char **argv)
{
    return adapter_main(argc, argv,
                        &(struct adapter){.name = "mortise",
                                          .open = open_client,
                                          .take = take,
                                          .give = give,
                                          .many = many,
                                          .hold = hold,
                                          .wait = wait_for,
                                          .crowd = crowd,
                                          .clients = clients,
                                          .touch = touch,
                                          .free = free_last,
                                          .first = scale_first_ns,
                                          .state = state,
                                          .close = close_clients});
}
