/* internal.h - the metrics observer's own structures, and which file does what with them.
 *
 *   module.c   the module's table and options; opens and closes an instance
 *   count.c    an event into counters and histograms; what the caller pays for
 *   place.c    a file of one's own among those of other clients; written whole or not at all
 *   text.c     the counters as Prometheus reads them, and what a former client had counted
 *   writer.c   the thread that writes every `every`
 *
 * The core calls `observe` of a client one at a time: so counters have one writer, are raised without a locked
 * instruction, and are read by the thread as they stand. No lock, no allocation, no system call in `observe`.
 *
 * Labels. driver (the section at the top of the stack) and namespace are those of the client's configuration, program is
 * the process's name, slot a number below `slots`: nothing that a name, an owner or a process id can make more of.
 * Clients whose other labels are the same take the lowest slot that is free, by a lock on a file, and go on with what
 * its former owner had counted, so that the counters of a job that runs for a second each minute grow as they
 * should. The file's name has these labels too, so that nobody goes on with, or overwrites, what is another's.
 *
 * What may go wrong:
 *   No slot is free, or the folder is not there: the log says so, nothing is written, locks go on.
 *   A write fails (disk full): the file stays as it was, and is written at the next turn.
 *   The process is killed: what was counted since the last turn is missing; the file shows the leases it held until
 *   the slot is taken again (node_textfile_mtime_seconds tells its age). The kernel frees the slot.
 *   The application closes the lock's descriptor, or has a file of its own under that number: seen at the next turn, and
 *   a slot is taken again. What was written before is in the file of the slot then, and is not counted twice.
 *   The process forks: the child has no thread and counts nothing. The slot is free when both have ended.
 *   The folder hangs: the log says so when the client closes, and the thread is left behind (errand.h).
 *   More callers or leases are under way than SEATS: some of their times are not measured, and counted as untimed. */
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
    counter buckets[BOUNDS + 1]; /* each for itself; the last one is beyond all bounds */
    counter sum_ns;
};

/* Since when callers wait, or leases are held, by their number: a seat is the number modulo SEATS. */
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

/* words: for `le`, where no locale may come in between. */
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
/* Its one writer, so no locked instruction. */
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

/* metrics->text: what this client and the slot's former owners counted. */
void text_make(struct metrics *metrics);
/* It stands in the slot's file now. */
void text_written(struct metrics *metrics);
/* Reads into metrics->former what stands in the slot's file. */
void text_resume(struct metrics *metrics, const char *file);

/* ---- place.c ---- */

struct place {
    char folder[512], stem[128]; /* folder/stem-slot.prom */
    int slots, slot;             /* -1: none */
    int last;                    /* the slot it had before; -1: none */
    struct own_fd lock;          /* the descriptor that holds the slot */
};

/* Takes the slot that it had, or else the lowest free one; false with errno set: EAGAIN if all are taken. */
bool place_take(struct place *place);
/* False: it has none, or the application has closed the descriptor, and the slot may be another client's by now. */
bool place_is_held(struct place *place);
/* Names the files by these labels; driver and namespace as a hash, for they may be long. */
void place_name(struct place *place, const char *program, const char *driver, const char *names);
/* What stands there; to be freed. NULL: nothing. */
char *place_read(const struct place *place);
/* In place of what stands there; false with errno set. */
bool place_write(const struct place *place, const struct text *text);
void place_leave(struct place *place);

/* ---- writer.c ---- */

struct metrics {
    char driver[64], program[64];
    char names[160]; /* the namespace, printable, cut to fit */
    int64_t every_ms;
    struct counts counts;
    /* the thread's own: of the slot's former owners, less what this client has in files of slots; of this client, in the text and
     * in those files */
    struct counts former, made, written;
    struct seats *callers, *leases;
    struct place place;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool stops;
    struct errand errand;
    bool failing; /* the thread's own: it was said in the log */
    struct text text;
};

bool writer_start(struct metrics *metrics);
/* Writes once more. False: the folder hangs, and the thread keeps the metrics. */
bool writer_stop(struct metrics *metrics);
/* What nobody uses any more. */
void metrics_free(struct metrics *metrics);

#endif
