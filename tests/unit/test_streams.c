/* test_streams.c - a program that has closed its stdin, stdout or stderr: no descriptor of the library gets such a number, and
 * nobody can read or write what is there instead. */
#include "base/streams.h"
#include "witness_test.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { STREAMS = STDERR_FILENO + 1, ALL = (1 << STREAMS) - 1 };

static int saved[STREAMS];

/* The streams whose bits are set. Until they are open again nothing is printed. */
static void close_streams(int which)
{
    fflush(NULL);
    for (int fd = 0; fd < STREAMS; fd++) {
        saved[fd] = fcntl(fd, F_DUPFD_CLOEXEC, 100);
        CU_ASSERT_FATAL(saved[fd] >= 0);
    }
    for (int fd = 0; fd < STREAMS; fd++)
        if ((which & 1 << fd) != 0)
            close(fd);
}

static void open_streams(void)
{
    for (int fd = 0; fd < STREAMS; fd++) {
        CU_ASSERT_EQUAL(dup2(saved[fd], fd), fd);
        close(saved[fd]);
    }
}

static int descriptors(void)
{
    DIR *folder = opendir("/proc/self/fd");
    int entries = 0;
    while (folder != NULL && readdir(folder) != NULL)
        entries++;
    closedir(folder);
    return entries;
}

/* Open, and of no use; exec() closes it. */
static bool is_held(int fd)
{
    char byte = 'x';
    return fcntl(fd, F_GETFD) == FD_CLOEXEC && write(fd, &byte, 1) < 0 && read(fd, &byte, 1) < 0;
}

static bool is_as_before(int fd)
{
    struct stat now, before;
    return fstat(fd, &now) == 0 && fstat(saved[fd], &before) == 0 && now.st_dev == before.st_dev &&
           now.st_ino == before.st_ino && fcntl(fd, F_GETFD) == 0;
}

static void test_held(void)
{
    int before = descriptors();
    for (int which = 0; which <= ALL; which++) {
        close_streams(which);
        streams_hold();
        int held = descriptors();
        streams_hold(); /* another client */
        CU_ASSERT_EQUAL(held, before + STREAMS);
        CU_ASSERT_EQUAL(descriptors(), held);
        for (int fd = 0; fd < STREAMS; fd++)
            CU_ASSERT((which & 1 << fd) != 0 ? is_held(fd) : is_as_before(fd));
        open_streams();
    }
    CU_ASSERT_EQUAL(descriptors(), before);
}

/* A trace to /dev/stderr, for example, fails as it did before. */
static void test_not_by_name(void)
{
    close_streams(1 << STDERR_FILENO);
    streams_hold();
    CU_ASSERT_EQUAL(open("/dev/stderr", O_WRONLY | O_CLOEXEC), -1);
    open_streams();
}

static void test_client(void)
{
    close_streams(ALL);
    rig_open(&rig, "");
    release(take(&rig, "a", NULL));
    for (int fd = 0; fd < STREAMS; fd++)
        CU_ASSERT(is_held(fd));
    rig_close(&rig);
    for (int fd = 0; fd < STREAMS; fd++)
        CU_ASSERT(is_held(fd));
    open_streams();
}

/* The connection to the witness, and the memory that it reads. */
static void test_witness(void)
{
    snprintf(path, sizeof(path), "%s/w", rig_folder);
    snprintf(config, sizeof(config), "handover_max = 0\nwitness = %s\n", path);
    start_listening();
    close_streams(ALL);
    rig_open(&rig, config);
    turn();
    meet();
    say(MORTISE_WITNESS_WELCOME, "");
    turn();
    CU_ASSERT_EQUAL(the_link()->state, LINK_WATCHED);
    want(&rig, &got, "a", FOREVER);
    CU_ASSERT_EQUAL(count(MORTISE_WITNESS_HELD), 1);
    CU_ASSERT(the_link()->socket.fd >= STREAMS);
    CU_ASSERT(rig.client->locks.area.file.fd >= STREAMS);
    for (int fd = 0; fd < STREAMS; fd++)
        CU_ASSERT(is_held(fd));
    release(got.lease);
    finish();
    open_streams();
}

int main(void)
{
    static const CU_TestInfo tests[] = {
        {"closed ones are held", test_held},
        {"not opened by name", test_not_by_name},
        {"a client", test_client},
        {"a client and its witness", test_witness},
        CU_TEST_INFO_NULL,
    };
    return rig_run("streams", tests);
}
