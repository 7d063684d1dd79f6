/* test_rounds.c - the rounds of the programs of bench/: each case is measured once in each of them, and none always stands
 * behind the same one. And what they say of a target. */
#include "common.h"
#include "report.h"
#include "suite.h"

#include <stdio.h>
#include <stdlib.h>

extern struct report report;

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

static void begin(void)
{
    char word[] = "rounds", *words[] = {word, NULL};
    bench_begin(1, words, "rounds", "rounds", 0);
}

static void test_order_of_the_rounds(void)
{
    static const char *const keys[CASES] = {"a", "b", "c", "d"};
    static int numbers[CASES];
    struct bench_case cases[CASES];
    bench.rounds = ROUNDS;
    begin();
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

/* So many values, of which the last one may be another, beside a target of 2. */
static const struct {
    size_t count;
    double value, last;
    enum bench_sort sort;
    enum bench_bound bound;
    enum report_verdict verdict;
} verdicts[] = {
    {4, 1, 1, BENCH_OF_ROUNDS, BENCH_AT_MOST, REPORT_NOT_DECIDED}, /* too few */
    {5, 1, 1, BENCH_OF_ROUNDS, BENCH_AT_MOST, REPORT_MET},
    {2, 3, 3, BENCH_OF_ROUNDS, BENCH_AT_MOST, REPORT_MISSED},
    {4, 3, 3, BENCH_OF_ROUNDS, BENCH_AT_LEAST, REPORT_NOT_DECIDED},
    {11, 1, 3, BENCH_OF_ROUNDS, BENCH_AT_MOST, REPORT_MET},
    {11, 1, 3, BENCH_OF_ROUNDS, BENCH_NEVER_ABOVE, REPORT_MISSED},
    {11, 1, 1.5, BENCH_OF_ROUNDS, BENCH_NEVER_ABOVE, REPORT_MET},
    {11, 1, 1.9, BENCH_OF_ROUNDS, BENCH_NEVER_ABOVE, REPORT_NOT_DECIDED}, /* one value, near */
    {4, 1, 1.5, BENCH_OF_ROUNDS, BENCH_NEVER_ABOVE, REPORT_NOT_DECIDED},
    {1, 1.5, 1.5, BENCH_ONCE, BENCH_AT_MOST, REPORT_MET},
    {1, 1.9, 1.9, BENCH_ONCE, BENCH_AT_MOST, REPORT_NOT_DECIDED},
    {1, 2.4, 2.4, BENCH_ONCE, BENCH_AT_MOST, REPORT_NOT_DECIDED},
    {1, 2.6, 2.6, BENCH_ONCE, BENCH_AT_MOST, REPORT_MISSED},
    {1, 2, 2, BENCH_COUNT, BENCH_AT_MOST, REPORT_MET},
    {1, 2.1, 2.1, BENCH_COUNT, BENCH_AT_MOST, REPORT_MISSED},
};

enum { VERDICTS = sizeof(verdicts) / sizeof(verdicts[0]) };

static void test_verdicts(void)
{
    begin();
    for (size_t i = 0; i < VERDICTS; i++) {
        struct bench_series *series = bench_new_series("series", "series", "");
        for (size_t k = 1; k < verdicts[i].count; k++)
            bench_add(series, verdicts[i].value);
        if (verdicts[i].sort == BENCH_OF_ROUNDS)
            bench_add(series, verdicts[i].last);
        else
            bench_add_only(series, verdicts[i].last, verdicts[i].sort);
        bench_check("check", "check", series, NULL, verdicts[i].bound, 2);
    }
    CU_ASSERT_EQUAL(bench_end(), EXIT_SUCCESS);
    for (size_t i = 0; i < VERDICTS; i++) {
        CU_ASSERT_EQUAL(report.checks[i].verdict, verdicts[i].verdict);
        if (report.checks[i].verdict != verdicts[i].verdict)
            fprintf(stderr, "of verdict %zu\n", i);
    }
}

int main(void)
{
    CU_TestInfo tests[] = {{"the order of the rounds", test_order_of_the_rounds},
                           {"the verdicts", test_verdicts},
                           CU_TEST_INFO_NULL};
    return suite_run("rounds", tests);
}
