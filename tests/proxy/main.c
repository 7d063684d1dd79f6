/* main.c - the fault proxy of the tests: on command it does to a client and a server what networks do to them. One
 * thread, one poll loop; knows bytes and connections, and of their meaning only ports (ports.c).
 *
 * proxy CONTROL HOST PORT [listen=ADDRESS] [with=PID]
 *   forwards from a free port of the loopback interface (printed: PORT=N) to HOST PORT (numeric), and takes commands at the
 *   unix socket CONTROL. Ends on SIGTERM, or when its stdin ends; with=PID: when that process ends.
 * proxy say CONTROL COMMAND…
 *   sends a command, waits until it is in force, prints the answer.
 *
 * "up" is from the client to the server. Commands are cumulative until `pass`:
 *   pass                  forget all other commands. Held bytes are forwarded; a connection that has lost bytes is cut
 *   hold, hold-up, hold-down   accept bytes and connections, but forward nothing, not even the end of a connection. While
 *                         up is held, the server sees no new connection
 *   lose                  forward requests, and drop what the server sends
 *   cut                   reset all connections, now
 *   cut-after up|down N [each]   reset the first connection over which N bytes have gone that way, counted from now or
 *                         from its beginning, right after them (N = 0: in place of the next byte). `each`: do so with
 *                         every connection, until `pass`
 *   cut-reply N           instead of the N-th chunk that comes from a server from now on, reset its connection: the
 *                         request was executed, and the reply is lost
 *   refuse                refuse new connections, and reset the existing ones
 *   accept                accept connections again
 *   delay MS up|down|both forward each chunk that much later
 *   map PORT PORT2        PORT in what a node of a Redis Cluster says of the nodes becomes PORT2, from now on: the port of the proxy
 *                         in front of that node. `pass` keeps it
 *   count                 now=, ever= connections; up=, down= bytes forwarded; up_taken=, down_taken= bytes received,
 *                         including lost and held ones; cut=, cut-after-up=, cut-after-down=, cut-reply= connections
 *                         that were reset in that way
 *   quit                  end the proxy */
#include "internal.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

static int control, life = STDIN_FILENO;

static size_t link_count(void)
{
    struct link *link;
    size_t now;
    DL_COUNT(links, link, now);
    return now;
}

/* Waits for the next event. ready: the control socket, our life, the listener, then two of each link. */
static bool wait_ready(struct pollfd *ready)
{
    struct link *link;
    int timeout = -1;
    nfds_t n = 3;
    ready[0] = (struct pollfd){.fd = control, .events = POLLIN};
    ready[1] = (struct pollfd){.fd = life, .events = POLLIN};
    ready[2] = (struct pollfd){.fd = listener, .events = POLLIN};
    DL_FOREACH (links, link) {
        timeout = timeout_of(link, test_now_ms(), timeout);
        for (int way = UP; way < WAYS; way++) {
            short events = wanted(link, way);
            ready[n++] = (struct pollfd){.fd = events ? link->fds[way] : -1, .events = events};
        }
    }
    return poll(ready, n, timeout) >= 0 || errno == EINTR;
}

static void attend_all(const struct pollfd *ready)
{
    struct link *link;
    DL_FOREACH (links, link) {
        for (int way = UP; way < WAYS; way++, ready++)
            if (ready->fd >= 0 && ready->revents)
                attend(link, way);
    }
}

static void serve_all(void)
{
    struct link *link, *next;
    DL_FOREACH_SAFE (links, link, next) {
        serve_link(link);
        if (link->over) {
            DL_DELETE(links, link);
            free(link);
        }
    }
}

static bool goes_on(short life_ready)
{
    char bytes[64];
    return !life_ready || (life == STDIN_FILENO && read(life, bytes, sizeof bytes) > 0);
}

static int loop(void)
{
    for (bool more = true; more;) {
        struct pollfd *ready = calloc(3 + 2 * link_count(), sizeof *ready);
        more = ready && wait_ready(ready);
        if (more) {
            attend_all(ready + 3);
            accept_all(); /* before the command: who connected before it was given is under it */
            if (ready[0].revents)
                hear_command(control);
            serve_all();
            more = goes_on(ready[1].revents) && !rules.quit;
        }
        free(ready);
    }
    return 0;
}

static bool resolve(const char *host, const char *port, struct addrinfo **found)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV};
    return getaddrinfo(host, port, &hints, found) == 0;
}

static bool open_control(const char *path)
{
    struct sockaddr_un here = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof here.sun_path)
        return false;
    memcpy(here.sun_path, path, strlen(path) + 1);
    unlink(path);
    control = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    return control >= 0 && bind(control, (struct sockaddr *)&here, sizeof here) == 0;
}

static bool read_option(const char *option, const char **listen_at)
{
    int64_t pid;
    if (strncmp(option, "listen=", 7) == 0) {
        *listen_at = option + 7;
        return true;
    }
    if (strncmp(option, "with=", 5) != 0 || !read_number(option + 5, &pid))
        return false;
    life = (int)syscall(SYS_pidfd_open, (pid_t)pid, 0);
    return life >= 0;
}

static int run(int argc, char **argv)
{
    const char *listen_at = "127.0.0.1";
    struct addrinfo *here = NULL;
    int port = 0;
    for (int i = 4; i < argc; i++)
        if (!read_option(argv[i], &listen_at)) {
            fprintf(stderr, "proxy: what is \"%s\"?\n", argv[i]);
            return 64;
        }
    if (resolve(listen_at, "0", &here) && resolve(argv[2], argv[3], &server) &&
        open_control(argv[1]))
        port = listen_first(here);
    if (port == 0) {
        perror("proxy: cannot listen, or a bad address");
        return 1;
    }
    freeaddrinfo(here);
    printf("PORT=%d\n", port);
    int code = fflush(stdout) == 0 ? loop() : 1;
    unlink(argv[1]);
    return code;
}

static int say(int argc, char **argv)
{
    char line[256] = "", answer[512];
    for (int i = 3; i < argc; i++) {
        size_t used = strlen(line);
        snprintf(line + used, sizeof line - used, "%s%s", used ? " " : "", argv[i]);
    }
    if (!test_proxy_ask(argv[2], line, answer, sizeof answer)) {
        fprintf(stderr, "proxy: nobody answers at %s\n", argv[2]);
        return 1;
    }
    puts(answer);
    return strncmp(answer, "error", 5) == 0 ? 64 : 0;
}

int main(int argc, char **argv)
{
    signal(SIGPIPE, SIG_IGN);
    if (argc >= 4 && strcmp(argv[1], "say") == 0)
        return say(argc, argv);
    if (argc >= 4)
        return run(argc, argv);
    fprintf(stderr, "usage: proxy CONTROL HOST PORT [listen=ADDRESS] [with=PID]\n"
                    "       proxy say CONTROL COMMAND…\n");
    return 64;
}
