/* digest.c - computes figures from the turns that adapters recorded, as one JSON object: rate, latencies, shares,
 * hand-overs.
 *
 *   mortise-bench-digest [--shared] FROM_NS TO_NS FILE…
 *
 * A FILE is what one process recorded (adapter.h). Turns that ended from FROM_NS to TO_NS count. But waits of turns that
 * were not granted by then also count, up to TO_NS; otherwise starvation would not be visible. --shared: all turns were
 * on one name. Then a hand-over lasts from the instant at which a holder began to release to the next grant; those
 * within a process are counted separately. Two holds at the same time are overlaps, which must not happen. Grants that
 * passed by a process that had waited for longer, even if it was never granted, are overtakes. So the same lines compute
 * the figures of everything that is measured, in whatever language. */
#include "adapter.h"
#include "histogram.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILES_MAX 256
/* How many grants another process may get in strict order while one waits: one whose request came before, and one that
 * it asked for while the waiting process's request was on its way. */
#define PASSES_ALLOWED 2

struct turn {
    struct instants at;
    unsigned file;
    bool counts, overtakes;
};

static struct {
    bool shared;
    int64_t from_ns, to_ns;
} options;

static struct turn *turns; /* the granted ones */
static size_t turn_count, turn_room, counted;
static struct turn *refusals; /* the refused ones */
static size_t refusal_count, refusal_room;
static unsigned file_count;
static uint64_t shares[FILES_MAX], refused;
static int64_t longest_ns;

static _Noreturn void die(const char *what)
{
    fprintf(stderr, "mortise-bench-digest: %s: %s\n", what, strerror(errno));
    exit(EXIT_FAILURE);
}

/* ---- reading ---- */

static void note_wait(const struct instants *at)
{
    int64_t end_ns = at->granted_ns != 0 ? at->granted_ns : at->done_ns;
    end_ns = end_ns < options.to_ns ? end_ns : options.to_ns;
    if (at->asked_ns < options.to_ns && end_ns >= options.from_ns &&
        end_ns - at->asked_ns > longest_ns)
        longest_ns = end_ns - at->asked_ns;
}

static struct turn *with_room(struct turn *some, size_t count, size_t *room)
{
    if (count < *room)
        return some;
    *room = *room == 0 ? 65536 : 2 * *room;
    some = realloc(some, *room * sizeof(some[0]));
    if (some == NULL)
        die("memory");
    return some;
}

static void take(const struct instants *at, unsigned file)
{
    bool counts = at->done_ns >= options.from_ns && at->done_ns <= options.to_ns;
    const struct turn turn = {*at, file, counts, false};
    note_wait(at);
    if (at->granted_ns == 0) {
        refusals = with_room(refusals, refusal_count, &refusal_room);
        refusals[refusal_count++] = turn;
        refused += counts;
        return;
    }
    turns = with_room(turns, turn_count, &turn_room);
    turns[turn_count++] = turn;
    counted += counts;
}

static void read_file(const char *path)
{
    struct instants some[1024];
    size_t n;
    FILE *file = fopen(path, "re");
    if (file == NULL || file_count == FILES_MAX)
        die(path);
    while ((n = fread(some, sizeof(some[0]), sizeof(some) / sizeof(some[0]), file)) > 0)
        for (size_t i = 0; i < n; i++)
            take(&some[i], file_count);
    if (ferror(file) != 0)
        die(path);
    fclose(file);
    file_count++;
}

/* ---- telling ---- */

static void print_histogram(const char *key, const struct histogram *histogram)
{
    const char *before = "";
    printf(", \"%s\": {\"count\": %llu", key, (unsigned long long)histogram->count);
    if (histogram->count > 0)
        printf(", \"mean\": %.1f, \"p50\": %lld, \"p99\": %lld, \"p999\": %lld, \"max\": %lld",
               histogram->sum / (double)histogram->count, (long long)histogram_at(histogram, 0.5),
               (long long)histogram_at(histogram, 0.99), (long long)histogram_at(histogram, 0.999),
               (long long)histogram->most);
    printf(", \"buckets\": [");
    for (size_t i = 0; i < HISTOGRAM_BUCKETS; i++)
        if (histogram->counts[i] > 0) {
            printf("%s[%lld, %llu]", before, (long long)histogram_upper(i),
                   (unsigned long long)histogram->counts[i]);
            before = ", ";
        }
    printf("]}");
}

