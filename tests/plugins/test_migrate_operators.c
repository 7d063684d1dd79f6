/* test_migrate_operators.c - two operators at once, with the command's own functions for registers: an operator who
 * opens a side has closed the other side before, after reading both. The test runs the parts of each step in the
 * worst order. And a server that is restarted during a step. */
#include "migrate_test.h"

#include "connect.h"
#include "exit_code.h"
#include "migrate.h"

static void look(struct migration *migration)
{
    CU_ASSERT_EQUAL_FATAL(migration_open(migration, NULL), EXIT_DONE);
    CU_ASSERT_FATAL(migration->sides[MIGRATE_FROM].known && migration->sides[MIGRATE_TO].known);
}

static void look_again(struct migration *migration, enum migrate_side role)
{
    struct side *side = &migration->sides[role];
    CU_ASSERT(side_read(migration, role, &side->reg, &side->version, &detail));
}

static mortise_status put(struct migration *migration, enum migrate_side role, unsigned phases,
                          bool closes)
{
    const struct migrate_register reg = {.phases = phases};
    return side_write(migration, role, &reg, closes, &migration->sides[role].version, &detail);
}

#define CLOSE(migration, role) put(migration, role, MIGRATE_BOTH, true)
#define OPEN(migration, role)                                                                      \
    put(migration, role,                                                                           \
        (role) == MIGRATE_FROM ? MIGRATE_OLD | MIGRATE_BOTH : MIGRATE_BOTH | MIGRATE_NEW, false)

/* One who looked at `from`, and at `to` only after another one had closed both and paused before he opens `from`: the
 * closing of `from` that stands there is the other one's. */
static void test_borrowed_closing(void)
{
    struct migration forward, back, gone;
    begin();
    config_where = config("both", "60s");
    look(&forward);
    look(&gone);
    IS(OK, CLOSE(&gone, MIGRATE_FROM)); /* a step forward, given up */
    look(&back);
    IS(OK, CLOSE(&back, MIGRATE_TO));
    look_again(&forward, MIGRATE_TO);
    IS(OK, CLOSE(&forward, MIGRATE_FROM));
    IS(BUSY, OPEN(&back, MIGRATE_FROM));
    IS(OK, OPEN(&forward, MIGRATE_TO));
    look_again(&forward, MIGRATE_FROM);
    CU_ASSERT_EQUAL(forward.sides[MIGRATE_FROM].reg.phases, MIGRATE_BOTH);
    migration_close(&forward);
    migration_close(&back);
    migration_close(&gone);
}

/* Two of one mind: the opening that the other one wrote will do. */
static void test_borrowed_opening(void)
{
    struct migration one, other;
    begin();
    config_where = config("both", "60s");
    look(&one);
    look(&other);
    IS(OK, CLOSE(&one, MIGRATE_FROM));
    IS(OK, CLOSE(&other, MIGRATE_FROM));
    CU_ASSERT_EQUAL(other.sides[MIGRATE_FROM].version, one.sides[MIGRATE_FROM].version + 1);
    IS(OK, OPEN(&other, MIGRATE_TO));
    IS(OK, OPEN(&one, MIGRATE_TO));
    CU_ASSERT_EQUAL(other.sides[MIGRATE_TO].version, one.sides[MIGRATE_TO].version);
    migration_close(&one);
    migration_close(&other);
}

/* What was written is there under a version that is not the next one: those of etcd grow with every write to the cluster. So it is if
 * a reply was lost; here, another operator has written the same twice. */
static void test_other_version(void)
{
    struct migration one, other;
    begin();
    config_where = config("both", "60s");
    look(&one);
    look(&other);
    uint64_t closed = one.sides[MIGRATE_FROM].version, opened = one.sides[MIGRATE_TO].version;
    for (int i = 0; i < 2; i++) {
        IS(OK, CLOSE(&other, MIGRATE_FROM));
        IS(OK, OPEN(&other, MIGRATE_TO));
    }
    IS(OK, CLOSE(&one, MIGRATE_FROM));
    CU_ASSERT_EQUAL(one.sides[MIGRATE_FROM].version, closed + 3); /* its own */
    IS(OK, OPEN(&one, MIGRATE_TO));
    CU_ASSERT_EQUAL(one.sides[MIGRATE_TO].version, opened + 2); /* the other's will do */
    migration_close(&one);
    migration_close(&other);
}

