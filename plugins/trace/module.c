/* module.c - the trace observer as a module: writes every event of a client as a line of JSON, for people, for
 * programs that watch a fleet, and for tests that prove from it that no two clients held a lock at the same
 * time. internal.h says which file does what, and what happens to the events if something fails. */
#include "internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum option { OPTION_PATH, OPTION_FD, OPTION_BUFFER, OPTION_FLUSH, OPTION_COUNT };

static const mortise_option options[OPTION_COUNT] = {
    [OPTION_PATH] = {.key = "path",
                     .type = MORTISE_OPTION_TEXT,
                     .help = "the file, an absolute path; lines are appended, and if the "
                             "file was renamed, a new one is created"},
    [OPTION_FD] = {.key = "fd",
                   .type = MORTISE_OPTION_INT,
                   .minimum = 0,
                   .maximum = 1048576,
                   .help = "an open descriptor to write to, instead of a file"},
    [OPTION_BUFFER] = {.key = "buffer",
                       .type = MORTISE_OPTION_INT,
                       .default_text = "4096",
                       .minimum = 16,
                       .maximum = 1048576,
                       .help = "how many KiB of events may wait to be written; further "
                               "events are dropped, and counted in the trace"},
    [OPTION_FLUSH] = {.key = "flush",
                      .type = MORTISE_OPTION_DURATION,
                      .default_text = "100ms",
                      .minimum = 1,
                      .maximum = 60000,
                      .help = "how long an event waits at most; a killed process loses the "
                              "events of this time"},
};

static mortise_status refused(mortise_error *error, const char *section, const char *why)
{
    snprintf(error->message, sizeof(error->message), "[%s] %s", section, why);
    return error->status = MORTISE_CONFIG;
}

static mortise_status open_file(struct trace *trace, const mortise_open_args *args,
                                mortise_error *error)
{
    const mortise_value *path = &args->values[OPTION_PATH], *fd = &args->values[OPTION_FD];
    if (path->given == fd->given)
        return refused(error, args->section,
                       path->given ? "has both path and fd: where is the trace to go?"
                                   : "needs path or fd: where is the trace to go?");
    if (path->given && path->text[0] != '/')
        return refused(error, args->section, "path must be absolute");
    return file_open(&trace->file, path->text, (int)fd->number, error);
}

void trace_free(struct trace *trace)
{
    errand_free(&trace->errand);
    file_close(&trace->file);
    ring_free(&trace->ring);
    free(trace);
}

static mortise_status begin(struct trace *trace, const mortise_open_args *args,
                            mortise_error *error)
{
    mortise_status status = open_file(trace, args, error);
    if (status != MORTISE_OK)
        return status;
    line_opened(&trace->text, trace);
    if (!ring_make(&trace->ring, (size_t)args->values[OPTION_BUFFER].number * 1024))
        return error->status = MORTISE_NOMEM;
    if (writer_start(trace))
        return MORTISE_OK;
    snprintf(error->message, sizeof(error->message), "[%s] cannot start a thread", args->section);
    return error->status = MORTISE_NOMEM;
}

static mortise_status trace_open(const mortise_open_args *args, void **ctx, mortise_error *error)
{
    struct trace *trace = aligned_alloc(_Alignof(struct trace), sizeof(*trace));
    if (trace == NULL)
        return error->status = MORTISE_NOMEM;
    memset(trace, 0, sizeof(*trace));
    trace->file.own = OWN_FD_NONE;
    errand_init(&trace->errand, args->host);
    trace->flush_ms = args->values[OPTION_FLUSH].number;
    snprintf(trace->client, sizeof(trace->client), "%s", args->client_id);
    snprintf(trace->note, sizeof(trace->note), "%s", args->note);
    snprintf(trace->section, sizeof(trace->section), "%s", args->section);
    mortise_status status = begin(trace, args, error);
    if (status == MORTISE_OK)
        *ctx = trace;
    else
        trace_free(trace);
    return status;
}

static void trace_close(void *ctx)
{
    struct trace *trace = ctx;
    if (writer_stop(trace))
        trace_free(trace);
}

static void trace_observe(void *ctx, const mortise_event *event)
{
    struct trace *trace = ctx;
    if (ring_put(&trace->ring, event))
        writer_attend(trace);
}

const mortise_module mortise_module_v1 = {
    MORTISE_MODULE_HEAD,
    .kind = MORTISE_KIND_OBSERVER,
    .name = "trace",
    .version = MORTISE_VERSION_TEXT,
    .summary = "writes every event of a client as a line of JSON",
    .options = options,
    .option_count = OPTION_COUNT,
    .open = trace_open,
    .observe = trace_observe,
    .close = trace_close,
};
