/* waiters.h - the list of waiters in a row; for rowlease.c. A place is a byte offset; the first is 0. */
#ifndef MORTISE_ROWLEASE_WAITERS_H
#define MORTISE_ROWLEASE_WAITERS_H

#include "rowlease.h"

bool waiter_is_first(const struct rowlease_row *row, const struct rowlease_inbox *inbox);
void waiter_remove_at(struct rowlease_row *row, size_t at);
/* Notes what the inbox, which must be in the list, waits for: a shared claim; or an exclusive one or an unknown one. */
void waiter_wants(struct rowlease_row *row, const struct rowlease_inbox *inbox, bool shared,
                  bool *changed);
/* How many wait for a shared claim; and whether the inbox is among the first so many of them (no, if NULL). */
size_t waiters_shared(const struct rowlease_row *row);
bool waiter_is_shared(const struct rowlease_row *row, const struct rowlease_inbox *inbox,
                      size_t among);
/* The first that waits for a shared claim leaves the list. */
void waiter_remove_shared(struct rowlease_row *row);
/* False: it was not there. */
bool waiter_remove(struct rowlease_row *row, const struct rowlease_inbox *inbox);
/* The inbox keeps its place, or gets the last one. Sets *changed if the row must be written. False: the list is full. */
bool waiter_add(struct rowlease_row *row, const struct rowlease_inbox *inbox, bool *changed);

#endif
