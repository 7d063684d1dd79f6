/* row.h - what the rules for a row have in common; for rowlease.c and readers.c. SPDX-License-Identifier: MIT */
#ifndef MORTISE_ROWLEASE_ROW_H
#define MORTISE_ROWLEASE_ROW_H

#include "rowlease.h"

/* Nobody holds it any more: free, or kept for the first waiter. */
void row_set_free(struct rowlease_row *row, struct rowlease_time time);
void row_set_note(struct rowlease_row *row, const mortise_op *op);
/* The op's claim has left the row, which others of its owner hold: nobody is named, until one of them renews. */
void row_forget_note(struct rowlease_row *row, const mortise_op *op);

struct rowlease_answer answer_refused(const char *trouble);
/* A claim until expires_us, under the row's version. */
struct rowlease_answer answer_granted(const struct rowlease_row *row, int64_t from_us,
                                      int64_t expires_us, bool write);
/* The claim is there already: neither its token nor its end changes. It was made at expiry - ttl, or
 * renewed then; that instant is exact, and before the request that asks now. */
struct rowlease_answer answer_standing(const struct rowlease_row *row, const mortise_op *op,
                                       int64_t expires_us, int64_t now_us);
/* The op's grant holds nothing. */
struct rowlease_answer answer_not_mine(const struct rowlease_row *row, int64_t now_us);
/* BUSY until that instant; a caller that waits gets a place in the list. */
struct rowlease_answer answer_busy(struct rowlease_row *row, const mortise_op *op,
                                   struct rowlease_time time, int64_t until_us,
                                   const struct rowlease_inbox *inbox);

#endif
