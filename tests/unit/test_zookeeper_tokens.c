/* test_zookeeper_tokens.c - claims that need a larger base of the tokens: one write is for all that wait for it
 * (drivers/zookeeper/tokens.c). And what can come between, after each request: another client raises the base, and a holder
 * that counted with it leaves; the node is deleted or spoilt; the connection is lost; the session ends; a caller gives up, or
 * comes. */
#include "fake_zookeeper.h"
#include "suite.h"
#include "zookeeper_host.h"

#include <stdio.h>
#include <string.h>

#define BASE "/r/%tokens"
#define MANY 30
#define ENOUGH 3000 /* rounds; far more than any run takes */

static void settle(void)
{
    while (run_posted() || fake_step())
        continue;
}

static void open_connected(void)
{
    fake_reset(true);
    fake_make("/r");
    open_driver(false, HOUR_MS);
    while (!fake_connect())
        if (!run_posted())
            pass_time();
    settle();
}

static void end(void)
{
    settle();
    close_driver();
}

static mortise_op ask(const char *name, unsigned char grant, uint64_t floor)
{
    mortise_op op = op_of(MORTISE_OP_ACQUIRE, grant);
    op.name = name;
    op.name_len = strlen(name);
    op.token_floor = floor;
    return op;
}

static int writes(void)
{
    int count;
    (void)fake_number(BASE, &count);
    return count;
}

/* ---- many at once ----------------------------------------------------------------------------------------- */

/* Each gets its floor for a token. step: from one floor to the next. Returns how often the base was written for them. */
static int ask_many(char first_letter, uint64_t floor, int64_t step)
{
    static mortise_op ops[MANY];
    static char names[MANY][4];
    int before = writes();
    for (int i = 0; i < MANY; i++) {
        snprintf(names[i], sizeof(names[i]), "%c%d", first_letter, i);
        ops[i] = ask(names[i], 1, floor + (uint64_t)(i * step));
        start(&ops[i]);
    }
    settle();
    for (int i = 0; i < MANY; i++) {
        CU_ASSERT_PTR_NOT_NULL_FATAL(ops[i].issuer);
        CU_ASSERT_EQUAL(ops[i].status, MORTISE_OK);
        CU_ASSERT_EQUAL(ops[i].token, ops[i].token_floor);
    }
    return writes() - before;
}

static void test_many(void)
{
    open_connected();
    CU_ASSERT_EQUAL(ask_many('a', 1000000, 1000),
                    2); /* one for the first that came, one for the others */
    CU_ASSERT_EQUAL(ask_many('b', 2000000, 1000),
                    2); /* the base was raised, and is not watched any more */
    CU_ASSERT_EQUAL(ask_many('c', 4000000, -1000), 1); /* the first one's is enough for all */
    end();
}

/* Shared claims of one name with one floor do not get one token. */
static void test_readers(void)
{
    static mortise_op ops[MANY];
    const uint64_t floor = 1000000;
    open_connected();
    for (int i = 0; i < MANY; i++) {
        ops[i] = ask("x", (unsigned char)(i + 1), floor);
        ops[i].mode = MORTISE_SHARED;
        start(&ops[i]);
    }
    settle();
    for (int i = 0; i < MANY; i++) {
        CU_ASSERT_PTR_NOT_NULL_FATAL(ops[i].issuer);
        CU_ASSERT_EQUAL(ops[i].status, MORTISE_OK);
        CU_ASSERT_EQUAL(ops[i].token, floor + (uint64_t)i);
    }
    CU_ASSERT_EQUAL(writes(), 1);
    end();
}

/* ---- what comes between ------------------------------------------------------------------------------------ */

enum event {
    NOTHING,
    RAISED_LITTLE,
    RAISED_FAR,
    DELETED,
    SPOILT,
    CUT,
    EXPIRED,
    CANCELED,
    ASKED,
    EVENTS
};

/* The name "w" is another client's at first; two want to share "s"; the last one is ASKED for later. */
enum { NAMES = 4, FIRST_READER = NAMES, SECOND_READER, LATER, OPS };

struct run {
    enum event event;
    int at, gap;  /* after so many requests; so many more, and the other client leaves */
    int executed; /* CUT: of the open requests */
    int again;    /* CUT: when all is granted, once more after so many requests; 0: not */
    /* as it goes on: */
    int steps;
    int started; /* ops */
    bool is_checked[OPS];
    const char *rival; /* the other client's node; NULL: it has left, */
    int64_t its_base;  /* and with this base at most */
    const char *problem;
};

static mortise_op ops[OPS];

static void raise_to(int64_t base)
{
    char text[32];
    int count;
    int64_t now = fake_number(BASE, &count);
    snprintf(text, sizeof(text), "%lld", (long long)(now < base ? base : now + 10));
    fake_write(BASE, text);
}

static void strike(struct run *run)
{
    switch (run->event) {
    case RAISED_LITTLE: /* less than some need */
        raise_to(1500000);
        break;
    case RAISED_FAR:
        raise_to(20000000);
        break;
    case DELETED:
        fake_delete(BASE);
        break;
    case SPOILT:
        fake_write(BASE, "many");
        break;
    case CUT:
        fake_cut(run->executed);
        break;
    case EXPIRED:
        fake_expire();
        break;
    case CANCELED:
        if (ops[1].issuer == NULL)
            module->cancel(driver_ctx, &ops[1]);
        break;
    case ASKED:
        start(&ops[LATER]);
        run->started = OPS;
        break;
    default:
        break;
    }
}

static void rival_leaves(struct run *run)
{
    int count;
    if (run->rival == NULL)
        return;
    run->its_base = fake_number(BASE, &count);
    fake_delete(run->rival);
    run->rival = NULL;
}

