/* op_tests.c - what only plugins request from a driver: tokens above a floor, and small records. And requests that come, or are
 * lost, at a bad moment. */
#include "rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- tokens -------------------------------------------------------------------------------------------- */

static uint64_t token_of(struct rig *rig, const char *name, unsigned char grant, uint64_t floor)
{
    mortise_op op = rig_acquire(name, grant, floor);
    rig_start(rig, &op);
    CU_ASSERT_EQUAL(rig_finish(rig, NULL, &op), MORTISE_OK);
    CU_ASSERT(op.token >= floor);
    rig_release(rig, &op);
    return op.token;
}

/* A floor raises the base for all: later tokens of every client are above it, without a floor. */
static void test_floors(void)
{
    static struct rig one, two;
    const uint64_t high = UINT64_C(2000000000000000);
    CU_ASSERT_FATAL(rig_load());
    rig_open(&one, "00000000000000000000000000000001");
    rig_open(&two, "00000000000000000000000000000002");
    uint64_t low = token_of(&one, "a", 1, 0);
    CU_ASSERT(low > 0 && low < high);
    CU_ASSERT_EQUAL(token_of(&two, "a", 2, high), high);
    uint64_t next = token_of(&one, "a", 3, 0);
    CU_ASSERT(next > high && next < high + 1000);
    CU_ASSERT(token_of(&one, "b", 4, low) > next); /* a floor that is below asks for nothing */
    for (unsigned char i = 0; i < 20;
         i++) { /* both at once: one of them is too late, and reads it again */
        uint64_t floor = high + (uint64_t)(i + 1) * 1000000;
        mortise_op first = rig_acquire("c", (unsigned char)(10 + i), floor + i),
                   second = rig_acquire("d", (unsigned char)(100 + i), floor);
        rig_start(&one, &first);
        rig_start(&two, &second);
        CU_ASSERT_EQUAL(rig_finish(&one, &two, &first), MORTISE_OK);
        CU_ASSERT_EQUAL(rig_finish(&two, &one, &second), MORTISE_OK);
        CU_ASSERT(first.token >= floor + i && second.token >= floor);
        rig_release(&one, &first);
        rig_release(&two, &second);
    }
    CU_ASSERT(token_of(&two, "c", 200, 0) > high + 20 * 1000000);
    mortise_op beyond = rig_acquire("e", 201, UINT64_MAX); /* its base could not be read again */
    rig_start(&one, &beyond);
    CU_ASSERT_EQUAL(rig_finish(&one, &two, &beyond), MORTISE_BACKEND);
    CU_ASSERT(token_of(&one, "e", 202, 0) < high + 100 * 1000000);
    rig_close(&one);
    rig_close(&two);
}

/* How often the base was written. */
static int base_writes(void)
{
    struct Stat stat = {0};
    int rc = zoo_exists(stage.peek, "/ops/%tokens", 0, &stat);
    CU_ASSERT(rc == ZOK || rc == ZNONODE);
    return rc == ZOK ? stat.version + 1 : 0;
}

/* Many at once that each need a larger base, as in phase both of a migration: each gets its floor at least, and they do not
 * write the base one after the other. Readers of one name still get larger tokens in the order of their places. */
#define MANY 200
#define TOGETHER 4

static void test_many_floors(void)
{
    static struct rig one, two;
    static mortise_op ops[MANY + TOGETHER];
    static char names[MANY][8];
    const uint64_t high = UINT64_C(3000000000000000);
    CU_ASSERT_FATAL(rig_load());
    rig_open(&one, "00000000000000000000000000000007");
    rig_open(&two, "00000000000000000000000000000008");
    (void)token_of(&one, "m", 1, 0);
    int before = base_writes();
    for (int i = 0; i < MANY; i++) {
        snprintf(names[i], sizeof names[i], "m%d", i);
        ops[i] = rig_acquire(names[i], (unsigned char)(i + 1), high + 10000 * (uint64_t)(i + 1));
        rig_start(&one, &ops[i]);
    }
    for (int i = 0; i < MANY; i++) {
        CU_ASSERT_EQUAL(rig_finish(&one, NULL, &ops[i]), MORTISE_OK);
        /* more if the client had to connect again: then it reads what it has written for all */
        CU_ASSERT_TRUE(ops[i].token >= high + 10000 * (uint64_t)(i + 1));
    }
    CU_ASSERT(base_writes() - before < MANY / 4);
    uint64_t last = 0;
    for (int i = MANY; i < MANY + TOGETHER; i++) {
        ops[i] = rig_acquire("m", (unsigned char)(i - MANY + 1),
                             2 * high - 10000 * (uint64_t)(i - MANY));
        ops[i].mode = MORTISE_SHARED;
        rig_start(&one, &ops[i]);
    }
    for (int i = MANY; i < MANY + TOGETHER; i++) {
        CU_ASSERT_EQUAL(rig_finish(&one, NULL, &ops[i]), MORTISE_OK);
        CU_ASSERT(ops[i].token > last);
        last = ops[i].token;
    }
    for (int i = 0; i < MANY + TOGETHER; i++)
        rig_release(&one, &ops[i]);
    CU_ASSERT(token_of(&two, "m", 9, 0) > last);
    CU_ASSERT(token_of(&two, "m7", 9, 0) > last); /* the base is for all names */
    rig_close(&one);
    rig_close(&two);
}

