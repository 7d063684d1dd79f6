/* noise_tests.c - answers that etcd would not give: some of their bytes are changed by a seed, within whole frames. Whatever
 * comes, each call returns, nothing crashes and nothing leaks; and when the answers are true again, everything works, and
 * nothing is left. $MORTISE_HOSTILE_SEED sets the first seed; else it is 1, at night a fresh one. */
#include "stage.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BRIEF                                                                                      \
    "ttl=500ms&connect_timeout=300ms&timeout=300ms&unreachable_timeout=300ms&close_timeout=300ms"
#define CLIENTS 4

struct visitor {
    mortise_client *client;
    const char *name;
    bool shared;
};

static void visit(void *argument)
{
    struct visitor *visitor = argument;
    char text[200];
    mortise_lease *lease = NULL;
    mortise_info info = {.size = sizeof info};
    mortise_error error;
    mortise_mode mode = visitor->shared ? MORTISE_SHARED : MORTISE_EXCLUSIVE;
    for (int i = 0; i < 3; i++) {
        mortise_status status = mortise_acquire(
            visitor->client, visitor->name,
            MORTISE_OPTIONS(.wait_ms = 300, .mode = mode, .permits = visitor->shared ? 2 : 0),
            &lease, &error);
        if (status == MORTISE_OK)
            mortise_release(lease, &error);
        else
            CHECK(strlen(error.message) > 0 && strpbrk(error.message, "\r\n") == NULL);
        mortise_inspect(visitor->client, visitor->name, &info, &error);
        mortise_ping(visitor->client, text, sizeof text, &error);
    }
}

/* Wrong answers may have left keys that nobody knows of; they end with the sessions. */
static bool is_free(void *argument)
{
    mortise_client *client = argument;
    mortise_lease *lease = NULL;
    if (mortise_acquire(client, "noisy", MORTISE_OPTIONS(.wait_ms = 5000), &lease, NULL) !=
        MORTISE_OK)
        return false;
    return mortise_release(lease, NULL) == MORTISE_OK;
}

static void test_noise(void)
{
    const char *nightly = getenv("MORTISE_NIGHTLY"), *given = getenv("MORTISE_HOSTILE_SEED");
    bool takes_its_time = nightly && strcmp(nightly, "1") == 0;
    uint64_t seed = given ? strtoull(given, NULL, 10) : takes_its_time ? (uint64_t)time(NULL) : 1;
    int rounds = takes_its_time ? 150 : 4;
    printf("\nMORTISE_HOSTILE_SEED=%llu\n", (unsigned long long)seed); /* for tests/again.py */
    for (int round = 0; round < rounds; round++) {
        struct visitor visitors[CLIENTS];
        middle_noise(seed + (unsigned)round, 2 + (unsigned)round % 5);
        for (int i = 0; i < CLIENTS; i++)
            visitors[i] = (struct visitor){client_behind_middle(BRIEF), "noisy", i % 2 == 1};
        in_parallel(visit, visitors, sizeof *visitors, CLIENTS);
        for (int i = 0; i < CLIENTS; i++)
            mortise_close(visitors[i].client, NULL);
    }
    middle_noise(0, 0);
    mortise_client *client = client_direct("ttl=2s");
    CHECK(test_poll(is_free, client, 3 * TEST_PATIENCE_MS));
    client_end(client);
}

const CU_TestInfo noise_tests[] = {
    {"answers that are changed", test_noise},
    CU_TEST_INFO_NULL,
};
