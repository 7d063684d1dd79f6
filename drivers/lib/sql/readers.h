/* readers.h - what becomes of a row that shared holders have, or are to have; for rowlease.c. The head of the set
 * (holders.h) has the number of permits, the bar, and until when a freed place is kept.
 *
 *   admitted   no exclusive holder, no bar in force, a place free, and that place is not kept for others. The next waiters
 *              are woken if there are more places.
 *   bar        an exclusive caller that waits for shared holders sets it for BAR_US, and asks again before it ends. So
 *              readers that come and go cannot starve it. It stays in force if the last reader expires, or leaves while
 *              nobody is in the list of waiters, because the caller that set it may only look from time to time. A client that dies
 *              leaves a bar of BAR_US.
 *   open       for OPEN_US after a downgrade no bar is set, or a writer that happens to look first would shut out the readers that
 *              the downgrade is to let in, for as long as the downgraded claim lasts. Some drivers cannot notify readers.
 *   kept       with permits, a freed place is kept for the first waiters as a released row is (`reserve`), or callers that
 *              never wait would win against each woken one.
 *
 * SPDX-License-Identifier: MIT */
#ifndef MORTISE_ROWLEASE_READERS_H
#define MORTISE_ROWLEASE_READERS_H

#include "rowlease.h"

/* The row, whose version is new, gets this op's claim as its only holder. */
void readers_begin(struct rowlease_row *row, const mortise_op *op, struct rowlease_time time);
/* Shared waiters that may get in now are to be woken. */
void readers_wake(struct rowlease_row *row, struct rowlease_time time,
                  struct rowlease_answer *answer);

/* Shared holders have the row, or had it, and a bar is in force. It may end after the row expires: its holders may have
 * expired, or it was set anew by a caller that had read a holder (BAR). */
bool readers_barred(const struct rowlease_row *row, int64_t now_us);
/* A shared acquire of such a row that nobody holds any more. If it is written, it expires with the bar. */
struct rowlease_answer readers_wait(struct rowlease_row *row, const mortise_op *op,
                                    struct rowlease_time time, const struct rowlease_inbox *inbox);

/* The others need a row that shared holders have now. */

/* A shared acquire; an exclusive one. */
struct rowlease_answer readers_admit(struct rowlease_row *row, const mortise_op *op,
                                     struct rowlease_time time,
                                     const struct rowlease_inbox *inbox);
struct rowlease_answer readers_bar(struct rowlease_row *row, const mortise_op *op,
                                   struct rowlease_time time, const struct rowlease_inbox *inbox);
struct rowlease_answer readers_renew(struct rowlease_row *row, const mortise_op *op,
                                     struct rowlease_time time);
struct rowlease_answer readers_release(struct rowlease_row *row, const mortise_op *op,
                                       struct rowlease_time time);
/* As rowlease_pass_over(), of the first shared waiter. */
struct rowlease_answer readers_pass_over(struct rowlease_row *row, struct rowlease_time time,
                                         int64_t version);

/* The exclusive claim of this op, which holds the row until then, becomes a shared one. */
struct rowlease_answer readers_downgrade(struct rowlease_row *row, const mortise_op *op,
                                         struct rowlease_time time, int64_t expires_us);

#endif
