/* test_migrate_replies.c - the migrate plugin when replies are lost. It never requests again what it has released
 * under the same grant id, because the late release would remove it. A leftover presence blocks nobody, least of all
 * its own client. */
#include "migrate_rig.h"

static struct rig rig, stranger;
static struct outcome got;

/* ---- the servers' doors -------------------------------------------------------------------------- */

/* The requests to each server, in their order. */
static struct request {
    void *server;
    mortise_op op;
} requests[1000];
static size_t request_count;
static struct {
    void *ctx;
    void (*start)(void *ctx, mortise_op **ops, size_t n);
} doors[2];

static void watch_door(void *ctx, mortise_op **ops, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (request_count < sizeof requests / sizeof requests[0])
            requests[request_count++] = (struct request){ctx, *ops[i]};
    doors[doors[0].ctx != ctx].start(ctx, ops, n);
}

static void watch_doors(void)
{
    struct instance *below = rig.client->top->next;
    request_count = 0;
    for (int i = 0; i < 2; i++, below = below->next) {
        CU_ASSERT_PTR_NOT_NULL_FATAL(below);
        doors[i].ctx = below->ctx;
        doors[i].start = below->module.start;
        below->module.start = watch_door;
    }
}

/* No acquire reaches a server under a grant that it was asked to release before. */
static void expect_no_grant_twice(void)
{
    size_t releases = 0;
    for (size_t i = 0; i < request_count; i++) {
        const struct request *release = &requests[i];
        if (release->op.kind != MORTISE_OP_RELEASE)
            continue;
        releases++;
        for (size_t j = i + 1; j < request_count; j++)
            CU_ASSERT_FALSE(
                requests[j].op.kind == MORTISE_OP_ACQUIRE &&
                requests[j].server == release->server &&
                memcmp(&requests[j].op.grant, &release->op.grant, sizeof release->op.grant) == 0);
    }
    CU_ASSERT(releases > 0);
}

static void open_both(void)
{
    other->reset();
    migrate_open(&rig, "both", "");
    CU_ASSERT_EQUAL(mortise_release(take(&rig, "warm", NULL), NULL), MORTISE_OK);
    watch_doors();
}

/* Returns whether another client could acquire the name on that side. */
static mortise_status stranger_takes(enum migrate_side side, const char *name)
{
    mortise_lease *lease;
    side_open(&stranger, side);
    mortise_status status = mortise_acquire(stranger.handle, name, TRY, &lease, NULL);
    CU_ASSERT_EQUAL(mortise_close(stranger.handle, NULL), MORTISE_OK);
    return status;
}

static void end_both(void)
{
    expect_no_grant_twice();
    CU_ASSERT_EQUAL(mortise_release_nowait(got.lease, NULL), MORTISE_OK);
    settle();
    rig_close(&rig);
    ASSERT_NOTHING_LEFT_ANYWHERE();
}

/* What `from` and `to` have in common, one node of redlock, say, must not take the request of the one leg for one of the
 * other: that node would vote for a leg 2 that the others refuse, and its undo would end leg 1. */
static void expect_own_grants(void)
{
    size_t pairs = 0;
    for (size_t i = 0; i < request_count; i++)
        for (size_t j = i + 1; j < request_count; j++) {
            const struct request *one = &requests[i], *another = &requests[j];
            if (one->server == another->server || one->op.kind != MORTISE_OP_ACQUIRE ||
                another->op.kind != MORTISE_OP_ACQUIRE)
                continue;
            pairs++;
            CU_ASSERT_NOT_EQUAL(memcmp(&one->op.grant, &another->op.grant, sizeof one->op.grant),
                                0);
        }
    CU_ASSERT(pairs > 0);
}

/* The flags of the first acquire that reached a server since. */
static uint32_t first_flags(void)
{
    size_t i = 0;
    while (i < request_count && requests[i].op.kind != MORTISE_OP_ACQUIRE)
        i++;
    CU_ASSERT_FATAL(i < request_count);
    return requests[i].op.flags;
}

/* ---- the next caller ------------------------------------------------------------------------------- */

