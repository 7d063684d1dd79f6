/* liar.h - a server that lies: it sends what no server of its kind would send, or it is in front of a real one and
 * changes what that sends. One thread for each; knows bytes and connections, not their meaning. */
#ifndef MORTISE_TESTS_HOSTILE_LIAR_H
#define MORTISE_TESTS_HOSTILE_LIAR_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What it does on every connection. Bytes are text with a size: they may have NULs. */
struct act {
    const char *name;
    const char *greeting; /* at once; NULL: nothing */
    size_t greeting_size;
    int polite; /* so many pieces from the client are answered politely first */
    const char *manners;
    size_t manners_size;
    const char *answer; /* to each piece after that; NULL: nothing, it is silent */
    size_t answer_size;
    enum { STAY, CLOSE, RESET } then; /* after the first answer, or in place of one */
    bool endless;                     /* the answer again and again, whoever asks */
    bool drips;                       /* a byte at a time */
    bool is_plausible;                /* it may be taken for an honest one */
    bool passes;                      /* what it says may be over soon: no call fails for good */
};
#define TEXT(text) (text), sizeof(text) - 1

/* How what a real server says is changed, at one byte of a connection. */
enum how { OTHER, LENGTH, BYTE_LESS, TWICE, LESS, NONSENSE, HOWS };
#define ANYHOW ((1u << HOWS) - 1)

/* All of it comes from the seed. */
struct change {
    int port;        /* of the real one; 0: there is none */
    uint64_t random; /* of each connection every second one is left alone */
    size_t within;   /* one of its first bytes */
    unsigned how;    /* bits */
};

struct liar {
    int listener, port;
    pthread_t thread;
    atomic_bool stops;
    struct act act;
    struct change change;
};

bool liar_start(struct liar *liar, const struct act *act, const struct change *change);
void liar_end(struct liar *liar);

#endif
