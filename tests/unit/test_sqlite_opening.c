/* test_sqlite_opening.c - what the SQLite module does not take for a replaced database when it is opened. The C library's statx() is
 * replaced, to delete a file in between, and to give a file the number of another one. */
#include "sqlite_replaced.h"

#include <sys/syscall.h>

static bool once_open;       /* the database is deleted as soon as it is looked at and open */
static const char *disguise; /* a file that has this number, and whose birth is not told */
static ino_t number;

static bool is_open(void)
{
    ino_t database = inode_of("");
    struct stat about;
    for (int fd = 0; database != 0 && fd < 256; fd++)
        if (fstat(fd, &about) == 0 && about.st_ino == database)
            return true;
    return false;
}

/* In place of the C library's. */
__attribute__((visibility("default"))) int statx(int fd, const char *restrict file, int flags,
                                                 unsigned mask, struct statx *restrict about)
{
    if (once_open && is_open()) {
        once_open = false;
        CU_ASSERT_EQUAL(inode_of("-wal"), 0);
        CU_ASSERT_EQUAL(unlink(path), 0);
    }
    int rc = (int)syscall(SYS_statx, fd, file, flags, mask, about);
    if (rc == 0 && disguise != NULL && strcmp(file, disguise) == 0) {
        about->stx_ino = number;
        about->stx_mask &= ~(unsigned)STATX_BTIME;
    }
    return rc;
}

/* SQLite has not yet looked for a log, and cannot open one now. */
static void test_deleted(void)
{
    struct client client;
    char backup[PATHS_MAX];
    path = database("deleted");
    make_backup(backup, 10);
    OPEN_OK(&client, "path", path);
    client_close(&client);
    once_open = true;
    CU_ASSERT_EQUAL(OPEN(&client, "path", path), MORTISE_UNREACHABLE);
    CU_ASSERT_FALSE(once_open);
    CU_ASSERT_TRUE(client.error.retryable);
    CU_ASSERT_PTR_NOT_NULL(strstr(client.error.message, "was moved or deleted while in use"));
    CU_ASSERT_EQUAL(rename(backup, path), 0);
    OPEN_OK(&client, "path", path);
    has_backup(&client, 10);
    client_close(&client);
}

/* As one that is killed. */
static void lock_and_end(void *argument)
{
    struct client client;
    (void)argument;
    OPEN_OK(&client, "path", path);
    acquire_many(&client, "b", 10);
}

/* A client still knows what the database of another path has left, which is gone: its number was given to the log of this one. */
static void test_another_path(void)
{
    struct client client, late;
    char here[PATHS_MAX], log[PATHS_MAX];
    path = joined(here, database("here"), "");
    CU_ASSERT_EQUAL(child_end(child_start(lock_and_end, NULL)), 0);
    path = database("there");
    OPEN_OK(&client, "path", path);
    acquire_many(&client, "a", 10);
    number = inode_of("-wal");
    CU_ASSERT_EQUAL(unlink(path), 0);
    CU_ASSERT_EQUAL(mkdir(path, 0700), 0);
    clock_shift_ns += 1001 * MS;
    CU_ASSERT_EQUAL(renew(&client, &locks[0]), MORTISE_UNREACHABLE);
    CU_ASSERT_EQUAL(unlink(joined(log, path, "-wal")), 0);
    CU_ASSERT_EQUAL(rmdir(path), 0);
    path = here;
    disguise = joined(log, path, "-wal");
    ino_t own = inode_of("-wal");
    OPEN_OK(&late, "path", path);
    disguise = NULL;
    CU_ASSERT_TRUE(own != 0 && inode_of("-wal") == own);
    has_backup(&late, 10);
    client_close(&late);
    client_close(&client);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"deleted when it is open", test_deleted},
        {"what was left at another path", test_another_path},
        CU_TEST_INFO_NULL,
    };
    return host_run("sqlite opening", tests);
}
