/* holds.c - see holds.h. */
#include "holds.h"

#include <string.h>

size_t hold_count(const struct rowlease_row *row)
{
    return row->owned ? row->grants_len / ROWLEASE_HOLD_SIZE : row->grants_len > 0;
}

int64_t hold_expiry(const struct rowlease_row *row, size_t i)
{
    if (!row->owned)
        return row->expires_us;
    const unsigned char *at = row->grants + i * ROWLEASE_HOLD_SIZE + MORTISE_GRANT_ID_SIZE;
    uint64_t value = 0;
    for (size_t k = 0; k < 8; k++)
        value = value << 8 | at[k];
    return (int64_t)value;
}

void hold_set_expiry(struct rowlease_row *row, size_t i, int64_t expires_us)
{
    unsigned char *at = row->grants + i * ROWLEASE_HOLD_SIZE + MORTISE_GRANT_ID_SIZE;
    for (size_t k = 0; k < 8; k++)
        at[k] = (unsigned char)((uint64_t)expires_us >> (56 - 8 * k));
}

size_t hold_size(const struct rowlease_row *row)
{
    return row->owned ? ROWLEASE_HOLD_SIZE : MORTISE_GRANT_ID_SIZE;
}

size_t hold_find(const struct rowlease_row *row, const mortise_grant_id *grant)
{
    size_t count = hold_count(row), i = 0;
    while (i < count &&
           memcmp(row->grants + i * hold_size(row), grant->bytes, MORTISE_GRANT_ID_SIZE) != 0)
        i++;
    return i;
}

void hold_remove(struct rowlease_row *row, size_t i)
{
    size_t size = hold_size(row), after = (i + 1) * size;
    memmove(row->grants + i * size, row->grants + after, row->grants_len - after);
    row->grants_len -= size;
}

void holds_settle(struct rowlease_row *row, int64_t now_us)
{
    if (!row->owned)
        return;
    row->expires_us = 0;
    for (size_t i = hold_count(row); i-- > 0;) {
        int64_t expiry = hold_expiry(row, i);
        if (expiry <= now_us)
            hold_remove(row, i);
        else if (expiry > row->expires_us)
            row->expires_us = expiry;
    }
}
