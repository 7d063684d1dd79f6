/* recorder.c - an observer for the torture run: it writes each event at once, as the trace observer would, into a
 * memory-mapped file. What was written remains when the process is killed, up to the last event. The trace observer
 * would lose its buffer, and with it the releases that precede the next holder. Not for production: it formats text
 * with the core's lock held. */
#include "own_pid.h"

#include <mortise/driver.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define ROOM ((size_t)1 << 33) /* of addresses; the file grows by steps */
#define STEP ((size_t)1 << 20)
#define LINE_SIZE 2048

struct recorder {
    mortise_host *host;
    char client[33];
    char path[4096]; /* no descriptor is kept: a fault of the torture closes all */
    char *bytes;
    size_t used, size;
};

static bool grow(struct recorder *recorder)
{
    if (recorder->size + STEP > ROOM ||
        truncate(recorder->path, (off_t)(recorder->size + STEP)) != 0)
        return false;
    recorder->size += STEP;
    return true;
}

static void write_line(struct recorder *recorder, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void write_line(struct recorder *recorder, const char *format, ...)
{
    va_list arguments;
    if (recorder->size - recorder->used < LINE_SIZE && !grow(recorder))
        abort(); /* a history with holes proves nothing */
    va_start(arguments, format);
    int length = vsnprintf(recorder->bytes + recorder->used, LINE_SIZE, format, arguments);
    va_end(arguments);
    if (length < 0 || length >= LINE_SIZE)
        abort();
    recorder->used += (size_t)length;
}

static const char *hex(const mortise_grant_id *grant, char *text)
{
    for (size_t i = 0; i < sizeof(grant->bytes); i++)
        snprintf(text + 2 * i, 3, "%02x", grant->bytes[i]);
    return text;
}

static const char *word_of(mortise_event_kind kind)
{
    static const char *const words[] = {
#define WORD(name, number, word) [number] = word,
        MORTISE_EVENT_MAP(WORD)
#undef WORD
    };
    return words[kind];
}

static const char *status_word(mortise_status status)
{
    switch (status) {
#define STATUS_WORD(name, code, text)                                                              \
    case MORTISE_##name:                                                                           \
        return #name;
        MORTISE_STATUS_MAP(STATUS_WORD)
#undef STATUS_WORD
    }
    return "UNKNOWN";
}

/* The names and owners of the run are plain. */
static void recorder_observe(void *ctx, const mortise_event *event)
{
    char grant[2 * MORTISE_GRANT_ID_SIZE + 1], owner[MORTISE_OWNER_MAX + 16] = "", mode[64] = "";
    if (event->owner_len > 0)
        snprintf(owner, sizeof(owner), ",\"owner\":\"%.*s\"", (int)event->owner_len, event->owner);
    if (event->mode == MORTISE_SHARED)
        snprintf(mode, sizeof(mode), ",\"mode\":\"shared\",\"permits\":%" PRIu32, event->permits);
    write_line(
        ctx,
        "{\"event\":\"%s\",\"at_ns\":%" PRId64
        ",\"client\":\"%s\",\"name\":\"%.*s\"%s%s,\"caller\":%" PRIu64 ",\"lease\":%" PRIu64
        ",\"grant\":\"%s\",\"token\":%" PRIu64 ",\"deadline_ns\":%" PRId64 ",\"status\":\"%s\"}\n",
        word_of(event->kind), event->at_ns, ((struct recorder *)ctx)->client, (int)event->name_len,
        event->name, owner, mode, event->caller, event->lease, hex(&event->grant, grant),
        event->token, event->deadline_ns > 0 ? event->deadline_ns : INT64_C(0),
        status_word(event->status));
}

static bool make_file(struct recorder *recorder, const char *folder)
{
    int length =
        snprintf(recorder->path, sizeof(recorder->path), "%s/%s.jsonl", folder, recorder->client);
    if (length < 0 || (size_t)length >= sizeof(recorder->path))
        return false;
    int fd = open(recorder->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return false;
    void *bytes = mmap(NULL, ROOM, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    recorder->bytes = bytes == MAP_FAILED ? NULL : bytes;
    close(fd);
    return recorder->bytes != NULL;
}

static mortise_status recorder_open(const mortise_open_args *args, void **ctx, mortise_error *error)
{
    struct recorder *recorder = calloc(1, sizeof(*recorder));
    if (recorder == NULL)
        return error->status = MORTISE_NOMEM;
    recorder->host = args->host;
    snprintf(recorder->client, sizeof(recorder->client), "%s", args->client_id);
    if (!make_file(recorder, args->values[0].text)) {
        snprintf(error->message, sizeof(error->message), "[%s] no file in %s: %s", args->section,
                 args->values[0].text, strerror(errno));
        free(recorder);
        return error->status = MORTISE_CONFIG;
    }
    write_line(recorder,
               "{\"event\":\"opened\",\"at_ns\":%" PRId64 ",\"client\":\"%s\",\"pid\":%d}\n",
               recorder->host->now(recorder->host), recorder->client, own_pid());
    *ctx = recorder;
    return MORTISE_OK;
}

static void recorder_close(void *ctx)
{
    struct recorder *recorder = ctx;
    write_line(recorder, "{\"event\":\"closed\",\"at_ns\":%" PRId64 ",\"client\":\"%s\"}\n",
               recorder->host->now(recorder->host), recorder->client);
    munmap(recorder->bytes, ROOM);
    if (truncate(recorder->path, (off_t)recorder->used) != 0)
        abort();
    free(recorder);
}

static const mortise_option options[] = {
    {.key = "folder",
     .type = MORTISE_OPTION_TEXT,
     .flags = MORTISE_OPTION_REQUIRED,
     .help = "where each client makes a file, which is named after its id"},
};

const mortise_module mortise_module_v1 = {
    MORTISE_MODULE_HEAD,
    .kind = MORTISE_KIND_OBSERVER,
    .name = "recorder",
    .version = "0.1.0",
    .summary = "writes every event at once, for tests that kill",
    .options = options,
    .option_count = 1,
    .open = recorder_open,
    .observe = recorder_observe,
    .close = recorder_close,
};
