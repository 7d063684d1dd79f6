/* link.c - see link.h. Every call except link_await() returns at once. */
#include "witness/link.h"

#include "base/log.h"
#include "base/status.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>

#define AGAIN_MIN_MS 50
#define AGAIN_MAX_MS 60000
#define IDLE_MS 10000    /* between two tries if no witness was ever there */
#define REFUSED_MS 60000 /* it may be another witness by then */
#define ANSWER_MS 5000

/* ---- the states ---------------------------------------------------------------------------------- */

static bool may_go(enum link_state from, enum link_state to)
{
#define TO(state) (1u << LINK_##state)
    static const unsigned ways[] = {
        [LINK_OFF] = TO(AWAY) | TO(OFF),
        [LINK_AWAY] = TO(OFF) | TO(AWAY) | TO(GREETED),
        [LINK_GREETED] = TO(OFF) | TO(AWAY) | TO(WATCHED) | TO(REFUSED),
        [LINK_WATCHED] = TO(OFF) | TO(AWAY) | TO(WATCHED) | TO(REFUSED),
        [LINK_REFUSED] = TO(OFF) | TO(AWAY) | TO(GREETED),
    };
#undef TO
    return (ways[from] & 1u << to) != 0;
}

/* Every change of the state, as in the table of link.h. */
static void link_move(struct witness_link *link, enum link_state state)
{
    if (!may_go(link->state, state))
        abort();
    link->state = state;
    if (state != LINK_GREETED && state != LINK_WATCHED)
        own_fd_close(&link->socket);
    if (state == LINK_WATCHED) {
        link->met = true;
        link->failures = 0;
        link->told = false;
    }
}

/* Logs one line for each time that the witness is not there. */
static void tell(struct witness_link *link, const char *what)
{
    bool writes = link->logs && !link->told && !link->given; /* the giver of the socket knows it */
    link->told = true;
    if (writes)
        log_line(
            4, "mortise: witness %s: %s; if this process crashes now, its locks end with their ttl",
            link->path, what);
}

/* Returns a random time between half of ms and ms. */
static int64_t spread_ms(struct witness_link *link, int64_t ms)
{
    link->seed = link->seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return ms / 2 + (int64_t)((link->seed >> 33) % (uint64_t)(ms / 2 + 1));
}

static void go_away(struct witness_link *link, int64_t now)
{
    unsigned failures = link->failures++;
    int64_t ms = (int64_t)AGAIN_MIN_MS << (failures < 11 ? failures : 11);
    ms = spread_ms(link, ms > AGAIN_MAX_MS ? AGAIN_MAX_MS : ms);
    link_move(link, LINK_AWAY);
    link->tried_ns = now;
    link->try_ns = link->given || !link->met ? MORTISE_NEVER : clock_after_ms(now, ms);
}

static void lose(struct witness_link *link, int64_t now, const char *what)
{
    tell(link, what);
    go_away(link, now);
}

/* ---- connecting ---------------------------------------------------------------------------------- */

bool link_default_path(char *path)
{
    const char *folder = secure_getenv("XDG_RUNTIME_DIR");
    int length;
    if (geteuid() == 0)
        length = snprintf(path, 108, "/run/mortise/witness.sock");
    else if (folder != NULL && folder[0] == '/')
        length = snprintf(path, 108, "%s/mortise/witness.sock", folder);
    else
        length =
            snprintf(path, 108, "/run/user/%lu/mortise/witness.sock", (unsigned long)geteuid());
    return length > 0 && length < 108;
}

/* The peer is root or this user. (A socket that systemd made may be root's.) */
static bool is_ours(int fd)
{
    struct ucred peer;
    socklen_t size = sizeof(peer);
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
           (peer.uid == geteuid() || peer.uid == 0);
}

static bool send_text(int fd, mortise_witness_message *head, const char *text, const int *fds,
                      size_t fd_count)
{
    struct iovec parts[2] = {{head, sizeof(*head)}, {(void *)(uintptr_t)text, head->text_len}};
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(2 * sizeof(int))];
    } control;
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = head->text_len > 0 ? 2 : 1};
    if (fd_count > 0) {
        memset(&control, 0, sizeof(control));
        message.msg_control = &control;
        message.msg_controllen = CMSG_SPACE(fd_count * sizeof(int));
        control.head.cmsg_level = SOL_SOCKET;
        control.head.cmsg_type = SCM_RIGHTS;
        control.head.cmsg_len = CMSG_LEN(fd_count * sizeof(int));
        memcpy(CMSG_DATA(&control.head), fds, fd_count * sizeof(int));
    }
    return sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL) ==
           (ssize_t)(sizeof(*head) + head->text_len);
}

static mortise_witness_message head_of(mortise_witness_kind kind)
{
    return (mortise_witness_message){
        .magic = MORTISE_WITNESS_MAGIC, .version = MORTISE_WITNESS_VERSION, .kind = (uint16_t)kind};
}

/* Makes the pidfd for each message, so it always refers to this process. */
static bool send_hello(struct witness_link *link, int fd)
{
    mortise_witness_message head = head_of(MORTISE_WITNESS_HELLO);
    int fds[2] = {(int)syscall(SYS_pidfd_open, getpid(), 0), link->area->file.fd};
    if (fds[0] < 0)
        return false;
    head.pid = getpid();
    head.print = link->print;
    head.crash_delay_ms = link->crash_delay_ms;
    head.text_len = (uint32_t)link->text_len;
    bool sent = send_text(fd, &head, link->text, fds, 2);
    close(fds[0]);
    return sent;
}

static int connect_to(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memcpy(address.sun_path, path, strlen(path) + 1);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    if (connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0)
        return fd;
    close(fd);
    return -1;
}

