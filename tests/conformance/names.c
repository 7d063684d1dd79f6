/* names.c - which names are possible: every byte, the longest, names that look alike, ten thousand at once.
 * Namespaces keep them apart. */
#include "conformance.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Takes all of them, finds each busy for the other client, gives all back. */
static void hold_all(mortise_client *holder, mortise_client *other, const char *const *names,
                     size_t count)
{
    mortise_lease *leases[300] = {NULL};
    CU_ASSERT_FATAL(count <= 300);
    for (size_t i = 0; i < count; i++)
        leases[i] = take(holder, names[i], 0);
    for (size_t i = 0; i < count; i++) {
        EXPECT(BUSY, try_once(other, names[i]));
        if (has(MORTISE_CAP_INSPECT)) {
            mortise_info info = look(other, names[i]);
            CU_ASSERT(info.held);
            CU_ASSERT_STRING_EQUAL(info.name, names[i]);
            CU_ASSERT(info.token == mortise_token(leases[i]) ||
                      soon_tells_token(other, names[i], mortise_token(leases[i])));
        }
    }
    for (size_t i = 0; i < count; i++)
        give(leases[i]);
    for (size_t i = 0; i < count; i++)
        EXPECT(OK, try_once(other, names[i]));
}

static void test_every_byte(void)
{
    mortise_client *holder = open_client(NULL), *other = open_client(NULL);
    static char names[255][96];
    const char *list[255];
    for (int i = 0; i < 255; i++) {
        snprintf(names[i], sizeof names[i], "%s%c", test_prefix(), i + 1);
        list[i] = names[i];
    }
    hold_all(holder, other, list, 255);
    close_client(holder);
    close_client(other);
}

static void test_lengths(void)
{
    mortise_client *holder = open_client("namespace ="), *other = open_client("namespace =");
    char longest[MORTISE_NAME_MAX + 1], all_but_one[MORTISE_NAME_MAX + 1];
    for (size_t i = 0; i < MORTISE_NAME_MAX; i++)
        longest[i] = (char)(i % 255 + 1);
    memcpy(longest, test_prefix(), strlen(test_prefix()));
    longest[MORTISE_NAME_MAX] = '\0';
    memcpy(all_but_one, longest, sizeof longest);
    all_but_one[MORTISE_NAME_MAX - 1] = '\0';
    const char *const names[] = {"x", longest, all_but_one};
    hold_all(holder, other, names, 3);
    close_client(holder);
    close_client(other);
}

static void test_alike(void)
{
    static const char *const ends[] = {
        "a",        "A",      "a ",   " a",  "a/",   "/a",   "a//",   "a/b",
        "a/./b",    "a/../b", "..",   ".",   "%",    "%41",  "a%",    "*",
        "a*",       "?",      "'",    "\"",  "';--", "\\",   "\\x41", "a:b",
        "{a}",      "$(id)",  "%s%n", "\n",  "a\n",  "\r\n", "ä",     "a\xcc\x88",
        "\xff\xfe", "0",      "00",   "1e3", "_",    "a_",   "NULL",  "lock-0000000001"};
    enum { COUNT = sizeof ends / sizeof *ends };
    static char names[COUNT][128];
    const char *list[COUNT];
    mortise_client *holder = open_client(NULL), *other = open_client(NULL);
    for (size_t i = 0; i < COUNT; i++) {
        snprintf(names[i], sizeof names[i], "%s%s", test_prefix(), ends[i]);
        list[i] = names[i];
    }
    hold_all(holder, other, list, COUNT);
    close_client(holder);
    close_client(other);
}

static bool count_in_order(const mortise_info *info, void *argument)
{
    static char last[MORTISE_NAME_MAX + 1];
    int *count = argument;
    if (*count > 0 && strcmp(last, info->name) >= 0)
        *count = -1000000;
    snprintf(last, sizeof last, "%s", info->name);
    ++*count;
    return true;
}

static void start_many(struct pending *pendings, mortise_client *client, int count)
{
    char name[128];
    for (int i = 0; i < count; i++) {
        snprintf(name, sizeof name, "%smany/%d", test_prefix(), i);
        pendings[i] = PENDING_INIT;
        pending_start(&pendings[i], client, name, MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = 60000));
    }
}

static void test_many(void)
{
    mortise_client *client = open_client(NULL), *other = open_client(NULL);
    struct pending *pendings = calloc((size_t)subject.names, sizeof *pendings);
    int listed = 0;
    CU_ASSERT_PTR_NOT_NULL_FATAL(pendings);
    start_many(pendings, client, subject.names);
    for (int i = 0; i < subject.names; i++)
        PENDING_EXPECT(&pendings[i], OK);
    if (has(MORTISE_CAP_LIST)) {
        EXPECT(OK, mortise_list(other, test_prefix(), count_in_order, &listed, &detail));
        CU_ASSERT_EQUAL(listed, subject.names);
    }
    CU_ASSERT_EQUAL(stats_of(client).held, (uint64_t)subject.names);
    for (int i = 0; i < subject.names; i++)
        EXPECT(OK, mortise_release_nowait(pendings[i].lease, &detail));
    close_client(client);
    close_client(other);
    free(pendings);
}

static void test_namespaces(void)
{
    mortise_client *one = open_client("namespace = one/"), *two = open_client("namespace = two/"),
                   *none = open_client("namespace =");
    const char *name = fresh_name();
    char whole[160];
    mortise_lease *lease = take(one, name, 0);
    EXPECT(OK, try_once(two, name));
    snprintf(whole, sizeof whole, "one/%s", name);
    EXPECT(BUSY, try_once(none, whole));
    if (has(MORTISE_CAP_INSPECT)) {
        CU_ASSERT_STRING_EQUAL(look(one, name).name, name);
        CU_ASSERT_STRING_EQUAL(look(none, whole).name, whole);
    }
    if (has(MORTISE_CAP_LIST)) {
        int count = 0;
        EXPECT(OK, mortise_list(two, test_prefix(), count_in_order, &count, &detail));
        CU_ASSERT_EQUAL(count, 0);
        EXPECT(OK, mortise_list(one, test_prefix(), count_in_order, &count, &detail));
        CU_ASSERT_EQUAL(count, 1);
    }
    give(lease);
    close_client(one);
    close_client(two);
    close_client(none);
}

/* The limit is on the name with the namespace before it. */
static void test_namespace_counts(void)
{
    mortise_client *client = open_client("namespace = one/");
    char name[MORTISE_NAME_MAX + 1];
    mortise_lease *lease;
    memset(name, 'n', sizeof name);
    name[MORTISE_NAME_MAX - 4] = '\0';
    EXPECT(OK, try_once(client, name));
    name[MORTISE_NAME_MAX - 4] = 'n';
    name[MORTISE_NAME_MAX - 3] = '\0';
    EXPECT(INVALID, mortise_acquire(client, name, MORTISE_OPTIONS(.wait_ms = 0), &lease, &detail));
    close_client(client);
}

const CU_TestInfo names_tests[] = {
    {"every byte", test_every_byte},
    {"the longest, the shortest", test_lengths},
    {"names that look alike", test_alike},
    {"thousands at once", test_many},
    {"namespaces", test_namespaces},
    {"the namespace counts", test_namespace_counts},
    CU_TEST_INFO_NULL,
};
