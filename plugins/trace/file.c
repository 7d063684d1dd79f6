/* file.c - where the lines go. A file is named by an absolute path and is opened again when the path leads to
 * another file, so that it can be rotated by renaming it. Of a descriptor of the application we make one of
 * our own, so that we can write without waiting and do not change its flags for others. */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define FLAGS (O_WRONLY | O_APPEND | O_NONBLOCK | O_NOCTTY | O_CLOEXEC)

static bool take(struct file *file, int fd)
{
    struct own_fd own;
    struct stat status;
    bool taken = own_fd_take(&own, fd) && fstat(own.fd, &status) == 0;
    /* mortise_open() puts a descriptor without a type of file in the place of a closed stderr */
    if (taken && (status.st_mode & S_IFMT) == 0) {
        errno = EBADF;
        taken = false;
    }
    if (!taken) {
        own_fd_close(&own);
        return false;
    }
    file->own = own;
    file->regular = S_ISREG(status.st_mode);
    file->socket = S_ISSOCK(status.st_mode);
    return true;
}

/* Opens the same file again, with an open file description of its own, if that is possible. */
static int reopened(int fd)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    int own = open(path, FLAGS);
    if (own < 0)
        own = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    return own;
}

mortise_status file_open(struct file *file, const char *path, int fd, mortise_error *error)
{
    *file = (struct file){.path = path != NULL ? strdup(path) : NULL, .own = OWN_FD_NONE};
    if (path != NULL && file->path == NULL)
        return error->status = MORTISE_NOMEM;
    if (take(file, path != NULL ? path_open(path, FLAGS | O_CREAT) : reopened(fd)))
        return MORTISE_OK;
    error->native = errno;
    if (path != NULL)
        snprintf(error->message, sizeof(error->message), "the trace cannot be written to %s: %s",
                 path, path_why(error->native));
    else
        snprintf(error->message, sizeof(error->message),
                 "the trace cannot be written to descriptor %d: %s", fd, strerror(errno));
    return error->status = MORTISE_CONFIG;
}

bool file_follow(struct file *file)
{
    struct stat status;
    if (file->path == NULL)
        return false;
    bool there = own_fd_is_there(&file->own);
    struct own_fd before = file->own;
    bool same = stat(file->path, &status) == 0 && status.st_dev == before.device &&
                status.st_ino == before.inode;
    bool opened = !(there && same) && take(file, path_open(file->path, FLAGS | O_CREAT));
    file->astray = (there && same) || opened ? 0 : errno;
    if (!opened)
        return false;
    own_fd_close(&before);
    return !own_fd_is_same_file(&before, &file->own);
}

/* Into a pipe, writes at most as much as goes in whole or not at all: as many whole lines as fit, or one. */
static size_t whole_lines(const char *bytes, size_t size)
{
    const char *end = memrchr(bytes, '\n', size < PIPE_BUF ? size : PIPE_BUF);
    if (end == NULL)
        end = memchr(bytes, '\n', size);
    return end == NULL ? size : (size_t)(end - bytes) + 1;
}

ssize_t file_write(struct file *file, const char *bytes, size_t size)
{
    if (!own_fd_is_there(&file->own)) {
        errno = file->astray != 0 ? file->astray : EBADF;
        return -1;
    }
    if (file->regular)
        return write(file->own.fd, bytes, size);
    size = whole_lines(bytes, size);
    if (file->socket)
        return send(file->own.fd, bytes, size, MSG_DONTWAIT | MSG_NOSIGNAL);
    struct pollfd ready = {.fd = file->own.fd, .events = POLLOUT};
    if (poll(&ready, 1, 0) == 0) { /* the descriptor may not be O_NONBLOCK */
        errno = EAGAIN;
        return -1;
    }
    return write(file->own.fd, bytes, size);
}

void file_wait(const struct file *file, int timeout_ms)
{
    struct pollfd ready = {.fd = file->own.fd, .events = POLLOUT};
    poll(&ready, 1, timeout_ms);
}

void file_close(struct file *file)
{
    own_fd_close(&file->own);
    free(file->path);
    file->path = NULL;
}
