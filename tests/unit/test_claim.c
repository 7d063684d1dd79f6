/* test_claim.c - cells of the table of a claim (core/lock/claim.h) that no test of a promise reaches, or reaches without
 * telling them from their neighbours. docs/testing.md lists the test of every cell. The state is read from the claim. */
#include "contest_test.h"

#define TTL_3S "ttl = 3s\n"
#define DEADLINE_MS (3000 - 32)

/* The next op of this kind is executed, and its answer waits until let_go(); a cancel changes nothing. */
#define HOLD(kind_, ...)                                                                           \
    SCRIPT(.kinds = OP(kind_), .times = 1, .hold_reply = true, .on_cancel = SIM_CANCEL_IGNORED,    \
           __VA_ARGS__)
#define HOLD_RELEASE() HOLD(RELEASE, .fate = SIM_PASS)
#define LOSE(...)                                                                                  \
    SCRIPT(.kinds = OP(ACQUIRE), .fate = SIM_LOSE_REPLY, .status = MORTISE_INDETERMINATE,          \
           __VA_ARGS__)

static void let_go(int rule)
{
    sim->let_go(rule);
    settle();
}

static struct name *the_name(void)
{
    return name_find_locked(&rig.client->locks, "a", 1);
}

/* A claim of "a" in this state, or NULL. */
static struct claim *claim_in(enum claim_state state)
{
    struct claim *claim = the_name() == NULL ? NULL : the_name()->claims;
    while (claim != NULL && claim->state != state)
        claim = claim->next;
    return claim;
}

static struct claim *one_in(enum claim_state state)
{
    struct claim *claim = claim_in(state);
    CU_ASSERT_PTR_NOT_NULL_FATAL(claim);
    return claim;
}

static void cancel(struct outcome *outcome)
{
    CU_ASSERT_EQUAL(mortise_cancel(rig.handle, outcome->request), MORTISE_OK);
    settle();
    CU_ASSERT_EQUAL(outcome->status, MORTISE_CANCELED);
}

/* ---- LEAVING --------------------------------------------------------------------------------------- */

static const struct leaving {
    const char *name;
    sim_fate fate;
    mortise_status status;
    bool maybe; /* an earlier reply under this id was lost */
    enum claim_state next;
} leavings[] = {
    {"OK", SIM_PASS, MORTISE_OK, false, CLAIM_ENDING},
    {"OK, maybe", SIM_PASS, MORTISE_OK, true, CLAIM_ENDING},
    {"BUSY", SIM_REFUSE, MORTISE_BUSY, false, CLAIM_GONE},
    {"BUSY, maybe", SIM_REFUSE, MORTISE_BUSY, true, CLAIM_ENDING},
    {"INDETERMINATE", SIM_LOSE_REPLY, MORTISE_INDETERMINATE, false, CLAIM_ENDING},
    {"INDETERMINATE, maybe", SIM_LOSE_REPLY, MORTISE_INDETERMINATE, true, CLAIM_ENDING},
    {"UNREACHABLE", SIM_REFUSE, MORTISE_UNREACHABLE, false, CLAIM_GONE},
    {"UNREACHABLE, maybe", SIM_REFUSE, MORTISE_UNREACHABLE, true, CLAIM_ENDING},
    {"CANCELED, maybe", SIM_REFUSE, MORTISE_CANCELED, true, CLAIM_ENDING},
    {"BACKEND, maybe", SIM_REFUSE, MORTISE_BACKEND, true, CLAIM_ENDING},
};

static void leave_and_answer(const struct leaving *is)
{
    before_each();
    start(CONFIG);
    if (is->maybe)
        LOSE(.times = 1);
    int ask = HOLD(ACQUIRE, .fate = is->fate, .status = is->status), end = HOLD_RELEASE();
    want(&rig, &got, "a", FOREVER);
    struct claim *claim = one_in(CLAIM_ASKING);
    CU_ASSERT_EQUAL(claim->maybe, is->maybe);
    cancel(&got);
    CU_ASSERT_EQUAL(claim->state, CLAIM_LEAVING);
    CU_ASSERT_EQUAL(tapped_count(MORTISE_OP_RELEASE), 0);
    const mortise_grant_id id = claim->id;
    let_go(ask);
    CU_ASSERT_EQUAL(claim->state, is->next);
    if (claim->state != is->next)
        fprintf(stderr, "    LEAVING, answered %s\n", is->name);
    CU_ASSERT_EQUAL(tapped_count(MORTISE_OP_RELEASE), is->next == CLAIM_ENDING);
    const struct tapped *release = tapped(MORTISE_OP_RELEASE, 0);
    CU_ASSERT(release == NULL || memcmp(&release->op.grant, &id, sizeof(id)) == 0);
    let_go(end);
    CU_ASSERT_EQUAL(claim->state, CLAIM_GONE);
    finish();
}

