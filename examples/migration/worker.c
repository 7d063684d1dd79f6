/* worker.c - one process of a fleet that moves from one backend to another while it works. It adds one to a number,
 * again and again, each time under the lock "counter".
 *
 *     worker CONFIG FILE
 *
 * FILE is a store that checks tokens (docs/fencing.md). It only grows: each line is a request to write a number, with
 * the token of its writer's lock, appended by one write(2). The order of the lines is the order of the decisions:
 * every reader refuses a line whose token is smaller than the largest token before it. All lines are equally long, and
 * none crosses a page: there the kernel may end the write of a killed process. So a worker does no harm if it is killed
 * or stopped at any instant, and the file shows afterwards what happened:
 *
 *     {"event":"write","token":…,"value":…,"at_ns":…,"pid":…,"name":"counter"}
 *
 * Prints "ready" after its first addition. On SIGTERM it finishes its work, releases everything and prints how often it
 * added. It reports an unreachable backend, or a phase that is not admitted, once on stderr, and tries again: whoever
 * starts the workers need not wait for anything. */
#include <mortise/mortise.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LINE                                                                                       \
    "{\"event\":\"write\",\"token\":%20" PRIu64 ",\"value\":%12" PRIu64 ",\"at_ns\":%20" PRId64    \
    ",\"pid\":%7d,\"name\":\"counter\"}\n"
#define READ_LINE "{\"event\":\"write\",\"token\":%" SCNu64 ",\"value\":%" SCNu64
enum { LINE_SIZE = 128, AGAIN_MS = 100, WAIT_MS = 5000 };
_Static_assert(4096 % LINE_SIZE == 0, "a page is whole lines");

static volatile sig_atomic_t ending;

static void end_soon(int signal_number)
{
    (void)signal_number;
    ending = 1;
}

static int64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* ---- the store ------------------------------------------------------------------------------------ */

struct store {
    int fd;
    off_t decided; /* how many bytes of it were read */
    uint64_t fence, value;
};

static bool store_failed(const char *doing, const char *why)
{
    fprintf(stderr, "worker: the store: %s: %s\n", doing, why);
    return false;
}

/* Decides about all lines that were appended. *taken: `own` is one of them, and was accepted. It is not always the
 * last one: others may have written before it, and behind it. */
static bool store_catch_up(struct store *store, const char *own, bool *taken)
{
    char line[LINE_SIZE + 1] = "";
    uint64_t token, value;
    ssize_t got;

    while ((got = pread(store->fd, line, LINE_SIZE, store->decided)) == LINE_SIZE) {
        if (sscanf(line, READ_LINE, &token, &value) != 2 || line[LINE_SIZE - 1] != '\n')
            return store_failed("reading", "a line of something else");
        if (token >= store->fence) {
            store->fence = token;
            store->value = value;
            *taken = *taken || memcmp(line, own, LINE_SIZE) == 0;
        }
        store->decided += got;
    }
    return got == 0 || store_failed("reading", got < 0 ? strerror(errno) : "half a line");
}

/* Reads, adds, writes. False: the store is broken. *taken: the store accepted the write. */
static bool store_add_one(struct store *store, mortise_lease *lease, bool *taken)
{
    const uint64_t token = mortise_token(lease);
    char line[LINE_SIZE + 1] = "";

    *taken = false;
    if (!store_catch_up(store, line, taken))
        return false;
    int length =
        snprintf(line, sizeof line, LINE, token, store->value + 1, now_ns(), (int)getpid());
    if (length != LINE_SIZE)
        return store_failed("writing", "a line of another length");
    if (mortise_state(lease) == MORTISE_STATE_LOST)
        return true; /* too late: the next holder has the lock */
    ssize_t written = write(store->fd, line, LINE_SIZE);
    if (written != LINE_SIZE)
        return store_failed("writing", written < 0 ? strerror(errno) : "half a line");
    return store_catch_up(store, line, taken);
}

/* ---- the work -------------------------------------------------------------------------------------- */

/* Reports each kind of failure once; otherwise it would fill the log. */
static void tell(mortise_status status, const mortise_error *error)
{
    static mortise_status told;
    if (status != told && status != MORTISE_TIMEDOUT)
        fprintf(stderr, "worker %d: %s: %s\n", (int)getpid(), mortise_status_name(status),
                error->message);
    told = status;
}

static void wait_a_little(void)
{
    const struct timespec a_little = {0, AGAIN_MS * 1000000L};
    nanosleep(&a_little, NULL); /* a signal may end it early */
}

/* Returns false if the store is broken. */
static bool work_once(mortise_client *client, struct store *store, uint64_t *added)
{
    mortise_lease *lease;
    mortise_error error = {.message = ""};
    bool taken = false;
    mortise_status status =
        mortise_acquire(client, "counter", MORTISE_OPTIONS(.wait_ms = WAIT_MS), &lease, &error);

    if (status != MORTISE_OK) {
        tell(status, &error);
        if (status != MORTISE_TIMEDOUT)
            wait_a_little();
        return true;
    }
    bool sound = store_add_one(store, lease, &taken);
    if (taken && (*added)++ == 0)
        puts("ready");
    status = mortise_release(lease, &error);
    if (status != MORTISE_OK)
        tell(status, &error); /* the token decided about the write */
    return sound;
}

static int work(const char *config, struct store *store)
{
    mortise_client *client;
    mortise_error error;
    uint64_t added = 0;
    bool sound = true;

    if (mortise_open(config, &client, &error) != MORTISE_OK) {
        fprintf(stderr, "worker: %s\n", error.message);
        return 1;
    }
    while (sound && !ending)
        sound = work_once(client, store, &added);
    if (mortise_close(client, &error) != MORTISE_OK)
        fprintf(stderr, "worker: closing: %s\n", error.message);
    printf("added %" PRIu64 "\n", added);
    return sound ? 0 : 1;
}

int main(int argc, char **argv)
{
    struct sigaction action = {.sa_handler = end_soon};
    struct store store = {.fd = -1};

    if (argc != 3) {
        fprintf(stderr, "usage: worker CONFIG FILE\n");
        return 64;
    }
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    setvbuf(stdout, NULL, _IOLBF, 0);
    store.fd = open(argv[2], O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (store.fd < 0)
        return store_failed("opening", strerror(errno)) ? 0 : 1;
    return work(argv[1], &store);
}
