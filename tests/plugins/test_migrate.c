/* test_migrate.c - the migrate plugin over two databases: which phases may run together, what is refused with which
 * message, the presences of killed and stopped clients, steps that stop half-way, and tokens over every mix of
 * phases, in both directions. */
#include "migrate_test.h"

#include <signal.h>
#include <unistd.h>

static void expect_refused(const char *phase, const char *with)
{
    mortise_client *client = open_phase(phase);
    detail.message[0] = '\0';
    IS(CONFIG, attempt(client, "a"));
    if (strstr(detail.message, with) == NULL) {
        fprintf(stderr, "  no \"%s\" in: %s\n", with, detail.message);
        CU_FAIL("the message does not say it");
    }
    IS(OK, mortise_close(client, &detail));
}

static void expect_allowed(const char *phase)
{
    mortise_client *client = open_phase(phase);
    IS(OK, attempt(client, "a"));
    IS(OK, mortise_close(client, &detail));
}

/* ---- phases ------------------------------------------------------------------------------------ */

static void test_stages(void)
{
    begin();
    expect_allowed("old");
    expect_allowed("both");
    expect_refused("new", "`to` [sqlite:b] admits {both}"); /* a phase that is skipped */
    take_step(true);
    expect_refused("old", "`from` [sqlite:a] admits {both}");
    expect_allowed("both");
    expect_allowed("new");
    take_step(true);
    expect_refused("old", "admits {}");
    expect_refused("both", "admits {}");
    expect_allowed("new");
    take_step(false);
    take_step(false);
    expect_allowed("old");
    expect_allowed("both");
    expect_refused("new", "admits {both}");
}

/* An operator stops between the two writes: a client of a doubtful phase is refused, and both directions are open. */
static void test_half_way(void)
{
    struct operation operation;
    for (int forward = 0; forward < 2; forward++) {
        begin();
        step_begin(&operation, true);
        for (unsigned side = 0; side < 2; side++)
            IS(OK, mortise_close(operation.sides[side], &detail));
        expect_refused("old", "admits {both}");
        expect_allowed("both");
        expect_refused("new", "admits {both}");
        take_step(forward != 0);
        expect_allowed(forward != 0 ? "new" : "old");
    }
}

/* Another operator wrote in between. */
static void test_two_operators(void)
{
    struct operation first;
    begin();
    step_begin(&first, true);
    take_step(true);
    struct migrate_register reg = {MIGRATE_BOTH | MIGRATE_NEW, 0};
    IS(BUSY, write_register(first.sides[MIGRATE_TO], MIGRATE_TO, reg, first.versions[MIGRATE_TO]));
    for (unsigned side = 0; side < 2; side++)
        IS(OK, mortise_close(first.sides[side], &detail));
}

/* A server that lost the register of `from` admits no client that could not see the register of the other side. */
static void test_forgotten(void)
{
    begin();
    take_step(true);
    mortise_client *side = open_side(MIGRATE_FROM), *new = open_phase("new");
    uint64_t version;
    struct migrate_register reg = read_register(side, MIGRATE_FROM, &version);
    reg.phases = MIGRATE_OLD | MIGRATE_BOTH;
    IS(OK, write_register(side, MIGRATE_FROM, reg, version));
    mortise_lease *lease = take(new, "a");
    expect_refused("old", "`to` [sqlite:b] admits {both, new}");
    IS(OK, mortise_release(lease, &detail));
    IS(OK, mortise_close(new, &detail));
    IS(OK, mortise_close(side, &detail));
}

static void test_register_of_others(void)
{
    static const char *const admits[] = {"`from` [sqlite:a] admits {}",
                                         "`to` [sqlite:b] admits {}"};
    for (unsigned which = 0; which < 2; which++) {
        uint64_t version = 0;
        begin();
        mortise_client *side = open_side(which);
        IS(OK, mortise_record_write(side, migrate_register_name(which), "mortise-migrate 2\n", 18,
                                    &version, &detail));
        expect_refused("old", admits[which]);
        expect_refused("both", admits[which]);
        IS(OK, mortise_close(side, &detail));
    }
}

