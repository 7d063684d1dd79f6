/* holder.h - what the value of a lock says of its holder; see holder.c. */
#ifndef MORTISE_DRIVERS_LIB_REDIS_HOLDER_H
#define MORTISE_DRIVERS_LIB_REDIS_HOLDER_H

#include "keys.h"

/* Who holds, of the value of a string; false: not one of ours (still held). now_us 0: unknown. */
bool holder_of_string(const char *value, size_t length, uint64_t now_us, mortise_info *info);
void holder_set(mortise_info *info, const char *owner, size_t owner_len, uint64_t token,
                uint64_t since_us, uint64_t now_us, const char *note, size_t note_len);
uint64_t holder_time_us(const redisReply *time); /* of TIME */
uint64_t holder_number(const char *text, size_t length);
/* A part of a text, up to a separator; moves on behind it. */
const char *holder_part(const char **text, const char *end, char separator, size_t *length);
/* Cut to fit, and ended. */
void holder_copy(char *to, size_t size, const char *from, size_t length);

#endif
