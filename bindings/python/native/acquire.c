/* acquire.c - acquires: those that wait, those that report to a sink, and those in the main thread. slot.h has the
 * states. */
#include "slot.h"

#include <poll.h>
#include <time.h>

static const mortise_options *watched_options(const mortise_options *given, mpy_slot *slot,
                                              bool watch, mortise_options *copy)
{
    if (!watch)
        return given;
    *copy = (mortise_options){.size = sizeof(*copy), .wait_ms = MORTISE_WAIT_DEFAULT};
    if (given != NULL)
        *copy = *given;
    copy->on_state = slot_on_state;
    copy->user_data = slot;
    return copy;
}

/* In a child after fork. */
static int forked(mpy_slot *slot)
{
    return fail(&slot->error, MORTISE_FORKED,
                "the client belongs to the parent process: open another one here");
}

/* False: the slot is not free for an acquire; *status says why. */
static bool begin(mortise_client *client, mpy_slot *slot, bool watch, unsigned callbacks,
                  int *status)
{
    if (!is_ours(slot->epoch)) {
        *status = forked(slot);
        return false;
    }
    pthread_mutex_lock(&mpy_lock);
    bool idle = slot->state == IDLE;
    if (idle) {
        slot_go_locked(slot, ASKING);
        slot->client = client;
        slot->watched = watch;
        slot->request = 0;
        slot->references += callbacks + watch;
    }
    pthread_mutex_unlock(&mpy_lock);
    if (!idle)
        *status =
            fail(&slot->error, MORTISE_INVALID, "an acquire is under way, or the lease is held");
    return idle;
}

/* The acquire is over, and no callback will come for it. Returns the status for the caller: on_loss may have left the slot
 * meanwhile. */
static int end(mpy_slot *slot, mortise_lease *lease, unsigned callbacks, int status)
{
    pthread_mutex_lock(&mpy_lock);
    bool left = slot->state == LEFT;
    unsigned unwatched = slot->watched && lease == NULL;
    if (!left) {
        atomic_store(&slot->lease, lease);
        slot_go_locked(slot, lease != NULL ? HELD : IDLE);
    }
    slot->watched = slot->watched && !unwatched;
    slot_put_locked(slot, callbacks + unwatched);
    pthread_mutex_unlock(&mpy_lock);
    if (!left || lease == NULL)
        return status;
    release_left(slot, lease);
    return fail(&slot->error, MORTISE_CANCELED,
                "the lease was given up before the acquire returned");
}

int mpy_acquire(mortise_client *client, mpy_slot *slot, const char *name,
                const mortise_options *options, bool watch)
{
    mortise_options copy;
    mortise_lease *lease = NULL;
    int status;
    if (!begin(client, slot, watch, 0, &status))
        return status;
    status = mortise_acquire(client, name, watched_options(options, slot, watch, &copy), &lease,
                             &slot->error);
    if (!is_ours(slot->epoch))
        return forked(slot);
    return end(slot, lease, 0, status);
}

int mpy_acquire_start(mortise_client *client, mpy_slot *slot, const char *name,
                      const mortise_options *options, bool watch, bool to_sink)
{
    mortise_options copy;
    mortise_request request = 0;
    int status;
    if (!begin(client, slot, watch, 2,
               &status)) /* one of these references keeps the slot until the request is known */
        return status;
    slot->to_sink = to_sink;
    status = mortise_acquire_async(client, name, watched_options(options, slot, watch, &copy),
                                   slot_on_acquired, slot, &request, &slot->error);
    if (status != MORTISE_OK)
        return end(slot, NULL, 2, status);
    pthread_mutex_lock(&mpy_lock);
    slot->request = request;
    bool left = slot->state == LEFT; /* the request could not be canceled before */
    slot_put_locked(slot, 1);
    pthread_mutex_unlock(&mpy_lock);
    if (left && mortise_cancel(client, request) == MORTISE_INVALID)
        mortise_dispatch(client);
    return status;
}