static void test_leaving(void)
{
    for (size_t i = 0; i < sizeof(leavings) / sizeof(leavings[0]); i++)
        leave_and_answer(&leavings[i]);
}

/* ---- PAUSED ---------------------------------------------------------------------------------------- */

static void leave_while_paused(sim_fate fate, mortise_status status, enum claim_state next)
{
    start(CONFIG);
    int rule = SCRIPT(.kinds = OP(ACQUIRE), .fate = fate, .status = status);
    int end = HOLD_RELEASE();
    want(&rig, &got, "a", FOREVER);
    struct claim *claim = one_in(CLAIM_PAUSED);
    CU_ASSERT_EQUAL(claim->maybe, status == MORTISE_INDETERMINATE);
    cancel(&got);
    CU_ASSERT_EQUAL(claim->state, next);
    CU_ASSERT_EQUAL(tapped_count(MORTISE_OP_RELEASE), next == CLAIM_ENDING);
    CU_ASSERT_EQUAL(claim->timer.place != 0, next == CLAIM_ENDING); /* it asks no more */
    sim->end(rule);
    let_go(end);
    CU_ASSERT_EQUAL(claim->state, CLAIM_GONE);
    finish();
}

static void test_paused_unwanted(void)
{
    leave_while_paused(SIM_REFUSE, MORTISE_UNREACHABLE, CLAIM_GONE);
}

static void test_paused_maybe_unwanted(void)
{
    leave_while_paused(SIM_LOSE_REPLY, MORTISE_INDETERMINATE, CLAIM_ENDING);
}

/* The same claim asks again at its timer, under another id; or under the same one if a reply was lost. */
static void ask_at_the_timer(bool maybe)
{
    start(CONFIG);
    if (maybe)
        LOSE(.times = 2);
    else
        SCRIPT(.kinds = OP(ACQUIRE), .times = 1, .fate = SIM_REFUSE, .status = MORTISE_UNREACHABLE);
    int ask = HOLD(ACQUIRE, .fate = SIM_PASS);
    want(&rig, &got, "a", FOREVER);
    struct claim *claim = one_in(CLAIM_PAUSED);
    const mortise_grant_id id = claim->id;
    int64_t due_ns = claim->timer.due_ns;
    advance_to(due_ns - 1);
    CU_ASSERT_EQUAL(claim->state, CLAIM_PAUSED);
    advance_to(due_ns);
    CU_ASSERT_EQUAL(claim->state, CLAIM_ASKING);
    CU_ASSERT_EQUAL(memcmp(&id, &claim->id, sizeof(id)) == 0, maybe);
    let_go(ask);
    CU_ASSERT_EQUAL(claim->state, CLAIM_HELD);
    CU_ASSERT_PTR_EQUAL(slab_find(&claim_slab, got.lease), claim);
    give_back(&got);
    CU_ASSERT_EQUAL(claim->state, CLAIM_GONE);
    finish();
}

static void test_paused_timer(void)
{
    ask_at_the_timer(false);
    ask_at_the_timer(true);
}

/* ---- a head that leaves while the list pauses ------------------------------------------------------- */