/* A driver may send its place together with the release. So it hears of it, if there is one side only. */
static void test_next_caller(void)
{
    for (int both = 0; both <= 1; both++) {
        other->reset();
        sim->reset();
        migrate_open(&rig, both != 0 ? "both" : "old", "");
        mortise_lease *lease = take(&rig, "n", NULL);
        watch_doors();
        want(&rig, &got, "n", FOREVER);
        CU_ASSERT_EQUAL((first_flags() & MORTISE_OP_NEXT) != 0, both == 0);
        CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_OK);
        settle();
        CU_ASSERT_EQUAL_FATAL(got.status, MORTISE_OK);
        CU_ASSERT_EQUAL(mortise_release(got.lease, NULL), MORTISE_OK);
        rig_close(&rig);
        ASSERT_NOTHING_LEFT_ANYWHERE();
    }
}

/* ---- the grants of the two legs ------------------------------------------------------------------- */

static void test_own_grants(void)
{
    open_both();
    CU_ASSERT_EQUAL(mortise_release(take(&rig, "n", NULL), NULL), MORTISE_OK);
    expect_own_grants();
    /* and of a second try */
    other->script(&(sim_rule){
        .kinds = OP(ACQUIRE), .times = 1, .fate = SIM_LOSE_REPLY, .status = MORTISE_INDETERMINATE});
    other->script(&(sim_rule){
        .kinds = OP(ACQUIRE), .times = 1, .fate = SIM_REFUSE, .status = MORTISE_UNREACHABLE});
    want(&rig, &got, "n", FOREVER);
    advance_ms(2000);
    CU_ASSERT_EQUAL_FATAL(got.status, MORTISE_OK);
    expect_own_grants();
    end_both();
}

/* ---- what is given back --------------------------------------------------------------------------- */

/* `to` is unreachable for a moment, `from` is released, and that request arrives later than anybody waits. */
static void test_release_that_comes_late(void)
{
    open_both();
    other->script(&(sim_rule){
        .kinds = OP(ACQUIRE), .times = 1, .fate = SIM_REFUSE, .status = MORTISE_UNREACHABLE});
    int late = SCRIPT(.kinds = OP(RELEASE), .times = 1, .fate = SIM_GHOST,
                      .status = MORTISE_INDETERMINATE, .hold_request = true);
    want(&rig, &got, "n", FOREVER);
    CU_ASSERT_EQUAL(sim->held(late), 1);
    advance_ms(2000);
    CU_ASSERT_EQUAL_FATAL(got.status, MORTISE_OK);
    sim->let_go(late);
    settle();
    CU_ASSERT_EQUAL(stranger_takes(MIGRATE_FROM, "n"), MORTISE_BUSY);
    CU_ASSERT_EQUAL(stranger_takes(MIGRATE_TO, "n"), MORTISE_BUSY);
    end_both();
}

/* The reply of `to` is lost, and then `to` is unreachable: both are released, and that is sure. */
static void test_given_back_for_sure(void)
{
    open_both();
    other->script(&(sim_rule){
        .kinds = OP(ACQUIRE), .times = 1, .fate = SIM_LOSE_REPLY, .status = MORTISE_INDETERMINATE});
    other->script(&(sim_rule){
        .kinds = OP(ACQUIRE), .times = 1, .fate = SIM_REFUSE, .status = MORTISE_UNREACHABLE});
    want(&rig, &got, "n", FOREVER);
    advance_ms(2000);
    CU_ASSERT_EQUAL_FATAL(got.status, MORTISE_OK);
    CU_ASSERT_EQUAL(stranger_takes(MIGRATE_FROM, "n"), MORTISE_BUSY);
    CU_ASSERT_EQUAL(stranger_takes(MIGRATE_TO, "n"), MORTISE_BUSY);
    end_both();
}

/* The reply of `to` is lost, and `from` forgets: its next grant has a token above the one on `to`. */
static void test_first_forgets(void)
{
    open_both();
    int late = other->script(&(sim_rule){.kinds = OP(ACQUIRE),
                                         .times = 1,
                                         .hold_reply = true,
                                         .fate = SIM_LOSE_REPLY,
                                         .status = MORTISE_INDETERMINATE});
    want(&rig, &got, "n", FOREVER);
    CU_ASSERT_EQUAL(other->held(late), 1);
    CU_ASSERT(sim->lose("n"));
    other->let_go(late);
    advance_ms(2000);
    CU_ASSERT_EQUAL_FATAL(got.status, MORTISE_OK);
    end_both();
}

