/* open.c - from a path or URL to a client with its modules: mortise_open(). */
#include "client/open.h"
#include "base/streams.h"
#include "client/client.h"
#include "lock/waitlist.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

_Atomic bool client_manual;

static void make_id(struct client *client)
{
    unsigned char bytes[16];
    random_fill(&client->locks.random, bytes, sizeof(bytes));
    for (size_t i = 0; i < sizeof(bytes); i++)
        snprintf(client->id + 2 * i, 3, "%02x", bytes[i]);
}

/* The client as inspect shows it: "host\npid\nprogram". */
static void make_note(struct client *client)
{
    char host[65];
    if (gethostname(host, sizeof(host)) < 0)
        host[0] = '\0';
    host[sizeof(host) - 1] = '\0';
    snprintf(client->locks.note, sizeof(client->locks.note), "%s\n%ld\n%.32s", host, (long)getpid(),
             program_invocation_short_name);
    client->locks.note_len = strlen(client->locks.note);
}

/* ---- calls of the pump ---- */

static struct client *client_of(struct pump *pump)
{
    return (struct client *)(void *)((char *)pump - offsetof(struct client, pump));
}

static void news(struct pump *pump, const char *name, size_t name_len)
{
    waitlists_news(&client_of(pump)->locks, name, name_len);
}

static void doubt(struct pump *pump, const char *name, size_t name_len)
{
    claims_doubt(&client_of(pump)->locks, name, name_len);
}

static void random_bytes(struct pump *pump, void *bytes, size_t size)
{
    struct locks *locks = &client_of(pump)->locks;
    pthread_mutex_lock(&locks->lock);
    random_fill(&locks->random, bytes, size);
    locks_unlock(locks, START_SOON);
}

static void waiting(struct pump *pump, mortise_op *op)
{
    waitlists_waiting(&client_of(pump)->locks, op);
}

static const struct pump_upcalls upcalls = {
    .news = news, .doubt = doubt, .waiting = waiting, .random = random_bytes};

/* ---- calls of the executor of callbacks ---- */

static void thread_begins(struct events *events)
{
    client_keep((struct client *)(void *)((char *)events - offsetof(struct client, events)));
}

static void thread_ends(struct events *events)
{
    client_leave_callbacks(
        (struct client *)(void *)((char *)events - offsetof(struct client, events)));
}

static const struct events_upcalls events_upcalls = {.thread_begins = thread_begins,
                                                     .thread_ends = thread_ends};

/* ---- a new client ---- */

static struct client *client_new(void)
{
    static struct slab *const slabs[] = {&client_slab, &claim_slab, NULL};
    slabs_init(slabs);
    struct client *client = slab_take(&client_slab);
    if (client == NULL)
        return NULL;
    /* all except the head, which callers with an old handle may be reading */
    memset((char *)client + offsetof(struct client, locks), 0,
           sizeof(*client) - offsetof(struct client, locks));
    bool manual = atomic_load(&client_manual);
    atomic_store(&client->references, 2); /* of the handle, and of the modules */
    client_move(client, CLIENT_ENDED, CLIENT_OPEN);
    events_init(&client->events, &events_upcalls, manual);
    pump_init(&client->pump, &upcalls, &client->loader);
    client->pump.manual = manual;
    locks_make(&client->locks, &client->pump, &client->events);
    client->locks.manual = manual;
    client->locks.handle = slot_handle(&client->slot);
    return client;
}

