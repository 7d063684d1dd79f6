/* row.h - what the rules for a row have in common; for rowlease.c and readers.c. SPDX-License-Identifier: MIT */
#ifndef MORTISE_ROWLEASE_ROW_H
#define MORTISE_ROWLEASE_ROW_H

#include "rowlease.h"

/* Nobody holds the row any more: makes it free, or reserved for the first waiter. */
void row_set_free(struct rowlease_row *row, struct rowlease_time time);
void row_set_note(struct rowlease_row *row, const mortise_op *op);
/* The op's claim has left the row, which other claims of its owner still hold. The row names no holder until one of them
 * renews. */
void row_forget_note(struct rowlease_row *row, const mortise_op *op);

struct rowlease_answer answer_refused(const char *trouble);
/* The answer for a claim that lasts until expires_us; its token is the row's version. */
struct rowlease_answer answer_granted(const struct rowlease_row *row, int64_t from_us,
                                      int64_t expires_us, bool write);
/* The answer if the claim exists already: neither its token nor its end changes. It was made or renewed at expiry -
 * ttl. That instant is exact, and earlier than the present request. */
struct rowlease_answer answer_standing(const struct rowlease_row *row, const mortise_op *op,
                                       int64_t expires_us, int64_t now_us);
/* The answer if the op's grant holds nothing. */
struct rowlease_answer answer_not_mine(const struct rowlease_row *row, int64_t now_us);
/* The answer BUSY until that instant. A caller that waits gets a place in the list. */
struct rowlease_answer answer_busy(struct rowlease_row *row, const mortise_op *op,
                                   struct rowlease_time time, int64_t until_us,
                                   const struct rowlease_inbox *inbox);

#endif
