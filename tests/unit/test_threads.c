/* test_threads.c - many threads at once on the machine's clock, for the thread sanitizer: each holder writes to
 * memory without any other lock, so two holders at one time are a data race.
 *
 * CUnit's asserts are for one thread only, so the other threads count what went wrong. */
#include "rig.h"

#include <errno.h>
#include <poll.h>

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define SCALE 1
#else
#define SCALE 4
#endif

#define NAMES 3
#define THREADS 8

static struct rig rig;
static _Atomic int wrong;

#define COUNT_UNLESS(condition)                                                                    \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            atomic_fetch_add(&wrong, 1);                                                           \
            fprintf(stderr, "    %s:%d: %s\n", __FILE__, __LINE__, #condition);                    \
        }                                                                                          \
    } while (0)

/* ---- what is guarded ------------------------------------------------------------------------------- */

static const char *const names[NAMES] = {"a", "b", "c"};
static struct guarded {
    long passes;
    bool inside;
    uint64_t token;
} guarded[NAMES];
static _Atomic long passes;
static mortise_lease *_Atomic shown; /* some lease, for others to look at */

static bool closing; /* leases may end at any time */
static _Atomic bool closed;

/* strangers: two held a lock at once, or a thread stood still until another had its lock, and has lost its lease (losses). */
static _Atomic int strangers, losses;

static void pass(int which, mortise_lease *lease)
{
    struct guarded *here = &guarded[which];
    uint64_t token = mortise_token(lease);
    bool alone = !here->inside && (token >= here->token || (closing && token == 0));
    here->inside = true;
    here->token = token;
    here->passes++;
    atomic_fetch_add(&passes, 1);
    atomic_store(&shown, lease);
    alone &= here->inside;
    here->inside = false;
    COUNT_UNLESS(alone);
    atomic_fetch_add(&strangers, !alone);
    bool held = mortise_state(lease) != MORTISE_STATE_LOST; /* after all that it did */
    COUNT_UNLESS(held || closing);
    atomic_fetch_add(&losses, !held);
}

static unsigned chance(unsigned *seed, unsigned below)
{
    *seed = *seed * 1103515245 + 12345;
    return (*seed >> 16) % below;
}

static void ignore_state(mortise_lease *lease, mortise_lease_state state, void *user_data)
{
    (void)state;
    (void)user_data;
    mortise_remaining_ms(lease);
}

static void take_and_give(mortise_client *client, unsigned *seed)
{
    static const int64_t waits_ms[] = {0, 1, 5, MORTISE_WAIT_FOREVER};
    int which = (int)chance(seed, NAMES);
    mortise_lease *lease;
    mortise_error error;
    mortise_status status =
        mortise_acquire(client, names[which],
                        MORTISE_OPTIONS(.wait_ms = waits_ms[chance(seed, 4)],
                                        .on_state = chance(seed, 4) == 0 ? ignore_state : NULL),
                        &lease, chance(seed, 2) ? &error : NULL);
    COUNT_UNLESS((status == MORTISE_OK) == (lease != NULL));
    if (status != MORTISE_OK) {
        COUNT_UNLESS(status == MORTISE_BUSY || status == MORTISE_TIMEDOUT ||
                     status == MORTISE_CLOSED);
        return;
    }
    pass(which, lease);
    status = chance(seed, 3) ? mortise_release(lease, NULL) : mortise_release_nowait(lease, NULL);
    COUNT_UNLESS(status == MORTISE_OK || status == MORTISE_INVALID || status == MORTISE_CLOSED);
    COUNT_UNLESS(mortise_state(lease) == MORTISE_STATE_LOST || status == MORTISE_CLOSED);
    COUNT_UNLESS(mortise_release(lease, NULL) != MORTISE_OK);
}

struct async {
    int which;
    _Atomic int calls;
};

static _Atomic int async_open;

static void async_done(mortise_status status, mortise_lease *lease, const mortise_error *error,
                       void *user_data)
{
    struct async *async = user_data;
    COUNT_UNLESS((status == MORTISE_OK) == (error == NULL));
    if (status == MORTISE_OK &&
        mortise_state(lease) != MORTISE_STATE_LOST) { /* closed in between */
        pass(async->which, lease);
        mortise_release_nowait(lease, NULL);
    }
    free(async);
    atomic_fetch_sub(&async_open, 1);
}

