/* test_sqlite_place.c - where the SQLite module keeps its file: what it refuses to open, and why; what it creates by
 * default, with which permissions, and while another client of the process opens the same file. Runs as "nobody" what
 * root would be permitted to do anyway. The C library's fstatfs() and fopen() are replaced, to make disks of the network. */
#include "sqlite_host.h"

#include <grp.h>
#include <sys/vfs.h>

#define NOBODY 65534
#define SHARED_FIRST 0x40000002 /* the bytes that SQLite locks for a shared lock */
#define SHARED_SIZE 510

static const char *path;

static void refused(mortise_status status, const char *words, const char *key, const char *text)
{
    struct client client;
    mortise_status got =
        key == NULL ? OPEN(&client, "path", path) : OPEN(&client, "path", path, key, text);
    CU_ASSERT_EQUAL(got, status);
    CU_ASSERT_EQUAL(client.error.status, status);
    bool said = strstr(client.error.message, words) != NULL;
    CU_ASSERT_TRUE(said);
    if (got != status || !said)
        fprintf(stderr, "\n    %d \"%s\", not \"%s\"\n", got, client.error.message, words);
    if (got == MORTISE_OK)
        client_close(&client);
}

static void test_no_database(void)
{
    path = database("junk");
    write_at(path, 0, 'x', 8192);
    refused(MORTISE_BACKEND, "junk.db: this is no SQLite database", NULL, NULL);
    path = database("foreign");
    CU_ASSERT_EQUAL(outside(path, "CREATE TABLE users(name)", NULL), 0);
    refused(MORTISE_CONFIG, "belongs to another program", NULL, NULL);
    path = database("newer");
    struct client client;
    OPEN_OK(&client, "path", path);
    client_close(&client);
    CU_ASSERT_EQUAL(outside(path, "UPDATE mortise_meta SET value = 7 WHERE key = 'layout'", NULL),
                    0);
    refused(MORTISE_CONFIG, "its layout is \"7\", this driver knows 1", NULL, NULL);
}

static void test_bad_settings(void)
{
    path = "relative.db";
    refused(MORTISE_CONFIG, "expected the absolute path", NULL, NULL);
    path = "/";
    refused(MORTISE_CONFIG, "expected the absolute path", NULL, NULL);
    path = "/no/such/folder/locks.db";
    refused(MORTISE_CONFIG, "cannot use the directory /no/such/folder", NULL, NULL);
    path = folder;
    refused(MORTISE_CONFIG, "is not a file", NULL, NULL);
    path = database("mode");
    refused(MORTISE_CONFIG, "mode is \"0800\"", "mode", "0800");
    refused(MORTISE_CONFIG, "expected permissions", "mode", "0400");
    refused(MORTISE_CONFIG, "expected permissions", "mode", "0777");
    CU_ASSERT_NOT_EQUAL(access(path, F_OK), 0);
}

/* ---- permissions ------------------------------------------------------------------------------- */

static unsigned mode_of(const char *file, const char *suffix)
{
    char text[PATHS_MAX];
    struct stat about = {.st_mode = 0};
    stat(joined(text, file, suffix), &about);
    return about.st_mode & 0777;
}

static void test_modes(void)
{
    struct client holder, client;
    struct call lock, other = call_make(MORTISE_OP_ACQUIRE, "a");
    char wake[PATHS_MAX], socket[PATHS_MAX];
    path = database("private");
    OPEN_OK(&client, "path", path);
    CU_ASSERT_EQUAL(mode_of(path, ""), 0600);
    CU_ASSERT_EQUAL(mode_of(path, "-wal"), 0600);
    CU_ASSERT_EQUAL(mode_of(path, "-wake"), 0700);
    client_close(&client);
    path = database("group");
    mode_t before = umask(077);
    OPEN_OK(&holder, "path", path, "mode", "0660", "synchronous", "full");
    OPEN_OK(&client, "path", path);
    acquire(&holder, &lock, "a", 0);
    CU_ASSERT_EQUAL(run(&client, &other), MORTISE_BUSY);
    umask(before);
    CU_ASSERT_EQUAL(mode_of(path, ""), 0660);
    CU_ASSERT_EQUAL(mode_of(path, "-wal"), 0660);
    CU_ASSERT_EQUAL(mode_of(path, "-wake"), 0770);
    joined(wake, path, "-wake");
    DIR *directory = opendir(wake);
    const struct dirent *entry;
    CU_ASSERT_PTR_NOT_NULL_FATAL(directory);
    while ((entry = readdir(directory)) != NULL)
        if (entry->d_name[0] != '.')
            CU_ASSERT_EQUAL(mode_of(wake, joined(socket, "/", entry->d_name)), 0660);
    closedir(directory);
    client_close(&client);
    client_close(&holder);
}

