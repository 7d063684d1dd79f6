/* holders.h - the set of shared holders of a name, in the bytes of its row's grants.
 *
 * The set is a sequence of units of ROWLEASE_HOLD_SIZE bytes, so that a client of version 0.1, which knows no shared
 * holders, reads each unit as a lease (grant id, expiry) of another owner, and takes the name for held. Numbers are
 * big-endian; instants are µs on the clock of struct rowlease_time.
 *
 *   head, 1 unit    "MS1" and a zero byte; permits (4 bytes); barred until (8); a freed place is kept until (8),
 *                   or without permits: no bar is set until
 *   holder          grant id (16), expiry (8), token (8), held since (8), length of the note (2), note, zeros up to a
 *                   whole unit. Holders are in the order of their tokens.
 *
 * A set may be empty while a bar is in force. Then the row expires with the bar.
 *
 * Knows no op. SPDX-License-Identifier: MIT */
#ifndef MORTISE_ROWLEASE_HOLDERS_H
#define MORTISE_ROWLEASE_HOLDERS_H

#include "rowlease.h"

struct holder {
    mortise_grant_id grant;
    int64_t expires_us, since_us, token;
    const unsigned char *note; /* points into the row, or to the caller's */
    size_t note_len;
};

/* The head of the set. */
struct holders {
    uint32_t permits;  /* 0: any number */
    int64_t barred_us; /* an exclusive waiter keeps new holders out until then; or 0 */
    int64_t kept_us;   /* a freed place is kept for the first waiters until then. Without permits: no bar is set until
                        * then. Or 0 */
};

/* Whether the bytes are a set. */
bool holders_valid(const struct rowlease_row *row);
struct holders holders_head(const struct rowlease_row *row);
void holders_set_head(struct rowlease_row *row, const struct holders *head);
/* Makes the row hold an empty set. */
void holders_begin(struct rowlease_row *row, uint32_t permits);
/* Whether no holder is left. */
bool holders_empty(const struct rowlease_row *row);
/* Reads the holder at *at and moves *at to the next one. Begin with *at = 0. False: there is none. */
bool holders_next(const struct rowlease_row *row, size_t *at, struct holder *holder);
/* Finds the holder with this grant, or with this token, live or expired. */
bool holders_find(const struct rowlease_row *row, const mortise_grant_id *grant,
                  struct holder *holder);
bool holders_find_token(const struct rowlease_row *row, uint64_t token, struct holder *holder);
/* The holder's token must be larger than all others. Leaves its note out if there is little room. False: there is no room
 * at all. */
bool holders_add(struct rowlease_row *row, const struct holder *holder);
/* Both do nothing if the grant is not there. */
void holders_extend(struct rowlease_row *row, const mortise_grant_id *grant, int64_t expires_us);
void holders_remove(struct rowlease_row *row, const mortise_grant_id *grant);
/* Drops expired holders. Then sets the row's own columns: when the last holder expires (0: none is left), and the first
 * holder's note and start, because older clients report these. */
void holders_settle(struct rowlease_row *row, int64_t now_us);

struct holders_count {
    uint32_t live;
    int64_t first_expiry_us; /* of the live holders; 0: there is none */
};
struct holders_count holders_count(const struct rowlease_row *row, int64_t now_us);

#endif
