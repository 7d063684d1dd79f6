/* backend_metrics.c - counts of the held names by prefix, and their text in the format of Prometheus. */
#include "backend_metrics.h"

#include "connect.h"
#include "output.h"
#include "text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- Counting -------------------------------------------------------------------------------- */

static size_t prefix_length(const char *name)
{
    const size_t before = strcspn(name, "/:");

    return name[before] == '\0' ? 0 : before + 1;
}

static struct prefix_tally *add_prefix(struct tally *tally, const char *name, size_t length)
{
    if (tally->count == tally->capacity) {
        tally->capacity = tally->capacity ? tally->capacity * 2 : 16;
        tally->prefixes =
            must_have(reallocarray(tally->prefixes, tally->capacity, sizeof *tally->prefixes));
    }
    struct prefix_tally *fresh = &tally->prefixes[tally->count++];
    *fresh = (struct prefix_tally){.oldest_ms = -1};
    memcpy(fresh->prefix, name, length);
    return fresh;
}

void tally_begin(struct tally *tally)
{
    *tally = (struct tally){0};
    add_prefix(tally, "", 0);
}

/* In byte order the names of one prefix follow each other, except those without a prefix. */
static struct prefix_tally *prefix_of(struct tally *tally, const char *name)
{
    const size_t length = prefix_length(name);
    struct prefix_tally *last = &tally->prefixes[tally->count - 1];

    if (length == 0)
        return &tally->prefixes[0];
    if (strncmp(last->prefix, name, length) == 0 && last->prefix[length] == '\0')
        return last;
    return add_prefix(tally, name, length);
}

static void add_to(struct prefix_tally *sum, uint64_t held, uint64_t waiters, int64_t oldest_ms)
{
    sum->held += held;
    sum->waiters += waiters;
    if (oldest_ms > sum->oldest_ms)
        sum->oldest_ms = oldest_ms;
}

void tally_add(struct tally *tally, const mortise_info *info)
{
    if (info->waiters >= 0)
        tally->waiters_known = true;
    add_to(prefix_of(tally, info->name), 1, info->waiters > 0 ? (uint64_t)info->waiters : 0,
           info->held_ms);
}

void tally_end(struct tally *tally)
{
    free(tally->prefixes);
    *tally = (struct tally){0};
}

static struct prefix_tally whole(const struct tally *tally, size_t from)
{
    struct prefix_tally sum = {.oldest_ms = -1};

    for (size_t i = from; i < tally->count; i++)
        add_to(&sum, tally->prefixes[i].held, tally->prefixes[i].waiters,
               tally->prefixes[i].oldest_ms);
    return sum;
}

uint64_t tally_held(const struct tally *tally)
{
    return whole(tally, 0).held;
}

int64_t tally_waiters(const struct tally *tally)
{
    /* If no name is held, there are no waiters, even if the backend does not count them. */
    if (!tally->waiters_known && tally_held(tally) > 0)
        return -1;
    return (int64_t)whole(tally, 0).waiters;
}

int64_t tally_oldest_ms(const struct tally *tally)
{
    return whole(tally, 0).oldest_ms;
}

/* ---- Writing --------------------------------------------------------------------------------- */

/* A label's value is UTF-8; printable() has escaped the rest with backslashes, and each of those is escaped in turn. */
static void write_label(FILE *out, const char *key, const char *text)
{
    char shown[QUOTED_SIZE];

    printable(text, shown, sizeof shown);
    fprintf(out, "%s=\"", key);
    for (const char *at = shown; *at != '\0'; at++) {
        if (*at == '"' || *at == '\\')
            putc('\\', out);
        putc(*at, out);
    }
    putc('"', out);
}

static void write_labels(FILE *out, mortise_client *client)
{
    mortise_module_info info = {.size = sizeof info};
    const char *driver = "", *where = "";

    if (client == NULL) {
        config_unopened(&driver, &where);
    } else {
        driver = mortise_module_at(client, 0, &info) ? info.section : "";
        where = mortise_config_source(client);
    }
    write_label(out, "driver", driver);
    putc(',', out);
    write_label(out, "config", where ? where : "");
}

