/* test_sqlite_replaced.c - another database is put into the place of the one that the SQLite module has open, as when a backup is
 * restored. What the old one leaves beside it must not get into it. */
#include "sqlite_replaced.h"

#include <sys/syscall.h>

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

/* ---- several clients of a process ------------------------------------------------------------------------ */

/* A second client opens the new file before the first one notices. */
static void test_second_client(void)
{
    struct client client, late;
    char backup[PATHS_MAX];
    path = database("second");
    make_backup(backup, MANY);
    OPEN_OK(&client, "path", path);
    acquire_many(&client, "a", MANY);
    CU_ASSERT_EQUAL(rename(backup, path), 0);
    OPEN_OK(&late, "path", path);
    CU_ASSERT_PTR_NOT_NULL(strstr(client.last_log, "was moved or deleted while in use"));
    has_backup(&late, MANY);
    CU_ASSERT_EQUAL(acquire(&late, &locks[1], "c", 0), MORTISE_OK);
    CU_ASSERT_EQUAL(renew(&client, &locks[0]), MORTISE_LOST);
    CU_ASSERT_EQUAL(acquire(&client, &locks[0], "c", MORTISE_OP_TRY), MORTISE_BUSY);
    CU_ASSERT_EQUAL(release(&late, &locks[1]), MORTISE_OK);
    has_backup(&client, MANY);
    client_close(&late);
    client_close(&client);
}

/* The first one has noticed that its file is not there any more, and waits for another. */
static void test_second_client_in_between(void)
{
    struct client client, late;
    char backup[PATHS_MAX];
    path = database("between");
    make_backup(backup, 10);
    OPEN_OK(&client, "path", path);
    acquire_many(&client, "a", 10);
    CU_ASSERT_EQUAL(unlink(path), 0);
    CU_ASSERT_EQUAL(mkdir(path, 0700), 0);
    clock_shift_ns += 1001 * MS;
    CU_ASSERT_EQUAL(renew(&client, &locks[0]), MORTISE_UNREACHABLE);
    CU_ASSERT_EQUAL(rmdir(path), 0);
    CU_ASSERT_EQUAL(rename(backup, path), 0);
    OPEN_OK(&late, "path", path);
    has_backup(&late, 10);
    clock_shift_ns += 251 * MS;
    CU_ASSERT_EQUAL(renew(&client, &locks[0]), MORTISE_LOST);
    has_backup(&client, 10);
    client_close(&late);
    client_close(&client);
}

static struct client meanwhile;
static mortise_status met;

static void open_meanwhile(void)
{
    on_now = NULL;
    met = OPEN(&meanwhile, "path", path, "busy_timeout", "0");
}

/* The first one cannot be closed, because it is in a call for as long as the second one has time: that is one look. */
static void test_second_client_in_a_call(void)
{
    struct client client, late;
    char backup[PATHS_MAX];
    path = database("call");
    make_backup(backup, 10);
    clock_stop(); /* it does not look at the database now */
    OPEN_OK(&client, "path", path);
    acquire_many(&client, "a", 10);
    CU_ASSERT_EQUAL(rename(backup, path), 0);
    ino_t log = inode_of("-wal");
    on_now = open_meanwhile;
    CU_ASSERT_EQUAL(renew(&client, &locks[0]), MORTISE_OK);
    clock_go_on();
    CU_ASSERT_EQUAL(met, MORTISE_UNREACHABLE);
    CU_ASSERT_PTR_NOT_NULL(strstr(meanwhile.error.message, "still has the old one open"));
    CU_ASSERT_TRUE(log != 0 && inode_of("-wal") == log);
    OPEN_OK(&late, "path", path);
    has_backup(&late, 10);
    client_close(&late);
    client_close(&client);
}

