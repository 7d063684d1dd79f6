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

/* What it is asked: open; close; try "a", "b" (a letter); ten seconds pass; not to look for a second; with a connection of its
 * own, to begin a transaction and to end it; end. */
#define OPEN_IT '+'
#define CLOSE_IT '-'
#define PASS_TIME 't'
#define LOOK_LATE 'l'
#define BEGIN_IT 'x'
#define ROLL_BACK 'y'
#define END_IT '.'

static char heed(char what, struct client *client)
{
    static void *db;
    char name[2] = {what, '\0'};
    struct call lock;
    mortise_status status = MORTISE_OK;
    if (what == OPEN_IT)
        status = OPEN(client, "path", path);
    else if (what == CLOSE_IT)
        client_close(client);
    else if (what == PASS_TIME)
        clock_shift_ns += 10000 * MS;
    else if (what == LOOK_LATE)
        clock_shift_ns -= 1000 * MS;
    else if (what == BEGIN_IT)
        status = (mortise_status)outside(path, "BEGIN IMMEDIATE", &db);
    else if (what == ROLL_BACK)
        status = (mortise_status)outside(path, "ROLLBACK", &db);
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

/* Those who have what was removed go on with it. Once somebody has made another index, nobody writes by the old one. */
static void test_two_old_sides(void)
{
    struct other other, late;
    struct client client;
    struct call lock;
    path = database("sides");
    other_start(&other);
    other_start(&late);
    CU_ASSERT_EQUAL(other_does(&other, OPEN_IT), MORTISE_OK);
    OPEN_OK(&client, "path", path);
    CU_ASSERT_EQUAL(other_does(&other, 'z'), MORTISE_OK);
    other_does(&other, LOOK_LATE);
    take_away("-shm");
    for (char name[] = "a"; name[0] < 'e'; name[0] = (char)(name[0] + 2)) {
        clock_shift_ns += LOOK;
        CU_ASSERT_EQUAL(acquire(&client, &lock, name, 0), MORTISE_OK);
        CU_ASSERT_EQUAL(other_does(&other, name[0]), MORTISE_BUSY);
        CU_ASSERT_EQUAL(other_does(&other, (char)(name[0] + 1)), MORTISE_OK);
        CU_ASSERT_EQUAL(try_lock(&client, name[0] == 'a' ? "b" : "d"), MORTISE_BUSY);
    }
    CU_ASSERT_EQUAL(client.logs, 0);
    CU_ASSERT_EQUAL(other_does(&late, OPEN_IT), MORTISE_OK);
    CU_ASSERT_EQUAL(other_does(&late, 'b'), MORTISE_BUSY);
    CU_ASSERT_EQUAL(other_does(&late, 'e'), MORTISE_OK);
    CU_ASSERT_EQUAL(other_does(&other, 'e'), MORTISE_BUSY);
    CU_ASSERT_EQUAL(other_does(&other, 'f'), MORTISE_OK);
    clock_shift_ns += LOOK;
    CU_ASSERT_EQUAL(try_lock(&client, "e"), MORTISE_BUSY);
    CU_ASSERT_EQUAL(try_lock(&client, "f"), MORTISE_BUSY);
    CU_ASSERT_EQUAL(client.logs, 1);
    other_end(&late);
    other_end(&other);
    client_close(&client);
}

/* Nobody leaves the old index while another one writes by it. */
static void test_in_the_middle(void)
{
    struct other other, late;
    struct client client;
    path = database("middle");
    other_start(&other);
    other_start(&late);
    OPEN_OK(&client, "path", path, "busy_timeout", "50ms");
    CU_ASSERT_EQUAL(other_does(&other, BEGIN_IT), 0);
    take_away("-shm");
    CU_ASSERT_EQUAL(other_does(&late, OPEN_IT), MORTISE_OK);
    clock_shift_ns += LOOK;
    CU_ASSERT_EQUAL(try_lock(&client, "a"), MORTISE_UNREACHABLE);
    CU_ASSERT_EQUAL(other_does(&other, ROLL_BACK), 0);
    CU_ASSERT_EQUAL(try_lock(&client, "a"), MORTISE_OK);
    CU_ASSERT_EQUAL(other_does(&late, 'a'), MORTISE_BUSY);
    other_end(&late);
    other_end(&other);
    client_close(&client);
}

static int calls_left;
static const struct other *newcomer;

static void comes_in_between(void)
{
    if (--calls_left != 0)
        return;
    take_away("-shm");
    CU_ASSERT_EQUAL(other_does(newcomer, OPEN_IT), MORTISE_OK);
}

/* Whenever it happens: who is told that it has the lock has it for the newcomer, too. */
static void test_at_any_moment(void)
{
    struct other other;
    struct client client;
    struct call lock;
    int unsure = 0;
    bool again = true;
    path = database("moment");
    other_start(&other);
    newcomer = &other;
    for (int n = 1; again && n < 100; n++) {
        OPEN_OK(&client, "path", path);
        clock_shift_ns += LOOK;
        calls_left = n;
        on_now = comes_in_between;
        mortise_status status = acquire(&client, &lock, "a", 0);
        on_now = NULL;
        again = calls_left <= 0;
        unsure += status == MORTISE_INDETERMINATE;
        CU_ASSERT_TRUE(status == MORTISE_OK || status == MORTISE_INDETERMINATE);
        if (again && status == MORTISE_OK) {
            CU_ASSERT_EQUAL(other_does(&other, 'a'), MORTISE_BUSY);
        }
        status = release(&client, &lock);
        CU_ASSERT_TRUE(status == MORTISE_OK || status == MORTISE_LOST);
        client_close(&client);
        if (again)
            other_does(&other, CLOSE_IT);
    }
    CU_ASSERT_TRUE(unsure > 0);
    other_end(&other);
}

/* What was in the log is lost to those that come later. The others learn of it. */
static void test_both_removed(void)
{
    struct other other;
    struct client client;
    struct call lock;
    path = database("both");
    other_start(&other);
    OPEN_OK(&client, "path", path);
    CU_ASSERT_EQUAL(acquire(&client, &lock, "a", 0), MORTISE_OK);
    take_away("-wal");
    take_away("-shm");
    clock_shift_ns += LOOK;
    CU_ASSERT_EQUAL(renew(&client, &lock), MORTISE_OK);
    CU_ASSERT_EQUAL(other_does(&other, OPEN_IT), MORTISE_OK);
    CU_ASSERT_EQUAL(other_does(&other, 'a'), MORTISE_OK);
    CU_ASSERT_NOT_EQUAL(renew(&client, &lock), MORTISE_OK);
    CU_ASSERT_EQUAL(try_lock(&client, "a"), MORTISE_BUSY);
    CU_ASSERT_EQUAL(try_lock(&client, "b"), MORTISE_OK);
    CU_ASSERT_EQUAL(other_does(&other, 'b'), MORTISE_BUSY);
    other_end(&other);
    client_close(&client);
}

/* The log alone: those that have it go on with it, and save it in the end. */
static void test_log_removed(void)
{
    struct other other;
    struct client client;
    struct call lock;
    char file[PATHS_MAX];
    path = database("log");
    other_start(&other);
    OPEN_OK(&client, "path", path);
    CU_ASSERT_EQUAL(other_does(&other, OPEN_IT), MORTISE_OK);
    CU_ASSERT_EQUAL(acquire(&client, &lock, "a", 0), MORTISE_OK);
    take_away("-wal");
    clock_shift_ns += LOOK;
    CU_ASSERT_EQUAL(other_does(&other, 'a'), MORTISE_BUSY);
    CU_ASSERT_EQUAL(other_does(&other, 'b'), MORTISE_OK);
    CU_ASSERT_EQUAL(try_lock(&client, "b"), MORTISE_BUSY);
    CU_ASSERT_EQUAL(renew(&client, &lock), MORTISE_OK);
    CU_ASSERT_EQUAL(client.logs, 0);
    close(open(joined(file, path, "-wal"), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    clock_shift_ns += LOOK;
    CU_ASSERT_EQUAL(try_lock(&client, "b"), MORTISE_BUSY);
    CU_ASSERT_EQUAL(client.logs, 1);
    CU_ASSERT_PTR_NOT_NULL(strstr(client.last_log, "log.db-wal was moved or deleted"));
    other_does(&other, CLOSE_IT);
    client_close(&client);
    OPEN_OK(&client, "path", path);
    CU_ASSERT_TRUE(inspect(&client, "a").held);
    CU_ASSERT_TRUE(inspect(&client, "b").held);
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

static struct client *second;
static struct call second_call;

static void second_asks(void)
{
    on_now = NULL;
    second_call = call_make(MORTISE_OP_ACQUIRE, "a");
    second_call.op.flags = MORTISE_OP_TRY;
    call_start(second, &second_call);
}

/* One of them notices it while the other one is in the middle of a call, which has noticed nothing. */
static void test_two_at_once(void)
{
    struct other other;
    struct client one, two;
    path = database("once");
    other_start(&other);
    OPEN_OK(&one, "path", path);
    OPEN_OK(&two, "path", path);
    take_away("-shm");
    CU_ASSERT_EQUAL(other_does(&other, OPEN_IT), MORTISE_OK);
    CU_ASSERT_EQUAL(other_does(&other, 'a'), MORTISE_OK);
    clock_shift_ns += LOOK;
    second = &two;
    on_now = second_asks;
    CU_ASSERT_EQUAL(try_lock(&one, "a"), MORTISE_BUSY);
    CU_ASSERT_TRUE(wait_done(&two, &second_call));
    CU_ASSERT_EQUAL(second_call.op.status, MORTISE_BUSY);
    other_end(&other);
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
        {"two busy old sides", test_two_old_sides},
        {"in the middle of a transaction", test_in_the_middle},
        {"at any moment of a request", test_at_any_moment},
        {"the log and the index are removed", test_both_removed},
        {"the log alone is removed", test_log_removed},
        {"two clients of a process", test_two_clients},
        {"two clients at the same time", test_two_at_once},
        {"a foreign user in the process", test_foreign_user},
        {"never old", test_never_old},
        CU_TEST_INFO_NULL,
    };
    return host_run("sqlite removed", tests);
}
