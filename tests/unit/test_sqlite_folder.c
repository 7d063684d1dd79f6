/* test_sqlite_folder.c - somebody removes or moves the folder of the sockets of the SQLite module while it is in use. Checkpoints
 * exclude each other by that folder. Also: it looks as if it were in use to programs that delete what is old. */
#include "sqlite_host.h"

#include <sys/file.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

#define LOOK (11 * MS)              /* the module looks again after this */
#define LONG_LOG (INT64_C(2) << 20) /* it is copied when it has half of that */
#define TEN_DAYS_S 864000

static const char *path;

/* ---- removed ------------------------------------------------------------------------------------------- */

/* The first bytes of the log change when it begins anew, after all of it was copied. Returns its size. */
static off_t read_log(char *begin)
{
    char file[PATHS_MAX];
    struct stat about = {.st_size = 0};
    int fd = open(joined(file, path, "-wal"), O_RDONLY | O_CLOEXEC);
    CU_ASSERT_TRUE_FATAL(fd >= 0 && fstat(fd, &about) == 0 && read(fd, begin, 32) == 32);
    close(fd);
    return about.st_size;
}

static void take_turns(struct client *client, int rounds)
{
    struct call lock;
    for (int i = 0; i < rounds; i++) {
        CU_ASSERT_EQUAL(acquire(client, &lock, "a", 0), MORTISE_OK);
        CU_ASSERT_EQUAL(release(client, &lock), MORTISE_OK);
    }
}

/* A client that has the folder which was removed does not copy the log while another one, which came later, has the lock of
 * the one that is there now. */
