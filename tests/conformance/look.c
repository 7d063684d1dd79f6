/* look.c - inspect and list: exact if the driver has them, otherwise NOTSUP; records; what a stack reports about
 * itself. */
#include "conformance.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* By so much the clocks of a holder, a backend and a looker may differ in what they say of 60 s: 1 % and some. */
#define CLOCKS_MS 700

/* began_ms: before the lease was acquired. */
static void check_holder(const mortise_info *info, const char *name, mortise_lease *lease,
                         int64_t began_ms)
{
    char owner[64] = "", host[65] = "";
    gethostname(host, sizeof host - 1);
    mortise_owner(lease, owner, sizeof owner);
    CU_ASSERT_EQUAL(info->size, sizeof *info);
    CU_ASSERT(info->held);
    CU_ASSERT_STRING_EQUAL(info->name, name);
    CU_ASSERT_STRING_EQUAL(info->owner, owner);
    CU_ASSERT_STRING_EQUAL(info->host, host);
    CU_ASSERT_EQUAL(info->pid, getpid());
    CU_ASSERT(strlen(info->program) > 0);
    CU_ASSERT_EQUAL(info->token, mortise_token(lease));
    CU_ASSERT_EQUAL(info->leases, 1);
    int64_t most_ms = test_now_ms() - began_ms + CLOCKS_MS;
    CU_ASSERT(info->held_ms >= 0 && info->held_ms <= most_ms);
    if (has(MORTISE_CAP_LEASE))
        CU_ASSERT(info->remaining_ms >= 60000 - most_ms && info->remaining_ms <= 60000);
    CU_ASSERT(info->waiters == 0 || info->waiters == -1);
}

static void check_free(const mortise_info *info, const char *name)
{
    CU_ASSERT_EQUAL(info->size, sizeof *info);
    CU_ASSERT_FALSE(info->held);
    CU_ASSERT_STRING_EQUAL(info->name, name);
    CU_ASSERT_EQUAL(info->token, 0);
    CU_ASSERT_EQUAL(info->pid, 0);
    CU_ASSERT_STRING_EQUAL(info->owner, "");
    CU_ASSERT_STRING_EQUAL(info->host, "");
    CU_ASSERT_STRING_EQUAL(info->program, "");
    CU_ASSERT_EQUAL(info->leases, 0);
    CU_ASSERT_EQUAL(info->remaining_ms, 0);
    CU_ASSERT_EQUAL(info->held_ms, 0);
}

static void test_inspect(void)
{
    mortise_client *client = open_client(NULL), *other = open_client(NULL);
    const char *name = fresh_name();
    mortise_info info = {.size = sizeof info};
    if (!has(MORTISE_CAP_INSPECT)) {
        EXPECT(NOTSUP, mortise_inspect(client, name, &info, &detail));
    } else {
        info = look(other, name);
        check_free(&info, name);
        int64_t began_ms = test_now_ms();
        mortise_lease *lease = take(client, name, 60000);
        CU_ASSERT(soon_tells_token(other, name, mortise_token(lease)));
        info = look(other, name);
        check_holder(&info, name, lease, began_ms);
        info = look(client, name);
        check_holder(&info, name, lease, began_ms);
        give(lease);
        info = look(other, name);
        check_free(&info, name);
    }
    close_client(client);
    close_client(other);
}

static void test_inspect_waiters(void)
{
    mortise_client *client = open_client(NULL), *other = open_client(NULL);
    const char *name = fresh_name();
    mortise_lease *lease = take(client, name, 60000);
    if (has(MORTISE_CAP_INSPECT) && look(client, name).waiters >= 0) {
        struct pending pending = PENDING_INIT;
        pending_start(&pending, other, name, MORTISE_OPTIONS(.wait_ms = -1));
        CU_ASSERT(wait_waiters(name, 1));
        EXPECT(OK, mortise_cancel(other, pending.request));
        PENDING_EXPECT(&pending, CANCELED);
        CU_ASSERT(wait_waiters(name, 0)); /* a caller that gives up leaves nothing behind */
    }
    give(lease);
    close_client(client);
    close_client(other);
}

