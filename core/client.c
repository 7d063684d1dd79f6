/* client.c - a client from mortise_open() to mortise_close(), and the calls in flight on it. */
#include "core.h"
#include "log.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

#define STUCK_MS 1000 /* what has not ended after its time and this much more is stuck */
#define LOG_MS 200    /* how long a close waits for its log lines to be written */

_Atomic bool client_manual;

/* OPEN -> CLOSES -> ENDED; or CLOSES -> LINGERS, if callbacks were left, and back with each further close. */
enum close_phase { PHASE_OPEN, PHASE_CLOSES, PHASE_LINGERS, PHASE_ENDED };

/* ---- calls in flight ---- */

/* No call is a cancellation point: a thread that ended inside one would take locks with it. */
static _Thread_local unsigned calls;
static _Thread_local int cancel_state;

static void count_out(struct client *client)
{
    if (atomic_fetch_sub(&client->users, 1) == 1 && atomic_load(&client->awaited) > 0)
        syscall(SYS_futex, &client->users, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

mortise_status client_enter(mortise_client *handle, struct client **client, mortise_error *error)
{
    *client = NULL;
    if (handle == NULL)
        return failed(error, MORTISE_INVALID, "the client is NULL");
    struct client *found = slab_find(&client_slab, handle);
    if (found == NULL)
        return failed(error, MORTISE_INVALID, "not a client: %p", (void *)handle);
    atomic_fetch_add(&found->users, 1);
    /* sequentially consistent, as is the close: either it sees the count, or this the spent handle */
    if (atomic_load(&found->slot.generation) != (uint32_t)((uintptr_t)handle >> 32) ||
        !slot_is(&found->slot, handle)) {
        count_out(found);
        return failed(error, MORTISE_CLOSED, "the client was closed");
    }
    if (atomic_load(&found->slot.epoch) != atomic_load(&fork_epoch)) {
        count_out(found);
        return failed(error, MORTISE_FORKED,
                      "the client was opened by the parent process: open one in the child");
    }
    *client = found;
    if (calls++ == 0)
        pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
    return MORTISE_OK;
}

void client_leave(struct client *client)
{
    if (--calls == 0)
        pthread_setcancelstate(cancel_state, NULL);
    count_out(client);
}

/* The handle of a client that is being closed is spent: the generation after it. */
static bool is_closing(struct client *client, const mortise_client *handle)
{
    uint32_t phase = atomic_load(&client->phase);
    return (phase == PHASE_CLOSES || phase == PHASE_LINGERS) &&
           atomic_load(&client->slot.generation) == (uint32_t)((uintptr_t)handle >> 32) + 1 &&
           atomic_load(&client->slot.epoch) == atomic_load(&fork_epoch);
}

bool client_enter_closing(mortise_client *handle, struct client **client)
{
    struct client *found = handle == NULL ? NULL : slab_find(&client_slab, handle);
    if (found == NULL)
        return false;
    atomic_fetch_add(
        &found->users,
        1); /* before the look at the phase: client_shut() does it the other way round */
    if (is_closing(found, handle)) {
        *client = found;
        return true;
    }
    count_out(found);
    return false;
}

void client_leave_closing(struct client *client)
{
    count_out(client);
}

void client_unlock(struct client *client)
{
    struct wake_list wakes;
    wakes.count = client->wakes.count;
    wakes.leader = client->wakes.leader;
    memcpy(wakes.words, client->wakes.words, wakes.count * sizeof(wakes.words[0]));
    client->wakes.count = 0;
    client->wakes.leader = false;
    pthread_mutex_unlock(&client->lock);
    if (wakes.count > 0 || wakes.leader)
        wake_list_flush(&client->pump, &wakes);
}

/* Every call that had entered has left; false: one is stuck. */
static bool wait_for_users(struct client *client, int64_t until_ns)
{
    uint32_t users;
    atomic_fetch_add(&client->awaited, 1);
    while ((users = atomic_load(&client->users)) > 0) {
        int64_t left = until_ns - clock_now();
        if (left <= 0)
            break;
        struct timespec timeout = {(time_t)(left / NS_PER_S), (long)(left % NS_PER_S)};
        syscall(SYS_futex, &client->users, FUTEX_WAIT_PRIVATE, users, &timeout, NULL, 0);
    }
    atomic_fetch_sub(&client->awaited, 1);
    return users == 0;
}

void client_shut(struct client *client)
{
    atomic_store(&client->phase, PHASE_ENDED);
    if (client->stack_closed) /* else a call is stuck in a module */
        wait_for_users(client, MORTISE_NEVER);
}

void client_began_locked(struct client *client)
{
    client->outstanding++;
}

void client_ended_locked(struct client *client)
{
    if (--client->outstanding == 0 && client->drain != NULL) {
        struct sleeper *drain = client->drain;
        client->drain = NULL;
        sleeper_wake_later(drain, &client->wakes);
    }
}

/* ---- randomness: from the kernel, a page at a time ---- */

static bool refill_random(struct client *client)
{
    ssize_t got;
    do
        got = getrandom(client->random, sizeof(client->random), 0);
    while (got < 0 && errno == EINTR);
    if (got <= 0 && client->random_works)
        abort(); /* it worked at the open: a grant id that is not random must never be made */
    client->random_works = got > 0;
    client->random_left = got > 0 ? (size_t)got : 0;
    return client->random_works;
}

void client_random_locked(struct client *client, void *bytes, size_t size)
{
    char *out = bytes;
    while (size > 0) {
        if (client->random_left == 0) {
            refill_random(client);
            continue;
        }
        size_t n = size < client->random_left ? size : client->random_left;
        client->random_left -= n;
        memcpy(out, client->random + client->random_left, n);
        out += n;
        size -= n;
    }
}

int64_t client_jitter_locked(struct client *client, int64_t below)
{
    uint32_t number;
    if (below <= 1)
        return 0;
    client_random_locked(client, &number, sizeof(number));
    uint64_t span = below < UINT32_MAX ? (uint64_t)below : UINT32_MAX;
    return (int64_t)((uint64_t)number * span >> 32);
}

/* ---- opening ---- */

static void make_id(struct client *client)
{
    unsigned char bytes[16];
    client_random_locked(client, bytes, sizeof(bytes));
    for (size_t i = 0; i < sizeof(bytes); i++)
        snprintf(client->id + 2 * i, 3, "%02x", bytes[i]);
}

/* Who asks: "host\npid\nprogram", for inspect. */
static void make_note(struct client *client)
{
    char host[65];
    if (gethostname(host, sizeof(host)) < 0)
        host[0] = '\0';
    host[sizeof(host) - 1] = '\0';
    snprintf(client->note, sizeof(client->note), "%s\n%ld\n%.32s", host, (long)getpid(),
             program_invocation_short_name);
    client->note_len = strlen(client->note);
}

static struct client *client_new(void)
{
    handles_init();
    struct client *client = slab_take(&client_slab);
    if (client == NULL)
        return NULL;
    /* all but the head, which callers with an old handle may be looking at */
    memset((char *)client + offsetof(struct client, lock), 0,
           sizeof(*client) - offsetof(struct client, lock));
    pthread_mutex_init(&client->lock, NULL);
    pthread_mutex_init(&client->notify_lock, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&client->notify_cond, &monotonic);
    pthread_condattr_destroy(&monotonic);
    client->notices_end = &client->notices;
    client->watchdog_timer = client->notify_fd = client->notify_event = -1;
    client->manual = atomic_load(&client_manual);
    atomic_store(&client->phase, PHASE_OPEN);
    pump_init(&client->pump);
    client->pump.manual = client->manual;
    return client;
}

static mortise_status read_settings(struct client *client, mortise_error *error)
{
    const mortise_value *values = client->core_values;
    struct settings *settings = &client->settings;
    settings->ttl_ms = values[CORE_TTL].number;
    settings->renew_every_ms = values[CORE_RENEW_EVERY].given ? values[CORE_RENEW_EVERY].number : 0;
    settings->handover_window_ms = values[CORE_HANDOVER_WINDOW].number;
    settings->handover_max = values[CORE_HANDOVER_MAX].number;
    settings->unreachable_timeout_ms = values[CORE_UNREACHABLE_TIMEOUT].number;
    settings->close_timeout_ms = values[CORE_CLOSE_TIMEOUT].number;
    settings->log = values[CORE_LOG].number == 0;
    settings->wait_ms = values[CORE_WAIT].number; /* "forever" is -1 */
    if (settings->renew_every_ms >
        settings->ttl_ms / 3) /* a grant is never renewed later than that */
        return failed(
            error, MORTISE_CONFIG,
            "%s: [mortise] renew_every (%lld ms) must be at most a third of ttl (%lld ms)",
            config_source(client->config), (long long)settings->renew_every_ms,
            (long long)settings->ttl_ms);
    return MORTISE_OK;
}

static mortise_status add_observer(struct client *client, struct instance *instance,
                                   mortise_error *error)
{
    size_t room = sizeof(client->observers) / sizeof(client->observers[0]);
    if (instance->module.observe == NULL)
        return MORTISE_OK;
    if (client->observer_count == room)
        return failed(error, MORTISE_CONFIG, "more than %zu observers", room);
    client->observers[client->observer_count++] = instance;
    return MORTISE_OK;
}

/* The next word of a list separated by commas and blanks, into word; false: none is left. */
static bool next_word(const char **list, char *word, size_t size)
{
    *list += strspn(*list, ", \t");
    size_t length = strcspn(*list, ", \t");
    if (length == 0)
        return false;
    snprintf(word, size, "%.*s", (int)length, *list);
    *list += length;
    return true;
}

static mortise_status open_observers(struct client *client, mortise_error *error)
{
    const char *list = client->core_values[CORE_OBSERVE].text;
    char section[128];
    while (list != NULL && next_word(&list, section, sizeof(section))) {
        struct instance *instance;
        mortise_status status =
            loader_open(&client->loader, section, NULL, MORTISE_KIND_OBSERVER, &instance, error);
        if (status != MORTISE_OK)
            return status;
    }
    mortise_status status = MORTISE_OK;
    for (struct instance *instance = client->loader.instances;
         instance != NULL && status == MORTISE_OK; instance = instance->next)
        status = add_observer(client, instance, error);
    return status;
}

static const char *const capability_words[] = {
#define CAPABILITY_WORD(name, bit, word, help) word,
    MORTISE_CAPABILITY_MAP(CAPABILITY_WORD)
#undef CAPABILITY_WORD
};

static mortise_status check_require(struct client *client, mortise_error *error)
{
    const char *list = client->core_values[CORE_REQUIRE].text;
    size_t count = sizeof(capability_words) / sizeof(capability_words[0]);
    char word[64];
    while (list != NULL && next_word(&list, word, sizeof(word))) {
        size_t i = 0;
        while (i < count && strcmp(word, capability_words[i]) != 0)
            i++;
        if (i == count) {
            const char *near = nearest_word(word, capability_words, count);
            return failed(
                error, MORTISE_CONFIG, "%s: [mortise] require: unknown capability \"%s\"%s%s%s",
                config_source(client->config), word, near == NULL ? "" : " (did you mean \"",
                near == NULL ? "" : near, near == NULL ? "" : "\"?)");
        }
        if ((client->capabilities & 1u << i) == 0)
            return failed(error, MORTISE_CONFIG,
                          "%s: [mortise] require: driver \"%s\" does not promise \"%s\" as it is "
                          "configured",
                          config_source(client->config), client->top->section, word);
    }
    return MORTISE_OK;
}

static mortise_status open_stack(struct client *client, const char *where, mortise_error *error)
{
    mortise_status status = config_load(where, &client->config, error);
    if (status == MORTISE_OK)
        status = config_check_driver(client->config, error);
    if (status == MORTISE_OK)
        status = config_values(client->config, "mortise", core_options, CORE_OPTION_COUNT,
                               &client->core_values, error);
    if (status == MORTISE_OK)
        status = read_settings(client, error);
    client->loader = (struct loader){.config = client->config,
                                     .client_id = client->id,
                                     .note = client->note,
                                     .host_prepare = host_prepare,
                                     .host_forget = host_forget,
                                     .argument = &client->pump};
    const mortise_value *given =
        client->core_values != NULL ? &client->core_values[CORE_NAMESPACE] : NULL;
    if (given != NULL && given->given)
        client->loader.name_space = given->text;
    if (status == MORTISE_OK)
        status = loader_open(&client->loader, config_driver(client->config), NULL, 0, &client->top,
                             error);
    if (status == MORTISE_OK && client->top->module.kind == MORTISE_KIND_OBSERVER)
        status = failed(error, MORTISE_CONFIG, "%s: \"%s\" is an observer, not a driver",
                        config_source(client->config), client->top->section);
    if (status == MORTISE_OK)
        status = config_check_url(client->config, error);
    if (status != MORTISE_OK)
        return status;
    client->capabilities = client->top->capabilities;
    client->notify_capable = (client->capabilities & MORTISE_CAP_NOTIFY) != 0;
    const char *fallback = client->top->below.default_namespace;
    client->settings.namespace_ = given->given ? given->text : fallback;
    if (client->settings.namespace_ == NULL)
        client->settings.namespace_ = "";
    client->settings.namespace_len = strlen(client->settings.namespace_);
    client->loader.top = client->top->section;
    client->loader.names_begin = client->settings.namespace_;
    status = open_observers(client, error);
    return status == MORTISE_OK ? check_require(client, error) : status;
}

mortise_status mortise_open(const char *where, mortise_client **handle, mortise_error *error)
{
    if (handle == NULL)
        return failed(error, MORTISE_INVALID, "mortise_open: the out-parameter is NULL");
    *handle = NULL;
    struct client *client = client_new();
    if (client == NULL)
        return failed(error, MORTISE_NOMEM, "out of memory");
    mortise_status status = MORTISE_OK;
    if (!refill_random(client))
        status = failed(error, MORTISE_BACKEND, "getrandom: %s", strerror(errno));
    if (status == MORTISE_OK) {
        make_id(client);
        make_note(client);
        status = open_stack(client, where, error);
    }
    if (status != MORTISE_OK) {
        slot_spend(&client->slot);
        /* a module may have posted something, and the service thread come for it */
        bool stopped = pump_stop(&client->pump, clock_after_ms(clock_now(), STUCK_MS));
        loader_close_all(&client->loader);
        if (stopped)
            client_free(client);
        return status;
    }
    pump_attach(&client->pump, client->top);
    *handle = slot_handle(&client->slot);
    return MORTISE_OK;
}

/* ---- closing ---- */

static void free_tasks(struct task_list *list)
{
    while (list->first != NULL) {
        struct task *task = list->first;
        task_remove(list, task);
        free(task);
    }
}

void client_free(struct client *client)
{
    while (client->free_contests != NULL) {
        struct contest *contest = client->free_contests;
        client->free_contests = contest->next_free;
        free(contest->trouble);
        free(contest);
    }
    free_tasks(&client->free_asks);
    free_tasks(&client->free_releases);
    free(client->timers.timers);
    if (client->notify_fd >= 0)
        close(client->notify_fd);
    if (client->notify_event >= 0)
        close(client->notify_event);
    pump_destroy(&client->pump);
    config_values_free(client->core_values, CORE_OPTION_COUNT);
    config_free(client->config);
    pthread_cond_destroy(&client->notify_cond);
    pthread_mutex_destroy(&client->notify_lock);
    pthread_mutex_destroy(&client->lock);
    slab_give(&client_slab, &client->slot);
}

static void close_entry_locked(struct client *client, struct entry *entry, struct task_list *starts)
{
    entry->references++;
    while (entry->queue != NULL && entry->queue->last != NULL)
        contest_leave_locked(entry->queue->last, MORTISE_CLOSED, starts);
    while (entry->grants != NULL) {
        struct release *release;
        grant_release_locked(entry->grants, &release, starts);
    }
    entry_unref_locked(client, entry);
}

/* Fails what waits and gives back what is held. */
static void give_up_all(struct client *client)
{
    struct task_list starts = {NULL, NULL};
    pthread_mutex_lock(&client->lock);
    client->closing = true;
    entry_forget_idle_locked(client);
    while (client->lone != NULL)
        contest_leave_locked(client->lone->first, MORTISE_CLOSED, &starts);
    for (struct entry *entry = client->entries, *next; entry != NULL; entry = next) {
        next = entry->hh.next;
        close_entry_locked(client, entry, &starts);
    }
    releases_hurry_locked(client, &starts);
    queries_cancel_locked(client);
    client_unlock(client);
    pump_start_detached(&client->pump, &starts);
}

/* Waits until nothing is outstanding. This thread does not go into the stack, where a driver might keep
 * it (R9). */
static bool wait_drained(struct client *client, int64_t until_ns)
{
    struct sleeper sleeper;
    sleeper_init(&sleeper, &client->pump);
    pthread_mutex_lock(&client->lock);
    bool wait = client->outstanding > 0;
    if (wait)
        client->drain = &sleeper;
    client_unlock(client);
    if (wait)
        pump_wait_aside(&client->pump, &sleeper, until_ns);
    pthread_mutex_lock(&client->lock);
    client->drain = NULL;
    bool drained = client->outstanding == 0;
    client_unlock(client);
    return drained;
}

/* Brings what is outstanding to its end, by cancellation if need be; false: something was left to its ttl. */
static bool drain(struct client *client, int64_t until_ns)
{
    bool drained = wait_drained(client, until_ns);
    struct task_list starts = {NULL, NULL};
    pthread_mutex_lock(&client->lock);
    client->abandoning = true;
    releases_end_locked(client);
    client_unlock(client);
    pump_start_detached(&client->pump, &starts);
    if (!drained) /* the driver completes what is canceled promptly, unless it is stuck */
        wait_drained(client, clock_after_ms(clock_now(), STUCK_MS));
    pthread_mutex_lock(&client->lock);
    drained = drained && !client->left_behind;
    client_unlock(client);
    return drained;
}

/* The last request of a client. */
struct parting {
    struct task task; /* first */
    struct client *client;
    bool clean, done;
};

static void parted(mortise_op *op)
{
    struct parting *parting = (struct parting *)op;
    struct client *client = parting->client;
    pthread_mutex_lock(&client->lock);
    parting->clean = op->status == MORTISE_OK;
    parting->done = true;
    client_ended_locked(client);
    client_unlock(client);
}

/* What a plugin has of its own in the backend; nothing else is outstanding. False: something was left to its ttl. */
static bool leave_stack(struct client *client, int64_t until_ns)
{
    if (client->top->module.leave == NULL)
        return true;
    struct parting *parting = calloc(1, sizeof(*parting));
    struct task_list starts = {NULL, NULL};
    if (parting == NULL)
        return false;
    parting->client = client;
    parting->task.op.kind = OP_LEAVE;
    parting->task.op.core_state = OP_IDLE;
    parting->task.op.done = parted;
    parting->task.unattended = true;
    pthread_mutex_lock(&client->lock);
    client_began_locked(client);
    task_append(&starts, &parting->task);
    client_unlock(client);
    pump_start_detached(&client->pump, &starts);
    if (!wait_drained(client, until_ns)) {
        pump_cancel(&client->pump, &parting->task);
        pump_start_detached(&client->pump, &starts); /* empty: does what is on the lists */
        wait_drained(client, clock_after_ms(clock_now(), STUCK_MS));
    }
    pthread_mutex_lock(&client->lock);
    bool clean = parting->clean, done = parting->done;
    client_unlock(client);
    if (done) /* else the stack is stuck, and left standing */
        free(parting);
    return clean;
}

/* Nobody is in the modules any more, or waits for them: closes them. False: a thread is stuck there. */
static bool close_stack(struct client *client, int64_t until_ns)
{
    int64_t stuck_ns = clock_after_ms(clock_now(), STUCK_MS);
    if (client->clean && until_ns > stuck_ns)
        stuck_ns =
            until_ns; /* the driver has answered all: its thread is late, on a busy machine */
    bool left = wait_for_users(client, stuck_ns);
    watchdog_stop(client);
    bool stopped = pump_stop(&client->pump, stuck_ns);
    client->clean = client->clean && stopped;
    if (stopped && left && !client->stack_closed) {
        loader_close_all(&client->loader);
        client->stack_closed = true;
    }
    return client->stack_closed;
}

static mortise_status closed(bool clean, const char *driver, mortise_error *error)
{
    if (clean)
        return MORTISE_OK;
    return failed(
        error, MORTISE_UNREACHABLE,
        "close: driver %s could not give back all in time; what is left ends with its ttl", driver);
}

/* The last part of a close, once nothing is outstanding: it may be repeated until no callback is left. */
static mortise_status end_client(struct client *client, int64_t until_ns, const char *driver,
                                 mortise_error *error)
{
    bool may_free = close_stack(client, until_ns);
    bool clean = client->clean;
    int64_t callbacks_ns = clock_after_ms(clock_now(), STUCK_MS);
    log_flush(LOG_MS);
    switch (notify_stop(client, until_ns > callbacks_ns ? until_ns : callbacks_ns, may_free)) {
    case NOTIFY_INSIDE: /* it may be gone as soon as the callback returns */
        return closed(clean, driver, error);
    case NOTIFY_INSIDE_LEFT:
        return failed(error, MORTISE_CLOSING,
                      "close: callbacks that wait run when the one that closes has returned");
    case NOTIFY_LEFT:
        atomic_store(&client->phase, PHASE_LINGERS);
        return failed(error, MORTISE_CLOSING,
                      "close: callbacks still run or wait; close again to wait for their end");
    case NOTIFY_DONE:
        break;
    }
    client_shut(client);
    if (may_free) { /* else it is left standing: a thread is in it */
        notify_end(client);
        client_free(client);
    }
    return closed(clean, driver, error);
}

/* A client whose close ended with CLOSING: waits on. */
static mortise_status close_again(mortise_client *handle, mortise_error *error)
{
    struct client *client;
    uint32_t lingers = PHASE_LINGERS;
    if (!client_enter_closing(handle, &client))
        return failed(error, MORTISE_CLOSED, "the client was closed");
    bool mine = atomic_compare_exchange_strong(&client->phase, &lingers, PHASE_CLOSES);
    client_leave_closing(client);
    if (!mine)
        return failed(error, MORTISE_CLOSED, "the client was closed, or another thread closes it");
    if (calls++ == 0)
        pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
    char driver[32];
    snprintf(driver, sizeof(driver), "%s", client->driver);
    notify_closing(client);
    mortise_status status = end_client(
        client, clock_after_ms(clock_now(), client->settings.close_timeout_ms), driver, error);
    if (--calls == 0)
        pthread_setcancelstate(cancel_state, NULL);
    return status;
}

mortise_status mortise_close(mortise_client *handle, mortise_error *error)
{
    struct client *client;
    uint32_t open = PHASE_OPEN;
    mortise_status status = client_enter(handle, &client, error);
    if (status == MORTISE_CLOSED)
        return close_again(handle, error);
    if (status != MORTISE_OK)
        return status;
    if (!atomic_compare_exchange_strong(&client->phase, &open, PHASE_CLOSES)) {
        client_leave(client);
        return failed(error, MORTISE_CLOSED, "the client was closed");
    }
    slot_spend(&client->slot);
    int64_t until_ns = clock_after_ms(clock_now(), client->settings.close_timeout_ms);
    char driver[32];
    snprintf(driver, sizeof(driver), "%s", client->top->module.name);
    snprintf(client->driver, sizeof(client->driver), "%s", driver);
    notify_closing(client);
    give_up_all(client);
    count_out(client); /* not client_leave: still no cancellation point */
    client->clean = drain(client, until_ns) && leave_stack(client, until_ns);
    status = end_client(client, until_ns, driver, error);
    if (--calls == 0)
        pthread_setcancelstate(cancel_state, NULL);
    return status;
}

/* ---- asking about a client ---- */

uint32_t mortise_capabilities(mortise_client *handle)
{
    struct client *client;
    if (client_enter(handle, &client, NULL) != MORTISE_OK)
        return 0;
    uint32_t capabilities = client->capabilities;
    client_leave(client);
    return capabilities;
}

const char *mortise_config_source(mortise_client *handle)
{
    struct client *client;
    if (client_enter(handle, &client, NULL) != MORTISE_OK)
        return NULL;
    const char *source = config_source(client->config);
    client_leave(client);
    return source;
}

mortise_status mortise_stats_get(mortise_client *handle, mortise_stats *stats)
{
    struct client *client;
    if (stats == NULL || stats->size < sizeof(stats->size))
        return MORTISE_INVALID;
    mortise_status status = client_enter(handle, &client, NULL);
    if (status != MORTISE_OK)
        return status;
    size_t size = stats->size < sizeof(*stats) ? stats->size : sizeof(*stats);
    pthread_mutex_lock(&client->lock);
    mortise_stats now = client->stats;
    pthread_mutex_lock(&client->pump.lock);
    now.requests = client->pump.started;
    pthread_mutex_unlock(&client->pump.lock);
    client_unlock(client);
    now.size = stats->size;
    memcpy(stats, &now, size);
    client_leave(client);
    return MORTISE_OK;
}
