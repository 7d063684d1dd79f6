/* socket.h - a non-blocking TCP connection, with or without TLS: bytes in, bytes out. Does not know what they mean. */
#ifndef MORTISE_ETCD_SOCKET_H
#define MORTISE_ETCD_SOCKET_H

#include "tls.h"
#include "wire.h"

#include <sys/socket.h>

struct socket {
    int fd; /* -1: none */
    struct tls *tls;
    struct writer out; /* for the kernel */
    size_t sent;
    bool blocked; /* the kernel did not take all: POLLOUT */
    char problem[200];
};

/* Begins to connect. False: `problem`. */
bool socket_connect(struct socket *sock, const struct sockaddr *address, socklen_t length);
/* Whether the connection is made; false: `problem`. */
bool socket_connected(struct socket *sock);
/* Begins TLS. False: `problem`. */
bool socket_secure(struct socket *sock, struct tls_context *context, const char *host);

enum secured { SECURED_NOT_YET, SECURED, SECURED_NEVER };
/* Continues the handshake. */
enum secured socket_handshake(struct socket *sock);

/* Returns how many bytes were read; 0: none have come; -1: the end of the stream, or an error: `problem`. */
ssize_t socket_read(struct socket *sock, void *to, size_t room);
/* Takes all bytes. False: no memory. */
bool socket_write(struct socket *sock, const void *data, size_t size);
/* Gives the kernel as much as it takes. False: `problem`. */
bool socket_flush(struct socket *sock);
/* The descriptor must be closing (host->closing). */
void socket_close(struct socket *sock);

#endif
