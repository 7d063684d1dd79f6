/* waiters.c - the list of waiters in a row: inboxes in the order of their coming, and until when each sleeps
 * if nobody tells it anything. */
#include "waiters.h"

#include <string.h>

/* When a waiter asks again by itself: in tenths of a second, rounded up. 32 bits of them are 13 years, after
 * which they begin anew: two are compared by their difference. */
static uint32_t ticks_of(int64_t us)
{
    return (uint32_t)(us / 100000 + (us % 100000 > 0));
}

static uint32_t waiter_ticks(const unsigned char *waiter)
{
    const unsigned char *at = waiter + ROWLEASE_INBOX_SIZE;
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static void waiter_set_ticks(unsigned char *waiter, uint32_t ticks)
{
    for (size_t i = 0; i < 4; i++)
        waiter[ROWLEASE_INBOX_SIZE + i] = (unsigned char)(ticks >> (24 - 8 * i));
}

static bool is_inbox(const unsigned char *waiter, const struct rowlease_inbox *inbox)
{
    return memcmp(waiter, inbox->bytes, ROWLEASE_INBOX_SIZE) == 0;
}

bool waiter_is_first(const struct rowlease_row *row, const struct rowlease_inbox *inbox)
{
    return row->waiters_len > 0 && is_inbox(row->waiters, inbox);
}

static size_t waiter_find(const struct rowlease_row *row, const struct rowlease_inbox *inbox)
{
    size_t at = 0;
    while (at < row->waiters_len && !is_inbox(row->waiters + at, inbox))
        at += ROWLEASE_WAITER_SIZE;
    return at;
}

void waiter_remove_at(struct rowlease_row *row, size_t at)
{
    size_t after = at + ROWLEASE_WAITER_SIZE;
    memmove(row->waiters + at, row->waiters + after, row->waiters_len - after);
    row->waiters_len -= ROWLEASE_WAITER_SIZE;
}

bool waiter_remove(struct rowlease_row *row, const struct rowlease_inbox *inbox)
{
    size_t at = waiter_find(row, inbox);
    if (at >= row->waiters_len)
        return false;
    waiter_remove_at(row, at);
    return true;
}

bool waiter_add(struct rowlease_row *row, const struct rowlease_inbox *inbox, bool *changed)
{
    size_t at = waiter_find(row, inbox);
    uint32_t ticks = ticks_of(row->expires_us);
    if (at == row->waiters_len) {
        if (at + ROWLEASE_WAITER_SIZE > sizeof(row->waiters))
            return false;
        memcpy(row->waiters + at, inbox->bytes, ROWLEASE_INBOX_SIZE);
        row->waiters_len += ROWLEASE_WAITER_SIZE;
    } else if (waiter_ticks(row->waiters + at) == ticks) {
        return true;
    }
    waiter_set_ticks(row->waiters + at, ticks);
    *changed = true;
    return true;
}

size_t rowlease_waiters(const unsigned char *list, size_t len, struct rowlease_inbox *inboxes,
                        size_t max)
{
    size_t count = len / ROWLEASE_WAITER_SIZE;
    for (size_t i = 0; i < count && i < max; i++)
        memcpy(inboxes[i].bytes, list + i * ROWLEASE_WAITER_SIZE, ROWLEASE_INBOX_SIZE);
    return count;
}

bool rowlease_oversleeps(const unsigned char *list, size_t len, int64_t expires_us)
{
    return len >= ROWLEASE_WAITER_SIZE && (int32_t)(waiter_ticks(list) - ticks_of(expires_us)) > 0;
}

bool waiter_oversleeps(const struct rowlease_row *row)
{
    return rowlease_oversleeps(row->waiters, row->waiters_len, row->expires_us);
}
