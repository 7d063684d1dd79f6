/* test_migrate_large.c - the migrate plugin over a driver that needs as much as the core has room for, such as a large cluster: the
 * core has that room with the plugin too. */
#include "migrate_rig.h"

#include <sys/eventfd.h>
#include <unistd.h>

static struct rig rig;

/* The driver of a side: that of `to` was opened last. */
static struct instance *driver_of(enum migrate_side side)
{
    struct instance *to = rig.client->top->next;
    CU_ASSERT_FATAL(to != NULL && to->next != NULL);
    return side == MIGRATE_TO ? to : to->next;
}

/* ---- descriptors ---------------------------------------------------------------------------------- */

/* A driver with as many connections as the core polls. The answer to the acquire comes over the last one. */
static struct {
    mortise_module own;
    int fds[PUMP_FDS], rule;
    size_t ready; /* how many were reported as ready */
} wide;

static size_t wide_interest(void *ctx, struct pollfd *fds, size_t capacity, int64_t *due_ns)
{
    size_t count = capacity < PUMP_FDS ? capacity : PUMP_FDS;
    wide.own.interest(ctx, fds, capacity, due_ns);
    for (size_t i = 0; i < count; i++)
        fds[i] = (struct pollfd){.fd = wide.fds[i], .events = POLLIN};
    return count;
}

static void wide_turn(void *ctx, const struct pollfd *ready, size_t n)
{
    uint64_t value;
    wide.ready += n;
    for (size_t i = 0; i < n; i++) {
        CU_ASSERT_EQUAL(read(ready[i].fd, &value, sizeof value), sizeof value);
        if (ready[i].fd == wide.fds[PUMP_FDS - 1])
            sim->let_go(wide.rule);
    }
    wide.own.turn(ctx, NULL, 0);
}

static void make_wide(struct instance *below)
{
    wide.own = below->module;
    for (int i = 0; i < PUMP_FDS; i++) {
        wide.fds[i] = eventfd(0, EFD_CLOEXEC);
        CU_ASSERT_FATAL(wide.fds[i] >= 0);
    }
    below->module.interest = wide_interest;
    below->module.turn = wide_turn;
}

static void signal_fds(int from)
{
    const uint64_t one = 1;
    wide.ready = 0;
    for (int i = from; i < PUMP_FDS; i++)
        CU_ASSERT_EQUAL(write(wide.fds[i], &one, sizeof one), sizeof one);
    settle();
}

static void test_descriptors(void)
{
    struct outcome got;
    other->reset();
    migrate_open(&rig, "old", "");
    make_wide(driver_of(MIGRATE_FROM));
    CU_ASSERT_EQUAL(mortise_release(take(&rig, "warm", NULL), NULL), MORTISE_OK);
    wide.rule = SCRIPT(.kinds = OP(ACQUIRE), .name = "n", .times = 1, .hold_reply = true);
    want(&rig, &got, "n", TRY);
    CU_ASSERT_EQUAL(got.calls, 0);
    signal_fds(PUMP_FDS - 1);
    CU_ASSERT_EQUAL(wide.ready, 1);
    CU_ASSERT_EQUAL_FATAL(got.status, MORTISE_OK);
    signal_fds(0); /* all at once */
    CU_ASSERT_EQUAL(wide.ready, PUMP_FDS);
    CU_ASSERT_EQUAL(mortise_release(got.lease, NULL), MORTISE_OK);
    rig_close(&rig);
    for (int i = 0; i < PUMP_FDS; i++)
        close(wide.fds[i]);
    ASSERT_NOTHING_LEFT_ANYWHERE();
}

/* ---- the answer to a ping ------------------------------------------------------------------------- */

/* A driver that names many masters, and then what it has found. */
static char answers[2][MORTISE_PING_SIZE], pinged[MORTISE_PING_SIZE];
static mortise_module plain[2];

static void long_start(void *ctx, mortise_op **ops, size_t n)
{
    const enum migrate_side side = ctx == driver_of(MIGRATE_TO)->ctx ? MIGRATE_TO : MIGRATE_FROM;
    struct instance *below = driver_of(side);
    for (size_t i = 0; i < n; i++) {
        if (ops[i]->kind != MORTISE_OP_PING) {
            plain[side].start(ctx, &ops[i], 1);
            continue;
        }
        snprintf(ops[i]->buffer, ops[i]->buffer_size, "%s", answers[side]);
        below->host.complete(&below->host, ops[i], MORTISE_OK);
    }
}

/* facts: how long they are. */
static void answer_with(enum migrate_side side, size_t facts, const char *findings)
{
    struct instance *below = driver_of(side);
    if (below->module.start != long_start)
        plain[side] = below->module;
    below->module.start = long_start;
    memset(answers[side], side == MIGRATE_FROM ? 'f' : 't', facts);
    snprintf(answers[side] + facts, sizeof answers[side] - facts, "%s", findings);
}

static void ping(void)
{
    CU_ASSERT_EQUAL(mortise_ping(rig.handle, pinged, sizeof pinged, NULL), MORTISE_OK);
}

static size_t count_of(char letter)
{
    size_t count = 0;
    for (const char *at = strchr(pinged, ' '); at != NULL && (at = strchr(at, letter)) != NULL;
         at++)
        count += at[1] == letter;
    return count;
}

/* What `mortise doctor` needs is at the end. */
static void test_findings(void)
{
    const size_t most = sizeof pinged - 100;
    other->reset();
    migrate_open(&rig, "old", "");
    answer_with(MIGRATE_FROM, 6000, " | risk: last");
    ping();
    CU_ASSERT_PTR_NOT_NULL(strstr(pinged, "f | risk: last"));
    CU_ASSERT_EQUAL(count_of('f'), 5999);
    answer_with(MIGRATE_FROM, sizeof answers[0] - sizeof " | risk: last", " | risk: last");
    ping();
    CU_ASSERT_PTR_NOT_NULL(strstr(pinged, "f | risk: last"));
    CU_ASSERT(strlen(pinged) > sizeof pinged - 20);
    rig_close(&rig);
    migrate_open(&rig, "both", "");
    for (int which = 0; which < 3; which++) { /* which sides need much room */
        answer_with(MIGRATE_FROM, which != 1 ? most : 100, " | risk: first");
        answer_with(MIGRATE_TO, which != 0 ? most : 100, " | note: last");
        ping();
        CU_ASSERT_PTR_NOT_NULL(strstr(pinged, "t | risk: first | note: last"));
        CU_ASSERT(strlen(pinged) > sizeof pinged - 20);
        CU_ASSERT(which == 0 ? count_of('t') == 99 : count_of('t') > 4000);
        CU_ASSERT(which == 1 ? count_of('f') == 99 : count_of('f') > 4000);
    }
    rig_close(&rig);
    ASSERT_NOTHING_LEFT_ANYWHERE();
}

int main(void)
{
    static const CU_TestInfo tests[] = {
        {"all descriptors that the core polls", test_descriptors},
        {"all findings of the answer to a ping", test_findings},
        CU_TEST_INFO_NULL,
    };
    return migrate_rig_run("migrate_large", tests);
}
