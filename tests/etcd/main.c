/* main.c - the fault tests of the etcd driver. main SET [only=TEXT]: each set has its own servers, so sets can run at the same
 * time. */
#include "stage.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A set of tests on one stage. */
struct set {
    const char *name;
    int servers;
    bool ways;
    const char *const *keys;
    const CU_TestInfo *tests[4];
};

#define QUICK "heartbeat=50", "election=500"
static const char *const quick[] = {QUICK, NULL};
static const char *const small[] = {QUICK, "quota=16777216", NULL};
static const char *const users[] = {QUICK, "user=locker", "password=secret", "tokens=1", NULL};
static const char *const secure[] = {QUICK, "tls=yes", "clients=yes", NULL};

static const char disk_key[] = "disk=" SLOW_DISK;
static const char *const slow[] = {QUICK, disk_key, NULL};

static const struct set sets[] = {
    {"calls", 1, false, quick, {call_tests, cover_tests, stream_tests, away_tests}},
    {"leases", 1, false, quick, {lease_tests, permit_tests, restore_tests}},
    {"cuts", 1, false, quick, {cut_tests}},
    {"noise", 1, false, quick, {noise_tests}},
    {"users", 1, false, users, {user_tests}},
    {"tls", 1, false, secure, {tls_tests}},
    {"space", 1, false, small, {space_tests}},
    {"cluster", 3, true, quick, {cluster_tests}},
    {"disk", 1, false, slow, {disk_tests}},
};

static int run_set(const struct set *set, const char *only)
{
    CU_SuiteInfo suites[5] = {CU_SUITE_INFO_NULL, CU_SUITE_INFO_NULL, CU_SUITE_INFO_NULL,
                              CU_SUITE_INFO_NULL, CU_SUITE_INFO_NULL};
    for (int i = 0; i < 4 && set->tests[i]; i++)
        suites[i] = (CU_SuiteInfo){.pName = i == 0   ? set->name
                                            : i == 1 ? "more"
                                            : i == 2 ? "yet more"
                                                     : "and more",
                                   .pTests = scene_choose(set->tests[i], only)};
    if (set->keys == slow && system(SLOW_DISK " --probe") != 0)
        return test_skip("etcd", "this kernel does not permit seccomp user notifications");
    int code = stage_begin(set->servers, set->ways, set->keys);
    if (code != 0)
        return code;
    code = scene_run(suites);
    stage_end();
    return code;
}

int main(int argc, char **argv)
{
    const char *only = argc > 2 && strncmp(argv[2], "only=", 5) == 0 ? argv[2] + 5 : NULL;
    for (size_t i = 0; argc > 1 && i < sizeof sets / sizeof sets[0]; i++)
        if (strcmp(sets[i].name, argv[1]) == 0)
            return run_set(&sets[i], only);
    fprintf(stderr, "usage: %s SET [only=TEXT]\n", argv[0]);
    return 64;
}
