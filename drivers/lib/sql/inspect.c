/* inspect.c - what inspect and list say about a row. See rowlease.h. */
#include "holders.h"
#include "holds.h"
#include "note.h"

#include <string.h>

/* The name of a holder without an owner: the grant id in hex, which mortise_owner() returns to that holder. */
static void unnamed_owner(const unsigned char *grant, char *text)
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < MORTISE_GRANT_ID_SIZE; i++) {
        *text++ = digits[grant[i] >> 4];
        *text++ = digits[grant[i] & 15];
    }
    *text = '\0';
}

static uint32_t live_holds(const struct rowlease_row *row, int64_t now_us)
{
    uint32_t live = 0;
    for (size_t i = 0; i < hold_count(row); i++)
        live += hold_expiry(row, i) > now_us;
    return live;
}

static void tell_claim(int64_t since_us, int64_t expires_us, int64_t token, int64_t now_us,
                       mortise_info *info)
{
    /* unsigned: a row that somebody has written may name any start */
    uint64_t held_us = (uint64_t)now_us - (uint64_t)since_us;
    info->held_ms = since_us < now_us ? (int64_t)(held_us / 1000) : 0;
    info->remaining_ms = (expires_us - now_us) / 1000;
    info->token = (uint64_t)token;
}

static void inspect_exclusive(const struct rowlease_row *row, int64_t now_us, mortise_info *info)
{
    if (row->owned) {
        memcpy(info->owner, row->owner, row->owner_len);
        info->owner[row->owner_len] = '\0';
    } else {
        unnamed_owner(row->grants, info->owner);
    }
    note_read(row->note, row->note_len, info);
    tell_claim(row->acquired_us, row->expires_us, row->version, now_us, info);
    info->leases = live_holds(row, now_us);
    info->holders = 1;
}

static bool inspect_shared(const struct rowlease_row *row, int64_t now_us, size_t *at,
                           mortise_info *info)
{
    struct holder holder;
    do
        if (!holders_next(row, at, &holder))
            return false;
    while (holder.expires_us <= now_us);
    unnamed_owner(holder.grant.bytes, info->owner);
    note_read((const char *)holder.note, holder.note_len, info);
    tell_claim(holder.since_us, holder.expires_us, holder.token, now_us, info);
    info->mode = MORTISE_SHARED;
    info->permits = holders_head(row).permits;
    info->leases = 1;
    info->holders = holders_count(row, now_us).live;
    return true;
}

bool rowlease_inspect_next(const struct rowlease_row *row, int64_t now_us, size_t *at,
                           mortise_info *info)
{
    info->held = rowlease_held(row, now_us);
    info->owner[0] = info->host[0] = info->program[0] = '\0';
    info->pid = info->held_ms = info->remaining_ms = 0;
    info->token = 0;
    info->leases = info->permits = info->holders = 0;
    info->mode = MORTISE_EXCLUSIVE;
    info->waiters = row->exists ? (int32_t)(row->waiters_len / ROWLEASE_WAITER_SIZE) : 0;
    if (!info->held)
        return false;
    if (rowlease_shared(row))
        return inspect_shared(row, now_us, at, info);
    if (*at > 0)
        return false;
    inspect_exclusive(row, now_us, info);
    *at = 1;
    return true;
}

void rowlease_inspect(const struct rowlease_row *row, int64_t now_us, mortise_info *info)
{
    size_t at = 0;
    rowlease_inspect_next(row, now_us, &at, info);
}
