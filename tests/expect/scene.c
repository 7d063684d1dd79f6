/* scene.c - what fault tests of drivers have in common; see scene.h. */
#include "scene.h"

#include <suite.h>

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#define WORDS_MAX 32

int scene_servers(const char *kind, const char *folder, const char *verb, const char *const *words,
                  void (*each)(const char *line, void *argument), void *argument)
{
    struct test_process script;
    char path[512], line[2048];
    const char *argv[WORDS_MAX] = {"/bin/sh", path, verb, kind, folder};
    int n = 5;
    snprintf(path, sizeof path, "%s/tests/servers.sh", getenv("MORTISE_SOURCE_DIR"));
    while (words && *words && n < WORDS_MAX - 1)
        argv[n++] = *words++;
    if (!test_spawn(&script, argv))
        return -1;
    while (test_hear(&script, line, sizeof line, 4 * TEST_PATIENCE_MS))
        if (each)
            each(line, argument);
    int status = test_reap(&script, 4 * TEST_PATIENCE_MS);
    test_kill(&script);
    return status >= 0 && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

const char *fresh_name(void)
{
    static char names[16][32];
    static atomic_uint number;
    unsigned n = atomic_fetch_add(&number, 1);
    snprintf(names[n % 16], sizeof names[0], "name-%u", n);
    return names[n % 16];
}

struct awaited {
    mortise_lease *lease;
    mortise_lease_state state;
};

static bool state_is(void *argument)
{
    const struct awaited *awaited = argument;
    return mortise_state(awaited->lease) == awaited->state;
}

bool wait_state(mortise_lease *lease, mortise_lease_state state, int64_t timeout_ms)
{
    struct awaited awaited = {lease, state};
    return test_poll(state_is, &awaited, timeout_ms);
}

/* ---- waiters ----------------------------------------------------------------------------------------- */

static void *wait_main(void *argument)
{
    struct waiter *waiter = argument;
    waiter->status =
        mortise_acquire(waiter->client, waiter->name,
                        MORTISE_OPTIONS(.wait_ms = waiter->wait_ms, .mode = waiter->mode,
                                        .permits = waiter->permits),
                        &waiter->lease, NULL);
    if (waiter->other)
        waiter->other_state = mortise_state(waiter->other);
    waiter->granted_ms = test_now_ms();
    test_count_add(&waiter->done, 1);
    return NULL;
}

void waiter_start(struct waiter *waiter, mortise_client *client, const char *name)
{
    *waiter =
        (struct waiter){.client = client,
                        .name = name,
                        .wait_ms = waiter->wait_ms > 0 ? waiter->wait_ms : 3 * TEST_PATIENCE_MS,
                        .mode = waiter->mode,
                        .permits = waiter->permits,
                        .done = TEST_COUNT_INIT,
                        .other = waiter->other};
    if (pthread_create(&waiter->thread, NULL, wait_main, waiter) != 0)
        CU_FAIL_FATAL("no thread");
}

mortise_status waiter_join(struct waiter *waiter)
{
    pthread_join(waiter->thread, NULL);
    return waiter->status;
}

/* ---- a set of tests ------------------------------------------------------------------------------------ */

CU_TestInfo *scene_choose(const CU_TestInfo *tests, const char *only)
{
    static CU_TestInfo some[8][64];
    static int used;
    CU_TestInfo *to = some[used++];
    int n = 0;
    for (; tests->pName; tests++)
        if (!only || strstr(tests->pName, only))
            to[n++] = *tests;
    to[n] = (CU_TestInfo)CU_TEST_INFO_NULL;
    return to;
}

int scene_run(CU_SuiteInfo *suites)
{
    return suites_run(suites);
}
