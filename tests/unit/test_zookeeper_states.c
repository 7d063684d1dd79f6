/* test_zookeeper_states.c - the ZooKeeper driver on an ensemble in memory, request by request. One acquire and its
 * release run again and again, and each time something goes wrong after another request: the connection is lost while
 * some of the open requests are executed, the session expires, the driver abandons it, the caller gives up. Whatever
 * happens, the claim is granted at the front of the queue, and at the end the servers have nothing of it. So the
 * tests reach each cell of the table in drivers/zookeeper/claim.h, in each order that requests can have. */
#include "fake_zookeeper.h"
#include "suite.h"
#include "zookeeper_host.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ENOUGH 3000     /* rounds; far more than any run takes */

/* ---- one run ------------------------------------------------------------------------------------------------ */

enum fault { NOTHING, CUT, EXPIRE, ABANDON, CANCEL, FAULTS };

struct run {
    enum fault fault, next; /* one after the other */
    int at, gap;            /* after so many requests; so many requests between them */
    int executed;           /* CUT, ABANDON: of the open requests */
    bool is_try, close_is_heard, has_folder, has_rival;
    bool is_shared;    /* the acquire is; else the claim is made shared afterwards */
    bool is_semaphore; /* with a gate, in which the rival is */
    /* as it goes on: */
    int steps;
    bool away; /* ABANDON: until there is another session */
    int64_t began_ns;
    const char *rival;
    mortise_op op;
};

static const char *leases_of(const struct run *run)
{
    return run->is_semaphore ? "/r/x/leases" : "/r/x";
}

/* Where contenders queue. */
static const char *queue_of(const struct run *run)
{
    return run->is_semaphore ? "/r/x/locks" : "/r/x";
}

static void strike(struct run *run, enum fault fault)
{
    switch (fault) {
    case CUT:
        fake_cut(run->executed);
        break;
    case ABANDON:
        run->away = fake_cut(run->executed);
        break;
    case EXPIRE:
        fake_expire();
        break;
    case CANCEL:
        if (run->op.issuer == NULL && run->op.kind == MORTISE_OP_ACQUIRE)
            module->cancel(driver_ctx, &run->op);
        break;
    default:
        break;
    }
}

/* ABANDON: the connection comes back when the driver has given the session up. */
static void come_back(struct run *run)
{
    if (!run->away)
        return;
    if (run->began_ns == 0)
        run->began_ns = now_ns;
    run->away = now_ns - run->began_ns < 2 * FAKE_TIMEOUT_MS * MS;
}

/* One request, or what was posted, or time. */
static void go_on(struct run *run)
{
    bool first;
    if (run_posted())
        return;
    come_back(run);
    if (!run->away && fake_connect())
        return;
    if (fake_step()) {
        if (++run->steps == run->at)
            strike(run, run->fault);
        if (run->steps == run->at + run->gap)
            strike(run, run->next);
        return;
    }
    if (run->rival != NULL && fake_contenders(queue_of(run), &first) >= 2) {
        fake_delete(run->rival); /* ours waits for it */
        run->rival = NULL;
    }
    /* A second cut may lose the delete of what the session left behind: then it ends with that session. */
    if (run->fault == ABANDON && run->next == CUT &&
        now_ns - run->began_ns > 4 * FAKE_TIMEOUT_MS * MS)
        fake_end_old_sessions();
    pass_time();
}

static bool finish(struct run *run, mortise_op *op)
{
    for (int i = 0; i < ENOUGH && op->issuer == NULL; i++)
        go_on(run);
    return op->issuer != NULL;
}

static bool release(struct run *run, unsigned char grant, mortise_status *status)
{
    for (int tries = 0; tries < 20; tries++) {
        mortise_op op = op_of(MORTISE_OP_RELEASE, grant);
        start(&op);
        if (!finish(run, &op))
            return false;
        *status = op.status;
        if (op.sure)
            return true;
    }
    return false;
}

static const char *acquire(struct run *run, unsigned char grant)
{
    static mortise_info info;
    bool first = true;
    int count = 0;
    run->op = op_of(MORTISE_OP_ACQUIRE, grant);
    run->op.flags = run->is_try ? MORTISE_OP_TRY : 0;
    run->op.mode = run->is_shared ? MORTISE_SHARED : MORTISE_EXCLUSIVE;
    info = (mortise_info){.size = sizeof(info)};
    run->op.info = &info;
    start(&run->op);
    if (!finish(run, &run->op))
        return "not granted";
    if (run->op.status == MORTISE_OK)
        count = fake_contenders(leases_of(run), &first);
    if (run->is_shared) /* beside what an abandoned session of its own left behind */
        first |= run->rival == NULL;
    /* none: the session has expired, and the driver has not heard of it yet */
    return first || count == 0 ? NULL : "granted behind another node";
}

