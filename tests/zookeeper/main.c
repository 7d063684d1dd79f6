/* main.c - the fault tests of the ZooKeeper driver. main SET [only=TEXT]: each set has its own servers, one or three,
 * the first of them behind the proxy, so sets can run at the same time. */
#include "stage.h"

#include <stdio.h>
#include <string.h>

/* A set of tests on one stage. */
struct set {
    const char *name;
    int servers;
    const char *const *keys;
    const CU_TestInfo *tests[6];
};

static const char *const quick[] = {"tick=200",
                                    "containers=300",
                                    "sync=no",
                                    "conf=maxSessionTimeout=30000",
                                    "java=-Dznode.container.maxPerMinute=600000",
                                    NULL};
/* A follower that hears nothing of its leader serves for a minute; a tick that is long beside a session
 * shows who trusts it. */
static const char *const patient[] = {
    "tick=1000", "sync=no", "conf=syncLimit=60",
    "log=log4j.logger.org.apache.zookeeper.server.FinalRequestProcessor=DEBUG", NULL};

static const struct set sets[] = {
    {"nodes", 1, quick, {node_tests, fifo_tests, op_tests, memory_tests, shared_tests}},
    {"cuts", 1, quick, {cut_tests, crowd_tests}},
    {"sessions", 1, quick, {session_tests, end_tests}},
    {"states", 1, quick, {state_tests}},
    {"rests", 1, quick, {rest_tests}},
    {"ensemble", 3, quick, {ensemble_tests}},
    {"follower", 3, patient, {follower_tests}},
};

static int run_set(const struct set *set, const char *only)
{
    CU_SuiteInfo suites[7] = {CU_SUITE_INFO_NULL};
    char names[6][32];
    for (int i = 0; set->tests[i]; i++) {
        snprintf(names[i], sizeof names[i], "%s %d", set->name, i + 1);
        suites[i] = (CU_SuiteInfo){.pName = names[i], .pTests = scene_choose(set->tests[i], only)};
    }
    int code = stage_begin(set->servers, set->keys);
    if (code != 0)
        return code;
    code = scene_run(suites);
    stage_end();
    return code;
}

int main(int argc, char **argv)
{
    if (argc == 5 && strcmp(argv[1], "fifo") == 0)
        return fifo_main(argv + 2);
    const char *only = argc > 2 && strncmp(argv[2], "only=", 5) == 0 ? argv[2] + 5 : NULL;
    for (size_t i = 0; argc > 1 && i < sizeof sets / sizeof sets[0]; i++)
        if (strcmp(sets[i].name, argv[1]) == 0)
            return run_set(&sets[i], only);
    fprintf(stderr, "usage: %s nodes|cuts|sessions|states|rests|ensemble|follower [only=TEXT]\n",
            argv[0]);
    return 64;
}
