/* rig.h - a client that a test controls completely: the sim driver behind it, a clock that moves only when the test
 * moves it, and no thread but the test's own.
 *
 * Time goes from one due instant to the next (advance_to), so hours of a lease's life take milliseconds, and every
 * run is the same. Callbacks run in settle(), which dispatches. rig_open_real() gives a client as applications have
 * it, with its threads and the machine's clock. Knows no suite. */
#ifndef RIG_H
#define RIG_H

#include "client/client.h"
#include "lock/claim.h"
#include "lock/waitlist.h"
#include "sim.h"
#include "support.h"

#include <CUnit/Basic.h>

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MS NS_PER_MS
#define START_NS (1000 * NS_PER_S)
#ifndef RIG_DRIVER
#define RIG_DRIVER "sim" /* at the top of the stack */
#endif

static const sim_api *sim;
static char rig_folder[256];

/* ---- time ---------------------------------------------------------------------------------------- */

static inline int64_t now_ns(void)
{
    return clock_now();
}

static inline void set_now(int64_t at_ns)
{
    atomic_store(&clock_virtual_ns, at_ns);
}

/* ---- clients ------------------------------------------------------------------------------------- */

struct rig {
    mortise_client *handle;
    struct client *client;
};

#define RIGS_MAX 4
static struct rig *rigs[RIGS_MAX]; /* those that the test drives */

/* settings: the lines after "driver = sim" in [mortise], and further sections. */
static inline mortise_status rig_try_open(struct rig *rig, bool manual, const char *settings,
                                          mortise_error *error)
{
    static int number;
    char path[300], text[2000];
    snprintf(path, sizeof(path), "%s/%d.conf", rig_folder, ++number);
    snprintf(text, sizeof(text), "[mortise]\ndriver = " RIG_DRIVER "\nlog = none\n%s", settings);
    CU_ASSERT_FATAL(test_file_write(path, text));
    atomic_store(&client_manual, manual);
    mortise_status status = mortise_open(path, &rig->handle, error);
    rig->client = status == MORTISE_OK ? slab_find(&client_slab, rig->handle) : NULL;
    return status;
}

static inline void rig_open(struct rig *rig, const char *settings)
{
    mortise_error error = {.message = ""};
    if (rig_try_open(rig, true, settings, &error) != MORTISE_OK)
        fprintf(stderr, "mortise_open: %s\n", error.message);
    CU_ASSERT_PTR_NOT_NULL_FATAL(rig->client);
    CU_ASSERT_FATAL(mortise_fd(rig->handle, NULL) >= 0);
    int i = 0;
    while (rigs[i] != NULL)
        i++;
    rigs[i] = rig;
}

static inline void rig_open_real(struct rig *rig, const char *settings)
{
    mortise_error error = {.message = ""};
    set_now(-1);
    if (rig_try_open(rig, false, settings, &error) != MORTISE_OK)
        fprintf(stderr, "mortise_open: %s\n", error.message);
    CU_ASSERT_PTR_NOT_NULL_FATAL(rig->client);
}

/* The client was closed, or is about to be: the test no longer drives it. */
static inline void rig_forget(struct rig *rig)
{
    for (int i = 0; i < RIGS_MAX; i++)
        if (rigs[i] == rig)
            rigs[i] = NULL;
}

static inline mortise_status rig_close_any(struct rig *rig)
{
    rig_forget(rig);
    mortise_status status;
    while ((status = mortise_close(rig->handle, NULL)) == MORTISE_CLOSING) {
        int ran = mortise_dispatch(rig->handle); /* callbacks run only there */
        if (ran < 0 && ran != MORTISE_CLOSED)    /* CLOSED: another thread has ended it meanwhile */
            break;
    }
    return status;
}

#define rig_close(rig) CU_ASSERT_EQUAL(rig_close_any(rig), MORTISE_OK)

/* Asserts that nothing of any client is left in the backend (R5). */
#define ASSERT_NOTHING_LEFT()                                                                      \
    do {                                                                                           \
        CU_ASSERT_EQUAL(sim->claims(), 0);                                                         \
        CU_ASSERT_EQUAL(sim->waiters(NULL), 0);                                                    \
        CU_ASSERT_EQUAL(sim->outstanding(), 0);                                                    \
        CU_ASSERT_EQUAL(sim->ghosts(), 0);                                                         \
    } while (0)

static inline mortise_stats stats_of(struct rig *rig)
{
    mortise_stats stats = {.size = sizeof(stats)};
    CU_ASSERT_EQUAL(mortise_stats_get(rig->handle, &stats), MORTISE_OK);
    return stats;
}

