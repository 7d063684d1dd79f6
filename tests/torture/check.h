/* check.h - what the parts of the checker share: the story of each client, the holds in it, and the violations that
 * are found. One thread; nothing is freed before the end.
 *
 * check.c is the program: it reads histories, has them checked, and reports. history.c reads lines. story.c follows
 * each client's callers and leases line by line, and finds what does not add up. verdict.c checks at the end what the
 * holds of all clients show together.
 *
 * A HOLD is an interval in which a process may have believed that it holds a name: from the instant of its grant
 * until it sent the release, was told of the loss, died, or its deadline came, whichever is first. A stopped process
 * (SIGSTOP) writes nothing: its deadline ends the hold. */
#ifndef MORTISE_TESTS_TORTURE_CHECK_H
#define MORTISE_TESTS_TORTURE_CHECK_H

#include "history.h"

#include <utarray.h>
#include <uthash.h>

#define VIOLATION_MAP(X)                                                                           \
    X(OVERLAP, "overlap")         /* two held one name at one instant */                           \
    X(PERMITS, "permits")         /* more holders than permits, or with different numbers */         \
    X(OUTLIVED, "outlived")       /* its holder was told that it still holds it, after its end */    \
    X(ORDER, "order")             /* a token that is not larger than one before, or is missing */  \
    X(STARVED, "starved")         /* did not get its turn once the faults had ended */             \
    X(LEFTOVER, "leftover")       /* what nobody holds any more is still there */                  \
    X(UNBALANCED, "unbalanced")   /* events that contradict each other */                      \
    X(LOST_UPDATE, "lost-update") /* an accepted write that is based on an old value */         \
    X(GARBLED, "garbled")         /* a line that cannot be read, or is missing */

enum violation {
#define VIOLATION_ENUM(name, word) name,
    VIOLATION_MAP(VIOLATION_ENUM)
#undef VIOLATION_ENUM
        VIOLATIONS
};

/* Counts a violation, and prints the first ones of each kind. */
void violation(enum violation kind, const char *file, unsigned long line, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

#define NEVER INT64_MAX
#define GRANT_DIGITS 32

/* Returns the one copy of a text; texts are equal if their addresses are. */
struct text {
    UT_hash_handle hh;
    size_t size;
    char bytes[];
};
const struct text *text_of(struct word word); /* NULL for an empty one */

struct client;

struct hold {
    const struct client *client;
    const struct text *name, *owner; /* owner NULL: its own */
    char grant[GRANT_DIGITS + 1];
    uint64_t lease, token, permits;
    bool handed_over; /* or joined: it has the grant and the token of another lease of its process */
    int64_t asked_ns, shared_ns; /* shared: from then on; NEVER: exclusive to its end */
    int64_t from_ns, deadline_ns, end_ns; /* end: released, lost; NEVER: neither */
    const char *end;                      /* how */
    const char *file;
    unsigned long line;
};

/* The end of the hold, by whatever comes first. */
int64_t hold_until(const struct hold *hold);

/* What a holder was told; the token says which holder. */
struct told {
    const struct text *name;
    uint64_t token;
    int64_t at_ns;
    const char *file;
    unsigned long line;
};

/* A caller's wait until its outcome. failed: an outcome that no call may have without a fault. */
struct wait {
    const struct text *name;
    int64_t asked_ns, done_ns;
    bool failed;
    const char *file;
    unsigned long line;
};

struct client {
    UT_hash_handle hh;
    const struct text *id;
    int64_t pid, opened_ns;
    bool closed, killed;
    struct caller *callers;
    struct lease *leases;
    const char *file;
    unsigned long line;
};

struct caller { /* callers without an outcome */
    UT_hash_handle hh;
    uint64_t number;
    const struct text *name;
    int64_t asked_ns, since_ns; /* since: of the first of those of this process that have waited together */
    const char *file;
    unsigned long line;
};

struct lease { /* a lease that was granted and not released */
    UT_hash_handle hh;
    uint64_t number;
    size_t hold; /* its index */
};

/* A process that the torture run killed. */
struct killed {
    int64_t pid, at_ns;
};

/* A process that stands still. */
struct stop {
    int64_t pid, from_ns, until_ns;
};

/* A renewal that came when the deadline had passed. */
struct late {
    int64_t pid, deadline_ns, at_ns;
    uint64_t lease;
    const char *file;
    unsigned long line;
};

/* A process that writes a file in which no client tells anything. */
struct process {
    const char *file;
    int64_t pid, at_ns;
};

/* A file that ends in the middle of a line. */
struct torn {
    const char *file;
    unsigned long line;
};

/* Values written to a name's counter: the largest token decides. */
struct counter {
    UT_hash_handle hh;
    const struct text *name;
    uint64_t fence, value, writes, refused;
};

struct world {
    int64_t patience_ns, calm_ns, longest_ns; /* longest: the longest wait since the calm */
    int64_t slack_ns;                         /* for what a process writes when it goes on after a stop */
    bool fencing;                             /* every hold has a token */
    struct client *clients;
    struct counter *counters;
    UT_array *holds, *told, *waits, *killed, *torn, *processes; /* struct hold, told, wait and so on */
    UT_array *stops, *late;
    unsigned long events, found[VIOLATIONS];
};
extern struct world world;

/* ---- story.c ---------------------------------------------------------------------------------------- */

void story_begin(void);
void story_line(const struct line *line);
void story_garbled(const char *file, unsigned long number, bool last);
/* Everything has been read. */
void story_end(void);

/* ---- verdict.c -------------------------------------------------------------------------------------- */

void verdict(void);

#endif