static void as_nobody(void *argument)
{
    struct client client;
    struct stat about;
    char text[PATHS_MAX];
    (void)argument;
    if (geteuid() == 0 && (setgroups(0, NULL) != 0 || setgid(NOBODY) != 0 || setuid(NOBODY) != 0))
        abort();
    joined(text, folder, "/home");
    setenv("XDG_STATE_HOME", text, 1);
    CU_ASSERT_EQUAL(OPEN(&client, "busy_timeout", "1s"), MORTISE_OK);
    client_close(&client);
    path = database("home/mortise/locks");
    joined(text, folder, "/home/mortise");
    CU_ASSERT_TRUE(stat(text, &about) == 0 && (about.st_mode & 0777) == 0700);
    CU_ASSERT_EQUAL(mode_of(path, ""), 0600);
    chmod(text, 0770); /* somebody else could replace the file */
    CU_ASSERT_EQUAL(OPEN(&client, "busy_timeout", "1s"), MORTISE_CONFIG);
    CU_ASSERT_PTR_NOT_NULL(strstr(client.error.message, "nobody else may write in it"));
    chmod(text, 0700);

    chmod(path, 0400);
    refused(MORTISE_CONFIG, "must be writable for uid", NULL, NULL);
    chmod(path, 0600);
    chmod(text, 0500);
    refused(MORTISE_CONFIG, "/home/mortise must be writable for uid", NULL, NULL);
    chmod(text, 0700);
    OPEN_OK(&client, "path", path);
    client_close(&client);
}

static void test_as_nobody(void)
{
    char home[PATHS_MAX];
    joined(home, folder, "/home");
    CU_ASSERT_EQUAL(mkdir(home, 0700), 0);
    chmod(folder, 0711);
    if (geteuid() == 0)
        CU_ASSERT_EQUAL(chown(home, NOBODY, NOBODY), 0);
    CU_ASSERT_EQUAL(child_end(child_start(as_nobody, NULL)), 0);
}

/* ---- two clients of one process, and no file yet ------------------------------------------------------ */

static const char *making; /* a client that makes this file is being opened */
static struct client early;
static bool renames_badly; /* the file system cannot rename without replacing */

static void open_early(void)
{
    const char *file = making;
    making = NULL;
    OPEN_OK(&early, "path", file);
}

static bool is_database(int fd)
{
    struct stat file, about;
    return stat(making, &file) == 0 && fstat(fd, &about) == 0 && file.st_dev == about.st_dev &&
           file.st_ino == about.st_ino;
}

/* In place of the C library's: another thread opens a client just before a descriptor of the new file is closed. */
__attribute__((visibility("default"))) int close(int fd)
{
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "close");
    if (making != NULL && is_database(fd))
        open_early();
    return real(fd);
}

__attribute__((visibility("default"))) int
renameat2(int from_folder, const char *from, int to_folder, const char *to, unsigned int flags)
{
    int (*real)(int, const char *, int, const char *, unsigned) =
        (int (*)(int, const char *, int, const char *, unsigned))dlsym(RTLD_NEXT, "renameat2");
    if (!renames_badly)
        return real(from_folder, from, to_folder, to, flags);
    errno = EINVAL;
    return -1;
}

/* In a child: what other processes see of its parent's locks. */
static void look_at_locks(void *argument)
{
    struct flock lock = {
        .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = SHARED_FIRST, .l_len = SHARED_SIZE};
    int fd = open(path, O_RDWR | O_CLOEXEC);
    (void)argument;
    CU_ASSERT(fd >= 0 && fcntl(fd, F_GETLK, &lock) == 0);
    CU_ASSERT_EQUAL(lock.l_type, F_RDLCK);
    CU_ASSERT_EQUAL(lock.l_pid, getppid());
}

/* Advisory locks belong to the process, and closing any descriptor of the file drops them: the client that makes the file
 * must not drop those of one that opens it at the same time. */
static void make_at_once(const char *name, const char *key, const char *text, unsigned mode)
{
    char place[PATHS_MAX], file[64];
    struct client client;
    CU_ASSERT_EQUAL(mkdir(joined(place, folder, name), 0700), 0);
    snprintf(file, sizeof(file), "%s/locks", name + 1);
    path = database(file);
    making = path;
    mode_t before = umask(077);
    OPEN_OK(&client, "path", path, key, text);
    umask(before);
    if (making != NULL)
        open_early();
    CU_ASSERT_EQUAL(child_end(child_start(look_at_locks, NULL)), 0);
    CU_ASSERT_EQUAL(mode_of(path, ""), mode);
    CU_ASSERT_EQUAL(entries_in(place, ""), 4); /* the log, its index, the sockets */
    client_close(&client);
    CU_ASSERT_EQUAL(child_end(child_start(look_at_locks, NULL)), 0);
    client_close(&early);
}

