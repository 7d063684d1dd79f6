/* expiry.c - which claims ended by their ttl between two listings.
 *
 * A backend does not report how a claim ended. A healthy holder renews its claim when a third of the ttl has passed, so
 * more than half of the ttl remains in nearly every listing. If less than half remains, the claim is never renewed, and it
 * is gone or replaced by another one when its time is over, it has expired: its holder crashed, hung, or could not reach
 * the backend. */
#include "serve.h"

#include "output.h"

#include <stdlib.h>
#include <string.h>

struct expiry {
    mortise_info *infos;
    int64_t *most_ms; /* for each claim: the most time that remained in any listing of this grant */
    size_t count;
    int64_t at_ns;
};

struct expiry *expiry_new(void)
{
    return must_have(calloc(1, sizeof(struct expiry)));
}

void expiry_free(struct expiry *expiry)
{
    free(expiry->infos);
    free(expiry->most_ms);
    free(expiry);
}

static bool same_grant(const mortise_info *a, const mortise_info *b)
{
    return a->token == b->token && strcmp(a->owner, b->owner) == 0;
}

/* The claim at i is gone; now_ns is the end of the first listing without it. */
static bool has_expired(const struct expiry *expiry, size_t i, int64_t now_ns)
{
    const mortise_info *info = &expiry->infos[i];

    return info->mode != MORTISE_SHARED && info->remaining_ms >= 0 &&
           info->remaining_ms < expiry->most_ms[i] / 2 &&
           expiry->at_ns + info->remaining_ms * 1000000 <= now_ns;
}

uint64_t expiry_next(struct expiry *expiry, mortise_info *infos, size_t count, int64_t now_ns)
{
    int64_t *most_ms = must_have(calloc(count + 1, sizeof *most_ms));
    uint64_t expired = 0;
    size_t i = 0, j = 0;

    while (i < expiry->count || j < count) {
        const int order = i == expiry->count ? 1
                          : j == count       ? -1
                                             : strcmp(expiry->infos[i].name, infos[j].name);
        const bool same = order == 0 && same_grant(&expiry->infos[i], &infos[j]);
        if (order <= 0 && !same && has_expired(expiry, i, now_ns))
            expired++;
        if (order >= 0) {
            most_ms[j] = infos[j].remaining_ms;
            if (same && expiry->most_ms[i] > most_ms[j])
                most_ms[j] = expiry->most_ms[i];
        }
        i += order <= 0;
        j += order >= 0;
    }
    free(expiry->infos);
    free(expiry->most_ms);
    *expiry = (struct expiry){infos, most_ms, count, now_ns};
    return expired;
}
