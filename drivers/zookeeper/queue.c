/* queue.c - the order of the contenders in a folder. See queue.h. */
#include "queue.h"

#include <stdlib.h>
#include <string.h>

/* Where a contender is, relative to ours. */
enum place { AHEAD, UNSURE, BEHIND };

struct own {
    bool is_contender;
    struct contender contender;
};

static struct own own_of(const struct seeker *seeker)
{
    struct own own;
    own.is_contender = node_read(seeker->node, seeker->style, &own.contender);
    return own;
}

static enum place place_of(const struct contender *contender, const struct own *own,
                           const struct seeker *seeker)
{
    if (strcmp(contender->node, seeker->node) == 0)
        return BEHIND;
    if (!own->is_contender)
        return AHEAD;
    switch (number_compare(contender->number, own->contender.number)) {
    case NUMBER_BEFORE:
        return AHEAD;
    case NUMBER_AFTER:
        return BEHIND;
    default:
        return strcmp(contender->node, seeker->passed) > 0 ? UNSURE : BEHIND;
    }
}

/* The contender's present kind. */
static struct node_kind kind_of(const struct contender *contender, const struct seeker *seeker)
{
    const struct node_kind opened = {.shared = true};
    return strcmp(contender->node, seeker->opened) == 0 ? opened : contender->kind;
}

/* Whether our contender may not hold beside this one, which is ahead. */
static bool is_wall(const struct contender *contender, const struct seeker *seeker)
{
    struct node_kind kind = kind_of(contender, seeker);
    bool same = kind.any_permits || kind.permits == seeker->kind.permits;
    return !seeker->kind.shared || !kind.shared || !same || contender->kin != KIN_OWN;
}

static bool is_later(const struct contender *contender, const struct contender *other)
{
    return other->node == NULL || number_compare(other->number, contender->number) == NUMBER_BEFORE;
}

static bool has_other_permits(const struct contender *first, const struct seeker *seeker)
{
    struct node_kind kind = kind_of(first, seeker);
    return seeker->kind.shared && kind.shared && !kind.any_permits &&
           kind.permits != seeker->kind.permits;
}

struct queue_view queue_look(const struct children *children, const struct seeker *seeker)
{
    struct queue_view view = {0};
    struct contender contender, first = {0}, known = {0}, wall = {0}, nearest = {0};
    const char *unsure = NULL;
    struct own own = own_of(seeker);
    size_t ahead = 0;
    for (size_t i = 0; i < children->count; i++) {
        bool counts = node_read(children->names[i], seeker->style, &contender);
        if (view.foreign == NULL && (contender.kin == KIN_STYLE || contender.kin == KIN_OTHER))
            view.foreign = contender.node;
        if (!counts)
            continue;
        view.count++;
        view.found |= strcmp(contender.node, seeker->node) == 0;
        if (first.node == NULL || number_compare(contender.number, first.number) == NUMBER_BEFORE)
            first = contender;
        if (!contender.kind.any_permits &&
            (known.node == NULL || number_compare(contender.number, known.number) == NUMBER_BEFORE))
            known = contender;
        enum place place = place_of(&contender, &own, seeker);
        ahead += place == AHEAD;
        if (place == UNSURE && (unsure == NULL || strcmp(contender.node, unsure) < 0))
            unsure = contender.node;
        if (place == AHEAD && is_later(&contender, &nearest))
            nearest = contender;
        if (place == AHEAD && is_wall(&contender, seeker) && is_later(&contender, &wall))
            wall = contender;
    }
    if (view.found && ahead == 0 && unsure == NULL)
        first = own.contender;
    view.first = first.node;
    view.before = unsure != NULL ? unsure : wall.node;
    view.crowded = view.before == NULL && seeker->kind.shared && seeker->kind.permits > 0 &&
                   ahead >= seeker->kind.permits;
    if (view.crowded)
        view.before = nearest.node;
    if (view.foreign == NULL && first.node != NULL && first.kin == KIN_MORTISE)
        view.foreign = first.node;
    if (known.node != NULL && has_other_permits(&known, seeker) &&
        place_of(&known, &own, seeker) == AHEAD)
        view.other_permits = known.node;
    return view;
}

/* ---- sorted ---------------------------------------------------------------------------------------------------- */

/* At the end of the numbers, all contenders count as one place. */
static int32_t place_number(const struct contender *contender)
{
    return contender->number < 0 ? INT32_MAX : contender->number;
}

static int by_number(const void *a, const void *b)
{
    const struct contender *one = a, *two = b;
    int32_t first = place_number(one), second = place_number(two);
    if (first != second)
        return (first > second) - (first < second);
    if (one->kind.shared !=
        two->kind.shared) /* a writer of Curator that is about to become a reader has both */
        return one->kind.shared ? 1 : -1;
    return strcmp(one->node, two->node);
}

size_t queue_sort(const struct children *children, enum node_style style, struct contender *all)
{
    size_t count = 0;
    for (size_t i = 0; i < children->count; i++)
        count += node_read(children->names[i], style, &all[count]);
    qsort(all, count, sizeof(*all), by_number);
    return count;
}

size_t queue_nearest(const struct children *children, const struct seeker *seeker, size_t count,
                     struct contender *all)
{
    struct own own = own_of(seeker);
    size_t contenders = queue_sort(children, seeker->style, all), ahead = 0;
    for (size_t i = 0; i < contenders; i++)
        if (place_of(&all[i], &own, seeker) == AHEAD)
            all[ahead++] = all[i];
    if (count > ahead)
        count = ahead;
    memmove(all, all + ahead - count, count * sizeof(*all));
    return count;
}

size_t queue_holders(const struct contender *all, size_t count)
{
    if (count == 0 || place_number(all) == INT32_MAX)
        return count;
    if (!all->kind.shared)
        return 1;
    size_t holders = 0, known = 0;
    while (known + 1 < count && all[known].kind.any_permits)
        known++;
    size_t permits = all[known].kind.permits;
    while (holders < count && (permits == 0 || holders < permits) && all[holders].kind.shared &&
           (all[holders].kind.any_permits || all[holders].kind.permits == permits) &&
           place_number(&all[holders]) != INT32_MAX)
        holders++;
    return holders;
}

/* A lease of kazoo has no number, so it is sorted before an exclusive one that was there first. */
struct queue_reads queue_to_read(const struct contender *all, size_t count)
{
    struct queue_reads reads = {queue_holders(all, count), 0};
    size_t at = 0;
    while (at < count && all[at].kind.any_permits)
        at++;
    if (at == count || all[at].kind.shared || reads.now != (at > 0 ? at : 1))
        return reads;
    reads.now = at + 1;
    if (reads.now < count && all[reads.now].kind.shared && all[reads.now].kind.permits == 0)
        reads.more = queue_holders(all + reads.now, count - reads.now);
    return reads;
}

const char *queue_find(const struct children *children, const char *prefix)
{
    for (size_t i = 0; i < children->count; i++)
        if (strncmp(children->names[i], prefix, strlen(prefix)) == 0)
            return children->names[i];
    return NULL;
}
