/* path.c - opens a file by its name, but not a file that another user has put there. A user who owns the folder, or may write it,
 * could otherwise make root write into any file, by a symbolic link or another name (hard link) of that file. */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#define LINKS_MAX 40 /* the kernel's own limit */

/* The owner of "/" is trusted too, because that user can replace everything. In a user namespace root may have another number. */
static bool is_trusted(uid_t owner)
{
    struct stat root;
    return owner == 0 || owner == geteuid() || (stat("/", &root) == 0 && owner == root.st_uid);
}

/* Checks an opened file. A pipe, a terminal or /dev/null may belong to another user. */
static int checked(int fd)
{
    struct stat status;
    if (fstat(fd, &status) == 0 &&
        (!S_ISREG(status.st_mode) || (is_trusted(status.st_uid) && status.st_nlink <= 1)))
        return fd;
    close(fd);
    errno = EPERM;
    return -1;
}

/* Replaces the name of the link in `path` by its target. */
static bool put_target(int link, char path[PATH_MAX])
{
    char target[PATH_MAX];
    ssize_t length = readlinkat(link, "", target, sizeof(target) - 1);
    if (length < 0)
        return false;
    target[length] = '\0';
    size_t folder = target[0] == '/' ? 0 : (size_t)(strrchr(path, '/') + 1 - path);
    if ((size_t)snprintf(path + folder, PATH_MAX - folder, "%s", target) < PATH_MAX - folder)
        return true;
    errno = ENAMETOOLONG;
    return false;
}

/* The link is in /proc: a descriptor of a process, which only the kernel can follow. */
static bool is_in_proc(int link)
{
    struct statfs about;
    return fstatfs(link, &about) == 0 && about.f_type == PROC_SUPER_MAGIC;
}

enum { AGAIN = -2 };

/* Opens what the link leads to; AGAIN: it leads to another name, which is in `path` now. */
static int follow(int link, char path[PATH_MAX], int flags)
{
    struct stat status;
    if (fstat(link, &status) != 0)
        return -1;
    if (!S_ISLNK(status.st_mode))
        return AGAIN; /* it was replaced just now */
    if (!is_trusted(status.st_uid)) {
        errno = EPERM;
        return -1;
    }
    if (is_in_proc(link))
        return open(path, flags, 0640); /* the program was given this descriptor, as with `fd` */
    return put_target(link, path) ? AGAIN : -1;
}

int path_open(const char *name, int flags)
{
    char path[PATH_MAX];
    if ((size_t)snprintf(path, sizeof(path), "%s", name) >= sizeof(path)) {
        errno = ENAMETOOLONG;
        return -1;
    }
    for (int links = 0; links <= LINKS_MAX; links++) {
        int fd = open(path, flags | O_NOFOLLOW, 0640);
        if (fd >= 0)
            return checked(fd);
        int link = errno == ELOOP ? open(path, O_PATH | O_NOFOLLOW | O_CLOEXEC) : -1;
        if (link < 0)
            return -1;
        fd = follow(link, path, flags);
        int cause = errno;
        close(link);
        errno = cause;
        if (fd != AGAIN)
            return fd;
    }
    errno = ELOOP;
    return -1;
}

const char *path_why(int cause)
{
    return cause == EPERM ? "not permitted, or a file or symbolic link of another user, or a file "
                            "with several hard links"
                          : strerror(cause);
}
