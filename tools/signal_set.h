/* signal_set.h - the signals that a command reads from a descriptor. A signal that was ignored when the command was started
 * (nohup, a background job of a shell) must stay ignored, so it is not blocked: a blocked signal is delivered all the
 * same. */
#ifndef MORTISE_TOOLS_SIGNAL_SET_H
#define MORTISE_TOOLS_SIGNAL_SET_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>

bool signal_is_ignored(int number);
/* Adds the signals that are not ignored. */
void signal_set_add(sigset_t *set, const int *numbers, size_t count);

#endif
