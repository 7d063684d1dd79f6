/* test_sqlite_removed.c - somebody removes what SQLite keeps beside the file of the SQLite module, while it is in use: then
 * nobody may get a lock that another process has, for longer than until the next look. Also: the files look as if they
 * were in use to programs that delete what is old.
 *
 * The other process is one that shares nothing with this one: it is forked before anything is opened. */
#include "sqlite_host.h"

#define LOOK (11 * MS) /* the module looks again after this */

static const char *path;

/* ---- the other process --------------------------------------------------------------------------- */

struct other {
    pid_t pid;
    int ask[2], tell[2];
};

/* What it is asked: open; close; try "a", "b" (a letter); ten seconds pass; end. */
#define OPEN_IT '+'
#define CLOSE_IT '-'
#define PASS_TIME 't'
#define END_IT '.'

static char heed(char what, struct client *client)
{
    char name[2] = {what, '\0'};
    struct call lock;
    mortise_status status = MORTISE_OK;
    if (what == OPEN_IT)
        status = OPEN(client, "path", path);
    else if (what == CLOSE_IT)
        client_close(client);
    else if (what == PASS_TIME)
        clock_shift_ns += 10000 * MS;
    else
        status = acquire(client, &lock, name, MORTISE_OP_TRY);
    return (char)status;
}

static void live(void *argument)
{
    const struct other *other = argument;
    struct client client = {.ctx = NULL};
    char what, answer;
    while (read(other->ask[0], &what, 1) == 1 && what != END_IT) {
        answer = heed(what, &client);
        CU_ASSERT_EQUAL(write(other->tell[1], &answer, 1), 1);
    }
    if (client.ctx != NULL)
        client_close(&client);
}

static void other_start(struct other *other)
{
    if (pipe2(other->ask, O_CLOEXEC) != 0 || pipe2(other->tell, O_CLOEXEC) != 0)
        abort();
    other->pid = child_start(live, other);
}

static mortise_status other_does(const struct other *other, char what)
{
    char answer = (char)MORTISE_BACKEND;
    CU_ASSERT_EQUAL(write(other->ask[1], &what, 1), 1);
    CU_ASSERT_EQUAL(read(other->tell[0], &answer, 1), 1);
    return (mortise_status)answer;
}

static void other_end(struct other *other)
{
    char what = END_IT;
    CU_ASSERT_EQUAL(write(other->ask[1], &what, 1), 1);
    CU_ASSERT_EQUAL(child_end(other->pid), 0);
    for (int i = 0; i < 2; i++) {
        close(other->ask[i]);
        close(other->tell[i]);
    }
}

static void take_away(const char *suffix)
{
    char file[PATHS_MAX];
    CU_ASSERT_EQUAL(unlink(joined(file, path, suffix)), 0);
}

static mortise_status try_lock(struct client *client, const char *name)
{
    struct call lock;
    return acquire(client, &lock, name, MORTISE_OP_TRY);
}

/* ---- one client ------------------------------------------------------------------------------------ */

static void test_held_for_long(void)
{
    struct other other;
    struct client client;
    struct call lock;
    path = database("held");
    other_start(&other);
    OPEN_OK(&client, "path", path);
    CU_ASSERT_EQUAL(acquire(&client, &lock, "a", 0), MORTISE_OK);
    take_away("-shm");
    CU_ASSERT_EQUAL(other_does(&other, OPEN_IT), MORTISE_OK);
    for (int i = 0; i < 7; i++) { /* ten seconds each; the ttl is thirty */
        clock_shift_ns += 10000 * MS;
        CU_ASSERT_EQUAL(renew(&client, &lock), MORTISE_OK);
        other_does(&other, PASS_TIME);
        CU_ASSERT_EQUAL(other_does(&other, 'a'), MORTISE_BUSY);
    }
    CU_ASSERT_PTR_NOT_NULL(strstr(client.last_log, "held.db-shm was moved or deleted"));
    CU_ASSERT_EQUAL(client.logs, 1);
    CU_ASSERT_EQUAL(client.news_all, 1);
    CU_ASSERT_EQUAL(release(&client, &lock), MORTISE_OK);
    CU_ASSERT_EQUAL(other_does(&other, 'a'), MORTISE_OK);
    CU_ASSERT_EQUAL(try_lock(&client, "a"), MORTISE_BUSY);
    other_end(&other);
    client_close(&client);
}

/* The other process has written what this one's index does not have, and has closed the file. This one must not copy the
 * log by its index, nor delete it. */
static void test_came_and_went(void)
{
    struct other other;
    struct client client;
    struct call lock;
    path = database("went");
    other_start(&other);
    OPEN_OK(&client, "path", path);
    CU_ASSERT_EQUAL(acquire(&client, &lock, "a", 0), MORTISE_OK);
    take_away("-shm");
    CU_ASSERT_EQUAL(other_does(&other, OPEN_IT), MORTISE_OK);
    CU_ASSERT_EQUAL(other_does(&other, 'b'), MORTISE_OK);
    other_does(&other, CLOSE_IT);
    clock_shift_ns += LOOK;
    CU_ASSERT_EQUAL(try_lock(&client, "b"), MORTISE_BUSY);
    CU_ASSERT_EQUAL(renew(&client, &lock), MORTISE_OK);
    CU_ASSERT_EQUAL(client.logs, 1);
    other_end(&other);
    client_close(&client);
}

