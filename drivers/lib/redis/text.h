/* text.h - parts, numbers and times in what a server answers; see text.c. */
#ifndef MORTISE_DRIVERS_LIB_REDIS_TEXT_H
#define MORTISE_DRIVERS_LIB_REDIS_TEXT_H

#include <mortise/driver.h>

#include <hiredis/hiredis.h>

/* The reply is this word. */
bool text_is(const redisReply *reply, const char *word);
/* All of the text is a number; 0 if it is none, or too large. */
uint64_t text_number(const char *text, size_t length);
/* The number that the text begins with; 0 if there is none. At most 18 digits are read. */
uint64_t text_digits(const char *text, size_t length);
/* The answer to TIME, in µs; 0 if it is none. */
uint64_t text_time_us(const redisReply *time);
/* The part up to the separator, or to the end; *text moves on behind it. */
const char *text_part(const char **text, const char *end, char separator, size_t *length);
/* Copies, cuts to fit, and ends with NUL. */
void text_copy(char *to, size_t size, const char *from, size_t length);
/* "text (acquire "name")" is the failure of the op. */
void text_fail(mortise_host *host, mortise_op *op, mortise_status status, int native,
               bool retryable, const char *text);

#endif
