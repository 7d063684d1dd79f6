/* net.h - a simulated network between the processes of a run and its real servers. It delays, cuts and blocks, as the seed
 * says; it knows no protocol and no lock.
 *
 *   net.c        connections and what travels on them
 *   net_fault.c  what the plan does to them
 *   net_link.c   connections of one server to another
 *   calls_net.c  the calls of a program
 *
 * A connection has a pair of sockets here: the program has one end (fd), the network the other (far). It also has a real
 * connection to the server (at_server), which begins when the request to connect arrives there. What the program sends
 * travels in the `out` of the connection, piece by piece, and what the server answers in its `in`. A piece arrives at its
 * due_ns, never before an earlier one of the same direction. The server then takes it in, at that instant, before
 * anything else happens.
 *
 * The program's end:
 *
 * state      | connect() | accepted arrives | refused arrives | END arrives | RESET arrives   | close()
 * -----------|-----------|------------------|-----------------|-------------|-----------------|---------
 * FRESH      | CONNECTING| -                | -               | -           | -               | freed
 * CONNECTING | -         | OPEN             | REFUSED         | -           | REFUSED         | CLOSED
 * OPEN       | -         | -                | -               | ENDED       | RESET           | CLOSED
 * REFUSED, ENDED, RESET | nothing arrives any more                                           | CLOSED
 * CLOSED     | what is under way to the server arrives there, unless it is lost; freed when nothing is left
 *
 * until it is OPEN the program's socket takes no bytes: the network has filled it, so that POLLOUT waits. */
#ifndef MORTISE_TESTS_REPLAY_NET_H
#define MORTISE_TESTS_REPLAY_NET_H

#include "sched.h"
#include "server.h"

#include <stddef.h>
#include <sys/types.h>

enum { NET_SERVERS = 5, NET_CONNECTIONS = 256, NET_FDS = 1024 };
#define NET_FIRST_PORT 7000 /* of server 0, on any address */

enum net_way { NET_TO_SERVER, NET_TO_CLIENT, NET_WAYS };
enum net_piece { PIECE_CONNECT, PIECE_ACCEPTED, PIECE_REFUSED, PIECE_DATA, PIECE_END, PIECE_RESET };
enum net_state {
    NET_FRESH,
    NET_CONNECTING,
    NET_OPEN,
    NET_REFUSED,
    NET_ENDED,
    NET_RESET,
    NET_CLOSED
};

struct piece {
    struct piece *next;
    int64_t due_ns;
    uint64_t order; /* of two that are due at one instant, the smaller one arrives first */
    enum net_piece what;
    size_t size, done;
    char bytes[];
};

struct way {
    struct piece *first, *last;
    int64_t last_ns; /* when the last one arrives */
};

struct connection {
    enum net_state state;
    unsigned number;
    int process, server;
    int client;             /* 0: a program; n + 1: the server n */
    int fd, far, at_server; /* -1: none */
    int problem;            /* for SO_ERROR */
    bool abortive;          /* SO_LINGER with no time: what is not sent yet is lost at close() */
    bool dead;              /* it was cut: nothing that is sent from now on travels */
    int64_t held_until_ns;  /* nothing that is sent arrives before */
    struct way ways[NET_WAYS];
};

struct net_settings {
    int64_t least_ns, most_ns; /* how long a piece travels */
    uint32_t slow_one_in;      /* so many pieces: one travels for up to slow_ns more; 0: none */
    int64_t slow_ns;
    uint32_t split_one_in; /* so many pieces: one is cut in two, anywhere; 0: none */
};

struct net {
    bool on, links,
        traced; /* links: servers have connections of their own. traced: the trace tells of each piece that arrives */
    struct net_settings settings;
    struct server servers[NET_SERVERS];
    int server_count;
    struct connection *connections[NET_CONNECTIONS]; /* in the order of their numbers */
    int count;
    unsigned made;
    uint64_t order;
    struct connection *by_fd[NET_FDS];
    struct sched_timer timer;
    bool arriving; /* the timer sets itself afterwards */
    /* until then nothing leaves in this direction between process and server, or leaves later */
    int64_t blocked_until_ns[SCHED_PROCESSES][NET_SERVERS][NET_WAYS];
    int64_t stopped_until_ns[NET_SERVERS]; /* the server takes nothing in */
};
extern struct net net;

/* ---- net.c ---- */

void net_begin(const struct net_settings *settings);
/* Puts a piece on its way. `after_ns`: not counting how long it travels. */
void net_put(struct connection *connection, enum net_way way, enum net_piece what,
             const void *bytes, size_t size, int64_t after_ns);
/* Drops all that travels but the first `kept` bytes. */
void net_truncate(struct connection *connection, enum net_way way, size_t kept);
size_t net_bytes(const struct connection *connection, enum net_way way);
/* All that the servers have to say is put on its way. */
void net_collect(int server);
/* After an instant of arrival was changed. */
void net_set_timer(void);
struct connection *net_of(int fd);

/* ---- net_link.c ---- */

#define NET_LINKS 8 /* the links of server n belong to process NET_LINKS + n */
/* From now on servers may connect to each other, and do their chores though nothing arrives. */
void net_links_begin(const char *folder);
/* All that the server has to say as a client is put on its way. */
void net_collect_links(int client);
/* The server was killed. */
void net_end_links(int client);

/* ---- net.c, for calls_net.c ---- */

int net_socket(void); /* -1: errno */
int net_connect(struct connection *connection, int server);
ssize_t net_send(struct connection *connection, const void *bytes, size_t size);
ssize_t net_receive(struct connection *connection, void *bytes, size_t size, int flags);
/* Before the descriptor is closed. */
void net_close(struct connection *connection);
/* The program has nothing to do with it any more. */
void net_leave(struct connection *connection, bool abortive);

/* ---- net_fault.c ---- */

/* One connection of the process, chosen by the seed, or all of them. */
void net_cut(int process, int server, bool all);
/* What the connections of now have sent, or send, arrives at the server then. New connections are as usual. */
void net_hold(int process, int server, int64_t until_ns);
void net_block(int process, int server, unsigned ways, int64_t until_ns);
void net_stop_server(int server, int64_t until_ns);
void net_kill_server(int server);
void net_start_server(int server);
/* Of a process that was killed. */
void net_end_process(int process);
/* Nothing is blocked or stopped any more, and all servers run. */
void net_repair(void);
/* Sends a line to the server, outside of the simulated network. */
void net_tell(int server, const char *line);
/* Likewise; whether the answer has this text. */
bool net_ask(int server, const char *line, const char *text);

#endif
