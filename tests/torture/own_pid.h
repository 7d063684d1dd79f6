/* own_pid.h - the number of this process as the nemesis knows it. In a pid namespace of its own a fighter is number 1 for
 * itself, or a child of number 1; /proc is that of the nemesis. Else getpid() is right, also where tests/replay puts its own
 * in the place. */
#ifndef MORTISE_TESTS_TORTURE_OWN_PID_H
#define MORTISE_TESTS_TORTURE_OWN_PID_H

#include <stdlib.h>
#include <unistd.h>

static inline int own_pid(void)
{
    char text[32];
    if (getpid() != 1 && getppid() != 1)
        return (int)getpid();
    ssize_t length = readlink("/proc/self", text, sizeof(text) - 1);
    if (length <= 0)
        return (int)getpid();
    text[length] = '\0';
    return (int)strtol(text, NULL, 10);
}

#endif
