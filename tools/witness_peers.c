/* witness_peers.c - the processes that are watched: witness.h has the table of their states. */
#include "witness.h"

#include "clock.h"
#include "exit_code.h"
#include "output.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define MS_NS INT64_C(1000000)
#define NEW_NS (5000 * MS_NS)    /* for a HELLO */
#define SWEEP_NS (60000 * MS_NS) /* between two looks at peers without a socket */
#define PAUSE_NS (500 * MS_NS)   /* without accepting, if the table of descriptors is full */
#define NEVER_NS INT64_MAX
enum { EVENTS_MAX = 64, ACCEPTS_MAX = 64, MESSAGES_MAX = 16 };

enum peer_state { PEER_NEW, PEER_WATCHED, PEER_DEAD, PEER_GONE };

enum source_kind {
    SOURCE_LISTENER,
    SOURCE_SIGNALS,
    SOURCE_BACKENDS,
    SOURCE_SOCKET,
    SOURCE_PROCESS
};

struct peer;

/* What epoll reports. */
struct source {
    enum source_kind kind;
    struct peer *peer;
};

struct peer {
    struct peer *next, *previous; /* of its state */
    enum peer_state state;
    int socket, pidfd, area; /* -1: none */
    struct source of_socket, of_process;
    pid_t pid;
    struct backend *backend; /* from WATCHED on */
    bool welcomed;
    int64_t due_ns; /* NEW: when to give up; DEAD: when to release */
    int64_t crash_delay_ms;
    struct grave *grave; /* DEAD, and the backend is open */
    uint32_t slot;       /* the next one */
    uint64_t written;    /* for claims_may_stand() */
};

static struct server {
    int epoll, listener;
    bool full;        /* the listener is not polled */
    int64_t again_ns; /* when it is polled again */
    int64_t sweep_ns;
    unsigned silent; /* WATCHED, and without a socket */
    struct peer *peers[PEER_GONE + 1];
} server;

/* ---- states ---------------------------------------------------------------------------------------- */

static void link_peer(struct peer *peer)
{
    struct peer **first = &server.peers[peer->state];
    peer->previous = NULL;
    peer->next = *first;
    if (*first != NULL)
        (*first)->previous = peer;
    *first = peer;
}

static void unlink_peer(struct peer *peer)
{
    if (peer->previous != NULL)
        peer->previous->next = peer->next;
    else
        server.peers[peer->state] = peer->next;
    if (peer->next != NULL)
        peer->next->previous = peer->previous;
}

static void shut(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

/* The client may have kept a copy of the descriptor: then closing ours would not end epoll's reports about it. */
static void shut_pidfd(struct peer *peer)
{
    if (peer->pidfd >= 0)
        epoll_ctl(server.epoll, EPOLL_CTL_DEL, peer->pidfd, NULL);
    shut(&peer->pidfd);
}

static void close_socket(struct peer *peer)
{
    if (peer->socket >= 0 && peer->state == PEER_WATCHED)
        server.silent++;
    shut(&peer->socket);
}

/* Every change of a state, as in the table of witness.h. */
static void peer_move(struct peer *peer, enum peer_state state)
{
    if (peer->state == PEER_WATCHED && peer->socket < 0)
        server.silent--;
    unlink_peer(peer);
    peer->state = state;
    link_peer(peer);
    if (state == PEER_DEAD || state == PEER_GONE) {
        shut(&peer->socket);
        shut_pidfd(peer);
    }
    if (state != PEER_GONE)
        return;
    shut(&peer->area);
    if (peer->grave != NULL)
        grave_close(peer->grave);
    if (peer->backend != NULL)
        backend_put(peer->backend);
    peer->grave = NULL;
    peer->backend = NULL;
}

/* Events of the same round may still point at them. */
static void free_gone(void)
{
    while (server.peers[PEER_GONE] != NULL) {
        struct peer *peer = server.peers[PEER_GONE];
        unlink_peer(peer);
        free(peer);
    }
}

static void refuse(struct peer *peer, const char *why)
{
    if (peer->socket >= 0)
        hello_refuse(peer->socket, why);
    witness_say("process %d is not watched: %s", (int)peer->pid, why);
    if (peer->state != PEER_GONE)
        peer_move(peer, PEER_GONE);
}

/* ---- connections ----------------------------------------------------------------------------------- */

static bool poll_for(int fd, struct source *source)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = source};
    return epoll_ctl(server.epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

static bool is_own_user(int socket, struct ucred *credentials)
{
    socklen_t size = sizeof *credentials;
    return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, credentials, &size) == 0 &&
           credentials->uid == geteuid();
}

