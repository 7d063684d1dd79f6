/* witness_backend.c - the configurations of the peers, opened once each, and the releases that go through them.
 *
 * A thread opens each configuration, because that may take as long as a disk or a driver wants. Its result, and the answers to
 * releases, come on other threads; the lock guards what they touch, and an eventfd wakes the main thread. */
#include "witness.h"

#include "clock.h"
#include "output.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define MS_NS INT64_C(1000000)
#define IDLE_NS (60000 * MS_NS)
enum { BACKENDS_MAX = 256, RELEASES_MAX = 2048 }; /* releases: of one backend, which may be dead */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct backend *backends;
static unsigned backend_count;
static bool opened; /* backends_turn() has something to handle */
static int wake = -1;

/* lock held */
static void wake_main(void)
{
    const uint64_t one = 1;
    if (write(wake, &one, sizeof one) < 0)
        return; /* it is awake already */
}

int backends_begin(void)
{
    wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return wake;
}

/* ---- opening --------------------------------------------------------------------------------------- */

static void open_client_of(struct backend *backend, mortise_client **client, char *problem)
{
    mortise_error error = {.message = ""};
    const char *where = backend->where[0] == '\0' ? NULL : backend->where;

    problem[0] = '\0';
    if (mortise_open_for_dead(where, client, &error) != MORTISE_OK) {
        snprintf(problem, sizeof backend->problem, "the witness cannot open its configuration: %s",
                 error.message);
        return;
    }
    if (mortise_config_print(*client) != backend->print) {
        snprintf(problem, sizeof backend->problem,
                 "the witness reads another configuration under that name, or has other "
                 "environment variables for it");
        mortise_close(*client, NULL);
        *client = NULL;
    }
}

static void *open_main(void *argument)
{
    struct backend *backend = argument;
    mortise_client *client = NULL;
    char problem[sizeof backend->problem], text[256];

    open_client_of(backend, &client, problem);
    pthread_mutex_lock(&lock);
    backend->client = client;
    snprintf(backend->problem, sizeof backend->problem, "%s", problem);
    backend->opened = true;
    opened = true;
    wake_main();
    pthread_mutex_unlock(&lock);
    /* Connects now, so that the first release need not wait for that; but no peer waits for a silent server. The client may be
     * closed meanwhile; then this fails. */
    if (client != NULL)
        mortise_ping(client, text, sizeof text, NULL);
    return NULL;
}

static void *close_main(void *client)
{
    mortise_close(client, NULL);
    return NULL;
}

/* False: the system gives no thread. */
static bool start_thread(void *(*body)(void *argument), void *argument)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, body, argument) != 0)
        return false;
    pthread_detach(thread);
    return true;
}

static struct backend *backend_new(const char *where, uint64_t print)
{
    struct backend *backend = calloc(1, sizeof *backend + strlen(where) + 1);
    if (backend == NULL)
        return NULL;
    memcpy(backend->where, where, strlen(where) + 1);
    backend->print = print;
    if (!start_thread(open_main, backend)) {
        free(backend);
        return NULL;
    }
    backend->next = backends;
    backends = backend;
    backend_count++;
    return backend;
}

struct backend *backend_get(const char *where, uint64_t print)
{
    pthread_mutex_lock(&lock);
    struct backend *backend = backends;
    while (backend != NULL && (backend->print != print || strcmp(backend->where, where) != 0 ||
                               backend->state == BACKEND_FAILED))
        backend = backend->next;
    if (backend == NULL && backend_count < BACKENDS_MAX)
        backend = backend_new(where, print);
    if (backend != NULL)
        backend->peers++;
    pthread_mutex_unlock(&lock);
    return backend;
}

void backend_put(struct backend *backend)
{
    pthread_mutex_lock(&lock);
    backend->peers--;
    backend->idle_ns = boottime_ns();
    pthread_mutex_unlock(&lock);
}

/* lock held */
static bool is_idle(const struct backend *backend, int64_t now)
{
    if (backend->peers > 0 || backend->releases > 0 || backend->state == BACKEND_OPENING)
        return false;
    return backend->state == BACKEND_FAILED || now >= backend->idle_ns + IDLE_NS;
}