static void test_inspect_over_processes(void)
{
    struct test_process taker;
    const char *name = fresh_name();
    char line[300];
    if (!subject.processes || !has(MORTISE_CAP_INSPECT) || !taker_start(&taker, NULL))
        return;
    snprintf(line, sizeof line, "acquire %s 0 60000", name);
    uint64_t token = taker_number(&taker, line);
    mortise_info info = look(subject.looker, name);
    CU_ASSERT(info.held);
    CU_ASSERT_EQUAL(info.pid, taker.pid);
    if (!CHECK(soon_tells_token(subject.looker, name, has(MORTISE_CAP_FENCING) ? token : 0)))
        fprintf(stderr, "token %llu, inspect said %llu\n", (unsigned long long)token,
                (unsigned long long)info.token);
    CU_ASSERT_STRING_EQUAL(info.program, "taker");
    taker_end(&taker);
}

struct listed {
    char names[1024];
    int count, stop_after;
};

static bool note(const mortise_info *info, void *user_data)
{
    struct listed *listed = user_data;
    size_t used = strlen(listed->names), start = strlen(test_prefix());
    CU_ASSERT(info->held);
    CU_ASSERT_EQUAL(info->size, sizeof *info);
    snprintf(listed->names + used, sizeof listed->names - used, "%s,",
             strlen(info->name) >= start ? info->name + start : "?");
    return ++listed->count != listed->stop_after;
}

static void expect_listed(mortise_client *client, const char *below, int stop_after,
                          const char *names)
{
    struct listed listed = {.stop_after = stop_after};
    char prefix[160];
    snprintf(prefix, sizeof prefix, "%s%s", test_prefix(), below);
    EXPECT(OK, mortise_list(client, prefix, note, &listed, &detail));
    CU_ASSERT_STRING_EQUAL(listed.names, names);
}

static void test_list(void)
{
    static const char *const ends[] = {"b", "a/2", "a", "\xff", "a/1", "A", "a%", "a_b"};
    enum { COUNT = sizeof ends / sizeof *ends };
    mortise_client *client = open_client(NULL), *other = open_client(NULL);
    mortise_lease *leases[COUNT];
    char name[160];
    struct listed listed = {.stop_after = 0};
    if (!has(MORTISE_CAP_LIST)) {
        EXPECT(NOTSUP, mortise_list(client, "", note, &listed, &detail));
    } else {
        expect_listed(other, "", 0, "");
        for (size_t i = 0; i < COUNT; i++) {
            snprintf(name, sizeof name, "%s%s", test_prefix(), ends[i]);
            leases[i] = take(client, name, 60000);
        }
        expect_listed(other, "", 0, "A,a,a%,a/1,a/2,a_b,b,\xff,");
        expect_listed(other, "a", 0, "a,a%,a/1,a/2,a_b,");
        expect_listed(other, "a/", 0, "a/1,a/2,");
        expect_listed(other, "a%", 0, "a%,");
        expect_listed(other, "a_", 0, "a_b,");
        expect_listed(other, "\xff", 0, "\xff,");
        expect_listed(other, "", 2, "A,a,");
        expect_listed(client, "nothing", 0, "");
        EXPECT(OK, mortise_list(client, NULL, note, &listed, &detail));
        CU_ASSERT(listed.count >= COUNT);
        for (size_t i = 0; i < COUNT; i++)
            give(leases[i]);
        expect_listed(other, "", 0, "");
    }
    close_client(client);
    close_client(other);
}

/* Expired claims are not listed, and not held. */
static void test_expired_is_gone(void)
{
    mortise_client *client = open_client(NULL), *other = open_client(NULL);
    const char *name = fresh_name();
    mortise_lease *lease, *next;
    EXPECT(OK, mortise_acquire(client, name,
                               MORTISE_OPTIONS(.wait_ms = TEST_PATIENCE_MS,
                                               .ttl_ms = subject.ttl_ms, .no_renew = true),
                               &lease, &detail));
    EXPECT(OK, mortise_acquire(other, name, MORTISE_OPTIONS(.wait_ms = TEST_PATIENCE_MS), &next,
                               &detail));
    if (has(MORTISE_CAP_INSPECT))
        CU_ASSERT(soon_tells_token(client, name, mortise_token(next)));
    give(next);
    if (has(MORTISE_CAP_INSPECT))
        CU_ASSERT_FALSE(look(client, name).held);
    if (has(MORTISE_CAP_LIST))
        expect_listed(client, "", 0, "");
    EXPECT(LOST, mortise_release(lease, &detail));
    close_client(client);
    close_client(other);
}

