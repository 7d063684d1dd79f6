/* holds.h - the exclusive claims in a row's grants: one grant id, or with an owner a sequence of (grant id, expiry in µs,
 * big-endian). For a row that shared holders have, see holders.h. SPDX-License-Identifier: MIT */
#ifndef MORTISE_ROWLEASE_HOLDS_H
#define MORTISE_ROWLEASE_HOLDS_H

#include "rowlease.h"

size_t hold_count(const struct rowlease_row *row);
size_t hold_size(const struct rowlease_row *row); /* of each, in bytes */
int64_t hold_expiry(const struct rowlease_row *row, size_t i);
void hold_set_expiry(struct rowlease_row *row, size_t i, int64_t expires_us);
/* The index of a grant, live or not; hold_count() if it is not there. */
size_t hold_find(const struct rowlease_row *row, const mortise_grant_id *grant);
void hold_remove(struct rowlease_row *row, size_t i);
/* Drops the holds of an owner's row that have expired, and sets the row's expiry to the last of the others'. */
void holds_settle(struct rowlease_row *row, int64_t now_us);

#endif