/* A try whose request to `from` has no answer when the time is over may still be granted. */
static void test_try_never_answered(void)
{
    open_both();
    SCRIPT(.kinds = OP(ACQUIRE), .times = 1, .fate = SIM_SILENT_EXECUTED);
    want(&rig, &got, "n", TRY);
    advance_ms(10100);
    CU_ASSERT_EQUAL(got.calls, 1);
    CU_ASSERT_EQUAL(got.status, MORTISE_INDETERMINATE);
    advance_ms(2000);
    rig_close(&rig);
    ASSERT_NOTHING_LEFT_ANYWHERE();
}

/* ---- presences ------------------------------------------------------------------------------------ */

static void want_refused(void)
{
    register_set(MIGRATE_FROM, MIGRATE_BOTH, 0);
    want(&rig, &got, "n", FOREVER);
    CU_ASSERT_EQUAL(got.status, MORTISE_CONFIG);
    register_set(MIGRATE_FROM, MIGRATE_OLD | MIGRATE_BOTH, 0);
}

/* Each refusal reads the registers. Whom the message names is asked for once in five seconds, because the answer may cost a server
 * a look at all its keys. */
static void test_refused_again(void)
{
    static const char new[] = MIGRATE_PRESENCES "new/0123456789abcdef0123456789abcdef";
    other->reset();
    other->seize(new, MORTISE_NEVER);
    migrate_open(&rig, "old", "");
    for (unsigned lists = 1; lists <= 2; lists++, advance_ms(5000))
        for (int i = 0; i < 2; i++) {
            want_refused();
            CU_ASSERT_PTR_NOT_NULL(strstr(got.error.message, "this client would meet "));
            CU_ASSERT_EQUAL(other->count(MORTISE_OP_LIST), lists);
        }
    other->give_back(new);
    want(&rig, &got, "n", TRY);
    CU_ASSERT_EQUAL_FATAL(got.status, MORTISE_OK);
    CU_ASSERT_EQUAL(mortise_release_nowait(got.lease, NULL), MORTISE_OK);
    settle();
    rig_close(&rig);
    ASSERT_NOTHING_LEFT_ANYWHERE();
}

/* A client is refused, and the release of its presence is lost: as soon as its phase is admitted, it works. */
static void test_presence_left_over(void)
{
    other->reset();
    migrate_open(&rig, "old", "");
    SCRIPT(.kinds = OP(RELEASE), .times = 2, .fate = SIM_REFUSE, .status = MORTISE_UNREACHABLE);
    want_refused();
    CU_ASSERT_EQUAL(sim->claims(), 1);
    want(&rig, &got, "n", TRY);
    CU_ASSERT_EQUAL(got.status, MORTISE_UNREACHABLE); /* it cannot be released yet */
    want(&rig, &got, "n", TRY);
    CU_ASSERT_EQUAL_FATAL(got.status, MORTISE_OK);
    CU_ASSERT_EQUAL(mortise_release_nowait(got.lease, NULL), MORTISE_OK);
    settle();
    rig_close(&rig); /* nothing is left */
    ASSERT_NOTHING_LEFT_ANYWHERE();
}

/* The first request for it is still under way when it is released: the release is not sure before that request has
 * arrived. */
static void test_presence_that_comes_late(void)
{
    other->reset();
    migrate_open(&rig, "old", "");
    int late = SCRIPT(.kinds = OP(ACQUIRE), .times = 1, .fate = SIM_GHOST,
                      .status = MORTISE_INDETERMINATE, .hold_request = true);
    want(&rig, &got, "n", TRY);
    CU_ASSERT_EQUAL(got.status, MORTISE_UNREACHABLE);
    CU_ASSERT_EQUAL_FATAL(sim->held(late), 1);
    want_refused();
    CU_ASSERT_EQUAL(sim->claims(), 0);
    want(&rig, &got, "n", TRY); /* it did not exist, and may still be created */
    CU_ASSERT_EQUAL(got.status, MORTISE_UNREACHABLE);
    sim->let_go(late);
    settle();
    CU_ASSERT_EQUAL(sim->claims(), 1);
    want(&rig, &got, "n", TRY);
    CU_ASSERT_EQUAL_FATAL(got.status, MORTISE_OK);
    CU_ASSERT_EQUAL(mortise_release_nowait(got.lease, NULL), MORTISE_OK);
    settle();
    rig_close(&rig);
    ASSERT_NOTHING_LEFT_ANYWHERE();
}

