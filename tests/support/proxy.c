/* proxy.c - starts and controls the fault proxy for tests. Knows the form of its commands, not their meaning. */
#include "proxy.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* A datagram each way; our own address is the kernel's choice (autobind). */
static int connect_to(const char *control)
{
    struct sockaddr_un there = {.sun_family = AF_UNIX}, here = {.sun_family = AF_UNIX};
    struct timeval patience = {.tv_sec = TEST_PATIENCE_MS / 1000};
    if (strlen(control) >= sizeof there.sun_path)
        return -1;
    memcpy(there.sun_path, control, strlen(control) + 1);
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    if (bind(fd, (struct sockaddr *)&here, sizeof here.sun_family) == 0 &&
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) == 0 &&
        connect(fd, (struct sockaddr *)&there, sizeof there) == 0)
        return fd;
    close(fd);
    return -1;
}

bool test_proxy_ask(const char *control, const char *command, char *answer, size_t size)
{
    int fd = connect_to(control);
    if (fd < 0 || size == 0)
        return false;
    ssize_t length = -1;
    if (send(fd, command, strlen(command), MSG_NOSIGNAL) == (ssize_t)strlen(command))
        length = recv(fd, answer, size - 1, 0);
    answer[length > 0 ? length : 0] = '\0';
    close(fd);
    return length > 0;
}

bool test_proxy_start(struct test_proxy *proxy, const char *folder, const char *host, int port)
{
    static int number;
    const char *program = getenv("MORTISE_PROXY");
    char line[64], port_text[16];
    *proxy = (struct test_proxy){.port = -1};
    int length = snprintf(proxy->control, sizeof proxy->control, "%s/proxy-%d", folder, ++number);
    snprintf(port_text, sizeof port_text, "%d", port);
    const char *const argv[] = {program, proxy->control, host, port_text, NULL};
    if (!program || length < 0 || (size_t)length >= sizeof proxy->control ||
        !test_spawn(&proxy->process, argv))
        return false;
    if (test_hear(&proxy->process, line, sizeof line, TEST_PATIENCE_MS) &&
        strncmp(line, "PORT=", 5) == 0)
        proxy->port = (int)strtol(line + 5, NULL, 10);
    if (proxy->port > 0)
        return true;
    test_kill(&proxy->process);
    return false;
}

bool test_proxy_say(struct test_proxy *proxy, const char *format, ...)
{
    char command[256], answer[256];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(command, sizeof command, format, arguments);
    va_end(arguments);
    return length > 0 && (size_t)length < sizeof command &&
           test_proxy_ask(proxy->control, command, answer, sizeof answer) &&
           strncmp(answer, "error", 5) != 0;
}

int64_t test_proxy_count(struct test_proxy *proxy, const char *name)
{
    char answer[512], *rest = answer, *word;
    size_t length = strlen(name);
    if (!test_proxy_ask(proxy->control, "count", answer, sizeof answer))
        return -1;
    while ((word = strtok_r(rest, " ", &rest)))
        if (strncmp(word, name, length) == 0 && word[length] == '=')
            return strtoll(word + length + 1, NULL, 10);
    return -1;
}

void test_proxy_end(struct test_proxy *proxy)
{
    test_kill(&proxy->process);
    if (proxy->control[0])
        unlink(proxy->control);
}
