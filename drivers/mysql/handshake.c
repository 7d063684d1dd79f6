/* handshake.c - makes a connection with TLS on a thread of its own (lib/sql/remote/helper.h), because libmariadb blocks in
 * the handshake, for as long as the server likes. Everything afterwards runs in the pump, with the same MYSQL. */
#include "conn.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* ---- the host's name ---------------------------------------------------------------------------- */

/* libmariadb gets an address, because it would look up a name, and nobody could interrupt that. But the certificate is for
 * the name, and libmariadb compares the certificate with mysql->host. That field is set when libmariadb writes the request
 * for TLS, and at this moment the driver puts the name in its place. If libmariadb ever changes this order, it looks for the
 * address in the certificate, and the connection is refused. */
static _Thread_local struct conn *shaking;
static _Thread_local struct helper *shaking_helper;
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
    helper_goes_on(shaking_helper, conn_socket(conn)); /* here, because the handshake blocks */
    char *name = strdup(conn->target.host);
    if (name == NULL)
        return;
    conn->own_host = mysql->host;
    mysql->host = conn->host = name;
}

/* A failed connection has freed the name. The text that the name has replaced leaks then: a few bytes. */
static void hide_name(struct conn *conn)
{
    if (conn->own_host != NULL && conn->mysql->host == conn->host) {
        conn->mysql->host = conn->own_host;
        free(conn->host);
    }
    conn->own_host = conn->host = NULL;
}

/* libmariadb has a list of such functions, without a lock. So ours is added once, and removed with this module. */
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

void handshake_prepare(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, listen_once);
}

/* ---- on the thread ------------------------------------------------------------------------------ */

/* libmariadb leaves the socket in blocking mode, and OpenSSL reads and writes without MSG_DONTWAIT. So each statement
 * would block the pump until the server has answered. */
static void stop_blocking(const struct conn *conn)
{
    int fd = conn_socket(conn);
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

bool handshake_run(struct helper *helper, void *argument)
{
    struct conn *conn = argument;
    const struct conn_target *target = &conn->target;
    MYSQL *connected = NULL;
    shaking = conn;
    shaking_helper = helper;
    int waits = mysql_real_connect_start(&connected, conn->mysql, target->address, target->user,
                                         target->password, target->database, target->port, NULL,
                                         CONN_FLAGS);
    while (waits != 0) {
        struct pollfd ready = {.fd = conn_socket(conn), .events = conn_poll_events(waits)};
        bool goes_on = helper_goes_on(helper, ready.fd);
        if (goes_on)
            poll(&ready, 1, -1);
        waits = mysql_real_connect_cont(&connected, conn->mysql,
                                        goes_on ? conn_ready(ready.revents) & waits
                                                : MYSQL_WAIT_TIMEOUT);
    }
    shaking = NULL;
    hide_name(conn);
    if (connected != NULL)
        stop_blocking(conn);
    return connected != NULL;
}
