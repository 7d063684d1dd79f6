/* own_fd.h - a descriptor that may not be ours any more: a daemon closes all descriptors, and later has others under the
 * same numbers. own_fd_is() checks that before each use. A descriptor that is not ours is forgotten and never closed. */
#ifndef MORTISE_CORE_WITNESS_OWN_FD_H
#define MORTISE_CORE_WITNESS_OWN_FD_H

#include <stdbool.h>
#include <sys/stat.h>
#include <unistd.h>

struct own_fd {
    int fd; /* -1: none */
    dev_t dev;
    ino_t ino;
};

/* fd: a socket or a memfd, which has an inode of its own. */
static inline struct own_fd own_fd_of(int fd)
{
    struct stat about;
    if (fd < 0 || fstat(fd, &about) != 0)
        return (struct own_fd){.fd = -1};
    return (struct own_fd){.fd = fd, .dev = about.st_dev, .ino = about.st_ino};
}

static inline bool own_fd_is(const struct own_fd *own)
{
    struct stat about;
    return own->fd >= 0 && fstat(own->fd, &about) == 0 && about.st_dev == own->dev &&
           about.st_ino == own->ino;
}

static inline void own_fd_close(struct own_fd *own)
{
    if (own_fd_is(own))
        close(own->fd);
    own->fd = -1;
}

#endif
