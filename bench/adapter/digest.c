/* digest.c - what the turns that adapters recorded say, as one JSON object: rate, latencies, shares, hand-overs.
 *
 *   mortise-bench-digest [--shared] [--timeline NS] FROM_NS TO_NS FILE…
 *
 * A FILE is what one process recorded (adapter.h). Turns that ended from FROM_NS to TO_NS count. --shared: all were on
 * one name: then a hand-over is from the instant a holder began to release to the next one's grant, and two holds at
 * once are counted as overlaps, which must not be. --timeline: also the latencies by when the turn was due, in steps.
 * So each thing that is measured, in whatever language, is computed by the same lines. */
#include "adapter.h"
#include "histogram.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILES_MAX 256

struct turn {
    struct instants at;
    unsigned file;
};

static struct {
    bool shared;
    int64_t step_ns, from_ns, to_ns;
} options;

static struct turn *turns;
static size_t turn_count, turn_room;
static unsigned file_count;
static uint64_t shares[FILES_MAX], refused;
static int64_t longest_ns[FILES_MAX];

static _Noreturn void die(const char *what)
{
    fprintf(stderr, "mortise-bench-digest: %s: %s\n", what, strerror(errno));
    exit(EXIT_FAILURE);
}

/* ---- reading ---- */

static void take(const struct instants *at, unsigned file)
{
    if (at->done_ns < options.from_ns || at->done_ns > options.to_ns)
        return;
    if (at->granted_ns == 0 && options.step_ns == 0) {
        refused++;
        return;
    }
    if (turn_count == turn_room) {
        turn_room = turn_room == 0 ? 65536 : 2 * turn_room;
        turns = realloc(turns, turn_room * sizeof(turns[0]));
        if (turns == NULL)
            die("memory");
    }
    turns[turn_count++] = (struct turn){*at, file};
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
    static struct histogram acquire, cycle;
    for (size_t i = 0; i < turn_count; i++) {
        const struct instants *at = &turns[i].at;
        int64_t waited_ns = (at->granted_ns != 0 ? at->granted_ns : at->done_ns) - at->asked_ns;
        histogram_add(&acquire, waited_ns);
        histogram_add(&cycle, at->done_ns - at->asked_ns);
        shares[turns[i].file]++;
        if (waited_ns > longest_ns[turns[i].file])
            longest_ns[turns[i].file] = waited_ns;
    }
    print_histogram("acquire_ns", &acquire);
    print_histogram("cycle_ns", &cycle);
}

/* Jain's index: 1 where all processes had the same, 1/n where one had all. */
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

static void tell_handovers(void)
{
    static struct histogram handover;
    uint64_t overlaps = 0, changes = 0;
    qsort(turns, turn_count, sizeof(turns[0]), by_grant);
    for (size_t i = 1; i < turn_count; i++) {
        int64_t took_ns = turns[i].at.granted_ns - turns[i - 1].at.releasing_ns;
        overlaps += took_ns < 0;
        changes += turns[i].file != turns[i - 1].file;
        histogram_add(&handover, took_ns);
    }
    print_histogram("handover_ns", &handover);
    printf(", \"overlaps\": %llu, \"changes\": %.4f", (unsigned long long)overlaps,
           turn_count > 1 ? (double)changes / (double)(turn_count - 1) : 0);
}

static int by_due(const void *a, const void *b)
{
    int64_t x = ((const struct turn *)a)->at.asked_ns, y = ((const struct turn *)b)->at.asked_ns;
    return (x > y) - (x < y);
}

/* [begin of the step in ns, turns, refused, their median and greatest latency], where a turn was due. */
static void tell_timeline(void)
{
    const char *before = "";
    qsort(turns, turn_count, sizeof(turns[0]), by_due);
    printf(", \"timeline\": [");
    for (size_t i = 0, next; i < turn_count; i = next) {
        static struct histogram step;
        uint64_t not_had = 0;
        int64_t number = (turns[i].at.asked_ns - options.from_ns) / options.step_ns;
        memset(&step, 0, sizeof(step));
        for (next = i; next < turn_count &&
                       (turns[next].at.asked_ns - options.from_ns) / options.step_ns == number;
             next++) {
            not_had += turns[next].at.granted_ns == 0;
            histogram_add(&step, turns[next].at.done_ns - turns[next].at.asked_ns);
        }
        printf("%s[%lld, %zu, %llu, %lld, %lld]", before, (long long)(number * options.step_ns),
               next - i, (unsigned long long)not_had, (long long)histogram_at(&step, 0.5),
               (long long)step.most);
        before = ", ";
    }
    printf("]");
}

static void tell(void)
{
    double seconds = (double)(options.to_ns - options.from_ns) / 1e9;
    int64_t longest = 0;
    printf("{\"count\": %zu, \"refused\": %llu, \"seconds\": %.6f, \"rate\": %.3f", turn_count,
           (unsigned long long)refused, seconds, (double)turn_count / seconds);
    tell_latencies();
    tell_shares();
    for (unsigned i = 0; i < file_count; i++)
        longest = longest_ns[i] > longest ? longest_ns[i] : longest;
    printf(", \"longest_wait_ns\": %lld", (long long)longest);
    if (options.shared)
        tell_handovers();
    if (options.step_ns > 0)
        tell_timeline();
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
        else if (strcmp(argv[i], "--timeline") == 0 && i + 1 < argc)
            options.step_ns = number(argv[++i]);
    errno = EINVAL;
    if (argc - i < 3)
        die("[--shared] [--timeline NS] FROM_NS TO_NS FILE...");
    options.from_ns = number(argv[i]);
    options.to_ns = number(argv[i + 1]);
    if (options.to_ns <= options.from_ns)
        die("nothing is between FROM_NS and TO_NS");
    for (i += 2; i < argc; i++)
        read_file(argv[i]);
    tell();
    free(turns);
    return EXIT_SUCCESS;
}
