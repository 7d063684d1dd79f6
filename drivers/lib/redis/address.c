/* address.c - the addresses of a server: the path of a socket, or what the host resolves its name to, outside of the pump. */
#include "link.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>

static void add_address(struct link *link, const void *address, size_t length)
{
    if (link->address_count == LINK_ADDRESSES || length > sizeof(link->addresses[0].address))
        return;
    memcpy(&link->addresses[link->address_count].address, address, length);
    link->addresses[link->address_count++].length = (socklen_t)length;
}

static void resolved(void *ctx, void *argument, const struct addrinfo *addresses,
                     const char *problem)
{
    struct link *link = argument;
    (void)ctx;
    link->looking_up = false;
    if (link->state != LINK_RESOLVING)
        return;                         /* that attempt has ended */
    if (link->looked_up != link->aim) { /* it was for another server */
        link_look_up(link);
        return;
    }
    if (addresses == NULL) {
        link_fault_set(&link->last, MORTISE_UNREACHABLE, true, 0, "%s: %s", link->endpoint.text,
                       problem);
        link->ends->failed(link);
        return;
    }
    for (; addresses != NULL; addresses = addresses->ai_next)
        add_address(link, addresses->ai_addr, addresses->ai_addrlen);
    link->ends->addressed(link);
}

/* A name may have several addresses, and each may be another server. */
static bool is_beside(const struct link *link)
{
    return link->beside != NULL && link_is_up(link->beside) &&
           strcmp(link->beside->endpoint.text, link->endpoint.text) == 0;
}

/* Digits need no look-up, which could hang on the resolver. False: it is a name. */
static bool read_digits(struct link *link, const struct endpoint *endpoint)
{
    struct sockaddr_in four = {.sin_family = AF_INET};
    struct sockaddr_in6 six = {.sin6_family = AF_INET6};
    four.sin_port = six.sin6_port = htons((uint16_t)strtoul(endpoint->port, NULL, 10));
    if (inet_pton(AF_INET, endpoint->host, &four.sin_addr) == 1)
        add_address(link, &four, sizeof(four));
    else if (inet_pton(AF_INET6, endpoint->host, &six.sin6_addr) == 1)
        add_address(link, &six, sizeof(six));
    return link->address_count > 0;
}

void link_look_up(struct link *link)
{
    const struct endpoint *endpoint = &link->endpoint;
    if (is_beside(link)) {
        link->addresses[0] = link->beside->addresses[link->beside->address_at];
        link->address_count = 1;
        link->ends->addressed(link);
        return;
    }
    if (endpoint->port[0] == '\0') {
        struct sockaddr_un path = {.sun_family = AF_UNIX};
        memcpy(path.sun_path, endpoint->host, strlen(endpoint->host));
        add_address(link, &path, sizeof(path));
        link->ends->addressed(link);
        return;
    }
    if (read_digits(link, endpoint)) {
        link->ends->addressed(link);
        return;
    }
    if (link->looking_up) /* the answer to the earlier look-up serves this attempt */
        return;
    link->looking_up = true;
    link->looked_up = link->aim;
    if (link->host->resolve(link->host, endpoint->host, endpoint->port, resolved, link))
        return;
    link->looking_up = false;
    link_fault_set(&link->last, MORTISE_NOMEM, true, 0, "%s: out of memory or threads",
                   endpoint->text);
    link->ends->failed(link);
}
