/* test_sqlite_place.c - where the SQLite module keeps its file: what it refuses to open, and why; what it creates by
 * default, with which permissions, and while another client of the process opens the same file. Runs as "nobody" what
 * root would be permitted to do anyway. */
#include "sqlite_host.h"

#include <grp.h>

#define NOBODY 65534
#define SHARED_FIRST 0x40000002 /* the bytes that SQLite locks for a shared lock */
#define SHARED_SIZE 510

static const char *path;

static void refused(mortise_status status, const char *words, const char *key, const char *text)
{
    struct client client;
    mortise_status got =
        key == NULL ? OPEN(&client, "path", path) : OPEN(&client, "path", path, key, text);
    CU_ASSERT_EQUAL(got, status);
    CU_ASSERT_EQUAL(client.error.status, status);
    bool said = strstr(client.error.message, words) != NULL;
    CU_ASSERT_TRUE(said);
    if (got != status || !said)
        fprintf(stderr, "\n    %d \"%s\", not \"%s\"\n", got, client.error.message, words);
    if (got == MORTISE_OK)
        client_close(&client);
}

static void test_no_database(void)
{
    path = database("junk");
    write_at(path, 0, 'x', 8192);
    refused(MORTISE_BACKEND, "junk.db: this is no SQLite database", NULL, NULL);
    path = database("foreign");
    CU_ASSERT_EQUAL(outside(path, "CREATE TABLE users(name)", NULL), 0);
    refused(MORTISE_CONFIG, "belongs to another program", NULL, NULL);
    path = database("newer");
    struct client client;
    OPEN_OK(&client, "path", path);
    client_close(&client);
    CU_ASSERT_EQUAL(outside(path, "UPDATE mortise_meta SET value = 7 WHERE key = 'layout'", NULL),
                    0);
    refused(MORTISE_CONFIG, "its layout is \"7\", this driver knows 1", NULL, NULL);
}

static void test_bad_settings(void)
{
    path = "relative.db";
    refused(MORTISE_CONFIG, "expected the absolute path", NULL, NULL);
    path = "/";
    refused(MORTISE_CONFIG, "expected the absolute path", NULL, NULL);
    path = "/no/such/folder/locks.db";
    refused(MORTISE_CONFIG, "cannot use the folder /no/such/folder", NULL, NULL);
    path = folder;
    refused(MORTISE_CONFIG, "is not a file", NULL, NULL);
    path = database("mode");
    refused(MORTISE_CONFIG, "mode is \"0800\"", "mode", "0800");
    refused(MORTISE_CONFIG, "expected permissions", "mode", "0400");
    refused(MORTISE_CONFIG, "expected permissions", "mode", "0777");
    CU_ASSERT_NOT_EQUAL(access(path, F_OK), 0);
}

/* ---- permissions ------------------------------------------------------------------------------- */

static unsigned mode_of(const char *file, const char *suffix)
{
    char text[PATHS_MAX];
    struct stat about = {.st_mode = 0};
    stat(joined(text, file, suffix), &about);
    return about.st_mode & 0777;
}

static void test_modes(void)
{
    struct client holder, client;
    struct call lock, other = call_make(MORTISE_OP_ACQUIRE, "a");
    char wake[PATHS_MAX], socket[PATHS_MAX];
    path = database("private");
    OPEN_OK(&client, "path", path);
    CU_ASSERT_EQUAL(mode_of(path, ""), 0600);
    CU_ASSERT_EQUAL(mode_of(path, "-wal"), 0600);
    CU_ASSERT_EQUAL(mode_of(path, "-wake"), 0700);
    client_close(&client);
    path = database("group");
    mode_t before = umask(077);
    OPEN_OK(&holder, "path", path, "mode", "0660", "synchronous", "full");
    OPEN_OK(&client, "path", path);
    acquire(&holder, &lock, "a", 0);
    CU_ASSERT_EQUAL(run(&client, &other), MORTISE_BUSY);
    umask(before);
    CU_ASSERT_EQUAL(mode_of(path, ""), 0660);
    CU_ASSERT_EQUAL(mode_of(path, "-wal"), 0660);
    CU_ASSERT_EQUAL(mode_of(path, "-wake"), 0770);
    joined(wake, path, "-wake");
    DIR *directory = opendir(wake);
    const struct dirent *entry;
    CU_ASSERT_PTR_NOT_NULL_FATAL(directory);
    while ((entry = readdir(directory)) != NULL)
        if (entry->d_name[0] != '.')
            CU_ASSERT_EQUAL(mode_of(wake, joined(socket, "/", entry->d_name)), 0660);
    closedir(directory);
    client_close(&client);
    client_close(&holder);
}

