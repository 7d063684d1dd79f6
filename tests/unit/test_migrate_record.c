/* test_migrate_record.c - what the migrate plugin and the command share, tested without either: names and texts are
 * encoded and decoded, other texts are not mistaken for a register, and the steps: each leads to the stage that it
 * names, none opens one side while the other is open, and every stage can be left in both directions. */
#include "migration.h"

#include <CUnit/Basic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char id[] = "0123456789abcdef0123456789abcdef";

static void test_words(void)
{
    static const unsigned all[] = {MIGRATE_OLD, MIGRATE_BOTH, MIGRATE_NEW};
    char text[MIGRATE_PHASES_TEXT_SIZE];
    for (size_t i = 0; i < 3; i++)
        CU_ASSERT_EQUAL(migrate_phase_of(migrate_phase_word(all[i])), all[i]);
    CU_ASSERT_EQUAL(migrate_phase_of("bot"), 0);
    CU_ASSERT_PTR_NULL(migrate_phase_word(MIGRATE_OLD | MIGRATE_NEW));
    migrate_phases_text(MIGRATE_OLD | MIGRATE_BOTH | MIGRATE_NEW, text);
    CU_ASSERT_STRING_EQUAL(text, "{old, both, new}");
    migrate_phases_text(0, text);
    CU_ASSERT_STRING_EQUAL(text, "{}");
    CU_ASSERT(migrate_uses(MIGRATE_OLD, MIGRATE_FROM) && !migrate_uses(MIGRATE_OLD, MIGRATE_TO));
    CU_ASSERT(migrate_uses(MIGRATE_BOTH, MIGRATE_FROM) && migrate_uses(MIGRATE_BOTH, MIGRATE_TO));
    CU_ASSERT(!migrate_uses(MIGRATE_NEW, MIGRATE_FROM) && migrate_uses(MIGRATE_NEW, MIGRATE_TO));
}

/* ---- registers --------------------------------------------------------------------------------- */

static void test_register_there_and_back(void)
{
    char text[MIGRATE_RECORD_SIZE];
    static const uint64_t floors[] = {0, 1, 1795222401000000, UINT64_MAX};
    for (unsigned set = 0; set < 8; set++)
        for (size_t i = 0; i < 4; i++) {
            struct migrate_register reg = {.phases = set, .floor = floors[i]}, again;
            size_t size = migrate_register_encode(&reg, text);
            CU_ASSERT_EQUAL(size, strlen(text));
            CU_ASSERT(migrate_register_decode(MIGRATE_FROM, text, size, &again));
            CU_ASSERT_EQUAL(again.phases, set);
            CU_ASSERT_EQUAL(again.floor, floors[i]);
            for (size_t part = 1; part < size; part++) /* cut short, it is none */
                CU_ASSERT_FALSE(migrate_register_decode(MIGRATE_FROM, text, part, &again));
        }
}

static void test_register_absent(void)
{
    struct migrate_register reg;
    CU_ASSERT(migrate_register_decode(MIGRATE_FROM, NULL, 0, &reg));
    CU_ASSERT_EQUAL(reg.phases, MIGRATE_OLD | MIGRATE_BOTH);
    CU_ASSERT(migrate_register_decode(MIGRATE_TO, NULL, 0, &reg));
    CU_ASSERT_EQUAL(reg.phases, MIGRATE_BOTH);
    CU_ASSERT_EQUAL(reg.floor, 0);
}

static void test_register_of_others(void)
{
    static const char *const texts[] = {
        "x",
        "mortise-migrate 2\nphases = old\nfloor = 0\n",
        "mortise-migrate 1\nphases = old\n",
        "mortise-migrate 1\nfloor = 0\nphases = old\n",
        "mortise-migrate 1\nphases = older\nfloor = 0\n",
        "mortise-migrate 1\nphases = old old\nfloor = 0\n",
        "mortise-migrate 1\nphases = old \nfloor = 0\n",
        "mortise-migrate 1\nphases =  old\nfloor = 0\n",
        "mortise-migrate 1\nphases = old\nfloor = \n",
        "mortise-migrate 1\nphases = old\nfloor = -1\n",
        "mortise-migrate 1\nphases = old\nfloor = 18446744073709551616\n",
        "mortise-migrate 1\nphases = old\nfloor = 0\nmore\n",
        "mortise-migrate 1\nphases = old\nfloor = 0\n                                              "
        "                                                                          ",
    };
    struct migrate_register reg;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        reg.phases = 7;
        CU_ASSERT_FALSE(migrate_register_decode(MIGRATE_TO, texts[i], strlen(texts[i]), &reg));
        CU_ASSERT_EQUAL(reg.phases, 0); /* who looks nevertheless finds nobody allowed */
    }
    char text[MIGRATE_RECORD_SIZE] = "mortise-migrate 1\nphases = old\nfloor = 0\n";
    CU_ASSERT_FALSE(migrate_register_decode(MIGRATE_TO, text, strlen(text) + 1, &reg));
}

