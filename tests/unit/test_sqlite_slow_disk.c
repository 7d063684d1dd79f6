/* test_sqlite_slow_disk.c - the SQLite module on a disk that takes seconds to flush: a checkpoint that is long is told in the
 * log, because this client executes nothing meanwhile. Only the test's clock goes on while it flushes. */
#include "sqlite_host.h"

#include <sys/syscall.h>

enum { ROUNDS_MAX = 1500, ROUND_COMMITS = 2, CHECKPOINT_COMMITS = 1000 };

static int64_t flush_takes_ns;
static unsigned flushes;

static int flush(long number, int fd)
{
    clock_stopped_ns += flush_takes_ns;
    flushes++;
    return (int)syscall(number, fd);
}

/* In place of the C library's. */
__attribute__((visibility("default"))) int fdatasync(int fd)
{
    return flush(SYS_fdatasync, fd);
}

__attribute__((visibility("default"))) int fsync(int fd)
{
    return flush(SYS_fsync, fd);
}

static void take_turns(struct client *client, int rounds)
{
    struct call lock;
    for (int i = 0; i < rounds && client->logs == 0; i++) {
        CU_ASSERT_EQUAL(acquire(client, &lock, "a", 0), MORTISE_OK);
        CU_ASSERT_EQUAL(release(client, &lock), MORTISE_OK);
    }
}

static void test_slow(void)
{
    struct client client;
    OPEN_OK(&client, "path", database("slow"));
    clock_stop();
    flush_takes_ns = 700 * MS; /* of the log, and of the file */
    flushes = 0;
    take_turns(&client, ROUNDS_MAX);
    flush_takes_ns = 0;
    CU_ASSERT_EQUAL(client.logs, 1);
    CU_ASSERT_PTR_NOT_NULL(strstr(client.last_log, "slow.db: a checkpoint took 1400 ms"));
    CU_ASSERT_TRUE(flushes >= 2);
    clock_go_on();
    client_close(&client);
}

static void test_quick(void)
{
    struct client client;
    OPEN_OK(&client, "path", database("quick"));
    clock_stop(); /* however slow this disk is */
    flushes = 0;
    take_turns(&client, CHECKPOINT_COMMITS / ROUND_COMMITS + 1);
    CU_ASSERT_TRUE(flushes >= 2); /* there was one */
    CU_ASSERT_EQUAL(client.logs, 0);
    clock_go_on();
    client_close(&client);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"a checkpoint that takes long is told", test_slow},
        {"a quick one is not", test_quick},
        CU_TEST_INFO_NULL,
    };
    return host_run("sqlite slow disk", tests);
}
