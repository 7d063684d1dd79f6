/* server.c - see server.h. */
#include "server.h"

#include "calls.h"
#include "puppet.h"
#include "real.h"
#include "sched.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>

#define PATIENCE_S 120 /* of the real machine: then the server hangs */

void server_prepare(struct server *server, const char *folder, int number, uint64_t seed)
{
    memset(server, 0, sizeof *server);
    server->number = number;
    server->seed = seed;
    snprintf(server->folder, sizeof server->folder, "%s/server%d", folder, number);
    snprintf(server->socket, sizeof server->socket, "%s/socket", server->folder);
    mkdir(server->folder, 0700);
    server->memory = memfd_create("puppet", 0); /* the server inherits it */
    if (server->memory < 0 || ftruncate(server->memory, sizeof(struct puppet)) != 0)
        abort();
    server->puppet =
        mmap(NULL, sizeof(struct puppet), PROT_READ | PROT_WRITE, MAP_SHARED, server->memory, 0);
    if (server->puppet == MAP_FAILED)
        abort();
}

static void set_clock(struct server *server)
{
    int64_t since_ns = sched_now() - SCHED_START_NS;
    server->puppet->steady_ns = sched_now();
    server->puppet->wall_ns = CALLS_WALL_NS + sched_now() + server->wall_offset_ns +
                              since_ns / 1000000 * server->drift_ppm;
}

static void has_ended(struct server *server)
{
    int status;
    if (waitpid(server->pid, &status, WNOHANG) != server->pid)
        return;
    server->pid = 0;
    sched_fail("server %d ended by itself, with status %d", server->number, status);
}

/* The server has set TURN_RUN. */
static void wait_until_idle(struct server *server)
{
    const struct timespec second = {.tv_sec = 1};
    for (int s = 0; s < PATIENCE_S; s++) {
        uint32_t turn = atomic_load(&server->puppet->turn);
        if (turn == TURN_RUN)
            return;
        real()->syscall(SYS_futex, &server->puppet->turn, FUTEX_WAIT, turn, &second, NULL, 0);
        if (atomic_load(&server->puppet->turn) != TURN_RUN)
            has_ended(server);
    }
    sched_fail("server %d hangs", server->number);
}

void server_turn(struct server *server)
{
    set_clock(server);
    atomic_store(&server->puppet->turn, TURN_SERVER);
    real()->syscall(SYS_futex, &server->puppet->turn, FUTEX_WAKE, 1, NULL, NULL, 0);
    wait_until_idle(server);
}

static void become_server(const struct server *server)
{
    char number[16], preload[4096];
    snprintf(number, sizeof number, "%d", server->memory);
    setenv(PUPPET_VARIABLE, number, 1);
    snprintf(preload, sizeof preload, "%s", REPLAY_PUPPET);
    setenv("LD_PRELOAD", preload, 1);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    personality(ADDR_NO_RANDOMIZE);
    int null = open("/dev/null", O_RDWR);
    dup2(null, 0);
    if (chdir(server->folder) != 0)
        _exit(126);
    real()->syscall(SYS_close_range, 3, server->memory - 1, 0); /* memory is 3 or more */
    real()->syscall(SYS_close_range, server->memory + 1, ~0u, 0);
    execvp(server->arguments[0], (char *const *)(uintptr_t)server->arguments);
    _exit(127);
}

void server_start(struct server *server)
{
    server->starts++;
    server->puppet->seed = (server->seed * 16 + (uint64_t)server->number) * 1000 + server->starts;
    server->puppet->pid = 1000 + server->number * 100 + (int)server->starts;
    atomic_store(&server->puppet->turn, TURN_SERVER);
    set_clock(server);
    if (server->starts == 1) {
        server->puppet->steady_ns -= server->age_ns;
        server->puppet->wall_ns -= server->age_ns;
    }
    server->pid = (pid_t)real()->syscall(SYS_fork);
    if (server->pid == 0)
        become_server(server);
    wait_until_idle(server);
    server_turn(server);
}

void server_kill(struct server *server)
{
    if (server->pid == 0)
        return;
    kill(server->pid, SIGKILL);
    waitpid(server->pid, NULL, 0);
    server->pid = 0;
}

int server_connect(struct server *server)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    int fd = real()->socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    snprintf(to.sun_path, sizeof to.sun_path, "%s", server->socket);
    if (fd < 0 || real()->connect(fd, (struct sockaddr *)&to, sizeof to) != 0)
        sched_fail("server %d cannot be connected to", server->number);
    server_turn(server);
    return fd;
}
