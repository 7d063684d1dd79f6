/* ask.c - the thread that asks the backend for the held names, and makes the texts of each answer.
 *
 * One listing serves all visitors. pause.c says how long the pause after it is. */
#include "serve.h"

#include "clock.h"
#include "exit_code.h"
#include "holders.h"
#include "json.h"
#include "output.h"
#include "pause.h"
#include "thread.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

struct asker {
    mortise_client *client;
    const char *prefix;
    int64_t interval_ms;
    int news, stop; /* eventfds: an answer has come; the thread must end */
    pthread_t thread;
    struct expiry *expiry; /* of the thread */
    pthread_mutex_t lock;
    int64_t asks_since_ns; /* under lock */
    bool fresh;            /* under lock */
    struct answer newest;  /* under lock */
};

void answer_free(struct answer *answer)
{
    free(answer->locks);
    tally_end(&answer->tally);
    *answer = (struct answer){0};
}

struct listing {
    mortise_info *infos;
    size_t count, capacity;
};

static bool add(const mortise_info *info, void *user_data)
{
    struct listing *listing = user_data;

    if (listing->count == listing->capacity) {
        listing->capacity = listing->capacity ? listing->capacity * 2 : 64;
        listing->infos =
            must_have(reallocarray(listing->infos, listing->capacity, sizeof *listing->infos));
    }
    listing->infos[listing->count++] = *info;
    return true;
}

/* The same objects as `mortise list --json` prints. */
static void write_locks(const struct listing *listing, struct answer *answer)
{
    struct json json = {.out = must_have(open_memstream(&answer->locks, &answer->locks_length))};

    json_open(&json, '[');
    for (size_t i = 0; i < listing->count; i++) {
        json_open(&json, '{');
        holders_json(&json, &listing->infos[i]);
        json_close(&json, '}');
    }
    json_close(&json, ']');
    if (fclose(json.out) != 0)
        must_have(NULL);
}

static int64_t wall_ms(void)
{
    struct timespec time;

    clock_gettime(CLOCK_REALTIME, &time);
    return (int64_t)time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

static void list(struct asker *asker, struct answer *answer)
{
    struct listing listing = {0};

    answer->began_ns = boottime_ns();
    answer->status = mortise_list(asker->client, asker->prefix, add, &listing, &answer->error);
    const int64_t ended_ns = boottime_ns();
    answer->took_ms = (ended_ns - answer->began_ns) / 1000000;
    answer->at_ms = wall_ms();
    if (answer->status != MORTISE_OK) {
        free(listing.infos);
        return;
    }
    write_locks(&listing, answer);
    tally_begin(&answer->tally);
    for (size_t i = 0; i < listing.count; i++)
        tally_add(&answer->tally, &listing.infos[i]);
    answer->expired = expiry_next(asker->expiry, listing.infos, listing.count, ended_ns);
}

static void set_asking(struct asker *asker, int64_t since_ns)
{
    pthread_mutex_lock(&asker->lock);
    asker->asks_since_ns = since_ns;
    pthread_mutex_unlock(&asker->lock);
}

static void publish(struct asker *asker, struct answer *answer)
{
    pthread_mutex_lock(&asker->lock);
    if (asker->fresh)
        answer->expired += asker->newest.expired;
    answer_free(&asker->newest);
    asker->newest = *answer;
    asker->fresh = true;
    asker->asks_since_ns = 0;
    pthread_mutex_unlock(&asker->lock);
    eventfd_write(asker->news, 1);
}

static bool is_over(struct asker *asker, int pause)
{
    struct pollfd fd = {.fd = asker->stop, .events = POLLIN};

    return poll(&fd, 1, pause) > 0;
}

static void *ask(void *argument)
{
    struct asker *asker = argument;
    int pause;

    do {
        struct answer answer = {0};
        set_asking(asker, boottime_ns());
        list(asker, &answer);
        pause = pause_ms(answer.status == MORTISE_OK, (boottime_ns() - answer.began_ns) / 1000000,
                         asker->interval_ms);
        publish(asker, &answer);
    } while (!is_over(asker, pause));
    return NULL;
}

struct asker *asker_start(mortise_client *client, const char *prefix, int64_t interval_ms)
{
    struct asker *asker = must_have(calloc(1, sizeof *asker));

    *asker = (struct asker){.client = client, .prefix = prefix, .interval_ms = interval_ms};
    asker->expiry = expiry_new();
    pthread_mutex_init(&asker->lock, NULL);
    asker->news = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    asker->stop = eventfd(0, EFD_CLOEXEC);
    if (asker->news >= 0 && asker->stop >= 0) {
        errno = thread_start(&asker->thread, ask, asker);
        if (errno == 0)
            return asker;
    }
    say("cannot start a thread: %s", strerror(errno));
    exit(EXIT_SYSTEM);
}

void asker_stop(struct asker *asker)
{
    eventfd_write(asker->stop, 1);
    pthread_join(asker->thread, NULL);
    close(asker->stop);
    close(asker->news);
    answer_free(&asker->newest);
    expiry_free(asker->expiry);
    pthread_mutex_destroy(&asker->lock);
    free(asker);
}

int asker_fd(const struct asker *asker)
{
    return asker->news;
}

bool asker_take(struct asker *asker, struct answer *answer)
{
    eventfd_t count;

    eventfd_read(asker->news, &count);
    pthread_mutex_lock(&asker->lock);
    const bool fresh = asker->fresh;
    if (fresh) {
        *answer = asker->newest;
        asker->newest = (struct answer){0};
        asker->fresh = false;
    }
    pthread_mutex_unlock(&asker->lock);
    return fresh;
}

int64_t asker_asks_since_ns(struct asker *asker)
{
    pthread_mutex_lock(&asker->lock);
    const int64_t since_ns = asker->asks_since_ns;
    pthread_mutex_unlock(&asker->lock);
    return since_ns;
}
