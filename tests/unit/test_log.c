/* test_log.c - log lines: a blocked reader of stderr stops nothing, dropped lines are counted, and the last lines of
 * an ending program are still written. */
#include "rig.h"

#include "base/log.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static struct rig rig;

/* ---- stderr in the hand of the test ---------------------------------------------------------------- */

static int saved, ends[2];

static void fill(int fd)
{
    static const char junk[4096];
    int flags = fcntl(fd, F_GETFL);
    fcntl(fd, F_SETFL, flags | O_NONBLOCK);
    for (size_t size = sizeof(junk); size > 0; size /= 2)
        while (write(fd, junk, size) > 0)
            continue;
    fcntl(fd, F_SETFL, flags);
}

static void catch_stderr(bool full)
{
    CU_ASSERT_FATAL(pipe2(ends, O_CLOEXEC) == 0);
    if (full)
        fill(ends[1]);
    saved = dup(STDERR_FILENO);
    CU_ASSERT_FATAL(saved >= 0 && dup2(ends[1], STDERR_FILENO) >= 0);
    close(ends[1]);
}

static void let_stderr_go(void)
{
    dup2(saved, STDERR_FILENO);
    close(saved);
}

/* The next line from fd, without the zeros that filled the pipe; false: the end. */
static bool next_line(int fd, char *line, size_t size)
{
    size_t used = 0;
    char byte;
    while (read(fd, &byte, 1) == 1) {
        if (byte == '\n') {
            line[used] = '\0';
            return true;
        }
        if (byte != '\0' && used + 1 < size)
            line[used++] = byte;
    }
    return false;
}

/* ---- a reader that stands still --------------------------------------------------------------------- */

#define LINES 3000

static struct test_count logged = TEST_COUNT_INIT;

static void log_many(void *ctx, void *argument)
{
    mortise_host *host = &rig.client->top->host;
    (void)ctx;
    (void)argument;
    for (int i = 0; i < LINES; i++)
        host->log(host, 4,
                  "line %d, and enough text behind it that the buffer is full before the last", i);
    test_count_add(&logged, 1);
}

static bool renewed(void *argument)
{
    return stats_of(&rig).renewals >= *(uint64_t *)argument;
}

static void test_full_pipe(void)
{
    mortise_lease *lease, *other;
    char line[256];
    unsigned long long dropped = 0, more;
    int count = 0, last = -1;
    rig_open_real(&rig, "renew_every = 50ms\n");
    rig.client->pump.logs = true;
    catch_stderr(true);
    CU_ASSERT_EQUAL_FATAL(mortise_acquire(rig.handle, "a",
                                          MORTISE_OPTIONS(.wait_ms = 0, .ttl_ms = 3600000), &lease,
                                          NULL),
                          MORTISE_OK);
    mortise_host *host = &rig.client->top->host;
    host->post(host, log_many, NULL); /* inside the pump, where a renewal has to pass */
    bool passed = test_count_wait(&logged, 1);
    uint64_t wanted = stats_of(&rig).renewals + 3;
    passed = passed && test_poll(renewed, &wanted, TEST_PATIENCE_MS);
    CU_ASSERT(passed);
    if (passed) {
        CU_ASSERT_EQUAL(mortise_acquire(rig.handle, "b", TRY, &other, NULL), MORTISE_OK);
        CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_OK);
    }
    /* somebody reads again: what was kept comes, in order, and then how much was not */
    while ((unsigned long long)count + dropped < LINES && next_line(ends[0], line, sizeof(line))) {
        int number = -1;
        more = 0;
        if (sscanf(line, "mortise: [sim] line %d,", &number) == 1) {
            CU_ASSERT(number > last);
            last = number;
            count++;
        } else
            CU_ASSERT_EQUAL(sscanf(line, "mortise: %llu log lines were dropped", &more), 1);
        dropped += more;
    }
    CU_ASSERT(count > 100 && dropped > 100);
    CU_ASSERT_EQUAL((unsigned long long)count + dropped, LINES);
    let_stderr_go();
    close(ends[0]);
    CU_ASSERT_EQUAL(mortise_close(rig.handle, NULL), MORTISE_OK);
}