/* ---- presences --------------------------------------------------------------------------------- */

static void test_presences(void)
{
    char name[MIGRATE_NAME_SIZE], prefix[MIGRATE_NAME_SIZE], again[MIGRATE_CLIENT_ID_SIZE];
    unsigned phase;
    for (unsigned wanted = MIGRATE_OLD; wanted <= MIGRATE_NEW; wanted *= 2) {
        migrate_presence_name(wanted, id, name);
        migrate_presence_prefix(wanted, prefix);
        CU_ASSERT_EQUAL(strncmp(name, prefix, strlen(prefix)), 0);
        CU_ASSERT_EQUAL(strncmp(prefix, MIGRATE_PRESENCES, strlen(MIGRATE_PRESENCES)), 0);
        CU_ASSERT(migrate_presence_decode(name, &phase, again));
        CU_ASSERT_EQUAL(phase, wanted);
        CU_ASSERT_STRING_EQUAL(again, id);
        CU_ASSERT_FALSE(migrate_presence_decode(prefix, &phase, NULL));
    }
    static const char *const others[] = {"",
                                         "a",
                                         MIGRATE_FLOOR_LOCK,
                                         MIGRATE_PRESENCES,
                                         MIGRATE_PRESENCES "old",
                                         MIGRATE_PRESENCES "ol/0123456789abcdef0123456789abcdef",
                                         MIGRATE_PRESENCES "old/0123456789abcdef0123456789abcde",
                                         MIGRATE_PRESENCES "old/0123456789abcdef0123456789abcdefa",
                                         MIGRATE_PRESENCES "old/0123456789abcdef0123456789abcdeg"};
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        CU_ASSERT_FALSE(migrate_presence_decode(others[i], &phase, NULL));
    for (unsigned side = 0; side < 2; side++)
        CU_ASSERT_FALSE(migrate_presence_decode(migrate_register_name(side), &phase, NULL));
}

/* ---- steps ------------------------------------------------------------------------------------- */

struct world {
    struct migrate_register of[2];
};

static struct world world_new(void)
{
    return (struct world){
        {migrate_register_absent(MIGRATE_FROM), migrate_register_absent(MIGRATE_TO)}};
}

/* Never both ends open; whoever holds the closed phase is gone before the other opens. */
static void expect_safe(const struct world *world)
{
    CU_ASSERT(!migrate_allows(&world->of[MIGRATE_FROM], MIGRATE_OLD) ||
              !migrate_allows(&world->of[MIGRATE_TO], MIGRATE_NEW));
}

static void take(struct world *world, const struct migrate_step *step)
{
    world->of[step->closes].phases = step->closes_to;
    expect_safe(world);
    CU_ASSERT_EQUAL(step->closes_to & step->gone, 0);
    world->of[!step->closes].phases = step->opens_to;
    expect_safe(world);
    CU_ASSERT_EQUAL(migrate_stage_of(&world->of[0], &world->of[1]), step->leads_to);
}

static const struct migrate_step *next(const struct world *world, bool forward)
{
    return migrate_step_of(&world->of[0], &world->of[1], forward);
}

static void test_there_and_back(void)
{
    static const enum migrate_stage way[] = {MIGRATE_STAGE_2, MIGRATE_STAGE_3, MIGRATE_STAGE_2,
                                             MIGRATE_STAGE_1};
    struct world world = world_new();
    CU_ASSERT_EQUAL(migrate_stage_of(&world.of[0], &world.of[1]), MIGRATE_STAGE_1);
    CU_ASSERT_PTR_NULL(next(&world, false));
    for (size_t i = 0; i < 4; i++) {
        const struct migrate_step *step = next(&world, i < 2);
        CU_ASSERT_PTR_NOT_NULL_FATAL(step);
        CU_ASSERT_EQUAL(step->leads_to, way[i]);
        take(&world, step);
        if (i == 1)
            CU_ASSERT_PTR_NULL(next(&world, true));
    }
}

