/* module.c - the metrics observer as a module: counts what a client does, and writes the counts for Prometheus (for the
 * textfile collector of the node exporter). internal.h says which file does what, and what happens if something
 * fails. */
#include "internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OPTION_FOLDER, OPTION_EVERY, OPTION_PROGRAM, OPTION_SLOTS, OPTION_COUNT };

static const mortise_option options[OPTION_COUNT] = {
    [OPTION_FOLDER] = {.key = "folder",
                       .type = MORTISE_OPTION_TEXT,
                       .flags = MORTISE_OPTION_REQUIRED,
                       .help = "the directory that the node exporter reads (its "
                               "--collector.textfile.directory), an absolute path"},
    [OPTION_EVERY] = {.key = "every",
                      .type = MORTISE_OPTION_DURATION,
                      .default_text = "15s",
                      .minimum = 10,
                      .maximum = 3600000,
                      .help = "how often the file is written; it is also written when the "
                              "client closes"},
    [OPTION_PROGRAM] = {.key = "program",
                        .type = MORTISE_OPTION_TEXT,
                        .help = "the value of the label `program`; without it, the name of "
                                "the process"},
    [OPTION_SLOTS] = {.key = "slots",
                      .type = MORTISE_OPTION_INT,
                      .default_text = "64",
                      .minimum = 1,
                      .maximum = 10000,
                      .help = "how many clients of one program, driver and namespace can "
                              "have a file at the same time; further ones are not shown"},
};

static mortise_status refused(mortise_error *error, const char *section, const char *why)
{
    snprintf(error->message, sizeof(error->message), "[%s] %s", section, why);
    return error->status = MORTISE_CONFIG;
}

/* Copies a word that can be a label and part of a file name. */
static void copy_word(char *to, size_t size, const char *from)
{
    size_t length = 0;
    for (; *from != '\0' && *from != '\n' && length + 1 < size; from++) {
        char c = *from;
        bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                     c == '.' || c == '_' || c == ':' || c == '-';
        to[length++] = plain ? c : '_';
    }
    to[length] = '\0';
}

/* Copies the namespace as the value of a label: bytes that are not printable become \xNN, with the backslash escaped. */
static void copy_label(char *to, size_t size, const char *from)
{
    size_t length = 0;
    for (; *from != '\0' && length + 6 < size; from++) {
        unsigned char c = (unsigned char)*from;
        if (c == '"' || c == '\\')
            length += (size_t)snprintf(to + length, size - length, "\\%c", c);
        else if (c < 0x20 || c >= 0x7f)
            length += (size_t)snprintf(to + length, size - length, "\\\\x%02x", c);
        else
            to[length++] = (char)c;
    }
    to[length] = '\0';
}

/* The note is "host\npid\nprogram". */
static const char *program_of(const char *note)
{
    const char *line = strrchr(note, '\n');
    return line != NULL && line[1] != '\0' ? line + 1 : "unknown";
}

static void fill(struct metrics *metrics, const mortise_open_args *args)
{
    const mortise_value *program = &args->values[OPTION_PROGRAM];
    bool told = args->size >= sizeof(*args) && args->top != NULL;
    metrics->every_ms = args->values[OPTION_EVERY].number;
    copy_word(metrics->driver, sizeof(metrics->driver), told ? args->top : "unknown");
    copy_word(metrics->program, sizeof(metrics->program),
              program->given && program->text[0] != '\0' ? program->text : program_of(args->note));
    copy_label(metrics->names, sizeof(metrics->names), told ? args->names_begin : "");
    snprintf(metrics->place.folder, sizeof(metrics->place.folder), "%s",
             args->values[OPTION_FOLDER].text);
    place_name(&metrics->place, metrics->program, metrics->driver, metrics->names);
    metrics->place.slots = (int)args->values[OPTION_SLOTS].number;
}

void metrics_free(struct metrics *metrics)
{
    place_leave(&metrics->place);
    errand_free(&metrics->errand);
    pthread_cond_destroy(&metrics->changed);
    pthread_mutex_destroy(&metrics->lock);
    free(metrics->callers);
    free(metrics->leases);
    free(metrics);
}

static struct metrics *metrics_new(mortise_host *host)
{
    struct metrics *metrics = calloc(1, sizeof(*metrics));
    pthread_condattr_t monotonic;
    if (metrics == NULL)
        return NULL;
    errand_init(&metrics->errand, host);
    metrics->place.slot = metrics->place.last = -1;
    metrics->place.lock = OWN_FD_NONE;
    pthread_mutex_init(&metrics->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&metrics->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    metrics->callers =
        calloc(1, sizeof(*metrics->callers)); /* the pages are used only when they are needed */
    metrics->leases = calloc(1, sizeof(*metrics->leases));
    if (metrics->callers != NULL && metrics->leases != NULL)
        return metrics;
    metrics_free(metrics);
    return NULL;
}

static mortise_status metrics_open(const mortise_open_args *args, void **ctx, mortise_error *error)
{
    const char *folder = args->values[OPTION_FOLDER].text;
    if (folder[0] != '/' || strlen(folder) >= sizeof(((struct place *)NULL)->folder))
        return refused(error, args->section, "folder must be an absolute path, and not that long");
    struct metrics *metrics = metrics_new(args->host);
    if (metrics == NULL)
        return error->status = MORTISE_NOMEM;
    fill(metrics, args);
    if (!writer_start(metrics)) {
        snprintf(error->message, sizeof(error->message), "[%s] cannot start a thread",
                 args->section);
        metrics_free(metrics);
        return error->status = MORTISE_NOMEM;
    }
    *ctx = metrics;
    return MORTISE_OK;
}

static void metrics_close(void *ctx)
{
    struct metrics *metrics = ctx;
    if (writer_stop(metrics))
        metrics_free(metrics);
}

static void metrics_observe(void *ctx, const mortise_event *event)
{
    count_event(ctx, event);
}

const mortise_module mortise_module_v1 = {
    MORTISE_MODULE_HEAD,
    .kind = MORTISE_KIND_OBSERVER,
    .name = "metrics",
    .version = MORTISE_VERSION_TEXT,
    .summary = "counts and times for Prometheus, through the node exporter's textfile collector",
    .options = options,
    .option_count = OPTION_COUNT,
    .open = metrics_open,
    .observe = metrics_observe,
    .close = metrics_close,
};
