/* test_rounds.c - the rounds of the programs of bench/: each case is measured once in each of them, and none always stands
 * behind the same one. */
#include "common.h"
#include "suite.h"

enum { CASES = 4, ROUNDS = 21 };

static int before = -1, behind[CASES][CASES], warm_ups = 2 * CASES;

/* Counts who was measured before. */
static double measure(struct bench_case *self, double seconds)
{
    int mine = *(const int *)self->context;
    (void)seconds;
    if (warm_ups > 0) {
        warm_ups--;
        return 0;
    }
    if (before >= 0)
        behind[before][mine]++;
    before = mine;
    return mine;
}

static void test_order_of_the_rounds(void)
{
    static const char *const keys[CASES] = {"a", "b", "c", "d"};
    static int numbers[CASES];
    struct bench_case cases[CASES];
    char word[] = "rounds", *words[] = {word, NULL};
    bench.rounds = ROUNDS;
    bench_begin(1, words, "rounds", "rounds", 0);
    for (int i = 0; i < CASES; i++) {
        numbers[i] = i;
        cases[i] = (struct bench_case){.series = bench_new_series(keys[i], keys[i], ""),
                                       .measure = measure,
                                       .context = &numbers[i]};
    }
    bench_rounds(cases, CASES);
    for (int i = 0; i < CASES; i++) {
        CU_ASSERT_EQUAL(cases[i].series->count, ROUNDS);
        for (int round = 0; round < ROUNDS; round++)
            CU_ASSERT_EQUAL(cases[i].series->values[round], i);
        for (int j = 0; j < CASES; j++)
            CU_ASSERT(i == j || (behind[i][j] > 0 && behind[i][j] < 2 * ROUNDS / 3));
    }
}

int main(void)
{
    CU_TestInfo tests[] = {{"the order of the rounds", test_order_of_the_rounds},
                           CU_TEST_INFO_NULL};
    return suite_run("rounds", tests);
}
