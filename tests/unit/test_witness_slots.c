/* test_witness_slots.c - what a witness sees of a client's claims: each cell of the table of slots in <mortise/witness.h>. */
#include "witness_test.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>

/* Of how many calls of fallocate() only the last one is not ended by a signal. 0: no signals. */
static int calls_each;
static int calls;          /* of fallocate() */
static off_t allocated_to; /* by the last call that succeeded */

/* In place of the C library's. */
__attribute__((visibility("default"))) int fallocate(int fd, int mode, off_t at, off_t size)
{
    struct stat about;
    calls++;
    if (calls_each > 0 && calls % calls_each != 0) {
        errno = EINTR;
        return -1;
    }
    CU_ASSERT_EQUAL(fstat(fd, &about), 0);
    CU_ASSERT_EQUAL(at, about.st_blocks == 0 ? 0 : allocated_to);
    allocated_to = at + size;
    return (int)syscall(SYS_fallocate, fd, mode, at, size);
}

/* The state of the only slot when the driver is given a request: what was in the area before the request left. */
static mortise_witness_slot at_start[8];
static size_t starts;

static bool look_at_start(mortise_op *op)
{
    if ((op->kind == MORTISE_OP_ACQUIRE || op->kind == MORTISE_OP_RENEW) && starts < 8)
        at_start[starts++] = slot(0);
    return false;
}

static void test_before_the_request(void)
{
    start("");
    starts = 0;
    tap_answer = look_at_start;
    mortise_lease *lease = take(&rig, "orders", MORTISE_OPTIONS(.owner = "me", .ttl_ms = 5000));
    const mortise_op *op = &tapped(MORTISE_OP_ACQUIRE, 0)->op;
    CU_ASSERT_EQUAL_FATAL(starts, 1);
    CU_ASSERT_EQUAL(at_start[0].state, MORTISE_WITNESS_ASKED);
    CU_ASSERT_EQUAL(at_start[0].name_len, 6);
    CU_ASSERT_EQUAL(memcmp(at_start[0].name, "orders", 6), 0);
    CU_ASSERT_EQUAL(at_start[0].owner_len, 2);
    CU_ASSERT_EQUAL(memcmp(at_start[0].owner, "me", 2), 0);
    CU_ASSERT_EQUAL(memcmp(at_start[0].grant, op->grant.bytes, sizeof(op->grant)), 0);
    CU_ASSERT_EQUAL(at_start[0].ttl_ms, 5000);
    CU_ASSERT_EQUAL(at_start[0].ends_ns, INT64_MAX);
    CU_ASSERT_EQUAL(slot(0).state, MORTISE_WITNESS_HELD);
    CU_ASSERT_EQUAL(slot(0).ends_ns, START_NS + 10000 * MS);
    CU_ASSERT_EQUAL(slot(0).flags, 0);
    advance_ms(1700); /* renewed */
    CU_ASSERT_EQUAL_FATAL(starts, 2);
    CU_ASSERT_EQUAL(at_start[1].state, MORTISE_WITNESS_HELD);
    CU_ASSERT_EQUAL(at_start[1].ends_ns, tapped(MORTISE_OP_RENEW, 0)->at_ns + 10000 * MS);
    release(lease);
    CU_ASSERT_EQUAL(slot(0).state, MORTISE_WITNESS_FREE);
    finish();
}

static void test_lost_reply(void)
{
    start("");
    int rule = SCRIPT(.kinds = OP(ACQUIRE), .times = 1, .fate = SIM_LOSE_REPLY,
                      .status = MORTISE_INDETERMINATE);
    int hold = SCRIPT(.kinds = OP(ACQUIRE), .hold_request = true);
    want(&rig, &got, "a", FOREVER);
    advance_ms(1);
    CU_ASSERT_EQUAL(sim->hits(rule), 1);
    mortise_witness_slot asked = slot(0);
    CU_ASSERT_EQUAL(asked.state, MORTISE_WITNESS_ASKED);
    sim->let_go(hold);
    sim->end(hold);
    settle();
    CU_ASSERT_EQUAL_FATAL(got.status, MORTISE_OK);
    CU_ASSERT_EQUAL(slot(0).state,
                    MORTISE_WITNESS_ASKED); /* the first request may be executed yet */
    CU_ASSERT_EQUAL(memcmp(slot(0).grant, asked.grant, sizeof(asked.grant)), 0);
    CU_ASSERT_EQUAL(head().used, 1);
    release(got.lease);
    finish();
}