static void tell_latencies(void)
{
    static struct histogram acquire, cycle, hold;
    for (size_t i = 0; i < turn_count; i++) {
        const struct instants *at = &turns[i].at;
        if (!turns[i].counts)
            continue;
        if (at->granted_ns < at->done_ns) { /* not one that cannot be split */
            histogram_add(&acquire, at->granted_ns - at->asked_ns);
            histogram_add(&hold, at->releasing_ns - at->granted_ns);
        }
        histogram_add(&cycle, at->done_ns - at->asked_ns);
        shares[turns[i].file]++;
    }
    print_histogram("acquire_ns", &acquire);
    print_histogram("cycle_ns", &cycle);
    print_histogram("hold_ns", &hold);
}

/* Jain's index: 1 if all processes had the same share, 1/n if one had all. */
static void tell_shares(void)
{
    double sum = 0, squares = 0, least = 0;
    printf(", \"shares\": [");
    for (unsigned i = 0; i < file_count; i++) {
        double share = (double)shares[i];
        sum += share;
        squares += share * share;
        least = i == 0 || share < least ? share : least;
        printf("%s%llu", i > 0 ? ", " : "", (unsigned long long)shares[i]);
    }
    printf("], \"jain\": %.4f, \"least_share\": %.4f",
           squares > 0 ? sum * sum / (file_count * squares) : 0,
           sum > 0 ? least * file_count / sum : 0);
}

static int by_grant(const void *a, const void *b)
{
    int64_t x = ((const struct turn *)a)->at.granted_ns,
            y = ((const struct turn *)b)->at.granted_ns;
    return (x > y) - (x < y);
}

static uint64_t overlaps_among_sorted(void)
{
    uint64_t overlaps = 0;
    int64_t held_until_ns = 0;
    for (size_t i = 0; i < turn_count; i++) {
        const struct instants *at = &turns[i].at;
        overlaps += at->granted_ns < held_until_ns;
        held_until_ns = at->releasing_ns > held_until_ns ? at->releasing_ns : held_until_ns;
    }
    return overlaps;
}

/* Looks at turns from `since` on, before `until`, that were granted in this interval. If a process got more than
 * PASSES_ALLOWED, marks the further ones. */
static void mark_passes(size_t since, size_t until, int64_t from_ns, int64_t to_ns)
{
    unsigned passes[FILES_MAX] = {0};
    for (size_t i = since; i < until; i++)
        if (turns[i].at.granted_ns > from_ns && turns[i].at.granted_ns < to_ns &&
            ++passes[turns[i].file] > PASSES_ALLOWED)
            turns[i].overtakes = true;
}

/* A process that gets no further grant has waited until it gave up, or until the end of the round. */
static void mark_those_before_the_end(unsigned file, size_t since, int64_t released_ns)
{
    int64_t asked_ns = INT64_MAX, until_ns = INT64_MIN;
    for (size_t i = 0; i < refusal_count; i++) {
        const struct instants *at = &refusals[i].at;
        if (refusals[i].file != file || at->done_ns <= released_ns)
            continue;
        asked_ns = at->asked_ns < asked_ns ? at->asked_ns : asked_ns;
        until_ns = at->done_ns > until_ns ? at->done_ns : until_ns;
    }
    mark_passes(since, turn_count, released_ns > asked_ns ? released_ns : asked_ns,
                until_ns < options.to_ns ? until_ns : options.to_ns);
}

/* Marks those that passed by this process. It waits from its last release, or from when the first of its turns that
 * are still to come was asked for. */