/* Nobody has opened the file since: what was in the log is known to this process alone, and it saves it. */
static void test_log_removed(void)
{
    struct other other;
    struct client client;
    struct call lock;
    path = database("log");
    other_start(&other);
    OPEN_OK(&client, "path", path);
    CU_ASSERT_EQUAL(acquire(&client, &lock, "a", 0), MORTISE_OK);
    take_away("-wal");
    take_away("-shm");
    clock_shift_ns += LOOK;
    CU_ASSERT_EQUAL(renew(&client, &lock), MORTISE_OK);
    CU_ASSERT_PTR_NOT_NULL(strstr(client.last_log, "log.db-wal was moved or deleted"));
    CU_ASSERT_EQUAL(other_does(&other, OPEN_IT), MORTISE_OK);
    CU_ASSERT_EQUAL(other_does(&other, 'a'), MORTISE_BUSY);
    other_end(&other);
    client_close(&client);
}

/* ---- several users of the file in one process -------------------------------------------------------- */

/* SQLite has one index for a process: a client that does nothing must not keep the old one in use. */
static void test_two_clients(void)
{
    struct other other;
    struct client one, two, three;
    path = database("two");
    other_start(&other);
    OPEN_OK(&one, "path", path);
    OPEN_OK(&two, "path", path);
    take_away("-shm");
    CU_ASSERT_EQUAL(other_does(&other, OPEN_IT), MORTISE_OK);
    CU_ASSERT_EQUAL(other_does(&other, 'a'), MORTISE_OK);
    clock_shift_ns += LOOK;
    CU_ASSERT_EQUAL(try_lock(&one, "a"), MORTISE_BUSY);
    CU_ASSERT_EQUAL(try_lock(&two, "a"), MORTISE_BUSY);
    take_away("-shm"); /* and one that is opened only now */
    other_does(&other, CLOSE_IT);
    CU_ASSERT_EQUAL(other_does(&other, OPEN_IT), MORTISE_OK);
    CU_ASSERT_EQUAL(other_does(&other, 'b'), MORTISE_OK);
    OPEN_OK(&three, "path", path);
    CU_ASSERT_EQUAL(try_lock(&three, "b"), MORTISE_BUSY);
    CU_ASSERT_EQUAL(try_lock(&one, "b"), MORTISE_BUSY);
    CU_ASSERT_EQUAL(try_lock(&two, "b"), MORTISE_BUSY);
    other_end(&other);
    client_close(&three);
    client_close(&two);
    client_close(&one);
}

/* The application has the file open by itself, with the same library. */
static void test_foreign_user(void)
{
    struct other other;
    struct client client, late;
    struct call lock = call_make(MORTISE_OP_ACQUIRE, "a");
    void *db = NULL;
    path = database("foreign");
    other_start(&other);
    OPEN_OK(&client, "path", path);
    CU_ASSERT_EQUAL(outside(path, "SELECT count(*) FROM mortise_lock", &db), 0);
    take_away("-shm");
    CU_ASSERT_EQUAL(other_does(&other, OPEN_IT), MORTISE_OK);
    CU_ASSERT_EQUAL(other_does(&other, 'a'), MORTISE_OK);
    clock_shift_ns += LOOK;
    CU_ASSERT_EQUAL(run(&client, &lock), MORTISE_UNREACHABLE);
    CU_ASSERT_TRUE(lock.error.retryable);
    CU_ASSERT_PTR_NOT_NULL(strstr(lock.error.message, "still has the old one open"));
    CU_ASSERT_EQUAL(OPEN(&late, "path", path), MORTISE_UNREACHABLE);
    outside_close(db);
    clock_shift_ns += 251 * MS;
    CU_ASSERT_EQUAL(try_lock(&client, "a"), MORTISE_BUSY);
    other_end(&other);
    client_close(&client);
}

/* ---- what is old is deleted ---------------------------------------------------------------------------- */

static time_t age_of(const char *suffix)
{
    char file[PATHS_MAX];
    struct stat about = {.st_mtime = 0};
    CU_ASSERT_EQUAL(stat(joined(file, path, suffix), &about), 0);
    return time(NULL) - about.st_mtime;
}

static void test_never_old(void)
{
    static const char *const suffixes[] = {"", "-wal", "-shm"};
    struct timespec old[2] = {{.tv_sec = time(NULL) - 864000}, {.tv_sec = time(NULL) - 864000}};
    struct client client;
    char file[PATHS_MAX];
    path = database("old");
    OPEN_OK(&client, "path", path);
    inspect(&client, "a");
    for (int i = 0; i < 3; i++)
        CU_ASSERT_EQUAL(utimensat(AT_FDCWD, joined(file, path, suffixes[i]), old, 0), 0);
    clock_shift_ns += LOOK;
    inspect(&client, "a"); /* not each time that it looks */
    CU_ASSERT_TRUE(age_of("-shm") >= 864000);
    clock_shift_ns += 3600000 * MS;
    inspect(&client, "a");
    for (int i = 0; i < 3; i++)
        CU_ASSERT_TRUE(age_of(suffixes[i]) < 3600);
    CU_ASSERT_EQUAL(client.logs, 0);
    client_close(&client);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"the index is removed while a lock is held", test_held_for_long},
        {"another process came and went", test_came_and_went},
        {"the log is removed", test_log_removed},
        {"two clients of a process", test_two_clients},
        {"a foreign user in the process", test_foreign_user},
        {"never old", test_never_old},
        CU_TEST_INFO_NULL,
    };
    return host_run("sqlite removed", tests);
}