/* ---- a stderr that takes a part of a line ------------------------------------------------------------ */

ssize_t __real_write(int fd, const void *bytes, size_t count);
ssize_t __wrap_write(int fd, const void *bytes, size_t count);
static atomic_bool
    takes_parts; /* as a terminal or a TCP socket does that does not block, and is nearly full */

ssize_t __wrap_write(int fd, const void *bytes, size_t count)
{
    static unsigned calls;
    if (fd != STDERR_FILENO || !atomic_load(&takes_parts))
        return __real_write(fd, bytes, count);
    errno = calls++ % 3 == 0 ? EINTR : EAGAIN;
    return calls % 3 == 0 ? __real_write(fd, bytes, count < 5 ? count : 5) : -1;
}

static void test_part_of_a_line(void)
{
    char line[256] = "";
    catch_stderr(false);
    atomic_store(&takes_parts, true);
    log_line(4, "mortise: the first line");
    log_line(4, "mortise: the second line");
    log_flush(TEST_PATIENCE_MS);
    atomic_store(&takes_parts, false);
    let_stderr_go();
    CU_ASSERT(next_line(ends[0], line, sizeof(line)));
    CU_ASSERT_STRING_EQUAL(line, "mortise: the first line");
    CU_ASSERT(next_line(ends[0], line, sizeof(line)));
    CU_ASSERT_STRING_EQUAL(line, "mortise: the second line");
    CU_ASSERT_FALSE(next_line(ends[0], line, sizeof(line)));
    close(ends[0]);
}

/* ---- the end of a program, and a fork --------------------------------------------------------------- */

static const char *self;

/* The program: it logs in the pump, and returns from main without a close. */
static void last_words(void)
{
    rig_open_real(&rig, "");
    rig.client->pump.logs = true;
    mortise_host *host = &rig.client->top->host;
    host->log(host, 4, "the last line");
}

/* The same where no thread can be had. */
static void last_words_alone(void)
{
    pthread_attr_t huge;
    rig_open_real(&rig, "");
    rig.client->pump.logs = true;
    pthread_attr_init(&huge);
    CU_ASSERT_FATAL(pthread_attr_setstacksize(&huge, (size_t)1 << 47) == 0 &&
                    pthread_setattr_default_np(&huge) == 0);
    pthread_attr_destroy(&huge);
    mortise_host *host = &rig.client->top->host;
    host->log(host, 4, "the last line");
}

static void check_last_words(const char *mode)
{
    char line[256] = "";
    int status;
    for (int round = 0; round < 10; round++) {
        CU_ASSERT_FATAL(pipe2(ends, O_CLOEXEC) == 0);
        pid_t child = fork();
        CU_ASSERT_FATAL(child >= 0);
        if (child == 0) {
            dup2(ends[1], STDERR_FILENO);
            dup2(open("/dev/null", O_WRONLY | O_CLOEXEC), STDOUT_FILENO);
            execl(self, self, mode, (char *)NULL);
            _exit(127);
        }
        close(ends[1]);
        CU_ASSERT(next_line(ends[0], line, sizeof(line)));
        CU_ASSERT_STRING_EQUAL(line, "mortise: [sim] the last line");
        CU_ASSERT_FALSE(next_line(ends[0], line, sizeof(line))); /* once */
        close(ends[0]);
        CU_ASSERT(waitpid(child, &status, 0) == child && WIFEXITED(status) &&
                  WEXITSTATUS(status) == 0);
    }
}

static void test_end_of_a_program(void)
{
    check_last_words("last words");
}

static void test_end_without_a_thread(void)
{
    check_last_words("last words alone");
}

/* ---- a callback in place of stderr ------------------------------------------------------------------ */

