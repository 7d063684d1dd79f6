/* middle.c - a server between the driver and etcd that breaks single calls: its connections and its thread. See middle.h. */
#include "relay.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <support.h>
#include <sys/socket.h>
#include <unistd.h>

#define PAIRS 32

static struct {
    int listener, server_port;
    pthread_t thread;
    pthread_mutex_t lock; /* of all below, and of `orders` */
    bool stops;
} middle = {.listener = -1, .lock = PTHREAD_MUTEX_INITIALIZER};
static struct pair pairs[PAIRS];

/* ---- connections ------------------------------------------------------------------------------------------ */

static void end_pair(struct pair *pair)
{
    relay_end(pair);
    close(pair->down_fd);
    if (pair->up_fd >= 0)
        close(pair->up_fd);
    *pair = (struct pair){.down_fd = -1, .up_fd = -1};
}

static int connect_to(int port)
{
    struct sockaddr_in there = {.sin_family = AF_INET,
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
                                .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0)
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    if (fd >= 0 && connect(fd, (struct sockaddr *)&there, sizeof there) == 0)
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

static void take_connection(void)
{
    struct pair *pair = pairs;
    int fd = accept4(middle.listener, NULL, NULL, SOCK_CLOEXEC);
    while (pair < pairs + PAIRS && pair->down_fd >= 0)
        pair++;
    if (fd < 0 || pair == pairs + PAIRS) {
        if (fd >= 0)
            close(fd);
        return;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    *pair = (struct pair){.down_fd = fd, .up_fd = connect_to(middle.server_port)};
    if (pair->up_fd < 0 || !relay_begin(pair))
        pair->ends = true;
}

static bool send_all(nghttp2_session *session, int fd)
{
    const uint8_t *data;
    ssize_t size;
    while ((size = nghttp2_session_mem_send(session, &data)) > 0)
        for (ssize_t sent = 0, now; sent < size; sent += now)
            if ((now = send(fd, data + sent, (size_t)(size - sent), MSG_NOSIGNAL)) <= 0)
                return false;
    return size == 0;
}

static bool receive(nghttp2_session *session, int fd)
{
    uint8_t data[16384];
    ssize_t size = recv(fd, data, sizeof data, 0);
    return size > 0 && nghttp2_session_mem_recv(session, data, (size_t)size) == size;
}

static void attend(struct pair *pair, bool down_ready, bool up_ready)
{
    bool goes_on = !pair->ends && (!down_ready || receive(pair->down, pair->down_fd)) &&
                   (!up_ready || receive(pair->up, pair->up_fd));
    relay_obey(pair);
    goes_on = goes_on && send_all(pair->up, pair->up_fd) && send_all(pair->down, pair->down_fd);
    if (!goes_on || pair->ends)
        end_pair(pair);
}

static void *run(void *argument)
{
    struct pollfd fds[2 * PAIRS + 1];
    (void)argument;
    for (bool stops = false; !stops;) {
        fds[2 * PAIRS] = (struct pollfd){.fd = middle.listener, .events = POLLIN};
        for (size_t i = 0; i < PAIRS; i++) {
            fds[2 * i] = (struct pollfd){.fd = pairs[i].down_fd, .events = POLLIN};
            fds[2 * i + 1] = (struct pollfd){.fd = pairs[i].up_fd, .events = POLLIN};
        }
        poll(fds, 2 * PAIRS + 1, 5);
        pthread_mutex_lock(&middle.lock);
        for (size_t i = 0; i < PAIRS; i++)
            if (pairs[i].down_fd >= 0)
                attend(&pairs[i], fds[2 * i].revents != 0, fds[2 * i + 1].revents != 0);
        orders.wants_reset = orders.passes = false;
        if (fds[2 * PAIRS].revents)
            take_connection();
        stops = middle.stops;
        pthread_mutex_unlock(&middle.lock);
    }
    for (size_t i = 0; i < PAIRS; i++)
        if (pairs[i].down_fd >= 0)
            end_pair(&pairs[i]);
    return NULL;
}

/* ---- for the tests ------------------------------------------------------------------------------------------ */

int middle_start(int port)
{
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof here;
    for (size_t i = 0; i < PAIRS; i++)
        pairs[i] = (struct pair){.down_fd = -1, .up_fd = -1};
    middle.server_port = port;
    middle.stops = orders.has_rule = false;
    middle.listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (middle.listener < 0 || bind(middle.listener, (struct sockaddr *)&here, sizeof here) != 0 ||
        listen(middle.listener, 16) != 0 ||
        getsockname(middle.listener, (struct sockaddr *)&here, &size) != 0 ||
        pthread_create(&middle.thread, NULL, run, NULL) != 0)
        return 0;
    return ntohs(here.sin_port);
}

void middle_end(void)
{
    if (middle.listener < 0)
        return;
    pthread_mutex_lock(&middle.lock);
    middle.stops = true;
    pthread_mutex_unlock(&middle.lock);
    pthread_join(middle.thread, NULL);
    close(middle.listener);
    middle.listener = -1;
}

void middle_rule(const struct rule *rule)
{
    pthread_mutex_lock(&middle.lock);
    orders.rule = *rule;
    orders.has_rule = true;
    orders.hits = 0;
    pthread_mutex_unlock(&middle.lock);
}

void middle_pass(void)
{
    pthread_mutex_lock(&middle.lock);
    orders.passes = true;
    pthread_mutex_unlock(&middle.lock);
}

int middle_hits(void)
{
    pthread_mutex_lock(&middle.lock);
    int hits = orders.hits;
    pthread_mutex_unlock(&middle.lock);
    return hits;
}

int middle_clear(void)
{
    pthread_mutex_lock(&middle.lock);
    orders.has_rule = false;
    pthread_mutex_unlock(&middle.lock);
    return middle_hits();
}

static bool is_reset(void *argument)
{
    (void)argument;
    pthread_mutex_lock(&middle.lock);
    bool wants = orders.wants_reset;
    pthread_mutex_unlock(&middle.lock);
    return !wants;
}

int middle_reset_watches(void)
{
    pthread_mutex_lock(&middle.lock);
    orders.resets = 0;
    orders.wants_reset = true;
    pthread_mutex_unlock(&middle.lock);
    return test_poll(is_reset, NULL, TEST_PATIENCE_MS) ? orders.resets : -1;
}

void middle_noise(uint64_t seed, unsigned rate)
{
    pthread_mutex_lock(&middle.lock);
    orders.random = seed * 0x9e3779b97f4a7c15u | 1;
    orders.rate = rate;
    pthread_mutex_unlock(&middle.lock);
}
