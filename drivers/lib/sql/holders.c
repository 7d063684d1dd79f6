/* holders.c - see holders.h. */
#include "holders.h"

#include <string.h>

#define UNIT ROWLEASE_HOLD_SIZE
#define HEAD_SIZE UNIT
#define BAR_AT 8
#define KEPT_AT 16
#define EXPIRY_AT 16
#define TOKEN_AT 24
#define SINCE_AT 32
#define NOTE_LEN_AT 40
#define NOTE_AT 42
#define NOTES_ROOM                                                                                 \
    (sizeof(((struct rowlease_row *)0)->grants) / 2) /* no notes in the second half */

static const unsigned char magic[4] = {'M', 'S', '1', 0};

static uint64_t read_number(const unsigned char *at, size_t size)
{
    uint64_t value = 0;
    for (size_t i = 0; i < size; i++)
        value = value << 8 | at[i];
    return value;
}

static void write_number(unsigned char *at, uint64_t value, size_t size)
{
    for (size_t i = 0; i < size; i++)
        at[i] = (unsigned char)(value >> (8 * (size - 1 - i)));
}

static size_t size_of_holder(size_t note_len)
{
    return (NOTE_AT + note_len + UNIT - 1) / UNIT * UNIT;
}

/* ---- the head ---------------------------------------------------------------------------------- */

struct holders holders_head(const struct rowlease_row *row)
{
    return (struct holders){.permits = (uint32_t)read_number(row->grants + 4, 4),
                            .barred_us = (int64_t)read_number(row->grants + BAR_AT, 8),
                            .kept_us = (int64_t)read_number(row->grants + KEPT_AT, 8)};
}

void holders_set_head(struct rowlease_row *row, const struct holders *head)
{
    memcpy(row->grants, magic, sizeof(magic));
    write_number(row->grants + 4, head->permits, 4);
    write_number(row->grants + BAR_AT, (uint64_t)head->barred_us, 8);
    write_number(row->grants + KEPT_AT, (uint64_t)head->kept_us, 8);
}

void holders_begin(struct rowlease_row *row, uint32_t permits)
{
    row->owned = true;
    row->owner_len = ROWLEASE_SHARED_SIZE;
    memcpy(row->owner, ROWLEASE_SHARED, ROWLEASE_SHARED_SIZE);
    row->grants_len = HEAD_SIZE;
    holders_set_head(row, &(struct holders){.permits = permits});
}

/* ---- the holders ------------------------------------------------------------------------------- */

/* The size of the holder that begins at that offset; 0: there is none, or its bytes make no sense. */
static size_t size_at(const struct rowlease_row *row, size_t at)
{
    if (at + NOTE_AT > row->grants_len)
        return 0;
    size_t note_len = (size_t)read_number(row->grants + at + NOTE_LEN_AT, 2);
    size_t size = size_of_holder(note_len);
    return note_len <= MORTISE_NOTE_MAX && at + size <= row->grants_len ? size : 0;
}

bool holders_next(const struct rowlease_row *row, size_t *at, struct holder *holder)
{
    size_t here = *at == 0 ? HEAD_SIZE : *at;
    size_t size = size_at(row, here);
    const unsigned char *bytes = row->grants + here;
    if (size == 0)
        return false;
    memcpy(holder->grant.bytes, bytes, MORTISE_GRANT_ID_SIZE);
    holder->expires_us = (int64_t)read_number(bytes + EXPIRY_AT, 8);
    holder->token = (int64_t)read_number(bytes + TOKEN_AT, 8);
    holder->since_us = (int64_t)read_number(bytes + SINCE_AT, 8);
    holder->note_len = (size_t)read_number(bytes + NOTE_LEN_AT, 2);
    holder->note = bytes + NOTE_AT;
    *at = here + size;
    return true;
}

bool holders_valid(const struct rowlease_row *row)
{
    struct holder holder;
    size_t at = 0;
    int64_t token = 0;
    if (row->grants_len < HEAD_SIZE || row->grants_len % UNIT != 0 ||
        memcmp(row->grants, magic, sizeof(magic)) != 0)
        return false;
    while (holders_next(row, &at, &holder)) {
        if (holder.expires_us < 0 || holder.token <= token || holder.token > row->version)
            return false;
        token = holder.token;
    }
    return holders_empty(row) || at == row->grants_len;
}