static void test_made_at_once(void)
{
    make_at_once("/at-once", "shared", "no", 0600);
    make_at_once("/at-once-mode", "mode", "0660", 0660);
    renames_badly = true;
    make_at_once("/at-once-umask", "mode", "0660", 0600); /* the umask counts there */
    renames_badly = false;
}

/* ---- a disk that other hosts share -------------------------------------------------------------- */

#define FUSE_MAGIC 0x65735546u

static uint32_t disk;         /* what the kernel calls the disk of each folder; 0: what it is */
static const char *fuse_kind; /* the type of its mount; "": nobody tells; NULL: what it is */

/* In place of the C library's: the kernel's answers on a host that has such disks. */
__attribute__((visibility("default"))) int fstatfs(int fd, struct statfs *about)
{
    int (*real)(int, struct statfs *) = (int (*)(int, struct statfs *))dlsym(RTLD_NEXT, "fstatfs");
    int code = real(fd, about);
    if (code == 0 && disk != 0)
        about->f_type = (long)disk;
    return code;
}

__attribute__((visibility("default"))) FILE *fopen(const char *name, const char *mode)
{
    static char text[256];
    FILE *(*real)(const char *, const char *) =
        (FILE * (*)(const char *, const char *)) dlsym(RTLD_NEXT, "fopen");
    if (fuse_kind == NULL || strncmp(name, "/proc/thread-self/", 18) != 0)
        return real(name, mode);
    if (strstr(name, "/fdinfo/") != NULL)
        snprintf(text, sizeof(text), "pos:\t0\nflags:\t012200000\nmnt_id:\t36\n");
    else if (fuse_kind[0] != '\0')
        snprintf(text, sizeof(text),
                 "35 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
                 "36 35 0:52 / /mnt rw,noatime shared:7 - %s somewhere rw\n",
                 fuse_kind);
    else
        return NULL; /* there is no /proc */
    return fmemopen(text, strlen(text), "r");
}

static void refused_there(const char *kind)
{
    char words[128];
    snprintf(words, sizeof(words), "is not on a local disk (%s)", kind);
    refused(MORTISE_CONFIG, words, NULL, NULL);
    CU_ASSERT_NOT_EQUAL(access(path, F_OK), 0); /* nothing was made */
}

static void opened_there(const char *key, const char *text)
{
    struct client client;
    OPEN_OK(&client, "path", path, key, text);
    client_close(&client);
}

static void test_network_disks(void)
{
    static const struct {
        uint32_t magic;
        const char *name;
    } kinds[] = {
        {0x6969, "NFS"},        {0x517b, "SMB"},        {0xfe534d42, "SMB"},
        {0xff534d42, "CIFS"},   {0x01021997, "9P"},     {0x5346414f, "AFS"},
        {0x6b414653, "AFS"},    {0x73757245, "Coda"},   {0x00c36400, "Ceph"},
        {0x0bd00bd0, "Lustre"}, {0x47504653, "GPFS"},   {0x7461636f, "OCFS2"},
        {0x01161970, "GFS2"},   {0x564c, "NCP"},        {0x61636673, "ACFS"},
        {0x19830326, "BeeGFS"}, {0xaad7aaea, "PanFS"},  {0x20030528, "OrangeFS"},
        {0x786f4256, "vboxsf"}, {0x7c7c6673, "prl_fs"}, {0xbacbacbc, "VMware's shared folders"},
    };
    path = database("shared-disk");
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        disk = kinds[i].magic;
        refused_there(kinds[i].name);
    }
    opened_there("filesystem", "any");
    path = database("own-disk");
    disk = 0xef53; /* ext4 */
    opened_there("filesystem", "local");
    disk = 0;
}

static void test_fuse(void)
{
    static const char *const local[] = {"fuseblk", "fuse.fuse-overlayfs", "fuse-overlayfs",
                                        "fuse.gocryptfs", "fuse.encfs"};
    static const char *const others[] = {"fuse.sshfs", "fuse", "fuse.glusterfs", "fuse.encfs2"};
    disk = FUSE_MAGIC;
    path = database("fuse");
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        fuse_kind = others[i];
        refused_there(fuse_kind);
    }
    fuse_kind = "";
    refused_there("FUSE, of a kind that could not be found out");
    opened_there("filesystem", "any");
    path = database("fuse-local");
    for (size_t i = 0; i < sizeof(local) / sizeof(local[0]); i++) {
        fuse_kind = local[i];
        opened_there("filesystem", "local");
    }
    fuse_kind = NULL;
    disk = 0;
}

int main(void)
{
    CU_TestInfo tests[] = {
        {"what is no database of ours", test_no_database},
        {"bad settings", test_bad_settings},
        {"permissions of what is made", test_modes},
        {"a user who may not do everything", test_as_nobody},
        {"made and opened at the same time", test_made_at_once},
        {"a disk that other hosts share", test_network_disks},
        {"FUSE", test_fuse},
        CU_TEST_INFO_NULL,
    };
    return host_run("sqlite place", tests);
}