static bool has(const struct run *run, enum fault fault)
{
    return run->fault == fault || run->next == fault;
}

static bool is_expected(const struct run *run)
{
    mortise_status status = run->op.status;
    if (status == MORTISE_OK)
        return true;
    if (has(run, CANCEL))
        return status == MORTISE_CANCELED || status == MORTISE_INDETERMINATE ||
               (status == MORTISE_BUSY && run->is_try);
    return status == MORTISE_BUSY && run->is_try && (run->has_rival || has(run, ABANDON));
}

/* Makes the claim shared, and again until that is known. */
static const char *downgrade(struct run *run)
{
    static const char shared[] = "\nshared";
    for (int tries = 0; tries < ENOUGH; tries++) {
        mortise_op op = op_of(MORTISE_OP_RENEW, 1);
        op.flags = MORTISE_OP_DOWNGRADE;
        start(&op);
        if (!finish(run, &op))
            return "not renewed";
        if (op.status == MORTISE_LOST)
            return has(run, EXPIRE) || has(run, ABANDON) ? NULL : "lost";
        if (op.status == MORTISE_OK)
            return fake_says(leases_of(run), shared) || has(run, EXPIRE) ? NULL : "not made shared";
        if (op.status != MORTISE_INDETERMINATE && op.status != MORTISE_UNREACHABLE)
            return mortise_status_name(op.status);
        go_on(run);
    }
    return "never made shared";
}

/* What went wrong; NULL: nothing. */
static const char *play_to_the_end(struct run *run)
{
    mortise_status status = MORTISE_OK;
    bool first;
    const char *problem = acquire(run, 1);
    if (problem != NULL)
        return problem;
    if (!is_expected(run))
        return mortise_status_name(run->op.status);
    if (run->op.status == MORTISE_OK && !run->is_shared)
        problem = downgrade(run);
    if (problem != NULL)
        return problem;
    if (!release(run, 1, &status))
        return "not released";
    bool was_held = run->op.status == MORTISE_OK && !has(run, EXPIRE) && !has(run, ABANDON);
    if (status != MORTISE_OK && (was_held || status != MORTISE_LOST))
        return "released, and not told OK";
    if (run->rival != NULL)
        fake_delete(run->rival);
    run->rival = NULL;
    for (int i = 0; i < 50; i++) /* what nobody waits for */
        go_on(run);
    if (run->is_semaphore && fake_contenders(queue_of(run), &first) > 0)
        return "a node is left in the gate";
    return fake_contenders(leases_of(run), &first) == 0 ? NULL : "a node is left";
}

static const char *play(struct run *run)
{
    fake_reset(run->close_is_heard);
    if (run->has_folder || run->has_rival) {
        fake_make("/r");
        fake_make("/r/x");
        if (run->is_semaphore)
            fake_make("/r/x/locks");
    }
    open_driver(run->is_semaphore, HOUR_MS);
    run->rival = !run->has_rival     ? NULL
                 : run->is_semaphore ? fake_make("/r/x/locks/_c_x-lock-")
                                     : fake_make("/r/x/_c_x-lock-");
    const char *problem = play_to_the_end(run);
    while (run_posted() || fake_step())
        continue; /* close() would wait for these answers */
    close_driver();
    return problem;
}

/* Strikes after each request in turn, until a run is over before it is struck. */
static int play_all(struct run run, int *runs)
{
    int failures = 0;
    for (run.at = 1; run.at < 60; run.at++) {
        struct run one = run;
        const char *problem = play(&one);
        ++*runs;
        if (problem != NULL) {
            printf(
                "\n    faults %d and %d after %d and %d, executed %d, try %d, heard %d, folder %d, "
                "rival %d, shared %d, semaphore %d: %s ",
                run.fault, run.next, run.at, run.gap, run.executed, run.is_try, run.close_is_heard,
                run.has_folder, run.has_rival, run.is_shared, run.is_semaphore, problem);
            failures++;
        }
        if (one.steps < run.at)
            break;
    }
    return failures;
}

