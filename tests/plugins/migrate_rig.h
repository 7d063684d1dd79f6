/* migrate_rig.h - the migrate plugin under a test's control: over two sim servers, `from` and `to`, on a clock that
 * the test moves (rig.h). sim is the script of the first one, `other` that of the second one. */
#ifndef MIGRATE_RIG_H
#define MIGRATE_RIG_H

#define RIG_DRIVER "migrate"
#include "rig.h"

#include "migration.h"

#include <inttypes.h>

static const sim_api *other;

/* settings: what stands below phase and presence in [migrate], and further sections. */
static inline void migrate_open(struct rig *rig, const char *phase, const char *settings)
{
    char text[1000];
    snprintf(text, sizeof text,
             "ttl = 60s\nunreachable_timeout = 10s\n[migrate]\nfrom = sim\nto = sim_other\n"
             "phase = %s\npresence = 10s\n%s",
             phase, settings);
    rig_open(rig, text);
}

/* As an operator has it: one side alone. */
static inline void side_open(struct rig *rig, enum migrate_side side)
{
    char path[300], where[320];
    mortise_error error = {.message = ""};
    snprintf(path, sizeof path, "%s/side.conf", rig_folder);
    CU_ASSERT_FATAL(test_file_write(path, "[mortise]\nlog = none\n[sim]\n[sim_other]\n"));
    snprintf(where, sizeof where, "%s#%s", path, side == MIGRATE_FROM ? "sim" : "sim_other");
    atomic_store(&client_manual, true);
    if (mortise_open(where, &rig->handle, &error) != MORTISE_OK)
        fprintf(stderr, "mortise_open: %s\n", error.message);
    CU_ASSERT_PTR_NOT_NULL_FATAL(rig->handle);
}

/* The register of a side, where nobody has written one yet. */
static inline void register_set(enum migrate_side side, unsigned phases, uint64_t floor)
{
    struct rig rig = {NULL, NULL};
    struct migrate_register reg = {.phases = phases, .floor = floor};
    char text[MIGRATE_RECORD_SIZE], seen[MIGRATE_RECORD_SIZE];
    size_t size = sizeof seen;
    uint64_t version = 0;
    side_open(&rig, side);
    CU_ASSERT_EQUAL(
        mortise_record_read(rig.handle, migrate_register_name(side), seen, &size, &version, NULL),
        MORTISE_OK);
    size = migrate_register_encode(&reg, text);
    CU_ASSERT_EQUAL(
        mortise_record_write(rig.handle, migrate_register_name(side), text, size, &version, NULL),
        MORTISE_OK);
    CU_ASSERT_EQUAL(mortise_close(rig.handle, NULL), MORTISE_OK);
}

#define ASSERT_NOTHING_LEFT_ON(server)                                                             \
    do {                                                                                           \
        CU_ASSERT_EQUAL((server)->claims(), 0);                                                    \
        CU_ASSERT_EQUAL((server)->waiters(NULL), 0);                                               \
        CU_ASSERT_EQUAL((server)->outstanding(), 0);                                               \
        CU_ASSERT_EQUAL((server)->ghosts(), 0);                                                    \
    } while (0)
#define ASSERT_NOTHING_LEFT_ANYWHERE()                                                             \
    do {                                                                                           \
        ASSERT_NOTHING_LEFT_ON(sim);                                                               \
        ASSERT_NOTHING_LEFT_ON(other);                                                             \
    } while (0)

static inline int migrate_rig_run(const char *suite, const CU_TestInfo *tests)
{
    void *library = dlopen(TEST_SIM_DIR "/sim_other.so", RTLD_NOW | RTLD_LOCAL);
    other = library != NULL ? dlsym(library, SIM_API_SYMBOL) : NULL;
    if (other != NULL)
        return rig_run(suite, tests);
    fprintf(stderr, "%s: %s\n", suite, dlerror());
    return 1;
}

#endif
