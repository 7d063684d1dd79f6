/* conn.h - a conversation by libmariadb's non-blocking calls: connect, send a text of one or more statements, take the
 * result of each. Knows no link and no request. conn_go() changes the state; it returns what happened:
 *
 * | state     | begins with    | waits | success                                             | failure      |
 * |-----------|----------------|-------|-----------------------------------------------------|--------------|
 * | IDLE      |                |       |                                                     |              |
 * | CONNECT   | conn_connect() | stays | IDLE, CONNECTED                                     | IDLE, FAILED |
 * | QUERY     | conn_query()   | stays | rows come: STORE; none: IDLE, RESULT                | IDLE, FAILED |
 * | STORE     | rows come      | stays | IDLE, RESULT                                        | IDLE, FAILED |
 * | NEXT      | conn_next()    | stays | as QUERY                                            | IDLE, FAILED |
 *
 * A connection with TLS is made on a thread, because libmariadb blocks in the handshake (handshake.c): CONNECT has no socket to
 * poll then, and ends with conn_shaken().
 *
 * libmariadb runs each call on a stack of its own, which is left when the call would block, and entered again later.
 * conn_close() first lets a waiting call run to its end, because otherwise memory that this stack refers to would leak. */
#ifndef MORTISE_MYSQL_CONN_H
#define MORTISE_MYSQL_CONN_H

#include "../lib/sql/remote/helper.h"

#include <stdbool.h>
#include <stddef.h>

#include <mysql.h>

enum conn_state { CONN_IDLE, CONN_CONNECT, CONN_QUERY, CONN_STORE, CONN_NEXT };
enum conn_event { CONN_WAITS, CONN_CONNECTED, CONN_RESULT, CONN_FAILED };

/* libmariadb's options and arguments. Texts must be valid from conn_connect() until the connecting has ended. */
struct conn_target {
    const char *host;    /* for the certificate */
    const char *address; /* numeric; NULL: a socket */
    const char *socket;
    unsigned port;
    const char *user, *password, *database;
    bool tls;
    const char *tls_ca, *tls_cert,
        *tls_key; /* NULL: not given; tls_ca: see conn_finds_certificates() */
};

struct conn {
    MYSQL *mysql; /* NULL: there is none */
    enum conn_state state;
    int waits; /* libmariadb's MYSQL_WAIT_… flags, while a call waits */
    struct conn_target target;
    char address[64];      /* the target's, which a look-up for another connection may overwrite */
    struct helper *helper; /* the thread that connects; NULL: none */
    char *host, *own_host; /* the server's name; libmariadb's own text while the name replaces it */
    /* RESULT */
    MYSQL_RES *rows; /* the caller owns them; NULL: the statement has none */
    unsigned long long touched, insert_id;
    bool more; /* the same text has more results */
};

/* Whether OpenSSL knows where the system's trusted certificates are. If not, tls_ca must be given. */
bool conn_finds_certificates(void);

/* Both begin a call; the first connection of a process also begins libmariadb. */
/* With TLS, done(argument) is called on the connecting thread when the connecting has ended. */
enum conn_event conn_connect(struct conn *conn, const struct conn_target *target,
                             void (*done)(void *argument), void *argument);
/* After done() was called: whether the thread has ended, and how. */
enum conn_event conn_shaken(struct conn *conn);
/* The text must be valid until the last result. */
enum conn_event conn_query(struct conn *conn, const char *text, size_t len);
enum conn_event conn_next(struct conn *conn);
/* Some of the awaited events have come. */
enum conn_event conn_go(struct conn *conn, int ready);
/* The connection's socket; -1: none. */
int conn_socket(const struct conn *conn);
void conn_close(struct conn *conn);
bool conn_has_tls(const struct conn *conn);

/* Converts MYSQL_WAIT_… flags into poll events, and back. */
short conn_poll_events(int waits);
int conn_ready(short events);

/* ---- handshake.c ------------------------------------------------------------------------------- */

#define CONN_FLAGS (CLIENT_MULTI_STATEMENTS | CLIENT_FOUND_ROWS)

void handshake_prepare(void);
/* As helper_work.run; the argument is a conn. */
bool handshake_run(struct helper *helper, void *conn);

#endif