static struct {
    struct test_count calls;
    int level;
    char line[256];
    bool blocks;
    struct test_count entered, go;
} heard = {.calls = TEST_COUNT_INIT, .entered = TEST_COUNT_INIT, .go = TEST_COUNT_INIT};

static void hear(int level, const char *line, void *user_data)
{
    CU_ASSERT_PTR_EQUAL(user_data, &heard);
    heard.level = level;
    snprintf(heard.line, sizeof(heard.line), "%s", line);
    if (heard.blocks) {
        test_count_add(&heard.entered, 1);
        test_count_wait(&heard.go, 1);
    }
    test_count_add(&heard.calls, 1);
}

static void hear_no_more(int level, const char *line, void *user_data)
{
    mortise_on_log(NULL, NULL); /* does not wait for itself */
    hear(level, line, user_data);
}

static void test_callback(void)
{
    char line[256] = "";
    rig_open(&rig, "");
    rig.client->pump.logs = true;
    catch_stderr(false);
    mortise_host *host = &rig.client->top->host;
    mortise_on_log(hear, &heard);
    host->log(host, 6, "one");
    CU_ASSERT(test_count_wait(&heard.calls, 1));
    CU_ASSERT_EQUAL(heard.level, 6);
    CU_ASSERT_STRING_EQUAL(heard.line, "mortise: [sim] one");
    mortise_on_log(hear_no_more, &heard);
    host->log(host, 3, "two\nlines");
    CU_ASSERT(test_count_wait(&heard.calls, 2));
    CU_ASSERT_EQUAL(heard.level, 3);
    CU_ASSERT_STRING_EQUAL(heard.line, "mortise: [sim] two lines");
    host->log(host, 4, "three");
    CU_ASSERT(next_line(ends[0], line, sizeof(line)));
    CU_ASSERT_STRING_EQUAL(line, "mortise: [sim] three"); /* the first that came to stderr */
    let_stderr_go();
    close(ends[0]);
    rig_close(&rig);
    CU_ASSERT_EQUAL(test_count_get(&heard.calls), 2);
}

static void *stop_hearing(void *argument)
{
    mortise_on_log(NULL, NULL);
    CU_ASSERT_EQUAL(test_count_get(&heard.calls), 3); /* it has returned */
    test_count_add(argument, 1);
    return NULL;
}

/* Who takes the callback away may free what it uses: the call waits for one that runs. */
static void test_callback_ends(void)
{
    static struct test_count stopped = TEST_COUNT_INIT;
    pthread_t thread;
    heard.blocks = true;
    mortise_on_log(hear, &heard);
    log_line(4, "mortise: slow");
    CU_ASSERT(test_count_wait(&heard.entered, 1));
    CU_ASSERT_FATAL(pthread_create(&thread, NULL, stop_hearing, &stopped) == 0);
    CU_ASSERT_EQUAL(test_count_get(&stopped), 0);
    test_count_add(&heard.go, 1);
    pthread_join(thread, NULL);
    CU_ASSERT_EQUAL(test_count_get(&stopped), 1);
    heard.blocks = false;
}

static struct test_count flushed = TEST_COUNT_INIT;
static int64_t flushed_ms;

static void flush(int level, const char *line, void *user_data)
{
    int64_t from_ms = test_now_ms();
    (void)level;
    (void)line;
    (void)user_data;
    log_flush(20000); /* as a close of the client and an exit of the program do */
    flushed_ms = test_now_ms() - from_ms;
    test_count_add(&flushed, 1);
}

/* The thread that calls the callback does not wait there for its own lines. */
static void test_flush_inside(void)
{
    mortise_on_log(flush, NULL);
    log_line(4, "mortise: one");
    CU_ASSERT(test_count_wait(&flushed, 1));
    CU_ASSERT(flushed_ms < 15000);
    mortise_on_log(NULL, NULL);
}

static _Atomic int canceled_tid;

