/* flock.c - flock(1) as an adapter (adapter.h), used as in scripts: `flock 9` on a descriptor of their own, which
 * they close with `exec 9>&-`. The cost is that of starting the program `flock`. The address is a folder. */
#include "../common.h"
#include "adapter.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define SCRIPTS_FD 9

extern char **environ;

static const char *folder;

static const char *open_folder(const char *where)
{
    static char version[128] = "flock(1)";
    FILE *output = popen("flock --version", "re");
    folder = where;
    if (output == NULL || fgets(version, sizeof(version), output) == NULL || pclose(output) != 0)
        bench_die("flock is not installed");
    version[strcspn(version, "\n")] = '\0';
    return version;
}

/* Opens the file of a name: the thread's own, or once more the common one. */
static int open_lock(const char *name)
{
    char path[1024];
    int length = snprintf(path, sizeof(path), "%s/flock-", folder);
    for (; *name != '\0' && length < (int)sizeof(path) - 1; name++)
        path[length++] = *name == '/' ? '-' : *name;
    path[length] = '\0';
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0)
        bench_die("%s cannot be made", path);
    return fd;
}

static void run_flock(int fd)
{
    char program[] = "flock", number[] = "9", *arguments[] = {program, number, NULL};
    posix_spawn_file_actions_t actions;
    pid_t pid;
    int status;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, fd, SCRIPTS_FD);
    if (posix_spawnp(&pid, "flock", &actions, NULL, arguments, environ) != 0)
        bench_die("flock cannot be started");
    posix_spawn_file_actions_destroy(&actions);
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            bench_die("waitpid");
    if (status != 0)
        bench_die("flock failed");
}

static bool take(void *worker, const char *name, void **held)
{
    int fd = open_lock(name);
    (void)worker;
    run_flock(fd);
    *held = (void *)(intptr_t)fd;
    return true;
}

static void give(void *worker, const char *name, void *held)
{
    (void)worker;
    (void)name;
    close((int)(intptr_t)held);
}

int main(int argc, char **argv)
{
    return adapter_main(
        argc, argv,
        &(struct adapter){.name = "flock", .open = open_folder, .take = take, .give = give});
}
