/* conn.c - see conn.h. */
#include "conn.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>

#define STACK_SIZE (256 * 1024UL)
#define STEPS_MAX 64 /* of a call that is to end */
/* A server names the plugin that the client is to use. Not these: `dialog` asks at the terminal, `mysql_clear_password`
 * sends the password as it is, and Kerberos looks up names. */
#define AUTH_PLUGINS                                                                               \
    "mysql_native_password,client_ed25519,caching_sha2_password,sha256_password,parsec"

/* ---- SIGPIPE ----------------------------------------------------------------------------------- */

struct hush {
    sigset_t pipe, before;
    bool was_pending;
};

/* OpenSSL writes by itself, so SIGPIPE is kept from the application meanwhile. */
static void hush_begin(struct hush *hush)
{
    sigset_t pending;
    sigemptyset(&hush->pipe);
    sigaddset(&hush->pipe, SIGPIPE);
    sigpending(&pending);
    hush->was_pending = sigismember(&pending, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &hush->pipe, &hush->before);
}

static void hush_end(const struct hush *hush)
{
    const struct timespec now = {0, 0};
    while (!hush->was_pending && sigtimedwait(&hush->pipe, NULL, &now) < 0 && errno == EINTR)
        ;
    pthread_sigmask(SIG_SETMASK, &hush->before, NULL);
}

/* In the handshake, after a read that took too long. */
static int no_wait(my_socket fd, my_bool is_read, int timeout_ms)
{
    (void)fd;
    (void)is_read;
    (void)timeout_ms;
    return 0;
}

/* ---- the host's name --------------------------------------------------------------------------- */

/* libmariadb is given an address, because it would look up a name, and block. But the certificate is for the name, and it
 * compares the certificate with mysql->host. That is there when it writes the request for TLS, which is the moment for
 * the name to take its place. If that ever changes, the address is looked for in the certificate, and the connection is
 * refused. */
static _Thread_local struct conn *shaking;
/* Exported by libmariadb, without a declaration in its headers. */
extern int ma_pvio_register_callback(my_bool add,
                                     void (*function)(int mode, MYSQL *mysql,
                                                      const unsigned char *bytes, size_t len));

static void show_name(int mode, MYSQL *mysql, const unsigned char *bytes, size_t len)
{
    struct conn *conn = shaking;
    (void)mode;
    (void)bytes;
    (void)len;
    if (conn == NULL || conn->mysql != mysql || conn->own_host != NULL || mysql->host == NULL)
        return;
    char *name = strdup(conn->target.host);
    if (name == NULL)
        return;
    conn->own_host = mysql->host;
    mysql->host = conn->host = name;
}

/* A connection that failed has freed the name. What it was in place of is lost then: a few bytes. */
static void hide_name(struct conn *conn)
{
    if (conn->own_host != NULL && conn->mysql->host == conn->host) {
        conn->mysql->host = conn->own_host;
        free(conn->host);
    }
    conn->own_host = conn->host = NULL;
}

/* The list of such functions is libmariadb's, without a lock: ours is put there once, and taken off with this module. */
static bool listening;

static void listen_once(void)
{
    listening = ma_pvio_register_callback(1, show_name) == 0;
}

__attribute__((destructor)) static void listen_no_more(void)
{
    if (listening)
        ma_pvio_register_callback(0, show_name);
}

/* ---- calls ------------------------------------------------------------------------------------- */

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

static void set_options(MYSQL *mysql, const struct conn_target *target)
{
    const size_t stack_size = STACK_SIZE;
    const unsigned local_infile = 0;
    const my_bool yes = 1;
    mysql_options(mysql, MYSQL_OPT_NONBLOCK, &stack_size);
    mysql_options(mysql, MYSQL_OPT_LOCAL_INFILE, &local_infile);
    mysql_options(mysql, MYSQL_SET_CHARSET_NAME, "utf8mb4");
    mysql_options(mysql, MARIADB_OPT_RESTRICTED_AUTH, AUTH_PLUGINS);
    mysql_optionsv(mysql, MYSQL_OPT_CONNECT_ATTR_ADD, "program_name", "mortise");
    if (!target->tls)
        return;
    mysql_ssl_set(mysql, target->tls_key, target->tls_cert, target->tls_ca, NULL, NULL);
    mysql_options(mysql, MYSQL_OPT_SSL_ENFORCE, &yes);
    mysql_options(mysql, MYSQL_OPT_SSL_VERIFY_SERVER_CERT, &yes);
    mysql_optionsv(mysql, MARIADB_OPT_IO_WAIT, no_wait);
}