/* ---- going on ------------------------------------------------------------------------------------ */

static inline int64_t rig_due(struct rig *rig)
{
    struct client *client = rig->client;
    int64_t due_ns = timer_next_ns(&client->locks.timers);
    return client->pump.due_ns < due_ns ? client->pump.due_ns : due_ns;
}

static inline int64_t next_due(void)
{
    int64_t due_ns = MORTISE_NEVER;
    for (int i = 0; i < RIGS_MAX; i++)
        if (rigs[i] != NULL && rig_due(rigs[i]) < due_ns)
            due_ns = rig_due(rigs[i]);
    return due_ns;
}

/* Does everything that is due at this instant, callbacks too. */
static inline void settle(void)
{
    for (int round = 0; round < 2000; round++) {
        bool more = false;
        for (int i = 0; i < RIGS_MAX; i++) {
            if (rigs[i] == NULL)
                continue;
            watchdog_run(&rigs[i]->client->locks);
            struct rig *rig = rigs[i];
            more |= mortise_dispatch(rig->handle) > 0;
            more |= rigs[i] != NULL && rig->client->pump.posted != NULL;
        }
        if (!more && next_due() > now_ns())
            return;
    }
    CU_FAIL_FATAL("something is due for ever: time stands still");
}

/* Goes from one due instant to the next until the given one. */
static inline void advance_to(int64_t at_ns)
{
    settle();
    for (int64_t due_ns; (due_ns = next_due()) <= at_ns; settle())
        set_now(due_ns > now_ns() ? due_ns : now_ns());
    set_now(at_ns);
    settle();
}

static inline void advance_ms(int64_t ms)
{
    advance_to(now_ns() + ms * MS);
}

/* ---- acquires ------------------------------------------------------------------------------------ */

/* The outcome of an async acquire. */
struct outcome {
    int calls;
    mortise_status status;
    mortise_lease *lease;
    mortise_error error;
    mortise_request request;
    int64_t at_ns;
    int order; /* among all outcomes of the test */
};

static int outcomes_told;

static inline void told(mortise_status status, mortise_lease *lease, const mortise_error *error,
                        void *user_data)
{
    struct outcome *outcome = user_data;
    outcome->calls++;
    outcome->status = status;
    outcome->lease = lease;
    outcome->at_ns = now_ns();
    outcome->order = ++outcomes_told;
    if (error != NULL)
        outcome->error = *error;
}

/* options NULL: wait forever. */
static inline void want(struct rig *rig, struct outcome *outcome, const char *name,
                        const mortise_options *options)
{
    memset(outcome, 0, sizeof(*outcome));
    outcome->status = (mortise_status)1;
    CU_ASSERT_EQUAL(
        mortise_acquire_async(rig->handle, name, options, told, outcome, &outcome->request, NULL),
        MORTISE_OK);
    settle();
}

/* Acquires a free name at once. */
static inline mortise_lease *take(struct rig *rig, const char *name, const mortise_options *options)
{
    mortise_lease *lease = NULL;
    mortise_error error = {.message = ""};
    mortise_options given = options != NULL ? *options : *MORTISE_OPTIONS();
    given.wait_ms = 0;
    mortise_status status = mortise_acquire(rig->handle, name, &given, &lease, &error);
    if (status != MORTISE_OK)
        fprintf(stderr, "take %s: %s: %s\n", name, mortise_status_name(status), error.message);
    CU_ASSERT_EQUAL_FATAL(status, MORTISE_OK);
    return lease;
}

#define TRY MORTISE_OPTIONS(.wait_ms = 0)
#define FOREVER MORTISE_OPTIONS(.wait_ms = MORTISE_WAIT_FOREVER)

/* ---- states and events --------------------------------------------------------------------------- */

struct states {
    int count;
    mortise_lease_state seen[32];
    int64_t at_ns[32];
    mortise_lease *lease;
};

static inline void on_state(mortise_lease *lease, mortise_lease_state state, void *user_data)
{
    struct states *states = user_data;
    if (states->count < 32) {
        states->seen[states->count] = state;
        states->at_ns[states->count] = now_ns();
    }
    states->count++;
    states->lease = lease;
}

#define EVENTS_MAX 4096
static struct seen_event {
    mortise_event_kind kind;
    uint64_t caller, lease, token;
    mortise_status status;
    int64_t at_ns, deadline_ns;
    char name[64];
    mortise_grant_id grant;
} events[EVENTS_MAX];
static int event_count;

