/* random.h - random bytes from the kernel, fetched a page at a time. The caller serialises all calls on one pool. */
#ifndef MORTISE_CORE_RANDOM_H
#define MORTISE_CORE_RANDOM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RANDOM_POOL_SIZE 2048

struct random_pool {
    unsigned char bytes[RANDOM_POOL_SIZE];
    size_t left; /* not handed out yet: the first ones */
};

/* Fetches the first bytes; false: the kernel gives none (errno says why). */
bool random_init(struct random_pool *pool);
/* Aborts if the kernel stops giving random bytes: no grant id may ever be made without them. */
void random_fill(struct random_pool *pool, void *bytes, size_t size);
/* A number from 0 to below - 1; 0 if below is 1 or less. */
int64_t random_below(struct random_pool *pool, int64_t below);

#endif
