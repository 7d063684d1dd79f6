/* redis_server.c - a redis-server as a child of the benchmark; see redis_server.h. It is ready when it says so on its
 * standard output. If it ends before that, another program has taken its port, and the next port is tried. */
#include "redis_server.h"

#include "common.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define SERVERS_MAX 16
#define TRIES 5

static pid_t children[SERVERS_MAX]; /* 0: none */

/* ---- the child ---- */

static int free_port(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof(address);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, length) < 0 ||
        getsockname(fd, (struct sockaddr *)&address, &length) < 0)
        bench_die("no free port could be had");
    close(fd);
    return ntohs(address.sin_port);
}

static void become_server(int output, int port, const char *folder, pid_t parent)
{
    char number[16];
    snprintf(number, sizeof(number), "%d", port);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() == parent && dup2(output, STDOUT_FILENO) >= 0)
        execlp("redis-server", "redis-server", "--port", number, "--bind", "127.0.0.1", "--dir",
               folder, "--save", "", "--appendonly", "no", "--daemonize", "no", (char *)NULL);
    _exit(127);
}

static void end_child(pid_t pid)
{
    kill(pid, SIGKILL); /* it has no data to lose */
    waitpid(pid, NULL, 0);
    for (size_t i = 0; i < SERVERS_MAX; i++)
        if (children[i] == pid)
            children[i] = 0;
}

static void end_children(void)
{
    for (size_t i = 0; i < SERVERS_MAX; i++)
        if (children[i] != 0)
            end_child(children[i]);
}

static void note_child(pid_t pid)
{
    static bool registered;
    if (!registered && atexit(end_children) == 0)
        registered = true;
    for (size_t i = 0; i < SERVERS_MAX; i++)
        if (children[i] == 0) {
            children[i] = pid;
            return;
        }
    end_child(pid);
    bench_die("more than %d servers", SERVERS_MAX);
}

static bool says_ready(int output)
{
    char line[512];
    bool ready = false;
    FILE *lines = fdopen(output, "r");
    while (lines != NULL && !ready && fgets(line, sizeof(line), lines) != NULL)
        ready = strstr(line, "Ready to accept connections") != NULL;
    if (lines != NULL)
        fclose(lines); /* its later output is lost; SIGPIPE does not end it */
    return ready;
}

static bool start(struct redis_server *server)
{
    int output[2];
    const char *folder = bench_folder();
    pid_t parent = getpid();
    server->port = free_port();
    if (pipe2(output, O_CLOEXEC) < 0 || (server->pid = fork()) < 0)
        bench_die("redis-server cannot be started");
    if (server->pid == 0)
        become_server(output[1], server->port, folder, parent);
    close(output[1]);
    note_child(server->pid);
    if (says_ready(output[0]))
        return true;
    end_child(server->pid);
    return false;
}

void redis_server_start(struct redis_server *server, int cpu)
{
    bool ready = false;
    bench_pin(cpu); /* the child runs where this thread runs */
    for (int i = 0; i < TRIES && !ready; i++)
        ready = start(server);
    bench_pin(bench.cpu);
    if (!ready)
        bench_die("redis-server does not get ready: is it installed?");
    server->control = redis_server_connect(server);
}

void redis_server_stop(struct redis_server *server)
{
    redisFree(server->control);
    end_child(server->pid);
}

/* ---- talking to it ---- */

redisContext *redis_server_connect(const struct redis_server *server)
{
    redisContext *context = redisConnect("127.0.0.1", server->port);
    if (context == NULL || context->err != 0)
        bench_die("redis-server at port %d: %s", server->port,
                  context == NULL ? "out of memory" : context->errstr);
    return context;
}

redisReply *redis_server_sure(redisContext *context, redisReply *reply)
{
    if (reply == NULL)
        bench_die("redis-server: %s", context->errstr);
    if (reply->type == REDIS_REPLY_ERROR)
        bench_die("redis-server: %s", reply->str);
    return reply;
}

/* The number behind `key` in a section of INFO; 0 if it is not there. */
static double info(const struct redis_server *server, const char *section, const char *key)
{
    redisContext *context = server->control;
    redisReply *reply = redis_server_sure(context, redisCommand(context, "INFO %s", section));
    const char *at = strstr(reply->str, key);
    double value = at == NULL ? 0 : strtod(at + strlen(key), NULL);
    freeReplyObject(reply);
    return value;
}

uint64_t redis_server_calls(const struct redis_server *server, const char *command)
{
    char key[64];
    snprintf(key, sizeof(key), "\ncmdstat_%s:calls=", command);
    return (uint64_t)info(server, "commandstats", key);
}

double redis_server_cpu_ns(const struct redis_server *server)
{
    double system = info(server, "cpu", "\nused_cpu_sys:");
    return (system + info(server, "cpu", "\nused_cpu_user:")) * 1e9;
}
