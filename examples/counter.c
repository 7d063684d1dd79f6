/* counter.c - worker processes that add to one number in a file: each reads it, adds one and writes it back. With the
 * lock no addition is lost; --without-lock shows how many are lost without it.
 *
 *     counter [--without-lock] WHERE FILE
 *
 * WHERE: a config file or URL, as for mortise_open(). FILE: the file of the number; it is created anew. */
#include <mortise/mortise.h>

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { WORKERS = 8, ADDITIONS = 250 };

/* Prints what failed. Returns -1. */
static int fail(const char *what, const char *why)
{
    fprintf(stderr, "counter: %s: %s\n", what, why);
    return -1;
}

/* Returns the number in the file, or -1. */
static long read_number(int file)
{
    char text[32];
    ssize_t length = pread(file, text, sizeof(text) - 1, 0);
    if (length <= 0)
        return fail("reading the number", length < 0 ? strerror(errno) : "the file is empty");
    text[length] = '\0';
    return strtol(text, NULL, 10);
}

/* Writes a fixed number of characters, so that nothing of a larger number remains behind a smaller one. */
static int write_number(int file, long number)
{
    char text[32];
    int length = snprintf(text, sizeof(text), "%10ld\n", number);
    if (pwrite(file, text, (size_t)length, 0) != length)
        return fail("writing the number", strerror(errno));
    return 0;
}

static int add_one(int file)
{
    long number = read_number(file);
    if (number < 0)
        return -1;
    sched_yield(); /* let others run here: without a lock they read the same number */
    return write_number(file, number + 1);
}

/* Waits until all writers of a pipe have closed it. */
static void wait_for_end(int pipe_end)
{
    char byte;
    while (read(pipe_end, &byte, 1) < 0 && errno == EINTR)
        ;
}

static int add_one_locked(mortise_client *client, int file)
{
    mortise_lease *lease;
    mortise_error error;
    if (mortise_acquire(client, "counter", MORTISE_OPTIONS(.wait_ms = 60000), &lease, &error) !=
        MORTISE_OK)
        return fail("acquiring", error.message);
    int result = add_one(file);
    if (mortise_release(lease, &error) != MORTISE_OK)
        return fail("releasing", error.message);
    return result;
}

/* Opens its client after the fork, because a client belongs to the process that opened it. The worker closes one pipe
 * to say that it is ready, and starts when all are ready: when the parent has closed the other pipe. */
static int work(const char *where, int file, int ready, int start)
{
    mortise_client *client = NULL;
    mortise_error error;
    int result = 0;

    if (where != NULL && mortise_open(where, &client, &error) != MORTISE_OK)
        return fail("opening", error.message);
    close(ready);
    wait_for_end(start);
    for (int i = 0; i < ADDITIONS && result == 0; i++)
        result = client != NULL ? add_one_locked(client, file) : add_one(file);
    if (client != NULL && mortise_close(client, &error) != MORTISE_OK)
        return fail("closing", error.message);
    return result;
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Waits for all workers. Returns how many failed. */
static int gather(int workers)
{
    int failed = 0, status;
    while (workers-- > 0)
        if (wait(&status) < 0 || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
            failed++;
    return failed;
}

/* Runs the workers. Returns how many seconds they took, or a negative number. where NULL: no lock. */
static double run(const char *where, int file)
{
    int ready[2], start[2], started = 0;
    if (pipe(ready) != 0 || pipe(start) != 0)
        return fail("pipe", strerror(errno));

    for (; started < WORKERS; started++) {
        pid_t pid = fork();
        if (pid == 0) {
            close(ready[0]);
            close(start[1]);
            _exit(work(where, file, ready[1], start[0]) == 0 ? 0 : 1);
        }
        if (pid < 0)
            break;
    }
    close(ready[1]);
    wait_for_end(ready[0]);
    double began = seconds();
    close(start[1]);
    int failed = gather(started) + (WORKERS - started);
    double took = seconds() - began;
    close(ready[0]);
    close(start[0]);
    return failed == 0 ? took : fail("workers", "not all did their work");
}

int main(int argc, char **argv)
{
    bool locked = !(argc > 1 && strcmp(argv[1], "--without-lock") == 0);
    if (argc != (locked ? 3 : 4)) {
        fprintf(stderr, "usage: counter [--without-lock] WHERE FILE\n");
        return 64;
    }
    const char *where = argv[argc - 2], *path = argv[argc - 1];
    int file = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (file < 0 || write_number(file, 0) != 0) {
        fail(path, strerror(errno));
        return 1;
    }

    double took = run(locked ? where : NULL, file);
    if (took < 0)
        return 1;
    long number = read_number(file), wanted = WORKERS * ADDITIONS;
    printf("%ld of %ld", number, wanted);
    if (locked)
        printf(" (%.0f microseconds per acquire)\n", took * 1e6 / (double)wanted);
    else
        printf(" (%ld additions lost)\n", wanted - number);
    return locked && number != wanted ? 1 : 0;
}
