/* queue.c - the order of the contenders in a folder. See queue.h. */
#include "queue.h"

#include <string.h>

/* A contender among the children. */
struct place {
    const char *node;
    int32_t number;
};

/* Whether it blocks ours, as far as is known. */
static bool is_before(struct place place, int32_t own_number, const char *passed)
{
    enum number_order order = number_compare(place.number, own_number);
    return order == NUMBER_BEFORE || (order == NUMBER_UNDECIDED && strcmp(place.node, passed) > 0);
}

/* Whether it is nearer to ours than the other one: an undecided one with a smaller name, or a larger number. */
static bool is_nearer(struct place place, struct place other, int32_t own_number)
{
    bool decided = number_compare(place.number, own_number) == NUMBER_BEFORE;
    if (decided != (number_compare(other.number, own_number) == NUMBER_BEFORE))
        return !decided;
    return decided ? number_compare(other.number, place.number) == NUMBER_BEFORE
                   : strcmp(place.node, other.node) < 0;
}

struct queue_view queue_look(const struct children *children, enum node_style style,
                             const char *own, const char *passed)
{
    struct queue_view view = {0};
    struct place place, first = {0}, before = {0};
    int32_t own_number = 0;
    bool is_contender = node_number(own, &own_number);
    for (size_t i = 0; i < children->count; i++) {
        place.node = children->names[i];
        enum node_kin kin = node_kin(place.node, style);
        if (view.foreign == NULL && (kin == KIN_STYLE || kin == KIN_OTHER))
            view.foreign = place.node;
        if (!node_number(place.node, &place.number))
            continue;
        view.count++;
        if (first.node == NULL || number_compare(place.number, first.number) == NUMBER_BEFORE)
            first = place;
        if (strcmp(place.node, own) == 0)
            view.found = true;
        else if (is_contender && is_before(place, own_number, passed) &&
                 (before.node == NULL || is_nearer(place, before, own_number)))
            before = place;
    }
    view.before = before.node;
    view.first = view.found && view.before == NULL ? own : first.node;
    if (view.foreign == NULL && view.first != NULL && node_kin(view.first, style) == KIN_MORTISE)
        view.foreign = view.first;
    return view;
}

const char *queue_find(const struct children *children, const char *prefix)
{
    for (size_t i = 0; i < children->count; i++)
        if (strncmp(children->names[i], prefix, strlen(prefix)) == 0)
            return children->names[i];
    return NULL;
}
