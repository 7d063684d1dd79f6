/* crowd.c - see crowd.h. The first client acquires a thousand locks at once. Then the second client asks for each of
 * them, and must wait. At the loop's next tick the first client releases them, and the second one gets them. The
 * program creates no thread, and none of its calls blocks: if one did, that tick would never come. */
#include "crowd.h"

#include <mortise/mortise.h>

#include <pthread.h>
#include <stdio.h>

enum { LOCKS = 1000 };

struct wanted {
    int client, lock;
};

static mortise_client *clients[CROWD_CLIENTS];
static int fds[CROWD_CLIENTS];
static struct wanted wanted[CROWD_CLIENTS][LOCKS];
static mortise_lease *held[LOCKS]; /* the holder's lease of each lock: never two */
static int had[CROWD_CLIENTS], failures;
static bool second_asked, passes_on;
static pthread_t loop_thread;

static void fail(const char *what, const char *why)
{
    if (failures++ == 0)
        fprintf(stderr, "%s: %s\n", what, why);
}

/* Does not wait for the server. All releases of one dispatch are sent together. */
static void let_go(int lock)
{
    if (mortise_release_nowait(held[lock], NULL) != MORTISE_OK)
        fail("release", "the lock was lost");
    held[lock] = NULL;
}

/* The callback of an acquire. It runs in mortise_dispatch(), so on the thread of the loop. */
static void acquired(mortise_status status, mortise_lease *lease, const mortise_error *error,
                     void *argument)
{
    const struct wanted *want = argument;
    if (status != MORTISE_OK) {
        fail("acquire", error->message);
        return;
    }
    if (held[want->lock] != NULL || !pthread_equal(pthread_self(), loop_thread))
        fail("acquire", "two hold one lock, or this is another thread");
    held[want->lock] = lease;
    had[want->client]++;
    if (want->client == 1)
        let_go(want->lock);
}

static bool ask(int client)
{
    char name[32];
    mortise_error error;
    for (int i = 0; i < LOCKS; i++) {
        snprintf(name, sizeof(name), "crowd/%d", i);
        wanted[client][i] = (struct wanted){client, i};
        if (mortise_acquire_async(clients[client], name, MORTISE_OPTIONS(.wait_ms = 120000),
                                  acquired, &wanted[client][i], NULL, &error) == MORTISE_OK)
            continue;
        fail("acquire", error.message);
        return false;
    }
    return true;
}

bool crowd_begin(const char *where)
{
    mortise_error error;
    loop_thread = pthread_self();
    for (int i = 0; i < CROWD_CLIENTS; i++) {
        if (mortise_open(where, &clients[i], &error) != MORTISE_OK) {
            fail("open", error.message);
            return false;
        }
        fds[i] =
            mortise_fd(clients[i], NULL); /* from now on callbacks run only in mortise_dispatch() */
        if (fds[i] < 0) {
            fail("open", "no descriptor");
            return false;
        }
    }
    return ask(0);
}

int crowd_fd(int client)
{
    return fds[client];
}

bool crowd_ready(int client)
{
    if (mortise_dispatch(clients[client]) < 0)
        fail("dispatch", "the client is closed");
    if (!second_asked && had[0] == LOCKS && failures == 0) {
        second_asked = true;
        ask(1);
    }
    return failures > 0 || had[1] == LOCKS;
}

bool crowd_tick(void)
{
    if (!second_asked || passes_on)
        return failures > 0;
    passes_on =
        true; /* a thousand locks are held, a thousand requests wait, and the loop runs on */
    if (had[1] > 0)
        fail("acquire", "a lock was given twice");
    for (int i = 0; i < LOCKS; i++)
        let_go(i);
    return failures > 0;
}

/* Even the last callbacks run only in mortise_dispatch(). */
static mortise_status close_client(mortise_client *client)
{
    mortise_status status;
    while ((status = mortise_close(client, NULL)) == MORTISE_CLOSING)
        if (mortise_dispatch(client) < 0)
            break;
    return status;
}

int crowd_end(void)
{
    for (int i = 0; i < CROWD_CLIENTS; i++)
        if (clients[i] != NULL && close_client(clients[i]) != MORTISE_OK)
            fail("close", "something was left to its ttl");
    if (failures == 0)
        printf("%d locks held at once, and at a tick of the loop %d passed on; one thread\n",
               had[0], had[1]);
    return failures == 0 ? 0 : 1;
}
