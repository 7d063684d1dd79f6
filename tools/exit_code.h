/* exit_code.h - the exit codes of the `mortise` command: those of sysexits.h where it has one. */
#ifndef MORTISE_TOOLS_EXIT_CODE_H
#define MORTISE_TOOLS_EXIT_CODE_H

#include <mortise/mortise.h>

enum exit_code {
    EXIT_DONE = 0,
    EXIT_NOTHING_DONE = 1,    /* break: the named grant does not exist any more */
    EXIT_BAD_USAGE = 64,      /* EX_USAGE */
    EXIT_BACKEND_AWAY = 69,   /* EX_UNAVAILABLE */
    EXIT_BROKEN_PROMISE = 70, /* EX_SOFTWARE */
    EXIT_SYSTEM = 71,         /* EX_OSERR */
    EXIT_NOT_HAD = 75,        /* EX_TEMPFAIL: the lock could not be acquired in time */
    EXIT_LOST = 76,           /* EX_PROTOCOL: the lock was lost while the command ran */
    EXIT_BAD_CONFIG = 78,     /* EX_CONFIG */
    EXIT_NOT_EXECUTABLE = 126,
    EXIT_NOT_FOUND = 127,
    EXIT_SIGNAL_BASE = 128
};

/* The exit code for a failure of the library. */
int exit_code_of(mortise_status status);

#endif
