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
 * The caller copies the event into the ring and is done: no lock, no allocation, and a system call only where the
 * writer sleeps for good (nothing came for ten periods of `flush`) or the ring is half full. The core calls
 * `observe` of a client one at a time, which makes it the one producer.
 *
 * What may go wrong, and what becomes of the events:
 *
 *   The ring is full (the disk hangs, nobody reads the pipe): the event is dropped and counted, and the next one
 *   that finds room carries the count: a line "dropped" stands where they are missing. Never silently, and the
 *   caller never waits.
 *   A write is refused (disk full) or comes back short: what is left stays in `text` and is tried again. A file
 *   that was renamed in the meantime may end within a line; the new one begins with that whole line.
 *   The file is renamed or removed: seen before the next piece is written, and opened by name again. If that
 *   fails the old one is used on, and the log says so, because whoever renamed it will delete it.
 *   The application closes the descriptor, or has a file of its own under that number: seen before each write, and
 *   opened by name again. One of the application's (`fd`) cannot be: the log says so, and the events are dropped.
 *   The process ends without mortise_close(), or is killed: what is in memory is gone: what happened in the last
 *   `flush`, or less. The line "closed" is missing then.
 *   The client closes: the writer takes out all that is there and ends. If it cannot write for CLOSE_PATIENCE_MS
 *   it gives up, and the log says so. If the file system keeps it for ERRAND_PATIENCE_MS, in one write or in many, it
 *   is left behind, and the log says that; it writes what it has, if it can, and frees it.
 *   The process forks: the child has no writer and no client. The descriptor is close-on-exec.
 *   Several clients, or processes, write to one file: O_APPEND, and whole lines in one write(2). But after a write
 *   that came back short, another one's lines may stand within the broken line. */
#ifndef MORTISE_TRACE_INTERNAL_H
#define MORTISE_TRACE_INTERNAL_H

#include "errand.h"
#include "own_fd.h"

#include <stdatomic.h>
#include <sys/types.h>

#define CLOSE_PATIENCE_MS 2000 /* twice, it is less than ERRAND_PATIENCE_MS */
#define TEXT_SIZE 65536
/* A line is never longer: name and owner as escapes of six bytes each, both in hexadecimal too, and the rest. */
#define LINE_MAX_SIZE (8 * (MORTISE_NAME_MAX + MORTISE_OWNER_MAX) + 1024)

/* An event in the ring; the name's and the owner's bytes stand behind it. */
struct record {
    uint32_t size; /* of all of it, a multiple of 8; PADDING: skip to the ring's beginning */
    uint16_t name_len, owner_len;
    uint32_t kind;
    int32_t status;
    uint64_t dropped; /* events that found no room since the one before */
    int64_t at_ns, deadline_ns;
    uint64_t lease, caller, token;
    mortise_grant_id grant;
    uint32_t mode, permits;
};

/* ---- ring.c ---------------------------------------------------------------------------------------- */

struct ring {
    unsigned char *bytes;
    size_t size; /* a power of two */
    /* on lines of their own: each is written by one side and read by the other */
    _Alignas(64) _Atomic uint64_t written; /* bytes, ever; of the producer */
    uint64_t read_seen;                    /* of `read`, when the producer last looked */
    uint64_t dropping;                     /* since the last record; the producer's own */
    _Atomic uint64_t dropped;              /* in all */
    _Alignas(64) _Atomic uint64_t read;    /* bytes, ever; of the consumer */
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

/* As open(2); -1 and EPERM for a symbolic link or file of another user than root or this one, and for a file with several names. */
int path_open(const char *name, int flags);
/* The cause, in words. */
const char *path_why(int cause);

/* ---- file.c ---------------------------------------------------------------------------------------- */

struct file {
    char *path;        /* NULL: the application's descriptor */
    struct own_fd own; /* none: the application has closed it, and it could not be opened again */
    bool regular, socket;
    int astray; /* errno: the name is another file, which cannot be opened. 0: it is this one */
};

mortise_status file_open(struct file *file, const char *path, int fd, mortise_error *error);
/* If the name is another file now, or the descriptor is no longer ours: opens it. True: it is another file. Sets `astray`. */
bool file_follow(struct file *file);
/* As write(2), but never waits: -1 and EAGAIN. And never into what is not ours. */
ssize_t file_write(struct file *file, const char *bytes, size_t size);
/* Until it can be written, for a while. */
void file_wait(const struct file *file, int timeout_ms);
void file_close(struct file *file); /* frees the path too */

/* ---- line.c ---------------------------------------------------------------------------------------- */

/* Lines to be written, whole ones. */
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
/* CLOCK_BOOTTIME, as host->now; of a thread that may outlive the host. */
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
    /* the writer's own */
    uint64_t events;
    bool failing; /* and it was said in the log */
    struct text text;
};

bool writer_start(struct trace *trace);
/* After ring_put(): wakes the writer if that is needed. */
void writer_attend(struct trace *trace);
/* False: it hangs, and keeps the trace. */
bool writer_stop(struct trace *trace);
/* What nobody uses any more. */
void trace_free(struct trace *trace);

#endif
