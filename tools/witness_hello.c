/* witness_hello.c - the messages of peers, and the check that a pidfd refers to the process that sent it. */
#include "witness.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

enum { FDS_MAX = 8 }; /* more than that are dropped by the kernel */

/* ---- receiving ----------------------------------------------------------------------------------- */

struct passed {
    int fds[FDS_MAX];
    size_t count;
};

static void take_fds(struct msghdr *message, struct passed *passed)
{
    for (struct cmsghdr *part = CMSG_FIRSTHDR(message); part != NULL;
         part = CMSG_NXTHDR(message, part)) {
        if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS)
            continue;
        size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(part) + i * sizeof fd, sizeof fd);
            if (passed->count < FDS_MAX)
                passed->fds[passed->count++] = fd;
            else
                close(fd);
        }
    }
}

static bool is_message(const struct hello *hello, size_t length)
{
    return length >= sizeof hello->head && hello->head.magic == MORTISE_WITNESS_MAGIC &&
           hello->head.text_len == length - sizeof hello->head;
}

enum heard hello_receive(int socket, struct hello *hello)
{
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(FDS_MAX * sizeof(int))];
    } control;
    struct iovec parts[] = {{&hello->head, sizeof hello->head},
                            {hello->text, sizeof hello->text - 1}};
    struct msghdr message = {.msg_iov = parts,
                             .msg_iovlen = 2,
                             .msg_control = &control,
                             .msg_controllen = sizeof control};
    struct passed passed = {.count = 0};

    hello->pidfd = hello->area = -1;
    ssize_t length = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (length < 0)
        return errno == EAGAIN || errno == EINTR ? HEARD_NOTHING : HEARD_END;
    if (length == 0)
        return HEARD_END;
    take_fds(&message, &passed);
    hello->no_room = (message.msg_flags & MSG_CTRUNC) != 0;
    bool sound = (message.msg_flags & MSG_TRUNC) == 0 && is_message(hello, (size_t)length);
    if (sound && hello->head.kind == MORTISE_WITNESS_HELLO && passed.count == 2) {
        hello->pidfd = passed.fds[0];
        hello->area = passed.fds[1];
        passed.count = 0;
    }
    while (passed.count > 0)
        close(passed.fds[--passed.count]);
    if (!sound)
        return HEARD_GARBAGE;
    hello->text[hello->head.text_len] = '\0';
    return HEARD_MESSAGE;
}

/* ---- answering ----------------------------------------------------------------------------------- */

void hello_answer(int socket, const mortise_witness_message *message, const char *text)
{
    mortise_witness_message head = *message;
    head.magic = MORTISE_WITNESS_MAGIC;
    head.version = MORTISE_WITNESS_VERSION;
    head.text_len = (uint32_t)strlen(text);
    struct iovec parts[] = {{&head, sizeof head}, {(void *)(uintptr_t)text, head.text_len}};
    struct msghdr out = {.msg_iov = parts, .msg_iovlen = head.text_len > 0 ? 2 : 1};
    sendmsg(socket, &out, MSG_DONTWAIT | MSG_NOSIGNAL);
}

void hello_refuse(int socket, const char *why)
{
    hello_answer(socket, &(mortise_witness_message){.kind = MORTISE_WITNESS_REFUSE}, why);
}

/* ---- the process of a pidfd ------------------------------------------------------------------------ */

/* Reads the number behind a label in /proc/self/fdinfo. False: there is none. */
static bool read_number(const char *text, const char *label, int base, long *number)
{
    const char *at = strstr(text, label);
    if (at == NULL)
        return false;
    *number = strtol(at + strlen(label), NULL, base);
    return true;
}

/* What the kernel says about a pidfd: the pid, or -1 if that process has been reaped. False, and errno 0: fd is no
 * pidfd. */
static bool pidfd_about(int pidfd, long *pid, long *flags)
{
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", pidfd);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t length = read(fd, text, sizeof text - 1);
    close(fd);
    errno = 0;
    if (length <= 0)
        return false;
    text[length] = '\0';
    return read_number(text, "\nPid:", 10, pid) && read_number(text, "flags:", 8, flags);
}

static const char *process_problem(int socket, int pidfd, pid_t *pid)
{
    struct ucred peer = {0};
    socklen_t size = sizeof peer;
    long number = 0, flags = 0;
    if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 || peer.pid <= 0)
        return "it is in another pid namespace";
    if (!pidfd_about(pidfd, &number, &flags))
        return errno == EMFILE || errno == ENFILE
                   ? "the witness watches as many processes as it can"
                   : "it passed no pidfd";
    if ((flags & O_EXCL) != 0)
        return "its pidfd is of a thread";
    /* -1: the process of this pidfd is dead already, so there is no number to compare. If a peer passes the pidfd of
     * another process, it can only name claims whose grant ids it knows, and these it could release in the backend
     * itself. */
    if (number != -1 && number != peer.pid)
        return "its pidfd is of another process";
    *pid = peer.pid;
    return NULL;
}

enum { SPARE_FDS = 32 };

bool hello_takes_spare(const struct hello *hello)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return false;
    const rlim_t spare = limit.rlim_cur / 4 < SPARE_FDS ? limit.rlim_cur / 4 : SPARE_FDS;
    /* The kernel gives the smallest free number. */
    return (rlim_t)hello->area >= limit.rlim_cur - spare;
}

const char *hello_problem(int socket, const struct hello *hello, pid_t *pid)
{
    if (hello->head.version != MORTISE_WITNESS_VERSION)
        return "this witness has another version";
    if (hello->no_room)
        return "the witness watches as many processes as it can";
    /* In nanoseconds, a larger delay would overflow. */
    if (hello->pidfd < 0 || hello->head.crash_delay_ms < 0 ||
        hello->head.crash_delay_ms > MORTISE_TTL_MAX_MS ||
        strlen(hello->text) != hello->head.text_len)
        return "its message makes no sense";
    if (!claims_are_readable(hello->area))
        return "its area is no sealed memfd";
    return process_problem(socket, hello->pidfd, pid);
}