static mortise_status read_settings(struct client *client, mortise_error *error)
{
    const mortise_value *values = client->core_values;
    struct lock_settings *settings = &client->locks.settings;
    settings->ttl_ms = values[CORE_TTL].number;
    settings->renew_every_ms = values[CORE_RENEW_EVERY].given ? values[CORE_RENEW_EVERY].number : 0;
    settings->handover_window_ms = values[CORE_HANDOVER_WINDOW].number;
    settings->handover_max = values[CORE_HANDOVER_MAX].number;
    settings->unreachable_timeout_ms = values[CORE_UNREACHABLE_TIMEOUT].number;
    settings->close_timeout_ms = values[CORE_CLOSE_TIMEOUT].number;
    client->pump.logs = values[CORE_LOG].number == 0;
    settings->wait_ms = values[CORE_WAIT].number; /* "forever" is -1 */
    if (settings->renew_every_ms >
        settings->ttl_ms / 3) /* a claim is never renewed later than that */
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
    size_t room = sizeof(client->locks.observers) / sizeof(client->locks.observers[0]);
    if (instance->module.observe == NULL)
        return MORTISE_OK;
    if (client->locks.observer_count == room)
        return failed(error, MORTISE_CONFIG, "more than %zu observers", room);
    client->locks.observers[client->locks.observer_count++] = instance;
    return MORTISE_OK;
}

/* Copies the next word of a list, which is separated by commas and blanks, to `word`. False: none is left. */
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

/* for_itself: the client is an application's, so the observers and requirements of the config apply. */
static mortise_status open_stack(struct client *client, const char *where, bool for_itself,
                                 mortise_error *error)
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
                                     .note = client->locks.note,
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
    client->locks.notify_capable = (client->capabilities & MORTISE_CAP_NOTIFY) != 0;
    client->locks.watches = client->top->module.watch != NULL;
    const char *fallback = client->top->below.default_namespace;
    client->locks.settings.namespace_ = given->given ? given->text : fallback;
    if (client->locks.settings.namespace_ == NULL)
        client->locks.settings.namespace_ = "";
    client->locks.settings.namespace_len = strlen(client->locks.settings.namespace_);
    client->loader.top = client->top->section;
    client->loader.names_begin = client->locks.settings.namespace_;
    if (!for_itself)
        return MORTISE_OK;
    status = open_observers(client, error);
    return status == MORTISE_OK ? check_require(client, error) : status;
}

/* Closes what was opened. */
static void undo_open(struct client *client)
{
    slot_spend(&client->slot);
    /* a module may have posted something, which starts the service thread */
    bool stopped = pump_stop(&client->pump, clock_after_ms(clock_now(), STUCK_MS));
    link_end(&client->locks.witness, true);
    area_drop(&client->locks.area);
    loader_close_all(&client->loader);
    client_move(client, CLIENT_OPEN, CLIENT_ENDED);
    if (stopped)
        client_drop(client);
    client_drop(client);
}

static mortise_status open_client(const char *where, const struct open_how *how,
                                  mortise_client **handle, mortise_error *error)
{
    struct client *client = client_new();
    if (client == NULL) {
        witness_refuse(how);
        return failed(error, MORTISE_NOMEM, "out of memory");
    }
    mortise_status status = MORTISE_OK;
    if (!random_init(&client->locks.random))
        status = failed(error, MORTISE_BACKEND, "getrandom: %s", strerror(errno));
    if (status == MORTISE_OK) {
        make_id(client);
        make_note(client);
        status = open_stack(client, where, how->witness != WITNESS_NONE, error);
    }
    if (status == MORTISE_OK)
        status = witness_begin(client, how, error);
    else
        witness_refuse(how);
    if (status != MORTISE_OK) {
        undo_open(client);
        return status;
    }
    pump_attach(&client->pump, client->top);
    *handle = slot_handle(&client->slot);
    return MORTISE_OK;
}

mortise_status client_open(const char *where, const struct open_how *how, mortise_client **handle,
                           mortise_error *error)
{
    client_begin_call();
    streams_hold(); /* before anything can connect */
    mortise_status status = open_client(where, how, handle, error);
    client_end_call();
    return status;
}

mortise_status mortise_open(const char *where, mortise_client **handle, mortise_error *error)
{
    if (handle == NULL)
        return failed(error, MORTISE_INVALID, "mortise_open: the out-parameter is NULL");
    *handle = NULL;
    return client_open(where, &(struct open_how){.witness = WITNESS_OF_CONFIG}, handle, error);
}
