/* folder.c - the folder of a run. The program makes it before the run and removes it afterwards, so a run that crashes leaves
 * none. If the program itself was killed, the next one removes what it left.
 *
 * A folder is in use as long as somebody has a lock on it: the program has it, and the process of the run inherits it. */
#include "folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define PREFIX "mortise-replay."

static const char *parent(void)
{
    return access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
}

static int remove_one(const char *path, const struct stat *status, int type, struct FTW *where)
{
    (void)status;
    (void)type;
    (void)where;
    return remove(path);
}

static void remove_all(const char *path)
{
    nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* The descriptor that has the lock; -1: another process has it, or the folder is gone. */
static int lock_folder(const char *path)
{
    struct stat ours, there;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return -1;
    if (flock(fd, LOCK_EX | LOCK_NB) == 0 && fstat(fd, &ours) == 0 && lstat(path, &there) == 0 &&
        ours.st_ino == there.st_ino && ours.st_uid == getuid())
        return fd;
    close(fd);
    return -1;
}

int folder_make(char *path, size_t size)
{
    for (int tries = 0; tries < 100; tries++) {
        snprintf(path, size, "%s/" PREFIX "XXXXXX", parent());
        if (!mkdtemp(path))
            break;
        int lock = lock_folder(path);
        if (lock >= 0)
            return lock;
        /* another program took it for one that was left */
    }
    perror("replay: the folder of a run");
    abort();
}

void folder_remove(const char *path, int lock)
{
    remove_all(path);
    close(lock);
}

void folder_remove_left(void)
{
    char path[512];
    DIR *folder = opendir(parent());
    for (const struct dirent *entry; folder && (entry = readdir(folder));) {
        if (strncmp(entry->d_name, PREFIX, strlen(PREFIX)) != 0)
            continue;
        snprintf(path, sizeof path, "%s/%s", parent(), entry->d_name);
        int lock = lock_folder(path);
        if (lock >= 0)
            folder_remove(path, lock);
    }
    if (folder)
        closedir(folder);
}