static void test_same_section(void)
{
    char path[300], text[400];
    mortise_client *client = NULL;
    begin();
    snprintf(path, sizeof path, "%s/same.conf", folder);
    snprintf(text, sizeof text,
             "[mortise]\ndriver = migrate\n[migrate]\nfrom = sqlite\nto = sqlite\nphase = both\n"
             "[sqlite]\npath = %s/a.db\n",
             folder);
    CU_ASSERT(test_file_write(path, text));
    IS(CONFIG, mortise_open(path, &client, &detail));
    CU_ASSERT_PTR_NOT_NULL(strstr(detail.message, "the same section"));
}

/* Two sections, one database: the presence reveals it. */
static void test_same_server(void)
{
    char path[300], text[600];
    begin();
    snprintf(path, sizeof path, "%s/same.conf", folder);
    snprintf(
        text, sizeof text,
        "[mortise]\ndriver = migrate\nunreachable_timeout = 1s\n[migrate]\nfrom = sqlite:a\nto = "
        "sqlite:b\nphase = both\n[sqlite:a]\npath = %s/a.db\n[sqlite:b]\npath = %s/a.db\n",
        folder, folder);
    CU_ASSERT(test_file_write(path, text));
    mortise_client *client = open_at(path);
    IS(UNREACHABLE, attempt(client, "a"));
    CU_ASSERT_PTR_NOT_NULL(strstr(detail.message, "the same database"));
    mortise_close(client, NULL);
}

/* `to` is unreachable: the acquire fails as a whole, and names the side. */
static void test_unreachable(void)
{
    char path[300], text[600];
    begin();
    snprintf(path, sizeof path, "%s/away.conf", folder);
    snprintf(
        text, sizeof text,
        "[mortise]\ndriver = migrate\nunreachable_timeout = 1s\n[migrate]\nfrom = sqlite:a\nto = "
        "chaos:b\nphase = both\n[sqlite:a]\npath = %s/a.db\n[chaos:b]\nbelow = sqlite:b\nrefuse "
        "= 1000\n[sqlite:b]\npath = %s/b.db\n",
        folder, folder);
    CU_ASSERT(test_file_write(path, text));
    mortise_client *client = open_at(path), *old = open_phase("old");
    IS(UNREACHABLE, attempt(client, "a"));
    CU_ASSERT_PTR_NOT_NULL(strstr(detail.message, "`to` [chaos:b]"));
    IS(OK, attempt(old, "a")); /* nothing was left on `from` */
    mortise_close(client, NULL);
    IS(OK, mortise_close(old, &detail));
}

/* Gone for good: not even opened. */
static void test_from_is_gone(void)
{
    char path[300], text[600];
    begin();
    take_step(true);
    take_step(true);
    snprintf(path, sizeof path, "%s/gone.conf", folder);
    snprintf(text, sizeof text,
             "[mortise]\ndriver = migrate\n[migrate]\nfrom = sqlite:a\nto = sqlite:b\nphase = new\n"
             "[sqlite:a]\npath = %s/no/such/folder/a.db\n[sqlite:b]\npath = %s/b.db\n",
             folder, folder);
    CU_ASSERT(test_file_write(path, text));
    mortise_client *client = open_at(path);
    IS(OK, attempt(client, "a"));
    IS(OK, mortise_close(client, &detail));
}

/* ---- who meets whom ---------------------------------------------------------------------------- */