static void test_busy(void)
{
    start("");
    mortise_lease *lease = take(&rig, "a", NULL);
    want(&rig, &got, "a", FOREVER);
    advance_ms(1);
    CU_ASSERT_EQUAL(count(MORTISE_WITNESS_HELD), 1);
    CU_ASSERT_EQUAL(count(MORTISE_WITNESS_ASKED), 0); /* it pauses, and nothing of it is there */
    release(lease);
    settle();
    CU_ASSERT_EQUAL_FATAL(got.status, MORTISE_OK);
    CU_ASSERT_EQUAL(count(MORTISE_WITNESS_HELD), 1);
    release(got.lease);
    finish();
}

static void test_given_up(void)
{
    start("");
    int hold = SCRIPT(.kinds = OP(ACQUIRE), .times = 1, .hold_request = true,
                      .on_cancel = SIM_CANCEL_IGNORED);
    int end = SCRIPT(.kinds = OP(RELEASE), .hold_reply = true);
    want(&rig, &got, "a", FOREVER);
    CU_ASSERT_FALSE(mortise_has_remains(rig.handle, "a")); /* it is wanted */
    CU_ASSERT_EQUAL(mortise_cancel(rig.handle, got.request), MORTISE_OK);
    settle();
    CU_ASSERT_EQUAL(count(MORTISE_WITNESS_ASKED), 1); /* LEAVING */
    CU_ASSERT(mortise_has_remains(rig.handle, "a"));
    CU_ASSERT_FALSE(mortise_has_remains(rig.handle, "b"));
    CU_ASSERT_FALSE(mortise_has_remains(rig.handle, ""));
    sim->let_go(hold);
    settle();
    CU_ASSERT_EQUAL(count(MORTISE_WITNESS_ASKED), 1); /* ENDING */
    CU_ASSERT(mortise_has_remains(rig.handle, "a"));
    sim->let_go(end);
    sim->end(end);
    settle();
    CU_ASSERT_FALSE(mortise_has_remains(rig.handle, "a"));
    finish();
    CU_ASSERT_FALSE(mortise_has_remains(rig.handle, "a")); /* closed */
}

/* The backend refuses to undo it, and will: what may have been granted is left to its ttl. */
static void test_undo_refused(void)
{
    start("");
    int hold = SCRIPT(.kinds = OP(ACQUIRE), .times = 1, .hold_reply = true,
                      .on_cancel = SIM_CANCEL_IGNORED);
    int refuse = SCRIPT(.kinds = OP(RELEASE), .fate = SIM_REFUSE, .status = MORTISE_BACKEND);
    want(&rig, &got, "a", MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = 5000));
    CU_ASSERT_EQUAL(mortise_cancel(rig.handle, got.request), MORTISE_OK);
    sim->let_go(hold);
    settle();
    CU_ASSERT_EQUAL(sim->hits(refuse), 1);
    CU_ASSERT_EQUAL(sim->claims(), 1);
    CU_ASSERT_EQUAL(sim->outstanding(), 0);
    advance_ms(4999);
    CU_ASSERT(mortise_has_remains(rig.handle, "a"));
    CU_ASSERT_FALSE(mortise_has_remains(rig.handle, ""));
    advance_ms(1);
    CU_ASSERT_FALSE(mortise_has_remains(rig.handle, "a"));
    sim->end(refuse);
    release(take(&rig, "a", NULL));
    finish();
}

static void test_downgrade_and_share(void)
{
    start("");
    mortise_lease *lease = take(&rig, "a", NULL);
    CU_ASSERT_EQUAL(slot(0).flags, 0);
    CU_ASSERT_EQUAL(mortise_downgrade(lease, NULL), MORTISE_OK);
    CU_ASSERT_EQUAL(slot(0).flags, MORTISE_WITNESS_EITHER);
    release(lease);
    lease = take(&rig, "a", MORTISE_OPTIONS(.mode = MORTISE_SHARED, .permits = 7));
    CU_ASSERT_EQUAL(slot(0).flags, MORTISE_WITNESS_SHARED);
    CU_ASSERT_EQUAL(slot(0).permits, 7);
    release(lease);
    finish();
}

