/* report.c - a benchmark's figures as a table for people, and as JSON for mortise-bench. Computes nothing. */
#include "report.h"

#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

/* Three significant digits, and not too many zeros to read. */
static const char *figure_text(double value, char *text, size_t size)
{
    double magnitude = value < 0 ? -value : value;
    int digits = magnitude >= 100 || value == 0 ? 0 : magnitude >= 10 ? 1 : magnitude >= 1 ? 2 : 3;
    snprintf(text, size, "%.*f", digits, value);
    return text;
}

/* One value has no spread. */
static void print_row(const char *label, struct report_figure figure, bool once, const char *unit)
{
    char median[32], least[32] = "once", most[32] = "";
    figure_text(figure.median, median, sizeof(median));
    if (!once) {
        figure_text(figure.least, least, sizeof(least));
        figure_text(figure.most, most, sizeof(most));
    }
    printf("  %-52s %10s %10s %10s  %s\n", label, median, least, most, unit);
}

static bool is_once(const struct bench_series *series)
{
    return series->sort != BENCH_OF_ROUNDS;
}

static const char *verdict_text(enum report_verdict verdict)
{
    static const char *const texts[] = {
        [REPORT_MET] = "met", [REPORT_MISSED] = "missed", [REPORT_NOT_DECIDED] = "not decided"};
    return texts[verdict];
}

static const char *bound_text(enum bench_bound bound)
{
    static const char *const texts[] = {[BENCH_AT_MOST] = "at most",
                                        [BENCH_AT_LEAST] = "at least",
                                        [BENCH_NEVER_ABOVE] = "never above"};
    return texts[bound];
}

static void print_check(const struct report_check *check)
{
    char target[64] = "";
    if (check->series == NULL) {
        printf("  %-52s %10s %33s\n", check->label, "",
               check->verdict == REPORT_MET ? "holds" : "DOES NOT HOLD");
        return;
    }
    if (check->bound == BENCH_TOLD) {
        print_row(check->label, check->figure, is_once(check->series), "");
        return;
    }
    snprintf(target, sizeof(target), "(%s %g%s%s) %s", bound_text(check->bound), check->target,
             check->over == NULL ? " " : "", check->over == NULL ? check->series->unit : "",
             verdict_text(check->verdict));
    print_row(check->label, check->figure, is_once(check->series), target);
}

void report_print(const struct report *report)
{
    printf("%s: %s\n", report->name, report->title);
    printf("  %-52s %10s %10s %10s\n", "", "median", "least", "most");
    for (size_t i = 0; i < report->series_count; i++) {
        const struct bench_series *series = &report->series[i];
        if (series->count > 0)
            print_row(series->label, report_figure(series->values, series->count), is_once(series),
                      series->unit);
    }
    for (size_t i = 0; i < report->check_count; i++)
        if (report->checks[i].measured)
            print_check(&report->checks[i]);
}

/* ---- JSON ---- */

/* Labels are this program's own, but a text from the machine may contain anything. */
static void write_text(FILE *file, const char *key, const char *text)
{
    fprintf(file, "\"%s\": \"", key);
    for (; *text != '\0'; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\')
            fprintf(file, "\\%c", c);
        else if (c < 0x20)
            fprintf(file, "\\u%04x", c);
        else
            fputc(c, file);
    }
    fputc('"', file);
}

/* The processor's name as Linux tells it. */
static void processor(char *name, size_t size)
{
    char line[256];
    snprintf(name, size, "unknown processor");
    FILE *file = fopen("/proc/cpuinfo", "re");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
        const char *value = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || value == NULL)
            continue;
        line[strcspn(line, "\n")] = '\0';
        snprintf(name, size, "%s", value + 1 + strspn(value + 1, " "));
        break;
    }
    if (file != NULL)
        fclose(file);
}

static void write_head(FILE *file, const struct report *report)
{
    char cpu[128], date[32] = "";
    struct utsname kernel;
    time_t now = time(NULL);
    struct tm utc;
    if (gmtime_r(&now, &utc) != NULL)
        strftime(date, sizeof(date), "%Y-%m-%d", &utc);
    if (uname(&kernel) < 0)
        memset(&kernel, 0, sizeof(kernel));
    processor(cpu, sizeof(cpu));
    write_text(file, "program", report->name);
    fprintf(file, ",\n ");
    write_text(file, "title", report->title);
    fprintf(file, ",\n \"machine\": {");
    write_text(file, "processor", cpu);
    fprintf(file, ", \"cores\": %ld, ", sysconf(_SC_NPROCESSORS_ONLN));
    write_text(file, "system", kernel.sysname);
    fprintf(file, ", ");
    write_text(file, "release", kernel.release);
    fprintf(file, ", ");
    write_text(file, "machine", kernel.machine);
    fprintf(file, ", ");
    write_text(file, "date", date);
    fprintf(file, "},\n \"rounds\": %d, \"seconds\": %g, \"cpu\": %d, \"quick\": %s", bench.rounds,
            bench.seconds, bench.cpu, bench.quick ? "true" : "false");
}

static void write_figure(FILE *file, struct report_figure figure, bool once)
{
    fprintf(file, "\"median\": %.6g, \"least\": %.6g, \"most\": %.6g, \"once\": %s", figure.median,
            figure.least, figure.most, once ? "true" : "false");
}

static void write_series(FILE *file, const struct bench_series *series)
{
    fprintf(file, "  {");
    write_text(file, "series", series->key);
    fprintf(file, ", ");
    write_text(file, "label", series->label);
    fprintf(file, ", ");
    write_text(file, "unit", series->unit);
    fprintf(file, ", ");
    write_figure(file, report_figure(series->values, series->count), is_once(series));
    fputc('}', file);
}

static void write_check(FILE *file, const struct report_check *check)
{
    fprintf(file, "  {");
    write_text(file, "check", check->key);
    fprintf(file, ", ");
    write_text(file, "label", check->label);
    if (check->series != NULL) {
        fprintf(file, ", ");
        write_text(file, "unit", check->over == NULL ? check->series->unit : "");
        fprintf(file, ", ");
        write_figure(file, check->figure, is_once(check->series));
    }
    if (check->series != NULL && check->bound != BENCH_TOLD)
        fprintf(file, ", \"bound\": \"%s\", \"target\": %g", bound_text(check->bound),
                check->target);
    fprintf(file, ", ");
    write_text(file, "verdict", verdict_text(check->verdict));
    fputc('}', file);
}

static void write_all_series(FILE *file, const struct report *report)
{
    const char *before = "\n";
    for (size_t i = 0; i < report->series_count; i++) {
        if (report->series[i].count == 0)
            continue;
        fputs(before, file);
        write_series(file, &report->series[i]);
        before = ",\n";
    }
}

static void write_all_checks(FILE *file, const struct report *report)
{
    const char *before = "\n";
    for (size_t i = 0; i < report->check_count; i++) {
        if (!report->checks[i].measured)
            continue;
        fputs(before, file);
        write_check(file, &report->checks[i]);
        before = ",\n";
    }
}

bool report_write(const struct report *report, const char *path)
{
    FILE *file = fopen(path, "we");
    if (file == NULL)
        return false;
    fprintf(file, "{");
    write_head(file, report);
    fprintf(file, ",\n \"series\": [");
    write_all_series(file, report);
    fprintf(file, "\n ],\n \"checks\": [");
    write_all_checks(file, report);
    fprintf(file, "\n ]}\n");
    bool written = ferror(file) == 0;
    return fclose(file) == 0 && written;
}
