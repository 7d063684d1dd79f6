/* many_test.h - what the tests of several names at once share: the names, the call, and a thread that makes it. */
#ifndef MANY_TEST_H
#define MANY_TEST_H

#include "rig.h"

#include <pthread.h>

#define CONFIG "ttl = 3s\nhandover_max = 0\n"
#define TEN_SECONDS MORTISE_OPTIONS(.wait_ms = 10000)

static struct rig rig, other;
static mortise_lease *leases[8];
static mortise_error error;
static const char *const abc[] = {"c", "a", "b"};

static inline mortise_status many(const char *const *names, size_t n,
                                  const mortise_options *options)
{
    memset(leases, 0xee, sizeof(leases));
    memset(&error, 0, sizeof(error));
    return mortise_acquire_many(rig.handle, names, n, options, leases, &error);
}

static inline void assert_none(size_t n)
{
    for (size_t i = 0; i < n; i++)
        CU_ASSERT_PTR_NULL(leases[i]);
}

static inline bool has_waiter(void *name)
{
    return sim->waiters(name) > 0;
}

static mortise_status outcome;
static const mortise_options *wanted_options;

static inline void *acquire(void *argument)
{
    (void)argument;
    outcome = many(abc, 3, wanted_options);
    return NULL;
}

#endif
