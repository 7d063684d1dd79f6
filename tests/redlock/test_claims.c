/* test_claims.c - the tables of claim.h: what a node may have of a grant id after each event, and when a claim is
 * forgotten. Tests claim.c alone: no server, and a clock that the test sets. */
#include "redlock.h"

#include <expect.h>

#define MAX_TTL_MS 60000
#define MS(n) ((n)*NS_PER_MS)

static int64_t now_ns;
static struct driver driver;

static int64_t now(mortise_host *host)
{
    (void)host;
    return now_ns;
}

static void begin(void)
{
    static mortise_host host = {.size = sizeof host, .now = now};
    memset(&driver, 0, sizeof driver);
    driver.host = &host;
    driver.count = 3;
    driver.quorum = 2;
    driver.max_ttl_ms = MAX_TTL_MS;
    driver.tick_ns = driver.sweep_ns = MORTISE_NEVER;
    for (unsigned i = 0; i < driver.count; i++)
        driver.nodes[i].link.state = LINK_UP;
    now_ns = MS(1000);
}

static const mortise_op op = {.name = "mortise:claim", .name_len = 13, .grant = {{7}}};

static struct claim *take(void)
{
    struct claim *claim = claim_take(&driver, &op);
    CU_ASSERT_PTR_NOT_NULL_FATAL(claim);
    return claim;
}

static bool is_known(void)
{
    return claim_find(&driver, &op.grant) != NULL;
}

static void note_all(struct claim *claim, enum trace_event event)
{
    for (unsigned i = 0; i < driver.count; i++)
        claim_note(claim, i, event);
}

/* ---- traces -------------------------------------------------------------------------------------------------------- */

/* N none, P possible, T there, A adrift: the state after the event, for each state before. */
static const struct {
    enum trace_event event;
    const char *after;
} cells[] = {
    {TRACE_ASKED, "PPTA"},   {TRACE_HAS, "NTTA"},     {TRACE_HAS_NOT, "NPPA"},
    {TRACE_UNDONE, "NNNA"},  {TRACE_LOST, "AAAA"},    {TRACE_UNDO_LOST, "NPTA"},
    {TRACE_SETTLED, "NPTP"}, {TRACE_EXPIRED, "NNNN"},
};

static void test_cells(void)
{
    begin();
    struct claim *claim = take();
    CHECK(sizeof cells / sizeof cells[0] == TRACE_EVENTS);
    for (size_t i = 0; i < TRACE_EVENTS; i++)
        for (unsigned state = 0; state < TRACE_STATES; state++)
            for (int barred = 0; barred < 2; barred++) {
                enum trace_event event = cells[i].event;
                bool clears = event == TRACE_SETTLED || event == TRACE_EXPIRED;
                claim->traces[1] =
                    (struct trace){.state = (unsigned char)state, .undo_adrift = barred};
                claim_note(claim, 1, event);
                CHECK("NPTA"[claim->traces[1].state] == cells[i].after[state]);
                CHECK(claim_is_barred(claim, 1) ==
                      (event == TRACE_UNDO_LOST || (barred && !clears)));
                CHECK(!claim_has_trace(claim, 0) && !claim_has_trace(claim, 2));
            }
    claims_free(&driver);
}

/* ---- the life of a claim --------------------------------------------------------------------------------------------- */

static void test_forgotten(void)
{
    begin();
    claim_unref(&driver, take()); /* nothing was asked for */
    CHECK(!is_known());
    struct claim *claim = take();
    claim_begin(&driver, claim);
    note_all(claim, TRACE_ASKED);
    claim_note(claim, 0, TRACE_HAS);
    claim_unref(&driver, claim);
    CHECK(is_known() && claim_traces(&driver, claim) == 3);
    CHECK(take() == claim); /* the same grant id again */
    claim_end(&driver, claim, false);
    CHECK(claim->state == CLAIM_ENDING && driver.ending == claim);
    note_all(claim, TRACE_UNDONE);
    CHECK(is_known()); /* a request may still tell of a loss */
    claim_unref(&driver, claim);
    CHECK(!is_known() && driver.ending == NULL);
}

