/* fake.h - a server that greets as Redis does, permits subscriptions, and then gives the same answer to everything,
 * or no answer, and counts requests: for answers that a real server gives rarely (it is loading, is a node of a
 * cluster, is busy), or never. */
#ifndef MORTISE_TESTS_REDIS_FAKE_H
#define MORTISE_TESTS_REDIS_FAKE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

struct fake {
    int port;
    int listener;
    pthread_t thread;
    pthread_mutex_t lock;
    const char *answer;     /* with its line end */
    const char *afterwards; /* when `answer` was given so often; NULL: never */
    int times;
    bool
        seats; /* who asks for a place is told that it has one, for ten minutes; `answer` is for the others */
    const char *info;  /* what it says to INFO; NULL: an id of the process */
    const char *slots; /* what it says to CLUSTER SLOTS; NULL: as to everything */
    const char *time;  /* what it says to TIME; then it is a primary, too. NULL: as to everything */
    atomic_bool stops;
    atomic_bool silent;    /* scripts have no answer, as long as the connection lasts */
    atomic_bool mute;      /* subscriptions have no answer */
    atomic_int subscribed; /* so often it was asked for one */
    atomic_bool cuts;      /* its connections are to be closed, once */
    atomic_int asked[16];  /* scripts called with so many arguments, keys among them */
    char grant[33];        /* of the last one: the argument behind its keys */
};

bool fake_start(struct fake *fake);
/* From now on; afterwards NULL: always the same. */
void fake_answer(struct fake *fake, const char *answer, int times, const char *afterwards);
/* All locks are held, and who waits has a place. */
void fake_seat(struct fake *fake);
/* Closes its connections; from then on it is silent, or not. */
void fake_cut(struct fake *fake, bool silent);
/* Its map of slots from now on. */
void fake_map(struct fake *fake, const char *slots);
/* What it says to INFO from now on. */
void fake_inform(struct fake *fake, const char *info);
void fake_end(struct fake *fake);

#endif