/* ---- an acquire that comes at a bad moment ------------------------------------------------------------ */

static bool never(void *argument)
{
    (void)argument;
    return false;
}

/* The library is told that the session is over, and the pump is not yet: who asks then waits for the next one. */
#define ASKED 100

static void test_asked_as_the_session_ends(void)
{
    static struct rig one;
    static mortise_op ops[ASKED];
    static char names[ASKED][8];
    char text[256] = "";
    CU_ASSERT_FATAL(rig_load());
    rig_open(&one, "00000000000000000000000000000005");
    mortise_op ping = {.kind = MORTISE_OP_PING, .buffer = text, .buffer_size = sizeof text};
    rig_start(&one, &ping);
    CU_ASSERT_EQUAL_FATAL(rig_finish(&one, NULL, &ping), MORTISE_OK);
    CU_ASSERT(session_close_by_hand((int64_t)strtoull(strstr(text, "0x"), NULL, 16)));
    for (int i = 0; i < ASKED; i++) { /* from before the library is told until after it */
        snprintf(names[i], sizeof names[i], "f%d", i);
        ops[i] = rig_acquire(names[i], (unsigned char)(i + 1), 0);
        rig_start(&one, &ops[i]);
        CU_ASSERT_PTR_NULL(ops[i].issuer);
        test_poll(never, NULL, 20);
    }
    for (int i = 0; i < ASKED; i++) {
        CU_ASSERT_EQUAL(rig_finish(&one, NULL, &ops[i]), MORTISE_OK);
        rig_release(&one, &ops[i]);
    }
    rig_close(&one);
}

/* The same acquire comes again when the ttl of what it was given has passed: that is not given a second time. */
static void test_asked_again_too_late(void)
{
    static struct rig one;
    CU_ASSERT_FATAL(rig_load());
    rig_open(&one, "00000000000000000000000000000006");
    mortise_op op = rig_acquire("g", 1, 0);
    op.ttl_ms = 2000;
    rig_start(&one, &op);
    CU_ASSERT_EQUAL(rig_finish(&one, NULL, &op), MORTISE_OK);
    uint64_t token = op.token;
    test_poll(never, NULL, op.ttl_ms + 50); /* and the driver has no turn */
    rig_start(&one, &op);
    CU_ASSERT_EQUAL(rig_finish(&one, NULL, &op), MORTISE_INDETERMINATE);
    CU_ASSERT(token_of(&one, "g", 2, 0) > token); /* its node is gone */
    rig_close(&one);
}

/* ---- a downgrade in doubt ------------------------------------------------------------------------------ */

/* A node of /ops/down whose text ends or, if `begins` is not NULL, begins so. */
static bool find_text(const char *begins, const char *ends, char path[256])
{
    struct String_vector nodes = {0, NULL};
    bool found = false;
    char text[512];
    CU_ASSERT_EQUAL_FATAL(zoo_get_children(stage.peek, "/ops/down", 0, &nodes), ZOK);
    for (int i = 0; i < nodes.count && !found; i++) {
        int size = sizeof text - 1;
        snprintf(path, 256, "/ops/down/%s", nodes.data[i]);
        if (zoo_get(stage.peek, path, 0, text, &size, NULL) != ZOK)
            continue;
        text[size > 0 ? size : 0] = '\0';
        size_t length = strlen(text);
        found = begins != NULL
                    ? strncmp(text, begins, strlen(begins)) == 0
                    : length >= strlen(ends) && strcmp(text + length - strlen(ends), ends) == 0;
    }
    deallocate_String_vector(&nodes);
    return found;
}

#define REVOKE "__REVOKE__"

static bool is_written_again(void *rig)
{
    char path[256];
    rig_run(rig);
    return !find_text(REVOKE, NULL, path);
}

/* A client of Curator writes into the node of the holder, which says again that it is shared: readers get in. */
static void ask_for_it(struct rig *holder, struct rig *other, unsigned char grant)
{
    char path[256];
    CU_ASSERT_FATAL(find_text(NULL, "\nshared", path));
    CU_ASSERT_EQUAL(zoo_set(stage.peek, path, REVOKE, (int)strlen(REVOKE), -1), ZOK);
    CU_ASSERT(test_poll(is_written_again, holder, TEST_PATIENCE_MS));
    CU_ASSERT(find_text(NULL, "\nshared", path));
    mortise_op reader = rig_acquire("down", grant, 0);
    reader.mode = MORTISE_SHARED;
    reader.flags = MORTISE_OP_TRY;
    rig_start(other, &reader);
    CU_ASSERT_EQUAL(rig_finish(other, holder, &reader), MORTISE_OK);
    rig_release(other, &reader);
}

/* The answer to the downgrade is lost: it says so, and is repeated. A client of Curator that writes into the node cannot
 * undo it, before the repeat or after it. */
