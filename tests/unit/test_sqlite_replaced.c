/* test_sqlite_replaced.c - another database is put into the place of the one that the SQLite module has open, as when a backup is
 * restored. What the old one leaves beside it must not get into it. */
#include "sqlite_host.h"

enum { MANY = 500 }; /* names; not all of them are copied out of the log */

static const char *path;
static struct call locks[MANY];

static void acquire_many(struct client *client, const char *prefix, int count)
{
    static char names[MANY][16];
    for (int i = 0; i < count; i++) {
        snprintf(names[i], sizeof names[i], "%s%03d", prefix, i);
        locks[i] = call_make(MORTISE_OP_ACQUIRE, names[i]);
        locks[i].op.ttl_ms = 3600000;
        CU_ASSERT_EQUAL_FATAL(run(client, &locks[i]), MORTISE_OK);
    }
}

/* A file in which "b000" and so on are held. */
static void make_backup(char *backup, int count)
{
    struct client client;
    OPEN_OK(&client, "path", path);
    acquire_many(&client, "b", count);
    client_close(&client);
    CU_ASSERT_EQUAL_FATAL(rename(path, joined(backup, path, "-backup")), 0);
}

static unsigned list(struct client *client, const char *prefix)
{
    struct call call = call_make(MORTISE_OP_LIST, prefix);
    client->emitted = 0;
    CU_ASSERT_EQUAL(run(client, &call), MORTISE_OK);
    return client->emitted;
}

/* Those of the backup, and no others. */
static void has_backup(struct client *client, int count)
{
    char name[16];
    CU_ASSERT_EQUAL(list(client, "b"), count);
    CU_ASSERT_EQUAL(list(client, ""), count);
    for (int i = 0; i < count; i += 50) {
        struct call lock;
        snprintf(name, sizeof name, "b%03d", i);
        CU_ASSERT_EQUAL(acquire(client, &lock, name, MORTISE_OP_TRY), MORTISE_BUSY);
    }
}

static ino_t inode_of(const char *suffix)
{
    char file[PATHS_MAX];
    struct stat about = {.st_ino = 0};
    stat(joined(file, path, suffix), &about);
    return about.st_ino;
}

/* Of two clients one notices it first. */
static void test_in_use(void)
{
    struct client client, other, late;
    char backup[PATHS_MAX];
    path = database("in-use");
    make_backup(backup, MANY);
    OPEN_OK(&client, "path", path);
    OPEN_OK(&other, "path", path);
    acquire_many(&client, "a", MANY);
    CU_ASSERT_EQUAL(list(&other, "a"), MANY);
    CU_ASSERT_EQUAL(rename(backup, path), 0);
    clock_shift_ns += 1001 * MS;
    for (int i = 0; i < MANY; i++)
        CU_ASSERT_EQUAL(renew(&client, &locks[i]), MORTISE_LOST);
    has_backup(&client, MANY);
    OPEN_OK(&late, "path", path);
    has_backup(&late, MANY);
    CU_ASSERT_EQUAL(renew(&other, &locks[0]), MORTISE_LOST);
    has_backup(&other, MANY);
    CU_ASSERT_EQUAL(acquire(&other, &locks[0], "c", 0), MORTISE_OK);
    CU_ASSERT_EQUAL(acquire(&client, &locks[1], "c", MORTISE_OP_TRY), MORTISE_BUSY);
    CU_ASSERT_EQUAL(release(&other, &locks[0]), MORTISE_OK);
    client_close(&late);
    client_close(&other);
    client_close(&client);
}

/* The client has not noticed when it is closed. */
static void test_closed(void)
{
    struct client client;
    char backup[PATHS_MAX];
    path = database("closed");
    make_backup(backup, 10);
    OPEN_OK(&client, "path", path);
    acquire_many(&client, "a", 10);
    CU_ASSERT_EQUAL(rename(backup, path), 0);
    client_close(&client);
    CU_ASSERT_EQUAL(inode_of("-wal"), 0);
    CU_ASSERT_EQUAL(inode_of("-shm"), 0);
    OPEN_OK(&client, "path", path);
    has_backup(&client, 10);
    client_close(&client);
}

