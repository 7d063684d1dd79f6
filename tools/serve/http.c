/* http.c - visitors: which path gets which response. libmicrohttpd reads and writes, inside http_run().
 *
 * No request of a visitor costs more than a copy, because every response exists already. */
#include "serve.h"

#include "clock.h"
#include "exit_code.h"
#include "output.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* One for each connection, in the order of their beginning. */
struct visitor {
    struct MHD_Connection *connection;
    int64_t began_ns;
    struct visitor *previous, *next;
};

struct http {
    struct MHD_Daemon *daemon;
    const struct access *access;
    const struct board *board;
    struct visitor *oldest, *newest;
    struct MHD_Response **files; /* of page_files */
    struct MHD_Response *refused, *unauthorized, *unknown, *method;
};

/* ---- Responses ------------------------------------------------------------------------------- */

struct MHD_Response *http_response(const char *type, char *text, size_t length)
{
    struct MHD_Response *response =
        must_have(MHD_create_response_from_buffer(length, text, MHD_RESPMEM_MUST_FREE));
    static const char *const headers[][2] = {
        {"Connection", "close"},
        {"Cache-Control", "no-store"},
        {"Content-Security-Policy",
         "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src "
         "'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
        {"Cross-Origin-Resource-Policy", "same-origin"},
        {"Cross-Origin-Opener-Policy", "same-origin"},
        {"Referrer-Policy", "no-referrer"},
        {"X-Content-Type-Options", "nosniff"},
        {"X-Frame-Options", "DENY"},
    };

    MHD_add_response_header(response, "Content-Type", type);
    for (size_t i = 0; i < sizeof headers / sizeof headers[0]; i++)
        MHD_add_response_header(response, headers[i][0], headers[i][1]);
    return response;
}

static struct MHD_Response *fixed(const char *type, const void *bytes, size_t length)
{
    char *copy = must_have(malloc(length + 1));

    memcpy(copy, bytes, length);
    return http_response(type, copy, length);
}

static struct MHD_Response *sentence(const char *text)
{
    return fixed("text/plain; charset=utf-8", text, strlen(text));
}

static void make_responses(struct http *http)
{
    http->files = must_have(calloc(page_file_count, sizeof *http->files));
    for (size_t i = 0; i < page_file_count; i++)
        http->files[i] = fixed(page_files[i].type, page_files[i].bytes, page_files[i].length);
    http->unknown = sentence("not found: there are /, /locks.json, /metrics and /healthz\n");
    http->method = sentence("only GET and HEAD: this page changes nothing\n");
    MHD_add_response_header(http->method, "Allow", "GET, HEAD");
    http->refused =
        sentence("refused: on loopback the Host must be localhost, 127.x.x.x or [::1]\n");
    http->unauthorized = sentence("the token is missing or wrong\n");
    MHD_add_response_header(http->unauthorized, "WWW-Authenticate", "Basic realm=\"mortise\"");
}

static void destroy_responses(struct http *http)
{
    for (size_t i = 0; i < page_file_count; i++)
        MHD_destroy_response(http->files[i]);
    free(http->files);
    MHD_destroy_response(http->unknown);
    MHD_destroy_response(http->method);
    MHD_destroy_response(http->refused);
    MHD_destroy_response(http->unauthorized);
}

static struct MHD_Response *find(const struct http *http, const char *path, unsigned *status)
{
    const struct board *board = http->board;

