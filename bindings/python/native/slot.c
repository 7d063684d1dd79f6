/* slot.c - slots, the queues of their events (sinks), and the callbacks that fill them; see slot.h. */
#include "slot.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

pthread_mutex_t mpy_lock = PTHREAD_MUTEX_INITIALIZER;
struct wake mpy_main_wake = {.epoll = -1, .socket = -1};
static mpy_sink *sinks;        /* all of them; guarded by the mutex */
static _Atomic unsigned epoch; /* grows in each child: slots and sinks of the parent are not ours */

/* If the program has closed the two descriptors of sink->wake, it has closed all. Then the number may be another descriptor's. */
static void close_duplicate(const mpy_sink *sink)
{
    if (sink->fd >= 0 && wake_is_ours(&sink->wake))
        close(sink->fd);
}

static void close_fds(const mpy_sink *sink)
{
    close_duplicate(sink);
    wake_close(&sink->wake);
}

/* Takes the mutex, so that the child gets a consistent list. */
static void before_fork(void)
{
    pthread_mutex_lock(&mpy_lock);
}

static void in_parent(void)
{
    pthread_mutex_unlock(&mpy_lock);
}

/* Closes the descriptors now: when Python drops these sinks later, the numbers may be those of other descriptors. */
static void in_child(void)
{
    atomic_fetch_add(&epoch, 1);
    for (const mpy_sink *sink = sinks; sink != NULL; sink = sink->next)
        close_fds(sink);
    sinks = NULL;
    wake_close(&mpy_main_wake);
    mpy_main_wake = WAKE_CLOSED;
    pthread_mutex_unlock(&mpy_lock);
}

static void start_once(void)
{
    pthread_atfork(before_fork, in_parent, in_child);
}

void watch_forks(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, start_once);
}

bool is_ours(unsigned made_in)
{
    return made_in == atomic_load_explicit(&epoch, memory_order_relaxed);
}

int fail(mortise_error *error, int status, const char *message)
{
    memset(error, 0, sizeof(*error));
    error->status = (mortise_status)status;
    strncpy(error->message, message, sizeof(error->message) - 1);
    return status;
}

/* Which states may follow each, as bits. */
static const unsigned follows[] = {
    [IDLE] = 1u << ASKING | 1u << LEFT,
    [ASKING] = 1u << HELD | 1u << IDLE | 1u << LEFT,
    [HELD] = 1u << IDLE | 1u << RELEASING | 1u << LEFT,
    [RELEASING] = 1u << IDLE | 1u << HELD | 1u << LEFT,
    [LEFT] = 0,
};

void slot_go_locked(mpy_slot *slot, enum slot_state next)
{
    if ((follows[slot->state] & 1u << next) == 0)
        abort(); /* a wrong state must end the program, and not the exclusion */
    slot->state = next;
}

static void sink_put_locked(mpy_sink *sink)
{
    if (sink == NULL || --sink->references > 0)
        return;
    mpy_sink **at = &sinks;
    while (*at != NULL && *at != sink)
        at = &(*at)->next;
    if (*at != NULL)
        *at = sink->next;
    close_fds(sink);
    free(sink);
}

void slot_put_locked(mpy_slot *slot, unsigned count)
{
    slot->references -= count;
    if (slot->references > 0)
        return;
    sink_put_locked(slot->sink);
    free(slot);
}

static void sink_signal_locked(mpy_sink *sink)
{
    if (!sink->wake.raised)
        wake_set(&sink->wake, true);
}

/* Lowers the descriptor if nothing is left to do. After the client's close it stays readable until the sink is dropped. */
static void sink_rest_locked(mpy_sink *sink)
{
    if (sink->first == NULL && !sink->ended && sink->wake.raised)
        wake_set(&sink->wake, false);
}

void slot_queue_locked(mpy_slot *slot, int what)
{
    mpy_sink *sink = slot->sink;
    if (sink == NULL || sink->dropped)
        return;
    slot->what |= what;
    if (!slot->queued) {
        slot->queued = true;
        slot->references++;
        slot->next = NULL;
        if (sink->last != NULL)
            sink->last->next = slot;
        else
            sink->first = slot;
        sink->last = slot;
    }
    sink_signal_locked(sink);
}

/* ---- sinks ---- */

int mpy_sink_new(mortise_client *client, mpy_sink **room)
{
    mpy_sink *sink = calloc(1, sizeof(*sink));
    mortise_status status = MORTISE_NOMEM;
    if (sink == NULL)
        return status;
    sink->client = client;
    sink->references = 1;
    sink->epoch = atomic_load(&epoch);
    int fd = wake_open(&sink->wake) ? mortise_fd(client, &status) : -1;
    sink->fd = is_epoll(fd) ? wake_duplicate(fd) : -1;
    if (sink->fd >= 0) {
        pthread_mutex_lock(&mpy_lock);
        sink->next = sinks;
        sinks = sink;
        pthread_mutex_unlock(&mpy_lock);
        *room = sink;
        return MORTISE_OK;
    }
    wake_close(&sink->wake);
    free(sink);
    return fd < 0 ? status : MORTISE_NOMEM;
}

