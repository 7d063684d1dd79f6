/* test_migrate_close.c - a client of the migrate plugin closes while a side does not answer, or while something that was
 * dropped has not been released yet. Nothing is left that the close does not tell of, and no line of the log says that
 * the driver has made a mistake. */
#include "migrate_rig.h"

#include <stdatomic.h>

static struct rig rig;

/* ---- with threads, and the log ------------------------------------------------------------------- */

static atomic_int blames;

static void on_log(int level, const char *line, void *user_data)
{
    (void)level;
    (void)user_data;
    if (strstr(line, "outside of the pump") != NULL)
        atomic_fetch_add(&blames, 1);
}

static void open_real(const char *phase)
{
    char text[400];
    other->reset();
    snprintf(text, sizeof text,
             "ttl = 60s\nclose_timeout = 200ms\n[migrate]\nfrom = sim\nto = sim_other\nphase = %s\n"
             "presence = 1s\n",
             phase);
    rig_open_real(&rig, text);
    atomic_store(&blames, 0);
    mortise_on_log(on_log, NULL);
    rig.client->pump.logs = true;
}

static void close_real(mortise_status wanted)
{
    CU_ASSERT_EQUAL(mortise_close(rig.handle, NULL), wanted);
    mortise_on_log(NULL, NULL);
    CU_ASSERT_EQUAL(atomic_load(&blames), 0);
    CU_ASSERT_EQUAL(sim->outstanding(), 0);
    CU_ASSERT_EQUAL(other->outstanding(), 0);
}

/* No answer to the release of the presence. */
static void test_presence(void)
{
    open_real("both");
    CU_ASSERT_EQUAL(mortise_release(take(&rig, "n", NULL), NULL), MORTISE_OK);
    SCRIPT(.kinds = OP(RELEASE), .fate = SIM_SILENT);
    close_real(MORTISE_UNREACHABLE);
    CU_ASSERT_EQUAL(sim->claims(), 1);
    CU_ASSERT_EQUAL(other->claims(), 0);
}

/* No answers when a renewal of the presence is out, with that of the lease. */
static void test_renewal(void)
{
    for (int held = 0; held <= 1; held++) {
        sim->reset();
        open_real("old");
        mortise_lease *lease = take(&rig, "n", NULL);
        int renewals = SCRIPT(.kinds = OP(RENEW), .fate = SIM_SILENT);
        CU_ASSERT(sim->wait_hits(renewals, 2, TEST_PATIENCE_MS));
        if (!held)
            CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_OK);
        SCRIPT(.kinds = OP(RELEASE), .fate = SIM_SILENT);
        close_real(MORTISE_UNREACHABLE);
    }
}

/* The register of `to` does not decide whether a client of phase old may work: nor does a close wait for it. */
static void test_register(void)
{
    open_real("old");
    sim_rule silent = {.kinds = OP(READ), .fate = SIM_SILENT};
    int reading = other->script(&silent);
    mortise_request request;
    struct outcome got = {.calls = 0};
    CU_ASSERT_EQUAL(mortise_acquire_async(rig.handle, "n", FOREVER, told, &got, &request, NULL),
                    MORTISE_OK);
    CU_ASSERT(other->wait_hits(reading, 1, TEST_PATIENCE_MS));
    close_real(MORTISE_OK);
    CU_ASSERT_EQUAL(sim->claims(), 0);
}

/* ---- what was dropped ---------------------------------------------------------------------------- */

/* `from` has lost the lease, and `to` answers so many of the releases that are due then with "unreachable". */
static void drop(unsigned times)
{
    other->reset();
    migrate_open(&rig, "both", "");
    take(&rig, "n", NULL);
    sim_rule away = {.kinds = OP(RELEASE),
                     .name = "n",
                     .times = times,
                     .fate = SIM_REFUSE,
                     .status = MORTISE_UNREACHABLE};
    int refused = other->script(&away);
    CU_ASSERT(sim->lose("n"));
    while (other->hits(refused) == 0)
        advance_ms(10);
    CU_ASSERT_EQUAL(other->claims(), 2); /* and the presence */
}

static void test_dropped(void)
{
    drop(1);
    rig_close(&rig);
    ASSERT_NOTHING_LEFT_ANYWHERE();
}

static void test_dropped_in_vain(void)
{
    drop(2);
    CU_ASSERT_EQUAL(rig_close_any(&rig), MORTISE_UNREACHABLE);
    CU_ASSERT_EQUAL(other->claims(), 1);
    other->reset();
}

/* No answer to the release of what was dropped. */
static void test_dropped_without_answer(void)
{
    open_real("both");
    take(&rig, "n", NULL);
    sim_rule silent = {.kinds = OP(RELEASE), .name = "n", .fate = SIM_SILENT};
    int released = other->script(&silent);
    CU_ASSERT(sim->lose("n"));
    CU_ASSERT(other->wait_hits(released, 1, TEST_PATIENCE_MS));
    close_real(MORTISE_UNREACHABLE);
    CU_ASSERT_EQUAL(sim->claims(), 0);
    CU_ASSERT_EQUAL(other->claims(), 1);
}

int main(void)
{
    static const CU_TestInfo tests[] = {
        {"no answer for a presence", test_presence},
        {"no answer to renewals", test_renewal},
        {"no answer from a register", test_register},
        {"what was dropped", test_dropped},
        {"what was dropped, in vain", test_dropped_in_vain},
        {"what was dropped, without an answer", test_dropped_without_answer},
        CU_TEST_INFO_NULL,
    };
    return migrate_rig_run("migrate_close", tests);
}