/* The next caller wants something else. Its claim asks when the former one would have asked. */
static void head_leaves(bool maybe, const mortise_options *behind)
{
    before_each();
    start(CONFIG);
    int lost = maybe ? LOSE(.times = 0) : 0, end = maybe ? HOLD_RELEASE() : 0;
    if (!maybe)
        sim->seize("a", START_NS + 2000 * MS);
    want(&rig, &got, "a", FOREVER);
    want(&rig, &other, "a", behind);
    struct claim *former = the_name()->waitlist->claim;
    CU_ASSERT_EQUAL_FATAL(former->state, CLAIM_PAUSED);
    int64_t due_ns = former->timer.due_ns;
    size_t asked = tapped_count(MORTISE_OP_ACQUIRE);
    cancel(&got);
    struct claim *next = the_name()->waitlist->claim;
    CU_ASSERT_PTR_NOT_EQUAL(next, former);
    CU_ASSERT_EQUAL(former->state, maybe ? CLAIM_ENDING : CLAIM_GONE);
    CU_ASSERT_EQUAL(next->state, CLAIM_PAUSED);
    CU_ASSERT(next->timer.place != 0);
    CU_ASSERT_EQUAL(next->timer.due_ns, due_ns);
    if (maybe)
        sim->end(lost);
    advance_to(due_ns - 1);
    CU_ASSERT_EQUAL(tapped_count(MORTISE_OP_ACQUIRE), asked);
    advance_to(due_ns);
    CU_ASSERT_EQUAL(tapped_count(MORTISE_OP_ACQUIRE), asked + 1);
    if (maybe)
        let_go(end);
    give_back(&other);
    finish();
}

static void test_head_leaves(void)
{
    const mortise_options *ttl = MORTISE_OPTIONS(.wait_ms = -1, .ttl_ms = 5000);
    head_leaves(false, ttl);
    head_leaves(true, ttl);
    head_leaves(false, MORTISE_OPTIONS(.wait_ms = -1, .owner = "o"));
}

/* ---- ASKING: OK (1) --------------------------------------------------------------------------------- */

static bool grant_too_late(mortise_op *op)
{
    if (op->kind != MORTISE_OP_ACQUIRE)
        return false;
    tap_answer = NULL;
    op->token = 4711;
    op->from_ns = clock_now() - 60 * NS_PER_S;
    op->good_for_ms = op->ttl_ms;
    tapped_host()->complete(tapped_host(), op, MORTISE_OK);
    return true;
}

static void test_granted_too_late(void)
{
    start(CONFIG);
    int end = HOLD_RELEASE();
    tap_answer = grant_too_late;
    want(&rig, &got, "a", FOREVER);
    struct claim *late = one_in(CLAIM_ENDING), *next = one_in(CLAIM_PAUSED);
    CU_ASSERT_FALSE(late->leased);
    CU_ASSERT_EQUAL(tapped(MORTISE_OP_RELEASE, 0)->op.token, 4711);
    CU_ASSERT_PTR_EQUAL(the_name()->waitlist->claim, next);
    CU_ASSERT(the_name()->waitlist->first->unsure);
    CU_ASSERT_EQUAL(got.calls, 0);
    let_go(end);
    CU_ASSERT_EQUAL(late->state, CLAIM_GONE);
    advance_ms(100);
    CU_ASSERT_EQUAL(next->state, CLAIM_HELD);
    give_back(&got);
    finish();
}

/* ---- ASKING: a refusal that is final ------------------------------------------------------------------ */

/* An earlier reply under this id was lost. The next caller does not ask under it. */
static void test_refused_maybe(void)
{
    start(CONFIG);
    LOSE(.times = 1);
    int ask = HOLD(ACQUIRE, .fate = SIM_REFUSE, .status = MORTISE_BACKEND), end = HOLD_RELEASE();
    want(&rig, &got, "a", FOREVER);
    struct claim *refused = one_in(CLAIM_ASKING);
    const mortise_grant_id id = refused->id;
    CU_ASSERT(refused->maybe);
    want(&rig, &other, "a", FOREVER);
    let_go(ask);
    CU_ASSERT_EQUAL(got.status, MORTISE_BACKEND);
    CU_ASSERT_EQUAL(refused->state, CLAIM_ENDING);
    advance_ms(200);
    struct claim *next = one_in(CLAIM_HELD);
    CU_ASSERT_PTR_NOT_EQUAL(next, refused);
    CU_ASSERT(memcmp(&next->id, &id, sizeof(id)) != 0);
    let_go(end);
    CU_ASSERT_EQUAL(refused->state, CLAIM_GONE);
    give_back(&other);
    finish();
}

/* ---- HELD -------------------------------------------------------------------------------------------- */

static mortise_lease *lease;
static struct claim *claim;

static void take_lease(const mortise_options *options)
{
    start(TTL_3S);
    lease = take(&rig, "a", options);
    claim = slab_find(&claim_slab, lease);
    CU_ASSERT_EQUAL(claim->state, CLAIM_HELD);
    CU_ASSERT(claim->leased);
}

