/* libuv.c - the same with libuv: a uv_poll_t for each client. argv[1]: a config file or a URL; without it, the default
 * config file. */
#include "crowd.h"

#include <stdint.h>
#include <uv.h>

static uv_poll_t polls[CROWD_CLIENTS];
static uv_timer_t timer;

static void on_tick(uv_timer_t *handle)
{
    if (crowd_tick())
        uv_stop(handle->loop);
}

static void on_readable(uv_poll_t *handle, int status, int events)
{
    (void)events;
    if (status < 0 || crowd_ready((int)(handle - polls)))
        uv_stop(handle->loop);
}

int main(int argc, char **argv)
{
    uv_loop_t *loop = uv_default_loop();
    if (!crowd_begin(argc > 1 ? argv[1] : NULL))
        return crowd_end();
    bool well = uv_timer_init(loop, &timer) == 0 && uv_timer_start(&timer, on_tick, 10, 10) == 0;
    for (int i = 0; i < CROWD_CLIENTS; i++)
        well = well && uv_poll_init(loop, &polls[i], crowd_fd(i)) == 0 &&
               uv_poll_start(&polls[i], UV_READABLE, on_readable) == 0;
    if (!well)
        return 1;
    uv_run(loop, UV_RUN_DEFAULT);

    /* the descriptors belong to the clients: remove them from the loop before the clients are closed */
    for (int i = 0; i < CROWD_CLIENTS; i++)
        uv_close((uv_handle_t *)&polls[i], NULL);
    uv_close((uv_handle_t *)&timer, NULL);
    uv_run(loop, UV_RUN_DEFAULT);
    int code = crowd_end();
    return uv_loop_close(loop) == 0 ? code : 1;
}