static void take_async(mortise_client *client, unsigned *seed)
{
    struct async *async = calloc(1, sizeof(*async));
    async->which = (int)chance(seed, NAMES);
    mortise_request request;
    atomic_fetch_add(&async_open, 1);
    if (mortise_acquire_async(client, names[async->which],
                              MORTISE_OPTIONS(.wait_ms = chance(seed, 2) ? -1 : 2), async_done,
                              async, &request, NULL) != MORTISE_OK) {
        free(async);
        atomic_fetch_sub(&async_open, 1);
        return;
    }
    if (chance(seed, 2))
        mortise_cancel(client, request);
}

static bool ignore_info(const mortise_info *info, void *user_data)
{
    (void)info;
    (void)user_data;
    return true;
}

static void look_around(mortise_client *client, unsigned *seed)
{
    mortise_lease *lease = atomic_load(&shown);
    mortise_info info = {.size = sizeof(info)};
    mortise_stats stats = {.size = sizeof(stats)};
    char text[64];
    mortise_state(lease);
    mortise_remaining_ms(lease);
    mortise_token(lease);
    mortise_owner(lease, text, sizeof(text));
    mortise_stats_get(client, &stats);
    if (chance(seed, 4) == 0) {
        mortise_inspect(client, names[0], &info, NULL);
        mortise_list(client, NULL, ignore_info, NULL, NULL);
        mortise_ping(client, text, sizeof(text), NULL);
    }
}

/* ---- hammering ------------------------------------------------------------------------------------- */

struct worker {
    pthread_t thread;
    mortise_client *client;
    unsigned seed;
    int rounds;
};

static void *hammer(void *argument)
{
    struct worker *worker = argument;
    for (int i = 0; i < worker->rounds && !atomic_load(&closed); i++)
        switch (chance(&worker->seed, 8)) {
        case 0:
            take_async(worker->client, &worker->seed);
            break;
        case 1:
            look_around(worker->client, &worker->seed);
            break;
        default:
            take_and_give(worker->client, &worker->seed);
            break;
        }
    return NULL;
}

static void start_workers(struct worker *workers, int count, mortise_client *const *clients,
                          int client_count, int rounds)
{
    for (int i = 0; i < count; i++) {
        workers[i] = (struct worker){
            .client = clients[i % client_count], .seed = (unsigned)i * 7919 + 1, .rounds = rounds};
        pthread_create(&workers[i].thread, NULL, hammer, &workers[i]);
    }
}

static void join_workers(struct worker *workers, int count)
{
    for (int i = 0; i < count; i++)
        pthread_join(workers[i].thread, NULL);
}

static void begin(void)
{
    atomic_store(&wrong, 0);
    atomic_store(&strangers, 0);
    atomic_store(&losses, 0);
    atomic_store(&passes, 0);
    atomic_store(&shown, NULL);
    memset(guarded, 0, sizeof(guarded));
    atomic_store(&async_open, 0);
    set_now(-1);
}

static void check_end(void)
{
    if (atomic_load(&strangers) > 0 && atomic_load(&losses) == 0)
        printf("\nFINDING: two held a lock at one time\n");
    CU_ASSERT_EQUAL(atomic_load(&wrong), 0);
    CU_ASSERT_EQUAL(atomic_load(&async_open), 0);
    ASSERT_NOTHING_LEFT();
    CU_ASSERT_EQUAL(sim->instances(), 0);
}

static void hammer_with(const char *config, int client_count)
{
    struct worker workers[THREADS];
    struct rig all[2];
    mortise_client *clients[2];
    begin();
    for (int i = 0; i < client_count; i++) {
        rig_open_real(&all[i], config);
        clients[i] = all[i].handle;
    }
    start_workers(workers, THREADS, clients, client_count, 150 * SCALE);
    join_workers(workers, THREADS);
    for (int i = 0; i < client_count; i++)
        CU_ASSERT_EQUAL(mortise_close(clients[i], NULL), MORTISE_OK);
    long total = 0;
    for (int i = 0; i < NAMES; i++)
        total += guarded[i].passes;
    CU_ASSERT_EQUAL(total, atomic_load(&passes));
    CU_ASSERT(total > 0);
    check_end();
}

static void test_hammer(void)
{
    hammer_with("", 1);
}

static void test_hammer_without_handover(void)
{
    hammer_with("handover_max = 0\n", 1);
}

static void test_hammer_two_clients(void)
{
    hammer_with("", 2);
}

static void test_hammer_fair(void)
{
    hammer_with("[sim]\nqueue = yes\n", 2);
}

static void test_hammer_polling(void)
{
    hammer_with("[sim]\nnotify = no\n", 2);
}

/* Requests take a while: leaders poll, followers sleep, the service thread takes over. */
static void test_hammer_slow(void)
{
    hammer_with("[sim]\nlatency = 1ms\n", 2);
}

