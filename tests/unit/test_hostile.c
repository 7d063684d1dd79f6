/* test_hostile.c - a driver that keeps none of its promises: it answers nonsense, twice, late, or an op that does not
 * exist; it reports news of names that nobody watches, invalid descriptors and instants in the past. Every caller
 * still gets its outcome, the close ends, and the client works again as soon as the driver does. (test_stuck.c: a
 * driver that never answers or hangs in a call; test_modules.c: one that does not load; test_hostile_texts.c: sizes and
 * texts.) */
#include "close_test.h"

#include <limits.h>
#include <sched.h>

enum { KEPT_MAX = 256, CALLERS = 6, ROUNDS = 8 };

static uint64_t random_state;
static _Atomic bool lies;
static mortise_module honest; /* the sim's own functions */

/* ---- the driver: in front of the sim's; passes on what it does not falsify. In the pump --------------------- */

static struct kept {
    mortise_op *op;
    bool canceled; /* and that was not answered */
} kept[KEPT_MAX];
static size_t kept_count;
static int64_t late_ns; /* when the kept ones are answered */

static uint64_t draw(uint64_t limit)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state % limit;
}

static mortise_host *host(void)
{
    return &rig.client->top->host;
}

static int64_t odd_number(void)
{
    static const int64_t numbers[] = {0,         1,         -1,        -7,
                                      INT64_MIN, INT64_MAX, INT32_MIN, INT64_C(1000000000000)};
    return numbers[draw(sizeof(numbers) / sizeof(numbers[0]))];
}

static mortise_status odd_status(void)
{
    static const int codes[] = {0, 0, 0, -1, -2, -4, -5, -6, -7, -8, -14, -15, 7, -4711};
    return (mortise_status)codes[draw(sizeof(codes) / sizeof(codes[0]))];
}

static void answer_oddly(mortise_op *op)
{
    bool twice = draw(4) == 0;
    op->from_ns = draw(3) ? odd_number() : clock_now();
    op->good_for_ms = draw(3) ? odd_number() : op->ttl_ms;
    op->hint_ms = odd_number();
    op->sure = draw(2);
    if (op->kind == MORTISE_OP_ACQUIRE)
        op->token = draw(3) ? draw(5) : UINT64_MAX;
    if (draw(4) == 0)
        host()->waiting(host(), op);
    if (draw(2))
        host()->complete(host(), op, odd_status());
    else
        host()->fail(host(), op, odd_status(), INT32_MIN, draw(2), "%s", draw(2) ? "a lie" : "");
    if (twice) {
        host()->complete(host(), op, odd_status());
        host()->waiting(host(), op);
    }
}

/* Later, by a timer; also ops that were canceled meanwhile. */
static void keep(mortise_op *op)
{
    if (kept_count == KEPT_MAX) {
        answer_oddly(op);
        return;
    }
    kept[kept_count++] = (struct kept){op, false};
    late_ns = clock_after_ms(clock_now(), (int64_t)draw(20));
}

static void answer_kept(void)
{
    size_t count = kept_count;
    kept_count = 0;
    for (size_t i = 0; i < count; i++)
        answer_oddly(kept[i].op);
    late_ns = MORTISE_NEVER;
}

static void tell_nonsense(void)
{
    static const char foreign[] = "\0\xff nobody's";
    host()->news(host(), foreign, sizeof(foreign));
    host()->news(host(), "", 0);
    host()->news_all(host());
    host()->doubt(host(), "a", 1);
    host()->closing(host(), -1);
    host()->closing(host(), INT_MAX);
}

static void lying_start(void *ctx, mortise_op **ops, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint64_t lie = atomic_load(&lies) ? draw(6) : 0;
        if (lie < 2)
            honest.start(ctx, &ops[i], 1);
        else if (lie < 4)
            answer_oddly(ops[i]);
        else
            keep(ops[i]);
        if (lie == 3)
            tell_nonsense();
    }
}

