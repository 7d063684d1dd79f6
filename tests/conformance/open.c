/* open.c - opening a client: what `require` refuses, and wrong configs. */
#include "conformance.h"

#include <stdio.h>
#include <string.h>

static void refuse(const char *settings, const char *said)
{
    mortise_client *client = (mortise_client *)(uintptr_t)1;
    detail = (mortise_error){0};
    if (!EXPECT(CONFIG, mortise_open(subject_where(settings), &client, &detail)))
        fprintf(stderr, "  with: %s\n", settings);
    CU_ASSERT_PTR_NULL(client);
    CU_ASSERT_EQUAL(detail.status, MORTISE_CONFIG);
    CU_ASSERT_PTR_NULL(strchr(detail.message, '\n'));
    if (!strstr(detail.message, said)) {
        fprintf(stderr, "  %s: no \"%s\" in \"%s\"\n", settings, said, detail.message);
        CU_FAIL("the message does not say what is wrong");
    }
}

/* Each promise by itself: kept, it opens; not kept, it does not. */
static void test_require(void)
{
    static const struct {
        const char *word;
        mortise_capability bit;
    } words[] = {
#define WORD(name, bit, word, help) {word, MORTISE_CAP_##name},
        MORTISE_CAPABILITY_MAP(WORD)
#undef WORD
    };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        char settings[64];
        snprintf(settings, sizeof settings, "require = %s", words[i].word);
        if (has(words[i].bit))
            close_client(open_client(settings));
        else
            refuse(settings, words[i].word);
    }
    refuse("require = speed", "speed");
}

static void test_bad_settings(void)
{
    refuse("handover_maximum = 3", "handover_max");
    refuse("ttl = 30", "ttl");
    refuse("ttl = 0s", "ttl");
    refuse("ttl = 10ms", "ttl");
    refuse("ttl = 400d", "ttl");
    refuse("wait = soon", "wait");
}

static void test_no_such_place(void)
{
    mortise_client *client = (mortise_client *)(uintptr_t)1;
    EXPECT(CONFIG, mortise_open("/nonexistent/mortise.conf", &client, &detail));
    CU_ASSERT_PTR_NULL(client);
    CU_ASSERT_PTR_NOT_NULL(strstr(detail.message, "/nonexistent/mortise.conf"));
    EXPECT(CONFIG, mortise_open("nosuchdriver:/x", &client, &detail));
    CU_ASSERT_PTR_NOT_NULL(strstr(detail.message, "nosuchdriver"));
    mortise_status status = mortise_open("", &client, &detail);
    CU_ASSERT(status == MORTISE_CONFIG || status == MORTISE_INVALID);
}

/* Many clients at once, opened and closed in another order. */
static void test_many_clients(void)
{
    enum { COUNT = 20 };
    mortise_client *clients[COUNT];
    const char *name = fresh_name();
    for (int i = 0; i < COUNT; i++)
        clients[i] = open_client(NULL);
    for (int i = 0; i < COUNT; i++) {
        mortise_lease *lease = take(clients[i], name, 0);
        EXPECT(BUSY, try_once(clients[(i + 7) % COUNT], name));
        give(lease);
    }
    for (int i = 0; i < COUNT; i++)
        close_client(clients[i * 7 % COUNT]);
}

const CU_TestInfo open_tests[] = {
    {"require", test_require},
    {"bad settings", test_bad_settings},
    {"no such place", test_no_such_place},
    {"many clients", test_many_clients},
    CU_TEST_INFO_NULL,
};
