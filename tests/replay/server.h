/* server.h - real servers that go on only when the run lets them (puppet.h). Knows processes, turns and sockets; no
 * protocol, and no lock. */
#ifndef MORTISE_TESTS_REPLAY_SERVER_H
#define MORTISE_TESTS_REPLAY_SERVER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { SERVER_ARGUMENTS = 64 };

struct puppet;
struct server {
    pid_t pid; /* 0: it is down */
    unsigned starts;
    int number;
    uint64_t seed;
    int64_t wall_offset_ns;
    int64_t drift_ppm; /* its time of day runs faster by this */
    int64_t age_ns;    /* how long it has been running when the run begins */
    int memory;
    struct puppet *puppet;
    char folder[280], socket[300];           /* its own folder; where it listens */
    const char *arguments[SERVER_ARGUMENTS]; /* NULL behind the last */
};

/* Makes the folder; the caller sets the arguments then. */
void server_prepare(struct server *server, const char *folder, int number, uint64_t seed);
/* Returns when it listens. */
void server_start(struct server *server);
/* As SIGKILL does it. */
void server_kill(struct server *server);
/* It takes in all that was sent to it, at the present instant. */
void server_turn(struct server *server);
/* A connection of the real machine. */
int server_connect(struct server *server);

#endif
