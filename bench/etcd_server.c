/* etcd_server.c - a private etcd, and its counters. See etcd_server.h. */
#include "etcd_server.h"

#include "common.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define METRICS_MAX (1 << 20)

static char script[1024];
static struct etcd_server *started;

/* servers.sh; its first line that begins with `begin`, without it. */
static void run(const struct etcd_server *server, const char *verb, const char *words,
                const char *begin, char *value, size_t size)
{
    char command[2048], line[256];
    snprintf(command, sizeof(command), "sh '%s' %s etcd '%s' %s", script, verb, server->folder,
             words);
    FILE *output = popen(command, "r");
    if (output == NULL)
        bench_die("%s", command);
    while (fgets(line, sizeof(line), output) != NULL)
        if (value != NULL && strncmp(line, begin, strlen(begin)) == 0)
            snprintf(value, size, "%.*s", (int)strcspn(line + strlen(begin), "\n"),
                     line + strlen(begin));
    int status = pclose(output);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) /* servers.sh says why */
        exit(77);
    if (status != 0)
        bench_die("no etcd server: %s", command);
}

static void server_end(void)
{
    run(started, "end", "", "", NULL, 0);
}

void etcd_server_begin(struct etcd_server *server, const char *keys)
{
    const char *source = getenv("MORTISE_SOURCE_DIR");
    char words[256], command[600];
    snprintf(script, sizeof(script), "%s/tests/servers.sh", source != NULL ? source : SOURCE_DIR);
    snprintf(server->folder, sizeof(server->folder), "%.400s/etcd", bench_folder());
    snprintf(command, sizeof(command), "mkdir '%s'", server->folder);
    if (system(command) != 0)
        bench_die("%s", command);
    snprintf(words, sizeof(words), "guard=%d %s", (int)getpid(), keys);
    run(server, "start", words, "SERVERS=", server->address, sizeof(server->address));
    started = server;
    atexit(server_end);
    snprintf(server->url, sizeof(server->url), "etcd://%s/bench", server->address);
}

/* ---- what it counts ------------------------------------------------------------------------------------- */

/* Sends one HTTP request, and returns the stream of its answer. */
static FILE *get(const struct etcd_server *server, const char *path)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    const char *port = strchr(server->address, ':');
    char request[256];
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons((uint16_t)strtoul(port != NULL ? port + 1 : "0", NULL, 10));
    int length = snprintf(request, sizeof(request), "GET %s HTTP/1.0\r\nHost: %s\r\n\r\n", path,
                          server->address);
    FILE *stream = fd < 0 ? NULL : fdopen(fd, "r+");
    if (stream == NULL || connect(fd, (struct sockaddr *)&address, sizeof(address)) != 0 ||
        write(fd, request, (size_t)length) != length)
        bench_die("%s: %s does not answer", server->address, path);
    return stream;
}

char *etcd_server_metrics(const struct etcd_server *server)
{
    FILE *stream = get(server, "/metrics");
    char *text = malloc(METRICS_MAX);
    size_t size = text == NULL ? 0 : fread(text, 1, METRICS_MAX - 1, stream);
    if (size == 0 || size == METRICS_MAX - 1)
        bench_die("%s: /metrics cannot be read", server->address);
    text[size] = '\0';
    fclose(stream);
    return text;
}

double etcd_metric(const char *metrics, const char *counter, const char *label)
{
    size_t length = strlen(counter);
    char line[512];
    double sum = 0;
    for (const char *at = metrics; *at != '\0'; at += strcspn(at, "\n"), at += *at == '\n') {
        if (strncmp(at, counter, length) != 0 || (at[length] != '{' && at[length] != ' '))
            continue;
        snprintf(line, sizeof(line), "%.*s", (int)strcspn(at, "\n"), at);
        const char *value = strrchr(line, ' ');
        if (value != NULL && strstr(line, label) != NULL)
            sum += strtod(value, NULL);
    }
    return sum;
}