static void test_removed(void)
{
    struct client client, late;
    char wake[PATHS_MAX], before[32], now[32];
    path = database("removed");
    joined(wake, path, "-wake");
    OPEN_OK(&client, "path", path);
    take_turns(&client, 1);
    remove_tree(wake);
    OPEN_OK(&late, "path", path);
    int fd = open(wake, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CU_ASSERT_EQUAL_FATAL(flock(fd, LOCK_EX | LOCK_NB), 0);
    read_log(before);
    for (int i = 0; i < 50 && read_log(now) < LONG_LOG; i++)
        take_turns(&client, 100);
    CU_ASSERT_TRUE(read_log(now) >= LONG_LOG);
    CU_ASSERT_EQUAL(memcmp(before, now, sizeof now), 0);
    flock(fd, LOCK_UN);
    for (int i = 0; i < 10 && memcmp(before, now, sizeof now) == 0; i++) {
        take_turns(&client, 100);
        read_log(now);
    }
    CU_ASSERT_NOT_EQUAL(memcmp(before, now, sizeof now), 0);
    close(fd);
    client_close(&late);
    client_close(&client);
}

/* Nobody else is there: the client makes it again, and goes on. */
static void test_removed_alone(void)
{
    struct client client;
    char wake[PATHS_MAX], before[32], now[32];
    path = database("alone");
    OPEN_OK(&client, "path", path);
    take_turns(&client, 1);
    remove_tree(joined(wake, path, "-wake"));
    read_log(before);
    take_turns(&client, 1000);
    read_log(now);
    CU_ASSERT_NOT_EQUAL(memcmp(before, now, sizeof now), 0);
    CU_ASSERT_EQUAL(access(wake, F_OK), 0);
    client_close(&client);
}

/* While something else is in its place, nothing is copied. That is said once, and once more if it happens again. */
static void test_in_its_place(void)
{
    struct client client;
    char wake[PATHS_MAX], before[32], now[32];
    path = database("in the way");
    joined(wake, path, "-wake");
    OPEN_OK(&client, "path", path);
    take_turns(&client, 1);
    for (int round = 0; round < 2; round++) {
        unsigned logs = client.logs;
        remove_tree(wake);
        write_at(wake, 0, 'x', 1);
        read_log(before);
        take_turns(&client, 1000);
        read_log(now);
        CU_ASSERT_EQUAL(memcmp(before, now, sizeof now), 0);
        CU_ASSERT_EQUAL(client.logs, logs + 1);
        CU_ASSERT_PTR_NOT_NULL(strstr(client.last_log, "-wake was removed or replaced"));
        CU_ASSERT_EQUAL(unlink(wake), 0);
        for (int i = 0; i < 10 && memcmp(before, now, sizeof now) == 0; i++) {
            take_turns(&client, 100);
            read_log(now);
        }
        CU_ASSERT_NOT_EQUAL(memcmp(before, now, sizeof now), 0);
    }
    client_close(&client);
}

/* ---- moved --------------------------------------------------------------------------------------------- */

/* The other client has the lock so many times before the waiter is told that it releases it; 3: more often. No time passes. */
static int told_after(struct client *other, struct client *waiter)
{
    struct call lock, waiting;
    bool told = false;
    int times = 0;
    while (!told && times++ < 2) {
        CU_ASSERT_EQUAL(acquire(other, &lock, "a", 0), MORTISE_OK);
        CU_ASSERT_EQUAL(acquire(waiter, &waiting, "a", 0), MORTISE_BUSY);
        unsigned news = waiter->news;
        CU_ASSERT_EQUAL(release(other, &lock), MORTISE_OK);
        told = wait_news(waiter, news + 1, 300 * MS);
    }
    CU_ASSERT_EQUAL(acquire(waiter, &waiting, "a", 0), MORTISE_OK);
    CU_ASSERT_EQUAL(release(waiter, &waiting), MORTISE_OK);
    return told ? times : 3;
}

/* A client that comes later makes it anew, and takes the sockets in the old one for gone. A waiter that finds itself off the list
 * makes another socket there; so does one that waits for the first time. */
static void test_moved(void)
{
    struct client waiter, first_time, early, late;
    char wake[PATHS_MAX], away[PATHS_MAX];
    path = database("moved");
    joined(wake, path, "-wake");
    OPEN_OK(&waiter, "path", path);
    OPEN_OK(&first_time, "path", path);
    OPEN_OK(&early, "path", path);
    clock_stop();
    module->watch(waiter.ctx, "a", 1);
    CU_ASSERT_EQUAL(told_after(&early, &waiter), 1);
    CU_ASSERT_EQUAL(rename(wake, joined(away, path, "-away")), 0);
    OPEN_OK(&late, "path", path);
    CU_ASSERT_EQUAL(told_after(&late, &waiter), 2);
    CU_ASSERT_EQUAL(told_after(&late, &waiter), 1);
    module->unwatch(waiter.ctx, "a", 1);
    module->watch(first_time.ctx, "a", 1);
    CU_ASSERT_EQUAL(told_after(&late, &first_time), 1);
    clock_go_on();
    client_close(&late);
    client_close(&early);
    client_close(&first_time);
    client_close(&waiter);
    remove_tree(away);
}

/* ---- what is old is deleted ---------------------------------------------------------------------------- */

/* Of the only one. */
static void find_socket(const char *wake, char *file)
{
    char name[PATHS_MAX] = "";
    const struct dirent *entry;
    DIR *stream = opendir(wake);
    CU_ASSERT_PTR_NOT_NULL_FATAL(stream);
    while ((entry = readdir(stream)) != NULL)
        if (entry->d_name[0] != '.')
            snprintf(name, sizeof name, "/%s", entry->d_name);
    closedir(stream);
    CU_ASSERT_NOT_EQUAL_FATAL(name[0], '\0');
    joined(file, wake, name);
}

static time_t age_of(const char *file)
{
    struct stat about = {.st_mtime = 0};
    CU_ASSERT_EQUAL(stat(file, &about), 0);
    return time(NULL) - about.st_mtime;
}

static void test_never_old(void)
{
    struct timespec old[2] = {{.tv_sec = time(NULL) - TEN_DAYS_S},
                              {.tv_sec = time(NULL) - TEN_DAYS_S}};
    struct client client, holder;
    struct call lock, waiting;
    char wake[PATHS_MAX], socket[PATHS_MAX];
    path = database("old");
    joined(wake, path, "-wake");
    OPEN_OK(&client, "path", path);
    OPEN_OK(&holder, "path", path);
    CU_ASSERT_EQUAL(acquire(&holder, &lock, "a", 0), MORTISE_OK);
    CU_ASSERT_EQUAL(acquire(&client, &waiting, "a", 0), MORTISE_BUSY);
    find_socket(wake, socket);
    CU_ASSERT_EQUAL(utimensat(AT_FDCWD, wake, old, 0), 0);
    CU_ASSERT_EQUAL(utimensat(AT_FDCWD, socket, old, 0), 0);
    clock_shift_ns += LOOK;
    inspect(&client, "a"); /* not each time that it looks */
    CU_ASSERT_TRUE(age_of(wake) >= TEN_DAYS_S && age_of(socket) >= TEN_DAYS_S);
    clock_shift_ns += 3600000 * MS;
    inspect(&client, "a");
    CU_ASSERT_TRUE(age_of(wake) < 3600 && age_of(socket) < 3600);
    client_close(&holder);
    client_close(&client);
}

/* ---- what killed processes left ------------------------------------------------------------------------ */

static time_t later_s; /* wall time is so much later */

/* In place of the C library's. */
__attribute__((visibility("default"))) time_t time(time_t *to)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    now.tv_sec += later_s;
    if (to != NULL)
        *to = now.tv_sec;
    return now.tv_sec;
}

