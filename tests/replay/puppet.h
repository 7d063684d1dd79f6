/* puppet.h - what a run and a real server share: whose turn it is, and the server's clock.
 *
 * The run preloads libreplay_puppet.so (puppet.c) into the server. There the clocks stand at the instants below, and the
 * server waits for its turn whenever it would wait for a descriptor and none is ready. So what it answers is a function of
 * what it was sent and of these instants: no timer of the real machine ends a wait.
 *
 * turn   | who goes on                                              | becomes
 * -------|----------------------------------------------------------|--------------------------------------
 * SERVER | the server: it takes what is ready and what is due       | RUN, when nothing is ready any more
 * RUN    | the run: it reads and writes sockets and moves the clock | SERVER, in server_turn()
 *
 * The server ends in its turn: the run sees that by waitpid(). The run ends: the kernel kills the server. */
#ifndef MORTISE_TESTS_REPLAY_PUPPET_H
#define MORTISE_TESTS_REPLAY_PUPPET_H

#include <stdatomic.h>
#include <stdint.h>

/* In the server's environment: the number of the descriptor that has the memory below. */
#define PUPPET_VARIABLE "REPLAY_PUPPET"

enum puppet_turn { TURN_RUN, TURN_SERVER };

struct puppet {
    _Atomic uint32_t turn; /* a futex */
    int64_t wall_ns, steady_ns;
    uint64_t seed; /* of the server's random numbers */
    int32_t pid;   /* what getpid() says there */
};

#endif
