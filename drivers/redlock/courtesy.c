/* courtesy.c - a client that has released a contended lock lets the waiters come first.
 *
 * A release wakes the waiters (pubsub.c). But the next caller of this process would ask at the same moment, before any
 * waiter has heard of the release. So a process with many callers would get the lock again and again, and the others
 * never. Therefore an acquire waits for a moment if the last release of that name, or one shortly before it, met the mark
 * of a refused caller: twice as long as a message and a vote take. This grants nothing to anybody, and makes no order; it
 * only gives the others a chance. A caller that must not wait (MORTISE_OP_TRY) does not pause.
 *
 * Whether a caller was refused is known only when the release is answered, and the next acquire is sent before that. So
 * the first release of a name that has become contended has no pause after it, and the last one has. */
#include "redlock.h"

#define CONTENDED_NS (INT64_C(10000) * NS_PER_MS) /* how long a name counts as contended */
#define LEAST_NS NS_PER_MS
#define MOST_NS (INT64_C(5) * NS_PER_MS)

static unsigned hash_of(const char *name, size_t name_len)
{
    unsigned hash;
    HASH_VALUE(name, name_len, hash);
    return hash;
}

/* Long enough for the message, for a vote, and for the waiters' own delay (pubsub.c). */
static int64_t start_ns(const struct driver *driver)
{
    int64_t ns = LEAST_NS + 4 * clock_quorum_trip_ns(driver) + driver->spread_ns;
    return ns < MOST_NS ? ns : MOST_NS;
}

void courtesy_released(struct driver *driver, const char *name, size_t name_len)
{
    unsigned hash = hash_of(name, name_len);
    struct courtesy *courtesy = &driver->courtesies[hash % COURTESIES];
    int64_t now = now_of(driver);
    if (courtesy->hash == hash && now < courtesy->contended_ns)
        courtesy->until_ns = now + start_ns(driver);
}

void courtesy_answered(struct driver *driver, const char *name, size_t name_len, bool contended)
{
    unsigned hash = hash_of(name, name_len);
    struct courtesy *courtesy = &driver->courtesies[hash % COURTESIES];
    int64_t now = now_of(driver);
    if (contended)
        *courtesy = (struct courtesy){hash, now + start_ns(driver), now + CONTENDED_NS};
    else if (courtesy->hash == hash)
        courtesy->until_ns = courtesy->contended_ns = 0;
}

int64_t courtesy_until_ns(const struct driver *driver, const mortise_op *op)
{
    unsigned hash = hash_of(op->name, op->name_len);
    const struct courtesy *courtesy = &driver->courtesies[hash % COURTESIES];
    if ((op->flags & (MORTISE_OP_TRY | MORTISE_OP_REPEAT)) != 0 || courtesy->hash != hash)
        return 0;
    return courtesy->until_ns;
}
