/* signal_set.c - which signals are ignored. */
#include "signal_set.h"

bool signal_is_ignored(int number)
{
    struct sigaction action;

    return sigaction(number, NULL, &action) == 0 && action.sa_handler == SIG_IGN;
}

void signal_set_add(sigset_t *set, const int *numbers, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (!signal_is_ignored(numbers[i]))
            sigaddset(set, numbers[i]);
    }
}