enum { LIVING = 300, DEAD = 100, SWEEPS_MAX = 60 };

static int bind_socket(int directory, int number)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/%016x", directory,
             (unsigned)number);
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    CU_ASSERT_EQUAL_FATAL(bind(fd, (const struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

/* More processes live than a sweep looks at. */
static void test_swept(void)
{
    struct client client;
    char wake[PATHS_MAX];
    int fds[LIVING];
    path = database("swept");
    OPEN_OK(&client, "path", path);
    int directory = open(joined(wake, path, "-wake"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int i = 0; i < DEAD; i++)
        close(bind_socket(directory, i));
    for (int i = 0; i < LIVING; i++)
        fds[i] = bind_socket(directory, DEAD + i);
    later_s = 61; /* nobody binds them just now */
    for (int i = 0; i < SWEEPS_MAX && entries_in(path, "-wake") > LIVING; i++) {
        clock_shift_ns += 60000 * MS;
        take_turns(&client, 500); /* with a checkpoint, and with it a sweep */
    }
    later_s = 0;
    CU_ASSERT_EQUAL(entries_in(path, "-wake"), LIVING);
    for (int i = 0; i < LIVING; i++)
        close(fds[i]);
    close(directory);
    client_close(&client);
}

/* A process that has as many files open as it may cannot lock it. */
static void test_no_descriptor(void)
{
    struct client client;
    struct call lock;
    struct rlimit limit, none;
    char before[32], now[32];
    path = database("no descriptor");
    clock_stop(); /* no checkpoint takes long, which would be logged, too */
    OPEN_OK(&client, "path", path);
    CU_ASSERT_EQUAL(acquire(&client, &lock, "b", 0), MORTISE_OK);
    read_log(before);
    CU_ASSERT_EQUAL_FATAL(getrlimit(RLIMIT_NOFILE, &limit), 0);
    none = (struct rlimit){.rlim_cur = 0, .rlim_max = limit.rlim_max};
    CU_ASSERT_EQUAL_FATAL(setrlimit(RLIMIT_NOFILE, &none), 0);
    for (int i = 0; i < 2000; i++) {
        clock_stopped_ns += MS / 10; /* or there is nothing to write */
        CU_ASSERT_EQUAL(renew(&client, &lock), MORTISE_OK);
    }
    CU_ASSERT_EQUAL_FATAL(setrlimit(RLIMIT_NOFILE, &limit), 0);
    read_log(now);
    CU_ASSERT_EQUAL(memcmp(before, now, sizeof now), 0);
    CU_ASSERT_EQUAL(client.logs, 1);
    CU_ASSERT_PTR_NOT_NULL(strstr(client.last_log, "-wake cannot be locked: "));
    for (int i = 0; i < 10 && memcmp(before, now, sizeof now) == 0; i++) {
        take_turns(&client, 100);
        read_log(now);
    }
    CU_ASSERT_NOT_EQUAL(memcmp(before, now, sizeof now), 0);
    CU_ASSERT_EQUAL(client.logs, 1);
    clock_go_on();
    client_close(&client);
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"removed and made by another client", test_removed},
        {"removed", test_removed_alone},
        {"something else in its place", test_in_its_place},
        {"no descriptor left to lock it with", test_no_descriptor},
        {"moved away, and made by another client", test_moved},
        {"never old", test_never_old},
        {"left by killed processes", test_swept},
        CU_TEST_INFO_NULL,
    };
    return host_run("sqlite folder", tests);
}
