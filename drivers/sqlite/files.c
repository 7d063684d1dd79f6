/* files.c - whether the files that SQLite has open are still in their places. Opens none of them: driver.h says why.
 *
 * SQLite locks in the log's index (`-shm`), and finds in it what was committed: all processes map that file. If the index is
 * removed, the next process that opens the database makes another one. Then the users of the two see neither the locks nor the
 * commits of each other. SQLite removes log and index only under an exclusive lock on the database, and each open connection
 * has a shared one. So if a file is not in its place, somebody else has removed it.
 *
 * As long as nobody has made another index, nothing is lost: all processes that have the database open have the old one.
 * protocol.md says how they leave it for another one.
 *
 * SQLite keeps one index for a process and database, however many connections there are, and opens no other index as long as
 * one of the connections is left. So a connection may have another index than the one that was in its place when it was
 * opened. */
#include "driver.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

const char *files_path(const struct driver *driver, int which, char *path, size_t size)
{
    static const char *const suffixes[FILES] = {"", "-wal", "-shm"};
    snprintf(path, size, "%s%s", driver->path, suffixes[which]);
    return path;
}

static struct file read_file(int fd, const char *path, int flags)
{
    struct statx about;
    struct file file = {.inode = 0};
    if (statx(fd, path, flags, STATX_INO | STATX_BTIME, &about) != 0)
        return file;
    file.device = makedev(about.stx_dev_major, about.stx_dev_minor);
    file.inode = about.stx_ino;
    if ((about.stx_mask & STATX_BTIME) != 0)
        file.born = about.stx_btime;
    return file;
}

static struct file read_place(const struct driver *driver, int which)
{
    char path[PATH_MAX + 8];
    return read_file(AT_FDCWD, files_path(driver, which, path, sizeof(path)), AT_SYMLINK_NOFOLLOW);
}

void files_read(const struct driver *driver, struct file *files)
{
    for (int i = 0; i < FILES; i++)
        files[i] = read_place(driver, i);
}

static bool is_born_known(const struct file *file)
{
    return file->born.tv_sec != 0 || file->born.tv_nsec != 0;
}

/* Some file systems (FUSE) report a file's birth at one look, and not at the next. */
static bool same(const struct file *one, const struct file *other)
{
    bool births = is_born_known(one) && is_born_known(other);
    return one->device == other->device && one->inode == other->inode &&
           (!births ||
            (one->born.tv_sec == other->born.tv_sec && one->born.tv_nsec == other->born.tv_nsec));
}

static bool is_other(const struct file *opened, const struct file *now)
{
    return now->inode != 0 && !same(opened, now);
}

/* Also returns true if the descriptors of the process cannot be listed. */
static bool is_open(const struct file *file)
{
    bool open = false;
    const struct dirent *entry;
    DIR *folder = opendir("/proc/thread-self/fd");
    if (folder == NULL)
        return true;
    while (!open && (entry = readdir(folder)) != NULL) {
        int fd = (int)strtol(entry->d_name, NULL, 10);
        /* Do not wait for a file on a server that does not answer. */
        struct file opened = read_file(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC);
        open = same(&opened, file);
    }
    closedir(folder);
    return open;
}

bool files_index_is_open(const struct file *files)
{
    /* If there is no index, there is no other one that could be in use instead. */
    return files[FILE_INDEX].inode == 0 || is_open(&files[FILE_INDEX]);
}

/* Another thread may be closing both, so this looks for the index once more. */
bool files_index_is_of_other(const struct file *files)
{
    return files[FILE_INDEX].inode != 0 && is_open(&files[FILE_INDEX]) &&
           !is_open(&files[FILE_DATABASE]) && is_open(&files[FILE_INDEX]);
}

bool files_is_other(const struct file *opened, const struct file *now, int which)
{
    return is_other(&opened[which], &now[which]);
}

bool files_index_is_other(const struct driver *driver)
{
    struct file now = read_place(driver, FILE_INDEX);
    return is_other(&driver->files[FILE_INDEX], &now);
}

bool files_are_in_place(const struct driver *driver)
{
    struct file now[FILES];
    files_read(driver, now);
    return same(&driver->files[FILE_DATABASE], &now[FILE_DATABASE]) &&
           same(&driver->files[FILE_LOG], &now[FILE_LOG]) &&
           !is_other(&driver->files[FILE_INDEX], &now[FILE_INDEX]);
}

/* Programs that delete old files in /tmp go by the files' times. On a tmpfs, writing through a mapping does not change
 * them, and the database is written only now and then. */
void files_touch(const struct driver *driver)
{
    char path[PATH_MAX + 8];
    for (int i = 0; i < FILES; i++)
        utimensat(AT_FDCWD, files_path(driver, i, path, sizeof(path)), NULL, AT_SYMLINK_NOFOLLOW);
}