/* ---- a server that is restarted ------------------------------------------------------------------ */

static const char *ping_before, *ping_after;

/* In place of the library's: the first ping of a step, and those that follow. */
mortise_status mortise_ping(mortise_client *client, char *text, size_t size, mortise_error *error)
{
    (void)client;
    (void)error;
    snprintf(text, size, "%s", ping_before != NULL ? ping_before : ping_after);
    ping_before = NULL;
    return MORTISE_OK;
}

/* A step that does not wait: done, unless it takes the server for another run. */
static void expect_step(int wanted, const char *before, const char *after)
{
    struct migration migration;
    struct plan plan;
    begin();
    config_where = config("both", "60s");
    look(&migration);
    plan_make(&migration, true, &plan);
    CU_ASSERT_EQUAL(plan.waits_for.count, 0);
    ping_before = before;
    ping_after = after;
    CU_ASSERT_EQUAL(step_take(&migration, &plan, 0), wanted);
    plan_end(&plan);
    migration_close(&migration);
}

/* A Redis Cluster names each of its masters, so that the last ones are far behind in the text. */
static void test_restarted(void)
{
    char before[600], after[600];
    memset(before, 'x', sizeof before);
    snprintf(before + 500, 100, "127.0.0.1:7010, run 0c7335eca79e");
    memcpy(after, before, sizeof after);
    expect_step(EXIT_DONE, before, after);
    memcpy(after + 500 + strlen("127.0.0.1:7010, run "), "1", 1);
    expect_step(EXIT_NOT_HAD, before, after);
    expect_step(EXIT_NOT_HAD, "a, run 1", "a, run 2");
}

/* The nodes of redlock: how long until their votes count is another text with every ping. */
static void test_votes(void)
{
    expect_step(EXIT_DONE, "3 of 3 nodes answer, 2 may vote; votes count in 30 s",
                "3 of 3 nodes answer, 2 may vote; votes count in 9 s");
    expect_step(EXIT_DONE, "2 of 3 nodes answer, 1 may vote; votes count in 30 s; b:1: no answer",
                "2 of 3 nodes answer, 1 may vote; votes count in 29 s; b:1: no answer");
    expect_step(EXIT_NOT_HAD, "3 of 3 nodes answer, 3 may vote",
                "3 of 3 nodes answer, 2 may vote; votes count in 30 s");
}

/* The register of an earlier migration on `from`, which was absent, is opened after a step of this one has read it. */
static void test_opened_beside(void)
{
    const struct migrate_register open = {.phases = MIGRATE_BOTH | MIGRATE_NEW};
    char text[MIGRATE_RECORD_SIZE];
    size_t size = migrate_register_encode(&open, text);
    struct migration migration;
    struct plan plan;
    uint64_t version = 0;
    begin();
    config_where = config("both", "60s");
    look(&migration);
    plan_make(&migration, true, &plan);
    CU_ASSERT_EQUAL(plan.code, EXIT_DONE);
    IS(OK, mortise_record_write(migration.sides[MIGRATE_FROM].client,
                                migrate_register_name(MIGRATE_TO), text, size, &version, &detail));
    ping_before = ping_after = "a";
    CU_ASSERT_EQUAL(step_take(&migration, &plan, 0), EXIT_NOT_HAD);
    look_again(&migration, MIGRATE_TO);
    CU_ASSERT_EQUAL(migration.sides[MIGRATE_TO].reg.phases, MIGRATE_BOTH);
    plan_end(&plan);
    migration_close(&migration);
}

int main(void)
{
    CU_initialize_registry();
    CU_pSuite suite = CU_add_suite("migrate_operators", NULL, NULL);
    CU_add_test(suite, "a closing that is another's", test_borrowed_closing);
    CU_add_test(suite, "an opening that is another's", test_borrowed_opening);
    CU_add_test(suite, "a version that is not the next one", test_other_version);
    CU_add_test(suite, "a register that is opened beside", test_opened_beside);
    CU_add_test(suite, "a server that was restarted", test_restarted);
    CU_add_test(suite, "nodes whose votes do not count yet", test_votes);
    CU_basic_set_mode(CU_BRM_VERBOSE);
    CU_basic_run_tests();
    int failures = (int)CU_get_number_of_failures();
    CU_cleanup_registry();
    if (folder[0] != '\0')
        test_folder_remove(folder);
    return failures > 0;
}