/* A late loss counts for the next round of the same grant id. */
static void test_begun_again(void)
{
    begin();
    struct claim *claim = take();
    claim_begin(&driver, claim);
    claim->token = 5;
    unsigned round = claim->round;
    note_all(claim, TRACE_ASKED);
    note_all(claim, TRACE_HAS);
    claim_end(&driver, claim, true);
    CHECK(claim->announced && claim->token == 0);
    note_all(claim, TRACE_UNDONE);
    claim_begin(&driver, claim);
    CHECK(claim->state == CLAIM_WANTED && driver.ending == NULL && !claim->announced);
    CHECK(claim->round != round);
    claim_note(claim, 2, TRACE_UNDO_LOST);
    CHECK(claim_is_barred(claim, 2) && !claim_is_barred(claim, 1));
    claim_unref(&driver, claim);
    CHECK(is_known());
    claims_settle(&driver, 2);
    CHECK(!claim_is_barred(claim, 2));
    claims_free(&driver);
}

/* A lease that nobody renews or releases. */
static void test_not_renewed(void)
{
    begin();
    struct claim *claim = take();
    claim_begin(&driver, claim);
    claim_lasts(claim, now_ns, 5000);
    note_all(claim, TRACE_ASKED);
    claim_unref(&driver, claim);
    now_ns += MS(31000); /* when it is looked at */
    claim_lasts(claim, now_ns - MS(100), 5000);
    claim_lasts(claim, now_ns - MS(3000), 5000); /* shortens nothing */
    claims_expire(&driver, now_ns);
    CHECK(is_known());
    now_ns += MS(31000);
    CHECK(claims_due_ns(&driver) <= now_ns);
    claims_expire(&driver, now_ns);
    CHECK(!is_known());
    CHECK(claims_due_ns(&driver) == MORTISE_NEVER);
}

/* Votes expire with max_ttl; a lost request may lie unread in a node for as long as that is out of reach. */
static void test_out_of_reach(enum trace_event lost)
{
    begin();
    struct claim *claim = take();
    claim_begin(&driver, claim);
    note_all(claim, TRACE_ASKED);
    claim_note(claim, 0, lost);
    claim_note(claim, 1, lost);
    claim_end(&driver, claim, false);
    claim_unref(&driver, claim);
    driver.nodes[0].link.state = LINK_DOWN;
    now_ns += MS(MAX_TTL_MS - 1);
    claims_expire(&driver, now_ns);
    CHECK(claim_traces(&driver, claim) == 3);
    for (int i = 0; i < 3; i++) {
        now_ns += MS(MAX_TTL_MS);
        claims_expire(&driver, now_ns);
        CHECK(is_known() && claim_traces(&driver, claim) == 1);
        CHECK(!claim_is_barred(claim, 1) && claims_due_ns(&driver) > now_ns);
    }
    driver.nodes[0].link.state = LINK_UP;
    now_ns += MS(MAX_TTL_MS);
    claims_expire(&driver, now_ns);
    CHECK(!is_known());
}

static void test_lost_votes(void)
{
    test_out_of_reach(TRACE_LOST);
}

static void test_lost_undos(void)
{
    test_out_of_reach(TRACE_UNDO_LOST);
}

static void test_foreign(void)
{
    begin();
    struct claim *claim = claim_new_foreign(&op);
    CU_ASSERT_PTR_NOT_NULL_FATAL(claim);
    note_all(claim, TRACE_ASKED);
    claim_end(&driver, claim, true);
    CHECK(claim->announced && claim->state == CLAIM_FOREIGN && driver.ending == NULL &&
          !is_known());
    claim_unref(&driver, claim_ref(claim));
    CHECK(claim->references == 1);
    claim_unref(&driver, claim);
}

static const CU_TestInfo tests[] = {
    {"each event in each state of a trace", test_cells},
    {"forgotten when no node can have anything", test_forgotten},
    {"the same grant id begins again", test_begun_again},
    {"a lease that nobody renews", test_not_renewed},
    {"lost votes, and a node out of reach", test_lost_votes},
    {"lost undos, and a node out of reach", test_lost_undos},
    {"another client's grant", test_foreign},
    CU_TEST_INFO_NULL,
};

int main(int argc, char **argv)
{
    return run_tests("redlock claims", tests, argc, argv);
}