static struct kept *find_kept(const mortise_op *op)
{
    for (size_t i = 0; i < kept_count; i++)
        if (kept[i].op == op)
            return &kept[i];
    return NULL;
}

static void lying_cancel(void *ctx, mortise_op *op)
{
    struct kept *one = find_kept(op);
    if (one == NULL) {
        honest.cancel(ctx, op);
        return;
    }
    if (draw(3) == 0)
        return; /* answered when its time has come */
    *one = kept[--kept_count];
    answer_oddly(op);
}

static size_t lying_interest(void *ctx, struct pollfd *fds, size_t capacity, int64_t *due_ns)
{
    size_t count = honest.interest(ctx, fds, capacity, due_ns);
    if (late_ns < *due_ns)
        *due_ns = late_ns;
    if (!atomic_load(&lies))
        return count;
    if (count < capacity)
        fds[count++] =
            (struct pollfd){.fd = 1000000 + (int)kept_count, .events = POLLIN | POLLOUT | POLLPRI};
    return count;
}

static void lying_turn(void *ctx, const struct pollfd *ready, size_t n)
{
    if (clock_now() >= late_ns || !atomic_load(&lies))
        answer_kept();
    honest.turn(ctx, ready, n);
}

static void lying_close(void *ctx)
{
    answer_kept();
    tell_nonsense();
    honest.close(ctx);
}

static void start_lying(uint64_t seed)
{
    rig_open_real(&rig, "ttl = 200ms\nclose_timeout = 200ms\nunreachable_timeout = 200ms\n");
    pthread_mutex_lock(&rig.client->pump.lock);
    mortise_module *module = &rig.client->top->module;
    honest = *module;
    random_state = seed * 0x9e3779b97f4a7c15u | 1;
    kept_count = 0;
    late_ns = MORTISE_NEVER;
    atomic_store(&lies, true);
    module->start = lying_start;
    module->cancel = lying_cancel;
    module->interest = lying_interest;
    module->turn = lying_turn;
    module->close = lying_close;
    pthread_mutex_unlock(&rig.client->pump.lock);
}

/* ---- callers ----------------------------------------------------------------------------------------------- */

static bool is_status(mortise_status status)
{
    return strcmp(mortise_status_name(status), "UNKNOWN") != 0;
}

static atomic_int wrong; /* seen by the callers' threads */

static void check(bool good, const char *what, mortise_status status)
{
    if (good)
        return;
    fprintf(stderr, "    %s: %s\n", what, mortise_status_name(status));
    atomic_fetch_add(&wrong, 1);
}

/* The statuses that a call cannot return, whatever the driver says. */
static void check_status(const char *call, mortise_status status)
{
    check(is_status(status) && status != MORTISE_CLOSED && status != MORTISE_FORKED &&
              status != MORTISE_DEADLOCK,
          call, status);
}

static void *call_around(void *argument)
{
    static const char *const names[] = {"a", "b", "c"};
    uint64_t number = (uint64_t)(uintptr_t)argument;
    for (int i = 0; i < 25; i++) {
        mortise_error error;
        mortise_lease *lease;
        const char *name = names[(number + (uint64_t)i) % 3];
        mortise_status status = mortise_acquire(
            rig.handle, name, MORTISE_OPTIONS(.wait_ms = i % 4 * 10), &lease, &error);
        check_status("acquire", status);
        check((status == MORTISE_OK) == (lease != NULL), "a lease, or none", status);
        if (status == MORTISE_OK && i % 2)
            check_status("nowait", mortise_release_nowait(lease, &error));
        else if (status == MORTISE_OK)
            check_status("release", mortise_release(lease, &error));
        mortise_info info = {.size = sizeof(info)};
        check_status("inspect", mortise_inspect(rig.handle, name, &info, &error));
    }
    return NULL;
}

