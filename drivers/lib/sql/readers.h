/* readers.h - how a row changes that shared holders have, or are to have; for rowlease.c. The head of the set (holders.h) has
 * the number of permits, the bar, and until when a freed place is kept.
 *
 *   admitted   no exclusive holder, no bar in force, a place free, and that place is not kept for others. The next waiters
 *              are woken if there are more places.
 *   bar        an exclusive caller that waits for shared holders sets it for BAR_US, and asks again before it ends. So
 *              readers that come and go cannot starve it. It stays in force if the last reader expires, or leaves while
 *              nobody is in the list of waiters, because the caller that set it may only look from time to time. A client that dies
 *              leaves a bar of BAR_US.
 *   open       for OPEN_US after a downgrade no bar is set. Otherwise a writer that happens to look first would shut out the
 *              readers that the downgrade is to let in, for as long as the downgraded claim lasts. Some drivers cannot notify
 *              readers.
 *   kept       with permits, a freed place is kept for the first waiters, as a released row is (`reserve`). Otherwise callers
 *              that never wait would win against each woken waiter.
 *
 * SPDX-License-Identifier: MIT */
#ifndef MORTISE_ROWLEASE_READERS_H
#define MORTISE_ROWLEASE_READERS_H

#include "rowlease.h"

/* The row, whose version is new, gets this op's claim as its only holder. */
void readers_begin(struct rowlease_row *row, const mortise_op *op, struct rowlease_time time);
/* Marks the shared waiters that may get in now to be woken. */
void readers_wake(struct rowlease_row *row, struct rowlease_time time,
                  struct rowlease_answer *answer);

/* Whether shared holders have the row, or had it, and a bar is in force. The bar may end after the row expires: the
 * holders may have expired, or a caller that had read a holder set the bar anew (BAR). */
bool readers_barred(const struct rowlease_row *row, int64_t now_us);
/* A shared acquire of a barred row that nobody holds any more. If the row is written, it expires with the bar. */
struct rowlease_answer readers_wait(struct rowlease_row *row, const mortise_op *op,
                                    struct rowlease_time time, const struct rowlease_inbox *inbox);

/* The functions below need a row that shared holders have now. */

/* Acquires: readers_admit() a shared claim, readers_bar() an exclusive one. */
struct rowlease_answer readers_admit(struct rowlease_row *row, const mortise_op *op,
                                     struct rowlease_time time,
                                     const struct rowlease_inbox *inbox);
struct rowlease_answer readers_bar(struct rowlease_row *row, const mortise_op *op,
                                   struct rowlease_time time, const struct rowlease_inbox *inbox);
struct rowlease_answer readers_renew(struct rowlease_row *row, const mortise_op *op,
                                     struct rowlease_time time);
struct rowlease_answer readers_release(struct rowlease_row *row, const mortise_op *op,
                                       struct rowlease_time time);
/* As rowlease_pass_over(), but for the first shared waiter. */
struct rowlease_answer readers_pass_over(struct rowlease_row *row, struct rowlease_time time,
                                         int64_t version);

/* Makes the exclusive claim of this op, which ends at expires_us, a shared one. */
struct rowlease_answer readers_downgrade(struct rowlease_row *row, const mortise_op *op,
                                         struct rowlease_time time, int64_t expires_us);

#endif
