/* callbacks_test.h - what the tests of callbacks share: a callback that blocks until the test opens a gate. */
#ifndef CALLBACKS_TEST_H
#define CALLBACKS_TEST_H

#include "close_test.h"

#include <poll.h>
#include <sched.h>
#include <semaphore.h>

#undef CONFIG
#define CONFIG "ttl = 3s\n"

static inline bool readable(int fd)
{
    struct pollfd pollfd = {.fd = fd, .events = POLLIN};
    return poll(&pollfd, 1, 0) == 1;
}

static inline bool no_instances(void *argument)
{
    (void)argument;
    return sim->instances() == 0;
}

struct running {
    sem_t entered, leave;
    _Atomic bool left;
};

static inline void linger(mortise_lease *lease, mortise_lease_state state, void *user_data)
{
    struct running *running = user_data;
    (void)lease;
    (void)state;
    sem_post(&running->entered);
    while (sem_wait(&running->leave) != 0)
        continue;
    atomic_store(&running->left, true);
}

/* A lease that has been lost, and whose callback runs until running->leave. */
static inline mortise_lease *lose_and_linger(mortise_client *client, const char *name,
                                             struct running *running)
{
    mortise_lease *lease;
    CU_ASSERT_EQUAL_FATAL(
        mortise_acquire(client, name,
                        MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = 60, .no_renew = true,
                                        .on_state = linger, .user_data = running),
                        &lease, NULL),
        MORTISE_OK);
    while (sem_wait(&running->entered) != 0)
        continue;
    return lease;
}

#endif
