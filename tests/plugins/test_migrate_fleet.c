/* test_migrate_fleet.c - what `mortise migrate` does with a fleet of thousands grows with the number of clients, and not with its
 * square: the comparisons of texts are counted, and the time does not matter. The lists of clients are made here. */
#include "migrate_test.h"

#include "connect.h"
#include "exit_code.h"
#include "migrate.h"
#include "suite.h"

#include <fcntl.h>

enum { CLIENTS = 2000, FEW = 100 };

static struct migration migration;
static unsigned phases[2]; /* of which each side lists CLIENTS clients */
static int lists_left;     /* then they are gone */
static uint64_t comparisons;

/* ---- in place of the library's --------------------------------------------------------------------- */

mortise_status __wrap_mortise_list(mortise_client *client, const char *prefix,
                                   mortise_list_callback each, void *user_data,
                                   mortise_error *error);

/* strcmp() is this name in all files of the program (CMakeLists.txt): sanitizers have a strcmp() of their own. */
int counted_strcmp(const char *one, const char *other)
{
    size_t at = 0;
    comparisons++;
    while (one[at] != '\0' && one[at] == other[at])
        at++;
    return (int)(unsigned char)one[at] - (int)(unsigned char)other[at];
}

mortise_status __wrap_mortise_list(mortise_client *client, const char *prefix,
                                   mortise_list_callback each, void *user_data,
                                   mortise_error *error)
{
    const bool on_to = client == migration.sides[MIGRATE_TO].client;
    (void)error;
    if (lists_left == 0)
        return MORTISE_OK;
    lists_left--;
    for (unsigned phase = MIGRATE_OLD; phase <= MIGRATE_NEW; phase *= 2) {
        char own[MIGRATE_NAME_SIZE], id[MIGRATE_CLIENT_ID_SIZE];
        migrate_presence_prefix(phase, own);
        if ((phases[on_to] & phase) == 0 || strncmp(own, prefix, strlen(prefix)) != 0)
            continue;
        for (unsigned i = 0; i < CLIENTS; i++) {
            mortise_info info = {.size = sizeof info, .held = true, .pid = i + 1, .owner = "grant"};
            snprintf(id, sizeof id, "%032x", i);
            migrate_presence_name(phase, id, info.name);
            if (!each(&info, user_data))
                return MORTISE_OK;
        }
    }
    return MORTISE_OK;
}

/* ---- the command ------------------------------------------------------------------------------------ */

static void look(void)
{
    begin();
    config_where = config("both", "60s");
    CU_ASSERT_EQUAL_FATAL(migration_open(&migration, NULL), EXIT_DONE);
}

static void expect_few(void)
{
    printf("    %" PRIu64 " comparisons\n", comparisons);
    CU_ASSERT(comparisons >= CLIENTS); /* they are counted */
    CU_ASSERT(comparisons < (uint64_t)FEW * CLIENTS);
}

/* Two looks find them, those of another migration too; then they are gone. */
static void test_step(void)
{
    struct plan plan;
    look();
    plan_make(&migration, true, &plan);
    CU_ASSERT_EQUAL_FATAL(plan.code, EXIT_DONE);
    phases[MIGRATE_FROM] = MIGRATE_OLD | MIGRATE_NEW;
    lists_left = 2 * 3; /* one for each phase */
    comparisons = 0;
    CU_ASSERT_EQUAL(step_take(&migration, &plan, PATIENCE_MS), EXIT_DONE);
    CU_ASSERT_EQUAL(lists_left, 0);
    expect_few();
    plan_end(&plan);
    migration_close(&migration);
}

static int status_into(const char *path)
{
    fflush(stdout);
    int own = dup(STDOUT_FILENO), file = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    CU_ASSERT_FATAL(own >= 0 && file >= 0 && dup2(file, STDOUT_FILENO) >= 0);
    int code = show_status(&migration, false);
    CU_ASSERT(dup2(own, STDOUT_FILENO) >= 0);
    close(own);
    close(file);
    return code;
}

/* Clients of phase both are on both sides, and each one is shown once. */
static void test_status(void)
{
    char path[300], line[4096];
    int clients = 0, on_both = 0;
    look();
    phases[MIGRATE_FROM] = MIGRATE_OLD | MIGRATE_BOTH;
    phases[MIGRATE_TO] = MIGRATE_BOTH | MIGRATE_NEW;
    lists_left = 2;
    comparisons = 0;
    snprintf(path, sizeof path, "%s/status", folder);
    CU_ASSERT_EQUAL(status_into(path), EXIT_DONE);
    expect_few();
    FILE *shown = fopen(path, "re");
    CU_ASSERT_PTR_NOT_NULL_FATAL(shown);
    while (fgets(line, sizeof line, shown) != NULL) {
        clients += strncmp(line, "client", strlen("client")) == 0;
        on_both += strstr(line, "from, to") != NULL;
    }
    fclose(shown);
    CU_ASSERT_EQUAL(clients, 3 * CLIENTS);
    CU_ASSERT_EQUAL(on_both, CLIENTS);
    migration_close(&migration);
}

int main(void)
{
    static const CU_TestInfo tests[] = {
        {"a step", test_step},
        {"the status", test_status},
        CU_TEST_INFO_NULL,
    };
    int code = suite_run("migrate_fleet", tests);
    if (folder[0] != '\0')
        test_folder_remove(folder);
    return code;
}
