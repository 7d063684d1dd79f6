/* test_sqlite_memory.c - the SQLite module without memory: each allocation fails in turn, alone or with all that
 * follow. An op then fails, or a waiter is notified later; the process goes on. Not with sanitizers, which have an
 * allocator of their own. */
#include "sqlite_host.h"

static unsigned left; /* allocations that succeed until one fails; 0: none fails */
static bool for_good; /* all that follow fail too */
static bool failed;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define REPLACED false
#else
#define REPLACED true

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);

static bool fails(void)
{
    if (left == 0 || --left > 0)
        return false;
    if (for_good)
        left = 1;
    failed = true;
    errno = ENOMEM;
    return true;
}

__attribute__((visibility("default"))) void *malloc(size_t size)
{
    return fails() ? NULL : __libc_malloc(size);
}

__attribute__((visibility("default"))) void *calloc(size_t count, size_t size)
{
    return fails() ? NULL : __libc_calloc(count, size);
}
#endif

static const char *path;

/* Asks, waits and gives up while memory runs out at the given allocation; then all is well again. */
static void wait_without_memory(struct client *holder, unsigned at)
{
    struct client client;
    struct call lock, other = call_make(MORTISE_OP_ACQUIRE, "a");
    OPEN_OK(&client, "path", path);
    CU_ASSERT_EQUAL(acquire(holder, &lock, "a", 0), MORTISE_OK);
    failed = false;
    left = at;
    mortise_status status = run(&client, &other);
    module->watch(client.ctx, "a", 1);
    module->watch(client.ctx, "b", 1);
    module->unwatch(client.ctx, "b", 1);
    left = 0;
    CU_ASSERT_TRUE(status == MORTISE_BUSY || status == MORTISE_NOMEM);
    unsigned news = client.news;
    CU_ASSERT_EQUAL(release(holder, &lock), MORTISE_OK);
    if (status == MORTISE_BUSY && inspect(holder, "a").waiters > 0)
        CU_ASSERT_TRUE(wait_news(&client, news + 1, PATIENCE_NS));
    module->unwatch(client.ctx, "a", 1);
    other = call_make(MORTISE_OP_ACQUIRE, "a");
    CU_ASSERT_EQUAL(run(&client, &other), MORTISE_OK);
    CU_ASSERT_EQUAL(release(&client, &other), MORTISE_OK);
    client_close(&client);
}

/* The holder cannot note whom it woke; the waiter is woken all the same. */
static void release_without_memory(unsigned at)
{
    struct client holder, client;
    struct call lock, other = call_make(MORTISE_OP_ACQUIRE, "a");
    OPEN_OK(&holder, "path", path);
    OPEN_OK(&client, "path", path);
    CU_ASSERT_EQUAL(acquire(&holder, &lock, "a", 0), MORTISE_OK);
    CU_ASSERT_EQUAL(run(&client, &other), MORTISE_BUSY);
    module->watch(client.ctx, "a", 1);
    failed = false;
    left = at;
    struct call call = call_about(MORTISE_OP_RELEASE, &lock);
    mortise_status status = run(&holder, &call);
    left = 0;
    if (status != MORTISE_OK)
        CU_ASSERT_EQUAL(release(&holder, &lock), MORTISE_OK);
    CU_ASSERT_TRUE(wait_news(&client, 1, PATIENCE_NS));
    module->unwatch(client.ctx, "a", 1);
    CU_ASSERT_EQUAL(run(&client, &other), MORTISE_OK);
    CU_ASSERT_EQUAL(release(&client, &other), MORTISE_OK);
    client_close(&client);
    client_close(&holder);
}

static void test_waiting(void)
{
    struct client holder;
    unsigned runs = 0;
    path = database("waiting");
    OPEN_OK(&holder, "path", path);
    for (int i = 0; i < 2 && REPLACED; i++) {
        for_good = i == 1;
        failed = true;
        for (unsigned at = 1; failed; at++, runs++)
            wait_without_memory(&holder, at);
    }
    CU_ASSERT_TRUE(runs > 4 || !REPLACED);
    client_close(&holder);
}

static void test_waking(void)
{
    unsigned runs = 0;
    path = database("waking");
    for (int i = 0; i < 2 && REPLACED; i++) {
        for_good = i == 1;
        failed = true;
        for (unsigned at = 1; failed; at++, runs++)
            release_without_memory(at);
    }
    CU_ASSERT_TRUE(runs > 4 || !REPLACED);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"no memory to wait", test_waiting},
        {"no memory to wake", test_waking},
        CU_TEST_INFO_NULL,
    };
    if (!REPLACED)
        fputs("skipped: a sanitizer's allocator cannot be made to fail\n", stderr);
    return REPLACED ? host_run("sqlite memory", tests) : 77;
}
