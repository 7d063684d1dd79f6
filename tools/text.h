/* text.h - foreign bytes as text that is safe to show. */
#ifndef MORTISE_TOOLS_TEXT_H
#define MORTISE_TOOLS_TEXT_H

#include <mortise/mortise.h>

#include <stddef.h>
#include <stdint.h>

#define QUOTED_SIZE (4 * MORTISE_OWNER_MAX + 4)
/* Writes text as one printable piece of UTF-8: controls, backslashes and bytes that are not UTF-8 become
 * \t \n \\ \xNN. Returns buffer. */
const char *printable(const char *text, char *buffer, size_t size);
/* The same within double quotes; quotes are escaped. */
const char *quoted(const char *text, char *buffer, size_t size);
/* How many columns a piece of UTF-8 takes on a terminal. */
size_t columns_of(const char *text);
/* The length of the UTF-8 sequence at text (1 to 4); 0 if there is none (overlong, surrogate, cut off). */
size_t utf8_length(const char *text);
/* The code point of a sequence if it reorders or breaks the line in which it is shown (marks, overrides and
 * isolates of direction, separators of lines and paragraphs), else 0. A name could hide behind such a character. */
uint32_t reordering_point(const char *text, size_t length);

#endif