static void begin_peer(int socket)
{
    struct ucred credentials = {0};
    if (!is_own_user(socket, &credentials)) {
        hello_refuse(socket, "it belongs to another user");
        witness_say("a process of user %ld was refused", (long)credentials.uid);
        close(socket);
        return;
    }
    struct peer *peer = calloc(1, sizeof *peer);
    if (peer == NULL) {
        close(socket);
        return;
    }
    *peer = (struct peer){.state = PEER_NEW,
                          .socket = socket,
                          .pidfd = -1,
                          .area = -1,
                          .of_socket = {SOURCE_SOCKET, peer},
                          .of_process = {SOURCE_PROCESS, peer},
                          .pid = credentials.pid,
                          .due_ns = boottime_ns() + NEW_NS};
    link_peer(peer);
    if (!poll_for(socket, &peer->of_socket))
        refuse(peer, "the witness watches as many processes as it can");
}

static struct source from_listener = {SOURCE_LISTENER, NULL};

static void on_connection(void)
{
    for (int i = 0; i < ACCEPTS_MAX; i++) {
        /* cppcheck-suppress nullPointer ; accept4() needs no room for the address */
        int socket = accept4(server.listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (socket >= 0) {
            begin_peer(socket);
            continue;
        }
        if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
            witness_say("no further process can be watched now: %s", strerror(errno));
            epoll_ctl(server.epoll, EPOLL_CTL_DEL, server.listener, NULL);
            server.full = true;
            server.again_ns = boottime_ns() + PAUSE_NS;
        }
        if (errno != EINTR && errno != ECONNABORTED)
            return;
    }
}

/* ---- messages -------------------------------------------------------------------------------------- */

static void welcome(struct peer *peer)
{
    const mortise_witness_message message = {.kind = MORTISE_WITNESS_WELCOME, .pid = peer->pid};
    if (!peer->welcomed && peer->socket >= 0)
        hello_answer(peer->socket, &message, "");
    peer->welcomed = true;
}

/* The backend has opened, or could not be opened, or is being opened. */
static void look_at_backend(struct peer *peer)
{
    if (peer->backend->state == BACKEND_OPEN)
        welcome(peer);
    else if (peer->backend->state == BACKEND_FAILED)
        refuse(peer, peer->backend->problem);
}

static void on_hello(struct peer *peer, struct hello *hello)
{
    const char *problem = peer->state == PEER_NEW ? hello_problem(peer->socket, hello, &peer->pid)
                                                  : "it is watched already";
    if (problem == NULL && hello_takes_spare(hello))
        problem = "the witness watches as many processes as it can";
    if (problem == NULL) {
        peer->backend = backend_get(hello->text, hello->head.print);
        if (peer->backend == NULL)
            problem = "the witness has too many configurations open";
        else if (!poll_for(hello->pidfd, &peer->of_process))
            problem = "the witness watches as many processes as it can";
    }
    if (problem != NULL) {
        shut(&hello->pidfd);
        shut(&hello->area);
        if (peer->state == PEER_NEW)
            refuse(peer, problem);
        return;
    }
    peer->pidfd = hello->pidfd;
    peer->area = hello->area;
    peer->crash_delay_ms = hello->head.crash_delay_ms;
    peer_move(peer, PEER_WATCHED);
    look_at_backend(peer);
}

