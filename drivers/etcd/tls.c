/* tls.c - TLS by OpenSSL, with its bytes in memory. See tls.h. */
#include "tls.h"

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RENEW_NS INT64_C(1000000000)

struct tls_context {
    SSL_CTX *ssl;
    int64_t renew_ns; /* when its files may be read again */
    bool is_old;      /* the last attempt to read them failed */
};

struct tls {
    SSL *ssl; /* owns these two: */
    BIO *in, *out;
};

static void explain(char *problem, size_t size, const char *what, const char *file)
{
    unsigned long error = ERR_peek_last_error();
    const char *reason = error == 0 ? NULL : ERR_reason_error_string(error);
    snprintf(problem, size, "%s%s%s%s%s", what, file == NULL ? "" : " ", file == NULL ? "" : file,
             reason == NULL ? "" : ": ", reason == NULL ? "" : reason);
    ERR_clear_error();
}

/* ---- the context ------------------------------------------------------------------------------------- */

/* For an encrypted key. Without this callback OpenSSL would ask for the password on the terminal. */
static int no_password(char *to, int size, int writes, void *argument)
{
    (void)to, (void)size, (void)writes, (void)argument;
    return 0;
}

static bool files_load(SSL_CTX *ssl, const struct tls_settings *settings, char *problem,
                       size_t size)
{
    if (settings->ca != NULL ? SSL_CTX_load_verify_locations(ssl, settings->ca, NULL) != 1
                             : SSL_CTX_set_default_verify_paths(ssl) != 1) {
        explain(problem, size, "cannot read the CA certificates", settings->ca);
        return false;
    }
    if (settings->cert != NULL && SSL_CTX_use_certificate_chain_file(ssl, settings->cert) != 1) {
        explain(problem, size, "cannot read the certificate", settings->cert);
        return false;
    }
    if (settings->key != NULL &&
        (SSL_CTX_use_PrivateKey_file(ssl, settings->key, SSL_FILETYPE_PEM) != 1 ||
         SSL_CTX_check_private_key(ssl) != 1)) {
        explain(problem, size, "cannot use the key", settings->key);
        return false;
    }
    return true;
}

struct tls_context *tls_context_new(const struct tls_settings *settings, char *problem, size_t size)
{
    static const unsigned char h2[] = {2, 'h', '2'};
    struct tls_context *context = calloc(1, sizeof(*context));
    if (context != NULL)
        context->ssl = SSL_CTX_new(TLS_client_method());
    if (context == NULL || context->ssl == NULL) {
        snprintf(problem, size, "out of memory");
        tls_context_free(context);
        return NULL;
    }
    SSL_CTX_set_default_passwd_cb(context->ssl, no_password);
    SSL_CTX_set_min_proto_version(context->ssl, TLS1_2_VERSION);
    SSL_CTX_set_verify(context->ssl, SSL_VERIFY_PEER, NULL);
    SSL_CTX_set_alpn_protos(context->ssl, h2, sizeof(h2));
    SSL_CTX_set_mode(context->ssl, SSL_MODE_RELEASE_BUFFERS);
    if (files_load(context->ssl, settings, problem, size))
        return context;
    tls_context_free(context);
    return NULL;
}

bool tls_context_renew(struct tls_context *context, const struct tls_settings *settings,
                       int64_t now_ns, char *problem, size_t size)
{
    bool was_old = context->is_old;
    problem[0] = '\0';
    if (now_ns < context->renew_ns)
        return false;
    struct tls_context *next = tls_context_new(settings, problem, size);
    context->renew_ns = now_ns + RENEW_NS;
    context->is_old = next == NULL;
    if (next != NULL) {
        SSL_CTX *old = context->ssl;
        context->ssl = next->ssl;
        next->ssl = old;
        tls_context_free(next);
    } else if (was_old)
        problem[0] = '\0';
    return true;
}

void tls_context_free(struct tls_context *context)
{
    if (context == NULL)
        return;
    SSL_CTX_free(context->ssl);
    free(context);
}

/* ---- one connection ------------------------------------------------------------------------------------ */

/* If the host is an address, it is checked against the addresses of the certificate. */
static bool host_set(SSL *ssl, const char *host)
{
    unsigned char address[16];
    if (inet_pton(AF_INET, host, address) == 1 || inet_pton(AF_INET6, host, address) == 1)
        return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), host) == 1;
    return SSL_set_tlsext_host_name(ssl, host) == 1 && SSL_set1_host(ssl, host) == 1;
}

struct tls *tls_new(struct tls_context *context, const char *host)
{
    struct tls *tls = calloc(1, sizeof(*tls));
    if (tls == NULL)
        return NULL;
    tls->ssl = SSL_new(context->ssl);
    tls->in = BIO_new(BIO_s_mem());
    tls->out = BIO_new(BIO_s_mem());
    if (tls->ssl == NULL || tls->in == NULL || tls->out == NULL || !host_set(tls->ssl, host)) {
        BIO_free(tls->in);
        BIO_free(tls->out);
        SSL_free(tls->ssl);
        free(tls);
        ERR_clear_error();
        return NULL;
    }
    BIO_set_mem_eof_return(tls->in, -1); /* empty: more may come */
    SSL_set_bio(tls->ssl, tls->in, tls->out);
    SSL_set_connect_state(tls->ssl);
    return tls;
}

void tls_free(struct tls *tls)
{
    if (tls == NULL)
        return;
    SSL_free(tls->ssl);
    free(tls);
}

bool tls_feed(struct tls *tls, const void *data, size_t size)
{
    return BIO_write(tls->in, data, (int)size) == (int)size;
}

void tls_drain(struct tls *tls, struct writer *out)
{
    char *data;
    long size = BIO_get_mem_data(tls->out, &data);
    if (size > 0)
        write_raw(out, data, (size_t)size);
    (void)BIO_reset(tls->out);
}

static bool is_protocol(const struct tls *tls)
{
    const unsigned char *name;
    unsigned length;
    SSL_get0_alpn_selected(tls->ssl, &name, &length);
    return length == 2 && memcmp(name, "h2", 2) == 0;
}

int tls_handshake(struct tls *tls, char *problem, size_t size)
{
    ERR_clear_error();
    int result = SSL_do_handshake(tls->ssl);
    if (result == 1) {
        if (is_protocol(tls))
            return 1;
        snprintf(problem, size, "TLS: the server does not offer HTTP/2: no etcd?");
        return -1;
    }
    if (SSL_get_error(tls->ssl, result) == SSL_ERROR_WANT_READ)
        return 0;
    long verified = SSL_get_verify_result(tls->ssl);
    if (verified != X509_V_OK)
        snprintf(problem, size, "TLS: the certificate of the server is refused: %s",
                 X509_verify_cert_error_string(verified));
    else
        explain(problem, size, "TLS", NULL);
    ERR_clear_error();
    return -1;
}

ssize_t tls_read(struct tls *tls, void *to, size_t room, char *problem, size_t size)
{
    ERR_clear_error();
    int count = SSL_read(tls->ssl, to, (int)room);
    if (count > 0)
        return count;
    int error = SSL_get_error(tls->ssl, count);
    if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE)
        return 0;
    if (error == SSL_ERROR_ZERO_RETURN)
        snprintf(problem, size, "the server has closed the connection");
    else
        explain(problem, size, "TLS", NULL);
    return -1;
}

bool tls_write(struct tls *tls, const void *data, size_t size)
{
    ERR_clear_error();
    bool is_done = size == 0 || SSL_write(tls->ssl, data, (int)size) == (int)size;
    ERR_clear_error();
    return is_done;
}
