/* end_tests.c - the end of the numbers: a folder in which 2^31 nodes were created. No test can create so many, so a
 * line is added to the log of a stopped server, which reads from it how many nodes the folder has had. */
#include "stage.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define LAST INT32_MAX

/* ---- a line of the server's log ---------------------------------------------------------------------------- */

struct bytes {
    unsigned char data[512];
    size_t size;
};

static void put_number(struct bytes *bytes, uint64_t number, size_t size)
{
    while (size-- > 0)
        bytes->data[bytes->size++] = (unsigned char)(number >> (8 * size));
}

static void put_text(struct bytes *bytes, const char *text)
{
    put_number(bytes, strlen(text), 4);
    memcpy(bytes->data + bytes->size, text, strlen(text));
    bytes->size += strlen(text);
}

static uint64_t adler32(const struct bytes *bytes)
{
    uint32_t low = 1, high = 0;
    for (size_t i = 0; i < bytes->size; i++) {
        low = (low + bytes->data[i]) % 65521;
        high = (high + low) % 65521;
    }
    return (uint64_t)high << 16 | low;
}

/* The creation of a node, after which its folder has given so many numbers. */
static struct bytes creation(const char *path, int64_t zxid, int32_t numbers)
{
    struct bytes bytes = {.size = 0};
    put_number(&bytes, 0, 8); /* session */
    put_number(&bytes, 0, 4);
    put_number(&bytes, (uint64_t)zxid, 8);
    put_number(&bytes, 0, 8); /* time */
    put_number(&bytes, 1, 4); /* create */
    put_text(&bytes, path);
    put_text(&bytes, "");
    put_number(&bytes, 1, 4); /* ACL: one entry, all rights, everybody */
    put_number(&bytes, 31, 4);
    put_text(&bytes, "world");
    put_text(&bytes, "anyone");
    put_number(&bytes, 0, 1); /* not ephemeral */
    put_number(&bytes, (uint32_t)numbers, 4);
    return bytes;
}

static bool add_log(int64_t zxid, const struct bytes *entry)
{
    char path[400];
    struct bytes head = {.size = 0};
    snprintf(path, sizeof path, "%s/1/data/version-2/log.%" PRIx64, stage.folder, (uint64_t)zxid);
    put_number(&head, 0x5a4b4c47, 4); /* "ZKLG" */
    put_number(&head, 2, 4);
    put_number(&head, 0, 8);
    put_number(&head, adler32(entry), 8);
    put_number(&head, entry->size, 4);
    FILE *file = fopen(path, "wbx");
    if (!file)
        return false;
    bool written = fwrite(head.data, head.size, 1, file) == 1 &&
                   fwrite(entry->data, entry->size, 1, file) == 1 && fputc('B', file) == 'B';
    return fclose(file) == 0 && written;
}

static bool is_back(void *argument)
{
    struct Stat stat;
    return zoo_exists(stage.peek, argument, 0, &stat) == ZOK;
}

/* The folder of the name, as if so many nodes had been made in it. */
static void come_far(const char *name, int32_t numbers)
{
    char path[64], child[80];
    struct Stat stat;
    snprintf(path, sizeof path, "/faults/%s", name);
    snprintf(child, sizeof child, "%s/start", path);
    CU_ASSERT_FATAL(node_make(name, NULL));
    CU_ASSERT_EQUAL_FATAL(zoo_exists(stage.peek, path, 0, &stat), ZOK);
    CU_ASSERT_FATAL(stage_server("kill", 0));
    struct bytes entry = creation(child, stat.czxid + 100, numbers);
    CU_ASSERT_FATAL(add_log(stat.czxid + 100, &entry));
    CU_ASSERT_FATAL(stage_server("start", 0));
    CU_ASSERT_FATAL(test_poll(is_back, child, TEST_PATIENCE_MS));
    CU_ASSERT_EQUAL(zoo_delete(stage.peek, child, -1), ZOK);
}

/* ---- tests ---------------------------------------------------------------------------------------------------- */

