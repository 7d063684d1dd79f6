/* courtesy.c - who gave a lock back lets those come first who were refused it.
 *
 * A release tells who waits (news.c), but the next caller of this process would ask in the same breath, before any of
 * them has heard of it; so a process with many callers would have the lock again and again, and the others never. So an
 * acquire waits for a moment where the last release of that name, or one not long before it, met the mark of somebody who
 * was refused: for as long as a message and a vote take, twice over. Nobody is granted anything by that, and where
 * nobody comes the name is free meanwhile; it makes no order, only a chance. Who must not wait (wait 0) does not.
 *
 * Whether anybody was refused is known when the release is answered, and the next acquire is sent with it. So the
 * first release of a name that has become contended is not followed by a pause, and the last one is. */
#include "internal.h"

#define CONTENDED_NS (INT64_C(10000) * NS_PER_MS) /* for so long it is taken to be so */
#define LEAST_NS NS_PER_MS
#define MOST_NS (INT64_C(5) * NS_PER_MS)

static unsigned hash_of(const char *name, size_t name_len)
{
    unsigned hash;
    HASH_VALUE(name, name_len, hash);
    return hash;
}

/* Long enough for the message, and for the votes of who was told, with what they spread them by (news.c). */
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

void courtesy_told(struct driver *driver, const char *name, size_t name_len, bool told)
{
    unsigned hash = hash_of(name, name_len);
    struct courtesy *courtesy = &driver->courtesies[hash % COURTESIES];
    int64_t now = now_of(driver);
    if (told)
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
