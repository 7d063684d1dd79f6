/* sim.c - the sim driver: a backend in memory, for tests and for measuring the core.
 *
 * This file has the module's table, its instances, their watches, and the table of sim.h. The backend is in store.c;
 * ops that take time are in flight.c. All instances of the process share one backend under one mutex, so several
 * clients contend as on a server. */
#include "internal.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <utlist.h>

struct instance *sim_instances;
bool sim_deaf;
static struct instance *dirty;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed, quiet = PTHREAD_COND_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static const uint32_t all_capabilities =
    MORTISE_CAP_LEASE | MORTISE_CAP_FENCING | MORTISE_CAP_FAIR | MORTISE_CAP_NOTIFY |
    MORTISE_CAP_INSPECT | MORTISE_CAP_LIST | MORTISE_CAP_REENTRANT |
    MORTISE_CAP_SHARED | MORTISE_CAP_PERMITS;

/* ---- the lock, and telling other pumps --------------------------------------------------------- */

void sim_lock(void)
{
    pthread_mutex_lock(&mutex);
}

static void drain(void *ctx, void *argument);

/* The host of each dirty instance is told without the mutex; `pokers` keeps it from closing. */
static void poke(struct instance *instance)
{
    LL_DELETE2(dirty, instance, dirty_next);
    instance->dirty = false;
    if (instance->posted)
        return;
    instance->posted = true;
    instance->pokers++;
    pthread_mutex_unlock(&mutex);
    instance->host->post(instance->host, drain, NULL);
    pthread_mutex_lock(&mutex);
    instance->pokers--;
    pthread_cond_broadcast(&quiet);
}

void sim_unlock(struct instance *self)
{
    if (self && self->dirty) {
        LL_DELETE2(dirty, self, dirty_next);
        self->dirty = false;
    }
    while (dirty)
        poke(dirty);
    pthread_mutex_unlock(&mutex);
}

void sim_dirty(struct instance *instance)
{
    if (!instance->dirty) {
        instance->dirty = true;
        LL_PREPEND2(dirty, instance, dirty_next);
    }
}

static void first_use(void)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&changed, &attributes);
    pthread_condattr_destroy(&attributes);
    /* the backend outlives its clients: this file must stay mapped */
    Dl_info self;
    if (dladdr(&mortise_module_v1, &self))
        dlopen(self.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE);
}

void sim_changed(void)
{
    pthread_once(&once, first_use);
    pthread_cond_broadcast(&changed);
}

bool sim_wait_until(int64_t deadline_ns)
{
    struct timespec until = {.tv_sec = deadline_ns / 1000000000,
                             .tv_nsec = deadline_ns % 1000000000};
    pthread_once(&once, first_use);
    return pthread_cond_timedwait(&changed, &mutex, &until) == 0;
}

int64_t sim_any_now(void)
{
    return sim_instances ? sim_instances->host->now(sim_instances->host) : 0;
}

/* ---- the pump's side --------------------------------------------------------------------------- */

static void tell_watches(struct instance *instance)
{
    struct watch *watch;
    DL_FOREACH (instance->watches, watch) {
        if (!watch->told)
            continue;
        watch->told = false;
        if (!sim_deaf)
            instance->host->news(instance->host, watch->claim->name, watch->claim->name_len);
    }
}

/* mutex held, in the instance's pump: whatever is ready goes out. */
static void drain_locked(struct instance *instance, int64_t now_ns)
{
    flight_turn(instance, now_ns);
    tell_watches(instance);
    if (instance->news_all)
        instance->host->news_all(instance->host);
    instance->news_all = false;
    if (instance->doubt_all)
        instance->host->doubt(instance->host, NULL, 0);
    instance->doubt_all = false;
    instance->due_ns = flight_due(instance);
}

static void drain(void *ctx, void *argument)
{
    struct instance *instance = ctx;
    (void)argument;
    int64_t now_ns = instance->host->now(instance->host);
    sim_lock();
    instance->posted = false;
    drain_locked(instance, now_ns);
    sim_unlock(instance);
}

