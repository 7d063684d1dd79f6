/* test_sqlite_full.c - the disk of the SQLite module is full: what fails, and the checkpoint that makes room in the log. Each
 * test runs in a child with a tmpfs of its own. If the system forbids that, the test says so. */
#include "sqlite_host.h"

#include <sched.h>
#include <sys/mount.h>
#include <sys/syscall.h>

enum { BUSY = 5 }; /* of SQLite */

static const char *path;
static void *program; /* another connection to the database */

static bool small_disk(const char *place)
{
    return (mkdir(place, 0700) == 0 || errno == EEXIST) && unshare(CLONE_NEWNS) == 0 &&
           mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
           mount("none", place, "tmpfs", 0, "size=400k") == 0;
}

static void fill(const char *file)
{
    char junk[1024];
    memset(junk, 'x', sizeof(junk));
    int fd = open(file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    while (fd >= 0 && write(fd, junk, sizeof(junk)) > 0)
        ;
    close(fd);
}

/* Sets `path`, to a database on a small disk. */
static bool small_database(char *place, char *file)
{
    joined(place, folder, "/small");
    path = joined(file, place, "/locks.db");
    bool made = small_disk(place);
    if (!made)
        fputs(" (skipped: no tmpfs can be mounted here) ", stderr);
    return made;
}

static void on_full_disk(void *argument)
{
    struct client client, late;
    struct call lock, other;
    char place[PATHS_MAX], file[PATHS_MAX], filler[PATHS_MAX], new_one[PATHS_MAX], name[16];
    (void)argument;
    if (!small_database(place, file))
        return;
    OPEN_OK(&client, "path", path);
    CU_ASSERT_EQUAL(acquire(&client, &lock, "a", 0), MORTISE_OK);
    joined(filler, place, "/filler");
    fill(filler);
    for (int i = 0; i < 200; i++) /* the log starts again in its old space */
        CU_ASSERT_EQUAL_FATAL(renew(&client, &lock), MORTISE_OK);
    mortise_status status = MORTISE_OK;
    for (int i = 0; i < 2000 && status == MORTISE_OK; i++) {
        snprintf(name, sizeof(name), "n%d", i);
        status = acquire(&client, &other, name, 0);
    }
    CU_ASSERT_EQUAL(status, MORTISE_BACKEND);
    CU_ASSERT_TRUE(other.error.retryable);
    CU_ASSERT_PTR_NOT_NULL(strstr(other.error.message, "small/locks.db: the disk is full"));
    CU_ASSERT_FALSE(inspect(&client, name).held);
    CU_ASSERT_TRUE(inspect(&client, "a").held);
    path = joined(new_one, place, "/new.db");
    CU_ASSERT_EQUAL(OPEN(&late, "path", path), MORTISE_BACKEND);
    CU_ASSERT_PTR_NOT_NULL(strstr(late.error.message, "new.db: the disk is full"));
    unlink(filler);
    CU_ASSERT_EQUAL(acquire(&client, &other, name, 0), MORTISE_OK);
    CU_ASSERT_EQUAL(release(&client, &lock), MORTISE_OK);
    client_close(&client);
}

/* ---- another program writes ---------------------------------------------------------------------- */

static bool checked; /* each flush is */
static bool fails;   /* the next one does */
static unsigned flushes;

/* A checkpoint flushes the log, and the first write after it flushes its header. */
static int flush(long number, int fd)
{
    if (checked) {
        flushes++;
        CU_ASSERT_EQUAL(outside(path, "BEGIN IMMEDIATE", &program), BUSY);
    }
    if (fails) {
        fails = false;
        errno = ENOSPC;
        return -1;
    }
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

/* Nobody may begin the log anew while it is copied, and no commit that is not copied yet prevents that here. */
static void on_full_disk_alone(void *argument)
{
    struct client client;
    struct call lock;
    char place[PATHS_MAX], file[PATHS_MAX], filler[PATHS_MAX];
    (void)argument;
    if (!small_database(place, file))
        return;
    OPEN_OK(&client, "path", path);
    CU_ASSERT_EQUAL(acquire(&client, &lock, "a", 0), MORTISE_OK);
    CU_ASSERT_EQUAL(outside(path, "BEGIN IMMEDIATE; ROLLBACK", &program), 0);
    fill(joined(filler, place, "/filler"));
    checked = true;
    for (int i = 0; i < 200; i++)
        CU_ASSERT_EQUAL_FATAL(renew(&client, &lock), MORTISE_OK);
    checked = false;
    CU_ASSERT_TRUE(flushes > 0);
    CU_ASSERT_EQUAL(outside(path, "BEGIN IMMEDIATE; ROLLBACK", &program), 0);
    outside_close(program);
    client_close(&client);
}

static bool was_busy, taken;

/* The other program gets the write lock as soon as the client has left its transaction. */
static void take_over(void)
{
    static const struct timespec old[2] = {{.tv_sec = 0}, {.tv_sec = 0}};
    if (taken)
        return;
    if (outside(path, "BEGIN IMMEDIATE", &program) != 0) {
        was_busy = true;
        return;
    }
    taken = was_busy;
    if (!taken) {
        outside(path, "ROLLBACK", &program);
        return;
    }
    CU_ASSERT_EQUAL(utimensat(AT_FDCWD, path, old, 0), 0);
}

static mortise_status acquire_taken_over(struct client *client, const char *name)
{
    struct call lock;
    was_busy = taken = false;
    on_now = take_over;
    mortise_status status = acquire(client, &lock, name, 0);
    on_now = NULL;
    return status;
}

/* It could begin the log anew: so nothing is copied. */
static void on_full_disk_taken_over(void *argument)
{
    struct client client;
    struct stat about;
    mortise_status status = MORTISE_OK;
    char place[PATHS_MAX], file[PATHS_MAX], filler[PATHS_MAX], name[16];
    (void)argument;
    if (!small_database(place, file))
        return;
    OPEN_OK(&client, "path", path, "busy_timeout", "100ms");
    CU_ASSERT_EQUAL(outside(path, "BEGIN IMMEDIATE; ROLLBACK", &program), 0);
    fill(joined(filler, place, "/filler"));
    for (int i = 0; i < 2000 && status == MORTISE_OK; i++) {
        snprintf(name, sizeof(name), "n%d", i);
        status = acquire_taken_over(&client, name);
        if (status == MORTISE_OK && taken)
            outside(path, "ROLLBACK", &program);
    }
    CU_ASSERT_TRUE(taken);
    CU_ASSERT_EQUAL(status, MORTISE_UNREACHABLE);
    CU_ASSERT_EQUAL(stat(path, &about), 0);
    CU_ASSERT_EQUAL(about.st_mtime, 0);
    outside(path, "ROLLBACK", &program);
    outside_close(program);
    unlink(filler);
    CU_ASSERT_FALSE(inspect(&client, name).held);
    client_close(&client);
}

/* ---- fails behind the last frame ------------------------------------------------------------- */

static void copy(const char *from, const char *to, const char *suffix)
{
    char one[PATHS_MAX], other[PATHS_MAX];
    joined(one, from, suffix);
    joined(other, to, suffix);
    pid_t pid = fork();
    if (pid == 0) {
        execlp("cp", "cp", "--", one, other, (char *)NULL);
        _exit(127);
    }
    CU_ASSERT_EQUAL_FATAL(child_end(pid), 0);
}

/* The log has the commit, and only its index does not know it: whoever recovers the log finds it, as here in a copy. */
static void test_behind_the_commit(void)
{
    struct client client, later;
    struct call lock, next;
    const char *copied = database("recovered");
    path = database("flushed");
    OPEN_OK(&client, "path", path, "synchronous", "full");
    CU_ASSERT_EQUAL(acquire(&client, &next, "b", 0),
                    MORTISE_OK); /* flushes the log's header, too */
    fails = true;
    CU_ASSERT_EQUAL(acquire(&client, &lock, "a", 0), MORTISE_INDETERMINATE);
    CU_ASSERT_FALSE(fails);
    copy(path, copied, "");
    copy(path, copied, "-wal");
    OPEN_OK(&later, "path", copied);
    CU_ASSERT_TRUE(inspect(&later, "a").held);
    client_close(&later);
    CU_ASSERT_FALSE(inspect(&client, "a").held);
    CU_ASSERT_EQUAL(acquire(&client, &next, "a", 0), MORTISE_OK);
    CU_ASSERT_EQUAL(release(&client, &next), MORTISE_OK);
    client_close(&client);
}

/* ---- the program --------------------------------------------------------------------------------- */

static void test_full_disk(void)
{
    CU_ASSERT_EQUAL(child_end(child_start(on_full_disk, NULL)), 0);
}

static void test_alone(void)
{
    CU_ASSERT_EQUAL(child_end(child_start(on_full_disk_alone, NULL)), 0);
}

static void test_taken_over(void)
{
    CU_ASSERT_EQUAL(child_end(child_start(on_full_disk_taken_over, NULL)), 0);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"the disk is full", test_full_disk},
        {"nobody writes while room is made", test_alone},
        {"fails behind the last frame", test_behind_the_commit},
        {"another program writes when room is to be made", test_taken_over},
        CU_TEST_INFO_NULL,
    };
    return host_run("sqlite full", tests);
}