/* What an acquire was granted, at this moment. */
static void check(struct run *run, int index)
{
    static const char *const folders[NAMES] = {"/r/a/", "/r/b/", "/r/c/", "/r/w/"};
    const mortise_op *op = &ops[index];
    int count;
    run->is_checked[index] = true;
    if (op->status == MORTISE_OK && op->token < op->token_floor)
        run->problem = "below the floor";
    if (op->status == MORTISE_OK && index == 3 && run->rival != NULL)
        run->problem = "granted beside another client";
    int64_t czxid = index < NAMES ? fake_czxid(folders[index]) : 0;
    if (op->status != MORTISE_OK || czxid == 0 || run->event == DELETED || run->event == SPOILT)
        return;
    int64_t base = (int64_t)op->token - czxid;
    if (base > fake_number(BASE, &count))
        run->problem = "a larger base than others may read";
    if (index == 3 && base < run->its_base)
        run->problem = "a smaller base than that of the holder before";
}

static void go_on(struct run *run)
{
    if (run_posted() || fake_connect())
        return;
    if (fake_step()) {
        if (++run->steps == run->at)
            strike(run);
        if (run->steps == run->at + run->gap)
            rival_leaves(run);
    } else if (run->rival != NULL)
        rival_leaves(run);
    else
        pass_time();
}

static bool is_expected(const struct run *run, int index)
{
    mortise_status status = ops[index].status;
    return status == MORTISE_OK || (run->event == SPOILT && status == MORTISE_BACKEND) ||
           (run->event == CANCELED && index == 1 &&
            (status == MORTISE_CANCELED || status == MORTISE_INDETERMINATE));
}

static void play_to_the_end(struct run *run)
{
    bool are_done = false;
    for (int i = 0; i < ENOUGH && !are_done; i++) {
        go_on(run);
        are_done = true;
        for (int op = 0; op < run->started; op++) {
            are_done &= ops[op].issuer != NULL;
            if (ops[op].issuer != NULL && !run->is_checked[op])
                check(run, op);
        }
    }
    if (!are_done)
        run->problem = "not answered";
    for (int op = 0; op < run->started && are_done; op++)
        if (!is_expected(run, op))
            run->problem = mortise_status_name(ops[op].status);
    if (ops[FIRST_READER].status == MORTISE_OK && ops[SECOND_READER].status == MORTISE_OK &&
        ops[FIRST_READER].token == ops[SECOND_READER].token)
        run->problem = "two readers with one token";
}

/* A write that the cut has lost is repeated: others read the token that the holder has. */
static bool is_noted(int index)
{
    static const char *const folders[NAMES] = {"/r/a/", "/r/b/", "/r/c/", "/r/w/"};
    char note[64];
    snprintf(note, sizeof(note), "mortise/1 %lld\n" NOTE,
             (long long)((int64_t)ops[index].token - fake_czxid(folders[index])));
    return fake_says(folders[index], note);
}

/* The connection may be lost again, with the write that repeats the first. */
static void check_notes(struct run *run)
{
    int64_t until_ns = now_ns + (run->again == 0 ? 300 * MS : FAKE_TIMEOUT_MS * MS);
    for (int steps = 0; now_ns < until_ns;)
        if (!run_posted() && !fake_connect()) {
            if (!fake_step())
                pass_time();
            else if (++steps == run->again)
                fake_cut(0);
        }
    for (int op = 0; op < NAMES; op++)
        if (!is_noted(op))
            run->problem = "another token in its node";
}

static void play(struct run *run)
{
    ops[0] = ask("a", 1, 1000000);
    ops[1] = ask("b", 2, 3000000);
    ops[2] = ask("c", 3, 2000000);
    ops[3] = ask("w", 4, 2500000);
    ops[FIRST_READER] = ask("s", 5, 2000000);
    ops[SECOND_READER] = ask("s", 6, 2000000);
    ops[FIRST_READER].mode = ops[SECOND_READER].mode = MORTISE_SHARED;
    ops[LATER] = ask("l", 7, 9000000);
    run->started = LATER;
    open_connected();
    fake_make("/r/w");
    run->rival = fake_make("/r/w/_c_x-lock-");
    for (int op = 0; op < run->started; op++)
        start(&ops[op]);
    play_to_the_end(run);
    if (run->event == CUT && run->problem == NULL)
        check_notes(run);
    end();
}

/* Strikes after each request in turn, until a run is over before it is struck. */
static int play_all(struct run run, int *runs)
{
    int failures = 0;
    for (run.at = 1; run.at < 200; run.at++) {
        struct run one = run;
        play(&one);
        ++*runs;
        if (one.problem != NULL) {
            printf("\n    event %d after %d and %d, executed %d, again %d: %s ", run.event, run.at,
                   run.gap, run.executed, run.again, one.problem);
            failures++;
        }
        if (one.steps < run.at)
            break;
    }
    return failures;
}

static void test_each_event_at_each_request(void)
{
    int failures = 0, runs = 0;
    for (enum event event = NOTHING; event < EVENTS; event++)
        for (int gap = 0; gap < 4; gap++)
            for (int executed = 0; executed < (event == CUT ? 6 : 1); executed++) {
                struct run run = {.event = event, .gap = gap, .executed = executed};
                failures += play_all(run, &runs);
            }
    for (int again = 1; again < 16; again++) {
        struct run run = {.event = CUT, .again = again};
        failures += play_all(run, &runs);
    }
    printf("(%d runs) ", runs);
    CU_ASSERT_EQUAL(failures, 0);
}

int main(void)
{
    CU_TestInfo tests[] = {{"many that need a larger base", test_many},
                           {"readers that need a larger base", test_readers},
                           {"each event at each request", test_each_event_at_each_request},
                           CU_TEST_INFO_NULL};
    return suite_run("zookeeper tokens", tests);
}
