/* keeper_link.c - the wrapper's side of the keeper: starting it, talking to it, ending it.
 *
 * The keeper itself is keeper.c. */
#include "keeper.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

bool keeper_start(struct keeper *keeper, const struct keeper_setup *setup)
{
    int ends[2], witness[2];
    const pid_t group = getpgrp();

    keeper->page =
        mmap(NULL, sizeof *keeper->page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (keeper->page == MAP_FAILED)
        return false;
    /* A SEQPACKET socket keeps messages apart and reports end of file in both directions; two pipes would not. */
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0 ||
        socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, witness) != 0)
        return false;
    keeper->pid = fork();
    if (keeper->pid == 0) {
        close(ends[0]); /* otherwise the keeper would never see the wrapper's death */
        close(witness[0]);
        keeper_main(keeper->page, ends[1], witness[1], group, setup);
    }
    close(ends[1]);
    close(witness[1]);
    keeper->socket = ends[0];
    keeper->witness = witness[0];
    return keeper->pid > 0;
}

void keeper_send(const struct keeper *keeper, enum message_kind kind, int32_t value)
{
    struct message message = {(int32_t)kind, value};

    /* Never blocks: a keeper that does not read its messages is stopped, and must not stop the wrapper. */
    send(keeper->socket, &message, sizeof message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

int keeper_receive(const struct keeper *keeper, struct message *message)
{
    ssize_t length = recv(keeper->socket, message, sizeof *message, MSG_DONTWAIT);

    if (length == (ssize_t)sizeof *message)
        return 1;
    if (length == 0 || (length < 0 && errno != EAGAIN && errno != EINTR))
        return -1;
    return 0;
}

void keeper_stop(struct keeper *keeper)
{
    if (keeper->pid <= 0)
        return;
    atomic_store(&keeper->page->parting, 1);
    close(keeper->socket);
    while (waitpid(keeper->pid, NULL, 0) < 0 && errno == EINTR)
        continue;
    keeper->pid = 0;
}
