/* random.c - see random.h. */
#include "base/random.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

static bool refill(struct random_pool *pool)
{
    ssize_t got;
    do
        got = getrandom(pool->bytes, sizeof(pool->bytes), 0);
    while (got < 0 && errno == EINTR);
    pool->left = got > 0 ? (size_t)got : 0;
    return got > 0;
}

bool random_init(struct random_pool *pool)
{
    return refill(pool);
}

void random_fill(struct random_pool *pool, void *bytes, size_t size)
{
    char *out = bytes;
    while (size > 0) {
        if (pool->left == 0 && !refill(pool))
            abort();
        size_t n = size < pool->left ? size : pool->left;
        pool->left -= n;
        memcpy(out, pool->bytes + pool->left, n);
        out += n;
        size -= n;
    }
}

int64_t random_below(struct random_pool *pool, int64_t below)
{
    uint32_t number;
    if (below <= 1)
        return 0;
    random_fill(pool, &number, sizeof(number));
    uint64_t span = below < UINT32_MAX ? (uint64_t)below : UINT32_MAX;
    return (int64_t)((uint64_t)number * span >> 32);
}
