/* queue.c - the order of the contenders in a folder. See queue.h. */
#include "queue.h"

#include <string.h>

/* Whether a contender with this number and name blocks ours. */
static bool is_before(int32_t number, const char *node, int32_t own_number, const char *passed)
{
    return number == own_number ? strcmp(node, passed) > 0 : number_is_before(number, own_number);
}

/* Whether it is nearer to ours than the other one: a larger number, or the next name among those with our number. */
static bool is_nearer(int32_t number, const char *node, int32_t other_number, const char *other)
{
    return number == other_number ? strcmp(node, other) < 0
                                  : number_is_before(other_number, number);
}

struct queue_view queue_look(const struct children *children, enum node_style style,
                             const char *own, const char *passed)
{
    struct queue_view view = {0};
    int32_t number, own_number = 0, first_number = 0, before_number = 0;
    bool is_contender = node_number(own, &own_number);
    for (size_t i = 0; i < children->count; i++) {
        const char *node = children->names[i];
        enum node_kin kin = node_kin(node, style);
        if (view.foreign == NULL && (kin == KIN_STYLE || kin == KIN_OTHER))
            view.foreign = node;
        if (!node_number(node, &number))
            continue;
        view.count++;
        if (view.first == NULL || number_is_before(number, first_number)) {
            view.first = node;
            first_number = number;
        }
        if (strcmp(node, own) == 0)
            view.found = true;
        else if (is_contender && is_before(number, node, own_number, passed) &&
                 (view.before == NULL || is_nearer(number, node, before_number, view.before))) {
            view.before = node;
            before_number = number;
        }
    }
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
