/* test_sqlite_mixed.c - another database is put into the place of the one that the SQLite module has open, and something else is at
 * the new file before what the old one left is removed. */
#include "sqlite_replaced.h"

#include <sys/syscall.h>

struct program {
    int ready[2], go[2];
    const char *does; /* NULL: locks the file, as one does that removes what is left */
    pid_t pid;
};

static int lock_file(const char *file)
{
    int fd = open(file, O_RDWR | O_CLOEXEC);
    CU_ASSERT_EQUAL(fcntl(fd, F_SETLK, &(struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET}),
                    0);
    return fd;
}

static void program_main(void *argument)
{
    struct program *program = argument;
    void *db = NULL;
    CU_ASSERT_TRUE(hear(program->go));
    int fd = program->does == NULL ? lock_file(path) : -1;
    if (program->does != NULL)
        CU_ASSERT_EQUAL(outside(path, program->does, &db), 0);
    say(program->ready);
    CU_ASSERT_TRUE(hear(program->go));
    if (program->does != NULL)
        outside_close(db);
    else
        close(fd);
}

static struct program program_start(const char *does)
{
    struct program program = {.does = does};
    if (pipe2(program.ready, O_CLOEXEC) != 0 || pipe2(program.go, O_CLOEXEC) != 0)
        abort();
    program.pid = child_start(program_main, &program);
    return program;
}

static void program_opens(const struct program *program)
{
    say(program->go);
    CU_ASSERT_TRUE(hear(program->ready));
}

static void program_end(const struct program *program)
{
    say(program->go);
    CU_ASSERT_EQUAL(child_end(program->pid), 0);
    for (int i = 0; i < 2; i++) {
        close(program->ready[i]);
        close(program->go[i]);
    }
}

/* A program has the new file open, with the log and the index of the old one, which the client has. */
struct mixed {
    struct program program;
    ino_t log, index;
};

static struct mixed mix(struct client *client, const char *name)
{
    char backup[PATHS_MAX];
    path = database(name);
    make_backup(backup, 10);
    struct mixed mixed = {.program = program_start("SELECT * FROM mortise_meta")};
    OPEN_OK(client, "path", path);
    acquire_many(client, "a", 10);
    CU_ASSERT_EQUAL(rename(backup, path), 0);
    program_opens(&mixed.program);
    mixed.log = inode_of("-wal");
    mixed.index = inode_of("-shm");
    return mixed;
}

/* The client has said so, and has removed nothing. */
static void expect_mixed(const struct client *client, const struct mixed *mixed)
{
    CU_ASSERT_PTR_NOT_NULL(strstr(client->last_log, "the new file may be damaged"));
    CU_ASSERT_TRUE(mixed->log != 0 && inode_of("-wal") == mixed->log);
    CU_ASSERT_TRUE(mixed->index != 0 && inode_of("-shm") == mixed->index);
}

/* It uses the old log for the new file. The client must not give it another one: they would not exclude each other. */
static void test_opened_before(void)
{
    struct client client;
    struct mixed mixed = mix(&client, "opened");
    clock_shift_ns += 1001 * MS;
    CU_ASSERT_NOT_EQUAL(renew(&client, &locks[0]), MORTISE_UNREACHABLE);
    expect_mixed(&client, &mixed);
    client_close(&client);
    program_end(&mixed.program);
}

/* The client is closed before it has noticed. */
static void test_opened_before_and_closed(void)
{
    struct client client;
    struct mixed mixed = mix(&client, "opened-closed");
    client_close(&client);
    expect_mixed(&client, &mixed);
    program_end(&mixed.program);
}

/* SQLite removes the log that it finds beside an empty file, but not the index. */
static void test_index_alone(void)
{
    struct client client;
    path = database("index");
    struct program program = program_start("PRAGMA journal_mode = WAL; CREATE TABLE a (x)");
    OPEN_OK(&client, "path", path);
    acquire_many(&client, "a", 10);
    ino_t log = inode_of("-wal"), index = inode_of("-shm");
    CU_ASSERT_EQUAL(unlink(path), 0);
    program_opens(&program);
    CU_ASSERT_TRUE(log != 0 && inode_of("-wal") != log);
    CU_ASSERT_TRUE(index != 0 && inode_of("-shm") == index);
    client_close(&client);
    CU_ASSERT_PTR_NOT_NULL(strstr(client.last_log, "the new file may be damaged"));
    program_end(&program);
}

static const struct program *ends_soon; /* as soon as somebody waits for a moment */
static void (*then)(void);
static unsigned waits;

