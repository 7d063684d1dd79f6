/* scale.c - the workload `scale` in one process. See scale.h. */
#include "scale.h"

#include "../common.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#define IN_FLIGHT 256

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int64_t first_ns; /* 0: nobody was granted yet */
static unsigned in_flight;
static mortise_client **clients;
static unsigned client_count;

static void on_crowd(mortise_status status, mortise_lease *lease, const mortise_error *error,
                     void *user_data)
{
    (void)error;
    (void)user_data;
    if (status != MORTISE_OK)
        return; /* CLOSED, at the end */
    pthread_mutex_lock(&lock);
    if (first_ns == 0)
        first_ns = bench_now_ns();
    pthread_cond_signal(&changed);
    pthread_mutex_unlock(&lock);
    mortise_release_nowait(lease, NULL);
}

static void ask(mortise_client *client, const char *name, mortise_acquire_callback callback)
{
    mortise_error error;
    if (mortise_acquire_async(client, name, MORTISE_OPTIONS(.wait_ms = MORTISE_WAIT_FOREVER),
                              callback, NULL, NULL, &error) != MORTISE_OK)
        bench_die("acquire: %s", error.message);
}

void scale_crowd(mortise_client *client, const char *name, unsigned count)
{
    pthread_mutex_lock(&lock);
    first_ns = 0;
    pthread_mutex_unlock(&lock);
    for (unsigned i = 0; i < count; i++)
        ask(client, name, on_crowd);
}

int64_t scale_first_ns(void)
{
    pthread_mutex_lock(&lock);
    while (first_ns == 0)
        pthread_cond_wait(&changed, &lock);
    int64_t at_ns = first_ns;
    pthread_mutex_unlock(&lock);
    return at_ns;
}

/* Raises the limit, because each client has some descriptors. */
static void allow_descriptors(void)
{
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

void scale_clients(const char *address, const char *name, unsigned count, int64_t ttl_ms)
{
    char one[160];
    allow_descriptors();
    clients = calloc(count, sizeof(mortise_client *));
    if (clients == NULL)
        bench_die("out of memory");
    for (client_count = 0; client_count < count; client_count++) {
        snprintf(one, sizeof(one), "%s/%u", name, client_count);
        clients[client_count] = bench_open(address);
        bench_acquire(clients[client_count], one,
                      MORTISE_OPTIONS(.wait_ms = MORTISE_WAIT_FOREVER, .ttl_ms = ttl_ms));
    }
}

static void on_touched(mortise_status status, mortise_lease *lease, const mortise_error *error,
                       void *user_data)
{
    (void)user_data;
    if (status != MORTISE_OK)
        bench_die("touch: %s", error->message);
    mortise_release_nowait(lease, NULL);
    pthread_mutex_lock(&lock);
    in_flight--;
    pthread_cond_signal(&changed);
    pthread_mutex_unlock(&lock);
}

static void await_in_flight(unsigned most)
{
    pthread_mutex_lock(&lock);
    while (in_flight > most)
        pthread_cond_wait(&changed, &lock);
    in_flight += most > 0;
    pthread_mutex_unlock(&lock);
}

void scale_touch(mortise_client *client, const char *name, unsigned count)
{
    char one[160];
    for (unsigned i = 0; i < count; i++) {
        await_in_flight(IN_FLIGHT);
        snprintf(one, sizeof(one), "%s/%u", name, i);
        ask(client, one, on_touched);
    }
    await_in_flight(0);
}

void scale_close(void)
{
    for (unsigned i = 0; i < client_count; i++)
        mortise_close(clients[i], NULL);
    free(clients);
}
