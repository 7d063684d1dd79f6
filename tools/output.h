/* output.h - messages on stderr, and what stdout is. */
#ifndef MORTISE_TOOLS_OUTPUT_H
#define MORTISE_TOOLS_OUTPUT_H

#include <mortise/mortise.h>

#include <stdbool.h>

/* Call it first. If stdin, stdout or stderr is closed, occupies its number, so that no connection gets that number and receives
 * what is printed. Reading and writing fail as on a closed stream, and a program that is executed finds the stream closed. */
void keep_streams(void);
/* Prints one line to stderr, "mortise: …", in one write(2). Quote foreign bytes first (text.h). */
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The same for a program that must go on when the reader of stderr is stuck: false, and nothing printed, if stderr takes no
 * line now. */
bool say_if_possible(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The message, or what its status means. */
const char *error_text(const mortise_error *error);
void say_error(const mortise_error *error);
/* Whether stdout is a terminal, and whether the user wants colour there. */
bool on_terminal(void);
bool with_colour(void);
/* Flushes stdout and returns the code. If the output could not be written (disk full, closed pipe), reports that
 * and returns a code that says so. */
int finish_output(int code);
/* Returns memory, which is never NULL then: without memory the command prints that and exits. */
void *must_have(void *memory);
/* Sets what must_have() does before it exits, for example to restore a terminal. Only if one thread alone uses must_have(). */
void must_have_calls(void (*restore)(void));

#endif
