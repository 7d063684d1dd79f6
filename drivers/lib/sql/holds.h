/* holds.h - the exclusive claims in a row's grants: one grant id, or with an owner a sequence of (grant id, expiry in µs,
 * big-endian). For a row that shared holders have, see holders.h. SPDX-License-Identifier: MIT */
#ifndef MORTISE_ROWLEASE_HOLDS_H
#define MORTISE_ROWLEASE_HOLDS_H

#include "rowlease.h"

size_t hold_count(const struct rowlease_row *row);
size_t hold_size(const struct rowlease_row *row); /* of each grant, in bytes */
int64_t hold_expiry(const struct rowlease_row *row, size_t i);
void hold_set_expiry(struct rowlease_row *row, size_t i, int64_t expires_us);
/* The index of a grant, live or expired; hold_count() if there is none. */
size_t hold_find(const struct rowlease_row *row, const mortise_grant_id *grant);
void hold_remove(struct rowlease_row *row, size_t i);
/* Drops the expired holds of an owner's row, and sets the row's expiry to the latest of the remaining ones. */
void holds_settle(struct rowlease_row *row, int64_t now_us);

#endif
