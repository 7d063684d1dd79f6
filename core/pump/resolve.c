/* resolve.c - looks up host names for the modules, each on a thread of its own: a resolver may block for
 * minutes, and nothing may block inside the pump. A numeric address is answered without a thread.
 *
 * A look-up has two owners: its thread, which may outlive the client by far (the resolver cannot be
 * interrupted), and the client's list, which lives until the pump is destroyed. They share the board,
 * which is freed with the last of them. If the client is gone, the thread drops its result. */
#include "pump/pump_internal.h"

#include <netdb.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

struct board {
    pthread_mutex_t lock; /* before the pump's; held over a post, so that the pump stays */
    struct pump *pump;    /* NULL: the client is gone */
    struct lookup *first;
    unsigned references;
};

struct lookup {
    struct lookup *next, *previous;
    struct board *board;
    struct instance *instance; /* NULL: it is gone, and the result is dropped */
    mortise_resolved resolved;
    void *argument;
    struct addrinfo *addresses;
    int problem;           /* of getaddrinfo */
    bool thread;           /* its thread still uses it */
    struct posted *posted; /* made beforehand: an answer must not get lost */
    char *port;            /* behind the node */
    char node[];
};

static void board_unref(struct board *board)
{
    pthread_mutex_lock(&board->lock);
    bool last = --board->references == 0;
    pthread_mutex_unlock(&board->lock);
    if (!last)
        return;
    pthread_mutex_destroy(&board->lock);
    free(board);
}

static struct board *board_of(struct pump *pump)
{
    if (pump->board != NULL)
        return pump->board;
    struct board *board = calloc(1, sizeof(*board));
    if (board == NULL)
        return NULL;
    pthread_mutex_init(&board->lock, NULL);
    board->pump = pump;
    board->references = 1;
    pump->board = board;
    return board;
}

/* board lock held */
static void link_locked(struct board *board, struct lookup *lookup)
{
    lookup->next = board->first;
    if (board->first != NULL)
        board->first->previous = lookup;
    board->first = lookup;
    board->references++;
}

static void unlink_locked(struct board *board, struct lookup *lookup)
{
    if (lookup->previous != NULL)
        lookup->previous->next = lookup->next;
    else
        board->first = lookup->next;
    if (lookup->next != NULL)
        lookup->next->previous = lookup->previous;
}

static void lookup_free(struct lookup *lookup)
{
    if (lookup->addresses != NULL)
        freeaddrinfo(lookup->addresses);
    free(lookup->posted);
    free(lookup);
}

/* Inside the pump. */
static void deliver(void *ctx, void *argument)
{
    struct lookup *lookup = argument;
    struct board *board = lookup->board;
    pthread_mutex_lock(&board->lock);
    unlink_locked(board, lookup);
    pthread_mutex_unlock(&board->lock);
    board_unref(board);
    lookup->resolved(ctx, lookup->argument, lookup->addresses,
                     lookup->addresses != NULL ? NULL : gai_strerror(lookup->problem));
    lookup_free(lookup);
}

/* board lock held */
static void post(struct lookup *lookup)
{
    struct posted *posted = lookup->posted;
    lookup->posted = NULL; /* the pump's now */
    pump_post_made(lookup->board->pump, posted, lookup->instance, deliver, lookup);
}

static int look_up(struct lookup *lookup, int flags)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV | flags};
    lookup->problem = getaddrinfo(lookup->node, lookup->port, &hints, &lookup->addresses);
    if (lookup->problem != 0)
        lookup->addresses = NULL;
    return lookup->problem;
}

static void *run(void *argument)
{
    struct lookup *lookup = argument;
    struct board *board = lookup->board;
    look_up(lookup, AI_ADDRCONFIG);
    if (lookup->problem == EAI_NONAME || lookup->problem == EAI_ADDRFAMILY)
        look_up(lookup, 0); /* "localhost" on a host that has only a loopback address */
    pthread_mutex_lock(&board->lock);
    bool gone = board->pump == NULL || lookup->instance == NULL;
    lookup->thread = false;
    if (!gone)
        post(lookup);
    else if (board->pump != NULL)
        unlink_locked(board, lookup);
    pthread_mutex_unlock(&board->lock);
    if (gone) {
        lookup_free(lookup);
        board_unref(board);
    }
    return NULL;
}

static bool start_thread(struct lookup *lookup)
{
    sigset_t all, before; /* signals are for the application's threads */
    pthread_attr_t detached;
    pthread_t thread;
    sigfillset(&all);
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool started = pthread_create(&thread, &detached, run, lookup) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&detached);
    return started;
}

static struct lookup *new_lookup(const char *node, const char *port)
{
    size_t node_size = strlen(node) + 1, port_size = strlen(port) + 1;
    struct lookup *lookup = calloc(1, sizeof(*lookup) + node_size + port_size);
    if (lookup == NULL)
        return NULL;
    memcpy(lookup->node, node, node_size);
    lookup->port = lookup->node + node_size;
    memcpy(lookup->port, port, port_size);
    lookup->posted = pump_posting();
    if (lookup->posted != NULL)
        return lookup;
    free(lookup);
    return NULL;
}

bool resolve_begin(struct pump *pump, struct instance *instance, const char *node, const char *port,
                   mortise_resolved resolved, void *argument)
{
    struct board *board = board_of(pump);
    struct lookup *lookup = board != NULL ? new_lookup(node, port) : NULL;
    if (lookup == NULL)
        return false;
    lookup->board = board;
    lookup->instance = instance;
    lookup->resolved = resolved;
    lookup->argument = argument;
    pthread_mutex_lock(&board->lock);
    link_locked(board, lookup);
    lookup->thread = look_up(lookup, AI_NUMERICHOST) != 0;
    bool begun = !lookup->thread || start_thread(lookup);
    if (!lookup->thread)
        post(lookup);
    if (!begun) {
        unlink_locked(board, lookup);
        board->references--;
    }
    pthread_mutex_unlock(&board->lock);
    if (!begun)
        lookup_free(lookup);
    return begun;
}

/* A look-up whose result was posted already stays on the board until the pump is destroyed. */
void resolve_forget(struct pump *pump, const struct instance *instance)
{
    struct board *board = pump->board;
    if (board == NULL)
        return;
    pthread_mutex_lock(&board->lock);
    for (struct lookup *lookup = board->first; lookup != NULL; lookup = lookup->next)
        if (lookup->instance == instance)
            lookup->instance = NULL;
    pthread_mutex_unlock(&board->lock);
}

/* No thread is inside the pump, and none will be. */
void resolve_end(struct pump *pump)
{
    struct board *board = pump->board;
    if (board == NULL)
        return;
    pump->board = NULL;
    pthread_mutex_lock(&board->lock);
    board->pump = NULL;
    for (struct lookup *lookup = board->first, *next; lookup != NULL; lookup = next) {
        next = lookup->next;
        if (lookup->thread)
            continue; /* its thread frees it */
        unlink_locked(board, lookup);
        board->references--; /* not the last: that is the client's */
        lookup_free(lookup);
    }
    pthread_mutex_unlock(&board->lock);
    board_unref(board);
}
