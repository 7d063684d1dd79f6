/* disk.c - a disk that is full, and one that forgets what was not forced to it. It is loaded into a server
 * (LD_PRELOAD), in place of a file system of its own, which would need root.
 *
 *   $MORTISE_DISK_FULL     while a file of this name exists, regular files cannot grow: ENOSPC. Output and log
 *                          (descriptors 1 and 2) can
 *   $MORTISE_DISK_FORCED   "yes": for files that end in ".aof", FILE.forced holds the length that the file had when it
 *                          was last forced to the disk, as eight bytes. To simulate a power cut, kill the server and
 *                          truncate the file to that length
 *
 * It assumes that files are only appended to: data that a program overwrites in place is not forgotten. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

/* ---- full ------------------------------------------------------------------------------------------------- */

static bool is_full(void)
{
    const char *path = getenv("MORTISE_DISK_FULL");
    return path && access(path, F_OK) == 0;
}

/* Whether a write of so many bytes would make the file longer. at -1: where the descriptor stands. */
static bool would_grow(int fd, off_t at, size_t size)
{
    struct stat file;
    if (fd <= 2 || fstat(fd, &file) != 0 || !S_ISREG(file.st_mode))
        return false;
    if (fcntl(fd, F_GETFL) & O_APPEND)
        return size > 0;
    if (at < 0)
        at = lseek(fd, 0, SEEK_CUR);
    return at >= 0 && at + (off_t)size > file.st_size;
}

/* Sets errno. */
static bool refuse(int fd, off_t at, size_t size)
{
    int before = errno;
    bool refused = is_full() && would_grow(fd, at, size);
    errno = refused ? ENOSPC : before;
    return refused;
}

static size_t size_of(const struct iovec *parts, int count)
{
    size_t size = 0;
    for (int i = 0; i < count; i++)
        size += parts[i].iov_len;
    return size;
}

ssize_t write(int fd, const void *bytes, size_t size)
{
    return refuse(fd, -1, size) ? -1 : syscall(SYS_write, fd, bytes, size);
}

ssize_t writev(int fd, const struct iovec *parts, int count)
{
    return refuse(fd, -1, size_of(parts, count)) ? -1 : syscall(SYS_writev, fd, parts, count);
}

ssize_t pwrite64(int fd, const void *bytes, size_t size, off64_t at)
{
    return refuse(fd, at, size) ? -1 : syscall(SYS_pwrite64, fd, bytes, size, at);
}

ssize_t pwrite(int fd, const void *bytes, size_t size, off_t at)
{
    return pwrite64(fd, bytes, size, at);
}

ssize_t pwritev64(int fd, const struct iovec *parts, int count, off64_t at)
{
    return refuse(fd, at, size_of(parts, count)) ? -1
                                                 : syscall(SYS_pwritev, fd, parts, count, at, 0);
}

ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t at)
{
    return pwritev64(fd, parts, count, at);
}

int posix_fallocate64(int fd, off64_t at, off64_t size)
{
    if (refuse(fd, at, (size_t)size))
        return ENOSPC;
    return syscall(SYS_fallocate, fd, 0, at, size) == 0 ? 0 : errno;
}

int posix_fallocate(int fd, off_t at, off_t size)
{
    return posix_fallocate64(fd, at, size);
}

/* ---- forced ----------------------------------------------------------------------------------------------- */

static void note_forced(int fd, off_t size)
{
    char link[64], path[PATH_MAX + 16];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, PATH_MAX);
    if (length < 4 || memcmp(path + length - 4, ".aof", 4) != 0)
        return;
    memcpy(path + length, ".forced", sizeof ".forced");
    int note = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    int64_t number = size;
    if (note < 0 || syscall(SYS_pwrite64, note, &number, sizeof number, 0) != sizeof number)
        abort(); /* it would be taken for lost */
    close(note);
}

/* What was there before it began is on the disk when it is done. */
static int force(long call, int fd)
{
    const char *wanted = getenv("MORTISE_DISK_FORCED");
    struct stat file;
    bool noted = wanted && *wanted && fstat(fd, &file) == 0 && S_ISREG(file.st_mode);
    int result = (int)syscall(call, fd);
    if (noted && result == 0)
        note_forced(fd, file.st_size);
    return result;
}

int fsync(int fd)
{
    return force(SYS_fsync, fd);
}

int fdatasync(int fd)
{
    return force(SYS_fdatasync, fd);
}
