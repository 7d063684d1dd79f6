/* bar.c - a waiting writer bars new readers, so that it gets its turn. The nodes keep readers out for two seconds after
 * each of its tries (undo_shared.lua), but not in the half second after a downgrade. A vote for the writer removes the bar
 * on the node that gave it. A client remembers which names it has barred, so that this costs nothing if nobody shares
 * locks. */
#include "redlock.h"

#define BAR_NS (INT64_C(2000) * NS_PER_MS) /* as in undo_shared.lua */

static unsigned slot_of(const char *name, size_t name_len)
{
    unsigned hash;
    HASH_VALUE(name, name_len, hash);
    return hash % BARRED;
}

void bar_set(struct driver *driver, const char *name, size_t name_len)
{
    driver->barred_until_ns[slot_of(name, name_len)] = now_of(driver) + BAR_NS;
}

bool bar_is_set(const struct driver *driver, const char *name, size_t name_len)
{
    return now_of(driver) < driver->barred_until_ns[slot_of(name, name_len)];
}