/* In place of the C library's. */
__attribute__((visibility("default"))) int(clock_nanosleep)(clockid_t clock, int flags,
                                                            const struct timespec *time,
                                                            struct timespec *left)
{
    const struct program *program = ends_soon;
    ends_soon = NULL;
    waits++;
    if (program != NULL) {
        program_end(program);
        if (then != NULL)
            then();
    }
    return syscall(SYS_clock_nanosleep, clock, flags, time, left) == 0 ? 0 : errno;
}

/* As two clients do that are closed at the same time. */
static void test_closed_at_the_same_time(void)
{
    struct client client;
    char backup[PATHS_MAX];
    path = database("same-time");
    make_backup(backup, 10);
    struct program program = program_start(NULL);
    OPEN_OK(&client, "path", path);
    acquire_many(&client, "a", 10);
    CU_ASSERT_EQUAL(rename(backup, path), 0);
    program_opens(&program);
    ends_soon = &program;
    client_close(&client);
    CU_ASSERT_PTR_NULL(ends_soon);
    ends_soon = NULL;
    CU_ASSERT_PTR_NULL(strstr(client.last_log, "may be damaged"));
    CU_ASSERT_EQUAL(inode_of("-wal"), 0);
    CU_ASSERT_EQUAL(inode_of("-shm"), 0);
}

static struct client meanwhile;
static mortise_status met;

static void open_meanwhile(void)
{
    on_now = NULL;
    met = OPEN(&meanwhile, "path", path, "busy_timeout", "0");
    waits = 0;
}

/* The one that is closed has left the old file, and not removed what is beside the new one, because something else keeps that locked. One
 * that is opened then, as by another thread, knows of it, and removes it if that is possible now. Then the first one tries no more. */
static void test_opened_while_another_is_closed(void)
{
    struct client client;
    char backup[PATHS_MAX];
    path = database("closing");
    make_backup(backup, 10);
    struct program program = program_start(NULL);
    OPEN_OK(&client, "path", path);
    acquire_many(&client, "a", 10);
    CU_ASSERT_EQUAL(rename(backup, path), 0);
    program_opens(&program);
    ends_soon = &program;
    then = open_meanwhile;
    client_close(&client);
    then = NULL;
    CU_ASSERT_PTR_NULL(ends_soon);
    CU_ASSERT_EQUAL(waits, 0);
    CU_ASSERT_EQUAL_FATAL(met, MORTISE_OK);
    has_backup(&meanwhile, 10);
    CU_ASSERT_PTR_NULL(strstr(client.last_log, "may be damaged"));
    CU_ASSERT_PTR_NULL(strstr(meanwhile.last_log, "may be damaged"));
    client_close(&meanwhile);
}

static void (*on_scan)(void); /* as soon as the descriptors of the process are listed */

/* In place of the C library's. */
__attribute__((visibility("default"))) DIR *opendir(const char *name)
{
    DIR *(*real)(const char *) = (DIR * (*)(const char *)) dlsym(RTLD_NEXT, "opendir");
    void (*happens)(void) = on_scan;
    if (happens != NULL && strcmp(name, "/proc/thread-self/fd") == 0) {
        on_scan = NULL;
        happens();
    }
    return real(name);
}

static void replace(void)
{
    char backup[PATHS_MAX];
    CU_ASSERT_EQUAL(rename(joined(backup, path, "-backup"), path), 0);
}

static struct client *leaves;          /* its file, which is replaced… */
static const struct program *locks_it; /* …by one that another program keeps locked */

static void replace_and_leave(void)
{
    replace();
    program_opens(locks_it);
    clock_shift_ns += 1001 * MS;
    CU_ASSERT_EQUAL(renew(leaves, &locks[0]), MORTISE_UNREACHABLE);
    program_end(locks_it);
}

/* It has seen that nobody in the process had left anything, and that nobody has the old file open any more: in between, one has left it. */
static void test_left_while_another_is_opened(void)
{
    struct client client, late;
    char backup[PATHS_MAX];
    path = database("left-opening");
    make_backup(backup, 10);
    struct program program = program_start(NULL);
    OPEN_OK(&client, "path", path, "busy_timeout", "0");
    acquire_many(&client, "a", 10);
    locks_it = &program;
    leaves = &client;
    on_scan = replace_and_leave;
    OPEN_OK(&late, "path", path);
    CU_ASSERT_PTR_NULL(on_scan);
    has_backup(&late, 10);
    CU_ASSERT_PTR_NULL(strstr(late.last_log, "may be damaged"));
    client_close(&late);
    client_close(&client);
}

/* The client that has the old file open has not noticed, and nothing was wrong when the other one looked. */
static void test_replaced_while_another_is_opened(void)
{
    struct client client, late;
    char backup[PATHS_MAX];
    path = database("replaced-opening");
    make_backup(backup, 10);
    OPEN_OK(&client, "path", path);
    acquire_many(&client, "a", 10);
    on_scan = replace;
    OPEN_OK(&late, "path", path);
    CU_ASSERT_PTR_NULL(on_scan);
    has_backup(&late, 10);
    has_backup(&client, 10);
    CU_ASSERT_PTR_NULL(strstr(late.last_log, "may be damaged"));
    client_close(&late);
    client_close(&client);
}

