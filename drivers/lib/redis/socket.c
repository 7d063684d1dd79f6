/* socket.c - a socket to one address, with hiredis's context, whose reader parses replies, and with TLS if hiredis has it (1.0
 * and later, with its own SSL layer; the certificate is checked against the server's name).
 *
 * Plain bytes are written with MSG_NOSIGNAL. The TLS library writes by itself, so this thread blocks SIGPIPE meanwhile.
 *
 * The program may close the descriptor by mistake, and then have a socket of its own under that number, which may block. So
 * plain bytes are sent and received with MSG_DONTWAIT; read(2) would also take bytes out of a pipe. The TLS library is not
 * guarded in this way. */
#include "../tcp.h"
#include "link.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define READ_SIZE (16 << 10)
#define ELEMENTS_MAX (1 << 20) /* in one reply, nested ones too: more than any sane answer has */
#define REPLY_MAX (16 << 20)   /* bytes of one reply: a page of a list has some hundred kilobytes */
#define DEPTH_MAX 6            /* lists in lists: ROLE has three */

int link_socket(const struct link *link)
{
    const struct sockaddr *address =
        (const struct sockaddr *)&link->addresses[link->address_at].address;
    int fd = socket(address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd == 0) { /* the program closed its stdin; hiredis takes 0 for none */
        fd = fcntl(0, F_DUPFD_CLOEXEC, 3);
        close(0);
    }
    if (fd < 0)
        return -1;
    if (address->sa_family != AF_UNIX)
        tcp_set_options(fd);
    if (connect(fd, address, link->addresses[link->address_at].length) == 0 || errno == EINPROGRESS)
        return fd;
    int problem = errno;
    close(fd);
    errno = problem;
    return -1;
}

static int fail_context(redisContext *context, int error, const char *text)
{
    context->err = error;
    snprintf(context->errstr, sizeof(context->errstr), "%s", text);
    return REDIS_ERR;
}

/* Does what redisBufferRead() does, but without read(2). */
static int read_plain(struct link *link)
{
    redisContext *context = link->context;
    char bytes[READ_SIZE];
    ssize_t n = recv(link->fd, bytes, sizeof(bytes), MSG_DONTWAIT);
    if (n == 0)
        return fail_context(context, REDIS_ERR_EOF, "");
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
        return REDIS_OK;
    if (n < 0)
        return fail_context(context, REDIS_ERR_IO, strerror(errno));
    if (redisReaderFeed(context->reader, bytes, (size_t)n) != REDIS_OK)
        return fail_context(context, context->reader->err, context->reader->errstr);
    return REDIS_OK;
}

/* ---- TLS ------------------------------------------------------------------------------------------ */

#ifdef MORTISE_REDIS_TLS
#include "../sigpipe.h"
#include <arpa/inet.h>
#include <hiredis/hiredis_ssl.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

const char *link_tls_problem(const struct link_settings *settings)
{
    (void)settings;
    return NULL;
}

static bool load(SSL_CTX *context, const struct link_settings *settings)
{
    bool trusts = settings->tls_ca != NULL
                      ? SSL_CTX_load_verify_locations(context, settings->tls_ca, NULL) == 1
                      : SSL_CTX_set_default_verify_paths(context) == 1;
    if (!trusts || settings->tls_cert == NULL)
        return trusts;
    return SSL_CTX_use_certificate_chain_file(context, settings->tls_cert) == 1 &&
           SSL_CTX_use_PrivateKey_file(context, settings->tls_key, SSL_FILETYPE_PEM) == 1;
}

/* The certificate must be for the host's name, or for its address if an address was given. */
static bool set_name(SSL *ssl, const char *host)
{
    unsigned char address[sizeof(struct in6_addr)];
    X509_VERIFY_PARAM *check = SSL_get0_param(ssl);
    if (inet_pton(AF_INET, host, address) == 1 || inet_pton(AF_INET6, host, address) == 1)
        return X509_VERIFY_PARAM_set1_ip_asc(check, host) == 1;
    return SSL_set_tlsext_host_name(ssl, host) == 1 && SSL_set1_host(ssl, host) == 1;
}

