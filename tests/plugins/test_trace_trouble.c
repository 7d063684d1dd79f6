/* test_trace_trouble.c - a trace whose file is renamed, whose disk is full or hangs, whose reader is slow or gone; a
 * trace that two programs write; one whose descriptor the application takes; and what is refused. */
#include "own_number.h"
#include "trace_test.h"

#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/syscall.h>

/* Nobody reads: events are dropped, counted, and the count stands where they are missing. */
static void test_full(void)
{
    enum { COUNT = 100000 };
    struct trace trace;
    struct story story = {0};
    int ends[2];
    CU_ASSERT_EQUAL_FATAL(pipe(ends), 0);
    OPEN(&trace, NULL, ends[1], 16);
    close(ends[1]);
    send_numbers(&trace, 0, COUNT);
    FILE *reader = fdopen(ends[0], "r");
    char *line = NULL;
    size_t size = 0;
    while (story.lines < 100 && /* fewer than the buffer holds */
           getline(&line, &size, reader) > 0) {
        line[strcspn(line, "\n")] = '\0';
        take_line(&story, line);
    }
    send_number(&trace, COUNT); /* there may be room again */
    free(line);
    pthread_t closer;
    CU_ASSERT_EQUAL_FATAL(
        pthread_create(&closer, NULL, (void *(*)(void *))(void (*)(void))close_trace, &trace), 0);
    read_stream(&story, reader);
    pthread_join(closer, NULL);
    fclose(reader);
    CU_ASSERT(story.dropped > 0);
    CU_ASSERT_EQUAL(story.gaps, 0);
    CU_ASSERT_EQUAL(story.torn, 0);
    CU_ASSERT_EQUAL(story.events + story.dropped, COUNT + 1);
    CU_ASSERT_EQUAL(story.told_events, story.events);
    CU_ASSERT_EQUAL(story.told_dropped, story.dropped);
}

/* Closing does not wait for a reader that does not come, and says so. */
static void test_nobody_reads(void)
{
    struct trace trace;
    int ends[2];
    logs.value = 0;
    CU_ASSERT_EQUAL_FATAL(pipe(ends), 0);
    OPEN(&trace, NULL, ends[1], 256);
    send_numbers(&trace, 0, 5000);
    int64_t before = test_now_ms();
    close_trace(&trace);
    CU_ASSERT(test_now_ms() - before < TEST_PATIENCE_MS);
    CU_ASSERT_EQUAL(test_count_get(&logs), 1);
    CU_ASSERT_EQUAL(fcntl(ends[1], F_GETFL) & O_NONBLOCK, 0); /* the application's is as it was */
    close(ends[0]);
    close(ends[1]);
}

static void test_reader_gone(void)
{
    struct trace trace;
    int ends[2];
    logs.value = 0;
    CU_ASSERT_EQUAL_FATAL(pipe(ends), 0);
    OPEN(&trace, NULL, ends[1], 64);
    close(ends[0]);
    send_numbers(&trace, 0, 10);
    CU_ASSERT(test_count_wait(&logs, 1)); /* and SIGPIPE ended nobody */
    send_numbers(&trace, 10, 100000);
    close_trace(&trace);
    CU_ASSERT_EQUAL(test_count_get(&logs), 2);
    close(ends[1]);
}

