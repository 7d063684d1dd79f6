/* filesystem.c - whether a folder is on a disk of this host.
 *
 * SQLite's log needs memory and locks that all users of the file share. Over a network they do not share them, and
 * two hosts would both acquire the lock. So the driver refuses file systems that are known to be on a network, and
 * FUSE except for a few local kinds. Knows no database. */
#include "../lib/ping.h"
#include "driver.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

#define FUSE_MAGIC 0x65735546u
#define TMPFS_MAGIC 0x01021994u
#define RAMFS_MAGIC 0x858458f6u

static const struct {
    uint32_t magic;
    const char *name;
} remote[] = {
    {0x6969, "NFS"},        {0x517b, "SMB"},        {0xfe534d42, "SMB"},
    {0xff534d42, "CIFS"},   {0x01021997, "9P"},     {0x5346414f, "AFS"},
    {0x6b414653, "AFS"},    {0x73757245, "Coda"},   {0x00c36400, "Ceph"},
    {0x0bd00bd0, "Lustre"}, {0x47504653, "GPFS"},   {0x7461636f, "OCFS2"},
    {0x01161970, "GFS2"},   {0x564c, "NCP"},        {0x61636673, "ACFS"},
    {0x19830326, "BeeGFS"}, {0xaad7aaea, "PanFS"},  {0x20030528, "OrangeFS"},
    {0x786f4256, "vboxsf"}, {0x7c7c6673, "prl_fs"}, {0xbacbacbc, "VMware's shared folders"},
};

/* FUSE file systems whose data is on a disk of this host. */
static const char *const local_fuse[] = {"fuseblk", "fuse.fuse-overlayfs", "fuse-overlayfs",
                                         "fuse.gocryptfs", "fuse.encfs"};

static long mount_of(int fd)
{
    char path[64], line[256];
    long id = -1;
    snprintf(path, sizeof(path), "/proc/thread-self/fdinfo/%d", fd);
    FILE *file = fopen(path, "re");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL)
        if (strncmp(line, "mnt_id:", 7) == 0)
            id = strtol(line + 7, NULL, 10);
    if (file != NULL)
        fclose(file);
    return id;
}

/* The type of a mount, as in "36 35 98:0 / /mnt rw - fuse.sshfs …"; false: not found. */
static bool type_of_mount(long id, char *type, size_t size)
{
    char *line = NULL;
    size_t capacity = 0;
    bool found = false;
    FILE *file = fopen("/proc/thread-self/mountinfo", "re");
    while (file != NULL && !found && getline(&line, &capacity, file) > 0) {
        const char *dash = strstr(line, " - ");
        if (strtol(line, NULL, 10) != id || dash == NULL)
            continue;
        snprintf(type, size, "%.*s", (int)strcspn(dash + 3, " \n"), dash + 3);
        found = true;
    }
    free(line);
    if (file != NULL)
        fclose(file);
    return found;
}

/* The kind of FUSE file system if it may be on a network, or NULL. */
static const char *foreign_fuse(int fd, char *type, size_t size)
{
    if (!type_of_mount(mount_of(fd), type, size))
        return "FUSE, of a kind that could not be found out";
    for (size_t i = 0; i < sizeof(local_fuse) / sizeof(local_fuse[0]); i++)
        if (strcmp(type, local_fuse[i]) == 0)
            return NULL;
    return type;
}

static const char *foreign(int fd, uint32_t magic, char *type, size_t size)
{
    for (size_t i = 0; i < sizeof(remote) / sizeof(remote[0]); i++)
        if (remote[i].magic == magic)
            return remote[i].name;
    return magic == FUSE_MAGIC ? foreign_fuse(fd, type, size) : NULL;
}

void filesystem_findings(const struct driver *driver, const mortise_op *op)
{
    char type[64], folder[PATH_MAX];
    struct statfs about;
    snprintf(folder, sizeof(folder), "%s", driver->path);
    *strrchr(folder, '/') = '\0';
    int fd = open(folder[0] != '\0' ? folder : "/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0 && fstatfs(fd, &about) == 0) {
        const char *kind = foreign(fd, (uint32_t)about.f_type, type, sizeof(type));
        if (kind != NULL)
            ping_add(op,
                     " | risk: the file is on a file system that other hosts may share (%s): two "
                     "hosts that use it can both hold a lock; choose a path on a local disk",
                     kind);
        else if ((uint32_t)about.f_type == TMPFS_MAGIC || (uint32_t)about.f_type == RAMFS_MAGIC)
            ping_add(
                op,
                " | note: the file is in memory (tmpfs): a restart of the host removes it, records "
                "too, and tokens then grow only if the wall clock was not set back; choose a path "
                "on a disk");
    }
    if (fd >= 0)
        close(fd);
    if (clock_boot_is_own())
        ping_add(
            op,
            " | note: this process sees a boot id of its own (a container): a process with another "
            "boot id cannot open the file while this one has it open; bind-mount the host's "
            "/proc/sys/kernel/random/boot_id into the container");
}

mortise_status filesystem_check(const char *folder, mortise_error *error)
{
    char type[64];
    struct statfs about;
    int fd = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || fstatfs(fd, &about) != 0) {
        int code = errno;
        if (fd >= 0)
            close(fd);
        return fault_error(error, MORTISE_CONFIG, code, false,
                           "the directory %s cannot be opened: %s", folder, strerror(code));
    }
    const char *kind = foreign(fd, (uint32_t)about.f_type, type, sizeof(type));
    close(fd);
    if (kind == NULL)
        return MORTISE_OK;
    return fault_error(
        error, MORTISE_CONFIG, 0, false,
        "the directory %s is not on a local disk (%s), where locks and shared memory do "
        "not reach other hosts; choose another path, or set filesystem = any if no "
        "other host uses it",
        folder, kind);
}