static void sim_start(void *ctx, mortise_op **ops, size_t n)
{
    struct instance *instance = ctx;
    int64_t now_ns = instance->host->now(instance->host);
    sim_lock();
    for (size_t i = 0; i < n; i++)
        flight_start(instance, ops[i], now_ns);
    if (instance->dirty || instance->flights)
        drain_locked(instance, now_ns);
    sim_unlock(instance);
}

static void sim_cancel(void *ctx, mortise_op *op)
{
    struct instance *instance = ctx;
    int64_t now_ns = instance->host->now(instance->host);
    sim_lock();
    flight_cancel(op, now_ns);
    drain_locked(instance, now_ns);
    sim_unlock(instance);
}

/* Takes no lock: the core may hold one of its own here. */
static size_t sim_interest(void *ctx, struct pollfd *fds, size_t capacity, int64_t *due_ns)
{
    const struct instance *instance = ctx;
    (void)fds;
    (void)capacity;
    if (instance->flights && instance->due_ns < *due_ns)
        *due_ns = instance->due_ns;
    return 0;
}

static void sim_turn(void *ctx, const struct pollfd *ready, size_t n)
{
    (void)ready;
    (void)n;
    drain(ctx, NULL);
}

static struct watch *find_watch(struct instance *instance, const struct claim *claim)
{
    struct watch *watch = NULL;
    if (claim->extra)
        DL_FOREACH2(claim->extra->watches, watch, claim_next)
        {
            if (watch->instance == instance)
                break;
        }
    return watch;
}

static void sim_watch(void *ctx, const char *name, size_t name_len)
{
    struct instance *instance = ctx;
    sim_lock();
    struct claim *claim = store_name(name, name_len);
    struct watch *watch = NULL;
    if (claim && store_extra(claim) && !find_watch(instance, claim))
        watch = calloc(1, sizeof *watch);
    if (watch) {
        watch->instance = instance;
        watch->claim = claim;
        DL_APPEND2(instance->watches, watch, previous, next);
        DL_APPEND2(claim->extra->watches, watch, claim_previous, claim_next);
    }
    sim_unlock(NULL);
    if (instance->notify) /* in force: what was released before is seen now */
        instance->host->news(instance->host, name, name_len);
}

static void watch_end(struct watch *watch)
{
    DL_DELETE2(watch->instance->watches, watch, previous, next);
    DL_DELETE2(watch->claim->extra->watches, watch, claim_previous, claim_next);
    free(watch);
}

static void sim_unwatch(void *ctx, const char *name, size_t name_len)
{
    sim_lock();
    struct claim *claim = store_find(name, name_len);
    struct watch *watch = claim ? find_watch(ctx, claim) : NULL;
    if (watch)
        watch_end(watch);
    sim_unlock(NULL);
}

/* ---- open and close ---------------------------------------------------------------------------- */

enum {
    OPTION_WITHOUT,
    OPTION_LATENCY,
    OPTION_QUEUE,
    OPTION_NOTIFY,
    OPTION_CLOCK,
    OPTION_NAMESPACE,
    OPTION_COUNT
};

static const mortise_option options[OPTION_COUNT] = {
    [OPTION_WITHOUT] = {.key = "without",
                        .type = MORTISE_OPTION_TEXT,
                        .default_text = "",
                        .help = "capabilities to do without, by name: \"fencing, list\""},
    [OPTION_LATENCY] = {.key = "latency",
                        .type = MORTISE_OPTION_DURATION,
                        .default_text = "0ms",
                        .maximum = 3600000,
                        .help = "how long a request takes to arrive"},
    [OPTION_QUEUE] = {.key = "queue",
                      .type = MORTISE_OPTION_BOOL,
                      .default_text = "no",
                      .help = "whether the backend queues who waits, first come, first served"},
    [OPTION_NOTIFY] = {.key = "notify",
                       .type = MORTISE_OPTION_BOOL,
                       .default_text = "yes",
                       .help = "whether waiters are told of a release"},
    [OPTION_CLOCK] = {.key = "clock",
                      .type = MORTISE_OPTION_BOOL,
                      .default_text = "no",
                      .help = "whether tokens follow the clock, of each name for itself"},
    [OPTION_NAMESPACE] = {.key = "namespace",
                          .type = MORTISE_OPTION_TEXT,
                          .help = "the namespace if the config gives none"},
};