/* Makes four contenders in one step, as requests that come close together would: the numbers go over the end. */
static void make_four(const char *name, char made[4][128])
{
    char path[64];
    zoo_op_t ops[4];
    zoo_op_result_t results[4];
    snprintf(path, sizeof path, "/faults/%s/x-lock-", name);
    for (int i = 0; i < 4; i++)
        zoo_create_op_init(&ops[i], path, "", 0, &ZOO_OPEN_ACL_UNSAFE, ZOO_PERSISTENT_SEQUENTIAL,
                           made[i], 128);
    CU_ASSERT_EQUAL_FATAL(zoo_multi(stage.peek, 4, ops, results), ZOK);
    for (int i = 0; i < 4; i++)
        memmove(made[i], strrchr(made[i], '/') + 1, strlen(strrchr(made[i], '/')));
}

static bool has_number(const char *node, const char *number)
{
    return strcmp(strstr(node, "-lock-") + 6, number) == 0;
}

/* Shared leases with numbers that do not decide: one after the other, in the order in which they came, and that one is the
 * holder for inspect. */
static void readers_over_the_end(const char *name, mortise_client **clients)
{
    struct waiter waiters[3] = {
        {.mode = MORTISE_SHARED}, {.mode = MORTISE_SHARED}, {.mode = MORTISE_EXCLUSIVE}};
    for (int i = 0; i < 3; i++) {
        waiter_start(&waiters[i], clients[i], name);
        CU_ASSERT(wait_contenders(name, 1 + i));
    }
    for (int i = 0; i < 3; i++) {
        mortise_info info = {.size = sizeof info};
        CU_ASSERT_EQUAL(waiter_join(&waiters[i]), MORTISE_OK);
        EXPECT(OK, mortise_inspect(clients[2], name, &info, &detail));
        CU_ASSERT(info.holders == 1 && info.token == mortise_token(waiters[i].lease));
        for (int k = i + 1; k < 3; k++)
            SAFE(!test_count_wait_ms(&waiters[k].done, 1, 100));
        EXPECT(OK, mortise_release(waiters[i].lease, &detail));
    }
}

/* A node with a negative number holds; the server gives 2147483647 again to those that come after it. */
static void test_over_the_end_kazoo_730(void)
{
    mortise_client *clients[3];
    const char *name = fresh_name();
    struct waiter waiters[2] = {{0}};
    char made[4][128], node[128];
    mortise_lease *none;
    for (int i = 0; i < 3; i++)
        clients[i] = client_direct("");
    CU_ASSERT_EQUAL(mortise_release(take(clients[0], fresh_name()), NULL), MORTISE_OK);
    come_far(name, LAST - 1);
    make_four(name, made);
    CU_ASSERT(has_number(made[0], "2147483646") && has_number(made[1], "2147483647"));
    CU_ASSERT(has_number(made[2], "-2147483648") && has_number(made[3], "-2147483647"));
    CU_ASSERT(node_delete(name, made[0]) && node_delete(name, made[1]));
    for (int i = 0; i < 2; i++) {
        waiter_start(&waiters[i], clients[i], name);
        CU_ASSERT(wait_contenders(name, 3 + i));
    }
    EXPECT(BUSY, mortise_acquire(clients[2], name, MORTISE_OPTIONS(.wait_ms = 0), &none, &detail));
    CU_ASSERT(node_delete(name, made[3]));
    CU_ASSERT(contender(name, 1, node, sizeof node) && has_number(node, "2147483647"));
    SAFE(!test_count_wait_ms(&waiters[0].done, 1, 300));
    SAFE(test_count_get(&waiters[1].done) == 0);
    CU_ASSERT(node_delete(name, made[2]));
    CU_ASSERT_EQUAL(waiter_join(&waiters[0]), MORTISE_OK);
    SAFE(!test_count_wait_ms(&waiters[1].done, 1, 300));
    EXPECT(OK, mortise_release(waiters[0].lease, &detail));
    CU_ASSERT_EQUAL(waiter_join(&waiters[1]), MORTISE_OK);
    EXPECT(OK, mortise_release(waiters[1].lease, &detail));
    readers_over_the_end(name, clients);
    for (int i = 0; i < 3; i++)
        client_end(clients[i]);
}

const CU_TestInfo end_tests[] = {
    {"kazoo#730: over the end of the numbers", test_over_the_end_kazoo_730},
    CU_TEST_INFO_NULL,
};
