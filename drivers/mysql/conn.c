/* conn.c - see conn.h. */
#include "conn.h"

#include "../lib/sigpipe.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define STACK_SIZE (256 * 1024UL)
#define STEPS_MAX 64 /* of a call that has to end */
/* A server names the plugin that the client has to use. Some are left out here: `dialog` asks at the terminal,
 * `mysql_clear_password` sends the password as it is, and Kerberos looks up names. Without TLS, `caching_sha2_password`
 * and `sha256_password` encrypt it with a key that the other side sends: see protocol.md. */
#define AUTH_PLUGINS                                                                               \
    "mysql_native_password,client_ed25519,caching_sha2_password,sha256_password,parsec"

/* ---- calls ------------------------------------------------------------------------------------- */

/* A function of libcrypto, if libmariadb uses libcrypto. */
extern void ERR_clear_error(void) __attribute__((weak));
extern const char *X509_get_default_cert_file(void) __attribute__((weak));
extern const char *X509_get_default_cert_dir(void) __attribute__((weak));

/* OpenSSL has one queue of errors for all that a thread does. If it contains an old error, libmariadb takes "there is nothing
 * to read yet" for a broken connection. An error that we left there would do the same to the application. */
static void forget_errors(const struct conn *conn)
{
    if (conn->target.tls && ERR_clear_error != NULL)
        ERR_clear_error();
}

static enum conn_event take_answer(struct conn *conn)
{
    MYSQL *mysql = conn->mysql;
    conn->state = CONN_IDLE;
    conn->touched = mysql_affected_rows(mysql);
    conn->insert_id = mysql_insert_id(mysql);
    conn->more = mysql_more_results(mysql);
    return CONN_RESULT;
}

/* A call has ended, in state `state`. */
static enum conn_event ended(struct conn *conn, bool failed);

static enum conn_event store(struct conn *conn)
{
    conn->state = CONN_STORE;
    conn->rows = NULL;
    conn->waits = mysql_store_result_start(&conn->rows, conn->mysql);
    return conn->waits != 0 ? CONN_WAITS : ended(conn, conn->rows == NULL);
}

static enum conn_event ended(struct conn *conn, bool failed)
{
    enum conn_state state = conn->state;
    conn->waits = 0;
    conn->state = CONN_IDLE;
    if (failed)
        return CONN_FAILED;
    if (state == CONN_CONNECT)
        return CONN_CONNECTED;
    if (state != CONN_STORE && mysql_field_count(conn->mysql) > 0)
        return store(conn);
    return take_answer(conn);
}

bool conn_finds_certificates(void)
{
    return X509_get_default_cert_file != NULL && X509_get_default_cert_dir != NULL;
}

static const char *environment_or(const char *variable, const char *usual)
{
    const char *value = secure_getenv(variable);
    return value != NULL && *value != '\0' ? value : usual;
}

/* Without a file or a folder of trusted certificates, Connector/C 3.4 and later go on even if they do not trust the server:
 * they send it a hash of the password, and check whether the server knows the password (send_client_reply_packet() in
 * plugins/auth/my_auth.c). So the driver always gives a file or a folder. Without tls_ca, it gives OpenSSL's own, which OpenSSL
 * would use by itself. The folder need not exist. */
static bool set_trust(MYSQL *mysql, const struct conn_target *target)
{
    const char *file = target->tls_ca, *folder = NULL;
    if (file == NULL && conn_finds_certificates()) {
        folder = environment_or("SSL_CERT_DIR", X509_get_default_cert_dir());
        file = environment_or("SSL_CERT_FILE", X509_get_default_cert_file());
        if (access(file, R_OK) != 0)
            file = NULL;
    }
    return mysql_ssl_set(mysql, target->tls_key, target->tls_cert, file, folder, NULL) == 0;
}

/* False: no memory. That must not be ignored: without the first option libmariadb would end the process; without
 * others a connection could have no TLS, or any plugin could authenticate it. */
static bool set_options(MYSQL *mysql, const struct conn_target *target)
{
    const size_t stack_size = STACK_SIZE;
    const unsigned local_infile = 0;
    const my_bool yes = 1;
    bool set = mysql_options(mysql, MYSQL_OPT_NONBLOCK, &stack_size) == 0 &&
               mysql_options(mysql, MYSQL_OPT_LOCAL_INFILE, &local_infile) == 0 &&
               mysql_options(mysql, MYSQL_SET_CHARSET_NAME, "utf8mb4") == 0 &&
               mysql_options(mysql, MARIADB_OPT_RESTRICTED_AUTH, AUTH_PLUGINS) == 0 &&
               mysql_optionsv(mysql, MYSQL_OPT_CONNECT_ATTR_ADD, "program_name", "mortise") == 0;
    if (!target->tls)
        return set;
    return set && set_trust(mysql, target) &&
           mysql_options(mysql, MYSQL_OPT_SSL_ENFORCE, &yes) == 0 &&
           mysql_options(mysql, MYSQL_OPT_SSL_VERIFY_SERVER_CERT, &yes) == 0;
}

static enum conn_event connect_plain(struct conn *conn)
{
    const struct conn_target *target = &conn->target;
    MYSQL *connected = NULL;
    struct sigpipe before;
    sigpipe_block(&before);
    conn->waits = mysql_real_connect_start(
        &connected, conn->mysql, target->address, target->user, target->password, target->database,
        target->port, target->address == NULL ? target->socket : NULL, CONN_FLAGS);
    sigpipe_restore(&before);
    return conn->waits != 0 ? CONN_WAITS : ended(conn, connected == NULL);
}