static void test_exclusion(void)
{
    begin();
    mortise_client *old = open_phase("old"), *both = open_phase("both");
    mortise_lease *lease = take(old, "a");
    IS(BUSY, attempt(both, "a"));
    IS(OK, mortise_release(lease, &detail));
    lease = take(both, "a");
    IS(BUSY, attempt(old, "a"));
    IS(OK, mortise_release(lease, &detail));
    IS(OK, mortise_close(old, &detail));
    take_step(true);
    mortise_client *new = open_phase("new");
    lease = take(new, "a");
    IS(BUSY, attempt(both, "a"));
    IS(OK, mortise_release(lease, &detail));
    lease = take(both, "a");
    IS(BUSY, attempt(new, "a"));
    IS(OK, mortise_release(lease, &detail));
    IS(OK, mortise_close(both, &detail));
    IS(OK, mortise_close(new, &detail));
}

static void expect_present(enum migrate_side which, unsigned phase, int count)
{
    mortise_client *side = open_side(which);
    CU_ASSERT_EQUAL(look_for(side, phase).count, count);
    IS(OK, mortise_close(side, &detail));
}

/* It is written with the first request and released by the close; it is not listed among the application's locks. */
static void test_presence(void)
{
    begin();
    mortise_client *both = open_phase("both");
    expect_present(MIGRATE_FROM, MIGRATE_BOTH, 0);
    IS(OK, attempt(both, "a"));
    expect_present(MIGRATE_FROM, MIGRATE_BOTH, 1);
    expect_present(MIGRATE_TO, MIGRATE_BOTH, 1);
    struct present seen = {.phase = MIGRATE_BOTH};
    IS(OK, mortise_list(both, NULL, count_present, &seen, &detail));
    CU_ASSERT_EQUAL(seen.count, 0);
    IS(INVALID, attempt(both, MIGRATE_FLOOR_LOCK));
    IS(OK, mortise_close(both, &detail));
    expect_present(MIGRATE_FROM, MIGRATE_BOTH, 0);
    expect_present(MIGRATE_TO, MIGRATE_BOTH, 0);
}

/* The message names the clients that a refused client would meet, by host and pid. */
static void test_named(void)
{
    struct test_process old;
    struct operation operation;
    char host[65] = "", pid[32];
    begin();
    gethostname(host, sizeof host - 1);
    CU_ASSERT_FATAL(start_taker(&old, "old", "60s"));
    expect(&old, "acquire a 0 0", "OK", "");
    step_begin(&operation, true);
    snprintf(pid, sizeof pid, "(pid %d, phase old)", (int)old.pid);
    expect_refused("new", pid);
    expect_refused("new", host);
    expect(&old, "close", "OK", "");
    step_end(&operation);
    expect_allowed("new");
    test_kill(&old);
}

/* An operator broke the presence: the leases that depend on it are lost. */
static bool is_lost(void *lease)
{
    return mortise_state(lease) == MORTISE_STATE_LOST;
}

static void test_presence_broken(void)
{
    begin();
    mortise_client *old = open_at(config("old", "3s")), *side = open_side(MIGRATE_FROM);
    mortise_lease *lease = take(old, "a");
    struct present present = look_for(side, MIGRATE_OLD);
    CU_ASSERT_EQUAL(present.count, 1);
    IS(OK, mortise_break(side, present.name, present.token, &detail));
    CU_ASSERT(test_poll(is_lost, lease, PATIENCE_MS));
    IS(LOST, mortise_release(lease, &detail));
    lease = take(old, "a"); /* it registers again, and its old claim is released by then */
    CU_ASSERT_EQUAL(look_for(side, MIGRATE_OLD).count, 1);
    mortise_release(lease, &detail);
    mortise_close(old, &detail);
    IS(OK, mortise_close(side, &detail));
}

/* ---- processes --------------------------------------------------------------------------------- */

/* A step waits for the presence of a killed client, and for nothing else of it. */
static void test_killed(void)
{
    struct test_process old;
    begin();
    CU_ASSERT_FATAL(start_taker(&old, "old", "2s"));
    expect(&old, "acquire a 0 60000", "OK", "");
    test_kill(&old);
    take_step(true); /* waits until it is gone */
    expect_present(MIGRATE_FROM, MIGRATE_OLD, 0);
    expect_allowed("new");
}

