/* files.c - whether the files that SQLite has open are still in their places. Opens none of them: driver.h says why.
 *
 * SQLite locks in the log's index (`-shm`), and finds in it what was committed: all processes map that file. If it is removed,
 * the next process that opens the database makes another one, and those on the two sides see neither the locks nor the commits
 * of each other; so it is with the log (`-wal`). SQLite removes them only under an exclusive lock on the database, and each open
 * connection has a shared one. So somebody else has removed what is not in its place.
 *
 * SQLite keeps one index for a process and database, however many connections there are, and opens no other one as long as
 * one of them is left. So a connection may have another index than the one that was in its place when it was opened. */
#include "driver.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

const char *files_path(const struct driver *driver, int which, char *path, size_t size)
{
    static const char *const suffixes[FILES] = {"", "-wal", "-shm"};
    snprintf(path, size, "%s%s", driver->path, suffixes[which]);
    return path;
}

void files_read(const struct driver *driver, struct file *files)
{
    char path[PATH_MAX + 8];
    struct stat about;
    for (int i = 0; i < FILES; i++) {
        files[i] = (struct file){.inode = 0};
        if (lstat(files_path(driver, i, path, sizeof(path)), &about) == 0)
            files[i] = (struct file){.device = about.st_dev, .inode = about.st_ino};
    }
}

static bool same(const struct file *one, const struct file *other)
{
    return one->device == other->device && one->inode == other->inode;
}

/* If the list of descriptors cannot be had, they are taken for open. */
bool files_are_open(const struct file *files)
{
    bool open[FILES] = {false};
    struct stat about;
    const struct dirent *entry;
    DIR *folder = opendir("/proc/thread-self/fd");
    if (folder == NULL)
        return true;
    while ((entry = readdir(folder)) != NULL) {
        if (fstat((int)strtol(entry->d_name, NULL, 10), &about) != 0)
            continue;
        struct file file = {.device = about.st_dev, .inode = about.st_ino};
        for (int i = 0; i < FILES; i++)
            open[i] = open[i] || same(&file, &files[i]);
    }
    closedir(folder);
    return open[FILE_LOG] && open[FILE_INDEX];
}

int files_moved(const struct file *opened, const struct file *now)
{
    int i = 0;
    while (i < FILES && same(&opened[i], &now[i]))
        i++;
    return i;
}

/* If the log is gone, and nobody has made another, what it had is known to those only who have it open. */
bool files_are_others(const struct file *opened, const struct file *now)
{
    const struct file *index = &now[FILE_INDEX];
    if (now[FILE_LOG].inode == 0)
        return index->inode != 0 && !same(&opened[FILE_INDEX], index);
    return files_moved(opened, now) != FILES;
}

/* Programs that delete what is old in /tmp go by the times of the files. Writing through a mapping changes none on a tmpfs,
 * and the database is written only now and then. */
void files_touch(const struct driver *driver)
{
    char path[PATH_MAX + 8];
    for (int i = 0; i < FILES; i++)
        utimensat(AT_FDCWD, files_path(driver, i, path, sizeof(path)), NULL, AT_SYMLINK_NOFOLLOW);
}
