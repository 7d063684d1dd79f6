/* fake.h - a server that greets as Redis does and then gives one answer to everything: for what a real one says
 * rarely (it is loading, it is a node of a cluster, it is busy), or never. */
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
    const char *time; /* what it says to TIME; then it is a primary, too. NULL: as to everything */
    atomic_bool stops;
};

bool fake_start(struct fake *fake);
/* From now on; afterwards NULL: always the same. */
void fake_answer(struct fake *fake, const char *answer, int times, const char *afterwards);
void fake_end(struct fake *fake);

#endif
