/* text.c - writes the counters in the text format of Prometheus, and reads them back: a slot's new owner reads the
 * counts of the former one. Both use the same walk over the lines, so that they always agree. */
#include "internal.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NS_PER_S UINT64_C(1000000000)

struct row {
    const char *name, *help;
    size_t offset; /* in counts */
};

static const struct row counter_rows[] = {
    {"mortise_asked_total", "Acquires that were begun", offsetof(struct counts, asked)},
    {"mortise_queued_total",
     "Acquires that waited behind others of the process, or that the backend made wait",
     offsetof(struct counts, queued)},
    {"mortise_grants_total", "Leases that the backend gave", offsetof(struct counts, granted)},
    {"mortise_handovers_total", "Leases that were passed on within the process",
     offsetof(struct counts, handed_over)},
    {"mortise_shared_leases_total", "Leases of both kinds that are shared",
     offsetof(struct counts, shared)},
    {"mortise_releases_total", "Leases that were given back", offsetof(struct counts, releases)},
    {"mortise_renewals_total", "Renewals that succeeded", offsetof(struct counts, renewals)},
    {"mortise_suspects_total", "Times that a lease was in doubt, for a renewal failed",
     offsetof(struct counts, suspects)},
    {"mortise_losses_total", "Leases that were lost", offsetof(struct counts, losses)},
    {"mortise_untimed_total",
     "Times that were not measured, because an older one under way had its place",
     offsetof(struct counts, untimed)},
};

static const struct row histogram_rows[] = {
    {"mortise_wait_seconds", "From the acquire to the lease", offsetof(struct counts, wait)},
    {"mortise_hold_seconds", "From the lease to its release or loss",
     offsetof(struct counts, hold)},
};

#define COUNT(rows) (sizeof(rows) / sizeof((rows)[0]))

static const char *const status_words[STATUSES] = {
#define STATUS_WORD(name, code, text) [-(code)] = #name,
    MORTISE_STATUS_MAP(STATUS_WORD)
#undef STATUS_WORD
};

