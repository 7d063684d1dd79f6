/* resolve.c - looks up host names for the modules, each on a thread of its own: a resolver may block for
 * minutes, and nothing may block inside the pump. A numeric address is answered without a thread.
 *
 * A look-up has two owners: its thread, which may outlive the client by far (the resolver cannot be
 * interrupted), and the client's list, which lives until the pump is destroyed. They share a `struct lookups`,
 * which is freed with the last of them. If the client is gone, the thread drops its result. */
#include "pump/pump_internal.h"

#include <netdb.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

struct lookups {
    pthread_mutex_t lock; /* before the pump's; held over a post, so that the pump stays */
    struct pump *pump;    /* NULL: the client is gone */
    struct lookup *first;
    unsigned references;
};

struct lookup {
    struct lookup *next, *previous;
    struct lookups *lookups;
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

static void lookups_unref(struct lookups *lookups)
{
    pthread_mutex_lock(&lookups->lock);
    bool last = --lookups->references == 0;
    pthread_mutex_unlock(&lookups->lock);
    if (!last)
        return;
    pthread_mutex_destroy(&lookups->lock);
    free(lookups);
}

static struct lookups *lookups_of(struct pump *pump)
{
    if (pump->lookups != NULL)
        return pump->lookups;
    struct lookups *lookups = calloc(1, sizeof(*lookups));
    if (lookups == NULL)
        return NULL;
    pthread_mutex_init(&lookups->lock, NULL);
    lookups->pump = pump;
    lookups->references = 1;
    pump->lookups = lookups;
    return lookups;
}

/* lookups lock held */
static void link_locked(struct lookups *lookups, struct lookup *lookup)
{
    lookup->next = lookups->first;
    if (lookups->first != NULL)
        lookups->first->previous = lookup;
    lookups->first = lookup;
    lookups->references++;
}

static void unlink_locked(struct lookups *lookups, struct lookup *lookup)
{
    if (lookup->previous != NULL)
        lookup->previous->next = lookup->next;
    else
        lookups->first = lookup->next;
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
    struct lookups *lookups = lookup->lookups;
    pthread_mutex_lock(&lookups->lock);
    unlink_locked(lookups, lookup);
    pthread_mutex_unlock(&lookups->lock);
    lookups_unref(lookups);
    lookup->resolved(ctx, lookup->argument, lookup->addresses,
                     lookup->addresses != NULL ? NULL : gai_strerror(lookup->problem));
    lookup_free(lookup);
}

/* lookups lock held */
static void post(struct lookup *lookup)
{
    struct posted *posted = lookup->posted;
    lookup->posted = NULL; /* the pump's now */
    pump_post_made(lookup->lookups->pump, posted, lookup->instance, deliver, lookup);
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
    struct lookups *lookups = lookup->lookups;
    look_up(lookup, AI_ADDRCONFIG);
    if (lookup->problem == EAI_NONAME || lookup->problem == EAI_ADDRFAMILY)
        look_up(lookup, 0); /* "localhost" on a host that has only a loopback address */
    pthread_mutex_lock(&lookups->lock);
    bool gone = lookups->pump == NULL || lookup->instance == NULL;
    lookup->thread = false;
    if (!gone)
        post(lookup);
    else if (lookups->pump != NULL)
        unlink_locked(lookups, lookup);
    pthread_mutex_unlock(&lookups->lock);
    if (gone) {
        lookup_free(lookup);
        lookups_unref(lookups);
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
    struct lookups *lookups = lookups_of(pump);
    struct lookup *lookup = lookups != NULL ? new_lookup(node, port) : NULL;
    if (lookup == NULL)
        return false;
    lookup->lookups = lookups;
    lookup->instance = instance;
    lookup->resolved = resolved;
    lookup->argument = argument;
    pthread_mutex_lock(&lookups->lock);
    link_locked(lookups, lookup);
    lookup->thread = look_up(lookup, AI_NUMERICHOST) != 0;
    bool begun = !lookup->thread || start_thread(lookup);
    if (!lookup->thread)
        post(lookup);
    if (!begun) {
        unlink_locked(lookups, lookup);
        lookups->references--;
    }
    pthread_mutex_unlock(&lookups->lock);
    if (!begun)
        lookup_free(lookup);
    return begun;
}

/* A look-up whose result was posted already stays in the list until the pump is destroyed. */
void resolve_forget(struct pump *pump, const struct instance *instance)
{
    struct lookups *lookups = pump->lookups;
    if (lookups == NULL)
        return;
    pthread_mutex_lock(&lookups->lock);
    for (struct lookup *lookup = lookups->first; lookup != NULL; lookup = lookup->next)
        if (lookup->instance == instance)
            lookup->instance = NULL;
    pthread_mutex_unlock(&lookups->lock);
}

/* No thread is inside the pump, and none will be. */
void resolve_end(struct pump *pump)
{
    struct lookups *lookups = pump->lookups;
    if (lookups == NULL)
        return;
    pump->lookups = NULL;
    pthread_mutex_lock(&lookups->lock);
    lookups->pump = NULL;
    for (struct lookup *lookup = lookups->first, *next; lookup != NULL; lookup = next) {
        next = lookup->next;
        if (lookup->thread)
            continue; /* its thread frees it */
        unlink_locked(lookups, lookup);
        lookups->references--; /* not the last: that is the client's */
        lookup_free(lookup);
    }
    pthread_mutex_unlock(&lookups->lock);
    lookups_unref(lookups);
}