/* Of an encrypted key: without this OpenSSL asks on the terminal, or reads the program's input, and the pump waits. */
static int no_password(char *to, int size, int writes, void *argument)
{
    (void)to, (void)size, (void)writes, (void)argument;
    return 0;
}

/* Reads the files, in the pump; after a failed attempt they are read again. */
static SSL_CTX *new_context(const struct link_settings *settings)
{
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    if (context == NULL)
        return NULL;
    SSL_CTX_set_default_passwd_cb(context, no_password);
    SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);
    if (load(context, settings))
        return context;
    SSL_CTX_free(context);
    return NULL;
}

void link_free_tls(struct link *link)
{
    SSL_CTX_free(link->tls_context);
    link->tls_context = NULL;
}

static SSL *new_tls(struct link *link)
{
    if (link->tls_context == NULL)
        link->tls_context = new_context(link->settings);
    SSL *ssl = link->tls_context != NULL ? SSL_new(link->tls_context) : NULL;
    if (ssl != NULL && !set_name(ssl, link->endpoint.host)) {
        SSL_free(ssl);
        ssl = NULL;
    }
    return ssl;
}

/* Runs a function that reads or writes through TLS, and keeps SIGPIPE and errors from the application. OpenSSL has one queue of
 * errors for all that a thread does. If it contains an old error, of another connection or of the application, hiredis takes
 * "there is nothing to read yet" for a broken connection. An error that we left there would do the same to the application.
 * Keeps errno. */
static int run_tls(struct link *link, int (*run)(redisContext *context, void *argument),
                   void *argument)
{
    struct sigpipe before;
    ERR_clear_error();
    sigpipe_block(&before);
    int result = run(link->context, argument);
    sigpipe_restore(&before);
    int problem = errno;
    if (result != REDIS_OK && link->tls_reason == NULL)
        link->tls_reason = ERR_reason_error_string(ERR_peek_last_error());
    ERR_clear_error();
    errno = problem;
    return result;
}

static int begin_tls(redisContext *context, void *ssl)
{
    return redisInitiateSSL(context, ssl);
}

static int flush_tls(redisContext *context, void *done)
{
    return redisBufferWrite(context, done);
}

static int read_tls(redisContext *context, void *unused)
{
    (void)unused;
    return redisBufferRead(context);
}

static bool wrap_tls(struct link *link, struct link_fault *fault)
{
    char reason[160] = "the certificates or the key cannot be used";
    ERR_clear_error();
    SSL *ssl = new_tls(link);
    link->tls = ssl;
    if (ssl == NULL)
        ERR_error_string_n(ERR_get_error(), reason, sizeof(reason));
    ERR_clear_error(); /* also errors from the system's certificates */
    if (ssl != NULL && run_tls(link, begin_tls, ssl) == REDIS_OK)
        return true;
    link_fault_set(fault, MORTISE_BACKEND, ssl != NULL, 0, "%s: TLS: %s", link->endpoint.text,
                   ssl == NULL ? reason : link->context->errstr);
    if (ssl != NULL)
        SSL_free(ssl); /* the context owns it only after a success */
    link->tls = NULL;
    return false;
}

static ssize_t write_tls(struct link *link)
{
    struct link_bytes *out = &link->out;
    size_t length = out->length - out->done;
    int done = 0;
    if (length > 0 &&
        redisAppendFormattedCommand(link->context, out->data + out->done, length) != REDIS_OK)
        return -1;
    if (run_tls(link, flush_tls, &done) != REDIS_OK)
        return -1;
    link->tls_pending = !done;
    return (ssize_t)length;
}

const char *link_tls_reason(const struct link *link)
{
    static const char *const failed = "TLS failed";
    if (link->tls == NULL)
        return NULL;
    long verdict = SSL_get_verify_result(link->tls);
    if (verdict != X509_V_OK)
        return X509_verify_cert_error_string(verdict);
    if (link->tls_reason != NULL)
        return link->tls_reason;
    return SSL_is_init_finished(link->tls) ? NULL : failed;
}

static int read_more(struct link *link)
{
    return link->settings->tls ? run_tls(link, read_tls, NULL) : read_plain(link);
}

#else

const char *link_tls_problem(const struct link_settings *settings)
{
    return settings->tls
               ? "TLS is asked for, but this build has none: it needs hiredis 1.0 or later "
                 "with its SSL library"
               : NULL;
}

