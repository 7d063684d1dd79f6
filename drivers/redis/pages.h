/* pages.h - a server's keys, a page at a time; see pages.c. */
#ifndef MORTISE_DRIVERS_REDIS_PAGES_H
#define MORTISE_DRIVERS_REDIS_PAGES_H

#include "redis.h"

#define PAGE_CURSOR_SIZE 24 /* begins and ends with "0" */

/* Asks for the next page of the keys that begin so, as the next command. False: out of memory. */
bool page_put(struct link *link, const char *cursor, const char *prefix, size_t prefix_len);
bool page_is_one(const redisReply *reply);
/* Takes the keys out of the reply, less those beside a lock: they are element 1 of the result, which the caller frees. Moves the
 * cursor. NULL without memory. */
redisReply *page_take(redisReply *reply, char cursor[PAGE_CURSOR_SIZE]);

#endif