static bool works_again(void *argument)
{
    mortise_lease *lease;
    (void)argument;
    if (mortise_acquire(rig.handle, "fresh", TRY, &lease, NULL) != MORTISE_OK)
        return false;
    return mortise_release(lease, NULL) == MORTISE_OK;
}

static void lie_to_callers(uint64_t seed)
{
    pthread_t threads[CALLERS];
    start_lying(seed);
    atomic_store(&wrong, 0);
    for (uintptr_t i = 0; i < CALLERS; i++)
        pthread_create(&threads[i], NULL, call_around, (void *)i);
    for (int i = 0; i < CALLERS; i++)
        pthread_join(threads[i], NULL);
    CU_ASSERT_EQUAL(atomic_load(&wrong), 0);
}

static void test_for_a_time(void)
{
    for (uint64_t seed = 1; seed <= ROUNDS; seed++) {
        lie_to_callers(seed);
        atomic_store(&lies, false);
        CU_ASSERT(test_poll(works_again, NULL, TEST_PATIENCE_MS));
        mortise_status status = mortise_close(rig.handle, NULL);
        CU_ASSERT(status == MORTISE_OK || status == MORTISE_UNREACHABLE);
        CU_ASSERT_EQUAL(sim->instances(), 0); /* all of it is gone */
        sim->reset();
    }
}

/* The close ends, and does not free what the driver has not completed. */
static void lie_to_the_close(void)
{
    static uint64_t seed;
    int64_t from_ms;
    lie_to_callers(ROUNDS + ++seed);
    from_ms = test_now_ms();
    mortise_status status = mortise_close(rig.handle, NULL);
    CU_ASSERT(status == MORTISE_OK || status == MORTISE_UNREACHABLE);
    CU_ASSERT(test_now_ms() - from_ms < TEST_PATIENCE_MS);
}

static void test_to_the_end(void)
{
    for (int round = 0; round < 4; round++)
        in_child(lie_to_the_close);
}

/* Instants beyond any clock: whatever a driver reports, a lease has an end, and mortise_state() works. */
static bool good_for_ever(mortise_op *op)
{
    op->from_ns = INT64_MAX - 1;
    op->good_for_ms = INT64_MAX;
    op->token = 1;
    op->sure = true;
    tapped_host()->complete(tapped_host(), op, MORTISE_OK);
    return true;
}

static void test_for_ever(void)
{
    rig_open(&rig, CONFIG);
    tap(&rig);
    tap_answer = good_for_ever;
    mortise_lease *lease = take(&rig, "a", NULL);
    CU_ASSERT(mortise_remaining_ms(lease) > 0);
    advance_ms(60000);
    CU_ASSERT_EQUAL(mortise_state(lease), MORTISE_STATE_HELD);
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_OK);
    rig_close(&rig);
}

/* A grant that is over when it is reported is given to nobody. */
static bool long_over(mortise_op *op)
{
    if (op->kind != MORTISE_OP_ACQUIRE)
        return false;
    op->from_ns = INT64_MIN;
    op->good_for_ms = INT64_MIN;
    op->token = 1;
    tapped_host()->complete(tapped_host(), op, MORTISE_OK);
    return true;
}

static void test_long_over(void)
{
    mortise_lease *lease;
    rig_open_real(&rig, CONFIG);
    tap(&rig);
    tap_answer = long_over;
    mortise_status status = mortise_acquire(rig.handle, "a", TRY, &lease, NULL);
    CU_ASSERT(status != MORTISE_OK && is_status(status));
    CU_ASSERT_PTR_NULL(lease);
    CU_ASSERT_EQUAL(mortise_close(rig.handle, NULL), MORTISE_OK);
}

int main(void)
{
    static const CU_TestInfo tests[] = {
        {"a driver that lies for a time", test_for_a_time},
        {"a driver that lies to the end", test_to_the_end},
        {"good for ever", test_for_ever},
        {"long over", test_long_over},
        CU_TEST_INFO_NULL,
    };
    return rig_run("hostile", tests);
}