bool holders_empty(const struct rowlease_row *row)
{
    return row->grants_len == HEAD_SIZE;
}

/* The offset of the holder with this grant; 0: there is none. */
static size_t place_of(const struct rowlease_row *row, const mortise_grant_id *grant)
{
    struct holder holder;
    size_t at = 0, here = HEAD_SIZE;
    for (; holders_next(row, &at, &holder); here = at)
        if (memcmp(holder.grant.bytes, grant->bytes, MORTISE_GRANT_ID_SIZE) == 0)
            return here;
    return 0;
}

bool holders_find(const struct rowlease_row *row, const mortise_grant_id *grant,
                  struct holder *holder)
{
    size_t at = place_of(row, grant);
    return at > 0 && holders_next(row, &at, holder);
}

bool holders_find_token(const struct rowlease_row *row, uint64_t token, struct holder *holder)
{
    size_t at = 0;
    while (holders_next(row, &at, holder))
        if ((uint64_t)holder->token == token)
            return true;
    return false;
}

bool holders_add(struct rowlease_row *row, const struct holder *holder)
{
    size_t note_len = holder->note_len < MORTISE_NOTE_MAX ? holder->note_len : MORTISE_NOTE_MAX;
    if (row->grants_len + size_of_holder(note_len) > NOTES_ROOM)
        note_len = 0;
    size_t size = size_of_holder(note_len);
    unsigned char *bytes = row->grants + row->grants_len;
    if (row->grants_len + size > sizeof(row->grants))
        return false;
    memset(bytes, 0, size);
    memcpy(bytes, holder->grant.bytes, MORTISE_GRANT_ID_SIZE);
    write_number(bytes + EXPIRY_AT, (uint64_t)holder->expires_us, 8);
    write_number(bytes + TOKEN_AT, (uint64_t)holder->token, 8);
    write_number(bytes + SINCE_AT, (uint64_t)holder->since_us, 8);
    write_number(bytes + NOTE_LEN_AT, note_len, 2);
    if (note_len > 0)
        memcpy(bytes + NOTE_AT, holder->note, note_len);
    row->grants_len += size;
    return true;
}

void holders_extend(struct rowlease_row *row, const mortise_grant_id *grant, int64_t expires_us)
{
    size_t at = place_of(row, grant);
    if (at > 0)
        write_number(row->grants + at + EXPIRY_AT, (uint64_t)expires_us, 8);
}

static void remove_at(struct rowlease_row *row, size_t at, size_t size)
{
    memmove(row->grants + at, row->grants + at + size, row->grants_len - at - size);
    row->grants_len -= size;
}

void holders_remove(struct rowlease_row *row, const mortise_grant_id *grant)
{
    size_t at = place_of(row, grant);
    if (at > 0)
        remove_at(row, at, size_at(row, at));
}

/* What older clients report. */
static void show_first(struct rowlease_row *row)
{
    struct holder holder;
    size_t at = 0;
    row->note_len = 0;
    if (!holders_next(row, &at, &holder))
        return;
    row->acquired_us = holder.since_us;
    row->note_len = holder.note_len;
    if (holder.note_len > 0)
        memcpy(row->note, holder.note, holder.note_len);
}

void holders_settle(struct rowlease_row *row, int64_t now_us)
{
    struct holder holder;
    size_t at = 0, here = HEAD_SIZE;
    row->expires_us = 0;
    while (holders_next(row, &at, &holder)) {
        if (holder.expires_us <= now_us) {
            remove_at(row, here, at - here);
            at = here;
            continue;
        }
        if (holder.expires_us > row->expires_us)
            row->expires_us = holder.expires_us;
        here = at;
    }
    show_first(row);
}

struct holders_count holders_count(const struct rowlease_row *row, int64_t now_us)
{
    struct holders_count count = {.live = 0};
    struct holder holder;
    size_t at = 0;
    while (holders_next(row, &at, &holder)) {
        if (holder.expires_us <= now_us)
            continue;
        count.live++;
        if (count.first_expiry_us == 0 || holder.expires_us < count.first_expiry_us)
            count.first_expiry_us = holder.expires_us;
    }
    return count;
}
