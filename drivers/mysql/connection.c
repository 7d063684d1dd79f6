/* connection.c - makes a connection by libmariadb, to one address at a time, and takes what comes in on it. */
#include "driver.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <sys/socket.h>

const char *connection_where(const struct link *link, char *text, size_t size)
{
    const struct host_entry *entry = link->address < link->addresses.count
                                         ? link->addresses.at[link->address].entry
                                         : &link->remote->hosts.at[0];
    if (target_is_socket(driver_of(link)))
        snprintf(text, size, "%.150s", entry->name);
    else
        snprintf(text, size, "%.150s:%s", entry->name, entry->port);
    return text;
}

void connection_end(struct link *link)
{
    struct my_link *mine = my_link(link);
    conn_close(&mine->conn);
    text_free(&mine->out);
    mine->stale = false;
}

/* The kernel must notice a silent network. A program that this process starts must not inherit the connection. */
static void prepare_socket(const struct link *link, int fd)
{
    const int on = 1, idle_s = 10, interval_s = 3, count = 3;
    unsigned timeout_ms = (unsigned)link->remote->command_ms;
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    if (target_is_socket(driver_of(link)))
        return;
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof(idle_s));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof(interval_s));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof(count));
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout_ms, sizeof(timeout_ms));
}

static void connecting_event(struct link *link, enum conn_event event)
{
    struct conn *conn = &my_link(link)->conn;
    struct fault fault;
    if (event == CONN_FAILED && conn->mysql == NULL) {
        link_failed_why(link, MORTISE_NOMEM, true, "out of memory");
    } else if (event == CONN_FAILED) {
        fault_read(conn->mysql, &fault);
        link_failed(link, &fault.base);
    } else if (link->fd < 0 && conn->helper == NULL) {
        if (!link_poll(link, conn_socket(conn)))
            return;
        prepare_socket(link, conn_socket(conn));
        link_look_soon(link); /* while a thread connected, there was nothing to poll */
    }
    if (event == CONN_CONNECTED)
        setup_begin(link);
}

/* A connecting thread has ended; perhaps that of a link that has given up. */
static void shaken(void *ctx, void *argument)
{
    struct remote *remote = ctx;
    struct link *links[] = {remote->main, remote->live};
    (void)argument;
    for (size_t i = 0; i < 2; i++) {
        enum conn_event event = conn_shaken(&my_link(links[i])->conn);
        if (event != CONN_WAITS)
            connecting_event(links[i], event);
    }
    remote_go(remote);
}

/* Runs on that thread. */
static void post_shaken(void *argument)
{
    mortise_host *host = argument;
    host->post(host, shaken, NULL);
}

void connection_begin(struct link *link)
{
    struct conn *conn = &my_link(link)->conn;
    struct conn_target target;
    target_describe(driver_of(link), &link->addresses.at[link->address], &target);
    connecting_event(link, conn_connect(conn, &target, post_shaken, link->remote->locks.host));
}

/* ---- what comes in ----------------------------------------------------------------------------- */

short connection_events(const struct link *link)
{
    const struct conn *conn = &my_link_const(link)->conn;
    return conn_poll_events(conn->state == CONN_IDLE ? MYSQL_WAIT_READ : conn->waits);
}

/* No statement is open. So if there is something to read, it is an end of file, or the reason for one. */
bool connection_is_there(struct link *link)
{
    if (link_peek(link) == PEEK_NOTHING)
        return true;
    link_lose_why(link, "the server closed the connection");
    return false;
}

static void handle(struct link *link, enum conn_event event)
{
    if (link->state == LINK_CONNECTING)
        connecting_event(link, event);
    else if (link->state == LINK_SETTING_UP)
        setup_event(link, event);
    else if (link->state == LINK_READY)
        group_event(link, event);
}

/* Some of the events that libmariadb waits for may have come. */
void connection_come_in(struct link *link, short events)
{
    struct conn *conn = &my_link(link)->conn;
    int ready = conn_ready(events);
    if (conn->state != CONN_IDLE && (ready & conn->waits) != 0)
        handle(link, conn_go(conn, ready & conn->waits));
    else if (conn->state == CONN_IDLE && link->state == LINK_READY && (ready & MYSQL_WAIT_READ))
        connection_is_there(link);
}
