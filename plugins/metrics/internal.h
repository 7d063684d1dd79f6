/* internal.h - the metrics observer's own structures, and which file does what with them.
 *
 *   module.c   the module's table and options; opens and closes an instance
 *   count.c    adds an event to counters and histograms; this runs in the caller's time
 *   place.c    a file of this client's own among those of other clients; written whole or not at all
 *   text.c     the counters as Prometheus reads them, and those of a former client
 *   writer.c   the thread that writes, once in each period of `every`
 *
 * The core calls `observe` of a client one call at a time. So counters have one writer, are raised without a locked
 * instruction, and the thread reads them at any time. No lock, no allocation, no system call in `observe`.
 *
 * Labels. driver (the section at the top of the stack) and namespace are those of the client's configuration, program is
 * the process's name, and slot is a number below `slots`. So names, owners and process ids do not make the number of time
 * series grow. Clients whose other labels are the same take the lowest free slot, by a lock on a file, and continue the
 * counters of the slot's former owner. So the counters of a job that runs for a second each minute grow as they should. The
 * file's name has these labels too, so that no client continues, or overwrites, the counters of another one.
 *
 * What may go wrong:
 *   No slot is free, or the folder does not exist: the log says so, nothing is written, and locks work as usual.
 *   A write fails (disk full): the file stays as it was, and is written at the next turn.
 *   The process is killed: events since the last turn are missing. The file shows the leases that the process held until
 *   the slot is taken again (node_textfile_mtime_seconds shows its age). The kernel frees the slot.
 *   The application closes the lock's descriptor, or has a file of its own under that number: the next turn notices this
 *   and takes a slot again. The file of that slot then has what was written before, which is not counted twice.
 *   The process forks: the child has no thread and counts nothing. The slot is free when both have ended.
 *   The folder hangs: the log says so when the client closes, and the thread is left behind (errand.h).
 *   More callers or leases are under way than SEATS, or one lasts for so long that the numbers come round to its seat: some of
 *   their times are not measured, but counted as untimed. */
#ifndef MORTISE_METRICS_INTERNAL_H
#define MORTISE_METRICS_INTERNAL_H

#include "errand.h"
#include "own_fd.h"

#include <stdatomic.h>

#define COUNT_ONE(name, code, text) +1
enum { SEATS = 16384, BOUNDS = 14, STATUSES = MORTISE_STATUS_MAP(COUNT_ONE), TEXT_SIZE = 32768 };
#undef COUNT_ONE

/* ---- count.c ---- */

typedef _Atomic uint64_t counter;

struct histogram {
    counter buckets[BOUNDS + 1]; /* not cumulative; the last one is beyond all bounds */
    counter sum_ns;
};

/* Since when callers wait, or leases are held. Each has a seat: its number modulo SEATS. */
struct seats {
    uint64_t number[SEATS];
    int64_t since_ns[SEATS];
};

struct counts {
    counter asked, queued, granted, handed_over, shared, renewals, suspects, losses, releases, untimed;
    counter ended;              /* leases that were lost, or released while they were held */
    counter failures[STATUSES]; /* by -status */
    struct histogram wait, hold;
};

/* words: the text for the label `le`, which must not depend on the locale. */
extern const struct bound {
    int64_t ns;
    const char *word;
} bounds[BOUNDS];

struct metrics;
void count_event(struct metrics *metrics, const mortise_event *event);
static inline uint64_t count_of(const counter *value)
{
    return atomic_load_explicit(value, memory_order_acquire);
}
/* A counter has only one writer, so this needs no locked instruction. */
static inline void count_add(counter *value, uint64_t change)
{
    uint64_t before = atomic_load_explicit(value, memory_order_relaxed);
    atomic_store_explicit(value, before + change, memory_order_release);
}

/* ---- text.c ---- */

struct text {
    size_t used;
    bool full;
    char bytes[TEXT_SIZE];
};

/* Writes to metrics->text what this client and the slot's former owners have counted. */
void text_make(struct metrics *metrics);
/* The text was written to the slot's file. */
void text_written(struct metrics *metrics);
/* Reads the slot's file into metrics->former. */
void text_resume(struct metrics *metrics, const char *file);

/* ---- place.c ---- */

struct place {
    char folder[512], stem[128]; /* folder/stem-slot.prom */
    int slots, slot;             /* -1: none */
    int last;                    /* the slot it had before; -1: none */
    struct own_fd lock;          /* the descriptor that holds the slot */
};

/* Takes the slot that this client had before, or else the lowest free one. False with errno set: EAGAIN if all are taken. */
bool place_take(struct place *place);
/* False: the client has no slot, or the application has closed the descriptor, and another client may have the slot by now. */
bool place_is_held(struct place *place);
/* Names the files by these labels; driver and namespace as a hash, because they may be long. */
void place_name(struct place *place, const char *program, const char *driver, const char *names);
/* Returns the contents of the slot's file, for free(). NULL: there are none. */
char *place_read(const struct place *place);
/* Replaces the contents of the slot's file. False with errno set. */
bool place_write(const struct place *place, const struct text *text);
void place_leave(struct place *place);

/* ---- writer.c ---- */

struct metrics {
    char driver[64], program[64];
    char names[160]; /* the namespace, printable, cut to fit */
    int64_t every_ms;
    struct counts counts;
    /* Only for the thread. former: what the slot's former owners have counted, less `written`; made: this client's counts in the
     * text; written: its counts in the files of slots */
    struct counts former, made, written;
    struct seats *callers, *leases;
    struct place place;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool stops;
    struct errand errand;
    bool failing; /* only for the thread: the failure is in the log */
    struct text text;
};

bool writer_start(struct metrics *metrics);
/* Writes once more. False: the folder hangs, and the thread keeps the metrics. */
bool writer_stop(struct metrics *metrics);
/* Frees the metrics, when no thread uses them any more. */
void metrics_free(struct metrics *metrics);

#endif
