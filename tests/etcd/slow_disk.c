/* slow_disk.c - runs a program whose disk is slow, or fails: slow_disk FILE PROGRAM ARGUMENT…
 *
 * While FILE says a number, each fsync and fdatasync of the program takes so many milliseconds longer, one after the other; while it says
 * "fail" they fail with EIO; else they are what they are. It works for programs that make their system calls themselves, such
 * as those of Go: the kernel tells them to another process (seccomp user notification), which answers for the disk.
 * slow_disk --probe exits with 77 if the kernel does not permit that. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Returns the descriptor from which the calls can be read; negative: not permitted. */
static int install(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fdatasync, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fsync, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof code / sizeof code[0], code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        return -1;
    return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER,
                        &program);
}

static void send_fd(int channel, int fd)
{
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(sizeof(int))];
    } control = {.header = {CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS}};
    char text = 0;
    struct iovec byte = {&text, 1};
    struct msghdr message = {.msg_iov = &byte,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = sizeof control};
    memcpy(CMSG_DATA(&control.header), &fd, sizeof fd);
    if (sendmsg(channel, &message, 0) != 1)
        exit(1);
}

static int receive_fd(int channel)
{
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(sizeof(int))];
    } control;
    char byte;
    int fd;
    struct iovec vector = {&byte, 1};
    struct msghdr message = {.msg_iov = &vector,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = sizeof control};
    if (recvmsg(channel, &message, 0) != 1 || message.msg_controllen < sizeof control.header)
        exit(1);
    memcpy(&fd, CMSG_DATA(&control.header), sizeof fd);
    return fd;
}

/* How many milliseconds a call takes longer; -1: it fails. */
static int orders(const char *path)
{
    char text[32] = "";
    FILE *file = fopen(path, "r");
    if (file == NULL)
        return 0;
    if (fgets(text, sizeof text, file) == NULL)
        text[0] = '\0';
    fclose(file);
    return strncmp(text, "fail", 4) == 0 ? -1 : (int)strtol(text, NULL, 10);
}

/* One call; `told` is there for nothing else. */
static void serve(int told, const char *path)
{
    struct seccomp_notif call;
    struct seccomp_notif_resp answer;
    memset(&call, 0, sizeof call);
    memset(&answer, 0, sizeof answer);
    if (ioctl(told, SECCOMP_IOCTL_NOTIF_RECV, &call) != 0)
        return;
    for (int waited = 0; waited < orders(path); waited += 5)
        poll(NULL, 0, 5);
    answer.id = call.id;
    if (orders(path) < 0)
        answer.error = -EIO;
    else
        answer.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
    ioctl(told, SECCOMP_IOCTL_NOTIF_SEND, &answer);
}

/* Until the program has ended. */
static void attend(int channel, const char *path)
{
    struct pollfd told = {.fd = receive_fd(channel), .events = POLLIN};
    close(channel);
    setsid();
    while (poll(&told, 1, -1) >= 0 && (told.revents & (POLLHUP | POLLERR)) == 0)
        if ((told.revents & POLLIN) != 0)
            serve(told.fd, path);
}

int main(int argc, char **argv)
{
    int channel[2];
    if (argc == 2 && strcmp(argv[1], "--probe") == 0)
        return install() >= 0 ? 0 : 77;
    if (argc < 3 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, channel) != 0)
        return 64;
    pid_t child = fork();
    if (child == 0) {
        close(channel[1]);
        attend(channel[0], argv[1]);
        return 0;
    }
    int told = child < 0 ? -1 : install();
    if (told < 0)
        return 1; /* the other one gets no descriptor, and ends */
    send_fd(channel[1], told);
    close(told);
    execvp(argv[2], argv + 2);
    return 127;
}