static inline void see_event(void *ctx, const mortise_event *event)
{
    (void)ctx;
    if (event_count == EVENTS_MAX)
        return;
    struct seen_event *seen = &events[event_count++];
    *seen = (struct seen_event){.kind = event->kind,
                                .caller = event->caller,
                                .lease = event->lease,
                                .token = event->token,
                                .status = event->status,
                                .at_ns = event->at_ns,
                                .deadline_ns = event->deadline_ns,
                                .grant = event->grant};
    snprintf(seen->name, sizeof(seen->name), "%.*s", (int)event->name_len, event->name);
}

/* An observer that records its events until the client is closed. */
static inline void observe(struct rig *rig)
{
    static struct instance ear;
    ear.module.observe = see_event;
    event_count = 0;
    rig->client->locks.observers[rig->client->locks.observer_count++] = &ear;
}

/* ---- in front of the driver ---------------------------------------------------------------------- */

#define TAPS_MAX 20000
static struct tapped {
    mortise_op op; /* a copy of the op as it was started */
    int64_t at_ns;
    size_t batch; /* how many ops came in this call */
} taps[TAPS_MAX];
static size_t tap_count;
/* Answers an op instead of the driver and returns true; NULL: the sim answers. */
static bool (*tap_answer)(mortise_op *op);
static struct rig *tapped_rig;
static void (*sim_start)(void *ctx, mortise_op **ops, size_t n);

static inline void tap_start(void *ctx, mortise_op **ops, size_t n)
{
    mortise_op *rest[256];
    size_t count = 0;
    for (size_t i = 0; i < n; i++) {
        if (tap_count < TAPS_MAX)
            taps[tap_count++] = (struct tapped){*ops[i], clock_now(), n};
        if (tap_answer == NULL || !tap_answer(ops[i]))
            rest[count++] = ops[i];
    }
    if (count > 0)
        sim_start(ctx, rest, count);
}

/* Records every op that is started from now on. */
static inline void tap(struct rig *rig)
{
    tap_count = 0;
    tap_answer = NULL;
    tapped_rig = rig;
    sim_start = rig->client->top->module.start;
    rig->client->top->module.start = tap_start;
}

static inline mortise_host *tapped_host(void)
{
    return &tapped_rig->client->top->host;
}

/* The n-th op of this kind since tap(), from 0; NULL: there was none. */
static inline const struct tapped *tapped(mortise_op_kind kind, size_t n)
{
    for (size_t i = 0; i < tap_count; i++)
        if (taps[i].op.kind == kind && n-- == 0)
            return &taps[i];
    return NULL;
}

static inline size_t tapped_count(mortise_op_kind kind)
{
    size_t count = 0;
    for (size_t i = 0; i < tap_count; i++)
        count += taps[i].op.kind == kind;
    return count;
}

#define OP(kind) SIM_OP(MORTISE_OP_##kind)
#define SCRIPT(...) sim->script(&(sim_rule){__VA_ARGS__})

/* ---- running ------------------------------------------------------------------------------------- */

static inline void before_each(void)
{
    set_now(START_NS);
    outcomes_told = 0;
    sim->reset();
}

static inline void after_each(void)
{
    for (int i = 0; i < RIGS_MAX; i++) { /* a failed test left it */
        if (rigs[i] != NULL)
            CU_FAIL("a client was left open");
        rigs[i] = NULL;
    }
    sim->reset();
}

static inline int rig_run(const char *suite, const CU_TestInfo *tests)
{
    void *library = dlopen(TEST_SIM_DIR "/sim.so", RTLD_NOW | RTLD_LOCAL);
    sim = library != NULL ? dlsym(library, SIM_API_SYMBOL) : NULL;
    if (sim == NULL || CU_initialize_registry() != CUE_SUCCESS ||
        !test_folder_make(rig_folder, sizeof(rig_folder)) ||
        setenv("MORTISE_MODULE_PATH", TEST_SIM_DIR ":" TEST_FIXTURE_DIR ":" TEST_MODULE_DIR, 1) !=
            0) {
        fprintf(stderr, "%s: %s\n", suite, library != NULL ? "set-up failed" : dlerror());
        return 1;
    }
    CU_SuiteInfo suites[] = {
        {suite, NULL, NULL, before_each, after_each, (CU_TestInfo *)(uintptr_t)tests},
        CU_SUITE_INFO_NULL,
    };
    CU_register_suites(suites);
    CU_basic_set_mode(CU_BRM_VERBOSE);
    CU_basic_run_tests();
    unsigned failures = CU_get_number_of_failures();
    CU_cleanup_registry();
    test_folder_remove(rig_folder);
    return failures != 0 ? 1 : 0;
}

#endif