/* The area is made when a witness listens for the first time. Without an area there is no witness. */
static bool greet(struct witness_link *link, int fd)
{
    if (link->area->head == NULL && !area_make(link->area))
        return false;
    return own_fd_is(&link->area->file) && is_ours(fd) && send_hello(link, fd);
}

static void try_now(struct witness_link *link, int64_t now)
{
    int fd = link->given ? link->socket.fd : connect_to(link->path);
    bool there = fd >= 0;
    if (there && greet(link, fd)) {
        link->socket = own_fd_of(fd);
        link->met = true;
        link->tried_ns = now;
        link->try_ns = MORTISE_NEVER;
        link->answer_ns = clock_after_ms(now, ANSWER_MS);
        link_move(link, LINK_GREETED);
        return;
    }
    if (there && !link->given)
        close(fd);
    if (there)
        tell(link, "it cannot be used");
    else if (link->asked_for)
        tell(link, "nobody listens");
    go_away(link, now);
}

void link_begin(struct witness_link *link, uint64_t seed)
{
    link->seed = seed;
    if (!link->given)
        link->socket.fd = -1;
    link->state = LINK_AWAY;
    link->try_ns = INT64_MIN;
}

/* ---- messages ------------------------------------------------------------------------------------ */

struct incoming {
    mortise_witness_message head;
    char text[MORTISE_WITNESS_TEXT_MAX + 1];
};

/* 1: a message. 0: none now. -1: the connection has ended, or the data are no message. */
static int receive(int fd, struct incoming *in)
{
    ssize_t length = recv(fd, in, sizeof(*in) - 1, MSG_DONTWAIT);
    if (length < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (length < (ssize_t)sizeof(in->head) || in->head.magic != MORTISE_WITNESS_MAGIC ||
        in->head.text_len != (size_t)length - sizeof(in->head))
        return -1;
    in->text[in->head.text_len] = '\0';
    make_one_line(in->text);
    return 1;
}

static void refused(struct witness_link *link, const struct incoming *in, int64_t now)
{
    char what[200];
    snprintf(what, sizeof(what), "it refuses this process: %.150s", in->text);
    tell(link, what);
    link_move(link, LINK_REFUSED);
    link->tried_ns = now;
    link->try_ns = link->given ? MORTISE_NEVER : clock_after_ms(now, spread_ms(link, REFUSED_MS));
}

static void heard(struct witness_link *link, const struct incoming *in, int64_t now)
{
    if (in->head.kind == MORTISE_WITNESS_REFUSE)
        refused(link, in, now);
    else if (in->head.version != MORTISE_WITNESS_VERSION)
        lose(link, now, "it has another version");
    else if (in->head.kind == MORTISE_WITNESS_WELCOME)
        link_move(link, LINK_WATCHED);
}

static bool is_connected(const struct witness_link *link)
{
    return link->state == LINK_GREETED || link->state == LINK_WATCHED;
}

static void listen_to_it(struct witness_link *link, int64_t now)
{
    struct incoming in;
    while (is_connected(link)) {
        if (!own_fd_is(&link->socket)) {
            link->socket.fd = -1;
            go_away(link, now);
            return;
        }
        int got = receive(link->socket.fd, &in);
        if (got == 0)
            break;
        if (got < 0)
            lose(link, now, "it has ended");
        else
            heard(link, &in, now);
    }
    if (link->state == LINK_GREETED && now >= link->answer_ns) {
        tell(link, "it does not answer");
        link->answer_ns = MORTISE_NEVER;
    }
}

/* ---- the thread that serves it -------------------------------------------------------------------- */

int link_fd(const struct witness_link *link)
{
    return is_connected(link) ? link->socket.fd : -1;
}

int64_t link_due_ns(const struct witness_link *link)
{
    if (link->state == LINK_GREETED)
        return link->answer_ns;
    return link->state == LINK_AWAY || link->state == LINK_REFUSED ? link->try_ns : MORTISE_NEVER;
}

void link_turn(struct witness_link *link, int64_t now)
{
    if (is_connected(link)) {
        listen_to_it(link, now);
        return;
    }
    if (link->state == LINK_OFF)
        return;
    bool idle = link->try_ns == MORTISE_NEVER && !link->given &&
                now >= clock_after_ms(link->tried_ns, IDLE_MS);
    if (idle || now >= link->try_ns)
        try_now(link, now);
}

bool link_await(struct witness_link *link, int64_t until_ns, char *why, size_t size)
{
    snprintf(why, size, "nobody listens, or it cannot be used");
    if (link->state == LINK_AWAY)
        try_now(link, clock_now());
    while (link->state == LINK_GREETED) {
        int64_t left_ms = (until_ns - clock_now()) / NS_PER_MS;
        struct pollfd poll_for = {.fd = link->socket.fd, .events = POLLIN};
        struct incoming in;
        if (left_ms <= 0 || poll(&poll_for, 1, (int)left_ms) == 0) {
            snprintf(why, size, "it does not answer");
            return false;
        }
        int got = receive(link->socket.fd, &in);
        if (got > 0)
            heard(link, &in, clock_now());
        else if (got < 0)
            go_away(link, clock_now());
        if (link->state != LINK_GREETED)
            snprintf(why, size, "%.150s", got > 0 && in.text[0] != '\0' ? in.text : "it has ended");
    }
    return link->state == LINK_WATCHED;
}

void link_end(struct witness_link *link, bool clean)
{
    if (is_connected(link) && clean && own_fd_is(&link->socket)) {
        mortise_witness_message bye = head_of(MORTISE_WITNESS_BYE);
        send_text(link->socket.fd, &bye, NULL, NULL, 0);
    }
    own_fd_close(&link->socket);
    link->state = LINK_OFF;
}
