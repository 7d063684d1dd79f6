/* inbox.c - how one process notifies another that a name is free: a datagram to a Unix socket.
 *
 * Each client that has ever waited has one inbox: a socket in the folder "<database>-wake", named by its
 * random id in hex. A message is the lock's name. Reaching sockets by /proc/thread-self/fd/<folder>/<id>
 * keeps the paths short, however deep the folder is. A socket whose process is gone refuses messages; the client that
 * notices this removes it. Knows no row and no op. */
#include "driver.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define ID_TEXT (2 * ROWLEASE_INBOX_SIZE + 1)
#define SWEEP_MAX 256  /* folder entries checked in one sweep */
#define SWEEP_AGE_S 60 /* a socket in the making refuses for an instant */

static void id_text(const struct rowlease_inbox *inbox, char *text)
{
    for (size_t i = 0; i < ROWLEASE_INBOX_SIZE; i++)
        snprintf(text + 2 * i, 3, "%02x", inbox->bytes[i]);
}

bool inbox_is_id(const char *text)
{
    return strlen(text) == ID_TEXT - 1 && strspn(text, "0123456789abcdef") == ID_TEXT - 1;
}

static struct sockaddr_un address_of(const struct driver *driver, const char *id)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    snprintf(address.sun_path, sizeof(address.sun_path), "/proc/thread-self/fd/%d/%s",
             driver->wake_folder, id);
    return address;
}

static int open_socket(void)
{
    return socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

bool inbox_folder_is_in_place(const struct driver *driver)
{
    char folder[PATH_MAX + 8];
    struct stat ours, there;
    snprintf(folder, sizeof(folder), "%s-wake", driver->path);
    return fstat(driver->wake_folder, &ours) == 0 && lstat(folder, &there) == 0 &&
           ours.st_dev == there.st_dev && ours.st_ino == there.st_ino;
}

/* If the folder was removed or moved, and perhaps another client has made it again, our descriptor leads nowhere, or to a
 * folder where nobody looks. */
bool inbox_renew_folder(struct driver *driver)
{
    if (inbox_folder_is_in_place(driver))
        return false;
    int fd = path_open_wake_folder(driver);
    if (fd < 0)
        return false;
    close(driver->wake_folder);
    driver->wake_folder = fd;
    return true;
}

/* The lock is on an open file description of its own: a child of fork() has that of wake_folder, too, and if this process were
 * killed, would keep the lock for as long as it lives. fork() waits until this call is over. */
int inbox_lock_folder(const struct driver *driver)
{
    int fd = openat(driver->wake_folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) == 0)
        return fd;
    int code = errno;
    close(fd);
    errno = code;
    return -1;
}

/* ---- this client's inbox ----------------------------------------------------------------------------- */

/* The socket that this client bound. Other users may be able to write the folder, and to put something else in the socket's
 * place at any time. So a link must not be followed, and a file with another name must not be changed. The descriptor
 * refers to the object that was checked. */
static int open_own_socket(const struct driver *driver, const char *id)
{
    struct stat about;
    int fd = openat(driver->wake_folder, id, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0 && fstat(fd, &about) == 0 && S_ISSOCK(about.st_mode) && about.st_uid == geteuid() &&
        about.st_nlink == 1)
        return fd;
    if (fd >= 0) {
        close(fd);
        errno = EPERM;
    }
    return -1;
}

/* Uses chmod() through the descriptor's path, because fchmod() refuses a descriptor that was opened with O_PATH. */
static bool change_mode(int fd, mode_t mode)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/thread-self/fd/%d", fd);
    return chmod(path, mode) == 0;
}

/* Every user who may write the database may write to the inbox. Nobody knows its id before this is done. */
static bool open_to_others(const struct driver *driver, const char *id)
{
    struct stat about;
    if (stat(driver->path, &about) != 0)
        return false;
    int fd = open_own_socket(driver, id);
    if (fd < 0)
        return false;
    uid_t owner = geteuid() == 0 ? about.st_uid : (uid_t)-1;
    mode_t mode = about.st_mode & 0666;
    if (fchownat(fd, "", owner, about.st_gid, AT_EMPTY_PATH) != 0)
        mode &= 0606;
    bool changed = change_mode(fd, mode);
    int code = errno;
    close(fd);
    errno = code;
    return changed;
}

