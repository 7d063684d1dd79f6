/* endpoints.h - the endpoints of the config: names or addresses of the members, and which one is tried next. No I/O; only
 * converts addresses. */
#ifndef MORTISE_ETCD_ENDPOINTS_H
#define MORTISE_ETCD_ENDPOINTS_H

#include <mortise/driver.h>

#include <sys/socket.h>

#define ENDPOINTS_MAX 32
#define ENDPOINT_ADDRESSES 8 /* of one name */

struct endpoint {
    char host[256], port[8];
    char text[270]; /* for messages, and as the authority of requests */
};

struct address {
    struct sockaddr_storage address;
    socklen_t length;
};

struct endpoints {
    struct endpoint all[ENDPOINTS_MAX];
    size_t count, at;
};

/* Reads a list of HOST, HOST:PORT, ADDRESS or [ADDRESS]:PORT. False: *problem is the place of the error, or NULL if there
 * are too many endpoints, or none. */
bool endpoints_read(struct endpoints *endpoints, const char *list, const char **problem);
/* Copies as many addresses as there is room for, beginning behind `last` if that is one of them. Returns how many. */
size_t addresses_take(const struct addrinfo *from, const struct address *last,
                      struct address to[ENDPOINT_ADDRESSES]);

#endif