/* A driver refuses to acquire a grant again while an undo of its own may still be on its way to the server: BUSY. So
 * the presence is released and acquired under another grant, which that undo cannot delete. */
static void test_presence_that_may_be_undone(void)
{
    sim->reset();
    other->reset();
    migrate_open(&rig, "old", "");
    SCRIPT(.kinds = OP(ACQUIRE), .times = 1, .fate = SIM_REFUSE, .status = MORTISE_INDETERMINATE);
    want(&rig, &got, "n", TRY);
    CU_ASSERT_NOT_EQUAL(got.status, MORTISE_OK);
    SCRIPT(.kinds = OP(ACQUIRE), .times = 1, .fate = SIM_REFUSE, .status = MORTISE_BUSY);
    want(&rig, &got, "n", TRY);
    CU_ASSERT_NOT_EQUAL(got.status, MORTISE_OK);
    SCRIPT(.kinds = OP(RELEASE), .times = 1, .fate = SIM_REFUSE, .status = MORTISE_UNREACHABLE);
    want(&rig, &got, "n", TRY);
    CU_ASSERT_EQUAL(got.status, MORTISE_UNREACHABLE); /* the old grant is not released yet */
    want(&rig, &got, "n", TRY);
    CU_ASSERT_EQUAL_FATAL(got.status, MORTISE_OK);
    CU_ASSERT_EQUAL(mortise_release_nowait(got.lease, NULL), MORTISE_OK);
    settle();
    rig_close(&rig);
    ASSERT_NOTHING_LEFT_ANYWHERE();
}

/* The close releases a leftover presence once more, and reports whether that worked. */
static void test_presence_left_at_the_close(void)
{
    for (unsigned times = 1; times <= 2; times++) {
        sim->reset();
        other->reset();
        migrate_open(&rig, "old", "");
        SCRIPT(.kinds = OP(RELEASE), .times = times, .fate = SIM_REFUSE,
               .status = MORTISE_UNREACHABLE);
        want_refused();
        CU_ASSERT_EQUAL(rig_close_any(&rig), times == 1 ? MORTISE_OK : MORTISE_UNREACHABLE);
        CU_ASSERT_EQUAL(sim->claims(), times - 1);
    }
}

/* The side of leg 2 does not answer: nobody knows who holds the name, nor with which token. */
static void test_inspect_of_one_side(void)
{
    mortise_info info = {.size = sizeof info};
    other->reset();
    migrate_open(&rig, "both", "");
    mortise_lease *lease = take(&rig, "n", NULL);
    sim_rule away = {
        .kinds = OP(INSPECT), .times = 1, .fate = SIM_REFUSE, .status = MORTISE_UNREACHABLE};
    other->script(&away);
    CU_ASSERT_EQUAL(mortise_inspect(rig.handle, "n", &info, NULL), MORTISE_UNREACHABLE);
    sim->script(&away); /* leg 2 alone tells the holder */
    CU_ASSERT_EQUAL(mortise_inspect(rig.handle, "n", &info, NULL), MORTISE_OK);
    CU_ASSERT(info.held);
    CU_ASSERT_EQUAL(info.token, mortise_token(lease));
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_OK);
    rig_close(&rig);
    ASSERT_NOTHING_LEFT_ANYWHERE();
}

static bool add_name(const mortise_info *info, void *names)
{
    size_t used = strlen(names);
    CU_ASSERT(info->held);
    snprintf((char *)names + used, 200 - used, "%s=%" PRIu64 " ", info->name, info->token);
    return true;
}

