/* sqlite_talk.h - what the tests of the SQLite module's waiting share: a second process that waits for the name "a"
 * and reports it, and a check of what is left when nobody waits any more. */
#ifndef MORTISE_TESTS_SQLITE_TALK_H
#define MORTISE_TESTS_SQLITE_TALK_H

#include "sqlite_host.h"

#define WAIT_MS 20000 /* as good as never: the holders' ttl is 30 s */

static const char *path;

static inline struct call waiting(const char *name)
{
    return call_make(MORTISE_OP_ACQUIRE, name);
}

/* The row's list of waiters and the folder of inboxes are as they should be when nobody waits. */
static inline void assert_nothing_left(void)
{
    CU_ASSERT_EQUAL(
        outside(path,
                "CREATE TEMP TABLE t(x CHECK (x = 0)); INSERT INTO t SELECT count(*) FROM "
                "mortise_lock WHERE waiters IS NOT NULL OR grants IS NOT NULL",
                NULL),
        0);
    CU_ASSERT_EQUAL(entries_in(path, "-wake"), 0);
}

struct talk {
    int ready[2], go[2];
    int64_t *shared; /* instants that both processes see */
};

static inline struct talk talk_open(void)
{
    struct talk talk;
    if (pipe2(talk.ready, O_CLOEXEC) != 0 || pipe2(talk.go, O_CLOEXEC) != 0)
        abort();
    talk.shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (talk.shared == MAP_FAILED)
        abort();
    return talk;
}

static inline void talk_close(struct talk *talk)
{
    for (int i = 0; i < 2; i++) {
        close(talk->ready[i]);
        close(talk->go[i]);
    }
    munmap(talk->shared, 4096);
}

/* Registers as a waiter, says so, and tells when it was woken and how often it was turned till then. */
static inline void wait_once(void *argument)
{
    struct talk *talk = argument;
    struct client client;
    struct call lock = waiting("a");
    OPEN_OK(&client, "path", path);
    CU_ASSERT_EQUAL(run(&client, &lock), MORTISE_BUSY);
    module->watch(client.ctx, "a", 1);
    CU_ASSERT_EQUAL(client.news, 0); /* its place was part of the acquire */
    client.turns = 0;
    say(talk->ready);
    wait_news(&client, 1, WAIT_MS * MS);
    talk->shared[0] = time_now();
    talk->shared[1] = client.turns;
    CU_ASSERT_TRUE(client.news >= 1);
    CU_ASSERT_STRING_EQUAL(client.last_news, "a");
    CU_ASSERT_EQUAL(run(&client, &lock), MORTISE_OK);
    module->unwatch(client.ctx, "a", 1);
    CU_ASSERT_EQUAL(release(&client, &lock), MORTISE_OK);
    client_close(&client);
}

#endif
