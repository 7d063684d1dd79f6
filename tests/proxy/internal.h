/* internal.h - what the parts of the fault proxy share: the commands in force, the counters, and the connections. One
 * thread. */
#ifndef MORTISE_TESTS_PROXY_INTERNAL_H
#define MORTISE_TESTS_PROXY_INTERNAL_H

#include <proxy.h>

#include <netdb.h>
#include <sys/socket.h>
#include <utlist.h>

/* From the client to the server, and back. */
enum way { UP, DOWN, WAYS };

/* ---- commands.c: what was commanded, until `pass` ------------------------------------------------ */

struct rules {
    bool held[WAYS], losing, quit;
    int64_t delay_ms[WAYS];
    int64_t budget[WAYS]; /* of cut-after, for a new connection; -1: none */
    bool budget_each[WAYS];
    int64_t replies_to_cut;
};
extern struct rules rules;

/* Reads one command from the control socket, obeys and answers. */
void hear_command(int control);
/* A whole number of at most 2^31 - 1. */
bool read_number(const char *word, int64_t *number);

/* ---- ports.c: ports in what servers send ---------------------------------------------------------- */

#define PARTIAL_MAX 20 /* the longest beginning of a port that may be at the end of what has come */

/* From now on. False: not two ports of five digits, or too many. */
bool map_port(const char *from, const char *to);
/* Changes the ports in it. Returns how many bytes are ready: what is behind them may be the beginning of one. */
size_t map_ports(char *bytes, size_t size);

/* ---- links.c: connections ------------------------------------------------------------------------ */

enum what { BYTES, END, RESET };

/* What was taken and is to be forwarded, ends of connections too: they keep their place in the order. */
struct chunk {
    struct chunk *prev, *next;
    enum what what;
    int64_t due_ms;
    size_t size, sent;
    char bytes[];
};

struct flow {
    struct chunk *chunks;
    size_t kept;
    int64_t budget; /* of cut-after; -1: none */
    bool blocked;   /* the receiver's buffers are full */
    bool all_taken; /* nothing more is to be read */
    bool all_given; /* nothing more is to be forwarded */
};

struct link {
    struct link *prev, *next;
    int fds[WAYS]; /* where each way comes from: the client's, the server's (-1: not yet) */
    bool connected, lost;
    bool cutting;              /* as soon as what was forwarded has left */
    bool over;                 /* closed; to be freed at the end of the round */
    char partial[PARTIAL_MAX]; /* from the server: it may be the beginning of a port */
    size_t partial_size;
    struct flow flows[WAYS];
};
extern struct link *links;
extern struct addrinfo *server; /* where they go */

struct counts {
    uint64_t ever, given[WAYS], taken[WAYS];
    /* Connections that were reset: by `cut`, by `cut-after`, by `cut-reply`. */
    uint64_t cut, cut_after[WAYS], cut_reply;
};
extern struct counts counts;

void new_link(int fd);
void close_fd(int fd, bool reset);
void close_link(struct link *link, bool reset);
/* The events waited for on the descriptor that this way comes from; 0: none. */
short wanted(const struct link *link, enum way way);
/* How long poll may wait for the sake of this link, at most `timeout`, where -1 is for ever. */
int timeout_of(const struct link *link, int64_t now_ms, int timeout);
/* That descriptor is ready. */
void attend(struct link *link, enum way way);
/* Forwards what may be forwarded now. */
void serve_link(struct link *link);

/* ---- listen.c: the port -------------------------------------------------------------------------- */

extern int listener; /* -1: connections are refused */

/* On a free port of the address. 0: it cannot be done. */
int listen_first(const struct addrinfo *here);
bool listen_again(void);
void listen_no_more(void);
void accept_all(void);

#endif
