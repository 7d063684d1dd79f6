/* check.c - the checker of histories. From what clients recorded (history.h) it verifies that no two clients held a
 * name at one instant, that tokens grew in the order of the holds, that no holder was told that it holds a lock that
 * had ended, that every waiter got its turn once the faults had ended, that nothing was left, and that every story
 * has an end. Otherwise it reports where not.
 *
 *     check [patience=MS] [slack=MS] [fencing=1] HISTORY …
 *
 * Reads all files as one history. Prints the first violations of each kind on stderr, FILE:LINE first, and one line of
 * numbers on stdout: how many of each kind, how much was read, and the longest wait after the faults had ended, in
 * milliseconds. patience: how long a caller may wait then (30000). slack: how late what a process does when it goes on after
 * a stop may be written down (1). fencing=1: each hold must have a token.
 * Exits 0: no violations; 1: violations; 2: a file cannot be read; 64: usage. */
#include "check.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOLD_OF_A_KIND 10

struct world world = {.patience_ns = INT64_C(30000000000), .slack_ns = 1000000};

static const char *const words[] = {
#define VIOLATION_WORD(name, word) word,
    VIOLATION_MAP(VIOLATION_WORD)
#undef VIOLATION_WORD
};

void violation(enum violation kind, const char *file, unsigned long line, const char *format, ...)
{
    va_list arguments;
    if (world.found[kind]++ >= TOLD_OF_A_KIND)
        return;
    fprintf(stderr, "%s:%lu: %s: ", file, line, words[kind]);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
}

/* -1: it is none. */
static int64_t number_of(const char *text, int64_t maximum)
{
    char *end;
    int64_t number = strtoll(text, &end, 10);
    return end != text && *end == '\0' && number <= maximum ? number : -1;
}

static bool set(const char *argument)
{
    int64_t number = -1;
    if (strncmp(argument, "patience=", 9) == 0) {
        number = number_of(argument + 9, 86400000);
        world.patience_ns = number * 1000000;
    } else if (strncmp(argument, "slack=", 6) == 0) {
        number = number_of(argument + 6, 86400000);
        world.slack_ns = number * 1000000;
    } else if (strncmp(argument, "fencing=", 8) == 0) {
        number = number_of(argument + 8, 1);
        world.fencing = number == 1;
    }
    return number >= 0;
}

/* True: there was a violation. */
static bool tell(void)
{
    struct counter *counter, *next;
    uint64_t writes = 0, refused = 0;
    bool any = false;
    for (size_t i = 0; i < VIOLATIONS; i++) {
        printf("%s=%lu ", words[i], world.found[i]);
        any |= world.found[i] > 0;
    }
    HASH_ITER (hh, world.counters, counter, next) {
        writes += counter->writes;
        refused += counter->refused;
    }
    printf("events=%lu clients=%u holds=%u writes=%llu refused=%llu longest=%lld\n", world.events,
           HASH_COUNT(world.clients), utarray_len(world.holds), (unsigned long long)writes,
           (unsigned long long)refused, (long long)(world.longest_ns / 1000000));
    return any;
}

int main(int argc, char **argv)
{
    int first = 1;
    while (first < argc && strchr(argv[first], '=') && set(argv[first]))
        first++;
    if (first >= argc || strchr(argv[first], '=')) {
        fprintf(stderr, "usage: check [patience=MS] [slack=MS] [fencing=1] HISTORY …\n");
        return 64;
    }
    story_begin();
    for (int i = first; i < argc; i++)
        if (!history_read(argv[i], story_line, story_garbled)) {
            fprintf(stderr, "check: %s cannot be read\n", argv[i]);
            return 2;
        }
    story_end();
    verdict();
    return tell() ? 1 : 0;
}
