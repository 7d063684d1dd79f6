/* trace_test.h - what the tests of the trace observer share: a host for it, numbered events, and a check of the
 * trace: which of them it contains, in what order, and whether its lines are whole. */
#ifndef TRACE_TEST_H
#define TRACE_TEST_H

#include <mortise/driver.h>
#include <suite.h>
#include <support.h>

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MS INT64_C(1000000)
#define CLIENT_ID "00112233445566778899aabbccddeeff"

enum { PATH, FD, BUFFER, FLUSH, VALUES };

static void *library;
static const mortise_module *module;
static char folder[256], path[300], other_path[300];
static struct test_count logs = TEST_COUNT_INIT;

/* ---- a host ------------------------------------------------------------------------------------ */

static inline int64_t host_now(mortise_host *host)
{
    struct timespec now;
    (void)host;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static inline void host_log(mortise_host *host, int level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static inline void host_log(mortise_host *host, int level, const char *format, ...)
{
    (void)host, (void)level, (void)format;
    test_count_add(&logs, 1);
}

struct trace {
    mortise_host host;
    mortise_value values[VALUES];
    void *ctx;
    mortise_error error;
};

static inline mortise_status open_trace(struct trace *trace, const char *file, int fd,
                                        int64_t buffer_kib)
{
    *trace =
        (struct trace){.host = {.size = sizeof(mortise_host), .now = host_now, .log = host_log},
                       .values = {[PATH] = {.given = file != NULL, .text = file},
                                  [FD] = {.given = fd >= 0, .number = fd},
                                  [BUFFER] = {.number = buffer_kib},
                                  [FLUSH] = {.number = 5}}};
    mortise_open_args args = {.size = sizeof(args),
                              .host = &trace->host,
                              .values = trace->values,
                              .section = "trace",
                              .client_id = CLIENT_ID,
                              .note = "web3\n4711\nnight\"ly"};
    return module->open(&args, &trace->ctx, &trace->error);
}

#define OPEN(trace, file, fd, buffer)                                                              \
    CU_ASSERT_EQUAL_FATAL(open_trace(trace, file, fd, buffer), MORTISE_OK)

static inline void close_trace(struct trace *trace)
{
    module->close(trace->ctx);
}

/* An event that can be told from the others by its caller. */
static inline void send_number(struct trace *trace, uint64_t number)
{
    mortise_event event = {.size = sizeof(event),
                           .kind = MORTISE_EVENT_ASKED,
                           .at_ns = 1000 + (int64_t)number,
                           .name = "nightly",
                           .name_len = 7,
                           .caller = number + 1};
    module->observe(trace->ctx, &event);
}

static inline void send_numbers(struct trace *trace, uint64_t from, uint64_t to)
{
    for (uint64_t number = from; number < to; number++)
        send_number(trace, number);
}

/* ---- what came of it --------------------------------------------------------------------------- */

struct story {
    uint64_t next; /* the number that is expected */
    uint64_t lines, events, dropped, gaps, opened, closed, torn;
    uint64_t told_events, told_dropped; /* by "closed" */
};

static inline bool read_number(const char *line, const char *key, uint64_t *number)
{
    const char *place = strstr(line, key);
    return place != NULL && sscanf(place + strlen(key), "%" SCNu64, number) == 1;
}

static inline void take_line(struct story *story, const char *line)
{
    uint64_t number = 0;
    size_t length = strlen(line);
    story->lines++;
    if (strncmp(line, "{\"event\":\"", 10) != 0 || length < 2 || line[length - 1] != '}') {
        story->torn++;
    } else if (strncmp(line + 10, "opened", 6) == 0) {
        story->opened++;
    } else if (strncmp(line + 10, "closed", 6) == 0) {
        story->closed++;
        read_number(line, "\"events\":", &story->told_events);
        read_number(line, "\"dropped\":", &story->told_dropped);
    } else if (strncmp(line + 10, "dropped", 7) == 0) {
        if (read_number(line, "\"count\":", &number))
            story->dropped += number;
        story->next += number;
    } else if (read_number(line, "\"caller\":", &number)) {
        story->gaps += number - 1 != story->next;
        story->next = number;
        story->events++;
    }
}

static inline void read_stream(struct story *story, FILE *file)
{
    char *line = NULL;
    size_t size = 0;
    ssize_t length;
    while ((length = getline(&line, &size, file)) > 0) {
        line[length - (line[length - 1] == '\n')] = '\0';
        take_line(story, line);
    }
    free(line);
}

static inline void read_file(struct story *story, const char *file)
{
    FILE *stream = fopen(file, "r");
    CU_ASSERT_PTR_NOT_NULL_FATAL(stream);
    read_stream(story, stream);
    fclose(stream);
}

static inline void expect_whole(const struct story *story, uint64_t events)
{
    CU_ASSERT_EQUAL(story->events, events);
    CU_ASSERT_EQUAL(story->gaps, 0);
    CU_ASSERT_EQUAL(story->torn, 0);
    CU_ASSERT_EQUAL(story->dropped, 0);
    CU_ASSERT_EQUAL(story->opened, 1);
    CU_ASSERT_EQUAL(story->closed, 1);
    CU_ASSERT_EQUAL(story->told_events, events);
    CU_ASSERT_EQUAL(story->told_dropped, 0);
}

static inline int64_t size_of(const char *file)
{
    struct stat status;
    return stat(file, &status) == 0 ? status.st_size : -1;
}

struct size_wanted {
    const char *file;
    int64_t size;
};

static inline bool has_size(void *argument)
{
    const struct size_wanted *wanted = argument;
    return size_of(wanted->file) >= wanted->size;
}

static inline bool wait_size(const char *file, int64_t size)
{
    return test_poll(has_size, &(struct size_wanted){file, size}, TEST_PATIENCE_MS);
}

static inline void fresh(void)
{
    unlink(path);
    unlink(other_path);
    logs.value = 0;
}

static inline bool load(void)
{
    library = dlopen(TEST_MODULE_DIR "/trace.so", RTLD_NOW);
    module = library != NULL ? dlsym(library, MORTISE_MODULE_SYMBOL) : NULL;
    return module != NULL;
}

/* Runs the suite on the built module; for main() to return. */
static inline int trace_run(const char *name, CU_TestInfo *tests)
{
    if (!load() || !test_folder_make(folder, sizeof(folder)))
        return 1;
    snprintf(path, sizeof(path), "%s/trace.json", folder);
    snprintf(other_path, sizeof(other_path), "%s/trace.old", folder);
    signal(SIGXFSZ, SIG_IGN);
    int code = suite_run(name, tests);
    test_folder_remove(folder);
    return code;
}

#endif