/* The application has the old file open by itself, and nobody knows what else it is at. */
static void test_foreign_user(void)
{
    struct client late;
    void *db = NULL;
    char backup[PATHS_MAX];
    path = database("foreign");
    make_backup(backup, 10);
    CU_ASSERT_EQUAL(outside(path, "PRAGMA journal_mode = WAL; CREATE TABLE a (x)", &db), 0);
    CU_ASSERT_EQUAL(rename(backup, path), 0);
    ino_t log = inode_of("-wal");
    CU_ASSERT_EQUAL(OPEN(&late, "path", path, "busy_timeout", "100ms"), MORTISE_UNREACHABLE);
    CU_ASSERT_TRUE(late.error.retryable);
    CU_ASSERT_PTR_NOT_NULL(strstr(late.error.message, "still has the old one open"));
    CU_ASSERT_TRUE(log != 0 && inode_of("-wal") == log);
    CU_ASSERT_EQUAL(outside(path, "INSERT INTO a VALUES (1)", &db), 0);
    outside_close(db);
}

/* Another process keeps the log and the index where they are. */
static void stay(void *pipes)
{
    struct client client;
    int(*ends)[2] = pipes;
    OPEN_OK(&client, "path", path);
    say(ends[0]);
    CU_ASSERT_TRUE(hear(ends[1]));
    client_close(&client);
}

static void *another;       /* connection of the process */
static int scans_until_end; /* of its descriptors; 0: nothing happens */

/* In place of the C library's: the connection is closed when the database is looked for among the descriptors, and open again when
 * the index is, once more. */
__attribute__((visibility("default"))) DIR *opendir(const char *name)
{
    DIR *(*real)(const char *) = (DIR * (*)(const char *)) dlsym(RTLD_NEXT, "opendir");
    if (scans_until_end > 0 && strcmp(name, "/proc/thread-self/fd") == 0) {
        scans_until_end--;
        if (scans_until_end == 1)
            outside_close(another);
        another = scans_until_end == 1 ? NULL : another;
        if (scans_until_end == 0)
            CU_ASSERT_EQUAL(outside(path, "SELECT * FROM mortise_meta", &another), 0);
    }
    return real(name);
}

/* Nothing was replaced: another connection of the process is closed and opened while the client looks. */
static void test_foreign_user_comes_and_goes(void)
{
    struct client late;
    int pipes[2][2];
    path = database("comes");
    if (pipe2(pipes[0], O_CLOEXEC) != 0 || pipe2(pipes[1], O_CLOEXEC) != 0)
        abort();
    pid_t pid = child_start(stay, pipes);
    CU_ASSERT_TRUE(hear(pipes[0]));
    CU_ASSERT_EQUAL(outside(path, "SELECT * FROM mortise_meta", &another), 0);
    scans_until_end = 3;
    OPEN_OK(&late, "path", path);
    CU_ASSERT_EQUAL(scans_until_end, 0);
    client_close(&late);
    outside_close(another);
    say(pipes[1]);
    CU_ASSERT_EQUAL(child_end(pid), 0);
    for (int i = 0; i < 4; i++)
        close(pipes[i / 2][i % 2]);
}

/* ---- between two looks ---------------------------------------------------------------- */

/* The backup, as soon as somebody looks and SQLite has made the log; "": the file is deleted then. */
static const char *put_there;
static int (*settler)[2];  /* another process, which opens it then, with a log of its own */
static const char *unborn; /* what is behind the path of the file whose birth is not told */

static void settle(void)
{
    char file[PATHS_MAX];
    if (settler == NULL)
        return;
    CU_ASSERT_EQUAL(unlink(joined(file, path, "-wal")), 0);
    CU_ASSERT_EQUAL(unlink(joined(file, path, "-shm")), 0);
    say(settler[1]);
    CU_ASSERT_TRUE(hear(settler[0]));
}

static struct client *goes_on; /* it opens the file as soon as another one has looked */
static const char *then_there;
static unsigned logs_then;

static void go_on(const char *file)
{
    struct client *client = goes_on;
    char index[PATHS_MAX];
    if (client == NULL || strcmp(file, joined(index, path, "-shm")) != 0)
        return;
    goes_on = NULL;
    CU_ASSERT_EQUAL(rename(then_there, path), 0);
    clock_shift_ns += 1001 * MS;
    CU_ASSERT_EQUAL(renew(client, &locks[0]), MORTISE_LOST);
    logs_then = client->logs;
}