static void test_downgrade_reply_lost(void)
{
    static struct rig one, two;
    char server[32];
    CU_ASSERT_FATAL(rig_load());
    snprintf(server, sizeof server, "127.0.0.1:%d", stage.proxy.port);
    rig_open_at(&one, "00000000000000000000000000000021", server, LIFE_MS);
    rig_open(&two, "00000000000000000000000000000022");
    mortise_op held = rig_acquire("down", 1, 0), reader = rig_acquire("down", 2, 0);
    rig_start(&one, &held);
    CU_ASSERT_EQUAL_FATAL(rig_finish(&one, NULL, &held), MORTISE_OK);
    reader.mode = MORTISE_SHARED;
    rig_start(&two, &reader);
    mortise_op down = held;
    down.kind = MORTISE_OP_RENEW;
    down.flags = MORTISE_OP_DOWNGRADE;
    CU_ASSERT_FATAL(test_proxy_say(&stage.proxy, "hold-down"));
    rig_start(&one, &down);
    CU_ASSERT_EQUAL(rig_finish(&two, &one, &reader), MORTISE_OK);
    CU_ASSERT_PTR_NULL(down.issuer);
    CU_ASSERT_FATAL(test_proxy_say(&stage.proxy, "cut"));
    CU_ASSERT_EQUAL(rig_finish(&one, NULL, &down), MORTISE_INDETERMINATE);
    CU_ASSERT_FATAL(test_proxy_say(&stage.proxy, "pass"));
    ask_for_it(&one, &two, 3);
    do { /* until there is a connection again */
        rig_run(&one);
        rig_start(&one, &down);
        rig_finish(&one, NULL, &down);
    } while (down.status == MORTISE_UNREACHABLE || down.status == MORTISE_INDETERMINATE);
    CU_ASSERT_EQUAL(down.status, MORTISE_OK);
    ask_for_it(&one, &two, 4);
    struct String_vector nodes = {0, NULL};
    CU_ASSERT_EQUAL_FATAL(zoo_get_children(stage.peek, "/ops/down", 0, &nodes), ZOK);
    CU_ASSERT_EQUAL(nodes.count, 2);
    deallocate_String_vector(&nodes);
    rig_release(&two, &reader);
    rig_release(&one, &held);
    rig_close(&one);
    rig_close(&two);
}

/* ---- records -------------------------------------------------------------------------------------------- */

static mortise_status write_record(struct rig *rig, const char *text, size_t size,
                                   uint64_t *version)
{
    mortise_op op = {.kind = MORTISE_OP_WRITE,
                     .name = "the/record",
                     .name_len = 10,
                     .record = text,
                     .record_size = size,
                     .record_version = *version};
    rig_start(rig, &op);
    mortise_status status = rig_finish(rig, NULL, &op);
    if (status == MORTISE_OK)
        *version = op.record_version;
    return status;
}

static void expect_record(struct rig *rig, const char *text, size_t size, uint64_t version)
{
    char buffer[MORTISE_RECORD_MAX];
    mortise_op op = {.kind = MORTISE_OP_READ,
                     .name = "the/record",
                     .name_len = 10,
                     .buffer = buffer,
                     .buffer_size = sizeof buffer};
    rig_start(rig, &op);
    CU_ASSERT_EQUAL(rig_finish(rig, NULL, &op), MORTISE_OK);
    CU_ASSERT_EQUAL(op.record_version, version);
    CU_ASSERT_EQUAL_FATAL(op.record_size, size);
    CU_ASSERT_EQUAL(memcmp(buffer, text, size), 0);
}

static void test_records(void)
{
    static struct rig one, two;
    static char large[MORTISE_RECORD_MAX];
    uint64_t version = 0, stale = 0;
    CU_ASSERT_FATAL(rig_load());
    rig_open(&one, "00000000000000000000000000000003");
    rig_open(&two, "00000000000000000000000000000004");
    expect_record(&one, "", 0, 0);
    CU_ASSERT_EQUAL(write_record(&one, "a\0b", 3, &version), MORTISE_OK);
    CU_ASSERT(version > 0);
    expect_record(&two, "a\0b", 3, version);
    CU_ASSERT_EQUAL(write_record(&two, "other", 5, &stale), MORTISE_BUSY); /* must be absent */
    stale = version;
    CU_ASSERT_EQUAL(write_record(&two, large, sizeof large, &version), MORTISE_OK);
    CU_ASSERT(version > stale);
    CU_ASSERT_EQUAL(write_record(&one, "late", 4, &stale), MORTISE_BUSY);
    expect_record(&one, large, sizeof large, version);
    CU_ASSERT_EQUAL(write_record(&one, "", 0, &version), MORTISE_OK);
    expect_record(&two, "", 0, version);
    rig_close(&one);
    rig_close(&two);
}

const CU_TestInfo op_tests[] = {
    {"floors", test_floors},
    {"many floors at once", test_many_floors},
    {"asked as the session ends", test_asked_as_the_session_ends},
    {"asked again too late", test_asked_again_too_late},
    {"the reply of a downgrade is lost", test_downgrade_reply_lost},
    {"records", test_records},
    CU_TEST_INFO_NULL,
};