/* It was moved away, and is back when the client looks where it is: nothing is removed. */
static void test_back_again(void)
{
    struct client client;
    char away[PATHS_MAX];
    path = database("back");
    joined(away, path, "-away");
    OPEN_OK(&client, "path", path);
    acquire_many(&client, "a", 10);
    CU_ASSERT_EQUAL(rename(path, away), 0);
    CU_ASSERT_EQUAL(mkdir(path, 0700), 0);
    clock_shift_ns += 1001 * MS;
    CU_ASSERT_EQUAL(renew(&client, &locks[0]), MORTISE_UNREACHABLE);
    ino_t log = inode_of("-wal");
    CU_ASSERT_EQUAL(rmdir(path), 0);
    CU_ASSERT_EQUAL(rename(away, path), 0);
    clock_shift_ns += 251 * MS;
    CU_ASSERT_EQUAL(renew(&client, &locks[0]), MORTISE_OK);
    CU_ASSERT_EQUAL(inode_of("-wal"), log);
    CU_ASSERT_EQUAL(renew(&client, &locks[9]), MORTISE_OK);
    client_close(&client);
}

static void copy(const char *from, const char *to)
{
    pid_t pid = fork();
    if (pid == 0) {
        execlp("cp", "cp", "--", from, to, (char *)NULL);
        _exit(127);
    }
    CU_ASSERT_EQUAL_FATAL(child_end(pid), 0);
}

/* Many file systems give the number of a deleted file to the next one that is made. */
static void test_same_number(void)
{
    struct client client;
    char backup[PATHS_MAX];
    path = database("number");
    make_backup(backup, 10);
    OPEN_OK(&client, "path", path);
    acquire_many(&client, "a", 10);
    ino_t number = inode_of("");
    CU_ASSERT_EQUAL(unlink(path), 0);
    CU_ASSERT_EQUAL(mkdir(path, 0700), 0);
    clock_shift_ns += 1001 * MS;
    CU_ASSERT_EQUAL(renew(&client, &locks[0]), MORTISE_UNREACHABLE);
    CU_ASSERT_EQUAL(rmdir(path), 0);
    copy(backup, path);
    printf("(%s number) ", inode_of("") == number ? "the same" : "another");
    clock_shift_ns += 251 * MS;
    CU_ASSERT_EQUAL(renew(&client, &locks[0]), MORTISE_LOST);
    has_backup(&client, 10);
    client_close(&client);
}

/* ---- another program was faster -------------------------------------------------------------------- */

struct program {
    int ready[2], go[2];
};

static void program_main(void *argument)
{
    struct program *program = argument;
    void *db = NULL;
    CU_ASSERT_TRUE(hear(program->go));
    outside(path, "SELECT * FROM mortise_meta", &db);
    say(program->ready);
    CU_ASSERT_TRUE(hear(program->go));
    outside_close(db);
}

/* It uses the old log for the new file. The client must not give it another one: they would not exclude each other. */
static void test_opened_before(void)
{
    struct program program;
    struct client client;
    char backup[PATHS_MAX];
    path = database("opened");
    make_backup(backup, 10);
    if (pipe2(program.ready, O_CLOEXEC) != 0 || pipe2(program.go, O_CLOEXEC) != 0)
        abort();
    pid_t pid = child_start(program_main, &program);
    OPEN_OK(&client, "path", path);
    acquire_many(&client, "a", 10);
    CU_ASSERT_EQUAL(rename(backup, path), 0);
    say(program.go);
    CU_ASSERT_TRUE(hear(program.ready));
    ino_t log = inode_of("-wal"), index = inode_of("-shm");
    clock_shift_ns += 1001 * MS;
    CU_ASSERT_NOT_EQUAL(renew(&client, &locks[0]), MORTISE_UNREACHABLE);
    CU_ASSERT_PTR_NOT_NULL(strstr(client.last_log, "the new file may be damaged"));
    CU_ASSERT_TRUE(log != 0 && inode_of("-wal") == log);
    CU_ASSERT_TRUE(index != 0 && inode_of("-shm") == index);
    client_close(&client);
    say(program.go);
    CU_ASSERT_EQUAL(child_end(pid), 0);
    for (int i = 0; i < 2; i++) {
        close(program.ready[i]);
        close(program.go[i]);
    }
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"replaced in use", test_in_use},
        {"replaced, and closed", test_closed},
        {"back again", test_back_again},
        {"a file with the number of the old one", test_same_number},
        {"opened by another program before", test_opened_before},
        CU_TEST_INFO_NULL,
    };
    return host_run("sqlite replaced", tests);
}
