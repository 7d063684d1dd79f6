/* servers.c - the servers of the config, names or addresses. The core looks the names up, so the library gets only
 * addresses and never asks a resolver, which could block. */
#include "session.h"

#include "../lib/host_text.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_PORT "2181"
#define SERVERS_MAX 64

struct server {
    struct server *next;
    struct driver *driver;
    char *host, *port;
    char *addresses; /* "192.0.2.1:2181,2001:db8::1:2181"; NULL: none are known */
    bool asked;      /* a look-up is on its way */
};

/* Reads "host", "host:port", "[address]:port" or a bare IPv6 address. False: it is none of these. */
static bool split(const char *text, size_t length, char *host, char *port, size_t size)
{
    const char *end = text + length, *colon = memrchr(text, ':', length);
    const char *host_end = colon == NULL ? end : colon;
    if (text[0] == '[') {
        const char *close = memchr(text, ']', length);
        if (close == NULL || (close + 1 != end && close[1] != ':'))
            return false;
        colon = close + 1 == end ? NULL : close + 1;
        host_end = close;
        text++;
    } else if (colon != NULL && memchr(text, ':', (size_t)(colon - text)) != NULL) {
        colon = NULL;
        host_end = end;
    }
    snprintf(host, size, "%.*s", (int)(host_end - text), text);
    snprintf(port, size, "%.*s", colon == NULL ? 4 : (int)(end - colon - 1),
             colon == NULL ? DEFAULT_PORT : colon + 1);
    char *rest;
    long number = strtol(port, &rest, 10);
    return host[0] != '\0' && host_text_ok(host) && port[0] != '\0' && *rest == '\0' &&
           number > 0 && number < 65536;
}

/* `at`: the list from the wrong server on. The message shows nothing of a user and a password, even if they contain a comma. */
static mortise_status wrong_server(const char *at, mortise_error *error)
{
    size_t length, first;
    const char *shown = host_text_shown(at, &length);
    first = strcspn(shown, ", \t");
    length = first < length ? first : length;
    return fault_error(error, MORTISE_CONFIG, "zookeeper: servers: \"%.*s\" %s",
                       (int)(length < 200 ? length : 200), shown,
                       shown == at ? "is not HOST or HOST:PORT"
                                   : "has a user and an @ before it; set auth");
}

static struct server *server_new(struct driver *driver, const char *host, const char *port)
{
    struct server *server = calloc(1, sizeof(*server));
    if (server == NULL)
        return NULL;
    server->driver = driver;
    server->host = strdup(host);
    server->port = strdup(port);
    LL_APPEND(driver->servers, server);
    driver->server_count++;
    return server->host == NULL || server->port == NULL ? NULL : server;
}

mortise_status servers_read(struct driver *driver, mortise_error *error)
{
    const char *list = driver->values[OPTION_SERVERS].text;
    char host[256], port[256];
    for (const char *at = list;; at++) {
        at += strspn(at, ", \t");
        size_t length = strcspn(at, ", \t");
        if (length == 0)
            break;
        if (length >= sizeof(host) || !split(at, length, host, port, sizeof(host)))
            return wrong_server(at, error);
        if (driver->server_count == SERVERS_MAX)
            return fault_error(error, MORTISE_CONFIG, "zookeeper: more than %d servers",
                               SERVERS_MAX);
        if (server_new(driver, host, port) == NULL)
            return fault_error(error, MORTISE_NOMEM, "zookeeper: out of memory");
        at += length;
        if (*at == '\0')
            break;
    }
    return driver->server_count > 0
               ? MORTISE_OK
               : fault_error(error, MORTISE_CONFIG, "zookeeper: servers: none is named");
}

/* Appends the address without brackets, because the library takes everything before the last colon as the address. */
static char *append_address(char *text, const struct addrinfo *address)
{
    char host[NI_MAXHOST], port[NI_MAXSERV], *longer;
    if (getnameinfo(address->ai_addr, address->ai_addrlen, host, sizeof(host), port, sizeof(port),
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0)
        return text;
    int length = asprintf(&longer, "%s%s%s:%s", text == NULL ? "" : text, text == NULL ? "" : ",",
                          host, port);
    if (length < 0)
        return text;
    free(text);
    return longer;
}

static void resolved(void *ctx, void *argument, const struct addrinfo *addresses,
                     const char *problem)
{
    struct driver *driver = ctx;
    struct server *server = argument;
    server->asked = false;
    if (addresses != NULL) { /* otherwise the addresses of the last look-up stay */
        free(server->addresses);
        server->addresses = NULL;
    } else if (!is_connected(driver))
        snprintf(driver->trouble, sizeof(driver->trouble), "%.80s: %.60s", server->host, problem);
    for (; addresses != NULL; addresses = addresses->ai_next)
        server->addresses = append_address(server->addresses, addresses);
    if (!servers_asking(driver))
        driver->upcalls->servers_known(driver);
}

void servers_ask(struct driver *driver)
{
    struct server *server;
    driver->lookup_ns = now_of(driver);
    LL_FOREACH (driver->servers, server)
        if (!server->asked)
            server->asked =
                driver->host->resolve(driver->host, server->host, server->port, resolved, server);
}

bool servers_asking(const struct driver *driver)
{
    const struct server *server;
    LL_FOREACH (driver->servers, server)
        if (server->asked)
            return true;
    return false;
}

char *servers_text(const struct driver *driver)
{
    const struct server *server;
    size_t size = 1;
    LL_FOREACH (driver->servers, server)
        size += server->addresses == NULL ? 0 : strlen(server->addresses) + 1;
    char *text = size > 1 ? malloc(size) : NULL, *to = text;
    LL_FOREACH (driver->servers, server) {
        if (text == NULL || server->addresses == NULL)
            continue;
        size_t length = strlen(server->addresses);
        if (to != text)
            *to++ = ',';
        memcpy(to, server->addresses, length);
        to += length;
    }
    if (text != NULL)
        *to = '\0';
    return text;
}

void servers_free(struct driver *driver)
{
    struct server *server, *next;
    LL_FOREACH_SAFE(driver->servers, server, next)
    {
        free(server->host);
        free(server->port);
        free(server->addresses);
        free(server);
    }
    driver->servers = NULL;
}
