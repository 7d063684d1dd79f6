/* etcd_server.c - a private etcd, and its counters. See etcd_server.h. */
#include "etcd_server.h"

#include "common.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define METRICS_MAX (1 << 20)

static struct etcd_server *started;

static void server_end(void)
{
    bench_servers_end(&started->servers);
}

void etcd_server_begin(struct etcd_server *server, const char *keys)
{
    bench_servers_begin(&server->servers, "etcd", "etcd", keys, "SERVERS=", server->address,
                        sizeof(server->address));
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