static bool wrap_tls(struct link *link, struct link_fault *fault)
{
    link_fault_set(fault, MORTISE_CONFIG, false, 0, "%s: %s", link->endpoint.text,
                   link_tls_problem(link->settings));
    return false;
}

void link_free_tls(struct link *link)
{
    (void)link;
}

static ssize_t write_tls(struct link *link)
{
    (void)link;
    errno = ENOTSUP;
    return -1;
}

const char *link_tls_reason(const struct link *link)
{
    (void)link;
    return NULL;
}

static int read_more(struct link *link)
{
    return read_plain(link);
}

#endif

/* ---- bounds ------------------------------------------------------------------------------------------- */

#if HIREDIS_MAJOR >= 1
typedef size_t count_of_elements;
#else
typedef int count_of_elements; /* and hiredis itself has no bound */
#endif

static const char *const too_large = "an answer that is too large";

static bool is_too_deep(const redisReadTask *task)
{
    unsigned depth = 1;
    for (; task->parent != NULL && depth <= DEPTH_MAX; task = task->parent)
        depth++;
    return depth > DEPTH_MAX;
}

/* hiredis would allocate all pointers at once, and freeing a hundred million of them keeps the pump busy for a second. */
static void *create_array(const redisReadTask *task, count_of_elements elements)
{
    struct link *link = task->privdata;
    if (elements > 0 && (size_t)elements > ELEMENTS_MAX - link->elements)
        link->refusal = too_large;
    else if (is_too_deep(task))
        link->refusal = "an answer with too many lists in lists";
    if (link->refusal != NULL)
        return NULL;
    link->elements += elements > 0 ? (size_t)elements : 0;
    return link->plain.createArray(task, elements);
}

static void set_bounds(struct link *link)
{
    redisReader *reader = link->context->reader;
    link->plain = link->functions = *reader->fn;
    link->functions.createArray = create_array;
    link->elements = link->reply_bytes = 0;
    link->refusal = NULL;
    reader->fn = &link->functions;
    reader->privdata = link;
}

static bool is_too_large(struct link *link, size_t more)
{
    link->reply_bytes += more;
    if (link->reply_bytes <= REPLY_MAX)
        return false;
    link->refusal = too_large;
    fail_context(link->context, REDIS_ERR_PROTOCOL, too_large);
    return true;
}

/* ---- around the socket ------------------------------------------------------------------------------ */

bool link_wrap(struct link *link, struct link_fault *fault)
{
    link->context = redisConnectFd(link->fd);
    if (link->context == NULL || link->context->err != 0) {
        link_fault_set(fault, MORTISE_NOMEM, true, 0, "%s: out of memory", link->endpoint.text);
        return false;
    }
    link->context->flags &= ~REDIS_BLOCK;
    set_bounds(link);
    return !link->settings->tls || wrap_tls(link, fault);
}

void link_discard(const struct link *link)
{
    static const struct linger at_once = {.l_onoff = 1, .l_linger = 0};
    if (link->fd >= 0)
        setsockopt(link->fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
}

void link_unwrap(struct link *link)
{
    if (link->fd >= 0)
        link->host->closing(link->host, link->fd);
    if (link->context != NULL)
        redisFree(link->context); /* closes the descriptor */
    else if (link->fd >= 0)
        close(link->fd);
    link->context = NULL;
    link->tls = NULL; /* freed with the context */
    link->tls_reason = NULL;
    link->fd = -1;
    link->blocked = link->tls_pending = false;
}

ssize_t link_write(struct link *link)
{
    struct link_bytes *out = &link->out;
    if (link->settings->tls)
        return write_tls(link);
    ssize_t n;
    do
        n = send(link->fd, out->data + out->done, out->length - out->done,
                 MSG_NOSIGNAL | MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    return n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK) ? 0 : n;
}

int link_read(struct link *link)
{
    size_t before = link->context->reader->len;
    if (read_more(link) != REDIS_OK)
        return REDIS_ERR;
    size_t after = link->context->reader->len;
    return is_too_large(link, after > before ? after - before : 0) ? REDIS_ERR : REDIS_OK;
}