static void test_socket(void)
{
    struct trace trace;
    struct story story = {0};
    int ends[2];
    CU_ASSERT_EQUAL_FATAL(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    OPEN(&trace, NULL, ends[1], 64);
    send_numbers(&trace, 0, 100);
    close_trace(&trace);
    close(ends[1]);
    FILE *reader = fdopen(ends[0], "r");
    read_stream(&story, reader);
    fclose(reader);
    expect_whole(&story, 100);
}

static void test_rotation(void)
{
    enum { COUNT = 5000, PIECES = 10 }; /* all of it fits into the buffer */
    struct trace trace;
    struct story story = {0};
    char names[PIECES][320];
    fresh();
    OPEN(&trace, path, -1, 16384);
    for (int i = 0; i < PIECES; i++) {
        send_numbers(&trace, (uint64_t)i * COUNT, (uint64_t)(i + 1) * COUNT);
        snprintf(names[i], sizeof(names[i]), "%s.%d", path, i);
        CU_ASSERT(wait_size(path, 1));
        CU_ASSERT_EQUAL(rename(path, names[i]), 0); /* while it is being written */
    }
    close_trace(&trace);
    for (int i = 0; i < PIECES; i++) {
        read_file(&story, names[i]);
        unlink(names[i]);
    }
    read_file(&story, path);
    expect_whole(&story, (uint64_t)PIECES * COUNT);
}

/* The folder goes too: the lines stay with the file, and the log says so, until there is one of that name again. */
static void test_folder_away(void)
{
    struct trace trace;
    struct story story = {0};
    char inner[320], moved[320], file[340];
    logs.value = 0;
    snprintf(inner, sizeof(inner), "%s/inner", folder);
    snprintf(moved, sizeof(moved), "%s/moved", folder);
    snprintf(file, sizeof(file), "%s/t", inner);
    CU_ASSERT_EQUAL_FATAL(mkdir(inner, 0700), 0);
    OPEN(&trace, file, -1, 64);
    CU_ASSERT_EQUAL(rename(inner, moved), 0);
    send_numbers(&trace, 0, 10);
    CU_ASSERT(test_count_wait_ms(&logs, 1, 10000));
    CU_ASSERT_EQUAL_FATAL(mkdir(inner, 0700), 0);
    send_numbers(&trace, 10, 20);
    CU_ASSERT(test_count_wait_ms(&logs, 2, 10000));
    close_trace(&trace);
    CU_ASSERT_EQUAL(test_count_get(&logs), 2); /* once each */
    snprintf(file, sizeof(file), "%s/t", moved);
    read_file(&story, file);
    CU_ASSERT_EQUAL(story.opened, 1);
    snprintf(file, sizeof(file), "%s/t", inner);
    read_file(&story, file);
    expect_whole(&story, 20);
}

static void limit_files(rlim_t size)
{
    struct rlimit limit;
    getrlimit(RLIMIT_FSIZE, &limit);
    limit.rlim_cur = size == 0 ? limit.rlim_max : size;
    CU_ASSERT_EQUAL(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

/* No more can be written, from within a line on; then it can. */
static void test_disk_full(void)
{
    struct trace trace;
    struct story story = {0};
    fresh();
    limit_files(9999);
    OPEN(&trace, path, -1, 1024);
    send_numbers(&trace, 0, 500);
    CU_ASSERT(test_count_wait(&logs, 1));
    CU_ASSERT_EQUAL(size_of(path), 9999);
    send_numbers(&trace, 500, 1000);
    limit_files(0);
    CU_ASSERT(test_count_wait(&logs, 2)); /* it goes on by itself */
    close_trace(&trace);
    read_file(&story, path);
    expect_whole(&story, 1000);
}

/* The same, and the file that is full is put aside: the line that it ends within stands whole in the next. */
static void test_disk_full_and_rotated(void)
{
    struct trace trace;
    struct story story = {0};
    fresh();
    limit_files(9999);
    OPEN(&trace, path, -1, 1024);
    send_numbers(&trace, 0, 100);
    CU_ASSERT(test_count_wait(&logs, 1));
    CU_ASSERT_EQUAL(rename(path, other_path), 0);
    CU_ASSERT(test_count_wait(&logs, 2));
    close_trace(&trace);
    limit_files(0);
    read_file(&story, other_path);
    CU_ASSERT_EQUAL(story.torn, 1);
    story.torn = 0;
    read_file(&story, path);
    expect_whole(&story, 100);
}

/* Full for good: closing does not wait. */
static void test_disk_stays_full(void)
{
    struct trace trace;
    fresh();
    limit_files(9999);
    OPEN(&trace, path, -1, 64);
    send_numbers(&trace, 0, 100000);
    CU_ASSERT(test_count_wait(&logs, 1));
    int64_t before = test_now_ms();
    close_trace(&trace);
    CU_ASSERT(test_now_ms() - before < TEST_PATIENCE_MS);
    CU_ASSERT_EQUAL(test_count_get(&logs), 2);
    limit_files(0);
}

/* The file system: while the gate is shut it does not answer for the trace's file. */
static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;

__attribute__((visibility("default"))) int stat(const char *file, struct stat *status)
{
    if (strcmp(file, path) == 0) {
        pthread_mutex_lock(&gate);
        pthread_mutex_unlock(&gate);
    }
    return fstatat(AT_FDCWD, file, status, 0);
}

/* While it is slow, it takes 500 ms for each write to that file. */
static atomic_bool slow;

__attribute__((visibility("default"))) ssize_t write(int fd, const void *bytes, size_t size)
{
    struct stat status;
    if (atomic_load(&slow) && fstat(fd, &status) == 0 && S_ISREG(status.st_mode))
        poll(NULL, 0, 500);
    return syscall(SYS_write, fd, bytes, size);
}

static bool is_closed(void *argument)
{
    struct story *story = argument;
    *story = (struct story){0};
    read_file(story, path);
    return story->closed == 1;
}

/* R9: the client closes all the same. What is left standing touches neither the host nor code that is gone, and writes
 * when it can. */
static void test_disk_hangs(void)
{
    struct trace trace;
    struct story story;
    fresh();
    OPEN(&trace, path, -1, 64);
    send_numbers(&trace, 0, 10);
    pthread_mutex_lock(&gate);
    send_numbers(&trace, 10, 20);
    close_trace(&trace);
    CU_ASSERT_EQUAL(test_count_get(&logs), 1);
    trace.host = (mortise_host){.size = sizeof(trace.host)};
    CU_ASSERT_EQUAL(dlclose(library), 0);
    pthread_mutex_unlock(&gate);
    CU_ASSERT(test_poll(is_closed, &story, TEST_PATIENCE_MS));
    expect_whole(&story, 20);
    CU_ASSERT_FATAL(load());
}

/* The same if it answers, but slowly: more than is written in the time of a close. */
static void test_disk_slow(void)
{
    enum { COUNT = 30000 };
    struct trace trace;
    struct story story;
    fresh();
    OPEN(&trace, path, -1, 16384);
    atomic_store(&slow, true);
    send_numbers(&trace, 0, COUNT);
    int64_t before = test_now_ms();
    close_trace(&trace);
    CU_ASSERT(test_now_ms() - before < 10000);
    CU_ASSERT_EQUAL(test_count_get(&logs), 1);
    trace.host = (mortise_host){.size = sizeof(trace.host)};
    atomic_store(&slow, false);
    CU_ASSERT(test_poll(is_closed, &story, TEST_PATIENCE_MS));
    expect_whole(&story, COUNT);
}

/* Two write to one file at once: lines are whole. */
static void test_two(void)
{
    struct trace traces[2];
    struct story story = {0};
    fresh();
    OPEN(&traces[0], path, -1, 4096);
    OPEN(&traces[1], path, -1, 4096);
    for (uint64_t i = 0; i < 10000; i++)
        send_number(&traces[i % 2], i);
    close_trace(&traces[0]);
    close_trace(&traces[1]);
    read_file(&story, path);
    CU_ASSERT_EQUAL(story.torn, 0);
    CU_ASSERT_EQUAL(story.events, 10000);
    CU_ASSERT_EQUAL(story.opened + story.closed, 4);
}

static bool has_events(void *argument)
{
    const uint64_t *wanted = argument;
    struct story story = {0};
    read_file(&story, path);
    return story.events == *wanted;
}

static void test_number_taken(void)
{
    struct trace trace;
    struct story story = {0};
    int numbers[2], own = own_file();
    fresh();
    OPEN(&trace, path, -1, 64);
    for (uint64_t i = 0; i < 2; i++) {
        send_numbers(&trace, i * 10, (i + 1) * 10);
        CU_ASSERT(test_poll(has_events, &(uint64_t){(i + 1) * 10}, TEST_PATIENCE_MS));
        numbers[i] = number_of("/trace.json");
        put_under(own, numbers[i]);
    }
    CU_ASSERT_NOT_EQUAL(numbers[0], numbers[1]);
    close_trace(&trace);
    expect_untouched(own, numbers[0]);
    expect_untouched(own, numbers[1]);
    close(own);
    CU_ASSERT_EQUAL(test_count_get(&logs), 0);
    CU_ASSERT_EQUAL(number_of("/trace.json"), -1); /* it has closed what was its own */
    read_file(&story, path);
    expect_whole(&story, 20);
}

/* One without a name cannot be opened again: the log says so. */
static void test_number_of_pipe_taken(void)
{
    struct trace trace;
    struct stat end;
    char line[1000];
    int ends[2], own = own_file();
    logs.value = 0;
    CU_ASSERT_EQUAL_FATAL(pipe(ends), 0);
    CU_ASSERT_EQUAL_FATAL(fstat(ends[1], &end), 0);
    OPEN(&trace, NULL, ends[1], 64);
    CU_ASSERT(read(ends[0], line, sizeof(line)) > 0); /* "opened" */
    snprintf(line, sizeof(line), "pipe:[%ju]", (uintmax_t)end.st_ino);
    int number = number_of(line);
    put_under(own, number);
    send_numbers(&trace, 0, 10);
    CU_ASSERT(test_count_wait(&logs, 1));
    close_trace(&trace);
    CU_ASSERT_EQUAL(test_count_get(&logs), 2);
    expect_untouched(own, number);
    close(own);
    close(ends[0]);
    close(ends[1]);
}

static void refused(const char *file, int fd, const char *wanted)
{
    struct trace trace;
    CU_ASSERT_EQUAL(open_trace(&trace, file, fd, 64), MORTISE_CONFIG);
    CU_ASSERT_PTR_NOT_NULL(strstr(trace.error.message, wanted));
}

/* What goes on to work: links of one's own, also to a descriptor, and what is no regular file, whoever owns it. */
static void test_links(void)
{
    struct trace trace;
    struct story story = {0};
    char link[320], target[64];
    int ends[2];
    fresh();
    snprintf(link, sizeof(link), "%s/link", folder);
    CU_ASSERT_EQUAL_FATAL(symlink("trace.json", link), 0);
    OPEN(&trace, link, -1, 64);
    send_numbers(&trace, 0, 10);
    close_trace(&trace);
    read_file(&story, path);
    expect_whole(&story, 10);
    CU_ASSERT_EQUAL(unlink(link), 0);
    CU_ASSERT_EQUAL_FATAL(pipe(ends), 0);
    snprintf(target, sizeof(target), "/proc/self/fd/%d", ends[1]);
    CU_ASSERT_EQUAL_FATAL(symlink(target, link), 0);
    OPEN(&trace, link, -1, 64);
    send_numbers(&trace, 0, 10);
    close_trace(&trace);
    close(ends[1]);
    FILE *reader = fdopen(ends[0], "r");
    story = (struct story){0};
    read_stream(&story, reader);
    fclose(reader);
    expect_whole(&story, 10);
    CU_ASSERT_EQUAL(unlink(link), 0);
    OPEN(&trace, "/dev/null", -1, 64);
    close_trace(&trace);
}

static void plant_link(const char *target, const char *name)
{
    CU_ASSERT_EQUAL_FATAL(symlink(target, name), 0);
    CU_ASSERT_EQUAL_FATAL(lchown(name, 4711, 4711), 0);
}

/* By another user, who can write the folder: the trace does not write to the file that it leads to. */
static void test_planted(void)
{
    struct trace trace;
    struct story story = {0};
    char alias[320], moved[320];
    fresh();
    snprintf(alias, sizeof(alias), "%s/alias", folder);
    snprintf(moved, sizeof(moved), "%s/moved.json", folder);
    CU_ASSERT_FATAL(test_file_write(other_path, "text"));
    CU_ASSERT_EQUAL_FATAL(link(other_path, path), 0);
    refused(path, -1, "several hard links");
    CU_ASSERT_EQUAL(unlink(path), 0);
    if (geteuid() != 0)
        return; /* only root can make what is another user's */
    plant_link(other_path, path);
    refused(path, -1, "of another user");
    CU_ASSERT_EQUAL_FATAL(symlink("trace.json", alias), 0);
    refused(alias, -1, "of another user");
    CU_ASSERT_EQUAL(unlink(alias), 0);
    CU_ASSERT_EQUAL(unlink(path), 0);
    CU_ASSERT(test_file_write(path, "") && chown(path, 4711, 4711) == 0);
    refused(path, -1, "of another user");
    CU_ASSERT_EQUAL(unlink(path), 0);
    OPEN(&trace, path, -1, 64);
    CU_ASSERT(wait_size(path, 1));
    plant_link(other_path, alias);
    CU_ASSERT(rename(path, moved) == 0 && rename(alias, path) == 0); /* while it is written */
    send_numbers(&trace, 0, 10);
    CU_ASSERT(test_count_wait(&logs, 1));
    close_trace(&trace);
    CU_ASSERT_EQUAL(test_count_get(&logs), 1);
    CU_ASSERT_EQUAL(size_of(other_path), 4);
    read_file(&story, moved);
    expect_whole(&story, 10);
}

static void test_refused(void)
{
    refused(NULL, -1, "[trace] needs path or fd");
    refused(path, 1, "[trace] has both path and fd");
    refused("trace.json", -1, "[trace] path must be absolute");
    refused("/nowhere/at/all", -1, "/nowhere/at/all: No such file or directory");
    refused(folder, -1, "Is a directory");
    refused(NULL, 1000000, "descriptor 1000000: Bad file descriptor");
    /* what the library puts in the place of a closed stderr */
    int nothing = epoll_create1(EPOLL_CLOEXEC);
    refused(NULL, nothing, "Bad file descriptor");
    close(nothing);
}

int main(void)
{
    static CU_TestInfo tests[] = {
        {"a full buffer", test_full},
        {"nobody reads", test_nobody_reads},
        {"the reader is gone", test_reader_gone},
        {"a socket", test_socket},
        {"renamed while it is written", test_rotation},
        {"the folder is away", test_folder_away},
        {"the disk is full, then not", test_disk_full},
        {"full, and put aside", test_disk_full_and_rotated},
        {"the disk stays full", test_disk_stays_full},
        {"the disk hangs", test_disk_hangs},
        {"the disk is slow", test_disk_slow},
        {"two write to one file", test_two},
        {"the application has its number", test_number_taken},
        {"it has that of a pipe", test_number_of_pipe_taken},
        {"links", test_links},
        {"planted by another user", test_planted},
        {"refused", test_refused},
        CU_TEST_INFO_NULL,
    };
    return trace_run("trace in trouble", tests);
}