static void release_lost(enum claim_state next)
{
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_LOST);
    settle();
    CU_ASSERT_EQUAL(claim->state, next);
    CU_ASSERT_FALSE(claim->leased);
}

/* A refusal does not say that the claim is gone: the renewal is repeated as without an answer. */
static void test_refused_held(void)
{
    take_lease(NULL);
    SCRIPT(.kinds = OP(RENEW), .times = 2, .fate = SIM_REFUSE, .status = MORTISE_BACKEND);
    advance_ms(1000);
    CU_ASSERT_EQUAL(claim->state, CLAIM_HELD);
    CU_ASSERT_EQUAL(mortise_state(lease), MORTISE_STATE_SUSPECT);
    advance_ms(240);
    CU_ASSERT_EQUAL(tapped_count(MORTISE_OP_RENEW), 3);
    CU_ASSERT_EQUAL(mortise_state(lease), MORTISE_STATE_HELD);
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_OK);
    finish();
}

/* Nothing was sent that could have moved the claim: there is nothing to release. */
static void test_deadline_without_a_renewal(void)
{
    take_lease(MORTISE_OPTIONS(.wait_ms = 0, .no_renew = true));
    advance_ms(DEADLINE_MS - 1);
    CU_ASSERT_EQUAL(claim->state, CLAIM_HELD);
    advance_ms(1);
    CU_ASSERT_EQUAL(claim->state, CLAIM_LOST);
    release_lost(CLAIM_GONE);
    CU_ASSERT_EQUAL(tapped_count(MORTISE_OP_RELEASE), 0);
    sim->lose("a"); /* it has expired there too */
    finish();
}

/* A failed renewal may have been executed. */
static int end_after_failures(bool gone)
{
    take_lease(NULL);
    SCRIPT(.kinds = OP(RENEW), .fate = SIM_LOSE_REPLY, .status = MORTISE_INDETERMINATE);
    int end = HOLD_RELEASE();
    advance_ms(DEADLINE_MS - 1);
    CU_ASSERT_EQUAL(claim->state, CLAIM_HELD);
    if (gone)
        sim->lose("a");
    advance_ms(1);
    CU_ASSERT_EQUAL(claim->state, CLAIM_ENDING);
    CU_ASSERT(claim->leased);
    CU_ASSERT_EQUAL(tapped_count(MORTISE_OP_RELEASE), 1);
    return end;
}

/* gone: the release finds nothing, and is sure. */
static void ending_then_released(bool gone)
{
    before_each();
    int end = end_after_failures(gone);
    let_go(end);
    CU_ASSERT_EQUAL(claim->state, CLAIM_LOST);
    CU_ASSERT(claim->leased);
    CU_ASSERT_EQUAL(mortise_state(lease), MORTISE_STATE_LOST);
    release_lost(CLAIM_GONE);
    CU_ASSERT_EQUAL(tapped_count(MORTISE_OP_RELEASE), 1);
    finish();
}

static void test_ending_then_released(void)
{
    ending_then_released(false);
    ending_then_released(true);
}

static void test_released_while_ending(void)
{
    int end = end_after_failures(false);
    release_lost(CLAIM_ENDING);
    CU_ASSERT_PTR_EQUAL(the_name()->claims, claim);
    let_go(end);
    CU_ASSERT_EQUAL(claim->state, CLAIM_GONE);
    CU_ASSERT_EQUAL(tapped_count(MORTISE_OP_RELEASE), 1);
    finish();
}

/* ---- late answers to a renewal ----------------------------------------------------------------------- */

static const struct late {
    const char *name;
    sim_fate fate;
    mortise_status status;
    bool moved; /* it may have moved the claim */
} lates[] = {
    {"OK", SIM_PASS, MORTISE_OK, true},
    {"INDETERMINATE", SIM_LOSE_REPLY, MORTISE_INDETERMINATE, true},
    {"LOST", SIM_REFUSE, MORTISE_LOST, false},
    {"NOTOWNER", SIM_REFUSE, MORTISE_NOTOWNER, false},
    {"UNREACHABLE", SIM_REFUSE, MORTISE_UNREACHABLE, false},
};
#define LATES (sizeof(lates) / sizeof(lates[0]))

static int renewal, ending;

