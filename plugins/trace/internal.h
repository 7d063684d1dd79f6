/* internal.h - the trace observer's own structures, and which file does what with them.
 *
 *   module.c   the module's table and options; opens and closes an instance
 *   ring.c     events between the caller and the writer: one producer, one consumer, no lock
 *   writer.c   the thread that takes events out and writes them
 *   line.c     an event as a line of JSON
 *   file.c     where the lines go: a file by name, opened again when the name is another file; or a descriptor
 *   path.c     opens a file by its name, but none that another user has put there
 *
 *   caller (core lock held) ──▶ ring ──▶ writer ──▶ text ──▶ file
 *
 * The caller only copies the event into the ring: no lock, no allocation, and a system call only if the writer
 * sleeps without a time-out (no event came for ten periods of `flush`) or the ring is half full. The core calls
 * `observe` of a client one call at a time, so there is one producer.
 *
 * What may go wrong, and what happens to the events:
 *
 *   The ring is full (the disk hangs, nobody reads the pipe): the event is dropped and counted. The next event that
 *   finds room carries the count, so that a line "dropped" shows where events are missing. The caller never waits.
 *   A write is refused (disk full) or is short: the rest stays in `text` and is tried again. If the file was renamed
 *   meanwhile, it may end within a line; the new file begins with that whole line.
 *   The file is renamed or removed: the writer notices this before it writes the next piece, and opens the file by
 *   name again. If that fails, it goes on with the old file, and the log says so, because the old file will probably
 *   be deleted.
 *   The application closes the descriptor, or has a file of its own under that number: the writer notices this before
 *   each write, and opens the file by name again. It cannot do so for a descriptor of the application (`fd`): the log
 *   says so, and the events are dropped.
 *   The process ends without mortise_close(), or is killed: events in memory are lost, which are those of the last
 *   `flush`, or less. The line "closed" is missing then.
 *   The client closes: the writer writes all events that are left, and ends. If it cannot write for CLOSE_PATIENCE_MS,
 *   it gives up, and the log says so. If the file system keeps it for ERRAND_PATIENCE_MS, in one write or in many, it
 *   is left behind, and the log says that. It then still writes its events, if it can, and frees its memory.
 *   The process forks: the child has no writer and no client. The descriptor is close-on-exec.
 *   Several clients, or processes, write to one file: O_APPEND, and whole lines in one write(2). But after a short
 *   write, lines of another writer may be within the broken line. */
#ifndef MORTISE_TRACE_INTERNAL_H
#define MORTISE_TRACE_INTERNAL_H

#include "errand.h"
#include "own_fd.h"

#include <stdatomic.h>
#include <sys/types.h>

#define CLOSE_PATIENCE_MS 2000 /* twice, it is less than ERRAND_PATIENCE_MS */
#define TEXT_SIZE 65536
/* The longest line: name and owner with escapes of six bytes for each byte, both again in hexadecimal, and the rest. */
#define LINE_MAX_SIZE (8 * (MORTISE_NAME_MAX + MORTISE_OWNER_MAX) + 1024)

/* An event in the ring; the bytes of its name and its owner follow it. */
struct record {
    uint32_t size; /* with name and owner, a multiple of 8; PADDING: skip to the ring's beginning */
    uint16_t name_len, owner_len;
    uint32_t kind;
    int32_t status;
    uint64_t dropped; /* how many events found no room since the previous record */
    int64_t at_ns, deadline_ns;
    uint64_t lease, caller, token;
    mortise_grant_id grant;
    uint32_t mode, permits;
};

/* ---- ring.c ---------------------------------------------------------------------------------------- */

struct ring {
    unsigned char *bytes;
    size_t size; /* a power of two */
    /* `written` and `read` have cache lines of their own: each is written by one side and read by the other */
    _Alignas(64) _Atomic uint64_t written; /* by the producer: how many bytes, ever */
    uint64_t read_seen;                    /* the value of `read` when the producer last looked */
    uint64_t dropping;        /* events dropped since the last record; only for the producer */
    _Atomic uint64_t dropped; /* events dropped in all */
    _Alignas(64) _Atomic uint64_t read; /* by the consumer: how many bytes, ever */
};

bool ring_make(struct ring *ring, size_t size);
void ring_free(struct ring *ring);
/* Copies the event; false: no room, counted. */
bool ring_put(struct ring *ring, const mortise_event *event);
/* The next record, which stays until ring_drop(); NULL: none. */
const struct record *ring_look(struct ring *ring);
void ring_drop(struct ring *ring, const struct record *record);
bool ring_is_empty(const struct ring *ring);
bool ring_is_half_full(const struct ring *ring); /* the producer's view */

/* ---- path.c ---------------------------------------------------------------------------------------- */

/* Like open(2), but fails with EPERM for a symbolic link or file of another user than root or this one, and for a file with
 * several hard links. */
int path_open(const char *name, int flags);
/* Returns the cause in words. */
const char *path_why(int cause);

/* ---- file.c ---------------------------------------------------------------------------------------- */

struct file {
    char *path;        /* NULL: the application's descriptor */
    struct own_fd own; /* none: the application has closed it, and it could not be opened again */
    bool regular, socket;
    int astray; /* not 0: the name leads to another file, which cannot be opened with this errno */
};

mortise_status file_open(struct file *file, const char *path, int fd, mortise_error *error);
/* If the name leads to another file now, or the descriptor is no longer ours, opens the file by name. True: it is another file.
 * Sets `astray`. */
bool file_follow(struct file *file);
/* Like write(2), but never waits (-1 and EAGAIN), and never writes to a descriptor that is not ours. */
ssize_t file_write(struct file *file, const char *bytes, size_t size);
/* Waits until the file can be written, but no longer than timeout_ms. */
void file_wait(const struct file *file, int timeout_ms);
void file_close(struct file *file); /* frees the path too */

/* ---- line.c ---------------------------------------------------------------------------------------- */

/* Whole lines that are to be written. */
struct text {
    size_t used, done; /* done: already in the file */
    char bytes[TEXT_SIZE];
};

struct trace;
bool text_has_room(const struct text *text); /* for one more line */
void line_event(struct text *text, const struct trace *trace, const struct record *record);
void line_dropped(struct text *text, const struct trace *trace, int64_t at_ns, uint64_t count);
void line_opened(struct text *text, const struct trace *trace);
void line_closed(struct text *text, const struct trace *trace, uint64_t events, uint64_t dropped);
/* CLOCK_BOOTTIME, like host->now(), but for a thread that may outlive the host. */
int64_t line_now(void);

/* ---- writer.c -------------------------------------------------------------------------------------- */

struct trace {
    char client[33];             /* its id */
    char note[MORTISE_NOTE_MAX]; /* host, pid, program */
    char section[64];
    int64_t flush_ms;
    struct ring ring;
    struct file file;
    _Atomic uint32_t sleep; /* enum sleep of writer.c; a futex */
    _Atomic bool stops;
    struct errand errand;
    /* only for the writer */
    uint64_t events;
    bool failing; /* the failure is in the log */
    struct text text;
};

bool writer_start(struct trace *trace);
/* After ring_put(): wakes the writer if that is needed. */
void writer_attend(struct trace *trace);
/* False: the writer hangs, and keeps the trace. */
bool writer_stop(struct trace *trace);
/* Frees the trace, when no thread uses it any more. */
void trace_free(struct trace *trace);

#endif