/* The client is closed while they are at it. */
static void test_hammer_and_close(void)
{
    for (int round = 0; round < 5 * SCALE; round++) {
        struct worker workers[THREADS];
        begin();
        closing = true;
        atomic_store(&closed, false);
        rig_open_real(&rig, round % 2 ? "" : "[sim]\nlatency = 1ms\n");
        start_workers(workers, THREADS, &rig.handle, 1, 100000);
        while (atomic_load(&passes) < 20)
            poll(NULL, 0, 1);
        mortise_status status = mortise_close(rig.handle, NULL);
        CU_ASSERT(status == MORTISE_OK);
        atomic_store(&closed, true);
        join_workers(workers, THREADS);
        CU_ASSERT_EQUAL(atomic_load(&wrong), 0);
        CU_ASSERT_EQUAL(atomic_load(&async_open), 0);
        ASSERT_NOTHING_LEFT();
    }
    closing = false;
    atomic_store(&closed, false);
    check_end();
}

/* ---- short lives ----------------------------------------------------------------------------------- */

static _Atomic bool renewing;
static _Atomic unsigned ran_out; /* leases that were lost: their claims end by themselves */

static void *keep_a_lease(void *argument)
{
    char name[16];
    snprintf(name, sizeof(name), "kept %d", (int)(intptr_t)argument);
    mortise_lease *lease;
    while (atomic_load(&renewing)) {
        if (mortise_acquire(rig.handle, name,
                            MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = 60, .on_state = ignore_state),
                            &lease, NULL) != MORTISE_OK)
            continue;
        int64_t until_ms = test_now_ms() + 100;
        while (test_now_ms() < until_ms && mortise_state(lease) != MORTISE_STATE_LOST)
            poll(NULL, 0, 5);
        if (mortise_release(lease, NULL) == MORTISE_LOST)
            atomic_fetch_add(&ran_out, 1);
    }
    return NULL;
}

/* If threads get no processor for so long that a lease is lost, nobody releases its claim: it expires, and the sim
 * keeps it until somebody acquires the name. */
static void take_what_ran_out(int keepers)
{
    char name[16];
    rig_open_real(&rig, "");
    for (int i = 0; i < keepers; i++) {
        snprintf(name, sizeof(name), "kept %d", i);
        mortise_lease *lease;
        CU_ASSERT_EQUAL_FATAL(mortise_acquire(rig.handle, name,
                                              MORTISE_OPTIONS(.wait_ms = TEST_PATIENCE_MS), &lease,
                                              NULL),
                              MORTISE_OK);
        CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_OK);
    }
    CU_ASSERT_EQUAL(mortise_close(rig.handle, NULL), MORTISE_OK);
}

/* Renewals, failing ones too, beside calls on other names. */
static void test_renewals_beside(void)
{
    enum { KEEPERS = 4 };
    pthread_t keepers[KEEPERS];
    struct worker workers[4];
    begin();
    rig_open_real(&rig, "");
    SCRIPT(.kinds = OP(RENEW), .skip = 3, .times = 5, .fate = SIM_LOSE_REPLY,
           .status = MORTISE_INDETERMINATE);
    SCRIPT(.kinds = OP(RENEW), .skip = 3, .times = 5, .reply_ns = 30 * MS);
    atomic_store(&renewing, true);
    atomic_store(&ran_out, 0);
    for (int i = 0; i < KEEPERS; i++)
        pthread_create(&keepers[i], NULL, keep_a_lease, (void *)(intptr_t)i);
    start_workers(workers, 4, &rig.handle, 1, 100 * SCALE);
    join_workers(workers, 4);
    while (stats_of(&rig).renewals < 20)
        poll(NULL, 0, 5);
    atomic_store(&renewing, false);
    for (int i = 0; i < KEEPERS; i++)
        pthread_join(keepers[i], NULL);
    CU_ASSERT_EQUAL(mortise_close(rig.handle, NULL), MORTISE_OK);
    if (atomic_load(&ran_out) == 0)
        CU_ASSERT_EQUAL(sim->claims(), 0);
    take_what_ran_out(KEEPERS);
    check_end();
}

/* ---- one lease, many releases ---------------------------------------------------------------------- */

static pthread_barrier_t gate;
static _Atomic int released;
static mortise_lease *the_lease;

