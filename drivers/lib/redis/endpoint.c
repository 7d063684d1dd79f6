/* endpoint.c - where a server is, as text: "host", "host:port", "[::1]:6379", "/path/of/socket". */
#include "link.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

static const char *skip_blanks(const char *text)
{
    return text + strspn(text, " \t\n");
}

static bool copy(char *to, size_t size, const char *from, size_t length)
{
    if (length == 0 || length >= size)
        return false;
    memcpy(to, from, length);
    to[length] = '\0';
    return true;
}

static bool read_port(struct endpoint *endpoint, const char *text, size_t length)
{
    unsigned port = 0;
    if (length == 0 || length > 5)
        return false;
    for (size_t i = 0; i < length; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        port = port * 10 + (unsigned)(text[i] - '0');
    }
    snprintf(endpoint->port, sizeof(endpoint->port), "%u", port % 100000);
    return port > 0 && port < 65536;
}

/* "[::1]" and "[::1]:6379": the length of the host without its brackets, 0 if it is not of that form. */
static size_t bracketed(const char *text, size_t length, size_t *used)
{
    const char *end = memchr(text, ']', length);
    if (text[0] != '[' || end == NULL)
        return 0;
    *used = (size_t)(end - text) + 1;
    return *used - 2;
}

static bool read_host(struct endpoint *endpoint, const char *text, size_t length, const char *port,
                      const char **problem)
{
    size_t used, host = bracketed(text, length, &used);
    bool read;
    if (host > 0) {
        read = copy(endpoint->host, sizeof(endpoint->host), text + 1, host);
    } else {
        const char *colon = memchr(text, ':', length);
        used = colon == NULL ? length : (size_t)(colon - text);
        read = copy(endpoint->host, sizeof(endpoint->host), text, used);
    }
    *problem = "a host name or address of 1 to 255 bytes is expected; an IPv6 address in brackets";
    if (!read || strpbrk(endpoint->host, " \t\n@/[]") != NULL)
        return false;
    *problem = "after the host ':' and a port (1 to 65535) are expected; an IPv6 address goes in "
               "brackets";
    if (used < length)
        return text[used] == ':' && read_port(endpoint, text + used + 1, length - used - 1);
    return read_port(endpoint, port, strlen(port));
}

static bool read_path(struct endpoint *endpoint, const char *text, size_t length,
                      const char **problem)
{
    *problem = "the path of a socket must be shorter than 108 bytes";
    endpoint->port[0] = '\0';
    return length < sizeof(((struct sockaddr_un *)NULL)->sun_path) &&
           copy(endpoint->host, sizeof(endpoint->host), text, length);
}

static void describe(struct endpoint *endpoint)
{
    char *text = endpoint->text;
    size_t size = sizeof(endpoint->text);
    if (endpoint->port[0] == '\0')
        snprintf(text, size, "%s", endpoint->host);
    else if (strchr(endpoint->host, ':') != NULL)
        snprintf(text, size, "[%s]:%s", endpoint->host, endpoint->port);
    else
        snprintf(text, size, "%s:%s", endpoint->host, endpoint->port);
}

socklen_t endpoint_address(const struct endpoint *endpoint, struct sockaddr_storage *address)
{
    struct sockaddr_un path = {.sun_family = AF_UNIX};
    struct sockaddr_in four = {.sin_family = AF_INET};
    struct sockaddr_in6 six = {.sin6_family = AF_INET6};
    in_port_t port = htons((uint16_t)strtoul(endpoint->port, NULL, 10));
    if (endpoint->port[0] == '\0') {
        memcpy(path.sun_path, endpoint->host, strlen(endpoint->host));
        memcpy(address, &path, sizeof(path));
        return sizeof(path);
    }
    if (inet_pton(AF_INET, endpoint->host, &four.sin_addr) == 1) {
        four.sin_port = port;
        memcpy(address, &four, sizeof(four));
        return sizeof(four);
    }
    if (inet_pton(AF_INET6, endpoint->host, &six.sin6_addr) == 1) {
        six.sin6_port = port;
        memcpy(address, &six, sizeof(six));
        return sizeof(six);
    }
    return 0;
}

bool endpoint_set(struct endpoint *endpoint, const char *host, size_t host_len, const char *port,
                  size_t port_len)
{
    if (!copy(endpoint->host, sizeof(endpoint->host), host, host_len) ||
        strlen(endpoint->host) != host_len || strpbrk(endpoint->host, " \t\r\n@/[],") != NULL ||
        !read_port(endpoint, port, port_len))
        return false;
    describe(endpoint);
    return true;
}

bool endpoint_next(const char **list, const char *port, struct endpoint *endpoint,
                   const char **problem)
{
    const char *text = skip_blanks(*list);
    size_t length = strcspn(text, ",");
    *list = text[length] == ',' ? text + length + 1 : text + length;
    while (length > 0 && strchr(" \t\n", text[length - 1]) != NULL)
        length--;
    *problem = "a server is missing between the commas";
    if (length == 0)
        return false;
    bool read = text[0] == '/' ? read_path(endpoint, text, length, problem)
                               : read_host(endpoint, text, length, port, problem);
    if (read)
        describe(endpoint);
    return read;
}