static bool take_locked(mpy_sink *sink, mpy_event *event)
{
    mpy_slot *slot = sink->first;
    if (slot == NULL)
        return false;
    sink->first = slot->next;
    if (sink->first == NULL)
        sink->last = NULL;
    *event = (mpy_event){
        .key = slot->key, .what = slot->what, .status = slot->status, .state = slot->lease_state};
    slot->what = 0;
    slot->queued = false;
    slot_put_locked(slot, 1);
    return true;
}

void mpy_sink_deaf(mpy_sink *sink)
{
    pthread_mutex_lock(&mpy_lock);
    if (is_ours(sink->epoch)) /* else in_child() has closed it */
        close_duplicate(sink);
    sink->fd = -1;
    pthread_mutex_unlock(&mpy_lock);
}

void mpy_sink_drop(mpy_sink **room)
{
    mpy_event event;
    mpy_sink *sink = *room;
    *room = NULL;
    if (sink == NULL || !is_ours(sink->epoch))
        return; /* it is the parent's, and costs the child a little memory */
    pthread_mutex_lock(&mpy_lock);
    sink->dropped = true;
    while (take_locked(sink, &event))
        continue;
    sink_put_locked(sink);
    pthread_mutex_unlock(&mpy_lock);
}

int mpy_sink_fd(mpy_sink *sink)
{
    return sink->wake.epoll;
}

int mpy_sink_client_fd(mpy_sink *sink)
{
    return sink->fd;
}

int mpy_collect(mpy_sink *sink, mpy_batch *batch)
{
    if (!is_ours(sink->epoch))
        return MORTISE_FORKED;
    if (batch->done < batch->count) /* Python was interrupted */
        return batch->count;
    int count = 0;
    batch->count = batch->done = 0;
    int status = mortise_dispatch(sink->client);
    pthread_mutex_lock(&mpy_lock);
    while (count < MPY_ROOM && take_locked(sink, &batch->events[count]))
        if (batch->events[count].what != 0)
            count++;
    batch->count = count;
    if (count > 0) /* stays readable until mpy_collected() */
        sink_signal_locked(sink);
    if (sink->ended) /* it may have ended after the dispatch */
        status = MORTISE_CLOSED;
    pthread_mutex_unlock(&mpy_lock);
    return count == 0 && status < 0 ? status : count;
}

void mpy_collected(mpy_sink *sink)
{
    if (!is_ours(sink->epoch))
        return;
    pthread_mutex_lock(&mpy_lock);
    sink_rest_locked(sink);
    pthread_mutex_unlock(&mpy_lock);
}

/* A program that closes all descriptors, as a daemon does, closes these too. The thread notices that within LOOK_MS, and looks
 * every TURN_MS from then on. */
enum { LOOK_MS = 1000, TURN_MS = 100 };

void mpy_sink_wait(mpy_sink *sink)
{
    struct pollfd fds[2] = {{.fd = sink->wake.epoll, .events = POLLIN},
                            {.fd = sink->fd, .events = POLLIN}};
    bool ours = wake_is_ours(&sink->wake);
    if (ours)
        poll(fds, 2, LOOK_MS);
    if (!ours || ((fds[0].revents | fds[1].revents) & POLLNVAL) != 0)
        poll(NULL, 0, TURN_MS);
}

void mpy_sink_end(mpy_sink *sink, bool over)
{
    if (!is_ours(sink->epoch))
        return;
    pthread_mutex_lock(&mpy_lock);
    sink->ended = true;
    sink->over = sink->over || over;
    while (sink->over && sink->given_up != NULL) {
        mpy_slot *slot = sink->given_up;
        sink->given_up = slot->next_given_up;
        slot->watched = false;
        slot_put_locked(slot, 1);
    }
    sink_signal_locked(sink);
    pthread_mutex_unlock(&mpy_lock);
}

/* ---- slots ---- */

bool mpy_slot_new(mpy_sink *sink, uint64_t key, mpy_slot **room)
{
    mpy_slot *slot = calloc(1, sizeof(*slot));
    if (slot == NULL)
        return false;
    slot->epoch = atomic_load(&epoch);
    slot->references = 1;
    slot->key = key;
    slot->sink = sink;
    if (sink != NULL) {
        pthread_mutex_lock(&mpy_lock);
        sink->references++;
        pthread_mutex_unlock(&mpy_lock);
    }
    *room = slot;
    return true;
}

const mortise_error *mpy_slot_error(mpy_slot *slot)
{
    static const mortise_error none = {.status = MORTISE_INVALID, .message = "there is no lease"};
    return slot == NULL ? &none : &slot->error;
}

void slot_on_state(mortise_lease *lease, mortise_lease_state state, void *user_data)
{
    mpy_slot *slot = user_data;
    (void)lease;
    pthread_mutex_lock(&mpy_lock);
    slot->lease_state = (int)state;
    if (slot->state != LEFT)
        slot_queue_locked(slot, MPY_STATE);
    pthread_mutex_unlock(&mpy_lock);
}