static void test_guests(void)
{
    start("");
    rig.client->locks.settings.handover_max = 64;
    mortise_lease *one = take(&rig, "a", MORTISE_OPTIONS(.mode = MORTISE_SHARED));
    mortise_lease *two = take(&rig, "a", MORTISE_OPTIONS(.mode = MORTISE_SHARED));
    CU_ASSERT_EQUAL(stats_of(&rig).joins, 1);
    CU_ASSERT_EQUAL(IN_USE(), 1);
    release(one);
    CU_ASSERT_EQUAL(IN_USE(), 1); /* the guest has it */
    release(two);
    finish();
}

static void test_lost(void)
{
    start("");
    mortise_lease *lease = take(&rig, "a", NULL);
    sim->lose_all();
    advance_ms(1100);
    CU_ASSERT_EQUAL(mortise_state(lease), MORTISE_STATE_LOST);
    CU_ASSERT_EQUAL(count(MORTISE_WITNESS_HELD),
                    1); /* its lease is not released; a release finds nothing */
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_LOST);
    finish();
}

#define MANY 300
static mortise_lease *leases[MANY];

static void take_first(int how_many)
{
    char name[16];
    for (int i = 0; i < how_many; i++) {
        snprintf(name, sizeof(name), "%d", i);
        leases[i] = take(&rig, name, NULL);
    }
}

static void release_first(int how_many)
{
    for (int i = 0; i < how_many; i++)
        release(leases[i]);
}

static void test_many(void)
{
    const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
    start("");
    for (int round = 0; round < 2; round++) {
        take_first(MANY);
        CU_ASSERT_EQUAL(head().used, MANY);
        CU_ASSERT_EQUAL(count(MORTISE_WITNESS_HELD), MANY);
        release_first(MANY);
        CU_ASSERT_EQUAL(IN_USE(), 0);
    }
    CU_ASSERT_EQUAL(fcntl(area, F_GET_SEALS) & seals, seals); /* vm.memfd_noexec adds F_SEAL_EXEC */
    finish();
}

/* Signals end calls that allocate pages: there is a witness, and each claim has a slot. */
static void test_signals(void)
{
    calls = 0;
    calls_each = 4;
    start("");
    take_first(MANY);
    CU_ASSERT_EQUAL(calls, 7 * 4); /* 8, 16, 32, 64, 128, 256 and 512 slots */
    CU_ASSERT_EQUAL(count(MORTISE_WITNESS_HELD), MANY);
    release_first(MANY);
    finish();
    calls_each = 0;
}

/* They end each call: the claim is granted without a slot, and the next one gets a slot when they have ceased. */
static void test_signals_without_end(void)
{
    start("");
    take_first(8);
    calls = 0;
    calls_each = 1 << 30;
    leases[8] = take(&rig, "a", NULL);
    calls_each = 0;
    CU_ASSERT(calls > 4 && calls < 100);
    CU_ASSERT_EQUAL(IN_USE(), 8);
    leases[9] = take(&rig, "b", NULL);
    CU_ASSERT_EQUAL(count(MORTISE_WITNESS_HELD), 9);
    release_first(10);
    finish();
}

/* However many slots there are: a call allocates no page again, and not so many that a timer could end it each time. */
static void test_growth(void)
{
    struct area table;
    off_t before = 0;
    CU_ASSERT_FATAL(area_make(&table));
    for (int i = 0; i < 5000; i++) {
        mortise_witness_slot *slot = area_take(&table);
        CU_ASSERT_PTR_NOT_NULL_FATAL(slot);
        slot_set_state(slot, MORTISE_WITNESS_HELD);
        CU_ASSERT((char *)(slot + 1) <= (char *)table.head + allocated_to);
        CU_ASSERT(allocated_to - before <= 1200000);
        before = allocated_to;
    }
    area_drop(&table);
}

/* More claims than slots: those are not witnessed, and nothing else changes. */
static void test_no_slot_left(void)
{
    start("");
    rig.client->locks.area.most = rig.client->locks.area.ready;
    take_first(20);
    CU_ASSERT_EQUAL(IN_USE(), rig.client->locks.area.most);
    release_first(20);
    finish();
}