/* The one that is in a call has the old file open, and something else of the process has the new one open for a moment: so it cannot be
 * seen from the descriptors that the index in the place is the old one. */
static void test_both_are_open(void)
{
    struct client client, late;
    char backup[PATHS_MAX];
    path = database("both");
    make_backup(backup, 10);
    clock_stop(); /* it does not look at the database now */
    OPEN_OK(&client, "path", path);
    acquire_many(&client, "a", 10);
    CU_ASSERT_EQUAL(rename(backup, path), 0);
    ino_t log = inode_of("-wal");
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    on_now = open_meanwhile;
    CU_ASSERT_EQUAL(renew(&client, &locks[0]), MORTISE_OK);
    clock_go_on();
    close(fd);
    CU_ASSERT_EQUAL_FATAL(met, MORTISE_UNREACHABLE);
    CU_ASSERT_PTR_NOT_NULL(strstr(meanwhile.error.message, "still has the old one open"));
    CU_ASSERT_TRUE(log != 0 && inode_of("-wal") == log);
    OPEN_OK(&late, "path", path);
    has_backup(&late, 10);
    client_close(&late);
    client_close(&client);
}

static bool
    once_logged; /* the database is replaced as soon as somebody looks and SQLite has made the log */

/* In place of the C library's. */
__attribute__((visibility("default"))) int statx(int fd, const char *restrict file, int flags,
                                                 unsigned mask, struct statx *restrict about)
{
    if (once_logged && inode_of("-wal") != 0) {
        once_logged = false;
        replace();
    }
    return (int)syscall(SYS_statx, fd, file, flags, mask, about);
}

/* It has made the log of the file that was replaced then, has no time to open the other one, and nobody else knows of that log. */
static void test_cannot_be_opened(void)
{
    struct client client;
    char backup[PATHS_MAX];
    path = database("unopened");
    make_backup(backup, 10);
    once_logged = true;
    CU_ASSERT_EQUAL(OPEN(&client, "path", path, "busy_timeout", "0"), MORTISE_UNREACHABLE);
    CU_ASSERT_FALSE(once_logged);
    CU_ASSERT_PTR_NOT_NULL(strstr(client.error.message, "was moved or deleted while in use"));
    CU_ASSERT_EQUAL(inode_of("-wal"), 0);
    CU_ASSERT_EQUAL(inode_of("-shm"), 0);
    OPEN_OK(&client, "path", path);
    has_backup(&client, 10);
    CU_ASSERT_PTR_NULL(strstr(client.last_log, "may be damaged"));
    client_close(&client);
}

static void pass_time(void)
{
    clock_shift_ns += 10 * MS;
}

/* The other one is stopped with the lock for longer than the client tries, and killed before it removes anything. */
static void test_stopped_and_killed(void)
{
    struct client client;
    char backup[PATHS_MAX];
    path = database("stopped");
    make_backup(backup, 10);
    struct program program = program_start(NULL);
    OPEN_OK(&client, "path", path);
    acquire_many(&client, "a", 10);
    CU_ASSERT_EQUAL(rename(backup, path), 0);
    program_opens(&program);
    clock_shift_ns += 1001 * MS;
    on_now = pass_time;
    CU_ASSERT_EQUAL(renew(&client, &locks[0]), MORTISE_UNREACHABLE);
    CU_ASSERT_PTR_NOT_NULL(strstr(client.last_log, "the new file may be damaged"));
    on_now = NULL;
    program_end(&program);
    clock_shift_ns += 251 * MS;
    CU_ASSERT_EQUAL(renew(&client, &locks[0]), MORTISE_LOST);
    has_backup(&client, 10);
    client_close(&client);
}

static const char *
    put_there; /* as soon as the file in its place is locked as one does that removes what is left */

/* In place of the C library's, which SQLite calls. */
__attribute__((visibility("default"))) int fcntl64(int fd, int command, ...)
{
    int (*real)(int, int, ...) = (int (*)(int, int, ...))dlsym(RTLD_NEXT, "fcntl64");
    va_list arguments;
    va_start(arguments, command);
    void *argument = va_arg(arguments, void *);
    va_end(arguments);
    const struct flock *lock = argument;
    struct stat about;
    int code = real(fd, command, argument);
    if (put_there != NULL && command == F_SETLK && lock->l_type == F_WRLCK && lock->l_len > 1 &&
        fstat(fd, &about) == 0 && about.st_ino == inode_of("")) {
        CU_ASSERT_EQUAL(rename(put_there, path), 0);
        put_there = NULL;
    }
    return code;
}