/* From every pair of registers, and from the middle of every step, both ends are reached, and always safely. */
static void test_from_everywhere(void)
{
    for (unsigned from = 0; from < 8; from++)
        for (unsigned to = 0; to < 8; to++)
            for (int way = 0; way < 4; way++) {
                bool forward = (way & 1) != 0;
                struct world world = {{{.phases = from}, {.phases = to}}};
                const struct migrate_step *step = next(&world, (way & 2) != 0);
                if (step != NULL) { /* an operator who dies half-way */
                    world.of[step->closes].phases = step->closes_to;
                    expect_safe(&world);
                }
                int steps = 0;
                while ((step = next(&world, forward)) != NULL && steps++ < 8)
                    take(&world, step);
                CU_ASSERT(steps <= 3);
                CU_ASSERT_EQUAL(migrate_stage_of(&world.of[0], &world.of[1]),
                                forward ? MIGRATE_STAGE_3 : MIGRATE_STAGE_1);
            }
}

/* A phase is let in only by a step that shut out, and waited for, those it must not meet. */
static void test_who_is_waited_for(void)
{
    for (unsigned from = 0; from < 8; from++)
        for (unsigned to = 0; to < 8; to++)
            for (int forward = 0; forward < 2; forward++) {
                struct world world = {{{.phases = from}, {.phases = to}}};
                const struct migrate_step *step = next(&world, forward != 0);
                if (step == NULL)
                    continue;
                if (step->closes == MIGRATE_TO && (step->opens_to & MIGRATE_OLD) != 0)
                    CU_ASSERT_EQUAL(step->gone, MIGRATE_NEW);
                if (step->closes == MIGRATE_FROM && (to & MIGRATE_NEW) == 0)
                    CU_ASSERT_EQUAL(step->gone, MIGRATE_OLD);
            }
}

/* The clients of another migration that has the other role on the closed side: phase new where this one has `from`. */
static void test_other_migrations(void)
{
    for (unsigned from = 0; from < 8; from++)
        for (unsigned to = 0; to < 8; to++)
            for (int forward = 0; forward < 2; forward++) {
                struct world world = {{{.phases = from}, {.phases = to}}};
                const struct migrate_step *step = next(&world, forward != 0);
                if (step == NULL || !step->takes_floor)
                    continue;
                CU_ASSERT_EQUAL(step->foreign,
                                step->closes == MIGRATE_FROM ? MIGRATE_NEW : MIGRATE_OLD);
                CU_ASSERT_EQUAL(step->foreign & step->gone, 0);
            }
    for (unsigned own = 0; own < 8; own++)
        for (unsigned other = 0; other < 8; other++) {
            struct migrate_register regs[] = {{.phases = own}, {.phases = other}};
            bool past_old = (other & MIGRATE_OLD) == 0 && (other != 0 || own == 0);
            CU_ASSERT_EQUAL(migrate_other_is_in_the_way(MIGRATE_FROM, &regs[0], &regs[1]),
                            (other & MIGRATE_BOTH) != 0);
            CU_ASSERT_EQUAL(migrate_other_is_in_the_way(MIGRATE_TO, &regs[0], &regs[1]), past_old);
        }
}

static void test_old_beside(void)
{
    struct migrate_register to = migrate_register_absent(MIGRATE_TO);
    CU_ASSERT(migrate_old_may_beside(&to));
    to.phases = MIGRATE_BOTH | MIGRATE_NEW;
    CU_ASSERT_FALSE(migrate_old_may_beside(&to));
    to.phases = 0;
    CU_ASSERT(migrate_old_may_beside(&to));
}

static void test_floor(void)
{
    for (unsigned highest = 0; highest < 4; highest++) {
        uint64_t given[4] = {1, 1, 1, 1};
        given[highest] = 9;
        CU_ASSERT_EQUAL(migrate_floor_after(given, given + 2), UINT64_C(86400000009));
        given[highest] = UINT64_MAX - 1;
        CU_ASSERT_EQUAL(migrate_floor_after(given, given + 2), UINT64_MAX);
    }
}

int main(void)
{
    CU_initialize_registry();
    CU_pSuite suite = CU_add_suite("migrate_record", NULL, NULL);
    CU_add_test(suite, "words", test_words);
    CU_add_test(suite, "a register, there and back", test_register_there_and_back);
    CU_add_test(suite, "an absent register", test_register_absent);
    CU_add_test(suite, "what is no register", test_register_of_others);
    CU_add_test(suite, "presences", test_presences);
    CU_add_test(suite, "all steps, there and back", test_there_and_back);
    CU_add_test(suite, "from everywhere to both ends", test_from_everywhere);
    CU_add_test(suite, "who is waited for", test_who_is_waited_for);
    CU_add_test(suite, "clients of another migration", test_other_migrations);
    CU_add_test(suite, "an old client that sees the other side", test_old_beside);
    CU_add_test(suite, "floors", test_floor);
    CU_basic_set_mode(CU_BRM_VERBOSE);
    CU_basic_run_tests();
    int failures = (int)CU_get_number_of_failures();
    CU_cleanup_registry();
    return failures > 0;
}
