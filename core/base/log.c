/* log.c - lines for stderr or a callback, written by a thread of their own; see log.h. */
#include "base/log.h"

#include <mortise/mortise.h>

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define ROOM 65536
#define LINE_MAX_BYTES 1536
#define EXIT_PATIENCE_MS 1000 /* how long the end of the program waits for the last lines */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards what follows */
static pthread_cond_t written;                           /* lines were; on CLOCK_MONOTONIC */
static bool written_ready;
static char buffers
    [2]
    [ROOM]; /* one is filled while the other is written; a line is its level, the text, a newline */
static unsigned filling;
static size_t used;
static uint64_t lines_in, lines_out, dropped;
static bool runs, calling; /* the thread; the callback */
static mortise_log_callback callback;
static void *callback_data;
static _Thread_local bool inside; /* this thread is in the callback */
static unsigned forks;            /* between the first process and this one */

static void make_cond_locked(void)
{
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&written, &monotonic);
    pthread_condattr_destroy(&monotonic);
    written_ready = true;
}

/* ---- the thread ---- */

/* The callback gets the line, without its newline. False: there is no callback. */
static bool call(int level, char *line, size_t length)
{
    pthread_mutex_lock(&lock);
    mortise_log_callback function = callback;
    void *data = callback_data;
    unsigned before = forks;
    calling = function != NULL;
    pthread_mutex_unlock(&lock);
    if (function == NULL)
        return false;
    line[length - 1] = '\0';
    inside = true;
    function(level, line, data);
    inside = false;
    pthread_mutex_lock(&lock);
    if (forks != before) { /* a child, forked in the callback: the rest belongs to its parent */
        pthread_mutex_unlock(&lock);
        pthread_exit(NULL);
    }
    calling = false;
    pthread_cond_broadcast(&written);
    pthread_mutex_unlock(&lock);
    return true;
}

/* One write for each line, so that lines of several processes do not mix in a pipe. */
static void put(const char *line, size_t length)
{
    while (length > 0) {
        ssize_t count = write(STDERR_FILENO, line, length);
        if (count < 0 && errno == EAGAIN) {
            struct pollfd ready = {.fd = STDERR_FILENO, .events = POLLOUT};
            poll(&ready, 1, -1);
        } else if (count < 0 && errno != EINTR)
            return;
        if (count > 0) {
            line += count;
            length -= (size_t)count;
        }
    }
}

static void put_lines(char *lines, size_t length)
{
    while (length > 0) {
        char *end = memchr(lines, '\n', length);
        size_t size = (size_t)(end - lines) + 1;
        if (!call(lines[0] - '0', lines + 1, size - 1))
            put(lines + 1, size - 1);
        lines += size;
        length -= size;
    }
}

static void put_dropped(uint64_t count)
{
    char line[128];
    int length = snprintf(line, sizeof(line),
                          "mortise: %llu log lines were dropped: they were not read in time\n",
                          (unsigned long long)count);
    if (!call(4, line, (size_t)length))
        put(line, (size_t)length);
}

static void *log_main(void *argument)
{
    (void)argument;
    pthread_setname_np(pthread_self(), "mortise-log");
    pthread_mutex_lock(&lock);
    while (used > 0 || dropped > 0) {
        char *lines = buffers[filling];
        size_t length = used;
        uint64_t upto = lines_in, lost = dropped;
        filling = 1 - filling;
        used = 0;
        dropped = 0;
        pthread_mutex_unlock(&lock);
        put_lines(lines, length);
        if (lost > 0)
            put_dropped(lost);
        pthread_mutex_lock(&lock);
        lines_out = upto;
        pthread_cond_broadcast(&written);
    }
    runs = false;
    pthread_cond_broadcast(&written);
    pthread_mutex_unlock(&lock);
    return NULL;
}

/* If the system gives no thread, the lines wait for the next attempt. */
static void start_locked(void)
{
    pthread_t thread;
    pthread_attr_t detached;
    sigset_t all, before; /* signals are for the application's threads; SIGPIPE must not end it */
    if (!written_ready)
        make_cond_locked();
    if (runs || (used == 0 && dropped == 0))
        return;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    runs = pthread_create(&thread, &detached, log_main, NULL) == 0;
    pthread_attr_destroy(&detached);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* ---- the others ---- */

void log_line(int level, const char *format, ...)
{
    char line[LINE_MAX_BYTES];
    line[0] = (char)('0' + (level < 0 ? 0 : level > 7 ? 7 : level));
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(line + 1, sizeof(line) - 2, format, arguments);
    va_end(arguments);
    if (length < 0)
        return;
    size_t size = (size_t)length + 1 < sizeof(line) - 2 ? (size_t)length + 1 : sizeof(line) - 2;
    for (size_t i = 1; i < size; i++)
        if (line[i] == '\n')
            line[i] = ' ';
    line[size++] = '\n';
    pthread_mutex_lock(&lock);
    if (used + size <= ROOM) {
        memcpy(buffers[filling] + used, line, size);
        used += size;
    } else
        dropped++;
    lines_in++;
    start_locked();
    pthread_mutex_unlock(&lock);
}

bool log_inside(void)
{
    return inside;
}

void mortise_on_log(mortise_log_callback function, void *user_data)
{
    int cancel_state; /* a thread that was canceled while it waits would keep the lock forever */
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
    pthread_mutex_lock(&lock);
    if (!written_ready)
        make_cond_locked();
    callback = function;
    callback_data = user_data;
    while (calling && !inside)
        pthread_cond_wait(&written, &lock);
    pthread_mutex_unlock(&lock);
    pthread_setcancelstate(cancel_state, NULL);
}

/* The system gives no thread: writes what stderr takes at once. A pipe that is ready takes a whole line. The application's
 * callback is not called here, because this thread may hold locks. */
static void put_at_once_locked(void)
{
    if (callback != NULL)
        return;
    char *lines = buffers[filling];
    struct pollfd ready = {.fd = STDERR_FILENO, .events = POLLOUT};
    size_t done = 0;
    while (done < used && poll(&ready, 1, 0) == 1 && ready.revents == POLLOUT) {
        size_t size = (size_t)((char *)memchr(lines + done, '\n', used - done) - lines) + 1 - done;
        if (write(STDERR_FILENO, lines + done + 1, size - 1) < 0)
            break;
        done += size;
    }
    used -= done;
    memmove(lines, lines + done, used);
}

void log_flush(int64_t patience_ms)
{
    struct timespec until;
    int cancel_state; /* the thread that ends the program may be canceled, too */
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += patience_ms / 1000;
    until.tv_nsec += patience_ms % 1000 * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    pthread_mutex_lock(&lock);
    start_locked();
    if (!runs)
        put_at_once_locked();
    uint64_t upto = lines_in;
    while (runs && !inside && lines_out < upto) /* inside the callback, it would wait for itself */
        if (pthread_cond_timedwait(&written, &lock, &until) == ETIMEDOUT)
            break;
    pthread_mutex_unlock(&lock);
    pthread_setcancelstate(cancel_state, NULL);
}

/* If the program ends by exit(), or returns from main, its last lines are still written. */
__attribute__((destructor)) static void flush_at_exit(void)
{
    log_flush(EXIT_PATIENCE_MS);
}

/* ---- fork ---- */

void log_before_fork(void)
{
    pthread_mutex_lock(&lock);
}

void log_after_fork(bool in_child)
{
    if (in_child) {
        make_cond_locked(); /* threads of the parent may wait on the old one */
        used = 0;
        lines_in = lines_out = dropped = 0;
        runs = calling = inside = false;
        forks++;
    }
    pthread_mutex_unlock(&lock);
}