/* The deadline passes while a renewal is out. */
static void lose_while_renewing(const struct late *is)
{
    before_each();
    take_lease(NULL);
    renewal = HOLD(RENEW, .fate = is->fate, .status = is->status);
    ending = HOLD_RELEASE();
    advance_ms(1000);
    CU_ASSERT_EQUAL(sim->held(renewal), 1);
    set_now(START_NS + DEADLINE_MS * MS);
    settle();
    CU_ASSERT_EQUAL(claim->state, CLAIM_ENDING);
    CU_ASSERT(claim->leased && claim->ask_out);
}

static void expect_releases(const struct late *is, size_t count)
{
    CU_ASSERT_EQUAL(tapped_count(MORTISE_OP_RELEASE), count);
    if (tapped_count(MORTISE_OP_RELEASE) != count)
        fprintf(stderr, "    a late renewal, answered %s\n", is->name);
}

/* The release that is out may have been executed before the renewal: it is repeated once. */
static void late_while_ending(const struct late *is)
{
    lose_while_renewing(is);
    let_go(renewal);
    CU_ASSERT_EQUAL(claim->state, CLAIM_ENDING);
    expect_releases(is, 1);
    let_go(ending);
    expect_releases(is, is->moved ? 2 : 1);
    CU_ASSERT_EQUAL(claim->state, CLAIM_LOST);
    release_lost(CLAIM_GONE);
    finish();
}

static void test_late_while_ending(void)
{
    for (size_t i = 0; i < LATES; i++)
        late_while_ending(&lates[i]);
}

static void late_while_lost(const struct late *is)
{
    lose_while_renewing(is);
    let_go(ending);
    CU_ASSERT_EQUAL(claim->state, CLAIM_LOST);
    ending = HOLD_RELEASE();
    let_go(renewal);
    CU_ASSERT_EQUAL(claim->state, is->moved ? CLAIM_ENDING : CLAIM_LOST);
    expect_releases(is, is->moved ? 2 : 1);
    let_go(ending);
    CU_ASSERT_EQUAL(claim->state, CLAIM_LOST);
    release_lost(CLAIM_GONE);
    finish();
}

static void test_late_while_lost(void)
{
    for (size_t i = 0; i < LATES; i++)
        late_while_lost(&lates[i]);
}

/* The lease was released as well. The release that is out came after the renewal, and nobody sends another one. */
static void test_late_for_nobody(void)
{
    lose_while_renewing(&lates[0]);
    release_lost(CLAIM_ENDING);
    let_go(renewal);
    let_go(ending);
    CU_ASSERT_EQUAL(claim->state, CLAIM_GONE);
    expect_releases(&lates[0], 1);
    finish();
}

/* GONE: the claim is free when its last request has been answered, and not before. */
static void test_gone_with_a_renewal_out(void)
{
    lose_while_renewing(&lates[0]);
    let_go(ending);
    release_lost(CLAIM_GONE);
    CU_ASSERT(claim->ask_out);
    CU_ASSERT_PTR_EQUAL(the_name()->claims, claim);
    CU_ASSERT_EQUAL(rig.client->locks.outstanding, 1);
    let_go(renewal);
    CU_ASSERT_PTR_NULL(the_name()->claims);
    expect_releases(&lates[0], 1);
    finish();
}

int main(void)
{
    static const CU_TestInfo tests[] = {
        {"LEAVING: each answer", test_leaving},
        {"PAUSED, unwanted", test_paused_unwanted},
        {"PAUSED, maybe, unwanted", test_paused_maybe_unwanted},
        {"PAUSED: the timer", test_paused_timer},
        {"PAUSED: the head leaves, the timer stays", test_head_leaves},
        {"ASKING: granted too late", test_granted_too_late},
        {"ASKING, maybe, refused for good", test_refused_maybe},
        {"HELD, refused for good", test_refused_held},
        {"HELD: a deadline without a renewal", test_deadline_without_a_renewal},
        {"ENDING, then LOST, then released", test_ending_then_released},
        {"ENDING, released meanwhile", test_released_while_ending},
        {"ENDING: a late renewal", test_late_while_ending},
        {"LOST: a late renewal", test_late_while_lost},
        {"ENDING, released, a late renewal", test_late_for_nobody},
        {"GONE, a renewal is out", test_gone_with_a_renewal_out},
        CU_TEST_INFO_NULL,
    };
    return rig_run("claim", tests);
}
