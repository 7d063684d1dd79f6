/* keeper_witness.c - the keeper as the witness of its wrapper: if the wrapper was killed, the keeper releases its claims when no
 * process of the command's family is left. Until then it only keeps what the wrapper's client has passed to it. */
#include "keeper.h"

#include "connect.h"
#include "exit_code.h"
#include "signal_set.h"
#include "witness.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void forget(struct keeper_witness *witness)
{
    if (witness->pidfd >= 0)
        close(witness->pidfd);
    if (witness->area >= 0)
        close(witness->area);
    witness->pidfd = witness->area = -1;
}

static void on_hello(struct keeper_witness *witness, const struct hello *hello)
{
    const mortise_witness_message welcome = {.kind = MORTISE_WITNESS_WELCOME};
    pid_t pid;

    if (hello_problem(witness->socket, hello, &pid) != NULL) {
        if (hello->pidfd >= 0)
            close(hello->pidfd);
        if (hello->area >= 0)
            close(hello->area);
        return;
    }
    forget(witness);
    witness->pidfd = hello->pidfd;
    witness->area = hello->area;
    witness->print = hello->head.print;
    witness->crash_delay_ms = hello->head.crash_delay_ms;
    hello_answer(witness->socket, &welcome, "");
}

void keeper_witness_read(struct keeper_witness *witness)
{
    static struct hello hello;

    while (witness->socket >= 0) {
        enum heard heard = hello_receive(witness->socket, &hello);
        if (heard == HEARD_NOTHING)
            return;
        if (heard == HEARD_MESSAGE && hello.head.kind == MORTISE_WITNESS_HELLO)
            on_hello(witness, &hello);
        else if (heard == HEARD_MESSAGE && hello.head.kind == MORTISE_WITNESS_BYE)
            forget(witness);
        else if (heard == HEARD_END) {
            close(witness->socket);
            witness->socket = -1;
        }
    }
}

static void answered(mortise_status status, const mortise_error *error, void *user_data)
{
    (void)status;
    (void)error;
    sem_post(user_data);
}

/* Releases the claims; returns when they are released, or their ttl is over. */
static void release_all(const struct keeper_witness *witness, mortise_client *client)
{
    static mortise_witness_slot slot;
    uint32_t index = 0;
    unsigned open = 0;
    sem_t answers;

    sem_init(&answers, 0, 0);
    while (claims_next(witness->area, &index, &slot))
        open += mortise_release_dead(client, &slot, answered, &answers, NULL) == MORTISE_OK;
    while (open > 0)
        if (sem_wait(&answers) == 0)
            open--;
}

static bool has_claims(const struct keeper_witness *witness)
{
    mortise_witness_slot slot;
    uint32_t index = 0;

    return witness->area >= 0 && claims_next(witness->area, &index, &slot);
}

/* The end of a connection proves nothing, but the pidfd does. */
static void wait_for_death(const struct keeper_witness *witness)
{
    struct pollfd process = {.fd = witness->pidfd, .events = POLLIN};

    while (poll(&process, 1, -1) <= 0)
        continue;
}

/* ---- No other process waits for the keeper ----------------------------------------------------- */

/* Files and folders may stay open: no process waits until they are closed, and the configuration may have to be read from a file
 * that was passed (/dev/stdin), or below such a folder. */
static bool is_file(int fd)
{
    struct stat about;

    return fstat(fd, &about) == 0 && (S_ISREG(about.st_mode) || S_ISDIR(about.st_mode));
}

/* Whether this descriptor, or a copy of it, has a lock on the file: for example that of an outer flock(1), which the keeper would
 * keep until it ends. */
static bool bears_lock(int fd)
{
    char path[40], text[512];

    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
    const int info = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t length = info < 0 ? 0 : read(info, text, sizeof text - 1);
    if (info >= 0)
        close(info);
    text[length > 0 ? length : 0] = '\0';
    return strstr(text, "\nlock:") != NULL;
}

/* Opens the same file again, without the lock, because the configuration may have to be read from it. */
static bool open_anew(int fd)
{
    char path[40];

    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    const int anew = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    const bool done = anew >= 0 && dup2(anew, fd) == fd;
    if (anew >= 0)
        close(anew);
    return done;
}

static bool may_stay(int fd)
{
    return is_file(fd) && (!bears_lock(fd) || open_anew(fd));
}

static bool is_needed(const struct keeper_witness *witness, int fd)
{
    return fd == witness->socket || fd == witness->pidfd || fd == witness->area || may_stay(fd);
}

static void let_go(const struct keeper_witness *witness)
{
    const int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
    DIR *folder = opendir("/proc/self/fd");
    struct dirent *entry;

    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO && nothing >= 0; fd++) {
        if (!may_stay(fd))
            dup2(nothing, fd);
    }
    while (folder != NULL && (entry = readdir(folder)) != NULL) {
        const int fd = (int)strtol(entry->d_name, NULL, 10); /* 0: no number */
        if (fd > STDERR_FILENO && fd != dirfd(folder) && !is_needed(witness, fd))
            close(fd);
    }
    if (folder != NULL)
        closedir(folder);
}

enum { SIGNALLED_SECONDS = 2 };

static void on_signal(int number)
{
    static volatile sig_atomic_t signalled;

    if (number == SIGALRM)
        _exit(EXIT_DONE);
    if (!signalled)
        alarm(SIGNALLED_SECONDS);
    signalled = 1;
}

/* Signals that came while the command was running were not for the keeper. */
static void forget_signals(void)
{
    static const int numbers[] = {SIGINT, SIGHUP, SIGALRM};
    const struct timespec at_once = {0};
    sigset_t set;

    sigemptyset(&set);
    signal_set_add(&set, numbers, sizeof numbers / sizeof numbers[0]);
    while (sigtimedwait(&set, NULL, &at_once) > 0)
        continue;
}

/* From here on, signals limit the time that is left, as in the wrapper. A TERM that came before counts, because systemd sends it
 * only once. */
static void take_signals(void)
{
    static const int numbers[] = {SIGTERM, SIGINT, SIGHUP, SIGALRM};
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};

    forget_signals();
    sigemptyset(&action.sa_mask);
    signal(SIGALRM, SIG_DFL); /* it may have been ignored */
    signal_set_add(&action.sa_mask, numbers, sizeof numbers / sizeof numbers[0]);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        if (sigismember(&action.sa_mask, numbers[i]))
            sigaction(numbers[i], &action, NULL);
    }
    pthread_sigmask(SIG_UNBLOCK, &action.sa_mask, NULL);
}

void keeper_witness_release(struct keeper_witness *witness)
{
    mortise_client *client;

    keeper_witness_read(witness);
    if (witness->area < 0)
        return;
    let_go(witness);
    wait_for_death(witness);
    if (!has_claims(witness))
        return;
    const int64_t delay_ms = witness->crash_delay_ms;
    if (delay_ms > 0)
        poll(NULL, 0, delay_ms < INT32_MAX ? (int)delay_ms : INT32_MAX);
    take_signals();
    if (mortise_open_for_dead(config_where, &client, NULL) != MORTISE_OK)
        return;
    if (mortise_config_print(client) == witness->print)
        release_all(witness, client);
    mortise_close(client, NULL);
}
