/* refuse.c - loaded into the command: calls that fail for lack of memory.
 *
 * MORTISE_REFUSE_SEND="KIND COUNT": so many messages of this kind (tools/keeper.h) between `mortise run` and its keeper.
 * MORTISE_REFUSE_SETENV=NAME: setting this variable.
 * MORTISE_REFUSE_ROOM=BYTES: room for an array of elements that are at least so large.
 * MORTISE_REFUSE_STREAM=COUNT: all streams into memory but the first so many.
 * MORTISE_REFUSE_STOP=KIND: fails nothing, but stops the process before it first sends a message of this kind.
 * MORTISE_REFUSE_READ="KIND FIFO …": fails nothing, but a message of this kind is received only once somebody writes the FIFO. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static bool is_refused(const void *message, size_t length)
{
    static int times;
    const char *refused = getenv("MORTISE_REFUSE_SEND");
    int32_t kind;
    int wanted, count;

    if (refused == NULL || sscanf(refused, "%d %d", &wanted, &count) != 2 ||
        length != 2 * sizeof kind)
        return false;
    memcpy(&kind, message, sizeof kind);
    return kind == wanted && times++ < count;
}

static void stop_before(const void *message, size_t length)
{
    static bool stopped;
    const char *wanted = getenv("MORTISE_REFUSE_STOP");
    int32_t kind;

    if (wanted == NULL || stopped || length != 2 * sizeof kind)
        return;
    memcpy(&kind, message, sizeof kind);
    stopped = kind == strtol(wanted, NULL, 10);
    if (stopped)
        raise(SIGSTOP);
}

ssize_t send(int fd, const void *message, size_t length, int flags)
{
    stop_before(message, length);
    if (!is_refused(message, length))
        return sendto(fd, message, length, flags, NULL, 0);
    errno = ENOBUFS;
    return -1;
}

static void wait_for_writer(const void *message, ssize_t length)
{
    const char *wanted = getenv("MORTISE_REFUSE_READ");
    char fifo[256];
    int32_t kind;
    int wanted_kind, used;

    if (wanted == NULL || length != 2 * (ssize_t)sizeof kind)
        return;
    memcpy(&kind, message, sizeof kind);
    for (; sscanf(wanted, "%d %255s%n", &wanted_kind, fifo, &used) == 2; wanted += used) {
        if (kind == wanted_kind)
            close(open(fifo, O_RDONLY));
    }
}

ssize_t recv(int fd, void *message, size_t length, int flags)
{
    const ssize_t got = recvfrom(fd, message, length, flags, NULL, NULL);

    wait_for_writer(message, got);
    return got;
}

int setenv(const char *name, const char *value, int overwrite)
{
    const char *refused = getenv("MORTISE_REFUSE_SETENV");
    char *entry;

    if (getenv(name) != NULL && !overwrite)
        return 0;
    if ((refused != NULL && strcmp(refused, name) == 0) ||
        asprintf(&entry, "%s=%s", name, value) < 0) {
        errno = ENOMEM;
        return -1;
    }
    return putenv(entry);
}

void *reallocarray(void *memory, size_t count, size_t size)
{
    const char *refused = getenv("MORTISE_REFUSE_ROOM");
    size_t length;

    if ((refused == NULL || size < strtoul(refused, NULL, 10)) &&
        !__builtin_mul_overflow(count, size, &length))
        return realloc(memory, length);
    errno = ENOMEM;
    return NULL;
}

FILE *open_memstream(char **text, size_t *length)
{
    static long made;
    const char *permitted = getenv("MORTISE_REFUSE_STREAM");
    FILE *(*real)(char **, size_t *);

    *(void **)&real = dlsym(RTLD_NEXT, "open_memstream");
    if (permitted == NULL || made++ < strtol(permitted, NULL, 10))
        return real(text, length);
    errno = ENOMEM;
    return NULL;
}