static void on_ask(const struct peer *asker, pid_t pid)
{
    mortise_witness_message tell = {.kind = MORTISE_WITNESS_TELL, .pid = pid};
    for (const struct peer *peer = server.peers[PEER_WATCHED]; peer != NULL; peer = peer->next)
        tell.count += peer->pid == pid && peer->welcomed;
    hello_answer(asker->socket, &tell, "");
}

/* NEW: nothing is known about the peer, so it is dropped. WATCHED: its process may live, so it is still watched. */
static void on_broken(struct peer *peer, bool garbage)
{
    if (peer->state == PEER_NEW && garbage) {
        refuse(peer, "its message makes no sense");
        return;
    }
    if (garbage)
        witness_say("process %d sent garbage", (int)peer->pid);
    if (peer->state == PEER_NEW)
        peer_move(peer, PEER_GONE);
    else
        close_socket(peer);
}

static void on_message(struct peer *peer, struct hello *hello)
{
    bool known = hello->head.version == MORTISE_WITNESS_VERSION;
    if (hello->head.kind == MORTISE_WITNESS_HELLO || !known)
        on_hello(peer, hello);
    else if (hello->head.kind == MORTISE_WITNESS_ASK)
        on_ask(peer, hello->head.pid);
    else if (hello->head.kind == MORTISE_WITNESS_BYE)
        peer_move(peer, PEER_GONE);
    else
        on_broken(peer, true);
}

static void on_socket(struct peer *peer)
{
    static struct hello hello;
    for (int i = 0; i < MESSAGES_MAX && peer->socket >= 0; i++) {
        switch (hello_receive(peer->socket, &hello)) {
        case HEARD_NOTHING:
            return;
        case HEARD_MESSAGE:
            on_message(peer, &hello);
            break;
        case HEARD_GARBAGE:
            on_broken(peer, true);
            break;
        case HEARD_END:
            on_broken(peer, false);
            break;
        }
    }
}

/* ---- death ------------------------------------------------------------------------------------------- */

static void on_death(struct peer *peer)
{
    if (peer->state != PEER_WATCHED)
        return;
    peer_move(peer, PEER_DEAD);
    peer->due_ns = boottime_ns() + peer->crash_delay_ms * MS_NS;
}

/* Passes the peer's slots on. False: too many releases are under way, and the peer goes on later. */
static bool pass_on_slots(struct peer *peer)
{
    static mortise_witness_slot slot;
    for (;;) {
        uint32_t index = peer->slot;
        if (!claims_next(peer->area, &index, &slot))
            return true;
        mortise_status status = grave_release(peer->grave, &slot);
        if (status == MORTISE_BUSY || status == MORTISE_NOMEM)
            return false;
        if (status == MORTISE_INVALID)
            witness_say("process %d has left a slot that makes no sense", (int)peer->pid);
        peer->slot = index;
    }
}

/* False: try again later, because the backend has too many releases under way, or there is no memory. */
static bool bury(struct peer *peer)
{
    if (peer->backend->state == BACKEND_FAILED) {
        refuse(peer, peer->backend->problem);
        return true;
    }
    if (peer->grave == NULL)
        peer->grave = grave_dig(peer->backend, peer->pid);
    if (peer->grave == NULL || !pass_on_slots(peer))
        return false;
    peer_move(peer, PEER_GONE);
    return true;
}

/* Returns when to call it again at the latest. */
static int64_t bury_dead(int64_t now)
{
    int64_t due_ns = NEVER_NS;
    bool busy = false;
    for (struct peer *peer = server.peers[PEER_DEAD], *next; peer != NULL; peer = next) {
        next = peer->next;
        if (peer->due_ns > now)
            due_ns = peer->due_ns < due_ns ? peer->due_ns : due_ns;
        else if (peer->backend->state != BACKEND_OPENING && !bury(peer))
            busy = true; /* the next one may have another backend */
    }
    return busy && due_ns > now + 100 * MS_NS ? now + 100 * MS_NS : due_ns;
}

/* ---- time -------------------------------------------------------------------------------------------- */

