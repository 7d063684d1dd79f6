/* exit_code.c - the exit code for each status of the library. */
#include "exit_code.h"

int exit_code_of(mortise_status status)
{
    switch (status) {
    case MORTISE_OK:
        return EXIT_DONE;
    case MORTISE_BUSY:
    case MORTISE_TIMEDOUT:
        return EXIT_NOT_HAD;
    case MORTISE_LOST:
    case MORTISE_NOTOWNER:
        return EXIT_LOST;
    case MORTISE_CONFIG:
        return EXIT_BAD_CONFIG;
    case MORTISE_INVALID:
        return EXIT_BAD_USAGE;
    case MORTISE_NOMEM:
        return EXIT_SYSTEM;
    case MORTISE_UNREACHABLE:
    case MORTISE_INDETERMINATE:
    case MORTISE_BACKEND:
    case MORTISE_NOTSUP:
        return EXIT_BACKEND_AWAY;
    case MORTISE_CANCELED:
    case MORTISE_CLOSED:
    case MORTISE_FORKED:
    case MORTISE_DEADLOCK:
    case MORTISE_CLOSING:
        break;
    }
    return EXIT_BROKEN_PROMISE;
}
