/* text.h - parts, numbers and times in what a server answers; see text.c. */
#ifndef MORTISE_DRIVERS_LIB_REDIS_TEXT_H
#define MORTISE_DRIVERS_LIB_REDIS_TEXT_H

#include <mortise/driver.h>

#include <hiredis/hiredis.h>

/* Whether the reply is this word. */
bool text_is(const redisReply *reply, const char *word);
/* The number that the whole text is; 0 if the text is no number, or too large. */
uint64_t text_number(const char *text, size_t length);
/* The number that the text begins with; 0 if there is none. At most 18 digits are read. */
uint64_t text_digits(const char *text, size_t length);
/* The answer to TIME, in µs; 0 if it is none. */
uint64_t text_time_us(const redisReply *time);
/* The part up to the separator, or to the end. Moves *text behind it. */
const char *text_part(const char **text, const char *end, char separator, size_t *length);
/* Copies, cuts to fit, and ends with NUL. */
void text_copy(char *to, size_t size, const char *from, size_t length);
/* Fails the op with the error "text (acquire "name")". */
void text_fail(mortise_host *host, mortise_op *op, mortise_status status, int native,
               bool retryable, const char *text);

#endif