/* Stopped past its presence while the step is taken: when it continues, it has lost its leases, and gets none. */
static void test_stopped(void)
{
    struct test_process old;
    begin();
    CU_ASSERT_FATAL(start_taker(&old, "old", "2s"));
    expect(&old, "acquire a 0 60000", "OK", "");
    CU_ASSERT(test_signal(&old, SIGSTOP));
    take_step(true);
    mortise_client *new = open_phase("new");
    mortise_lease *lease = take(new, "a");
    CU_ASSERT(test_signal(&old, SIGCONT));
    expect(&old, "state", "LOST", "");
    expect(&old, "release", "LOST", "");
    expect(&old, "acquire a 0 60000", "CONFIG", "phase old is not admitted");
    expect(&old, "acquire other 0 60000", "CONFIG", "phase old is not admitted");
    CU_ASSERT_EQUAL(mortise_state(lease), MORTISE_STATE_HELD);
    IS(OK, mortise_release(lease, &detail));
    IS(OK, mortise_close(new, &detail));
    test_kill(&old);
}

/* ---- tokens ------------------------------------------------------------------------------------ */

static uint64_t last_token[3];

/* Each name's tokens grow, whoever acquires it: "a" always, "b" only in phases old and new, "c" sometimes. */
static void take_tokens(const char *phase, int round)
{
    static const char *const names[] = {"a", "b", "c"};
    mortise_client *client = open_phase(phase);
    for (int i = 0; i < 3; i++) {
        if ((i == 1 && strcmp(phase, "both") == 0) || (i == 2 && round % 3 != 0))
            continue;
        mortise_lease *lease = take(client, names[i]);
        CU_ASSERT(mortise_token(lease) > last_token[i]);
        last_token[i] = mortise_token(lease);
        IS(OK, mortise_release(lease, &detail));
    }
    IS(OK, mortise_close(client, &detail));
}

static void test_tokens(void)
{
    int round = 0;
    begin();
    memset(last_token, 0, sizeof last_token);
    for (int there_and_back = 0; there_and_back < 3; there_and_back++) {
        for (int i = 0; i < 3; i++) {
            take_tokens("old", round++);
            take_tokens("both", round++);
        }
        take_tokens("old", round++);
        take_step(true);
        for (int i = 0; i < 3; i++) {
            take_tokens("new", round++);
            take_tokens("both", round++);
        }
        take_tokens("new", round++);
        take_step(true);
        take_tokens("new", round++);
        take_step(false);
        take_tokens("both", round++);
        take_step(false);
    }
}

int main(void)
{
    CU_initialize_registry();
    CU_pSuite suite = CU_add_suite("migrate", NULL, NULL);
    CU_add_test(suite, "each stage", test_stages);
    CU_add_test(suite, "half-way", test_half_way);
    CU_add_test(suite, "two operators", test_two_operators);
    CU_add_test(suite, "a register that was forgotten", test_forgotten);
    CU_add_test(suite, "a register of another version", test_register_of_others);
    CU_add_test(suite, "from = to", test_same_section);
    CU_add_test(suite, "two sections, one server", test_same_server);
    CU_add_test(suite, "to is unreachable", test_unreachable);
    CU_add_test(suite, "from is gone", test_from_is_gone);
    CU_add_test(suite, "neighbours exclude each other", test_exclusion);
    CU_add_test(suite, "a presence", test_presence);
    CU_add_test(suite, "whom it would meet", test_named);
    CU_add_test(suite, "a presence that was broken", test_presence_broken);
    CU_add_test(suite, "a client that was killed", test_killed);
    CU_add_test(suite, "a client that was stopped", test_stopped);
    CU_add_test(suite, "tokens", test_tokens);
    CU_basic_set_mode(CU_BRM_VERBOSE);
    CU_basic_run_tests();
    int failures = (int)CU_get_number_of_failures();
    CU_cleanup_registry();
    if (folder[0] != '\0')
        test_folder_remove(folder);
    return failures > 0;
}
