/* ports.c - ports in what servers send. The nodes of a Redis Cluster name each other to clients; where a proxy is in front of each
 * node, clients must be led to the proxies. Each port has five digits, so the length of a message does not change.
 *
 * A port is meant where it follows one of the words below: in redirects, in CLUSTER SLOTS, and in CLUSTER SHARDS. */
#include "internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DIGITS 5
#define PORTS_MAX 16

static const char *const before[] = {"127.0.0.1:", "127.0.0.1\r\n:", "port\r\n:"};
#define BEFORE (sizeof before / sizeof before[0])

static struct port {
    char from[DIGITS + 1], to[DIGITS + 1];
} ports[PORTS_MAX];
static size_t port_count;

bool map_port(const char *from, const char *to)
{
    int64_t from_port, to_port;
    if (port_count == PORTS_MAX || !read_number(from, &from_port) || !read_number(to, &to_port) ||
        strlen(from) != DIGITS || strlen(to) != DIGITS)
        return false;
    memcpy(ports[port_count].from, from, DIGITS + 1);
    memcpy(ports[port_count++].to, to, DIGITS + 1);
    return true;
}

/* How many of the bytes belong to the word and its port, or to their beginning: all of a match, or up to the end. 0: it is not
 * here. */
static size_t match(const char *bytes, size_t size, const char *word)
{
    size_t length = strlen(word), all = length + DIGITS;
    size_t compared = size < length ? size : length;
    if (memcmp(bytes, word, compared) != 0)
        return 0;
    for (size_t i = length; i < all && i < size; i++)
        if (bytes[i] < '0' || bytes[i] > '9')
            return 0;
    return size < all ? size : all;
}

static void change(char *digits)
{
    for (size_t i = 0; i < port_count; i++)
        if (memcmp(digits, ports[i].from, DIGITS) == 0) {
            memcpy(digits, ports[i].to, DIGITS);
            return;
        }
}

size_t map_ports(char *bytes, size_t size)
{
    for (size_t at = 0; port_count > 0 && at < size; at++)
        for (size_t i = 0; i < BEFORE; i++) {
            size_t length = strlen(before[i]), matched = match(bytes + at, size - at, before[i]);
            if (matched == length + DIGITS)
                change(bytes + at + length);
            else if (matched > 0 && matched == size - at)
                return at;
        }
    return size;
}