static const struct {
    const char *word;
    uint32_t bit;
} capability_words[] = {
#define WORD(name, bit, word, help) {word, 1u << (bit)},
    MORTISE_CAPABILITY_MAP(WORD)
#undef WORD
};

/* 0: no such capability */
static uint32_t capability_bit(const char *word, size_t length)
{
    for (size_t i = 0; i < sizeof capability_words / sizeof *capability_words; i++)
        if (strlen(capability_words[i].word) == length &&
            memcmp(capability_words[i].word, word, length) == 0)
            return capability_words[i].bit;
    return 0;
}

static mortise_status parse_without(const char *text, uint32_t *bits, mortise_error *error)
{
    static const char separators[] = ", \t";
    *bits = 0;
    for (text += strspn(text, separators); *text; text += strspn(text, separators)) {
        size_t length = strcspn(text, separators);
        uint32_t bit = capability_bit(text, length);
        if (!bit) {
            error->status = MORTISE_CONFIG;
            snprintf(error->message, sizeof error->message,
                     "[sim] without: no such capability \"%.*s\"", (int)length, text);
            return MORTISE_CONFIG;
        }
        *bits |= bit;
        text += length;
    }
    return MORTISE_OK;
}

static mortise_status sim_open(const mortise_open_args *args, void **ctx, mortise_error *error)
{
    const mortise_value *values = args->values;
    const char *without_text = values[OPTION_WITHOUT].text;
    uint32_t without;
    pthread_once(&once, first_use);
    if (parse_without(without_text ? without_text : "", &without, error) != MORTISE_OK)
        return MORTISE_CONFIG;
    struct instance *instance = calloc(1, sizeof *instance);
    if (!instance)
        return error->status = MORTISE_NOMEM;
    instance->host = args->host;
    instance->latency_ns = values[OPTION_LATENCY].number * 1000000;
    instance->queue = values[OPTION_QUEUE].number != 0;
    instance->notify = values[OPTION_NOTIFY].number != 0 && !(without & MORTISE_CAP_NOTIFY);
    instance->name_space = values[OPTION_NAMESPACE].text;
    if (!instance->queue)
        without |= MORTISE_CAP_FAIR;
    if (!instance->notify)
        without |= MORTISE_CAP_NOTIFY;
    instance->capabilities = all_capabilities & ~without;
    sim_lock();
    if (values[OPTION_CLOCK].number != 0)
        store_tokens_by_clock();
    DL_APPEND2(sim_instances, instance, previous, next);
    sim_unlock(NULL);
    *ctx = instance;
    return MORTISE_OK;
}

static void sim_close(void *ctx)
{
    struct instance *instance = ctx;
    sim_lock();
    DL_DELETE2(sim_instances, instance, previous, next);
    flight_forget(instance);
    while (instance->watches)
        watch_end(instance->watches);
    sim_unlock(instance);
    sim_lock();
    while (instance->pokers)
        pthread_cond_wait(&quiet, &mutex);
    sim_unlock(NULL);
    free(instance);
}

static uint32_t sim_capabilities(void *ctx)
{
    return ((const struct instance *)ctx)->capabilities;
}

static const char *sim_namespace(void *ctx)
{
    return ((const struct instance *)ctx)->name_space;
}

MORTISE_API const mortise_module mortise_module_v1 = {
    MORTISE_MODULE_HEAD,
    .kind = MORTISE_KIND_DRIVER,
    .capabilities = all_capabilities,
    .name = "sim",
    .version = "1",
    .summary = "a backend in memory that does what a test's script says",
    .options = options,
    .option_count = OPTION_COUNT,
    .open = sim_open,
    .start = sim_start,
    .cancel = sim_cancel,
    .interest = sim_interest,
    .turn = sim_turn,
    .close = sim_close,
    .capabilities_of = sim_capabilities,
    .namespace_of = sim_namespace,
    .watch = sim_watch,
    .unwatch = sim_unwatch,
};
