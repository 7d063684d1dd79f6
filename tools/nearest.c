/* nearest.c - which word a user probably meant.
 *
 * The edit distance of short words; a swap of two neighbours counts as one edit (optimal string alignment). */
#include "nearest.h"

#include <string.h>

enum { WORD_MAX = 32 };

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t distance(const char *a, size_t a_length, const char *b, size_t b_length)
{
    size_t cost[WORD_MAX + 1][WORD_MAX + 1];

    for (size_t i = 0; i <= a_length; i++)
        cost[i][0] = i;
    for (size_t j = 0; j <= b_length; j++)
        cost[0][j] = j;
    for (size_t i = 1; i <= a_length; i++) {
        for (size_t j = 1; j <= b_length; j++) {
            size_t change = cost[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
            cost[i][j] = least(change, least(cost[i - 1][j], cost[i][j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                cost[i][j] = least(cost[i][j], cost[i - 2][j - 2] + 1);
        }
    }
    return cost[a_length][b_length];
}

const char *nearest(const char *word, const char *const *candidates, size_t count)
{
    const char *best = NULL;
    size_t length = strlen(word), best_distance = 3;

    if (length == 0 || length > WORD_MAX)
        return NULL;
    for (size_t i = 0; i < count; i++) {
        size_t candidate_length = strlen(candidates[i]);
        if (candidate_length > WORD_MAX)
            continue;
        size_t d = distance(word, length, candidates[i], candidate_length);
        if (d < best_distance && d < candidate_length) {
            best = candidates[i];
            best_distance = d;
        }
    }
    return best;
}