static void test_stack(void)
{
    mortise_client *client = open_client(NULL);
    mortise_module_info info = {.size = sizeof info};
    char text[256] = "";
    char last_kind[32] = "";
    size_t count = 0;
    while (mortise_module_at(client, count, &info)) {
        CU_ASSERT(info.name && *info.name && info.section && *info.section);
        CU_ASSERT(info.version && *info.version && info.summary && *info.summary);
        CU_ASSERT(info.path && access(info.path, R_OK) == 0);
        CU_ASSERT(info.kind && *info.kind);
        if (info.kind && strcmp(info.kind, "observer") != 0)
            snprintf(last_kind, sizeof last_kind, "%s", info.kind);
        if (count == 0)
            CU_ASSERT_EQUAL(info.capabilities, mortise_capabilities(client));
        count++;
    }
    CU_ASSERT(count >= 1);
    CU_ASSERT_STRING_EQUAL(last_kind, "driver"); /* the end of the stack */
    CU_ASSERT_PTR_NOT_NULL(mortise_config_source(client));
    EXPECT(OK, mortise_ping(client, text, sizeof text, &detail));
    CU_ASSERT(strlen(text) > 0);
    CU_ASSERT(has(MORTISE_CAP_LEASE) || has(MORTISE_CAP_SESSION));
    close_client(client);
    CU_ASSERT_EQUAL(mortise_capabilities(client), 0);
    CU_ASSERT_PTR_NULL(mortise_config_source(client));
    CU_ASSERT_FALSE(mortise_module_at(client, 0, &info));
}

/* Reads a record; its version, and what it holds in text. */
static uint64_t record_of(mortise_client *client, const char *name, char *text, size_t room)
{
    uint64_t version = 0;
    size_t size = room - 1;
    EXPECT(OK, mortise_record_read(client, name, text, &size, &version, &detail));
    CU_ASSERT_FATAL(size < room);
    text[size] = '\0';
    return version;
}

/* Compare and write; outlives the client that wrote; a lock of that name is another thing. */
static void test_records(void)
{
    mortise_client *client = open_client(NULL), *other;
    const char *name = fresh_name();
    static char text[MORTISE_RECORD_MAX + 1], large[MORTISE_RECORD_MAX];
    uint64_t version = 0, stale = 0;
    size_t size = 0;
    mortise_status status = mortise_record_write(client, name, "a\0b", 3, &version, &detail);
    if (status == MORTISE_NOTSUP) { /* then nobody can read either */
        EXPECT(NOTSUP, mortise_record_read(client, name, NULL, &size, &version, &detail));
        close_client(client);
        return;
    }
    EXPECT(OK, status);
    CU_ASSERT(version > 0);
    EXPECT(BUSY, mortise_record_write(client, name, "again", 5, &stale, &detail));
    close_client(client);
    other = open_client(NULL);
    CU_ASSERT_EQUAL(record_of(other, name, text, sizeof text), version);
    CU_ASSERT_EQUAL(memcmp(text, "a\0b", 4), 0);
    stale = version;
    memset(large, 'x', sizeof large);
    EXPECT(OK, mortise_record_write(other, name, large, sizeof large, &version, &detail));
    CU_ASSERT(version > stale);
    EXPECT(BUSY, mortise_record_write(other, name, "stale", 5, &stale, &detail));
    CU_ASSERT_EQUAL(record_of(other, name, text, sizeof text), version);
    CU_ASSERT_EQUAL(memcmp(text, large, sizeof large), 0);
    size = 10; /* cut, and the whole length told */
    EXPECT(OK, mortise_record_read(other, name, text, &size, &version, &detail));
    CU_ASSERT_EQUAL(size, sizeof large);
    CU_ASSERT_EQUAL(record_of(other, fresh_name(), text, sizeof text), 0);
    give(take(other, name, 60000));
    EXPECT(OK, mortise_record_write(other, name, NULL, 0, &version, &detail));
    CU_ASSERT_EQUAL(record_of(other, name, text, sizeof text), version);
    CU_ASSERT_STRING_EQUAL(text, "");
    close_client(other);
}

const CU_TestInfo look_tests[] = {
    {"inspect", test_inspect},
    {"inspect counts who waits", test_inspect_waiters},
    {"inspect over processes", test_inspect_over_processes},
    {"list", test_list},
    {"what expired is gone", test_expired_is_gone},
    {"the stack", test_stack},
    {"records", test_records},
    CU_TEST_INFO_NULL,
};
