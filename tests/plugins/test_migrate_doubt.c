/* test_migrate_doubt.c - a driver below the migrate plugin doubts a claim (host->doubt) by its own name, which has another
 * namespace than the core's: `from` has one, `to` has none. Nothing here waits: what is due at once is done by settle(). */
#include "migrate_rig.h"

static struct rig rig;

/* to: what `to` names, and further sections. */
static void open_over(const char *to)
{
    char text[400];
    snprintf(text, sizeof text,
             "ttl = 60s\n[migrate]\nfrom = sim:first\nphase = both\npresence = 30s\nto = %s"
             "[sim:first]\nnamespace = mortise:\n[sim_other:second]\n",
             to);
    other->reset();
    rig_open(&rig, text);
}

static void open_both(void)
{
    open_over("sim_other:second\n");
}

static mortise_lease *take_30s(const char *name)
{
    return take(&rig, name, MORTISE_OPTIONS(.ttl_ms = 30000));
}

/* ---- the driver of a side ------------------------------------------------------------------------ */

static struct instance *below(const char *section)
{
    struct instance *instance = rig.client->top->next;
    while (instance != NULL && strcmp(instance->section, section) != 0)
        instance = instance->next;
    CU_ASSERT_PTR_NOT_NULL_FATAL(instance);
    return instance;
}

static mortise_host *doubter;

/* All in one call: as after a lost connection, when a driver doubts one claim after the other. */
static void doubt_each(void *ctx, void *names)
{
    (void)ctx;
    for (const char *const *name = names; *name != NULL; name++)
        doubter->doubt(doubter, *name, strlen(*name));
}

static void doubt_on(const char *section, const char **names)
{
    doubter = &below(section)->host;
    doubter->post(doubter, doubt_each, names);
    settle();
}

/* ---- what comes of it ---------------------------------------------------------------------------- */

static void expect_lost(mortise_lease *lease)
{
    CU_ASSERT_EQUAL(mortise_state(lease), MORTISE_STATE_LOST);
    CU_ASSERT_EQUAL(mortise_release(lease, NULL), MORTISE_LOST);
}

static void end(void)
{
    rig_close(&rig);
    ASSERT_NOTHING_LEFT_ANYWHERE();
}

/* An operator deletes the node: the lease is LOST at that instant, and not at its next renewal. */
static void test_to(void)
{
    const char *names[] = {"counter", NULL};
    open_both();
    mortise_lease *lease = take_30s("counter"), *kept = take_30s("kept");
    CU_ASSERT(sim->holds("mortise:counter", mortise_token(lease)));
    CU_ASSERT(other->lose("counter"));
    doubt_on("sim_other:second", names);
    expect_lost(lease);
    CU_ASSERT_EQUAL(mortise_state(kept), MORTISE_STATE_HELD);
    CU_ASSERT_EQUAL(mortise_release(kept, NULL), MORTISE_OK);
    end();
}

static void test_from(void)
{
    const char *names[] = {"mortise:counter", NULL};
    open_both();
    mortise_lease *lease = take_30s("counter");
    CU_ASSERT(sim->lose("mortise:counter"));
    doubt_on("sim:first", names);
    expect_lost(lease);
    end();
}

/* The driver's name is that of the core for another lock. */
static void test_name_of_another(void)
{
    const char *names[] = {"mortise:a", NULL};
    open_both();
    mortise_lease *lease = take_30s("mortise:a"), *kept = take_30s("a");
    CU_ASSERT(other->lose("mortise:a"));
    doubt_on("sim_other:second", names);
    expect_lost(lease);
    CU_ASSERT_EQUAL(mortise_state(kept), MORTISE_STATE_HELD);
    CU_ASSERT_EQUAL(mortise_release(kept, NULL), MORTISE_OK);
    end();
}

/* Two plugins, one above the other: the names are those of the lowest. */
static void test_below_two(void)
{
    const char *names[] = {"counter", NULL};
    open_over("chaos\n[chaos]\nbelow = sim_other:second\n");
    mortise_lease *lease = take_30s("counter");
    CU_ASSERT(other->lose("counter"));
    doubt_on("sim_other:second", names);
    expect_lost(lease);
    end();
}

/* ---- the cost ------------------------------------------------------------------------------------- */

/* Each claim is asked for once on each side, however many of them the driver doubts in one call. */
static void test_once_each(void)
{
    enum { LEASES = 20 };
    static char texts[LEASES][8];
    const char *names[LEASES + 1] = {NULL};
    mortise_lease *leases[LEASES];
    open_both();
    for (int i = 0; i < LEASES; i++) {
        snprintf(texts[i], sizeof texts[i], "n%d", i);
        names[i] = texts[i];
        leases[i] = take_30s(texts[i]);
    }
    uint64_t from = sim->count(MORTISE_OP_RENEW), to = other->count(MORTISE_OP_RENEW);
    doubt_on("sim_other:second", names);
    CU_ASSERT_EQUAL(sim->count(MORTISE_OP_RENEW) - from, LEASES);
    CU_ASSERT_EQUAL(other->count(MORTISE_OP_RENEW) - to, LEASES);
    for (int i = 0; i < LEASES; i++) {
        CU_ASSERT_EQUAL(mortise_state(leases[i]), MORTISE_STATE_HELD);
        CU_ASSERT_EQUAL(mortise_release(leases[i], NULL), MORTISE_OK);
    }
    end();
}

int main(void)
{
    static const CU_TestInfo tests[] = {
        {"R2: a doubt on `to`", test_to},
        {"R2: a doubt on `from`", test_from},
        {"R2: a doubt by the name of another lock", test_name_of_another},
        {"R2: a doubt below two plugins", test_below_two},
        {"many doubts in one call", test_once_each},
        CU_TEST_INFO_NULL,
    };
    return migrate_rig_run("migrate_doubt", tests);
}
