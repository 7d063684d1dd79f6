/* endpoints.c - reads the list of endpoints. See endpoints.h. */
#include "endpoints.h"

#include "../lib/host_text.h"

#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_PORT "2379"

/* Copies a part of the list. False: it does not fit, or is empty. */
static bool take(char *to, size_t size, const char *from, const char *end)
{
    size_t length = (size_t)(end - from);
    if (length == 0 || length >= size)
        return false;
    memcpy(to, from, length);
    to[length] = '\0';
    return true;
}

static bool is_port(const char *text)
{
    char *rest;
    long number = strtol(text, &rest, 10);
    return text[0] >= '0' && text[0] <= '9' && *rest == '\0' && number > 0 && number < 65536;
}

/* "host", "host:port", "[address]:port" or a bare IPv6 address. */
static bool split(const char *text, const char *end, struct endpoint *endpoint)
{
    const char *colon = memrchr(text, ':', (size_t)(end - text)), *host_end;
    bool is_bare = colon != NULL && memchr(text, ':', (size_t)(colon - text)) != NULL;
    if (text[0] == '[') {
        host_end = memchr(text, ']', (size_t)(end - text));
        if (host_end == NULL || (host_end + 1 != end && host_end[1] != ':'))
            return false;
        colon = host_end + 1 == end ? NULL : host_end + 1;
        text++;
        is_bare = true;
    } else {
        colon = is_bare ? NULL : colon;
        host_end = colon == NULL ? end : colon;
    }
    memcpy(endpoint->port, DEFAULT_PORT, sizeof(DEFAULT_PORT));
    if (!take(endpoint->host, sizeof(endpoint->host), text, host_end) ||
        !host_text_ok(endpoint->host) ||
        (colon != NULL && !take(endpoint->port, sizeof(endpoint->port), colon + 1, end)) ||
        !is_port(endpoint->port))
        return false;
    snprintf(endpoint->text, sizeof(endpoint->text), is_bare ? "[%s]:%s" : "%s:%s", endpoint->host,
             endpoint->port);
    return true;
}

bool endpoints_read(struct endpoints *endpoints, const char *list, const char **problem)
{
    endpoints->count = endpoints->at = 0;
    for (const char *at = list + strspn(list, ", \t"); *at != '\0'; at += strspn(at, ", \t")) {
        const char *end = at + strcspn(at, ", \t");
        bool is_full = endpoints->count == ENDPOINTS_MAX;
        *problem = is_full ? NULL : at;
        if (is_full || !split(at, end, &endpoints->all[endpoints->count]))
            return false;
        endpoints->count++;
        at = end;
    }
    *problem = NULL;
    return endpoints->count > 0;
}

/* The address behind `last` becomes the first one; the order stays. */
static void rotate(struct address *all, size_t count, const struct address *last)
{
    struct address old[ENDPOINT_ADDRESSES];
    size_t behind = 0;
    for (size_t i = 0; i < count; i++)
        if (all[i].length == last->length &&
            memcmp(&all[i].address, &last->address, last->length) == 0)
            behind = i + 1;
    memcpy(old, all, count * sizeof(*all));
    for (size_t i = 0; i < count; i++)
        all[i] = old[(behind + i) % count];
}

size_t addresses_take(const struct addrinfo *from, const struct address *last,
                      struct address to[ENDPOINT_ADDRESSES])
{
    size_t count = 0;
    for (; from != NULL && count < ENDPOINT_ADDRESSES; from = from->ai_next) {
        if (from->ai_addrlen > sizeof(to->address))
            continue;
        memcpy(&to[count].address, from->ai_addr, from->ai_addrlen);
        to[count++].length = from->ai_addrlen;
    }
    rotate(to, count, last);
    return count;
}
