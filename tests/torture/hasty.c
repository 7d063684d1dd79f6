/* hasty.c - a witness with a mistake: it takes a process for dead when its connection ends. The torture must catch it
 * (docs/crash.md says why a witness must not do so). Otherwise it does what `mortise witness` does, as simply as can be.
 *
 *     hasty witness --socket PATH
 *
 * Dies with its parent. */
#include <mortise/witness.h>

#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { PEERS_MAX = 256 };

struct peer {
    int socket, area;
    mortise_client *client; /* of its configuration */
};

static struct peer peers[PEERS_MAX];
static size_t peer_count;

/* ---- the mistake ----------------------------------------------------------------------------------------- */

static void released(mortise_status status, const mortise_error *error, void *user_data)
{
    (void)status;
    (void)error;
    (void)user_data;
}

static void take_for_dead(struct peer *peer)
{
    mortise_witness_slot slot;
    mortise_error error;
    off_t at = sizeof(mortise_witness_area);
    for (; pread(peer->area, &slot, sizeof slot, at) == (ssize_t)sizeof slot && at < 1 << 17;
         at += (off_t)sizeof slot)
        if (slot.state != MORTISE_WITNESS_FREE && slot.name_len > 0)
            mortise_release_dead(peer->client, &slot, released, NULL, &error);
}

/* ---- the rest ----------------------------------------------------------------------------------------------- */

static void take_area(struct peer *peer, struct msghdr *message)
{
    struct cmsghdr *part = CMSG_FIRSTHDR(message);
    int fds[2];
    if (part == NULL || part->cmsg_len != CMSG_LEN(sizeof fds))
        return;
    memcpy(fds, CMSG_DATA(part), sizeof fds);
    close(fds[0]); /* the pidfd, which would tell */
    peer->area = fds[1];
}

/* False: the connection has ended. */
static bool hear(struct peer *peer)
{
    struct {
        mortise_witness_message head;
        char text[MORTISE_WITNESS_TEXT_MAX + 1];
    } hello;
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(2 * sizeof(int))];
    } control;
    struct iovec part = {&hello, sizeof hello - 1};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = sizeof control};
    mortise_error error;
    ssize_t length = recvmsg(peer->socket, &message, MSG_CMSG_CLOEXEC);
    if (length < (ssize_t)sizeof hello.head)
        return false;
    if (hello.head.kind != MORTISE_WITNESS_HELLO)
        return true;
    hello.text[length - (ssize_t)sizeof hello.head] = '\0';
    take_area(peer, &message);
    if (mortise_open_for_dead(hello.text, &peer->client, &error) != MORTISE_OK) {
        fprintf(stderr, "hasty: %s\n", error.message);
        exit(1);
    }
    hello.head.kind = MORTISE_WITNESS_WELCOME;
    hello.head.text_len = 0;
    return send(peer->socket, &hello.head, sizeof hello.head, MSG_NOSIGNAL) > 0;
}

static void serve(int listener)
{
    struct pollfd fds[PEERS_MAX + 1];
    for (;;) {
        for (size_t i = 0; i < peer_count; i++)
            fds[i] = (struct pollfd){.fd = peers[i].socket, .events = POLLIN};
        fds[peer_count] = (struct pollfd){.fd = listener, .events = POLLIN};
        if (poll(fds, peer_count + 1, -1) < 0)
            return;
        bool comes = (fds[peer_count].revents & POLLIN) != 0 && peer_count < PEERS_MAX;
        for (size_t i = 0; i < peer_count; i++) {
            if (fds[i].revents == 0 || hear(&peers[i]))
                continue;
            if (peers[i].client != NULL)
                take_for_dead(&peers[i]);
            close(peers[i].socket);
            peers[i].socket = -1; /* poll() passes over it */
        }
        if (comes)
            peers[peer_count++] = (struct peer){.socket = accept(listener, NULL, NULL), .area = -1};
    }
}

int main(int argc, char **argv)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (argc != 4 || strlen(argv[3]) >= sizeof address.sun_path)
        return 64;
    memcpy(address.sun_path, argv[3], strlen(argv[3]) + 1);
    int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) != 0 ||
        listen(listener, 64) != 0)
        return 71;
    serve(listener);
    return 71;
}
