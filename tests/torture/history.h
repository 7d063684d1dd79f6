/* history.h - what the checker reads: histories, which are JSON lines with one event each, as the trace observer writes
 * them, and the lines that the torture run itself adds. Knows the form of the lines, not their meaning.
 *
 * Of each client, the events in their order: {"event":"granted","at_ns":…,"client":"…","name":"…",…}, with the words of
 * MORTISE_EVENT_MAP, and "opened" (has the pid), "closed", "dropped". Of the torture run:
 *   {"event":"calm","at_ns":…}               the last fault has ended
 *   {"event":"killed","at_ns":…,"pid":…}     that process was killed (SIGKILL), and is gone
 *   {"event":"process","at_ns":…,"pid":…}    at the beginning of a file: that process writes it, and nobody else. Only who
 *                                            is killed may leave half a line
 *   {"event":"stopped","at_ns":…,"until_ns":…,"pid":…}   that process does nothing in between
 *   {"event":"left","text":"…"}              found in the server afterwards
 *   {"event":"held","at_ns":…,"name":…,"token":…}   mortise_state() told the holder at that instant, or later, that its
 *                                            lease is not LOST
 *   {"event":"read"|"write","name":…,"token":…,"value":…}   a request to the fenced counter, in the order of its
 *                                            decisions (counter.h)
 * Unknown keys and events are ignored. All instants are of one clock, so of one machine. */
#ifndef MORTISE_TESTS_TORTURE_HISTORY_H
#define MORTISE_TESTS_TORTURE_HISTORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Text in the file: quotes and escapes as they stand there. */
struct word {
    const char *bytes;
    size_t size;
};

struct line {
    const char *file;
    unsigned long number;
    struct word event, name, owner, client, grant, status, text, mode;
    int64_t at_ns, until_ns, deadline_ns, pid;
    uint64_t lease, caller, token, value, count, permits;
};

bool word_is(struct word word, const char *text);

/* Calls each(line) for every line of the file, in order; garbled(file, number, last) for one that cannot be
 * read, where `last` says that the file ends within it. A file may end in NUL bytes. False: it cannot be read
 * at all. Words stay until the program ends. */
bool history_read(const char *path, void (*each)(const struct line *line),
                  void (*garbled)(const char *path, unsigned long number, bool last));

#endif
