/* sqlite_host.h - a small host for the SQLite module, which tests it through driver.h alone.
 *
 * It opens instances of the module (each a client), starts ops on them, polls as the core's pump would, and keeps the
 * module's messages. Time is CLOCK_BOOTTIME plus an offset that a test can move. It knows only the module's name; it
 * reaches the database through the library that the module has loaded. */
#ifndef MORTISE_TESTS_SQLITE_HOST_H
#define MORTISE_TESTS_SQLITE_HOST_H

#include "suite.h"

#include <mortise/driver.h>

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MS INT64_C(1000000)
#define PATHS_MAX (2 * PATH_MAX)
#define PATIENCE_NS (60000 * MS) /* bounds failure only */

static const mortise_module *module;
static void *library;
static int64_t clock_shift_ns;   /* what a test added to the time */
static int64_t clock_stopped_ns; /* it stands still there; 0: it does not */
static char folder[PATH_MAX];    /* of this program's databases */

/* One text behind the other, in a buffer of PATHS_MAX. */
static inline const char *joined(char *to, const char *first, const char *second)
{
    int n = snprintf(to, PATHS_MAX, "%s%s", first, second);
    if (n < 0 || n >= PATHS_MAX)
        abort();
    return to;
}

/* For what waits: it does so on a clock that stands still, too. */
static inline int64_t time_of_waiting(void)
{
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static inline int64_t time_now(void)
{
    return clock_stopped_ns != 0 ? clock_stopped_ns : time_of_waiting() + clock_shift_ns;
}

/* What lasts for milliseconds has not ended until the clock goes on, however busy the machine is. */
static inline void clock_stop(void)
{
    clock_stopped_ns = time_now();
}

static inline void clock_go_on(void)
{
    clock_stopped_ns = 0;
}

/* ---- clients ----------------------------------------------------------------------------------- */

struct client {
    mortise_host host; /* first */
    void *ctx;
    mortise_value values[16];
    mortise_error error; /* of open */
    unsigned news, news_all, turns, logs;
    char last_news[MORTISE_NAME_MAX + 1];
    char last_log[1024];
    unsigned emitted, misplaced; /* by list: how many, and how many not in order */
    mortise_info last_info;
};

/* An op and what became of it. */
struct call {
    mortise_op op;
    bool done;
    mortise_error error;
    mortise_info info;
};

/* Called whenever the module asks for the time: what a test wants to happen in the middle of an op. */
static void (*on_now)(void);

static inline int64_t host_now(mortise_host *host)
{
    (void)host;
    if (on_now != NULL)
        on_now();
    return time_now();
}

static inline void host_complete(mortise_host *host, mortise_op *op, mortise_status status)
{
    struct call *call = (struct call *)op;
    (void)host;
    CU_ASSERT_FALSE(call->done); /* exactly once */
    op->status = status;
    call->done = true;
}

static inline void host_fail(mortise_host *host, mortise_op *op, mortise_status status,
                             int32_t native, bool retryable, const char *format, ...)
    __attribute__((format(printf, 6, 7)));
static inline void host_fail(mortise_host *host, mortise_op *op, mortise_status status,
                             int32_t native, bool retryable, const char *format, ...)
{
    struct call *call = (struct call *)op;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(call->error.message, sizeof(call->error.message), format, arguments);
    va_end(arguments);
    call->error.native = native;
    call->error.retryable = retryable;
    host_complete(host, op, status);
}

static inline void host_emit(mortise_host *host, mortise_op *op, const mortise_info *info)
{
    struct client *client = (struct client *)host;
    (void)op;
    if (client->emitted > 0 && strcmp(client->last_info.name, info->name) >= 0)
        client->misplaced++;
    client->last_info = *info;
    client->emitted++;
}

static inline void host_news(mortise_host *host, const char *name, size_t name_len)
{
    struct client *client = (struct client *)host;
    client->news++;
    snprintf(client->last_news, sizeof(client->last_news), "%.*s", (int)name_len, name);
}

static inline void host_news_all(mortise_host *host)
{
    ((struct client *)host)->news_all++;
}

static inline void host_closing(mortise_host *host, int fd)
{
    (void)host;
    CU_ASSERT(fcntl(fd, F_GETFD) >= 0);
}

static inline void host_log(mortise_host *host, int level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static inline void host_log(mortise_host *host, int level, const char *format, ...)
{
    struct client *client = (struct client *)host;
    va_list arguments;
    (void)level;
    va_start(arguments, format);
    vsnprintf(client->last_log, sizeof(client->last_log), format, arguments);
    va_end(arguments);
    client->logs++;
}

static inline void fill_random(void *bytes, size_t size)
{
    int fd = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
    if (fd < 0 || read(fd, bytes, size) != (ssize_t)size)
        abort();
    close(fd);
}

static inline void host_random(mortise_host *host, void *bytes, size_t size)
{
    (void)host;
    fill_random(bytes, size);
}

static inline const char *host_quote(const char *name, size_t name_len, char *buffer, size_t size)
{
    snprintf(buffer, size, "\"%.*s\"", (int)name_len, name != NULL ? name : "");
    return buffer;
}

static inline void set_value(const mortise_option *option, const char *text, mortise_value *value)
{
    int64_t number = strtoll(text != NULL ? text : "0", NULL, 10);
    if (option->type == MORTISE_OPTION_DURATION && text != NULL && strstr(text, "ms") == NULL)
        number *= 1000;
    if (option->type == MORTISE_OPTION_CHOICE && text != NULL)
        number = strstr(option->choices, text) != option->choices; /* of two */
    if (option->type == MORTISE_OPTION_BOOL)
        number = text != NULL && strcmp(text, "yes") == 0;
    value->text = text;
    value->number = number;
}

/* settings: "key", "text", …, NULL. Returns the status of open; the client must be zeroed or closed. */
static inline mortise_status client_open(struct client *client, const char *const *settings)
{
    memset(client, 0, sizeof(*client));
    client->host = (mortise_host){.size = sizeof(mortise_host),
                                  .now = host_now,
                                  .complete = host_complete,
                                  .fail = host_fail,
                                  .emit = host_emit,
                                  .news = host_news,
                                  .news_all = host_news_all,
                                  .closing = host_closing,
                                  .log = host_log,
                                  .random = host_random,
                                  .quote = host_quote};
    for (size_t i = 0; i < module->option_count; i++) {
        set_value(&module->options[i], module->options[i].default_text, &client->values[i]);
        for (const char *const *pair = settings; *pair != NULL; pair += 2) {
            if (strcmp(pair[0], module->options[i].key) != 0)
                continue;
            set_value(&module->options[i], pair[1], &client->values[i]);
            client->values[i].given = true;
        }
    }
    mortise_open_args args = {.size = sizeof(args),
                              .host = &client->host,
                              .values = client->values,
                              .section = "sqlite",
                              .client_id = "00112233445566778899aabbccddeeff",
                              .note = ""};
    return module->open(&args, &client->ctx, &client->error);
}

#define OPEN(client, ...) client_open((client), (const char *const[]){__VA_ARGS__, NULL})
#define OPEN_OK(client, ...)                                                                       \
    do {                                                                                           \
        mortise_status opened_ = OPEN(client, __VA_ARGS__);                                        \
        if (opened_ != MORTISE_OK)                                                                 \
            fprintf(stderr, "open: %s\n", (client)->error.message);                                \
        CU_ASSERT_EQUAL_FATAL(opened_, MORTISE_OK);                                                \
    } while (0)

static inline void client_close(struct client *client)
{
    module->close(client->ctx);
    client->ctx = NULL;
}

/* ---- the pump ---------------------------------------------------------------------------------- */

/* Sleeps until the module wants to be turned, at most until `until_ns`, and turns it. */
static inline void client_turn(struct client *client, int64_t until_ns)
{
    struct pollfd fds[8];
    int64_t due_ns = MORTISE_NEVER;
    size_t n = module->interest(client->ctx, fds, 8, &due_ns), ready = 0;
    int64_t left = (due_ns < until_ns ? due_ns : until_ns) - time_now();
    left = left > 0 ? left : 0;
    struct timespec timeout = {.tv_sec = left / (1000 * MS), .tv_nsec = left % (1000 * MS)};
    int count = ppoll(fds, (nfds_t)n, &timeout, NULL);
    for (size_t i = 0; i < n && count > 0; i++)
        if (fds[i].revents != 0)
            fds[ready++] = fds[i];
    if (ready == 0 && time_now() < due_ns)
        return;
    client->turns++;
    module->turn(client->ctx, fds, ready);
}

static inline bool wait_done(struct client *client, struct call *call)
{
    int64_t give_up_ns = time_of_waiting() + PATIENCE_NS;
    while (!call->done && time_of_waiting() < give_up_ns)
        client_turn(client, time_now() + 100 * MS);
    return call->done;
}

/* Turns until there was news, for as long as `ns`. */
static inline bool wait_news(struct client *client, unsigned news, int64_t ns)
{
    int64_t give_up_ns = time_of_waiting() + ns;
    for (bool again = true; client->news < news && again;) {
        again = time_of_waiting() < give_up_ns; /* one more look when it is over */
        client_turn(client, time_now() + give_up_ns - time_of_waiting());
    }
    return client->news >= news;
}

/* ---- ops --------------------------------------------------------------------------------------- */

static inline struct call call_make(mortise_op_kind kind, const char *name)
{
    struct call call;
    memset(&call, 0, sizeof(call));
    call.op.kind = kind;
    call.op.name = name;
    call.op.name_len = strlen(name);
    call.op.note = "web3\n4711\nnightly";
    call.op.note_len = strlen(call.op.note);
    call.op.ttl_ms = 30000;
    if (kind == MORTISE_OP_ACQUIRE)
        fill_random(&call.op.grant, sizeof(call.op.grant));
    return call;
}

static inline void call_start(struct client *client, struct call *call)
{
    mortise_op *op = &call->op;
    call->done = false;
    op->info = &call->info;
    call->info.size = sizeof(call->info);
    memset(op->driver_data, 0, sizeof(op->driver_data));
    op->next = op->previous = NULL;
    module->start(client->ctx, &op, 1);
}

static inline mortise_status run(struct client *client, struct call *call)
{
    call_start(client, call);
    if (!wait_done(client, call)) {
        CU_FAIL("an op was never completed");
        module->cancel(client->ctx, &call->op);
    }
    return call->op.status;
}

static inline mortise_status acquire(struct client *client, struct call *lock, const char *name,
                                     uint32_t flags)
{
    *lock = call_make(MORTISE_OP_ACQUIRE, name);
    lock->op.flags = flags;
    return run(client, lock);
}

/* An op about the claim that `lock` made. */
static inline struct call call_about(mortise_op_kind kind, const struct call *lock)
{
    struct call call = call_make(kind, "");
    call.op.name = lock->op.name;
    call.op.name_len = lock->op.name_len;
    call.op.grant = lock->op.grant;
    call.op.owner = lock->op.owner;
    call.op.owner_len = lock->op.owner_len;
    call.op.token = lock->op.token;
    call.op.ttl_ms = lock->op.ttl_ms;
    return call;
}

static inline mortise_status release(struct client *client, const struct call *lock)
{
    struct call call = call_about(MORTISE_OP_RELEASE, lock);
    mortise_status status = run(client, &call);
    CU_ASSERT_TRUE(call.op.sure || status == MORTISE_UNREACHABLE || status == MORTISE_BACKEND);
    return status;
}

static inline mortise_status renew(struct client *client, const struct call *lock)
{
    struct call call = call_about(MORTISE_OP_RENEW, lock);
    return run(client, &call);
}

static inline mortise_info inspect(struct client *client, const char *name)
{
    struct call call = call_make(MORTISE_OP_INSPECT, name);
    CU_ASSERT_EQUAL(run(client, &call), MORTISE_OK);
    return call.info;
}

/* ---- the database, from outside ------------------------------------------------------------------- */

/* Runs SQL on a connection of its own, or on *keep, which it opens and leaves open. */
static inline int outside(const char *path, const char *sql, void **keep)
{
    int (*open_db)(const char *, void **) =
        (int (*)(const char *, void **))dlsym(library, "sqlite3_open");
    int (*exec)(void *, const char *, void *, void *, void *) =
        (int (*)(void *, const char *, void *, void *, void *))dlsym(library, "sqlite3_exec");
    int (*close_db)(void *) = (int (*)(void *))dlsym(library, "sqlite3_close");
    void *db = keep != NULL ? *keep : NULL;
    int rc = db == NULL ? open_db(path, &db) : 0;
    if (rc == 0)
        rc = exec(db, sql, NULL, NULL, NULL);
    if (keep != NULL)
        *keep = db;
    else
        close_db(db);
    return rc;
}

static inline void outside_close(void *db)
{
    ((int (*)(void *))dlsym(library, "sqlite3_close"))(db);
}

static inline const char *database(const char *name)
{
    static char paths[4][PATHS_MAX];
    static unsigned next;
    char *path = paths[next++ % 4];
    int n = snprintf(path, PATHS_MAX, "%s/%s.db", folder, name);
    if (n < 0 || n >= PATHS_MAX)
        abort();
    return path;
}

static inline unsigned entries_in(const char *path, const char *suffix)
{
    char text[PATHS_MAX];
    DIR *directory = opendir(joined(text, path, suffix));
    unsigned count = 0;
    const struct dirent *entry;
    while (directory != NULL && (entry = readdir(directory)) != NULL)
        count += entry->d_name[0] != '.';
    if (directory != NULL)
        closedir(directory);
    return count;
}

static inline void write_at(const char *file, off_t offset, char byte, size_t count)
{
    int fd = open(file, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    char junk[4096];
    memset(junk, byte, sizeof(junk));
    CU_ASSERT_FATAL(fd >= 0);
    for (size_t done = 0; done < count; done += sizeof(junk))
        CU_ASSERT_EQUAL(pwrite(fd, junk, sizeof(junk), offset + (off_t)done), sizeof(junk));
    close(fd);
}

/* ---- other processes --------------------------------------------------------------------------- */

static inline pid_t child_start(void (*body)(void *argument), void *argument)
{
    fflush(NULL);
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    unsigned before = CU_get_number_of_failures();
    body(argument);
    _exit(CU_get_number_of_failures() == before ? 0 : 1);
}

static inline int child_end(pid_t pid)
{
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* A byte through a pipe: what a test waits for instead of sleeping. */
static inline void say(const int *pipe_fds)
{
    if (write(pipe_fds[1], "!", 1) != 1)
        abort();
}

static inline bool hear(const int *pipe_fds)
{
    struct pollfd fd = {.fd = pipe_fds[0], .events = POLLIN};
    char byte;
    return poll(&fd, 1, (int)(PATIENCE_NS / MS)) == 1 && read(pipe_fds[0], &byte, 1) == 1;
}

/* ---- the program ------------------------------------------------------------------------------- */

static inline void remove_tree(const char *path)
{
    pid_t pid = fork();
    if (pid == 0) {
        execlp("rm", "rm", "-rf", "--", path, (char *)NULL);
        _exit(127);
    }
    child_end(pid);
}

/* Loads the module; false: it was not built. */
static inline bool host_begin(void)
{
    library = dlopen(TEST_MODULE_DIR "/sqlite.so", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        fprintf(stderr, "skipped: %s\n", dlerror());
        return false;
    }
    module = dlsym(library, MORTISE_MODULE_SYMBOL);
    const char *parent = getenv("TMPDIR");
    snprintf(folder, sizeof(folder), "%s/mortise-sqlite.XXXXXX", parent != NULL ? parent : "/tmp");
    return module != NULL && mkdtemp(folder) != NULL;
}

static inline int host_run(const char *name, const CU_TestInfo *tests)
{
    if (!host_begin())
        return 77;
    int code = suite_run(name, tests);
    remove_tree(folder);
    return code;
}

#endif
