/* test_sqlite_checkpoints.c - when the SQLite module copies its log, and how often it tries if it cannot. */
#include "sqlite_host.h"

enum { FRAME_BYTES = 24 + 1024, CHECKPOINT_FRAMES = 1000, TRY_FRAMES = 250, ROUNDS_MAX = 4000 };

static const char *path;

static int take_number(void *number, int count, char **texts, char **names)
{
    (void)names;
    if (count == 1 && texts[0] != NULL)
        *(int64_t *)number = strtoll(texts[0], NULL, 10);
    return 0;
}

/* Each try that gets as far as the lock of the folder writes first. */
static int64_t count_tries(void)
{
    int (*open_db)(const char *, void **) =
        (int (*)(const char *, void **))dlsym(library, "sqlite3_open");
    int (*exec)(void *, const char *, void *, void *, void *) =
        (int (*)(void *, const char *, void *, void *, void *))dlsym(library, "sqlite3_exec");
    void *db = NULL;
    int64_t number = 0;
    CU_ASSERT_EQUAL_FATAL(open_db(path, &db), 0);
    CU_ASSERT_EQUAL(exec(db, "SELECT value FROM mortise_meta WHERE key = 'checkpoints'",
                         (void *)(uintptr_t)take_number, &number, NULL),
                    0);
    outside_close(db);
    return number;
}

static int64_t count_frames(void)
{
    char file[PATHS_MAX];
    struct stat about;
    CU_ASSERT_EQUAL_FATAL(stat(joined(file, path, "-wal"), &about), 0);
    return about.st_size / FRAME_BYTES;
}

/* Others ask in between, in vain. */
static void take_turn(struct client *client)
{
    struct call lock, other;
    CU_ASSERT_EQUAL(acquire(client, &lock, "a", 0), MORTISE_OK);
    CU_ASSERT_EQUAL(acquire(client, &other, "a", MORTISE_OP_TRY), MORTISE_BUSY);
    CU_ASSERT_EQUAL(release(client, &lock), MORTISE_OK);
    CU_ASSERT_EQUAL(acquire(client, &other, "held", MORTISE_OP_TRY), MORTISE_BUSY);
}

static void take_turns(struct client *client, int64_t frames)
{
    for (int i = 0; i < ROUNDS_MAX && count_frames() < frames; i++)
        take_turn(client);
    CU_ASSERT_TRUE(count_frames() >= frames);
}

/* Somebody reads for long: no checkpoint can be completed. It is tried again only when the log has grown. */
static void test_pinned(void)
{
    struct client client;
    struct call held;
    void *reader = NULL;
    path = database("pinned");
    OPEN_OK(&client, "path", path);
    CU_ASSERT_EQUAL(acquire(&client, &held, "held", 0), MORTISE_OK);
    CU_ASSERT_EQUAL(outside(path, "BEGIN; SELECT * FROM mortise_meta", &reader), 0);
    take_turns(&client, CHECKPOINT_FRAMES + TRY_FRAMES);
    int64_t tries = count_tries();
    take_turns(&client, CHECKPOINT_FRAMES + 5 * TRY_FRAMES);
    tries = count_tries() - tries;
    CU_ASSERT_TRUE(tries >= 3 && tries <= 5);
    CU_ASSERT_EQUAL(outside(path, "COMMIT", &reader), 0);
    outside_close(reader);
    /* the next try copies all of it, and the log begins anew: then it grows to the same length again */
    int64_t frames = count_frames();
    tries = count_tries();
    for (int i = 0; i < ROUNDS_MAX && count_tries() < tries + 2; i++)
        take_turn(&client);
    CU_ASSERT_EQUAL(count_tries(), tries + 2);
    CU_ASSERT_TRUE(count_frames() <= frames + TRY_FRAMES);
    CU_ASSERT_EQUAL(release(&client, &held), MORTISE_OK);
    client_close(&client);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"none can be completed", test_pinned},
        CU_TEST_INFO_NULL,
    };
    return host_run("sqlite checkpoints", tests);
}