    *status = MHD_HTTP_OK;
    if (strcmp(path, "/locks.json") == 0)
        return board->json;
    if (strcmp(path, "/metrics") == 0)
        return board->metrics;
    if (strcmp(path, "/healthz") == 0) {
        *status = board->state == UP ? MHD_HTTP_OK : MHD_HTTP_SERVICE_UNAVAILABLE;
        return board->health;
    }
    for (size_t i = 0; i < page_file_count; i++) {
        if (strcmp(path, page_files[i].path) == 0)
            return http->files[i];
    }
    *status = MHD_HTTP_NOT_FOUND;
    return http->unknown;
}

static enum MHD_Result on_request(void *user_data, struct MHD_Connection *connection,
                                  const char *path, const char *method, const char *version,
                                  const char *body, size_t *body_length, void **state)
{
    const struct http *http = user_data;
    unsigned status = access_check(http->access, connection, strcmp(path, "/healthz") == 0);

    (void)version, (void)body, (void)body_length, (void)state;
    if (status == MHD_HTTP_UNAUTHORIZED)
        return MHD_queue_response(connection, status, http->unauthorized);
    if (status != 0)
        return MHD_queue_response(connection, status, http->refused);
    if (strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0)
        return MHD_queue_response(connection, MHD_HTTP_METHOD_NOT_ALLOWED, http->method);
    struct MHD_Response *response = find(http, path, &status);
    return MHD_queue_response(connection, status, response);
}

/* ---- Connections ----------------------------------------------------------------------------- */

static void on_connection(void *user_data, struct MHD_Connection *connection, void **own,
                          enum MHD_ConnectionNotificationCode code)
{
    struct http *http = user_data;
    struct visitor *visitor = *own;

    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
        visitor = must_have(calloc(1, sizeof *visitor));
        *visitor = (struct visitor){connection, boottime_ns(), http->newest, NULL};
        *(http->newest ? &http->newest->next : &http->oldest) = visitor;
        http->newest = visitor;
        *own = visitor;
        return;
    }
    *(visitor->previous ? &visitor->previous->next : &http->oldest) = visitor->next;
    *(visitor->next ? &visitor->next->previous : &http->newest) = visitor->previous;
    free(visitor);
    *own = NULL;
}

/* libmicrohttpd limits how long a connection is silent. This limits how long it lives: it shuts the socket down, and
 * libmicrohttpd sees that and closes it. */
static void end_old_connections(struct http *http)
{
    const int64_t now_ns = boottime_ns();

    for (struct visitor *v = http->oldest; v != NULL; v = v->next) {
        if (now_ns - v->began_ns < CONNECTION_MS * INT64_C(1000000))
            return;
        const union MHD_ConnectionInfo *info =
            MHD_get_connection_info(v->connection, MHD_CONNECTION_INFO_CONNECTION_FD);
        if (info != NULL)
            shutdown(info->connect_fd, SHUT_RDWR);
    }
}

/* ---- The server ------------------------------------------------------------------------------ */

/* Visitors can cause any number of these lines, so they are not logged. */
static void on_message(void *user_data, const char *format, va_list arguments)
{
    (void)user_data, (void)format, (void)arguments;
}

struct http *http_start(int listener, const struct access *access, const struct board *board)
{
    struct http *http = must_have(calloc(1, sizeof *http));

    *http = (struct http){.access = access, .board = board};
    make_responses(http);
    http->daemon = MHD_start_daemon(
        MHD_USE_EPOLL, 0, NULL, NULL, on_request, http, MHD_OPTION_EXTERNAL_LOGGER, on_message,
        NULL, MHD_OPTION_LISTEN_SOCKET, listener, MHD_OPTION_CONNECTION_LIMIT,
        (unsigned)CONNECTIONS, MHD_OPTION_PER_IP_CONNECTION_LIMIT,
        (unsigned)CONNECTIONS_PER_ADDRESS, MHD_OPTION_CONNECTION_TIMEOUT, 10u,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)16384, MHD_OPTION_NOTIFY_CONNECTION,
        on_connection, http, MHD_OPTION_END);
    if (http->daemon != NULL)
        return http;
    say("serve: libmicrohttpd does not start");
    exit(EXIT_SYSTEM);
}

int http_fd(const struct http *http)
{
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(http->daemon, MHD_DAEMON_INFO_EPOLL_FD);

    return info != NULL ? info->epoll_fd : -1;
}

int http_timeout_ms(const struct http *http)
{
    MHD_UNSIGNED_LONG_LONG ms;

    if (MHD_get_timeout(http->daemon, &ms) != MHD_YES || ms > 1000)
        return 1000;
    return (int)ms;
}

void http_run(struct http *http)
{
    end_old_connections(http);
    MHD_run(http->daemon);
}

void http_stop(struct http *http)
{
    MHD_stop_daemon(http->daemon);
    destroy_responses(http);
    free(http);
}