static void mark_overtakes(unsigned file, const int64_t *first_ask_ns)
{
    int64_t released_ns = INT64_MIN;
    size_t since = 0;
    for (size_t i = 0; i < turn_count; i++) {
        if (turns[i].file != file)
            continue;
        mark_passes(since, i, released_ns > first_ask_ns[i] ? released_ns : first_ask_ns[i],
                    INT64_MAX);
        since = i + 1;
        released_ns = turns[i].at.releasing_ns;
    }
    mark_those_before_the_end(file, since, released_ns);
}

static uint64_t overtakes_among_sorted(void)
{
    uint64_t overtakes = 0;
    int64_t first_ns[FILES_MAX], *first_ask_ns = malloc((turn_count + 1) * sizeof(*first_ask_ns));
    if (first_ask_ns == NULL)
        die("memory");
    for (unsigned file = 0; file < file_count; file++)
        first_ns[file] = INT64_MAX;
    for (size_t i = turn_count; i-- > 0;) {
        int64_t *first = &first_ns[turns[i].file];
        *first = turns[i].at.asked_ns < *first ? turns[i].at.asked_ns : *first;
        first_ask_ns[i] = *first;
    }
    for (unsigned file = 0; file < file_count; file++)
        mark_overtakes(file, first_ask_ns);
    for (size_t i = 0; i < turn_count; i++)
        overtakes += turns[i].counts && turns[i].overtakes;
    free(first_ask_ns);
    return overtakes;
}

static void tell_handovers(void)
{
    static struct histogram handover, pass;
    uint64_t changes = 0;
    qsort(turns, turn_count, sizeof(turns[0]), by_grant);
    for (size_t i = 1; i < turn_count; i++) {
        bool change = turns[i].file != turns[i - 1].file;
        int64_t took_ns = turns[i].at.granted_ns - turns[i - 1].at.releasing_ns;
        if (!turns[i].counts)
            continue;
        changes += change;
        histogram_add(change ? &handover : &pass, took_ns);
    }
    print_histogram("handover_ns", &handover);
    print_histogram("pass_ns", &pass);
    printf(", \"overlaps\": %llu, \"overtakes\": %.4f, \"changes\": %.4f",
           (unsigned long long)overlaps_among_sorted(),
           counted > 0 ? (double)overtakes_among_sorted() / (double)counted : 0,
           handover.count + pass.count > 0 ? (double)changes / (double)(handover.count + pass.count)
                                           : 0);
}

static void tell(void)
{
    double seconds = (double)(options.to_ns - options.from_ns) / 1e9;
    printf("{\"count\": %zu, \"refused\": %llu, \"seconds\": %.6f, \"rate\": %.3f", counted,
           (unsigned long long)refused, seconds, (double)counted / seconds);
    tell_latencies();
    tell_shares();
    printf(", \"longest_wait_ns\": %lld", (long long)longest_ns);
    if (options.shared)
        tell_handovers();
    printf("}\n");
}

/* ---- the command line ---- */

static int64_t number(const char *text)
{
    char *end;
    long long value = strtoll(text, &end, 10);
    errno = EINVAL;
    if (end == text || *end != '\0' || value < 0)
        die(text);
    return value;
}

int main(int argc, char **argv)
{
    int i = 1;
    for (; i < argc && argv[i][0] == '-'; i++)
        if (strcmp(argv[i], "--shared") == 0)
            options.shared = true;
    errno = EINVAL;
    if (argc - i < 3)
        die("[--shared] FROM_NS TO_NS FILE...");
    options.from_ns = number(argv[i]);
    options.to_ns = number(argv[i + 1]);
    if (options.to_ns <= options.from_ns)
        die("nothing is between FROM_NS and TO_NS");
    for (i += 2; i < argc; i++)
        read_file(argv[i]);
    tell();
    free(turns);
    free(refusals);
    return EXIT_SUCCESS;
}
