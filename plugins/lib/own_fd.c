/* own_fd.c - gives a descriptor a high number, and checks later that it still is the same file: see own_fd.h. */
#include "own_fd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

/* All numbers are below FD_SETSIZE, as in the core. A new descriptor should not get a number that another client's descriptor of
 * the same file had before, so each request begins at the next number. That is not certain: the core and each module count
 * separately, some numbers are in use, and after a while they begin again. */
enum { HIGH = 500, TURNS = 400, LOW = 3 };

/* Moves the descriptor as high as the limit permits. If possible, it does not stay at the number of stdin, stdout or stderr, to
 * which other code writes. */
static int move_up(int fd)
{
    static atomic_uint next;
    int high = fcntl(fd, F_DUPFD_CLOEXEC, HIGH + (int)(atomic_fetch_add(&next, 1) % TURNS));
    if (high < 0)
        high = fcntl(fd, F_DUPFD_CLOEXEC, HIGH);
    if (high < 0)
        high = fcntl(fd, F_DUPFD_CLOEXEC, LOW);
    if (high < 0)
        return fd;
    close(fd);
    return high;
}

/* Used if statx is missing (before Linux 4.11; glibc reports EINVAL), or a sandbox refuses it. */
static int look_by_fstat(int fd, struct own_fd *found)
{
    struct stat about;
    if (fstat(fd, &about) != 0)
        return -1;
    *found = (struct own_fd){.fd = fd, .device = about.st_dev, .inode = about.st_ino};
    return 0;
}

/* Looks at the file, without asking the server of a network file system, which may hang. */
static int look(int fd, struct own_fd *found)
{
    struct statx about;
    if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_INO, &about) != 0)
        return errno == ENOSYS || errno == EINVAL || errno == EPERM ? look_by_fstat(fd, found) : -1;
    *found = (struct own_fd){.fd = fd,
                             .device = makedev(about.stx_dev_major, about.stx_dev_minor),
                             .inode = (ino_t)about.stx_ino};
    return 0;
}

bool own_fd_take(struct own_fd *own, int fd)
{
    *own = OWN_FD_NONE;
    if (fd < 0)
        return false;
    fd = move_up(fd);
    if (look(fd, own) == 0)
        return true;
    int cause = errno;
    if (cause != EBADF)
        close(fd);
    errno = cause;
    return false;
}

bool own_fd_is_there(struct own_fd *own)
{
    struct own_fd found;
    bool there = own->fd >= 0;
    if (there)
        there = look(own->fd, &found) == 0 ? own_fd_is_same_file(own, &found) : errno != EBADF;
    if (there)
        return true;
    own->fd = -1;
    errno = EBADF;
    return false;
}

void own_fd_close(struct own_fd *own)
{
    int cause = errno;
    if (own_fd_is_there(own))
        close(own->fd);
    own->fd = -1;
    errno = cause;
}

bool own_fd_is_same_file(const struct own_fd *one, const struct own_fd *other)
{
    return one->device == other->device && one->inode == other->inode;
}