/* The claims that a client leaves to their ttl when it closes are the witness's when the process ends. */
static void test_left_by_close(void)
{
    start("close_timeout = 0ms\n");
    take(&rig, "a", NULL);
    SCRIPT(.kinds = OP(RELEASE), .fate = SIM_REFUSE, .status = MORTISE_UNREACHABLE);
    CU_ASSERT_EQUAL(rig_close_any(&rig), MORTISE_UNREACHABLE);
    CU_ASSERT_EQUAL(count(MORTISE_WITNESS_HELD), 1);
    CU_ASSERT_EQUAL(slot(0).ends_ns, START_NS + 6000 * MS); /* as the grant has set it */
    CU_ASSERT_FALSE(hear());                                /* no BYE */
    stop_listening();
    sim->lose_all();
}

static mortise_op *release_op;

/* The reply to the acquire is lost, and the release stays unanswered. */
static bool lose_and_keep(mortise_op *op)
{
    if (op->kind == MORTISE_OP_ACQUIRE)
        tapped_host()->complete(tapped_host(), op, MORTISE_INDETERMINATE);
    else if (op->kind == MORTISE_OP_RELEASE)
        release_op = op;
    return op->kind == MORTISE_OP_ACQUIRE || op->kind == MORTISE_OP_RELEASE;
}

static void (*sim_cancel)(void *ctx, mortise_op *op);

/* The release is answered after all: nothing is there now, but the acquire may be executed yet. */
static void answer_unsure(void *ctx, mortise_op *op)
{
    if (op != release_op) {
        sim_cancel(ctx, op);
        return;
    }
    release_op = NULL;
    op->sure = false;
    tapped_host()->complete(tapped_host(), op, MORTISE_LOST);
}

/* The last answer of a close is "not there", and not sure: the claim is left to its ttl, too, and its slot has an end from now
 * on: the process may live for years, and asks for it no more. */
static void test_left_by_unsure_answer(void)
{
    start("close_timeout = 0ms\n");
    tap_answer = lose_and_keep;
    sim_cancel = rig.client->top->module.cancel;
    rig.client->top->module.cancel = answer_unsure;
    want(&rig, &got, "a", FOREVER);
    CU_ASSERT_EQUAL(mortise_cancel(rig.handle, got.request), MORTISE_OK);
    settle();
    CU_ASSERT_PTR_NOT_NULL_FATAL(release_op);
    CU_ASSERT_EQUAL(count(MORTISE_WITNESS_ASKED), 1);
    CU_ASSERT_EQUAL(slot(0).ends_ns, INT64_MAX);
    CU_ASSERT_EQUAL(rig_close_any(&rig), MORTISE_UNREACHABLE);
    CU_ASSERT_PTR_NULL(release_op);
    CU_ASSERT_EQUAL(count(MORTISE_WITNESS_ASKED), 1);
    CU_ASSERT_EQUAL(slot(0).ends_ns, clock_now() + 6000 * MS + 3600 * NS_PER_S);
    CU_ASSERT_FALSE(hear()); /* no BYE */
    stop_listening();
}

int main(void)
{
    static const CU_TestInfo tests[] = {
        {"a slot is whole before its request leaves", test_before_the_request},
        {"a reply is lost", test_lost_reply},
        {"BUSY leaves nothing", test_busy},
        {"a caller gives up", test_given_up},
        {"the undo is refused", test_undo_refused},
        {"a downgrade, and permits", test_downgrade_and_share},
        {"guests share one slot", test_guests},
        {"lost by the backend's word", test_lost},
        {"hundreds of claims", test_many},
        {"signals while the area grows", test_signals},
        {"signals without end while it grows", test_signals_without_end},
        {"it grows in small steps", test_growth},
        {"no slot is left", test_no_slot_left},
        {"a close that leaves a claim behind", test_left_by_close},
        {"a close whose last answer is not sure", test_left_by_unsure_answer},
        CU_TEST_INFO_NULL,
    };
    signal(SIGPIPE, SIG_IGN);
    return rig_run("witness_slots", tests);
}