static void *stop_hearing_canceled(void *argument)
{
    pthread_cancel(pthread_self()); /* pending from here on */
    atomic_store(&canceled_tid, (int)syscall(SYS_gettid));
    mortise_on_log(NULL, NULL);
    test_count_add(argument, 1);
    pthread_testcancel();
    return NULL;
}

/* The thread has slept in the call; or it is gone. */
static bool waits_or_gone(void *argument)
{
    char path[64], text[256] = "";
    int tid = atomic_load(&canceled_tid);
    (void)argument;
    snprintf(path, sizeof(path), "/proc/self/task/%d/stat", tid);
    FILE *file = tid == 0 ? NULL : fopen(path, "re");
    if (file != NULL && fgets(text, sizeof(text), file) == NULL)
        text[0] = '\0';
    if (file != NULL)
        fclose(file);
    const char *name_end = strrchr(text, ')');
    return tid != 0 && (name_end == NULL || strncmp(name_end, ") S", 3) == 0);
}

/* The program: a thread that is to be canceled waits in the call, and does not take the lock of the log with it. Else this
 * would not end. */
static void canceled_in_on_log(void)
{
    static struct test_count stopped = TEST_COUNT_INIT;
    pthread_t thread;
    void *result;
    heard.blocks = true;
    mortise_on_log(hear, &heard);
    log_line(4, "mortise: slow");
    CU_ASSERT(test_count_wait(&heard.entered, 1));
    CU_ASSERT_FATAL(pthread_create(&thread, NULL, stop_hearing_canceled, &stopped) == 0);
    CU_ASSERT(test_poll(waits_or_gone, NULL, TEST_PATIENCE_MS));
    test_count_add(&heard.go, 1);
    pthread_join(thread, &result);
    CU_ASSERT_PTR_EQUAL(result, PTHREAD_CANCELED);
    CU_ASSERT_EQUAL_FATAL(test_count_get(&stopped), 1);
    log_line(4, "mortise: later");
    log_flush(TEST_PATIENCE_MS);
}

