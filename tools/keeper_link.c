/* keeper_link.c - the wrapper's side of the keeper: starting it, talking to it, ending it.
 *
 * The keeper itself is keeper.c. */
#include "keeper.h"

#include <errno.h>
#include <string.h>
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

/* False: the kernel is short of memory, which may pass. Never blocks: a keeper that does not read its messages is stopped, and
 * must not stop the wrapper too. If the keeper is dead, the wrapper reads end of file. */
static bool send_now(const struct keeper *keeper, const struct message *message)
{
    return send(keeper->socket, message, sizeof *message, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0 ||
           (errno != ENOMEM && errno != ENOBUFS);
}

void keeper_send_rest(struct keeper *keeper)
{
    size_t sent = 0;

    while (sent < keeper->unsent_count && send_now(keeper, &keeper->unsent[sent]))
        sent++;
    keeper->unsent_count -= sent;
    memmove(keeper->unsent, keeper->unsent + sent, keeper->unsent_count * sizeof keeper->unsent[0]);
}

void keeper_send(struct keeper *keeper, enum message_kind kind, int32_t value)
{
    const struct message message = {(int32_t)kind, value};
    size_t others = 0;

    /* As with pending signals in the kernel, a message is kept only once. Its place is that of the last one, because a stop and a
     * SIGCONT undo each other. */
    for (size_t i = 0; i < keeper->unsent_count; i++) {
        if (memcmp(&keeper->unsent[i], &message, sizeof message) != 0)
            keeper->unsent[others++] = keeper->unsent[i];
    }
    keeper->unsent_count = others;
    if (others < KEEPER_UNSENT_MAX)
        keeper->unsent[keeper->unsent_count++] = message;
    keeper_send_rest(keeper);
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
    kill(keeper->pid,
         SIGKILL); /* it has nothing left to do; it may be stopped, and would stay then */
    while (waitpid(keeper->pid, NULL, 0) < 0 && errno == EINTR)
        continue;
    keeper->pid = 0;
}
