/* dispatch.c - callbacks on a thread of the application: mortise_fd() and mortise_dispatch(). */
#include "client/client.h"

int mortise_fd(mortise_client *handle, mortise_status *status)
{
    struct client *client;
    mortise_status entered = client_enter(handle, &client, NULL);
    int fd = -1;
    if (entered == MORTISE_OK) {
        int pump_fd = pump_epoll(&client->pump);
        if (pump_fd >= 0)
            fd = events_open_fd(&client->events, pump_fd);
        if (fd < 0)
            entered = MORTISE_NOMEM;
        else
            pump_dispatched(&client->pump, fd);
        client_leave(client);
    }
    if (status != NULL)
        *status = entered;
    return fd;
}

/* Runs callbacks. The call was counted in, and is counted out before the first callback: a close waits for all calls that
 * may use the modules, but for callbacks it waits only a bounded time. */
static int dispatch(struct client *client, bool closing)
{
    client_keep(client);
    if (!closing) /* else the modules may be gone */
        pump_turn(&client->pump);
    client_count_out(client);
    pump_hold(&client->pump);
    int count = events_dispatch_run(&client->events);
    if (atomic_load(&client->slot.epoch) != atomic_load(&fork_epoch)) {
        pump_let_go(NULL); /* a child, forked in a callback: the client belongs to its parent */
        return count;
    }
    pump_let_go(&client->pump);
    events_dispatch_end(&client->events);
    client_leave_callbacks(client);
    return count;
}

int mortise_dispatch(mortise_client *handle)
{
    struct client *client;
    if (events_inside())
        return MORTISE_DEADLOCK;
    mortise_status status = client_enter(handle, &client, NULL);
    bool closing = status == MORTISE_CLOSED && client_enter_closing(handle, &client);
    if (status != MORTISE_OK && !closing)
        return status;
    if (!events_dispatch_begin(&client->events)) {
        client_leave(client);
        return MORTISE_INVALID;
    }
    int count = dispatch(client, closing);
    client_end_call(); /* not earlier: a close would wait forever for a canceled callback */
    return count;
}
