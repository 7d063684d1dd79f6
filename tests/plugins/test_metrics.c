/* test_metrics.c - the metrics observer through driver.h alone: events at chosen instants, and the exact numbers that
 * they produce in the file. metrics.py tests it among other processes. */
#include "cost.h"
#include "own_number.h"

#include <mortise/driver.h>
#include <suite.h>
#include <support.h>

#include <dlfcn.h>
#include <fcntl.h>
#include <glob.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define MS INT64_C(1000000)
#define LABELS "{driver=\"redis:old\",namespace=\"n\\\\x01\\\"\",program=\"night_ly\",slot=\"0\""

enum { FOLDER, EVERY, PROGRAM, SLOTS, VALUES };
enum { SEATS = 16384 }; /* of the plugin */

/* Files are found again by a later version: of these labels the name is this one, for ever. */
#define STEM "mortise-night_ly-6a5db6a6-0"

static void *library;
static const mortise_module *module;
static char folder[256], path[300];
static struct test_count logs = TEST_COUNT_INIT;
static char said[512]; /* the last line of the log */
static mortise_value values[VALUES];
static mortise_host host;
static void *ctx;
static const char *names_begin = "n\x01\"";
static int64_t every_ms = 3600000;

static void host_log(mortise_host *from, int level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void host_log(mortise_host *from, int level, const char *format, ...)
{
    va_list arguments;
    (void)from, (void)level;
    va_start(arguments, format);
    vsnprintf(said, sizeof(said), format, arguments);
    va_end(arguments);
    test_count_add(&logs, 1);
}

/* The file system: while the gate is shut it does not answer. */
static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;

__attribute__((visibility("default"))) int rename(const char *from, const char *to)
{
    pthread_mutex_lock(&gate);
    pthread_mutex_unlock(&gate);
    return renameat(AT_FDCWD, from, AT_FDCWD, to);
}

static bool load(void)
{
    library = dlopen(TEST_MODULE_DIR "/metrics.so", RTLD_NOW);
    module = library != NULL ? dlsym(library, MORTISE_MODULE_SYMBOL) : NULL;
    return module != NULL;
}

/* The thread writes at the beginning and at the end: what is seen then is exact. But for `every_ms`. */
static void begin(void)
{
    mortise_error error;
    host = (mortise_host){.size = sizeof(host), .log = host_log};
    values[FOLDER] = (mortise_value){.given = true, .text = folder};
    values[EVERY] = (mortise_value){.number = every_ms};
    values[SLOTS] = (mortise_value){.number = 4};
    mortise_open_args args = {.size = sizeof(args),
                              .host = &host,
                              .values = values,
                              .section = "metrics",
                              .client_id = "00112233445566778899aabbccddeeff",
                              .note = "web3\n4711\nnight ly",
                              .top = "redis:old",
                              .names_begin = names_begin};
    CU_ASSERT_EQUAL_FATAL(module->open(&args, &ctx, &error), MORTISE_OK);
}

static void fresh(void)
{
    remove(path);
    begin();
}

static void send(mortise_event_kind kind, int64_t at_ns, uint64_t caller, uint64_t lease,
                 mortise_status status)
{
    mortise_event event = {.size = sizeof(event),
                           .kind = kind,
                           .at_ns = at_ns,
                           .name = "n\x01\"lock",
                           .name_len = 7,
                           .caller = caller,
                           .lease = lease,
                           .status = status};
    module->observe(ctx, &event);
}

#define SEND(kind, at_ns, caller, lease, status)                                                   \
    send(MORTISE_EVENT_##kind, at_ns, caller, lease, MORTISE_##status)

/* Closes, and reads what was written. */
static char *end(void)
{
    module->close(ctx);
    char *text = test_file_read(path);
    CU_ASSERT_PTR_NOT_NULL_FATAL(text);
    return text;
}

/* The file has the line: NAME, further labels, value. */
static void expect(const char *text, const char *name, const char *more, const char *value)
{
    char line[512];
    snprintf(line, sizeof(line), "\n%s" LABELS "%s} %s\n", name, more, value);
    CU_ASSERT_PTR_NOT_NULL(strstr(text, line));
    if (strstr(text, line) == NULL)
        fprintf(stderr, "    wanted: %s    in: %s\n", line + 1, text);
}

enum { SERIES = 63 }; /* docs/plugins.md says how many */

static size_t series_of(const char *text)
{
    size_t count = 0;
    for (const char *at = text; (at = strstr(at, "\nmortise_")) != NULL; at++)
        count++;
    return count;
}

#define EXPECT_LINE(name, more, value) expect(text, "mortise_" name, more, value)

static void test_a_life(void)
{
    fresh();
    SEND(ASKED, 0, 1, 0, OK);
    SEND(GRANTED, 2 * MS, 1, 1, OK);
    SEND(RENEWED, 3 * MS, 0, 1, OK);
    SEND(ASKED, 4 * MS, 2, 0, OK);
    SEND(QUEUED, 4 * MS, 2, 0, OK);
    SEND(RELEASED, 600 * MS, 0, 1, OK);
    SEND(HANDED_OVER, 600 * MS, 2, 2, OK);
    SEND(ASKED, 700 * MS, 3, 0, OK);
    SEND(QUEUED, 700 * MS, 3, 0, OK);
    char *text = end();
    EXPECT_LINE("held", "", "1");
    EXPECT_LINE("waiting", "", "1");
    EXPECT_LINE("asked_total", "", "3");
    EXPECT_LINE("queued_total", "", "2");
    EXPECT_LINE("grants_total", "", "1");
    EXPECT_LINE("handovers_total", "", "1");
    EXPECT_LINE("releases_total", "", "1");
    EXPECT_LINE("renewals_total", "", "1");
    EXPECT_LINE("losses_total", "", "0");
    EXPECT_LINE("untimed_total", "", "0");
    EXPECT_LINE("wait_seconds_bucket", ",le=\"0.001\"", "0");
    EXPECT_LINE("wait_seconds_bucket", ",le=\"0.005\"", "1");
    EXPECT_LINE("wait_seconds_bucket", ",le=\"0.5\"", "1");
    EXPECT_LINE("wait_seconds_bucket", ",le=\"1\"", "2");
    EXPECT_LINE("wait_seconds_bucket", ",le=\"+Inf\"", "2");
    EXPECT_LINE("wait_seconds_sum", "", "0.598000000");
    EXPECT_LINE("wait_seconds_count", "", "2");
    EXPECT_LINE("hold_seconds_sum", "", "0.598000000");
    EXPECT_LINE("hold_seconds_count", "", "1");
    CU_ASSERT_PTR_NULL(strstr(text, "lock")); /* a name is no label */
    CU_ASSERT_EQUAL(series_of(text), SERIES);
    free(text);
}

/* Shared leases are counted among the others, and by themselves. */
static void test_shared(void)
{
    mortise_event event = {.size = sizeof(event),
                           .kind = MORTISE_EVENT_GRANTED,
                           .name = "n",
                           .name_len = 1,
                           .mode = MORTISE_SHARED,
                           .permits = 2};
    fresh();
    for (event.lease = 1; event.lease <= 2; event.lease++)
        module->observe(ctx, &event);
    event.kind = MORTISE_EVENT_HANDED_OVER;
    module->observe(ctx, &event);
    event.kind = MORTISE_EVENT_RELEASED;
    module->observe(ctx, &event);
    event.kind = MORTISE_EVENT_GRANTED;
    event.lease = 4;
    event.mode = MORTISE_EXCLUSIVE;
    module->observe(ctx, &event);
    event.lease = 5;
    event.mode = MORTISE_SHARED;
    event.size = offsetof(mortise_event, mode); /* of a core that knows no modes */
    module->observe(ctx, &event);
    char *text = end();
    EXPECT_LINE("grants_total", "", "4");
    EXPECT_LINE("handovers_total", "", "1");
    EXPECT_LINE("shared_leases_total", "", "3");
    EXPECT_LINE("held", "", "4");
    free(text);
}

/* A namespace can neither end its label nor begin a line, and does not reorder one. */
static void test_hostile_namespace(void)
{
    glob_t found = {0};
    char pattern[320];
    fresh();
    free(end());
    remove(path); /* that of the usual labels */
    names_begin = "a\"} 1\nmortise_held 9\n\\\xe2\x80\xae<b>";
    begin();
    names_begin = "n\x01\"";
    module->close(ctx);
    snprintf(pattern, sizeof(pattern), "%s/*.prom", folder);
    CU_ASSERT_EQUAL_FATAL(glob(pattern, 0, NULL, &found), 0);
    char *text = test_file_read(found.gl_pathv[0]);
    remove(found.gl_pathv[0]);
    globfree(&found);
    CU_ASSERT_PTR_NOT_NULL_FATAL(text);
    CU_ASSERT_PTR_NOT_NULL(
        strstr(text, "\nmortise_held{driver=\"redis:old\",namespace=\"a\\\"} 1\\\\x0amortise_held "
                     "9\\\\x0a\\\\\\\\xe2\\\\x80\\\\xae<b>\",program="));
    CU_ASSERT_PTR_NULL(strstr(text, "\nmortise_held 9"));
    free(text);
}

/* A lost lease is counted once, whether or not it is released later; a failure by its status. */
static void test_ends(void)
{
    fresh();
    SEND(ASKED, 0, 1, 0, OK);
    SEND(GRANTED, 0, 1, 1, OK);
    SEND(SUSPECT, 10 * MS, 0, 1, UNREACHABLE);
    SEND(LOST, 5000 * MS, 0, 1, LOST);
    SEND(RELEASED, 9000 * MS, 0, 1, LOST);
    SEND(ASKED, 0, 2, 0, OK);
    SEND(FAILED, 1, 2, 0, BUSY);
    SEND(ASKED, 0, 3, 0, OK);
    SEND(FAILED, 1, 3, 0, BACKEND);
    SEND(ASKED, 0, 4, 0, OK);
    send(MORTISE_EVENT_FAILED, 1, 4, 0, (mortise_status)-99);
    char *text = end();
    EXPECT_LINE("held", "", "0");
    EXPECT_LINE("waiting", "", "0");
    EXPECT_LINE("suspects_total", "", "1");
    EXPECT_LINE("losses_total", "", "1");
    EXPECT_LINE("releases_total", "", "1");
    EXPECT_LINE("hold_seconds_count", "", "1");
    EXPECT_LINE("hold_seconds_bucket", ",le=\"1\"", "0");
    EXPECT_LINE("hold_seconds_bucket", ",le=\"5\"", "1");
    EXPECT_LINE("hold_seconds_sum", "", "5.000000000");
    EXPECT_LINE("wait_seconds_count", "", "1");
    EXPECT_LINE("failures_total", ",status=\"BUSY\"", "1");
    EXPECT_LINE("failures_total", ",status=\"BACKEND\"", "1");
    EXPECT_LINE("failures_total", ",status=\"OTHER\"", "1");
    EXPECT_LINE("failures_total", ",status=\"LOST\"", "0");
    free(text);
}

/* What the next client counts comes on top, but for what is now. */
static void test_resumed(void)
{
    test_a_life();
    begin();
    SEND(ASKED, 0, 1, 0, OK);
    SEND(GRANTED, 3600 * 1000 * MS, 1, 1, OK);
    SEND(ASKED, 0, 2, 0, OK);
    SEND(FAILED, 0, 2, 0, TIMEDOUT);
    char *text = end();
    EXPECT_LINE("held", "", "1");
    EXPECT_LINE("waiting", "", "0");
    EXPECT_LINE("asked_total", "", "5");
    EXPECT_LINE("grants_total", "", "2");
    EXPECT_LINE("wait_seconds_bucket", ",le=\"1\"", "2");
    EXPECT_LINE("wait_seconds_bucket", ",le=\"600\"", "2");
    EXPECT_LINE("wait_seconds_bucket", ",le=\"3600\"", "3");
    EXPECT_LINE("wait_seconds_count", "", "3");
    EXPECT_LINE("wait_seconds_sum", "", "3600.598000000");
    EXPECT_LINE("hold_seconds_count", "", "1");
    EXPECT_LINE("failures_total", ",status=\"TIMEDOUT\"", "1");
    free(text);

    begin(); /* once more, without anything new */
    text = end();
    EXPECT_LINE("held", "", "0");
    EXPECT_LINE("wait_seconds_count", "", "3");
    EXPECT_LINE("wait_seconds_bucket", ",le=\"0.005\"", "1");
    EXPECT_LINE("failures_total", ",status=\"TIMEDOUT\"", "1");
    free(text);
}

/* More at once than there are seats: times are missing, and that is told; numbers are right. */
static void test_crowd(void)
{
    enum { CROWD = SEATS + 100 };
    char count[32];
    fresh();
    for (uint64_t i = 1; i <= CROWD; i++)
        SEND(ASKED, 0, i, 0, OK);
    for (uint64_t i = 1; i <= CROWD; i++)
        SEND(GRANTED, MS, i, i, OK);
    for (uint64_t i = 1; i <= CROWD; i++)
        SEND(RELEASED, 2 * MS, 0, i, OK);
    SEND(ASKED, 0, CROWD + 1, 0, OK); /* the seats are free again */
    SEND(GRANTED, MS, CROWD + 1, CROWD + 1, OK);
    char *text = end();
    snprintf(count, sizeof(count), "%d", CROWD + 1);
    EXPECT_LINE("grants_total", "", count);
    EXPECT_LINE("held", "", "1");
    EXPECT_LINE("untimed_total", "", "200");
    snprintf(count, sizeof(count), "%d", SEATS + 1);
    EXPECT_LINE("wait_seconds_count", "", count);
    snprintf(count, sizeof(count), "%d", SEATS);
    EXPECT_LINE("hold_seconds_count", "", count);
    free(text);
}

/* A file that is not ours, or of other labels, or cut: counters begin where they can, and nothing breaks. */
static void test_foreign_file(void)
{
    static const char *const files[] = {
        "",
        "mortise_asked_total",
        "\n\n\n",
        "mortise_asked_total{driver=\"x\"} 7\n",
        "# mortise_asked_total" LABELS "} 7\n",
        "mortise_asked_total" LABELS "} -\nmortise_wait_seconds_sum" LABELS "} 5",
    };
    for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++) {
        CU_ASSERT(test_file_write(path, files[i]));
        begin();
        SEND(ASKED, 0, 1, 0, OK);
        char *text = end();
        EXPECT_LINE("asked_total", "", "1");
        free(text);
    }
}

/* Where others may write too, there may be something that would keep us for ever. */
static void test_no_file(void)
{
    char fresh_path[300];
    snprintf(fresh_path, sizeof(fresh_path), "%s/." STEM ".new", folder);
    fresh();
    free(end());
    CU_ASSERT_EQUAL(remove(path), 0);
    CU_ASSERT_EQUAL_FATAL(mkfifo(path, 0600), 0);
    CU_ASSERT_EQUAL_FATAL(mkfifo(fresh_path, 0600), 0);
    begin();
    SEND(ASKED, 0, 1, 0, OK);
    char *text = end();
    EXPECT_LINE("asked_total", "", "1");
    free(text);
}

/* As a user who is not root. */
static void expect_said(const char *wanted)
{
    int before = test_count_get(&logs);
    CU_ASSERT_EQUAL_FATAL(seteuid(4711), 0);
    begin();
    CU_ASSERT(test_count_wait(&logs, before + 1));
    module->close(ctx);
    CU_ASSERT_EQUAL(seteuid(0), 0);
    CU_ASSERT_PTR_NOT_NULL(strstr(said, wanted));
}

/* The log tells a folder that is not permitted from slots that others have. */
static void test_not_permitted(void)
{
    char lock_path[300];
    if (geteuid() != 0)
        return; /* only root can become another user, and come back */
    expect_said("cannot be written to: Permission denied");
    for (int slot = 0; slot < 4; slot++) {
        snprintf(lock_path, sizeof(lock_path), "%s/.%.*s%d.lock", folder, (int)strlen(STEM) - 1,
                 STEM, slot);
        CU_ASSERT(test_file_write(lock_path, ""));
    }
    CU_ASSERT_EQUAL(chmod(folder, 0777), 0);
    expect_said("all 4 slots");
    CU_ASSERT_EQUAL(chmod(folder, 0700), 0);
}

/* The slot's lock can be had: its owner is gone. */
static bool slot_is_free(void *lock_path)
{
    int fd = open(lock_path, O_RDWR | O_CLOEXEC);
    bool is_free = fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0;
    if (fd >= 0)
        close(fd);
    return is_free;
}

/* R9: the client closes all the same. What is left standing touches neither the host nor code that is gone, and writes
 * when it can. */
static void test_hangs(void)
{
    char lock_path[300];
    snprintf(lock_path, sizeof(lock_path), "%s/." STEM ".lock", folder);
    fresh();
    pthread_mutex_lock(&gate);
    SEND(ASKED, 0, 1, 0, OK);
    int before = test_count_get(&logs);
    module->close(ctx);
    CU_ASSERT_EQUAL(test_count_get(&logs), before + 1);
    host = (mortise_host){.size = sizeof(host)};
    CU_ASSERT_EQUAL(dlclose(library), 0);
    pthread_mutex_unlock(&gate);
    CU_ASSERT(test_poll(slot_is_free, lock_path, TEST_PATIENCE_MS));
    char *text = test_file_read(path);
    CU_ASSERT_PTR_NOT_NULL_FATAL(text);
    EXPECT_LINE("asked_total", "", "1");
    free(text);
    CU_ASSERT_FATAL(load());
}

static bool shows(void *line)
{
    char *text = test_file_read(path);
    bool there = text != NULL && strstr(text, line) != NULL;
    free(text);
    return there;
}

static bool has_lock(void *lock)
{
    return number_of(lock) >= 500;
}

/* The application has a file that it locked itself under the number of the slot's lock: it stays open and locked. The slot is taken
 * again, and nothing is counted twice. */
static void test_number_taken(void)
{
    static char one[] = "mortise_asked_total" LABELS "} 1\n", lock[] = "/." STEM ".lock";
    int own = own_file();
    every_ms = 10;
    fresh();
    every_ms = 3600000;
    SEND(ASKED, 0, 1, 0, OK);
    CU_ASSERT_FATAL(test_poll(shows, one, TEST_PATIENCE_MS));
    CU_ASSERT_EQUAL(flock(own, LOCK_EX), 0);
    int number = number_of(lock);
    put_under(own, number);
    CU_ASSERT(test_poll(has_lock, lock, TEST_PATIENCE_MS));
    char *text = end();
    EXPECT_LINE("asked_total", "", "1");
    free(text);
    CU_ASSERT(own_is_locked(own));
    expect_untouched(own, number);
    close(own);
}

static void test_cost(void)
{
    fresh();
    struct cost cost = cost_begin();
    for (uint64_t number = 1; number <= COST_EVENTS / 3; number++) {
        SEND(ASKED, 0, number, 0, OK);
        SEND(GRANTED, MS, number, number, OK);
        SEND(RELEASED, 2 * MS, 0, number, OK);
    }
    cost_end(cost);
    free(end());
}

int main(void)
{
    static CU_TestInfo tests[] = {
        {"a life", test_a_life},
        {"a hostile namespace", test_hostile_namespace},
        {"shared leases", test_shared},
        {"ends", test_ends},
        {"resumed", test_resumed},
        {"more than there are seats", test_crowd},
        {"a foreign file", test_foreign_file},
        {"what is no file", test_no_file},
        {"a folder that is not permitted", test_not_permitted},
        {"a folder that hangs", test_hangs},
        {"the application has its number", test_number_taken},
        {"what an event costs", test_cost},
        CU_TEST_INFO_NULL,
    };
    if (!load() || !test_folder_make(folder, sizeof(folder)))
        return 1;
    snprintf(path, sizeof(path), "%s/" STEM ".prom", folder);
    int code = suite_run("metrics", tests);
    test_folder_remove(folder);
    return code;
}
