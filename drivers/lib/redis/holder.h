/* holder.h - what the value of a lock says about its holder; see holder.c. */
#ifndef MORTISE_DRIVERS_LIB_REDIS_HOLDER_H
#define MORTISE_DRIVERS_LIB_REDIS_HOLDER_H

#include "keys.h"
#include "text.h"

/* Reads who holds the lock from the value of its string. False: the value is not one of ours, but the lock is held. now_us
 * 0: unknown. */
bool holder_of_string(const char *value, size_t length, uint64_t now_us, mortise_info *info);
void holder_set(mortise_info *info, const char *owner, size_t owner_len, uint64_t token,
                uint64_t since_us, uint64_t now_us, const char *note, size_t note_len);

#endif
