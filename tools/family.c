/* family.c - the children of a process, including the orphans that it gets as their subreaper.
 *
 * Signals go to direct children, and to the groups that they lead. A child keeps its pid until its parent has waited for
 * it, so a signal cannot hit another process; orphans of a dead child become direct children in turn. */
#include "keeper.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* From /proc/PID/stat; 0 if unknown. The name in brackets may hold any byte. */
static pid_t parent_of(const char *pid_text)
{
    char path[64], text[512];

    snprintf(path, sizeof path, "/proc/%.20s/stat", pid_text);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t length = read(fd, text, sizeof text - 1);
    close(fd);
    if (length <= 0)
        return 0;
    text[length] = '\0';
    const char *after_name = strrchr(text, ')');
    if (after_name == NULL || strlen(after_name) < 5)
        return 0;
    return (pid_t)strtol(after_name + 4, NULL, 10); /* ") S PARENT" */
}

pid_t family_parent(pid_t pid)
{
    char text[24];

    snprintf(text, sizeof text, "%d", (int)pid);
    return parent_of(text);
}

/* Reads the kernel's list of children. False: this kernel has none. */
static bool each_listed(pid_t parent, void (*each)(pid_t child, void *argument), void *argument)
{
    char path[64];

    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)parent, (int)parent);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return false;
    long child;
    while (fscanf(file, "%ld", &child) == 1)
        each((pid_t)child, argument);
    fclose(file);
    return true;
}

void family_each(pid_t parent, void (*each)(pid_t child, void *argument), void *argument)
{
    if (each_listed(parent, each, argument))
        return;
    DIR *directory = opendir("/proc");
    if (directory == NULL)
        return;
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9' &&
            parent_of(entry->d_name) == parent)
            each((pid_t)strtol(entry->d_name, NULL, 10), argument);
    }
    closedir(directory);
}

bool family_alive(void)
{
    siginfo_t info;

    /* A dead child cannot stop or continue. So without WEXITED the kernel counts only living children, and answers
     * ECHILD if there are none. */
    return waitid(P_ALL, 0, &info, WSTOPPED | WCONTINUED | WNOHANG | WNOWAIT) == 0 ||
           errno != ECHILD;
}

struct signal_others {
    pid_t group;
    int number;
};

/* Dead or alive. */
static bool is_child(pid_t pid)
{
    siginfo_t info;

    return waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0;
}

/* If a child leads a group, as a daemon does, the whole group gets the signal. The group's number is the child's pid, so
 * it cannot be another group's. */
static void signal_other(pid_t child, void *argument)
{
    const struct signal_others *others = argument;
    const pid_t own = getpgid(child);

    if (child == others->group || own == others->group)
        return;
    if (own == child)
        killpg(child, others->number);
    else if (!is_child(own))
        kill(child, others->number);
}

void family_signal_others(pid_t group, int number)
{
    struct signal_others others = {group, number};

    family_each(getpid(), signal_other, &others);
}

static void kill_child(pid_t child, void *argument)
{
    (void)argument;
    kill(child, SIGKILL);
}

bool family_kill(void)
{
    pid_t child;

    while ((child = waitpid(-1, NULL, WNOHANG)) > 0)
        continue;
    if (child < 0 && errno == ECHILD)
        return true;
    family_each(getpid(), kill_child, NULL);
    return false;
}