static bool bind_inbox(struct driver *driver, int fd)
{
    char id[ID_TEXT];
    id_text(&driver->locks.inbox, id);
    struct sockaddr_un address = address_of(driver, id);
    int rc = bind(fd, (const struct sockaddr *)&address, sizeof(address));
    if (rc != 0 && inbox_renew_folder(driver)) {
        address = address_of(driver, id);
        rc = bind(fd, (const struct sockaddr *)&address, sizeof(address));
    }
    if (rc != 0 || open_to_others(driver, id))
        return rc == 0;
    int code = errno;
    unlinkat(driver->wake_folder, id, 0);
    errno = code;
    return false;
}

bool inbox_ready(struct driver *driver)
{
    if (driver->inbox_fd >= 0)
        return true;
    inbox_renew_folder(driver);
    int fd = open_socket();
    driver->locks.host->random(driver->locks.host, &driver->locks.inbox,
                               sizeof(driver->locks.inbox));
    if (fd >= 0 && bind_inbox(driver, fd)) {
        driver->inbox_fd = fd;
        driver->inbox_failed = false;
        driver->locks.hears = true;
        return true;
    }
    if (!driver->inbox_failed)
        driver->locks.host->log(
            driver->locks.host, 4,
            "cannot be notified of releases, looks from time to time instead: a socket in %s-wake: "
            "%s",
            driver->path, strerror(errno));
    driver->inbox_failed = true;
    if (fd >= 0)
        close(fd);
    return false;
}

bool inbox_is_lost(struct driver *driver)
{
    char id[ID_TEXT];
    struct stat about;
    id_text(&driver->locks.inbox, id);
    return driver->inbox_fd < 0 || !inbox_folder_is_in_place(driver) ||
           fstatat(driver->wake_folder, id, &about, 0) != 0;
}

void inbox_close(struct driver *driver)
{
    char id[ID_TEXT];
    if (driver->inbox_fd >= 0) {
        id_text(&driver->locks.inbox, id);
        unlinkat(driver->wake_folder, id, 0);
        driver->locks.host->closing(driver->locks.host, driver->inbox_fd);
        close(driver->inbox_fd);
        driver->inbox_fd = -1;
    }
    driver->locks.hears = false;
}

void inbox_touch(const struct driver *driver)
{
    char id[ID_TEXT];
    futimens(driver->wake_folder, NULL);
    if (driver->inbox_fd < 0)
        return;
    id_text(&driver->locks.inbox, id);
    utimensat(driver->wake_folder, id, NULL, AT_SYMLINK_NOFOLLOW);
}

/* ---- messages ---------------------------------------------------------------------------------- */

/* A message only makes a client ask again: nobody gets a lock by what a message says. */
size_t inbox_receive(struct driver *driver, char *name, size_t size)
{
    while (driver->inbox_fd >= 0) {
        ssize_t n = recv(driver->inbox_fd, name, size, MSG_TRUNC | MSG_DONTWAIT);
        if (n > 0 && (size_t)n <= size)
            return (size_t)n;
        if (n < 0 && errno != EINTR)
            break;
    }
    return 0;
}

static bool outbox_ready(struct driver *driver)
{
    if (driver->outbox_fd < 0)
        driver->outbox_fd = open_socket();
    return driver->outbox_fd >= 0;
}

/* The kernel counts unread messages against the socket that sent them: some hundred, in whichever inboxes they are. If
 * the socket accepts no more for this reason, a new socket does. */
static bool renew_outbox(struct driver *driver)
{
    struct pollfd fd = {.fd = driver->outbox_fd, .events = POLLOUT};
    if (poll(&fd, 1, 0) != 0) /* it would take more, so the inbox is full */
        return false;
    int other = open_socket();
    if (other < 0)
        return false;
    close(driver->outbox_fd);
    driver->outbox_fd = other;
    return true;
}

