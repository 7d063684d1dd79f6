/* pages.h - a server's keys, a page at a time; see pages.c. */
#ifndef MORTISE_DRIVERS_REDIS_PAGES_H
#define MORTISE_DRIVERS_REDIS_PAGES_H

#include "redis.h"

#define PAGE_CURSOR_SIZE 24 /* begins and ends with "0" */

/* Puts the next command: it asks for the next page of the keys with this prefix. False: out of memory. */
bool page_put(struct link *link, const char *cursor, const char *prefix, size_t prefix_len);
bool page_is_one(const redisReply *reply);
/* Takes the keys out of the reply, except those beside a lock. They are element 1 of the result, which the caller frees. Moves
 * the cursor. NULL: no memory. */
redisReply *page_take(redisReply *reply, char cursor[PAGE_CURSOR_SIZE]);

#endif
