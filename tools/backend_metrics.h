/* backend_metrics.h - what the backend holds, as metrics for Prometheus: for `mortise list --prometheus` and for /metrics of
 * `mortise serve`.
 *
 * There is a series for each prefix and not for each name, so their number is bounded: at most BACKEND_PREFIXES, and one for
 * all other names. */
#ifndef MORTISE_TOOLS_BACKEND_METRICS_H
#define MORTISE_TOOLS_BACKEND_METRICS_H

#include <mortise/mortise.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { BACKEND_PREFIXES = 100 };

/* The prefix of a name ends with its first '/' or ':'. A name without one has the prefix "". */
struct prefix_tally {
    char prefix[MORTISE_NAME_MAX + 1];
    uint64_t held, waiters;
    int64_t oldest_ms; /* -1: unknown */
};

struct tally {
    struct prefix_tally *prefixes; /* the first one is "" */
    size_t count, capacity;
    bool waiters_known;
};
void tally_begin(struct tally *tally);
/* Adds a held name. Names come in byte order, as mortise_list() gives them. */
void tally_add(struct tally *tally, const mortise_info *info);
void tally_end(struct tally *tally);
uint64_t tally_held(const struct tally *tally);
/* -1: the backend does not count waiters. */
int64_t tally_waiters(const struct tally *tally);
/* -1: nothing is held, or the backend does not say. */
int64_t tally_oldest_ms(const struct tally *tally);

/* The text of all metrics. `tally` is NULL if the backend did not answer. `took_ms` is how long the listing took. `client` is
 * NULL, and so is `tally`, if it could not be opened. */
void metrics_write(FILE *out, mortise_client *client, const struct tally *tally, int64_t took_ms);
/* One more metric, with the same labels. */
void metrics_write_one(FILE *out, mortise_client *client, const char *name, const char *type,
                       const char *help, uint64_t value);

#endif