bool backends_turn(int64_t now)
{
    uint64_t times;
    while (read(wake, &times, sizeof times) > 0)
        continue;
    pthread_mutex_lock(&lock);
    bool news = opened;
    opened = false;
    for (struct backend *backend = backends; news && backend != NULL; backend = backend->next)
        if (backend->state == BACKEND_OPENING && backend->opened)
            backend->state = backend->client != NULL ? BACKEND_OPEN : BACKEND_FAILED;
    for (struct backend **at = &backends, *backend; (backend = *at) != NULL;) {
        if (!is_idle(backend, now) ||
            (backend->client != NULL && !start_thread(close_main, backend->client))) {
            at = &backend->next;
            continue;
        }
        *at = backend->next;
        backend_count--;
        free(backend);
    }
    pthread_mutex_unlock(&lock);
    return news;
}

void backends_end(void)
{
    for (;;) {
        pthread_mutex_lock(&lock);
        struct backend *backend = backends;
        while (backend != NULL && backend->client == NULL)
            backend = backend->next;
        mortise_client *client = backend == NULL ? NULL : backend->client;
        if (backend != NULL)
            backend->client = NULL;
        pthread_mutex_unlock(&lock);
        if (client == NULL)
            return;
        mortise_close(client, NULL);
    }
}

/* ---- graves ---------------------------------------------------------------------------------------- */

struct grave {
    struct backend *backend;
    pid_t pid;
    int64_t died_ns;
    bool closed;
    unsigned open, released, gone, failed; /* releases without an answer, and their answers */
    char problem[256];                     /* of the last failure */
};

struct grave *grave_dig(struct backend *backend, pid_t pid)
{
    struct grave *grave = calloc(1, sizeof *grave);
    if (grave == NULL)
        return NULL;
    *grave = (struct grave){.backend = backend, .pid = pid, .died_ns = boottime_ns()};
    return grave;
}

/* Writes the line for one process, when all its releases are answered. */
static void finish(struct grave *grave)
{
    int64_t took_ms = (boottime_ns() - grave->died_ns) / MS_NS;
    if (grave->failed > 0)
        witness_say("process %d has ended; %u of its locks could not be released, and end with "
                    "their ttl: %s",
                    (int)grave->pid, grave->failed, grave->problem);
    if (grave->released > 0)
        witness_say("process %d has ended; %u of its locks released in %" PRId64 " ms",
                    (int)grave->pid, grave->released, took_ms);
    free(grave);
}

/* On a thread of the library. */
static void answered(mortise_status status, const mortise_error *error, void *user_data)
{
    struct grave *grave = user_data;
    pthread_mutex_lock(&lock);
    if (status == MORTISE_OK)
        grave->released++;
    else if (status == MORTISE_LOST || status == MORTISE_NOTOWNER)
        grave->gone++;
    else {
        grave->failed++;
        snprintf(grave->problem, sizeof grave->problem, "%.255s", error->message);
    }
    grave->open--;
    bool over = grave->closed && grave->open == 0;
    grave->backend->releases--;
    grave->backend->idle_ns = boottime_ns();
    if (grave->backend->releases % (RELEASES_MAX / 4) == 0)
        wake_main(); /* a peer may wait for room */
    pthread_mutex_unlock(&lock);
    if (over)
        finish(grave);
}

/* Counts one more release, or one less. False: there are too many. */
static bool count_release(struct grave *grave, int change)
{
    pthread_mutex_lock(&lock);
    bool room = change < 0 || grave->backend->releases < RELEASES_MAX;
    if (room) {
        grave->open += (unsigned)change;
        grave->backend->releases += (unsigned)change;
    }
    pthread_mutex_unlock(&lock);
    return room;
}

mortise_status grave_release(struct grave *grave, const mortise_witness_slot *slot)
{
    if (!count_release(grave, +1))
        return MORTISE_BUSY;
    mortise_status status =
        mortise_release_dead(grave->backend->client, slot, answered, grave, NULL);
    if (status != MORTISE_OK)
        count_release(grave, -1);
    return status;
}

void grave_close(struct grave *grave)
{
    pthread_mutex_lock(&lock);
    grave->closed = true;
    bool over = grave->open == 0;
    pthread_mutex_unlock(&lock);
    if (over)
        finish(grave);
}