/* The one that is opened has locked a file that is not in its place any more, and must begin again. */
static void test_replaced_once_more(void)
{
    struct client client, late;
    char backup[PATHS_MAX], again[PATHS_MAX];
    path = database("once-more");
    make_backup(backup, 20);
    CU_ASSERT_EQUAL(rename(backup, joined(again, path, "-again")), 0);
    make_backup(backup, 10);
    OPEN_OK(&client, "path", path);
    acquire_many(&client, "a", 10);
    CU_ASSERT_EQUAL(rename(backup, path), 0);
    put_there = again;
    OPEN_OK(&late, "path", path);
    CU_ASSERT_PTR_NULL(put_there);
    has_backup(&late, 20);
    CU_ASSERT_PTR_NULL(strstr(late.last_log, "may be damaged"));
    client_close(&late);
    client_close(&client);
}

/* A client has removed what was left, but could not open the new file. What another client leaves later is another matter: it must be
 * tried as long, and told of. */
static void test_left_twice(void)
{
    struct client client, other;
    char backup[PATHS_MAX], broken[PATHS_MAX], again[PATHS_MAX];
    path = database("twice");
    make_backup(backup, 20);
    CU_ASSERT_EQUAL(rename(backup, joined(again, path, "-again")), 0);
    make_backup(backup, 10);
    struct program program = program_start("SELECT * FROM mortise_meta");
    OPEN_OK(&client, "path", path);
    acquire_many(&client, "a", 10);
    write_at(joined(broken, path, "-broken"), 0, 'x', 4096);
    CU_ASSERT_EQUAL(rename(broken, path), 0);
    clock_shift_ns += 1001 * MS;
    CU_ASSERT_NOT_EQUAL(renew(&client, &locks[0]), MORTISE_LOST);
    CU_ASSERT_EQUAL(inode_of("-wal"), 0);
    CU_ASSERT_EQUAL(rename(again, path), 0);
    OPEN_OK(&other, "path", path);
    acquire_many(&other, "a", 10);
    CU_ASSERT_EQUAL(rename(backup, path), 0);
    program_opens(&program);
    clock_shift_ns += 251 * MS;
    CU_ASSERT_NOT_EQUAL(renew(&client, &locks[0]), MORTISE_UNREACHABLE);
    CU_ASSERT_PTR_NOT_NULL(strstr(client.last_log, "the new file may be damaged"));
    client_close(&other);
    client_close(&client);
    program_end(&program);
}

/* One client is in no call for long. What it has left keeps no other one from the new file for longer than a second in all, and none
 * that comes after one that has opened it. */
static void test_left_by_an_idle_client(void)
{
    struct client idle, late, more;
    char backup[PATHS_MAX];
    path = database("idle");
    make_backup(backup, 10);
    struct program program = program_start("SELECT * FROM mortise_meta");
    OPEN_OK(&idle, "path", path);
    acquire_many(&idle, "a", 10);
    CU_ASSERT_EQUAL(rename(backup, path), 0);
    program_opens(&program);
    clock_stop();
    CU_ASSERT_EQUAL(OPEN(&late, "path", path, "busy_timeout", "0"), MORTISE_UNREACHABLE);
    CU_ASSERT_PTR_NOT_NULL(
        strstr(late.last_log, "may be damaged")); /* idle knows what is left, but is in no call */
    clock_go_on();
    clock_shift_ns += 1001 * MS;
    OPEN_OK(&late, "path", path, "busy_timeout", "0");
    CU_ASSERT_PTR_NOT_NULL(strstr(late.last_log, "the new file may be damaged"));
    OPEN_OK(&more, "path", path, "busy_timeout", "0");
    CU_ASSERT_PTR_NULL(strstr(more.last_log, "may be damaged"));
    client_close(&more);
    client_close(&late);
    client_close(&idle);
    CU_ASSERT_PTR_NULL(strstr(idle.last_log, "the new file may be damaged"));
    program_end(&program);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"opened by another program before", test_opened_before},
        {"opened by another program before, and closed", test_opened_before_and_closed},
        {"the index alone is left", test_index_alone},
        {"closed at the same time", test_closed_at_the_same_time},
        {"opened while another one is closed", test_opened_while_another_is_closed},
        {"left while another one is opened", test_left_while_another_is_opened},
        {"replaced while another one is opened", test_replaced_while_another_is_opened},
        {"both the old and the new one are open", test_both_are_open},
        {"it cannot be opened", test_cannot_be_opened},
        {"the other one is stopped and killed", test_stopped_and_killed},
        {"replaced once more", test_replaced_once_more},
        {"left twice", test_left_twice},
        {"left by an idle client", test_left_by_an_idle_client},
        CU_TEST_INFO_NULL,
    };
    return host_run("sqlite mixed", tests);
}