/* A read of the handshake does not block for longer, whoever makes the socket blocking. */
static void bound_handshake(const struct conn *conn)
{
    const struct timeval longest = {.tv_sec = conn->target.tls_ms / 1000,
                                    .tv_usec = conn->target.tls_ms % 1000 * 1000};
    int fd = conn_socket(conn);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &longest, sizeof(longest));
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &longest, sizeof(longest));
}

enum conn_event conn_connect(struct conn *conn, const struct conn_target *target)
{
    MYSQL *connected = NULL;
    const unsigned long flags = CLIENT_MULTI_STATEMENTS | CLIENT_FOUND_ROWS;
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct hush hush;
    conn->mysql = mysql_init(NULL);
    if (conn->mysql == NULL)
        return CONN_FAILED;
    conn->target = *target;
    conn->state = CONN_CONNECT;
    if (target->tls)
        pthread_once(&once, listen_once);
    set_options(conn->mysql, target);
    hush_begin(&hush);
    conn->waits = mysql_real_connect_start(&connected, conn->mysql, target->address, target->user,
                                           target->password, target->database, target->port,
                                           target->address == NULL ? target->socket : NULL, flags);
    hush_end(&hush);
    if (conn->waits == 0)
        return ended(conn, connected == NULL);
    if (target->tls)
        bound_handshake(conn);
    return CONN_WAITS;
}

enum conn_event conn_query(struct conn *conn, const char *text, size_t len)
{
    int failed = 0;
    struct hush hush;
    conn->state = CONN_QUERY;
    if (conn->target.tls)
        hush_begin(&hush);
    conn->waits = mysql_real_query_start(&failed, conn->mysql, text, (unsigned long)len);
    if (conn->target.tls)
        hush_end(&hush);
    return conn->waits != 0 ? CONN_WAITS : ended(conn, failed != 0);
}

enum conn_event conn_next(struct conn *conn)
{
    int status = 0;
    conn->state = CONN_NEXT;
    conn->waits = mysql_next_result_start(&status, conn->mysql);
    return conn->waits != 0 ? CONN_WAITS : ended(conn, status != 0);
}

static enum conn_event proceed(struct conn *conn, int ready)
{
    MYSQL *connected = NULL;
    int failed = 0;
    switch (conn->state) {
    case CONN_CONNECT:
        shaking = conn->target.tls ? conn : NULL;
        conn->waits = mysql_real_connect_cont(&connected, conn->mysql, ready);
        shaking = NULL;
        if (conn->waits == 0)
            hide_name(conn);
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
    struct hush hush;
    if (quietly)
        hush_begin(&hush);
    enum conn_event event = proceed(conn, ready);
    if (quietly)
        hush_end(&hush);
    return event;
}

int conn_socket(const struct conn *conn)
{
    return conn->mysql != NULL ? (int)mysql_get_socket(conn->mysql) : -1;
}

bool conn_has_tls(const struct conn *conn)
{
    return conn->mysql != NULL && mysql_get_ssl_cipher(conn->mysql) != NULL;
}

/* If a call waits: nothing can be sent or received any more, so whatever libmariadb tries to write fails at once instead of
 * blocking, and the call, when it is told that its time is over, ends. Otherwise all that was sent before was answered, so the
 * server reads, and there is room for the five bytes of the farewell. */
void conn_close(struct conn *conn)
{
    int fd = conn_socket(conn);
    struct hush hush;
    if (conn->mysql == NULL)
        return;
    if (fd >= 0 && conn->state != CONN_IDLE)
        shutdown(fd, SHUT_RDWR);
    hush_begin(&hush);
    for (int i = 0; conn->state != CONN_IDLE && i < STEPS_MAX; i++) {
        proceed(conn, MYSQL_WAIT_TIMEOUT);
        mysql_free_result(conn->rows);
        conn->rows = NULL;
    }
    mysql_close(conn->mysql);
    hush_end(&hush);
    conn->mysql = NULL;
    conn->state = CONN_IDLE;
    conn->waits = 0;
}
