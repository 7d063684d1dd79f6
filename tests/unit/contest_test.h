/* contest_test.h - what the tests of the local queue share: a client that records the driver's requests. */
#ifndef CONTEST_TEST_H
#define CONTEST_TEST_H

#include "rig.h"

#define CONFIG "ttl = 3s\nhandover_max = 0\n"

static struct rig rig;
static struct outcome got, other;

static inline void start(const char *config)
{
    rig_open(&rig, config);
    tap(&rig);
}

static inline void finish(void)
{
    settle();
    CU_ASSERT_EQUAL(stats_of(&rig).waiting, 0);
    CU_ASSERT_EQUAL(rig.client->locks.outstanding, 0);
    ASSERT_NOTHING_LEFT();
    rig_close(&rig);
}

static inline void give_back(struct outcome *outcome)
{
    CU_ASSERT_EQUAL_FATAL(outcome->status, MORTISE_OK);
    CU_ASSERT_EQUAL(mortise_release(outcome->lease, NULL), MORTISE_OK);
}

#endif