static void test_each_fault_at_each_request(void)
{
    int failures = 0, runs = 0;
    for (enum fault fault = NOTHING; fault < FAULTS; fault++)
        for (int way = 0; way < 64; way++)
            for (int executed = 0; executed < 4; executed++) {
                struct run run = {.fault = fault,
                                  .executed = executed,
                                  .is_try = (way & 1) != 0,
                                  .close_is_heard = (way & 2) != 0,
                                  .has_folder = (way & 4) != 0,
                                  .has_rival = (way & 8) != 0,
                                  .is_shared = (way & 16) != 0,
                                  .is_semaphore = (way & 32) != 0};
                if (executed == 0 || fault == CUT || fault == ABANDON)
                    failures += play_all(run, &runs);
            }
    printf("(%d runs) ", runs);
    CU_ASSERT_EQUAL(failures, 0);
}

/* Another fault follows at once, or some requests later. */
static void test_two_faults(void)
{
    static const enum fault faults[][2] = {{CANCEL, CUT},     {CANCEL, ABANDON}, {CANCEL, EXPIRE},
                                           {CUT, CANCEL},     {CUT, CUT},        {CUT, EXPIRE},
                                           {ABANDON, CANCEL}, {ABANDON, CUT},    {EXPIRE, CUT}};
    int failures = 0, runs = 0;
    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
        for (int way = 0; way < 32; way++)
            for (int executed = 0; executed < 3; executed++) {
                struct run run = {.fault = faults[i][0],
                                  .next = faults[i][1],
                                  .executed = executed,
                                  .is_try = (way & 1) != 0,
                                  .has_folder = (way & 2) != 0,
                                  .has_rival = (way & 4) != 0,
                                  .is_shared = (way & 8) != 0,
                                  .is_semaphore = (way & 16) != 0};
                if (run.is_semaphore && (!run.has_folder || executed > 1))
                    continue; /* as without a gate */
                for (run.gap = 0; run.gap < (run.is_semaphore ? 2 : 4); run.gap++)
                    failures += play_all(run, &runs);
            }
    printf("(%d runs) ", runs);
    CU_ASSERT_EQUAL(failures, 0);
}

/* The node of an abandoned session, whose create was not answered, is looked for and found. Whether it is deleted or ends
 * with its session before: it was there, and is gone. */
static void test_found_and_gone(void)
{
    for (int steps = 0; steps < 12; steps++) {
        struct run run = {.fault = NOTHING};
        mortise_status status = MORTISE_TIMEDOUT;
        bool first;
        fake_reset(false);
        fake_make("/r");
        fake_make("/r/x");
        open_driver(false, HOUR_MS);
        while (!fake_connect())
            if (!run_posted())
                pass_time();
        while (run_posted() || fake_step())
            continue;
        run.op = op_of(MORTISE_OP_ACQUIRE, 1);
        start(&run.op);
        fake_cut(9); /* its create is executed */
        module->cancel(driver_ctx, &run.op);
        CU_ASSERT_EQUAL(run.op.status, MORTISE_INDETERMINATE);
        for (int64_t from_ns = now_ns; now_ns - from_ns < 2 * FAKE_TIMEOUT_MS * MS;)
            if (!run_posted())
                pass_time();
        CU_ASSERT_EQUAL(fake_contenders("/r/x", &first), 1);
        while (!fake_connect())
            if (!run_posted())
                pass_time();
        for (int i = 0; i < steps; i++)
            while (!run_posted() && !fake_step())
                pass_time();
        bool was_there = fake_contenders("/r/x", &first) == 1;
        fake_end_old_sessions();
        CU_ASSERT(release(&run, 1, &status));
        if (was_there)
            CU_ASSERT_EQUAL(status, MORTISE_OK);
        while (run_posted() || fake_step())
            continue;
        close_driver();
    }
}

/* Asks for one of five permits while the first contender has three. It may have been refused for them, and be about to leave. */
static mortise_status ask_for_five(bool is_try, bool leaves, int64_t *took_ns)
{
    struct run run = {.fault = NOTHING};
    mortise_status status;
    bool first;
    fake_reset(true);
    fake_make("/r");
    fake_make("/r/x");
    const char *rival = fake_make("/r/x/_c_x-s3-mortise-lock-");
    open_driver(false, HOUR_MS);
    while (!fake_connect())
        if (!run_posted())
            pass_time();
    while (run_posted() || fake_step())
        continue;
    int64_t from_ns = now_ns;
    run.op = op_of(MORTISE_OP_ACQUIRE, 1);
    run.op.flags = is_try ? MORTISE_OP_TRY : 0;
    run.op.mode = MORTISE_SHARED;
    run.op.permits = 5;
    start(&run.op);
    while (run_posted() || fake_step()) /* what happens at once */
        continue;
    if (leaves)
        CU_ASSERT(fake_delete(rival));
    CU_ASSERT(finish(&run, &run.op));
    *took_ns = now_ns - from_ns;
    CU_ASSERT(release(&run, 1, &status));
    CU_ASSERT_EQUAL(fake_contenders("/r/x", &first), !leaves);
    while (run_posted() || fake_step())
        continue;
    close_driver();
    return run.op.status;
}

