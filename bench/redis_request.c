/* redis_request.c - a relay between a client of the library and the server, which notes what the client
 * says; see redis_request.h. The relay notes what an acquire sends before it passes it on, and an acquire has ended
 * when it returns. So the requests of acquire and release can be distinguished. */
#include "redis_request.h"

#include "common.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define GRANT_MARK "$32\r\n" /* the grant is the only argument of that length */
#define GRANT_HEX 32

struct relay {
    int listener, client, server;
    pthread_t thread;
    pthread_mutex_t lock;
    struct redis_request said; /* since it was last taken; guarded by the lock */
};

/* ---- the relay ---- */

static int listen_anywhere(int *port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof(address);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, length) < 0 || listen(fd, 1) < 0 ||
        getsockname(fd, (struct sockaddr *)&address, &length) < 0)
        bench_die("the relay: %s", strerror(errno));
    *port = ntohs(address.sin_port);
    return fd;
}

static void note(struct relay *relay, const char *bytes, size_t length)
{
    pthread_mutex_lock(&relay->lock);
    struct redis_request *said = &relay->said;
    if (length > sizeof(said->bytes) - said->length) /* a script's text, the first time: too long */
        said->length = 0;
    if (length <= sizeof(said->bytes)) {
        memcpy(said->bytes + said->length, bytes, length);
        said->length += length;
    }
    pthread_mutex_unlock(&relay->lock);
}

/* False: one of the two is gone. */
static bool pass_on(struct relay *relay, int from, int to)
{
    char bytes[16384];
    ssize_t n = recv(from, bytes, sizeof(bytes), 0);
    if (n <= 0)
        return false;
    if (from == relay->client)
        note(relay, bytes, (size_t)n);
    for (ssize_t done = 0, now; done < n; done += now)
        if ((now = send(to, bytes + done, (size_t)(n - done), MSG_NOSIGNAL)) <= 0)
            return false;
    return true;
}

/* Serves one client until it closes the connection. */
static void *relay_main(void *argument)
{
    struct relay *relay = argument;
    bool goes_on = (relay->client = accept(relay->listener, NULL, NULL)) >= 0;
    while (goes_on) {
        struct pollfd ends[2] = {{relay->client, POLLIN, 0}, {relay->server, POLLIN, 0}};
        if (poll(ends, 2, -1) < 0)
            continue;
        if (ends[0].revents != 0)
            goes_on = pass_on(relay, relay->client, relay->server);
        if (goes_on && ends[1].revents != 0)
            goes_on = pass_on(relay, relay->server, relay->client);
    }
    close(relay->client);
    return NULL;
}

static struct redis_request take(struct relay *relay)
{
    pthread_mutex_lock(&relay->lock);
    struct redis_request said = relay->said;
    relay->said.length = 0;
    pthread_mutex_unlock(&relay->lock);
    return said;
}

/* ---- what was said ---- */

static const char *grant_in(const struct redis_request *request)
{
    const char *at = request->bytes, *end = request->bytes + request->length;
    while ((at = memmem(at, (size_t)(end - at), GRANT_MARK, strlen(GRANT_MARK))) != NULL) {
        at += strlen(GRANT_MARK);
        if (end - at > GRANT_HEX && strspn(at, "0123456789abcdef") == GRANT_HEX)
            return at;
    }
    bench_die("the driver's requests name their grant otherwise now; redis_request.c must follow");
}

/* A command is an array of strings, each with its length before it: no other '*' begins a line. */
static void must_be_one(const struct redis_request *request, const char *what)
{
    const char *bytes = request->bytes;
    size_t length = request->length;
    if (length == 0 || bytes[0] != '*' || memmem(bytes, length, "\r\n*", 3) != NULL ||
        memmem(bytes, length, "EVAL", 4) == NULL)
        bench_die("the driver's %s was not one call of a script: \"%.*s\"", what, (int)length,
                  bytes);
}

static void cycle_through(mortise_client *client, struct relay *relay, struct redis_cycle *cycle)
{
    char name[32];
    snprintf(name, sizeof(name), REDIS_NAME_FORMAT, 0U);
    take(relay);
    mortise_lease *lease = bench_acquire(client, name, NULL);
    cycle->acquire = take(relay);
    bench_release(lease);
    cycle->release = take(relay);
}

void redis_request_record(const struct redis_server *server, struct redis_cycle *cycle)
{
    char url[64];
    int port;
    redisContext *context = redis_server_connect(server);
    struct relay relay = {.lock = PTHREAD_MUTEX_INITIALIZER, .server = context->fd};
    relay.listener = listen_anywhere(&port);
    relay.thread = bench_thread(relay_main, &relay);
    snprintf(url, sizeof(url), "redis://127.0.0.1:%d", port);
    mortise_client *client = bench_open(url);
    cycle_through(client, &relay, cycle); /* the first time, the scripts' texts are sent */
    cycle_through(client, &relay, cycle);
    bench_close(client);
    pthread_join(relay.thread, NULL);
    close(relay.listener);
    redisFree(context);
    must_be_one(&cycle->acquire, "acquire");
    must_be_one(&cycle->release, "release");
    if (memcmp(grant_in(&cycle->acquire), grant_in(&cycle->release), GRANT_HEX) != 0)
        bench_die("the driver's acquire and release are of different grants");
}

/* ---- for another name ---- */

static void patch(struct redis_request *request, unsigned number)
{
    char from[32], to[32], grant[16], *at = request->bytes;
    int length = snprintf(from, sizeof(from), REDIS_NAME_FORMAT, 0U);
    snprintf(to, sizeof(to), REDIS_NAME_FORMAT, number);
    snprintf(grant, sizeof(grant), "%08x", number);
    memcpy(request->bytes + (grant_in(request) - request->bytes), grant, 8);
    char *end = request->bytes + request->length;
    while ((at = memmem(at, (size_t)(end - at), from, (size_t)length)) != NULL) {
        memcpy(at, to, (size_t)length);
        at += length;
    }
}

struct redis_cycle redis_request_for(const struct redis_cycle *cycle, unsigned number)
{
    struct redis_cycle other = *cycle;
    if (number >= REDIS_NAMES_MAX)
        bench_die("more than %d names", REDIS_NAMES_MAX);
    patch(&other.acquire, number);
    patch(&other.release, number);
    return other;
}
