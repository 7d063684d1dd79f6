/* place.c - a file of one's own in a folder that other clients, programs and the node exporter share. A slot is owned by
 * a lock on a file beside it, which the kernel drops when its owner ends; what is in the files is text.c's. */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define PATH_SIZE 800

/* FNV-1a, the end of the text too. */
static uint32_t hash_of(uint32_t hash, const char *text)
{
    do
        hash = (hash ^ (unsigned char)*text) * 16777619u;
    while (*text++ != '\0');
    return hash;
}

void place_name(struct place *place, const char *program, const char *driver, const char *names)
{
    snprintf(place->stem, sizeof(place->stem), "mortise-%s-%08" PRIx32, program,
             hash_of(hash_of(2166136261u, driver), names));
}

static void path_of(const struct place *place, const char *prefix, int slot, const char *suffix,
                    char *path)
{
    snprintf(path, PATH_SIZE, "%s/%s%s-%d%s", place->folder, prefix, place->stem, slot, suffix);
}

/* A file and nothing else: a FIFO, or a link, may have been put there by somebody who wants us to hang. */
static int open_file(const char *path, int flags)
{
    struct stat status;
    int fd = open(path, flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0644);
    if (fd < 0 || (fstat(fd, &status) == 0 && S_ISREG(status.st_mode)))
        return fd;
    close(fd);
    errno = EINVAL;
    return -1;
}

static bool exists(const char *path)
{
    struct stat status;
    return lstat(path, &status) == 0;
}

/* -1: it is another's, or cannot be had (errno). */
static int try_slot(const struct place *place, int slot)
{
    char path[PATH_SIZE];
    path_of(place, ".", slot, ".lock", path);
    int fd = open_file(path, O_RDWR | O_CREAT);
    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0)
        return fd;
    int cause = errno;
    if (fd < 0 && cause == EACCES && exists(path))
        cause = EWOULDBLOCK; /* another user's */
    if (fd >= 0)
        close(fd);
    errno = cause;
    return -1;
}

bool place_take(struct place *place)
{
    if (faccessat(AT_FDCWD, place->folder, W_OK | X_OK, AT_EACCESS) != 0)
        return false;
    for (int slot = 0; slot < place->slots; slot++) {
        place->lock = try_slot(place, slot);
        if (place->lock >= 0) {
            place->slot = slot;
            return true;
        }
        if (errno != EWOULDBLOCK)
            return false;
    }
    errno = EAGAIN;
    return false;
}

char *place_read(const struct place *place)
{
    char path[PATH_SIZE];
    path_of(place, "", place->slot, ".prom", path);
    int fd = open_file(path, O_RDONLY);
    char *text = fd >= 0 ? malloc(TEXT_SIZE + 1) : NULL;
    size_t used = 0;
    ssize_t n;
    while (text != NULL && used < TEXT_SIZE && (n = read(fd, text + used, TEXT_SIZE - used)) != 0)
        if (n > 0)
            used += (size_t)n;
        else if (errno != EINTR)
            break;
    if (text != NULL)
        text[used] = '\0';
    if (fd >= 0)
        close(fd);
    return text;
}

static bool write_all(int fd, const char *bytes, size_t size)
{
    while (size > 0) {
        ssize_t n = write(fd, bytes, size);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return false;
        bytes += n;
        size -= (size_t)n;
    }
    return true;
}

bool place_write(const struct place *place, const struct text *text)
{
    char path[PATH_SIZE], fresh[PATH_SIZE];
    path_of(place, ".", place->slot, ".new", fresh);
    path_of(place, "", place->slot, ".prom", path);
    unlink(fresh); /* of a former owner, who was killed */
    int fd = open_file(fresh, O_WRONLY | O_CREAT | O_EXCL);
    if (fd < 0)
        return false;
    /* the exporter is another user, whatever the program's umask */
    bool done = fchmod(fd, 0644) == 0 && write_all(fd, text->bytes, text->used);
    int cause = errno;
    close(fd);
    if (done && rename(fresh, path) == 0)
        return true;
    if (done)
        cause = errno;
    unlink(fresh);
    errno = cause;
    return false;
}

void place_leave(struct place *place)
{
    if (place->slot < 0)
        return;
    flock(place->lock, LOCK_UN); /* a child may have the descriptor too */
    close(place->lock);
    place->slot = -1;
}