static enum conn_event connect_on_thread(struct conn *conn, void (*done)(void *), void *argument)
{
    struct helper_work work = {
        .run = handshake_run, .done = done, .run_argument = conn, .done_argument = argument};
    snprintf(conn->address, sizeof(conn->address), "%s", conn->target.address);
    conn->target.address = conn->address;
    handshake_prepare();
    conn->helper = helper_begin(&work);
    if (conn->helper != NULL)
        return CONN_WAITS;
    mysql_close(conn->mysql);
    conn->mysql = NULL;
    conn->state = CONN_IDLE;
    return CONN_FAILED;
}

enum conn_event conn_connect(struct conn *conn, const struct conn_target *target,
                             void (*done)(void *argument), void *argument)
{
    conn->mysql = mysql_init(NULL);
    if (conn->mysql == NULL)
        return CONN_FAILED;
    if (!set_options(conn->mysql, target)) {
        mysql_close(conn->mysql);
        conn->mysql = NULL;
        return CONN_FAILED;
    }
    conn->target = *target;
    conn->state = CONN_CONNECT;
    return target->tls ? connect_on_thread(conn, done, argument) : connect_plain(conn);
}

enum conn_event conn_shaken(struct conn *conn)
{
    bool connected;
    if (conn->helper == NULL || !helper_is_over(conn->helper, &connected))
        return CONN_WAITS;
    helper_end(conn->helper);
    conn->helper = NULL;
    return ended(conn, !connected);
}

enum conn_event conn_query(struct conn *conn, const char *text, size_t len)
{
    int failed = 0;
    struct sigpipe before;
    conn->state = CONN_QUERY;
    forget_errors(conn);
    if (conn->target.tls)
        sigpipe_block(&before);
    conn->waits = mysql_real_query_start(&failed, conn->mysql, text, (unsigned long)len);
    if (conn->target.tls)
        sigpipe_restore(&before);
    return conn->waits != 0 ? CONN_WAITS : ended(conn, failed != 0);
}

enum conn_event conn_next(struct conn *conn)
{
    int status = 0;
    conn->state = CONN_NEXT;
    forget_errors(conn);
    conn->waits = mysql_next_result_start(&status, conn->mysql);
    return conn->waits != 0 ? CONN_WAITS : ended(conn, status != 0);
}

static enum conn_event proceed(struct conn *conn, int ready)
{
    MYSQL *connected = NULL;
    int failed = 0;
    forget_errors(conn);
    switch (conn->state) {
    case CONN_CONNECT:
        conn->waits = mysql_real_connect_cont(&connected, conn->mysql, ready);
        failed = connected == NULL;
        break;
    case CONN_QUERY:
        conn->waits = mysql_real_query_cont(&failed, conn->mysql, ready);
        break;
    case CONN_STORE:
        conn->waits = mysql_store_result_cont(&conn->rows, conn->mysql, ready);
        failed = conn->rows == NULL;
        break;
    case CONN_NEXT:
        conn->waits = mysql_next_result_cont(&failed, conn->mysql, ready);
        break;
    default:
        return CONN_FAILED;
    }
    return conn->waits != 0 ? CONN_WAITS : ended(conn, failed != 0);
}

enum conn_event conn_go(struct conn *conn, int ready)
{
    bool quietly = conn->state == CONN_CONNECT || conn->target.tls;
    struct sigpipe before;
    if (quietly)
        sigpipe_block(&before);
    enum conn_event event = proceed(conn, ready);
    if (quietly)
        sigpipe_restore(&before);
    return event;
}

short conn_poll_events(int waits)
{
    short events = (waits & MYSQL_WAIT_READ) != 0 ? POLLIN : 0;
    return (short)((waits & MYSQL_WAIT_WRITE) != 0 ? events | POLLOUT : events);
}

int conn_ready(short events)
{
    int ready = (events & (POLLIN | POLLHUP | POLLERR)) != 0 ? MYSQL_WAIT_READ : 0;
    return (events & (POLLOUT | POLLHUP | POLLERR)) != 0 ? ready | MYSQL_WAIT_WRITE : ready;
}

int conn_socket(const struct conn *conn)
{
    return conn->mysql != NULL ? (int)mysql_get_socket(conn->mysql) : -1;
}

bool conn_has_tls(const struct conn *conn)
{
    return conn->mysql != NULL && mysql_get_ssl_cipher(conn->mysql) != NULL;
}

/* If a call waits, the socket is shut down. So nothing can be sent or received any more: libmariadb's writes fail at once
 * instead of blocking, and the call ends when it is told that its time is over. If no call waits, everything that was sent has
 * been answered. So the server reads, and there is room for the five bytes of the farewell. */
void conn_close(struct conn *conn)
{
    struct sigpipe before;
    if (conn->mysql == NULL)
        return;
    if (conn->helper != NULL) {
        helper_end(conn->helper);
        conn->helper = NULL;
        conn->state = CONN_IDLE;
    }
    int fd = conn_socket(conn);
    if (fd >= 0 && conn->state != CONN_IDLE)
        shutdown(fd, SHUT_RDWR);
    sigpipe_block(&before);
    for (int i = 0; conn->state != CONN_IDLE && i < STEPS_MAX; i++) {
        proceed(conn, MYSQL_WAIT_TIMEOUT);
        mysql_free_result(conn->rows);
        conn->rows = NULL;
    }
    mysql_close(conn->mysql);
    sigpipe_restore(&before);
    forget_errors(conn);
    conn->mysql = NULL;
    conn->state = CONN_IDLE;
    conn->waits = 0;
}
