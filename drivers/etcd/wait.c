/* wait.c - what a claim watches while others block it.
 *
 * THE TURN. A claim with exactly one contender before it needs no look when that one goes: one watch covers its own key and the
 * other's, and reports deletions in their order. If the other key was deleted at the revision R, and the watch is sure
 * (watch.c), the own key was there and was the first, because nobody gets a place before it. Before the watch is sure, the own
 * key may have gone unseen, so the claim looks. After R, the own key is there until its session's proof ends, or somebody
 * deletes it by hand, which the watch of the own key will report. The base of the claim's token is the one that its last look
 * has read. If the value of the deleted key says a larger one, the claim looks: only that contender can have held the name
 * since. */
#include "claim.h"

#include <stdlib.h>

#define AGAIN_NS (1000 * NS_PER_MS) /* if there is no room for a watch */

static void keep(struct driver *driver, struct claim *claim, int64_t watch)
{
    if (watch == 0)
        claim_retry(driver, claim, AGAIN_NS);
    claim->watches[claim->watch_count++] = watch;
}

/* The permits are used up: watches as many contenders before it as there are permits. */
static void watch_crowd(struct driver *driver, struct claim *claim, const struct kvs *crowd,
                        int64_t from)
{
    struct key begin, end;
    if (claim->kind.permits > CROWD_MAX) {
        claim_border(claim, SHARED_BEGIN, &begin);
        claim_border(claim, SHARED_END, &end);
        keep(driver, claim,
             watch_start(driver, WATCHES_BLOCKER, claim, key_bytes(&begin), key_bytes(&end), from,
                         false));
        return;
    }
    for (size_t i = 0; i < crowd->count; i++)
        if (crowd->all[i].created < claim->created)
            keep(driver, claim,
                 watch_start(driver, WATCHES_BLOCKER, claim, crowd->all[i].key, (struct bytes){0},
                             from, false));
}

void claim_wait(struct driver *driver, struct claim *claim, const struct queue_view *view,
                int64_t revision)
{
    struct key own;
    size_t count = view->before != NULL              ? 1
                   : claim->kind.permits > CROWD_MAX ? 1
                                                     : view->crowd->count;
    claim_become(driver, claim, CLAIM_WAITING);
    claim->patience.away_ns = 0;
    if (claim->op != NULL) /* an answer of the servers has shown what blocks the claim */
        driver->host->waiting(driver->host, claim->op);
    claim->watches = calloc(count, sizeof(*claim->watches));
    claim_key(claim, &own);
    if (claim->watches == NULL)
        claim_retry(driver, claim, AGAIN_NS);
    else if (view->is_second && claim->queue_base >= 0)
        keep(driver, claim,
             watch_turn(driver, claim, key_bytes(&own), view->before->key, revision + 1));
    else if (view->before != NULL)
        keep(driver, claim,
             watch_start(driver, WATCHES_BLOCKER, claim, view->before->key, (struct bytes){0},
                         revision + 1, claim->kind.shared));
    else
        watch_crowd(driver, claim, view->crowd, revision + 1);
}
