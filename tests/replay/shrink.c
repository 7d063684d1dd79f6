/* shrink.c - drops steps of a plan as long as the run still fails in the same way: first half of them, then a quarter, and
 * so on. A plan that is shorter has other interleavings, so each is tried with several. */
#include "shrink.h"

#include "backend.h"
#include "world.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SCHEDULES = 24, PROOF = 160 };

/* What failed: the kind of violation, or the text of the finding without its numbers. */
static void proof_of(const char *output, char *proof)
{
    static const char *const kinds[] = {"overlap", "permits",  "outlived",   "order",
                                        "starved", "leftover", "unbalanced", "lost-update"};
    const char *finding = strstr(output, "FINDING: ");
    const char *place = finding ? strstr(finding, "): ") : NULL;
    size_t n = 0;
    if (place) {
        for (place += 3; *place && *place != '\n' && *place != ':' && n < PROOF - 1; place++)
            if (!isdigit((unsigned char)*place))
                proof[n++] = *place;
        proof[n] = '\0';
        return;
    }
    proof[0] = '\0';
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        char text[32];
        snprintf(text, sizeof text, ": %s: ", kinds[i]);
        if (strstr(output, text)) {
            snprintf(proof, PROOF, "%s", kinds[i]);
            return;
        }
    }
}

/* Whether the plan fails in this way with one of these schedules; the plan gets the schedule. */
static bool fails(struct plan *plan, const char *wanted, char *proof, int schedules)
{
    uint64_t first = plan->schedule;
    for (int i = 0; i < schedules; i++) {
        char *output, seen[PROOF];
        plan_reschedule(plan, i == 0 ? first : first + (uint64_t)i * 7919);
        struct child child = child_begin(plan, false, 0);
        int code = child_end(&child, &output);
        proof_of(output, seen);
        if (code >= 128)
            snprintf(seen, sizeof seen, "signal %d", code - 128);
        free(output);
        if (code != 0 && (!wanted || strcmp(seen, wanted) == 0)) {
            if (proof)
                memcpy(proof, seen, PROOF);
            return true;
        }
    }
    plan_reschedule(plan, first);
    return false;
}

static int kept(const struct plan *plan)
{
    int count = 0;
    for (int i = 0; i < plan->count; i++)
        count += !plan->steps[i].dropped;
    return count;
}

/* Drops the steps from the n-th kept one on, `size` of them. */
static bool drop(struct plan *plan, int n, int size)
{
    int seen = 0, dropped = 0;
    for (int i = 0; i < plan->count; i++) {
        if (plan->steps[i].dropped)
            continue;
        if (seen >= n && seen < n + size) {
            plan->steps[i].dropped = true;
            dropped++;
        }
        seen++;
    }
    return dropped > 0;
}

static void shorten(struct plan *best, const char *wanted)
{
    for (int size = kept(best) / 2; size > 0; size = size > 1 ? size / 2 : 0)
        for (int n = 0; n < kept(best);) {
            struct plan candidate = *best;
            if (drop(&candidate, n, size) && fails(&candidate, wanted, NULL, SCHEDULES))
                *best = candidate;
            else
                n += size;
        }
}

/* What all workers do at the end, or else one of them after the other. */
static void leave_out_ends(struct plan *best, const char *wanted)
{
    for (int worker = -1; worker < best->workers && best->no_end + 1 != 1u << best->workers;
         worker++) {
        struct plan candidate = *best;
        candidate.no_end |= worker < 0 ? (1u << best->workers) - 1 : 1u << worker;
        if (candidate.no_end != best->no_end && fails(&candidate, wanted, NULL, SCHEDULES))
            *best = candidate;
    }
}

static void print_command(const struct plan *plan)
{
    const char *comma = "";
    printf("replay --driver %s --seed %llu --schedule %llu --keep ", run_world.backend->name,
           (unsigned long long)plan->seed, (unsigned long long)plan->schedule);
    for (int i = 0; i < plan->count; i++)
        if (!plan->steps[i].dropped) {
            printf("%s%d", comma, i);
            comma = ",";
        }
    if (!*comma)
        printf("-");
    if (plan->no_end)
        printf(" --no-end %u", plan->no_end);
    printf("\n");
}

int shrink(const struct plan *plan)
{
    struct plan best = *plan;
    char wanted[PROOF], *output;
    if (!fails(&best, NULL, wanted, 1)) {
        printf("the plan does not fail\n");
        return 0;
    }
    leave_out_ends(&best, wanted);
    int before = kept(&best), now = before + 1;
    while (kept(&best) < now) {
        now = kept(&best);
        shorten(&best, wanted);
        leave_out_ends(&best, wanted);
    }
    printf("%s: %d of %d steps are left\n", wanted, kept(&best), before);
    plan_print(&best);
    struct child child = child_begin(&best, true, 0);
    child_end(&child, &output);
    fputs(output, stdout);
    free(output);
    print_command(&best);
    return 1;
}
