/* place.c - a file of this client's own in a folder that other clients, programs and the node exporter share. A client
 * owns a slot by a lock on a file beside it, which the kernel drops when the owner ends. text.c makes the contents. */
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

/* FNV-1a, including the NUL at the end of the text. */
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

/* Opens only a regular file: another user may have put a FIFO or a link there to make us hang. */
static bool open_file(struct own_fd *file, const char *path, int flags)
{
    struct stat status;
    if (!own_fd_take(file, open(path, flags | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0644)))
        return false;
    if (fstat(file->fd, &status) == 0 && S_ISREG(status.st_mode))
        return true;
    own_fd_close(file);
    errno = EINVAL;
    return false;
}

static bool exists(const char *path)
{
    struct stat status;
    return lstat(path, &status) == 0;
}

/* False: another client has the slot, or it cannot be opened (errno). */
static bool try_slot(struct place *place, int slot)
{
    char path[PATH_SIZE];
    path_of(place, ".", slot, ".lock", path);
    bool opened = open_file(&place->lock, path, O_RDWR | O_CREAT);
    if (opened && flock(place->lock.fd, LOCK_EX | LOCK_NB) == 0) {
        place->slot = place->last = slot;
        return true;
    }
    int cause = errno;
    if (!opened && cause == EACCES && exists(path))
        cause = EWOULDBLOCK; /* another user has it */
    own_fd_close(&place->lock);
    errno = cause;
    return false;
}

bool place_take(struct place *place)
{
    if (faccessat(AT_FDCWD, place->folder, W_OK | X_OK, AT_EACCESS) != 0)
        return false;
    if (place->last >= 0 && try_slot(place, place->last))
        return true;
    for (int slot = 0; slot < place->slots; slot++) {
        if (try_slot(place, slot))
            return true;
        if (errno != EWOULDBLOCK)
            return false;
    }
    errno = EAGAIN;
    return false;
}

bool place_is_held(struct place *place)
{
    if (place->slot >= 0 && !own_fd_is_there(&place->lock))
        place->slot = -1;
    return place->slot >= 0;
}

char *place_read(const struct place *place)
{
    char path[PATH_SIZE];
    struct own_fd file;
    path_of(place, "", place->slot, ".prom", path);
    bool opened = open_file(&file, path, O_RDONLY);
    char *text = opened ? malloc(TEXT_SIZE + 1) : NULL;
    size_t used = 0;
    ssize_t n;
    while (text != NULL && used < TEXT_SIZE && own_fd_is_there(&file) &&
           (n = read(file.fd, text + used, TEXT_SIZE - used)) != 0)
        if (n > 0)
            used += (size_t)n;
        else if (errno != EINTR)
            break;
    if (text != NULL)
        text[used] = '\0';
    own_fd_close(&file);
    return text;
}

static bool write_all(struct own_fd *file, const char *bytes, size_t size)
{
    while (size > 0) {
        ssize_t n = own_fd_is_there(file) ? write(file->fd, bytes, size) : -1;
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
    unlink(fresh); /* left by a former owner that was killed */
    struct own_fd file;
    if (!open_file(&file, fresh, O_WRONLY | O_CREAT | O_EXCL))
        return false;
    /* the exporter runs as another user and must be able to read the file, whatever the program's umask */
    bool done = fchmod(file.fd, 0644) == 0 && write_all(&file, text->bytes, text->used);
    int cause = errno;
    own_fd_close(&file);
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
    if (!place_is_held(place))
        return;
    flock(place->lock.fd, LOCK_UN); /* a child may have the descriptor too */
    own_fd_close(&place->lock);
    place->slot = -1;
}