/* A release does not wait for slot_on_state() if it was made in a handler of Python's log (or by the garbage collector there), or
 * if it returned CLOSED or INVALID. slot_on_state() waits for nothing, so this wait is short. False: the client is being closed,
 * or was closed, and only the close shows when slot_on_state() is over. */
static bool on_state_is_over(mortise_client *client, mortise_lease *lease)
{
    while (mortise_on_state_runs(client, lease)) {
        if (mortise_default_wait_ms(client) == MORTISE_WAIT_DEFAULT)
            return false;
        poll(NULL, 0, 1); /* not sched_yield(): a thread of a lower priority may run it */
    }
    return true;
}

void slot_unwatch(mpy_slot *slot, mortise_lease *lease)
{
    bool over = slot->watched && on_state_is_over(slot->client, lease);
    pthread_mutex_lock(&mpy_lock);
    slot->what &= ~MPY_STATE;
    slot->lingers = slot->watched && !over; /* see mpy_slot_free() */
    if (slot->watched && over) {
        slot->watched = false;
        slot_put_locked(slot, 1);
    }
    pthread_mutex_unlock(&mpy_lock);
}

void release_left(mpy_slot *slot, mortise_lease *lease)
{
    mortise_release_nowait(lease, NULL);
    slot_unwatch(slot, lease);
}

void slot_on_acquired(mortise_status status, mortise_lease *lease, const mortise_error *error,
                      void *user_data)
{
    mpy_slot *slot = user_data;
    pthread_mutex_lock(&mpy_lock);
    bool left = slot->state == LEFT || (slot->to_sink && slot->sink->dropped);
    if (error != NULL)
        slot->error = *error;
    slot->status = status;
    if (left) {
        pthread_mutex_unlock(&mpy_lock);
        if (lease != NULL)
            mortise_release_nowait(lease, NULL);
        pthread_mutex_lock(&mpy_lock);
        if (slot->state != LEFT)
            slot_go_locked(slot, IDLE);
    } else {
        atomic_store(&slot->lease, lease);
        slot_go_locked(slot, lease != NULL ? HELD : IDLE);
        slot->decided = !slot->to_sink;
        if (slot->to_sink)
            slot_queue_locked(slot, MPY_ACQUIRED);
        else if (!mpy_main_wake.raised)
            wake_set(&mpy_main_wake, true);
    }
    bool unwatched = slot->watched && (left || lease == NULL);
    slot->watched = slot->watched && !unwatched;
    slot_put_locked(slot, unwatched ? 2 : 1);
    pthread_mutex_unlock(&mpy_lock);
}

void slot_on_released(mortise_status status, const mortise_error *error, void *user_data)
{
    mpy_slot *slot = user_data;
    pthread_mutex_lock(&mpy_lock);
    slot->status = status;
    if (error != NULL)
        slot->error = *error;
    if (slot->state == RELEASING)
        slot_go_locked(slot, IDLE);
    slot_queue_locked(slot,
                      MPY_RELEASED); /* also if the slot was left: Python forgets its future then */
    slot_put_locked(slot, 1);
    pthread_mutex_unlock(&mpy_lock);
}

void mpy_slot_leave(mpy_slot *slot)
{
    if (slot == NULL || !is_ours(slot->epoch))
        return;
    pthread_mutex_lock(&mpy_lock);
    enum slot_state before = slot->state;
    mortise_lease *lease = atomic_load(&slot->lease);
    mortise_client *client = slot->client;
    mortise_request request = slot->request;
    slot->what &= MPY_RELEASED;
    if (before != LEFT)
        slot_go_locked(slot, LEFT);
    pthread_mutex_unlock(&mpy_lock);
    if (before == HELD)
        release_left(slot, lease);
    /* INVALID: the acquire is decided, perhaps with a lease, and its callback waits for a dispatch that may never come. */
    if (before == ASKING && mortise_cancel(client, request) == MORTISE_INVALID)
        mortise_dispatch(client);
}

void mpy_slot_free(mpy_slot **room)
{
    mpy_slot *slot = *room;
    *room = NULL;
    if (slot == NULL || !is_ours(slot->epoch))
        return; /* it is the parent's, and costs the child a little memory */
    mpy_slot_leave(slot);
    pthread_mutex_lock(&mpy_lock);
    slot->what &= MPY_RELEASED;
    /* The lease was released after the close, or during it. If the close is not over, mpy_sink_end() drops the reference. */
    bool unwatched = slot->watched && slot->sink->over;
    slot->watched = slot->watched && !unwatched;
    if (slot->watched && slot->lingers) { /* else slot_on_acquired() is still to come */
        slot->next_given_up = slot->sink->given_up;
        slot->sink->given_up = slot;
    }
    slot_put_locked(slot, unwatched ? 2 : 1);
    pthread_mutex_unlock(&mpy_lock);
}
