/* writer.c - the thread that takes events out of the ring and writes them as lines.
 *
 * While events come, it looks once in each period of `flush`. If none came for QUIET_ROUNDS periods, it sleeps
 * until the next event wakes it, so that an idle client costs nothing. */
#include "internal.h"

#include <errno.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum sleep {
    AWAKE,
    NAPPING, /* for `flush`, or until the ring is half full */
    ASLEEP,  /* until an event comes */
    RESTING  /* for `flush`: it cannot write now */
};

#define QUIET_ROUNDS 10
/* How often to check whether a slow reader has made room, or the client closes. */
#define READER_MS 50

/* ---- the caller's side ------------------------------------------------------------------------- */

static void wake(struct trace *trace, uint32_t from)
{
    if (atomic_compare_exchange_strong(&trace->sleep, &from, AWAKE))
        syscall(SYS_futex, &trace->sleep, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

void writer_attend(struct trace *trace)
{
    uint32_t sleep = atomic_load(&trace->sleep);
    if (sleep == ASLEEP || (sleep == NAPPING && ring_is_half_full(&trace->ring)))
        wake(trace, sleep);
}

/* ---- the writer's ------------------------------------------------------------------------------ */

static void sleep_as(struct trace *trace, enum sleep how)
{
    struct timespec period = {.tv_sec = trace->flush_ms / 1000,
                              .tv_nsec = trace->flush_ms % 1000 * 1000000};
    atomic_store(&trace->sleep, how);
    /* events that came before this store have not woken the writer */
    bool needed = atomic_load(&trace->stops) || (how == ASLEEP && !ring_is_empty(&trace->ring)) ||
                  (how == NAPPING && ring_is_half_full(&trace->ring));
    if (!needed)
        syscall(SYS_futex, &trace->sleep, FUTEX_WAIT_PRIVATE, how, how == ASLEEP ? NULL : &period,
                NULL, 0);
    atomic_store(&trace->sleep, AWAKE);
}

/* The file is another one now: if the old file ends within a line, the new one gets that whole line. */
static void go_back_to_line(struct text *text)
{
    while (text->done > 0 && text->bytes[text->done - 1] != '\n')
        text->done--;
}

static void complain(struct trace *trace)
{
    int cause = errno;
    if (!trace->failing)
        errand_log(&trace->errand, 4, "the trace cannot be written: %s; tried again",
                   path_why(cause));
    trace->failing = true;
}

/* Goes on with the file that has the name now. */
static void follow(struct trace *trace)
{
    struct file *file = &trace->file;
    bool was_astray = file->astray != 0;
    if (file_follow(file))
        go_back_to_line(&trace->text);
    if (file->astray != 0 && !was_astray && file->own.fd >= 0) /* else complain() says it */
        errand_log(&trace->errand, 4,
                   "the trace cannot be opened again: %s; the renamed file is written on: %s",
                   path_why(file->astray), file->path);
    else if (file->astray == 0 && was_astray)
        errand_log(&trace->errand, 4, "the trace is written under its name again: %s", file->path);
}

/* Writes as much of `text` as is possible now. */
static bool write_text(struct trace *trace)
{
    struct text *text = &trace->text;
    if (text->used == text->done)
        return true;
    follow(trace);
    while (text->done < text->used) {
        ssize_t wrote = file_write(&trace->file, text->bytes + text->done, text->used - text->done);
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote < 0) {
            if (errno != EAGAIN)
                complain(trace);
            return false;
        }
        text->done += (size_t)wrote;
    }
    if (trace->failing)
        errand_log(&trace->errand, 4, "the trace is written again");
    trace->failing = false;
    text->used = text->done = 0;
    return true;
}

static void take_out(struct trace *trace)
{
    const struct record *record;
    while (text_has_room(&trace->text) && (record = ring_look(&trace->ring)) != NULL) {
        if (record->dropped > 0)
            line_dropped(&trace->text, trace, record->at_ns, record->dropped);
        line_event(&trace->text, trace, record);
        trace->events++;
        ring_drop(&trace->ring, record);
    }
}

/* Writes all events that are there. False: a write failed. *any: there were events. */
static bool write_all(struct trace *trace, bool *any)
{
    for (;;) {
        take_out(trace);
        if (trace->text.used == 0)
            return true;
        *any = true;
        if (!write_text(trace))
            return false;
    }
}

/* Writes what is left when the client closes. CLOSE_PATIENCE_MS is for all of it, not for each piece. */
static bool write_rest(struct trace *trace)
{
    int64_t until_ns = line_now() + CLOSE_PATIENCE_MS * INT64_C(1000000);
    bool any;
    while (!write_all(trace, &any)) {
        int64_t left_ms = (until_ns - line_now()) / 1000000;
        if (left_ms <= 0 || trace->failing)
            return false;
        file_wait(&trace->file, (int)left_ms);
    }
    return true;
}

static void finish(struct trace *trace)
{
    uint64_t dropped = atomic_load(&trace->ring.dropped);
    bool written = write_rest(trace);
    if (written) {
        if (trace->ring.dropping > 0) /* the producer is gone */
            line_dropped(&trace->text, trace, line_now(), trace->ring.dropping);
        line_closed(&trace->text, trace, trace->events, dropped);
        written = write_rest(trace);
    }
    if (!written)
        errand_log(&trace->errand, 3, "the end of the trace could not be written");
}

static void *writer_main(void *argument)
{
    struct trace *trace = argument;
    unsigned quiet = 0;
    pthread_setname_np(pthread_self(), "mortise-trace");
    while (!atomic_load(&trace->stops)) {
        bool any = false, written = write_all(trace, &any);
        quiet = any ? 0 : quiet + 1;
        if (trace->failing)
            sleep_as(trace, RESTING);
        else if (!written)
            file_wait(&trace->file, READER_MS);
        else
            sleep_as(trace, quiet < QUIET_ROUNDS ? NAPPING : ASLEEP);
    }
    finish(trace);
    if (!errand_done(&trace->errand))
        trace_free(trace);
    return NULL;
}

bool writer_start(struct trace *trace)
{
    return errand_start(&trace->errand, writer_main, trace);
}

bool writer_stop(struct trace *trace)
{
    atomic_store(&trace->stops, true);
    wake(trace, NAPPING);
    wake(trace, ASLEEP);
    wake(trace, RESTING);
    return errand_end(&trace->errand);
}