static void end_late_ones(int64_t now)
{
    for (struct peer *peer = server.peers[PEER_NEW], *next; peer != NULL; peer = next) {
        next = peer->next;
        if (peer->due_ns <= now)
            peer_move(peer, PEER_GONE);
    }
}

/* Frees peers without a socket whose claims have all ended: the program called exec, closed its descriptors, or closed its
 * client and could not release everything. */
static void sweep_silent(int64_t now)
{
    if (now < server.sweep_ns)
        return;
    server.sweep_ns = now + SWEEP_NS;
    for (struct peer *peer = server.peers[PEER_WATCHED], *next; peer != NULL; peer = next) {
        next = peer->next;
        if (peer->socket < 0 && !claims_may_stand(peer->area, now, &peer->written))
            peer_move(peer, PEER_GONE);
    }
}

static void look_at_backends(int64_t now)
{
    if (!backends_turn(now))
        return;
    for (struct peer *peer = server.peers[PEER_WATCHED], *next; peer != NULL; peer = next) {
        next = peer->next;
        if (!peer->welcomed)
            look_at_backend(peer);
    }
}

static void accept_again(int64_t now)
{
    if (!server.full || now < server.again_ns)
        return;
    server.full = !poll_for(server.listener, &from_listener);
    server.again_ns = now + PAUSE_NS;
}

/* Milliseconds until something is due, rounded up. */
static int next_ms(int64_t now, int64_t due_ns)
{
    int64_t most_ns = now + SWEEP_NS;
    if (server.peers[PEER_NEW] != NULL && now + 1000 * MS_NS < most_ns)
        most_ns = now + 1000 * MS_NS;
    if (server.full && server.again_ns < most_ns)
        most_ns = server.again_ns;
    if (due_ns < most_ns)
        most_ns = due_ns;
    return most_ns <= now ? 0 : (int)((most_ns - now) / MS_NS) + 1;
}

/* ---- the loop ---------------------------------------------------------------------------------------- */

/* False: a signal ends the witness. */
static bool on_event(const struct source *source)
{
    switch (source->kind) {
    case SOURCE_LISTENER:
        on_connection();
        break;
    case SOURCE_SIGNALS:
        return false;
    case SOURCE_BACKENDS:
        break; /* looked at in each round */
    case SOURCE_SOCKET:
        on_socket(source->peer);
        break;
    case SOURCE_PROCESS:
        on_death(source->peer);
        break;
    }
    return true;
}

static bool round_of_events(void)
{
    struct epoll_event events[EVENTS_MAX];
    int64_t now = boottime_ns();
    bool goes_on = true;

    look_at_backends(now);
    int wait_ms = next_ms(now, bury_dead(now));
    free_gone();
    int count = epoll_wait(server.epoll, events, EVENTS_MAX, wait_ms);
    for (int i = 0; i < count; i++)
        goes_on = on_event(events[i].data.ptr) && goes_on;
    now = boottime_ns();
    end_late_ones(now);
    if (server.silent > 0)
        sweep_silent(now);
    accept_again(now);
    free_gone();
    return goes_on;
}

static void end_all(void)
{
    for (int state = PEER_NEW; state < PEER_GONE; state++)
        while (server.peers[state] != NULL)
            peer_move(server.peers[state], PEER_GONE);
    free_gone();
}

int peers_serve(int listener, int signals)
{
    static struct source from_signals = {SOURCE_SIGNALS, NULL};
    static struct source from_backends = {SOURCE_BACKENDS, NULL};
    int wake = backends_begin();

    server = (struct server){.epoll = epoll_create1(EPOLL_CLOEXEC), .listener = listener};
    if (server.epoll < 0 || wake < 0 || !poll_for(listener, &from_listener) ||
        !poll_for(signals, &from_signals) || !poll_for(wake, &from_backends)) {
        say("witness: %s", strerror(errno));
        return EXIT_SYSTEM;
    }
    while (round_of_events())
        continue;
    end_all();
    return EXIT_DONE;
}