static bool outcome(mpy_slot *slot, int *status)
{
    pthread_mutex_lock(&mpy_lock);
    bool there = slot->decided;
    slot->decided = false;
    *status = slot->status;
    pthread_mutex_unlock(&mpy_lock);
    return there;
}

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Returns the descriptor that the main thread polls to be woken, or -1. If it is not ours any more, makes another one.
 * lower: the descriptor has woken the thread, and is lowered; that fails if it is not ours. Otherwise it is checked first,
 * because a descriptor of the program in which nothing happens would never wake the thread. */
static int wake_fd(bool lower)
{
    pthread_mutex_lock(&mpy_lock);
    if (lower ? !wake_set(&mpy_main_wake, false) : !wake_is_ours(&mpy_main_wake))
        wake_open(&mpy_main_wake);
    int fd = mpy_main_wake.epoll;
    pthread_mutex_unlock(&mpy_lock);
    return fd;
}

/* If the program has closed the client's descriptor, it reports nothing. So mpy_await() also dispatches at the end of the
 * slice, or every TURN_MS if it knows that the descriptor was closed. */
enum { TURN_MS = 5 };

int mpy_await(mortise_client *client, mpy_slot *slot, int slice_ms)
{
    int64_t until_ms = now_ms() + slice_ms;
    struct pollfd fds[2] = {{.fd = wake_fd(false), .events = POLLIN},
                            {.fd = mortise_fd(client, NULL), .events = POLLIN}};
    int turn_ms = slice_ms;
    int status;
    for (;;) {
        if (!is_ours(slot->epoch))
            return forked(slot);
        if (outcome(slot, &status))
            return status;
        int64_t left_ms = until_ms - now_ms();
        if (left_ms <= 0)
            return MPY_PENDING;
        fds[0].revents = fds[1].revents = 0;
        int ready = poll(fds, 2, left_ms < turn_ms ? (int)left_ms : turn_ms);
        if (ready < 0)
            return MPY_PENDING; /* a signal: Python handles it */
        if (fds[0].revents != 0)
            fds[0].fd = wake_fd(true); /* before outcome(), so that nothing is missed */
        if (ready > 0 && fds[1].revents == 0)
            continue;
        int ran = mortise_dispatch(client);
        if (ran < 0)
            fds[1].fd = -1; /* the client was closed: the thread that closes it wakes us */
        if (ran == 0 && fds[1].revents != 0 && !is_epoll(fds[1].fd)) {
            fds[1].fd = -1; /* the program has closed it, and may have a file there */
            turn_ms = TURN_MS;
        }
    }
}

int mpy_acquire_main(mortise_client *client, mpy_slot *slot, const char *name,
                     const mortise_options *options, bool watch, int slice_ms)
{
    wake_fd(false);
    int status = mpy_acquire_start(client, slot, name, options, watch, false);
    return status == MORTISE_OK ? mpy_await(client, slot, slice_ms) : status;
}

int mpy_acquire_many(mortise_client *client, mpy_slot **slots, const char *const *names,
                     size_t count, const mortise_options *options, mortise_error *error)
{
    mortise_lease *leases[MORTISE_MANY_MAX];
    int status = MORTISE_OK;
    if (count == 0 || count > MORTISE_MANY_MAX)
        return fail(error, MORTISE_INVALID, "1 to 256 names can be acquired together");
    for (size_t i = 0; i < count; i++)
        leases[i] = NULL;
    size_t begun = 0;
    while (begun < count && begin(client, slots[begun], false, 0, &status))
        begun++;
    if (begun < count)
        *error = slots[begun]->error;
    else
        status = mortise_acquire_many(client, names, count, options, leases, error);
    for (size_t i = 0; i < begun; i++)
        if (is_ours(slots[i]->epoch))
            end(slots[i], status == MORTISE_OK ? leases[i] : NULL, 0, status);
    return status;
}
