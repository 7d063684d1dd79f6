/* calls_disk.c - files that the processes of a run share, and what the kernel keeps for each process.
 *
 * All processes of a run are one real process. POSIX locks belong to a process, so in the kernel they would never be in
 * each other's way. Here they are a table, with the process of the thread that asks as their owner:
 *
 * event                                    | the locks of its process on this file
 * -----------------------------------------|-----------------------------------------------------------------
 * F_SETLK, another process has such a range | as they were; EAGAIN
 * F_SETLK, nobody is in the way             | the range is cut out of them, and added unless it is unlocked
 * close() of any descriptor of the file     | all gone, as POSIX wants it
 * the process is killed                     | all gone, and its descriptors are closed
 *
 * Descriptors are known here from open() to close(). A write or a flush may take long or fail, as the plan says. Knows no
 * database and no lock of the application. */
#include "calls.h"
#include "real.h"
#include "sched.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

enum { DESCRIPTORS = 1024, LOCKS = 256 };

struct file {
    bool known;
    int process;
    dev_t device;
    ino_t number;
};

struct lock {
    int process;
    dev_t device;
    ino_t number;
    bool exclusive;
    off_t from, to; /* both are locked */
};

static bool on;
static struct file files[DESCRIPTORS];
static struct lock locks[LOCKS];
static int lock_count;
static struct calls_disk_faults faults;

void calls_disk_begin(void)
{
    on = true;
}

void calls_disk_set(const struct calls_disk_faults *wanted)
{
    faults = *wanted;
}

static struct file *file_of(int fd)
{
    return on && sched_on() && fd >= 0 && fd < DESCRIPTORS && files[fd].known ? &files[fd] : NULL;
}

static bool same_file(const struct lock *lock, const struct file *file)
{
    return lock->device == file->device && lock->number == file->number;
}

/* ---- locks ---- */

static void add_lock(const struct lock *lock)
{
    if (lock_count == LOCKS)
        sched_fail("too many locks on files");
    locks[lock_count++] = *lock;
}

/* Takes the range out of the locks of one process on one file. */
static void cut_out(const struct file *file, off_t from, off_t to)
{
    for (int i = lock_count - 1; i >= 0; i--) {
        struct lock lock = locks[i];
        if (lock.process != file->process || !same_file(&lock, file) || lock.to < from ||
            lock.from > to)
            continue;
        locks[i] = locks[--lock_count];
        struct lock before = lock, behind = lock;
        before.to = from - 1;
        behind.from = to + 1;
        if (before.from <= before.to)
            add_lock(&before);
        if (behind.from <= behind.to)
            add_lock(&behind);
    }
}

static const struct lock *in_the_way(const struct file *file, const struct flock *wanted, off_t to)
{
    for (int i = 0; i < lock_count; i++)
        if (locks[i].process != file->process && same_file(&locks[i], file) &&
            locks[i].from <= to && locks[i].to >= wanted->l_start &&
            (locks[i].exclusive || wanted->l_type == F_WRLCK))
            return &locks[i];
    return NULL;
}

static void drop_locks(const struct file *file)
{
    cut_out(file, 0, INT64_MAX - 1);
}

static void tell(struct flock *wanted, const struct lock *lock)
{
    wanted->l_type = F_UNLCK;
    if (!lock)
        return;
    wanted->l_type = lock->exclusive ? F_WRLCK : F_RDLCK;
    wanted->l_start = lock->from;
    wanted->l_len = lock->to - lock->from + 1;
    wanted->l_pid = 100 + lock->process;
}

static int lock_file(const struct file *file, int command, struct flock *wanted)
{
    off_t to = wanted->l_len > 0 ? wanted->l_start + wanted->l_len - 1 : INT64_MAX - 1;
    if (wanted->l_whence != SEEK_SET || command == F_SETLKW)
        sched_fail("a lock on a file that is not known here");
    sched_point(POINT_FILE);
    const struct lock *other = wanted->l_type == F_UNLCK ? NULL : in_the_way(file, wanted, to);
    sched_mix(other != NULL);
    if (command == F_GETLK) {
        tell(wanted, other);
        return 0;
    }
    if (other) {
        errno = EAGAIN;
        return -1;
    }
    cut_out(file, wanted->l_start, to);
    if (wanted->l_type != F_UNLCK)
        add_lock(&(struct lock){.process = file->process,
                                .device = file->device,
                                .number = file->number,
                                .exclusive = wanted->l_type == F_WRLCK,
                                .from = wanted->l_start,
                                .to = to});
    return 0;
}

static int call_fcntl(int fd, int command, void *argument)
{
    const struct file *file = file_of(fd);
    if (file && (command == F_SETLK || command == F_SETLKW || command == F_GETLK))
        return lock_file(file, command, argument);
    int result = real()->fcntl(fd, command, argument);
    if (command == F_DUPFD_CLOEXEC && result >= 0)
        calls_timer_moved(fd, result);
    return result;
}

#define ARGUMENT_OF(last)                                                                          \
    va_list list;                                                                                  \
    va_start(list, last);                                                                          \
    void *argument = va_arg(list, void *);                                                         \
    va_end(list)

int fcntl(int fd, int command, ...)
{
    ARGUMENT_OF(command);
    return call_fcntl(fd, command, argument);
}

int fcntl64(int fd, int command, ...)
{
    ARGUMENT_OF(command);
    return call_fcntl(fd, command, argument);
}