static void as_nobody(void *argument)
{
    struct client client;
    struct stat about;
    char text[PATHS_MAX];
    (void)argument;
    if (geteuid() == 0 && (setgroups(0, NULL) != 0 || setgid(NOBODY) != 0 || setuid(NOBODY) != 0))
        abort();
    joined(text, folder, "/home");
    setenv("XDG_STATE_HOME", text, 1);
    CU_ASSERT_EQUAL(OPEN(&client, "busy_timeout", "1s"), MORTISE_OK);
    client_close(&client);
    path = database("home/mortise/locks");
    joined(text, folder, "/home/mortise");
    CU_ASSERT_TRUE(stat(text, &about) == 0 && (about.st_mode & 0777) == 0700);
    CU_ASSERT_EQUAL(mode_of(path, ""), 0600);
    chmod(text, 0770); /* somebody else could replace the file */
    CU_ASSERT_EQUAL(OPEN(&client, "busy_timeout", "1s"), MORTISE_CONFIG);
    CU_ASSERT_PTR_NOT_NULL(strstr(client.error.message, "nobody else may write in it"));
    chmod(text, 0700);

    chmod(path, 0400);
    refused(MORTISE_CONFIG, "must be writable for uid", NULL, NULL);
    chmod(path, 0600);
    chmod(text, 0500);
    refused(MORTISE_CONFIG, "/home/mortise must be writable for uid", NULL, NULL);
    chmod(text, 0700);
    OPEN_OK(&client, "path", path);
    client_close(&client);
}

static void test_as_nobody(void)
{
    char home[PATHS_MAX];
    joined(home, folder, "/home");
    CU_ASSERT_EQUAL(mkdir(home, 0700), 0);
    chmod(folder, 0711);
    if (geteuid() == 0)
        CU_ASSERT_EQUAL(chown(home, NOBODY, NOBODY), 0);
    CU_ASSERT_EQUAL(child_end(child_start(as_nobody, NULL)), 0);
}

/* ---- two clients of one process, and no file yet ------------------------------------------------------ */

static const char *making; /* a client that makes this file is being opened */
static struct client early;
static bool renames_badly; /* the file system cannot rename without replacing */

static void open_early(void)
{
    const char *file = making;
    making = NULL;
    OPEN_OK(&early, "path", file);
}

static bool is_database(int fd)
{
    struct stat file, about;
    return stat(making, &file) == 0 && fstat(fd, &about) == 0 && file.st_dev == about.st_dev &&
           file.st_ino == about.st_ino;
}

/* In place of the C library's: another thread opens a client just before a descriptor of the new file is closed. */
__attribute__((visibility("default"))) int close(int fd)
{
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "close");
    if (making != NULL && is_database(fd))
        open_early();
    return real(fd);
}

__attribute__((visibility("default"))) int
renameat2(int from_folder, const char *from, int to_folder, const char *to, unsigned int flags)
{
    int (*real)(int, const char *, int, const char *, unsigned) =
        (int (*)(int, const char *, int, const char *, unsigned))dlsym(RTLD_NEXT, "renameat2");
    if (!renames_badly)
        return real(from_folder, from, to_folder, to, flags);
    errno = EINVAL;
    return -1;
}

/* In a child: what other processes see of its parent's locks. */
static void look_at_locks(void *argument)
{
    struct flock lock = {
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = SHARED_FIRST, .l_len = SHARED_SIZE};
    int fd = open(path, O_RDWR | O_CLOEXEC);
    (void)argument;
    CU_ASSERT(fd >= 0 && fcntl(fd, F_GETLK, &lock) == 0);
    CU_ASSERT_EQUAL(lock.l_type, F_RDLCK);
    CU_ASSERT_EQUAL(lock.l_pid, getppid());
}

/* Advisory locks belong to the process, and closing any descriptor of the file drops them: the client that makes the file
 * must not drop those of one that opens it at the same time. */
static void make_at_once(const char *name, const char *key, const char *text, unsigned mode)
{
    char place[PATHS_MAX], file[64];
    struct client client;
    CU_ASSERT_EQUAL(mkdir(joined(place, folder, name), 0700), 0);
    snprintf(file, sizeof(file), "%s/locks", name + 1);
    path = database(file);
    making = path;
    mode_t before = umask(077);
    OPEN_OK(&client, "path", path, key, text);
    umask(before);
    if (making != NULL)
        open_early();
    CU_ASSERT_EQUAL(child_end(child_start(look_at_locks, NULL)), 0);
    CU_ASSERT_EQUAL(mode_of(path, ""), mode);
    CU_ASSERT_EQUAL(entries_in(place, ""), 4); /* the log, its index, the sockets */
    client_close(&client);
    CU_ASSERT_EQUAL(child_end(child_start(look_at_locks, NULL)), 0);
    client_close(&early);
}

static void test_made_at_once(void)
{
    make_at_once("/at-once", "shared", "no", 0600);
    make_at_once("/at-once-mode", "mode", "0660", 0660);
    renames_badly = true;
    make_at_once("/at-once-umask", "mode", "0660", 0600); /* the umask counts there */
    renames_badly = false;
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"what is no database of ours", test_no_database},
        {"bad settings", test_bad_settings},
        {"permissions of what is made", test_modes},
        {"a user who may not do everything", test_as_nobody},
        {"made and opened at the same time", test_made_at_once},
        CU_TEST_INFO_NULL,
    };
    return host_run("sqlite place", tests);
}