static void test_other_permits(void)
{
    int64_t took_ns;
    CU_ASSERT_EQUAL(ask_for_five(false, true, &took_ns), MORTISE_OK);
    CU_ASSERT_EQUAL(ask_for_five(false, false, &took_ns), MORTISE_INVALID);
    CU_ASSERT(took_ns >= 500 * MS && took_ns < 1000 * MS);
    CU_ASSERT_EQUAL(ask_for_five(true, false, &took_ns), MORTISE_INVALID);
    CU_ASSERT_EQUAL(took_ns, 0);
}

/* A connection that is lost meanwhile does not make the half second shorter. */
static void test_other_permits_and_a_cut(void)
{
    struct run run = {.op = op_of(MORTISE_OP_ACQUIRE, 1)};
    mortise_status status;
    fake_reset(true);
    fake_make("/r");
    fake_make("/r/x");
    fake_make("/r/x/_c_x-s3-mortise-lock-");
    open_driver(false, HOUR_MS);
    while (!fake_connect())
        if (!run_posted())
            pass_time();
    while (run_posted() || fake_step())
        continue;
    int64_t from_ns = now_ns;
    run.op.mode = MORTISE_SHARED;
    run.op.permits = 5;
    start(&run.op);
    while (run_posted() || fake_step())
        continue;
    now_ns += 100 * MS;
    fake_cut(0);
    CU_ASSERT(finish(&run, &run.op));
    CU_ASSERT_EQUAL(run.op.status, MORTISE_INVALID);
    CU_ASSERT(now_ns - from_ns >= 500 * MS && now_ns - from_ns < 1000 * MS);
    CU_ASSERT(release(&run, 1, &status));
    while (run_posted() || fake_step())
        continue;
    close_driver();
}

/* The core is told at each answer of the servers that the acquire waits, also for its gate; not because a connection breaks. */
static void told_that_it_waits(bool is_semaphore)
{
    struct run run = {.fault = NOTHING, .is_semaphore = is_semaphore};
    mortise_status status = MORTISE_TIMEDOUT;
    fake_reset(false);
    fake_make("/r");
    fake_make("/r/x");
    if (is_semaphore)
        fake_make("/r/x/locks");
    open_driver(is_semaphore, HOUR_MS);
    told_to_wait = 0;
    run.rival = fake_make(is_semaphore ? "/r/x/locks/_c_x-lock-" : "/r/x/_c_x-lock-");
    const char *rival = run.rival;
    run.op = op_of(MORTISE_OP_ACQUIRE, 1);
    start(&run.op);
    for (int round = 1; round <= 2; round++) {
        while (!fake_connect())
            if (!run_posted())
                pass_time();
        while (run_posted() || fake_step())
            continue;
        CU_ASSERT_EQUAL(told_to_wait, round);
        CU_ASSERT_PTR_NULL(run.op.issuer);
        if (round == 1)
            fake_cut(9);
        CU_ASSERT_EQUAL(told_to_wait, round);
    }
    fake_delete(rival);
    run.rival = NULL;
    CU_ASSERT(finish(&run, &run.op));
    CU_ASSERT_EQUAL(run.op.status, MORTISE_OK);
    CU_ASSERT_EQUAL(told_to_wait, 2);
    CU_ASSERT(release(&run, 1, &status));
    while (run_posted() || fake_step())
        continue;
    close_driver();
}

static void test_told_that_it_waits(void)
{
    told_that_it_waits(false);
    told_that_it_waits(true);
}

int main(void)
{
    CU_TestInfo tests[] = {{"each fault at each request", test_each_fault_at_each_request},
                           {"two faults", test_two_faults},
                           {"found, and gone", test_found_and_gone},
                           {"another number of permits", test_other_permits},
                           {"another number of permits, and a cut", test_other_permits_and_a_cut},
                           {"the core is told that it waits", test_told_that_it_waits},
                           CU_TEST_INFO_NULL};
    return suite_run("zookeeper states", tests);
}