int flock(int fd, int operation)
{
    if (file_of(fd))
        sched_point(POINT_FILE);
    return real()->flock(fd, operation);
}

/* ---- descriptors ---- */

int calls_disk_opened(int fd)
{
    struct stat about;
    if (!on || !sched_on() || fd < 0)
        return fd;
    if (fd >= DESCRIPTORS || fstat(fd, &about) != 0)
        sched_fail("too many descriptors");
    files[fd] = (struct file){
        .known = true, .process = sched_process(), .device = about.st_dev, .number = about.st_ino};
    return fd;
}

void calls_disk_closing(int fd)
{
    struct file *file = file_of(fd);
    if (!file)
        return;
    sched_point(POINT_FILE);
    drop_locks(file);
    file->known = false;
}

void calls_disk_end_process(int process)
{
    for (int fd = 0; fd < DESCRIPTORS; fd++)
        if (files[fd].known && files[fd].process == process) {
            drop_locks(&files[fd]);
            files[fd].known = false;
            real()->close(fd);
        }
    sched_files_changed();
}

/* Bytes of chance are the seed's. Without this file SQLite makes them from the time of day and the process id. */
static bool is_refused(const char *path)
{
    return on && sched_on() && strcmp(path, "/dev/urandom") == 0;
}

static int call_open(int folder, const char *path, int flags, mode_t mode)
{
    if (is_refused(path)) {
        errno = ENOENT;
        return -1;
    }
    if (on && sched_on())
        sched_point(POINT_FILE);
    return calls_disk_opened(real()->openat(folder, path, flags, mode));
}

#define MODE_OF(last)                                                                              \
    va_list list;                                                                                  \
    va_start(list, last);                                                                          \
    bool makes = flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE;                              \
    mode_t mode = makes ? va_arg(list, mode_t) : 0;                                                \
    va_end(list)

int open(const char *path, int flags, ...)
{
    MODE_OF(flags);
    return call_open(AT_FDCWD, path, flags, mode);
}

int open64(const char *path, int flags, ...)
{
    MODE_OF(flags);
    return call_open(AT_FDCWD, path, flags, mode);
}

int openat(int folder, const char *path, int flags, ...)
{
    MODE_OF(flags);
    return call_open(folder, path, flags, mode);
}

/* ---- reading, writing, flushing ---- */

static bool fails(int fd, off_t end)
{
    struct stat about;
    int64_t now_ns = sched_now();
    if (now_ns < faults.full_until_ns && fstat(fd, &about) == 0 && end > about.st_size) {
        errno = ENOSPC;
        return true;
    }
    if (now_ns < faults.bad_until_ns && sched_draw(faults.bad_one_in) == 0) {
        errno = EIO;
        return true;
    }
    return false;
}

static ssize_t call_pread(int fd, void *buffer, size_t size, off_t at)
{
    if (file_of(fd))
        sched_point(POINT_FILE);
    return real()->pread64(fd, buffer, size, at);
}

static ssize_t call_pwrite(int fd, const void *buffer, size_t size, off_t at)
{
    if (file_of(fd)) {
        sched_point(POINT_FILE);
        if (fails(fd, at + (off_t)size))
            return -1;
    }
    return real()->pwrite64(fd, buffer, size, at);
}

ssize_t pread(int fd, void *buffer, size_t size, off_t at)
{
    return call_pread(fd, buffer, size, at);
}

ssize_t pread64(int fd, void *buffer, size_t size, off_t at)
{
    return call_pread(fd, buffer, size, at);
}

ssize_t pwrite(int fd, const void *buffer, size_t size, off_t at)
{
    return call_pwrite(fd, buffer, size, at);
}

ssize_t pwrite64(int fd, const void *buffer, size_t size, off_t at)
{
    return call_pwrite(fd, buffer, size, at);
}

static int call_ftruncate(int fd, off_t size)
{
    if (file_of(fd))
        sched_point(POINT_FILE);
    return real()->ftruncate64(fd, size);
}

int ftruncate(int fd, off_t size)
{
    return call_ftruncate(fd, size);
}

int ftruncate64(int fd, off_t size)
{
    return call_ftruncate(fd, size);
}

/* The power never fails, so nothing is written that the kernel has not got already. It only takes time. */
static int flush(int fd)
{
    int64_t due_ns = sched_now() + faults.flush_ns;
    sched_point(POINT_FILE);
    if (sched_now() < faults.slow_until_ns)
        due_ns += (int64_t)sched_draw((uint32_t)(faults.slow_ns / 1000) + 1) * 1000;
    while (sched_now() < due_ns)
        sched_wait(WAIT_TIME, NULL, NULL, due_ns);
    return fails(fd, 0) ? -1 : 0;
}

int fdatasync(int fd)
{
    return file_of(fd) ? flush(fd) : real()->fdatasync(fd);
}

int fsync(int fd)
{
    return file_of(fd) ? flush(fd) : real()->fsync(fd);
}

int unlink(const char *path)
{
    if (on && sched_on())
        sched_point(POINT_FILE);
    return real()->unlink(path);
}

/* ---- datagrams ---- */

ssize_t sendto(int fd, const void *bytes, size_t size, int flags, const struct sockaddr *to,
               socklen_t length)
{
    ssize_t count = real()->sendto(fd, bytes, size, flags, to, length);
    int problem = errno;
    if (sched_on()) {
        sched_files_changed();
        sched_point(POINT_FILE);
    }
    errno = problem;
    return count;
}
