/* witness_ask.c - asks the witness of this host whether it watches a process: for status, list and watch. */
#include "witness_ask.h"

#include "keeper.h"

#include <mortise/witness.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

static char path[108]; /* "": nowhere */
static int connection = -1;
static bool tried; /* has tried to connect since the last answer or since this listing began */
static bool hangs; /* the witness did not answer in time */
static bool never;

bool witness_default_path(char *buffer, size_t size)
{
    const char *folder = secure_getenv("XDG_RUNTIME_DIR");
    int length;
    if (geteuid() == 0)
        length = snprintf(buffer, size, "/run/mortise/witness.sock");
    else if (folder != NULL && folder[0] == '/')
        length = snprintf(buffer, size, "%s/mortise/witness.sock", folder);
    else
        length =
            snprintf(buffer, size, "/run/user/%lu/mortise/witness.sock", (unsigned long)geteuid());
    return length > 0 && (size_t)length < size;
}

void witness_ask_begin(mortise_client *client)
{
    const size_t length = mortise_witness_configured(client, path, sizeof path);

    /* Also with `witness = off`: the holders may use a witness, because their configuration may be another. */
    if (length == 0 ? !witness_default_path(path, sizeof path) : length >= sizeof path)
        path[0] = '\0';
}

void witness_ask_never(void)
{
    never = true;
}

void witness_ask_anew(void)
{
    tried = hangs = false;
}

static int connected(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const struct timeval patience = {.tv_usec = 300000};

    if (connection >= 0)
        return connection;
    if (tried || hangs || path[0] == '\0')
        return -1;
    tried = true;
    memcpy(address.sun_path, path, sizeof path);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    if (connect(fd, (struct sockaddr *)&address, sizeof address) != 0) {
        close(fd);
        return -1;
    }
    fcntl(fd, F_SETFL, 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    connection = fd;
    return fd;
}

/* False: no answer. */
static bool ask_once(int64_t pid, bool *watched)
{
    mortise_witness_message message = {.magic = MORTISE_WITNESS_MAGIC,
                                       .version = MORTISE_WITNESS_VERSION,
                                       .kind = MORTISE_WITNESS_ASK,
                                       .pid = (int32_t)pid};
    int fd = connected();

    if (fd < 0)
        return false;
    errno = 0;
    if (send(fd, &message, sizeof message, MSG_NOSIGNAL | MSG_DONTWAIT) ==
            (ssize_t)sizeof message &&
        recv(fd, &message, sizeof message, 0) == (ssize_t)sizeof message &&
        message.kind == MORTISE_WITNESS_TELL && message.pid == (int32_t)pid) {
        tried = false;
        *watched = message.count > 0;
        return true;
    }
    hangs = errno == EAGAIN;
    close(fd);
    connection = -1;
    return false;
}

/* A witness closes a connection that has not sent HELLO after some seconds, and it may have been restarted. So an old
 * connection proves nothing. If a witness does not answer in a moment, it counts as missing from then on. */
static bool ask(int64_t pid)
{
    const bool before = connection >= 0;
    bool watched = false;

    return (ask_once(pid, &watched) || (before && ask_once(pid, &watched))) && watched;
}

/* The keeper of `mortise run` is its witness. */
static void look_for_keeper(pid_t child, void *found)
{
    char file[64], name[32] = "";

    snprintf(file, sizeof file, "/proc/%d/comm", (int)child);
    int fd = open(file, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    if (read(fd, name, sizeof name - 1) > 0 && strcmp(name, "mortise-keeper\n") == 0)
        *(bool *)found = true;
    close(fd);
}

enum witnessed witness_ask(const char *host, int64_t pid)
{
    char own[sizeof((mortise_info *)0)->host] = "", folder[64];
    struct stat process;
    bool found = false;

    if (never)
        return WITNESSED_UNKNOWN;
    gethostname(own, sizeof own - 1);
    snprintf(folder, sizeof folder, "/proc/%lld", (long long)pid);
    if (pid <= 0 || pid > INT32_MAX || strcmp(own, host) != 0 || stat(folder, &process) != 0 ||
        process.st_uid != geteuid())
        return WITNESSED_UNKNOWN;
    if (ask(pid))
        return WITNESSED_YES;
    family_each((pid_t)pid, look_for_keeper, &found);
    return found ? WITNESSED_YES : WITNESSED_NO;
}