/* Clients of phase new hold names on `to` only. A name that is on both sides has the token that an inspect tells. */
static void test_list_of_both_sides(void)
{
    char names[200] = "", wanted[200];
    sim_rule away = {
        .kinds = OP(LIST), .times = 1, .fate = SIM_REFUSE, .status = MORTISE_UNREACHABLE};
    other->reset();
    migrate_open(&rig, "both", "[sim]\nnamespace = f:\n[sim_other]\nnamespace = to:\n");
    CU_ASSERT_EQUAL(mortise_list(rig.handle, "", add_name, names, NULL), MORTISE_OK);
    CU_ASSERT_STRING_EQUAL(names, "");
    mortise_lease *lease = take(&rig, "x/n", NULL);
    uint64_t z = sim->seize("f:x/z", MORTISE_NEVER), b = sim->seize("f:x/b", MORTISE_NEVER),
             m = other->seize("to:x/m", MORTISE_NEVER), a = other->seize("to:x/a", MORTISE_NEVER),
             o = other->seize("to:x/o", MORTISE_NEVER), y = other->seize("to:y", MORTISE_NEVER);
    sim->seize("f:x/m", MORTISE_NEVER); /* by one that waits for `to` */
    snprintf(wanted, sizeof wanted,
             "x/a=%" PRIu64 " x/b=%" PRIu64 " x/m=%" PRIu64 " x/n=%" PRIu64 " x/o=%" PRIu64
             " x/z=%" PRIu64 " ",
             a, b, m, mortise_token(lease), o, z);
    CU_ASSERT_EQUAL(mortise_list(rig.handle, "x/", add_name, names, NULL), MORTISE_OK);
    CU_ASSERT_STRING_EQUAL(names, wanted);
    snprintf(wanted + strlen(wanted), sizeof wanted - strlen(wanted), "y=%" PRIu64 " ", y);
    names[0] = '\0';
    CU_ASSERT_EQUAL(mortise_list(rig.handle, "", add_name, names, NULL), MORTISE_OK);
    CU_ASSERT_STRING_EQUAL(names, wanted);

    names[0] = '\0';
    sim->script(&away);
    CU_ASSERT_EQUAL(mortise_list(rig.handle, "", add_name, names, NULL), MORTISE_UNREACHABLE);
    other->script(&away);
    CU_ASSERT_EQUAL(mortise_list(rig.handle, "", add_name, names, NULL), MORTISE_UNREACHABLE);
    CU_ASSERT_STRING_EQUAL(names, "");
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_OK);
    rig_close(&rig);
    sim->reset();
    other->reset();
}

/* The one side did it, and the other one did not: nobody may read that as "nothing was done". */
static void test_break_on_one_side(void)
{
    sim_rule away = {
        .kinds = OP(RELEASE), .times = 1, .fate = SIM_REFUSE, .status = MORTISE_UNREACHABLE};
    for (unsigned executed = 0; executed <= 1; executed++) {
        other->reset();
        sim->reset();
        migrate_open(&rig, "both", "");
        uint64_t token = sim->seize("n", MORTISE_NEVER);
        other->script(&away);
        if (executed == 0)
            sim->script(&away);
        CU_ASSERT_EQUAL(mortise_break(rig.handle, "n", token, NULL),
                        executed == 1 ? MORTISE_INDETERMINATE : MORTISE_UNREACHABLE);
        CU_ASSERT_EQUAL(sim->holds("n", token), executed == 0);
        rig_close(&rig);
    }
    sim->reset();
}

int main(void)
{
    static const CU_TestInfo tests[] = {
        {"the next caller of this client", test_next_caller},
        {"each leg has grants of its own", test_own_grants},
        {"a release that comes late", test_release_that_comes_late},
        {"given back for sure", test_given_back_for_sure},
        {"the first side forgets", test_first_forgets},
        {"a try that is never answered", test_try_never_answered},
        {"refused again and again", test_refused_again},
        {"a presence that is left over", test_presence_left_over},
        {"a presence that comes late", test_presence_that_comes_late},
        {"a presence that may be undone", test_presence_that_may_be_undone},
        {"a presence that is left at the close", test_presence_left_at_the_close},
        {"inspect, one side away", test_inspect_of_one_side},
        {"list, of both sides", test_list_of_both_sides},
        {"break, on one side only", test_break_on_one_side},
        CU_TEST_INFO_NULL,
    };
    return migrate_rig_run("migrate_replies", tests);
}