/* In place of the C library's. */
__attribute__((visibility("default"))) int statx(int fd, const char *restrict file, int flags,
                                                 unsigned mask, struct statx *restrict about)
{
    char hidden[PATHS_MAX];
    if (put_there != NULL && inode_of("-wal") != 0) {
        CU_ASSERT_EQUAL(put_there[0] != '\0' ? rename(put_there, path) : unlink(path), 0);
        put_there = NULL;
        settle();
    }
    int rc = (int)syscall(SYS_statx, fd, file, flags, mask, about);
    if (rc == 0 && unborn != NULL && strcmp(file, joined(hidden, path, unborn)) == 0)
        about->stx_mask &= ~(unsigned)STATX_BTIME;
    go_on(file);
    return rc;
}

/* The client must not take the new file for the one that it has opened. */
static void test_while_it_is_opened(void)
{
    struct client client;
    char backup[PATHS_MAX];
    path = database("opening");
    make_backup(backup, 10);
    put_there = backup;
    OPEN_OK(&client, "path", path);
    CU_ASSERT_PTR_NULL(put_there);
    has_backup(&client, 10);
    CU_ASSERT_PTR_NULL(strstr(client.last_log, "may be damaged"));
    client_close(&client);
}

/* What one client has seen there is old when it looks at another one, which has opened the new file: nothing is wrong with that. */
static void test_opened_by_another_thread(void)
{
    struct client client, late;
    char backup[PATHS_MAX];
    path = database("thread");
    make_backup(backup, 10);
    OPEN_OK(&client, "path", path);
    acquire_many(&client, "a", 10);
    then_there = backup;
    goes_on = &client;
    OPEN_OK(&late, "path", path);
    CU_ASSERT_PTR_NULL(goes_on);
    CU_ASSERT_EQUAL(client.logs, logs_then);
    has_backup(&late, 10);
    has_backup(&client, 10);
    client_close(&late);
    client_close(&client);
}

static void open_and_stay(void *pipes)
{
    int(*ends)[2] = pipes;
    CU_ASSERT_TRUE(hear(ends[1]));
    stay(pipes);
}

/* The index in its place is not the one that the client has: not because something in its process has the old file open. */
static void test_opened_by_another_process(void)
{
    struct client client;
    char backup[PATHS_MAX];
    int pipes[2][2];
    path = database("opening-process");
    make_backup(backup, 10);
    if (pipe2(pipes[0], O_CLOEXEC) != 0 || pipe2(pipes[1], O_CLOEXEC) != 0)
        abort();
    pid_t pid = child_start(open_and_stay, pipes);
    settler = pipes;
    put_there = backup;
    mortise_status status = OPEN(&client, "path", path);
    CU_ASSERT_EQUAL(status, MORTISE_OK);
    CU_ASSERT_PTR_NULL(put_there);
    settler = NULL;
    if (status == MORTISE_OK) {
        has_backup(&client, 10);
        CU_ASSERT_PTR_NULL(strstr(client.last_log, "may be damaged"));
        client_close(&client);
    }
    say(pipes[1]);
    CU_ASSERT_EQUAL(child_end(pid), 0);
    for (int i = 0; i < 4; i++)
        close(pipes[i / 2][i % 2]);
}

static void test_deleted_while_it_is_opened(void)
{
    struct client client;
    char backup[PATHS_MAX];
    path = database("opening-deleted");
    make_backup(backup, 10);
    put_there = "";
    OPEN_OK(&client, "path", path);
    CU_ASSERT_PTR_NULL(put_there);
    CU_ASSERT_EQUAL(rename(backup, path), 0);
    clock_shift_ns += 1001 * MS;
    has_backup(&client, 10);
    client_close(&client);
}

