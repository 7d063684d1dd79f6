/* test_open.c - what mortise_open() takes from a config and a URL before the first call: the identity of the client,
 * and what it refuses. */
#include "rig.h"

static struct rig rig, second;

static void test_identity(void)
{
    rig_open(&rig, "");
    rig_open(&second, "");
    CU_ASSERT_EQUAL(strlen(rig.client->id), 32);
    CU_ASSERT_EQUAL(strspn(rig.client->id, "0123456789abcdef"), 32);
    CU_ASSERT_STRING_NOT_EQUAL(rig.client->id, second.client->id);
    rig_close(&second);
    rig_close(&rig);
}

static void refused(const char *where, const char *why)
{
    mortise_client *client = NULL;
    mortise_error error = {.message = ""};
    CU_ASSERT_EQUAL(mortise_open(where, &client, &error), MORTISE_CONFIG);
    CU_ASSERT_PTR_NULL(client);
    if (strstr(error.message, why) == NULL)
        fprintf(stderr, "    told: %s\n    wanted: %s\n", error.message, why);
    CU_ASSERT_PTR_NOT_NULL(strstr(error.message, why));
    CU_ASSERT_EQUAL(sim->instances(), 0);
}

/* A key that nobody knows may be the one that makes the lock safe. */
static void test_unknown_key_of_a_url(void)
{
    refused("sim:/?colour=red", "unknown key \"colour\"");
    refused("sim:/?tll=1s", "did you mean \"ttl\"?");
}

/* What is required, and nobody knows: the word that was meant is named if there is one. */
static void test_unknown_requirement(void)
{
    refused("sim:/?require=fiar", "unknown capability \"fiar\" (did you mean \"fair\"?)");
    refused("sim:/?require=teleportation", "unknown capability \"teleportation\"");
    mortise_client *client = NULL;
    mortise_error error = {.message = ""};
    CU_ASSERT_EQUAL(mortise_open("sim:/?require=teleportation", &client, &error), MORTISE_CONFIG);
    CU_ASSERT_STRING_EQUAL(error.message + strlen(error.message) - 1, "\"");
}

int main(void)
{
    static const CU_TestInfo tests[] = {
        {"each client has an id", test_identity},
        {"an unknown key of a URL", test_unknown_key_of_a_url},
        {"an unknown requirement", test_unknown_requirement},
        CU_TEST_INFO_NULL,
    };
    return rig_run("open", tests);
}
