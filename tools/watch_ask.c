/* watch_ask.c - a thread that asks the backend for the held locks, again and again.
 *
 * Keeps only the newest answer. */
#include "watch.h"

#include "exit_code.h"
#include "output.h"
#include "thread.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct asker {
    mortise_client *client;
    const char *prefix;
    int64_t interval_ms;
    int ends[2], stop[2]; /* pipes: an answer has come; the thread must end */
    pthread_t thread;
    pthread_mutex_t lock;
    bool fresh;             /* under lock */
    struct snapshot newest; /* under lock */
};

void snapshot_free(struct snapshot *snapshot)
{
    free(snapshot->infos);
    *snapshot = (struct snapshot){0};
}

/* Without memory there is no answer: the thread must not end the process, which may have to restore a terminal. */
static bool out_of_memory(struct snapshot *snapshot)
{
    snapshot->status = snapshot->error.status = MORTISE_NOMEM;
    snprintf(snapshot->error.message, sizeof snapshot->error.message, "out of memory");
    return false;
}

static bool add(const mortise_info *info, void *user_data)
{
    struct snapshot *snapshot = user_data;

    if (snapshot->count == snapshot->capacity) {
        const size_t capacity = snapshot->capacity ? snapshot->capacity * 2 : 64;
        mortise_info *infos = reallocarray(snapshot->infos, capacity, sizeof *infos);
        if (infos == NULL)
            return out_of_memory(snapshot);
        snapshot->infos = infos;
        snapshot->capacity = capacity;
    }
    snapshot->infos[snapshot->count++] = *info;
    return true;
}

static void publish(struct asker *asker, struct snapshot *snapshot)
{
    pthread_mutex_lock(&asker->lock);
    snapshot_free(&asker->newest);
    asker->newest = *snapshot;
    asker->fresh = true;
    pthread_mutex_unlock(&asker->lock);
    /* the pipe does not block: if it is full, it is readable already */
    if (write(asker->ends[1], "", 1) < 0 && errno != EAGAIN)
        say("cannot pass on an answer: %s", strerror(errno));
}

static bool is_over(struct asker *asker)
{
    struct pollfd fd = {.fd = asker->stop[0], .events = POLLIN};

    /* asker_stop() closes the other end */
    return poll(&fd, 1, (int)asker->interval_ms) > 0;
}

static void *ask(void *argument)
{
    struct asker *asker = argument;

    do {
        struct snapshot snapshot = {0};
        mortise_status status =
            mortise_list(asker->client, asker->prefix, add, &snapshot, &snapshot.error);
        if (status != MORTISE_OK)
            snapshot.status = status;
        publish(asker, &snapshot);
    } while (!is_over(asker));
    return NULL;
}

struct asker *asker_start(mortise_client *client, const char *prefix, int64_t interval_ms)
{
    struct asker *asker = must_have(calloc(1, sizeof *asker));

    asker->client = client;
    asker->prefix = prefix;
    asker->interval_ms = interval_ms;
    pthread_mutex_init(&asker->lock, NULL);
    if (pipe2(asker->ends, O_CLOEXEC | O_NONBLOCK) == 0 && pipe2(asker->stop, O_CLOEXEC) == 0) {
        errno = thread_start(&asker->thread, ask, asker);
        if (errno == 0)
            return asker;
    }
    say("cannot start a thread: %s", strerror(errno));
    exit(EXIT_SYSTEM);
}

void asker_stop(struct asker *asker)
{
    close(asker->stop[1]);
    pthread_join(asker->thread, NULL);
    close(asker->stop[0]);
    close(asker->ends[0]);
    close(asker->ends[1]);
    snapshot_free(&asker->newest);
    pthread_mutex_destroy(&asker->lock);
    free(asker);
}

int asker_fd(const struct asker *asker)
{
    return asker->ends[0];
}

bool asker_take(struct asker *asker, struct snapshot *snapshot)
{
    char drained[64];

    while (read(asker->ends[0], drained, sizeof drained) > 0)
        continue;
    pthread_mutex_lock(&asker->lock);
    bool fresh = asker->fresh;
    if (fresh) {
        snapshot_free(snapshot);
        *snapshot = asker->newest;
        asker->newest = (struct snapshot){0};
        asker->fresh = false;
    }
    pthread_mutex_unlock(&asker->lock);
    return fresh;
}