/* As on FUSE, where the kernel knows it only if it has just asked. It is the same file all the same. */
static void test_births(void)
{
    static const char *const suffixes[] = {"", "-wal", "-shm"};
    struct client client;
    path = database("births");
    for (int i = 0; i < 6; i++) {
        unborn = i % 2 == 0 ? suffixes[i / 2] : NULL;
        OPEN_OK(&client, "path", path);
        acquire_many(&client, "a", 1);
        ino_t log = inode_of("-wal"), index = inode_of("-shm");
        unborn = i % 2 == 1 ? suffixes[i / 2] : NULL;
        clock_shift_ns += 1001 * MS;
        CU_ASSERT_EQUAL(renew(&client, &locks[0]), MORTISE_OK);
        CU_ASSERT_PTR_NULL(strstr(client.last_log, "moved or deleted"));
        CU_ASSERT_TRUE(inode_of("-wal") == log && inode_of("-shm") == index);
        CU_ASSERT_EQUAL(release(&client, &locks[0]), MORTISE_OK);
        client_close(&client);
        CU_ASSERT_EQUAL(inode_of("-wal"), 0); /* SQLite has copied it */
    }
    unborn = NULL;
}

/* ---- several processes ------------------------------------------------------------------------------ */

enum { PROCESSES = 6, ROUNDS = 50 };

/* Locks all the time, until the database is the backup, and a little longer. What is on its way when that changes may fail, and so
 * may all for a moment, while another process opens the database. */
static void lock_all_the_time(void *ready)
{
    struct client client;
    struct call lock;
    char name[32];
    int left = ROUNDS;
    OPEN_OK(&client, "path", path);
    say(ready);
    int64_t give_up_ns = time_of_waiting() + PATIENCE_NS;
    for (int i = 0; left > 0 && time_of_waiting() < give_up_ns; i++) {
        struct call look = call_make(MORTISE_OP_INSPECT, "b000");
        snprintf(name, sizeof name, "%d-%d", (int)getpid(), i % 20);
        acquire(&client, &lock, name, 0);
        lock = call_about(MORTISE_OP_RELEASE, &lock);
        run(&client, &lock);
        left -= run(&client, &look) == MORTISE_OK && look.info.held;
    }
    CU_ASSERT_EQUAL(left, 0);
    CU_ASSERT_EQUAL(list(&client, "b"), MANY);
    client_close(&client);
}

/* Each notices at another moment, and removes what is left, if no other one has. */
static void test_several_processes(void)
{
    pid_t pids[PROCESSES];
    char backup[PATHS_MAX];
    int ready[2];
    path = database("several");
    make_backup(backup, MANY);
    if (pipe2(ready, O_CLOEXEC) != 0)
        abort();
    for (int i = 0; i < PROCESSES; i++) {
        pids[i] = child_start(lock_all_the_time, ready);
        CU_ASSERT_TRUE(hear(ready));
    }
    CU_ASSERT_EQUAL(rename(backup, path), 0);
    for (int i = 0; i < PROCESSES; i++)
        CU_ASSERT_EQUAL(child_end(pids[i]), 0);
    CU_ASSERT_EQUAL(outside(path,
                            "CREATE TEMP TABLE t(x CHECK (x = 'ok')); "
                            "INSERT INTO t SELECT * FROM pragma_integrity_check",
                            NULL),
                    0);
    close(ready[0]);
    close(ready[1]);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"replaced in use", test_in_use},
        {"replaced, and closed", test_closed},
        {"back again", test_back_again},
        {"a file with the number of the old one", test_same_number},
        {"another client of the process is first", test_second_client},
        {"another client of the process is first, in between", test_second_client_in_between},
        {"another client of the process is in a call", test_second_client_in_a_call},
        {"a foreign user in the process", test_foreign_user},
        {"a foreign user comes and goes", test_foreign_user_comes_and_goes},
        {"replaced while it is opened", test_while_it_is_opened},
        {"opened by another thread meanwhile", test_opened_by_another_thread},
        {"replaced and opened by another process meanwhile", test_opened_by_another_process},
        {"deleted while it is opened", test_deleted_while_it_is_opened},
        {"births that are told now and then", test_births},
        {"replaced under several processes", test_several_processes},
        CU_TEST_INFO_NULL,
    };
    return host_run("sqlite replaced", tests);
}