/* ENOENT in a folder that was removed says nothing about the inboxes in the new one. */
static bool says_gone(struct driver *driver, int code, bool *again)
{
    *again = code == ENOENT && inbox_renew_folder(driver);
    return !*again && (code == ECONNREFUSED || code == ENOENT);
}

static bool send_once(const struct driver *driver, const char *id, const char *name,
                      size_t name_len)
{
    struct sockaddr_un address = address_of(driver, id);
    return sendto(driver->outbox_fd, name, name_len, MSG_NOSIGNAL | MSG_DONTWAIT,
                  (const struct sockaddr *)&address, sizeof(address)) >= 0;
}

/* EAGAIN from a socket with room: the process of the inbox lives, and has more unread messages than a socket holds. It
 * then asks again for every name that it waits for. Other failures: the inbox exists, but this process may not write to
 * it, or cannot now. */
bool inbox_send(struct driver *driver, const struct rowlease_inbox *to, const char *name,
                size_t name_len)
{
    char id[ID_TEXT];
    bool again = false, gone = false;
    id_text(to, id);
    if (!outbox_ready(driver))
        return true;
    do {
        bool sent = send_once(driver, id, name, name_len), full = !sent && errno == EAGAIN;
        if (full && renew_outbox(driver)) {
            sent = send_once(driver, id, name, name_len);
            full = !sent && errno == EAGAIN;
        }
        if (sent || full)
            return true;
        gone = says_gone(driver, errno, &again);
    } while (again);
    if (gone)
        unlinkat(driver->wake_folder, id, 0);
    else if (!driver->outbox_failed)
        driver->locks.host->log(driver->locks.host, 4,
                                "cannot notify a waiting process of a release: %s",
                                strerror(errno));
    driver->outbox_failed = driver->outbox_failed || !gone;
    return !gone;
}

/* Whether a process has that inbox. Sends nothing. Removes an inbox without a process. */
static bool is_alive(struct driver *driver, const char *id)
{
    int fd = open_socket();
    bool again = false, gone = false;
    do {
        struct sockaddr_un address = address_of(driver, id);
        gone = fd >= 0 && connect(fd, (const struct sockaddr *)&address, sizeof(address)) != 0 &&
               says_gone(driver, errno, &again);
    } while (again);
    if (fd >= 0)
        close(fd);
    if (gone)
        unlinkat(driver->wake_folder, id, 0);
    return !gone;
}

bool inbox_is_alive(struct driver *driver, const struct rowlease_inbox *inbox)
{
    char id[ID_TEXT];
    id_text(inbox, id);
    return is_alive(driver, id);
}

/* ---- what killed processes left ------------------------------------------------------------------ */

static bool is_old(const struct driver *driver, const char *id)
{
    struct stat about;
    return inbox_is_id(id) && fstatat(driver->wake_folder, id, &about, AT_SYMLINK_NOFOLLOW) == 0 &&
           S_ISSOCK(about.st_mode) && about.st_ctime + SWEEP_AGE_S < time(NULL);
}

/* Goes to a random entry, and returns how many there are. */
static size_t begin_anywhere(struct driver *driver, DIR *folder)
{
    size_t count = 0;
    uint32_t number;
    while (readdir(folder) != NULL)
        count++;
    rewinddir(folder);
    driver->locks.host->random(driver->locks.host, &number, sizeof(number));
    for (size_t skip = count > SWEEP_MAX ? number % count : 0; skip > 0; skip--)
        readdir(folder);
    return count < SWEEP_MAX ? count : SWEEP_MAX;
}

/* Begins anywhere, because the first entries may all belong to live processes, and the others must have their turn, too. */
void inbox_sweep(struct driver *driver)
{
    int fd = openat(driver->wake_folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *folder = fd >= 0 ? fdopendir(fd) : NULL;
    if (folder == NULL) {
        if (fd >= 0)
            close(fd);
        return;
    }
    for (size_t left = begin_anywhere(driver, folder); left > 0; left--) {
        const struct dirent *entry = readdir(folder);
        if (entry == NULL)
            rewinddir(folder);
        else if (is_old(driver, entry->d_name))
            is_alive(driver, entry->d_name);
    }
    closedir(folder);
}
