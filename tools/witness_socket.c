/* witness_socket.c - where the witness listens: a socket from systemd, or one that it makes. Only its user may reach it: the
 * folder must belong to that user and be closed to all others. */
#include "witness.h"

#include "exit_code.h"
#include "output.h"
#include "text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { BACKLOG = 4096, FROM_SYSTEMD = 3 };

static struct sockaddr_un made; /* the socket that was made; sun_path "": none */
static struct stat made_as;

static int fail(int *code, int exit_code, const char *path, const char *why)
{
    char shown[QUOTED_SIZE];
    say("witness: %s: %s", quoted(path, shown, sizeof shown), why);
    *code = exit_code;
    return -1;
}

/* Writes the folder of the socket. False: it does not fit. */
static bool folder_of(const char *path, char *folder, size_t size)
{
    const char *slash = strrchr(path, '/');
    if (slash == NULL || path[0] != '/')
        return false;
    int length = snprintf(folder, size, "%.*s", slash == path ? 1 : (int)(slash - path), path);
    return length > 0 && (size_t)length < size;
}

static bool check_folder(const char *folder, int *code)
{
    struct stat about;
    if (lstat(folder, &about) != 0)
        fail(code, EXIT_SYSTEM, folder, strerror(errno));
    else if (!S_ISDIR(about.st_mode) || about.st_uid != geteuid() || (about.st_mode & 077) != 0)
        fail(code, EXIT_BAD_CONFIG, folder,
             "the directory of the socket must belong to this user and be closed to all others "
             "(chmod 700)");
    else
        return true;
    return false;
}

/* Makes sure that there is only one witness for a path. The lock ends with the process, so the file stays open. */
static bool be_alone(const char *path, int *code)
{
    static int lock_file;
    char text[sizeof made.sun_path + 8];
    snprintf(text, sizeof text, "%s.lock", path);
    lock_file = open(text, O_CREAT | O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (lock_file < 0)
        fail(code, EXIT_SYSTEM, text, strerror(errno));
    else if (flock(lock_file, LOCK_EX | LOCK_NB) != 0)
        fail(code, EXIT_NOT_HAD, path, "another witness listens there");
    else
        return true;
    return false;
}

/* Only a socket is removed: a mistyped path may name any file. */
static bool is_no_socket(const char *path)
{
    struct stat about;
    return lstat(path, &about) == 0 && !S_ISSOCK(about.st_mode);
}

/* Returns the errno of a connection attempt; 0: another process listens there. */
static int knock(const struct sockaddr_un *address)
{
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const bool connected =
        fd >= 0 && connect(fd, (const struct sockaddr *)address, sizeof *address) == 0;
    const int error = connected ? 0 : errno;
    if (fd >= 0)
        close(fd);
    return error;
}

static int make_socket(const char *path, int *code)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char folder[sizeof address.sun_path];

    if (strlen(path) >= sizeof address.sun_path || !folder_of(path, folder, sizeof folder))
        return fail(code, EXIT_BAD_USAGE, path, "expected an absolute path of at most 107 bytes");
    memcpy(address.sun_path, path, strlen(path) + 1);
    mkdir(folder, 0700); /* if the folder exists already, it is checked */
    if (!check_folder(folder, code))
        return -1;
    if (is_no_socket(path))
        return fail(code, EXIT_BAD_USAGE, path, "a file that is no socket is there");
    /* before the lock file is made, because that would stay there */
    if (knock(&address) == EPROTOTYPE)
        return fail(code, EXIT_BAD_USAGE, path, "the socket of another program is there");
    if (!be_alone(path, code))
        return -1;
    /* A program without the lock file may listen there: systemd for a witness that it will start, or another program since the
     * first attempt. */
    const int answer = knock(&address);
    if (answer == 0 || answer == EAGAIN || answer == EPROTOTYPE)
        return fail(code, EXIT_NOT_HAD, path, "another witness, or systemd, listens there");
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return fail(code, EXIT_SYSTEM, path, strerror(errno));
    unlink(path); /* left by a witness that was killed */
    /* Only for the socket: the drivers make folders, which need the right to search them. */
    const mode_t before = umask(0177);
    const bool bound = bind(fd, (struct sockaddr *)&address, sizeof address) == 0;
    umask(before);
    if (!bound || listen(fd, BACKLOG) != 0 || lstat(path, &made_as) != 0) {
        fail(code, EXIT_SYSTEM, path, strerror(errno));
        close(fd);
        return -1;
    }
    made = address;
    return fd;
}

/* Whether systemd has passed a socket. */
static bool is_activated(void)
{
    const char *pid = getenv("LISTEN_PID"), *count = getenv("LISTEN_FDS");
    char own[32];
    snprintf(own, sizeof own, "%d", (int)getpid());
    return pid != NULL && strcmp(pid, own) == 0 && count != NULL && strcmp(count, "0") != 0;
}

static int take_socket(int *code)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    socklen_t size = sizeof address, int_size = sizeof(int);
    char folder[sizeof address.sun_path];
    int type = 0, listens = 0;

    if (strcmp(getenv("LISTEN_FDS"), "1") != 0 ||
        getsockopt(FROM_SYSTEMD, SOL_SOCKET, SO_TYPE, &type, &int_size) != 0 ||
        getsockopt(FROM_SYSTEMD, SOL_SOCKET, SO_ACCEPTCONN, &listens, &int_size) != 0 ||
        getsockname(FROM_SYSTEMD, (struct sockaddr *)&address, &size) != 0 ||
        address.sun_family != AF_UNIX || type != SOCK_SEQPACKET || listens == 0)
        return fail(code, EXIT_BAD_CONFIG, "LISTEN_FDS",
                    "expected one listening socket (ListenSequentialPacket=)");
    address.sun_path[sizeof address.sun_path - 1] = '\0';
    /* An abstract one is open to every user. */
    if (!folder_of(address.sun_path, folder, sizeof folder))
        return fail(code, EXIT_BAD_CONFIG, "LISTEN_FDS", "expected a socket with a path");
    if (!check_folder(folder, code))
        return -1;
    fcntl(FROM_SYSTEMD, F_SETFD, FD_CLOEXEC);
    fcntl(FROM_SYSTEMD, F_SETFL, O_NONBLOCK);
    return FROM_SYSTEMD;
}

int witness_listen(const char *path, int *code)
{
    return is_activated() ? take_socket(code) : make_socket(path, code);
}

void witness_unlisten(void)
{
    struct stat about;
    if (made.sun_path[0] != '\0' && lstat(made.sun_path, &about) == 0 &&
        about.st_dev == made_as.st_dev && about.st_ino == made_as.st_ino)
        unlink(made.sun_path);
}