static void *release_the_lease(void *argument)
{
    (void)argument;
    for (int i = 0; i < 50 * SCALE; i++) {
        pthread_barrier_wait(&gate);
        mortise_status status = mortise_release(the_lease, NULL);
        COUNT_UNLESS(status == MORTISE_OK || status == MORTISE_INVALID);
        atomic_fetch_add(&released, status == MORTISE_OK);
        pthread_barrier_wait(&gate);
    }
    return NULL;
}

static void test_one_release_counts(void)
{
    pthread_t threads[3];
    begin();
    rig_open_real(&rig, "");
    atomic_store(&released, 0);
    pthread_barrier_init(&gate, NULL, 4);
    for (int i = 0; i < 3; i++)
        pthread_create(&threads[i], NULL, release_the_lease, NULL);
    for (int i = 0; i < 50 * SCALE; i++) {
        the_lease = take(&rig, "a", NULL);
        pthread_barrier_wait(&gate);
        pthread_barrier_wait(&gate);
        COUNT_UNLESS(atomic_load(&released) == i + 1);
    }
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&gate);
    CU_ASSERT_EQUAL(mortise_close(rig.handle, NULL), MORTISE_OK);
    check_end();
}

/* ---- dispatching threads --------------------------------------------------------------------------- */

static void close_it(mortise_status status, mortise_lease *lease, const mortise_error *error,
                     void *user_data)
{
    (void)lease;
    (void)error;
    (void)user_data;
    if (status == MORTISE_OK)
        mortise_close(rig.handle, NULL);
}

static void *dispatch(void *argument)
{
    mortise_client *client = argument;
    while (mortise_dispatch(client) >= 0)
        continue;
    return NULL;
}

/* One of several threads that dispatch closes the client in a callback; the others find it closed. */
static void test_closed_by_a_dispatcher(void)
{
    begin();
    for (int round = 0; round < 30 * SCALE; round++) {
        pthread_t threads[3];
        rig_open_real(&rig, "");
        CU_ASSERT(mortise_fd(rig.handle, NULL) >= 0);
        for (int i = 0; i < 3; i++)
            pthread_create(&threads[i], NULL, dispatch, rig.handle);
        CU_ASSERT_EQUAL(mortise_acquire_async(rig.handle, "a", FOREVER, close_it, NULL, NULL, NULL),
                        MORTISE_OK);
        for (int i = 0; i < 3; i++)
            pthread_join(threads[i], NULL);
    }
    check_end();
}

/* ---- a thread that is to be canceled ---------------------------------------------------------------- */

static _Atomic int cycles;

static void *cycle_canceled(void *argument)
{
    (void)argument;
    mortise_lease *lease;
    pthread_cancel(
        pthread_self()); /* pending from here on: any cancellation point would act on it */
    for (int i = 0; i < 400; i++) {
        mortise_error error;
        int64_t wait_ms = i % 3 == 0 ? 1 : MORTISE_WAIT_FOREVER;
        if (mortise_acquire(rig.handle, "a", MORTISE_OPTIONS(.wait_ms = wait_ms), &lease, &error) ==
            MORTISE_OK)
            mortise_release(lease, NULL);
        atomic_fetch_add(&cycles, 1);
    }
    pthread_testcancel();
    return NULL;
}

/* No call is a cancellation point: the locks are not taken along. */
static void test_canceled_threads(void)
{
    pthread_t threads[3];
    void *result;
    begin();
    atomic_store(&cycles, 0);
    rig_open_real(&rig, "[sim]\n");
    for (int i = 0; i < 3; i++)
        pthread_create(&threads[i], NULL, cycle_canceled, NULL);
    for (int i = 0; i < 3; i++) {
        pthread_join(threads[i], &result);
        CU_ASSERT_PTR_EQUAL(result, PTHREAD_CANCELED);
    }
    CU_ASSERT_EQUAL_FATAL(atomic_load(&cycles), 3 * 400);
    CU_ASSERT_EQUAL(mortise_close(rig.handle, NULL), MORTISE_OK);
    check_end();
}

int main(void)
{
    static const CU_TestInfo tests[] = {
        {"hammering", test_hammer},
        {"hammering, no hand-over", test_hammer_without_handover},
        {"hammering, two clients", test_hammer_two_clients},
        {"hammering a fair backend", test_hammer_fair},
        {"hammering, polling", test_hammer_polling},
        {"hammering a slow backend", test_hammer_slow},
        {"hammering, and a close", test_hammer_and_close},
        {"renewals beside", test_renewals_beside},
        {"one release counts", test_one_release_counts},
        {"closed by a dispatcher", test_closed_by_a_dispatcher},
        {"canceled threads", test_canceled_threads},
        CU_TEST_INFO_NULL,
    };
    return rig_run("threads", tests);
}
