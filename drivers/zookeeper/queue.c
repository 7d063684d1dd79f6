/* queue.c - the order of the contenders in a folder. See queue.h. */
#include "queue.h"

#include <string.h>

static bool is_among(const char *node, char *const *later, size_t later_count)
{
    for (size_t i = 0; i < later_count; i++)
        if (strcmp(node, later[i]) == 0)
            return true;
    return false;
}

struct queue_view queue_look(const struct children *children, enum node_style style,
                             const char *own, char *const *later, size_t later_count)
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
        if (strcmp(node, own) == 0) {
            view.found = true;
            continue;
        }
        if (!is_contender || number_is_before(own_number, number) ||
            is_among(node, later, later_count))
            continue;
        if (view.before == NULL || number_is_before(before_number, number)) {
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
