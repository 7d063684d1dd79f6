/* test_sqlite_checkpoints.c - when the SQLite module copies its log, how often it tries if it cannot, and whether the log
 * begins anew. */
#include "sqlite_host.h"

#include <sys/syscall.h>

enum {
    FRAME_BYTES = 24 + 1024,
    CHECKPOINT_FRAMES = 1000,
    TRY_FRAMES = 250,
    LONG_FRAMES = 4000,
    ROUNDS_MAX = 4000
};

static const char *path;
static bool dies;      /* this process, when it flushes a file */
static bool disturbed; /* each flush is: another program commits meanwhile, if it can */
static void *disturber;
static unsigned commits; /* of it */
static int64_t flush_takes_ns;

static int flush(long number, int fd)
{
    if (dies)
        kill(getpid(), SIGKILL);
    if (disturbed)
        commits += outside(path, "REPLACE INTO mortise_meta VALUES ('disturbed', random())",
                           &disturber) == 0;
    clock_stopped_ns += flush_takes_ns;
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

static void begin_disturbing(void)
{
    CU_ASSERT_EQUAL(
        outside(path, "PRAGMA wal_autocheckpoint = 0; PRAGMA synchronous = OFF", &disturber),
        0); /* it neither copies nor flushes */
    commits = 0;
    disturbed = true;
}

/* Others commit while a checkpoint is made, so it is never all of the log that was copied. It is tried again only when the log
 * has grown. If it has grown long, they cannot commit before all of it is copied; but they need not wait for a slow disk. */
static void test_disturbed(void)
{
    struct client client;
    struct call held;
    path = database("disturbed");
    OPEN_OK(&client, "path", path);
    held = call_make(MORTISE_OP_ACQUIRE, "held");
    held.op.ttl_ms = 3600000;
    CU_ASSERT_EQUAL(run(&client, &held), MORTISE_OK);
    begin_disturbing();
    take_turns(&client, CHECKPOINT_FRAMES + TRY_FRAMES);
    int64_t tries = count_tries();
    take_turns(&client, CHECKPOINT_FRAMES + 5 * TRY_FRAMES);
    tries = count_tries() - tries;
    CU_ASSERT_TRUE(tries >= 3 && tries <= 5);
    CU_ASSERT_TRUE(commits >= 4);
    clock_stop();
    flush_takes_ns = 600 * MS;
    take_turns(&client, LONG_FRAMES + 4 * TRY_FRAMES);
    flush_takes_ns = 0;
    for (int i = 0; i < LONG_FRAMES; i++)
        take_turn(&client);
    clock_go_on();
    CU_ASSERT_TRUE(count_frames() <= LONG_FRAMES + 6 * TRY_FRAMES);
    disturbed = false;
    outside_close(disturber);
    CU_ASSERT_EQUAL(release(&client, &held), MORTISE_OK);
    client_close(&client);
}

static void stay(void *pipe_fds)
{
    const int *fds = pipe_fds;
    close(fds[1]);
    hear(fds); /* until the test closes the other end */
}

static void die_with_a_child(void *pipe_fds)
{
    struct client client;
    struct call lock;
    OPEN_OK(&client, "path", path);
    child_start(stay, pipe_fds);
    for (int i = 0; i < ROUNDS_MAX; i++) {
        CU_ASSERT_EQUAL(acquire(&client, &lock, "a", 0) | release(&client, &lock), MORTISE_OK);
        dies =
            true; /* the header of the log is flushed by now, so the next flush is that of a checkpoint */
    }
}

/* A process is killed in a checkpoint, and a child that it has forked lives on: others make checkpoints all the same. */
static void test_killed(void)
{
    struct client client;
    struct call lock;
    int fds[2];
    path = database("killed");
    if (pipe2(fds, O_CLOEXEC) != 0)
        abort();
    CU_ASSERT_EQUAL(child_end(child_start(die_with_a_child, fds)), 128 + SIGKILL);
    OPEN_OK(&client, "path", path);
    int64_t tries = count_tries();
    for (int i = 0; i < ROUNDS_MAX && count_tries() == tries; i++)
        CU_ASSERT_EQUAL(acquire(&client, &lock, "b", 0) | release(&client, &lock), MORTISE_OK);
    CU_ASSERT_TRUE(count_tries() > tries);
    client_close(&client);
    close(fds[0]);
    close(fds[1]);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"none can be completed", test_pinned},
        {"others commit meanwhile", test_disturbed},
        {"killed, with a child", test_killed},
        CU_TEST_INFO_NULL,
    };
    return host_run("sqlite checkpoints", tests);
}
