/* signal_set.h - the signals that a command takes in by a descriptor. A signal that was ignored when the command was started
 * (nohup, a background job of a shell) stays ignored: blocked, it would come all the same. */
#ifndef MORTISE_TOOLS_SIGNAL_SET_H
#define MORTISE_TOOLS_SIGNAL_SET_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>

bool signal_is_ignored(int number);
/* Adds those that are not ignored. */
void signal_set_add(sigset_t *set, const int *numbers, size_t count);

#endif