static void write_head(FILE *out, const char *name, const char *type, const char *help)
{
    fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static void write_ms(FILE *out, mortise_client *client, const char *name, int64_t ms)
{
    fprintf(out, "%s{", name);
    write_labels(out, client);
    fprintf(out, "} %" PRId64 ".%03" PRId64 "\n", ms / 1000, ms % 1000);
}

void metrics_write_one(FILE *out, mortise_client *client, const char *name, const char *type,
                       const char *help, uint64_t value)
{
    write_head(out, name, type, help);
    fprintf(out, "%s{", name);
    write_labels(out, client);
    fprintf(out, "} %" PRIu64 "\n", value);
}

static int by_held(const void *a, const void *b)
{
    const struct prefix_tally *left = a, *right = b;

    if (left->held != right->held)
        return left->held > right->held ? -1 : 1;
    return strcmp(left->prefix, right->prefix);
}

/* The prefixes with the most held names, and "other" for the rest. A real prefix ends with '/' or ':', or is empty. */
static void select_prefixes(const struct tally *tally, struct tally *shown)
{
    *shown = (struct tally){.waiters_known = tally->waiters_known};
    for (size_t i = 0; i < tally->count; i++) {
        if (tally->prefixes[i].held > 0)
            *add_prefix(shown, "", 0) = tally->prefixes[i];
    }
    if (shown->count <= BACKEND_PREFIXES)
        return;
    qsort(shown->prefixes, shown->count, sizeof *shown->prefixes, by_held);
    struct prefix_tally rest = whole(shown, BACKEND_PREFIXES);
    memcpy(rest.prefix, "other", sizeof "other");
    shown->prefixes[BACKEND_PREFIXES] = rest;
    shown->count = BACKEND_PREFIXES + 1;
}

enum figure { HELD, WAITERS, OLDEST };

static void write_prefixes(FILE *out, mortise_client *client, const struct tally *shown,
                           const char *name, enum figure figure)
{
    for (size_t i = 0; i < shown->count; i++) {
        const struct prefix_tally *one = &shown->prefixes[i];
        if (figure == OLDEST && one->oldest_ms < 0)
            continue;
        fprintf(out, "%s{", name);
        write_labels(out, client);
        putc(',', out);
        write_label(out, "prefix", one->prefix);
        if (figure == OLDEST)
            fprintf(out, "} %" PRId64 ".%03" PRId64 "\n", one->oldest_ms / 1000,
                    one->oldest_ms % 1000);
        else
            fprintf(out, "} %" PRIu64 "\n", figure == HELD ? one->held : one->waiters);
    }
}

void metrics_write(FILE *out, mortise_client *client, const struct tally *tally, int64_t took_ms)
{
    struct tally shown;

    metrics_write_one(out, client, "mortise_backend_up", "gauge",
                      "1 if the backend answered the last listing, else 0.", tally != NULL);
    if (client == NULL)
        return;
    write_head(out, "mortise_backend_list_seconds", "gauge", "How long the last listing took.");
    write_ms(out, client, "mortise_backend_list_seconds", took_ms);
    if (tally == NULL)
        return;
    select_prefixes(tally, &shown);
    write_head(out, "mortise_backend_held", "gauge", "Held names, by prefix.");
    write_prefixes(out, client, &shown, "mortise_backend_held", HELD);
    if (shown.waiters_known) {
        write_head(out, "mortise_backend_waiters", "gauge",
                   "Clients that wait for held names, by prefix.");
        write_prefixes(out, client, &shown, "mortise_backend_waiters", WAITERS);
    }
    write_head(out, "mortise_backend_oldest_seconds", "gauge",
               "How long the oldest holder has held its name, by prefix.");
    write_prefixes(out, client, &shown, "mortise_backend_oldest_seconds", OLDEST);
    tally_end(&shown);
}