static void test_canceled(void)
{
    int status;
    pid_t child = fork();
    CU_ASSERT_FATAL(child >= 0);
    if (child == 0) {
        alarm(30);
        dup2(open("/dev/null", O_WRONLY | O_CLOEXEC), STDOUT_FILENO);
        dup2(STDOUT_FILENO, STDERR_FILENO);
        execl(self, self, "canceled", (char *)NULL);
        _exit(127);
    }
    CU_ASSERT(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* ---- what a line is -------------------------------------------------------------------------------- */

/* A module's text cannot pass for a line of its own. */
static void test_one_line(void)
{
    char line[256] = "";
    rig_open(&rig, "");
    rig.client->pump.logs = true;
    catch_stderr(false);
    mortise_host *host = &rig.client->top->host;
    host->log(host, 4, "one\nmortise: two");
    CU_ASSERT(next_line(ends[0], line, sizeof(line)));
    CU_ASSERT_PTR_NOT_NULL(strstr(line, "one"));
    CU_ASSERT_PTR_NOT_NULL(strstr(line, "two"));
    let_stderr_go();
    close(ends[0]);
    rig_close(&rig);
}

/* A program that has closed its stderr: lines go nowhere, and nobody tries for ever. */
static void test_no_stderr(void)
{
    rig_open(&rig, "");
    saved = dup(STDERR_FILENO);
    CU_ASSERT_FATAL(saved >= 0 && close(STDERR_FILENO) == 0);
    int64_t from_ms = test_now_ms();
    log_line(4, "mortise: to nobody");
    log_flush(20000);
    int64_t took_ms = test_now_ms() - from_ms;
    let_stderr_go();
    CU_ASSERT(took_ms < 15000);
    rig_close(&rig);
}

static bool no_thread_logs(void *argument)
{
    char path[512], name[32];
    DIR *folder = opendir("/proc/self/task");
    bool none = folder != NULL;
    (void)argument;
    for (struct dirent *entry; none && (entry = readdir(folder)) != NULL;) {
        snprintf(path, sizeof(path), "/proc/self/task/%s/comm", entry->d_name);
        FILE *file = fopen(path, "re");
        if (file == NULL)
            continue;
        none = fgets(name, sizeof(name), file) == NULL || strcmp(name, "mortise-log\n") != 0;
        fclose(file);
    }
    if (folder != NULL)
        closedir(folder);
    return none;
}

/* The thread that writes ends behind the last line: a program that says nothing has none. */
static void test_thread_ends(void)
{
    char line[256] = "";
    rig_open(&rig, "");
    catch_stderr(false);
    log_line(4, "mortise: once");
    CU_ASSERT(next_line(ends[0], line, sizeof(line)));
    CU_ASSERT(test_poll(no_thread_logs, NULL, TEST_PATIENCE_MS));
    let_stderr_go();
    close(ends[0]);
    rig_close(&rig);
}

/* ---- a fork ------------------------------------------------------------------------------------------ */

#ifndef __SANITIZE_THREAD__ /* which cannot follow a fork of many threads */
/* A child that is forked while lines of the parent wait does not write those, and its own are not held up. */
static void test_fork(void)
{
    char line[256] = "";
    int status, childs[2];
    rig_open_real(&rig, "");
    catch_stderr(true);
    log_line(4, "mortise: the parent's");
    CU_ASSERT_FATAL(pipe2(childs, O_CLOEXEC) == 0);
    pid_t child = fork();
    if (child == 0) {
        alarm(60);
        dup2(childs[1], STDERR_FILENO);
        log_line(4, "mortise: the child's");
        log_flush(TEST_PATIENCE_MS);
        _exit(0);
    }
    close(childs[1]);
    CU_ASSERT(next_line(childs[0], line, sizeof(line)));
    CU_ASSERT_STRING_EQUAL(line, "mortise: the child's");
    CU_ASSERT_FALSE(next_line(childs[0], line, sizeof(line)));
    CU_ASSERT(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CU_ASSERT(next_line(ends[0], line, sizeof(line)));
    CU_ASSERT_STRING_EQUAL(line, "mortise: the parent's");
    let_stderr_go();
    close(ends[0]);
    close(childs[0]);
    CU_ASSERT_EQUAL(mortise_close(rig.handle, NULL), MORTISE_OK);
}

#endif

int main(int argc, char **argv)
{
    static const CU_TestInfo tests[] = {
        {"a reader that stands still stops nothing", test_full_pipe},
        {"a text of two lines", test_one_line},
        {"a stderr that takes a part of a line", test_part_of_a_line},
        {"a callback", test_callback},
        {"the end of a callback", test_callback_ends},
        {"a flush inside the callback", test_flush_inside},
        {"a canceled thread", test_canceled},
        {"a program without stderr", test_no_stderr},
        {"the thread ends", test_thread_ends},
        {"the end of a program", test_end_of_a_program},
        {"the end of a program that can have no thread", test_end_without_a_thread},
#ifndef __SANITIZE_THREAD__
        {"a fork", test_fork},
#endif
        CU_TEST_INFO_NULL,
    };
    static const CU_TestInfo words[] = {
        {"last words", last_words},
        CU_TEST_INFO_NULL,
    };
    static const CU_TestInfo alone[] = {
        {"last words alone", last_words_alone},
        CU_TEST_INFO_NULL,
    };
    static const CU_TestInfo canceled[] = {
        {"canceled", canceled_in_on_log},
        CU_TEST_INFO_NULL,
    };
    self = argv[0];
    if (argc > 1 && strcmp(argv[1], "canceled") == 0)
        return rig_run("log", canceled);
    if (argc > 1)
        return rig_run("log", strcmp(argv[1], "last words") == 0 ? words : alone);
    return rig_run("log", tests);
}