static void put(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void put(struct text *text, const char *format, ...)
{
    va_list arguments;
    size_t room = sizeof(text->bytes) - text->used;
    va_start(arguments, format);
    int length = vsnprintf(text->bytes + text->used, room, format, arguments);
    va_end(arguments);
    text->full |= length < 0 || (size_t)length >= room;
    if (!text->full)
        text->used += (size_t)length;
}

/* ---- the walk -------------------------------------------------------------------------------- */

/* One line without its value, its counter, and the value that it shows. A bucket also shows all smaller buckets. */
struct line {
    const char *name, *more;
    counter *written, *former; /* NULL: the line only sums up other lines */
    uint64_t shown;
    bool seconds;
};

struct walk {
    struct metrics *metrics;
    void (*head)(struct walk *walk, const struct row *row, const char *type);
    void (*each)(struct walk *walk, const struct line *line);
    /* of resuming */
    const char *file;
    char bucket[64]; /* the histogram whose buckets are being read */
    uint64_t below;
};

/* The counter of the row in one of the `counts`. */
static void *in(struct counts *counts, const struct row *row)
{
    return (char *)counts + row->offset;
}

static uint64_t shown(const counter *made, const counter *former)
{
    return count_of(made) + count_of(former);
}

static void walk_counters(struct walk *walk)
{
    for (size_t i = 0; i < COUNT(counter_rows); i++) {
        const struct row *row = &counter_rows[i];
        counter *former = in(&walk->metrics->former, row);
        uint64_t value = shown(in(&walk->metrics->made, row), former);
        walk->head(walk, row, "counter");
        walk->each(walk, &(struct line){row->name, "", in(&walk->metrics->written, row), former,
                                        value, false});
    }
}

static void walk_failures(struct walk *walk)
{
    static const struct row row = {"mortise_failures_total", "Acquires that failed", 0};
    char more[64];
    walk->head(walk, &row, "counter");
    for (int i = 0; i < STATUSES; i++) {
        counter *written = &walk->metrics->written.failures[i];
        counter *former = &walk->metrics->former.failures[i];
        uint64_t value = shown(&walk->metrics->made.failures[i], former);
        snprintf(more, sizeof(more), ",status=\"%s\"", i == 0 ? "OTHER" : status_words[i]);
        walk->each(walk, &(struct line){row.name, more, written, former, value, false});
    }
}

static void walk_histogram(struct walk *walk, const struct row *row)
{
    struct histogram *made = in(&walk->metrics->made, row);
    struct histogram *written = in(&walk->metrics->written, row);
    struct histogram *former = in(&walk->metrics->former, row);
    char name[64], more[64] = ",le=\"+Inf\"";
    uint64_t count = 0;
    walk->head(walk, row, "histogram");
    snprintf(name, sizeof(name), "%s_bucket", row->name);
    for (int i = 0; i <= BOUNDS; i++) {
        if (i < BOUNDS)
            snprintf(more, sizeof(more), ",le=\"%s\"", bounds[i].word);
        else
            snprintf(more, sizeof(more), ",le=\"+Inf\"");
        count += shown(&made->buckets[i], &former->buckets[i]);
        walk->each(walk, &(struct line){name, more, &written->buckets[i], &former->buckets[i],
                                        count, false});
    }
    snprintf(name, sizeof(name), "%s_sum", row->name);
    walk->each(walk, &(struct line){name, "", &written->sum_ns, &former->sum_ns,
                                    shown(&made->sum_ns, &former->sum_ns), true});
    snprintf(name, sizeof(name), "%s_count", row->name);
    walk->each(walk, &(struct line){name, "", NULL, NULL, count, false});
}

static void walk_all(struct walk *walk)
{
    walk_counters(walk);
    walk_failures(walk);
    for (size_t i = 0; i < COUNT(histogram_rows); i++)
        walk_histogram(walk, &histogram_rows[i]);
}

/* ---- writing --------------------------------------------------------------------------------- */

static void put_series(struct text *text, const struct metrics *metrics, const char *name,
                       const char *more)
{
    put(text, "%s{driver=\"%s\",namespace=\"%s\",program=\"%s\",slot=\"%d\"%s} ", name,
        metrics->driver, metrics->names, metrics->program, metrics->place.slot, more);
}

static void write_head(struct walk *walk, const struct row *row, const char *type)
{
    put(&walk->metrics->text, "# HELP %s %s.\n# TYPE %s %s\n", row->name, row->help, row->name,
        type);
}

static void write_line(struct walk *walk, const struct line *line)
{
    struct text *text = &walk->metrics->text;
    put_series(text, walk->metrics, line->name, line->more);
    if (line->seconds)
        put(text, "%" PRIu64 ".%09" PRIu64 "\n", line->shown / NS_PER_S, line->shown % NS_PER_S);
    else
        put(text, "%" PRIu64 "\n", line->shown);
}

static void write_gauge(struct walk *walk, const char *name, const char *help, uint64_t begun,
                        uint64_t ended)
{
    write_head(walk, &(struct row){name, help, 0}, "gauge");
    write_line(
        walk, &(struct line){.name = name, .more = "", .shown = begun > ended ? begun - ended : 0});
}

/* The current numbers of leases and callers of this client only. Reads the counters of ends before those of
 * beginnings, so that an event in between cannot make a difference negative. */
static void write_gauges(struct walk *walk)
{
    const struct counts *counts = &walk->metrics->counts;
    uint64_t failed = 0, ended = count_of(&counts->ended);
    for (int i = 0; i < STATUSES; i++)
        failed += count_of(&counts->failures[i]);
    uint64_t had = count_of(&counts->granted) + count_of(&counts->handed_over);
    uint64_t asked = count_of(&counts->asked);
    write_gauge(walk, "mortise_held", "Leases held now", had, ended);
    write_gauge(walk, "mortise_waiting", "Acquires under way now, the length of the queue", asked,
                had + failed);
}

static void copy(struct counts *to, const struct counts *from)
{
    counter *each = (counter *)to;
    const counter *value = (const counter *)from;
    for (size_t i = 0; i < sizeof(*to) / sizeof(*each); i++)
        atomic_store(&each[i], count_of(&value[i]));
}

void text_make(struct metrics *metrics)
{
    struct walk walk = {.metrics = metrics, .head = write_head, .each = write_line};
    copy(&metrics->made, &metrics->counts);
    metrics->text.used = 0;
    metrics->text.full = false;
    write_gauges(&walk);
    walk_all(&walk);
}

void text_written(struct metrics *metrics)
{
    copy(&metrics->written, &metrics->made);
}

/* ---- resuming -------------------------------------------------------------------------------- */

static void no_head(struct walk *walk, const struct row *row, const char *type)
{
    (void)walk, (void)row, (void)type;
}

/* Returns the value of the line that begins with `series`; 0: there is none. */
static uint64_t value_in(const char *file, const char *series, bool seconds)
{
    const char *place = strstr(file, series);
    if (place == NULL || (place != file && place[-1] != '\n'))
        return 0;
    char *end;
    uint64_t value = strtoull(place + strlen(series), &end, 10);
    if (!seconds)
        return value;
    return value * NS_PER_S + (*end == '.' ? strtoull(end + 1, NULL, 10) % NS_PER_S : 0);
}

static void read_line(struct walk *walk, const struct line *line)
{
    struct text *series = &walk->metrics->text; /* a buffer that is not in use yet */
    if (line->former == NULL)
        return;
    series->used = 0;
    put_series(series, walk->metrics, line->name, line->more);
    uint64_t value = value_in(walk->file, series->bytes, line->seconds), below = 0;
    if (line->more[0] != '\0' && strstr(line->more, "le=") != NULL) {
        below = strcmp(walk->bucket, line->name) == 0 ? walk->below : 0;
        snprintf(walk->bucket, sizeof(walk->bucket), "%s", line->name);
        walk->below = value;
    }
    /* negative if this client has written more to files than this file shows; but with its own counts, the sum is at
     * least 0 */
    atomic_store(line->former, (value > below ? value - below : 0) - count_of(line->written));
}

void text_resume(struct metrics *metrics, const char *file)
{
    struct walk walk = {.metrics = metrics, .head = no_head, .each = read_line, .file = file};
    walk_all(&walk);
}
