/* waiters.c - the list of waiters in a row: inboxes, in the order in which they came. */
#include "waiters.h"

#include <string.h>

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
    if (at < row->waiters_len)
        return true;
    if (at + ROWLEASE_WAITER_SIZE > sizeof(row->waiters))
        return false;
    memset(row->waiters + at, 0, ROWLEASE_WAITER_SIZE);
    memcpy(row->waiters + at, inbox->bytes, ROWLEASE_INBOX_SIZE);
    row->waiters_len += ROWLEASE_WAITER_SIZE;
    *changed = true;
    return true;
}

/* ---- those that wait for a shared claim -------------------------------------------------------------- */

static bool is_shared(const unsigned char *waiter)
{
    return waiter[ROWLEASE_WAITER_SIZE - 1] == ROWLEASE_WANTS_SHARED;
}

void waiter_wants(struct rowlease_row *row, const struct rowlease_inbox *inbox, bool shared,
                  bool *changed)
{
    unsigned char *waiter = row->waiters + waiter_find(row, inbox);
    if (is_shared(waiter) == shared)
        return;
    waiter[ROWLEASE_WAITER_SIZE - 1] = shared ? ROWLEASE_WANTS_SHARED : 0;
    *changed = true;
}

size_t waiters_shared(const struct rowlease_row *row)
{
    size_t count = 0;
    for (size_t at = 0; at < row->waiters_len; at += ROWLEASE_WAITER_SIZE)
        count += is_shared(row->waiters + at);
    return count;
}

bool waiter_is_shared(const struct rowlease_row *row, const struct rowlease_inbox *inbox,
                      size_t among)
{
    for (size_t at = 0; at < row->waiters_len && among > 0 && inbox != NULL;
         at += ROWLEASE_WAITER_SIZE) {
        if (!is_shared(row->waiters + at))
            continue;
        if (is_inbox(row->waiters + at, inbox))
            return true;
        among--;
    }
    return false;
}

void waiter_remove_shared(struct rowlease_row *row)
{
    size_t at = 0;
    while (at < row->waiters_len && !is_shared(row->waiters + at))
        at += ROWLEASE_WAITER_SIZE;
    if (at < row->waiters_len)
        waiter_remove_at(row, at);
}

size_t rowlease_shared_waiters(const unsigned char *list, size_t len, size_t most,
                               struct rowlease_inbox *inboxes, size_t max)
{
    size_t count = 0;
    for (size_t at = 0; at + ROWLEASE_WAITER_SIZE <= len && count < most;
         at += ROWLEASE_WAITER_SIZE) {
        if (!is_shared(list + at))
            continue;
        if (count < max)
            memcpy(inboxes[count].bytes, list + at, ROWLEASE_INBOX_SIZE);
        count++;
    }
    return count;
}

/* ---- all ------------------------------------------------------------------------------------------- */

size_t rowlease_waiters(const unsigned char *list, size_t len, struct rowlease_inbox *inboxes,
                        size_t max)
{
    size_t count = len / ROWLEASE_WAITER_SIZE;
    for (size_t i = 0; i < count && i < max; i++)
        memcpy(inboxes[i].bytes, list + i * ROWLEASE_WAITER_SIZE, ROWLEASE_INBOX_SIZE);
    return count;
}
