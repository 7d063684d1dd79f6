/* tls.h - TLS by OpenSSL, from bytes in memory to bytes in memory; no I/O of its own. The certificate of the server is always
 * checked, and its name against the host's. */
#ifndef MORTISE_ETCD_TLS_H
#define MORTISE_ETCD_TLS_H

#include "wire.h"

#include <sys/types.h>

struct tls_settings {
    const char *ca, *cert, *key; /* files; NULL: the system's, none, none */
};

struct tls_context;
struct tls;

/* NULL: `problem` says why. */
struct tls_context *tls_context_new(const struct tls_settings *settings, char *problem,
                                    size_t size);
/* Reads the files again; if that fails, the old ones stay in force. False: they were read less than a second ago, and are not
 * read now, because those of the system may be large. problem: why it failed, if it did not fail the last time; else "". */
bool tls_context_renew(struct tls_context *context, const struct tls_settings *settings,
                       int64_t now_ns, char *problem, size_t size);
void tls_context_free(struct tls_context *context);

/* host: a name or an address, which the certificate must have. NULL: no memory. */
struct tls *tls_new(struct tls_context *context, const char *host);
void tls_free(struct tls *tls);
/* Takes bytes from the peer. False: no memory. */
bool tls_feed(struct tls *tls, const void *data, size_t size);
/* Adds the bytes for the peer to `out`. */
void tls_drain(struct tls *tls, struct writer *out);
/* 1: done; 0: needs more from the peer; -1: failed: `problem`. */
int tls_handshake(struct tls *tls, char *problem, size_t size);
/* Reads plain bytes; 0: none; -1: the end of the stream, or an error: `problem`. */
ssize_t tls_read(struct tls *tls, void *to, size_t room, char *problem, size_t size);
/* Takes all bytes. False: it failed. */
bool tls_write(struct tls *tls, const void *data, size_t size);

#endif
